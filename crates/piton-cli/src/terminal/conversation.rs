//! What a session's records mean for a person who reads along: messages, tool calls, notes, and what
//! the run does now. Pure: records in, items out. What the server knows better (queue, plan, usage,
//! models) is only marked as changed here, and asked for.

use std::collections::{BTreeSet, VecDeque};

use piton_core::Timestamp;
use piton_core::interruption::{self, Activity};
use piton_core::reason::Reason;
use piton_core::resume::{self, Context};
use serde_json::Value;

use super::human;
use super::tool::Tool;
use crate::commands::chat::screen::{Question, answer_words};
use crate::context_choices;
use crate::show;
use crate::ui::Tone;

/// Messages that may be accepted after their record was read, and runs after the record of their end.
const SHOWN_MESSAGES_MAX: usize = 64;

/// Something in the conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    User {
        text: String,
    },
    Agent {
        message_id: String,
        text: String,
        is_done: bool,
    },
    Thought {
        message_id: String,
        text: String,
        is_done: bool,
    },
    Tool(Box<Tool>),
    /// A question of the agent, and what became of it.
    Asked {
        wait_id: String,
        title: String,
        /// What can be chosen, by id and name.
        options: Vec<(String, String)>,
        answer: Option<String>,
    },
    Note {
        tone: Tone,
        text: String,
    },
    /// A line that a person had run in the workspace.
    Shell {
        command: String,
        output: String,
        code: Option<i32>,
    },
}

impl Item {
    /// Nothing that follows changes it.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Agent { is_done, .. } | Self::Thought { is_done, .. } => *is_done,
            Self::Tool(tool) => tool.outcome.is_some(),
            Self::Asked { answer, .. } => answer.is_some(),
            Self::User { .. } | Self::Note { .. } | Self::Shell { .. } => true,
        }
    }
}

/// What has to be asked for again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stale {
    pub(crate) queue: bool,
    pub(crate) agent: bool,
    pub(crate) branch: bool,
}

/// What the agent is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AgentState {
    #[default]
    Unknown,
    Starting,
    Ready,
    Failed,
}

#[derive(Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) items: Vec<Item>,
    pub(crate) stale: Stale,
    pub(crate) agent: AgentState,
    /// The last record that was read.
    pub(crate) position: u64,
    /// Questions without an answer, the oldest first.
    pub(crate) questions: Vec<Question>,
    /// The run was interrupted, or paused: the reason, for the hint to resume.
    pub(crate) needs_resume: bool,
    pub(crate) is_closed: bool,
    open_runs: BTreeSet<String>,
    /// The latest runs that have ended: what is accepted may be among them already.
    ended_runs: VecDeque<String>,
    /// When the oldest open run began.
    pub(crate) run_since: Option<Timestamp>,
    /// How the agent's next start was announced: whether its first prompt carries the history, and
    /// why it lacks its conversation.
    starting: Option<(bool, Option<Reason>)>,
    /// Messages that this terminal sent and shows already.
    own_messages: BTreeSet<String>,
    /// The latest messages that are shown: what is accepted may be among them already.
    shown_messages: VecDeque<String>,
    /// An agent has said or done something.
    has_past: bool,
    /// The node of a graph that was started last.
    pub(crate) node: Option<String>,
}

/// What a session is called that runs a graph.
pub(crate) fn graph_title(name: &str, goal: Option<&str>) -> String {
    goal.map_or_else(|| format!("graph {name}"), |goal| format!("graph {name}: {goal}"))
}

impl Conversation {
    /// A run is open as of the status that was read before the records.
    pub(crate) fn begin_run(&mut self, run_id: &str, since: Timestamp) {
        self.open_runs.insert(run_id.to_owned());
        self.run_since = Some(since);
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.open_runs.is_empty()
    }

    /// Prompts were accepted before the records that are read: an agent without its conversation is
    /// worth a word.
    pub(crate) fn set_past(&mut self) {
        self.has_past = true;
    }

    pub(crate) fn note(&mut self, tone: Tone, text: impl Into<String>) {
        self.items.push(Item::Note { tone, text: text.into() });
    }

