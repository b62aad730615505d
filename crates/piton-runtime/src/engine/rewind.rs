//! The way back: files, conversation, or both, to a checkpoint of a turn; and the way back from that.

use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_core::State;
use piton_core::decide::{Command, Refusal, StartRestore, Verdict};
use piton_core::event::{Event, LineageStarted, Seq};
use piton_core::graph::CheckpointType;
use piton_core::id::{CheckpointId, SessionId};
use piton_core::resume::{self, Context, Strategy};
use piton_core::turns::TurnEntry;
use piton_workspace::snapshot::Repository;
use piton_workspace::snapshot::tree::{ObjectId, Selection, changes};
use serde::{Deserialize, Serialize};

use super::requests::{Request, value};
use super::rewind_files::{FilesPlan, file_change, files_plan, look, skipped_paths};
use super::snapshots::{Snapshots, also};
use super::{Caller, Engine, Fulfilled};
use crate::error::{Error, Result};
use crate::supervisor::LaunchConfigs as _;

/// How long a turn that is cancelled may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_POLL: Duration = Duration::from_millis(20);
/// So many records before a request's own there is what it began, if it began something.
const RECORDS_BEFORE_REQUEST: u64 = 4;
/// Records that are read at a time to find how a restore ended.
const PAGE_RECORDS: usize = 64;
/// Paths that an answer names.
const PATHS_ANSWERED_MAX: usize = 10_000;

/// Where to go back to, and what goes back.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is the answer to a question of its own")]
pub struct RewindSpec {
    /// A checkpoint's id, or the beginning or end of it.
    pub to: Option<String>,
    /// Without a checkpoint: so many turns, at least 1.
    pub turns: Option<u32>,
    pub files: bool,
    pub conversation: bool,
    /// Only these files, and what is below these folders; empty: all.
    pub paths: Vec<String>,
    /// Only say what would happen.
    pub dry_run: bool,
    /// Overwrite changes that the session did not make.
    pub force: bool,
    /// Cancel a run that is open.
    pub cancel: bool,
}

/// What a rewind did, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewindReport {
    pub session_id: SessionId,
    pub checkpoint_id: CheckpointId,
    pub dry_run: bool,
    pub files: Option<RewoundFiles>,
    pub conversation: Option<RewoundConversation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewoundFiles {
    pub changes: Vec<FileChange>,
    pub changes_total: u64,
    /// Those of them that the session did not change.
    pub foreign: Vec<String>,
    /// The files before it; `None` for a dry run.
    pub safety_snapshot: Option<String>,
    /// What neither the checkpoint's snapshot nor the one before the rewind holds: it stays as it is.
    #[serde(default)]
    pub skipped: Vec<SkippedPath>,
    #[serde(default)]
    pub skipped_total: u64,
    /// The checkpoint of what was edited after a crash in the middle of the rewind, before it was
    /// finished. Of an undo: in the middle of the rewind that is undone.
    #[serde(default)]
    pub kept_checkpoint: Option<CheckpointId>,
}

/// What a snapshot does not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SkippedPath {
    pub path: String,
    /// `too_large`, `nested_repository`, `not_a_file` or `unreadable`.
    pub reason: String,
}

/// How the files of two checkpoints differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesComparison {
    pub changes: Vec<FileChange>,
    /// What is in one of the snapshots only by name: it is not compared.
    pub skipped: Vec<SkippedPath>,
    pub skipped_total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    pub path: String,
    /// `added`, `modified` or `removed`.
    pub change: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewoundConversation {
    pub lineage: u32,
    /// What the agent will know of what was said before.
    pub context: Context,
}

impl Engine {
    /// Goes back to the checkpoint of a turn.
    pub async fn rewind(
        &self,
        caller: &Caller,
        session: &SessionId,
        spec: RewindSpec,
    ) -> Result<Fulfilled<RewindReport>> {
        let snapshots = self.snapshots()?;
        if !spec.files && !spec.conversation {
            return Err(Error::Invalid("Name files, the conversation, or both".to_owned()));
        }
        if spec.conversation && !spec.paths.is_empty() {
            return Err(Error::Invalid("Paths are for a rewind of files alone".to_owned()));
        }
        let request = Request::new(caller, "sessions.rewind", session, &spec)?;
        let state = self.view().state(session).await?;
        if let Some(replayed) = self.replayed_rewind(session, &state, &request).await? {
            return Ok(replayed);
        }
        let entry = checkpoint(&state, &spec)?.clone();
        let files = if spec.files {
            Some(files_plan(snapshots, session, &state, &entry, &spec)?)
        } else {
            None
        };
        // The start of a turn that is taken back is no turn.
        let is_start = entry.checkpoint_type == CheckpointType::TurnStart;
        let end = if is_start { entry.seq - 1 } else { entry.seq };
        let conversation = spec.conversation.then_some((entry.lineage, end));
        let checkpoint_id = entry.checkpoint_id;
        let way = Way { checkpoint_id, files, conversation, undone_kept: None };
        self.go(caller, session, &request, way, spec.dry_run, spec.cancel).await
    }

