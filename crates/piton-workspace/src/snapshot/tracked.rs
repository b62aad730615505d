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
    let all = parse(&fs::read(&index).ok()?)?;
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

/// `.git` is a folder, or a file that names one.
fn git_folder(top: &FsPath) -> Option<PathBuf> {
    let git = top.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = fs::read_to_string(&git).ok()?;
    let named = text.strip_prefix("gitdir:")?.trim();
    Some(top.join(named))
}

/// The paths of an index of version 2, 3 or 4, with hashes of either length.
fn parse(index: &[u8]) -> Option<Vec<Path>> {
    [20, 32].into_iter().find_map(|hash_bytes| parse_with(index, hash_bytes))
}

fn parse_with(index: &[u8], hash_bytes: usize) -> Option<Vec<Path>> {
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
        if path.is_empty() || path.split(|byte| *byte == b'/').any(|part| part == b"..") {
            return None;
        }
        last.clone_from(&path);
        paths.push(path);
    }
    Some(paths)
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
