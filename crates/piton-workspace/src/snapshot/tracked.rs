//! The files that the user's git tracks. A tracked file belongs to the workspace also where an ignore
//! rule leaves it out. Read from git's index as it lies on the disk: git need not be installed, and no
//! process is started.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::tree::Path;
use crate::identity::git_folder;

/// Indexes that are remembered; with more of them all are read again.
const INDEXES_KEPT: usize = 64;
/// Fixed-length parts of an entry: ten numbers of four bytes before the hash, two bytes of flags after.
const NUMBERS_BYTES: usize = 40;
const FLAGS_BYTES: usize = 2;
const EXTENDED: u16 = 0x4000;

type Stamp = (u64, i64, i64, u64);
type Known = HashMap<PathBuf, (Stamp, Arc<BTreeSet<Path>>)>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// The tracked files below a workspace, relative to it. None where there is no repository, or one
/// whose index cannot be read.
pub(super) fn tracked(workspace: &FsPath) -> Arc<BTreeSet<Path>> {
    find(workspace).unwrap_or_default()
}

fn find(workspace: &FsPath) -> Option<Arc<BTreeSet<Path>>> {
    let workspace = workspace.canonicalize().ok()?;
    let top = workspace.ancestors().find(|folder| folder.join(".git").exists())?;
    let index = git_folder(top)?.join("index");
    let found = fs::metadata(&index).ok()?;
    let stamp = (found.len(), found.ctime(), found.ctime_nsec(), found.ino());
    let below = workspace.strip_prefix(top).ok()?.as_os_str().as_bytes().to_vec();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, paths)) = known.get(&workspace).filter(|(of, _)| *of == stamp) {
        return Some(Arc::clone(paths));
    }
    let all = parse(&fs::read(&index).ok()?, |name| fs::read(index.with_file_name(name)).ok())?;
    let relative = |path: Path| match &below[..] {
        [] => Some(path),
        below => path.strip_prefix(below)?.strip_prefix(b"/").map(<[u8]>::to_vec),
    };
    let paths = Arc::new(all.into_iter().filter_map(relative).collect::<BTreeSet<_>>());
    if known.len() >= INDEXES_KEPT {
        known.clear();
    }
    known.insert(workspace.clone(), (stamp, Arc::clone(&paths)));
    Some(paths)
}

