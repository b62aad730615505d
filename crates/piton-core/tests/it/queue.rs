//! Prompts while a run is open: queued, edited, delivered once and in order, and held after a run
//! that did not end well.

use crate::common::{World, cancel, close, complete, id, resume, start};
use piton_core::Code;
use piton_core::decide::{
    Command, IfBusy, Message, Prompt, QueuePosition, Redact, RedactTarget, Refusal, Verdict,
};
use piton_core::event::{Event, Outcome, Unknown};
use piton_core::limits::{PROMPTS_DEQUEUED_KEPT, QUEUED_PROMPTS_MAX, RUNS_KEPT};
use piton_core::reason::Reason;
use piton_core::record::{Content, Record};
use piton_core::request::{Key, Request};
use piton_core::status::Name;
use serde_json::{Value, json};

fn prompt(name: &str, if_busy: IfBusy) -> Command {
    Command::Prompt(Prompt {
        run_id: id(&format!("run_{name}")),
        message: Message { message_id: id(name), content: name.into() },
        if_busy,
        position: QueuePosition::Last,
        queue_max: QUEUED_PROMPTS_MAX,
    })
}

fn first(name: &str) -> Command {
    let Command::Prompt(prompt) = prompt(name, IfBusy::Queue) else { unreachable!() };
    Command::Prompt(Prompt { position: QueuePosition::First, ..prompt })
}

fn edit(name: &str, version: Option<u64>, content: &str) -> Command {
    Command::EditQueued { message_id: id(name), version, content: content.into() }
}

fn reorder(name: &str, position: u32) -> Command {
    Command::MoveQueued { message_id: id(name), position }
}

fn remove(name: &str) -> Command {
    Command::RemoveQueued { message_id: id(name), version: None }
}

impl World {
    pub(crate) fn queue(&mut self, names: &[&str]) {
        for name in names {
            assert_eq!(self.done(prompt(name, IfBusy::Queue)), ["prompt.queued"]);
        }
    }

    fn queued(&self) -> Vec<&str> {
        self.state.queue.iter().map(|prompt| prompt.message_id.as_str()).collect()
    }

    /// As the runtime does it: reads what is due and has it delivered.
    fn deliver(&mut self) -> Vec<String> {
        let Some(due) = self.state.due_prompt().cloned() else { return Vec::new() };
        let seq = usize::try_from(due.seq).expect("small");
        let content = piton_core::PromptContent::of(&self.log[seq - 1], "content");
        self.done(Command::Deliver { seq: due.seq, content: content.expect("it is there") })
    }

    /// What the user said, in the log's order.
    fn said(&self) -> Vec<String> {
        let said = self.log.iter().filter(|record| &*record.kind == "message.user");
        said.filter_map(|record| record.content_field("content")?.as_str().map(str::to_owned))
            .collect()
    }
}

#[test]
fn a_prompt_waits_for_the_turn_and_is_delivered_once_and_in_order() {
    let mut world = World::running();
    let decision = world.decide(prompt("a", IfBusy::Default)).expect("queued");
    assert_eq!(decision.outcome, Verdict::Queued { position: 1 });
    let decision = world.decide(prompt("b", IfBusy::Queue)).expect("queued");
    assert_eq!(decision.outcome, Verdict::Queued { position: 2 });
    assert!(world.deliver().is_empty(), "the run is at work");
    assert_eq!(world.done(complete("run_1")), ["run.completed"]);
    // Until it is delivered the session is not idle, and a crash leaves it due.
    assert_eq!(world.named(), (Name::Running, Reason::PromptDue));
    world.restart("boot_2");
    assert!(world.state.facts.needs_recovery());
    assert_eq!(world.deliver(), ["message.user", "run.started"]);
    assert_eq!(world.state.facts.run.as_ref().map(|run| run.run_id.as_str()), Some("run_a"));
    assert!(world.deliver().is_empty());
    world.done(complete("run_a"));
    world.deliver();
    world.done(complete("run_b"));
    assert!(world.deliver().is_empty());
    assert_eq!(world.said(), ["run tests", "a", "b"]);
    assert_eq!(world.named(), (Name::Idle, Reason::RunCompleted));
}

