//! Standing rules answer permission requests in the batch that brings them into the log: once, by an
//! option that counts once, and never what they cannot see whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{World, at, fresh, id};
use piton_core::decide::{
    Command, IfBusy, Import, Message, Probe, Prompt, QueuePosition, Refusal, asks,
};
use piton_core::event::{Event, WaitKind};
use piton_core::permission::{Action, AskReason, Rule, Rules};
use piton_core::spool::{ENTRY_VERSION, Entry, Fact, Pos};
use piton_core::state::Effect;
use piton_core::status::Name;
use serde_json::{Value, json};

fn rules(rules: &[(Action, &str)]) -> Arc<Rules> {
    let rule = |(action, command): &(Action, &str)| Rule {
        name: Some(format!("{} {command}", action.as_str())),
        action: *action,
        tool: None,
        command: Some((*command).to_owned()),
        path: None,
        agent: None,
        folder: None,
    };
    Arc::new(Rules::new(rules.iter().map(rule).collect()).expect("the rules are valid"))
}

fn asks_to_run(command: &str) -> Value {
    json!({
        "toolCall": {"toolCallId": "call_1", "title": "run", "kind": "execute",
            "rawInput": {"command": command}},
        "options": [
            {"option_id": "always", "kind": "allow_always"},
            {"option_id": "once", "kind": "allow_once"},
            {"option_id": "no", "kind": "reject_once"},
        ],
    })
}

fn import(pos: Pos, wait: &str, question: Value, rules: &Arc<Rules>) -> Command {
    let fact = Fact::WaitOpened { wait_id: id(wait), wait_kind: WaitKind::Permission, question };
    let run_id = Some(id("run_1"));
    let entry = Entry { v: ENTRY_VERSION, pos, at: at(1_000_000), run_id, fact, raw: None };
    let entries = vec![entry];
    assert_eq!(asks(&entries), 1);
    Command::Import(Import {
        execution_id: id("exec_1"),
        spool_id: "spool_1".into(),
        entries,
        lost: None,
        damage: None,
        masked: BTreeMap::new(),
        fresh: vec![fresh(&format!("rt_{wait}"))],
        rules: Arc::clone(rules),
    })
}

fn begun() -> World {
    let mut world = World::executed();
    let of_seq = *world.state.pending.keys().next().expect("the prompt is to be given");
    world.done(Command::Done { of_seq });
    world
}

fn decided(world: &World) -> Vec<(String, Action, String, String)> {
    let decided = world.log.iter().filter_map(|record| match record.event() {
        Ok(Event::PermissionDecided(e)) => {
            Some((e.wait_id.to_string(), e.action, e.rule, e.option_id))
        }
        _ => None,
    });
    decided.collect()
}

/// The rules that left a request to a person: what they are for, their names, and why.
fn asked(world: &World) -> Vec<(Action, String, Option<AskReason>)> {
    let asked = world.log.iter().filter_map(|record| match record.event() {
        Ok(Event::PermissionAsked(e)) => Some((e.action, e.rule, e.reason)),
        _ => None,
    });
    asked.collect()
}

/// Wants to show: wait, decision and answer are one batch, and the answer is an effect for the agent.
#[test]
fn a_rule_answers_in_the_batch_of_the_request() {
    let rules = rules(&[(Action::Allow, "git status*"), (Action::Deny, "rm *")]);
    let mut world = begun();
    let kinds = world.done(import(1, "wait_1", asks_to_run("git status -s"), &rules));
    let expected = [
        "token.minted",
        "run.waiting",
        "permission.decided",
        "token.consumed",
        "run.resumed",
        "spool.imported",
    ];
    assert_eq!(kinds, expected);
    let kinds = world.done(import(2, "wait_2", asks_to_run("ls; rm -rf x"), &rules));
    assert_eq!(kinds, expected);
    let named = |wait: &str, action, rule: &str, option: &str| {
        (wait.to_owned(), action, rule.to_owned(), option.to_owned())
    };
    assert_eq!(
        decided(&world),
        [
            named("wait_1", Action::Allow, "allow git status*", "once"),
            named("wait_2", Action::Deny, "deny rm *", "no"),
        ]
    );
    let answers = world.state.pending.values().filter(|e| matches!(e, Effect::Answer { .. }));
    assert_eq!(answers.count(), 2, "{:?}", world.state.pending);
    assert_eq!(world.named().0, Name::Running);
    assert!(world.state.tokens.is_empty());
}

