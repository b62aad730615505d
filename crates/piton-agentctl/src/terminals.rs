//! Commands that the agent asks its client to run. Their output is kept in memory only, never on
//! disk: the agent gets it as it is, with whatever secrets are in it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton_agent::{TerminalExit, TerminalOutput, TerminalSpec};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::watch;

use crate::tree::{ProcessRole, Program, Scope, Streams};
use crate::workspace::{self, Workspace};
use piton_core::Code;

/// Most terminals at the same time; ended ones count until they are released.
pub const TERMINALS_MAX: usize = 32;
/// What is kept of a terminal's output, if the agent does not say.
pub const OUTPUT_BYTES_USUAL: u64 = 1024 * 1024;
/// However much the agent asks to be kept.
pub const OUTPUT_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Between SIGTERM and SIGKILL.
const SIGTERM_WAIT: Duration = Duration::from_millis(500);
/// How long the end of a command waits for the end of its output, which a process that it left in
/// the background may hold open.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("There is no terminal {id:?}")]
    Unknown { id: String },
    #[error("There are {TERMINALS_MAX} terminals already; release some")]
    TooMany,
    #[error("The terminal's working folder cannot be used")]
    Folder { source: workspace::Error },
    #[error("The command {command:?} does not start")]
    Start { command: String, source: io::Error },
    #[error("The command does not end")]
    Remains { source: piton_exec::leftovers::Error },
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Unknown { .. } => Code::TerminalNotFound,
            Self::TooMany => Code::LimitReached,
            Self::Folder { source } => source.code(),
            Self::Start { .. } => Code::TerminalStartFailed,
            Self::Remains { .. } => Code::ProcessesRemain,
        }
    }
}

