//! One agent's life.

use std::future::pending;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use piton_agent::acp::{self, Begin, Connection, Opened};
use piton_agent::profiles;
use piton_core::id::{RunId, SessionId};
use piton_core::mask;
use piton_core::spool::{AuthMethod, Fact, Note};
use piton_core::{Code, Timestamp};
use piton_exec::protocol::{AgentStatus, Start};
use serde_json::json;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::agent_link::AgentLink;
use super::stderr::Stderr;
use super::{AgentProcess, Ids, one_shot};
use crate::spool::{self, Limit};
use crate::tree::{ProcessRole, Program, Scope, Streams};

/// The agent that is part of Piton. No setting can give another one its name.
const BUILT_IN: &str = "echo";
/// What it still has to say, once everything that could say it is dead.
pub(super) const REMAINING_OUTPUT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between the end of its output and its own.
pub(super) const EXIT_WAIT: Duration = Duration::from_secs(2);
/// Who takes so long to say what it does waits for room in the spool.
const SLOW_WRITER_DELAY: Duration = Duration::from_millis(500);

/// Why it did not come to life.
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) message: String,
    /// How one could log in, if that is what it wants.
    auth_methods: Vec<AuthMethod>,
}

impl Failure {
    pub(super) fn new(code: Code, message: String) -> Self {
        Self { code, message, auth_methods: Vec::new() }
    }

    fn to_log_in(error: &acp::Error, session: &SessionId, auth_methods: Vec<AuthMethod>) -> Self {
        let mut message =
            format!("{error}. Log in with the agent's own command, and start it again");
        if auth_methods.is_empty() {
            message.push_str("; it names no other way");
        } else {
            let command = format!("`piton sessions login {session} --method METHOD`");
            message.push_str("; or with ");
            message.push_str(&command);
            message.push_str(" and one of the methods that it names:");
        }
        let ways = auth_methods.iter().map(|way| match &way.description {
            Some(about) => format!("\n- {}: {} ({about})", way.id, way.name),
            None => format!("\n- {}: {}", way.id, way.name),
        });
        message.extend(ways);
        Self { code: error.code(), message, auth_methods }
    }
}

/// From its start to its end; gives the status that stays.
pub(super) async fn run(
    owner: &AgentProcess,
    start: Start,
    connected: watch::Sender<Option<AgentLink>>,
    mut stop: watch::Receiver<bool>,
) -> AgentStatus {
    let owner = &owner.with_secrets_of(&start);
    owner.context.spool.limit(Limit::Kept);
    note(owner, Fact::AgentStarting {}).await;
    // What a predecessor left must not meet its successor.
    let term = owner.term();
    let cleared = owner.context.workspace.tree().end(Scope::Agent, term).await;
    if let Err(error) = cleared {
        let message = format!("What an earlier agent left running does not end: {error}");
        return failed(owner, Failure::new(Code::ProcessesRemain, message), None).await;
    }
    let cwd = start.cwd.clone().unwrap_or_else(|| owner.context.workspace.root().to_owned());
    if let Some(line) = start.command_line.clone() {
        return one_shot::run(owner, start, line, cwd, connected, stop).await;
    }
    let mut child = match spawn(owner, &start, start.command.clone(), &cwd) {
        Ok(child) => child,
        Err(failure) => return failed(owner, failure, None).await,
    };
    let stderr = Stderr::new(owner.context.masker.clone());
    if let Some(from) = child.stderr.take() {
        tokio::spawn(stderr.clone().read(from));
    }
    let (Some(output), Some(input)) = (child.stdout.take(), child.stdin.take()) else {
        let failure = Failure::new(Code::AgentStartFailed, "It has no pipes".to_owned());
        return failed(owner, failure, None).await;
    };
    let (connection, driver) = Connection::open(output, input, options(owner));
    let mut driver = tokio::spawn(driver);
    owner.set_pid(child.id());
    let begun = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => None,
        begun = begin(owner, &connection, start, cwd) => Some(begun),
    };
    let ended = match begun {
        Some(Ok(opened)) => {
            owner.set_ready(Some(opened.agent_session_id));
            connected.send_replace(Some(AgentLink::Acp(connection.clone())));
            tokio::select! {
                status = child.wait() => Ended::Exited(status),
                _ = &mut driver => Ended::Silent,
                () = connection.until_deaf() => Ended::NotReading,
                _ = stop.wait_for(|stop| *stop) => Ended::Asked,
            }
        }
        Some(Err(error)) => Ended::Failed(error),
        None => Ended::Asked,
    };
    // The burial takes its time; what is accepted meanwhile would reach no agent.
    connected.send_replace(None);
    drop(connected);
    bury(owner, ended, child, &connection, driver, &stderr, stop).await
}

enum Ended {
    Exited(io::Result<ExitStatus>),
    /// Its output ended.
    Silent,
    /// It does not listen.
    NotReading,
    Asked,
    /// It never became ready.
    Failed(acp::Error),
}

