//! An agent that speaks no protocol. Each turn is a process of its own, whose arguments name the
//! conversation to continue. Between turns there is no process, and the agent still counts as
//! ready.
//!
//! The spool has a turn's beginning before its process starts, and no turn is begun twice: if a
//! process dies, the user decides what to do, with what it said until then. Leftover processes of a
//! turn are ended before the turn's end is reported, and so before the next turn.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;

use piton_agent::acp;
use piton_agent::one_shot::{
    self as one_shot_output, Conversation, Format, Handle, ResumeSupport, Target, TurnOutput,
};
use piton_core::Code;
use piton_core::content::{PromptCapabilities, PromptContent};
use piton_core::id::RunId;
use piton_core::spool::{Fact, OpenedAs};
use piton_exec::protocol::{AgentStatus, CommandLine, ConversationTarget, Output, PromptBy, Start};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;

use super::agent_link::AgentLink;
use super::process::{
    EXIT_WAIT, Failure, REMAINING_OUTPUT_TIMEOUT, failed, last_words, not_started, note, spawn,
};
use super::stderr::Stderr;
use super::{AgentProcess, Ids};
use crate::spool::Limit;
use crate::tree::Scope;

/// The longest argument that the kernel takes, with its end.
const ARGUMENT_BYTES_MAX: usize = 128 * 1024;
/// Of what an agent says when its turn ends with an error.
const WORDS_BYTES_MAX: usize = 4 * 1024;

/// Takes prompts for an agent whose turns are processes. Clones speak to the same one.
#[derive(Clone, Debug)]
pub(super) struct OneShot {
    conversation: Conversation,
    /// Held while a turn's beginning or end is being kept.
    current: Arc<Mutex<Option<Current>>>,
    jobs: mpsc::Sender<Job>,
}

#[derive(Debug)]
struct Current {
    run_id: RunId,
    cancel: watch::Sender<bool>,
}

#[derive(Debug)]
struct Job {
    prompt: String,
    cancelled: watch::Receiver<bool>,
}

impl OneShot {
    /// A command line has room for text only: links are named in it, and the rest is refused.
    pub(super) async fn prompt(
        &self,
        run_id: RunId,
        content: &PromptContent,
    ) -> Result<(), acp::Error> {
        if let Some(kind) = content.first_unsupported(PromptCapabilities::default()) {
            return Err(acp::Error::ContentNotSupported { kind });
        }
        let mut current = self.current.lock().await;
        if let Some(current) = &*current {
            return Err(acp::Error::Busy { run_id: current.run_id.clone() });
        }
        let place = self.jobs.reserve().await.map_err(|_| acp::Error::Closed)?;
        self.conversation.turn_started(run_id.clone()).await?;
        let (cancel, cancelled) = watch::channel(false);
        *current = Some(Current { run_id, cancel });
        place.send(Job { prompt: content.text(), cancelled });
        // The agent has ended meanwhile: the job is lost.
        if self.jobs.is_closed() { Err(acp::Error::Closed) } else { Ok(()) }
    }

    /// The turn ends with its process, and everything that this has started.
    pub(super) async fn cancel(&self, run_id: &RunId) -> Result<(), acp::Error> {
        match &*self.current.lock().await {
            Some(current) if current.run_id == *run_id => {
                current.cancel.send_replace(true);
                Ok(())
            }
            _ => Err(acp::Error::NoTurn { run_id: run_id.clone() }),
        }
    }

    pub(super) async fn turn(&self) -> Option<RunId> {
        self.current.lock().await.as_ref().map(|current| current.run_id.clone())
    }
}

