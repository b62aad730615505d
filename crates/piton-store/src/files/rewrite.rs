//! Rewriting a log into a new file beside the old one: to take contents out, and to bring a log
//! that began elsewhere into this store's form. The new file gets the log's name when it is whole
//! and flushed, together with the batch that asked for it: both are there, or neither.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use piton_core::id::SessionId;
use piton_core::limits::{HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX};
use piton_core::{NewRecord, Record, Seq, chain};

use super::append::{self, Handle, targets};
use super::disk;
use super::folder::{Folder, Writer};
use super::line::{self, Kept, LINE_BYTES_MAX, Line};
use super::log::{End, Log, is_marked, next_generation};
use super::paths::{self, Kind};
use super::read::View;
use super::scan::{Fault, Form, Mark, Scanner};
use crate::contract::{Appended, Batch};
use crate::error::{Error, Result};
use crate::folder::write_failed;

/// Lines are written in pieces of about this size.
const PIECE_BYTES: usize = 1024 * 1024;

/// A log that is being written beside the old one.
pub(super) struct Rewrite {
    file: Handle,
    buffer: Vec<u8>,
    written: u64,
    pub(super) end: End,
    pub(super) marks: BTreeMap<Seq, Mark>,
}

impl Rewrite {
    pub(super) fn new(file: Handle) -> Self {
        let end = End::empty(0, chain::GENESIS);
        Self { file, buffer: Vec::new(), written: 0, end, marks: BTreeMap::new() }
    }

