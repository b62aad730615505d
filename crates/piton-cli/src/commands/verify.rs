//! `piton verify`: whether the logs are what was written.

use piton_core::event::Seq;
use piton_core::id::SessionId;
use piton_runtime::View;
use piton_store::{Problem, Verification};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton verify                 Every session, and the store's own log
  piton verify sess_0199
  piton verify --rebuild       Make all caches anew first
  piton verify --json | jq 'select(.good | not)'

Exit code: 0 if everything is good, 1 if anything is not.
JSON: one object per log and line: session, good, good_to, anchored_to, problem {kind, seq, what}, code.";

/// Logs that are asked for at a time.
const PAGE: usize = 256;

/// Check that the logs are what was written
///
/// Walks every record of a session: its hash chain, contents, blobs, batches, the anchor that is kept
/// outside of it, and the caches that were made of it. Without --rebuild it changes nothing; it works
/// beside a writer.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this session: its id, or its beginning
    session: Option<String>,
    /// First delete all caches (index, snapshots, leases, tokens) and make them anew from the logs
    #[arg(long)]
    rebuild: bool,
}

#[derive(Debug, Default)]
struct Tally {
    good: usize,
    bad: usize,
    records: Seq,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let mut tally = Tally::default();
    if args.rebuild {
        cx.writable_store()?.rebuild_caches().await?;
    }
    if let Some(session) = &args.session {
        let (view, id) = cx.view_of(session).await?;
        check(ui, &view, &id, Say::Everything, &mut tally).await?;
        return Ok(tally.exit());
    }
    let view = cx.existing_view()?;
    check_all(ui, &view, &mut tally).await?;
    Ui::progress("");
    tally.print(ui)?;
    Ok(tally.exit())
}

/// What a check that finds nothing says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Say {
    Everything,
    Problems,
}

