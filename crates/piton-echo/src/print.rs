//! The agent without a protocol: one process is one turn. The conversation to continue is an
//! argument; the process prints the answer, or a line of JSON for each message.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::Notify;

use super::agent::{Agent, lock};
use super::memory::{Session, unique};
use super::out::{self, Out, Voice};
use super::turn::Turn;
use super::{End, LINE_BYTES_MAX, Options, Output, Print, Stage};

/// Puts what a turn says into the words that are printed.
#[derive(Debug)]
pub(super) struct Printer {
    output: Output,
    session_id: String,
    /// A message on its way: what says it, its id, and what it says. Printed when it is whole.
    message: Option<(String, Option<String>, String)>,
    /// Whether text was printed.
    has_answered: bool,
    last_id: Option<String>,
    /// The answers, for the line that ends the turn.
    answer: String,
}

impl Printer {
    fn new(output: Output, session_id: String) -> Self {
        Self {
            output,
            session_id,
            message: None,
            has_answered: false,
            last_id: None,
            answer: String::new(),
        }
    }

    /// What is to be printed for an update as the protocol would have it.
    pub(super) fn update(&mut self, update: &Value) -> String {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        match kind {
            "agent_message_chunk" | "agent_thought_chunk" => {
                let text = update["content"]["text"].as_str().unwrap_or_default();
                self.chunk(kind, update["messageId"].as_str(), text)
            }
            _ if self.output == Output::Text => String::new(),
            _ => {
                let before = self.message_ended();
                before + &self.event(kind, update)
            }
        }
    }

    fn chunk(&mut self, kind: &str, id: Option<&str>, text: &str) -> String {
        let is_answer = kind == "agent_message_chunk";
        if self.output == Output::Text {
            if !is_answer {
                return String::new();
            }
            // A message on a line of its own.
            let is_next = self.has_answered && self.last_id.as_deref() != id;
            (self.has_answered, self.last_id) = (true, id.map(str::to_owned));
            return if is_next { format!("\n{text}") } else { text.to_owned() };
        }
        let id = id.map(str::to_owned);
        let goes_on = |(of, by, _): &(String, Option<String>, String)| of == kind && *by == id;
        let before = match &mut self.message {
            Some(open) if goes_on(open) => {
                open.2.push_str(text);
                return String::new();
            }
            _ => self.message_ended(),
        };
        self.message = Some((kind.to_owned(), id, text.to_owned()));
        before
    }

    pub(super) fn message_ended(&mut self) -> String {
        let Some((kind, id, text)) = self.message.take() else { return String::new() };
        let block = if kind == "agent_message_chunk" {
            self.answer.clone_from(&text);
            json!({ "type": "text", "text": text })
        } else {
            json!({ "type": "thinking", "thinking": text, "signature": "" })
        };
        self.said("assistant", id, &block)
    }

    fn said(&self, role: &str, id: Option<String>, block: &Value) -> String {
        let message =
            json!({ "id": format!("msg-{}", unique()), "role": role, "content": [block] });
        let mut event = json!({ "type": role, "message": message, "parent_tool_use_id": null });
        if let Some(id) = id {
            event["uuid"] = id.into();
        }
        self.line(event)
    }

    fn line(&self, mut event: Value) -> String {
        event["session_id"] = self.session_id.as_str().into();
        format!("{event}\n")
    }

    fn event(&self, kind: &str, update: &Value) -> String {
        let id = update["toolCallId"].as_str().unwrap_or_default().to_owned();
        match (kind, update["status"].as_str()) {
            ("tool_call", _) => {
                let input = &update["rawInput"];
                let block =
                    json!({ "type": "tool_use", "id": id, "name": update["name"], "input": input });
                self.said("assistant", Some(unique()), &block)
            }
            ("tool_call_update", Some(status @ ("completed" | "failed"))) => {
                let shown = &update["content"][0]["content"]["text"];
                let block = json!({ "type": "tool_result", "tool_use_id": id, "content": shown,
                    "is_error": status == "failed" });
                self.said("user", Some(unique()), &block)
            }
            ("tool_call_update", _) => String::new(),
            _ => self.line(json!({ "type": "system", "subtype": kind, "update": update })),
        }
    }

    fn init(&self, session: &Session) -> String {
        if self.output == Output::Text {
            return String::new();
        }
        self.line(json!({ "type": "system", "subtype": "init", "uuid": unique(), "tools": [],
            "cwd": session.cwd, "permissionMode": "default" }))
    }

