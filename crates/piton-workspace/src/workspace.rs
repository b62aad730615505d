//! Files below one folder. Paths stay inside it: the kernel resolves them beneath the folder, so that
//! no link swapped in between can lead outside.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_core::Code;
use rustix::fs::{Mode, OFlags};

use crate::git::{self, Git, Runner};

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
    #[error(transparent)]
    Git(#[from] git::Error),
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::PathOutside { .. } => Code::PathOutside,
            Self::PathMalformed { .. } => Code::PathInvalid,
            Self::NotFound { .. } => Code::NotFound,
            Self::IsFolder { .. } => Code::PathIsFolder,
            Self::NotFolder { .. } => Code::PathNotFolder,
            Self::NotFile { .. } => Code::PathNotFile,
            Self::TooLarge { .. } => Code::FileTooLarge,
            Self::NotText { .. } => Code::FileNotText,
            Self::NotPermitted { .. } => Code::FileNotPermitted,
            Self::Io { .. } => Code::FileIo,
            Self::Interrupted => Code::OperationInterrupted,
            Self::Git(git::Error::Missing) => Code::GitMissing,
            Self::Git(git::Error::Timeout { .. }) => Code::GitTimeout,
            Self::Git(git::Error::Failed { .. } | git::Error::Io(_)) => Code::GitFailed,
        }
    }

    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
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
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// As it was given, and as it really is: absolute paths may come in either spelling.
    pub(crate) given: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) folder: OwnedFd,
    git: Runner,
}

impl Workspace {
    /// `root` must be an absolute path of a folder.
    pub fn open(root: &Path, git: Runner) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let real = root.canonicalize().map_err(|error| Error::io(root, error))?;
        let folder = rustix::fs::open(&real, flags, Mode::empty());
        let folder = folder.map_err(|errno| Error::io(root, errno.into()))?;
        let given = root.to_owned();
        Ok(Self { inner: Arc::new(Inner { given, root: real, folder, git }) })
    }

    /// The folder as it really is.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    pub(crate) fn git(&self) -> Git {
        self.inner.git.at(&self.inner.root)
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

    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = self.inner.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.map_err(|_| Error::Interrupted)?
    }
}
