//! Where an execution's files are, and what they say.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use piton_core::file_permissions::Exposure;
use piton_core::id::{ExecutionId, SessionId};

use crate::executor::{Address, Error, Located, Result};
use crate::leftovers::Mark;
use crate::private;
use crate::protocol::files;
use crate::spool::format;

/// Longest path of a socket, in bytes: the kernel takes 107, macOS 103, and a socket is made under
/// a name that is four longer.
const SOCKET_BYTES_MAX: usize = 99;
/// In an execution's folder: where its socket is. A name alone means beside the folder; of a whole
/// path only the folder counts, since a copy of this file must not lead to the original's socket.
const SOCKET_FILE: &str = "socket";
/// In an execution's folder: whose it is.
const SESSION_FILE: &str = "session";

/// The place of one execution in a data folder.
#[derive(Debug)]
pub(super) struct ExecutionFolder {
    pub(super) execution: ExecutionId,
    /// `run` in the data folder.
    run: PathBuf,
    pub(super) folder: PathBuf,
}

impl ExecutionFolder {
    pub(super) fn new(data: &Path, execution: &ExecutionId) -> Self {
        let run = data.join("run");
        let folder = run.join(execution.as_str());
        Self { execution: execution.clone(), run, folder }
    }

    /// Every execution that has a folder and says whose it is.
    pub(super) fn all(data: &Path) -> Result<Vec<(SessionId, ExecutionId)>> {
        let run = data.join("run");
        let names = match fs::read_dir(&run) {
            Ok(names) => names,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(Error::Io { what: "read", path: run, source }),
        };
        let mut found = Vec::new();
        for name in names.flatten() {
            let execution = name.file_name().to_str().and_then(|name| name.parse().ok());
            let session = fs::read_to_string(name.path().join(SESSION_FILE)).ok();
            let session = session.and_then(|session| session.trim().parse().ok());
            found.extend(session.zip(execution));
        }
        found.sort();
        Ok(found)
    }

    /// Makes the folder; refuses one that was used.
    pub(super) fn make(&self, session: &SessionId) -> Result<()> {
        self.make_folder()?;
        let path = self.folder.join(SESSION_FILE);
        let written = private::write(&path, session.as_str().as_bytes());
        written.map_err(|source| Error::Io { what: "write", path, source })
    }

    fn make_folder(&self) -> Result<()> {
        let failed = |source| Error::Io { what: "make", path: self.folder.clone(), source };
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(true).create(&self.run).map_err(failed)?;
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if self.is_locked() {
                    return Err(Error::Alive { execution: self.execution.clone() });
                }
                // A launch that came to nothing leaves a folder, but nothing in its spool.
                if self.was_used() || self.folder.join(files::GONE).exists() {
                    return Err(Error::Exists { execution: self.execution.clone() });
                }
                Ok(())
            }
            made => made.map_err(failed),
        }
    }

    fn was_used(&self) -> bool {
        let Ok(mut names) = fs::read_dir(self.folder.join(files::SPOOL)) else { return false };
        let is_segment = |name: fs::DirEntry| {
            name.file_name().to_str().and_then(format::segment_first).is_some()
        };
        names.any(|name| name.is_ok_and(is_segment))
    }

    /// Chooses a place for the socket, and remembers it.
    pub(super) fn choose_socket(&self, temp: &Path) -> Result<PathBuf> {
        let name = format!("{}.sock", self.execution);
        let beside = self.run.join(&name);
        let (said, socket) = if fits(&beside) {
            (PathBuf::from(name), beside)
        } else {
            let folder = private_folder(temp)?;
            let socket = self.socket_in(&folder)?;
            if !fits(&socket) {
                let bytes = socket.as_os_str().len();
                return Err(Error::TooLong { path: socket, bytes });
            }
            (socket.clone(), socket)
        };
        let path = self.folder.join(SOCKET_FILE);
        let written = private::write(&path, said.as_os_str().as_bytes());
        written.map_err(|source| Error::Io { what: "write", path, source })?;
        Ok(socket)
    }

    /// `None`: it was never launched.
    pub(super) fn socket(&self) -> Result<Option<PathBuf>> {
        let path = self.folder.join(SOCKET_FILE);
        match fs::read(&path) {
            Ok(said) => {
                let said = Path::new(std::ffi::OsStr::from_bytes(&said));
                match said.parent().filter(|_| said.is_absolute()) {
                    Some(folder) => self.socket_in(folder).map(Some),
                    None => Ok(Some(self.run.join(said))),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { what: "read", path, source }),
        }
    }

    /// Its name is the folder's identity: the same wherever the folder is moved to, another for
    /// each copy of it.
    fn socket_in(&self, private: &Path) -> Result<PathBuf> {
        let failed = |source| Error::Io { what: "read", path: self.folder.clone(), source };
        let mark = self.mark()?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let key = format!("{} {}", mark.execution(), mark.folder());
        let hash = blake3::hash(key.as_bytes()).to_hex();
        Ok(private.join(format!("{}.sock", &hash[..20])))
    }

    /// Whose processes are this place's; `None`: it has no folder.
    pub(super) fn mark(&self) -> Result<Option<Mark>> {
        match Mark::of(&self.execution, &self.folder) {
            Ok(mark) => Ok(Some(mark)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { what: "read", path: self.folder.clone(), source }),
        }
    }

    pub(super) fn located(&self) -> Result<Option<Located>> {
        let socket = self.socket()?;
        let located = |socket| Located {
            execution: self.execution.clone(),
            address: Address::Socket(socket),
            protocol_max: None,
        };
        Ok(socket.map(located))
    }

    /// Whether the socket's file is there.
    pub(super) fn is_bound(&self) -> bool {
        let Ok(Some(socket)) = self.socket() else { return false };
        fs::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket())
    }

    pub(super) fn remove_socket(&self) {
        if let Ok(Some(socket)) = self.socket() {
            let _ = fs::remove_file(socket);
        }
    }

    /// Whether an agentctl holds the lock. When it cannot be known: yes, because a living one taken
    /// for dead costs more than a dead one taken for alive.
    pub(super) fn is_locked(&self) -> bool {
        let file = match File::open(self.folder.join(files::LOCK)) {
            Ok(file) => file,
            Err(e) => return e.kind() != io::ErrorKind::NotFound,
        };
        // Shared, so that two who ask do not take each other for the holder.
        !matches!(file.try_lock_shared(), Ok(()))
    }

    /// Marks the execution as gone: an agentctl that starts later, because its launcher died in the
    /// middle of the launch, ends at once. An agentctl that holds the lock already is not affected:
    /// check the lock again afterwards.
    pub(super) fn condemn(&self) -> Result<()> {
        let path = self.folder.join(files::GONE);
        match private::write(&path, b"") {
            // Nothing was ever launched here: a launch creates the folder first.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(Error::Io { what: "write", path, source }),
            Ok(()) => Ok(()),
        }
    }

    /// Whether an agentctl ever came as far as its lock.
    pub(super) fn has_begun(&self) -> bool {
        self.folder.join(files::LOCK).exists()
    }

    /// The process that says to hold the lock.
    pub(super) fn holder(&self) -> Option<i32> {
        fs::read_to_string(self.folder.join(files::LOCK)).ok()?.trim().parse().ok()
    }

    /// The end of agentctl's own log, for messages.
    pub(super) fn said(&self) -> String {
        let log = fs::read(self.folder.join(files::LOG)).unwrap_or_default();
        let tail = &log[log.len().saturating_sub(1000)..];
        match String::from_utf8_lossy(tail).trim() {
            "" => "It wrote nothing into its log".to_owned(),
            said => said.to_owned(),
        }
    }
}

