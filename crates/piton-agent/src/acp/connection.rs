//! What can be asked of an agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use piton_core::PromptContent;
use piton_core::agent_view::{CHOICE_REFUSED, Configure};
use piton_core::id::{RunId, WaitId};
use piton_core::spool::{Ended, Fact, OpenedAs};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::driver::Driver;
use super::link::{Link, Waiter};
use super::recorder::Recorder;
use super::refusal::{Refusal, RefusalPatterns};
use super::serve::Serving;
use super::wire::{self, Hello, method};
use super::{Error, Limits, Options};

/// Messages on their way to the agent that it does not read.
const OUTGOING_MAX: usize = 256;

/// A conversation to begin or to resume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Begin {
    pub cwd: PathBuf,
    /// Handed to the agent as they are.
    pub mcp_servers: Vec<Value>,
    /// The conversation to resume.
    pub agent_session_id: Option<String>,
    /// A copy of that conversation instead, which leaves it as it is.
    pub fork: bool,
    /// Message ids of the agent's that the log knows.
    pub seen_message_ids: Vec<String>,
    /// How this agent says that it does not know a conversation.
    pub wording: RefusalPatterns,
}

/// How the agent came to its conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub opened_as: OpenedAs,
    pub agent_session_id: String,
}

/// A turn under way. Need not be waited for: its end is noted.
#[derive(Debug)]
pub struct Turn {
    done: oneshot::Receiver<Result<String, Error>>,
}

impl Turn {
    /// The agent's reason to stop, when it was noted. If the agent is gone, nothing was.
    pub async fn ended(self) -> Result<String, Error> {
        self.done.await.unwrap_or(Err(Error::Closed))
    }
}

/// One agent at the other end. Clones speak to the same one.
#[derive(Clone, Debug)]
pub struct Connection {
    link: Arc<Link>,
    pub(super) recorder: Arc<Mutex<Recorder>>,
    pub(super) limits: Limits,
    started: Arc<Mutex<Begin>>,
}

impl Connection {
    /// The future reads from the agent and writes to it, and resolves when the agent's output ends.
    /// Nothing happens unless it is polled.
    pub fn open<R, W>(
        reader: R,
        writer: W,
        options: Options,
    ) -> (Self, impl Future<Output = Result<(), Error>> + Send + use<R, W>)
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send,
    {
        let Options { masker, journal, host, ids, limits } = options;
        let (sender, outgoing) = mpsc::channel(OUTGOING_MAX);
        let link = Arc::new(Link::new(sender, limits.requests_max));
        let recorder = Arc::new(Mutex::new(Recorder::new(journal, ids, masker, &limits)));
        let serving = Arc::new(Serving::new(host, Arc::clone(&link), limits.terminals_max));
        let connection = Self {
            link: Arc::clone(&link),
            recorder: Arc::clone(&recorder),
            limits: limits.clone(),
            started: Arc::default(),
        };
        let driver = Driver { reader, writer, outgoing, link, recorder, serving, limits };
        (connection, driver.run())
    }

    /// Offers version 1 of the protocol, files and terminals.
    pub async fn initialize(&self) -> Result<Hello, Error> {
        self.initialize_as(wire::initialize(true)).await
    }

    /// The same, without the offer to read and write files: it uses its own way.
    pub async fn initialize_without_files(&self) -> Result<Hello, Error> {
        self.initialize_as(wire::initialize(false)).await
    }

    /// The same, with something that is only for an agent of our own.
    pub async fn initialize_with_meta(&self, meta: Value) -> Result<Hello, Error> {
        let mut params = wire::initialize(true);
        params["_meta"] = meta;
        self.initialize_as(params).await
    }

    async fn initialize_as(&self, params: Value) -> Result<Hello, Error> {
        let after = self.limits.start_wait;
        let answer = self.request(method::INITIALIZE, params, after).await?;
        match wire::spoken_version(&answer) {
            Some(wire::VERSION) => {}
            Some(spoken) => return Err(Error::Version { spoken }),
            None => return Err(protocol(method::INITIALIZE, "It names no version".to_owned())),
        }
        let hello = wire::hello(answer).map_err(|why| protocol(method::INITIALIZE, why))?;
        self.recorder.lock().await.hello = Some(hello.clone());
        Ok(hello)
    }

