//! A disk in memory: what was written but not flushed can be lost, torn or kept. Lines carry how
//! many of their batch follow, and opening cuts back to the last whole batch, as a log of lines in
//! a file would.

use std::collections::BTreeMap;

use piton_core::event::SessionRegistered;
use piton_core::expected_sessions::ExpectedSessions;
use piton_core::id::{BootId, SessionId, TokenId};
use piton_core::planted::{self, Bug};
use piton_core::state::Lease;
use piton_core::{Content, Event, NewRecord, Record, Seq, State, chain, token};

use crate::append_rules::{self, Removal};
use crate::contract::{Batch, CopiedRecord, CopyHead, Guard, Liveness, LogCopy, Snapshot};
use crate::error::{Error, Result};
use crate::files::Folder;

/// Records copied at a time.
const COPY_RECORDS: usize = 1_000;

/// One line of a log.
#[derive(Clone, Debug)]
pub struct Line {
    pub record: Record,
    pub payload_hash: Option<chain::Hash>,
    pub chain: chain::Hash,
    pub batch_left: u32,
    /// Who wrote it; a killed process takes its unflushed lines with it.
    writer: Option<BootId>,
}

/// One session's log.
#[derive(Debug)]
pub struct Log {
    pub key: chain::Key,
    /// The seq before the first line's: 0 unless the log was adopted.
    pub base: Seq,
    pub lines: Vec<Line>,
    /// Lines that survive everything.
    pub flushed: usize,
    /// The lease as of the last line, flushed or not: what an append is checked against.
    lease: Lease,
    /// What the flushed lines fold into.
    pub state: State,
    pub tokens: BTreeMap<TokenId, token::Entry>,
    pub snapshot: Option<Snapshot>,
    /// The metadata log lists it as soon as anything of it is durable.
    unregistered: bool,
}

#[derive(Debug, Default)]
pub struct Disk {
    pub logs: BTreeMap<SessionId, Log>,
}

/// What a crash does to the lines of one log that were not flushed: how many of them survive.
pub(crate) type Survivors<'a> = &'a mut dyn FnMut(usize) -> usize;

impl Log {
    fn new(key: chain::Key) -> Self {
        Self {
            key,
            base: 0,
            lines: Vec::new(),
            flushed: 0,
            lease: Lease::default(),
            state: State::default(),
            tokens: BTreeMap::new(),
            snapshot: None,
            unregistered: false,
        }
    }

    /// The seq of the last line, flushed or not.
    pub(super) fn last_seq(&self) -> Seq {
        self.base + self.lines.len() as Seq
    }

    /// How many lines there are up to a seq.
    pub(super) fn lines_to(&self, seq: Seq) -> usize {
        usize::try_from(seq.saturating_sub(self.base)).unwrap_or(usize::MAX)
    }

    pub fn last_chain(&self, count: usize) -> chain::Hash {
        count.checked_sub(1).and_then(|i| self.lines.get(i)).map_or(chain::GENESIS, |l| l.chain)
    }

    fn write(&mut self, records: &[NewRecord], writer: Option<&BootId>) {
        let count = u32::try_from(records.len()).unwrap_or(u32::MAX);
        for (left, record) in (0..count).rev().zip(records) {
            let seq = self.last_seq() + 1;
            let payload_hash =
                record.payload.as_ref().map(|payload| self.key.payload_hash(payload.as_bytes()));
            let batch_left = if planted::is(Bug::BatchSplit) { 0 } else { left };
            let link = chain::LinkInput {
                seq,
                ts: record.ts,
                kind: &record.kind,
                header: &record.header,
                payload_hash,
                batch_left,
            };
            let chain = self.key.link(&self.last_chain(self.lines.len()), link);
            self.lease.apply(&record.event);
            let record = record.at(seq);
            self.lines.push(Line {
                record,
                payload_hash,
                chain,
                batch_left,
                writer: writer.cloned(),
            });
        }
    }