/// Everything that belongs to it ends, what it said is kept, and its end is noted.
async fn bury(
    owner: &AgentProcess,
    ended: Ended,
    mut child: Child,
    connection: &Connection,
    mut driver: JoinHandle<Result<(), acp::Error>>,
    stderr: &Stderr,
    mut stop: watch::Receiver<bool>,
) -> AgentStatus {
    if matches!(ended, Ended::Asked) {
        connection.set_ending();
    }
    // The end of its input is the polite way to say it.
    connection.close();
    if matches!(ended, Ended::Silent | Ended::NotReading | Ended::Failed(acp::Error::Closed)) {
        let _ = tokio::time::timeout(EXIT_WAIT, child.wait()).await;
    }
    let died = child.try_wait().ok().flatten();
    // What follows takes its time, and is no part of its life.
    let died_at = died.map(|_| spool::now());
    // The leftover processes of a killed agent must not continue the turn: no client receives what
    // they say.
    let is_killed = died.is_some_and(|status| status.signal().is_some());
    let term = if is_killed { Duration::ZERO } else { owner.term() };
    let remains = owner.context.workspace.tree().end(Scope::Agent, term).await;
    if let Err(error) = &remains {
        tracing::error!("The agent's processes do not end: {error}");
    }
    if remains.is_ok() {
        // Little is left in its pipes: read it without waiting for room in the spool.
        owner.context.spool.limit(Limit::Lifted);
    }
    let status = tokio::time::timeout(REMAINING_OUTPUT_TIMEOUT, child.wait())
        .await
        .ok()
        .and_then(Result::ok);
    // If its output had ended before it did, that was heard already: a task is heard once.
    if !driver.is_finished() {
        last_words(owner, &mut driver, &mut stop).await;
    }
    if let Err(error) = owner.context.host.release_all().await {
        tracing::warn!("A terminal of the agent does not end: {error}");
    }
    let asked = matches!(ended, Ended::Asked);
    if let Ended::Failed(error) = ended {
        let failure = match (error, died) {
            (acp::Error::Closed, Some(status)) => Failure::new(
                Code::AgentExited,
                format!("The agent ended before it was ready ({status})"),
            ),
            (error, _) if error.is_auth() => {
                let session = owner.context.session.clone();
                Failure::to_log_in(&error, &session, connection.auth_methods().await)
            }
            (error, _) => Failure::new(error.code(), error.to_string()),
        };
        return failed(owner, failure, Some(stderr)).await;
    }
    let status = match ended {
        Ended::Exited(Ok(status)) => Some(status),
        _ => status,
    };
    // That it disowned its conversation is noted: it is no error of its own that it is ended for that.
    let is_disowned = matches!(ended, Ended::NotReading) && connection.has_lost_session().await;
    let cut_off = match ended {
        Ended::Silent => Some("The agent closed its output, and was ended"),
        Ended::NotReading => Some("The agent stopped reading its input, and was ended"),
        _ => None,
    };
    owner.mark_ending();
    // The signal that it ends by is agentctl's own: who reads of it must not look for another.
    if let Some(why) = cut_off.filter(|_| died.is_none() && !is_disowned) {
        let (code, message) = (Code::AgentClosed.into(), why.to_owned());
        note(owner, Fact::AgentError { code, message, auth_methods: Vec::new() }).await;
    }
    let fact = Fact::AgentExited {
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        requested: asked,
        stderr: stderr.tail(),
    };
    note_at(owner, fact, died_at).await;
    AgentStatus::Exited
}

/// Waits until the spool has what the agent said. After a stop was requested it waits for
/// `REMAINING_OUTPUT_TIMEOUT`, not counting the time during which the disk refuses writes, and then returns
/// `None`.
pub(super) async fn last_words<T>(
    owner: &AgentProcess,
    reading: &mut JoinHandle<T>,
    stop: &mut watch::Receiver<bool>,
) -> Option<T> {
    let timeout = async {
        let _ = stop.wait_for(|stop| *stop).await;
        let mut left = REMAINING_OUTPUT_TIMEOUT;
        while !left.is_zero() {
            let pause = left.min(Duration::from_secs(1));
            tokio::time::sleep(pause).await;
            if owner.context.spool.refused().is_none() {
                left -= pause;
            }
        }
    };
    tokio::select! {
        biased;
        read = &mut *reading => return read.ok(),
        () = timeout => {}
    }
    tracing::error!("The agent's error output does not end; it is cut off");
    reading.abort();
    // The number of bytes is not known.
    note(owner, Fact::Dropped { why: "last_words_cut".to_owned(), bytes: 0 }).await;
    None
}