    /// Undoes the last rewind, if no turn has begun since. Undone again, the rewind is there again.
    pub async fn undo(
        &self,
        caller: &Caller,
        session: &SessionId,
        force: bool,
        dry_run: bool,
    ) -> Result<Fulfilled<RewindReport>> {
        let snapshots = self.snapshots()?;
        let arguments = serde_json::json!({"force": force, "dry_run": dry_run});
        let request = Request::new(caller, "sessions.undo", session, &arguments)?;
        let state = self.view().state(session).await?;
        if let Some(replayed) = self.replayed_rewind(session, &state, &request).await? {
            return Ok(replayed);
        }
        let nothing =
            || Error::Invalid("There is no rewind to undo since the last turn".to_owned());
        let last = state.turns.last_rewind.clone().ok_or_else(nothing)?;
        let checkpoint_id = last.checkpoint_id.ok_or_else(nothing)?;
        let files = match last.safety_snapshot {
            Some(safety) => Some(FilesPlan {
                checkpoint_id: checkpoint_id.clone(),
                earlier: Vec::new(),
                workspace: workspace_of(snapshots, session, &state)?,
                target: parsed(&safety)?,
                selection: Selection::all(),
                gaps: Vec::new(),
                last: state.turns.last_snapshot.as_deref().and_then(|id| id.parse().ok()),
                force,
            }),
            None => None,
        };
        let undone_kept = state.turns.kept_checkpoint().map(|entry| entry.checkpoint_id.clone());
        let way = Way { checkpoint_id, files, conversation: last.conversation, undone_kept };
        self.go(caller, session, &request, way, dry_run, false).await
    }

    /// How the files differ between two checkpoints, or between a checkpoint and now.
    pub async fn diff_files(
        &self,
        session: &SessionId,
        from: &str,
        to: Option<&str>,
    ) -> Result<FilesComparison> {
        let snapshots = self.snapshots()?;
        let state = self.view().state(session).await?;
        let workspace = workspace_of(snapshots, session, &state)?;
        let from = snapshot_of(&state, found(&state, from)?)?;
        let to = match to {
            Some(to) => Some(snapshot_of(&state, found(&state, to)?)?),
            None => None,
        };
        let held = snapshots.hold(session).await;
        let diff = move |repository: &mut Repository, workspace: &Path| {
            let to = match to {
                Some(to) => to,
                None => repository.take(workspace, &also())?.id,
            };
            let (from, to) = (repository.load(from)?, repository.load(to)?);
            let (skipped, skipped_total) = skipped_paths([&from, &to]);
            Ok((changes(&from.tree, &to.tree), skipped, skipped_total))
        };
        let (_held, found) = snapshots.with_repository(held, session, &workspace, diff).await;
        let (changes, skipped, skipped_total) = found?;
        let changes = changes.iter().map(|change| file_change(&change.path, change.kind));
        Ok(FilesComparison { changes: changes.collect(), skipped, skipped_total })
    }

    /// Waits until the agent has heard that its turn is cancelled, and has ended it.
    async fn await_turn_end(&self, session: &SessionId) -> Result<State> {
        // The agent may write files until it has heard of it.
        self.settled(session, |state| state.pending.is_empty()).await
    }

    fn snapshots(&self) -> Result<&Snapshots> {
        let off = || Error::Invalid("This server takes no snapshots".to_owned());
        self.running()?.snapshots.as_ref().ok_or_else(off)
    }