/// The paths of an index of version 2, 3 or 4, with hashes of either length. `read` reads a file beside
/// it: most of a split index is in a shared one.
fn parse(index: &[u8], read: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Vec<Path>> {
    [20, 32].into_iter().find_map(|hash_bytes| {
        let entries = parse_with(index, hash_bytes)?;
        let Some(link) = link(index.get(entries.end..)?, hash_bytes) else {
            return entries.named();
        };
        let shared = parse_with(&read(&link.shared_name)?, hash_bytes)?.named()?;
        // Entries that replace one of the shared index have its name there.
        let is_removed = |at: usize| link.removed.contains(&at);
        let kept = shared.into_iter().enumerate();
        let kept = kept.filter(|(at, _)| !is_removed(*at)).map(|(_, path)| path);
        Some(kept.chain(entries.paths.into_iter().filter(|path| !path.is_empty())).collect())
    })
}

/// The entries of one file, and where they end.
struct Entries {
    paths: Vec<Path>,
    end: usize,
}

impl Entries {
    /// The paths, if each entry has one.
    fn named(self) -> Option<Vec<Path>> {
        Some(self.paths).filter(|paths| !paths.iter().any(Vec::is_empty))
    }
}

/// What a split index says of its shared one.
struct Link {
    shared_name: String,
    /// The entries of the shared one that count no more.
    removed: BTreeSet<usize>,
}

/// The extension `link` among those behind the entries, if it names a shared index.
fn link(mut extensions: &[u8], hash_bytes: usize) -> Option<Link> {
    while extensions.len() >= 8 + hash_bytes {
        let (signature, rest) = extensions.split_at_checked(4)?;
        let (length, rest) = rest.split_at_checked(4)?;
        let length = usize::try_from(u32::from_be_bytes(length.try_into().ok()?)).ok()?;
        let (body, rest) = rest.split_at_checked(length)?;
        if signature == b"link" {
            let (id, bitmaps) = body.split_at_checked(hash_bytes)?;
            let is_none = id.iter().all(|byte| *byte == 0);
            let removed = if bitmaps.is_empty() { BTreeSet::new() } else { ewah(bitmaps)? };
            let shared_name = format!("sharedindex.{}", hex::encode(id));
            return (!is_none).then_some(Link { shared_name, removed });
        }
        extensions = rest;
    }
    None
}

/// The positions of a compressed bitmap: how many bits, how many words, words of 64 bits, and where the
/// last marker is. A marker says how many equal words follow, which, and how many words as they are.
fn ewah(bitmap: &[u8]) -> Option<BTreeSet<usize>> {
    let number = |at: usize| Some(u32::from_be_bytes(bitmap.get(at..at + 4)?.try_into().ok()?));
    let (bits, words) = (usize::try_from(number(0)?).ok()?, usize::try_from(number(4)?).ok()?);
    let bytes = bitmap.get(8..words.checked_mul(8)?.checked_add(8)?)?;
    let mut words =
        bytes.chunks_exact(8).filter_map(|word| Some(u64::from_be_bytes(word.try_into().ok()?)));
    let (mut set, mut at) = (BTreeSet::new(), 0_usize);
    while let Some(marker) = words.next() {
        let (run, literals) = ((marker >> 1) & u64::from(u32::MAX), marker >> 33);
        let run_bits = usize::try_from(run).ok()?.checked_mul(64)?;
        if marker & 1 == 1 {
            set.extend(at..at.checked_add(run_bits)?.min(bits));
        }
        at = at.checked_add(run_bits)?;
        for _ in 0..literals {
            let word = words.next()?;
            set.extend((0..64).filter(|bit| (word >> bit) & 1 == 1).map(|bit| at + bit));
            at = at.checked_add(64)?;
        }
        if at > bits.checked_add(64)? {
            return None;
        }
    }
    Some(set)
}

fn parse_with(index: &[u8], hash_bytes: usize) -> Option<Entries> {
    let (body, _checksum) = index.split_at_checked(index.len().checked_sub(hash_bytes)?)?;
    let number = |at: usize| Some(u32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?));
    if body.get(..4)? != b"DIRC" {
        return None;
    }
    let (version, count) = (number(4)?, number(8)?);
    if !(2..=4).contains(&version) {
        return None;
    }
    let (mut at, mut paths, mut last) = (12, Vec::new(), Path::new());
    for _ in 0..count {
        let flags_at = at + NUMBERS_BYTES + hash_bytes;
        let flags = u16::from_be_bytes(body.get(flags_at..flags_at + 2)?.try_into().ok()?);
        let more = if flags & EXTENDED == 0 { 0 } else { 2 };
        let mut name_at = flags_at + FLAGS_BYTES + more;
        let path = if version == 4 {
            let (stripped, next) = varint(body, name_at)?;
            name_at = next;
            let kept = last.len().checked_sub(stripped)?;
            let mut path = last[..kept].to_vec();
            path.extend_from_slice(name(body, name_at)?);
            at = name_at + (path.len() - kept) + 1;
            path
        } else {
            let path = name(body, name_at)?.to_vec();
            // At least one NUL, up to a multiple of eight bytes.
            let entry_bytes = name_at + path.len() - at;
            at += (entry_bytes + 8) & !7;
            path
        };
        // One without a name stands for an entry of the shared index.
        if path.split(|byte| *byte == b'/').any(|part| part == b"..") {
            return None;
        }
        last.clone_from(&path);
        paths.push(path);
    }
    Some(Entries { paths, end: at })
}

fn name(body: &[u8], at: usize) -> Option<&[u8]> {
    let rest = body.get(at..)?;
    rest.get(..rest.iter().position(|byte| *byte == 0)?)
}

/// git's number of a pack's offsets: each further byte adds one, so that no number has two spellings.
fn varint(body: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *body.get(at)?;
    let mut number = usize::from(byte & 0x7F);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *body.get(at)?;
        number = number.checked_add(1)?.checked_mul(128)? + usize::from(byte & 0x7F);
    }
    Some((number, at + 1))
}
