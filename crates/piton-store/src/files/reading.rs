//! Reading beside a process that writes. The reader holds no lock and changes nothing; before it
//! answers, it looks what the writer has appended, replaced or removed since. What the writer is in
//! the middle of is a torn end, and no damage; what is read is flushed before anybody sees it.

use std::io;

use piton_core::id::SessionId;

use super::Access;
use super::folder::Folder;
use super::log::Log;
use super::open::{Found, read_on};
use super::scan::{Fault, Form, Mark, Scanner};
use crate::error::{Error, Result};

/// How often something that looks damaged is looked at again: the writer may have been at it.
const READS_MAX: usize = 3;

impl Folder {
    /// Looks at one log again; for a reader, otherwise nothing happens.
    pub(super) fn refresh(&self, session: &SessionId) -> Result<()> {
        if self.access == Access::ReadWrite {
            return Ok(());
        }
        let known = self.logs().by_id.get(session).cloned();
        if let Some(log) = known {
            return self.read_more(log);
        }
        self.look_again(session)?;
        if self.logs().by_id.contains_key(session) {
            // Its name may be as young as it is.
            let sessions = &self.paths.sessions;
            let flushed = self.disk.sync_folder(sessions);
            flushed.map_err(|e| Self::unreadable(sessions, e))?;
        }
        Ok(())
    }

    /// Looks at all logs again, also for those that came or went.
    pub(super) fn refresh_all(&self) -> Result<()> {
        if self.access == Access::ReadWrite {
            return Ok(());
        }
        let sessions = &self.paths.sessions;
        let entries = self.disk.list(sessions).map_err(|e| Self::unreadable(sessions, e))?;
        let there = entries.iter().filter_map(|entry| match super::paths::kind(&entry.name) {
            Some((session, super::paths::Kind::Log)) => Some(session),
            _ => None,
        });
        let mut ids: std::collections::BTreeSet<SessionId> = there.collect();
        ids.extend(self.logs().by_id.keys().cloned());
        for session in &ids {
            self.refresh(session)?;
        }
        self.compare_roster()
    }

    /// A log as it is on the disk now, whatever was known of it.
    pub(super) fn look_again(&self, session: &SessionId) -> Result<()> {
        let path = self.log_path(session);
        for look in 1..=READS_MAX {
            let opened = match self.disk.entry(&path) {
                Ok(entry) => self.open_log(session, entry.exposure)?.map(|(log, _)| log),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(Self::unreadable(&path, e)),
            };
            let is_sound = opened.as_ref().is_none_or(|log| log.trouble().is_none());
            if !is_sound && look < READS_MAX {
                continue;
            }
            let mut logs = self.logs();
            let was_lost = logs.lost.contains(session);
            logs.remove(session);
            match opened {
                Some(log) => logs.insert(log),
                None if was_lost => drop(logs.lost.insert(session.clone())),
                None => {}
            }
            return Ok(());
        }
        Ok(())
    }

    /// Reads what was appended behind the known end, if the known part is still what it was.
    fn read_more(&self, mut log: Log) -> Result<()> {
        let path = self.log_path(&log.session);
        let unreadable = |e| Self::unreadable(&path, e);
        let file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return self.look_again(&log.session),
            Err(e) => return Err(unreadable(e)),
        };
        let bytes = file.bytes().map_err(unreadable)?;
        let end = log.end;
        if log.form == Form::Foreign || log.trouble().is_some() || bytes < end.bytes {
            return self.look_again(&log.session);
        }
        let mark = Mark { seq: end.seq, at: end.last_at, previous: end.previous };
        let (key, base) = (log.key.clone(), log.base);
        let mut scanner =
            Scanner::from_mark(file.clone(), end.bytes, key.clone(), Form::Native, base, mark);
        let is_same = match scanner.next() {
            Ok(Some(line)) => line.chain == end.chain && scanner.mark() == end.mark(),
            Ok(None) | Err(Fault::Bad(_)) => false,
            Err(Fault::Io(e)) => return Err(unreadable(e)),
        };
        if !is_same {
            return self.look_again(&log.session);
        }
        if bytes == end.bytes {
            return Ok(());
        }
        let (folded, marks) = (log.folded.clone(), log.marks.clone());
        let found = Found { end, folded, marks, base, rest: None };
        let found = read_on(&file, bytes, &key, found).map_err(unreadable)?;
        if found.end == end {
            // A batch that is being written, or the rest of one: not there yet.
            return Ok(());
        }
        file.sync().map_err(unreadable)?;
        (log.end, log.folded, log.marks) = (found.end, found.folded, found.marks);
        let mut logs = self.logs();
        // Another thread may have been here, too.
        let newer = logs.by_id.get(&log.session).is_none_or(|known| known.end.seq <= log.end.seq);
        if newer {
            logs.insert(log);
        }
        Ok(())
    }

    /// Verifies a log that another process may be writing to: what looks wrong is read again.
    pub(super) fn verify_beside(
        &self,
        session: &SessionId,
    ) -> Result<crate::contract::Verification> {
        let mut look = 1;
        loop {
            self.refresh(session)?;
            let found = self.verify(session);
            let is_good = matches!(&found, Ok(found) if found.problem.is_none());
            if is_good || look == READS_MAX || self.access == Access::ReadWrite {
                return found;
            }
            look += 1;
            if let Err(e @ Error::Unreadable { .. }) = self.look_again(session) {
                return Err(e);
            }
            self.compare_roster()?;
        }
    }

    /// Whether a log has grown since a reader looked at it.
    pub(super) fn has_grown(&self, session: &SessionId, known: u64) -> bool {
        let file = self.disk.open(&self.log_path(session));
        file.and_then(|file| file.bytes()).is_ok_and(|bytes| bytes > known)
    }
}
