//! The agent's side of the protocol: its sessions, and whose turn it is.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use piton_core::mask;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::memory::{Memory, Session, unique};
use super::out::Out;
use super::turn::Turn;
use super::{AuthAnswer, End, Options, Replay, Stage};

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) options: Options,
    pub(super) out: Arc<Out>,
    pub(super) memory: Mutex<Memory>,
    pub(super) script: Mutex<VecDeque<String>>,
    /// What ends the turns under way.
    turns: Mutex<HashMap<String, Arc<Notify>>>,
    pub(super) has_terminals: AtomicBool,
    is_logged_in: AtomicBool,
}

/// An error of the protocol: code and message.
struct Refused(i64, String);

type Answer = Result<Value, Refused>;

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self(-32603, format!("Internal error: {error}"))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text_at(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl Agent {
    pub(super) fn new(options: Options, out: Arc<Out>) -> io::Result<Self> {
        let memory = Memory::open(options.memory.as_deref())?;
        let script = match &options.script {
            Some(file) => std::fs::read_to_string(file)?,
            None => String::new(),
        };
        let parts = script.split("\n---\n").map(str::trim).filter(|part| !part.is_empty());
        Ok(Self {
            script: Mutex::new(parts.map(str::to_owned).collect()),
            options,
            out,
            memory: Mutex::new(memory),
            turns: Mutex::default(),
            has_terminals: AtomicBool::new(false),
            is_logged_in: AtomicBool::new(false),
        })
    }

    /// Until something ends it.
    pub(super) async fn run(&self, mut incoming: mpsc::Receiver<Value>) -> End {
        let mut turns = FuturesUnordered::new();
        loop {
            let message = tokio::select! {
                Some(message) = incoming.recv() => message,
                Some(end) = turns.next(), if !turns.is_empty() => match end {
                    Some(end) => return end,
                    None => continue,
                },
                else => std::future::pending().await,
            };
            let method = text_at(&message, "method");
            let params = message.get("params").cloned().unwrap_or_default();
            let Some(id) = message.get("id").filter(|id| !id.is_null()).cloned() else {
                self.notified(&method, &params);
                continue;
            };
            if method.is_empty() {
                self.out.answered(message);
                continue;
            }
            let stage = match method.as_str() {
                "initialize" => Some(Stage::Initialize),
                "session/new" => Some(Stage::New),
                "session/load" | "session/resume" => Some(Stage::Load),
                "session/prompt" => Some(Stage::Prompt),
                _ => None,
            };
            if stage.is_some() && self.options.crash_at == stage {
                return End::Crash;
            }
            match method.as_str() {
                "initialize" if self.options.no_answer => {}
                "authenticate" if self.options.auth_answer == AuthAnswer::Never => {}
                _ if !self.admits(&method) => {
                    let refused = Refused(-32000, "Authentication required".to_owned());
                    self.answer(&id, Err(refused)).await;
                }
                "session/prompt" => match self.begin_turn(&params) {
                    Ok(turn) => turns.push(self.turn(turn, id)),
                    Err(refused) => self.answer(&id, Err(refused)).await,
                },
                "session/load" => {
                    let answer = self.take_up(&params);
                    let is_known = answer.is_ok();
                    if is_known && self.options.replay == Replay::Before {
                        self.tell_again(&params).await;
                    }
                    self.answer(&id, answer).await;
                    if is_known && self.options.replay == Replay::After {
                        self.tell_again(&params).await;
                    }
                }
                _ => self.answer(&id, self.request(&method, &params)).await,
            }
        }
    }

    async fn answer(&self, id: &Value, answer: Answer) {
        let message = match answer {
            Ok(result) => json!({ "id": id, "result": result }),
            Err(Refused(code, message)) => {
                json!({ "id": id, "error": { "code": code, "message": message } })
            }
        };
        self.out.message(message).await;
    }

    fn notified(&self, method: &str, params: &Value) {
        if method == "session/cancel" && !self.out.is_deaf() {
            let cancelled = lock(&self.turns).get(&text_at(params, "sessionId")).cloned();
            if let Some(cancelled) = cancelled {
                cancelled.notify_one();
            }
        }
    }

    fn request(&self, method: &str, params: &Value) -> Answer {
        let id = text_at(params, "sessionId");
        match method {
            "initialize" => Ok(self.initialize(params)),
            "authenticate" => self.authenticate(&text_at(params, "methodId")),
            "session/new" => {
                let id = format!("echo-{}", unique());
                let cwd = PathBuf::from(text_at(params, "cwd"));
                let session = Session {
                    cwd,
                    mode: "normal".to_owned(),
                    model: "small".to_owned(),
                    ..Session::default()
                };
                lock(&self.memory).put(&id, Some(&session))?;
                let mut opened = features(&session);
                opened["sessionId"] = id.into();
                Ok(opened)
            }
            "session/resume" if !self.options.no_resume => self.take_up(params),
            "session/fork" if !self.options.no_fork => {
                let session = self.session(&id)?;
                let fork = format!("echo-{}", unique());
                lock(&self.memory).put(&fork, Some(&session))?;
                let mut opened = features(&session);
                opened["sessionId"] = fork.into();
                Ok(opened)
            }
            "session/list" => {
                let memory = lock(&self.memory);
                let session = |(id, session): (&String, &Session)| json!({ "sessionId": id, "cwd": session.cwd, "title": session.prompts.first() });
                Ok(json!({ "sessions": memory.iter().map(session).collect::<Vec<_>>() }))
            }
            "session/close" => {
                self.notified("session/cancel", params);
                Ok(json!({}))
            }
            "session/delete" => {
                lock(&self.memory).put(&id, None)?;
                Ok(json!({}))
            }
            "session/set_mode" => {
                let mut session = self.session(&id)?;
                session.mode = choice(MODES, &text_at(params, "modeId"))?;
                lock(&self.memory).put(&id, Some(&session))?;
                Ok(json!({}))
            }
            "session/set_model" => {
                let mut session = self.session(&id)?;
                session.model = choice(MODELS, &text_at(params, "modelId"))?;
                lock(&self.memory).put(&id, Some(&session))?;
                Ok(json!({}))
            }
            "session/set_config_option" => {
                let mut session = self.session(&id)?;
                let value = params.get("value").and_then(Value::as_bool);
                let (LOUD, Some(is_loud)) = (text_at(params, "configId").as_str(), value) else {
                    return Err(Refused(-32602, "Unknown option".to_owned()));
                };
                session.is_loud = is_loud;
                lock(&self.memory).put(&id, Some(&session))?;
                Ok(json!({ "configOptions": config_options(&session) }))
            }
            _ => Err(Refused(-32601, format!("Method not found: {method}"))),
        }
    }

    fn initialize(&self, params: &Value) -> Value {
        let terminals = params.pointer("/clientCapabilities/terminal").and_then(Value::as_bool);
        self.has_terminals.store(terminals.unwrap_or_default(), Ordering::Relaxed);
        if let Some(rules) = params.get("_meta").and_then(|meta| meta.get(mask::META)) {
            lock(&self.memory).mask_by(rules);
        }
        let mut sessions = json!({ "list": {}, "close": {}, "delete": {} });
        if !self.options.no_fork {
            sessions["fork"] = json!({});
        }
        if !self.options.no_resume {
            sessions["resume"] = json!({});
        }
        json!({
            "protocolVersion": self.options.protocol.unwrap_or(1),
            "agentCapabilities": {
                "loadSession": !self.options.no_load,
                "promptCapabilities": { "image": true, "audio": true, "embeddedContext": true },
                "sessionCapabilities": sessions,
            },
            "agentInfo": { "name": "echo", "version": env!("CARGO_PKG_VERSION") },
            "authMethods": self.auth_methods(),
        })
    }

    fn auth_methods(&self) -> Value {
        let methods = self.options.auth.iter().map(|id| {
            json!({ "id": id, "name": format!("Log in by {id}"), "description": "Nothing is checked" })
        });
        methods.collect()
    }

    fn authenticate(&self, method_id: &str) -> Answer {
        match &self.options.auth {
            Some(known) if known != method_id => {
                Err(Refused(-32602, format!("Unknown method {method_id}")))
            }
            _ if self.options.auth_answer == AuthAnswer::Refuse => {
                Err(Refused(-32000, "The key is not good".to_owned()))
            }
            _ => {
                self.is_logged_in.store(true, Ordering::Relaxed);
                Ok(json!({}))
            }
        }
    }

    /// Whether the client may call this method: without a login, `session/` methods are refused.
    fn admits(&self, method: &str) -> bool {
        self.options.auth.is_none()
            || self.is_logged_in.load(Ordering::Relaxed)
            || !method.starts_with("session/")
    }

    fn session(&self, id: &str) -> Result<Session, Refused> {
        let not_found = || Refused(-32002, format!("Session not found: {id}"));
        lock(&self.memory).get(id).cloned().ok_or_else(not_found)
    }

    /// An earlier session.
    fn take_up(&self, params: &Value) -> Answer {
        let id = text_at(params, "sessionId");
        if self.options.refuse_session {
            return Err(Refused(-32002, format!("Session not found: {id}")));
        }
        let session = self.session(&id)?;
        Ok(features(&session))
    }

    async fn tell_again(&self, params: &Value) {
        let id = text_at(params, "sessionId");
        let Ok(session) = self.session(&id) else { return };
        for update in &session.transcript {
            self.out.update(&id, update).await;
        }
    }

    fn begin_turn(&self, params: &Value) -> Result<Turn<'_>, Refused> {
        let id = text_at(params, "sessionId");
        let session = self.session(&id)?;
        let cancelled = Arc::new(Notify::new());
        let mut turns = lock(&self.turns);
        if turns.contains_key(&id) {
            return Err(Refused(-32600, "A turn is under way".to_owned()));
        }
        turns.insert(id.clone(), Arc::clone(&cancelled));
        let blocks = params.get("prompt").and_then(Value::as_array).into_iter().flatten();
        let prompt: String = blocks.map(said_in).collect();
        let script = lock(&self.script).pop_front();
        Ok(Turn::new(self, id, session, prompt, script.as_deref(), cancelled))
    }

    /// How it ended the agent, if it did.
    async fn turn(&self, turn: Turn<'_>, rpc_id: Value) -> Option<End> {
        let id = turn.session_id().to_owned();
        let (stop, session) = turn.run().await;
        let reason = match stop {
            Ok(reason) => reason,
            Err(end) => {
                self.out.flush().await;
                return Some(end);
            }
        };
        let kept = lock(&self.memory).put(&id, Some(&session));
        lock(&self.turns).remove(&id);
        let answer = kept.map(|()| json!({ "stopReason": reason })).map_err(Refused::from);
        self.answer(&rpc_id, answer).await;
        None
    }
}

