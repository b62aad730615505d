//! Standing permission rules in the simulated world. Which rule means which command is written down here
//! by hand: what the core decides is compared with this table, never with the core's own matching.

use std::collections::BTreeMap;

use piton_core::Record;
use piton_core::event::Event;
use piton_core::id::{SessionId, WaitId};
use piton_core::permission::{Action, Rule, Rules};
use piton_core::spool::Fact;
use serde_json::{Value, json};

use super::ledger::Property;
use super::world::World;

const YES: &str = "yes";
const NO: &str = "no";

/// The rules that a world may have, each or not.
const RULES: &[(Action, &str)] = &[
    (Action::Allow, "git *"),
    (Action::Allow, "ls"),
    (Action::Deny, "rm *"),
    (Action::Ask, "git push*"),
    (Action::Deny, "ls*"),
];

/// A command that agents ask for, and the rules that count for it.
struct Asked {
    command: &'static str,
    denies: &'static [usize],
    asks: &'static [usize],
    allows: &'static [usize],
}

const ASKED: &[Asked] = &[
    Asked { command: "git status", denies: &[], asks: &[], allows: &[0] },
    Asked { command: "git push origin", denies: &[], asks: &[3], allows: &[0] },
    Asked { command: "git status && rm x", denies: &[2], asks: &[], allows: &[] },
    Asked { command: "git log | sh", denies: &[], asks: &[], allows: &[] },
    Asked { command: "ls", denies: &[4], asks: &[], allows: &[1] },
    Asked { command: "rm x", denies: &[2], asks: &[], allows: &[] },
    Asked { command: "make", denies: &[], asks: &[], allows: &[] },
];

/// Which of the rules a world has, a bit for each.
pub(super) fn in_world(seed: u64) -> u64 {
    (seed / 10) % (1 << RULES.len())
}

fn has(world: &World, rule: usize) -> bool {
    world.rules >> rule & 1 == 1
}

/// The rules as the runtime is given them.
pub(super) fn of(world: &World) -> Rules {
    let chosen = RULES.iter().enumerate().filter(|(at, _)| has(world, *at));
    let rule = |(at, (action, command)): (usize, &(Action, &str))| Rule {
        name: Some(format!("rule of the world {at}")),
        action: *action,
        tool: None,
        command: Some((*command).to_owned()),
        path: None,
        agent: None,
        folder: None,
    };
    Rules::new(chosen.map(rule).collect()).unwrap_or_default()
}

/// What an agent asks for the `number`th time.
pub(super) fn question(number: u64) -> Value {
    let at = usize::try_from(number).unwrap_or(0) % (ASKED.len() + 1);
    let Some(asked) = ASKED.get(at) else { return json!({ "may I": number }) };
    json!({
        "toolCall": {"title": "run", "kind": "execute", "rawInput": {"command": asked.command}},
        "options": [
            {"option_id": YES, "name": "Yes", "kind": "allow_once"},
            {"option_id": NO, "name": "No", "kind": "reject_once"},
        ],
    })
}

/// What the rules of the world must come to.
fn verdict(world: &World, question: &Value) -> Option<&'static str> {
    let command = question["toolCall"]["rawInput"]["command"].as_str()?;
    let asked = ASKED.iter().find(|asked| asked.command == command)?;
    let any = |rules: &[usize]| rules.iter().any(|rule| has(world, *rule));
    match asked {
        asked if any(asked.denies) => Some(NO),
        asked if any(asked.asks) => None,
        asked if any(asked.allows) => Some(YES),
        _ => None,
    }
}

/// In one log: a request is decided at most once, as the table says, and in the batch that brings it.
pub(super) fn check(world: &World, session: &SessionId, records: &[Record]) {
    let broken = |what: String| world.violated(Property::RulesHold, format!("{session}: {what}"));
    let mut questions: BTreeMap<WaitId, Value> = BTreeMap::new();
    for machine in world.fleet().machines.values().filter(|machine| machine.session == *session) {
        for entry in &machine.written {
            if let Fact::WaitOpened { wait_id, question, .. } = &entry.fact {
                questions.insert(wait_id.clone(), question.clone());
            }
        }
    }
    let mut decided: BTreeMap<WaitId, String> = BTreeMap::new();
    let mut answered: BTreeMap<WaitId, u64> = BTreeMap::new();
    let mut opened: Vec<WaitId> = Vec::new();
    for record in records {
        match record.event() {
            Ok(Event::RunWaiting(e)) => opened.extend(e.wait_id),
            Ok(Event::PermissionDecided(e)) => {
                let expected = questions.get(&e.wait_id).and_then(|asked| verdict(world, asked));
                if expected != Some(e.option_id.as_str()) {
                    broken(format!(
                        "{} is decided as {}, not {expected:?}",
                        e.wait_id, e.option_id
                    ));
                }
                if decided.insert(e.wait_id.clone(), e.option_id).is_some() {
                    broken(format!("{} is decided twice", e.wait_id));
                }
            }
            Ok(Event::RunResumed(e)) => {
                let Some(wait) = e.wait_id else { continue };
                *answered.entry(wait.clone()).or_default() += 1;
                let answer = record.content_field("answer").unwrap_or_default();
                let chosen = decided.get(&wait);
                if chosen.is_some_and(|chosen| answer["option_id"] != chosen.as_str()) {
                    broken(format!("{wait} is decided as {chosen:?} and answered {answer}"));
                }
            }
            _ => {}
        }
    }
    {
        let mut inner = world.inner();
        let most = inner.stats.rule_decisions.max(decided.len() as u64);
        inner.stats.rule_decisions = most;
    }
    for wait in &opened {
        let expected = questions.get(wait).and_then(|asked| verdict(world, asked));
        if expected.is_some() && !decided.contains_key(wait) {
            broken(format!("{wait} is asked though a rule decides it"));
        }
    }
    for wait in decided.into_keys() {
        if answered.get(&wait) != Some(&1) {
            broken(format!("{wait} is decided and answered {:?} times", answered.get(&wait)));
        }
    }
}
