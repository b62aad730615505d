//! Appending: batches are checked and turned into lines, the lines of a group are written to their
//! files, each file is flushed once, and only then is any of it there.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use piton_core::id::SessionId;
use piton_core::limits::PAYLOAD_INLINE_BYTES_MAX;
use piton_core::planted::{self, Bug};
use piton_core::state::Lease;
use piton_core::{Event, NewRecord, Seq, Timestamp, chain};

use super::disk;
use super::folder::{Folder, Writer};
use super::line::{self, Kept, Line};
use super::log::{End, Folded, Log, is_marked};
use super::paths;
use super::scan::{Form, Mark};
use crate::append_rules;
use crate::contract::{Appended, Batch};
use crate::error::{Error, Result};
use crate::folder::write_failed;

/// Logs that are flushed together.
const STAGED_MAX: usize = 256;

/// What is not durable yet of one log.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) key: chain::Key,
    /// The last seq that is durable.
    flushed: Seq,
    pub(crate) end: End,
    lease: Lease,
    events: Vec<(Seq, Timestamp, Event)>,
    marks: Vec<Mark>,
    /// Lines that are not in the file yet.
    buffer: Vec<u8>,
    /// What to go back to if they cannot be written.
    safe: Safe,
    /// The log has no name on the disk yet.
    is_new: bool,
    /// Where its lines were written: kept until they are flushed, as it might not be opened again.
    file: Option<Handle>,
}

#[derive(Clone, Debug)]
struct Safe {
    end: End,
    lease: Lease,
    events: usize,
    marks: usize,
}

impl Staged {
    fn new(key: chain::Key, end: End, lease: Lease, is_new: bool) -> Self {
        let safe = Safe { end, lease: lease.clone(), events: 0, marks: 0 };
        let (events, marks, buffer) = (Vec::new(), Vec::new(), Vec::new());
        let file = None;
        Self { key, flushed: end.seq, end, lease, events, marks, buffer, safe, is_new, file }
    }

    fn of(log: &Log) -> Self {
        Self::new(log.key.clone(), log.end, log.lease().clone(), false)
    }

    /// A record as a line, and the end after it.
    fn push(&mut self, line: &mut Line<'_>, event: &Event) {
        line.chain = line.link(&self.key, &self.end.chain);
        let before = self.buffer.len();
        line::encode(line, &mut self.buffer);
        if is_marked(line.seq) {
            self.marks.push(self.end.mark());
        }
        self.end = self.end.after(line.seq, line.chain, self.buffer.len() - before);
        self.lease.apply(event);
        self.events.push((line.seq, line.ts, event.clone()));
    }

    fn written(&mut self) {
        self.buffer.clear();
        let (events, marks) = (self.events.len(), self.marks.len());
        self.safe = Safe { end: self.end, lease: self.lease.clone(), events, marks };
    }

    fn go_back(&mut self) {
        self.buffer.clear();
        self.end = self.safe.end;
        self.lease = self.safe.lease.clone();
        self.events.truncate(self.safe.events);
        self.marks.truncate(self.safe.marks);
    }
}

/// What a batch takes out.
pub(crate) fn targets(records: &[NewRecord]) -> BTreeSet<Seq> {
    let target = |record: &NewRecord| match &record.event {
        Event::RecordRedacted(e) => Some(e.target_seq),
        _ => None,
    };
    records.iter().filter_map(target).collect()
}

impl Folder {
    /// Whether a batch can only be appended by rewriting its log: [`Folder::append_by_rewrite`].
    pub fn needs_rewrite(&self, batch: &Batch) -> bool {
        let logs = self.logs();
        let foreign = logs.by_id.get(&batch.session).is_some_and(|log| log.form == Form::Foreign);
        // What a batch takes out of itself is never written at all.
        foreign || targets(&batch.records).iter().any(|seq| *seq <= batch.expected)
    }

