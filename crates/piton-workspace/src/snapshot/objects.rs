//! The objects of a snapshot repository: file contents, folders and snapshots, by a hash of what
//! they hold, in one file that only grows.
//!
//! `pack` is a sequence of frames; `pack.index` says where each one lies and is a cache: missing or
//! damaged, it is made again from the pack. Objects are compressed, and sealed where the store is
//! encrypted. An object is certain to stay when [`Objects::flush`] has returned. The index knows only
//! those; frames beyond it are verified when the pack is opened: after a power failure what was not
//! flushed may be missing, cut off or damaged, and is then as if it had never been written.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::Error;
use super::tree::ObjectId;

const MAGIC: u8 = 0xA7;
const PLAIN: u8 = 0;
const SEALED: u8 = 1;
const HEAD_BYTES: usize = 1 + 1 + 32 + 8;
const INDEX_BYTES: usize = 32 + 8 + 8;
const NONCE_BYTES: usize = 24;
const ZSTD_LEVEL: i32 = 3;

/// What seals the objects and hides which contents they have.
#[derive(Clone)]
pub struct SnapshotKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for SnapshotKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("SnapshotKey")
    }
}

impl SnapshotKey {
    /// Derived from a secret of the session, which the store keeps.
    pub fn derive(secret: &[u8]) -> Self {
        Self(Zeroizing::new(blake3::derive_key("piton 2026 workspace snapshots", secret)))
    }
}

#[derive(Clone, Copy, Debug)]
struct ObjectRange {
    /// Of the body.
    offset: u64,
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct Objects {
    path: PathBuf,
    pack: File,
    ranges: HashMap<ObjectId, ObjectRange>,
    /// Where the next frame goes.
    end: u64,
    /// What lies behind it was written since this pack was opened or last flushed.
    flushed_end: u64,
    /// What was added since the last flush, for the index.
    added: Vec<(ObjectId, ObjectRange)>,
    key: Option<SnapshotKey>,
}

impl Objects {
    /// The caller holds the repository's lock, or only reads.
    pub(super) fn open(folder: &Path, key: Option<SnapshotKey>) -> Result<Self, Error> {
        let path = folder.join("pack");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let is_new = !path.exists();
        let pack = options.open(&path).map_err(|source| Error::io(&path, source))?;
        if is_new {
            // Without its name what is flushed to it would be lost.
            let named = File::open(folder).and_then(|folder| folder.sync_all());
            named.map_err(|source| Error::io(folder, source))?;
        }
        let mut objects = Self {
            path,
            pack,
            ranges: HashMap::new(),
            end: 0,
            flushed_end: 0,
            added: Vec::new(),
            key,
        };
        objects.load().map_err(|source| Error::io(&objects.path, source))?;
        objects.flushed_end = objects.end;
        Ok(objects)
    }

    fn index_path(&self) -> PathBuf {
        self.path.with_extension("index")
    }

    fn load(&mut self) -> io::Result<()> {
        let length = self.pack.metadata()?.len();
        let index = std::fs::read(self.index_path()).unwrap_or_default();
        for entry in index.chunks_exact(INDEX_BYTES) {
            let (id, rest) = entry.split_at(32);
            let number = |bytes: &[u8]| u64::from_le_bytes(array(bytes));
            let range = ObjectRange { offset: number(&rest[..8]), bytes: number(&rest[8..]) };
            let end = range.offset.checked_add(range.bytes).filter(|end| *end <= length);
            let in_order = range.offset == self.end + HEAD_BYTES as u64;
            let (Some(end), true, Ok(id)) = (end, in_order, id.try_into()) else { break };
            self.ranges.insert(ObjectId(id), range);
            self.end = end;
        }
        self.scan(length)
    }