/// The terminals of an agent. Clones are the same ones.
#[derive(Clone, Debug)]
pub struct Terminals {
    workspace: Workspace,
    known: Arc<Mutex<BTreeMap<u64, Arc<Terminal>>>>,
    next: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Terminal {
    part: ProcessRole,
    output: Arc<Mutex<Ring>>,
    exit: watch::Receiver<Option<TerminalExit>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Terminals {
    pub fn new(workspace: &Workspace) -> Self {
        Self { workspace: workspace.clone(), known: Arc::default(), next: Arc::default() }
    }

    /// Starts a command; a line for a shell, if it has no arguments but blanks.
    pub async fn create(&self, spec: TerminalSpec) -> Result<String, Error> {
        let cwd = spec.cwd.as_deref().unwrap_or(Path::new("."));
        let cwd = self.workspace.folder(cwd).await;
        let cwd = cwd.map_err(|source| Error::Folder { source })?;
        // Held until it is registered: so that there are never more than there may be.
        let mut terminals = lock(&self.known);
        if terminals.len() >= TERMINALS_MAX {
            return Err(Error::TooMany);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let part = ProcessRole::Terminal(number.to_string());
        let failed = |source| Error::Start { command: spec.command.clone(), source };
        let command = if spec.args.is_empty() && spec.command.contains(char::is_whitespace) {
            vec!["sh".to_owned(), "-c".to_owned(), spec.command.clone()]
        } else {
            std::iter::once(spec.command.clone()).chain(spec.args).collect()
        };
        let (reader, writer) = io::pipe().map_err(failed)?;
        let reader = pipe::Receiver::from_owned_fd(reader.into()).map_err(failed)?;
        let program = Program {
            command,
            cwd,
            env: spec.env,
            env_remove: Vec::new(),
            part: part.clone(),
            streams: Streams::Merged(writer),
        };
        let child = self.workspace.tree().spawn(program).map_err(failed)?;
        let bytes_max = spec.output_bytes_max.unwrap_or(OUTPUT_BYTES_USUAL).min(OUTPUT_BYTES_MAX);
        let output = Arc::new(Mutex::new(Ring::new(usize::try_from(bytes_max).unwrap_or(0))));
        let (exited, exit) = watch::channel(None);
        tokio::spawn(follow(child, reader, output.clone(), exited));
        terminals.insert(number, Arc::new(Terminal { part, output, exit }));
        Ok(number.to_string())
    }

    fn get(&self, id: &str) -> Result<Arc<Terminal>, Error> {
        let number: Option<u64> = id.parse().ok();
        let found = number.and_then(|number| lock(&self.known).get(&number).cloned());
        found.ok_or_else(|| Error::Unknown { id: id.to_owned() })
    }

    pub fn output(&self, id: &str) -> Result<TerminalOutput, Error> {
        let terminal = self.get(id)?;
        // First whether it ended: what it had written by then is in the output.
        let exit = *terminal.exit.borrow();
        let (output, truncated) = lock(&terminal.output).text();
        Ok(TerminalOutput { output, truncated, exit })
    }

    pub async fn wait_for_exit(&self, id: &str) -> Result<TerminalExit, Error> {
        let mut exit = self.get(id)?.exit.clone();
        let exit = exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        Ok(exit.unwrap_or_default())
    }

    /// Ends the command and all that it started; its output stays.
    pub async fn kill(&self, id: &str) -> Result<(), Error> {
        let terminal = self.get(id)?;
        let scope = Scope::Role(terminal.part.clone());
        let ended = self.workspace.tree().end(scope, SIGTERM_WAIT).await;
        ended.map_err(|source| Error::Remains { source })?;
        self.wait_for_exit(id).await?;
        Ok(())
    }

    /// Ends the command and all that it started, and forgets it.
    pub async fn release(&self, id: &str) -> Result<(), Error> {
        self.kill(id).await?;
        if let Ok(number) = id.parse() {
            lock(&self.known).remove(&number);
        }
        Ok(())
    }

    /// Releases all, at the same time; the first failure, if there was one.
    pub async fn release_all(&self) -> Result<(), Error> {
        let ids: Vec<String> = lock(&self.known).keys().map(ToString::to_string).collect();
        let released = ids.iter().map(|id| self.release(id));
        futures_util::future::join_all(released).await.into_iter().collect()
    }
}

async fn follow(
    mut child: Child,
    mut reader: pipe::Receiver,
    output: Arc<Mutex<Ring>>,
    exited: watch::Sender<Option<TerminalExit>>,
) {
    let mut reading = tokio::spawn(async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(bytes @ 1..) = reader.read(&mut buffer).await {
            lock(&output).push(&buffer[..bytes]);
        }
    });
    let status = child.wait().await.ok();
    // Background processes keep writing into the ring after this.
    let _ = tokio::time::timeout(OUTPUT_DRAIN_TIMEOUT, &mut reading).await;
    let exit = TerminalExit {
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
    };
    exited.send_replace(Some(exit));
}

/// The last bytes of an output.
#[derive(Debug)]
struct Ring {
    bytes: VecDeque<u8>,
    bytes_max: usize,
    truncated: bool,
}

impl Ring {
    fn new(bytes_max: usize) -> Self {
        Self { bytes: VecDeque::new(), bytes_max, truncated: false }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let over = self.bytes.len().saturating_sub(self.bytes_max);
        self.truncated |= over > 0;
        self.bytes.drain(..over);
    }

    /// As text, with whole characters at both ends.
    fn text(&self) -> (String, bool) {
        let mut bytes: Vec<u8> = self.bytes.iter().copied().collect();
        if self.truncated {
            let is_inside = |byte: &&u8| (**byte & 0xC0) == 0x80;
            let cut = bytes.iter().take(3).take_while(is_inside).count();
            bytes.drain(..cut);
        }
        // A character whose rest has not come yet is not shown yet.
        if let Err(error) = std::str::from_utf8(&bytes[bytes.len().saturating_sub(4)..]) {
            let tail = bytes.len().saturating_sub(4) + error.valid_up_to();
            if error.error_len().is_none() {
                bytes.truncate(tail);
            }
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        // What stands for bytes that are no text is longer than they.
        let over = text.len().saturating_sub(self.bytes_max);
        let cut = (over..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.drain(..cut);
        (text, self.truncated || cut > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(bytes_max: usize, parts: &[&[u8]]) -> (String, bool) {
        let mut ring = Ring::new(bytes_max);
        for part in parts {
            ring.push(part);
        }
        ring.text()
    }

    #[test]
    fn output_is_cut_between_characters() {
        assert_eq!(ring(8, &["añb".as_bytes()]), ("añb".to_owned(), false));
        assert_eq!(ring(5, &["añ€€".as_bytes()]), ("€".to_owned(), true));
        assert_eq!(ring(3, &["ab€".as_bytes()]), ("€".to_owned(), true));
        assert_eq!(ring(2, &["ab€".as_bytes()]), (String::new(), true));
        assert_eq!(ring(0, &[b"ab"]), (String::new(), true));
    }

    #[test]
    fn half_a_character_waits_for_the_rest() {
        let euro = "€".as_bytes();
        assert_eq!(ring(9, &[b"a", &euro[..2]]), ("a".to_owned(), false));
        assert_eq!(ring(9, &[b"a", &euro[..2], &euro[2..]]), ("a€".to_owned(), false));
    }

    #[test]
    fn what_is_no_text_does_not_exceed_the_bound() {
        let (text, truncated) = ring(4, &[&[0xFF; 4]]);
        assert_eq!((text.as_str(), truncated), ("\u{FFFD}", true));
    }
}
