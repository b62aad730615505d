//! Reads a workspace into a tree. What was read before and has the same metadata is not read again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path as FsPath;
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ignore::{WalkBuilder, WalkState};

use super::codec::{Malformed, Reader, Writer};
use super::objects::{Objects, read_at_most};
use super::tree::{FileMode, Node, ObjectId, Path, Tree};
use super::{Error, Limits, SkipReason, Skipped};

const CACHE_VERSION: u8 = 2;
/// Not a user's file: a restore writes it beside a file's place, and a crash may leave it there.
pub(super) const TEMPORARY_PREFIX: &str = ".piton-restore-";
pub(super) const TEMPORARY_SUFFIX: &str = ".tmp";
/// A file that was written within this time of being read may change again without its metadata
/// showing it: the kernel's clock for files is coarse.
const TIME_GRAIN: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    bytes: u64,
    mtime: i128,
    ctime: i128,
    inode: u64,
    mode: u32,
}

impl Stat {
    fn of(found: &Metadata) -> Self {
        let time =
            |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            bytes: found.len(),
            mtime: time(found.mtime(), found.mtime_nsec()),
            ctime: time(found.ctime(), found.ctime_nsec()),
            inode: found.ino(),
            mode: found.mode(),
        }
    }
}

/// What the last scan found. Lost, the next scan reads every file again.
#[derive(Debug, Default)]
pub(super) struct Cache {
    known: HashMap<Path, (Stat, ObjectId)>,
    /// The snapshot that this is of. In one file with what was read: two that were written one after
    /// the other would, after a crash, pair what is there now with an older snapshot.
    pub(super) last: Option<ObjectId>,
}

impl Cache {
    pub(super) fn load(path: &FsPath) -> Self {
        fs::read(path).ok().and_then(|bytes| Self::decode(&bytes).ok()).unwrap_or_default()
    }

    pub(super) fn save(&self, path: &FsPath) -> io::Result<()> {
        let next = path.with_extension("next");
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        io::Write::write_all(&mut file, &self.encode())?;
        fs::rename(next, path)
    }

    /// What a file holds, if it is as it was when it was read last.
    pub(super) fn known(&self, path: &[u8], metadata: &Metadata) -> Option<ObjectId> {
        let (stat, id) = self.known.get(path)?;
        (*stat == Stat::of(metadata)).then_some(*id)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.byte(CACHE_VERSION);
        // No object has the id of zeros.
        out.raw(&self.last.map_or([0; 32], |last| last.0));
        for (path, (stat, id)) in &self.known {
            out.bytes(path);
            out.number(stat.bytes);
            out.raw(&stat.mtime.to_le_bytes());
            out.raw(&stat.ctime.to_le_bytes());
            out.number(stat.inode);
            out.number(u64::from(stat.mode));
            out.raw(&id.0);
        }
        // A cut or flipped cache would make a changed file look unchanged.
        let mut bytes = out.into_bytes();
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (body, hash) = bytes.split_last_chunk::<32>().ok_or(Malformed)?;
        if blake3::hash(body).as_bytes() != hash {
            return Err(Malformed);
        }
        let mut input = Reader::new(body);
        if input.byte()? != CACHE_VERSION {
            return Err(Malformed);
        }
        let last = Some(ObjectId(input.array()?));
        let mut known = HashMap::new();
        while !input.is_empty() {
            let path = input.bytes()?.to_vec();
            let stat = Stat {
                bytes: input.number()?,
                mtime: i128::from_le_bytes(input.array()?),
                ctime: i128::from_le_bytes(input.array()?),
                inode: input.number()?,
                mode: u32::try_from(input.number()?).map_err(|_| Malformed)?,
            };
            known.insert(path, (stat, ObjectId(input.array()?)));
        }
        Ok(Self { known, last })
    }
}

/// What a scan found.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    pub(super) tree: Tree,
    pub(super) skipped: Vec<Skipped>,
    /// Nothing differs from the last scan.
    pub(super) unchanged: bool,
    /// The cache knows more than before.
    pub(super) was_read: bool,
}

