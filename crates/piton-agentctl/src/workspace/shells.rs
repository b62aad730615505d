//! Shells for people, each in a terminal and a session of its own. What a shell wrote last is kept,
//! so that one who comes later sees where things stand; one who cannot keep up is cut off and told.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use piton_exec::protocol::workspace::{ListedShell, NewShell, SHELLS_MAX, Shell, ShellEnded};
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::mpsc::{self, OwnedPermit, Receiver, Sender};

use super::Workspace;
use crate::tree::{ProcessRole, Scope};
use piton_core::Code;

/// What is kept of a shell's output.
pub const SCROLLBACK_BYTES: usize = 64 * 1024;
/// Events that a subscriber may be behind.
const BEHIND_MAX: usize = 256;
const READ_BYTES: usize = 8 * 1024;
/// A shell that was hung up on may take so long to end by itself.
const SIGHUP_WAIT: Duration = Duration::from_millis(500);
/// How long the terminal may stay silent, after its shell has ended, until it is closed: what the
/// shell left in the background may hold it open for ever.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(100);
/// However much is written in the background after that.
const DRAIN_MAX: Duration = Duration::from_secs(1);
const SIZE_USUAL: (u16, u16) = (80, 24);

/// Why a shell does not do what is wanted of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("There are {shells_max} shells already")]
    TooManyShells { shells_max: usize },
    #[error("There is no shell {shell_id:?}")]
    NoShell { shell_id: String },
    #[error("The shell does not start")]
    ShellStart { source: io::Error },
    #[error("The shell cannot be written to")]
    ShellWrite { source: io::Error },
    #[error("Processes of the shell do not end")]
    ShellRemains { source: piton_exec::leftovers::Error },
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::TooManyShells { .. } => Code::LimitReached,
            Self::NoShell { .. } => Code::ShellNotFound,
            Self::ShellStart { .. } => Code::ShellStartFailed,
            Self::ShellWrite { .. } => Code::ShellWriteFailed,
            Self::ShellRemains { .. } => Code::ProcessesRemain,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellEvent {
    Output(Vec<u8>),
    /// The subscriber was too slow; nothing more comes. It may attach again.
    CutOff,
    /// The shell ended; nothing more comes.
    Ended(ShellEnded),
}

/// The shells of a workspace. Clones are the same ones.
#[derive(Clone, Debug)]
pub struct Shells {
    workspace: Workspace,
    known: Arc<Mutex<BTreeMap<u64, Arc<Running>>>>,
    next: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Running {
    part: ProcessRole,
    pid: u32,
    /// A second descriptor of the terminal, for its size: a writer may be waiting on the first.
    control: OwnedFd,
    input: tokio::sync::Mutex<OwnedWritePty>,
    output: Mutex<Output>,
}

#[derive(Debug, Default)]
struct Output {
    kept: VecDeque<u8>,
    subscribers: Vec<Subscriber>,
    ended: Option<ShellEnded>,
}

#[derive(Debug)]
struct Subscriber {
    events: Sender<ShellEvent>,
    /// Kept free so that the last event always finds room.
    last: OwnedPermit<ShellEvent>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unwrapped(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        pty_process::Error::Rustix(errno) => errno.into(),
        other => io::Error::other(other),
    }
}

impl Shells {
    pub fn new(workspace: &Workspace) -> Self {
        // Numbers that no other execution's shells have: who keeps one must not find another's.
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let next = u64::try_from(began.as_millis()).unwrap_or_default();
        let next = Arc::new(AtomicU64::new(next));
        Self { workspace: workspace.clone(), known: Arc::default(), next }
    }

    /// Those that run, and those that ended and are still kept, oldest first.
    pub fn list(&self) -> Vec<ListedShell> {
        let listed = |(number, running): (&u64, &Arc<Running>)| ListedShell {
            shell_id: number.to_string(),
            pid: running.pid,
            is_ended: lock(&running.output).ended.is_some(),
        };
        lock(&self.known).iter().map(listed).collect()
    }

