//! The metadata log lists every session. A new log is registered some time after it became durable,
//! behind its anchor: creating a session costs no flush of the metadata log, and a crash leaves
//! neither a session that is listed and not there, nor one that stays unlisted (the next opening
//! registers it). What is listed has an anchor; so an anchor that is gone was removed.

use std::path::Path;

use piton_core::event::{AnchorsRecreated, SessionRegistered};
use piton_core::expected_sessions::ExpectedSessions;
use piton_core::id::SessionId;
use piton_core::limits::BATCH_RECORDS_MAX;
use piton_core::{NewRecord, Seq, Timestamp, chain};

use super::Access;
use super::folder::Folder;
use super::log::Log;
use super::open::Cache;
use super::scan::{Form, Scanner};
use super::snapshot;
use crate::contract::{Batch, Durability, Finding, Guard, Problem};
use crate::error::{Error, Result};
use crate::folder::write_failed;
use crate::writer::WritableRecords;

impl Folder {
    /// What a metadata log lists, up to its first damaged line.
    pub(super) fn fold_roster(&self, log: &Log) -> ExpectedSessions {
        let mut roster = ExpectedSessions::default();
        let Ok(file) = self.disk.open(&self.log_path(&log.session)) else { return roster };
        let (end, key) = (log.end.bytes, log.key.clone());
        let mut scanner = Scanner::from_start(file, end, key, log.form, 0, chain::GENESIS);
        while let Ok(Some(line)) = scanner.next() {
            if let Ok(event) = line.event() {
                roster.apply(&event);
            }
        }
        roster
    }

    /// After all logs were opened: which sessions are gone, and which are not listed yet.
    pub(super) fn compare_roster(&self) -> Result<()> {
        let metadata = SessionId::metadata_log();
        let native = || {
            let logs = self.logs();
            logs.by_id.get(&metadata).filter(|log| log.form == Form::Native).cloned()
        };
        let gone = |roster: &ExpectedSessions| -> Vec<SessionId> {
            let logs = self.logs();
            let gone = roster.iter().filter(|session| !logs.by_id.contains_key(*session));
            gone.cloned().collect()
        };
        let mut log = native();
        let fold =
            |log: &Option<Log>| log.as_ref().map(|log| self.fold_roster(log)).unwrap_or_default();
        let mut roster = fold(&log);
        let mut lost = gone(&roster);
        if self.access == Access::ReadOnly && !lost.is_empty() {
            // Made since the folder was listed, or removed since the metadata log was read.
            for session in &lost {
                self.look_again(session)?;
            }
            self.refresh(&metadata)?;
            log = native();
            roster = fold(&log);
            lost = gone(&roster);
        }
        let mut logs = self.logs();
        if self.access == Access::ReadOnly {
            let listed: Vec<SessionId> = logs.lost.iter().cloned().collect();
            // Deleted since: its record says so.
            let left = listed.into_iter().filter(|id| {
                roster.contains(id) || self.disk.entry(&self.paths.anchor(id)).is_ok()
            });
            let left = left.collect();
            logs.lost = left;
        }
        logs.lost.extend(lost);
        let native = logs.by_id.values().filter(|log| log.form == Form::Native);
        let unlisted =
            native.filter(|log| log.broken().is_none() && !log.session.is_metadata_log());
        let unlisted = unlisted.map(|log| &log.session).filter(|id| !roster.contains(id));
        let unlisted = unlisted.cloned().collect();
        logs.unregistered = unlisted;
        logs.roster = roster;
        if log.is_none() && self.lacks_metadata() {
            logs.lost.insert(metadata);
        }
        Ok(())
    }

    /// Whether the metadata log's key or anchor is gone, which are as old as the store.
    fn lacks_metadata(&self) -> bool {
        let metadata = SessionId::metadata_log();
        let is_there = |path: &Path| self.disk.entry(path).is_ok();
        is_there(&self.paths.format())
            && !(is_there(&self.paths.key(&metadata)) && is_there(&self.paths.anchor(&metadata)))
    }

    /// Makes the metadata log's key, and an anchor that claims nothing yet, for a new store.
    pub(super) fn prepare_metadata(&self) -> Result<()> {
        let metadata = SessionId::metadata_log();
        if self.disk.entry(&self.log_path(&metadata)).is_ok() {
            return Ok(());
        }
        let key = match self.read_key(&metadata) {
            Ok(Some(key)) => key,
            Ok(None) | Err(Error::KeyInvalid { .. }) => {
                let key = self.fresh_key()?;
                self.write_key(&metadata, &key)?;
                key
            }
            Err(e) => return Err(e),
        };
        let path = self.paths.anchor(&metadata);
        let text = snapshot::make_anchor(&key, 0, chain::GENESIS).unwrap_or_default();
        self.write_flushed(&path, text.as_bytes()).map_err(|e| write_failed(&path, e))?;
        let flushed = self.disk.sync_folder(&self.paths.sessions);
        flushed.map_err(|e| write_failed(&self.paths.sessions, e))
    }

