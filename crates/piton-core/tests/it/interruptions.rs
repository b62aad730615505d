//! What is an interruption, and what an interrupted run is known to have been doing: a turn that its
//! agent ends while it is killed is neither cancelled by a user nor completed.

use std::collections::BTreeMap;

use crate::common::{World, at, cancel, fresh, id, start};
use piton_core::decide::{Command, Import, asks};
use piton_core::event::{Event, RunInterrupted, ToolStatus, WaitKind};
use piton_core::interruption::Activity;
use piton_core::reason::Reason;
use piton_core::spool::{Channel, ENTRY_VERSION, Ended, Entry, Fact, Pos};
use piton_core::state::Phase;
use piton_core::status::Name;
use serde_json::json;

/// Entries of `run_1` at these moments, in milliseconds.
fn entries(first: Pos, facts: Vec<(i64, Fact)>) -> Vec<Entry> {
    let entry = |(pos, (millis, fact)): (Pos, (i64, Fact))| Entry {
        v: ENTRY_VERSION,
        pos,
        at: at(millis),
        run_id: Some(id("run_1")),
        fact,
        raw: None,
    };
    (first..).zip(facts).map(entry).collect()
}

fn import(world: &mut World, first: Pos, facts: Vec<(i64, Fact)>) -> Vec<String> {
    let entries = entries(first, facts);
    let names = (0..asks(&entries)).map(|i| fresh(&format!("rt_{first}_{i}")));
    world.now = world.now.max(entries.last().expect("some").at);
    world.done(Command::Import(Import {
        execution_id: id("exec_1"),
        spool_id: "spool_1".into(),
        fresh: names.collect(),
        lost: None,
        damage: None,
        masked: BTreeMap::new(),
        rules: std::sync::Arc::default(),
        entries,
    }))
}

fn ended(stop_reason: &str) -> Fact {
    Fact::TurnEnded { stop_reason: stop_reason.into() }
}

fn exited(exit_code: Option<i32>, signal: Option<i32>) -> Fact {
    Fact::AgentExited { exit_code, signal, requested: false, stderr: String::new() }
}

fn text() -> Fact {
    let (message_id, text) = (id("msg_a"), "half an ans".to_owned());
    Fact::Text { message_id, channel: Channel::Answer, offset: 0, text }
}

fn text_end() -> Fact {
    Fact::TextEnd { message_id: id("msg_a"), length: 11, hash: String::new() }
}

/// A run whose agent was given its prompt, and the moment.
fn begun() -> (World, i64) {
    let mut world = World::executed();
    let of_seq = *world.state.pending.keys().next().expect("the prompt is to be given");
    world.done(Command::Done { of_seq });
    let now = world.now.as_millis();
    (world, now)
}

fn interruption(world: &World) -> RunInterrupted {
    let found = world.log.iter().rev().find_map(|record| match record.event() {
        Ok(Event::RunInterrupted(e)) => Some(e),
        _ => None,
    });
    found.expect("it was interrupted")
}

/// As claude does on SIGTERM, and qwen at a reboot: `cancelled`, and 64 ms later it exits.
#[test]
fn a_turn_that_ends_as_cancelled_without_a_request_is_interrupted() {
    for apart in [false, true] {
        let (mut world, now) = begun();
        let first = vec![(now, text()), (now + 5, text_end()), (now + 6, ended("cancelled"))];
        let exit = (now + 70, exited(Some(143), None));
        if apart {
            import(&mut world, 1, first);
            import(&mut world, 4, vec![exit]);
        } else {
            import(&mut world, 1, first.into_iter().chain([exit]).collect());
        }
        assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessExit));
        let e = interruption(&world);
        assert_eq!(e.stop_reason.as_deref(), Some("cancelled"));
        assert_eq!(e.phase, Some(Activity::Answering));
        assert_eq!((world.count("run.cancelled"), world.count("run.interrupted")), (0, 1));
        let lost = world.state.pending_context.note.clone().expect("the next prompt tells of it");
        assert_eq!(lost.message, Some(id("msg_a")), "it ended its message with its turn");
        assert!(world.state.pending.is_empty(), "there is nothing to stop");
    }
}

/// What was recorded as cancelled stays so, whatever its agent says then.
#[test]
fn a_cancel_that_was_recorded_is_a_cancel() {
    let (mut world, now) = begun();
    world.done(cancel("run_1"));
    import(&mut world, 1, vec![(now, ended("cancelled")), (now + 60, exited(Some(143), None))]);
    assert_eq!(world.named(), (Name::Idle, Reason::RunCancelled));
    assert_eq!(world.count("run.interrupted"), 0);
}

