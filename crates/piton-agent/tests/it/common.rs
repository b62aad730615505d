//! A client whose notes can be waited for, with an agent at the other end of in-memory streams.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use piton_agent::acp::{Begin, Connection, Error, Limits, MakeIds, Opened, Options};
use piton_agent::{
    HostError, Journal, JournalClosed, TerminalExit, TerminalOutput, TerminalSpec, ToolHost,
};
use piton_core::id::{CallId, MessageId, RunId, WaitId};
use piton_core::mask::{KeyPatterns, Masker};
use piton_core::spool::{Channel, Fact, Note};
use piton_echo as echo;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// Nothing here takes so long; a test that waits for what never comes fails.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for what must come.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, what).await.expect("it never came")
}

#[derive(Debug)]
pub struct Notes {
    kept: Mutex<Vec<Note>>,
    changed: watch::Sender<usize>,
    /// While closed nothing is kept.
    is_open: watch::Sender<bool>,
    is_gone: std::sync::atomic::AtomicBool,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            changed: watch::Sender::new(0),
            is_open: watch::Sender::new(true),
            is_gone: false.into(),
        }
    }
}

impl Journal for Notes {
    fn keep(&self, notes: Vec<Note>) -> BoxFuture<'_, Result<(), JournalClosed>> {
        async move {
            let mut is_open = self.is_open.subscribe();
            is_open.wait_for(|open| *open).await.unwrap();
            if self.is_gone.load(Ordering::Relaxed) {
                return Err(JournalClosed);
            }
            let mut all = self.kept.lock().unwrap();
            all.extend(notes);
            self.changed.send_replace(all.len());
            Ok(())
        }
        .boxed()
    }
}

impl Notes {
    pub fn open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }

    pub fn refuse_from_now_on(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    pub fn all(&self) -> Vec<Note> {
        self.kept.lock().unwrap().clone()
    }

    pub fn facts(&self) -> Vec<Fact> {
        self.all().into_iter().map(|note| note.fact).collect()
    }

    /// The first fact of which `pick` makes something, as soon as it is there.
    pub async fn until<T>(&self, pick: impl Fn(&Fact) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        soon(async {
            loop {
                changed.borrow_and_update();
                if let Some(found) = self.facts().iter().find_map(&pick) {
                    return found;
                }
                changed.changed().await.unwrap();
            }
        })
        .await
    }

    pub async fn asked(&self) -> (WaitId, Value) {
        self.until(|fact| match fact {
            Fact::WaitOpened { wait_id, question, .. } => Some((wait_id.clone(), question.clone())),
            _ => None,
        })
        .await
    }

    /// The messages of a channel, by id, in order. Panics if an offset does not fit.
    pub fn messages(&self, channel: Channel) -> Vec<String> {
        let mut order: Vec<MessageId> = Vec::new();
        let mut texts: BTreeMap<MessageId, String> = BTreeMap::new();
        for fact in self.facts() {
            match fact {
                Fact::Text { message_id, channel: of, offset, text } if of == channel => {
                    let whole = texts.entry(message_id.clone()).or_insert_with(|| {
                        order.push(message_id);
                        String::new()
                    });
                    assert_eq!(offset, whole.len() as u64);
                    whole.push_str(&text);
                }
                Fact::TextEnd { message_id, length, hash } => {
                    if let Some(whole) = texts.get(&message_id) {
                        assert_eq!(length, whole.len() as u64);
                        assert_eq!(hash, blake3::hash(whole.as_bytes()).to_hex().to_string());
                    }
                }
                _ => {}
            }
        }
        order.iter().map(|id| texts[id].clone()).collect()
    }

    pub fn answers(&self) -> Vec<String> {
        self.messages(Channel::Answer)
    }

    pub fn updates(&self, what: &str) -> Vec<Value> {
        let facts = self.facts().into_iter();
        facts
            .filter_map(|fact| match fact {
                Fact::Update { what: said, update } if said == what => Some(update),
                _ => None,
            })
            .collect()
    }

    pub fn dropped(&self) -> Vec<(String, u64)> {
        let facts = self.facts().into_iter();
        facts
            .filter_map(|fact| match fact {
                Fact::Dropped { why, bytes } => Some((why, bytes)),
                _ => None,
            })
            .collect()
    }
}

#[derive(Debug, Default)]
pub struct Ids(AtomicU64);

