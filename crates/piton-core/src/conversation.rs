//! The conversation that a log holds, as a reader sees it: text put together, every tool call paired with
//! an outcome, and what happened to the conversation between them. A call whose outcome is not in the
//! log is *unknown*: it may have happened, wholly or in part; it is never dropped and never run again.
//!
//! `web/client` has the same fold; committed vectors keep the two the same.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::code::AnyCode;
use crate::content::PromptContent;
use crate::event::{self, Event, Seq};
use crate::graph::Segment;
use crate::id::{CallId, CheckpointId, MessageId, RunId};
use crate::reason::Reason;
use crate::record::{Content, Record};
use crate::spool::Channel;
use crate::time::Timestamp;
use crate::tool_text::{is_nothing, merged};
use crate::transcript::{Outcome, Text};
use crate::turns::is_live;

#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    User(User),
    Agent(Agent),
    Tool(Box<Tool>),
    Notice(Notice),
}

/// A prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    pub seq: Seq,
    pub ts: Timestamp,
    pub message_id: MessageId,
    pub run_id: Option<RunId>,
    /// Attachments are named in it.
    pub text: Text,
    pub content: Option<PromptContent>,
    pub abandoned: bool,
}

/// A message of the agent.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of its own on the wire")]
pub struct Agent {
    pub seq: Seq,
    pub ts: Timestamp,
    pub message_id: MessageId,
    pub run_id: Option<RunId>,
    pub channel: Channel,
    pub text: Text,
    pub complete: bool,
    /// A part of it was left out, because it was over a limit.
    pub truncated: bool,
    /// The log, or the part of it that was read, has it from its beginning.
    pub is_whole: bool,
    pub abandoned: bool,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub seq: Seq,
    pub ts: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub call_id: CallId,
    pub run_id: RunId,
    /// `None` if only the outcome is there.
    pub name: Option<String>,
    pub title: Option<String>,
    /// As the agent spells it: `read`, `edit`, `execute`, …
    pub kind: Option<String>,
    pub arguments: Option<Value>,
    /// What it shows, as the Agent Client Protocol has it: text, diffs, terminals.
    pub content: Option<Value>,
    pub locations: Option<Value>,
    pub outcome: Outcome,
    pub abandoned: bool,
}

/// Something that happened to the conversation: the kind of its record says what.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub seq: Seq,
    pub ts: Timestamp,
    pub kind: &'static str,
    pub run_id: Option<RunId>,
    pub reason: Option<Reason>,
    pub code: Option<AnyCode>,
    /// Of an error: what it says.
    pub text: Option<String>,
    /// Of a rewind: where it went back to.
    pub checkpoint_id: Option<CheckpointId>,
    /// Of a rewind of the conversation: its last record that is still a part of it.
    pub from_seq: Option<Seq>,
    /// Of a rewind of the files: how many were restored.
    pub files: Option<u64>,
    pub abandoned: bool,
}

impl Item {
    /// Where it begins.
    pub fn seq(&self) -> Seq {
        match self {
            Self::User(user) => user.seq,
            Self::Agent(agent) => agent.seq,
            Self::Tool(tool) => tool.seq,
            Self::Notice(notice) => notice.seq,
        }
    }

    /// The records that it was built from have its beginning.
    pub fn has_beginning(&self) -> bool {
        match self {
            Self::Agent(agent) => agent.is_whole,
            Self::Tool(tool) => tool.name.is_some(),
            Self::User(_) | Self::Notice(_) => true,
        }
    }

    /// A rewind left it behind: it is not a part of the conversation as it is now.
    pub fn is_abandoned(&self) -> bool {
        match self {
            Self::User(user) => user.abandoned,
            Self::Agent(agent) => agent.abandoned,
            Self::Tool(tool) => tool.abandoned,
            Self::Notice(notice) => notice.abandoned,
        }
    }

    fn set_abandoned(&mut self, abandoned: bool) {
        match self {
            Self::User(user) => user.abandoned = abandoned,
            Self::Agent(agent) => agent.abandoned = abandoned,
            Self::Tool(tool) => tool.abandoned = abandoned,
            Self::Notice(notice) => notice.abandoned = abandoned,
        }
    }