    /// Starts a shell in the workspace's folder.
    pub async fn open(&self, new: NewShell) -> Result<Shell, Error> {
        self.make_room()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let part = ProcessRole::Shell(number.to_string());
        let started = self.start(&part, new).map_err(|source| Error::ShellStart { source })?;
        let (child, running, input) = started;
        let running = Arc::new(running);
        let pid = running.pid;
        let late = {
            let mut shells = lock(&self.known);
            // Others may have been opened since we looked.
            let late = shells.len() >= SHELLS_MAX;
            if !late {
                shells.insert(number, running.clone());
            }
            late
        };
        tokio::spawn(follow(child, running, input));
        if late {
            let _ = self.workspace.tree().end(Scope::Role(part), Duration::ZERO).await;
            return Err(Error::TooManyShells { shells_max: SHELLS_MAX });
        }
        Ok(Shell { shell_id: number.to_string(), pid })
    }

    /// How many have not ended.
    pub(crate) fn open_count(&self) -> usize {
        lock(&self.known).values().filter(|shell| lock(&shell.output).ended.is_none()).count()
    }

    /// Forgets shells that have ended, oldest first, if there are as many as there may be.
    fn make_room(&self) -> Result<(), Error> {
        let mut shells = lock(&self.known);
        while shells.len() >= SHELLS_MAX {
            let over = shells.iter().find(|(_, shell)| lock(&shell.output).ended.is_some());
            let Some(number) = over.map(|(number, _)| *number) else {
                return Err(Error::TooManyShells { shells_max: SHELLS_MAX });
            };
            shells.remove(&number);
        }
        Ok(())
    }

    fn start(
        &self,
        part: &ProcessRole,
        new: NewShell,
    ) -> io::Result<(Child, Running, OwnedReadPty)> {
        let tree = self.workspace.tree();
        let mut words = new.command.into_iter();
        let usual = || std::env::var("SHELL").ok().filter(|shell| !shell.is_empty());
        let program = words.next().or_else(usual).unwrap_or_else(|| "/bin/sh".to_owned());
        let command = pty_process::Command::new(program)
            .args(words)
            .current_dir(self.workspace.root())
            .env("TERM", "xterm-256color")
            .envs(tree.markers(part));
        let (cols, rows) = (new.cols.unwrap_or(SIZE_USUAL.0), new.rows.unwrap_or(SIZE_USUAL.1));
        let mut opened = None;
        let child = tree.started(part, || {
            // Opened where nothing else is started: the terminal is for a moment inheritable.
            let (pty, pts) = pty_process::open().map_err(unwrapped)?;
            pty.resize(Size::new(rows, cols)).map_err(unwrapped)?;
            opened = Some(pty);
            command.spawn(pts).map_err(unwrapped)
        })?;
        let pty = opened.ok_or_else(|| io::Error::other("No terminal"))?;
        let control = pty.as_fd().try_clone_to_owned()?;
        let (read, write) = pty.into_split();
        let running = Running {
            part: part.clone(),
            pid: child.id().unwrap_or(0),
            control,
            input: tokio::sync::Mutex::new(write),
            output: Mutex::default(),
        };
        Ok((child, running, read))
    }

    fn get(&self, shell_id: &str) -> Result<Arc<Running>, Error> {
        let found =
            shell_id.parse().ok().and_then(|number: u64| lock(&self.known).get(&number).cloned());
        found.ok_or_else(|| Error::NoShell { shell_id: shell_id.to_owned() })
    }

    /// What a shell writes, beginning with what is kept of what it wrote before; and the way to
    /// write to it. The last event is [`ShellEvent::Ended`] or [`ShellEvent::CutOff`].
    pub fn attach(&self, shell_id: &str) -> Result<(Receiver<ShellEvent>, Writer), Error> {
        let running = self.get(shell_id)?;
        // Two more than may be waiting: what is kept, and the last event.
        let (events, receiver) = mpsc::channel(BEHIND_MAX + 2);
        let writer = Writer { running: running.clone() };
        let Ok(last) = events.clone().try_reserve_owned() else { return Ok((receiver, writer)) };
        let mut output = lock(&running.output);
        if !output.kept.is_empty() {
            let kept = output.kept.iter().copied().collect();
            let _ = events.try_send(ShellEvent::Output(kept));
        }
        match output.ended.clone() {
            Some(ended) => drop(last.send(ShellEvent::Ended(ended))),
            None => output.subscribers.push(Subscriber { events, last }),
        }
        Ok((receiver, writer))
    }

    pub fn resize(&self, shell_id: &str, cols: u16, rows: u16) -> Result<(), Error> {
        Writer { running: self.get(shell_id)? }.resize(cols, rows)
    }

