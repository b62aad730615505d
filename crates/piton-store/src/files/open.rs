//! Opening: each log's snapshot says how far it was, and only what came after is read. A log whose
//! snapshot does not fit is read as a whole. What a crash tore off its end is put aside; damage
//! anywhere else makes that log read-only, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use piton_core::file_permissions::Exposure;
use piton_core::id::SessionId;
use piton_core::{Event, Seq, Timestamp, chain};

use super::Access;
use super::disk::{self, Disk, DiskFile};
use super::folder::Folder;
use super::line;
use super::log::{End, Folded, Health, Log, is_marked};
use super::paths::{self, Kind};
use super::scan::{
    Bad, Fault, Form, Raw, RawLines, Scanner, WRONG_BATCH, WRONG_CHAIN, WRONG_SEQ, was_durable,
};
use super::snapshot::{self, CACHE_BYTES_MAX};
use crate::contract::{Entropy, Liveness};
use crate::error::{Error, Result};
use crate::folder::write_failed;

/// The format that this program writes.
const FORMAT: u32 = 2;
/// Links of a log that began elsewhere are made with this key until it is written to.
pub(super) const FOREIGN_KEY: chain::Key = chain::Key::new([0; 32]);

const COPY_BYTES: usize = 64 * 1024;
const TORN_RECORDS_MAX: u64 = 10_000;

const README: &str = "\
This folder is a Piton store of plain files. Nothing in it is encrypted: anyone who can read the
files can read the sessions.

sessions/ID.messages.jsonl   the log: one record per line, only ever appended to
sessions/ID.json             a snapshot of what the log says; made again if it is missing
sessions/ID.tokens.json      the session's resume tokens (hashes, no secrets); made again, too
sessions/ID.key              the key of the log's hash chain; keep it beside the log
sessions/ID.anchor           how far the log had come; written behind it
sessions/_piton.*            the log of what belongs to no session
blobs/                       contents of more than 16 KB

In a line, the field \"_\" is the store's own. Reading is safe at any time, for example with
  jq -c 'del(._)' sessions/ID.messages.jsonl
Change nothing by hand: the chain would notice.
";

/// What reading a log came to.
pub(super) struct Found {
    pub(super) end: End,
    pub(super) folded: Folded,
    pub(super) marks: BTreeMap<Seq, super::scan::Mark>,
    pub(super) base: Seq,
    /// The file ends with this, and there is more of it than `end` says.
    pub(super) rest: Option<Rest>,
}

pub(super) enum Rest {
    /// The last batch is not whole.
    BatchCut {
        line: u64,
    },
    Bad(Bad),
}

/// A cache as it lies on the disk.
#[derive(Debug)]
pub(super) enum Cache<T> {
    Missing,
    /// It is there, and is not what was written.
    Unreadable,
    Read(T),
}

impl<T> Cache<T> {
    pub(super) fn and_then<U>(self, make: impl FnOnce(T) -> Option<U>) -> Cache<U> {
        match self {
            Self::Missing => Cache::Missing,
            Self::Unreadable => Cache::Unreadable,
            Self::Read(read) => make(read).map_or(Cache::Unreadable, Cache::Read),
        }
    }
}

