//! A tree of files as plain values: what a snapshot holds, how two of them differ, and what it takes
//! to get from one to the other. No I/O.

use std::collections::BTreeMap;

use super::codec::{Malformed, Reader, Writer};

/// The address of an object in a snapshot repository: a hash of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub(super) [u8; 32]);

impl std::fmt::Display for ObjectId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&hex::encode(self.0))
    }
}

impl std::str::FromStr for ObjectId {
    type Err = hex::FromHexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

/// What lies at a path. Folders follow from the paths below them; empty ones are not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File { id: ObjectId, bytes: u64, mode: FileMode },
    Link { target: Vec<u8> },
}

/// Who may read, write and run a file. Snapshots of an older format know only whether it can be run.
#[derive(Clone, Copy, Debug)]
pub struct FileMode {
    pub executable: bool,
    /// The permission bits; `None`: not known, and equal to all that can be run alike.
    pub bits: Option<u16>,
}

impl FileMode {
    pub(super) fn of(mode: u32) -> Self {
        let bits = u16::try_from(mode & 0o777).ok();
        Self { executable: mode & 0o100 != 0, bits }
    }
}

impl PartialEq for FileMode {
    fn eq(&self, other: &Self) -> bool {
        match (self.bits, other.bits) {
            (Some(bits), Some(others)) => bits == others,
            _ => self.executable == other.executable,
        }
    }
}

impl Eq for FileMode {}

/// Paths relative to the workspace, as bytes: names need not be UTF-8 and may contain newlines.
pub type Path = Vec<u8>;

/// Files and links by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub nodes: BTreeMap<Path, Node>,
}

/// How a path differs between two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Removed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub path: Path,
    pub kind: ChangeKind,
}

/// One step of a restore. Applying a step twice has the effect of applying it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Remove { path: Path },
    Write { path: Path, node: Node },
}

impl Step {
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Remove { path } | Self::Write { path, .. } => path,
        }
    }
}

/// Which paths are meant: all, or the named ones and everything below them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub paths: Vec<Path>,
}

impl Selection {
    pub fn all() -> Self {
        Self::default()
    }

    pub fn contains(&self, path: &[u8]) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|named| is_at_or_below(path, named))
    }
}

fn is_at_or_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// What has to change to get from `before` to `after`, by path.
pub fn changes(before: &Tree, after: &Tree) -> Vec<Change> {
    let mut changes = Vec::new();
    for (path, node) in &after.nodes {
        match before.nodes.get(path) {
            None => changes.push(Change { path: path.clone(), kind: ChangeKind::Added }),
            Some(old) if old != node => {
                changes.push(Change { path: path.clone(), kind: ChangeKind::Modified });
            }
            Some(_) => {}
        }
    }
    let removed = before.nodes.keys().filter(|path| !after.nodes.contains_key(*path));
    changes.extend(removed.map(|path| Change { path: path.clone(), kind: ChangeKind::Removed }));
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// The steps from `now` to `target` on the selected paths: first what must go, deepest paths first,
/// so that a folder can become a file; then what must be written.
pub fn plan(now: &Tree, target: &Tree, selection: &Selection) -> Vec<Step> {
    let all = changes(now, target);
    let selected = all.into_iter().filter(|change| selection.contains(&change.path));
    let (removed, written): (Vec<_>, Vec<_>) =
        selected.partition(|change| change.kind == ChangeKind::Removed);
    let removals = removed.into_iter().rev().map(|change| Step::Remove { path: change.path });
    let writes = written.into_iter().filter_map(|change| {
        let node = target.nodes.get(&change.path)?.clone();
        Some(Step::Write { path: change.path, node })
    });
    removals.chain(writes).collect()
}

const FILE: u8 = 1;
const LINK: u8 = 2;
const FOLDER: u8 = 3;
/// A file with its permission bits.
const FILE_WITH_MODE: u8 = 4;

/// An entry of one folder, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FolderEntry {
    Node(Node),
    Folder(ObjectId),
}

pub(super) fn encode_folder(entries: &BTreeMap<Vec<u8>, FolderEntry>) -> Vec<u8> {
    let mut out = Writer::default();
    for (name, entry) in entries {
        match entry {
            FolderEntry::Node(node) => encode_node(&mut out, name, node),
            FolderEntry::Folder(id) => {
                out.byte(FOLDER);
                out.bytes(name);
                out.raw(&id.0);
            }
        }
    }
    out.into_bytes()
}

