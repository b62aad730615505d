//! What is known of the conversation, and the notes that must still reach the journal. A caller
//! that adds notes holds the recorder's lock until the journal has kept them: so the notes have one
//! order, and nothing acts on a note before it is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::event::WaitKind;
use piton_core::id::{RunId, WaitId};
use piton_core::mask::Masker;
use piton_core::spool::{AgentInfo, Channel, Ended, Fact, Note, OpenedAs};
use serde_json::{Map, Value, json};

use super::calls::Calls;
use super::drops::Drops;
use super::message::Message;
use super::refusal::{Refusal, RefusalPatterns};
use super::replay::{Replay, Verdict};
use super::wire::{self, Hello};
use super::{Error, Limits, MakeIds};
use crate::Journal;

/// Names, reasons and the like are cut here: they become headers, which have a limit of their own.
const TEXT_BYTES_MAX: usize = 4 * 1024;

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) run_id: RunId,
    pub(super) is_cancelled: bool,
}

#[derive(Debug)]
pub(crate) struct Ask {
    /// The agent's id of its request.
    pub(super) rpc_id: Value,
    pub(super) options: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Recorder {
    journal: Arc<dyn Journal>,
    ids: Arc<dyn MakeIds>,
    masker: Arc<Masker>,
    pub(super) hello: Option<Hello>,
    /// The agent's own id of the conversation.
    pub(super) session: Option<String>,
    /// How the agent would say that it does not know it.
    pub(super) wording: RefusalPatterns,
    /// The config options that stand for its mode and its model, where it has no other way.
    pub(super) mode_option: Option<String>,
    pub(super) model_option: Option<String>,
    /// The agent reported the conversation as resumed, and has not worked in it since.
    is_unproven: bool,
    pub(super) turn: Option<Turn>,
    pub(super) turns: u64,
    message: Option<Message>,
    calls: Calls,
    pub(super) asks: BTreeMap<WaitId, Ask>,
    pub(super) replay: Replay,
    drops: Drops,
    notes: Vec<Note>,
}

impl Recorder {
    pub(crate) fn new(
        journal: Arc<dyn Journal>,
        ids: Arc<dyn MakeIds>,
        masker: Arc<Masker>,
        limits: &Limits,
    ) -> Self {
        Self {
            journal,
            ids,
            masker,
            hello: None,
            session: None,
            wording: RefusalPatterns::default(),
            mode_option: None,
            model_option: None,
            is_unproven: false,
            turn: None,
            turns: 0,
            message: None,
            calls: Calls::default(),
            asks: BTreeMap::new(),
            replay: Replay::new(limits.replay_bytes_max),
            drops: Drops::new(limits.drops_noted_max),
            notes: Vec::new(),
        }
    }

    /// Resolves when all that was noted is kept.
    pub(crate) async fn keep(&mut self) -> Result<(), Error> {
        if self.notes.is_empty() {
            return Ok(());
        }
        let notes = std::mem::take(&mut self.notes);
        Ok(self.journal.keep(notes).await?)
    }

    pub(crate) fn note(&mut self, fact: Fact) {
        self.note_with(fact, None);
    }

    fn note_with(&mut self, fact: Fact, raw: Option<Value>) {
        let run_id = self.turn.as_ref().map(|turn| turn.run_id.clone());
        self.notes.push(Note { run_id, fact, raw, at: None });
    }

    pub(crate) fn dropped(&mut self, why: &'static str, bytes: u64) {
        if let Some(fact) = self.drops.add(why, bytes) {
            self.note(fact);
        }
    }

    /// Free JSON as it may be written. What stands under an excluded key is known from then on.
    pub(super) fn mask(&mut self, mut value: Value) -> Value {
        let unknown = self.masker.unknown_in(&value);
        if !unknown.is_empty() {
            match self.masker.learn(unknown) {
                Ok(learned) => {
                    self.masker = Arc::new(learned.masker);
                    if let Some(message) = &mut self.message {
                        message.set_masker(&self.masker);
                    }
                }
                // It is masked under its key all the same.
                Err(error) => tracing::warn!(%error, "a secret was not added to the masker"),
            }
        }
        self.masker.json(&mut value);
        value
    }

    /// Words of the agent's where a few are expected.
    pub(crate) fn mask_text(&self, text: &str) -> String {
        let mut text = self.masker.text(text).into_owned();
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text
    }

    /// Something else is said: the message is complete.
    fn end_message(&mut self) {
        if let Some(message) = self.message.take() {
            message.end().for_each(|fact| self.note(fact));
        }
    }

    /// One update of the session. `outputs`: see [`Calls::said`].
    pub(super) fn update(&mut self, update: Value, outputs: Map<String, Value>) {
        if let Some(update) = self.replay.pass(update) {
            self.said(update, outputs, None);
        }
    }

    /// What was said in other words than the protocol's, put into these; `raw` is what they were.
    pub(crate) fn apply_update(&mut self, update: Value, raw: Option<Value>) {
        self.said(update, Map::new(), raw);
    }