    /// Later records may still change it.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Agent(agent) => !agent.complete,
            Self::Tool(tool) => !tool.outcome.is_settled(),
            Self::User(_) | Self::Notice(_) => false,
        }
    }
}

/// Builds the conversation. `live` is the run that an agent works on at this moment, if any: its calls
/// without outcome are pending, all others unknown.
pub fn build<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    live: Option<&RunId>,
) -> Result<Vec<Item>, event::ParseError> {
    let mut builder = Builder { live, ..Builder::default() };
    for record in records {
        builder.apply(record)?;
    }
    Ok(builder.items)
}

/// Marks what rewinds left behind: what is in none of the `segments` that the conversation consists of
/// now. `None`: nothing was left behind.
pub fn mark_abandoned(items: &mut [Item], segments: Option<&[Segment]>) {
    for item in items {
        let seq = item.seq();
        // The record before a rewind of the conversation says that the same rewind restored files.
        let is_restored = matches!(item, Item::Notice(notice) if notice.files.is_some());
        let is_current = is_live(segments, seq) || (is_restored && is_live(segments, seq + 1));
        item.set_abandoned(!is_current);
    }
}

#[derive(Default)]
struct Builder<'a> {
    live: Option<&'a RunId>,
    items: Vec<Item>,
    messages: BTreeMap<MessageId, usize>,
    /// Agents may use a call id again in a later run: it is another call.
    calls: BTreeMap<(RunId, CallId), usize>,
    /// The message that a run's agent said last.
    last_of_run: Option<(RunId, usize)>,
}

