//! The way back: files, conversation, or both, to a checkpoint of a turn; and the way back from that.

use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_core::State;
use piton_core::decide::{Command, Refusal, Rewind};
use piton_core::event::Seq;
use piton_core::graph::CheckpointType;
use piton_core::id::{CheckpointId, SessionId};
use piton_core::resume::{self, Context, StartTrigger};
use piton_core::turns::TurnEntry;
use piton_workspace::snapshot::Repository;
use piton_workspace::snapshot::tree::{ObjectId, Selection, changes};
use serde::{Deserialize, Serialize};

use super::requests::Request;
use super::rewind_files::{FilesPlan, file_change, files_plan, look, restore};
use super::snapshots::{Snapshots, also};
use super::{Caller, Engine, Fulfilled};
use crate::error::{Error, Result};

/// How long a turn that is cancelled, or an agent that is ended, may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_POLL: Duration = Duration::from_millis(20);
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
        if let Some(replayed) = self.find_replay(session, &state.requests, &request).await? {
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
        let way = Way { checkpoint_id: entry.checkpoint_id, files, conversation };
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
        if let Some(replayed) = self.find_replay(session, &state.requests, &request).await? {
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
        let way = Way { checkpoint_id, files, conversation: last.conversation };
        self.go(caller, session, &request, way, dry_run, false).await
    }

    /// How the files differ between two checkpoints, or between a checkpoint and now.
    pub async fn diff_files(
        &self,
        session: &SessionId,
        from: &str,
        to: Option<&str>,
    ) -> Result<Vec<FileChange>> {
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
            Ok(changes(&from.tree, &to.tree))
        };
        let (_held, found) = snapshots.with_repository(held, session, &workspace, diff).await;
        Ok(found?.iter().map(|change| file_change(&change.path, change.kind)).collect())
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
        let mut state = self.view().state(session).await?;
        if state.facts.closed.is_some() {
            return Err(Refusal::SessionClosed.into());
        }
        if let Some(run) = state.facts.run.as_ref().filter(|run| run.is_unfinished() && !dry_run) {
            if !cancel {
                return Err(Refusal::RunInProgress { run: run.run_id.clone() }.into());
            }
            let run_id = run.run_id.clone();
            self.cancel(caller, session, Some(run_id.clone())).await?;
            // The agent may write files until it has heard of it.
            self.settled(session, |state| state.pending.is_empty()).await?;
            snapshots.after_turn(session, run_id).await?;
        }
        // What the last turn changed is the session's own.
        state = self.settled(session, |_| !snapshots.is_turn_ending(session)).await?;
        if let Some(plan) = &mut way.files {
            plan.last = state.turns.last_snapshot.as_deref().and_then(|id| id.parse().ok());
        }
        // What would be refused is refused before the agent is ended.
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
                safety_snapshot: None,
            }),
            conversation: way.conversation.map(|_| Self::rewound_conversation(&state)),
        };
        if dry_run {
            return Ok(Fulfilled::new(report));
        }
        let was_running = way.conversation.is_some() && resume::is_running(&state.facts);
        if was_running {
            self.running()?.executions.stop_agent(session).await?;
            self.settled(session, |state| !resume::is_running(&state.facts)).await?;
        }
        let files = match (&way.files, planned) {
            (Some(plan), Some(looked)) => {
                // The way back is in the log before the first file is touched.
                let safety = Command::SafetySnapshot(looked.safety.clone());
                self.write(session, safety).await?;
                let restored = restore(snapshots, session, plan, looked).await?;
                if let Some(files) = &mut report.files {
                    files.safety_snapshot = Some(restored.safety_snapshot.clone());
                }
                Some(restored)
            }
            _ => None,
        };
        let rewind =
            Rewind { checkpoint_id: way.checkpoint_id, files, conversation: way.conversation };
        let done = self.execute(session, request, report, Command::Rewind(rewind)).await?;
        if was_running {
            let supervisors = self.running()?.handle.supervisors();
            supervisors.ensure_running_later(session, StartTrigger::Manual);
        }
        Ok(done)
    }

    /// What the conversation is after the next record that starts a lineage.
    fn rewound_conversation(state: &State) -> RewoundConversation {
        let context = if state.has_history() { Context::Injected } else { Context::None };
        RewoundConversation { lineage: state.turns.lineages.next(), context }
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
