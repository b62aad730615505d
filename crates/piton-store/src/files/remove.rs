//! Removing a log, and making one from a copy.
//!
//! A log is removed in three steps: an intent says which log, and which record of the metadata log
//! will note it; the note is appended, and that decides; the files go. A crash before the note
//! leaves the log, one after it is finished at the next opening.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use piton_core::id::SessionId;
use piton_core::limits::PAYLOAD_BYTES_MAX;
use piton_core::{Content, Seq, chain};
use serde::{Deserialize, Serialize};

use super::Access;
use super::disk;
use super::folder::Folder;
use super::line::{Hex, Kept, Line};
use super::log::{Folded, Log};
use super::paths;
use super::rewrite::Rewrite;
use super::scan::{Form, Scanner};
use super::snapshot::{self, CACHE_BYTES_MAX};
use crate::append_rules::{self, Removal};
use crate::contract::{CopiedRecord, LogCopy};
use crate::error::{Error, Result};
use crate::folder::write_failed;
use crate::writer::WritableRecords;

/// Which log is to go, and which record decides it.
#[derive(Debug, Serialize, Deserialize)]
struct Intent {
    last_seq: Seq,
    chain: Hex,
    note_seq: Seq,
    note_chain: Hex,
}

impl Folder {
    pub(crate) fn delete(&self, removal: &Removal) -> Result<()> {
        if let Some((_, e)) = self.flush_staged()?.into_iter().next() {
            return Err(e);
        }
        let session = &removal.session;
        let (last_seq, chain) = {
            self.check_writable()?;
            let logs = self.logs();
            let unknown = || Error::SessionNotFound { session: session.clone() };
            let log = logs.by_id.get(session).ok_or_else(unknown)?;
            if let Some(e) = log.broken() {
                return Err(e.clone());
            }
            append_rules::check_removal(removal, log.end.seq, log.lease(), &*self.liveness)?;
            (log.end.seq, log.end.chain)
        };
        let metadata = SessionId::metadata_log();
        let note_seq = self.stage_note(removal.notes.clone())?;
        let path = self.paths.deleting(session);
        let noted = {
            let mut writer = self.writer();
            let note = writer.staged.get(&metadata).map_or(chain::GENESIS, |s| s.end.chain);
            let intent = Intent { last_seq, chain: Hex(chain), note_seq, note_chain: Hex(note) };
            let text = serde_json::to_string(&intent).unwrap_or_default();
            let written = self.write_flushed(&path, text.as_bytes());
            let noted = written.map_err(|e| write_failed(&path, e)).and_then(|()| {
                let flushed = self.disk.sync_folder(&self.paths.sessions);
                self.settle(flushed)
            });
            if noted.is_err() {
                self.take_back(&mut writer, &metadata);
            }
            noted
        };
        noted?;
        if let Some((_, e)) = self.write_out().into_iter().next() {
            // Found without its note at the next opening, if it cannot be removed now.
            let _ = disk::remove(&*self.disk, &path);
            return Err(e);
        }
        // Decided.
        self.sync()?;
        let mut writer = self.writer();
        let _behind = self.behind();
        writer.forget(session);
        let removed = self.remove_files(session);
        self.logs().remove(session);
        // The note says that it is gone: it must be. The next life would try again.
        removed.map_err(|e| self.poison(io::Error::other(e)))
    }

    /// Removes everything of a log, and the intent last.
    fn remove_files(&self, session: &SessionId) -> Result<()> {
        let blobs = self.blobs_of(session)?;
        self.note_sweep(&blobs)?;
        let failed = |e| write_failed(&self.paths.sessions, e);
        self.remove_torn(session)?;
        for path in [
            self.paths.log(session),
            self.paths.key(session),
            self.paths.snapshot(session),
            self.paths.tokens(session),
            self.paths.anchor(session),
        ] {
            disk::remove(&*self.disk, &path).map_err(failed)?;
        }
        self.disk.sync_folder(&self.paths.sessions).map_err(failed)?;
        self.sweep_noted()?;
        disk::remove(&*self.disk, &self.paths.deleting(session)).map_err(failed)?;
        self.disk.sync_folder(&self.paths.sessions).map_err(failed)
    }