    /// Says in the metadata log that anchors are gone, before they are made again.
    pub(super) fn note_lost_anchors(&self) -> Result<()> {
        // The store has no clock: the newest time that a log knows.
        let (lost, at): (Vec<SessionId>, Option<Timestamp>) = {
            let logs = self.logs();
            let at = logs.by_id.values().filter_map(|log| log.folded.state.updated_at).max();
            let listed = logs.by_id.values().filter(|log| self.needs_anchor(&logs.roster, log));
            let without = listed.filter(|log| {
                log.trouble().is_none()
                    && !matches!(self.anchor_file(&log.session, &log.key), Cache::Read(_))
            });
            (without.map(|log| log.session.clone()).collect(), at)
        };
        if lost.is_empty() {
            return Ok(());
        }
        let logs = lost.len() as u64;
        let reason = "anchors were missing or unreadable".to_owned();
        tracing::error!(logs, "Anchors are missing or unreadable: made again");
        self.logs().dirty.extend(lost);
        let recreated = NewRecord::new(
            at.unwrap_or(Timestamp::from_millis(0)),
            AnchorsRecreated { logs, reason },
        );
        self.note(WritableRecords::verbatim(vec![recreated]))
    }

    /// Whether a log's anchor must be there.
    #[expect(clippy::unused_self, reason = "beside those that ask")]
    pub(super) fn needs_anchor(&self, roster: &ExpectedSessions, log: &Log) -> bool {
        log.form == Form::Native && (roster.contains(&log.session) || log.session.is_metadata_log())
    }

    /// Appends to the metadata log; durable when this returns. For the writer only.
    pub(super) fn note(&self, records: WritableRecords) -> Result<()> {
        self.stage_note(records)?;
        let metadata = SessionId::metadata_log();
        let failed = self.flush_staged()?.into_iter().find(|(session, _)| *session == metadata);
        failed.map_or(Ok(()), |(_, e)| Err(e))
    }

    /// Makes the lines of a batch for the metadata log; answers its last seq.
    pub(super) fn stage_note(&self, records: WritableRecords) -> Result<Seq> {
        let session = SessionId::metadata_log();
        let staged = self.writer().staged.get(&session).map(|staged| staged.end.seq);
        let expected = match staged {
            Some(seq) => seq,
            None => self.head(&session)?.map_or(0, |head| head.last_seq),
        };
        let (guard, durability) = (Guard::Shared, Durability::Synced);
        let batch = Batch { session, expected, guard, records, durability, summary: None };
        Ok(self.stage(&batch)?.last)
    }

    /// Whether logs wait to be registered.
    pub(super) fn has_unregistered(&self) -> bool {
        self.access == Access::ReadWrite && !self.logs().unregistered.is_empty()
    }

    /// Lists new sessions in the metadata log, those that have their anchor. For the writer only.
    pub fn register(&self) -> Result<()> {
        self.check_writable()?;
        loop {
            let new: Vec<(SessionId, Timestamp)> = {
                let logs = self.logs();
                let new = logs.unregistered.iter().filter_map(|id| logs.by_id.get(id));
                let anchored = new.filter(|log| log.anchor.is_some());
                let created = |log: &Log| {
                    let state = &log.folded.state;
                    let created = state.info.as_ref().map(|info| info.created_at);
                    created.or(state.updated_at).unwrap_or(Timestamp::from_millis(0))
                };
                let dated = anchored.map(|log| (log.session.clone(), created(log)));
                dated.take(BATCH_RECORDS_MAX).collect()
            };
            if new.is_empty() {
                return Ok(());
            }
            // The anchors' names first: what is listed has one.
            self.settle(self.disk.sync_folder(&self.paths.sessions))?;
            let record = |(session_id, ts): &(SessionId, Timestamp)| {
                NewRecord::new(*ts, SessionRegistered { session_id: session_id.clone() })
            };
            self.note(WritableRecords::verbatim(new.iter().map(record).collect()))?;
            let mut logs = self.logs();
            for (session, _) in &new {
                logs.unregistered.remove(session);
            }
        }
    }

    /// What no single log shows. Sessions that are gone are named among the logs.
    pub fn verify_store(&self) -> Vec<Finding> {
        let metadata = SessionId::metadata_log();
        let has_log = self.logs().by_id.contains_key(&metadata);
        let missing = !has_log && self.lacks_metadata();
        let problem = Problem::MetadataMissing;
        missing.then_some(Finding { session: Some(metadata), problem }).into_iter().collect()
    }
}
