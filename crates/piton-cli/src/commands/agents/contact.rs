//! An agent that is started, asked who it is, and ended with everything that it started. It works in a
//! folder of its own that is removed; its home is where it always was. Nothing is said to a model.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use piton_agent::acp::{self, Connection, Hello, MakeIds};
use piton_agent::profiles::Profile;
use piton_agent::{
    HostError, Journal, JournalClosed, TerminalExit, TerminalOutput, TerminalSpec, ToolHost,
};
use piton_agentctl::tree::{self, ProcessRole, Program, Scope, Streams, Tree};
use piton_core::Code;
use piton_core::id::{CallId, ExecutionId, MessageId, WaitId};
use piton_core::mask::Masker;
use piton_core::spool::Note;
use piton_exec::leftovers::Mark;
use piton_store::{Entropy as _, OsEntropy};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::agents;
use crate::context::Context;
use crate::error::Exit;
use crate::masking;

/// The default timeout for an agent's answer to `initialize`.
pub(super) const WAIT: Duration = Duration::from_secs(30);
/// Between the end of its input and a signal.
const EXIT_WAIT: Duration = Duration::from_secs(2);
/// Between SIGTERM and SIGKILL.
const TERM_WAIT: Duration = Duration::from_secs(3);
/// Of what it wrote to its error output.
const LAST_WORDS_BYTES_MAX: usize = 2 * 1024;

/// An agent that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) hello: Hello,
    pub(super) after: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) message: String,
    /// The end of what it wrote to its error output, masked.
    pub(super) last_words: String,
    pub(super) wants_login: bool,
}

impl Failure {
    fn new(code: Code, message: impl Into<String>) -> Self {
        let (message, last_words) = (message.into(), String::new());
        Self { code, message, last_words, wants_login: false }
    }

    fn from_start(profile: &Profile, error: &io::Error) -> Self {
        let program = agents::program(profile);
        match error.kind() {
            io::ErrorKind::NotFound => {
                Self::new(Code::AgentMissing, format!("The program {program:?} is not found"))
            }
            io::ErrorKind::PermissionDenied => {
                let message = format!("The program {program:?} may not be executed");
                Self::new(Code::AgentNotExecutable, message)
            }
            _ => {
                let message = format!("The program {program:?} does not start: {error}");
                Self::new(Code::AgentStartFailed, message)
            }
        }
    }
}

/// What came of it; or the signal that ended us meanwhile.
pub(super) enum Asked {
    Heard(Heard),
    Failed(Failure),
    Interrupted(Exit),
}

/// Starts the agent, asks it, and ends it, whatever happens meanwhile.
pub(super) async fn ask(cx: &Context, profile: &Profile, wait: Duration) -> Asked {
    meet(cx, profile, wait, None).await
}

/// How to log in.
#[derive(Clone, Debug)]
pub(super) enum Login {
    /// The only way that the agent names.
    Only,
    By(String),
}

/// The same, and has it log in.
pub(super) async fn log_in(cx: &Context, profile: &Profile, wait: Duration, login: Login) -> Asked {
    meet(cx, profile, wait, Some(login)).await
}

async fn hear(connection: &Connection, login: Option<Login>) -> Result<Hello, acp::Error> {
    let hello = connection.initialize().await?;
    let Some(login) = login else { return Ok(hello) };
    let method = match (login, hello.auth_methods.as_slice()) {
        (Login::By(method), _) => method,
        (Login::Only, [only]) => only.id.clone(),
        (Login::Only, methods) => {
            let known: Vec<&str> = methods.iter().map(|method| method.id.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(acp::Error::AuthUnknown { id: String::new(), known });
        }
    };
    connection.log_in(&method).await?;
    Ok(hello)
}

async fn meet(cx: &Context, profile: &Profile, wait: Duration, login: Option<Login>) -> Asked {
    // Before anything is started: it must not outlive us.
    let Ok(mut signals) = Signals::new() else {
        return Asked::Failed(Failure::new(Code::AgentStartFailed, "There are no signals to hear"));
    };
    let (place, masker, mut child) = match start(cx, profile) {
        Ok(started) => started,
        Err(failure) => return Asked::Failed(failure),
    };
    let streams = (child.stdout.take(), child.stdin.take(), child.stderr.take());
    let (Some(output), Some(input), Some(errors)) = streams else {
        place.clear(&mut child).await;
        return Asked::Failed(Failure::new(Code::AgentStartFailed, "It has no pipes"));
    };
    let last_words = LastWords::default();
    let reading = tokio::spawn(last_words.clone().read(errors));
    let (connection, driver) = Connection::open(output, input, options(&masker, wait));
    let driver = tokio::spawn(driver);
    let began = Instant::now();
    let heard = tokio::select! {
        heard = hear(&connection, login) => Ok(heard),
        exit = signals.wait_after_stop() => Err(exit),
    };
    let after = began.elapsed();
    connection.close();
    // One that was interrupted is not waited for.
    if heard.is_ok() {
        let _ = tokio::time::timeout(EXIT_WAIT, child.wait()).await;
    }
    place.clear(&mut child).await;
    driver.abort();
    // All who could write to it are gone; what is in the pipe is read at once.
    let _ = tokio::time::timeout(EXIT_WAIT, reading).await;
    match heard {
        Ok(Ok(hello)) => Asked::Heard(Heard { hello, after }),
        Ok(Err(error)) => Asked::Failed(Failure {
            code: error.code(),
            message: masker.text(&error.to_string()).into_owned(),
            last_words: last_words.text(&masker),
            wants_login: error.is_auth(),
        }),
        Err(exit) => Asked::Interrupted(exit),
    }
}

/// What tells this process to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let (interrupt, terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate })
    }

    async fn wait_after_stop(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Signal(2),
            _ = self.terminate.recv() => Exit::Signal(15),
        }
    }
}