    /// What comes last. `errors`: why it came to nothing.
    fn end(&mut self, errors: &[String]) -> String {
        if self.output == Output::Text {
            return if self.has_answered { "\n".to_owned() } else { String::new() };
        }
        let before = self.message_ended();
        let is_error = !errors.is_empty();
        let subtype = if is_error { "error_during_execution" } else { "success" };
        let mut event = json!({ "type": "result", "subtype": subtype, "is_error": is_error,
            "num_turns": 1, "duration_ms": 0, "total_cost_usd": 0, "uuid": unique() });
        if is_error {
            event["errors"] = errors.into();
        } else {
            event["result"] = self.answer.as_str().into();
        }
        before + &self.line(event)
    }
}

/// Reads a prompt, does what it says, and ends.
pub(super) async fn serve<R, W>(
    reader: R,
    mut writer: W,
    options: Options,
    print: Print,
) -> io::Result<End>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let prompt = if let Some(prompt) = &print.prompt {
        prompt.clone()
    } else {
        let mut prompt = Vec::new();
        reader.take(LINE_BYTES_MAX as u64).read_to_end(&mut prompt).await?;
        String::from_utf8_lossy(&prompt).into_owned()
    };
    let crash_at = options.crash_at;
    let at = if print.resume.is_some() { Stage::Load } else { Stage::New };
    if crash_at == Some(at) || crash_at == Some(Stage::Prompt) {
        return Ok(End::Crash);
    }
    let fresh = print.session_id.clone().unwrap_or_else(|| format!("echo-{}", unique()));
    let is_fork = print.fork && print.resume.is_some();
    let id = print.resume.clone().filter(|_| !is_fork).unwrap_or(fresh);
    let printer = Printer::new(print.output, print.resume.clone().unwrap_or_else(|| id.clone()));
    let (out, outgoing) = Out::new(Voice::Printed(Mutex::new(printer)));
    let out = Arc::new(out);
    let agent = Agent::new(options, Arc::clone(&out))?;
    let speaking = async {
        let session = match taken_up(&agent, &print) {
            Ok(session) => session,
            Err(refused) => {
                let _ = writeln!(io::stderr(), "{refused}");
                out.print(|printer| printer.end(&[refused])).await;
                out.flush().await;
                return Ok(End::Exit(1));
            }
        };
        // Known from here on, whatever becomes of the turn.
        lock(&agent.memory).put(&id, Some(&session))?;
        out.print(|printer| {
            printer.session_id.clone_from(&id);
            printer.init(&session)
        })
        .await;
        let script = lock(&agent.script).pop_front();
        let never = Arc::new(Notify::new());
        let turn = Turn::new(&agent, id.clone(), session, prompt, script.as_deref(), never);
        let (stop, session) = turn.run().await;
        let end = match stop {
            Ok(_) => {
                lock(&agent.memory).put(&id, Some(&session))?;
                out.print(|printer| printer.end(&[])).await;
                End::Exit(0)
            }
            Err(end) => {
                out.message_ended().await;
                end
            }
        };
        out.flush().await;
        Ok(end)
    };
    tokio::select! {
        biased;
        end = speaking => end,
        // The reader closed the pipe.
        written = out::write(&mut writer, outgoing) => written.map(|()| End::Eof),
    }
}

/// The conversation to continue, up to `resume_at`, or a new one. The error is for the user.
fn taken_up(agent: &Agent, print: &Print) -> Result<Session, String> {
    let Some(id) = &print.resume else {
        let cwd = std::env::current_dir().unwrap_or_default();
        return Ok(Session { cwd, mode: "normal".to_owned(), ..Session::default() });
    };
    let known = lock(&agent.memory).get(id).cloned().filter(|_| !agent.options.refuse_session);
    let mut session =
        known.ok_or_else(|| format!("No conversation found with session ID: {id}"))?;
    if let Some(at) = &print.resume_at {
        let is_it = |update: &Value| update["messageId"].as_str() == Some(at.as_str());
        let place = session.transcript.iter().rposition(is_it);
        let place = place.ok_or_else(|| format!("No message found with message.uuid of: {at}"))?;
        session.transcript.truncate(place + 1);
        let is_prompt = |update: &&Value| update["sessionUpdate"] == "user_message_chunk";
        let prompts = session.transcript.iter().filter(is_prompt).count();
        session.prompts.truncate(prompts);
    }
    Ok(session)
}