    /// Resumes a conversation if the agent can, else loads it, else begins another. Also begins
    /// another if the agent says that it does not know the conversation. Any other refusal is an
    /// error, and the conversation's id stays valid. A fork that the agent does not offer is an
    /// error, too: resuming the original instead would change it. When this returns, the journal
    /// has kept what was noted.
    pub async fn begin(&self, begin: Begin) -> Result<Opened, Error> {
        let capabilities =
            self.recorder.lock().await.hello.as_ref().ok_or(Error::NoSession)?.capabilities;
        *self.started.lock().await = begin.clone();
        let Begin { cwd, mcp_servers, agent_session_id, fork, seen_message_ids, wording } = begin;
        self.recorder.lock().await.wording = wording;
        if fork && agent_session_id.is_none() {
            return Err(Error::NothingToFork);
        }
        if fork && !capabilities.fork {
            return Err(Error::NotOffered { method: method::FORK.to_owned() });
        }
        if let Some(id) = &agent_session_id {
            let mut ways = Vec::new();
            if fork {
                let params = wire::fork_session(id, &cwd, &mcp_servers);
                ways.push((method::FORK, OpenedAs::Forked, params));
            }
            if capabilities.resume && !fork {
                let params = wire::resume_session(id, &cwd, &mcp_servers);
                ways.push((method::RESUME, OpenedAs::Resumed, params));
            }
            if capabilities.load && !fork {
                let params = wire::load_session(id, &cwd, &mcp_servers);
                ways.push((method::LOAD, OpenedAs::Loaded, params));
            }
            for (name, opened_as, params) in ways {
                self.recorder.lock().await.replay.begin(seen_message_ids.clone());
                // Boxed: the future is large, and those who wait for it hold copies.
                match Box::pin(self.open_session(name, opened_as, Some(id.clone()), params)).await {
                    Err(Error::Agent { code, message, .. })
                        if wording.refusal(code, &message) == Refusal::Refused =>
                    {
                        let mut recorder = self.recorder.lock().await;
                        let agent_session_id = Some(id.clone());
                        recorder.note(Fact::AgentSessionRefused {
                            code,
                            message,
                            agent_session_id,
                        });
                        recorder.keep().await?;
                        break;
                    }
                    // It offers what it does not have; a copy is nothing else's.
                    Err(Error::Agent { code: wire::code::METHOD_NOT_FOUND, .. }) if !fork => {
                        self.recorder.lock().await.mark_not_offered(opened_as);
                    }
                    other => return other,
                }
            }
        }
        self.recorder.lock().await.replay.live();
        let params = wire::new_session(&cwd, &mcp_servers);
        Box::pin(self.open_session(method::NEW, OpenedAs::New, agent_session_id, params)).await
    }

    async fn open_session(
        &self,
        name: &'static str,
        opened_as: OpenedAs,
        asked_id: Option<String>,
        params: Value,
    ) -> Result<Opened, Error> {
        let (done, opened) = oneshot::channel();
        let waiting = self.link.register(name, Waiter::Begin { opened_as, asked_id, done })?;
        let answered = async {
            self.link.send_request(&waiting, name, &params).await?;
            opened.await.unwrap_or(Err(Error::Closed))
        };
        within(self.limits.start_wait, name, answered).await?;
        let session = self.recorder.lock().await.session.clone();
        Ok(Opened { opened_as, agent_session_id: session.ok_or(Error::NoSession)? })
    }

