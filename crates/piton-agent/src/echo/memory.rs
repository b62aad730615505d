//! What the agent remembers, and the file that it remembers it in.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) cwd: PathBuf,
    #[serde(default)]
    pub(super) mode: String,
    #[serde(default)]
    pub(super) prompts: Vec<String>,
    #[serde(default)]
    pub(super) values: BTreeMap<String, String>,
    /// The updates that tell its history.
    #[serde(default)]
    pub(super) transcript: Vec<Value>,
}

type Sessions = BTreeMap<String, Session>;

#[derive(Debug, Default)]
pub(super) struct Memory {
    file: Option<PathBuf>,
    sessions: Sessions,
}

impl Memory {
    pub(super) fn open(file: Option<PathBuf>) -> io::Result<Self> {
        let sessions = file.as_deref().map(read).transpose()?.unwrap_or_default();
        Ok(Self { file, sessions })
    }

    pub(super) fn get(&self, id: &str) -> Option<&Session> {
        self.sessions.get(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Session)> {
        self.sessions.iter()
    }

    /// `None`: forgotten.
    pub(super) fn put(&mut self, id: &str, session: Option<&Session>) -> io::Result<()> {
        let change = |sessions: &mut Sessions| match session {
            Some(session) => {
                sessions.insert(id.to_owned(), session.clone());
            }
            None => {
                sessions.remove(id);
            }
        };
        change(&mut self.sessions);
        let Some(file) = &self.file else { return Ok(()) };
        // Others may remember other sessions in it.
        let lock = create(&beside(file, "lock"))?;
        lock.lock()?;
        let mut sessions = read(file)?;
        change(&mut sessions);
        write(file, &sessions)
    }
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// What was said to the agent is its user's alone.
fn create(file: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(file)
}

fn read(file: &Path) -> io::Result<Sessions> {
    match fs::read(file) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Sessions::new()),
        Err(error) => Err(error),
    }
}

/// All of it or nothing, whenever the process or the machine dies.
fn write(file: &Path, sessions: &Sessions) -> io::Result<()> {
    let new = beside(file, "new");
    let mut written = create(&new)?;
    written.write_all(&serde_json::to_vec(sessions)?)?;
    written.sync_all()?;
    fs::rename(&new, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// A text that nobody made before.
pub(super) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let seed = format!("{} {} {count}", std::process::id(), now.as_nanos());
    blake3::hash(seed.as_bytes()).to_hex()[..24].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_agents_can_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = Some(folder.path().join("memory.json"));
        let mut one = Memory::open(file.clone()).unwrap();
        let mut two = Memory::open(file.clone()).unwrap();
        let session = |mode: &str| Session { mode: mode.to_owned(), ..Session::default() };
        one.put("a", Some(&session("x"))).unwrap();
        two.put("b", Some(&session("y"))).unwrap();
        let three = Memory::open(file.clone()).unwrap();
        assert_eq!(three.get("a"), Some(&session("x")));
        assert_eq!(three.get("b"), Some(&session("y")));
        one.put("a", None).unwrap();
        assert_eq!(Memory::open(file).unwrap().iter().count(), 1);
    }

    #[test]
    fn ids_differ() {
        assert_ne!(unique(), unique());
    }
}