    /// Everything written so far becomes durable.
    fn flush(&mut self) {
        let mut taken_out = Vec::new();
        for line in &self.lines[self.flushed..] {
            let Ok(event) = line.record.event() else { continue };
            if let Event::RecordRedacted(e) = &event {
                taken_out.push(e.target_seq);
            }
            self.state.apply(line.record.seq, line.record.ts, &event);
            if let Some(id) = token::subject(&event) {
                let entry = self.tokens.remove(id);
                if let Some(entry) = token::transition(entry, line.record.seq, &event) {
                    self.tokens.insert(id.clone(), entry);
                }
            }
        }
        self.flushed = self.lines.len();
        for seq in taken_out {
            let at = self.lines_to(seq).checked_sub(1);
            let target = at.and_then(|at| self.lines.get_mut(at));
            if let Some(target) = target.filter(|line| line.payload_hash.is_some()) {
                target.record.content = Content::Redacted;
            }
        }
    }

    /// Cuts the log to its flushed lines and `kept` more, then back to the last whole batch.
    fn cut(&mut self, kept: usize) {
        self.lines.truncate(self.flushed + kept);
        while self.lines.len() > self.flushed
            && self.lines.last().is_some_and(|line| line.batch_left > 0)
        {
            self.lines.pop();
        }
        self.lease = Lease::default();
        for line in &self.lines {
            if let Ok(event) = line.record.event() {
                self.lease.apply(&event);
            }
        }
        self.flush();
    }

    /// Forgets what was derived and derives it again.
    pub(super) fn rebuild(&mut self) {
        self.state = State::default();
        self.tokens.clear();
        self.snapshot = None;
        let written = std::mem::take(&mut self.lines);
        let (flushed, rest) = written.split_at(self.flushed);
        self.flushed = 0;
        self.lines = flushed.to_vec();
        self.flush();
        self.lines.extend_from_slice(rest);
    }
}

impl Disk {
    /// Checks a batch and writes its lines, unflushed. All of it or nothing.
    pub(super) fn write(
        &mut self,
        batch: &Batch,
        liveness: &dyn Liveness,
        fresh_key: impl FnOnce() -> Result<chain::Key>,
    ) -> Result<()> {
        let log = self.logs.get(&batch.session);
        let last_seq = log.map_or(0, Log::last_seq);
        let lease = log.map(|log| log.lease.clone()).unwrap_or_default();
        match append_rules::check(batch, last_seq, &lease, liveness) {
            Err(Error::EpochStale { .. } | Error::SessionOwned { .. })
                if planted::is(Bug::EpochIgnored) => {}
            checked => drop(checked?),
        }
        let key = if log.is_some() { None } else { Some(fresh_key()?) };
        if let Some(key) = key {
            let unregistered = !batch.session.is_metadata_log();
            self.logs.insert(batch.session.clone(), Log { unregistered, ..Log::new(key) });
        }
        let writer = match &batch.guard {
            Guard::Lease { boot, .. } => Some(boot),
            Guard::Shared => None,
        };
        if let Some(log) = self.logs.get_mut(&batch.session) {
            log.write(&batch.records, writer);
        }
        Ok(())
    }

    /// Writes, unflushed, what another store has taken, with that store's key: so that the books of
    /// a simulator can be kept here, whatever it runs on.
    pub fn follow(&mut self, batch: &Batch, key: &chain::Key) {
        let log = self.logs.entry(batch.session.clone()).or_insert_with(|| Log::new(key.clone()));
        let writer = match &batch.guard {
            Guard::Lease { boot, .. } => Some(boot),
            Guard::Shared => None,
        };
        log.write(&batch.records, writer);
    }

    /// The logs of a folder of plain files, all of them flushed.
    pub fn of_folder(folder: &Folder) -> Result<Self> {
        let mut disk = Self::default();
        for (session, _) in folder.sessions() {
            let Some(head) = folder.copy_head(&session)? else { continue };
            let mut records = Vec::new();
            loop {
                let after = records.last().map_or(0, |c: &CopiedRecord| c.record.seq);
                let page = folder.copy_records(&session, after, COPY_RECORDS)?;
                if page.is_empty() {
                    break;
                }
                records.extend(page);
            }
            let records = Box::new(records.into_iter().map(Ok));
            disk.copy_in(LogCopy { head: CopyHead { anchor: None, ..head }, records, note: None })?;
        }
        Ok(disk)
    }

    pub fn flush(&mut self) {
        self.logs.values_mut().for_each(Log::flush);
        self.register();
    }