    pub(crate) fn apply(&mut self, record: &Value) {
        let text = |name: &str| record[name].as_str().unwrap_or_default();
        self.position = record["seq"].as_u64().unwrap_or(self.position).max(self.position);
        let kind = text("kind");
        self.follow_run(kind, record);
        self.mark_stale(kind);
        match kind {
            "message.user" => {
                self.end_messages();
                if !self.own_messages.remove(text("message_id")) {
                    self.shown_messages.push_back(text("message_id").to_owned());
                    if self.shown_messages.len() > SHOWN_MESSAGES_MAX {
                        self.shown_messages.pop_front();
                    }
                    self.items.push(Item::User { text: show::prompt_text(&record["content"]) });
                }
            }
            "message.delta" => self.delta(record),
            "message.completed" => self.complete(text("message_id")),
            "tool.intent" | "tool.updated" | "tool.outcome" => self.tool(kind, record),
            "run.waiting" => self.asked(record),
            "permission.decided" => {
                let words = format!("{}: permission rule {}", text("action"), text("rule"));
                self.answer(text("wait_id"), words);
            }
            "run.resumed" if record["wait_id"].is_null() => {
                self.note(Tone::Quiet, "The run continues.");
            }
            "run.resumed" | "wait.cancelled" => {
                let options = self.options_of(text("wait_id"));
                let words = answer_words(&options, record);
                self.answer(text("wait_id"), words);
            }
            "agent.updated" if record["truncated"] == true => {
                let bytes = record["update"]["bytes"].as_u64().unwrap_or_default();
                let words =
                    format!("A part of the answer is missing: {bytes} bytes were too long.");
                self.note(Tone::Attention, words);
            }
            "agent.resuming" => {
                let reason = serde_json::from_value(record["context_reason"].clone()).ok();
                self.starting = Some((record["history"] == true, reason));
                self.agent = AgentState::Starting;
            }
            "agent.starting" | "executor.starting" => self.agent = AgentState::Starting,
            "agent.initialized" => self.initialized(record),
            "agent.ready" => self.agent = AgentState::Ready,
            "agent.waiting" => {
                let reason = serde_json::from_value::<Reason>(record["reason"].clone());
                self.note(Tone::Quiet, reason.map_or("The agent waits.", Reason::sentence));
            }
            "agent.error" | "executor.error" => {
                self.agent = AgentState::Failed;
                self.note(Tone::Bad, text("message"));
            }
            "agent.exited" => self.agent = AgentState::Unknown,
            "graph.bound" => {
                let goal = record["spec"]["goal"].as_str();
                self.note(Tone::Title, graph_title(text("name"), goal));
            }
            "node.started" => {
                self.node = Some(text("path").to_owned());
                let attempt = record["attempt"].as_u64().unwrap_or(1);
                if attempt > 1 {
                    self.note(Tone::Quiet, format!("{}: attempt {attempt}", text("path")));
                }
            }
            "node.completed" => {
                let ms = record["latency_ms"].as_u64().unwrap_or_default();
                let time = format!("{}.{} s", ms / 1_000, ms % 1_000 / 100);
                self.note(Tone::Good, format!("{}  {time}", text("path")));
            }
            "node.failed" => self.note(Tone::Bad, format!("{}: {}", text("path"), text("error"))),
            "node.skipped" => self.note(Tone::Quiet, format!("{} is skipped", text("path"))),
            _ => self.ended(kind, record),
        }
    }

