//! Which boots are alive: each holds a lock on its own file for as long as its process lives. The
//! kernel lets go of the lock when the process ends, however it ends; pids prove nothing.
//!
//! The lock belongs to the open file, which is closed on exec: no child inherits it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_core::id::BootId;
use serde::{Deserialize, Serialize};

use crate::contract::Liveness;
use crate::error::{Cause, Error, Result};
use crate::folder;

const FOLDER: &str = "boots";
const SUFFIX: &str = "lock";
/// A file that is being made: locked before it gets its name.
const SUFFIX_NEW: &str = "new";
/// A file that is still being made after so long was left behind.
const NEW_MAX: Duration = Duration::from_mins(1);
/// A lock file longer than this does not say who holds it.
const HOLDER_BYTES_MAX: u64 = 4 * 1024;

/// Which process a lock file was made by. For messages only: pids prove nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// The program's file name.
    pub program: String,
}

impl Holder {
    fn this_process() -> Self {
        let program = std::env::current_exe().ok();
        let name = program.as_ref().and_then(|path| path.file_name());
        let program = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Self { pid: std::process::id(), program }
    }
}

/// The lock files of one data folder.
#[derive(Clone, Debug)]
pub struct BootLocks {
    folder: PathBuf,
}

/// One boot's life: dead when this is dropped or the process ends.
#[derive(Debug)]
pub struct BootGuard {
    boot: BootId,
    path: PathBuf,
    /// Held for its lock.
    file: File,
}

impl BootGuard {
    pub fn boot(&self) -> &BootId {
        &self.boot
    }
}

impl Drop for BootGuard {
    fn drop(&mut self) {
        // Only tidiness: without a holder of its lock the file says “dead” as well.
        let _ = fs::remove_file(&self.path);
        // Closing would do, but for a child that another thread forks right now: until its exec it
        // has the file open, too.
        let _ = self.file.unlock();
    }
}

impl BootLocks {
    /// Makes no file; that is [`BootLocks::hold`]'s work.
    pub fn new(data: &Path) -> Self {
        Self { folder: data.join(FOLDER) }
    }

    /// Declares a boot alive for as long as the guard is kept. A boot id is used once.
    pub fn hold(&self, boot: BootId) -> Result<BootGuard> {
        folder::create(&self.folder)?;
        let failed = |e| folder::write_failed(&self.folder, e);
        let path = self.path(&boot);
        let new = path.with_extension(SUFFIX_NEW);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .map_err(failed)?;
        file.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => Error::Busy(None),
            TryLockError::Error(e) => failed(e),
        })?;
        let holder = serde_json::to_vec(&Holder::this_process()).map_err(|e| failed(e.into()))?;
        file.write_all(&holder).map_err(failed)?;
        // Locked first, named second: no process ever sees a living boot's file unlocked. A link
        // does not replace a file, so a boot that already has this id keeps it.
        let linked = fs::hard_link(&new, &path);
        let removed = fs::remove_file(&new);
        match linked {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::Busy(Some(Arc::new(e) as Cause)));
            }
            other => other.and(removed).map_err(failed)?,
        }
        Ok(BootGuard { boot, path, file })
    }

    /// Removes the files of dead boots; says how many.
    pub fn sweep(&self) -> Result<usize> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(e) => return Err(folder::write_failed(&self.folder, e)),
        };
        let mut removed = 0;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let extension = path.extension().unwrap_or_default();
            let ours = extension == SUFFIX || (extension == SUFFIX_NEW && is_old(&path));
            // An id is never reused, so no process can take the lock between check and removal.
            if ours && !is_held(&path) && fs::remove_file(&path).is_ok() {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// The boots that are alive.
    pub fn living(&self) -> Result<Vec<BootId>> {
        let alive = |(boot, is_alive): (BootId, bool)| is_alive.then_some(boot);
        Ok(self.all()?.into_iter().filter_map(alive).collect())
    }

    /// The boots that have a lock file, and whether each is alive.
    fn all(&self) -> Result<BTreeMap<BootId, bool>> {
        let unreadable = |e: io::Error| Error::Unreadable {
            path: self.folder.clone(),
            source: Some(Arc::new(e) as Cause),
        };
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(e) => return Err(unreadable(e)),
        };
        let mut boots = BTreeMap::new();
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            let is_lock = path.extension().unwrap_or_default() == SUFFIX;
            let name = path.file_stem().and_then(|name| name.to_str());
            if let Some(boot) = name.filter(|_| is_lock).and_then(|name| name.parse().ok()) {
                let is_alive = self.is_alive(&boot);
                boots.insert(boot, is_alive);
            }
        }
        Ok(boots)
    }

    /// Who made a boot's lock file; `None` if it does not say so.
    pub fn holder(&self, boot: &BootId) -> Option<Holder> {
        let mut text = String::new();
        let file = File::open(self.path(boot)).ok()?;
        file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    fn path(&self, boot: &BootId) -> PathBuf {
        // An id's alphabet has no dot and no slash.
        self.folder.join(format!("{boot}.{SUFFIX}"))
    }
}