/// Some agents end their turn as cancelled when a permission is rejected. The run ended because of that
/// answer: nothing interrupted it, and what was said with the rejection is the next prompt. An agent
/// that was allowed, or did something else since, was interrupted.
#[test]
fn a_turn_that_ends_as_cancelled_after_a_rejection_is_no_interruption() {
    let call =
        |id_: &str| Fact::ToolCall { call_id: id(id_), name: "shell".into(), arguments: json!({}) };
    let question = json!({"options": [
        {"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]});
    let wait_id: piton_core::id::WaitId = id("wait_1");
    let opened =
        Fact::WaitOpened { wait_id: wait_id.clone(), wait_kind: WaitKind::Permission, question };
    for (option, later, expected) in [
        ("no", false, (Name::Running, Reason::PromptDue)),
        ("no", true, (Name::InterruptedStartup, Reason::ProcessExit)),
        ("yes", false, (Name::InterruptedStartup, Reason::ProcessExit)),
    ] {
        let (mut world, now) = begun();
        import(&mut world, 1, vec![(now, call("call_1")), (now, opened.clone())]);
        world.queue(&["next"]);
        let answer = json!({"option_id": option});
        let fresh = fresh("rt_answer");
        world.done(Command::AnswerByWait { wait_id: wait_id.clone(), fresh, answer });
        let mut facts = vec![(now + 2, ended("cancelled"))];
        if later {
            facts.insert(0, (now + 1, call("call_2")));
        }
        import(&mut world, 3, facts);
        assert_eq!(world.named(), expected, "{option} {later}");
        let is_rejected = expected.1 == Reason::PromptDue;
        assert_eq!(world.count("run.cancelled"), usize::from(is_rejected));
        assert_eq!(world.state.queue[0].held, !is_rejected, "{option} {later}");
        let stops = world
            .state
            .pending
            .values()
            .filter(|effect| matches!(effect, piton_core::state::Effect::Stop { .. }));
        assert_eq!(stops.count(), 0, "its turn is over");
    }
}

/// As copilot did: `end_turn`, and 0.28 s later it exits by the signal. Together or apart, the run is
/// interrupted; only where the end was imported alone is it first said to be completed.
#[test]
fn a_turn_that_ends_just_before_its_agent_is_signalled_is_interrupted() {
    let exits = [(None, Some(15)), (Some(143), None), (Some(130), None), (Some(0), None)];
    for (exit_code, signal) in exits {
        let (mut world, now) = begun();
        let facts = vec![(now, ended("end_turn")), (now + 280, exited(exit_code, signal))];
        import(&mut world, 1, facts.clone());
        assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessExit));
        assert_eq!((world.count("run.completed"), world.count("run.interrupted")), (0, 1));

        let (mut world, now) = begun();
        import(&mut world, 1, vec![(now, ended("end_turn"))]);
        assert_eq!(world.named(), (Name::Idle, Reason::RunCompleted));
        import(&mut world, 2, vec![(now + 280, exited(exit_code, signal))]);
        assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessExit));
        assert_eq!(interruption(&world).stop_reason.as_deref(), Some("end_turn"));
        assert!(world.state.pending_context.note.is_some(), "the next prompt tells of it");
    }
}

/// As copilot did: its first process is killed, and what that had started ends the turn as completed, and
/// withdraws its question, before it is killed as well.
#[test]
fn a_turn_that_ends_after_its_agent_was_killed_is_interrupted() {
    let asked = Fact::WaitOpened {
        wait_id: id("w1"),
        wait_kind: WaitKind::Permission,
        question: json!("May I?"),
    };
    let withdrawn = Fact::WaitEnded { wait_id: id("w1"), why: Ended::Withdrawn };
    for (exit_code, signal) in [(None, Some(9)), (Some(137), None)] {
        let (mut world, now) = begun();
        import(&mut world, 1, vec![(now, asked.clone())]);
        let end = [(now + 62, withdrawn.clone()), (now + 62, ended("end_turn"))];
        let exit = (now + 50, exited(exit_code, signal));
        import(&mut world, 2, end.into_iter().chain([exit]).collect());
        assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::ProcessExit));
        assert_eq!(interruption(&world).phase, Some(Activity::Waiting));
        assert_eq!((world.count("run.completed"), world.count("wait.cancelled")), (0, 0));

        let (mut world, now) = begun();
        import(&mut world, 1, vec![(now + 62, ended("end_turn"))]);
        import(&mut world, 2, vec![(now + 50, exited(exit_code, signal))]);
        assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessExit));
    }
}