fn fits(path: &Path) -> bool {
    path.as_os_str().len() <= SOCKET_BYTES_MAX
}

/// A folder in the temp folder, where everybody may make things: it must be ours and closed.
fn private_folder(temp: &Path) -> Result<PathBuf> {
    let uid = private::our_uid();
    let path = temp.join(format!("piton-{uid}"));
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::Io { what: "make", path, source: e });
        }
        _ => {}
    }
    // Not through a link: that could be anybody's.
    let found = fs::symlink_metadata(&path);
    let found = found.map_err(|source| Error::Io { what: "read", path: path.clone(), source })?;
    if !found.is_dir() || private::exposure(&found) != Exposure::Private {
        return Err(Error::Unsafe { path });
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use piton_core::Code;

    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

    fn place(data: &Path) -> ExecutionFolder {
        let place = ExecutionFolder::new(data, &"exec_1".parse().unwrap());
        place.make(&"sess_1".parse().unwrap()).unwrap();
        place
    }

    #[test]
    fn a_short_path_is_beside_the_folder_and_moves_with_it() {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("a");
        assert_eq!(place(&data).socket().unwrap(), None);
        let chosen = place(&data).choose_socket(temp.path()).unwrap();
        assert_eq!(chosen, data.join("run/exec_1.sock"));
        let moved = temp.path().join("b");
        fs::rename(&data, &moved).unwrap();
        assert_eq!(place(&moved).socket().unwrap(), Some(moved.join("run/exec_1.sock")));
    }

    #[test]
    fn a_long_path_goes_into_a_private_folder() {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("x".repeat(120));
        let chosen = place(&data).choose_socket(temp.path()).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let folder = temp.path().join(format!("piton-{uid}"));
        assert!(chosen.starts_with(&folder), "{chosen:?}");
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(place(&data).socket().unwrap(), Some(chosen));
    }

    #[test]
    fn a_folder_that_others_can_enter_and_a_link_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("x".repeat(120));
        let uid = rustix::process::geteuid().as_raw();
        let folder = temp.path().join(format!("piton-{uid}"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let error = place(&data).choose_socket(temp.path()).unwrap_err();
        assert_eq!(error.code(), Code::SocketFolderUnsafe);
        fs::remove_dir(&folder).unwrap();
        let elsewhere = temp.path().join("elsewhere");
        DirBuilder::new().mode(0o700).create(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
        let error = place(&data).choose_socket(temp.path()).unwrap_err();
        assert_eq!(error.code(), Code::SocketFolderUnsafe);
    }

    #[test]
    fn where_everything_is_too_long_the_code_says_so() {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("x".repeat(120));
        let deep = temp.path().join("y".repeat(120));
        fs::create_dir(&deep).unwrap();
        let error = place(&data).choose_socket(&deep).unwrap_err();
        assert_eq!(error.code(), Code::SocketPathTooLong);
    }
}