impl Liveness for BootLocks {
    fn is_alive(&self, boot: &BootId) -> bool {
        is_held(&self.path(boot))
    }

    fn known(&self) -> Option<BTreeMap<BootId, bool>> {
        self.all().ok()
    }
}

fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > NEW_MAX))
}

/// Whether a process holds the file's lock. Returns `true` if that cannot be determined: taking a
/// living writer for dead costs more than taking a dead one for alive.
fn is_held(path: &Path) -> bool {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) => return e.kind() != io::ErrorKind::NotFound,
    };
    // Shared, so that two who ask at the same time do not take each other for the holder.
    !matches!(file.try_lock_shared(), Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::process::{Command, Stdio};

    fn boot(name: &str) -> BootId {
        name.parse().unwrap()
    }

    #[test]
    fn alive_while_held_and_dead_before_and_after() {
        let temp = tempfile::tempdir().unwrap();
        let locks = BootLocks::new(temp.path());
        assert!(!locks.is_alive(&boot("boot_1")));
        assert_eq!(locks.holder(&boot("boot_1")), None);
        let guard = locks.hold(boot("boot_1")).unwrap();
        assert!(locks.is_alive(&boot("boot_1")));
        let holder = locks.holder(&boot("boot_1")).unwrap();
        assert_eq!(holder.pid, std::process::id());
        assert!(holder.program.starts_with("piton_store"), "{holder:?}");
        assert!(matches!(locks.hold(boot("boot_1")), Err(Error::Busy(_))));
        assert_eq!(locks.sweep().unwrap(), 0);
        assert!(locks.is_alive(&boot("boot_1")), "the refused hold took the lock away");
        drop(guard);
        assert!(!locks.is_alive(&boot("boot_1")));
    }

    #[test]
    fn a_leftover_file_is_dead_and_swept() {
        let temp = tempfile::tempdir().unwrap();
        let locks = BootLocks::new(temp.path());
        assert_eq!(locks.sweep().unwrap(), 0);
        let _alive = locks.hold(boot("boot_2")).unwrap();
        fs::write(temp.path().join("boots/boot_1.lock"), "").unwrap();
        fs::write(temp.path().join("boots/boot_young.new"), "").unwrap();
        let old = File::create(temp.path().join("boots/boot_0.new")).unwrap();
        old.set_modified(std::time::SystemTime::now() - 2 * NEW_MAX).unwrap();
        fs::write(temp.path().join("boots/README"), "").unwrap();
        assert!(!locks.is_alive(&boot("boot_1")));
        assert_eq!(locks.holder(&boot("boot_1")), None);
        assert_eq!(locks.living().unwrap(), [boot("boot_2")]);
        assert_eq!(locks.sweep().unwrap(), 2);
        assert!(temp.path().join("boots/README").exists());
        assert!(locks.is_alive(&boot("boot_2")));
    }

    /// The test below runs this one in a process of its own.
    #[test]
    fn holder_process() {
        let Some(data) = std::env::var_os("PITON_TEST_BOOT_DATA") else { return };
        let _guard = BootLocks::new(Path::new(&data)).hold(boot("boot_child")).unwrap();
        // A child that outlives this process: it reads what the test's process holds open.
        let mut child = Command::new("cat").stdout(Stdio::null()).spawn().unwrap();
        println!("held, with child {}", child.id());
        // Until killed, or until the parent is gone.
        let _ = io::stdin().lock().read_line(&mut String::new());
        child.wait().unwrap();
    }

    /// `kill -9` makes a boot dead at once, though its file stays and a child of it lives on.
    #[test]
    fn a_killed_process_is_dead_though_its_child_lives() {
        let temp = tempfile::tempdir().unwrap();
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "boots::tests::holder_process", "--nocapture"])
            .env("PITON_TEST_BOOT_DATA", temp.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = io::BufReader::new(holder.stdout.take().unwrap()).lines();
        let said = lines.map(Result::unwrap).find(|line| line.contains("held, with child"));
        let child: i32 = said.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        let child = rustix::process::Pid::from_raw(child).unwrap();
        let locks = BootLocks::new(temp.path());
        assert!(locks.is_alive(&boot("boot_child")));
        let stdin = holder.stdin.take();
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(!locks.is_alive(&boot("boot_child")));
        assert!(rustix::process::test_kill_process(child).is_ok(), "the child ended too early");
        assert!(temp.path().join("boots/boot_child.lock").exists());
        assert_eq!(locks.sweep().unwrap(), 1);
        drop(stdin);
    }
}
