//! Where the built-in agent remembers: a file for each session beside the logs, their owner's alone,
//! removed with the session.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use piton_core::id::SessionId;
use piton_runtime::SessionFiles;
use piton_store::Store;

const FOLDER: &str = "echo";
const ENDING: &str = ".json";
/// What the agent has beside it: the file that it locks, and the next content.
const BESIDE: &[&str] = &["", ".lock", ".new"];

#[derive(Clone, Debug)]
pub(crate) struct EchoMemory {
    folder: PathBuf,
}

impl EchoMemory {
    pub(crate) fn new(data: &Path) -> Self {
        Self { folder: data.join(FOLDER) }
    }

    /// The file of a session, or of whatever stands for one.
    pub(crate) fn file(&self, session: &str) -> PathBuf {
        self.folder.join(format!("{session}{ENDING}"))
    }

    /// Makes the folder; what is in it already becomes its owner's alone.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&self.folder)?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                fs::set_permissions(entry.path(), Permissions::from_mode(0o600))?;
            }
        }
        Ok(())
    }

    /// Removes what sessions left that are no more: of a process that was killed before it could.
    pub(crate) async fn sweep(&self, store: &dyn Store) -> piton_store::Result<()> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Ok(()) };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.split(ENDING).next());
            let Some(session) = id.and_then(|id| id.parse::<SessionId>().ok()) else { continue };
            if store.head(&session).await?.is_none() {
                self.remove(&session);
            }
        }
        Ok(())
    }
}

impl SessionFiles for EchoMemory {
    fn remove(&self, session: &SessionId) {
        let file = self.file(session.as_str());
        for ending in BESIDE {
            let mut path = file.clone().into_os_string();
            path.push(ending);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(%session, %error, "the memory of echo is not removed");
                }
                _ => {}
            }
        }
    }
}