/// From its start to its end; gives the status that stays.
pub(super) async fn run(
    owner: &AgentProcess,
    start: Start,
    line: CommandLine,
    cwd: PathBuf,
    connected: watch::Sender<Option<AgentLink>>,
    mut stop: watch::Receiver<bool>,
) -> AgentStatus {
    if let Err(failure) = check(&start, &line, &cwd) {
        return failed(owner, failure, None).await;
    }
    let (opened_as, handle) = match start.agent_session_id.clone() {
        Some(id) if start.fork => (OpenedAs::Forked, Handle::to_fork(id)),
        Some(id) if !line.resume.is_empty() => {
            (OpenedAs::Resumed, Handle::to_resume(id, line.agent_message_id.clone()))
        }
        _ => (OpenedAs::New, Handle::none()),
    };
    let id = handle.id().map(str::to_owned);
    let conversation = Conversation::new(options(owner, &line), handle);
    if conversation.begin(opened_as, start.agent_session_id.clone()).await.is_err() {
        return std::future::pending().await;
    }
    let (jobs, mut incoming) = mpsc::channel(1);
    let current = Arc::default();
    let turns = OneShot { conversation, current, jobs };
    owner.set_ready(id);
    connected.send_replace(Some(AgentLink::OneShot(turns.clone())));
    let agent = Agent { owner, start, line, cwd, turns };
    loop {
        let job = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            Some(job) = incoming.recv() => job,
        };
        owner.context.spool.limit(Limit::Kept);
        let end = agent.turn(job, &mut stop).await;
        if matches!(end, End::Stopped) || agent.note(end).await.is_err() {
            break;
        }
        let id = agent.turns.conversation.handle().await.id().map(str::to_owned);
        owner.set_agent_session(id);
    }
    // From here on prompts are refused: there is no agent.
    connected.send_replace(None);
    drop((connected, incoming));
    agent.end_leftovers().await;
    let _ = agent.turns.conversation.gone().await;
    owner.mark_ending();
    let fact =
        Fact::AgentExited { exit_code: None, signal: None, requested: true, stderr: String::new() };
    note(owner, fact).await;
    AgentStatus::Exited
}

/// What would be found out by the first turn alone is better known at the start.
fn check(start: &Start, line: &CommandLine, cwd: &Path) -> Result<(), Failure> {
    if !cwd.is_dir() {
        let message = format!("The agent's folder {} is not there", cwd.display());
        return Err(Failure::new(Code::WorkspaceMissing, message));
    }
    if let Some(fault) = line.fork_fault().filter(|_| start.fork) {
        return Err(Failure::new(Code::AgentNotOffered, fault.to_owned()));
    }
    if let Some(method) = &start.auth_method {
        let message = format!(
            "The agent knows no way to log in that is called {method:?}: it speaks no protocol. Log in with its own command"
        );
        return Err(Failure::new(Code::AgentAuthNotFound, message));
    }
    find(start, cwd).map_err(|error| not_started(start, &error))
}

/// Whether there is such a program.
fn find(start: &Start, cwd: &Path) -> io::Result<()> {
    let executable = |path: PathBuf| match fs::metadata(path) {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => Ok(()),
        Ok(_) => Err(io::ErrorKind::PermissionDenied.into()),
        Err(error) => Err(error),
    };
    let name = &start.command[0];
    if name.contains('/') {
        return executable(cwd.join(name));
    }
    let given = start.env.iter().rev().find(|(name, _)| name == "PATH");
    let is_removed = start.env_remove.iter().any(|name| name == "PATH");
    let own = || std::env::var_os("PATH").filter(|_| !is_removed);
    let Some(path) = given.map(|(_, path)| OsString::from(path)).or_else(own) else {
        // The system has a path of its own then.
        return Ok(());
    };
    let mut missing = io::ErrorKind::NotFound.into();
    for folder in std::env::split_paths(&path) {
        match executable(cwd.join(folder).join(name)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => missing = error,
            Err(_) => {}
        }
    }
    Err(missing)
}

fn options(owner: &AgentProcess, line: &CommandLine) -> one_shot_output::Options {
    let line_bytes_max = usize::try_from(owner.context.limits.message_bytes_max);
    let line_bytes_max = line_bytes_max.unwrap_or(usize::MAX);
    one_shot_output::Options {
        masker: owner.context.masker.clone(),
        journal: Arc::new(owner.context.spool.clone()),
        ids: Arc::new(Ids),
        limits: acp::Limits { line_bytes_max, ..acp::Limits::default() },
        resumes: if line.resume.is_empty() {
            ResumeSupport::Never
        } else if line.resumes_the_last() {
            ResumeSupport::TheLast
        } else {
            ResumeSupport::ByName
        },
    }
}

struct Agent<'a> {
    owner: &'a AgentProcess,
    start: Start,
    line: CommandLine,
    cwd: PathBuf,
    turns: OneShot,
}

/// What came of a turn.
enum End {
    Ended {
        said: TurnOutput,
        stop_reason: &'static str,
    },
    Cancelled,
    /// The agent was stopped; this does not end its turn.
    Stopped,
    Failed {
        code: Code,
        message: String,
    },
    Interrupted {
        message: String,
    },
    Refused {
        exit_code: i32,
        words: String,
    },
}

impl End {
    fn failed(code: Code, message: impl Into<String>) -> Self {
        Self::Failed { code, message: message.into() }
    }
}

/// A process at work on a turn.
struct Process {
    child: Child,
    stderr: Stderr,
    complaining: JoinHandle<()>,
    reading: JoinHandle<Result<TurnOutput, acp::Error>>,
}

