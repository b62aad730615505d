//! Keeps what the agent says until a server has it.
//!
//! The spool acknowledges an entry to its caller when the entry is written, and durable if its kind
//! says so ([`piton_core::spool::Fact::is_flushed`]): flushed here, or acknowledged by a server,
//! whose log then has it. A stream sees it at once: at or below what a log has, the log counts.
//! While too much waits for the server, [`Journal::keep`] waits: the agent is held back, and
//! nothing is dropped. While the disk refuses writes, callers wait.

mod disk;
mod state;
#[cfg(test)]
mod tests;
mod writer;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use piton_agent::{Journal, JournalClosed};
use piton_core::Timestamp;
use piton_core::spool::{ENTRY_VERSION, Entry, Fact, Note, Pos};
use piton_exec::protocol::SpoolHealth;
use piton_exec::spool::format::{self, Sealer};
use piton_exec::spool::{self as stored, SegmentReader};
use tokio::sync::{Notify, oneshot, watch};

use disk::{Disk, OsDisk};
use state::State;
use writer::{Given, Job, Writer};

/// A segment that is longer is followed by another.
const SEGMENT_BYTES_MAX: u64 = 1024 * 1024;
/// With what its frame adds, a reader still takes it.
const ENTRY_BYTES_MAX: u64 = format::FRAME_BYTES_MAX - 1024;
/// The writer's needs are small and known.
const STACK_BYTES: usize = 256 * 1024;

/// A handle; there is one spool behind all its clones.
#[derive(Clone, Debug)]
pub struct Spool {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
    /// Held by the caller that waits for room, so that the callers behind it keep their order.
    gate: Arc<tokio::sync::Mutex<()>>,
}

/// How much may wait to be acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// As much as was said when it began.
    #[default]
    Kept,
    /// Anything: what is still to come is little, and its source is gone.
    Lifted,
}

/// Why a spool cannot be begun.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Cannot make the spool {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("There is a spool already in {}", path.display())]
    Exists { path: PathBuf },
}

#[derive(Debug)]
pub(crate) struct Shared {
    spool_id: String,
    folder: PathBuf,
    key: zeroize::Zeroizing<[u8; 32]>,
    bytes_max: u64,
    state: Mutex<State>,
    /// The last position that can be read.
    last: watch::Sender<Pos>,
    /// Something was acknowledged, or all is over.
    room: Notify,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds this; if it did, the counts are still counts.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.room.notify_waiters();
    }
}

/// Why a position cannot be streamed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("Entries {first} to {last} are no longer there")]
    Lost { first: Pos, last: Pos },
    #[error(transparent)]
    Stored(#[from] stored::Error),
    #[error("The reading was stopped")]
    Stopped,
}

