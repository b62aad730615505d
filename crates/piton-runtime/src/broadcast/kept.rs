//! What a broadcast keeps of its log: bounded by records and by bytes, and nothing that was redacted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use piton_core::planted::{self, Bug};
use piton_core::status_cursor::StatusCursor;
use piton_core::{Content, Record, Seq};

use super::{Chunk, ChunkPart, Rendered};

/// Records at the end of the log that are kept, by number and by weight. What is rendered of them
/// weighs a few times as much.
pub(super) const KEPT_RECORDS_MAX: usize = 4_096;
pub(super) const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What is kept of what was read for readers that fell behind.
pub(super) const BEHIND_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What a reader is given at a time, unless a single chunk is larger.
const GIVEN_BYTES_MAX: usize = 64 * 1024;
/// Positions behind the tail at which the folded state is kept, so that readers that follow each
/// other through the log do not fold it again.
const TRAILS_MAX: usize = 4;
const REDACTED: &str = "record.redacted";

/// What a record costs beside its bytes.
const RECORD_BYTES: usize = 128;

pub(super) fn weight(record: &Record) -> usize {
    let content = match &record.content {
        Content::Json(json) => json.len(),
        _ => 0,
    };
    RECORD_BYTES + record.kind.len() + record.header.len() + content
}

/// How often text was redacted when a read began: what was read before a redaction is not kept after
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

#[derive(Debug)]
pub(super) struct Kept<R> {
    /// The seq before the first record that is kept.
    before: Seq,
    chunks: VecDeque<Arc<Chunk<R>>>,
    records: usize,
    bytes: usize,
    /// By the seq before their first record.
    behind: BTreeMap<Seq, Arc<Chunk<R>>>,
    behind_bytes: usize,
    trails: BTreeMap<Seq, StatusCursor>,
    redactions: u64,
    /// Why the log is not followed any more.
    pub(super) over: Option<piton_store::Error>,
}

impl<R: Rendered> Kept<R> {
    pub(super) fn new(last: Seq) -> Self {
        Self {
            before: last,
            chunks: VecDeque::new(),
            records: 0,
            bytes: 0,
            behind: BTreeMap::new(),
            behind_bytes: 0,
            trails: BTreeMap::new(),
            redactions: 0,
            over: None,
        }
    }

    /// Takes what was appended.
    pub(super) fn push(&mut self, chunk: Chunk<R>) {
        if chunk.entries.iter().any(|entry| &*entry.record.kind == REDACTED) {
            // Text that was redacted must not be shown from memory, and may be in this very batch:
            // readers are served from the log.
            self.redactions += 1;
            self.before = chunk.last();
            self.chunks.clear();
            (self.records, self.bytes) = (0, 0);
            self.behind.clear();
            self.behind_bytes = 0;
            return;
        }
        self.records += chunk.entries.len();
        self.bytes += chunk.weight;
        self.chunks.push_back(Arc::new(chunk));
        while self.records > KEPT_RECORDS_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(first) = self.chunks.pop_front() else { return };
            self.records -= first.entries.len();
            self.bytes -= first.weight;
            self.before = first.last();
        }
    }

    /// What comes after a position; `None` if that is not kept.
    pub(super) fn after(&self, after: Seq) -> Option<Vec<ChunkPart<R>>> {
        if after < self.before {
            return None;
        }
        let from = self.chunks.partition_point(|chunk| chunk.last() <= after);
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for chunk in self.chunks.range(from..) {
            bytes += chunk.weight;
            if bytes > GIVEN_BYTES_MAX && !parts.is_empty() {
                break;
            }
            let had = (after + 1).saturating_sub(chunk.first());
            let skip = usize::try_from(had).unwrap_or(usize::MAX);
            parts.push(ChunkPart { chunk: Arc::clone(chunk), skip });
        }
        Some(parts)
    }

    /// What another reader read at the same position.
    pub(super) fn behind(&self, after: Seq) -> Option<Arc<Chunk<R>>> {
        self.behind.get(&after).map(Arc::clone)
    }

    /// To be taken before the log is read.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.redactions)
    }

    /// The state at a position, if it is kept; it belongs to the reader that reads from there.
    pub(super) fn take_trail(&mut self, after: Seq) -> Option<StatusCursor> {
        self.trails.remove(&after)
    }

    /// Keeps what was read; of too much, what the readers that are furthest behind have had.
    pub(super) fn keep_behind(
        &mut self,
        ticket: Ticket,
        after: Seq,
        chunk: &Arc<Chunk<R>>,
        trail: StatusCursor,
    ) {
        self.trails.insert(trail.position(), trail);
        while self.trails.len() > TRAILS_MAX {
            self.trails.pop_first();
        }
        // It may show what was redacted meanwhile.
        if ticket != self.ticket() && !planted::is(Bug::RedactedTextKept) {
            return;
        }
        self.behind_bytes += chunk.weight;
        if let Some(old) = self.behind.insert(after, Arc::clone(chunk)) {
            self.behind_bytes -= old.weight;
        }
        while self.behind_bytes > BEHIND_BYTES_MAX {
            let Some((_, first)) = self.behind.pop_first() else { return };
            self.behind_bytes -= first.weight;
        }
    }
}
