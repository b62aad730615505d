//! Choices while a prompt is typed: commands behind `/`, files behind `@`. Pure, but for the list of
//! files.

use std::path::Path;

use ignore::{DirEntry, WalkBuilder};

use super::commands;

/// Files that are looked at for a choice.
const FILES_MAX: usize = 20_000;
const ENTRIES_MAX: usize = 50;
/// Folders that are not walked: what is in them is made by programs.
const SKIPPED: [&str; 4] = [".git", "node_modules", "target", ".venv"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) what: String,
    /// What it puts in place of what was typed.
    pub(crate) text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Popup {
    /// Where in the prompt the text begins that is replaced.
    pub(crate) from: usize,
    pub(crate) entries: Vec<Entry>,
    pub(crate) chosen: usize,
}

impl Popup {
    pub(crate) fn next(&mut self) {
        self.chosen = (self.chosen + 1) % self.entries.len().max(1);
    }

    pub(crate) fn previous(&mut self) {
        let count = self.entries.len().max(1);
        self.chosen = (self.chosen + count - 1) % count;
    }

    pub(crate) fn entry(&self) -> Option<&Entry> {
        self.entries.get(self.chosen)
    }
}

/// Commands for what is typed: ours, and those that the agent has named (name, what it does).
pub(crate) fn of_commands(before: &str, agent: &[(String, String)]) -> Option<Popup> {
    let word = before.strip_prefix('/').filter(|word| !word.contains(char::is_whitespace))?;
    let ours =
        commands::ALL.iter().map(|command| (command.name.to_owned(), command.what.to_owned()));
    let theirs =
        agent.iter().filter(|(name, _)| !commands::ALL.iter().any(|ours| ours.name == name));
    let theirs = theirs.map(|(name, what)| (name.clone(), format!("{what} (agent)")));
    let fits = |(name, _): &(String, String)| name.starts_with(word);
    let entries: Vec<Entry> = ours
        .chain(theirs)
        .filter(fits)
        .map(|(name, what)| Entry { text: format!("/{name} "), name: format!("/{name}"), what })
        .collect();
    // A command that is there in full needs no choice.
    let is_exact = entries.len() == 1 && entries[0].name == before;
    (!entries.is_empty() && !is_exact).then_some(Popup { from: 0, entries, chosen: 0 })
}

/// The part behind an `@` that is being typed, and where it begins.
pub(crate) fn file_word(before: &str) -> Option<(usize, &str)> {
    let at = before.rfind('@')?;
    let is_begin = before[..at].chars().next_back().is_none_or(char::is_whitespace);
    let word = &before[at + 1..];
    (is_begin && !word.contains(char::is_whitespace)).then_some((at, word))
}

/// Files whose path has the letters of the word in this order; the shortest first.
pub(crate) fn of_files(from: usize, word: &str, files: &[String]) -> Option<Popup> {
    let wanted = word.to_lowercase();
    let mut found: Vec<(usize, &String)> = files
        .iter()
        .filter_map(|path| Some((score(&path.to_lowercase(), &wanted)?, path)))
        .collect();
    found.sort_by_key(|(score, path)| (*score, path.len(), path.as_str()));
    let entry = |path: &String| Entry {
        name: path.clone(),
        what: String::new(),
        text: if path.contains(char::is_whitespace) {
            format!("@\"{path}\" ")
        } else {
            format!("@{path} ")
        },
    };
    let entries: Vec<Entry> =
        found.into_iter().take(ENTRIES_MAX).map(|(_, path)| entry(path)).collect();
    (!entries.is_empty()).then_some(Popup { from, entries, chosen: 0 })
}

/// How far a path is from what is wanted; `None` if it does not have the letters.
fn score(path: &str, wanted: &str) -> Option<usize> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.starts_with(wanted) {
        return Some(0);
    }
    if name.contains(wanted) {
        return Some(1);
    }
    if path.contains(wanted) {
        return Some(2);
    }
    let mut rest = path.chars();
    wanted.chars().all(|c| rest.any(|other| other == c)).then_some(3)
}

/// The files of a folder, relative to it, without those that git ignores. For a thread of its own.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let is_walked = |entry: &DirEntry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        entry.depth() == 0
            || !(is_folder && SKIPPED.iter().any(|skipped| entry.file_name() == *skipped))
    };
    let mut walk = WalkBuilder::new(folder);
    // Files that begin with a dot are files of a project; a folder need not be a repository.
    walk.hidden(false).require_git(false).filter_entry(is_walked);
    walk.build()
        // A folder that cannot be read has no files to offer.
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|kind| !kind.is_dir()))
        .filter_map(|entry| Some(entry.path().strip_prefix(folder).ok()?.to_str()?.to_owned()))
        .take(FILES_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(popup: Option<Popup>) -> Vec<String> {
        popup.into_iter().flat_map(|popup| popup.entries).map(|entry| entry.name).collect()
    }

    #[test]
    fn commands_are_ours_and_the_agents() {
        let agent = [
            ("compact".to_owned(), "Sum up".to_owned()),
            ("help".to_owned(), "Its own".to_owned()),
        ];
        assert_eq!(names(of_commands("/co", &agent)), ["/compact"]);
        assert_eq!(names(of_commands("/mod", &agent)), ["/model", "/mode"]);
        assert!(names(of_commands("/", &agent)).len() > 8);
        for before in ["", "/mode x", "a /mo", "/help"] {
            assert_eq!(of_commands(before, &agent), None, "{before}");
        }
    }

    #[test]
    fn files_are_found_by_their_letters() {
        let files = ["src/main.rs", "docs/main.md", "src/terminal/mod.rs"].map(str::to_owned);
        assert_eq!(file_word("look at @src/m"), Some((8, "src/m")));
        assert_eq!(file_word("me@home"), None);
        assert_eq!(file_word("@a b"), None);
        assert_eq!(names(of_files(0, "main", &files)), ["src/main.rs", "docs/main.md"]);
        assert_eq!(names(of_files(0, "stm", &files)), ["src/terminal/mod.rs"]);
        assert_eq!(names(of_files(0, "xyz", &files)), [""; 0]);
    }

    #[test]
    fn made_folders_and_ignored_files_are_not_offered() {
        let folder = tempfile::tempdir().unwrap();
        let paths =
            ["a.txt", ".env.example", "sub/b.txt", ".git/c", "target/d", "out/e", "sub/f.log"];
        for path in paths {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::fs::write(folder.path().join(".gitignore"), "out/\n").unwrap();
        std::fs::write(folder.path().join("sub/.gitignore"), "*.log\n").unwrap();
        let mut found = files(folder.path());
        found.sort();
        assert_eq!(found, [".env.example", ".gitignore", "a.txt", "sub/.gitignore", "sub/b.txt"]);
    }
}