impl Folder {
    /// Opens a folder that is there. Locks nothing: that is the caller's work.
    pub fn open(
        disk: Arc<dyn Disk>,
        data: &Path,
        access: Access,
        liveness: Arc<dyn Liveness>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self> {
        let folder = Self::with(disk, data, access, liveness, entropy);
        folder.prepare()?;
        let sessions = &folder.paths.sessions;
        let unreadable = |e| Self::unreadable(sessions, e);
        let entries = folder.disk.list(sessions).map_err(unreadable)?;
        let mut deleting = Vec::new();
        let (mut anchors, mut snapshots, mut keys) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut flushed = false;
        for entry in entries {
            match paths::kind(&entry.name) {
                Some((session, Kind::Log)) => {
                    if access == Access::ReadOnly {
                        // A process may be writing: the log is read again until it is whole.
                        if let Err(error) = folder.look_again(&session) {
                            folder.logs().insert(broken(&session, FOREIGN_KEY, error));
                        }
                        continue;
                    }
                    let opened = folder.open_log(&session, entry.exposure);
                    // A log that cannot be opened does not block the others.
                    let opened = opened
                        .unwrap_or_else(|error| Some((broken(&session, FOREIGN_KEY, error), 0)));
                    if let Some((log, known)) = opened {
                        let younger = log.end.bytes > known;
                        flushed |= younger;
                        let mut logs = folder.logs();
                        logs.insert(log);
                        if younger {
                            logs.dirty.insert(session);
                        }
                    }
                }
                Some((session, Kind::Deleting)) => deleting.push(session),
                Some((session, Kind::Anchor)) => drop(anchors.insert(session)),
                Some((session, Kind::Snapshot)) => drop(snapshots.insert(session)),
                Some((session, Kind::Key)) => drop(keys.insert(session)),
                Some((_, Kind::Unfinished)) if access == Access::ReadWrite => {
                    let path = sessions.join(&entry.name);
                    if let Err(e) = disk::remove(&*folder.disk, &path) {
                        tracing::warn!(path = %path.display(), error = %e, "A file could not be removed");
                    }
                }
                Some((_, Kind::Unfinished | Kind::Torn(_) | Kind::Other)) | None => {}
            }
        }
        if flushed || access == Access::ReadOnly {
            // With a log that is younger than its snapshot, its name may be, too.
            folder.disk.sync_folder(sessions).map_err(unreadable)?;
        }
        {
            // A key alone is what a crash leaves of a log that never had a line.
            anchors.extend(keys.intersection(&snapshots).cloned());
            anchors.retain(|session| !folder.logs().by_id.contains_key(session));
            anchors.retain(|session| !folder.claims_nothing(session));
            folder.logs().lost = anchors;
        }
        for session in deleting {
            folder.finish_deleting(&session)?;
        }
        folder.compare_roster()?;
        for session in &folder.logs().lost {
            tracing::error!(%session, "The session's log is gone");
        }
        if access == Access::ReadWrite {
            folder.sweep_noted()?;
            folder.note_lost_anchors()?;
        }
        Ok(folder)
    }

    /// Whether a log that is not there has an anchor from before its first line.
    fn claims_nothing(&self, session: &SessionId) -> bool {
        let Ok(Some(key)) = self.read_key(session) else { return false };
        matches!(self.anchor_file(session, &key), Cache::Read((0, _)))
    }

    /// The folders, and what they say about themselves.
    fn prepare(&self) -> Result<()> {
        let paths = &self.paths;
        // Before anything is written.
        let is_made = check_format(&*self.disk, paths)?;
        if self.access == Access::ReadWrite {
            for folder in [&paths.sessions, &paths.blobs] {
                self.disk.make_folder(folder).map_err(|e| write_failed(folder, e))?;
            }
            // Whatever else cannot be opened later: what was written can be flushed.
            for folder in [&paths.data, &paths.sessions, &paths.blobs] {
                self.disk.hold_folder(folder).map_err(|e| write_failed(folder, e))?;
            }
        }
        for folder in [&paths.data, &paths.sessions] {
            let found = self.disk.entry(folder).map_err(|e| Self::unreadable(folder, e))?;
            if found.exposure == Exposure::Writable {
                return Err(Error::FilePermissions { path: folder.clone() });
            }
        }
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        if is_made {
            // An earlier life may have died before its new folders were durable.
            let flushed = self.disk.sync_folder(&paths.data);
            return flushed.map_err(|e| write_failed(&paths.data, e));
        }
        let failed = |e| write_failed(&paths.data, e);
        if self.disk.entry(&paths.readme()).is_err() {
            self.write_flushed(&paths.readme(), README.as_bytes()).map_err(failed)?;
        }
        self.prepare_metadata()?;
        let format = format!("{{\"store\":\"files\",\"format\":{FORMAT}}}\n");
        self.write_flushed(&paths.format(), format.as_bytes()).map_err(failed)?;
        self.disk.sync_folder(&paths.data).map_err(failed)
    }

    /// A log as the next life would find it.
    pub(super) fn read_again(&self, session: &SessionId) -> Result<Option<Log>> {
        let path = self.log_path(session);
        let entry = self.disk.entry(&path).map_err(|e| Self::unreadable(&path, e))?;
        Ok(self.open_log(session, entry.exposure)?.map(|(log, _)| log))
    }

    /// Opens one log, and says up to which byte it was known to be durable; `None` if there is
    /// nothing in it.
    pub(super) fn open_log(
        &self,
        session: &SessionId,
        exposure: Exposure,
    ) -> Result<Option<(Log, u64)>> {
        let path = self.log_path(session);
        let unreadable = |e| Self::unreadable(&path, e);
        let broken = |key, error| Ok(Some((broken(session, key, error), 0)));
        if exposure == Exposure::Writable {
            return broken(FOREIGN_KEY, Error::FilePermissions { path });
        }
        let file = match self.disk.open(&path) {
            // Removed meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.access == Access::ReadOnly => {
                return Ok(None);
            }
            opened => opened.map_err(unreadable)?,
        };
        let bytes = file.bytes().map_err(unreadable)?;
        if bytes == 0 {
            return Ok(None);
        }
        let foreign = self.is_foreign(session, &file, bytes).map_err(unreadable)?;
        if foreign {
            // A key may have been made for it before a crash, wholly or in part: it is not asked.
            return Ok(Some((self.open_foreign(session, &file, bytes)?, u64::MAX)));
        }
        match self.read_key(session) {
            Ok(Some(key)) => self.open_native(session, key, &file, bytes),
            Ok(None) => {
                let place = self.paths.key(session).display().to_string();
                broken(FOREIGN_KEY, Error::KeyMissing { key_id: session.to_string(), place })
            }
            Err(e) => broken(FOREIGN_KEY, e),
        }
    }