/// Between the end of a run and the delivery a new prompt must not overtake the queued ones.
#[test]
fn nothing_overtakes_a_prompt_that_is_due() {
    for if_busy in [IfBusy::Default, IfBusy::Queue] {
        let mut world = World::running();
        world.queue(&["a"]);
        world.done(complete("run_1"));
        assert_eq!(world.done(prompt("b", if_busy)), ["prompt.queued"]);
        world.deliver();
        assert_eq!(world.queued(), ["b"]);
    }
    let mut world = World::running();
    world.queue(&["a"]);
    world.done(complete("run_1"));
    assert_eq!(world.refused(prompt("b", IfBusy::Reject)).code(), Code::RunInProgress);
}

#[test]
fn what_becomes_of_a_prompt_while_a_run_is_open_is_the_callers_choice() {
    let mut world = World::running();
    assert_eq!(world.refused(prompt("a", IfBusy::Reject)).code(), Code::RunInProgress);
    let superseded = ["run.cancelled", "message.user", "run.started"];
    assert_eq!(world.done(prompt("a", IfBusy::Supersede)), superseded);

    let mut world = World::waiting();
    assert_eq!(world.refused(prompt("a", IfBusy::Reject)).code(), Code::RunInProgress);
    assert_eq!(world.done(prompt("a", IfBusy::Queue)), ["prompt.queued"]);
    let superseded = ["token.revoked", "run.cancelled", "message.user", "run.started"];
    assert_eq!(world.done(prompt("b", IfBusy::Default)), superseded);
    // It took the run's place; those behind it wait for it, and are not held.
    world.done(complete("run_b"));
    assert_eq!(world.deliver(), ["message.user", "run.started"]);

    let mut world = World::running();
    world.done(Command::Pause { run_id: id("run_1") });
    assert_eq!(world.done(prompt("a", IfBusy::Queue)), ["prompt.queued"]);
    assert_eq!(world.done(prompt("b", IfBusy::Default)).last().unwrap(), "run.started");

    for if_busy in [IfBusy::Default, IfBusy::Queue, IfBusy::Reject, IfBusy::Supersede] {
        let mut world = World::interrupted();
        assert_eq!(world.done(prompt("a", if_busy)), ["message.user", "run.started"]);
    }
}

#[test]
fn the_queue_is_held_after_a_run_that_did_not_end_well() {
    let interrupt = Command::Interrupt { run_id: id("run_1"), reason: Reason::ProcessExit };
    let fail = Command::Fail { run_id: id("run_1"), code: None, error: "no".into() };
    for end in [interrupt.clone(), fail, cancel("run_1")] {
        let mut world = World::running();
        world.queue(&["a", "b"]);
        world.done(end);
        assert!(world.deliver().is_empty());
        assert_eq!(world.state.facts.queue.held, 2);
        // A new prompt is delivered at once; the held ones stay held when it ends.
        assert_eq!(world.done(prompt("c", IfBusy::Queue)), ["message.user", "run.started"]);
        // What is queued from now on is not.
        assert_eq!(world.done(prompt("d", IfBusy::Queue)), ["prompt.queued"]);
        world.done(complete("run_c"));
        world.deliver();
        world.done(complete("run_d"));
        assert!(world.deliver().is_empty());
        assert_eq!(world.named(), (Name::Idle, Reason::QueueHeld));
        assert_eq!(world.done(Command::ReleaseQueue), ["queue.released"]);
        assert_eq!(world.done(Command::ReleaseQueue), [""; 0]);
        world.deliver();
        world.done(complete("run_a"));
        world.deliver();
        assert_eq!(world.said(), ["run tests", "c", "d", "a", "b"]);
    }
    let mut world = World::running();
    world.queue(&["a"]);
    world.done(interrupt);
    world.done(resume("run_1"));
    world.done(complete("run_1"));
    assert_eq!(world.deliver(), ["message.user", "run.started"]);
}

