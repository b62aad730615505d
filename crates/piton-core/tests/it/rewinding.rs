//! What a rewind leaves in the state.

use piton_core::decide::{Command, SnapshotResult, TakenSnapshot, TurnStart};
use piton_core::event::{Event, LineageStarted, WorkspaceRestored};
use piton_core::{State, Timestamp};

use crate::common::{self, World, id};

fn at(seq: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seq.cast_signed())
}

fn restored(kept: Option<&str>) -> Event {
    Event::from(WorkspaceRestored {
        snapshot: "target".to_owned(),
        safety_snapshot: "before".to_owned(),
        snapshot_after: "target".to_owned(),
        checkpoint_id: Some("cp_1".parse().expect("an id")),
        restore_seq: None,
        kept_snapshot: kept.map(str::to_owned),
        paths_count: 1,
        forced: false,
        recovered: kept.is_some(),
    })
}

/// Wants to show: what was edited after a crash in the middle of a rewind of files and conversation is
/// not pruned, and can be found.
#[test]
fn what_was_edited_after_a_crash_is_needed_also_if_the_conversation_went_back() {
    let mut state = State::default();
    state.apply(1, at(1), &restored(Some("edited")));
    let lineage = LineageStarted {
        lineage: 2,
        from_lineage: 1,
        from_seq: 1,
        from_checkpoint_id: "cp_1".parse().expect("an id"),
    };
    state.apply(2, at(2), &lineage.into());
    let last = state.turns.last_rewind.as_ref().expect("it can be undone");
    assert_eq!(last.kept_snapshot.as_deref(), Some("edited"));
    assert_eq!(last.safety_snapshot.as_deref(), Some("before"));
    let needed: Vec<&str> = state.turns.needed_snapshots().collect();
    assert!(needed.contains(&"edited"), "{needed:?}");
    // A rewind that nothing interrupted keeps nothing.
    state.apply(3, at(3), &restored(None));
    assert!(!state.turns.needed_snapshots().any(|snapshot| snapshot == "edited"));
}

/// The beginning of a turn with a snapshot of the files.
fn turn(world: &mut World, number: usize) -> Vec<String> {
    let taken = TakenSnapshot {
        snapshot: format!("snapshot-{number}"),
        files: 1,
        skipped: serde_json::Value::Null,
        skipped_count: 0,
    };
    let start = TurnStart {
        checkpoint_id: id(&format!("cp_{number}")),
        snapshot: SnapshotResult::Taken(taken),
        since_snapshot: None,
        workspace: None,
    };
    let run = format!("run_{number}");
    let command = Box::new(common::start(&run));
    let kinds = world.done(Command::AtTurnStart { start: Box::new(start), command });
    world.done(common::complete(&run));
    kinds
}

/// Wants to show: the newest 100 checkpoints are kept, and no snapshot that one of them needs is
/// forgotten.
#[test]
fn of_more_than_a_hundred_checkpoints_the_newest_are_kept() {
    let mut world = World::new();
    for number in 0..100 {
        let kinds = turn(&mut world, number);
        assert!(!kinds.iter().any(|kind| kind == "checkpoint.pruned"), "{number}: {kinds:?}");
    }
    for number in 100..103 {
        let kinds = turn(&mut world, number);
        assert!(kinds.iter().any(|kind| kind == "checkpoint.pruned"), "{number}: {kinds:?}");
    }
    let turns = &world.state.turns;
    let first = turns.checkpoints.front().expect("a hundred");
    assert_eq!((turns.checkpoints.len(), first.checkpoint_id.as_str()), (100, "cp_3"));
    let needed: Vec<&str> = turns.needed_snapshots().collect();
    assert!(needed.contains(&"snapshot-3") && needed.contains(&"snapshot-102"));
    assert!(!needed.contains(&"snapshot-2"), "what no checkpoint needs may be pruned");
}