    fn said(&mut self, update: Value, outputs: Map<String, Value>, raw: Option<Value>) {
        let kind = wire::text_at(&update, "sessionUpdate").unwrap_or_default();
        // Agents also send modes and commands for a conversation that they do not have.
        let is_work = matches!(&*kind, "agent_message_chunk" | "agent_thought_chunk" | "tool_call");
        self.is_unproven &= !is_work || self.turn.is_none();
        let what = match kind.as_str() {
            "agent_message_chunk" => return self.chunk(update, Channel::Answer),
            "agent_thought_chunk" => return self.chunk(update, Channel::Thought),
            "tool_call" | "tool_call_update" => return self.tool(update, outputs, raw),
            "user_message_chunk" => {
                self.end_message();
                "user_message"
            }
            "plan" => {
                self.end_message();
                "plan"
            }
            "available_commands_update" => "commands",
            "current_mode_update" => "mode",
            "config_option_update" => "config",
            "session_info_update" => "session_info",
            "usage_update" => "usage",
            "notice" => "notice",
            "compaction_update" | "compaction_summary_chunk" => "compaction",
            _ => {
                let what = self.mask_text(&format!("unknown:{kind}"));
                return self.other(&what, update);
            }
        };
        self.other(what, update);
    }

    pub(crate) fn other(&mut self, what: &str, update: Value) {
        let update = self.mask(update);
        self.note(Fact::Update { what: what.to_owned(), update });
    }

    fn chunk(&mut self, update: Value, channel: Channel) {
        let chunk = wire::chunk(&update);
        let Some(text) = chunk.text else {
            self.end_message();
            return self.other("content", update);
        };
        if text.is_empty() {
            return;
        }
        let agent_id = chunk.message_id.as_deref();
        if self.message.as_ref().is_some_and(|message| !message.is(channel, agent_id)) {
            self.end_message();
        }
        let (ids, masker) = (&self.ids, &self.masker);
        let is_new = self.message.is_none();
        let message = self.message.get_or_insert_with(|| {
            Message::new(ids.message(), channel, chunk.message_id.clone(), masker)
        });
        let id = message.id().clone();
        let piece = message.push(&text);
        if is_new && let Some(agent_id) = chunk.message_id {
            // So that the log knows it when the agent tells it again.
            let update = json!({ "message_id": id, "agent_message_id": agent_id });
            self.other("message_id", update);
        }
        if let Some(fact) = piece {
            self.note(fact);
        }
    }

    fn tool(&mut self, update: Value, outputs: Map<String, Value>, raw: Option<Value>) {
        let update = self.mask(update);
        let raw = raw.map(|raw| self.mask(raw));
        let outputs = match self.mask(outputs.into()) {
            Value::Object(outputs) => outputs,
            _ => Map::new(),
        };
        let Some(tool) = wire::tool(&update) else {
            return self.other("unknown:tool_call", update);
        };
        let ids = Arc::clone(&self.ids);
        let facts = self.calls.said(&update, tool, self.turns, outputs, &*ids);
        // The progress of a call does not end a message; its beginning and its end do.
        if facts.iter().any(|fact| !matches!(fact, Fact::ToolUpdate { .. })) {
            self.end_message();
        }
        for fact in facts {
            let says_all = matches!(fact, Fact::ToolUpdate { .. });
            let raw = || raw.clone().unwrap_or_else(|| update.clone());
            self.note_with(fact, (!says_all).then(raw));
        }
    }

    pub(super) fn terminals_of(&self, update: &Value) -> Vec<String> {
        wire::tool(update).map(|tool| self.calls.terminals_of(&tool)).unwrap_or_default()
    }

    /// A question of the agent; `params` as it asked.
    pub(super) fn asked(&mut self, rpc_id: Value, params: Value) -> WaitId {
        self.end_message();
        let wait_id = self.ids.wait();
        let options = wire::options(&params);
        let mut question = self.mask(params);
        wire::respell_options(&mut question);
        let asked = question.get("toolCall").cloned().unwrap_or_default();
        let agent_call_id = wire::text_at(&asked, "toolCallId");
        let call = agent_call_id.and_then(|id| self.calls.so_far(&id));
        if let (Some((call_id, mut said)), Value::Object(question)) = (call, &mut question) {
            // Said twice it need not be written twice.
            said.retain(|key, value| asked.get(key) != Some(value));
            question.insert("call_id".to_owned(), call_id.as_str().into());
            question.insert("call".to_owned(), said.into());
        }
        let wait_kind = WaitKind::Permission;
        self.note(Fact::WaitOpened { wait_id: wait_id.clone(), wait_kind, question });
        self.asks.insert(wait_id.clone(), Ask { rpc_id, options });
        wait_id
    }

    /// The caller answers the agent only after the journal has kept the note.
    pub(super) fn ask_ended(&mut self, wait_id: &WaitId, why: Ended) -> Option<Ask> {
        let ask = self.asks.remove(wait_id)?;
        self.note(Fact::WaitEnded { wait_id: wait_id.clone(), why });
        Some(ask)
    }