#[test]
fn releasing_the_queue_of_an_interrupted_run_starts_the_next_prompt() {
    let mut world = World::running();
    world.queue(&["a"]);
    world.done(Command::Interrupt { run_id: id("run_1"), reason: Reason::ProcessExit });
    world.done(Command::Dismiss { run_id: id("run_1") });
    assert_eq!(world.named(), (Name::Idle, Reason::QueueHeld));
    world.done(Command::ReleaseQueue);
    assert_eq!(world.deliver(), ["message.user", "run.started"]);
}

#[test]
fn queued_prompts_are_edited_moved_and_removed() {
    let mut world = World::running();
    world.queue(&["a", "b", "c"]);
    let version = world.state.queue[1].seq;
    assert_eq!(world.done(edit("b", Some(version), "B")), ["prompt.edited"]);
    // Who edits what another has edited meanwhile is told so, and nothing is lost.
    let refusal = world.refused(edit("b", Some(version), "other"));
    let actual = world.state.queue[1].seq;
    assert_eq!(
        refusal,
        Refusal::QueuedPromptConflict { message: id("b"), expected: version, actual }
    );
    assert_eq!(refusal.code(), Code::QueuedPromptConflict);
    let conflict = Command::RemoveQueued { message_id: id("b"), version: Some(version) };
    assert_eq!(world.refused(conflict).code(), Code::QueuedPromptConflict);

    assert_eq!(world.done(reorder("c", 1)), ["prompt.moved"]);
    assert_eq!(world.queued(), ["c", "a", "b"]);
    assert_eq!(world.done(reorder("c", 99)), ["prompt.moved"]);
    assert_eq!(world.done(reorder("c", 3)), [""; 0]);
    assert_eq!(world.queued(), ["a", "b", "c"]);
    assert_eq!(world.done(remove("a")), ["prompt.removed"]);
    for gone in [remove("a"), edit("a", None, "x"), reorder("a", 1)] {
        assert_eq!(world.refused(gone).code(), Code::QueuedPromptNotFound);
    }
    assert_eq!(world.done(first("z")), ["prompt.queued"]);
    assert_eq!(world.queued(), ["z", "b", "c"]);
    world.done(complete("run_1"));
    world.deliver();
    world.done(complete("run_z"));
    world.deliver();
    assert_eq!(world.said(), ["run tests", "z", "B"]);
    // What was delivered is not queued any more.
    assert_eq!(world.refused(edit("b", None, "x")).code(), Code::QueuedPromptNotFound);
    world.restart("boot_2");
}

/// A client that did not get the answer repeats itself, whatever became of its prompt meanwhile.
#[test]
fn a_prompt_that_left_the_queue_is_not_queued_again() {
    let mut world = World::running();
    world.queue(&["a", "b", "c"]);
    world.done(remove("a"));
    for if_busy in [IfBusy::Default, IfBusy::Queue, IfBusy::Supersede] {
        assert_eq!(world.done(prompt("a", if_busy)), [""; 0], "it was removed");
    }
    world.done(complete("run_1"));
    world.deliver();
    // Its run is remembered no longer than this, its message is.
    for run in 0..RUNS_KEPT {
        let run_id = world.state.facts.run.as_ref().map(|run| run.run_id.to_string());
        world.done(complete(&run_id.expect("one is open")));
        if world.deliver().is_empty() {
            world.done(start(&format!("run_more_{run}")));
        }
    }
    assert!(!world.state.recent_runs.contains(&id("run_b")));
    for name in ["a", "b", "c"] {
        assert_eq!(world.done(prompt(name, IfBusy::Queue)), [""; 0], "{name}");
    }
    assert_eq!(world.said().iter().filter(|said| *said == "b").count(), 1);
}

#[test]
fn what_left_the_queue_is_remembered_within_a_limit() {
    let mut world = World::running();
    for number in 0..=PROMPTS_DEQUEUED_KEPT {
        let name = format!("m{number}");
        world.queue(&[&name]);
        world.done(remove(&name));
    }
    assert_eq!(world.state.dequeued.len(), PROMPTS_DEQUEUED_KEPT);
    assert_eq!(world.state.dequeued.front(), Some(&id("m1")));
    world.restart("boot_2");
}