    /// Hangs up on a shell and ends all that it started; it is forgotten.
    pub async fn close(&self, shell_id: &str) -> Result<(), Error> {
        let running = self.get(shell_id)?;
        let scope = Scope::Role(running.part.clone());
        self.hang_up(&running, scope.clone()).await;
        let ended = self.workspace.tree().end(scope, SIGHUP_WAIT).await;
        ended.map_err(|source| Error::ShellRemains { source })?;
        if let Ok(number) = shell_id.parse() {
            lock(&self.known).remove(&number);
        }
        Ok(())
    }

    /// Interactive shells ignore SIGTERM; this is what a closed window tells them.
    async fn hang_up(&self, running: &Running, scope: Scope) {
        let (tree, leader) = (self.workspace.tree().clone(), running.pid);
        let hung_up = tokio::task::spawn_blocking(move || {
            // Once it has ended, its pid may be another's.
            let found = tree.find(&scope).unwrap_or_default();
            let pid = i32::try_from(leader).ok().and_then(Pid::from_raw);
            if let (true, Some(pid)) = (found.iter().any(|process| process.pid == leader), pid) {
                let _ = rustix::process::kill_process_group(pid, Signal::HUP);
            }
        });
        let _ = hung_up.await;
    }

    /// Closes all, at the same time; the first failure, if there was one.
    pub async fn close_all(&self) -> Result<(), Error> {
        let numbers: Vec<String> = lock(&self.known).keys().map(ToString::to_string).collect();
        let closed = numbers.iter().map(|number| self.close(number));
        futures_util::future::join_all(closed).await.into_iter().collect()
    }
}

/// The way to write to a shell.
#[derive(Clone, Debug)]
pub struct Writer {
    running: Arc<Running>,
}

impl Writer {
    /// Waits while the shell does not read.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut input = self.running.input.lock().await;
        input.write_all(bytes).await.map_err(|source| Error::ShellWrite { source })
    }

    pub fn resize(&self, cols: u16, rows: u16) -> Result<(), Error> {
        let size =
            rustix::termios::Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        let resized = rustix::termios::tcsetwinsize(&self.running.control, size);
        resized.map_err(|errno| Error::ShellWrite { source: errno.into() })
    }
}

/// Hands on what the shell writes until it has ended.
async fn follow(mut child: Child, running: Arc<Running>, mut pty: OwnedReadPty) {
    let mut buffer = vec![0; READ_BYTES];
    let mut status = None;
    let mut drained_by = Instant::now();
    loop {
        let read = if status.is_none() {
            tokio::select! {
                read = pty.read(&mut buffer) => read,
                ended = child.wait() => {
                    status = Some(ended);
                    drained_by = Instant::now() + DRAIN_MAX;
                    continue;
                }
            }
        } else {
            // What it wrote before it ended may still be in the terminal.
            if Instant::now() >= drained_by {
                break;
            }
            match tokio::time::timeout(SILENCE_TIMEOUT, pty.read(&mut buffer)).await {
                Ok(read) => read,
                Err(_) => break,
            }
        };
        match read {
            // EIO: the last process that had the terminal has closed it.
            Ok(0) | Err(_) => break,
            Ok(bytes) => lock(&running.output).push(&buffer[..bytes]),
        }
    }
    let status = match status {
        Some(status) => status,
        None => child.wait().await,
    };
    let ended = ShellEnded {
        exit_code: status.as_ref().ok().and_then(std::process::ExitStatus::code),
        signal: status.as_ref().ok().and_then(ExitStatusExt::signal),
    };
    lock(&running.output).end(&ended);
}

impl Output {
    fn push(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
        let over = self.kept.len().saturating_sub(SCROLLBACK_BYTES);
        self.kept.drain(..over);
        for subscriber in std::mem::take(&mut self.subscribers) {
            match subscriber.events.try_send(ShellEvent::Output(bytes.to_vec())) {
                Ok(()) => self.subscribers.push(subscriber),
                Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(_)) => {
                    subscriber.last.send(ShellEvent::CutOff);
                }
            }
        }
    }

    fn end(&mut self, ended: &ShellEnded) {
        self.ended = Some(ended.clone());
        for subscriber in self.subscribers.drain(..) {
            subscriber.last.send(ShellEvent::Ended(ended.clone()));
        }
    }
}