    pub(super) fn read_key(&self, session: &SessionId) -> Result<Option<chain::Key>> {
        let path = self.paths.key(session);
        match self.disk.entry(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Self::unreadable(&path, e)),
            Ok(entry) if entry.exposure != Exposure::Private => {
                return Err(Error::KeyPermissions { path });
            }
            Ok(_) => {}
        }
        let text = disk::read(&*self.disk, &path, 1_024).map_err(|e| Self::unreadable(&path, e))?;
        let mut key = [0; 32];
        match hex::decode_to_slice(text.unwrap_or_default().trim_ascii(), &mut key) {
            Ok(()) => Ok(Some(chain::Key::new(key))),
            Err(_) => Err(Error::KeyInvalid { place: path.display().to_string() }),
        }
    }

    /// A cache's bytes; one that cannot be read is passed over.
    pub(super) fn read_cache(&self, path: &Path) -> Option<Vec<u8>> {
        match self.cache(path) {
            Cache::Read(read) => Some(read),
            Cache::Missing | Cache::Unreadable => None,
        }
    }

    /// A cache's bytes, or why there are none.
    pub(super) fn cache(&self, path: &Path) -> Cache<Vec<u8>> {
        match disk::read(&*self.disk, path, CACHE_BYTES_MAX) {
            Ok(Some(read)) => Cache::Read(read),
            Ok(None) => Cache::Missing,
            Err(e) => {
                tracing::warn!(path = %path.display(), error = %e, "A file is skipped");
                Cache::Unreadable
            }
        }
    }

    pub(super) fn anchor_file(
        &self,
        session: &SessionId,
        key: &chain::Key,
    ) -> Cache<(Seq, chain::Hash)> {
        let path = self.paths.anchor(session);
        let anchor = self.cache(&path).and_then(|bytes| snapshot::read_anchor(key, &bytes));
        if matches!(anchor, Cache::Unreadable) {
            tracing::warn!(path = %path.display(), "The anchor is not readable: passed over");
        }
        anchor
    }

    fn open_native(
        &self,
        session: &SessionId,
        key: chain::Key,
        file: &Arc<dyn DiskFile>,
        bytes: u64,
    ) -> Result<Option<(Log, u64)>> {
        let path = self.log_path(session);
        let unreadable = |e| Self::unreadable(&path, e);
        let mut log = Log::new(session.clone(), key, Form::Native, End::empty(0, chain::GENESIS));
        match self.anchor_file(session, &log.key) {
            // Made before the log had a line.
            Cache::Read((0, _)) | Cache::Missing => {}
            Cache::Read(anchor) => log.anchor = Some(anchor),
            Cache::Unreadable => drop(self.logs().dirty.insert(session.clone())),
        }
        // Asked after the anchor: beside a writer, the log is never behind it.
        let bytes = file.bytes().map_err(unreadable)?.max(bytes);
        let restored = self.restore(session, &log.key, file, bytes).map_err(unreadable)?;
        let mut known = 0;
        let found = if let Some(restored) = restored {
            known = restored.end.bytes;
            log.saved = restored.saved;
            let found = Found {
                end: restored.end,
                folded: restored.folded,
                marks: restored.marks,
                base: restored.base,
                rest: None,
            };
            read_on(file, bytes, &log.key, found).map_err(unreadable)?
        } else {
            self.logs().dirty.insert(session.clone());
            read_whole(file, bytes, &log.key).map_err(unreadable)?
        };
        let Found { end, folded, marks, base, rest } = found;
        (log.end, log.folded, log.marks, log.base) = (end, folded, marks, base);
        if let Some(rest) = rest {
            self.settle_end(&mut log, file, bytes, &rest)?;
        }
        if let Some((anchored, _)) = log.anchor
            && anchored > log.end.seq
            && log.trouble().is_none()
        {
            // Cut off where a batch ends: nothing in the file shows it. What is there is good; a
            // record behind it would take the place of one that was there.
            let error = Error::ChainBroken { session: session.clone(), seq: log.end.seq + 1 };
            tracing::error!(%session, %error, anchored, "The log ends before its anchor");
            log.health = Health::Damaged(error);
        }
        // Not one batch of it was ever durable: there is no such session.
        let never_was = log.end.seq == 0 && log.broken().is_none();
        if log.end.bytes > known {
            // The writer may have been killed before the flush. Readers must not see records that
            // could still be lost.
            file.sync().map_err(unreadable)?;
        }
        Ok((!never_was).then_some((log, known)))
    }

    /// What the snapshot says, if it fits the log's bytes.
    fn restore(
        &self,
        session: &SessionId,
        key: &chain::Key,
        file: &Arc<dyn DiskFile>,
        bytes: u64,
    ) -> io::Result<Option<snapshot::Restored>> {
        let path = self.paths.snapshot(session);
        let Some(text) = self.read_cache(&path) else { return Ok(None) };
        let Some(saved) = snapshot::read(session, key, &text) else {
            tracing::warn!(path = %path.display(), "The snapshot is not readable: passed over");
            return Ok(None);
        };
        let tokens = self.read_cache(&self.paths.tokens(session));
        if tokens.is_some() && saved.own.as_ref().is_some_and(|own| !own.has_tokens()) {
            // The snapshot has no tokens: the next write of the caches removes the index.
            self.logs().dirty.insert(session.clone());
        }
        let Some(restored) = snapshot::restore(key, saved, tokens.as_deref()) else {
            return Ok(None);
        };
        let end = restored.end;
        if end.bytes > bytes {
            return Ok(None);
        }
        // The last line that it knows must be there, and be what it was.
        let mark = super::scan::Mark { seq: end.seq, at: end.last_at, previous: end.previous };
        let form = Form::Native;
        let mut scanner =
            Scanner::from_mark(file.clone(), end.bytes, key.clone(), form, restored.base, mark);
        let fits = match scanner.next() {
            Ok(Some(line)) => {
                line.chain == end.chain && line.batch_left == 0 && scanner.mark() == end.mark()
            }
            Ok(None) | Err(Fault::Bad(_)) => false,
            Err(Fault::Io(e)) => return Err(e),
        };
        Ok(fits.then_some(restored))
    }

    /// What is behind the last whole batch was torn by a crash, and is put aside, or was damaged,
    /// and stays where it is.
    fn settle_end(
        &self,
        log: &mut Log,
        file: &Arc<dyn DiskFile>,
        bytes: u64,
        rest: &Rest,
    ) -> Result<()> {
        let path = self.log_path(&log.session);
        let unreadable = |e| Self::unreadable(&path, e);
        let next = log.end.seq + 1;
        let anchored = log.anchor.is_some_and(|(seq, _)| seq >= next);
        let (line, why, torn) = match rest {
            Rest::BatchCut { line } => (*line, "its batch is not whole", !anchored),
            Rest::Bad(bad) => {
                // A crash leaves no whole line that is in the wrong place, of a later version, or
                // of another program.
                let whole = [WRONG_SEQ, WRONG_BATCH, WRONG_CHAIN, line::HEADER_UNREADABLE];
                let durable = anchored
                    || whole.contains(&bad.why)
                    || is_anybodys(file, bad.at, bytes).map_err(unreadable)?
                    || was_durable(file, bad, next, bytes).map_err(unreadable)?;
                (bad.line, bad.why, !durable)
            }
        };
        if !torn {
            let error = Error::LineDamaged { path, line, why };
            tracing::error!(session = %log.session, %error, "The session cannot be opened");
            log.health = Health::Broken(error);
            return Ok(());
        }
        self.put_aside(log, file, bytes, line);
        Ok(())
    }

    /// Cuts off a log's torn end. Where that cannot be done, nothing is written behind it.
    pub(super) fn put_aside(&self, log: &mut Log, file: &Arc<dyn DiskFile>, bytes: u64, line: u64) {
        let path = self.log_path(&log.session);
        let cut = bytes - log.end.bytes;
        if self.access == Access::ReadOnly {
            tracing::warn!(path = %path.display(), line, cut, "The log's end is torn: not read");
            return;
        }
        match self.cut_off(&log.session, file, log.end.bytes, bytes) {
            Ok(aside) => tracing::warn!(
                path = %path.display(), line, cut, aside = %aside.display(),
                "The log's end was torn by a crash: put aside"
            ),
            Err(error) => {
                tracing::error!(
                    path = %path.display(), line, cut, %error,
                    "The log's end is torn, and cannot be put aside"
                );
                let is_empty = log.end.seq == 0;
                log.health = if is_empty { Health::Broken(error) } else { Health::Damaged(error) };
            }
        }
    }

    /// Moves a log's torn end into a file of its own.
    fn cut_off(
        &self,
        session: &SessionId,
        file: &Arc<dyn DiskFile>,
        from: u64,
        to: u64,
    ) -> Result<std::path::PathBuf> {
        let mut numbers = (1..TORN_RECORDS_MAX).map(|number| self.paths.torn(session, number));
        let free = numbers.find(|path| self.disk.entry(path).is_err());
        let aside = free.unwrap_or_else(|| self.paths.torn(session, TORN_RECORDS_MAX));
        let copy = || -> io::Result<()> {
            let new = paths::unfinished(&aside);
            let target = self.disk.create(&new)?;
            let mut chunk = vec![0; COPY_BYTES];
            let mut at = from;
            while at < to {
                let want = usize::try_from(to - at).unwrap_or(usize::MAX).min(COPY_BYTES);
                let read = file.read_at(&mut chunk[..want], at)?;
                if read == 0 {
                    break;
                }
                target.write_at(&chunk[..read], at - from)?;
                at += read as u64;
            }
            target.sync()?;
            self.disk.rename(&new, &aside)?;
            self.disk.sync_folder(&self.paths.sessions)?;
            // Only now: what was cut off is safe.
            file.truncate(from)?;
            file.sync()
        };
        copy().map_err(|e| write_failed(&aside, e))?;
        Ok(aside)
    }
}

