//! Reading what is durable. Each line that is read is checked against the one before it, and each
//! content against its hash; damage is named by file and line.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use piton_core::id::SessionId;
use piton_core::{Content, Record, Seq, chain};

use super::blobs;
use super::disk::DiskFile;
use super::folder::Folder;
use super::line::{Kept, Line};
use super::log::{End, Health, Log, is_marked};
use super::scan::{Bad, Fault, Form, Mark, Scanner, WRONG_CONTENT};
use crate::contract::{CopiedRecord, CopyHead, Detail, READ_BYTES_MAX};
use crate::error::{Error, Result};
use crate::load::{Folding, LoadedState};

/// Records read at a time while replaying.
const REPLAY_RECORDS: usize = 1_000;

/// What a reader needs to know of a log.
#[derive(Debug)]
pub(super) struct View {
    pub(super) session: SessionId,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) key: chain::Key,
    pub(super) form: Form,
    pub(super) base: Seq,
    pub(super) adopted: Option<(Record, chain::Hash)>,
    pub(super) end: End,
    pub(super) anchor: Option<(Seq, chain::Hash)>,
    mark: Option<Mark>,
    generation: u64,
}

impl View {
    fn damaged(&self, bad: &Bad) -> Error {
        Error::LineDamaged { path: self.path.clone(), line: bad.line, why: bad.why }
    }

    /// Whether places in it are places in that log's file.
    pub(super) fn is_of(&self, log: &Log) -> bool {
        self.generation == log.generation
    }

    pub(super) fn line_of(&self, seq: Seq) -> u64 {
        seq - self.base
    }
}

impl Folder {
    /// What a reader needs to begin with a record; `None` if there is no such session.
    pub(super) fn view(&self, session: &SessionId, first: Seq) -> Result<Option<View>> {
        let path = self.log_path(session);
        let logs = self.logs();
        let Some(log) = logs.by_id.get(session) else { return Ok(None) };
        // Under the lock: a log that is replaced gets a new file and new places at once.
        let file = self.disk.open(&path).map_err(|e| Self::unreadable(&path, e))?;
        Ok(Some(View {
            session: session.clone(),
            path,
            file,
            key: log.key.clone(),
            form: log.form,
            base: log.base,
            adopted: log.adopted.clone(),
            end: log.end,
            anchor: log.anchor,
            mark: log.mark_before(first),
            generation: log.generation,
        }))
    }

    /// Nothing more is written behind a log with a damaged line.
    pub(super) fn found_damaged(&self, view: &View, error: &Error) {
        tracing::error!(session = %view.session, %error, "Damage was found while reading");
        let mut logs = self.logs();
        if let Some(log) = logs.by_id.get_mut(&view.session)
            && matches!(log.health, Health::Sound)
            && log.generation == view.generation
        {
            log.health = Health::Damaged(error.clone());
        }
    }

    fn remember(&self, view: &View, marks: &[Mark]) {
        let mut logs = self.logs();
        let log = logs.by_id.get_mut(&view.session);
        if let Some(log) = log.filter(|log| log.generation == view.generation) {
            log.marks.extend(marks.iter().map(|mark| (mark.seq, *mark)));
        }
    }

