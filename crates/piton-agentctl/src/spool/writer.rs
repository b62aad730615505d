//! Writes the spool's files. Runs on a thread of its own, since a disk may take its time; it
//! sleeps until there is something to write.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use piton_core::planted::{self, Bug};
use piton_core::spool::Pos;
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
/// How long a server may take to have it durable instead. Its log and this spool are on one disk:
/// two flushes of the same are one too many, and the second holds up the first.
const FLUSH_DELAY: Duration = Duration::from_millis(10);
/// A segment under way that replaces the end of another.
const NEW_NAME: &str = "rewritten.new";

pub(super) enum Job {
    Keep(Vec<Given>, oneshot::Sender<()>),
    Ack(Pos),
    Close(oneshot::Sender<()>),
}

/// An entry that has its place.
pub(super) struct Given {
    pub(super) pos: Pos,
    pub(super) json: Arc<str>,
    pub(super) is_flushed: bool,
    /// Flushed here at once, without waiting for a server to make it durable.
    pub(super) is_urgent: bool,
}

/// A caller that waits for its entries to be kept.
struct Keeping {
    /// The last of them that must be durable; 0 if none must.
    durable: Pos,
    kept: oneshot::Sender<()>,
}

struct Frame {
    pos: Pos,
    bytes: Vec<u8>,
    is_flushed: bool,
    is_urgent: bool,
}