/// Whether the folder has a store of this program's format; refuses every other. Reads one file.
pub(super) fn check_format(disk: &dyn Disk, paths: &paths::Paths) -> Result<bool> {
    let path = paths.format();
    let read = disk::read(disk, &path, CACHE_BYTES_MAX);
    let Some(text) = read.map_err(|e| Folder::unreadable(&path, e))?.filter(|t| !t.is_empty())
    else {
        return Ok(false);
    };
    let format = serde_json::from_slice::<serde_json::Value>(&text).ok();
    let format = format.as_ref().and_then(|format| format.get("format")?.as_u64());
    match format.and_then(|format| u32::try_from(format).ok()) {
        Some(found) if found > FORMAT => Err(Error::Newer { found, supported: FORMAT }),
        Some(found) if found < FORMAT => Err(Error::TooOld { found, supported: FORMAT }),
        Some(_) => Ok(true),
        None => Err(Error::Foreign { path }),
    }
}

/// A log of which nothing can be said.
fn broken(session: &SessionId, key: chain::Key, error: Error) -> Log {
    tracing::error!(%session, %error, "The session cannot be opened");
    let end = End::empty(0, chain::GENESIS);
    let mut log = Log::new(session.clone(), key, Form::Native, end);
    log.health = Health::Broken(error);
    log
}

