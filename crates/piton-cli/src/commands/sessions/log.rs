//! `piton sessions log`: the records, and the coming ones.

use std::time::Duration;

use piton_core::event::Seq;
use piton_core::{Content, Record};
use piton_runtime::View;
use serde_json::{Map, Value};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::show::words;
use crate::text::{one_line, padded, shortened, width};
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions log SESSION
  piton sessions log SESSION --follow
  piton sessions log SESSION --kind message.user --kind 'run.*'
  piton sessions log SESSION --level node
  piton sessions log SESSION --after 120 --json | jq .kind

Without --all, --kind and --json, spool.imported is left out: it only says how far an agent's
spool was read.

JSON: one record per line: seq, ts, kind, and the kind's own fields; \"redacted\": true in place of
what was taken out.";

/// Records read at a time.
const PAGE_RECORDS: usize = 500;
/// How often `--follow` checks, while nothing happens, whether its output still has a reader.
const READER_EVERY: Duration = Duration::from_millis(500);
/// The longest kind's width.
const KIND_WIDTH: usize = 19;
/// Kinds that are only shown on request.
const HIDDEN: &[&str] = &["spool.imported"];
/// Below this, times are shown without their date, and details on a line of their own.
const WIDE: usize = 80;

/// Print a session's records
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// Keep printing new records until interrupted
    #[arg(long, short)]
    follow: bool,
    /// Only records after this one
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: Seq,
    /// Only records of this kind, such as run.started or 'tool.*'; may be repeated
    #[arg(long = "kind", short, value_name = "KIND", value_parser = parse_kind)]
    kinds: Vec<String>,
    /// Also print records that are not part of the conversation
    #[arg(long, short)]
    all: bool,
    /// How much to print: runs, also nodes and checkpoints, or everything
    #[arg(long, value_name = "LEVEL", conflicts_with = "kinds")]
    level: Option<Level>,
}

/// How much of a log is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    /// Runs, waits and lineages
    Run,
    /// Also nodes, edges and checkpoints
    Node,
    /// Everything
    Detail,
}

impl Level {
    fn shows(self, kind: &str) -> bool {
        const RUN: &[&str] = &["session.", "run.", "graph.", "lineage.", "wait."];
        const NODE: &[&str] = &["node.", "edge.", "checkpoint.", "map.listed", "output."];
        let begins = |kinds: &[&str]| kinds.iter().any(|begin| kind.starts_with(begin));
        match self {
            Self::Run => begins(RUN),
            Self::Node => begins(RUN) || begins(NODE),
            Self::Detail => true,
        }
    }
}

/// A kind, or the beginning of several with a `*` behind it.
fn parse_kind(text: &str) -> Result<String, String> {
    let known = || piton_core::event::KINDS.iter().map(|(kind, _)| *kind);
    let wanted = [text.to_owned()];
    if known().any(|kind| is_wanted(&wanted, kind)) {
        return Ok(text.to_owned());
    }
    let mut near: Vec<(f64, &str)> = known()
        .map(|kind| {
            let word = kind.rsplit('.').next().unwrap_or(kind);
            (strsim::jaro_winkler(kind, text).max(strsim::jaro_winkler(word, text)), kind)
        })
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near: Vec<&str> = near.into_iter().take(3).map(|(_, kind)| kind).collect();
    Err(format!(
        "there is no such kind of record; near: {}. docs/reference/records.md lists all kinds",
        near.join(", ")
    ))
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    // Listened to from here on, so that no signal kills what is half printed.
    let mut signals = if args.follow { Some(Signals::listen()?) } else { None };
    let (view, id) = cx.view_of(&args.session).await?;
    let Some(signals) = &mut signals else {
        return print_all(ui, &view, &id, &args).await;
    };
    let mut tail = view.tail(&id, args.after);
    loop {
        // Asked for once and waited for until it comes: the tail counts on that to notice wake-ups
        // that were lost.
        let mut next = std::pin::pin!(tail.next());
        let records = loop {
            tokio::select! {
                biased;
                exit = signals.next() => return Ok(exit),
                records = &mut next => break records?,
                () = tokio::time::sleep(READER_EVERY) => Ui::reader_is_there()?,
            }
        };
        print(ui, &args, &records)?;
        ui.flush()?;
    }
}