    pub(super) fn end_all_asks(&mut self, why: Ended) -> Vec<Ask> {
        let ids: Vec<WaitId> = self.asks.keys().cloned().collect();
        ids.iter().filter_map(|id| self.ask_ended(id, why)).collect()
    }

    /// The agent advertises this way to resume, and does not implement it.
    pub(super) fn mark_not_offered(&mut self, way: OpenedAs) {
        let Some(hello) = &mut self.hello else { return };
        match way {
            OpenedAs::Resumed => hello.capabilities.resume = false,
            OpenedAs::Loaded => hello.capabilities.load = false,
            OpenedAs::New | OpenedAs::Forked => {}
        }
    }

    /// Whether the agent opened an empty conversation in place of the one that it was asked for.
    pub(super) fn has_lost_conversation(&self) -> bool {
        self.wording.silence && self.replay.is_silent()
    }

    /// The session is open, and the replay of its history is over.
    pub(crate) fn set_opened(
        &mut self,
        opened_as: OpenedAs,
        asked_id: Option<String>,
        answer: &Value,
    ) {
        let named = wire::text_at(answer, "sessionId");
        let (session, other) = match opened_as {
            OpenedAs::New | OpenedAs::Forked => (named, None),
            // The protocol gives it no place to call it otherwise; some do.
            OpenedAs::Loaded | OpenedAs::Resumed => {
                (asked_id.clone(), named.filter(|named| Some(named) != asked_id.as_ref()))
            }
        };
        self.session = other.clone().or_else(|| session.clone());
        self.is_unproven = matches!(opened_as, OpenedAs::Loaded | OpenedAs::Resumed);
        let hello = self.hello.clone().unwrap_or_default();
        let agent = hello.agent.map(|agent| AgentInfo {
            name: self.mask_text(&agent.name),
            version: agent.version.map(|version| self.mask_text(&version)),
        });
        self.note(Fact::AgentReady {
            opened_as,
            agent_session_id: session,
            requested_session_id: asked_id,
            agent,
            capabilities: hello.capabilities,
        });
        if let Some(agent_session_id) = other {
            self.note(Fact::AgentSessionAssigned { agent_session_id });
        }
        self.mode_option = wire::option_of(answer, "mode", "modes");
        self.model_option = wire::option_of(answer, "model", "models");
        let features = [("modes", "modes"), ("models", "models"), ("configOptions", "config")];
        for (key, what) in features {
            if let Some(part) = answer.get(key).filter(|part| !part.is_null()) {
                self.other(what, json!({ key: part }));
            }
        }
        match self.replay.finish() {
            Verdict::Known => {}
            Verdict::Import(updates) => {
                for update in updates {
                    self.said(update, Map::new(), None);
                }
                self.end_message();
            }
            Verdict::Diverged(Fact::HistoryDiverged { unseen, rest }) => {
                let rest = self.mask(rest);
                self.note(Fact::HistoryDiverged { unseen, rest });
            }
            Verdict::Diverged(fact) => self.note(fact),
        }
        if opened_as == OpenedAs::New {
            self.replay.live();
        }
    }

    pub(crate) fn turn_started(&mut self, run_id: RunId) {
        self.end_message();
        self.replay.live();
        self.turns += 1;
        self.turn = Some(Turn { run_id, is_cancelled: false });
        self.note(Fact::TurnStarted {});
    }

    /// Whether the agent refuses with this error the conversation that it reported as resumed: some
    /// agents notice only at the first prompt. If so, drops the conversation's id.
    pub(super) fn disowned(&mut self, error: &Error) -> bool {
        let Error::Agent { code, message, .. } = error else { return false };
        let is_refused = self.wording.refusal(*code, message) == Refusal::Refused;
        if !is_refused || !self.is_unproven {
            return false;
        }
        let (code, message) = (*code, message.clone());
        let agent_session_id = self.session.take();
        self.note(Fact::AgentSessionRefused { code, message, agent_session_id });
        true
    }

    /// Returns the questions that were still open.
    pub(crate) fn turn_over(&mut self, fact: Fact) -> Vec<Ask> {
        self.end_message();
        let asks = self.end_all_asks(Ended::Withdrawn);
        self.note_drops();
        self.note(fact);
        self.turn = None;
        asks
    }

    /// The turn was cut off: what the agent was saying is written, but not said to be complete.
    pub(crate) fn cut_off(&mut self, fact: Fact) {
        self.flush_message();
        self.note_drops();
        self.note(fact);
        self.turn = None;
    }

    fn flush_message(&mut self) {
        if let Some(fact) = self.message.take().and_then(|mut message| message.flush()) {
            self.note(fact);
        }
    }

    /// The agent is gone. What it was saying is written, but not said to be complete, its turn is not
    /// ended, and its questions were open to the last: that it was interrupted is for those to say
    /// who know why.
    pub(crate) fn gone(&mut self) {
        self.flush_message();
        self.asks.clear();
        self.note_drops();
        self.turn = None;
    }

    fn note_drops(&mut self) {
        for fact in self.drops.take() {
            self.note(fact);
        }
    }
}