/// Whether any line from a place on is a whole record as others write them.
fn is_anybodys(file: &Arc<dyn DiskFile>, at: u64, bytes: u64) -> io::Result<bool> {
    let mut raw = RawLines::new(file.clone(), at, bytes, Form::Foreign);
    loop {
        let foreign = |line: &[u8]| {
            !line::is_native(line) && line::decode_foreign(line, &FOREIGN_KEY).is_ok()
        };
        let (found, is_last) = match raw.next()? {
            Raw::End => return Ok(false),
            Raw::Whole(line) => (foreign(line), false),
            Raw::Unended(line) => (foreign(line), true),
            Raw::TooLong => (false, !raw.skip_line()?),
        };
        if found || is_last {
            return Ok(found);
        }
    }
}

fn read_whole(file: &Arc<dyn DiskFile>, bytes: u64, key: &chain::Key) -> io::Result<Found> {
    let end = End::empty(0, chain::GENESIS);
    let (folded, marks) = (Folded::default(), BTreeMap::from([(1, end.mark())]));
    let found = Found { end, folded, marks, base: 0, rest: None };
    let scanner =
        Scanner::from_start(file.clone(), bytes, key.clone(), Form::Native, 0, chain::GENESIS);
    read_lines(scanner, found)
}

pub(super) fn read_on(
    file: &Arc<dyn DiskFile>,
    bytes: u64,
    key: &chain::Key,
    found: Found,
) -> io::Result<Found> {
    let (mark, base) = (found.end.mark(), found.base);
    let scanner = Scanner::from_mark(file.clone(), bytes, key.clone(), Form::Native, base, mark);
    read_lines(scanner.at_batch_start(), found)
}