fn encode_node(out: &mut Writer, name: &[u8], node: &Node) {
    match node {
        Node::File { id, bytes, mode } => {
            out.byte(if mode.bits.is_some() { FILE_WITH_MODE } else { FILE });
            out.bytes(name);
            out.raw(&id.0);
            out.number(*bytes);
            match mode.bits {
                Some(bits) => out.raw(&bits.to_le_bytes()),
                None => out.byte(u8::from(mode.executable)),
            }
        }
        Node::Link { target } => {
            out.byte(LINK);
            out.bytes(name);
            out.bytes(target);
        }
    }
}

pub(super) fn decode_folder(bytes: &[u8]) -> Result<Vec<(Vec<u8>, FolderEntry)>, Malformed> {
    let mut input = Reader::new(bytes);
    let mut entries = Vec::new();
    while !input.is_empty() {
        let kind = input.byte()?;
        let name = input.bytes()?.to_vec();
        // A stored name becomes a path on the disk: nothing but a plain name may come back.
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
            return Err(Malformed);
        }
        let entry = match kind {
            FOLDER => FolderEntry::Folder(ObjectId(input.array()?)),
            FILE => FolderEntry::Node(Node::File {
                id: ObjectId(input.array()?),
                bytes: input.number()?,
                mode: FileMode { executable: input.byte()? == 1, bits: None },
            }),
            FILE_WITH_MODE => FolderEntry::Node(Node::File {
                id: ObjectId(input.array()?),
                bytes: input.number()?,
                mode: FileMode::of(u16::from_le_bytes(input.array()?).into()),
            }),
            LINK => FolderEntry::Node(Node::Link { target: input.bytes()?.to_vec() }),
            _ => return Err(Malformed),
        };
        entries.push((name, entry));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, u8)]) -> Tree {
        let node = |n: u8| Node::File {
            id: ObjectId([n; 32]),
            bytes: n.into(),
            mode: FileMode::of(0o644),
        };
        Tree { nodes: files.iter().map(|(path, n)| (path.as_bytes().to_vec(), node(*n))).collect() }
    }

    fn paths(steps: &[Step]) -> Vec<String> {
        steps
            .iter()
            .map(|step| {
                let sign = if matches!(step, Step::Remove { .. }) { '-' } else { '+' };
                format!("{sign}{}", String::from_utf8_lossy(step.path()))
            })
            .collect()
    }

    #[test]
    fn a_folder_that_becomes_a_file_is_emptied_first() {
        let now = tree(&[("a/b/c", 1), ("a/d", 1), ("same", 1)]);
        let target = tree(&[("a", 2), ("same", 1)]);
        assert_eq!(paths(&plan(&now, &target, &Selection::all())), ["-a/d", "-a/b/c", "+a"]);
        assert_eq!(paths(&plan(&target, &now, &Selection::all())), ["-a", "+a/b/c", "+a/d"]);
    }

    #[test]
    fn a_selection_means_a_path_and_what_is_below_it() {
        let now = tree(&[("src/a", 1), ("srcs", 1), ("src.rs", 1)]);
        let target = tree(&[("src/a", 2), ("srcs", 2), ("src.rs", 2)]);
        let selection = Selection { paths: vec![b"src".to_vec()] };
        assert_eq!(paths(&plan(&now, &target, &selection)), ["+src/a"]);
    }

    #[test]
    fn an_applied_plan_leads_to_the_target() {
        let now = tree(&[("a", 1), ("b/x", 1), ("c", 3)]);
        let target = tree(&[("a", 2), ("b", 1), ("c", 3), ("d/e", 4)]);
        let mut reached = now.clone();
        for step in plan(&now, &target, &Selection::all()) {
            match step {
                Step::Remove { path } => drop(reached.nodes.remove(&path)),
                Step::Write { path, node } => drop(reached.nodes.insert(path, node)),
            }
        }
        assert_eq!(reached, target);
        assert_eq!(changes(&target, &reached), []);
    }

    #[test]
    fn stored_names_that_are_no_plain_names_are_refused() {
        for name in [&b".."[..], b".", b"", b"a/b"] {
            let mut out = Writer::default();
            encode_node(&mut out, name, &Node::Link { target: b"t".to_vec() });
            assert!(decode_folder(&out.into_bytes()).is_err());
        }
    }
}
