//! A scripted agent: it streams numbered pieces of text, calls tools, asks and waits for answers,
//! ends its turn, ignores commands for a while, hangs and crashes. The dice are the script.

use std::collections::{BTreeMap, BTreeSet};

use piton_core::Code;
use piton_core::event::{ToolStatus, WaitKind};
use piton_core::id::{CallId, MessageId, RunId, WaitId};
use piton_core::spool::{Channel, Ended, Fact, OpenedAs, SessionCapabilities};
use serde_json::json;
use tokio::time::Instant;

use super::stuck::{LOAD_TIMEOUT, Stuck};
use super::world::World;

/// Part of what is streamed is a secret that the log must not have; see [`super::MASKER`].
const SECRET: &str = "word word word ";

/// What an agent did, for its agentctl to write down.
pub(super) struct Did {
    pub run_id: Option<RunId>,
    pub fact: Fact,
}

#[derive(Debug)]
pub(super) struct Agent {
    pub is_ready: bool,
    pub turn: Option<Turn>,
    pub asks: BTreeSet<WaitId>,
    /// It does nothing until it is stopped or the world becomes calm.
    pub hangs: bool,
    /// The answers to its questions; `false`: the question was cancelled.
    pub answers: BTreeMap<WaitId, bool>,
    /// The conversation that it was asked to resume; `conversation` is the one that it has.
    asked: Option<String>,
    started_at: Instant,
    pub conversation: Option<String>,
}

#[derive(Debug)]
pub(super) struct Turn {
    pub run_id: RunId,
    is_cancelled: bool,
    message: Option<Message>,
    calls: Vec<CallId>,
    said: u64,
}

#[derive(Debug)]
struct Message {
    id: MessageId,
    channel: Channel,
    text: String,
}

/// What an agent came to within a step.
pub(super) enum After {
    Lives,
    Ends { exit_code: Option<i32> },
}

impl Agent {
    pub(super) fn new(asked: Option<String>) -> Self {
        let (asks, answers) = (BTreeSet::new(), BTreeMap::new());
        let (turn, conversation) = (None, None);
        let started_at = Instant::now();
        Self { is_ready: false, turn, asks, hangs: false, answers, asked, started_at, conversation }
    }

    pub(super) fn begin(&mut self, run_id: RunId) {
        let calls = Vec::new();
        self.turn = Some(Turn { run_id, is_cancelled: false, message: None, calls, said: 0 });
    }