/// Ends an agent that continues a cancelled turn: it would block all later turns.
pub(super) async fn give_up_after(timeout: Duration, connection: Connection, run_id: RunId) {
    loop {
        tokio::time::sleep(timeout).await;
        let asked = tokio::time::Instant::now();
        if !connection.ignores_cancel(&run_id).await {
            return;
        }
        // While nothing can be kept nothing is read, and the answer may wait behind that.
        if asked.elapsed() < SLOW_WRITER_DELAY {
            tracing::warn!("The agent does not end the turn of {run_id}, and is ended itself");
            connection.give_up();
            return;
        }
    }
}

fn options(owner: &AgentProcess) -> acp::Options {
    let limits = owner.context.limits;
    let start_wait = Duration::from_millis(limits.start_ms_max);
    let line_bytes_max = usize::try_from(limits.message_bytes_max).unwrap_or(usize::MAX);
    acp::Options {
        masker: owner.context.masker.clone(),
        journal: Arc::new(owner.context.spool.clone()),
        host: Arc::new(owner.context.host.clone()),
        ids: Arc::new(Ids),
        limits: acp::Limits { line_bytes_max, start_wait, ..acp::Limits::default() },
    }
}

async fn begin(
    owner: &AgentProcess,
    connection: &Connection,
    start: Start,
    cwd: std::path::PathBuf,
) -> Result<Opened, acp::Error> {
    let profile = start.profile.as_deref().and_then(profiles::find);
    let hello = if start.profile.as_deref() == Some(BUILT_IN) {
        let rules = owner.context.masker.given();
        let rules = json!({ "values": rules.values, "keys": rules.keys });
        connection.initialize_with_meta(json!({ mask::META: rules })).await?
    } else if profile.as_ref().is_some_and(|profile| profile.quirks.no_client_files) {
        connection.initialize_without_files().await?
    } else {
        connection.initialize().await?
    };
    owner.state().capabilities = hello.capabilities;
    if let Some(method) = &start.auth_method {
        connection.log_in(method).await?;
    }
    let begin = Begin {
        wording: profile.map(|profile| profile.quirks.wording).unwrap_or_default(),
        cwd,
        mcp_servers: start.mcp_servers,
        agent_session_id: start.agent_session_id,
        fork: start.fork,
        seen_message_ids: start.seen_message_ids,
    };
    let opened = connection.begin(begin).await?;
    if !start.choice.is_empty() {
        connection.configure(&start.choice).await?;
    }
    Ok(opened)
}

pub(super) fn spawn(
    owner: &AgentProcess,
    start: &Start,
    command: Vec<String>,
    cwd: &Path,
) -> Result<Child, Failure> {
    if !cwd.is_dir() {
        let message = format!("The agent's folder {} is not there", cwd.display());
        return Err(Failure::new(Code::WorkspaceMissing, message));
    }
    let program = Program {
        command,
        cwd: cwd.to_owned(),
        env: start.env.clone(),
        env_remove: start.env_remove.clone(),
        part: ProcessRole::Agent,
        streams: Streams::Piped,
    };
    owner.context.workspace.tree().spawn(program).map_err(|error| not_started(start, &error))
}

/// Why its program could not be executed.
pub(super) fn not_started(start: &Start, error: &io::Error) -> Failure {
    let name = &start.command[0];
    let failure = Failure::new;
    let no_format = error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error());
    match error.kind() {
        io::ErrorKind::NotFound => {
            let hint = start.install_hint.as_deref().unwrap_or("Install it, or check PATH");
            let message = format!("The agent's program {name:?} is not there. {hint}");
            failure(Code::AgentMissing, message)
        }
        io::ErrorKind::PermissionDenied => {
            let message = format!("The agent's program {name:?} may not be executed");
            failure(Code::AgentNotExecutable, message)
        }
        _ if no_format => {
            let message = format!("The agent's program {name:?} is nothing to be executed");
            failure(Code::AgentNotExecutable, message)
        }
        _ => {
            let message = format!("The agent's program {name:?} does not start: {error}");
            failure(Code::AgentStartFailed, message)
        }
    }
}

pub(super) async fn failed(
    owner: &AgentProcess,
    failure: Failure,
    stderr: Option<&Stderr>,
) -> AgentStatus {
    let mut message = failure.message;
    let said = stderr.map(Stderr::tail).unwrap_or_default();
    if !said.is_empty() {
        message = format!("{message}\nIt last wrote:\n{said}");
    }
    let message = owner.context.masker.text(&message).into_owned();
    owner.mark_ending();
    let (code, auth_methods) = (failure.code.into(), failure.auth_methods);
    note(owner, Fact::AgentError { code, message, auth_methods }).await;
    AgentStatus::Error
}

/// Rare, and must not wait behind what the agent said too much of.
pub(super) async fn note(owner: &AgentProcess, fact: Fact) {
    note_at(owner, fact, None).await;
}

async fn note_at(owner: &AgentProcess, fact: Fact, at: Option<Timestamp>) {
    let kept = owner.context.spool.keep_now(vec![Note { run_id: None, fact, raw: None, at }]).await;
    if kept.is_err() {
        // It only closes after the agent's end, or when the process ends.
        pending::<()>().await;
    }
}
