//! `piton convert`: from one kind of store to the other, in the same data folder.
//!
//! The marker file `store` says which of the two is in charge, and replacing it is the one moment at
//! which that changes. Whatever ends this process, the folder has one whole store that is in charge:
//! before that moment the old one, after it the new one. A note says which files are left over, and
//! the next attempt removes them.

mod steps;

use piton_core::Code;
use piton_core::id::SessionId;
use piton_store::sqlite::Access;
use piton_store::{Holder, Store, bundle};
use serde_json::json;

use self::steps::{Folder, Note, failpoint};
use crate::context::Context;
use crate::conversion;
use crate::error::{Error, Exit, Result};
use crate::stores::{self, Kind};
use crate::times;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton convert --to files          What would be done
  piton convert --to files --yes    Plain lines, for tail and jq
  piton convert --to sqlite --yes   Encrypted, for several processes

Every log is copied byte for byte and verified before the new store counts. The old store's files
are kept in the folder before-convert-DATE of the data folder; delete it when you no longer want
it.

JSON: one object: from, to, done, sessions, old (the folder with the old store's files, or null).";

/// Logs that are asked for at a time.
const PAGE_LOGS: usize = 256;

/// Convert the data folder's store to another kind
///
/// Without --yes it only prints what it would do. No other process may use the store at the same time.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The new kind of store: files or sqlite
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    to: Kind,
    /// Do it instead of printing what would be done
    #[arg(long, short)]
    yes: bool,
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    let named = Kind::NAMES.iter().find(|(name, _)| *name == text);
    named.map(|(_, kind)| *kind).ok_or_else(|| "it is neither files nor sqlite".to_owned())
}

/// What came of it.
struct Converted {
    from: Kind,
    to: Kind,
    sessions: usize,
    /// How many were copied, byte for byte: none is masked again.
    records: Option<u64>,
    /// Where the old store's files are now.
    old: Option<String>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let data = &cx.settings.data.value;
    let from = stores::detect(data)?.ok_or_else(|| cx.missing_store())?;
    if !args.yes {
        return preview(ui, cx, from, args.to).await;
    }
    let _converting = conversion::begin(data)?;
    // Read again: another process may have converted it before this one took the lock.
    let from = stores::detect(data)?.ok_or_else(|| cx.missing_store())?;
    refuse_living(cx)?;
    let folder = Folder::new(data);
    let tidied = tidy(&folder, from)?;
    if from == args.to {
        let done = Converted { from, to: args.to, sessions: 0, records: None, old: tidied };
        print_same(ui, cx, &done)?;
        return Ok(Exit::Good);
    }
    let done = convert(ui, cx, &folder, from, args.to).await?;
    print(ui, cx, &done)?;
    Ok(Exit::Good)
}

/// Ends what an earlier attempt began: forwards if its store is in charge already, else back. Says
/// where the old store's files are, if that is known.
fn tidy(folder: &Folder<'_>, in_charge: Kind) -> Result<Option<String>> {
    let Some(note) = folder.note()? else { return Ok(None) };
    if note.to == in_charge {
        folder.move_old(note.from, &note.old)?;
        folder.forget_note()?;
        return Ok(Some(note.old));
    }
    folder.remove_all_of(note.to)?;
    folder.forget_note()?;
    Ok(None)
}

async fn convert(
    ui: &mut Ui,
    cx: &Context,
    folder: &Folder<'_>,
    from: Kind,
    to: Kind,
) -> Result<Converted> {
    folder.refuse_all_of(to)?;
    // From here on two stores lie in the folder, and this says which one counts.
    folder.name(from)?;
    failpoint("named");
    let date = times::date(cx.now());
    let note = Note { from, to, old: folder.free_name(&format!("before-convert-{date}"))? };
    folder.write_note(&note)?;
    failpoint("noted");
    let copied = copy(cx, from, to).await.and_then(|sessions| {
        refuse_living(cx)?;
        Ok(sessions)
    });
    Ui::progress("");
    let (sessions, records) = match copied {
        Ok(copied) => copied,
        Err(error) => {
            tidy(folder, from)?;
            ui.note("The conversion was given up; the store is as it was.")?;
            return Err(error);
        }
    };
    failpoint("copied");
    folder.name(to)?;
    failpoint("committed");
    folder.move_old(from, &note.old)?;
    failpoint("moved");
    folder.forget_note()?;
    Ok(Converted { from, to, sessions, records: Some(records), old: Some(note.old) })
}

/// Copies all logs into a new store; returns how many sessions and records there are. Both are closed
/// afterwards.
async fn copy(cx: &Context, from: Kind, to: Kind) -> Result<(usize, u64)> {
    let from = stores::open_kind(&cx.settings, from, Access::ReadWrite)?;
    let new = stores::open_kind(&cx.settings, to, Access::ReadWrite)?;
    failpoint("made");
    let all = count(&*from).await?;
    let mut records = 0;
    bundle::convert(&from, &new, |progress| {
        records += progress.records;
        Ui::progress(&format!("{} logs copied and verified, of {all} sessions", progress.done));
        failpoint("copying");
    })
    .await?;
    // Closed and opened again: what is compared is what the next process will find.
    drop(new);
    let new = stores::open_kind(&cx.settings, to, Access::ReadOnly)?;
    compare(&*from, &*new).await?;
    Ok((all, records))
}

