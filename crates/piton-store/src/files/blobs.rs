//! Contents that are too large to lie in their lines: one file each, named by what is in it. A blob
//! is durable before the line that refers to it is written.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use piton_core::chain;
use piton_core::limits::PAYLOAD_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::disk;
use super::folder::Folder;
use super::line::Hex;
use super::paths::{self, Kind};
use super::scan::{Form, Raw, RawLines};
use crate::error::{Error, Result};
use crate::folder::write_failed;

/// Blobs from this size on are compressed, if that makes them smaller.
const COMPRESSED_BYTES_MIN: usize = 64 * 1024;
/// Fast; contents are text, which shrinks well at any level.
const COMPRESSION_LEVEL: i32 = 3;

/// Blobs that may have no references any more. The list is written before the last line that refers
/// to them is removed, so that the next process checks them again.
#[derive(Debug, Serialize, Deserialize)]
struct Sweep {
    blobs: Vec<Hex>,
}

/// Why a blob could not be had.
#[derive(Debug)]
pub(crate) enum Trouble {
    Missing,
    Damaged,
    Io(io::Error),
}

impl Folder {
    pub(super) fn keep_blob(
        &self,
        payload: &str,
        compress_above: Option<usize>,
    ) -> Result<chain::Hash> {
        let address = *blake3::hash(payload.as_bytes()).as_bytes();
        let (folder, files) = self.paths.blob(&address);
        let failed = |e| write_failed(&folder, e);
        if !self.is_known_blob(&address) {
            // An earlier life may have made the folder, and died before its name was durable.
            self.disk.make_folder(&folder).map_err(failed)?;
            self.settle(self.disk.sync_folder(&self.paths.blobs))?;
        }
        if files.iter().any(|path| self.disk.entry(path).is_ok()) {
            if !self.is_known_blob(&address) {
                // The same for the blob's own name.
                self.flush_blobs(&folder)?;
                self.know_blob(address);
            }
            return Ok(address);
        }
        let smallest = compress_above.map_or(COMPRESSED_BYTES_MIN, |above| above + 1);
        let shrunk = if payload.len() < smallest {
            None
        } else {
            let shrunk = zstd::bulk::compress(payload.as_bytes(), COMPRESSION_LEVEL).ok();
            shrunk.filter(|shrunk| shrunk.len() < payload.len())
        };
        let [plain, compressed] = &files;
        let (path, bytes) = match &shrunk {
            Some(shrunk) => (compressed, shrunk.as_slice()),
            None => (plain, payload.as_bytes()),
        };
        let new = paths::unfinished(path);
        let written = self.disk.create(&new).and_then(|file| {
            file.write_at(bytes, 0)?;
            Ok(file)
        });
        let file = match written {
            Ok(file) => file,
            Err(e) => {
                // Swept with the next rebuilding if it cannot be removed now.
                let _ = disk::remove(&*self.disk, &new);
                return Err(failed(e));
            }
        };
        file.sync().map_err(|e| self.poison(e))?;
        self.disk.rename(&new, path).map_err(failed)?;
        self.flush_blobs(&folder)?;
        self.know_blob(address);
        Ok(address)
    }

    /// Flushes the names in a folder of blobs. That it cannot be opened is not the end.
    fn flush_blobs(&self, folder: &Path) -> Result<()> {
        self.disk.hold_folder(folder).map_err(|e| write_failed(folder, e))?;
        let flushed = self.disk.sync_folder(folder);
        self.disk.release_folder(folder);
        self.settle(flushed)
    }

    /// A blob's content, checked against its name.
    pub(super) fn blob(&self, address: &chain::Hash, bytes: u64) -> Result<Vec<u8>, Trouble> {
        let (_, [plain, compressed]) = self.paths.blob(address);
        let most = PAYLOAD_BYTES_MAX as u64;
        if bytes > most {
            return Err(Trouble::Damaged);
        }
        let read = |path: &Path| match disk::read(&*self.disk, path, most) {
            Err(e) if e.kind() == io::ErrorKind::FileTooLarge => Err(Trouble::Damaged),
            other => other.map_err(Trouble::Io),
        };
        let content = if let Some(content) = read(&plain)? {
            content
        } else {
            let shrunk = read(&compressed)?.ok_or(Trouble::Missing)?;
            let bytes = usize::try_from(bytes).map_err(|_| Trouble::Damaged)?;
            zstd::bulk::decompress(&shrunk, bytes).map_err(|_| Trouble::Damaged)?
        };
        let whole = blake3::hash(&content).as_bytes() == address && content.len() as u64 == bytes;
        if whole { Ok(content) } else { Err(Trouble::Damaged) }
    }