    fn ended(&mut self, kind: &str, record: &Value) {
        match kind {
            "run.interrupted" => {
                let reason = serde_json::from_value::<Reason>(record["reason"].clone()).ok();
                let activity = serde_json::from_value::<Activity>(record["phase"].clone()).ok();
                let why = reason.map(|reason| interruption::sentence(reason, activity));
                let why = why.unwrap_or_else(|| "Why is not known.".to_owned());
                self.note(Tone::Attention, format!("Interrupted. {why}"));
                self.note(
                    Tone::Quiet,
                    "What it had done is in the log. /resume continues the run.",
                );
            }
            "run.reattached" => self.note(Tone::Quiet, "A new server took over. Nothing was lost."),
            "run.failed" => {
                let error = record["error"].as_str().unwrap_or_default();
                self.note(Tone::Bad, format!("Failed: {error}"));
            }
            "run.cancelled" => self.note(Tone::Attention, "Stopped."),
            "run.paused" => self.note(Tone::Attention, "Paused. /resume continues the run."),
            "run.dismissed" => self.note(Tone::Quiet, "The interruption was dismissed."),
            "session.closed" => {
                self.is_closed = true;
                self.note(Tone::Quiet, "The session is closed.");
            }
            _ => {}
        }
    }

    fn follow_run(&mut self, kind: &str, record: &Value) {
        let run = record["run_id"].as_str().unwrap_or_default();
        match kind {
            "run.started" | "run.resumed" | "run.reattached" => {
                if self.open_runs.is_empty() || kind == "run.started" {
                    self.run_since = serde_json::from_value(record["ts"].clone()).ok();
                }
                self.open_runs.insert(run.to_owned());
                self.needs_resume = false;
            }
            "run.completed" | "run.failed" | "run.cancelled" | "run.interrupted" | "run.paused" => {
                self.open_runs.remove(run);
                self.ended_runs.push_back(run.to_owned());
                if self.ended_runs.len() > SHOWN_MESSAGES_MAX {
                    self.ended_runs.pop_front();
                }
                self.needs_resume = matches!(kind, "run.interrupted" | "run.paused");
                self.end_all();
            }
            "run.dismissed" => self.needs_resume = false,
            "session.closed" => {
                self.open_runs.clear();
                self.end_all();
            }
            _ => {}
        }
        if self.open_runs.is_empty() {
            self.run_since = None;
        }
    }

    fn mark_stale(&mut self, kind: &str) {
        match kind {
            "prompt.queued" | "prompt.edited" | "prompt.moved" | "prompt.removed"
            | "queue.released" | "message.user" | "run.resumed" => self.stale.queue = true,
            "agent.updated" | "agent.configured" | "agent.ready" => self.stale.agent = true,
            "run.completed" | "run.failed" | "run.interrupted" | "run.cancelled" => {
                self.stale = Stale { queue: true, agent: true, branch: true };
            }
            _ => {}
        }
    }

    /// A run has ended: nothing of it changes any more.
    fn end_all(&mut self) {
        self.questions.clear();
        for item in
            self.items.iter_mut().rev().take_while(|item| !matches!(item, Item::User { .. }))
        {
            match item {
                Item::Agent { is_done, .. } | Item::Thought { is_done, .. } => *is_done = true,
                Item::Tool(tool) => tool.end(),
                Item::Asked { answer, .. } => {
                    answer.get_or_insert_with(|| "no answer".to_owned());
                }
                _ => {}
            }
        }
    }

    fn end_messages(&mut self) {
        for item in self.items.iter_mut().rev() {
            match item {
                Item::Agent { is_done, .. } | Item::Thought { is_done, .. } if !*is_done => {
                    *is_done = true;
                }
                Item::Agent { .. } | Item::Thought { .. } | Item::User { .. } => return,
                _ => {}
            }
        }
    }

    fn delta(&mut self, record: &Value) {
        self.has_past = true;
        let message = record["message_id"].as_str().unwrap_or_default();
        let piece = record["text"].as_str().unwrap_or("[redacted]");
        let is_thought = record["channel"] == "thought";
        let known = self.items.iter_mut().rev().take(64).find_map(|item| match item {
            Item::Agent { message_id, text, is_done: false }
                if !is_thought && message_id == message =>
            {
                Some(text)
            }
            Item::Thought { message_id, text, is_done: false }
                if is_thought && message_id == message =>
            {
                Some(text)
            }
            _ => None,
        });
        if let Some(text) = known {
            text.push_str(piece);
            return;
        }
        self.end_messages();
        let (message_id, text) = (message.to_owned(), piece.to_owned());
        self.items.push(if is_thought {
            Item::Thought { message_id, text, is_done: false }
        } else {
            Item::Agent { message_id, text, is_done: false }
        });
    }