async fn print_all(
    ui: &mut Ui,
    view: &View,
    id: &piton_core::id::SessionId,
    args: &Args,
) -> Result<Exit> {
    let mut after = args.after;
    loop {
        let records = view.records(id, after, PAGE_RECORDS).await?;
        let Some(last) = records.last() else { return Ok(Exit::Good) };
        after = last.seq;
        print(ui, args, &records)?;
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Signal(2),
            _ = self.terminate.recv() => Exit::Signal(15),
        }
    }
}

fn print(ui: &mut Ui, args: &Args, records: &[Record]) -> Result<()> {
    let leaves_out = !args.all && !ui.json && args.kinds.is_empty() && args.level.is_none();
    let is_hidden = |record: &&Record| leaves_out && HIDDEN.contains(&&*record.kind);
    let wanted = records.iter().filter(|record| is_wanted(&args.kinds, &record.kind));
    let is_shown = |record: &&Record| args.level.is_none_or(|level| level.shows(&record.kind));
    for record in wanted.filter(is_shown).filter(|record| !is_hidden(record)) {
        let flat = record.to_flat()?;
        if ui.json { ui.json_line(&Value::Object(flat))? } else { print_line(ui, record, flat)? }
    }
    Ok(())
}

fn is_wanted(kinds: &[String], kind: &str) -> bool {
    let fits = |wanted: &String| match wanted.strip_suffix('*') {
        Some(beginning) => kind.starts_with(beginning),
        None => kind == wanted,
    };
    kinds.is_empty() || kinds.iter().any(fits)
}

fn print_line(ui: &mut Ui, record: &Record, flat: Map<String, Value>) -> Result<()> {
    let available = Ui::table_width();
    let is_wide = available >= WIDE;
    let time =
        if is_wide { times::date_and_time(record.ts) } else { times::time_of_day(record.ts) };
    let kind = one_line(&record.kind);
    let start = format!("{:>5}  {time}  ", record.seq);
    let details = details(record, flat);
    let start_painted = ui.paint(Tone::Quiet, &start);
    let kind_painted = ui.paint(tone(&record.kind), &kind);
    if is_wide {
        let used = width(&start) + KIND_WIDTH.max(width(&kind)) + 2;
        let blanks = padded("", KIND_WIDTH.saturating_sub(width(&kind)) + 2);
        let details = shortened(&details, available.saturating_sub(used));
        return ui.line(format!("{start_painted}{kind_painted}{blanks}{details}").trim_end());
    }
    ui.line(format_args!("{start_painted}{kind_painted}"))?;
    if !details.is_empty() {
        ui.line(format_args!("       {}", shortened(&details, available - 7)))?;
    }
    Ok(())
}

fn tone(kind: &str) -> Tone {
    match kind {
        "run.interrupted" | "run.failed" | "executor.error" | "agent.error" => Tone::Bad,
        "run.waiting" => Tone::Attention,
        "run.completed" => Tone::Good,
        kind if kind.starts_with("message.") => Tone::Active,
        _ => Tone::Plain,
    }
}

/// Fields that say the most, shown first and without their names.
const FIRST: &[&str] = &["name", "status", "outcome", "reason", "wait_kind", "title"];
/// Fields that the details leave out.
const LEFT_OUT: &[&str] = &["seq", "ts", "kind", "hash", "answer_digest", "session_id"];

/// What happened, then what was said, then the ids.
fn details(record: &Record, mut flat: Map<String, Value>) -> String {
    let mut parts: Vec<String> =
        FIRST.iter().filter_map(|field| flat.remove(*field)).map(|value| words(&value)).collect();
    if record.content == Content::Redacted {
        flat.remove("redacted");
        parts.push("(redacted)".to_owned());
    }
    for field in piton_core::event::content_fields(&record.kind) {
        parts.extend(flat.remove(*field).map(|value| words(&value)));
    }
    let rest = flat.iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()));
    parts.extend(rest.map(|(name, value)| format!("{name}={}", words(value))));
    one_line(&parts.join(" "))
}