impl Builder<'_> {
    fn apply(&mut self, record: &Record) -> Result<(), event::ParseError> {
        let (seq, ts) = (record.seq, record.ts);
        match record.event()? {
            Event::MessageUser(e) => {
                let content = PromptContent::of(record, "content");
                let text = match &content {
                    Some(content) => Text::Whole(content.text()),
                    None => text_of(record, "content"),
                };
                let (message_id, run_id) = (e.message_id, e.run_id);
                let abandoned = false;
                let user = User { seq, ts, message_id, run_id, text, content, abandoned };
                self.items.push(Item::User(user));
            }
            Event::MessageDelta(e) => self.delta(record, e),
            Event::MessageCompleted(e) => {
                if let Some(Item::Agent(agent)) =
                    self.messages.get(&e.message_id).and_then(|index| self.items.get_mut(*index))
                {
                    agent.complete = true;
                }
            }
            Event::AgentUpdated(e) if e.truncated => {
                if let Some(run_id) = e.run_id {
                    self.mark_truncated(run_id, seq, ts);
                }
            }
            Event::ToolIntent(e) => self.intent(record, e),
            Event::ToolUpdated(e) => {
                if let (Some(run_id), Some(update)) = (e.run_id, record.content_field("update")) {
                    self.update(&run_id, &e.call_id, &update);
                }
            }
            // Some agents say only here with what they make a call.
            Event::RunWaiting(e) => {
                if let Some(question) = record.content_field("question")
                    && let Some(said) = question.get("toolCall")
                    && let Ok(call_id) = question["call_id"].as_str().unwrap_or_default().parse()
                {
                    self.update(&e.run_id, &call_id, said);
                }
            }
            Event::ToolOutcome(e) => self.outcome(record, e),
            event => {
                if let Some(notice) = notice(record, event) {
                    self.items.push(Item::Notice(notice));
                }
            }
        }
        Ok(())
    }

    fn delta(&mut self, record: &Record, e: event::MessageDelta) {
        let (seq, ts) = (record.seq, record.ts);
        let piece = text_of(record, "text");
        let index = *self.messages.entry(e.message_id.clone()).or_insert_with(|| {
            self.items.push(Item::Agent(Agent {
                seq,
                ts,
                message_id: e.message_id,
                run_id: e.run_id.clone(),
                channel: e.channel,
                text: Text::Whole(String::new()),
                complete: false,
                truncated: false,
                is_whole: e.offset == 0,
                abandoned: false,
            }));
            self.items.len() - 1
        });
        if let Some(run_id) = e.run_id {
            self.last_of_run = Some((run_id, index));
        }
        if let Some(Item::Agent(agent)) = self.items.get_mut(index) {
            // Sent again from its beginning, as after an interruption, it begins again.
            if e.offset == 0 {
                agent.text = Text::Whole(String::new());
                agent.complete = false;
                agent.is_whole = true;
            }
            agent.text.push(piece);
        }
    }

    /// Marks the message that a run's agent said last, or one of which nothing is there.
    fn mark_truncated(&mut self, run_id: RunId, seq: Seq, ts: Timestamp) {
        let said = self.last_of_run.as_ref().filter(|(of, _)| *of == run_id);
        let said = said.map(|(_, index)| *index);
        if let Some(index) = said
            && let Some(Item::Agent(agent)) = self.items.get_mut(index)
        {
            agent.truncated = true;
            return;
        }
        if let Ok(message_id) = format!("truncated_{seq}").parse() {
            self.items.push(Item::Agent(Agent {
                seq,
                ts,
                message_id,
                run_id: Some(run_id.clone()),
                channel: Channel::Answer,
                text: Text::Whole(String::new()),
                complete: true,
                truncated: true,
                is_whole: true,
                abandoned: false,
            }));
        }
        self.last_of_run = Some((run_id, self.items.len().saturating_sub(1)));
    }

    fn tool(&mut self, run_id: &RunId, call_id: &CallId) -> Option<&mut Tool> {
        let index = *self.calls.get(&(run_id.clone(), call_id.clone()))?;
        match self.items.get_mut(index) {
            Some(Item::Tool(tool)) => Some(tool),
            _ => None,
        }
    }

    fn push_tool(&mut self, tool: Tool) {
        self.calls.insert((tool.run_id.clone(), tool.call_id.clone()), self.items.len());
        self.items.push(Item::Tool(Box::new(tool)));
    }

    fn intent(&mut self, record: &Record, e: event::ToolIntent) {
        let arguments = record.content_field("arguments");
        let open = if self.live == Some(&e.run_id) { Outcome::Pending } else { Outcome::Unknown };
        if let Some(tool) = self.tool(&e.run_id, &e.call_id) {
            // Made again, it may have happened again; only an outcome that came before its intent is
            // this intent's.
            if tool.name.replace(e.name).is_some() {
                (tool.outcome, tool.ended_at) = (open, None);
            }
            tool.arguments = arguments;
            return;
        }
        let (name, outcome) = (Some(e.name), open);
        let tool = Tool { name, arguments, ..Tool::new(record, e.run_id, e.call_id, outcome) };
        self.push_tool(tool);
    }

    /// What an agent says of a call after it made it.
    fn update(&mut self, run_id: &RunId, call_id: &CallId, update: &Value) {
        let Some(tool) = self.tool(run_id, call_id) else { return };
        if let Some(said) = update.get("rawInput").filter(|said| !is_nothing(said)) {
            tool.arguments = Some(merged(tool.arguments.take().unwrap_or_default(), said.clone()));
        }
        tool.describe(update);
    }

    fn outcome(&mut self, record: &Record, e: event::ToolOutcome) {
        let result = record.content_field("result");
        let details = result.clone().unwrap_or_default();
        let known = Outcome::Known { status: e.status, result };
        if let Some(tool) = self.tool(&e.run_id, &e.call_id) {
            if !tool.outcome.is_settled() {
                (tool.outcome, tool.ended_at) = (known, Some(record.ts));
                tool.describe(&details);
            }
            return;
        }
        // An outcome whose intent was never written still happened.
        let mut tool = Tool::new(record, e.run_id, e.call_id, known);
        tool.ended_at = Some(record.ts);
        tool.describe(&details);
        self.push_tool(tool);
    }
}

impl Tool {
    fn new(record: &Record, run_id: RunId, call_id: CallId, outcome: Outcome) -> Self {
        Self {
            seq: record.seq,
            ts: record.ts,
            ended_at: None,
            call_id,
            run_id,
            name: None,
            title: None,
            kind: None,
            arguments: None,
            content: None,
            locations: None,
            outcome,
            abandoned: false,
        }
    }