    /// Lists new sessions in the metadata log, durably, as one transaction with their beginning.
    fn register(&mut self) {
        let mut new = Vec::new();
        for (session, log) in self.logs.iter_mut().filter(|(_, log)| log.flushed > 0) {
            if std::mem::take(&mut log.unregistered) {
                let ts = log.lines.first().map(|line| line.record.ts);
                let event = SessionRegistered { session_id: session.clone() };
                let key = log.key.clone();
                new.extend(ts.map(|ts| (key, NewRecord::new(ts, event))));
            }
        }
        for (key, record) in new {
            self.note(key, &[record]);
        }
    }

    /// Appends to the metadata log, durably; made with the key if it is not there.
    fn note(&mut self, key: chain::Key, records: &[NewRecord]) {
        let metadata = self.logs.entry(SessionId::metadata_log()).or_insert_with(|| Log::new(key));
        metadata.write(records, None);
        metadata.flush();
    }

    /// Sessions that the metadata log lists and that are not there.
    pub(super) fn missing(&self) -> Vec<SessionId> {
        let mut roster = ExpectedSessions::default();
        let metadata = self.logs.get(&SessionId::metadata_log());
        for line in metadata.iter().flat_map(|log| &log.lines[..log.flushed]) {
            if let Ok(event) = line.record.event() {
                roster.apply(&event);
            }
        }
        let gone = roster.iter().filter(|session| !self.logs.contains_key(*session));
        gone.cloned().collect()
    }

    /// Removes a log and notes it in the metadata log, durably.
    pub(super) fn delete(
        &mut self,
        removal: &Removal,
        liveness: &dyn Liveness,
        fresh_key: impl FnOnce() -> Result<chain::Key>,
    ) -> Result<()> {
        let unknown = || Error::SessionNotFound { session: removal.session.clone() };
        let log = self.logs.get(&removal.session).ok_or_else(unknown)?;
        append_rules::check_removal(removal, log.last_seq(), &log.lease, liveness)?;
        let key = fresh_key()?;
        self.flush();
        self.logs.remove(&removal.session);
        self.note(key, &removal.notes);
        Ok(())
    }

    /// Makes a log from a copy, durably.
    pub(super) fn copy_in(&mut self, copy: LogCopy) -> Result<()> {
        let session = copy.head.session.clone();
        if self.logs.contains_key(&session) {
            return Err(Error::SessionExists { session });
        }
        let mut check = append_rules::CopyCheck::new(copy.head);
        let mut log = Log::new(check.head().chain_key.clone());
        for copied in copy.records {
            let copied = copied?;
            check.next(&copied)?;
            if log.lines.is_empty() {
                log.base = copied.record.seq - 1;
            }
            if let Ok(event) = copied.record.event() {
                log.lease.apply(&event);
            }
            log.lines.push(Line {
                record: copied.record,
                payload_hash: copied.payload_hash,
                chain: copied.chain,
                batch_left: copied.batch_left,
                writer: None,
            });
        }
        check.end()?;
        log.flush();
        let key = log.key.clone();
        self.logs.insert(session, log);
        if let Some(note) = copy.note {
            self.note(key, &[note]);
        }
        Ok(())
    }

    /// The power fails: of the lines that were not flushed, as many survive as `survivors` says,
    /// given how many there are.
    pub fn power_loss(&mut self, survivors: Survivors<'_>) {
        for log in self.logs.values_mut() {
            let unflushed = log.lines.len() - log.flushed;
            let kept = if unflushed == 0 { 0 } else { survivors(unflushed).min(unflushed) };
            log.cut(kept);
        }
        self.logs.retain(|_, log| !log.lines.is_empty());
        self.register();
    }

    /// One process is killed: what it wrote and had not flushed is rolled back or was committed
    /// just in time, as `survivors` says.
    pub fn process_killed(&mut self, boot: &BootId, survivors: Survivors<'_>) {
        for log in self.logs.values_mut() {
            let unflushed = log.lines.len() - log.flushed;
            let theirs =
                log.lines[log.flushed..].iter().any(|line| line.writer.as_ref() == Some(boot));
            if theirs {
                let kept = survivors(unflushed).min(unflushed);
                log.cut(kept);
            }
        }
        self.logs.retain(|_, log| !log.lines.is_empty());
        self.register();
    }
}