    pub(super) fn push(&mut self, line: &Line<'_>) -> std::io::Result<()> {
        let before = self.buffer.len();
        line::encode(line, &mut self.buffer);
        if is_marked(line.seq) || self.marks.is_empty() {
            let mark = Mark { seq: line.seq, at: self.end.bytes, previous: self.end.chain };
            self.marks.insert(line.seq, mark);
        }
        self.end = self.end.after(line.seq, line.chain, self.buffer.len() - before);
        if self.buffer.len() >= PIECE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> std::io::Result<()> {
        self.file.write_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Everything is in the file, behind it `more`. Not flushed.
    pub(super) fn finish(&mut self, more: &[u8]) -> std::io::Result<()> {
        self.buffer.extend_from_slice(more);
        self.write()
    }

    pub(super) fn sync(&self) -> std::io::Result<()> {
        self.file.sync()
    }
}

impl Folder {
    /// Appends a batch by rewriting its log; durable when this returns. Whatever was staged
    /// before is flushed first.
    pub fn append_by_rewrite(&self, batch: &Batch) -> Result<Appended> {
        if let Some((_, e)) = self.flush_staged()?.into_iter().next() {
            return Err(e);
        }
        let mut writer = self.writer();
        let writer = &mut *writer;
        self.admit(writer, batch)?;
        let session = &batch.session;
        let unknown = || Error::SessionNotFound { session: session.clone() };
        let view = self.view(session, 1)?.ok_or_else(unknown)?;
        let out = batch_checked(batch, first_seq(&view) - 1)?;
        self.replace(writer, &view, &batch.records, &out)
    }

    /// Whether a log began elsewhere and was not written to since.
    pub(super) fn is_upgradable(&self, session: &SessionId) -> bool {
        self.logs().by_id.get(session).is_some_and(|log| log.form == Form::Foreign)
    }

    /// Brings a log that began elsewhere into this store's form, with a key of its own; durable
    /// when this returns.
    pub(super) fn upgrade(&self, session: &SessionId) -> Result<()> {
        if let Some((_, e)) = self.flush_staged()?.into_iter().next() {
            return Err(e);
        }
        let mut writer = self.writer();
        self.check_writable()?;
        if let Some(e) = self.logs().by_id.get(session).and_then(Log::trouble) {
            return Err(e.clone());
        }
        let unknown = || Error::SessionNotFound { session: session.clone() };
        let view = self.view(session, 1)?.ok_or_else(unknown)?;
        if view.form == Form::Foreign {
            self.replace(&mut writer, &view, &[], &BTreeSet::new())?;
        }
        Ok(())
    }

    fn replace(
        &self,
        writer: &mut Writer,
        view: &View,
        records: &[NewRecord],
        out: &BTreeSet<Seq>,
    ) -> Result<Appended> {
        if view.form == Form::Foreign {
            Self::check_limits(view)?;
        }
        let new = paths::unfinished(&view.path);
        let appended = self.rewrite_log(writer, view, records, out, &new);
        if appended.is_err() {
            // Removed at the next opening if it cannot be now.
            let _ = disk::remove(&*self.disk, &new);
        }
        appended
    }

    /// Whether every record of a log that began elsewhere can be one of this store's.
    fn check_limits(view: &View) -> Result<()> {
        let (last, chain) = view
            .adopted
            .as_ref()
            .map_or((view.base, chain::GENESIS), |(record, chain)| (record.seq, *chain));
        if let Some((record, _)) = &view.adopted {
            check_line(&mut adopted_line(record))?;
        }
        let (file, key) = (view.file.clone(), view.key.clone());
        let mut scanner =
            Scanner::from_start(file, view.end.bytes, key, Form::Foreign, last, chain);
        loop {
            match scanner.next() {
                Ok(Some(mut line)) => check_line(&mut line)?,
                // The copy finds a bad line again and reports it.
                Ok(None) | Err(Fault::Bad(_)) => return Ok(()),
                Err(Fault::Io(e)) => return Err(Self::io(view, e)),
            }
        }
    }

    fn rewrite_log(
        &self,
        writer: &mut Writer,
        view: &View,
        records: &[NewRecord],
        out: &BTreeSet<Seq>,
        new: &std::path::Path,
    ) -> Result<Appended> {
        let session = &view.session;
        let failed = |e| write_failed(new, e);
        let key = match view.form {
            Form::Native => view.key.clone(),
            Form::Foreign => self.fresh_key()?,
        };
        let file = self.disk.create(new).map_err(failed)?;
        let mut rewrite = Rewrite::new(file.clone());
        let gone = self.copy_lines(view, &key, out, &mut rewrite, new)?;
        let old = rewrite.end;
        let mut contents = Vec::with_capacity(records.len());
        for (seq, record) in (old.seq + 1..).zip(records) {
            // What the batch itself takes out is never written anywhere.
            let payload = record.payload.as_deref().filter(|_| !out.contains(&seq));
            contents.push(self.keep(payload)?);
        }
        let lease = self.logs().by_id.get(session).map(|log| log.lease().clone());
        let lines = append::lines(&key, old, &lease.unwrap_or_default(), records, contents, out);
        rewrite.finish(&lines.bytes).map_err(failed)?;
        self.settle(rewrite.sync())?;
        self.note_sweep(&gone)?;
        let _behind = self.behind();
        if view.form == Form::Foreign {
            self.write_key(session, &key)?;
            self.settle(self.disk.sync_folder(&self.paths.sessions))?;
        }
        if !out.is_empty() {
            self.remove_torn(session)?;
        }
        {
            // Readers that come now find the new file, as far as it is the old one.
            let mut logs = self.logs();
            let path = self.log_path(session);
            self.disk.rename(new, &path).map_err(|e| write_failed(&path, e))?;
            writer.forget(session);
            if let Some(log) = logs.by_id.get_mut(session) {
                (log.key, log.form, log.adopted) = (key, Form::Native, None);
                (log.end, log.marks) = (old, rewrite.marks);
                log.base = log.marks.keys().next().map_or(0, |first| first - 1);
                log.generation = next_generation();
                if view.form == Form::Foreign {
                    log.saved = None;
                }
            }
        }
        let begun = Instant::now();
        self.settle(self.disk.sync_folder(&self.paths.sessions))?;
        self.count_flush(begun.elapsed());
        self.keep_handle(writer, session, &file);
        {
            let mut logs = self.logs();
            if let Some(log) = logs.by_id.get_mut(session) {
                log.end = lines.end;
                log.marks.extend(lines.marks.iter().map(|mark| (mark.seq, *mark)));
                append::fold(&mut log.folded, &lines.events);
            }
            let tokens = lines.events.iter();
            for token in tokens.filter_map(|(_, _, event)| piton_core::token::subject(event)) {
                logs.tokens.entry(token.clone()).or_insert_with(|| session.clone());
            }
            if session.is_metadata_log() {
                lines.events.iter().for_each(|(_, _, event)| logs.roster.apply(event));
            } else if view.form == Form::Foreign && !logs.roster.contains(session) {
                logs.unregistered.insert(session.clone());
            }
            logs.dirty.insert(session.clone());
        }
        if !gone.is_empty() {
            // The record says that the content is gone: it must be. The next life would try again.
            self.sweep_noted().map_err(|e| self.poison(std::io::Error::other(e)))?;
        }
        Ok(Appended { first: old.seq + 1, last: lines.end.seq })
    }

    /// Copies a log's lines into the new file, without what is taken out. Says which blobs lost a
    /// line that refers to them.
    fn copy_lines(
        &self,
        view: &View,
        key: &chain::Key,
        out: &BTreeSet<Seq>,
        rewrite: &mut Rewrite,
        new: &std::path::Path,
    ) -> Result<BTreeSet<chain::Hash>> {
        let failed = |e| write_failed(new, e);
        let mut gone = BTreeSet::new();
        let start = match &view.adopted {
            None => (view.base, chain::GENESIS),
            Some((record, chain)) => {
                let mut line = adopted_line(record);
                line.chain = line.link(key, &chain::GENESIS);
                rewrite.push(&line).map_err(failed)?;
                (record.seq, *chain)
            }
        };
        // A log of this store says by itself where it begins.
        let last = if view.form == Form::Native { 0 } else { start.0 };
        let (end, old_key) = (view.end.bytes, view.key.clone());
        let mut scanner =
            Scanner::from_start(view.file.clone(), end, old_key, view.form, last, start.1);
        loop {
            let mut line = match scanner.next() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(gone),
                Err(Fault::Io(e)) => return Err(Self::io(view, e)),
                Err(Fault::Bad(bad)) => {
                    let (path, line, why) = (view.path.clone(), bad.line, bad.why);
                    let error = Error::LineDamaged { path, line, why };
                    self.found_damaged(view, &error);
                    return Err(error);
                }
            };
            if view.form == Form::Foreign {
                self.make_native(&mut line, key, &rewrite.end.chain)?;
            }
            if out.contains(&line.seq) && line.content != Kept::None {
                if let Kept::Blob { address, .. } = line.content {
                    gone.insert(address);
                }
                line.content = Kept::Redacted;
            }
            rewrite.push(&line).map_err(failed)?;
        }
    }

    /// A line of a log that began elsewhere, with what it lacks.
    fn make_native(
        &self,
        line: &mut Line<'static>,
        key: &chain::Key,
        previous: &chain::Hash,
    ) -> Result<()> {
        if let Kept::Json(text) = &line.content {
            line.payload_hash = Some(key.payload_hash(text.as_bytes()));
            let kept = self.keep(Some(text))?;
            if let Kept::Blob { address, bytes } = kept {
                line.content = Kept::Blob { address, bytes };
            }
        }
        line.chain = line.link(key, previous);
        Ok(())
    }

    /// What was cut off from a log may hold what is to be taken out, too.
    pub(super) fn remove_torn(&self, session: &SessionId) -> Result<()> {
        let sessions = &self.paths.sessions;
        let entries = self.disk.list(sessions).map_err(|e| Self::unreadable(sessions, e))?;
        for entry in entries {
            if let Some((owner, Kind::Torn(_))) = paths::kind(&entry.name)
                && owner == *session
            {
                let path = sessions.join(&entry.name);
                tracing::warn!(path = %path.display(), "The cut-off end of a redacted log was removed");
                disk::remove(&*self.disk, &path).map_err(|e| write_failed(&path, e))?;
            }
        }
        Ok(())
    }
}

/// What a batch takes out, if all of it is in the log; `before` is the seq before the first record.
fn batch_checked(batch: &Batch, before: Seq) -> Result<BTreeSet<Seq>> {
    let out = targets(&batch.records);
    if out.iter().any(|seq| *seq <= before) {
        return Err(Error::BatchInvalid { why: "only an earlier record can be redacted" });
    }
    Ok(out)
}

/// What stands for the records before the first line.
fn adopted_line(record: &Record) -> Line<'_> {
    Line {
        seq: record.seq,
        ts: record.ts,
        kind: Cow::Borrowed(&*record.kind),
        header: Cow::Borrowed(&*record.header),
        content: Kept::None,
        batch_left: 0,
        payload_hash: None,
        chain: chain::GENESIS,
        flushed: None,
    }
}

/// Whether a line can be one of this store's, and be read again.
fn check_line(line: &mut Line<'_>) -> Result<()> {
    let limit = |what, bytes, max| {
        if bytes > max { Err(Error::PayloadTooLarge { what, bytes, max }) } else { Ok(()) }
    };
    limit("A header", line.header.len() + line.kind.len(), HEADER_BYTES_MAX)?;
    if let Kept::Json(text) = &line.content {
        let bytes = text.len();
        limit("A content", bytes, PAYLOAD_BYTES_MAX)?;
        if bytes > PAYLOAD_INLINE_BYTES_MAX {
            let address = chain::GENESIS;
            line.content = Kept::Blob { address, bytes: bytes as u64 };
        }
    }
    let mut encoded = Vec::new();
    line::encode(line, &mut encoded);
    limit("A line", encoded.len() - 1, LINE_BYTES_MAX)
}

fn first_seq(view: &View) -> Seq {
    view.adopted.as_ref().map_or(view.base + 1, |(record, _)| record.seq)
}