    pub(super) fn cancel(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.is_cancelled = true;
        }
    }

    /// One step of its script. `calm`: it finishes what it is at and begins nothing.
    pub(super) fn step(&mut self, world: &World, calm: bool, did: &mut Vec<Did>) -> After {
        if calm {
            self.hangs = false;
        }
        if self.hangs {
            return After::Lives;
        }
        if !self.is_ready {
            return self.start(world, calm, did);
        }
        let run_id = self.turn.as_ref().map(|turn| turn.run_id.clone());
        let mut note = |fact| did.push(Did { run_id: run_id.clone(), fact });
        let Some(turn) = &mut self.turn else {
            if !calm && world.chance(1) {
                note(Fact::Update { what: "usage".to_owned(), update: json!({ "tokens": 1 }) });
            }
            return After::Lives;
        };
        if turn.is_cancelled && (calm || world.chance(40)) {
            self.end_turn(world, "cancelled", did);
            return After::Lives;
        }
        if !self.asks.is_empty() && (calm || world.chance(90)) {
            return After::Lives;
        }
        match world.range(0, 99) {
            _ if calm => self.end_turn(world, "end_turn", did),
            0..=54 => {
                let (fact, open) = say(world, turn);
                note(fact);
                turn.message = Some(open);
            }
            55..=62 => turn.message.take().into_iter().for_each(|message| note(ended(&message))),
            63..=70 => {
                let call_id = CallId::new(now_ms(world), random(world));
                let arguments = json!({ "command": "make" });
                note(Fact::ToolCall {
                    call_id: call_id.clone(),
                    name: "shell".to_owned(),
                    arguments,
                });
                turn.calls.push(call_id);
            }
            71..=80 => {
                if let Some(call_id) = turn.calls.pop() {
                    let (status, result) = (ToolStatus::Succeeded, json!("done"));
                    note(Fact::ToolResult { call_id, status, result });
                }
            }
            81..=87 => {
                let wait_id = WaitId::new(now_ms(world), random(world));
                let question = super::rules::question(turn.said);
                self.asks.insert(wait_id.clone());
                note(Fact::WaitOpened { wait_id, wait_kind: WaitKind::Permission, question });
            }
            88..=93 => self.end_turn(world, "end_turn", did),
            94 | 95 => self.end_turn(world, "refusal", did),
            96 => self.hangs = world.chance(50),
            97 if world.chance(30) => return After::Ends { exit_code: Some(1) },
            _ => {}
        }
        After::Lives
    }

    fn start(&mut self, world: &World, calm: bool, did: &mut Vec<Did>) -> After {
        let note = |fact| Did { run_id: None, fact };
        let stuck = world.habits.and_then(|habits| habits.stuck);
        if let Some(stuck) = stuck.filter(|_| self.asked.is_some()) {
            let code = match stuck {
                Stuck::Silent if self.started_at.elapsed() < LOAD_TIMEOUT => return After::Lives,
                Stuck::Silent => Code::AgentTimeout,
                Stuck::Fails => Code::AgentError,
            };
            let (code, message) = (code.into(), "It cannot be loaded".to_owned());
            did.push(note(Fact::AgentError { code, message, auth_methods: Vec::new() }));
            return After::Ends { exit_code: Some(2) };
        }
        if !calm && world.chance(5) {
            let (code, message) = (Code::AgentError.into(), "No luck".to_owned());
            did.push(note(Fact::AgentError { code, message, auth_methods: Vec::new() }));
            return After::Ends { exit_code: Some(2) };
        }
        if calm || world.chance(50) {
            self.is_ready = true;
            did.extend(self.converse(world, calm).into_iter().map(note));
        }
        After::Lives
    }

    /// Resumes the conversation that it was asked for, or begins one.
    fn converse(&mut self, world: &World, calm: bool) -> Vec<Fact> {
        let Some(habits) = world.habits else {
            let (opened_as, agent_session_id) = (OpenedAs::New, Some("theirs".to_owned()));
            let (agent, capabilities, requested_session_id) =
                (None, SessionCapabilities::default(), None);
            return vec![Fact::AgentReady {
                opened_as,
                agent_session_id,
                requested_session_id,
                agent,
                capabilities,
            }];
        };
        let capabilities = habits.capabilities;
        let can = capabilities.load || capabilities.resume;
        let forgets = !can || !calm && world.chance(habits.forgets);
        let opened_as = match &self.asked {
            Some(_) if forgets => OpenedAs::New,
            Some(_) if capabilities.resume => OpenedAs::Resumed,
            Some(_) => OpenedAs::Loaded,
            None => OpenedAs::New,
        };
        let conversation = match opened_as {
            OpenedAs::New => world.new_conversation(),
            _ => self.asked.clone().unwrap_or_default(),
        };
        world.drop_conversation(&conversation);
        self.conversation = Some(conversation.clone());
        let mut facts = Vec::new();
        // Some say that they do not know it, some only begin another.
        if opened_as == OpenedAs::New && can && self.asked.is_some() && world.chance(50) {
            let (code, message) = (-32002, "Not found".to_owned());
            let agent_session_id = self.asked.clone();
            facts.push(Fact::AgentSessionRefused { code, message, agent_session_id });
        }
        let (agent_session_id, requested_session_id) = (Some(conversation), self.asked.clone());
        let agent = None;
        facts.push(Fact::AgentReady {
            opened_as,
            agent_session_id,
            requested_session_id,
            agent,
            capabilities,
        });
        facts
    }

    fn end_turn(&mut self, world: &World, stop_reason: &str, did: &mut Vec<Did>) {
        let Some(turn) = self.turn.take() else { return };
        match (&self.conversation, stop_reason) {
            (Some(conversation), "end_turn") => world.keep_conversation(conversation),
            (Some(conversation), "refusal") => world.drop_conversation(conversation),
            _ => {}
        }
        let mut note = |fact| did.push(Did { run_id: Some(turn.run_id.clone()), fact });
        turn.message.iter().for_each(|message| note(ended(message)));
        for wait_id in std::mem::take(&mut self.asks) {
            note(Fact::WaitEnded { wait_id, why: Ended::Withdrawn });
        }
        note(Fact::TurnEnded { stop_reason: stop_reason.to_owned() });
    }

    /// The agent is gone and withdraws its questions. Its turn has no end, and its message is not
    /// complete.
    pub(super) fn last_words(&mut self, did: &mut Vec<Did>) {
        let run_id = self.turn.take().map(|turn| turn.run_id);
        for wait_id in std::mem::take(&mut self.asks) {
            let fact = Fact::WaitEnded { wait_id, why: Ended::Withdrawn };
            did.push(Did { run_id: run_id.clone(), fact });
        }
    }
}

/// The next piece, numbered, so that order and repetition show.
fn say(world: &World, turn: &mut Turn) -> (Fact, Message) {
    turn.said += 1;
    let piece = if world.chance(5) { SECRET.to_owned() } else { format!("{} ", turn.said) };
    let mut message = turn.message.take().unwrap_or_else(|| {
        let channel = if world.chance(20) { Channel::Thought } else { Channel::Answer };
        Message { id: MessageId::new(now_ms(world), random(world)), channel, text: String::new() }
    });
    let (message_id, channel) = (message.id.clone(), message.channel);
    let offset = message.text.len() as u64;
    message.text.push_str(&piece);
    (Fact::Text { message_id, channel, offset, text: piece }, message)
}

fn ended(message: &Message) -> Fact {
    let hash = blake3::hash(message.text.as_bytes()).to_hex().to_string();
    Fact::TextEnd { message_id: message.id.clone(), length: message.text.len() as u64, hash }
}

fn now_ms(world: &World) -> u64 {
    u64::try_from(world.now().as_millis()).unwrap_or(0)
}

fn random(world: &World) -> [u8; 10] {
    let mut random = [0; 10];
    world.fill(&mut random);
    random
}