/// What the runtime read may have been edited or moved before it comes to be delivered.
#[test]
fn only_what_is_due_as_it_was_read_is_delivered() {
    let mut world = World::running();
    world.queue(&["a", "b"]);
    let read = world.state.queue[0].seq;
    world.done(complete("run_1"));
    world.done(edit("a", None, "A"));
    let stale = Command::Deliver { seq: read, content: "a".into() };
    assert_eq!(world.done(stale), [""; 0]);
    world.done(reorder("b", 1));
    world.deliver();
    assert_eq!(world.said(), ["run tests", "b"]);
}

#[test]
fn there_is_a_limit_and_a_closed_session_takes_nothing() {
    let mut world = World::running();
    let limited = |name: &str| {
        let Command::Prompt(prompt) = prompt(name, IfBusy::Queue) else { unreachable!() };
        Command::Prompt(Prompt { queue_max: 2, ..prompt })
    };
    world.done(limited("a"));
    world.done(limited("b"));
    let refusal = world.refused(limited("c"));
    assert_eq!(refusal, Refusal::LimitReached { what: "queued prompts", max: 2 });
    // Given again, the first one is the same.
    assert_eq!(world.done(limited("a")), [""; 0]);
    world.done(close(Outcome::Completed));
    assert!(world.deliver().is_empty());
    for command in [limited("d"), edit("a", None, "x"), remove("a"), Command::ReleaseQueue] {
        assert_eq!(world.refused(command).code(), Code::SessionClosed);
    }
}

/// Under an idempotency key a repetition is told the first answer, position and all.
#[test]
fn a_repeated_request_learns_that_it_was_queued() {
    let mut world = World::running();
    let requested = |name: &str| Command::Requested {
        request: Request {
            principal: "key_1".into(),
            action: "sessions.prompt".into(),
            key: Some(Key::new("key_1", "sessions.prompt sess_1", "k", &Value::Null)),
            response: Some(json!({"message_id": name})),
        },
        command: Box::new(prompt(name, IfBusy::Queue)),
    };
    assert_eq!(world.done(requested("a")), ["prompt.queued", "request.accepted"]);
    let decision = world.decide(requested("b")).expect("repeated");
    let Verdict::Repeated { seq } = decision.outcome else { panic!("{decision:?}") };
    let record = &world.log[usize::try_from(seq).expect("small") - 1];
    let kept = json!({"message_id": "a", "queued": true, "position": 1});
    assert_eq!(record.content_field("response"), Some(kept));
    assert_eq!(world.queued(), ["a"]);
}

#[test]
fn what_was_redacted_is_not_delivered() {
    let mut world = World::running();
    world.queue(&["a", "b"]);
    let seq = world.state.queue[0].seq;
    let targets = vec![RedactTarget { seq, content: Content::Omitted }];
    world.done(Command::Redact(Redact { targets, reason: None }));
    assert_eq!(world.queued(), ["b"]);
}

/// An older program would deliver nothing of it, or lose it: it must only read.
#[test]
fn every_record_of_the_queue_is_critical() {
    let mut world = World::running();
    world.queue(&["a", "b"]);
    world.done(edit("a", None, "A"));
    world.done(reorder("a", 2));
    world.done(remove("a"));
    world.done(cancel("run_1"));
    world.done(Command::ReleaseQueue);
    let of_queue =
        |record: &&Record| record.kind.starts_with("queue.") || record.kind.starts_with("prompt.");
    let records: Vec<_> = world.log.iter().filter(of_queue).collect();
    assert_eq!(records.len(), 6);
    for record in records {
        let header: Value = serde_json::from_str(&record.header).expect("an object");
        assert_eq!(header["critical"], true, "{record:?}");
        let unknown = Event::parse("of.tomorrow", &record.header).expect("readable");
        let kind = "of.tomorrow".to_owned();
        assert_eq!(unknown, Event::Unknown(Unknown { kind, critical: true }));
    }
    // A log without any of it knows nothing of a queue.
    let mut plain = World::new();
    plain.done(start("run_1"));
    assert!(!serde_json::to_string(&plain.state).expect("written").contains("queue"));
}
