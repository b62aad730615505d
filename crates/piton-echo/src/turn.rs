//! One turn: the prompt's directives, one after the other.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};

use super::agent::Agent;
use super::memory::{Session, unique};
use super::script::{Directive, steps};
use super::{End, Stage};

/// Only this much of a message is remembered.
const REMEMBERED_BYTES_MAX: usize = 64 * 1024;
const FLOOD_CHUNK_BYTES: u64 = 1024;

#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) agent: &'a Agent,
    pub(super) id: String,
    pub(super) session: Session,
    steps: Vec<Directive>,
    cancelled: Arc<Notify>,
    /// SIGTERM came, and this is how the turn ends.
    terminated: watch::Sender<Option<&'static str>>,
    /// The message being said, and which kind of update says it.
    message: Option<(&'static str, String)>,
}

/// Microseconds since the epoch, by this machine's clock.
pub(super) fn now_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}

const ANSWER: &str = "agent_message_chunk";
const THOUGHT: &str = "agent_thought_chunk";

impl<'a> Turn<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        id: String,
        mut session: Session,
        prompt: String,
        script: Option<&str>,
        cancelled: Arc<Notify>,
    ) -> Self {
        let steps = steps(script.unwrap_or(&prompt));
        let mut said = json!({
            "sessionUpdate": "user_message_chunk",
            "content": { "type": "text", "text": prompt },
        });
        if !agent.options.no_message_ids {
            said["messageId"] = unique().into();
        }
        let is_deaf = |step: &Directive| matches!(step, Directive::Hang | Directive::OnTerm { .. });
        if steps.iter().any(is_deaf) {
            agent.out.be_deaf();
        }
        session.transcript.push(said);
        session.prompts.push(prompt);
        let terminated = watch::Sender::new(None);
        Self { agent, id, session, steps, cancelled, terminated, message: None }
    }

    pub(super) fn session_id(&self) -> &str {
        &self.id
    }

    /// The reason to stop, or how the agent ended; and what it remembers from now on.
    pub(super) async fn run(mut self) -> (Result<&'static str, End>, Session) {
        let cancelled = Arc::clone(&self.cancelled);
        let mut terminated = self.terminated.subscribe();
        let stop = tokio::select! {
            biased;
            () = cancelled.notified() => Ok("cancelled"),
            Ok(reason) = terminated.wait_for(Option::is_some) => Ok(reason.unwrap_or_default()),
            done = self.all() => done.map(|()| "end_turn"),
        };
        (stop, self.session)
    }

    async fn all(&mut self) -> Result<(), End> {
        for step in std::mem::take(&mut self.steps) {
            self.step(step).await?;
            // A client that does not read must not keep a cancelled turn going.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each directive")]
    async fn step(&mut self, step: Directive) -> Result<(), End> {
        let out = Arc::clone(&self.agent.out);
        match step {
            Directive::Say(text) => self.say_alone(&text).await,
            Directive::Think(text) => {
                self.message = None;
                self.chunk(THOUGHT, &text).await;
            }
            Directive::Pieces(pieces) => {
                self.message = None;
                for piece in pieces {
                    self.say(&piece).await;
                }
            }
            Directive::Stream { count, pause } => {
                self.message = None;
                for n in 1..=count {
                    tokio::time::sleep(pause).await;
                    self.say(&format!("chunk {n} ")).await;
                }
            }
            Directive::StreamNow { count, pause } => {
                self.message = None;
                for _ in 0..count {
                    tokio::time::sleep(pause).await;
                    self.say(&format!("{} ", now_us())).await;
                }
            }
            Directive::Flood(bytes) => {
                let chunk = "x".repeat(usize::try_from(FLOOD_CHUNK_BYTES).unwrap_or_default());
                self.message = None;
                for _ in 0..bytes.div_ceil(FLOOD_CHUNK_BYTES) {
                    self.say(&chunk).await;
                }
            }
            Directive::Huge(bytes) => {
                let text = "x".repeat(usize::try_from(bytes).unwrap_or_default());
                self.say_alone(&text).await;
            }
            Directive::Plan => {
                let entry = |content: &str, status: &str| json!({ "content": content, "priority": "medium", "status": status });
                let entries = [entry("First", "completed"), entry("Then", "pending")];
                self.update(json!({ "sessionUpdate": "plan", "entries": entries })).await;
            }
            Directive::Mode(name) => {
                self.session.mode.clone_from(&name);
                let update =
                    json!({ "sessionUpdate": "current_mode_update", "currentModeId": name });
                out.update(&self.id, &update).await;
            }
            Directive::Commands => {
                let command = json!({ "name": "recall", "description": "Recall a value", "input": { "hint": "KEY" } });
                let update = json!({ "sessionUpdate": "available_commands_update", "availableCommands": [command] });
                out.update(&self.id, &update).await;
            }
            Directive::Usage(used) => {
                let cost = json!({ "amount": 0.01, "currency": "USD" });
                let update = json!({ "sessionUpdate": "usage_update", "used": used, "size": 1_000, "cost": cost });
                out.update(&self.id, &update).await;
            }
            Directive::Wait(time) => tokio::time::sleep(time).await,
            Directive::Crash => return Err(End::Crash),
            Directive::Exit(code) => return Err(End::Exit(code)),
            Directive::Hang => std::future::pending::<()>().await,
            Directive::Garbage => out.line("Loading model ... 42% {not json").await,
            Directive::Raw(line) => {
                self.message = None;
                out.line(&line.replace("$SESSION", &self.id)).await;
            }
            Directive::Stderr(text) => {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "{text}");
            }
            Directive::IgnoreTerm => {
                // Caught once, it never ends the process again.
                let _ = signal(SignalKind::terminate());
            }
            Directive::OnTerm { stop_reason, delay } => {
                let terminated = self.terminated.clone();
                let Ok(mut signals) = signal(SignalKind::terminate()) else { return Ok(()) };
                tokio::spawn(async move {
                    signals.recv().await;
                    terminated.send_replace(Some(stop_reason));
                    tokio::time::sleep(delay).await;
                    End::Exit(143).exit();
                });
            }
            Directive::CloseStdin => out.close_input(),
            Directive::Remember { key, value } => {
                let said = format!("remembered {key}");
                self.session.values.insert(key, value);
                self.say_alone(&said).await;
            }
            Directive::Recall(key) => {
                let value = self.session.values.get(&key).cloned();
                let said = value.unwrap_or_else(|| format!("nothing about {key}"));
                self.say_alone(&said).await;
            }
            Directive::RecallPrompts => {
                let said = format!("{} prompts", self.session.prompts.len().saturating_sub(1));
                self.say_alone(&said).await;
            }
            Directive::Forget => {
                self.session.values.clear();
                self.session.prompts.clear();
                self.session.transcript.clear();
            }
            Directive::Id => {
                let said = self.id.clone();
                self.say_alone(&said).await;
            }
            tool => {
                if self.agent.options.crash_at == Some(Stage::Tool) {
                    return Err(End::Crash);
                }
                self.tool(tool).await;
            }
        }
        Ok(())
    }

    /// As a message of its own.
    pub(super) async fn say_alone(&mut self, text: &str) {
        self.message = None;
        self.say(text).await;
        self.message = None;
        self.agent.out.message_ended().await;
    }

    async fn say(&mut self, text: &str) {
        self.chunk(ANSWER, text).await;
    }

    async fn chunk(&mut self, kind: &'static str, text: &str) {
        let is_new = self.message.as_ref().is_none_or(|(said, _)| *said != kind);
        if is_new {
            self.message = Some((kind, unique()));
        }
        let mut update =
            json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
        if let Some((_, id)) = self.message.as_ref().filter(|_| !self.agent.options.no_message_ids)
        {
            update["messageId"] = id.as_str().into();
        }
        self.agent.out.update(&self.id, &update).await;
        if is_new {
            self.session.transcript.push(update);
        } else if let Some(Value::String(said)) =
            self.session.transcript.last_mut().and_then(|last| last.pointer_mut("/content/text"))
            && said.len() + text.len() <= REMEMBERED_BYTES_MAX
        {
            said.push_str(text);
        }
    }

    /// Says something that is part of the history, but no message.
    pub(super) async fn update(&mut self, update: Value) {
        self.message = None;
        self.agent.out.update(&self.id, &update).await;
        self.session.transcript.push(update);
    }
}