    /// Reads the frames that the index does not know, and leaves out those that are damaged: what has
    /// the same contents is written again.
    fn scan(&mut self, length: u64) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES];
        while self.end + HEAD_BYTES as u64 <= length {
            self.pack.read_exact_at(&mut head, self.end)?;
            let bytes = u64::from_le_bytes(array(&head[34..]));
            let offset = self.end + HEAD_BYTES as u64;
            let end = offset.checked_add(bytes).filter(|end| *end <= length);
            let (Some(end), MAGIC) = (end, head[0]) else { break };
            let (id, range) = (ObjectId(array(&head[2..34])), ObjectRange { offset, bytes });
            self.end = end;
            if self.contains(id) {
                continue;
            }
            self.ranges.insert(id, range);
            // Another key reads nothing of it: it is neither verified nor damaged.
            let is_readable = (head[1] == SEALED) == self.key.is_some();
            match self.get(id) {
                Ok(_) => self.added.push((id, range)),
                Err(error @ Error::ObjectDamaged { .. }) if is_readable => {
                    tracing::warn!(%error, path = %self.path.display(), "left out");
                    self.ranges.remove(&id);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Cuts off what a crash left unfinished. Only with the lock held.
    pub(super) fn repair(&mut self) -> Result<(), Error> {
        self.cut()?;
        // What was checked just now need not be checked again.
        self.flush()
    }

    fn cut(&self) -> Result<(), Error> {
        let result = self.pack.metadata().and_then(|found| {
            if found.len() > self.end { self.pack.set_len(self.end) } else { Ok(()) }
        });
        result.map_err(|source| Error::io(&self.path, source))
    }

    pub(super) fn id_of(&self, contents: &[u8]) -> ObjectId {
        let hash = match &self.key {
            Some(key) => blake3::keyed_hash(&key.0, contents),
            None => blake3::hash(contents),
        };
        ObjectId(*hash.as_bytes())
    }

    pub(super) fn contains(&self, id: ObjectId) -> bool {
        self.ranges.contains_key(&id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = (ObjectId, u64)> {
        self.ranges.iter().map(|(id, range)| (*id, range.bytes + HEAD_BYTES as u64))
    }

    pub(super) fn put(&mut self, contents: &[u8]) -> Result<ObjectId, Error> {
        let id = self.id_of(contents);
        if self.contains(id) {
            return Ok(id);
        }
        let packed = zstd::bulk::compress(contents, ZSTD_LEVEL)
            .map_err(|source| Error::io(&self.path, source))?;
        let mut body = (contents.len() as u64).to_le_bytes().to_vec();
        body.extend_from_slice(&packed);
        let (kind, body) = match &self.key {
            Some(key) => (SEALED, seal(key, id, &body)?),
            None => (PLAIN, body),
        };
        let mut frame = Vec::with_capacity(HEAD_BYTES + body.len());
        frame.push(MAGIC);
        frame.push(kind);
        frame.extend_from_slice(&id.0);
        frame.extend_from_slice(&(body.len() as u64).to_le_bytes());
        frame.extend_from_slice(&body);
        self.append(id, &frame)?;
        Ok(id)
    }

    /// Takes a frame over from another pack, as it is.
    pub(super) fn copy(&mut self, id: ObjectId, from: &Self) -> Result<(), Error> {
        let Some(range) = from.ranges.get(&id) else { return Err(Error::ObjectMissing { id }) };
        let mut frame = vec![0; HEAD_BYTES + usize::try_from(range.bytes).unwrap_or(usize::MAX)];
        let start = range.offset - HEAD_BYTES as u64;
        from.pack.read_exact_at(&mut frame, start).map_err(|e| Error::io(&from.path, e))?;
        self.append(id, &frame)
    }

    fn append(&mut self, id: ObjectId, frame: &[u8]) -> Result<(), Error> {
        let written = self.pack.write_all_at(frame, self.end);
        if let Err(source) = written {
            // Whatever half was written lies behind the end: the next repair cuts it off.
            return Err(Error::io(&self.path, source));
        }
        let offset = self.end + HEAD_BYTES as u64;
        let range = ObjectRange { offset, bytes: frame.len() as u64 - HEAD_BYTES as u64 };
        self.ranges.insert(id, range);
        self.added.push((id, range));
        self.end += frame.len() as u64;
        Ok(())
    }

    pub(super) fn get(&self, id: ObjectId) -> Result<Vec<u8>, Error> {
        let missing = || Error::ObjectMissing { id };
        let damaged = || Error::ObjectDamaged { id };
        let range = self.ranges.get(&id).ok_or_else(missing)?;
        let start = range.offset - HEAD_BYTES as u64;
        let mut head = [0; HEAD_BYTES];
        let io = |source| Error::io(&self.path, source);
        self.pack.read_exact_at(&mut head, start).map_err(io)?;
        let mut body = vec![0; usize::try_from(range.bytes).map_err(|_| damaged())?];
        self.pack.read_exact_at(&mut body, range.offset).map_err(io)?;
        let body = match (head[1], &self.key) {
            (PLAIN, None) => body,
            (SEALED, Some(key)) => open(key, id, &body).ok_or_else(damaged)?,
            _ => return Err(damaged()),
        };
        let (length, packed) = body.split_at_checked(8).ok_or_else(damaged)?;
        let length = usize::try_from(u64::from_le_bytes(array(length))).map_err(|_| damaged())?;
        let contents = zstd::bulk::decompress(packed, length).map_err(|_| damaged())?;
        if self.id_of(&contents) == id { Ok(contents) } else { Err(damaged()) }
    }

    pub(super) fn has_unflushed(&self) -> bool {
        !self.added.is_empty()
    }

    /// Everything that was added is on the disk when this returns.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if self.added.is_empty() {
            return Ok(());
        }
        if let Err(source) = self.pack.sync_data() {
            self.forget_unflushed();
            return Err(Error::io(&self.path, source));
        }
        self.flushed_end = self.end;
        let mut entries = Vec::with_capacity(self.added.len() * INDEX_BYTES);
        for (id, range) in self.added.drain(..) {
            entries.extend_from_slice(&id.0);
            entries.extend_from_slice(&range.offset.to_le_bytes());
            entries.extend_from_slice(&range.bytes.to_le_bytes());
        }
        // A cache: without it, the pack is read instead.
        if let Err(error) = self.extend_index(&entries) {
            tracing::debug!(%error, "The index of a snapshot repository was not written");
        }
        Ok(())
    }

    /// After a failed flush it is unknown which objects are on the disk, and a second flush would not
    /// tell: a snapshot that needs these objects writes them again.
    fn forget_unflushed(&mut self) {
        let flushed_end = self.flushed_end;
        self.ranges.retain(|_, range| range.offset < flushed_end);
        self.added.retain(|(_, range)| range.offset < flushed_end);
        self.end = flushed_end;
        if let Err(error) = self.cut() {
            tracing::error!(%error, "What could not be flushed stays in a snapshot repository");
        }
    }

    fn extend_index(&self, entries: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut index = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.index_path())?;
        let known = self.ranges.len() * INDEX_BYTES - entries.len();
        // An index of another length is of another pack, or damaged.
        if index.metadata()?.len() != known as u64 {
            drop(index);
            return std::fs::remove_file(self.index_path());
        }
        index.seek(SeekFrom::End(0))?;
        index.write_all(entries)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.end
    }
}

/// The callers pass slices of this length.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

fn seal(key: &SnapshotKey, id: ObjectId, body: &[u8]) -> Result<Vec<u8>, Error> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| Error::NoRandomness)?;
    let cipher = XChaCha20Poly1305::new((&*key.0).into());
    let payload = Payload { msg: body, aad: &id.0 };
    let sealed =
        cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| Error::ObjectDamaged { id })?;
    let mut out = nonce.to_vec();
    out.extend_from_slice(&sealed);
    Ok(out)
}

fn open(key: &SnapshotKey, id: ObjectId, body: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = body.split_at_checked(NONCE_BYTES)?;
    let cipher = XChaCha20Poly1305::new((&*key.0).into());
    let payload = Payload { msg: sealed, aad: &id.0 };
    cipher.decrypt(&XNonce::from(array::<NONCE_BYTES>(nonce)), payload).ok()
}

/// Reads at most `bytes_max` bytes; `None`: there are more.
pub(super) fn read_at_most(file: &File, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut contents = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut contents)?;
    Ok((contents.len() as u64 <= bytes_max).then_some(contents))
}
