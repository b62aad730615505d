//! The conversation that a log holds, as a reader or an agent needs it: text put together, every
//! tool call paired with an outcome. A call whose outcome is not in the log is *unknown*: it may
//! have happened, wholly or in part; it is never dropped and never run again.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::content::PromptContent;
use crate::event::{self, Event, Seq, ToolStatus};
use crate::id::{CallId, MessageId, RunId};
use crate::record::{Content, Record};
use crate::tool_text::{is_nothing, merged};

#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    User {
        seq: Seq,
        message_id: MessageId,
        text: Text,
    },
    Agent {
        seq: Seq,
        message_id: MessageId,
        text: Text,
        complete: bool,
        /// A part of it was left out, because it was over a limit.
        truncated: bool,
    },
    Tool {
        seq: Seq,
        call_id: CallId,
        name: Option<String>,
        arguments: Option<Value>,
        outcome: Outcome,
    },
}

/// A message's text, or the fact that some of it was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    Whole(String),
    Redacted,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Known {
        status: ToolStatus,
        result: Option<Value>,
    },
    /// It runs now.
    Pending,
    /// Nobody knows.
    Unknown,
}

/// Builds the view. `live` is the run that an agent works on at this moment, if any: its calls
/// without outcome are pending, all others unknown.
#[expect(clippy::too_many_lines, reason = "one arm for each kind of record")]
pub fn build<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    live: Option<&RunId>,
) -> Result<Vec<Item>, event::ParseError> {
    let mut items = Vec::new();
    let mut messages: BTreeMap<MessageId, usize> = BTreeMap::new();
    // Agents may use a call id again in a later run: it is another call.
    let mut calls: BTreeMap<(RunId, CallId), usize> = BTreeMap::new();
    // The message that a run's agent said last.
    let mut last_of_run: Option<(RunId, usize)> = None;
    for record in records {
        let seq = record.seq;
        match record.event()? {
            Event::MessageUser(e) => {
                let text = match PromptContent::of(record, "content") {
                    Some(content) => Text::Whole(content.text()),
                    None => text_of(record, "content"),
                };
                items.push(Item::User { seq, message_id: e.message_id, text });
            }
            Event::MessageDelta(e) => {
                let piece = text_of(record, "text");
                let index = *messages.entry(e.message_id.clone()).or_insert_with(|| {
                    let text = Text::Whole(String::new());
                    items.push(Item::Agent {
                        seq,
                        message_id: e.message_id,
                        text,
                        complete: false,
                        truncated: false,
                    });
                    items.len() - 1
                });
                if let Some(run_id) = e.run_id {
                    last_of_run = Some((run_id, index));
                }
                if let Item::Agent { text, complete, .. } = &mut items[index] {
                    // Sent again from its beginning, as after an interruption, it begins anew.
                    if e.offset == 0 {
                        *text = Text::Whole(String::new());
                        *complete = false;
                    }
                    text.push(piece);
                }
            }
            Event::MessageCompleted(e) => {
                if let Some(Item::Agent { complete, .. }) =
                    messages.get(&e.message_id).and_then(|index| items.get_mut(*index))
                {
                    *complete = true;
                }
            }
            Event::AgentUpdated(e) if e.truncated => {
                let Some(run_id) = e.run_id else { continue };
                let said = last_of_run.as_ref().filter(|(of, _)| *of == run_id);
                let index = mark_truncated(&mut items, said.map(|(_, index)| *index), seq);
                last_of_run = Some((run_id, index));
            }
            Event::ToolIntent(e) => {
                let called = record.content_field("arguments");
                let open =
                    if live == Some(&e.run_id) { Outcome::Pending } else { Outcome::Unknown };
                let index = calls.get(&(e.run_id.clone(), e.call_id.clone()));
                if let Some(Item::Tool { name, arguments, outcome, .. }) =
                    index.and_then(|index| items.get_mut(*index))
                {
                    // Made again, it may have happened again; only an outcome that came before
                    // its intent is this intent's.
                    if name.replace(e.name).is_some() {
                        *outcome = open;
                    }
                    *arguments = called;
                } else {
                    calls.insert((e.run_id, e.call_id.clone()), items.len());
                    items.push(Item::Tool {
                        seq,
                        call_id: e.call_id,
                        name: Some(e.name),
                        arguments: called,
                        outcome: open,
                    });
                }
            }
            Event::ToolUpdated(e) => {
                let index = e.run_id.and_then(|run_id| calls.get(&(run_id, e.call_id)));
                if let Some(Item::Tool { arguments, .. }) =
                    index.and_then(|index| items.get_mut(*index))
                    && let Some(update) = record.content_field("update")
                    && let Some(said) = update.get("rawInput").filter(|said| !is_nothing(said))
                {
                    *arguments = Some(merged(arguments.take().unwrap_or_default(), said.clone()));
                }
            }
            // Some agents say only here with what they make a call.
            Event::RunWaiting(e) => {
                if let Some(question) = record.content_field("question")
                    && let Some(said) = said_of_call(&question)
                    && let Ok(call_id) =
                        question["call_id"].as_str().unwrap_or_default().parse::<CallId>()
                    && let Some(Item::Tool { arguments, .. }) =
                        calls.get(&(e.run_id, call_id)).and_then(|index| items.get_mut(*index))
                {
                    *arguments = Some(merged(arguments.take().unwrap_or_default(), said.clone()));
                }
            }
            Event::ToolOutcome(e) => {
                let result = record.content_field("result");
                let known = Outcome::Known { status: e.status, result };
                let index = calls.get(&(e.run_id.clone(), e.call_id.clone()));
                if let Some(Item::Tool { outcome, .. }) =
                    index.and_then(|index| items.get_mut(*index))
                {
                    outcome.learn(known);
                } else {
                    // An outcome whose intent was never written still happened.
                    calls.insert((e.run_id, e.call_id.clone()), items.len());
                    items.push(Item::Tool {
                        seq,
                        call_id: e.call_id,
                        name: None,
                        arguments: None,
                        outcome: known,
                    });
                }
            }
            _ => {}
        }
    }
    Ok(items)
}