impl Spool {
    /// Begins a spool under a new id, in a folder that has none.
    pub fn create(folder: &Path, key: &[u8; 32], bytes_max: u64) -> Result<Self, Error> {
        let failed = |source| Error::Io { path: folder.to_owned(), source };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(failed)?;
        for name in fs::read_dir(folder).map_err(failed)? {
            let name = name.map_err(failed)?.file_name();
            if name.to_str().and_then(format::segment_first).is_some() {
                return Err(Error::Exists { path: folder.to_owned() });
            }
        }
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|e| failed(io::Error::other(e)))?;
        let spool_id = format!("spool_{}", hex::encode(random));
        let disk = Box::new(OsDisk::new(folder.to_owned()));
        Self::begin(disk, folder, spool_id, key, bytes_max).map_err(failed)
    }

    fn begin(
        disk: Box<dyn Disk>,
        folder: &Path,
        spool_id: String,
        key: &[u8; 32],
        bytes_max: u64,
    ) -> io::Result<Self> {
        let sealer = Sealer::new(key, &spool_id);
        let shared = Arc::new(Shared {
            spool_id,
            folder: folder.to_owned(),
            key: zeroize::Zeroizing::new(*key),
            bytes_max,
            state: Mutex::new(State::new()),
            last: watch::Sender::new(0),
            room: Notify::new(),
        });
        let segment_bytes_max = SEGMENT_BYTES_MAX.min(bytes_max / 4);
        let writer = Writer::new(disk, sealer, shared.clone(), segment_bytes_max);
        let (jobs, taken) = channel();
        let thread = std::thread::Builder::new().name("spool".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || writer.run(&taken))?;
        Ok(Self { shared, jobs, gate: Arc::default() })
    }

    pub fn spool_id(&self) -> &str {
        &self.shared.spool_id
    }

    /// Keeps notes even if the spool is full: for what is said rarely and must be said now.
    pub async fn keep_now(&self, notes: Vec<Note>) -> Result<(), JournalClosed> {
        self.send(notes)?.await.map_err(|_| JournalClosed)
    }

    /// Gives notes their positions, shows them to followers and sends them to the writer.
    fn send(&self, notes: Vec<Note>) -> Result<oneshot::Receiver<()>, JournalClosed> {
        let (kept, done) = oneshot::channel();
        let mut state = self.shared.state();
        if state.is_closed {
            return Err(JournalClosed);
        }
        let mut given = Vec::with_capacity(notes.len());
        for note in notes {
            let pos = state.last + 1;
            let (is_flushed, is_urgent) = (note.fact.is_flushed(), note.fact.is_urgent());
            let json = json_of(pos, note)?;
            state.push(pos, &json);
            given.push(Given { pos, json, is_flushed, is_urgent });
        }
        let last = state.last;
        // Under the lock: the writer takes them in the order of their places.
        self.jobs.send(Job::Keep(given, kept)).map_err(|_| JournalClosed)?;
        drop(state);
        self.shared.last.send_if_modified(|known| {
            let is_more = *known < last;
            *known = last.max(*known);
            is_more
        });
        Ok(done)
    }

    /// Counts a follower for as long as the result is held.
    pub fn followed(&self) -> FollowGuard {
        self.shared.state().followers += 1;
        FollowGuard(Arc::clone(&self.shared))
    }

    async fn keep_in_turn(&self, notes: Vec<Note>) -> Result<(), JournalClosed> {
        let turn = self.gate.lock().await;
        self.wait_for_room().await?;
        let done = self.send(notes)?;
        drop(turn);
        done.await.map_err(|_| JournalClosed)
    }

    async fn wait_for_room(&self) -> Result<(), JournalClosed> {
        let mut waiting = None;
        loop {
            let changed = self.shared.room.notified();
            {
                let state = self.shared.state();
                if state.is_closed {
                    return Err(JournalClosed);
                }
                let is_lifted = state.limit == Limit::Lifted;
                if is_lifted || state.unacked_bytes() < self.shared.bytes_max {
                    return Ok(());
                }
            }
            waiting.get_or_insert_with(|| Waiting::new(&self.shared));
            changed.await;
        }
    }

    /// Whether what is kept waits for room.
    pub fn limit(&self, limit: Limit) {
        self.shared.state().limit = limit;
        self.shared.room.notify_waiters();
    }

    /// Everything up to `pos` is durable elsewhere.
    pub fn ack(&self, pos: Pos) {
        let _ = self.jobs.send(Job::Ack(pos));
    }

    /// Flushes everything and keeps no more. Takes as long as the disk refuses.
    pub async fn close(&self) {
        let (closed, done) = oneshot::channel();
        // What is not kept must not be seen, either.
        self.shared.state().is_closed = true;
        if self.jobs.send(Job::Close(closed)).is_ok() {
            let _ = done.await;
        }
    }

    /// Changes whenever there is more to read.
    pub fn last(&self) -> watch::Receiver<Pos> {
        self.shared.last.subscribe()
    }

    pub fn health(&self) -> SpoolHealth {
        let state = self.shared.state();
        let bytes = state.unacked_bytes();
        let full = (state.waiting > 0 && bytes >= self.shared.bytes_max)
            .then(|| format!("The spool is full: {bytes} bytes wait to be acknowledged"));
        SpoolHealth {
            spool_id: self.shared.spool_id.clone(),
            first: state.first(),
            last: state.last,
            acked: state.acked,
            bytes,
            blocked: state.refused.clone().or(full),
        }
    }

    /// What the disk says for as long as it takes nothing.
    pub fn refused(&self) -> Option<String> {
        self.shared.state().refused.clone()
    }

    /// Entries behind `after`, as JSON: as many as fit into `bytes_max`, at least one unless there
    /// is none.
    pub async fn read(&self, after: Pos, bytes_max: usize) -> Result<Vec<Arc<str>>, ReadError> {
        let (segment, last) = {
            let state = self.shared.state();
            if after >= state.last {
                return Ok(Vec::new());
            }
            if after + 1 < state.first() {
                return Err(ReadError::Lost { first: after + 1, last: state.first() - 1 });
            }
            if let Some(found) = state.recent(after, bytes_max) {
                return Ok(found);
            }
            let holds = |segment: &&state::Segment| segment.first <= after + 1;
            (state.segments.iter().rev().find(holds).cloned(), state.written)
        };
        let Some(segment) = segment else { return Ok(Vec::new()) };
        let shared = self.shared.clone();
        let reading = tokio::task::spawn_blocking(move || {
            read_segment(&shared, &segment, after, last, bytes_max)
        });
        reading.await.map_err(|_| ReadError::Stopped)?
    }
}

