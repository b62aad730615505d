//! `piton verify`: whether the logs are what was written.

use piton_core::event::Seq;
use piton_core::id::SessionId;
use piton_runtime::View;
use piton_store::{Finding, Problem, Verification};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton verify                 Every session, and the metadata log
  piton verify SESSION
  piton verify --rebuild       Make all caches again, if every log is good
  piton verify --json | jq 'select(.good | not)'

Exit code: 0 if everything is good, 1 if anything is not.
JSON: one object per log and line: session_id (null for the store as a whole), good, good_to,
anchored_to, problem {kind, seq, what}, code.";

/// Logs that are asked for at a time.
const PAGE_LOGS: usize = 256;

/// Verify that no log was changed or cut
///
/// Checks every record of a session: its hash chain, contents, blobs, batches, the anchor that is kept
/// outside the log, and the caches that were made from it. Without SESSION it also reports sessions
/// that the metadata log lists and that are missing, missing or damaged anchors, and an index of
/// sessions that is damaged. It does not find a record that was removed before it was anchored (about
/// a second), and it cannot prove anything against someone who has the data key. Without --rebuild it
/// changes nothing; it works beside a running server.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this session: its id, the beginning or end of it, or @last
    session: Option<String>,
    /// Delete all caches (index, snapshots, leases, tokens) and rebuild them from the logs.
    /// Refused while a log or an anchor is in doubt: a cache may be the only trace of what is missing
    #[arg(long)]
    rebuild: bool,
}

#[derive(Debug, Default)]
struct Tally {
    good: usize,
    bad: usize,
    records: Seq,
    /// Findings that are about more than a cache.
    doubts: usize,
    /// Something is wrong with the store as a whole.
    store_bad: bool,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let mut tally = Tally::default();
    if args.rebuild {
        check_all(ui, &cx.existing_view()?, Say::Doubts, &mut tally).await?;
        Ui::progress("");
        if tally.doubts > 0 {
            ui.note("Nothing was rebuilt: a cache may be the only trace of what is missing.")?;
            return Ok(Exit::Failed);
        }
        cx.writable_store()?.rebuild_caches().await?;
        tally = Tally::default();
    }
    if let Some(session) = &args.session {
        let (view, id) = cx.view_of(session).await?;
        check(ui, &view, &id, Say::Everything, &mut tally).await?;
        return Ok(tally.exit());
    }
    let view = cx.existing_view()?;
    check_all(ui, &view, Say::Problems, &mut tally).await?;
    Ui::progress("");
    tally.print(ui)?;
    Ok(tally.exit())
}

/// What a check that finds nothing says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Say {
    Everything,
    Problems,
    /// Only what `--rebuild` must not run over.
    Doubts,
}

/// Every log that there is, whether or not the index knows it, and what no single log shows.
async fn check_all(ui: &mut Ui, view: &View, say: Say, tally: &mut Tally) -> Result<()> {
    let mut after = None;
    loop {
        let page = view.store().logs(after.as_ref(), PAGE_LOGS).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        for session in &page {
            check(ui, view, session, say, tally).await?;
            Ui::progress(&format!("{} logs checked", tally.good + tally.bad));
        }
    }
    for Finding { session, problem } in view.store().verify_store().await? {
        let explained = explain(&problem);
        let is_doubt = explained.to_do != REBUILD;
        tally.doubts += usize::from(is_doubt);
        // A log that is not there is a bad one; the store itself is none.
        tally.bad += usize::from(session.is_some());
        tally.store_bad |= session.is_none();
        if say == Say::Doubts && !is_doubt {
            continue;
        }
        Ui::progress("");
        if ui.json {
            ui.json_line(&finding_json(session.as_ref(), &explained))?;
            continue;
        }
        match &session {
            Some(session) => bad(ui, session.as_str(), &explained.what)?,
            None => bad(ui, "The store", &explained.what)?,
        }
        let to_do = ui.call.spelled(explained.to_do);
        ui.line(format_args!("  {to_do}"))?;
        ui.flush()?;
    }
    Ok(())
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
    let is_doubt = match &found {
        Ok(Verification { problem, .. }) => {
            problem.as_ref().is_some_and(|problem| explain(problem).to_do != REBUILD)
        }
        Err(_) => true,
    };
    tally.good += usize::from(is_good);
    tally.bad += usize::from(!is_good);
    tally.doubts += usize::from(is_doubt);
    tally.records += found.as_ref().map_or(0, |found| found.good_to);
    if say == Say::Doubts && !is_doubt {
        return Ok(());
    }
    if ui.json {
        return ui.json_line(&to_json(id, &found));
    }
    if !is_good {
        Ui::progress("");
    }
    match &found {
        Ok(Verification { problem: None, .. }) if say != Say::Everything => Ok(()),
        Ok(Verification { problem: None, good_to, .. }) => {
            let good = ui.paint(Tone::Good, "good");
            ui.line(format_args!("{id}: {good}, {good_to} records"))
        }
        Ok(Verification { problem: Some(problem), good_to, .. }) => {
            let explained = explain(problem);
            bad(ui, id.as_str(), &explained.what)?;
            ui.line(format_args!("  {}", good_part(*good_to)))?;
            let to_do = ui.call.spelled(explained.to_do);
            ui.line(format_args!("  {to_do}"))?;
            ui.flush()
        }
        Err(error) => {
            bad(ui, id.as_str(), error.message())?;
            for (label, text) in error.lines(&ui.call).into_iter().skip(1) {
                ui.line(format_args!("  {label}: {text}"))?;
            }
            ui.flush()
        }
    }
}

