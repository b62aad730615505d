//! Checkpoints of an agent's turns: with the prompt that begins one, after its end, and the way back to
//! one of them.

use serde_json::Value;

use super::{Context, Decision, Refusal};
use crate::code::AnyCode;
use crate::event::{
    CheckpointCreated, CheckpointPruned, Critical, Event, LineageStarted, RunDismissed, Seq,
    WorkspaceRestoreFailed, WorkspaceRestoreStarted, WorkspaceRestored, WorkspaceSnapshotFailed,
    WorkspaceSnapshotLate, WorkspaceSnapshotTaken, WorkspaceUnchanged,
};
use crate::graph::CheckpointType;
use crate::id::{CheckpointId, RunId};
use crate::record::NewRecord;
use crate::state::{Phase, State};
use crate::turns::{SnapshotTrigger, TurnCheckpoint};
use crate::workspace_identity::WorkspaceIdentity;

/// What trying to take a snapshot came to.
#[derive(Clone, Debug)]
pub enum SnapshotResult {
    Taken(TakenSnapshot),
    /// It takes longer than a prompt may wait.
    Late {
        waited_ms: u64,
    },
    Failed {
        code: AnyCode,
        message: String,
    },
    /// None was asked for.
    Off,
}

#[derive(Clone, Debug)]
pub struct TakenSnapshot {
    pub snapshot: String,
    pub files: u64,
    /// What it does not hold: the first of it, and how much in all.
    pub skipped: Value,
    pub skipped_count: u64,
}

/// What a turn begins with.
#[derive(Clone, Debug)]
pub struct TurnStart {
    pub checkpoint_id: CheckpointId,
    pub snapshot: SnapshotResult,
    /// The files at the end of the turn before, if that is known.
    pub since_snapshot: Option<String>,
    /// Where the agent will work, if that is known.
    pub workspace: Option<WorkspaceIdentity>,
}

/// What a turn ended with.
#[derive(Clone, Debug)]
pub struct TurnEnd {
    pub run_id: RunId,
    pub checkpoint_id: CheckpointId,
    pub snapshot: SnapshotResult,
}

/// What is to go back, and where to.
#[derive(Clone, Debug)]
pub struct StartRestore {
    pub checkpoint_id: CheckpointId,
    pub files: Option<FilesToRestore>,
    /// The lineage and the record that the conversation continues behind.
    pub conversation: Option<(u32, Seq)>,
    /// The agent runs, and is to run again.
    pub restarts_agent: bool,
}

#[derive(Clone, Debug)]
pub struct FilesToRestore {
    pub snapshot: String,
    /// The files as they are.
    pub safety: TakenSnapshot,
    /// Only these; empty: all.
    pub paths: Vec<String>,
    pub forced: bool,
}

/// Why a restore could not be carried out.
#[derive(Clone, Debug)]
pub struct FailRestore {
    pub restore_seq: Seq,
    pub code: AnyCode,
    pub message: String,
    pub rolled_back: bool,
}

/// A rewind whose files, if it is about files, were restored.
#[derive(Clone, Debug)]
pub struct Rewind {
    /// The record that it began with; `None`: one that an older program left.
    pub restore_seq: Option<Seq>,
    pub checkpoint_id: CheckpointId,
    pub files: Option<RestoredFiles>,
    /// The lineage and the record that the conversation continues behind.
    pub conversation: Option<(u32, Seq)>,
}

#[derive(Clone, Debug)]
pub struct RestoredFiles {
    pub snapshot: String,
    pub safety_snapshot: String,
    pub snapshot_after: String,
    /// The files as they were found after a crash.
    pub kept_snapshot: Option<String>,
    /// The checkpoint that holds them, if others had changed some since the crash.
    pub kept_checkpoint: Option<CheckpointId>,
    /// The first of the paths, and how many there are.
    pub paths: Vec<String>,
    pub paths_count: u64,
    pub forced: bool,
    pub recovered: bool,
}