    /// The last that is said of each counts; nothing said changes nothing.
    fn describe(&mut self, said: &Value) {
        let text = |key: &str| {
            let text = said.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        let list = |key: &str| {
            said.get(key)
                .filter(|list| list.as_array().is_some_and(|list| !list.is_empty()))
                .cloned()
        };
        self.title = text("title").or(self.title.take());
        self.kind = text("kind").or(self.kind.take());
        self.content = list("content").or(self.content.take());
        self.locations = list("locations").or(self.locations.take());
    }
}

/// What a reader should know beside what is said and done.
fn notice(record: &Record, event: Event) -> Option<Notice> {
    let mut notice = Notice {
        seq: record.seq,
        ts: record.ts,
        kind: "",
        run_id: None,
        reason: None,
        code: None,
        text: None,
        checkpoint_id: None,
        from_seq: None,
        files: None,
        abandoned: false,
    };
    let text = |field: &str| match record.content_field(field) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    notice.kind = match event {
        Event::RunInterrupted(e) => {
            (notice.run_id, notice.reason) = (Some(e.run_id), Some(e.reason));
            "run.interrupted"
        }
        // The answer to a wait is not a continuation.
        Event::RunResumed(e) if e.wait_id.is_none() => {
            notice.run_id = Some(e.run_id);
            "run.resumed"
        }
        Event::RunReattached(e) => {
            notice.run_id = Some(e.run_id);
            "run.reattached"
        }
        Event::RunPaused(e) => {
            notice.run_id = Some(e.run_id);
            "run.paused"
        }
        Event::RunFailed(e) => {
            (notice.run_id, notice.code) = (Some(e.run_id), e.code);
            notice.text = text("error");
            "run.failed"
        }
        Event::RunCancelled(e) => {
            (notice.run_id, notice.reason) = (Some(e.run_id), e.reason);
            "run.cancelled"
        }
        Event::RunDismissed(e) => {
            notice.run_id = Some(e.run_id);
            "run.dismissed"
        }
        Event::WaitCancelled(e) => {
            (notice.run_id, notice.reason) = (Some(e.run_id), Some(e.reason));
            "wait.cancelled"
        }
        Event::PermissionDecided(e) => {
            notice.run_id = Some(e.run_id);
            "permission.decided"
        }
        Event::AgentError(e) => {
            (notice.code, notice.text) = (e.code, text("message"));
            "agent.error"
        }
        Event::AgentSessionCleared(e) => {
            notice.reason = e.reason;
            "agent.session_cleared"
        }
        Event::AgentHistoryDiverged(_) => "agent.history_diverged",
        Event::ExecutorError(e) => {
            (notice.reason, notice.code, notice.text) = (e.reason, e.code, text("message"));
            "executor.error"
        }
        Event::ExecutorAbandoned(_) => "executor.abandoned",
        // An ordinary prompt is prepared, too: only what it carries beside the user's words counts.
        Event::PromptPrepared(e) if e.history || e.interruption_summary => {
            notice.run_id = Some(e.run_id);
            "prompt.prepared"
        }
        Event::WorkspaceRestored(e) => {
            (notice.checkpoint_id, notice.files) = (e.checkpoint_id, Some(e.paths_count));
            "workspace.restored"
        }
        Event::LineageStarted(e) => {
            notice.checkpoint_id = Some(e.from_checkpoint_id);
            notice.from_seq = Some(e.from_seq);
            "lineage.started"
        }
        Event::SessionClosed(e) => {
            notice.reason = e.reason;
            "session.closed"
        }
        _ => return None,
    };
    Some(notice)
}

fn text_of(record: &Record, field: &str) -> Text {
    match (&record.content, record.content_field(field)) {
        (Content::Redacted, _) => Text::Redacted,
        (_, Some(Value::String(text))) => Text::Whole(text),
        (_, Some(other)) => Text::Whole(other.to_string()),
        (_, None) => Text::Whole(String::new()),
    }
}