    async fn go(
        &self,
        caller: &Caller,
        session: &SessionId,
        request: &Request<'_>,
        mut way: Way,
        dry_run: bool,
        cancel: bool,
    ) -> Result<Fulfilled<RewindReport>> {
        let snapshots = self.snapshots()?;
        let state = self.view().state(session).await?;
        if state.facts.closed.is_some() {
            return Err(Refusal::SessionClosed.into());
        }
        if state.facts.restore.is_some() {
            return Err(Refusal::RestoreInProgress.into());
        }
        if let Some(run) = state.facts.run.as_ref().filter(|run| run.is_unfinished() && !dry_run) {
            if !cancel {
                return Err(Refusal::RunInProgress { run: run.run_id.clone() }.into());
            }
            let run_id = run.run_id.clone();
            self.cancel(caller, session, Some(run_id.clone())).await?;
            self.await_turn_end(session).await?;
            snapshots.after_turn(session, run_id).await?;
        }
        // What the last turn changed is the session's own.
        let state = self.settled(session, |_| !snapshots.is_turn_ending(session)).await?;
        snapshots.save_ended_turn(session, &state).await?;
        let state = self.view().state(session).await?;
        if let Some(plan) = &mut way.files {
            plan.last = state.turns.last_snapshot.as_deref().and_then(|id| id.parse().ok());
        }
        let held = snapshots.hold(session).await;
        let planned = match &way.files {
            Some(plan) => Some(look(snapshots, held, session, plan.clone()).await?),
            None => None,
        };
        let foreign = planned.as_ref().map(|looked| looked.foreign.clone()).unwrap_or_default();
        let is_forced = way.files.as_ref().is_some_and(|plan| plan.force);
        if !foreign.is_empty() && !is_forced && !dry_run {
            return Err(Error::WorkspaceConflict { paths: foreign });
        }
        let mut report = RewindReport {
            session_id: session.clone(),
            checkpoint_id: way.checkpoint_id.clone(),
            dry_run,
            files: planned.as_ref().map(|looked| RewoundFiles {
                changes: looked.changes.iter().take(PATHS_ANSWERED_MAX).cloned().collect(),
                changes_total: looked.changes.len() as u64,
                foreign: foreign.iter().take(PATHS_ANSWERED_MAX).cloned().collect(),
                safety_snapshot: Some(looked.safety.snapshot.clone()).filter(|_| !dry_run),
                skipped: looked.skipped.clone(),
                skipped_total: looked.skipped_total,
                kept_checkpoint: way.undone_kept.clone(),
            }),
            conversation: match way.conversation {
                Some(to) => Some(self.rewound_conversation(&state, &way, to)?),
                None => None,
            },
        };
        if dry_run {
            return Ok(Fulfilled::new(report));
        }
        // From here on the log says what is to be done; it is done whether the caller waits or not.
        let (held, files) = match (&way.files, planned) {
            (Some(plan), Some(looked)) => (Some(looked.held), Some(plan.order(looked.safety))),
            _ => (None, None),
        };
        let start = StartRestore {
            checkpoint_id: way.checkpoint_id,
            files,
            conversation: way.conversation,
            restarts_agent: way.conversation.is_some()
                && (resume::is_running(&state.facts) || resume::is_starting(&state.facts)),
        };
        let kept = Some(value(&report)?);
        let command = self.requested(request, kept, Command::StartRestore(start));
        let ack = self.write(session, command).await?;
        drop(held);
        if let Verdict::Repeated { seq } = ack.verdict {
            return self.replay_rewind(session, seq).await;
        }
        name_kept(&mut report, self.await_restore(session, ack.last_seq).await?);
        Ok(Fulfilled::new(report))
    }

    async fn replayed_rewind(
        &self,
        session: &SessionId,
        state: &State,
        request: &Request<'_>,
    ) -> Result<Option<Fulfilled<RewindReport>>> {
        let kept_for = self.request_kept_for();
        match state.requests.find(&request.logged(None), self.0.clock.now(), kept_for)? {
            Some(seq) => self.replay_rewind(session, seq).await.map(Some),
            None => Ok(None),
        }
    }

    /// What the first of several equal requests was answered, or is answered when it has ended.
    async fn replay_rewind(
        &self,
        session: &SessionId,
        seq: Seq,
    ) -> Result<Fulfilled<RewindReport>> {
        let mut replayed: Fulfilled<RewindReport> = self.replay(session, seq).await?;
        let kept = self.await_restore(session, seq).await?;
        replayed = replayed.map(|mut report| {
            name_kept(&mut report, kept);
            report
        });
        Ok(replayed)
    }

    /// Waits for the end of the restore that a batch began, whose last record is known. One that failed
    /// is an error. The checkpoint of what was edited after a crash in the middle of it, if one was.
    async fn await_restore(
        &self,
        session: &SessionId,
        batch_end: Seq,
    ) -> Result<Option<CheckpointId>> {
        let view = self.view();
        let after = batch_end.saturating_sub(RECORDS_BEFORE_REQUEST);
        let limit = usize::try_from(batch_end - after).unwrap_or(usize::MAX);
        let began = view.records(session, after, limit).await?;
        let starts = |record: &&piton_core::Record| {
            matches!(record.event(), Ok(Event::WorkspaceRestoreStarted(_)))
        };
        let Some(started) = began.iter().rfind(starts).map(|record| record.seq) else {
            return Ok(None);
        };
        let mut tail = view.tail(session, started);
        loop {
            let state = view.state(session).await?;
            if state.facts.restore.is_none_or(|restore| restore.seq != started) {
                break;
            }
            tail.seek(state.last_seq);
            tail.next().await?;
        }
        let mut after = started;
        loop {
            let records = view.records(session, after, PAGE_RECORDS).await?;
            let Some(last) = records.last() else { return Ok(None) };
            after = last.seq;
            for record in &records {
                match record.event() {
                    Ok(Event::WorkspaceRestored(e)) if e.restore_seq == Some(started) => {
                        let Some(kept) = e.kept_snapshot else { return Ok(None) };
                        let turns = view.state(session).await?.turns;
                        let entry = turns.checkpoint_of_kept(&kept);
                        return Ok(entry.map(|entry| entry.checkpoint_id.clone()));
                    }
                    Ok(Event::LineageStarted(_)) => return Ok(None),
                    Ok(Event::WorkspaceRestoreFailed(e)) if e.restore_seq == started => {
                        let text = record.content_field("message");
                        let message = text.as_ref().and_then(serde_json::Value::as_str);
                        let code = e.code.as_ref().and_then(piton_core::AnyCode::known);
                        return Err(Error::RestoreFailed {
                            code: code.unwrap_or(piton_core::Code::WorkspaceUnusable),
                            message: message.unwrap_or("The log does not say why").to_owned(),
                        });
                    }
                    _ => {}
                }
            }
        }
    }