/// Puts the checkpoint of a turn's start into the batch that begins the turn. A batch that begins no
/// turn stays as it is.
pub(super) fn start(
    state: &State,
    cx: &Context,
    start: TurnStart,
    mut decision: Decision,
) -> Decision {
    let begins = decision.records.iter().find_map(|record| match &record.event {
        Event::RunStarted(e) => Some(e.run_id.clone()),
        _ => None,
    });
    let Some(run_id) = begins else { return resumed(state, cx, start, decision) };
    let is_first = |record: &NewRecord| match &record.event {
        Event::MessageUser(e) => e.run_id.as_ref() == Some(&run_id),
        Event::RunStarted(_) => true,
        _ => false,
    };
    let at = decision.records.iter().position(is_first).unwrap_or(0);
    let mut records = Vec::new();
    let mut turn = TurnCheckpoint {
        run_id: run_id.clone(),
        snapshot: None,
        since_snapshot: None,
        snapshot_late: false,
        workspace: start.workspace,
    };
    match start.snapshot {
        SnapshotResult::Taken(taken) => {
            turn.snapshot = Some(taken.snapshot.clone());
            // Equal ones say nothing.
            turn.since_snapshot =
                start.since_snapshot.filter(|since| Some(since) != turn.snapshot.as_ref());
            records.extend(taken_record(state, cx, SnapshotTrigger::TurnStart, taken, None));
        }
        SnapshotResult::Late { waited_ms } => {
            turn.snapshot_late = true;
            records.push(NewRecord::new(cx.now, WorkspaceSnapshotLate { run_id, waited_ms }));
        }
        SnapshotResult::Failed { code, message } => {
            records.push(failed(cx, SnapshotTrigger::TurnStart, code, message));
        }
        SnapshotResult::Off => {}
    }
    let kind = CheckpointType::TurnStart;
    records.extend(checkpoint(state, cx, kind, start.checkpoint_id, turn));
    decision.records.splice(at..at, records);
    decision
}

/// A run that continues after an interruption: whatever differs from its files then was changed by
/// others. It is the same turn, and has no checkpoint of its own.
fn resumed(state: &State, cx: &Context, start: TurnStart, mut decision: Decision) -> Decision {
    let is_resumed = |record: &NewRecord| matches!(record.event, Event::RunResumed(_));
    if !decision.records.iter().any(is_resumed) {
        return decision;
    }
    let run = state.facts.run.as_ref();
    let Some(run) = run.filter(|run| matches!(run.phase, Phase::Interrupted { .. })) else {
        return decision;
    };
    let trigger = SnapshotTrigger::TurnStart;
    let record = match start.snapshot {
        SnapshotResult::Taken(taken) => {
            taken_record(state, cx, trigger, taken, start.since_snapshot)
        }
        SnapshotResult::Late { waited_ms } => {
            let run_id = run.run_id.clone();
            Some(NewRecord::new(cx.now, WorkspaceSnapshotLate { run_id, waited_ms }))
        }
        SnapshotResult::Failed { code, message } => Some(failed(cx, trigger, code, message)),
        SnapshotResult::Off => None,
    };
    // At the end: a record of the decision may name the seq of another one.
    decision.records.extend(record);
    decision
}

/// After a turn: a checkpoint if its files differ from the newest snapshot. Not if another turn has
/// begun meanwhile.
pub(super) fn complete(state: &State, cx: &Context, end: TurnEnd) -> Decision {
    let run = state.facts.run.as_ref().filter(|run| run.run_id == end.run_id);
    if run.is_none_or(crate::state::Run::is_unfinished) {
        return Decision::already();
    }
    match end.snapshot {
        SnapshotResult::Taken(taken) => {
            let snapshot = Some(taken.snapshot.clone());
            let trigger = SnapshotTrigger::TurnComplete;
            let Some(record) = taken_record(state, cx, trigger, taken, None) else {
                // That it was looked at is known, also after a crash.
                let is_known = state.turns.saved_run.as_ref() == Some(&end.run_id);
                let event = WorkspaceUnchanged { run_id: end.run_id };
                let record = Some(NewRecord::new(cx.now, event)).filter(|_| !is_known);
                return Decision::done(record.into_iter().collect());
            };
            let turn = TurnCheckpoint {
                run_id: end.run_id,
                snapshot,
                since_snapshot: None,
                snapshot_late: false,
                workspace: None,
            };
            let kind = CheckpointType::TurnComplete;
            let mut records = vec![record];
            records.extend(checkpoint(state, cx, kind, end.checkpoint_id, turn));
            Decision::done(records)
        }
        SnapshotResult::Failed { code, message } => {
            Decision::done(vec![failed(cx, SnapshotTrigger::TurnComplete, code, message)])
        }
        SnapshotResult::Late { .. } | SnapshotResult::Off => Decision::already(),
    }
}