    /// Checks a batch against its log, with everything that was staged before it.
    pub(super) fn admit(&self, writer: &Writer, batch: &Batch) -> Result<()> {
        self.check_writable()?;
        append_rules::check_form(batch)?;
        let logs = self.logs();
        let log = logs.by_id.get(&batch.session);
        if let Some(e) = log.and_then(Log::trouble) {
            return Err(e.clone());
        }
        let (last, lease) = match (writer.staged.get(&batch.session), log) {
            (Some(staged), _) => (staged.end.seq, staged.lease.clone()),
            (None, Some(log)) => (log.end.seq, log.lease().clone()),
            (None, None) => (0, Lease::default()),
        };
        match append_rules::check(batch, last, &lease, &*self.liveness) {
            Err(Error::EpochStale { .. } | Error::SessionOwned { .. })
                if planted::is(Bug::EpochIgnored) =>
            {
                Ok(())
            }
            checked => checked.map(drop),
        }
    }

    /// Whether so many logs wait for a flush that no other one should join them: each keeps its
    /// file open.
    pub(super) fn is_crowded(&self) -> bool {
        self.writer().staged.len() >= STAGED_MAX
    }

    /// Checks a batch and makes its lines; nothing of them is in a file yet.
    pub fn stage(&self, batch: &Batch) -> Result<Appended> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        self.admit(writer, batch)?;
        let mut contents = Vec::with_capacity(batch.records.len());
        let out = targets(&batch.records);
        for (seq, record) in (batch.expected + 1..).zip(&batch.records) {
            let payload = record.payload.as_deref().filter(|_| !out.contains(&seq));
            contents.push(self.keep_as(payload, batch.records.compress_above())?);
        }
        let session = &batch.session;
        let durable = self.logs().by_id.get(session).map(Staged::of);
        let key = match (writer.staged.get(session), durable) {
            (Some(staged), _) => staged.key.clone(),
            (None, Some(staged)) => {
                let key = staged.key.clone();
                writer.staged.insert(session.clone(), staged);
                key
            }
            (None, None) => {
                let key = self.create(writer, session)?;
                let end = End::empty(0, chain::GENESIS);
                let staged = Staged::new(key.clone(), end, Lease::default(), true);
                writer.staged.insert(session.clone(), staged);
                key
            }
        };
        let unknown = || Error::SessionNotFound { session: session.clone() };
        let staged = writer.staged.get_mut(session).ok_or_else(unknown)?;
        let first = staged.end.seq + 1;
        stage_lines(staged, &batch.records, contents, &key, &out);
        Ok(Appended { first, last: staged.end.seq })
    }

    /// A content as its line has it. A large one is a durable blob when this returns.
    pub(super) fn keep<'a>(&self, payload: Option<&'a str>) -> Result<Kept<'a>> {
        self.keep_as(payload, None)
    }

    fn keep_as<'a>(
        &self,
        payload: Option<&'a str>,
        compress_above: Option<usize>,
    ) -> Result<Kept<'a>> {
        let Some(payload) = payload else { return Ok(Kept::None) };
        if payload.len() <= PAYLOAD_INLINE_BYTES_MAX {
            return Ok(Kept::Json(Cow::Borrowed(payload)));
        }
        let address = self.keep_blob(payload, compress_above)?;
        Ok(Kept::Blob { address, bytes: payload.len() as u64 })
    }

    /// The files of a log that has no lines yet. The key is durable before the first line is; both
    /// names become so with the first flush.
    fn create(&self, writer: &mut Writer, session: &SessionId) -> Result<chain::Key> {
        if self.logs().lost.contains(session) {
            // A new one would take the place of the one that was there.
            return Err(Error::ChainBroken { session: session.clone(), seq: 1 });
        }
        let key_path = self.paths.key(session);
        let (key, is_fresh) = match self.read_key(session) {
            Ok(Some(key)) => {
                // Left by a process that died before it wrote the first line: as good as a new key.
                let file = self.disk.open(&key_path).map_err(|e| write_failed(&key_path, e))?;
                self.settle(file.sync())?;
                (key, false)
            }
            Ok(None) | Err(Error::KeyInvalid { .. }) => {
                let key = self.fresh_key()?;
                self.write_key(session, &key)?;
                (key, true)
            }
            Err(e) => return Err(e),
        };
        let path = self.log_path(session);
        match self.create_log(&path) {
            Ok(file) => {
                self.keep_handle(writer, session, &file);
                Ok(key)
            }
            Err(e) => {
                if is_fresh && let Err(e) = disk::remove(&*self.disk, &key_path) {
                    tracing::warn!(path = %key_path.display(), error = %e, "A file could not be removed");
                }
                Err(write_failed(&path, e))
            }
        }
    }

    /// A log without lines. Nothing that has its name is overwritten, but for an empty file.
    fn create_log(&self, path: &Path) -> io::Result<Handle> {
        match self.disk.create_new(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if self.disk.open(path)?.bytes()? > 0 {
                    return Err(e);
                }
                self.disk.remove(path)?;
                self.disk.create_new(path)
            }
            made => made,
        }
    }

    /// Writes a log's key, flushed. Its name is durable after the folder's next flush.
    pub(super) fn write_key(&self, session: &SessionId, key: &chain::Key) -> Result<()> {
        let path = self.paths.key(session);
        let new = paths::unfinished(&path);
        let text = format!("{}\n", hex::encode(key.as_bytes()));
        let written = self.disk.create(&new).and_then(|file| {
            file.write_at(text.as_bytes(), 0)?;
            Ok(file)
        });
        let written = written.map_err(|e| write_failed(&path, e)).and_then(|file| {
            if !planted::is(Bug::LogKeyUnflushed) {
                self.settle(file.sync())?;
            }
            self.disk.rename(&new, &path).map_err(|e| write_failed(&path, e))
        });
        if written.is_err() {
            // Removed at the next opening if it cannot be now.
            let _ = disk::remove(&*self.disk, &new);
        }
        written
    }

    /// Leaves nothing of a log that never had a line.
    fn uncreate(&self, session: &SessionId) {
        for path in [self.log_path(session), self.paths.key(session)] {
            if let Err(e) = disk::remove(&*self.disk, &path) {
                // Found empty, or without its log, at the next opening, and passed over.
                tracing::warn!(path = %path.display(), error = %e, "A file could not be removed");
            }
        }
    }

    /// Writes all staged lines to their files, unflushed. What cannot be written is cut off again
    /// and answered for.
    pub fn write_out(&self) -> Vec<(SessionId, Error)> {
        let mut writer = self.writer();
        let mut failed = Vec::new();
        let waiting = writer.staged.iter().filter(|(_, staged)| !staged.buffer.is_empty());
        let waiting: Vec<SessionId> = waiting.map(|(session, _)| session.clone()).collect();
        for session in waiting {
            let path = self.log_path(&session);
            let file = match self.handle(&mut writer, &session) {
                Ok(file) => file,
                Err(e) => {
                    self.take_back(&mut writer, &session);
                    failed.push((session, write_failed(&path, e)));
                    continue;
                }
            };
            let Some(staged) = writer.staged.get_mut(&session) else { continue };
            let at = staged.safe.end.bytes;
            match file.write_at(&staged.buffer, at) {
                Ok(()) => {
                    staged.written();
                    staged.file = Some(file);
                }
                Err(e) => {
                    // A part may have been written. If it cannot be cut off, the content of the
                    // file is unknown.
                    if let Err(cut) = file.truncate(at) {
                        self.poison(cut);
                    }
                    self.take_back(&mut writer, &session);
                    failed.push((session, write_failed(&path, e)));
                }
            }
        }
        failed
    }

    /// Forgets what could not be written of a log.
    pub(super) fn take_back(&self, writer: &mut Writer, session: &SessionId) {
        let Some(staged) = writer.staged.get_mut(session) else { return };
        staged.go_back();
        if staged.events.is_empty() {
            let is_new = staged.is_new;
            writer.staged.remove(session);
            if is_new {
                writer.forget(session);
                self.uncreate(session);
            }
        }
    }

    /// Flushes everything that was written; from then on it is there. A failure ends all writing.
    pub fn sync(&self) -> Result<()> {
        let mut writer = self.writer();
        self.check_writable()?;
        if writer.staged.is_empty() {
            return Ok(());
        }
        if !planted::is(Bug::FlushLeftOut) {
            for file in writer.staged.values().filter_map(|staged| staged.file.as_ref()) {
                let begun = Instant::now();
                self.settle(file.sync())?;
                self.count_flush(begun.elapsed());
            }
            if writer.staged.values().any(|staged| staged.is_new) {
                let flushed = self.disk.sync_folder(&self.paths.sessions);
                flushed.map_err(|e| self.poison(e))?;
            }
        }
        let durable = std::mem::take(&mut writer.staged);
        let mut logs = self.logs();
        for (session, staged) in durable {
            if session.is_metadata_log() {
                staged.events.iter().for_each(|(_, _, event)| logs.roster.apply(event));
            } else if staged.is_new || planted::is(Bug::ListedTwice) {
                logs.unregistered.insert(session.clone());
            }
            let log = logs.by_id.entry(session.clone()).or_insert_with(|| {
                let end = End::empty(0, chain::GENESIS);
                Log::new(session.clone(), staged.key.clone(), Form::Native, end)
            });
            log.end = staged.end;
            log.marks.extend(staged.marks.iter().map(|mark| (mark.seq, *mark)));
            fold(&mut log.folded, &staged.events);
            for (_, _, event) in &staged.events {
                if let Some(token) = piton_core::token::subject(event) {
                    logs.tokens.entry(token.clone()).or_insert_with(|| session.clone());
                }
            }
            logs.dirty.insert(session);
        }
        Ok(())
    }

    /// Appends one batch by itself; durable when this returns.
    pub fn append(&self, batch: &Batch) -> Result<Appended> {
        if self.needs_rewrite(batch) {
            return self.append_by_rewrite(batch);
        }
        let appended = self.stage(batch)?;
        match self.flush_staged()?.into_iter().next() {
            Some((_, e)) => Err(e),
            None => Ok(appended),
        }
    }

    /// Writes and flushes whatever is staged; says what could not be written.
    pub(super) fn flush_staged(&self) -> Result<Vec<(SessionId, Error)>> {
        let failed = self.write_out();
        self.sync()?;
        Ok(failed)
    }
}