    /// What the conversation is after the next record that starts a lineage.
    fn rewound_conversation(
        &self,
        state: &State,
        way: &Way,
        (from_lineage, from_seq): (u32, Seq),
    ) -> Result<RewoundConversation> {
        let lineage = state.turns.lineages.next();
        let event = LineageStarted {
            lineage,
            from_lineage,
            from_seq,
            from_checkpoint_id: way.checkpoint_id.clone(),
        };
        let mut after = state.clone();
        after.apply(state.last_seq + 1, self.0.clock.now(), &event.into());
        let abilities = self.running()?.plans.abilities(&after);
        let strategy = resume::strategy(&after.facts, abilities);
        let context = match resume::expected_context(&after, strategy, abilities.history).0 {
            // That it is given nothing is said when it is started.
            Context::Lost if strategy != Strategy::None => Context::Injected,
            context => context,
        };
        Ok(RewoundConversation { lineage, context })
    }

    /// The session's state as soon as it is so.
    async fn settled(&self, session: &SessionId, is_so: impl Fn(&State) -> bool) -> Result<State> {
        let waiting = async {
            loop {
                let state = self.view().state(session).await?;
                if is_so(&state) {
                    return Ok(state);
                }
                self.0.clock.sleep(STOP_POLL).await;
            }
        };
        tokio::time::timeout(STOP_TIMEOUT, waiting).await.unwrap_or(Err(Error::AgentLate))
    }
}

/// What goes back, and where to.
#[derive(Debug)]
struct Way {
    checkpoint_id: CheckpointId,
    files: Option<FilesPlan>,
    conversation: Option<(u32, Seq)>,
    /// Of an undo: the checkpoint of what was edited after a crash in the middle of the rewind.
    undone_kept: Option<CheckpointId>,
}

fn name_kept(report: &mut RewindReport, kept: Option<CheckpointId>) {
    if let (Some(files), Some(kept)) = (&mut report.files, kept) {
        files.kept_checkpoint = Some(kept);
    }
}

/// The checkpoint that is meant.
fn checkpoint<'a>(state: &'a State, spec: &RewindSpec) -> Result<&'a TurnEntry> {
    if let Some(text) = &spec.to {
        return found(state, text);
    }
    let turns = spec.turns.unwrap_or(1);
    let entry = state.turns.turns_back(state.last_seq, turns as usize);
    entry.ok_or_else(|| Error::CheckpointNotFound { checkpoint: format!("{turns} turns back") })
}

fn found<'a>(state: &'a State, text: &str) -> Result<&'a TurnEntry> {
    let entries = state.turns.find(text);
    match entries[..] {
        [one] => Ok(one),
        [] => Err(Error::CheckpointNotFound { checkpoint: text.to_owned() }),
        _ => {
            Err(Error::Invalid(format!("Several checkpoints are called {text:?}: give more of it")))
        }
    }
}

/// A late snapshot is none: it may have what the turn itself changed.
pub(super) fn snapshot_of(state: &State, entry: &TurnEntry) -> Result<ObjectId> {
    let Some(snapshot) = &entry.turn.snapshot else {
        let previous = state.turns.snapshot_before(entry.seq);
        return Err(Error::SnapshotNotFound {
            checkpoint: entry.checkpoint_id.clone(),
            previous: previous.map(|entry| entry.checkpoint_id.clone()),
        });
    };
    parsed(snapshot)
}

fn parsed(snapshot: &str) -> Result<ObjectId> {
    snapshot.parse().map_err(|_| Error::Invalid("The snapshot's id is damaged".to_owned()))
}

pub(super) fn workspace_of(
    snapshots: &Snapshots,
    session: &SessionId,
    state: &State,
) -> Result<PathBuf> {
    let none = || Error::Invalid("No snapshots are taken of this session's workspace".to_owned());
    snapshots.workspace(session, state).ok_or_else(none)
}