/// Says what will be done, before anything is. What is open is refused: an agent would write files
/// that are being restored.
pub(super) fn start_restore(
    state: &State,
    cx: &Context,
    start: StartRestore,
) -> Result<Decision, Refusal> {
    if state.facts.restore.is_some() {
        return Err(Refusal::RestoreInProgress);
    }
    if let Some(run) = state.facts.run.as_ref().filter(|run| run.is_unfinished()) {
        return Err(Refusal::RunInProgress { run: run.run_id.clone() });
    }
    let mut event = WorkspaceRestoreStarted {
        checkpoint_id: start.checkpoint_id,
        snapshot: None,
        safety_snapshot: None,
        from_lineage: start.conversation.map(|(lineage, _)| lineage),
        from_seq: start.conversation.map(|(_, seq)| seq),
        paths_count: 0,
        forced: false,
        restarts_agent: start.restarts_agent,
        critical: Critical,
    };
    let Some(files) = start.files else {
        return Ok(Decision::done(vec![NewRecord::new(cx.now, event)]));
    };
    let safety = files.safety.snapshot.clone();
    let since = state.turns.last_snapshot.clone();
    let mut records = Vec::new();
    records.extend(taken_record(state, cx, SnapshotTrigger::Safety, files.safety, since));
    event.snapshot = Some(files.snapshot);
    event.safety_snapshot = Some(safety);
    event.paths_count = files.paths.len() as u64;
    event.forced = files.forced;
    records.push(if files.paths.is_empty() {
        NewRecord::new(cx.now, event)
    } else {
        NewRecord::with_content(cx.now, event, "paths", files.paths.into())
    });
    Ok(Decision::done(records))
}

pub(super) fn fail_restore(state: &State, cx: &Context, failed: FailRestore) -> Decision {
    let FailRestore { restore_seq, code, message, rolled_back } = failed;
    if state.facts.restore.as_ref().is_none_or(|restore| restore.seq != restore_seq) {
        return Decision::already();
    }
    let event = WorkspaceRestoreFailed { restore_seq, code: Some(code), rolled_back };
    Decision::done(vec![NewRecord::with_content(cx.now, event, "message", message.into())])
}

pub(super) fn rewind(state: &State, cx: &Context, rewind: Rewind) -> Result<Decision, Refusal> {
    let open = state.facts.restore.as_ref().map(|restore| restore.seq);
    if rewind.restore_seq.is_some() && rewind.restore_seq != open {
        return Ok(Decision::already());
    }
    let (mut records, mut kept) = (Vec::new(), None);
    if let Some(files) = rewind.files {
        kept = files.kept_checkpoint.zip(files.kept_snapshot.clone());
        let event = WorkspaceRestored {
            restore_seq: rewind.restore_seq,
            snapshot: files.snapshot,
            safety_snapshot: files.safety_snapshot,
            snapshot_after: files.snapshot_after,
            kept_snapshot: files.kept_snapshot,
            checkpoint_id: Some(rewind.checkpoint_id.clone()),
            paths_count: files.paths_count,
            forced: files.forced,
            recovered: files.recovered,
        };
        records.push(NewRecord::with_content(cx.now, event, "paths", files.paths.into()));
    }
    if let Some((from_lineage, from_seq)) = rewind.conversation {
        if let Some(run) = state.facts.run.as_ref().filter(|run| run.is_unfinished()) {
            return Err(Refusal::RunInProgress { run: run.run_id.clone() });
        }
        let event = LineageStarted {
            lineage: state.turns.lineages.next(),
            from_lineage,
            from_seq,
            from_checkpoint_id: rewind.checkpoint_id.clone(),
        };
        records.push(NewRecord::new(cx.now, event));
        // What was interrupted belongs to what is left behind.
        let run = state.facts.run.as_ref();
        if let Some(run) = run.filter(|run| matches!(run.phase, Phase::Interrupted { .. })) {
            super::revoke_all(state, cx, crate::reason::Reason::RunEnded, &mut records);
            let run_id = run.run_id.clone();
            records.push(NewRecord::new(cx.now, RunDismissed { run_id }));
        }
    }
    records.extend(kept_files(state, cx, &rewind.checkpoint_id, rewind.conversation, kept));
    Ok(Decision::done(records))
}