/// A block as it is said back: text as it is, everything else by its kind and size on a line.
fn said_in(block: &Value) -> String {
    let kind = text_at(block, "type");
    let line = |mime: &str, name: &str, bytes: usize| {
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        format!("\n[{kind} {mime}{name} {bytes} bytes]\n")
    };
    match kind.as_str() {
        "image" | "audio" => {
            line(&text_at(block, "mimeType"), &text_at(block, "uri"), text_at(block, "data").len())
        }
        "resource_link" => line(&text_at(block, "mimeType"), &text_at(block, "uri"), 0),
        "resource" => {
            let resource = &block["resource"];
            let bytes = text_at(resource, "text").len() + text_at(resource, "blob").len();
            line(&text_at(resource, "mimeType"), &text_at(resource, "uri"), bytes)
        }
        _ => text_at(block, "text"),
    }
}

const MODES: &[&str] = &["normal", "quiet"];
const MODELS: &[&str] = &["small", "large"];
const LOUD: &str = "loud";

fn choice(offered: &[&str], id: &str) -> Result<String, Refused> {
    let unknown = || Refused(-32602, format!("{id:?} is none of {offered:?}"));
    offered.contains(&id).then(|| id.to_owned()).ok_or_else(unknown)
}

fn capitalized(id: &str) -> String {
    let mut letters = id.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn config_options(session: &Session) -> Value {
    json!([{
        "id": LOUD, "name": "Loud", "description": "Changes nothing",
        "type": "boolean", "currentValue": session.is_loud,
    }])
}

/// What can be chosen, and what is.
fn features(session: &Session) -> Value {
    let mode = |id: &&str| json!({ "id": id, "name": capitalized(id) });
    let model = |id: &&str| json!({ "modelId": id, "name": capitalized(id) });
    let current_model = if session.model.is_empty() { MODELS[0] } else { &session.model };
    json!({
        "modes": {
            "currentModeId": session.mode,
            "availableModes": MODES.iter().map(mode).collect::<Vec<_>>(),
        },
        "models": {
            "currentModelId": current_model,
            "availableModels": MODELS.iter().map(model).collect::<Vec<_>>(),
        },
        "configOptions": config_options(session),
    })
}