impl Ids {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl MakeIds for Ids {
    fn message(&self) -> MessageId {
        format!("msg_{}", self.next()).parse().unwrap()
    }

    fn wait(&self) -> WaitId {
        format!("wait_{}", self.next()).parse().unwrap()
    }

    fn call(&self) -> CallId {
        format!("call_{}", self.next()).parse().unwrap()
    }
}

/// Files in memory; a terminal ends when it is let go of, or at once.
#[derive(Debug, Default)]
pub struct Host {
    pub files: Mutex<BTreeMap<PathBuf, String>>,
    pub terminals: Mutex<BTreeMap<String, TerminalSpec>>,
    /// Commands do not end before this.
    pub finish: Option<Arc<Notify>>,
}

const NO_TERMINAL: HostError =
    HostError { code: piton_core::Code::TerminalNotFound, message: String::new() };

impl ToolHost for Host {
    fn read_text_file(
        &self,
        path: PathBuf,
        _line: Option<u32>,
        _limit: Option<u32>,
    ) -> BoxFuture<'_, Result<String, HostError>> {
        let missing =
            HostError { code: piton_core::Code::NotFound, message: "No such file".to_owned() };
        let text = self.files.lock().unwrap().get(&path).cloned();
        async { text.ok_or(missing) }.boxed()
    }

    fn write_text_file(
        &self,
        path: PathBuf,
        content: String,
    ) -> BoxFuture<'_, Result<(), HostError>> {
        self.files.lock().unwrap().insert(path, content);
        async { Ok(()) }.boxed()
    }

    fn create_terminal(&self, spec: TerminalSpec) -> BoxFuture<'_, Result<String, HostError>> {
        let mut terminals = self.terminals.lock().unwrap();
        let id = format!("term-{}", terminals.len());
        terminals.insert(id.clone(), spec);
        async { Ok(id) }.boxed()
    }

    fn terminal_output(&self, id: String) -> BoxFuture<'_, Result<TerminalOutput, HostError>> {
        let spec = self.terminals.lock().unwrap().get(&id).cloned();
        async move {
            let spec = spec.ok_or(NO_TERMINAL)?;
            let output = format!("output of {}", spec.args.join(" "));
            let exit = Some(TerminalExit { exit_code: Some(0), signal: None });
            Ok(TerminalOutput { output, truncated: false, exit })
        }
        .boxed()
    }

    fn wait_for_exit(&self, _id: String) -> BoxFuture<'_, Result<TerminalExit, HostError>> {
        let finish = self.finish.clone();
        async move {
            if let Some(finish) = finish {
                finish.notified().await;
            }
            Ok(TerminalExit { exit_code: Some(0), signal: None })
        }
        .boxed()
    }

    fn kill_terminal(&self, _id: String) -> BoxFuture<'_, Result<(), HostError>> {
        async { Ok(()) }.boxed()
    }

    fn release_terminal(&self, id: String) -> BoxFuture<'_, Result<(), HostError>> {
        let known = self.terminals.lock().unwrap().remove(&id);
        async move { known.map(drop).ok_or(NO_TERMINAL) }.boxed()
    }
}

pub struct Setup {
    pub limits: Limits,
    pub secrets: Vec<&'static str>,
    pub host: Host,
    /// What fits between client and agent before one of them has to wait.
    pub pipe_bytes: usize,
}

impl Default for Setup {
    fn default() -> Self {
        let (secrets, host) = (Vec::new(), Host::default());
        Self { limits: Limits::default(), secrets, host, pipe_bytes: 64 * 1024 }
    }
}

pub struct World {
    pub notes: Arc<Notes>,
    pub host: Arc<Host>,
    pub connection: Connection,
    pub driver: JoinHandle<Result<(), Error>>,
}

/// The agent's end.
pub struct AgentEnd {
    pub reader: DuplexStream,
    pub writer: DuplexStream,
}

pub fn world(setup: Setup) -> (World, AgentEnd) {
    let (to_agent, reader) = tokio::io::duplex(setup.pipe_bytes);
    let (writer, from_agent) = tokio::io::duplex(setup.pipe_bytes);
    let notes = Arc::new(Notes::default());
    let host = Arc::new(setup.host);
    let options = Options {
        masker: Arc::new(Masker::new(KeyPatterns::default(), setup.secrets).unwrap()),
        journal: Arc::clone(&notes) as Arc<dyn Journal>,
        host: Arc::clone(&host) as Arc<dyn ToolHost>,
        ids: Arc::new(Ids::default()),
        limits: setup.limits,
    };
    let (connection, driver) = Connection::open(from_agent, to_agent, options);
    let driver = tokio::spawn(driver);
    (World { notes, host, connection, driver }, AgentEnd { reader, writer })
}