pub(super) struct Writer {
    disk: Box<dyn Disk>,
    sealer: Sealer,
    shared: Arc<Shared>,
    segment_bytes_max: u64,
    open: Option<Box<dyn SegmentFile>>,
    /// Sealed, not written.
    pending: VecDeque<Frame>,
    /// Written, not flushed.
    unflushed: VecDeque<(Pos, Vec<u8>)>,
    unflushed_bytes: usize,
    /// A flush failed: the disk may have any part of `unflushed`.
    must_rewrite: bool,
    /// The last one that was flushed.
    flushed: Pos,
    /// The last one that is written and must be durable.
    must_flush: Pos,
    /// The last one that is written and must be flushed without waiting for a server.
    urgent: Pos,
    /// Until when a server may make that durable instead.
    flush_by: Option<Instant>,
    /// The last time that it could have, it did.
    is_trusted: bool,
    keeping: Vec<Keeping>,
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
            open: None,
            pending: VecDeque::new(),
            unflushed: VecDeque::new(),
            unflushed_bytes: 0,
            must_rewrite: false,
            flushed: 0,
            must_flush: 0,
            urgent: 0,
            flush_by: None,
            is_trusted: true,
            keeping: Vec::new(),
            closing: Vec::new(),
        }
    }

    /// Until it is closed, or everybody who could give it something is gone.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while self.wait(jobs) {
            self.settle(jobs);
            self.tell_kept();
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

    /// Takes what there is to do, also if that is only a flush that is due; `false`: nothing will
    /// come any more.
    fn wait(&mut self, jobs: &Receiver<Job>) -> bool {
        let job = match self.flush_by {
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(by) => jobs.recv_timeout(by.saturating_duration_since(Instant::now())),
        };
        match job {
            Ok(job) => self.take(job),
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => {
                // The callers are gone, too; the pending flush still has to happen.
                if self.flush_by.is_some()
                    && let Err(error) = self.flush()
                {
                    tracing::error!("The last of the spool may be lost: {error}");
                }
                return false;
            }
        }
        while self.closing.is_empty()
            && self.pending_bytes() < GROUP_BYTES_MAX
            && let Ok(job) = jobs.try_recv()
        {
            self.take(job);
        }
        true
    }

    fn tell_kept(&mut self) {
        let durable = self.durable();
        for keeping in self.keeping.extract_if(.., |keeping| keeping.durable <= durable) {
            // A caller that stopped waiting needs no answer.
            let _ = keeping.kept.send(());
        }
    }

    /// Up to where everything survives, here or in a log.
    fn durable(&self) -> Pos {
        self.flushed.max(self.shared.state().acked)
    }

    fn pending_bytes(&self) -> usize {
        self.pending.iter().map(|frame| frame.bytes.len()).sum()
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Keep(given, kept) => {
                let mut durable = 0;
                for entry in given {
                    if entry.is_flushed {
                        durable = entry.pos;
                    } else if planted::is(Bug::MixedBatchEarly) {
                        durable = 0;
                    }
                    self.seal(&entry);
                }
                self.keeping.push(Keeping { durable, kept });
            }
            Job::Ack(pos) => {
                self.is_trusted = true;
                self.trim(pos);
            }
            Job::Close(closed) => self.closing.push(closed),
        }
    }

    /// Every entry gets its frame: behind one that is left out nothing could be read.
    fn seal(&mut self, entry: &Given) {
        let Given { pos, is_flushed, is_urgent, .. } = *entry;
        loop {
            match self.frame(entry) {
                Ok(bytes) => {
                    let frame = Frame { pos, bytes, is_flushed, is_urgent };
                    return self.pending.push_back(frame);
                }
                // Randomness that fails comes again; too long it cannot be.
                Err(why) => tracing::error!("Entry {pos} cannot be sealed: {why}"),
            }
            std::thread::sleep(RETRY_MIN);
        }
    }

    fn frame(&self, entry: &Given) -> Result<Vec<u8>, String> {
        let mut nonce = [0; 24];
        getrandom::fill(&mut nonce).map_err(|e| e.to_string())?;
        let bytes = self.sealer.seal(entry.pos, nonce, entry.json.as_bytes());
        bytes.map_err(|e| e.to_string())
    }

    /// Writes until everything is where it must be, however long the disk refuses. Meanwhile what
    /// is acknowledged is removed, since that makes room.
    fn settle(&mut self, jobs: &Receiver<Job>) {
        let mut pause = RETRY_MIN;
        while let Err(error) = self.write_all() {
            tracing::warn!("The disk of the spool reports an error: {error}");
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
                        // All senders are gone, so `recv_timeout` would return at once: sleep until
                        // the next try.
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
        while !self.pending.is_empty() {
            self.write_some()?;
        }
        if self.check_flush_due() {
            self.flush()?;
        }
        Ok(())
    }

    /// Whether what must be durable is to be made so here and now.
    fn check_flush_due(&mut self) -> bool {
        if !self.closing.is_empty() || self.unflushed_bytes > UNFLUSHED_BYTES_MAX {
            return true;
        }
        let (acked, followers) = {
            let state = self.shared.state();
            (state.acked, state.followers)
        };
        if self.must_flush <= self.flushed.max(acked) {
            self.flush_by = None;
            return false;
        }
        if followers == 0 || !self.is_trusted || self.urgent > self.flushed.max(acked) {
            return true;
        }
        let now = Instant::now();
        let by = *self.flush_by.get_or_insert(now + FLUSH_DELAY);
        // Who was too slow once is not waited for again before it has acknowledged something.
        self.is_trusted = now < by;
        !self.is_trusted
    }

    /// Writes what fits the segment.
    fn write_some(&mut self) -> io::Result<()> {
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
        let mut state = self.shared.state();
        for frame in self.pending.drain(..count) {
            if frame.is_flushed {
                self.must_flush = frame.pos;
            }
            if frame.is_urgent {
                self.urgent = frame.pos;
            }
            if let Some(segment) = state.segments.back_mut() {
                segment.push(frame.bytes.len() as u64);
            }
            state.written = frame.pos;
            self.unflushed_bytes += frame.bytes.len();
            self.unflushed.push_back((frame.pos, frame.bytes));
        }
        state.forget_written();
        Ok(())
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
        self.mark_flushed();
        Ok(())
    }

    fn mark_flushed(&mut self) {
        if let Some((last, _)) = self.unflushed.back() {
            self.flushed = *last;
            self.disk.note_flushed(self.sealer.spool_id(), self.flushed);
        }
        self.flush_by = None;
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
        self.mark_flushed();
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