pub(super) fn fold(folded: &mut Folded, events: &[(Seq, Timestamp, Event)]) {
    for (seq, ts, event) in events {
        folded.apply(*seq, *ts, event);
    }
}

/// Makes the lines of a batch. Contents that the batch itself takes out are not written at all.
fn stage_lines(
    staged: &mut Staged,
    records: &[NewRecord],
    contents: Vec<Kept<'_>>,
    key: &chain::Key,
    taken_out: &BTreeSet<Seq>,
) {
    let count = u32::try_from(records.len()).unwrap_or(u32::MAX);
    for ((left, record), content) in (0..count).rev().zip(records).zip(contents) {
        let seq = staged.end.seq + 1;
        let payload = record.payload.as_deref();
        let payload_hash = payload.map(|payload| key.payload_hash(payload.as_bytes()));
        let out = payload.is_some() && taken_out.contains(&seq);
        let mut line = Line {
            seq,
            ts: record.ts,
            kind: Cow::Borrowed(&record.kind),
            header: Cow::Borrowed(&record.header),
            content: if out { Kept::Redacted } else { content },
            batch_left: if planted::is(Bug::BatchSplit) { 0 } else { left },
            payload_hash,
            chain: chain::GENESIS,
            flushed: Some(staged.flushed),
        };
        staged.push(&mut line, &record.event);
    }
}

/// The lines of a batch behind an end, for a log that is rewritten.
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    pub(super) end: End,
    pub(super) marks: Vec<Mark>,
    pub(super) events: Vec<(Seq, Timestamp, Event)>,
}

pub(super) fn lines(
    key: &chain::Key,
    end: End,
    lease: &Lease,
    records: &[NewRecord],
    contents: Vec<Kept<'_>>,
    taken_out: &BTreeSet<Seq>,
) -> Lines {
    let mut staged = Staged::new(key.clone(), end, lease.clone(), false);
    stage_lines(&mut staged, records, contents, key, taken_out);
    let Staged { buffer, end, marks, events, .. } = staged;
    Lines { bytes: buffer, end, marks, events }
}

pub(super) type Handle = Arc<dyn disk::DiskFile>;
