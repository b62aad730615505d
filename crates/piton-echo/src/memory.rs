//! What the agent remembers, and the file that it remembers it in: its owner's alone, with secrets
//! masked. The file's folder is held open, so that it may be renamed while the agent runs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use piton_core::mask::{KeyPatterns, Masker};
use piton_core::planted::{self, Bug};
use rustix::fs::{Mode, OFlags, fchmod, openat, renameat};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) cwd: PathBuf,
    #[serde(default)]
    pub(super) mode: String,
    #[serde(default)]
    pub(super) model: String,
    /// Config options that are on.
    #[serde(default)]
    pub(super) is_loud: bool,
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
    /// Where it will be once something is remembered: asking alone leaves nothing on the disk.
    later: Option<PathBuf>,
    file: Option<MemoryFile>,
    sessions: Sessions,
    masker: Masker,
}

#[derive(Debug)]
struct MemoryFile {
    folder: OwnedFd,
    name: OsString,
    /// The file existed. If it is missing now, it was deleted on purpose and is not created again.
    is_known: bool,
}

impl Memory {
    pub(super) fn open(file: Option<&Path>) -> io::Result<Self> {
        let is_there = |file: &&Path| folder_of(file).is_dir();
        let later = file.filter(|file| !is_there(file)).map(Path::to_owned);
        let mut file = file.filter(is_there).map(MemoryFile::open).transpose()?;
        let sessions = file.as_mut().map(MemoryFile::read).transpose()?.flatten();
        Ok(Self { file, later, sessions: sessions.unwrap_or_default(), masker: Masker::default() })
    }

    /// From now on masks by these rules what it writes. Without valid rules it keeps those it has.
    pub(super) fn mask_by(&mut self, rules: &Value) {
        let texts = |key: &str| {
            let listed = rules.get(key).and_then(Value::as_array).into_iter().flatten();
            listed.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        if let Ok(masker) = Masker::new(KeyPatterns::new(&texts("keys")), texts("values")) {
            self.masker = masker;
        }
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
        if let Some(path) = self.later.take() {
            self.file = Some(MemoryFile::open(&path)?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        // Others may remember other sessions in it.
        let lock = file.create("lock", Existing::Kept)?;
        lock.lock()?;
        let Some(mut sessions) = file.read()? else { return Ok(()) };
        change(&mut sessions);
        let mut written = serde_json::to_value(&sessions)?;
        // As in the log: the values of excluded keys are masked wherever they are said again.
        let unknown = self.masker.unknown_in(&written);
        if !unknown.is_empty()
            && let Ok(learned) = self.masker.learn(unknown)
        {
            self.masker = learned.masker;
        }
        if !planted::is(Bug::MemoryUnmasked) {
            self.masker.json(&mut written);
        }
        file.write(&serde_json::to_vec(&written)?)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Existing {
    Kept,
    Emptied,
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

impl MemoryFile {
    fn open(path: &Path) -> io::Result<Self> {
        let folder = folder_of(path);
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        Ok(Self { folder, name, is_known: false })
    }

    fn beside(&self, suffix: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(".");
        name.push(suffix);
        name
    }

    fn create(&self, suffix: &str, existing: Existing) -> io::Result<File> {
        let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if existing == Existing::Emptied {
            flags |= OFlags::TRUNC;
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.folder, self.beside(suffix), flags, mode)?;
        // One that was there before may have had another.
        fchmod(&file, mode)?;
        Ok(file.into())
    }

    /// `None`: it was deleted.
    fn read(&mut self) -> io::Result<Option<Sessions>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let name: &OsStr = &self.name;
        match openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => {
                self.is_known = true;
                let mut bytes = Vec::new();
                File::from(file).read_to_end(&mut bytes)?;
                Ok(Some(serde_json::from_slice(&bytes)?))
            }
            Err(rustix::io::Errno::NOENT) if self.is_known => Ok(None),
            Err(rustix::io::Errno::NOENT) => Ok(Some(Sessions::new())),
            Err(errno) => Err(errno.into()),
        }
    }

    /// All of it or nothing, whenever the process or the machine dies.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut written = self.create("new", Existing::Emptied)?;
        written.write_all(bytes)?;
        written.sync_all()?;
        renameat(&self.folder, self.beside("new"), &self.folder, &self.name)?;
        self.is_known = true;
        Ok(rustix::fs::fsync(&self.folder)?)
    }
}

/// A unique id, made from the process id, the time and a counter.
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
        let mut one = Memory::open(file.as_deref()).unwrap();
        let mut two = Memory::open(file.as_deref()).unwrap();
        let session = |mode: &str| Session { mode: mode.to_owned(), ..Session::default() };
        one.put("a", Some(&session("x"))).unwrap();
        two.put("b", Some(&session("y"))).unwrap();
        let three = Memory::open(file.as_deref()).unwrap();
        assert_eq!(three.get("a"), Some(&session("x")));
        assert_eq!(three.get("b"), Some(&session("y")));
        one.put("a", None).unwrap();
        assert_eq!(Memory::open(file.as_deref()).unwrap().iter().count(), 1);
    }

    fn session(prompt: &str) -> Session {
        let transcript = vec![serde_json::json!({ "text": prompt, "api_key": "key-0123456789" })];
        Session { prompts: vec![prompt.to_owned()], transcript, ..Session::default() }
    }

    fn mode_of(path: &Path) -> u32 {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// Wants to show: neither a secret that the client named nor the value of an excluded key is in
    /// the file, while the agent that runs remembers both.
    #[test]
    fn secrets_are_masked_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.json");
        let mut memory = Memory::open(Some(&file)).unwrap();
        memory.mask_by(&serde_json::json!({ "values": ["SuperSecret-1"], "keys": ["*api_key*"] }));
        let said = session("say SuperSecret-1 and key-0123456789");
        memory.put("a", Some(&said)).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("SuperSecret-1") && !text.contains("key-0123456789"), "{text}");
        assert!(text.contains("say [masked] and [masked]"), "{text}");
        assert_eq!(memory.get("a"), Some(&said));
    }

    #[test]
    fn the_file_is_its_owners_alone() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("echo");
        let file = folder.join("memory.json");
        let mut memory = Memory::open(Some(&file)).unwrap();
        memory.put("a", Some(&session("x"))).unwrap();
        assert_eq!((mode_of(&folder), mode_of(&file)), (0o700, 0o600));
        assert_eq!(mode_of(&folder.join("memory.json.lock")), 0o600);
    }

    #[test]
    fn its_folder_may_be_renamed_while_it_runs() {
        let temp = tempfile::tempdir().unwrap();
        let (before, after) = (temp.path().join("before"), temp.path().join("after"));
        let mut memory = Memory::open(Some(&before.join("echo/memory.json"))).unwrap();
        memory.put("a", Some(&session("x"))).unwrap();
        std::fs::rename(&before, &after).unwrap();
        memory.put("b", Some(&session("y"))).unwrap();
        let again = Memory::open(Some(&after.join("echo/memory.json"))).unwrap();
        assert_eq!(again.iter().count(), 2);
        assert!(!before.exists());
    }

    /// What was deleted with its session does not come back with the agent's next turn.
    #[test]
    fn a_deleted_file_is_not_made_again() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("memory.json");
        let mut memory = Memory::open(Some(&file)).unwrap();
        memory.put("a", Some(&session("x"))).unwrap();
        std::fs::remove_file(&file).unwrap();
        memory.put("a", Some(&session("y"))).unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn ids_differ() {
        assert_ne!(unique(), unique());
    }
}