fn start(cx: &Context, profile: &Profile) -> Result<(ProbeFolder, Arc<Masker>, Child), Failure> {
    let failed = |why: &str| Failure::new(Code::AgentStartFailed, why);
    let masker = masking::masker(&cx.settings).map_err(|error| failed(error.message()))?;
    let place = ProbeFolder::new(cx)
        .map_err(|error| failed(&format!("There is no place to start it in: {error}")))?;
    let child = place.start(profile).map_err(|error| Failure::from_start(profile, &error))?;
    Ok((place, Arc::new(masker), child))
}

/// Where it works, and how all that it starts is found.
#[derive(Debug)]
struct ProbeFolder {
    folder: tempfile::TempDir,
    tree: Tree,
}

impl ProbeFolder {
    fn new(cx: &Context) -> io::Result<Self> {
        // Where that is unknown, what it leaves is found by its mark.
        let _ = tree::become_subreaper();
        let folder = tempfile::Builder::new().prefix("piton-probe-").tempdir()?;
        let mut random = [0; 10];
        OsEntropy.fill(&mut random).map_err(io::Error::other)?;
        let now = u64::try_from(cx.now().as_millis()).unwrap_or_default();
        let mark = Mark::of(&ExecutionId::new(now, random), folder.path())?;
        Ok(Self { folder, tree: Tree::without_cgroup(&mark) })
    }

    fn start(&self, profile: &Profile) -> io::Result<Child> {
        let command = profile.command.iter();
        let command = command.map(|part| part.replace(piton_runtime::SESSION_PLACEHOLDER, "probe"));
        self.tree.spawn(Program {
            command: command.collect(),
            cwd: self.folder.path().to_owned(),
            env: profile.env.clone(),
            env_remove: profile.env_remove.clone(),
            part: ProcessRole::Agent,
            streams: Streams::Piped,
        })
    }

    async fn clear(&self, child: &mut Child) {
        // What does not even end by SIGKILL is not ours to wait for.
        let _ = self.tree.end(Scope::All, TERM_WAIT).await;
        let _ = tokio::time::timeout(EXIT_WAIT, child.wait()).await;
    }
}

fn options(masker: &Arc<Masker>, wait: Duration) -> acp::Options {
    acp::Options {
        masker: Arc::clone(masker),
        journal: Arc::new(Nothing),
        host: Arc::new(Nothing),
        ids: Arc::new(Nothing),
        limits: acp::Limits { start_wait: wait, ..acp::Limits::default() },
    }
}

/// The end of what it wrote to its error output. Clones are the same.
#[derive(Clone, Debug, Default)]
struct LastWords(Arc<Mutex<Vec<u8>>>);

impl LastWords {
    /// Reads until the end, so that an agent never blocks on a full stderr pipe.
    async fn read(self, mut from: impl AsyncRead + Unpin) {
        let mut piece = vec![0; 8 * 1024];
        while let Ok(read) = from.read(&mut piece).await
            && read > 0
        {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&piece[..read]);
            let over = kept.len().saturating_sub(LAST_WORDS_BYTES_MAX);
            kept.drain(..over);
        }
    }

    fn text(&self, masker: &Masker) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        masker.text(String::from_utf8_lossy(&kept).trim()).into_owned()
    }
}

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keeps nothing and does nothing: an agent that is only asked who it is has nothing to ask for.
#[derive(Debug)]
struct Nothing;

impl Journal for Nothing {
    fn keep(&self, _notes: Vec<Note>) -> Later<'_, Result<(), JournalClosed>> {
        Box::pin(async { Ok(()) })
    }
}

impl MakeIds for Nothing {
    fn message(&self) -> MessageId {
        MessageId::new(0, [0; 10])
    }

    fn wait(&self) -> WaitId {
        WaitId::new(0, [0; 10])
    }

    fn call(&self) -> CallId {
        CallId::new(0, [0; 10])
    }
}

fn refused<T: Send + 'static>() -> Later<'static, Result<T, HostError>> {
    let message = "This agent is only asked who it is".to_owned();
    Box::pin(async { Err(HostError { code: Code::AgentNotOffered, message }) })
}

impl ToolHost for Nothing {
    fn read_text_file(
        &self,
        _path: PathBuf,
        _line: Option<u32>,
        _limit: Option<u32>,
    ) -> Later<'_, Result<String, HostError>> {
        refused()
    }

    fn write_text_file(
        &self,
        _path: PathBuf,
        _content: String,
    ) -> Later<'_, Result<(), HostError>> {
        refused()
    }

    fn create_terminal(&self, _spec: TerminalSpec) -> Later<'_, Result<String, HostError>> {
        refused()
    }

    fn terminal_output(&self, _id: String) -> Later<'_, Result<TerminalOutput, HostError>> {
        refused()
    }

    fn wait_for_exit(&self, _id: String) -> Later<'_, Result<TerminalExit, HostError>> {
        refused()
    }

    fn kill_terminal(&self, _id: String) -> Later<'_, Result<(), HostError>> {
        refused()
    }

    fn release_terminal(&self, _id: String) -> Later<'_, Result<(), HostError>> {
        refused()
    }
}