/// The arguments of the tool call that a question is about.
fn said_of_call(question: &Value) -> Option<&Value> {
    question.get("toolCall")?.get("rawInput").filter(|said| !is_nothing(said))
}

/// Marks the message that a run's agent said last, or one of which nothing is there; says which.
fn mark_truncated(items: &mut Vec<Item>, said: Option<usize>, seq: Seq) -> usize {
    if let Some(index) = said
        && let Some(Item::Agent { truncated, .. }) = items.get_mut(index)
    {
        *truncated = true;
        return index;
    }
    if let Ok(message_id) = format!("truncated_{seq}").parse() {
        let text = Text::Whole(String::new());
        items.push(Item::Agent { seq, message_id, text, complete: true, truncated: true });
    }
    items.len().saturating_sub(1)
}

fn text_of(record: &Record, field: &str) -> Text {
    match (&record.content, record.content_field(field)) {
        (Content::Redacted, _) => Text::Redacted,
        (_, Some(Value::String(text))) => Text::Whole(text),
        (_, Some(other)) => Text::Whole(other.to_string()),
        (_, None) => Text::Whole(String::new()),
    }
}

impl Text {
    fn push(&mut self, piece: Self) {
        match (&mut *self, piece) {
            (Self::Whole(text), Self::Whole(piece)) => text.push_str(&piece),
            _ => *self = Self::Redacted,
        }
    }
}

impl Outcome {
    /// The first known outcome counts; `unknown` gives way to a late one.
    fn learn(&mut self, outcome: Self) {
        let settled = matches!(
            self,
            Self::Known { status, .. } if *status != ToolStatus::Unknown
        );
        if !settled {
            *self = outcome;
        }
    }
}
