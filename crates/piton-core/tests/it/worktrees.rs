//! A session's worktree in the log: planned with the session or later, prepared, removed, and made
//! again. Repeating a step changes nothing; a step out of order is refused.

use crate::common::{World, close, create};
use piton_core::Code;
use piton_core::decide::{Command, Verdict};
use piton_core::event::Outcome;
use piton_core::fold;
use piton_core::worktree::{Stage, Worktree, WorktreePlan};

fn plan(branch: &str) -> WorktreePlan {
    WorktreePlan {
        path: "/data/worktrees/sess_1".into(),
        repository: "/repo".into(),
        branch: branch.into(),
        base: "main".into(),
        base_commit: "0123456789abcdef0123456789abcdef01234567".into(),
    }
}

fn planned() -> Command {
    Command::PlanWorkspace(plan("piton/1"))
}

fn prepared() -> Command {
    Command::WorkspacePrepared(plan("piton/1"))
}

fn removed(kept_branch: bool) -> Command {
    Command::WorkspaceRemoved { kept_branch }
}

fn stage(world: &World) -> Option<Stage> {
    world.state.facts.worktree.as_ref().map(|worktree| worktree.stage)
}

/// What a step comes to: the kinds of its records, or why not.
fn outcome(world: &mut World, command: Command) -> Result<Vec<String>, Code> {
    let before = world.log.len();
    match world.decide(command) {
        Ok(decision) => {
            assert_eq!(decision.outcome == Verdict::Already, decision.records.is_empty());
            Ok(world.log[before..].iter().map(|record| record.kind.to_string()).collect())
        }
        Err(refusal) => Err(refusal.code()),
    }
}

/// Either the log knows both, or neither: a crash leaves no session that forgot its repository.
#[test]
fn a_session_is_made_together_with_the_plan() {
    let mut world = World::empty();
    let Command::Create(new) = create("sess_1") else { panic!("a creation") };
    let command = Command::CreateInWorktree(new, Box::new(plan("piton/1")));
    let kinds = outcome(&mut world, command.clone());
    assert_eq!(kinds.unwrap(), ["session.created", "workspace.planned"]);
    let expected = Worktree { plan: plan("piton/1"), stage: Stage::Planned };
    assert_eq!(world.state.facts.worktree, Some(expected));
    assert_eq!(outcome(&mut world, command), Err(Code::SessionExists));
}

/// A step, what it comes to, and the stage after it.
type Row = (Command, Result<Vec<String>, Code>, Option<Stage>);

#[test]
fn steps_in_and_out_of_order() {
    let none = |kinds: &[&str]| Ok(kinds.iter().map(|kind| (*kind).to_owned()).collect());
    let other = || Command::PlanWorkspace(plan("piton/2"));
    let kept = Some(Stage::Removed { kept_branch: true });
    let gone = Some(Stage::Removed { kept_branch: false });
    let rows: Vec<Row> = vec![
        (prepared(), Err(Code::WorktreeNotFound), None),
        (removed(true), Err(Code::WorktreeNotFound), None),
        (planned(), none(&["workspace.planned"]), Some(Stage::Planned)),
        (planned(), none(&[]), Some(Stage::Planned)),
        (other(), Err(Code::WorktreeExists), Some(Stage::Planned)),
        (
            Command::WorkspacePrepared(plan("piton/2")),
            Err(Code::WorktreeNotFound),
            Some(Stage::Planned),
        ),
        (prepared(), none(&["workspace.prepared"]), Some(Stage::Prepared)),
        (prepared(), none(&[]), Some(Stage::Prepared)),
        (planned(), none(&[]), Some(Stage::Prepared)),
        (other(), Err(Code::WorktreeExists), Some(Stage::Prepared)),
        (removed(true), none(&["workspace.removed"]), kept),
        (removed(true), none(&[]), kept),
        (prepared(), Err(Code::WorktreeNotFound), kept),
        (removed(false), none(&["workspace.removed"]), gone),
        (planned(), none(&["workspace.planned"]), Some(Stage::Planned)),
        (removed(true), none(&["workspace.removed"]), kept),
        (other(), none(&["workspace.planned"]), Some(Stage::Planned)),
    ];
    let mut world = World::new();
    for (row, (command, expected, after)) in rows.into_iter().enumerate() {
        assert_eq!(outcome(&mut world, command), expected, "row {row}");
        assert_eq!(stage(&world), after, "row {row}");
    }
    assert_eq!(fold::replay(&world.log).unwrap(), world.state);
}

/// A closed session gets no worktree any more; what became of the one it has is still recorded.
#[test]
fn a_closed_sessions_worktree_can_be_cleaned_up() {
    let mut world = World::new();
    world.done(planned());
    world.done(close(Outcome::Completed));
    assert_eq!(outcome(&mut world, planned()), Err(Code::SessionClosed));
    world.done(prepared());
    world.done(removed(false));
    assert_eq!(stage(&world), Some(Stage::Removed { kept_branch: false }));
}

/// Records that make no sense in their place change nothing.
#[test]
fn another_worktrees_end_is_not_this_ones() {
    let mut world = World::new();
    world.done(planned());
    let path = "/data/worktrees/sess_2".to_owned();
    let event = piton_core::event::WorkspaceRemoved { path, kept_branch: false };
    let seq = world.state.last_seq + 1;
    world.state.apply(seq, world.now, &event.into());
    assert_eq!(stage(&world), Some(Stage::Planned));
}