    /// Gives the lines from `first` on to `each`, until it says `false`. Damage is an error only if
    /// nothing comes before it.
    fn lines(
        &self,
        view: &View,
        first: Seq,
        mut each: impl FnMut(Line<'static>) -> Result<bool>,
    ) -> Result<()> {
        let Some(mark) = view.mark else { return Ok(()) };
        let (end, key) = (view.end.bytes, view.key.clone());
        let mut scanner =
            Scanner::from_mark(view.file.clone(), end, key, view.form, view.base, mark);
        let mut marks = Vec::new();
        let mut given = false;
        let done = loop {
            let here = scanner.mark();
            match scanner.next() {
                Ok(None) => break Ok(()),
                Ok(Some(line)) => {
                    if is_marked(line.seq) {
                        marks.push(here);
                    }
                    if line.seq < first {
                        continue;
                    }
                    given = true;
                    match each(line) {
                        Ok(true) => {}
                        Ok(false) => break Ok(()),
                        Err(e) => break Err(e),
                    }
                }
                Err(Fault::Io(e)) => break Err(Self::unreadable(&view.path, e)),
                Err(Fault::Bad(bad)) => {
                    let error = view.damaged(&bad);
                    self.found_damaged(view, &error);
                    break if given { Ok(()) } else { Err(error) };
                }
            }
        };
        self.remember(view, &marks);
        done
    }

    /// A line's content, checked.
    pub(super) fn content(&self, view: &View, line: &Line<'_>) -> Result<Content> {
        let damaged = || Error::LineDamaged {
            path: view.path.clone(),
            line: view.line_of(line.seq),
            why: WRONG_CONTENT,
        };
        let json = match &line.content {
            Kept::None => return Ok(Content::None),
            Kept::Redacted => return Ok(Content::Redacted),
            // Checked when its line was read.
            Kept::Json(text) => return Ok(Content::Json((&**text).into())),
            Kept::Blob { address, bytes } => {
                let (session, seq) = (view.session.clone(), line.seq);
                let content = self.blob(address, *bytes).map_err(|trouble| match trouble {
                    blobs::Trouble::Missing => Error::BlobMissing { session, seq },
                    blobs::Trouble::Damaged => damaged(),
                    blobs::Trouble::Io(e) => Self::unreadable(&self.paths.blobs, e),
                })?;
                String::from_utf8(content).map_err(|_| damaged())?
            }
        };
        if line.payload_hash != Some(view.key.payload_hash(json.as_bytes())) {
            return Err(damaged());
        }
        Ok(Content::Json(json.into()))
    }

    fn record(&self, view: &View, line: &Line<'_>, detail: Detail) -> Result<Record> {
        let content = match (detail, &line.content) {
            (Detail::Headers, Kept::Json(_) | Kept::Blob { .. }) => Content::Omitted,
            _ => self.content(view, line)?,
        };
        Ok(Record {
            seq: line.seq,
            ts: line.ts,
            kind: (&*line.kind).into(),
            header: (&*line.header).into(),
            content,
        })
    }

    /// The records after a position as `make` makes them, up to a number and a size.
    fn collect<T>(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
        make: impl Fn(&View, &Line<'_>) -> Result<(T, usize)>,
        adopted: impl Fn(&Record, &chain::Hash) -> T,
    ) -> Result<Vec<T>> {
        let first = after.saturating_add(1);
        let Some(view) = self.view(session, first)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        if limit == 0 {
            return Ok(found);
        }
        if let Some((record, chain)) = view.adopted.as_ref().filter(|(r, _)| r.seq >= first) {
            found.push(adopted(record, chain));
        }
        if first > view.end.seq {
            // What is behind a log's good part cannot be known.
            let logs = self.logs();
            let broken = logs.by_id.get(session).and_then(Log::broken);
            return broken.map_or(Ok(found), |e| Err(e.clone()));
        }
        if found.len() == limit {
            return Ok(found);
        }
        let mut bytes = 0;
        self.lines(&view, first, |line| {
            match make(&view, &line) {
                Ok((one, size)) => {
                    found.push(one);
                    bytes += size;
                }
                Err(_) if !found.is_empty() => return Ok(false),
                Err(e) => return Err(e),
            }
            Ok(found.len() < limit && bytes < READ_BYTES_MAX)
        })
        .or_else(|e| if found.is_empty() { Err(e) } else { Ok(()) })?;
        Ok(found)
    }

    pub fn read(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<Record>> {
        let make = |view: &View, line: &Line<'_>| {
            let record = self.record(view, line, detail)?;
            let bytes = size(&record);
            Ok((record, bytes))
        };
        self.collect(session, after, limit, make, |record, _| record.clone())
    }

    pub fn copy_records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<CopiedRecord>> {
        let make = |view: &View, line: &Line<'_>| {
            let record = self.record(view, line, Detail::Full)?;
            let bytes = size(&record);
            let (batch_left, payload_hash, chain) =
                (line.batch_left, line.payload_hash, line.chain);
            Ok((CopiedRecord { record, batch_left, payload_hash, chain }, bytes))
        };
        self.collect(session, after, limit, make, |record, chain| CopiedRecord {
            record: record.clone(),
            batch_left: 0,
            payload_hash: None,
            chain: *chain,
        })
    }

    /// A log that began elsewhere is brought into this store's form first: until then it has no key
    /// of its own.
    pub fn copy_head(&self, session: &SessionId) -> Result<Option<CopyHead>> {
        if self.is_upgradable(session) {
            self.upgrade(session)?;
        }
        let logs = self.logs();
        if logs.lost.contains(session) {
            return Err(Error::ChainBroken { session: session.clone(), seq: 1 });
        }
        let Some(log) = logs.by_id.get(session) else { return Ok(None) };
        if let Some(e) = log.broken() {
            return Err(e.clone());
        }
        Ok(Some(CopyHead {
            session: session.clone(),
            chain_key: log.key.clone(),
            last_seq: log.end.seq,
            chain: log.end.chain,
            // Also one that is ahead of the log: the store that imports the copy refuses it.
            anchor: log.anchor,
        }))
    }

    pub fn chain_at(&self, session: &SessionId, seq: Seq) -> Result<Option<chain::Hash>> {
        {
            let logs = self.logs();
            let Some(log) = logs.by_id.get(session) else { return Ok(None) };
            if seq == 0 {
                return Ok(Some(chain::GENESIS));
            }
            if seq > log.end.seq {
                return log.broken().map_or(Ok(None), |e| Err(e.clone()));
            }
            if let Some(known) = log.chain_known(seq) {
                return Ok(Some(known));
            }
        }
        let Some(view) = self.view(session, seq)? else { return Ok(None) };
        let mut found = None;
        self.lines(&view, seq, |line| {
            found = (line.seq == seq).then_some(line.chain);
            Ok(false)
        })?;
        Ok(found)
    }

    pub fn load(&self, session: &SessionId) -> Result<Option<LoadedState>> {
        let Some(head) = self.head(session)? else { return Ok(None) };
        let snapshot = match self.snapshot(session) {
            Some(saved) => {
                let now = self.chain_at(session, saved.seq)?;
                Some((saved, now))
            }
            None => None,
        };
        let mut folding = Folding::new(session, head, snapshot);
        while folding.is_behind() {
            let records = self.read(session, folding.at(), REPLAY_RECORDS, Detail::Headers)?;
            if records.is_empty() {
                break;
            }
            for record in &records {
                folding.apply(record.seq, record.ts, &record.kind, &record.header)?;
            }
        }
        folding.finish().map(Some)
    }

    /// A file of the store that could not be read.
    pub(super) fn io(view: &View, e: io::Error) -> Error {
        Self::unreadable(&view.path, e)
    }
}

fn size(record: &Record) -> usize {
    match &record.content {
        Content::Json(json) => json.len(),
        Content::None | Content::Omitted | Content::Redacted => 0,
    }
}
