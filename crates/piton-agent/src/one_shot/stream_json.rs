//! One line of what `claude -p --output-format stream-json --verbose` prints, and of what others
//! print in its manner, in the words that [`crate::acp::recorder`] keeps. Pure: a value in, words out.
//!
//! | `type` | what it becomes |
//! |---|---|
//! | `system`, `init` | the conversation's name, and `session_info` |
//! | `assistant` | text, thoughts and tool calls, one after the other |
//! | `user` | results of tool calls; anything else is a `user_message` |
//! | `result` | how the turn ended, and `usage` |
//! | all others | `unknown:TYPE`, as they are |
//!
//! What an agent that the agent has called says belongs to that call, and is not the answer.

use serde_json::{Value, json};

use super::handle::Named;

/// Parts of one message that are looked at one by one.
const BLOCKS_MAX: usize = 1_000;

/// What a line says.
#[derive(Debug, PartialEq)]
pub(super) enum Word {
    /// As the protocol would say it, and as it was said.
    Update {
        update: Value,
        raw: Option<Value>,
    },
    Other {
        what: String,
        update: Value,
    },
    /// What the agent calls its conversation.
    Named {
        id: String,
        when: Named,
    },
    /// The agent's own id of a message that it has just said.
    Message {
        id: String,
    },
    /// The turn has ended, as far as the agent is concerned.
    Ended {
        outcome: Outcome,
        event: Value,
    },
}

/// What the agent says of the end of its turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub is_error: bool,
    /// `success`, or what kept it from that.
    pub subtype: String,
    /// The answer, or what went wrong.
    pub words: String,
}

/// `event` has a `type`.
pub(super) fn words(event: Value) -> Vec<Word> {
    let subtype = text_at(&event, "subtype").unwrap_or_default();
    match (text_at(&event, "type").unwrap_or_default(), subtype) {
        ("system", "init") => {
            let id = text_at(&event, "session_id").map(str::to_owned);
            let named = id.map(|id| Word::Named { id, when: Named::AtStart });
            let info = Word::Other { what: "session_info".to_owned(), update: event };
            named.into_iter().chain([info]).collect()
        }
        ("system", "compact_boundary") => vec![other("compaction", event)],
        ("system", subtype) => vec![other(&format!("unknown:system/{subtype}"), event)],
        ("assistant", _) => assistant(event),
        ("user", _) => user(event),
        ("result", _) => result(event),
        (kind, _) => vec![other(&format!("unknown:{kind}"), event)],
    }
}

fn other(what: &str, update: Value) -> Word {
    Word::Other { what: what.to_owned(), update }
}

fn assistant(mut event: Value) -> Vec<Word> {
    let mut words = Vec::new();
    let id_at = |value: &Value, key: &str| text_at(value, key).map(str::to_owned);
    let message_id = id_at(&event, "uuid").or_else(|| id_at(&event["message"], "id"));
    let parent = id_at(&event, "parent_tool_use_id");
    let Parts { blocks, rest } = take_blocks(&mut event);
    let mut shell = Shell::new(event);
    for block in blocks {
        let kind = text_at(&block, "type").unwrap_or_default();
        let said = |what: &str, key: &str| {
            let content = json!({ "type": "text", "text": text_at(&block, key)? });
            let mut update = json!({ "sessionUpdate": what, "content": content });
            if let Some(id) = &message_id {
                update["messageId"] = id.as_str().into();
            }
            Some(Word::Update { update, raw: None })
        };
        let spoken = match kind {
            "text" => said("agent_message_chunk", "text"),
            "thinking" => said("agent_thought_chunk", "thinking"),
            _ => None,
        };
        words.push(match (&parent, spoken) {
            (_, None) if is_tool(kind) => tool(block, &mut shell),
            (Some(parent), _) => of_call(parent, &shell.around(block)),
            (None, Some(spoken)) => spoken,
            (None, None) => other("content", shell.around(block)),
        });
    }
    words.extend(rest.map(|rest| other("content", shell.around(rest))));
    if let (Some(id), None, false) = (message_id, parent, words.is_empty()) {
        words.push(Word::Message { id });
    }
    words
}