    /// Gives the agent a prompt. Returns when the turn's beginning is kept and the prompt is on its
    /// way; what comes of it is noted. Like [`Self::cancel`] and [`Self::answer`] it is carried out
    /// even if the caller does not wait for it: nothing is left half said.
    pub async fn prompt(
        &self,
        run_id: RunId,
        content: impl Into<PromptContent>,
    ) -> Result<Turn, Error> {
        let (this, content) = (self.clone(), content.into());
        carry_out(async move { this.prompt_now(run_id, &content).await }).await
    }

    async fn prompt_now(&self, run_id: RunId, content: &PromptContent) -> Result<Turn, Error> {
        let mut recorder = self.recorder.lock().await;
        let capabilities = recorder.hello.as_ref().map(|hello| hello.capabilities.prompt);
        if let Some(kind) = content.first_unsupported(capabilities.unwrap_or_default()) {
            return Err(Error::ContentNotSupported { kind });
        }
        // One that had a conversation and disowned it is about to be ended.
        let none = if recorder.turns > 0 { Error::Closed } else { Error::NoSession };
        let session = recorder.session.clone().ok_or(none)?;
        if let Some(turn) = &recorder.turn {
            return Err(Error::Busy { run_id: turn.run_id.clone() });
        }
        let (done, receiver) = oneshot::channel();
        let waiting = self.link.register(method::PROMPT, Waiter::Prompt { done })?;
        recorder.turn_started(run_id);
        if let Err(error) = recorder.keep().await {
            recorder.turn = None;
            return Err(error);
        }
        drop(recorder);
        let params = wire::prompt(&session, content);
        let sent = self.link.send_request(&waiting, method::PROMPT, &params);
        if let Err(error) = within(self.limits.request_wait, method::PROMPT, sent).await {
            let mut recorder = self.recorder.lock().await;
            let (code, message) = (error.code().into(), error.to_string());
            recorder.turn_over(Fact::TurnFailed { code, message });
            recorder.keep().await?;
            return Err(error);
        }
        waiting.keep();
        Ok(Turn { done: receiver })
    }

    /// Asks the agent to end its turn; its open questions are answered `cancelled`. The turn ends
    /// when the agent says so.
    pub async fn cancel(&self, run_id: &RunId) -> Result<(), Error> {
        let (this, run_id) = (self.clone(), run_id.clone());
        carry_out(async move { this.cancel_now(&run_id).await }).await
    }

    async fn cancel_now(&self, run_id: &RunId) -> Result<(), Error> {
        let mut recorder = self.recorder.lock().await;
        let session = recorder.session.clone().ok_or(Error::NoSession)?;
        match &mut recorder.turn {
            Some(turn) if turn.run_id == *run_id => turn.is_cancelled = true,
            _ => return Err(Error::NoTurn { run_id: run_id.clone() }),
        }
        let asks = recorder.end_all_asks(Ended::Cancelled);
        recorder.keep().await?;
        drop(recorder);
        let cancelled = async {
            let line = wire::notification_line(method::CANCEL, &wire::cancel(&session));
            self.link.send(line).await?;
            for ask in asks {
                self.link.answer(&ask.rpc_id, &wire::permission(None)).await?;
            }
            Ok(())
        };
        within(self.limits.request_wait, method::CANCEL, cancelled).await
    }

    /// Answers a question of the agent: `{"option_id": …}` with one of the offered ids, or
    /// `{"outcome": "cancelled"}`; `None`: there will be no answer.
    pub async fn answer(&self, wait_id: &WaitId, answer: Option<Value>) -> Result<(), Error> {
        let (this, wait_id) = (self.clone(), wait_id.clone());
        carry_out(async move { this.answer_now(&wait_id, answer).await }).await
    }

