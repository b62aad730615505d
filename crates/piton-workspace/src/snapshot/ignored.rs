//! The ignore rules that a snapshot's tree has. A file that they leave out was not in the snapshot
//! whether it existed or not, so its absence is no reason to remove it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path as FsPath;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::Error;
use super::tree::{Node, ObjectId, Path, Tree};

const FILE: &[u8] = b".gitignore";

/// By the folder that each file of rules lies in.
#[derive(Debug, Default)]
pub(super) struct IgnoreRules(BTreeMap<Path, Gitignore>);

impl IgnoreRules {
    pub(super) fn of(
        tree: &Tree,
        read: impl Fn(ObjectId) -> Result<Vec<u8>, Error>,
    ) -> Result<Self, Error> {
        let mut rules = BTreeMap::new();
        for (path, node) in &tree.nodes {
            let Node::File { id, .. } = node else { continue };
            let folder = match path.strip_suffix(FILE) {
                Some([]) => &[][..],
                Some(folder) if folder.ends_with(b"/") => &folder[..folder.len() - 1],
                _ => continue,
            };
            let mut builder = GitignoreBuilder::new("");
            for line in String::from_utf8_lossy(&read(*id)?).lines() {
                // A malformed line is none, as it is for the walk that takes a snapshot.
                let _ = builder.add_line(None, line);
            }
            if let Ok(built) = builder.build() {
                rules.insert(folder.to_vec(), built);
            }
        }
        Ok(Self(rules))
    }

    /// Whether the rules leave out a file, or a folder that it is in.
    pub(super) fn ignores(&self, path: &[u8]) -> bool {
        let folders = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut folders = folders.map(|(end, _)| &path[..end]);
        !self.0.is_empty()
            && (folders.any(|folder| self.matches(folder, true)) || self.matches(path, false))
    }

    /// The rules of the nearest folder that say something about a path count.
    fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        let mut above = path;
        loop {
            above = above.iter().rposition(|byte| *byte == b'/').map_or(&[], |end| &above[..end]);
            if let Some(rules) = self.0.get(above) {
                let relative = if above.is_empty() { path } else { &path[above.len() + 1..] };
                match rules.matched(FsPath::new(OsStr::from_bytes(relative)), is_folder) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            if above.is_empty() {
                return false;
            }
        }
    }
}