/// Reads a workspace.
pub(super) struct Scan<'a> {
    root: &'a FsPath,
    limits: Limits,
    objects: &'a mut Objects,
    cache: &'a mut Cache,
    fresh: HashMap<Path, (Stat, ObjectId)>,
    found: Scanned,
    bytes: u64,
    /// Files that changed at this time or later are read again by the next scan.
    settled_before: i128,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        root: &'a FsPath,
        limits: Limits,
        objects: &'a mut Objects,
        cache: &'a mut Cache,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let settled = now.saturating_sub(TIME_GRAIN).as_nanos();
        Self {
            root,
            limits,
            objects,
            cache,
            fresh: HashMap::new(),
            found: Scanned { unchanged: true, ..Scanned::default() },
            bytes: 0,
            settled_before: i128::try_from(settled).unwrap_or(i128::MAX),
        }
    }

    /// `also` are paths that are read even though an ignore rule leaves them out.
    pub(super) fn run<'p>(
        mut self,
        also: impl IntoIterator<Item = &'p BTreeSet<Path>>,
    ) -> Result<Scanned, Error> {
        self.walk()?;
        for paths in also {
            // Both are in order: looked up one by one, many paths would cost as much as the walk.
            let mut found = self.found.tree.nodes.keys().peekable();
            let is_missing = |path: &&Path| {
                while found.next_if(|key| key < path).is_some() {}
                found.peek() != Some(path)
            };
            let missing: Vec<&Path> = paths.iter().filter(is_missing).collect();
            for path in missing {
                self.add_by_path(path)?;
            }
        }
        self.found.unchanged &= self.cache.known.len() == self.fresh.len();
        self.cache.known = self.fresh;
        Ok(self.found)
    }

    fn walk(&mut self) -> Result<(), Error> {
        let (seen, all) = mpsc::channel();
        walk_in_parallel(self.root, &seen);
        drop(seen);
        for seen in all {
            match seen {
                Seen::File { path, metadata } => {
                    let full = self.root.join(OsStr::from_bytes(&path));
                    self.add(path, &full, &metadata)?;
                }
                Seen::Nested { path } => self.skip(path, SkipReason::NestedRepository),
                Seen::Unreadable { path, error } => self.skip_unreadable(path, &error),
                Seen::Failed(error) => self.walk_error(&error)?,
            }
        }
        Ok(())
    }

    fn walk_error(&mut self, error: &ignore::Error) -> Result<(), Error> {
        // A malformed line in an ignore file, or a folder that may not be read.
        if !self.root.is_dir() {
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(Error::io(self.root, source));
        }
        let mut at = error;
        loop {
            match at {
                ignore::Error::WithPath { path, err } => {
                    if let Ok(relative) = path.strip_prefix(self.root) {
                        let path = relative.as_os_str().as_bytes().to_vec();
                        if err.is_io() {
                            self.skip(path, SkipReason::Unreadable);
                        }
                        return Ok(());
                    }
                    at = err;
                }
                ignore::Error::WithDepth { err, .. }
                | ignore::Error::WithLineNumber { err, .. } => {
                    at = err;
                }
                _ => return Ok(()),
            }
        }
    }

    fn add_by_path(&mut self, path: &Path) -> Result<(), Error> {
        let full = self.root.join(OsStr::from_bytes(path));
        // Through no link: the path must lie in the workspace.
        let mut above = full.parent();
        while let Some(folder) = above.filter(|folder| *folder != self.root) {
            if fs::symlink_metadata(folder).is_ok_and(|found| !found.is_dir()) {
                return Ok(());
            }
            above = folder.parent();
        }
        match fs::symlink_metadata(&full) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(metadata) => self.add(path.clone(), &full, &metadata),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(())
            }
            Err(error) => {
                self.skip_unreadable(path.clone(), &error);
                Ok(())
            }
        }
    }

    fn add(&mut self, path: Path, full: &FsPath, metadata: &Metadata) -> Result<(), Error> {
        if metadata.is_symlink() {
            let Ok(target) = fs::read_link(full) else { return Ok(()) };
            let target = target.into_os_string().into_vec();
            // Links are few and small; their target is their content.
            let id = self.objects.id_of(&target);
            self.remember(path.clone(), Stat::of(metadata), id);
            self.insert(path, Node::Link { target });
            return Ok(());
        }
        if !metadata.is_file() {
            self.skip(path, SkipReason::NotAFile);
            return Ok(());
        }
        if metadata.len() > self.limits.file_bytes_max {
            self.skip(path, SkipReason::TooLarge);
            return Ok(());
        }
        self.bytes += metadata.len();
        if self.found.tree.nodes.len() >= self.limits.files_max
            || self.bytes > self.limits.tree_bytes_max
        {
            return Err(Error::TooManyFiles {
                files_max: self.limits.files_max,
                tree_bytes_max: self.limits.tree_bytes_max,
            });
        }
        let stat = Stat::of(metadata);
        let mode = FileMode::of(stat.mode);
        if let Some((_, id)) = self.cache.known.get(&path).filter(|(known, _)| *known == stat)
            && self.objects.contains(*id)
        {
            let id = *id;
            self.fresh.insert(path.clone(), (stat, id));
            self.found.tree.nodes.insert(path, Node::File { id, bytes: stat.bytes, mode });
            return Ok(());
        }
        self.read(path, full, stat, mode)
    }

    fn read(&mut self, path: Path, full: &FsPath, stat: Stat, mode: FileMode) -> Result<(), Error> {
        let opened = File::options().read(true).custom_flags(rustix_nofollow()).open(full);
        let contents = opened.and_then(|file| read_at_most(&file, self.limits.file_bytes_max));
        match contents {
            Ok(Some(contents)) => {
                let id = self.objects.put(&contents)?;
                self.remember(path.clone(), stat, id);
                let bytes = contents.len() as u64;
                self.insert(path, Node::File { id, bytes, mode });
            }
            Ok(None) => self.skip(path, SkipReason::TooLarge),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.skip_unreadable(path, &error),
        }
        Ok(())
    }

    fn remember(&mut self, path: Path, stat: Stat, id: ObjectId) {
        // The id is of the contents; what a file is, and who may do what with it, is in its mode.
        let is_known = |(known_stat, known): &(Stat, ObjectId)| {
            *known == id && (known_stat.mode ^ stat.mode) & (0o170_000 | 0o777) == 0
        };
        self.found.unchanged &= self.cache.known.get(&path).is_some_and(is_known);
        self.found.was_read = true;
        let settled = stat.ctime < self.settled_before && stat.mtime < self.settled_before;
        // One that is not settled is remembered as something that no file can be.
        let stat = if settled { stat } else { Stat { inode: u64::MAX, ..stat } };
        self.fresh.insert(path, (stat, id));
    }

    fn insert(&mut self, path: Path, node: Node) {
        self.found.tree.nodes.insert(path, node);
    }

    fn skip_unreadable(&mut self, path: Path, error: &io::Error) {
        tracing::debug!(%error, "A file is not in the snapshot");
        self.skip(path, SkipReason::Unreadable);
    }

    fn skip(&mut self, path: Path, reason: SkipReason) {
        self.found.skipped.push(Skipped { path, reason });
    }
}