/// Every log that there is, whether or not the index knows it.
async fn check_all(ui: &mut Ui, view: &View, tally: &mut Tally) -> Result<()> {
    let mut after = None;
    loop {
        let page = view.store().logs(after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for session in &page {
            check(ui, view, session, Say::Problems, tally).await?;
            Ui::progress(&format!("{} logs checked", tally.good + tally.bad));
        }
    }
}

async fn check(
    ui: &mut Ui,
    view: &View,
    id: &SessionId,
    say: Say,
    tally: &mut Tally,
) -> Result<()> {
    // What keeps one session from being read is a finding; the others are looked at all the same.
    let found = view.store().verify(id).await.map_err(Error::from);
    let is_good = matches!(&found, Ok(Verification { problem: None, .. }));
    tally.good += usize::from(is_good);
    tally.bad += usize::from(!is_good);
    tally.records += found.as_ref().map_or(0, |found| found.good_to);
    if ui.json {
        return ui.json_line(&to_json(id, &found));
    }
    if !is_good {
        Ui::progress("");
    }
    match &found {
        Ok(Verification { problem: None, .. }) if say == Say::Problems => Ok(()),
        Ok(Verification { problem: None, good_to, .. }) => {
            let good = ui.paint(Tone::Good, "good");
            ui.line(format_args!("{id}: {good}, {good_to} records"))
        }
        Ok(Verification { problem: Some(problem), good_to, .. }) => {
            let told = told(problem);
            bad(ui, id, &told.what)?;
            ui.line(format_args!("  {}", good_part(*good_to)))?;
            let to_do = ui.call.spelled(told.to_do);
            ui.line(format_args!("  {to_do}"))?;
            ui.flush()
        }
        Err(error) => {
            bad(ui, id, error.message())?;
            for (label, text) in error.lines(&ui.call).into_iter().skip(1) {
                ui.line(format_args!("  {label}: {text}"))?;
            }
            ui.flush()
        }
    }
}

fn bad(ui: &mut Ui, id: &SessionId, what: &str) -> Result<()> {
    let bad = ui.paint(Tone::Bad, "bad");
    ui.line(format_args!("{id}: {bad}: {what}"))
}

fn good_part(good_to: Seq) -> String {
    match good_to {
        0 => "No record is known to be good.".to_owned(),
        1 => "Record 1 is good.".to_owned(),
        last => format!("Records 1 to {last} are good."),
    }
}

struct Told {
    kind: &'static str,
    seq: Option<Seq>,
    what: String,
    to_do: &'static str,
}

const RESTORE: &str = "Restore the session from a backup; what is good can still be read.";
const REBUILD: &str =
    "The log is good and a cache of it is not: `piton verify --rebuild` makes it anew.";

fn told(problem: &Problem) -> Told {
    let (kind, seq, to_do) = match problem {
        Problem::ChainBroken { seq } => ("chain_broken", Some(*seq), RESTORE),
        Problem::Gap { expected, .. } => ("gap", Some(*expected), RESTORE),
        Problem::BatchCut { seq } => ("batch_cut", Some(*seq), RESTORE),
        Problem::CutBehindAnchor { found, .. } => ("cut_behind_anchor", Some(found + 1), RESTORE),
        Problem::AnchorMismatch { seq } => ("anchor_mismatch", Some(*seq), RESTORE),
        Problem::LineDamaged { .. } => ("line_damaged", None, RESTORE),
        Problem::PayloadDamaged { seq } => ("payload_damaged", Some(*seq), RESTORE),
        Problem::BlobMissing { seq } => ("blob_missing", Some(*seq), RESTORE),
        Problem::TombstoneUnjustified { seq } => ("tombstone_unjustified", Some(*seq), RESTORE),
        Problem::SnapshotDisagrees { seq } => ("snapshot_disagrees", Some(*seq), REBUILD),
        Problem::IndexDisagrees { .. } => ("index_disagrees", None, REBUILD),
    };
    Told { kind, seq, what: problem.to_string(), to_do }
}

fn to_json(id: &SessionId, found: &Result<Verification>) -> Value {
    match found {
        Ok(Verification { good_to, problem, anchored_to }) => {
            let told = problem.as_ref().map(told);
            json!({
                "session": id,
                "good": problem.is_none(),
                "good_to": good_to,
                "anchored_to": anchored_to,
                "problem": told.map(|told| {
                    json!({"kind": told.kind, "seq": told.seq, "what": told.what})
                }),
                "code": Value::Null,
            })
        }
        Err(error) => json!({
            "session": id,
            "good": false,
            "good_to": Value::Null,
            "anchored_to": Value::Null,
            "problem": {"kind": "unreadable", "seq": Value::Null, "what": error.message()},
            "code": error.code().map(piton_core::Code::as_str),
        }),
    }
}

impl Tally {
    fn exit(&self) -> Exit {
        if self.bad == 0 { Exit::Good } else { Exit::Failed }
    }

    fn print(&self, ui: &mut Ui) -> Result<()> {
        let Self { good, bad, records } = self;
        let logs = good + bad;
        let text = match bad {
            0 if logs == 1 => format!("1 log with {records} records: all good."),
            0 => format!("{logs} logs with {records} records: all good."),
            _ => format!("{bad} of {logs} logs are not good; {records} records are."),
        };
        // In JSON every line is a log.
        if ui.json { ui.note(&text) } else { ui.line(text) }
    }
}

#[cfg(test)]
mod tests {
    use piton_store::IndexEntry;

    use super::*;

    /// Every finding says what it is, where, and what to do.
    #[test]
    fn every_problem_is_told() {
        let problems = [
            Problem::ChainBroken { seq: 3 },
            Problem::Gap { expected: 3, found: 5 },
            Problem::BatchCut { seq: 3 },
            Problem::CutBehindAnchor { anchored: 7, found: 2 },
            Problem::AnchorMismatch { seq: 3 },
            Problem::PayloadDamaged { seq: 3 },
            Problem::BlobMissing { seq: 3 },
            Problem::TombstoneUnjustified { seq: 3 },
            Problem::SnapshotDisagrees { seq: 3 },
            Problem::IndexDisagrees { what: IndexEntry::Session },
            Problem::IndexDisagrees { what: IndexEntry::Lease },
            Problem::IndexDisagrees { what: IndexEntry::Token("rt_1".parse().unwrap()) },
            Problem::IndexDisagrees { what: IndexEntry::Record(3) },
        ];
        let lines = problems.iter().map(told).map(|Told { kind, seq, what, to_do }| {
            let seq = seq.map_or_else(|| "-".to_owned(), |seq| seq.to_string());
            let rebuilt = if to_do == REBUILD { "rebuild" } else { "restore" };
            format!("{kind} {seq} {rebuilt}: {what}")
        });
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [
                "chain_broken 3 restore: record 3 is not what was written, or not in its place",
                "gap 3 restore: record 3 is missing; the next one is 5",
                "batch_cut 3 restore: the last batch is not whole: it breaks off after record 3",
                "cut_behind_anchor 3 restore: the log ends at record 2, but had 7 records before",
                "anchor_mismatch 3 restore: record 3 is not the one that was anchored outside the log",
                "payload_damaged 3 restore: the content of record 3 is not what was written",
                "blob_missing 3 restore: the content of record 3 is missing from the blobs",
                "tombstone_unjustified 3 restore: the content of record 3 was taken out, and no record says why",
                "snapshot_disagrees 3 rebuild: the snapshot at record 3 does not say what the log says",
                "index_disagrees - rebuild: the session's row in the index is not what the log says",
                "index_disagrees - rebuild: the lease's entry in the index is not what the log says",
                "index_disagrees - rebuild: the index entry of token rt_1 is not what the log says",
                "index_disagrees - rebuild: the index entry of record 3 is not what the log says",
            ]
        );
    }
}