    fn complete(&mut self, message: &str) {
        for item in self.items.iter_mut().rev().take(64) {
            if let Item::Agent { message_id, is_done, .. }
            | Item::Thought { message_id, is_done, .. } = item
                && message_id == message
            {
                *is_done = true;
            }
        }
    }

    fn tool(&mut self, kind: &str, record: &Value) {
        self.has_past = true;
        for question in &mut self.questions {
            question.hear(record);
        }
        let call = record["call_id"].as_str().unwrap_or_default();
        if kind == "tool.intent" {
            self.end_messages();
            self.items.push(Item::Tool(Box::new(Tool::new(record))));
            return;
        }
        let found = self.items.iter_mut().rev().find_map(|item| match item {
            Item::Tool(tool) if tool.call_id == call => Some(tool),
            _ => None,
        });
        match found {
            Some(tool) if kind == "tool.updated" => tool.update(record),
            Some(tool) => tool.finish(record),
            // It began before what is shown.
            None => {}
        }
    }

    fn asked(&mut self, record: &Value) {
        self.end_messages();
        let Some(question) = human::question(record) else { return };
        let (wait_id, title) = (question.wait_id.clone(), question.request.title.clone());
        let options = question.options.clone();
        self.items.push(Item::Asked { wait_id, title, options, answer: None });
        self.questions.push(question);
    }

    /// A question that is shown has no answer yet.
    pub(crate) fn is_asked(&self, wait: &str) -> bool {
        let mut items = self.items.iter().rev();
        let found = items.find_map(|item| match item {
            Item::Asked { wait_id, answer, .. } if wait_id == wait => Some(answer.is_none()),
            _ => None,
        });
        // One that was asked before what is shown stands in no item.
        found.unwrap_or(true) && self.is_running()
    }

    /// What could be chosen, by id and name; of a question that is not shown, nothing.
    fn options_of(&self, wait: &str) -> Vec<(String, String)> {
        let found = self.items.iter().rev().find_map(|item| match item {
            Item::Asked { wait_id, options, .. } if wait_id == wait => Some(options.clone()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    fn answer(&mut self, wait: &str, words: String) {
        self.questions.retain(|question| question.wait_id != wait);
        let found = self.items.iter_mut().rev().find_map(|item| match item {
            Item::Asked { wait_id, answer, .. } if wait_id == wait => Some(answer),
            _ => None,
        });
        // A rule answers first, and the run resumes with its answer.
        if let Some(answer) = found {
            answer.get_or_insert(words);
        }
    }

    /// An agent without its own conversation is not what one expects.
    fn initialized(&mut self, record: &Value) {
        let is_without = record["opened_as"] == "new" || record["context_restored"] == false;
        let Some((history, reason)) = self.starting.take() else { return };
        if !is_without || !self.has_past {
            return;
        }
        let context = if history { Context::Injected } else { Context::Lost };
        let is_refused = !record["requested_session_id"].is_null();
        let refused = Some(Reason::SessionRefused).filter(|_| is_refused);
        let sentence =
            resume::context_sentence(Some(context), refused.or(reason)).unwrap_or_default();
        if history {
            self.note(Tone::Quiet, sentence);
            return;
        }
        self.note(Tone::Attention, sentence);
        self.note(Tone::Quiet, context_choices::choices("/new"));
    }

    /// A prompt of this terminal that was accepted: it is shown at once, and once.
    pub(crate) fn accepted(&mut self, message_id: String, text: String) {
        if self.shown_messages.contains(&message_id) {
            return;
        }
        self.own_messages.insert(message_id);
        self.items.push(Item::User { text });
    }

    /// The run of an accepted prompt is open, though its records are still on their way.
    pub(crate) fn run_accepted(&mut self, run_id: String, now: Timestamp) {
        if self.ended_runs.contains(&run_id) {
            return;
        }
        if self.open_runs.is_empty() {
            self.run_since = Some(now);
        }
        self.open_runs.insert(run_id);
        self.needs_resume = false;
    }
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
