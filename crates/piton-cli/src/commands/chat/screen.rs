//! What a record looks like in a terminal.

use std::borrow::Borrow;

use piton_api::record::FlatRecord;
use piton_core::event::{Event, MessageDelta, PermissionDecided, ToolStatus};
use piton_core::id::WaitId;
use piton_core::interruption::Activity;
use piton_core::permission::{PermissionRequest, asked_call, update_of_intent};
use piton_core::reason::Reason;
use piton_core::resume::{self, Context};
use piton_core::spool::{Channel, OpenedAs};
use serde_json::Value;

use super::markdown::Markdown;
use crate::call::Call;
use crate::context_choices;
use crate::error::Result;
use crate::show;
use crate::ui::{Tone, Ui};

const SHOWN_CHARS_MAX: usize = 100;

/// Behind these, an interruption was not followed by a resume.
fn ends_card(event: &Event) -> bool {
    matches!(
        event,
        Event::MessageUser(_)
            | Event::MessageDelta(_)
            | Event::RunStarted(_)
            | Event::RunInterrupted(_)
            | Event::RunCancelled(_)
            | Event::RunDismissed(_)
            | Event::SessionClosed(_)
    )
}

/// Of one question, as many updates are taken over.
const UPDATES_MAX: usize = 64;

/// A question that waits for an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) wait_id: String,
    pub(crate) request: PermissionRequest,
    /// Ids and names.
    pub(crate) options: Vec<(String, String)>,
    pub(crate) asked: Asked,
}

/// What a question was made of: itself, and what the agent said of its tool call after it had asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Asked {
    question: Value,
    updates: Vec<Value>,
}

impl Question {
    /// Takes over what a record says of the tool call that is asked about. Whether more, or something
    /// else, is asked for now: then it must be shown again before a key answers it.
    pub(crate) fn hear(&mut self, record: &Value) -> bool {
        let said = match record["kind"].as_str() {
            Some("tool.updated") => record["update"].clone(),
            Some("tool.intent") => {
                let name = record["name"].as_str().unwrap_or_default();
                update_of_intent(name, Some(&record["arguments"]))
            }
            _ => return false,
        };
        let Asked { question, updates } = &mut self.asked;
        let is_ours = asked_call(question).is_some_and(|call| record["call_id"] == call);
        if !is_ours || !said.is_object() || updates.len() >= UPDATES_MAX {
            return false;
        }
        updates.push(said);
        let request = PermissionRequest::new(question, &*updates);
        let is_other = request != self.request;
        self.request = request;
        is_other
    }

    /// The option that a key chooses.
    pub(super) fn option(&self, key: u8) -> Option<&str> {
        let at = usize::from(key.checked_sub(b'1')?);
        self.options.get(at).map(|(id, _)| id.as_str())
    }

    /// The option that rejects this once.
    pub(crate) fn rejection(&self) -> Option<&str> {
        let mut options = self.request.options.iter();
        let found = options.find(|option| option.kind.as_deref() == Some("reject_once"));
        found.map(|option| option.option_id.as_str())
    }

    /// How it is answered.
    pub(super) fn keys(&self, call: &Call) -> String {
        let keys = match self.options.len() {
            0 => {
                return format!("this wants a text: {call} sessions answer {} TEXT", self.wait_id);
            }
            1 => "1".to_owned(),
            count => format!("1 to {count}"),
        };
        let why = self.rejection().map_or("", |_| " m to reject and say why,");
        format!("press {keys} to answer,{why} or Ctrl-C to stop the turn")
    }
}

/// Shows records one after the other.
#[derive(Debug, Default)]
pub(super) struct Screen {
    /// The message whose text stands at the end of the screen.
    speaking: Option<String>,
    markdown: Markdown,
    /// What stands at the end of the screen without a line end.
    open: Option<Open>,
    /// An interruption of the past, which may have been followed by a resume.
    interrupted: Option<String>,
    /// What is asked and not answered.
    asked: Vec<Question>,
    /// An agent has said or done something.
    has_past: bool,
    /// An agent is being started: what its start announced.
    starting: Option<Start>,
    /// What is shown happens now.
    is_live: bool,
}