/// What a walk came across.
enum Seen {
    File { path: Path, metadata: Metadata },
    Nested { path: Path },
    Unreadable { path: Path, error: io::Error },
    Failed(ignore::Error),
}

/// Looking up files is most of the work, and waits for the kernel.
fn walk_in_parallel(root: &FsPath, seen: &mpsc::Sender<Seen>) {
    let relative = |path: &FsPath, root: &FsPath| {
        path.strip_prefix(root).unwrap_or(path).as_os_str().as_bytes().to_vec()
    };
    let mut builder = WalkBuilder::new(root);
    builder.hidden(false).ignore(false).require_git(false).follow_links(false);
    let (top, nested) = (root.to_owned(), seen.clone());
    builder.filter_entry(move |entry| {
        if entry.file_name() == OsStr::new(".git") || is_temporary(entry.file_name()) {
            return false;
        }
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let is_nested = is_folder
            && entry.path() != top
            && fs::symlink_metadata(entry.path().join(".git")).is_ok();
        if is_nested {
            // The receiver lives as long as the walk.
            let _ = nested.send(Seen::Nested { path: relative(entry.path(), &top) });
        }
        !is_nested
    });
    builder.build_parallel().run(|| {
        let seen = seen.clone();
        Box::new(move |entry| {
            let found = match entry {
                Err(error) => Seen::Failed(error),
                Ok(entry) if entry.file_type().is_none_or(|kind| kind.is_dir()) => {
                    return WalkState::Continue;
                }
                Ok(entry) => {
                    let path = relative(entry.path(), root);
                    match fs::symlink_metadata(entry.path()) {
                        Ok(metadata) => Seen::File { path, metadata },
                        // It went while we were walking.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            return WalkState::Continue;
                        }
                        Err(error) => Seen::Unreadable { path, error },
                    }
                }
            };
            match seen.send(found) {
                Ok(()) => WalkState::Continue,
                Err(_) => WalkState::Quit,
            }
        })
    });
}

fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(TEMPORARY_PREFIX.as_bytes()) && name.ends_with(TEMPORARY_SUFFIX.as_bytes())
}

fn rustix_nofollow() -> i32 {
    // The bits are small.
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits() | rustix::fs::OFlags::NONBLOCK.bits())
        .unwrap_or(0)
}

/// Groups a flat tree into folders, deepest first, and stores each.
pub(super) fn store_tree(tree: &Tree, objects: &mut Objects) -> Result<ObjectId, Error> {
    use super::tree::{FolderEntry, encode_folder};
    let mut folders: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, FolderEntry>> = BTreeMap::new();
    folders.entry(Vec::new()).or_default();
    for (path, node) in &tree.nodes {
        let (folder, name) = split(path);
        let entry = FolderEntry::Node(node.clone());
        folders.entry(folder.to_vec()).or_default().insert(name.to_vec(), entry);
        let mut above = folder;
        while !above.is_empty() {
            above = split(above).0;
            folders.entry(above.to_vec()).or_default();
        }
    }
    // A folder sorts before what is below it.
    while folders.len() > 1 {
        let Some((path, entries)) = folders.pop_last() else { break };
        let id = objects.put(&encode_folder(&entries))?;
        let (above, name) = split(&path);
        folders.entry(above.to_vec()).or_default().insert(name.to_vec(), FolderEntry::Folder(id));
    }
    let root = folders.pop_last().map(|(_, entries)| entries).unwrap_or_default();
    objects.put(&encode_folder(&root))
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}
