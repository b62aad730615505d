//! What outlives the terminal: the prompt that is being typed, and the prompts of a folder. In files of
//! the data folder that only their owner can read.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};

const FOLDER: &str = "terminal";
const HISTORY_ENTRIES_MAX: usize = 1_000;
/// A history file that is longer than this is rewritten with its last entries.
const HISTORY_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// A longer prompt is kept in the history of this process alone.
pub(crate) const ENTRY_BYTES_MAX: usize = 1024 * 1024;

fn folder(data: &Path, name: &str) -> io::Result<PathBuf> {
    let folder = data.join(FOLDER).join(name);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}

/// What is being typed, kept in a file for the case that the terminal dies.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    saved: String,
}

impl Draft {
    /// The draft of a session in this process, and what a terminal that died had left there.
    pub(crate) fn open(data: &Path, session: &str) -> io::Result<(Self, Option<String>)> {
        let folder = folder(data, "drafts")?;
        let mut found: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&folder)?.flatten() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix(session)?.strip_prefix('.')?.parse().ok());
            let Some(owner) = owner.and_then(Pid::from_raw) else { continue };
            if owner == rustix::process::getpid() || test_kill_process(owner).is_err() {
                let changed = entry.metadata().and_then(|metadata| metadata.modified());
                found.push((changed.unwrap_or(std::time::UNIX_EPOCH), entry.path()));
            }
        }
        found.sort();
        let path = folder.join(format!("{session}.{}", std::process::id()));
        // All are read before one is written: the file of this process may be among them.
        let texts: Vec<String> =
            found.iter().map(|(_, old)| fs::read_to_string(old)).collect::<io::Result<_>>()?;
        let mut draft = Self { path: path.clone(), saved: String::new() };
        draft.save(&texts.join("\n"))?;
        for (_, old) in found.into_iter().filter(|(_, old)| *old != path) {
            fs::remove_file(old)?;
        }
        let text = Some(draft.saved.clone()).filter(|text| !text.is_empty());
        Ok((draft, text))
    }

    /// All of it or what was there before; nothing is kept of an empty one.
    pub(crate) fn save(&mut self, text: &str) -> io::Result<()> {
        if self.saved == text {
            return Ok(());
        }
        if text.is_empty() {
            fs::remove_file(&self.path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        } else {
            let new = self.path.with_extension(format!("{}.new", std::process::id()));
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(&new)?.write_all(text.as_bytes())?;
            fs::rename(new, &self.path)?;
        }
        text.clone_into(&mut self.saved);
        Ok(())
    }
}

/// The prompts of a folder, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    path: Option<PathBuf>,
    entries: Vec<String>,
    /// The entry that is shown, and what was typed before it.
    at: Option<usize>,
    typed: String,
}

impl History {
    pub(crate) fn open(data: &Path, workspace: &str) -> io::Result<Self> {
        let name = blake3::hash(workspace.as_bytes()).to_hex();
        let path = folder(data, "history")?.join(&name.as_str()[..32]);
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        // A line that was cut off by a crash is left out.
        let mut entries: Vec<String> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let old = entries.len().saturating_sub(HISTORY_ENTRIES_MAX);
        entries.drain(..old);
        let mut history = Self { path: Some(path), entries, at: None, typed: String::new() };
        if text.len() as u64 > HISTORY_BYTES_MAX {
            history.drop_oldest();
            history.rewrite()?;
        }
        Ok(history)
    }

    /// Half of what a file may have stays, so that it is not rewritten each time.
    fn drop_oldest(&mut self) {
        let mut left = HISTORY_BYTES_MAX / 2;
        let fits = |entry: &&String| {
            let length = entry.len() as u64;
            left = left.saturating_sub(length);
            left > 0
        };
        let kept = self.entries.iter().rev().take_while(fits).count();
        let old = self.entries.len() - kept;
        self.entries.drain(..old);
    }

    fn rewrite(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let new = path.with_extension("new");
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        for entry in &self.entries {
            writeln!(file, "{}", serde_json::Value::from(entry.as_str()))?;
        }
        fs::rename(new, path)
    }

    /// Keeps a prompt; the same one twice in a row once.
    pub(crate) fn add(&mut self, text: &str) -> io::Result<()> {
        self.at = None;
        let text = text.trim_end();
        if text.is_empty() || self.entries.last().is_some_and(|last| last == text) {
            return Ok(());
        }
        self.entries.push(text.to_owned());
        let Some(path) = self.path.as_ref().filter(|_| text.len() <= ENTRY_BYTES_MAX) else {
            return Ok(());
        };
        let mut file = File::options().append(true).create(true).mode(0o600).open(path)?;
        // Begun on a line of its own, also behind one that was cut off.
        file.write_all(format!("{}\n", serde_json::Value::from(text)).as_bytes())
    }