    async fn answer_now(&self, wait_id: &WaitId, answer: Option<Value>) -> Result<(), Error> {
        let mut recorder = self.recorder.lock().await;
        let not_asked = || Error::NotAsked { wait_id: wait_id.clone() };
        let ask = recorder.asks.get(wait_id).ok_or_else(not_asked)?;
        let option = match &answer {
            None => None,
            Some(answer) => match wire::text_at(answer, "option_id") {
                Some(id) if ask.options.contains(&id) => Some(id),
                None if wire::text_at(answer, "outcome").as_deref() == Some("cancelled") => None,
                _ => return Err(Error::NotAnOption { wait_id: wait_id.clone() }),
            },
        };
        let why = if option.is_some() { Ended::Answered } else { Ended::Cancelled };
        let ask = recorder.ask_ended(wait_id, why).ok_or_else(not_asked)?;
        recorder.keep().await?;
        drop(recorder);
        let result = wire::permission(option.as_deref());
        let sent = self.link.answer(&ask.rpc_id, &result);
        within(self.limits.request_wait, method::PERMISSION, sent).await
    }

    /// Something else that the protocol has: `set_mode`, `set_model`, `set_config_option`, `authenticate`,
    /// `list_sessions`, `fork_session`, `close_session`, `delete_session`. Parameters are the
    /// protocol's own; the session is filled in where it is needed and not named. Gives the agent's
    /// answer, masked.
    pub async fn ask(&self, name: &str, params: Value) -> Result<Value, Error> {
        let recorder = self.recorder.lock().await;
        let capabilities = recorder.hello.as_ref().ok_or(Error::NoSession)?.capabilities;
        let session = recorder.session.clone();
        // Some have only config options for a mode or a model.
        let option = match name {
            "set_mode" => recorder.mode_option.clone(),
            "set_model" => recorder.model_option.clone(),
            _ => None,
        };
        drop(recorder);
        let (method, is_offered) = match name {
            "authenticate" => (method::AUTHENTICATE, true),
            "set_mode" => (method::SET_MODE, true),
            "set_model" => (method::SET_MODEL, true),
            "set_config_option" => (method::SET_CONFIG_OPTION, true),
            "list_sessions" => (method::LIST, capabilities.list),
            "fork_session" => (method::FORK, capabilities.fork),
            "close_session" => (method::CLOSE, capabilities.close),
            "delete_session" => (method::DELETE, capabilities.delete),
            _ => return Err(Error::UnknownAsk { name: name.to_owned() }),
        };
        if !is_offered {
            return Err(Error::NotOffered { method: method.to_owned() });
        }
        let mut params = if params.is_object() { params } else { json!({}) };
        if !matches!(name, "authenticate" | "list_sessions") && params.get("sessionId").is_none() {
            params["sessionId"] = session.ok_or(Error::NoSession)?.into();
        }
        if name == "delete_session" {
            self.refuse_own(&wire::text_at(&params, "sessionId").unwrap_or_default()).await?;
        }
        if name == "fork_session" {
            let started = self.started.lock().await;
            if params.get("cwd").is_none() {
                params["cwd"] = started.cwd.to_string_lossy().into();
            }
            if params.get("mcpServers").is_none() {
                params["mcpServers"] = started.mcp_servers.clone().into();
            }
        }
        let chosen = match name {
            "set_mode" => Some(("mode".to_owned(), params.get("modeId").cloned())),
            "set_model" => Some(("model".to_owned(), params.get("modelId").cloned())),
            "set_config_option" => {
                let id = wire::text_at(&params, "configId").unwrap_or_default();
                Some((id, params.get("value").cloned()))
            }
            _ => None,
        };
        let (method, params) = match (option, &chosen) {
            (Some(id), Some((_, value))) => {
                let session = params.get("sessionId").cloned();
                let of = json!({ "sessionId": session, "configId": id, "value": value });
                (method::SET_CONFIG_OPTION, of)
            }
            _ => (method, params),
        };
        let answer = self.request(method, params, self.limits.request_wait).await;
        let mut recorder = self.recorder.lock().await;
        if let (Err(error @ Error::Agent { .. }), Some((what, value))) = (&answer, &chosen) {
            // The log drops the choice: it is not given to every later agent again.
            let what = recorder.mask_text(&format!("{CHOICE_REFUSED}{what}"));
            let message = recorder.mask_text(&error.to_string());
            recorder.other(&what, json!({ "value": value, "message": message }));
            recorder.keep().await?;
        }
        let answer = recorder.mask(answer?);
        // Agents need not tell what they were asked for.
        if method == method::SET_CONFIG_OPTION && name != "set_config_option" {
            recorder.other("config", answer.clone());
        }
        match name {
            "set_mode" => {
                let chosen = chosen.and_then(|(_, value)| value);
                recorder.other("mode", json!({ "currentModeId": chosen }));
            }
            "set_model" => {
                let chosen = chosen.and_then(|(_, value)| value);
                recorder.other("model", json!({ "currentModelId": chosen }));
            }
            "set_config_option" => recorder.other("config", answer.clone()),
            _ => {}
        }
        recorder.keep().await?;
        Ok(answer)
    }

