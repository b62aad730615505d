//! Logs that were written elsewhere, in the first form of this layout: read as they are, with a record before the
//! first line that stands for everything before it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use piton_core::event::{AdoptedRun, SessionAdopted};
use piton_core::id::SessionId;
use piton_core::{Event, NewRecord, Timestamp, chain};

use super::disk::DiskFile;
use super::folder::Folder;
use super::line;
use super::log::{End, Health, Log};
use super::open::{FOREIGN_KEY, Found, Rest, read_lines};
use super::scan::{Fault, Form, Raw, RawLines, Scanner};
use super::sealed;
use super::snapshot::SnapshotFile;
use crate::error::{Error, Result};

impl Folder {
    /// Whether a log was written elsewhere: no line of it is this store's. A key beside it proves
    /// nothing, as an upgrade may have died; but then no line may look like a damaged one of this
    /// store, unless a snapshot of another program is there, too.
    pub(super) fn is_foreign(
        &self,
        session: &SessionId,
        file: &Arc<dyn DiskFile>,
        bytes: u64,
    ) -> io::Result<bool> {
        let mut raw = RawLines::new(file.clone(), 0, bytes, Form::Foreign);
        let (mut is_first, mut is_doubtful) = (true, false);
        loop {
            let (line, is_last) = match raw.next()? {
                Raw::Whole(line) => (line, false),
                Raw::Unended(line) => (line, true),
                // It does not matter whose line that is: it is damaged.
                Raw::TooLong => return Ok(false),
                Raw::End => break,
            };
            let readable = !is_first || line::decode_foreign(line, &FOREIGN_KEY).is_ok();
            if line::is_native(line) || !readable {
                return Ok(false);
            }
            is_first = false;
            is_doubtful |= line::has_chain(line);
            if is_last {
                break;
            }
        }
        if self.disk.entry(&self.paths.anchor(session)).is_ok() {
            // It was this store's: its file was replaced by another.
            return Ok(false);
        }
        let has_key = self.disk.entry(&self.paths.key(session)).is_ok();
        let text = self.read_cache(&self.paths.snapshot(session));
        is_doubtful |= text.is_some_and(|text| sealed::is_sealed(&text));
        Ok(!has_key || !is_doubtful || self.voucher(session).is_some())
    }

    /// The snapshot that another program wrote for a log.
    pub(super) fn voucher(&self, session: &SessionId) -> Option<SnapshotFile> {
        let text = self.read_cache(&self.paths.snapshot(session))?;
        let file = serde_json::from_slice::<SnapshotFile>(&text).ok()?;
        (file.id == *session && file.own.is_none()).then_some(file)
    }

    /// A log in the first form of this layout, with the snapshot that vouches for what came before it.
    pub(super) fn open_foreign(
        &self,
        session: &SessionId,
        file: &Arc<dyn DiskFile>,
        bytes: u64,
    ) -> Result<Log> {
        let path = self.log_path(session);
        let unreadable = |e| Self::unreadable(&path, e);
        let voucher = self.voucher(session);
        let first = first_line(file, bytes).map_err(unreadable)?.unwrap_or_default();
        let first = line::decode_foreign(&first, &FOREIGN_KEY)
            .map_err(|why| Error::LineDamaged { path: path.clone(), line: 1, why })?;
        let base = first.seq - 1;
        let mut log =
            Log::new(session.clone(), FOREIGN_KEY, Form::Foreign, End::empty(base, chain::GENESIS));
        let damaged = |line, why| Error::LineDamaged { path: path.clone(), line, why };
        if base > 0 {
            let Some(voucher) = &voucher else {
                let why = "no snapshot vouches for the records before it";
                log.health = Health::Broken(damaged(1, why));
                return Ok(log);
            };
            let run = self.adopted_run(voucher, file, bytes, &log).map_err(unreadable)?;
            adopt(&mut log, voucher, run, first.ts);
        }
        let found = Found {
            end: log.end,
            folded: log.folded.clone(),
            marks: log.marks.clone(),
            base,
            rest: None,
        };
        let scanner = Scanner::from_start(
            file.clone(),
            bytes,
            FOREIGN_KEY,
            Form::Foreign,
            base,
            log.end.chain,
        );
        let found = read_lines(scanner, found).map_err(unreadable)?;
        (log.end, log.folded, log.marks) = (found.end, found.folded, found.marks);
        let known = voucher.map_or(0, |voucher| voucher.last_seq);
        match found.rest {
            Some(Rest::Bad(bad)) => {
                let torn = known <= log.end.seq
                    && log.end.bytes > 0
                    && ends_within(file, bad.at, bytes).map_err(unreadable)?;
                if torn {
                    self.put_aside(&mut log, file, bytes, bad.line);
                } else {
                    log.health = Health::Broken(damaged(bad.line, bad.why));
                }
            }
            _ if known > log.end.seq => {
                let line = log.end.seq - base;
                log.health = Health::Broken(damaged(line, "the snapshot knows records after it"));
            }
            _ => {}
        }
        if let Health::Broken(error) = &log.health {
            tracing::error!(%session, %error, "The session cannot be opened");
        }
        Ok(log)
    }