/// Reads and folds up to the last whole batch.
pub(super) fn read_lines(mut scanner: Scanner, mut found: Found) -> io::Result<Found> {
    let mut batch: Vec<(Seq, Timestamp, Event)> = Vec::new();
    let mut end = found.end;
    let mut lines = found.end.seq - found.base;
    loop {
        let mark = scanner.mark();
        let line = match scanner.next() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(Fault::Io(e)) => return Err(e),
            Err(Fault::Bad(bad)) => {
                found.rest = Some(Rest::Bad(bad));
                return Ok(found);
            }
        };
        lines += 1;
        let Ok(event) = line.event() else {
            let (line, at, why) = (lines, mark.at, line::HEADER_UNREADABLE);
            found.rest = Some(Rest::Bad(Bad { line, at, why, found: Some(end.seq + 1) }));
            return Ok(found);
        };
        if line.seq > end.seq + 1 {
            // The first line of a log that began elsewhere.
            found.base = line.seq - 1;
            lines = 1;
            found.marks = BTreeMap::from([(line.seq, super::scan::Mark { seq: line.seq, ..mark })]);
        } else if is_marked(line.seq) {
            found.marks.insert(line.seq, mark);
        }
        let bytes = usize::try_from(scanner.mark().at - mark.at).unwrap_or(usize::MAX);
        end = end.after(line.seq, line.chain, bytes);
        batch.push((line.seq, line.ts, event));
        if line.batch_left == 0 {
            super::append::fold(&mut found.folded, &batch);
            batch.clear();
            found.end = end;
        }
    }
    if !batch.is_empty() {
        found.rest = Some(Rest::BatchCut { line: lines });
    }
    Ok(found)
}