/// How an agent was announced to start.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// Its first prompt carries the history if it needs that.
    history: bool,
    reason: Option<Reason>,
}

/// A line that something may follow on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// The prompt: the user may type.
    Prompt,
    /// A line was typed behind the prompt. The terminal has ended it, unless it was typed in the moment
    /// in which the prompt was drawn: then the prompt still stands there.
    Entered,
    /// That the server is away.
    Away,
}

impl Screen {
    /// Ends the line that text stands on.
    pub(super) fn end_line(&mut self, ui: &mut Ui) -> Result<()> {
        match self.open.take() {
            // What is typed there stays typed; the terminal keeps it.
            Some(Open::Prompt | Open::Entered) => ui.raw(b"\r\x1b[K")?,
            Some(Open::Away) => ui.raw(b"\n")?,
            None => {}
        }
        if self.speaking.take().is_some() {
            let rest = self.markdown.finish();
            ui.text(&rest)?;
            ui.raw(b"\n")?;
        }
        Ok(())
    }

    pub(super) fn line(&mut self, ui: &mut Ui, tone: Tone, text: &str) -> Result<()> {
        self.end_line(ui)?;
        let text = ui.paint(tone, text);
        ui.line(text)
    }

    /// Draws the prompt, followed by the draft that was typed before a question came.
    pub(super) fn prompt(&mut self, ui: &mut Ui, draft: &str) -> Result<()> {
        if !self.has_prompt() {
            self.end_line(ui)?;
            ui.raw(b"> ")?;
            ui.text(draft)?;
            self.open = Some(Open::Prompt);
        }
        Ok(())
    }

    /// The prompt stands at the end of the screen.
    pub(super) fn has_prompt(&self) -> bool {
        self.open == Some(Open::Prompt)
    }

    /// A line was typed; true if it was typed where the prompt stood, and is on the screen.
    pub(super) fn entered(&mut self) -> bool {
        let at_prompt = self.has_prompt();
        if at_prompt {
            self.open = Some(Open::Entered);
        }
        at_prompt
    }

    /// The server is away; the line ends when there is another one.
    pub(super) fn away(&mut self, ui: &mut Ui) -> Result<()> {
        self.end_line(ui)?;
        let text = "-- the server is away; the agent keeps running. Waiting for a server";
        ui.text(&ui.paint(Tone::Quiet, text))?;
        self.open = Some(Open::Away);
        Ok(())
    }

    /// Everything from here on happens now.
    pub(super) fn go_live(&mut self, ui: &mut Ui) -> Result<()> {
        self.is_live = true;
        self.tell_interruption(ui)
    }

    fn tell_interruption(&mut self, ui: &mut Ui) -> Result<()> {
        let Some(reason) = self.interrupted.take() else { return Ok(()) };
        self.line(ui, Tone::Attention, &format!("-- interrupted {reason}"))?;
        let text = "   What it had done is in the log; say `/resume` to continue it.";
        self.line(ui, Tone::Quiet, text)
    }

    /// Looked back at, an interruption and its resume are one line.
    fn resumed(&mut self, ui: &mut Ui) -> Result<()> {
        if let Some(reason) = self.interrupted.take() {
            return self.line(ui, Tone::Quiet, &format!("-- interrupted {reason}, and continued"));
        }
        self.line(ui, Tone::Quiet, "-- continued")
    }

    /// An agent without its own conversation is not what one expects.
    fn tell_context(&mut self, ui: &mut Ui, start: Start, is_refused: bool) -> Result<()> {
        if !self.has_past {
            return Ok(());
        }
        let context = if start.history { Context::Injected } else { Context::Lost };
        // Piton asked it to resume its conversation, and it began another.
        let refused = Some(Reason::SessionRefused).filter(|_| is_refused);
        let sentence = resume::context_sentence(Some(context), refused.or(start.reason));
        let sentence = sentence.unwrap_or_default();
        if start.history {
            return self.line(ui, Tone::Quiet, &format!("-- {sentence}"));
        }
        self.line(ui, Tone::Attention, &format!("-- {sentence}"))?;
        let text = format!("   {}", context_choices::choices("/quit, then `piton chat`"));
        self.line(ui, Tone::Quiet, &text)
    }

