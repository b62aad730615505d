//! Runs git so that it does only what it is asked to: it runs no program that a repository's
//! configuration or attributes name, prompts for nothing, fetches nothing, and ends in time.
//!
//! A process that can write to a repository can change its configuration at any moment, also
//! between two commands of ours. So nothing here depends on what a configuration was seen to say:
//!
//! - **Programs with a fixed key** (`core.fsmonitor`, `core.hooksPath`, pagers, credential helpers,
//!   signature checks, transports) are switched off by name on every command line. The command line
//!   wins over every file.
//! - **Programs with a free key** (`filter.NAME.clean|smudge|process`) have no name that could be
//!   switched off in advance. Only commands that read or write files of a work tree run them, and
//!   those commands are *sealed* ([`Git::sealed`]): git reads a configuration of ours instead of
//!   the repository's, the user's and the system's. [`seal`] says how. A filter that appears while a
//!   sealed command runs is never read.
//! - **External diffs and text conversions** (`diff.NAME.command|textconv`) are switched off by the
//!   options that our callers pass, and are not in the sealed configuration.
//! - **Submodules** are looked at from outside only: the git that would look inside is another
//!   process with the submodule's own configuration. Callers pass `--ignore-submodules=dirty`.
//! - **Partial clones**: what is missing is not fetched.
//!
//! A file that a filter would change is therefore written, and compared, as it lies in the
//! repository; `git lfs` files are pointers. Line endings, encodings and `ident` are git's own and
//! work as configured.
//!
//! Not covered: a process that can replace the program `git`, write to the folder for private
//! configurations, or trace our processes. Tried with git 2.47; uses nothing that 2.39 does not
//! have.

mod run;
mod seal;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_core::planted::{self, Bug};
use tokio::process::{Child, Command};

/// How long looking may take.
pub const LOOK_TIME_MAX: Duration = Duration::from_secs(10);
/// How long it may take to write or remove a work tree, or to compare all of it.
pub const CHANGE_TIME_MAX: Duration = Duration::from_secs(100);
/// Most bytes of an answer that is wanted whole.
pub const OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why git did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("git is not installed")]
    Missing,
    #[error("git took longer than {seconds} seconds")]
    Timeout { seconds: u64 },
    #[error("git failed: {message}")]
    Failed { message: String },
    #[error("git cannot be run")]
    Io(#[from] io::Error),
}

impl Error {
    /// There is no repository where git was run.
    pub fn is_no_repository(&self) -> bool {
        matches!(self, Self::Failed { message } if message.contains("not a git repository"))
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Starts git's processes, so that their owner can account for them.
pub trait Spawner: fmt::Debug + Send + Sync {
    fn spawn(&self, command: Command) -> io::Result<Child>;
}

/// Starts them as plain children.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Spawner for Plain {
    fn spawn(&self, mut command: Command) -> io::Result<Child> {
        command.spawn()
    }
}

/// How git is run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runner {
    program: PathBuf,
    private: PathBuf,
    spawner: Arc<dyn Spawner>,
}

impl Runner {
    /// `private` is a folder that neither the repository's users nor agents write to; private
    /// configurations lie in it while git runs. It is made when it is first used.
    pub fn new(private: impl Into<PathBuf>) -> Self {
        Self { program: "git".into(), private: private.into(), spawner: Arc::new(Plain) }
    }

    pub fn with_spawner(mut self, spawner: Arc<dyn Spawner>) -> Self {
        self.spawner = spawner;
        self
    }

    /// Another program than the `git` of the path.
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// git in a folder.
    pub fn at(&self, folder: impl AsRef<Path>) -> Git {
        Git { runner: self.clone(), folder: folder.as_ref().to_owned() }
    }
}

/// git in one folder.
#[derive(Clone, Debug)]
pub struct Git {
    runner: Runner,
    folder: PathBuf,
}

/// What git wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    pub bytes: Vec<u8>,
    /// There was more than was wanted; git was ended.
    pub truncated: bool,
}

impl Output {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// All of it, or an error: half an answer must not be taken for a whole one.
    fn whole(self) -> Result<String> {
        if self.truncated {
            let message = format!("It wrote more than {OUTPUT_BYTES_MAX} bytes");
            return Err(Error::Failed { message });
        }
        Ok(self.text())
    }
}

impl Git {
    /// Runs a command that touches no file of a work tree.
    pub async fn output(&self, args: &[&str], bytes_max: usize) -> Result<Output> {
        in_time(LOOK_TIME_MAX, async { self.run(args, &[], bytes_max, None).await?.good() }).await
    }

    /// The same, of an answer that is wanted whole.
    pub async fn ask(&self, args: &[&str]) -> Result<String> {
        self.output(args, OUTPUT_BYTES_MAX).await?.whole()
    }

    /// The same, of what may not be there: it is not, if git fails and says nothing.
    pub async fn find(&self, args: &[&str]) -> Result<Option<String>> {
        in_time(LOOK_TIME_MAX, async {
            let said = self.run(args, &[], OUTPUT_BYTES_MAX, None).await?;
            if said.is_silent_failure() {
                return Ok(None);
            }
            let text = said.good()?.whole()?;
            Ok(Some(text.trim_end_matches('\n').to_owned()))
        })
        .await
    }

    /// Changes something other than the files of a work tree. Whatever becomes of this process, the
    /// lock is held until git is done.
    pub async fn change(&self, args: &[&str], lock: &File) -> Result<()> {
        let held = lock.try_clone()?;
        in_time(CHANGE_TIME_MAX, async {
            self.run(args, &[], OUTPUT_BYTES_MAX, Some(held)).await?.good().map(drop)
        })
        .await
    }

    /// Runs a command that reads files of the work tree.
    pub async fn sealed(
        &self,
        args: &[&str],
        bytes_max: usize,
        within: Duration,
    ) -> Result<Output> {
        in_time(within, async {
            let sealed = self.seal().await?;
            let env = if planted::is(Bug::GitUnsealed) { &[] } else { sealed.env() };
            self.run(args, env, bytes_max, None).await?.good()
        })
        .await
    }

    /// The same, of an answer in records that end in NUL: each is looked at, and none is kept. What was
    /// looked at in time stays looked at.
    pub async fn sealed_records(
        &self,
        args: &[&str],
        within: Duration,
        each: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<()> {
        in_time(within, async {
            let sealed = self.seal().await?;
            let env = if planted::is(Bug::GitUnsealed) { &[] } else { sealed.env() };
            self.run_records(args, env, each).await
        })
        .await
    }

    /// The same, of a command that touches no file of a work tree.
    pub async fn records(
        &self,
        args: &[&str],
        within: Duration,
        each: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<()> {
        in_time(within, self.run_records(args, &[], each)).await
    }

    /// Runs a command that writes files of the work tree; the lock as for [`Self::change`].
    pub async fn change_sealed(&self, args: &[&str], lock: &File) -> Result<()> {
        let held = lock.try_clone()?;
        in_time(CHANGE_TIME_MAX, async {
            let sealed = self.seal().await?;
            self.run(args, sealed.env(), OUTPUT_BYTES_MAX, Some(held)).await?.good().map(drop)
        })
        .await
    }
}

async fn in_time<T>(within: Duration, run: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(within, run).await {
        Ok(done) => done,
        // Dropped with its future, git and its helpers are killed.
        Err(_) => Err(Error::Timeout { seconds: within.as_secs() }),
    }
}