/// Wants to show: what is imported again, after a crash or by an agent that repeats itself, is not
/// decided again, and other rules change nothing about it.
#[test]
fn a_request_is_decided_once() {
    let allow = rules(&[(Action::Allow, "ls")]);
    let mut world = begun();
    let before = world.state.clone();
    let first = world.decide(import(1, "wait_1", asks_to_run("ls"), &allow)).expect("imported");
    // A crash before the batch was durable: the same again, from the same state.
    let mut again = begun();
    assert_eq!(again.state, before);
    let repeated = again.decide(import(1, "wait_1", asks_to_run("ls"), &allow)).expect("imported");
    assert_eq!(first, repeated);
    // A crash behind it: nothing, whatever the rules are now.
    let deny = rules(&[(Action::Deny, "ls")]);
    world.restart("boot_2");
    world.recover(Some(Probe::Alive));
    assert_eq!(world.done(import(1, "wait_1", asks_to_run("ls"), &deny)), [""; 0]);
    // The same wait in a later entry is the same wait.
    let kinds = world.done(import(2, "wait_1", asks_to_run("ls"), &deny));
    assert_eq!(kinds, ["spool.imported"]);
    assert_eq!(decided(&world).len(), 1);
}

/// Wants to show: what no rule decides, or a rule cannot be sure of, is asked.
#[test]
fn what_is_not_decided_is_asked() {
    let allow = rules(&[(Action::Allow, "git *"), (Action::Ask, "git push*")]);
    let mut truncated = asks_to_run("git status");
    truncated["missing_bytes"] = 7.into();
    let mut always = asks_to_run("git status");
    always["options"] = json!([{"option_id": "always", "kind": "allow_always"}]);
    let by_allow = |reason| Some((Action::Allow, "allow git *", Some(reason)));
    for (question, rule) in [
        (asks_to_run("ls"), None),
        (asks_to_run("git status && ls"), by_allow(AskReason::Compound)),
        (asks_to_run("git push"), Some((Action::Ask, "ask git push*", None))),
        (truncated, by_allow(AskReason::Truncated)),
        (always, by_allow(AskReason::NoOption)),
        (
            json!({"toolCall": {"kind": "execute", "title": "git status"},
                "options": asks_to_run("")["options"]}),
            None,
        ),
        (json!("git status"), None),
        (Value::Null, None),
    ] {
        let mut world = begun();
        let kinds = world.done(import(1, "wait_1", question.clone(), &allow));
        assert_eq!(world.named().0, Name::Waiting, "{question}");
        assert_eq!(decided(&world), []);
        // The rule is named in the batch of the request: no write of its own.
        let rule = rule.map(|(action, rule, reason)| (action, rule.to_owned(), reason));
        assert_eq!(asked(&world), Vec::from_iter(rule.clone()), "{question}");
        let named = rule.is_some().then_some("permission.asked");
        let expected = ["token.minted", "run.waiting"].into_iter().chain(named);
        assert_eq!(kinds, expected.chain(["spool.imported"]).collect::<Vec<_>>());
    }
}

/// Wants to show: what is said with an answer is the first of the queue, in the batch of the answer, or
/// nothing of both happens.
#[test]
fn a_message_with_an_answer_is_the_first_queued_prompt() {
    let prompt = |name: &str, position, queue_max| Prompt {
        run_id: id(&format!("run_{name}")),
        message: Message { message_id: id(&format!("msg_{name}")), content: name.into() },
        if_busy: IfBusy::Queue,
        position,
        queue_max,
    };
    let rejected = |queue_max| Command::AnswerWithMessage {
        wait_id: id("wait_1"),
        fresh: fresh("rt_9"),
        answer: json!({"option_id": "no"}),
        prompt: prompt("why", QueuePosition::First, queue_max),
    };
    let mut world = World::waiting();
    world.done(Command::Prompt(prompt("later", QueuePosition::Last, 64)));
    let refused = world.refused(rejected(1));
    assert_eq!(refused, Refusal::LimitReached { what: "queued prompts", max: 1 });
    assert_eq!(world.named().0, Name::Waiting, "a full queue leaves the wait open");
    let kinds = world.done(rejected(64));
    assert_eq!(kinds.last().map(String::as_str), Some("prompt.queued"));
    assert_eq!(kinds.iter().filter(|kind| *kind == "run.resumed").count(), 1);
    let queued: Vec<_> =
        world.state.queue.iter().map(|prompt| prompt.message_id.as_str()).collect();
    assert_eq!(queued, ["msg_why", "msg_later"]);
    assert_eq!(
        world.refused(rejected(64)),
        Refusal::WaitNotFound { wait: id("wait_1") },
        "a wait is answered once"
    );
}