fn user(mut event: Value) -> Vec<Word> {
    let is_result = |block: &Value| is_tool(text_at(block, "type").unwrap_or_default());
    let content = event["message"]["content"].as_array();
    if !content.is_some_and(|blocks| blocks.iter().any(is_result)) {
        let parent = text_at(&event, "parent_tool_use_id").map(str::to_owned);
        return vec![match parent {
            Some(parent) => of_call(&parent, &event),
            None => other("user_message", event),
        }];
    }
    let Parts { blocks, rest } = take_blocks(&mut event);
    let mut shell = Shell::new(event);
    let mut words: Vec<Word> = Vec::new();
    for block in blocks {
        words.push(if is_result(&block) {
            tool(block, &mut shell)
        } else {
            other("user_message", shell.around(block))
        });
    }
    words.extend(rest.map(|rest| other("user_message", shell.around(rest))));
    words
}

fn is_tool(kind: &str) -> bool {
    kind.ends_with("tool_use") || kind.ends_with("tool_result")
}

/// A call, or the result of one.
fn tool(block: Value, shell: &mut Shell) -> Word {
    let is_call = text_at(&block, "type").is_some_and(|kind| kind.ends_with("tool_use"));
    let update = if is_call {
        json!({
            "sessionUpdate": "tool_call",
            "toolCallId": block["id"],
            "name": block["name"],
            "rawInput": block["input"],
        })
    } else {
        let is_error = block["is_error"].as_bool().unwrap_or_default();
        json!({
            "sessionUpdate": "tool_call_update",
            "toolCallId": block["tool_use_id"],
            "status": if is_error { "failed" } else { "completed" },
            "rawOutput": block["content"],
        })
    };
    Word::Update { update, raw: Some(shell.around(block)) }
}

/// Something that happened on behalf of a call, but is not its outcome.
fn of_call(parent: &str, event: &Value) -> Word {
    let update =
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": parent, "said": event });
    Word::Update { update, raw: None }
}

fn result(event: Value) -> Vec<Word> {
    let subtype = text_at(&event, "subtype").unwrap_or_default().to_owned();
    let is_error = event["is_error"].as_bool().unwrap_or(subtype.starts_with("error"));
    let errors = event["errors"].as_array().into_iter().flatten();
    let mut said: Vec<&str> = errors.filter_map(Value::as_str).collect();
    said.extend(text_at(&event, "result"));
    let outcome = Outcome { is_error, subtype, words: said.join("\n") };
    let id = text_at(&event, "session_id").filter(|_| !is_error).map(str::to_owned);
    let named = id.map(|id| Word::Named { id, when: Named::AtEnd });
    named.into_iter().chain([Word::Ended { outcome, event }]).collect()
}

/// The parts of a message.
struct Parts {
    blocks: Vec<Value>,
    /// More than are looked at, together.
    rest: Option<Value>,
}

/// A text alone is one part.
fn take_blocks(event: &mut Value) -> Parts {
    let content = event.get_mut("message").and_then(|message| message.get_mut("content"));
    let mut blocks = match content.map(Value::take) {
        Some(Value::Array(blocks)) => blocks,
        Some(Value::String(text)) => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    };
    let rest = (blocks.len() > BLOCKS_MAX).then(|| blocks.split_off(BLOCKS_MAX).into());
    Parts { blocks, rest }
}

/// A message without its parts. All that it says besides goes with the first of them; with the
/// others only what tells where they belong: many parts must not become many copies of much.
struct Shell {
    first: Option<Value>,
    thin: Value,
}

impl Shell {
    fn new(event: Value) -> Self {
        let short = |value: &Value, key: &str| {
            value.get(key).filter(|value| !value.is_object() && !value.is_array()).cloned()
        };
        let pick = |from: &Value, keys: &[&str]| -> Value {
            let picked = keys.iter().filter_map(|key| Some(((*key).to_owned(), short(from, key)?)));
            picked.collect::<serde_json::Map<_, _>>().into()
        };
        let mut thin = pick(&event, &["type", "uuid", "session_id", "parent_tool_use_id"]);
        thin["message"] = pick(&event["message"], &["id", "role"]);
        Self { first: Some(event), thin }
    }

    fn around(&mut self, part: Value) -> Value {
        let mut whole = self.first.take().unwrap_or_else(|| self.thin.clone());
        if let Some(message) = whole.get_mut("message").and_then(Value::as_object_mut) {
            let content = if part.is_array() { part } else { json!([part]) };
            message.insert("content".to_owned(), content);
        }
        whole
    }
}

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}