/// What happened first.
enum First {
    Exited,
    /// Its output ended.
    Silent(Result<TurnOutput, acp::Error>),
    Cancelled,
    Stopped,
}

impl Agent<'_> {
    async fn turn(&self, job: Job, stop: &mut watch::Receiver<bool>) -> End {
        if let Err(message) = self.clear().await {
            return End::failed(Code::ProcessesRemain, message);
        }
        let Job { prompt, mut cancelled } = job;
        if *cancelled.borrow() {
            return End::Cancelled;
        }
        let handle = self.turns.conversation.handle().await;
        let mut process = match self.begin(&handle, prompt).await {
            Ok(process) => process,
            Err(Failure { code, message, .. }) => {
                return End::failed(code, self.owner.context.masker.text(&message));
            }
        };
        self.owner.set_pid(process.child.id());
        let first = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => First::Stopped,
            _ = cancelled.wait_for(|cancelled| *cancelled) => First::Cancelled,
            read = &mut process.reading => First::Silent(flat(read.ok())),
            _ = process.child.wait() => First::Exited,
        };
        if matches!(first, First::Silent(_)) {
            let _ = tokio::time::timeout(EXIT_WAIT, process.child.wait()).await;
        }
        // Its own doing; what it does from here on is ours.
        let died = process.child.try_wait().ok().flatten();
        if self.end_leftovers().await {
            // Little is left in its pipes: read it without waiting for room in the spool.
            self.owner.context.spool.limit(Limit::Lifted);
        }
        let _ = tokio::time::timeout(REMAINING_OUTPUT_TIMEOUT, process.child.wait()).await;
        self.owner.set_pid(None);
        let _ = tokio::time::timeout(REMAINING_OUTPUT_TIMEOUT, process.complaining).await;
        let said = match first {
            First::Stopped | First::Cancelled => {
                let _ = last_words(self.owner, &mut process.reading, stop).await;
                let is_stopped = matches!(first, First::Stopped);
                return if is_stopped { End::Stopped } else { End::Cancelled };
            }
            First::Silent(said) => said,
            First::Exited => flat(last_words(self.owner, &mut process.reading, stop).await),
        };
        match said {
            Ok(said) => self.judge(died, said, &handle, &process.stderr.tail()),
            Err(acp::Error::Journal(_)) => End::Stopped,
            Err(error) => End::Interrupted { message: error.to_string() },
        }
    }

    /// What an earlier turn left must not meet this one. It was ended then; unless that failed.
    async fn clear(&self) -> Result<(), String> {
        let cleared =
            self.owner.context.workspace.tree().end(Scope::Agent, self.owner.term()).await;
        cleared
            .map(drop)
            .map_err(|error| format!("What an earlier turn left running does not end: {error}"))
    }

    async fn end_leftovers(&self) -> bool {
        let ended = self.clear().await;
        if let Err(message) = &ended {
            tracing::error!("{message}");
        }
        ended.is_ok()
    }

    async fn begin(&self, handle: &Handle, prompt: String) -> Result<Process, Failure> {
        let chosen = self.line.chooses_id().then(uuid);
        let way = match handle.target(self.turns.conversation.resumes()) {
            Target::New => ConversationTarget::New { id: chosen.as_deref() },
            Target::Resume { id, message_id } => ConversationTarget::Resume { id, message_id },
            Target::Fork { id } => ConversationTarget::Fork { id },
        };
        let by_argument = self.line.prompt == PromptBy::Argument;
        if by_argument && prompt.len() >= ARGUMENT_BYTES_MAX {
            let message = format!(
                "The prompt has {} bytes, and this agent takes it as an argument, which has fewer than {ARGUMENT_BYTES_MAX}",
                prompt.len()
            );
            return Err(Failure::new(Code::PromptTooLong, message));
        }
        let mut command = self.start.command.clone();
        command.extend(self.line.arguments(way, &prompt));
        if let (Some(id), ConversationTarget::New { .. }) = (&chosen, way) {
            self.turns.conversation.choose(id.clone()).await;
        }
        let mut child = spawn(self.owner, &self.start, command, &self.cwd)?;
        let stderr = Stderr::new(self.owner.context.masker.clone());
        let (Some(input), Some(output), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::new(Code::AgentStartFailed, "It has no pipes".to_owned()));
        };
        let complaining = tokio::spawn(stderr.clone().read(errors));
        // Beside the reading: who does not read its prompt may well be printing.
        tokio::spawn(give(input, if by_argument { String::new() } else { prompt }));
        let format = match self.line.output {
            Output::Text => Format::Text,
            Output::StreamJson => Format::StreamJson,
        };
        let conversation = self.turns.conversation.clone();
        let reading = tokio::spawn(async move { conversation.read(format, output).await });
        Ok(Process { child, stderr, complaining, reading })
    }

    /// `died`: how it ended by itself.
    fn judge(
        &self,
        died: Option<ExitStatus>,
        said: TurnOutput,
        handle: &Handle,
        errors: &str,
    ) -> End {
        let mask = |text: String| self.owner.context.masker.text(&text).into_owned();
        let with_last = |message: String| match errors {
            "" => message,
            errors => format!("{message}\nIt last wrote:\n{errors}"),
        };
        let has_erred = said.outcome.as_ref().is_some_and(|outcome| outcome.is_error);
        let exit_code = match died {
            Some(status) => match (status.code(), status.signal()) {
                // As programs with a handler of their own exit on HUP, INT, QUIT and TERM.
                (Some(code @ (129..=131 | 143)), _) => {
                    let message = format!("The agent was ended by a signal in its turn ({code})");
                    return End::Interrupted { message: with_last(message) };
                }
                (Some(code), _) => code,
                (None, signal) => {
                    let signal = signal.unwrap_or_default();
                    let message = format!("The agent was ended by signal {signal} in its turn");
                    return End::Interrupted { message: with_last(message) };
                }
            },
            // It said that it was done, and only did not go.
            None if said.outcome.is_some() => 0,
            None => {
                let message = "The agent closed its output, and was ended".to_owned();
                return End::Interrupted { message: with_last(message) };
            }
        };
        if exit_code == 0 && !has_erred {
            return End::Ended { said, stop_reason: "end_turn" };
        }
        let given = match handle.target(self.turns.conversation.resumes()) {
            Target::Resume { id, .. } => id,
            Target::Fork { id } => Some(id),
            Target::New => None,
        };
        if let Some(words) = given.and_then(|id| one_shot_output::refusing_line(&said, errors, id))
        {
            return End::Refused { exit_code, words: words.to_owned() };
        }
        match said.outcome.filter(|outcome| outcome.is_error) {
            Some(outcome) if exit_code == 0 && outcome.subtype == "error_max_turns" => {
                End::Ended { said: TurnOutput::default(), stop_reason: "max_turn_requests" }
            }
            Some(outcome) => {
                let about =
                    if outcome.words.is_empty() { &outcome.subtype } else { &outcome.words };
                let about = &about[..about.floor_char_boundary(WORDS_BYTES_MAX)];
                End::failed(Code::AgentError, mask(format!("The agent says: {about}")))
            }
            None => {
                let message = format!("The agent ended with exit code {exit_code}");
                End::failed(Code::AgentExited, with_last(message))
            }
        }
    }

    /// Tells what came of a turn, and makes room for the next.
    async fn note(&self, end: End) -> Result<(), acp::Error> {
        let OneShot { conversation, current, .. } = &self.turns;
        let mut current = current.lock().await;
        match end {
            End::Ended { said, stop_reason } => conversation.ended(said, stop_reason).await?,
            End::Cancelled => conversation.cancelled().await?,
            End::Stopped => return Ok(()),
            End::Failed { code, message } => conversation.failed(code, message).await?,
            End::Interrupted { message } => conversation.interrupted(message).await?,
            End::Refused { exit_code, words } => conversation.refused(exit_code, &words).await?,
        }
        *current = None;
        Ok(())
    }
}

/// A reading that was cut off has read nothing that counts.
fn flat(read: Option<Result<TurnOutput, acp::Error>>) -> Result<TurnOutput, acp::Error> {
    read.unwrap_or(Err(acp::Error::Closed))
}

/// The prompt, and that this was all. Who does not want to read it need not.
async fn give(mut input: ChildStdin, prompt: String) {
    let given = async {
        input.write_all(prompt.as_bytes()).await?;
        input.shutdown().await
    };
    if let Err(error) = given.await {
        tracing::debug!(%error, "the agent does not read its prompt");
    }
}

/// A random UUID (version 4): the id that most agents want for a conversation.
fn uuid() -> String {
    let (_, random) = super::parts();
    let (_, more) = super::parts();
    let mut bytes = [0; 16];
    bytes[..10].copy_from_slice(&random);
    bytes[10..].copy_from_slice(&more[..6]);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = hex::encode(bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_chosen_look_like_uuids() {
        let id = uuid();
        let parts: Vec<_> = id.split('-').map(str::len).collect();
        assert_eq!((parts, &id[14..15]), (vec![8, 4, 4, 4, 12], "4"));
        assert!(one_shot_output::is_good(&id) && id != uuid());
    }
}