/// What was edited between a crash and the end of the restore that it cut off: a checkpoint has it, so
/// that it can be listed, compared and restored.
fn kept_files(
    state: &State,
    cx: &Context,
    of: &CheckpointId,
    conversation: Option<(u32, Seq)>,
    kept: Option<(CheckpointId, String)>,
) -> Vec<NewRecord> {
    let turns = &state.turns;
    let Some((checkpoint_id, snapshot)) = kept else { return Vec::new() };
    let of = turns.checkpoints.iter().find(|entry| entry.checkpoint_id == *of);
    let run = state.facts.run.as_ref().map(|run| &run.run_id);
    let Some(run_id) = run.or(of.map(|entry| &entry.turn.run_id)) else { return Vec::new() };
    let turn = TurnCheckpoint {
        run_id: run_id.clone(),
        snapshot: Some(snapshot),
        since_snapshot: None,
        snapshot_late: false,
        workspace: None,
    };
    let lineages = &turns.lineages;
    let lineage = if conversation.is_some() { lineages.next() } else { lineages.current() };
    checkpoint_in(state, cx, lineage, CheckpointType::TurnComplete, checkpoint_id, turn)
}

/// `None` if the log has that snapshot as its newest.
fn taken_record(
    state: &State,
    cx: &Context,
    trigger: SnapshotTrigger,
    taken: TakenSnapshot,
    since_snapshot: Option<String>,
) -> Option<NewRecord> {
    if state.turns.last_snapshot.as_ref() == Some(&taken.snapshot) {
        return None;
    }
    let TakenSnapshot { snapshot, files, skipped, skipped_count } = taken;
    let since_snapshot = since_snapshot.filter(|since| *since != snapshot);
    let event = WorkspaceSnapshotTaken { snapshot, trigger, files, skipped_count, since_snapshot };
    Some(if skipped_count == 0 {
        NewRecord::new(cx.now, event)
    } else {
        NewRecord::with_content(cx.now, event, "skipped", skipped)
    })
}

fn failed(cx: &Context, trigger: SnapshotTrigger, code: AnyCode, message: String) -> NewRecord {
    let event = WorkspaceSnapshotFailed { trigger, code: Some(code) };
    NewRecord::with_content(cx.now, event, "message", message.into())
}

/// The checkpoint, and which older ones are listed no more.
fn checkpoint(
    state: &State,
    cx: &Context,
    checkpoint_type: CheckpointType,
    checkpoint_id: CheckpointId,
    turn: TurnCheckpoint,
) -> Vec<NewRecord> {
    let lineage = state.turns.lineages.current();
    checkpoint_in(state, cx, lineage, checkpoint_type, checkpoint_id, turn)
}

fn checkpoint_in(
    state: &State,
    cx: &Context,
    lineage: u32,
    checkpoint_type: CheckpointType,
    checkpoint_id: CheckpointId,
    turn: TurnCheckpoint,
) -> Vec<NewRecord> {
    let known = &state.turns.checkpoints;
    let event = CheckpointCreated {
        checkpoint_id,
        checkpoint_type,
        lineage,
        parent: known.back().map(|entry| entry.checkpoint_id.clone()),
        current_node: None,
        next_node: None,
        is_clean: true,
        can_resume_from: true,
        without_memory: false,
        without_conversations: false,
        turn: Some(turn),
    };
    let mut records = vec![NewRecord::new(cx.now, event)];
    let over = (known.len() + 1).saturating_sub(cx.limits.turn_checkpoints.max(1));
    if over > 0 {
        let checkpoint_ids = known.iter().take(over).map(|entry| entry.checkpoint_id.clone());
        let event = CheckpointPruned { checkpoint_ids: checkpoint_ids.collect() };
        records.push(NewRecord::new(cx.now, event));
    }
    records
}