/// Both have the same logs, each with the same end of its chain.
async fn compare(from: &dyn Store, to: &dyn Store) -> Result<()> {
    let differs = |what: String| {
        Error::new(Code::StoreDamaged, what)
            .with_hint("Another process wrote meanwhile, or the disk is failing; try again.")
    };
    let logs = all_logs(from).await?;
    if all_logs(to).await? != logs {
        return Err(differs("The copy has not the same logs as the store".to_owned()));
    }
    for log in &logs {
        let end = |head: piton_store::Head| (head.last_seq, head.chain);
        let (old, new) = (from.head(log).await?, to.head(log).await?);
        if old.map(end) != new.map(end) {
            return Err(differs(format!("The copy of {log} is not what was copied")));
        }
    }
    Ok(())
}

/// Every log that there is, whether or not the index knows it, in the order of their names.
async fn all_logs(store: &dyn Store) -> Result<Vec<SessionId>> {
    let mut logs: Vec<SessionId> = Vec::new();
    loop {
        let page = store.logs(logs.last(), PAGE_LOGS).await?;
        if page.is_empty() {
            logs.sort();
            return Ok(logs);
        }
        logs.extend(page);
    }
}

async fn count(store: &dyn Store) -> Result<usize> {
    let logs = all_logs(store).await?;
    Ok(logs.iter().filter(|log| !log.is_metadata_log()).count())
}

/// A living process may write, and the new store would miss what it writes.
fn refuse_living(cx: &Context) -> Result<()> {
    let living = cx.locks().living()?;
    let Some(boot) = living.first() else { return Ok(()) };
    let who = match cx.holder(boot) {
        Some(Holder { pid, program }) => format!("{program} (pid {pid})"),
        None => format!("the process of {boot}"),
    };
    let more = match living.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(Error::new(Code::StoreInUse, format!("The store is in use by {who}{more}"))
        .with_hint("Stop it, and try again."))
}

const PLAIN: &str =
    "A store of plain files is not encrypted: anyone who can read the folder can read it.";

async fn preview(ui: &mut Ui, cx: &Context, from: Kind, to: Kind) -> Result<Exit> {
    let view = cx.existing_view()?;
    let all = count(&**view.store()).await?;
    let done = Converted { from, to, sessions: all, records: None, old: None };
    if from == to {
        print_same(ui, cx, &done)?;
        return Ok(Exit::Good);
    }
    if ui.json {
        ui.json_line(&done.to_json(cx, false))?;
        return Ok(Exit::Good);
    }
    let (from, to) = (from.as_str(), to.as_str());
    let data = cx.settings.data.value.display();
    ui.line(format_args!("The store at {data} is {from}, with {}.", sessions(done.sessions)))?;
    if done.to == Kind::Files {
        ui.warn(PLAIN)?;
    }
    ui.note(&format!("Nothing was changed. The same command with --yes converts it to {to}."))?;
    Ok(Exit::Good)
}

fn print_same(ui: &mut Ui, cx: &Context, done: &Converted) -> Result<()> {
    if ui.json {
        return ui.json_line(&done.to_json(cx, false));
    }
    ui.line(format_args!("The store is {} already.", done.to.as_str()))?;
    match &done.old {
        Some(old) => ui.note(&format!(
            "An earlier conversion was tidied up; the old store's files are in {}.",
            cx.settings.data.value.join(old).display()
        )),
        None => Ok(()),
    }
}

fn print(ui: &mut Ui, cx: &Context, done: &Converted) -> Result<()> {
    if ui.json {
        return ui.json_line(&done.to_json(cx, true));
    }
    let (from, to) = (done.from.as_str(), done.to.as_str());
    let (count, records) = (sessions(done.sessions), done.records.unwrap_or_default());
    ui.line(format_args!(
        "Converted from {from} to {to}: {count}, {records} records copied verbatim, all verified."
    ))?;
    if done.to == Kind::Files {
        ui.warn(PLAIN)?;
    }
    if let Some(old) = &done.old {
        let what = match done.from {
            Kind::Sqlite => "the old store with its encrypted data, and its key if that is a file",
            Kind::Files => "the old store, in the clear",
        };
        let path = cx.settings.data.value.join(old);
        ui.note(&format!(
            "{} holds {what}. Delete it when you no longer want it.",
            path.display()
        ))?;
    }
    Ok(())
}

fn sessions(count: usize) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

impl Converted {
    fn to_json(&self, cx: &Context, done: bool) -> serde_json::Value {
        json!({
            "from": self.from.as_str(),
            "to": self.to.as_str(),
            "done": done,
            "sessions": self.sessions,
            "verbatim_records": self.records,
            "old": self.old.as_ref().map(|old| cx.settings.data.value.join(old)),
        })
    }
}