/// A killed agent says nothing any more, one that fails by itself was not told to end, and what was long
/// ago has nothing to do with it.
#[test]
fn a_turn_that_ended_before_stays_completed() {
    let table = [
        (280, exited(None, Some(9))),
        (501, exited(Some(0), None)),
        (280, exited(Some(1), None)),
        (501, exited(None, Some(15))),
        (
            10,
            Fact::AgentExited {
                exit_code: None,
                signal: Some(15),
                requested: true,
                stderr: String::new(),
            },
        ),
    ];
    for (later, exit) in table {
        for apart in [false, true] {
            let (mut world, now) = begun();
            let exit = (now + later, exit.clone());
            if apart {
                import(&mut world, 1, vec![(now, ended("end_turn"))]);
                import(&mut world, 2, vec![exit]);
            } else {
                import(&mut world, 1, vec![(now, ended("end_turn")), exit]);
            }
            assert_eq!(world.named(), (Name::Idle, Reason::RunCompleted), "{later}");
        }
    }
}

/// The next run is what the exit interrupts; the one before stays as it ended.
#[test]
fn a_completed_run_with_another_one_behind_it_stays_completed() {
    let (mut world, now) = begun();
    import(&mut world, 1, vec![(now, ended("end_turn"))]);
    world.done(start("run_2"));
    import(&mut world, 2, vec![(now + 280, exited(None, Some(15)))]);
    assert_eq!(world.count("run.interrupted"), 0, "its prompt was given to no agent");
    assert!(world.state.facts.run.as_ref().is_some_and(|run| run.run_id == id("run_2")));
}

#[test]
fn an_interruption_names_what_the_run_was_doing() {
    let call =
        Fact::ToolCall { call_id: id("c1"), name: "shell".into(), arguments: json!({"cmd": "ls"}) };
    let result =
        Fact::ToolResult { call_id: id("c1"), status: ToolStatus::Succeeded, result: json!(1) };
    let asked = Fact::WaitOpened {
        wait_id: id("w1"),
        wait_kind: WaitKind::Permission,
        question: json!("May I?"),
    };
    let table = [
        (vec![], Activity::Answering, "while the agent was answering"),
        (vec![text()], Activity::Answering, "while the agent was answering"),
        (vec![call.clone()], Activity::RunningTool, "while the agent was running a tool"),
        (vec![call.clone(), result], Activity::Answering, "while the agent was answering"),
        (vec![call, asked], Activity::Waiting, "while the agent was waiting for an answer"),
    ];
    for (facts, activity, words) in table {
        let (mut world, now) = begun();
        let mut facts: Vec<_> = facts.into_iter().map(|fact| (now, fact)).collect();
        facts.push((now, exited(None, Some(9))));
        import(&mut world, 1, facts);
        assert_eq!(interruption(&world).phase, Some(activity));
        let phase = world.state.facts.run.as_ref().expect("a run").phase;
        assert!(
            matches!(phase, Phase::Interrupted { activity: Some(of), .. } if of == activity),
            "{phase:?}"
        );
        let sentence = world.status().sentence();
        assert!(sentence.contains(words), "{sentence}");
    }
}

/// No one answered in time, the agent was told so, and ends its turn for that.
#[test]
fn a_turn_that_ends_as_cancelled_after_a_deadline_is_interrupted_by_the_deadline() {
    let (mut world, now) = begun();
    let asked = Fact::WaitOpened {
        wait_id: id("w1"),
        wait_kind: WaitKind::Permission,
        question: json!("May I?"),
    };
    import(&mut world, 1, vec![(now, asked)]);
    world.pass(std::time::Duration::from_hours(8 * 24));
    world.done(Command::Sweep { live: true });
    let now = world.now.as_millis();
    import(&mut world, 2, vec![(now, ended("cancelled"))]);
    assert_eq!(world.status().reason, Reason::WaitTimeout);
}

/// The summary always has the run's own prompt, also when the run was continued in between.
#[test]
fn the_prompt_of_the_interrupted_run_is_kept() {
    let (mut world, now) = begun();
    let said = world.state.last_said.clone().expect("something was said").seq;
    import(&mut world, 1, vec![(now, exited(None, Some(9)))]);
    assert_eq!(
        world.state.pending_context.note.as_ref().and_then(|lost| lost.prompt_seq),
        Some(said)
    );
}