fn bad(ui: &mut Ui, subject: &str, what: &str) -> Result<()> {
    let bad = ui.paint(Tone::Bad, "bad");
    ui.line(format_args!("{subject}: {bad}: {what}"))
}

fn good_part(good_to: Seq) -> String {
    match good_to {
        0 => "No record is known to be good.".to_owned(),
        1 => "Record 1 is good.".to_owned(),
        last => format!("Records 1 to {last} are good."),
    }
}

struct Explanation {
    kind: &'static str,
    seq: Option<Seq>,
    what: String,
    to_do: &'static str,
}

const RESTORE: &str = "Restore the session from a backup; what is good can still be read.";
const RESTORE_MISSING: &str =
    "Restore the session from a backup, or import its bundle, unless it was removed on purpose.";
const RESTORE_METADATA: &str = "Restore the data folder from a backup. No new session can be created without the metadata log.";
const KEEP: &str = "Copy the data folder before anything else, and compare the logs with a backup: \
                    the next start of the server makes the anchors again, and records that it did.";
const REBUILD: &str =
    "The log is good and a cache of it is not: `piton verify --rebuild` makes the cache again.";

fn explain(problem: &Problem) -> Explanation {
    let (kind, seq, to_do) = match problem {
        Problem::SessionMissing => ("session_missing", None, RESTORE_MISSING),
        Problem::MetadataMissing => ("metadata_missing", None, RESTORE_METADATA),
        Problem::AnchorMissing => ("anchor_missing", None, KEEP),
        Problem::AnchorsMissing => ("anchors_missing", None, KEEP),
        Problem::AnchorsDamaged { .. } => ("anchors_damaged", None, KEEP),
        Problem::CutBehindCache { found, .. } => ("cut_behind_cache", Some(found + 1), RESTORE),
        Problem::IndexDamaged { .. } => ("index_damaged", None, REBUILD),
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
    Explanation { kind, seq, what: problem.to_string(), to_do }
}

fn finding_json(session: Option<&SessionId>, explained: &Explanation) -> Value {
    json!({
        "session_id": session,
        "good": false,
        "good_to": Value::Null,
        "anchored_to": Value::Null,
        "problem": {"kind": explained.kind, "seq": explained.seq, "what": explained.what},
        "code": Value::Null,
    })
}

fn to_json(id: &SessionId, found: &Result<Verification>) -> Value {
    match found {
        Ok(Verification { good_to, problem, anchored_to }) => {
            let explained = problem.as_ref().map(explain);
            json!({
                "session_id": id,
                "good": problem.is_none(),
                "good_to": good_to,
                "anchored_to": anchored_to,
                "problem": explained.map(|explained| {
                    json!({"kind": explained.kind, "seq": explained.seq, "what": explained.what})
                }),
                "code": Value::Null,
            })
        }
        Err(error) => json!({
            "session_id": id,
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
        if self.bad == 0 && !self.store_bad { Exit::Good } else { Exit::Failed }
    }

    fn print(&self, ui: &mut Ui) -> Result<()> {
        let Self { good, bad, records, store_bad, .. } = self;
        let logs = good + bad;
        let text = match bad {
            0 if *store_bad => {
                format!("{logs} logs with {records} records are good; the store is not.")
            }
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
    fn every_problem_is_reported() {
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
            Problem::SessionMissing,
            Problem::MetadataMissing,
            Problem::AnchorMissing,
            Problem::AnchorsMissing,
            Problem::AnchorsDamaged { why: "it had 3 anchors and has 2".to_owned() },
            Problem::CutBehindCache { known: 7, found: 2 },
            Problem::IndexDamaged { why: "wrong # of entries".to_owned() },
        ];
        let lines = problems.iter().map(explain).map(|Explanation { kind, seq, what, to_do }| {
            let seq = seq.map_or_else(|| "-".to_owned(), |seq| seq.to_string());
            let rebuilt = match to_do {
                REBUILD => "rebuild",
                KEEP => "keep",
                _ => "restore",
            };
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
                "session_missing - restore: the metadata log lists the session, but its log is not there",
                "metadata_missing - restore: the metadata log, which lists every session, is not there",
                "anchor_missing - keep: its anchor is missing or unreadable, so a log that was cut would not show it",
                "anchors_missing - keep: the file of anchors is missing, so logs that were cut would not show it",
                "anchors_damaged - keep: the file of anchors is damaged (it had 3 anchors and has 2), so logs that were cut may not show it",
                "cut_behind_cache 3 restore: the log ends at record 2, but a cache of it knows record 7",
                "index_damaged - rebuild: the index of sessions is damaged: wrong # of entries",
            ]
        );
    }
}
