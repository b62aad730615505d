//! Writes the spool's files. Runs on a thread of its own, since a disk may take its time; it
//! sleeps until there is something to write.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use piton_core::Timestamp;
use piton_core::spool::{ENTRY_VERSION, Entry, Fact, Note, Pos};
use piton_exec::spool::format::{self, Sealer};
use tokio::sync::oneshot;

use super::Shared;
use super::disk::{Disk, SegmentFile};
use super::state::Segment;

/// Text may wait for the next flush, but not more of it than this: it is held in memory until it
/// is flushed.
const UNFLUSHED_BYTES_MAX: usize = 256 * 1024;
/// What one write takes from the queue.
const GROUP_BYTES_MAX: usize = 1024 * 1024;
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// A segment under way that replaces the end of another.
const NEW_NAME: &str = "rewritten.new";

pub(super) enum Job {
    Keep(Vec<Note>, oneshot::Sender<()>),
    Ack(Pos),
    Close(oneshot::Sender<()>),
}

struct Frame {
    pos: Pos,
    json: Arc<str>,
    bytes: Vec<u8>,
    /// Length of `bytes`, which are let go once flushed.
    is_flushed: bool,
}

pub(super) struct Writer {
    disk: Box<dyn Disk>,
    sealer: Sealer,
    shared: Arc<Shared>,
    segment_bytes_max: u64,
    next: Pos,
    open: Option<Box<dyn SegmentFile>>,
    /// Sealed, not written.
    pending: VecDeque<Frame>,
    /// Written, not flushed.
    unflushed: VecDeque<(Pos, Vec<u8>)>,
    unflushed_bytes: usize,
    /// A flush failed: nobody knows what of `unflushed` the disk has.
    must_rewrite: bool,
    /// Waiting for what is pending.
    keeping: Vec<oneshot::Sender<()>>,
    closing: Vec<oneshot::Sender<()>>,
}

impl Writer {
    pub(super) fn new(
        disk: Box<dyn Disk>,
        sealer: Sealer,
        shared: Arc<Shared>,
        segment_bytes_max: u64,
    ) -> Self {
        Self {
            disk,
            sealer,
            shared,
            segment_bytes_max,
            next: 1,
            open: None,
            pending: VecDeque::new(),
            unflushed: VecDeque::new(),
            unflushed_bytes: 0,
            must_rewrite: false,
            keeping: Vec::new(),
            closing: Vec::new(),
        }
    }