    /// The entry before the one that is shown.
    pub(crate) fn older(&mut self, typed: &str) -> Option<String> {
        let at = match self.at {
            None => {
                typed.clone_into(&mut self.typed);
                self.entries.len().checked_sub(1)?
            }
            Some(at) => at.checked_sub(1)?,
        };
        self.at = Some(at);
        self.entries.get(at).cloned()
    }

    /// The entry behind it; at the end, what was typed before.
    pub(crate) fn newer(&mut self) -> Option<String> {
        let at = self.at? + 1;
        if at < self.entries.len() {
            self.at = Some(at);
            return self.entries.get(at).cloned();
        }
        self.at = None;
        Some(std::mem::take(&mut self.typed))
    }

    /// What is typed is no entry any more.
    pub(crate) fn settle(&mut self) {
        self.at = None;
    }

    /// Entries with this text, the newest first, without repetitions.
    pub(crate) fn matches(&self, query: &str) -> Vec<&str> {
        let query = query.to_lowercase();
        let mut found: Vec<&str> = Vec::new();
        for entry in self.entries.iter().rev() {
            if entry.to_lowercase().contains(&query) && !found.contains(&entry.as_str()) {
                found.push(entry);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_draft_is_found_by_the_next_terminal_if_its_own_is_gone() {
        let data = tempfile::tempdir().unwrap();
        let (mut draft, found) = Draft::open(data.path(), "sess_1").unwrap();
        assert_eq!(found, None);
        draft.save("half a sen").unwrap();
        let mode = fs::metadata(&draft.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A process that cannot be there any more, and one that is.
        let folder = draft.path.parent().unwrap();
        fs::write(folder.join("sess_1.2147483646"), "of a dead one").unwrap();
        fs::write(folder.join("sess_1.1"), "of a live one").unwrap();
        fs::write(folder.join("sess_11.2147483646"), "of another session").unwrap();
        let (mut draft, found) = Draft::open(data.path(), "sess_1").unwrap();
        let found = found.unwrap();
        assert!(found.contains("half a sen") && found.contains("of a dead one"), "{found}");
        assert!(!found.contains("live") && !found.contains("another"), "{found}");
        draft.save("").unwrap();
        assert_eq!(Draft::open(data.path(), "sess_1").unwrap().1, None);
    }

    #[test]
    fn prompts_of_a_folder_are_found_again() {
        let data = tempfile::tempdir().unwrap();
        let mut history = History::open(data.path(), "/a").unwrap();
        for text in ["one", "two\nlines", "two\nlines", "Three", ""] {
            history.add(text).unwrap();
        }
        // A line that was cut off.
        let path = history.path.clone().unwrap();
        File::options().append(true).open(&path).unwrap().write_all(b"\"cut o\n").unwrap();
        let mut history = History::open(data.path(), "/a").unwrap();
        assert_eq!(history.older("typed").as_deref(), Some("Three"));
        assert_eq!(history.older("").as_deref(), Some("two\nlines"));
        assert_eq!(history.newer().as_deref(), Some("Three"));
        assert_eq!(history.newer().as_deref(), Some("typed"));
        assert_eq!(history.newer(), None);
        assert_eq!(history.matches("t"), ["Three", "two\nlines"]);
        assert_eq!(History::open(data.path(), "/b").unwrap().older(""), None);
    }

    /// A paste of a megabyte is kept on the disk, a longer one in this process; the file stays bounded.
    #[test]
    fn long_prompts_are_kept() {
        let data = tempfile::tempdir().unwrap();
        let mut history = History::open(data.path(), "/a").unwrap();
        let (long, longer) = ("x".repeat(ENTRY_BYTES_MAX), "y".repeat(ENTRY_BYTES_MAX + 1));
        history.add(&long).unwrap();
        history.add(&longer).unwrap();
        assert_eq!(history.older("").as_ref(), Some(&longer));
        let mut again = History::open(data.path(), "/a").unwrap();
        assert_eq!(again.older("").as_ref(), Some(&long));
        for n in 0..8 {
            again.add(&format!("{n}{}", &long[1..])).unwrap();
        }
        let mut again = History::open(data.path(), "/a").unwrap();
        assert!(again.older("").is_some_and(|last| last.starts_with('7')));
        let path = again.path.clone().unwrap();
        assert!(fs::metadata(path).unwrap().len() <= HISTORY_BYTES_MAX / 2 + 16);
    }
}