    /// The blobs that a log's lines refer to, as far as it can be read.
    fn blobs_of(&self, session: &SessionId) -> Result<BTreeSet<chain::Hash>> {
        let mut blobs = BTreeSet::new();
        let path = self.paths.log(session);
        let file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(blobs),
            Err(e) => return Err(Self::unreadable(&path, e)),
        };
        let known = self.logs().by_id.get(session).map(|log| (log.key.clone(), log.form));
        let Some((key, Form::Native)) = known else { return Ok(blobs) };
        let end = file.bytes().map_err(|e| Self::unreadable(&path, e))?;
        let mut scanner = Scanner::from_start(file, end, key, Form::Native, 0, chain::GENESIS);
        // Behind a damaged line nothing is known; what it refers to stays until the next sweep.
        while let Ok(Some(line)) = scanner.next() {
            if let Kept::Blob { address, .. } = line.content {
                blobs.insert(address);
            }
        }
        Ok(blobs)
    }

    /// Finishes, or takes back, a removal that a crash fell into.
    pub(super) fn finish_deleting(&self, session: &SessionId) -> Result<()> {
        let path = self.paths.deleting(session);
        let read = disk::read(&*self.disk, &path, CACHE_BYTES_MAX);
        let text = read.map_err(|e| Self::unreadable(&path, e))?.unwrap_or_default();
        let intent = serde_json::from_slice::<Intent>(&text).ok();
        let decided = match &intent {
            None => false,
            Some(intent) => {
                match self.chain_at(&SessionId::metadata_log(), intent.note_seq) {
                    Ok(found) => found == Some(intent.note_chain.0),
                    // It is not known yet; the next opening asks again.
                    Err(error) => {
                        tracing::error!(%session, %error, "The deletion of a session cannot be finished");
                        return Ok(());
                    }
                }
            }
        };
        // Exactly that log, if it is still there.
        let same = intent.is_some_and(|intent| {
            let logs = self.logs();
            logs.by_id
                .get(session)
                .is_none_or(|log| log.end.seq == intent.last_seq && log.end.chain == intent.chain.0)
        });
        let goes = decided && same;
        if self.access == Access::ReadOnly {
            if goes {
                self.logs().remove(session);
            }
            return Ok(());
        }
        if goes {
            self.remove_files(session)?;
            self.logs().remove(session);
            tracing::info!(%session, "The deletion of a session was finished");
            return Ok(());
        }
        let failed = |e| write_failed(&path, e);
        disk::remove(&*self.disk, &path).map_err(failed)?;
        self.disk.sync_folder(&self.paths.sessions).map_err(failed)
    }

    /// Makes a log from a copy; durable when this returns.
    pub fn copy_in(&self, mut copy: LogCopy) -> Result<()> {
        if let Some((_, e)) = self.flush_staged()?.into_iter().next() {
            return Err(e);
        }
        let writing = self.writer();
        self.check_writable()?;
        let session = copy.head.session.clone();
        if self.logs().by_id.contains_key(&session) {
            return Err(Error::SessionExists { session });
        }
        let new = paths::unfinished(&self.paths.log(&session));
        let mut blobs = BTreeSet::new();
        let note = copy.note.take();
        let made = self.write_copy(copy, &new, &mut blobs);
        match made {
            Ok(log) => {
                {
                    let mut logs = self.logs();
                    if session.is_metadata_log() {
                        logs.roster = self.fold_roster(&log);
                    } else if note.is_some() {
                        logs.unregistered.insert(session.clone());
                    }
                    logs.insert(log);
                    logs.dirty.insert(session.clone());
                }
                drop(writing);
                // A crash before it leaves a log that the next opening registers.
                note.map_or(Ok(()), |note| self.note(WritableRecords::verbatim(vec![note])))?;
                self.logs().unregistered.remove(&session);
                Ok(())
            }
            Err(e) => {
                // Removed at the next opening, and swept with the next rebuilding, if not now.
                let _ = disk::remove(&*self.disk, &new);
                if self.note_sweep(&blobs).is_ok() {
                    let _ = self.sweep_noted();
                }
                Err(e)
            }
        }
    }

    fn write_copy(
        &self,
        copy: LogCopy,
        new: &Path,
        blobs: &mut BTreeSet<chain::Hash>,
    ) -> Result<Log> {
        let failed = |e| write_failed(new, e);
        let mut check = append_rules::CopyCheck::new(copy.head);
        let file = self.disk.create(new).map_err(failed)?;
        let mut rewrite = Rewrite::new(file);
        let mut folded = Folded::default();
        for copied in copy.records {
            let CopiedRecord { record, batch_left, payload_hash, chain } = {
                let copied = copied?;
                check.next(&copied)?;
                copied
            };
            let content = match &record.content {
                Content::None | Content::Omitted => Kept::None,
                Content::Redacted => Kept::Redacted,
                Content::Json(json) if json.len() > PAYLOAD_BYTES_MAX => {
                    let (what, bytes, max) = ("A content", json.len(), PAYLOAD_BYTES_MAX);
                    return Err(Error::PayloadTooLarge { what, bytes, max });
                }
                Content::Json(json) => self.keep(Some(json))?,
            };
            if let Kept::Blob { address, .. } = content {
                blobs.insert(address);
            }
            if let Ok(event) = record.event() {
                folded.apply(record.seq, record.ts, &event);
            }
            let line = Line {
                seq: record.seq,
                ts: record.ts,
                kind: Cow::Borrowed(&*record.kind),
                header: Cow::Borrowed(&*record.header),
                content,
                batch_left,
                payload_hash,
                chain,
                flushed: None,
            };
            rewrite.push(&line).map_err(failed)?;
        }
        check.end()?;
        rewrite.finish(&[]).map_err(failed)?;
        self.settle(rewrite.sync())?;
        let head = check.head();
        let session = &head.session;
        let _behind = self.behind();
        self.write_key(session, &head.chain_key)?;
        self.forget_caches(session)?;
        if let Some((seq, chain)) = head.anchor
            && let Some(text) = snapshot::make_anchor(&head.chain_key, seq, chain)
        {
            let path = self.paths.anchor(session);
            self.write_flushed(&path, text.as_bytes()).map_err(|e| write_failed(&path, e))?;
        }
        self.settle(self.disk.sync_folder(&self.paths.sessions))?;
        self.disk.rename(new, &self.paths.log(session)).map_err(failed)?;
        self.settle(self.disk.sync_folder(&self.paths.sessions))?;
        let mut log = Log::new(session.clone(), head.chain_key.clone(), Form::Native, rewrite.end);
        log.base = rewrite.marks.keys().next().map_or(0, |first| first - 1);
        (log.folded, log.marks, log.anchor) = (folded, rewrite.marks, head.anchor);
        Ok(log)
    }

    /// Removes caches of a log that had the same name.
    pub(super) fn forget_caches(&self, session: &SessionId) -> Result<()> {
        for path in
            [self.paths.snapshot(session), self.paths.tokens(session), self.paths.anchor(session)]
        {
            disk::remove(&*self.disk, &path).map_err(|e| write_failed(&path, e))?;
        }
        Ok(())
    }

    /// Deletes every cache and makes them again from the records. Logs that cannot be read are left
    /// as they are.
    pub fn rebuild(&self) -> Result<()> {
        if let Some((_, e)) = self.flush_staged()?.into_iter().next() {
            return Err(e);
        }
        let _writing = self.writer();
        self.check_writable()?;
        {
            let _behind = self.behind();
            for (session, _) in self.sessions() {
                let kept = {
                    let logs = self.logs();
                    let log = logs.by_id.get(&session);
                    log.filter(|log| log.trouble().is_none() && log.form == Form::Native)
                        .map(|log| (log.end, log.anchor))
                };
                let Some((end, anchor)) = kept else { continue };
                for path in [self.paths.snapshot(&session), self.paths.tokens(&session)] {
                    disk::remove(&*self.disk, &path).map_err(|e| write_failed(&path, e))?;
                }
                let Some(mut log) = self.read_again(&session)? else { continue };
                if log.broken().is_none() && (log.end.seq, log.end.chain) != (end.seq, end.chain) {
                    return Err(Error::ChainBroken { session, seq: log.end.seq });
                }
                log.anchor = anchor;
                let mut logs = self.logs();
                logs.remove(&session);
                logs.insert(log);
                logs.dirty.insert(session);
            }
        }
        self.sweep_all()?;
        self.write_behind();
        Ok(())
    }
}