/// A client with `echo` at the other end.
pub fn with_echo(setup: Setup, options: echo::Options) -> World {
    let (world, agent) = world(setup);
    tokio::spawn(echo::serve(agent.reader, agent.writer, options));
    world
}

pub async fn ready() -> World {
    ready_with(Setup::default(), echo::Options::default()).await
}

pub async fn ready_with(setup: Setup, options: echo::Options) -> World {
    let world = with_echo(setup, options);
    soon(world.connection.initialize()).await.unwrap();
    world.begin(None, &[]).await.unwrap();
    world
}

pub fn run(n: u32) -> RunId {
    format!("run_{n}").parse().unwrap()
}

impl World {
    pub async fn begin(&self, id: Option<&str>, seen: &[String]) -> Result<Opened, Error> {
        let begin = Begin {
            cwd: std::env::temp_dir(),
            agent_session_id: id.map(str::to_owned),
            seen_message_ids: seen.to_vec(),
            ..Begin::default()
        };
        soon(self.connection.begin(begin)).await
    }

    /// A whole turn; gives its stop reason.
    pub async fn turn(&self, prompt: &str) -> Result<String, Error> {
        let turn = soon(self.connection.prompt(run(1), prompt)).await?;
        soon(turn.ended()).await
    }

    /// Until the agent's output ended.
    pub async fn over(self) -> Result<(), Error> {
        soon(self.driver).await.unwrap()
    }
}

/// An agent whose every line a test writes.
pub struct ScriptedAgent {
    lines: tokio::io::Lines<BufReader<DuplexStream>>,
    pub writer: DuplexStream,
}

impl ScriptedAgent {
    pub fn new(agent: AgentEnd) -> Self {
        Self { lines: BufReader::new(agent.reader).lines(), writer: agent.writer }
    }

    /// What the client says next.
    pub async fn hear(&mut self) -> Value {
        let line = soon(self.lines.next_line()).await.unwrap().expect("the client is gone");
        serde_json::from_str(&line).unwrap()
    }

    pub async fn line(&mut self, line: &str) {
        soon(self.writer.write_all(format!("{line}\n").as_bytes())).await.unwrap();
    }

    pub async fn say(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        self.line(&message.to_string()).await;
    }

    pub async fn answer(&mut self, asked: &Value, result: Value) {
        self.say(json!({ "id": asked["id"], "result": result })).await;
    }

    pub async fn update(&mut self, update: Value) {
        let params = json!({ "sessionId": "s1", "update": update });
        self.say(json!({ "method": "session/update", "params": params })).await;
    }

    pub async fn chunk(&mut self, text: &str) {
        let content = json!({ "type": "text", "text": text });
        self.update(json!({ "sessionUpdate": "agent_message_chunk", "content": content })).await;
    }

    /// Answers `initialize` and what follows it until the session is open.
    pub async fn open(&mut self, capabilities: Value) {
        let asked = self.hear().await;
        assert_eq!(asked["method"], "initialize");
        let hello = json!({ "protocolVersion": 1, "agentCapabilities": capabilities });
        self.answer(&asked, hello).await;
    }
}

/// A client in a turn with a puppet.
pub async fn in_turn(setup: Setup) -> (World, ScriptedAgent, Value, piton_agent::acp::Turn) {
    let (world, agent) = world(setup);
    let mut scripted = ScriptedAgent::new(agent);
    let opening = async {
        world.connection.initialize().await.unwrap();
        world.begin(None, &[]).await.unwrap();
        world.connection.prompt(run(1), "go").await.unwrap()
    };
    let answering = async {
        scripted.open(json!({})).await;
        let asked = scripted.hear().await;
        assert_eq!(asked["method"], "session/new");
        scripted.answer(&asked, json!({ "sessionId": "s1" })).await;
        scripted.hear().await
    };
    let (turn, prompt) = Box::pin(soon(async { tokio::join!(opening, answering) })).await;
    assert_eq!(prompt["method"], "session/prompt");
    (world, scripted, prompt, turn)
}
