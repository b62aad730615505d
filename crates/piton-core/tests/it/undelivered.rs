//! Prompts that no agent was given: which commands agentctl is asked about before the next prompt, and
//! which prompts that one carries.

use std::collections::BTreeSet;

use piton_core::Seq;
use piton_core::decide::{Command, Prepare};
use piton_core::id::ExecutionId;
use piton_core::reason::Reason;
use piton_core::spool::{Fact, OpenedAs};
use piton_core::state::Effect;
use piton_core::undelivered;

use crate::common::{World, id, start};
use crate::resuming::{LOADS, launch, ready, says};

/// Each run begins with one prompt, and its agent is ready.
fn idle() -> World {
    let mut world = World::new();
    launch(&mut world, "exec_1");
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, Some("theirs"), LOADS));
    world
}

/// A run whose prompt no agent has accepted, as far as the log knows; the record that demands it.
fn prompted(world: &mut World, run: &str) -> Seq {
    world.done(start(run));
    world.state.last_seq
}

fn interrupted(world: &mut World, run: &str) {
    world.done(Command::Interrupt { run_id: id(run), reason: Reason::ProcessExit });
}

fn prepared(world: &mut World, of_seq: Seq, execution: &str) {
    let (execution_id, prompt) = (id(execution), "with the others".to_owned());
    let prepare = Prepare { of_seq, execution_id, history: false, note: false, prompt };
    world.done(Command::Prepare(prepare));
}

fn due(world: &World, execution: &str, of_seq: Seq) -> Vec<String> {
    let execution: ExecutionId = id(execution);
    let due = undelivered::due(&world.state, &execution, of_seq);
    due.map(|prompt| prompt.run_id.to_string()).collect()
}

fn unsettled(world: &World, execution: &str, of_seq: Seq) -> Vec<Seq> {
    let found: BTreeSet<Seq> = undelivered::unsettled(&world.state, &id(execution), of_seq);
    found.into_iter().collect()
}

/// One row for each way in which an earlier command may have given the agent a prompt.
#[test]
fn which_commands_are_asked_about_and_which_prompts_are_due() {
    struct Row {
        name: &'static str,
        /// Makes the log; the commands that may be asked about.
        log: fn(&mut World) -> Vec<Seq>,
        execution: &'static str,
        asks: &'static [usize],
        due: &'static [&'static str],
    }
    let rows = [
        Row {
            name: "nothing is undelivered",
            log: |_| Vec::new(),
            execution: "exec_1",
            asks: &[],
            due: &[],
        },
        Row {
            name: "this agentctl may have accepted it",
            log: |world| {
                let first = prompted(world, "run_1");
                interrupted(world, "run_1");
                vec![first]
            },
            execution: "exec_1",
            asks: &[0],
            due: &["run_1"],
        },
        Row {
            name: "this agentctl was never asked",
            log: |world| {
                let first = prompted(world, "run_1");
                interrupted(world, "run_1");
                vec![first]
            },
            execution: "exec_2",
            asks: &[],
            due: &["run_1"],
        },
        Row {
            name: "the prompt that carries it is still to be given",
            log: |world| {
                let first = prompted(world, "run_1");
                interrupted(world, "run_1");
                let second = prompted(world, "run_2");
                prepared(world, second, "exec_1");
                vec![first, second]
            },
            execution: "exec_1",
            asks: &[],
            due: &[],
        },
        Row {
            name: "the prompt that carries it may have been accepted",
            log: |world| {
                let first = prompted(world, "run_1");
                interrupted(world, "run_1");
                let second = prompted(world, "run_2");
                prepared(world, second, "exec_1");
                interrupted(world, "run_2");
                vec![first, second]
            },
            execution: "exec_1",
            asks: &[0, 1],
            due: &["run_1", "run_2"],
        },
        Row {
            name: "it was prepared for another agentctl",
            log: |world| {
                let first = prompted(world, "run_1");
                interrupted(world, "run_1");
                let second = prompted(world, "run_2");
                prepared(world, second, "exec_1");
                interrupted(world, "run_2");
                vec![first, second]
            },
            execution: "exec_2",
            asks: &[],
            due: &["run_1", "run_2"],
        },
    ];
    for Row { name, log, execution, asks, due: expected } in rows {
        let mut world = idle();
        let commands = log(&mut world);
        let of_seq = prompted_for(&mut world);
        let asked: Vec<Seq> = asks.iter().map(|index| commands[*index]).collect();
        assert_eq!(unsettled(&world, execution, of_seq), asked, "{name}");
        assert_eq!(due(&world, execution, of_seq), expected, "{name}");
    }
}

/// The record that demands the prompt which is being prepared: the next one, whatever run there is.
fn prompted_for(world: &mut World) -> Seq {
    world.state.last_seq + 1
}

/// What agentctl says that it accepted is not given again, nor is what was carried by it; the rest is.
#[test]
fn what_was_accepted_is_not_due() {
    let mut world = idle();
    let first = prompted(&mut world, "run_1");
    interrupted(&mut world, "run_1");
    let second = prompted(&mut world, "run_2");
    interrupted(&mut world, "run_2");
    let next = world.state.last_seq + 1;
    assert_eq!(due(&world, "exec_1", next), ["run_1", "run_2"]);

    let mut other = world.clone();
    assert_eq!(other.done(Command::Done { of_seq: first }), ["effect.done"]);
    assert_eq!(due(&other, "exec_1", next + 1), ["run_2"]);
    assert_eq!(unsettled(&other, "exec_1", next + 1), [second]);
    assert_eq!(other.done(Command::Done { of_seq: first }), Vec::<String>::new(), "once");

    let third = prompted(&mut world, "run_3");
    prepared(&mut world, third, "exec_1");
    interrupted(&mut world, "run_3");
    world.done(Command::Done { of_seq: third });
    assert_eq!(due(&world, "exec_1", world.state.last_seq + 1), Vec::<String>::new());
}

/// The spool says late that a prompt was accepted: it is not given again.
#[test]
fn a_late_acceptance_settles_an_undelivered_prompt() {
    let mut world = idle();
    let first = prompted(&mut world, "run_1");
    interrupted(&mut world, "run_1");
    assert_eq!(due(&world, "exec_1", world.state.last_seq + 1), ["run_1"]);
    let session = world.state.info.as_ref().unwrap().session_id.clone();
    let (command_id, command) = (Effect::key(&session, first), "prompt".to_owned());
    says(&mut world, "exec_1", 3, vec![Fact::CommandAccepted { command_id, command }]);
    assert_eq!(due(&world, "exec_1", world.state.last_seq + 1), Vec::<String>::new());
}