    /// The run that the snapshot has open, unless its start is in the log.
    #[expect(clippy::unused_self, reason = "reads for the one above")]
    fn adopted_run(
        &self,
        voucher: &SnapshotFile,
        file: &Arc<dyn DiskFile>,
        bytes: u64,
        log: &Log,
    ) -> io::Result<Option<AdoptedRun>> {
        let Some(run) = voucher.run.as_ref().filter(|run| run.ended_at.is_none()) else {
            return Ok(None);
        };
        let mut scanner = Scanner::from_start(
            file.clone(),
            bytes,
            FOREIGN_KEY,
            Form::Foreign,
            log.base,
            chain::GENESIS,
        );
        loop {
            let line = match scanner.next() {
                Ok(Some(line)) => line,
                // Whatever is wrong with a line is found again, and said.
                Ok(None) | Err(Fault::Bad(_)) => break,
                Err(Fault::Io(e)) => return Err(e),
            };
            if let Ok(Event::RunStarted(e)) = line.event()
                && e.run_id == run.run_id
            {
                return Ok(None);
            }
        }
        Ok(Some(AdoptedRun {
            run_id: run.run_id.clone(),
            boot_id: run.boot_id.clone(),
            started_at: run.started_at,
        }))
    }
}

/// Puts the record before the first line that stands for all before it.
fn adopt(log: &mut Log, voucher: &SnapshotFile, run: Option<AdoptedRun>, ts: Timestamp) {
    let event = SessionAdopted {
        session_id: log.session.clone(),
        created_at: voucher.created_at.unwrap_or(ts),
        title: voucher.title.clone(),
        working_dir: voucher.working_dir.clone(),
        provider: voucher.provider.clone(),
        run,
    };
    let record = NewRecord::new(ts, event);
    log.folded.apply(log.base, record.ts, &record.event);
    let record = record.at(log.base);
    let link = chain::LinkInput {
        seq: record.seq,
        ts: record.ts,
        kind: &record.kind,
        header: &record.header,
        payload_hash: None,
        batch_left: 0,
    };
    let chain = FOREIGN_KEY.link(&chain::GENESIS, link);
    log.end = End::empty(log.base, chain);
    log.marks = BTreeMap::from([(log.base + 1, log.end.mark())]);
    log.adopted = Some((record, chain));
}

/// Whether the file ends within the line that begins there.
fn ends_within(file: &Arc<dyn DiskFile>, at: u64, bytes: u64) -> io::Result<bool> {
    Ok(!RawLines::new(file.clone(), at, bytes, Form::Foreign).skip_line()?)
}

fn first_line(file: &Arc<dyn DiskFile>, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut raw = RawLines::new(file.clone(), 0, bytes, Form::Foreign);
    Ok(match raw.next()? {
        Raw::Whole(line) | Raw::Unended(line) => Some(line.to_vec()),
        Raw::TooLong | Raw::End => None,
    })
}