    /// Until it is closed, or everybody who could give it something is gone.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            self.take(job);
            while self.closing.is_empty()
                && self.pending_bytes() < GROUP_BYTES_MAX
                && let Ok(job) = jobs.try_recv()
            {
                self.take(job);
            }
            self.settle(jobs);
            for kept in self.keeping.drain(..) {
                let _ = kept.send(());
            }
            if !self.closing.is_empty() {
                self.shared.close();
                for closed in self.closing.drain(..) {
                    let _ = closed.send(());
                }
                return;
            }
        }
        self.shared.close();
    }

    fn pending_bytes(&self) -> usize {
        self.pending.iter().map(|frame| frame.bytes.len()).sum()
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Keep(notes, kept) => {
                for note in notes {
                    self.seal(note);
                }
                self.keeping.push(kept);
            }
            Job::Ack(pos) => self.trim(pos),
            Job::Close(closed) => self.closing.push(closed),
        }
    }

    fn seal(&mut self, note: Note) {
        let pos = self.next;
        let is_flushed = note.fact.is_flushed();
        let entry = |note: Note| Entry {
            v: ENTRY_VERSION,
            pos,
            at: now(),
            run_id: note.run_id,
            fact: note.fact,
            raw: note.raw,
        };
        let run_id = note.run_id.clone();
        let sealed = self.seal_entry(&entry(note)).or_else(|why| {
            // It has no bytes to be written as; that something is missing must be said.
            tracing::error!("Entry {pos} cannot be written: {why}");
            let fact = Fact::Dropped { why, bytes: 0 };
            self.seal_entry(&entry(Note { run_id, fact, raw: None }))
        });
        match sealed {
            Ok((json, bytes)) => {
                self.pending.push_back(Frame { pos, json, bytes, is_flushed });
                self.next += 1;
            }
            Err(why) => tracing::error!("Nothing can be sealed: {why}"),
        }
    }

    fn seal_entry(&self, entry: &Entry) -> Result<(Arc<str>, Vec<u8>), String> {
        let json = serde_json::to_string(entry).map_err(|e| e.to_string())?;
        let mut nonce = [0; 24];
        getrandom::fill(&mut nonce).map_err(|e| e.to_string())?;
        let bytes = self.sealer.seal(entry.pos, nonce, json.as_bytes());
        Ok((json.into(), bytes.map_err(|e| e.to_string())?))
    }

    /// Writes until everything is where it must be, however long the disk refuses. Meanwhile what
    /// is acknowledged is removed, since that makes room.
    fn settle(&mut self, jobs: &Receiver<Job>) {
        let mut pause = RETRY_MIN;
        while let Err(error) = self.write_all() {
            tracing::warn!("The disk under the spool refuses: {error}");
            self.shared.state().refused = Some(format!("The disk refuses: {error}"));
            let until = Instant::now() + pause;
            pause = (pause * 2).min(RETRY_MAX);
            loop {
                match jobs.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(Job::Ack(pos)) => {
                        self.trim(pos);
                        break;
                    }
                    Ok(job) => self.take(job),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        // Nobody is left who could tell; what could be written was.
                        std::thread::sleep(until.saturating_duration_since(Instant::now()));
                        break;
                    }
                }
            }
        }
        self.shared.state().refused = None;
    }

    fn write_all(&mut self) -> io::Result<()> {
        if self.must_rewrite {
            self.rewrite()?;
        }
        let mut must_flush = !self.closing.is_empty();
        while !self.pending.is_empty() {
            must_flush |= self.write_some()?;
        }
        // Who follows makes it durable where it is, and need not wait for it to be so here: at or
        // below what a log has, the log counts. Who acts on it here waits.
        self.shared.publish(self.next - 1);
        if must_flush || self.unflushed_bytes > UNFLUSHED_BYTES_MAX {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what fits the segment; says whether any of it has to be flushed.
    fn write_some(&mut self) -> io::Result<bool> {
        let is_full = self.shared.state().segments.back().is_none_or(|segment| {
            segment.bytes >= self.segment_bytes_max && segment.end > segment.first
        });
        if self.open.is_none() || is_full {
            self.begin_segment()?;
        }
        let Some(file) = &mut self.open else { return Err(io::Error::other("No segment is open")) };
        let offset = self.shared.state().segments.back().map_or(0, |segment| segment.bytes);
        let mut bytes = Vec::new();
        let mut count = 0;
        for frame in &self.pending {
            bytes.extend_from_slice(&frame.bytes);
            count += 1;
            if offset + bytes.len() as u64 >= self.segment_bytes_max {
                break;
            }
        }
        if let Err(error) = file.write_at(&bytes, offset) {
            // What is there of it would be read as damage once more was written behind it.
            file.set_len(offset)?;
            return Err(error);
        }
        let mut must_flush = false;
        let mut state = self.shared.state();
        for frame in self.pending.drain(..count) {
            must_flush |= frame.is_flushed;
            if let Some(segment) = state.segments.back_mut() {
                segment.push(frame.bytes.len() as u64);
            }
            state.remember(frame.pos, &frame.json);
            self.unflushed_bytes += frame.bytes.len();
            self.unflushed.push_back((frame.pos, frame.bytes));
        }
        Ok(must_flush)
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        // Nothing may be durable while something before it is not.
        self.flush()?;
        let Some(first) = self.pending.front().map(|frame| frame.pos) else { return Ok(()) };
        let header = format::header(self.sealer.spool_id());
        let name = format::segment_name(first);
        let mut file = self.disk.create(&name)?;
        let begun = file.write_at(&header, 0);
        if let Err(error) = begun.and_then(|()| self.disk.sync_names()) {
            let _ = self.disk.remove(&name);
            return Err(error);
        }
        self.open = Some(file);
        self.shared.state().segments.push_back(Segment::new(first, header.len() as u64));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.unflushed.is_empty() {
            return Ok(());
        }
        let Some(file) = &mut self.open else { return Err(io::Error::other("No segment is open")) };
        if let Err(error) = file.sync() {
            // The kernel may have dropped the pages and will say “done” next time.
            self.open = None;
            self.must_rewrite = true;
            return Err(error);
        }
        self.flushed();
        Ok(())
    }

    fn flushed(&mut self) {
        self.unflushed.clear();
        self.unflushed_bytes = 0;
    }

    /// Everything that may be lost is written once more, into a file that has no past.
    fn rewrite(&mut self) -> io::Result<()> {
        let Some((first, _)) = self.unflushed.front() else {
            self.must_rewrite = false;
            return Ok(());
        };
        let first = *first;
        let mut bytes = format::header(self.sealer.spool_id());
        let mut segment = Segment::new(first, bytes.len() as u64);
        for (_, frame) in &self.unflushed {
            bytes.extend_from_slice(frame);
            segment.push(frame.len() as u64);
        }
        let written = self.disk.create(NEW_NAME).and_then(|mut file| {
            file.write_at(&bytes, 0)?;
            file.sync()?;
            self.disk.rename(NEW_NAME, &format::segment_name(first))?;
            self.disk.sync_names()?;
            Ok(file)
        });
        match written {
            Ok(file) => self.open = Some(file),
            Err(error) => {
                let _ = self.disk.remove(NEW_NAME);
                return Err(error);
            }
        }
        let mut state = self.shared.state();
        if state.segments.back().is_some_and(|old| old.first == first) {
            state.segments.pop_back();
        } else if let Some(old) = state.segments.back_mut() {
            // Its end is there twice, and the new one counts.
            old.end = first;
        }
        state.segments.push_back(segment);
        drop(state);
        self.must_rewrite = false;
        self.flushed();
        Ok(())
    }

    /// Removes segments of which everything was acknowledged, except the one that is written to.
    fn trim(&mut self, pos: Pos) {
        let mut state = self.shared.state();
        state.acked = state.acked.max(pos.min(state.last));
        state.forget_acked();
        let mut removed = Vec::new();
        while state.segments.len() > 1
            && state.segments.front().is_some_and(|segment| segment.end <= state.acked + 1)
        {
            removed.extend(state.segments.pop_front().map(|segment| segment.first));
        }
        drop(state);
        for first in removed {
            if let Err(error) = self.disk.remove(&format::segment_name(first)) {
                tracing::warn!("An acknowledged segment stays: {error}");
            }
        }
        self.shared.room.notify_waiters();
    }
}

fn now() -> Timestamp {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
