//! The workspace: files, git and shells, whether or not there is an agent. Paths stay inside it:
//! the kernel resolves them beneath the workspace's folder, so that no link swapped in between can
//! lead outside.

mod beneath;
mod files;
mod git;
pub mod shells;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::tree::Tree;

pub use files::{Content, Range};
pub use git::Staged;
pub use shells::{ShellEvent, Shells, Writer as ShellWriter};

/// Why something in the workspace cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("The path {path:?} leads outside the workspace")]
    PathOutside { path: PathBuf },
    #[error("The path {path:?} is not one")]
    PathMalformed { path: PathBuf },
    #[error("There is no {path:?}")]
    NotFound { path: PathBuf },
    #[error("{path:?} is a folder")]
    IsFolder { path: PathBuf },
    #[error("{path:?} is not a folder")]
    NotFolder { path: PathBuf },
    #[error("{path:?} is not a plain file")]
    NotFile { path: PathBuf },
    #[error("{path:?} has {bytes} bytes; {bytes_max} are allowed")]
    TooLarge { path: PathBuf, bytes: u64, bytes_max: u64 },
    #[error("{path:?} is not text")]
    NotText { path: PathBuf },
    #[error("{path:?} is not permitted")]
    NotPermitted { path: PathBuf },
    #[error("Cannot use {path:?}")]
    Io { path: PathBuf, source: io::Error },
    #[error("The work was cut off")]
    Interrupted,
    #[error("git is not installed")]
    GitMissing,
    #[error("git did not answer within {seconds} s")]
    GitTimeout { seconds: u64 },
    #[error("git failed: {message}")]
    GitFailed { message: String },
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
    pub fn code(&self) -> &'static str {
        match self {
            Self::PathOutside { .. } => "path_outside",
            Self::PathMalformed { .. } => "path_invalid",
            Self::NotFound { .. } => "not_found",
            Self::IsFolder { .. } => "is_folder",
            Self::NotFolder { .. } => "not_folder",
            Self::NotFile { .. } => "not_file",
            Self::TooLarge { .. } => "too_large",
            Self::NotText { .. } => "not_text",
            Self::NotPermitted { .. } => "not_permitted",
            Self::Io { .. } => "io",
            Self::Interrupted => "interrupted",
            Self::GitMissing => "git_missing",
            Self::GitTimeout { .. } => "git_timeout",
            Self::GitFailed { .. } => "git_failed",
            Self::TooManyShells { .. } => "too_many_shells",
            Self::NoShell { .. } => "shell_not_found",
            Self::ShellStart { .. } => "shell_start",
            Self::ShellWrite { .. } => "shell_write",
            Self::ShellRemains { .. } => "shell_remains",
        }
    }

    fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { path },
            io::ErrorKind::IsADirectory => Self::IsFolder { path },
            io::ErrorKind::NotADirectory => Self::NotFolder { path },
            _ => Self::Io { path, source },
        }
    }
}

/// A workspace. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Workspace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// As it was given, and as it really is: absolute paths may come in either spelling.
    given: PathBuf,
    root: PathBuf,
    folder: OwnedFd,
    tree: Tree,
}

impl Workspace {
    /// `root` must be an absolute path of a folder.
    pub fn open(root: &Path, tree: &Tree) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let real = root.canonicalize().map_err(|error| Error::io(root, error))?;
        let folder = rustix::fs::open(&real, flags, Mode::empty());
        let folder = folder.map_err(|errno| Error::io(root, errno.into()))?;
        let (given, tree) = (root.to_owned(), tree.clone());
        Ok(Self { inner: Arc::new(Inner { given, root: real, folder, tree }) })
    }

    /// The folder as it really is.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    pub fn tree(&self) -> &Tree {
        &self.inner.tree
    }

    /// The absolute path of a folder in the workspace, for a process to work in.
    pub async fn folder(&self, path: &Path) -> Result<PathBuf, Error> {
        let path = path.to_owned();
        self.blocking(move |inner| {
            let relative = inner.relative(&path)?;
            inner.open_beneath(&relative, OFlags::RDONLY | OFlags::DIRECTORY)?;
            Ok(inner.root.join(relative))
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = self.inner.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.map_err(|_| Error::Interrupted)?
    }
}