    /// Another server took over: one quiet line, whether or not it was seen to be away.
    fn reattached(&mut self, ui: &mut Ui) -> Result<()> {
        if self.open == Some(Open::Away) {
            self.open = None;
            let text = ui.paint(Tone::Quiet, "; a new one took over");
            return ui.line(text);
        }
        self.line(ui, Tone::Quiet, "-- a new server took over; nothing was lost")
    }

    pub(super) fn show(&mut self, ui: &mut Ui, record: &FlatRecord) -> Result<()> {
        // One that is damaged is shown by nothing, as one of a kind that only a newer program knows.
        let Ok(event) = record.event() else { return Ok(()) };
        if ends_card(&event) {
            self.tell_interruption(ui)?;
        }
        self.has_past |= matches!(event, Event::MessageDelta(_) | Event::ToolIntent(_));
        let text = |name: &str| record[name].as_str().unwrap_or_default();
        match event {
            Event::AgentResuming(e) => {
                self.starting = Some(Start { history: e.history, reason: e.context_reason });
            }
            // Some begin a conversation with each turn; that is no news.
            Event::AgentInitialized(e) => {
                let is_without = e.opened_as == OpenedAs::New || e.context_restored == Some(false);
                if let Some(start) = self.starting.take().filter(|_| is_without) {
                    self.tell_context(ui, start, e.requested_session_id.is_some())?;
                }
            }
            Event::AgentWaiting(e) if self.is_live => {
                self.line(ui, Tone::Quiet, &format!("-- {}", e.reason.sentence()))?;
            }
            Event::MessageUser(_) => {
                let said = show::prompt_text(&record["content"]);
                self.line(ui, Tone::Title, &format!("> {said}"))?;
            }
            Event::PromptQueued(_) => {
                let said = show::prompt_text(&record["content"]);
                self.line(ui, Tone::Quiet, &format!("-- queued: {said}"))?;
            }
            Event::MessageDelta(e) => self.speak(ui, &e, record["text"].as_str())?,
            Event::MessageCompleted(_) => self.end_line(ui)?,
            Event::ToolIntent(e) => {
                let arguments = shortened(&record["arguments"]);
                self.line(ui, Tone::Active, &format!("* {} {arguments}", e.name))?;
            }
            Event::ToolOutcome(e) => {
                let (tone, status) = match e.status {
                    ToolStatus::Succeeded => (Tone::Good, "done"),
                    ToolStatus::Failed => (Tone::Bad, "failed"),
                    ToolStatus::Cancelled | ToolStatus::Unknown => {
                        (Tone::Attention, text("status"))
                    }
                };
                self.line(ui, tone, &format!("  {status}"))?;
            }
            Event::AgentUpdated(e) if e.truncated => {
                let bytes = record["update"]["bytes"].as_u64().unwrap_or_default();
                let text =
                    format!("-- a part of the answer is missing: {bytes} bytes were too long");
                self.line(ui, Tone::Attention, &text)?;
            }
            Event::RunInterrupted(e) => {
                let during = e.phase.map_or("", Activity::during);
                self.interrupted = Some(format!("{during}({})", text("reason")));
                if self.is_live {
                    self.tell_interruption(ui)?;
                }
            }
            Event::RunWaiting(_) => self.asked.extend(question(record)),
            Event::PermissionDecided(e) => self.decided(ui, &e)?,
            Event::RunResumed(e) => match e.wait_id {
                None => self.resumed(ui)?,
                Some(wait) => self.answered(ui, &wait, record)?,
            },
            Event::WaitCancelled(e) => self.answered(ui, &e.wait_id, record)?,
            Event::RunReattached(_) => self.reattached(ui)?,
            Event::RunFailed(_) => {
                self.line(ui, Tone::Bad, &format!("-- failed: {}", text("error")))?;
            }
            Event::RunCancelled(_) => self.line(ui, Tone::Attention, "-- cancelled")?,
            Event::RunPaused(_) => self.line(ui, Tone::Attention, "-- paused")?,
            Event::AgentError(_) | Event::ExecutorError(_) => {
                self.line(ui, Tone::Bad, &format!("-- {}", text("message")))?;
            }
            Event::SessionClosed(_) => self.line(ui, Tone::Quiet, "-- the session is closed")?,
            _ => {}
        }
        Ok(())
    }