/// The time of an entry.
pub(crate) fn now() -> Timestamp {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// An entry as JSON. One that has none says at least that something is missing.
fn json_of(pos: Pos, note: Note) -> Result<Arc<str>, JournalClosed> {
    let Note { run_id, fact, raw, at } = note;
    let at = at.unwrap_or_else(now);
    let entry = Entry { v: ENTRY_VERSION, pos, at, run_id, fact, raw };
    let dropped = |why: String, bytes| {
        tracing::error!("Entry {pos} cannot be written: {why}");
        let run_id = entry.run_id.clone();
        let fact = Fact::Dropped { why, bytes };
        serde_json::to_string(&Entry { v: ENTRY_VERSION, pos, at, run_id, fact, raw: None })
    };
    let json = match serde_json::to_string(&entry) {
        Ok(json) if json.len() as u64 > ENTRY_BYTES_MAX => {
            dropped("entry_too_long".to_owned(), json.len() as u64)
        }
        Ok(json) => Ok(json),
        Err(error) => dropped(error.to_string(), 0),
    };
    json.map(Into::into).map_err(|error| {
        tracing::error!("The spool cannot be written: {error}");
        JournalClosed
    })
}

fn read_segment(
    shared: &Shared,
    segment: &state::Segment,
    after: Pos,
    last: Pos,
    bytes_max: usize,
) -> Result<Vec<Arc<str>>, ReadError> {
    let path = shared.folder.join(format::segment_name(segment.first));
    let mut reader = match SegmentReader::open(&path, segment.first, &shared.key) {
        Ok(Some(reader)) => reader,
        Ok(None) => return Err(stored::Error::Foreign { path }.into()),
        // Acknowledged and removed since we looked.
        Err(stored::Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let last = segment.end.max(after + 2) - 1;
            return Err(ReadError::Lost { first: after + 1, last });
        }
        Err(error) => return Err(error.into()),
    };
    let (pos, offset) = segment.near(after + 1);
    reader.jump(pos, offset)?;
    while reader.next_pos() <= after && reader.skip()? {}
    let mut found = Vec::new();
    let mut bytes = 0;
    while reader.next_pos() <= last && reader.next_pos() < segment.end {
        let Some(entry) = reader.next_entry()? else { break };
        bytes += entry.json.len();
        let json = String::from_utf8_lossy(&entry.json);
        if bytes > bytes_max && !found.is_empty() {
            break;
        }
        found.push(json.into());
    }
    if found.is_empty() {
        // It was there when we looked.
        return Err(stored::Error::Damaged { path, pos: after + 1 }.into());
    }
    Ok(found)
}

impl Journal for Spool {
    fn keep(&self, notes: Vec<Note>) -> BoxFuture<'_, Result<(), JournalClosed>> {
        Box::pin(self.keep_in_turn(notes))
    }
}

/// Counts a waiting caller, also when it stops waiting halfway.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.state().waiting += 1;
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// Counts a follower until it is dropped.
#[derive(Debug)]
pub struct FollowGuard(Arc<Shared>);

impl Drop for FollowGuard {
    fn drop(&mut self) {
        self.0.state().followers -= 1;
    }
}