    /// Has the agent work as a user chose. What it refuses is noted, and keeps nothing else from being
    /// tried; only the end of the agent is an error.
    pub async fn configure(&self, choice: &Configure) -> Result<(), Error> {
        let mut asks = Vec::new();
        if let Some(model) = &choice.model {
            asks.push(("set_model", json!({ "modelId": model })));
        }
        let options = choice.options.iter();
        asks.extend(options.map(|(id, of)| ("set_config_option", wire::config_option(id, of))));
        if let Some(mode) = &choice.mode {
            asks.push(("set_mode", json!({ "modeId": mode })));
        }
        for (name, params) in asks {
            match self.ask(name, params).await {
                Err(error @ Error::Closed) => return Err(error),
                Err(error) => tracing::warn!(name, %error, "the agent is not as it was chosen"),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// The turn that is under way.
    pub async fn turn(&self) -> Option<RunId> {
        self.recorder.lock().await.turn.as_ref().map(|turn| turn.run_id.clone())
    }

    /// Whether the turn was cancelled and is still under way.
    pub async fn ignores_cancel(&self, run_id: &RunId) -> bool {
        let recorder = self.recorder.lock().await;
        recorder.turn.as_ref().is_some_and(|turn| turn.run_id == *run_id && turn.is_cancelled)
    }

    /// Resolves when the agent no longer reads its input, or after [`Self::give_up`]. What it says
    /// is still noted.
    pub async fn until_deaf(&self) {
        self.link.until_deaf().await;
    }

    /// Treats the agent as deaf because it does not follow requests; [`Self::until_deaf`] resolves.
    pub fn give_up(&self) {
        self.link.not_reading();
    }

    /// The questions that wait for an answer.
    pub async fn asking(&self) -> Vec<WaitId> {
        self.recorder.lock().await.asks.keys().cloned().collect()
    }

    /// The agent is about to be ended. How it ends the turn under way from here on is a part of its
    /// own end, and not believed: the turn is noted as cut off.
    pub fn set_ending(&self) {
        self.link.set_ending();
    }

    /// Ends the agent's input, which tells it to exit. What it still says is noted; the driver ends
    /// when its output does.
    pub fn close(&self) {
        self.link.close();
    }

    pub(super) async fn request(
        &self,
        name: &'static str,
        params: Value,
        after: Duration,
    ) -> Result<Value, Error> {
        let (done, answer) = oneshot::channel();
        let waiting = self.link.register(name, Waiter::Plain(done))?;
        let answered = async {
            self.link.send_request(&waiting, name, &params).await?;
            answer.await.map_err(|_| Error::Closed)
        };
        let answer = within(after, name, answered).await?;
        answer.into_result(name, &*self.recorder.lock().await)
    }
}

pub(super) fn protocol(method: &str, why: String) -> Error {
    Error::Protocol { method: method.to_owned(), why }
}

/// Runs it to its end, even if the caller no longer waits for it.
async fn carry_out<T: Send + 'static>(
    act: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(act).await.unwrap_or(Err(Error::Closed))
}

async fn within<T>(
    after: Duration,
    method: &str,
    done: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let timed_out = || Error::TimedOut { method: method.to_owned(), after };
    tokio::time::timeout(after, done).await.unwrap_or_else(|_| Err(timed_out()))
}