    /// A rule of the settings answers; the question is shown by what it wanted.
    fn decided(&mut self, ui: &mut Ui, decided: &PermissionDecided) -> Result<()> {
        let is_it = |question: &&Question| question.wait_id == decided.wait_id.as_str();
        let asked = self.asked.iter().rfind(is_it).map(|question| question.request.title.clone());
        let title = one_line(&asked.unwrap_or_default());
        self.line(ui, Tone::Plain, &format!("? {title}"))?;
        let (action, rule) = (decided.action.as_str(), one_line(&decided.rule));
        self.line(ui, Tone::Quiet, &format!("  {action}: permission rule {rule}"))
    }

    /// What became of a question, also when it was answered elsewhere.
    fn answered(&mut self, ui: &mut Ui, wait: &WaitId, record: &FlatRecord) -> Result<()> {
        let is_it = |question: &Question| question.wait_id == wait.as_str();
        let question = self.asked.iter().rfind(|question| is_it(question)).cloned();
        self.asked.retain(|question| !is_it(question));
        let options = question.map(|question| question.options).unwrap_or_default();
        let words = answer_words(&options, record);
        self.line(ui, Tone::Quiet, &format!("  -> {words}"))
    }

    fn speak(&mut self, ui: &mut Ui, delta: &MessageDelta, text: Option<&str>) -> Result<()> {
        let message = delta.message_id.as_str();
        // Whether that is what the agent thinks, not says.
        let is_thought = delta.channel == Channel::Thought;
        if self.speaking.as_deref() != Some(message) {
            self.end_line(ui)?;
            self.speaking = Some(message.to_owned());
        }
        let text = text.unwrap_or("[taken out]");
        let text = match (is_thought, ui.paints()) {
            (true, _) => ui.paint(Tone::Quiet, text),
            (false, true) => self.markdown.push(text),
            // A pipe gets the text without markup.
            (false, false) => text.to_owned(),
        };
        ui.text(&text)
    }
}

/// The question that a record asks.
pub(crate) fn question(record: &impl Borrow<Value>) -> Option<Question> {
    let record = record.borrow();
    if record["kind"] != "run.waiting" {
        return None;
    }
    let request = PermissionRequest::new(&record["question"], []);
    let options = request.options.iter();
    let options = options.map(|option| (option.option_id.clone(), option.name.clone())).collect();
    let asked = Asked { question: record["question"].clone(), updates: Vec::new() };
    Some(Question { wait_id: record["wait_id"].as_str()?.to_owned(), request, options, asked })
}

/// How a wait ended, by the record that ended it: the option's name, if one was chosen.
pub(crate) fn answer_words(options: &[(String, String)], record: &Value) -> String {
    if record["kind"] == "wait.cancelled" {
        return format!("no answer ({})", shortened(&record["reason"]));
    }
    let answer = &record["answer"];
    if answer["outcome"] == "cancelled" {
        return "refused to answer".to_owned();
    }
    match answer["option_id"].as_str() {
        Some(chosen) => {
            let name = options.iter().find(|(id, _)| id == chosen).map(|(_, name)| name.as_str());
            one_line(name.unwrap_or(chosen))
        }
        None if answer.is_null() => "[taken out]".to_owned(),
        None => shortened(answer),
    }
}

fn shortened(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => one_line(text),
        value => one_line(&value.to_string()),
    }
}

fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= SHOWN_CHARS_MAX {
        return line;
    }
    line.chars().take(SHOWN_CHARS_MAX - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_question_is_answered_by_a_number() {
        let record = json!({
            "kind": "run.waiting", "wait_id": "wait_1",
            "question": {"title": "May I?", "options": [{"optionId": "y", "name": "Yes"}, {"optionId": "n"}]},
        });
        let question = question(&record).unwrap();
        assert_eq!((question.option(b'1'), question.option(b'2')), (Some("y"), Some("n")));
        assert_eq!((question.option(b'3'), question.option(b'0')), (None, None));
    }

    #[test]
    fn what_is_said_of_the_call_later_is_a_part_of_the_question() {
        let options = json!([{"optionId": "y", "kind": "allow_once"}]);
        let asked = json!({"kind": "run.waiting", "wait_id": "wait_1", "question": {
            "call_id": "c1", "options": options, "call": {"name": "edit", "kind": "edit"},
            "toolCall": {"title": "/w/a", "locations": [{"path": "/w/a"}]}}});
        let mut question = question(&asked).unwrap();
        let update = |call: &str, said: Value| json!({"kind": "tool.updated", "call_id": call, "update": said});
        let diff = json!({"content": [{"type": "diff", "path": "/w/a", "newText": "x"}]});
        assert!(!question.hear(&update("c2", diff.clone())), "of another call");
        assert!(!question.hear(&update("c1", json!({"status": "in_progress"}))), "nothing new");
        assert_eq!(question.request.diffs.len(), 0);
        assert!(question.hear(&update("c1", diff.clone())));
        assert_eq!(question.request.diffs.len(), 1);
        assert!(!question.hear(&update("c1", diff)), "the same again");
        // Of a call that begins when its permission is asked for already.
        let mut begins = self::question(&json!({"kind": "run.waiting", "wait_id": "wait_2",
            "question": {"toolCall": {"toolCallId": "c3", "title": "/w/a"}, "options": options}}))
        .unwrap();
        let intent = json!({"kind": "tool.intent", "call_id": "c3", "name": "Shell",
            "arguments": {"command": "rm a"}});
        assert!(begins.hear(&intent));
        assert_eq!(begins.request.command.as_deref(), Some("rm a"));
    }

    #[test]
    fn a_wrong_key_shows_the_right_ones() {
        let asked = |count: usize| Question {
            wait_id: "wait_1".to_owned(),
            request: PermissionRequest::default(),
            options: vec![("y".to_owned(), "Yes".to_owned()); count],
            asked: Asked::default(),
        };
        let call = Call::default();
        let keys = |count: usize| asked(count).keys(&call);
        assert_eq!(keys(0), "this wants a text: piton sessions answer wait_1 TEXT");
        assert_eq!(keys(1), "press 1 to answer, or Ctrl-C to stop the turn");
        assert_eq!(keys(3), "press 1 to 3 to answer, or Ctrl-C to stop the turn");
    }

    #[test]
    fn an_answer_is_shown_by_its_name() {
        let question = Question {
            wait_id: "wait_1".to_owned(),
            request: PermissionRequest::default(),
            options: vec![("y".to_owned(), "Yes,\x1b[2J do".to_owned())],
            asked: Asked::default(),
        };
        let words = |answer: Value| {
            answer_words(&question.options, &json!({"kind": "run.resumed", "answer": answer}))
        };
        assert_eq!(words(json!({"option_id": "y"})), "Yes, [2J do");
        assert_eq!(words(json!({"option_id": "other"})), "other");
        assert_eq!(words(json!({"outcome": "cancelled"})), "refused to answer");
        assert_eq!(words(json!("in the second file")), "in the second file");
        assert_eq!(words(json!({"count": 3})), r#"{"count":3}"#);
        assert_eq!(words(Value::Null), "[taken out]");
        let late = json!({"kind": "wait.cancelled", "reason": "wait_timeout"});
        assert_eq!(answer_words(&[], &late), "no answer (wait_timeout)");
    }
}