    /// Notes blobs that are about to lose a line that refers to them.
    pub(super) fn note_sweep(&self, blobs: &BTreeSet<chain::Hash>) -> Result<()> {
        if blobs.is_empty() {
            return Ok(());
        }
        let path = self.paths.sweep();
        // What an earlier sweep had to leave stays noted.
        let old = disk::read(&*self.disk, &path, u64::MAX).map_err(|e| write_failed(&path, e))?;
        let old = old.and_then(|old| serde_json::from_slice::<Sweep>(&old).ok());
        let old = old.into_iter().flat_map(|sweep| sweep.blobs).map(|blob| blob.0);
        let blobs: BTreeSet<chain::Hash> = old.chain(blobs.iter().copied()).collect();
        let sweep = Sweep { blobs: blobs.into_iter().map(Hex).collect() };
        let text = serde_json::to_string(&sweep).unwrap_or_default();
        self.write_flushed(&path, text.as_bytes()).map_err(|e| write_failed(&path, e))?;
        self.disk.sync_folder(&self.paths.data).map_err(|e| self.poison(e))
    }

    /// Removes the noted blobs that no line refers to. Nothing may be staged meanwhile.
    pub(super) fn sweep_noted(&self) -> Result<()> {
        let path = self.paths.sweep();
        let failed = |e| write_failed(&path, e);
        let noted = disk::read(&*self.disk, &path, u64::MAX).map_err(failed)?;
        let Some(noted) = noted else { return Ok(()) };
        let Ok(sweep) = serde_json::from_slice::<Sweep>(&noted) else {
            return Err(Error::Damaged { path, source: None });
        };
        if !self.sweep(sweep.blobs.into_iter().map(|blob| blob.0).collect())? {
            return Ok(());
        }
        disk::remove(&*self.disk, &path).map_err(failed)?;
        self.disk.sync_folder(&self.paths.data).map_err(failed)
    }

    /// Removes those of the blobs that no line of any log refers to; `false`: as there is a log that
    /// cannot be read, all stay.
    fn sweep(&self, mut blobs: BTreeSet<chain::Hash>) -> Result<bool> {
        if blobs.is_empty() {
            return Ok(true);
        }
        let looked = self.each_reference(|address| {
            blobs.remove(address);
        });
        if let Err(error) = looked {
            tracing::error!(%error, "Blobs that may be unreferenced are kept");
            return Ok(false);
        }
        for address in blobs {
            self.forget_blob(&address);
            let (folder, files) = self.paths.blob(&address);
            let removed = files.iter().try_for_each(|path| disk::remove(&*self.disk, path));
            match removed.and_then(|()| self.disk.sync_folder(&folder)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(|e| write_failed(&folder, e))?,
            }
        }
        Ok(true)
    }

    /// Looks through every log for blobs. Damaged lines are looked through as well as they can be:
    /// what one of them may refer to stays.
    fn each_reference(&self, mut found: impl FnMut(&chain::Hash)) -> Result<()> {
        const FIELD: &[u8] = b"\"blob\":\"";
        let sessions = &self.paths.sessions;
        let entries = self.disk.list(sessions).map_err(|e| Self::unreadable(sessions, e))?;
        for entry in entries {
            // Also what was cut off: a torn batch's blobs go with the side file.
            let is_log = matches!(paths::kind(&entry.name), Some((_, Kind::Log | Kind::Torn(_))));
            if !is_log {
                continue;
            }
            let path = sessions.join(&entry.name);
            let unreadable = |e| Self::unreadable(&path, e);
            let file = self.disk.open(&path).map_err(unreadable)?;
            let end = file.bytes().map_err(unreadable)?;
            let mut raw = RawLines::new(file, 0, end, Form::Foreign);
            loop {
                let (line, is_last) = match raw.next().map_err(unreadable)? {
                    Raw::End => break,
                    Raw::Whole(line) => (line, false),
                    Raw::Unended(line) => (line, true),
                    Raw::TooLong => {
                        if raw.skip_line().map_err(unreadable)? {
                            continue;
                        }
                        break;
                    }
                };
                let mut rest = line;
                while let Some(at) = rest.windows(FIELD.len()).position(|part| part == FIELD) {
                    rest = &rest[at + FIELD.len()..];
                    let mut address = [0; 32];
                    let digits = rest.get(..64);
                    if digits.is_some_and(|hex| hex::decode_to_slice(hex, &mut address).is_ok()) {
                        found(&address);
                    }
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Removes every blob that no line refers to, and what was left unfinished.
    pub(super) fn sweep_all(&self) -> Result<()> {
        let mut blobs = BTreeSet::new();
        for number in 0..=u8::MAX {
            let folder = self.paths.blobs.join(hex::encode([number]));
            let entries = match self.disk.list(&folder) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(Self::unreadable(&folder, e)),
            };
            for entry in entries {
                let path = folder.join(&entry.name);
                let mut address = [0; 32];
                let name = entry.name.get(..64).unwrap_or_default();
                if paths::is_unfinished(&entry.name) {
                    disk::remove(&*self.disk, &path).map_err(|e| write_failed(&path, e))?;
                } else if hex::decode_to_slice(name, &mut address).is_ok() {
                    blobs.insert(address);
                }
            }
        }
        self.sweep(blobs).map(drop)
    }
}
