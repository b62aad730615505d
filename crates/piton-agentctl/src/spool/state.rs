//! What is known of a spool without looking at the disk; shared between its thread and all who
//! ask.

use std::collections::VecDeque;
use std::sync::Arc;

use piton_core::spool::Pos;

use super::Limit;

/// What is kept in memory of what was written last, so that who follows closely reads no file.
const RECENT_BYTES_MAX: usize = 256 * 1024;
/// How far apart the known places inside a segment are.
const MARK_BYTES: u64 = 16 * 1024;

/// A segment that is there.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) first: Pos,
    /// Behind its last entry.
    pub(crate) end: Pos,
    pub(crate) bytes: u64,
    /// Positions and where their frames begin, ascending; the first entry is always there.
    marks: Vec<(Pos, u64)>,
}

impl Segment {
    pub(crate) fn new(first: Pos, header_bytes: u64) -> Self {
        Self { first, end: first, bytes: header_bytes, marks: vec![(first, header_bytes)] }
    }

    pub(crate) fn push(&mut self, frame_bytes: u64) {
        let at = self.bytes;
        if self.marks.last().is_some_and(|(_, marked)| at - marked >= MARK_BYTES) {
            self.marks.push((self.end, at));
        }
        self.end += 1;
        self.bytes += frame_bytes;
    }

    /// A place at or before the frame of `pos`.
    pub(crate) fn near(&self, pos: Pos) -> (Pos, u64) {
        let index = self.marks.partition_point(|(marked, _)| *marked <= pos);
        self.marks[index.saturating_sub(1)]
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) segments: VecDeque<Segment>,
    /// The last position that was given away; it can be read.
    pub(crate) last: Pos,
    /// The last one that is in a file.
    pub(crate) written: Pos,
    pub(crate) acked: Pos,
    /// Who reads as it grows, and acknowledges.
    pub(crate) followers: usize,
    /// Entries as JSON, up to `last`; always those that are in no file yet.
    recent: VecDeque<(Pos, Arc<str>)>,
    recent_bytes: usize,
    /// What the disk said when it last refused.
    pub(crate) refused: Option<String>,
    /// How many wait until there is room.
    pub(crate) waiting: usize,
    pub(crate) is_closed: bool,
    pub(crate) limit: Limit,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            segments: VecDeque::new(),
            last: 0,
            written: 0,
            acked: 0,
            followers: 0,
            recent: VecDeque::new(),
            recent_bytes: 0,
            refused: None,
            waiting: 0,
            is_closed: false,
            limit: Limit::Kept,
        }
    }

    /// The first position that can be read.
    pub(crate) fn first(&self) -> Pos {
        self.segments.front().map_or(self.written + 1, |segment| segment.first)
    }

    /// Bytes on the disk that wait to be acknowledged; up to [`MARK_BYTES`] too many.
    pub(crate) fn unacked_bytes(&self) -> u64 {
        if self.acked >= self.last {
            return 0;
        }
        let next = self.acked + 1;
        let unacked = self.segments.iter().filter(|segment| segment.end > next);
        let bytes = unacked.map(|segment| {
            let (_, begin) = segment.near(next);
            segment.bytes - begin
        });
        bytes.sum()
    }

    /// Gives an entry its place: from now on it can be read.
    pub(crate) fn push(&mut self, pos: Pos, json: &Arc<str>) {
        self.last = pos;
        self.recent_bytes += json.len();
        self.recent.push_back((pos, json.clone()));
        self.forget_written();
    }

    /// What is in a file need not stay in memory.
    pub(crate) fn forget_written(&mut self) {
        while self.recent_bytes > RECENT_BYTES_MAX
            && self.recent.front().is_some_and(|(pos, _)| *pos <= self.written)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, json)) = self.recent.pop_front() {
            self.recent_bytes -= json.len();
        }
    }

    /// Drops acknowledged entries: no server asks for them again.
    pub(crate) fn forget_acked(&mut self) {
        while self.recent.front().is_some_and(|(pos, _)| *pos <= self.acked) {
            self.forget_oldest();
        }
    }

    /// Entries behind `after` from memory; `None` if they are not there any more.
    pub(crate) fn recent(&self, after: Pos, bytes_max: usize) -> Option<Vec<Arc<str>>> {
        let front = self.recent.front()?.0;
        let skip = usize::try_from((after + 1).checked_sub(front)?).ok()?;
        let mut bytes = 0;
        let fits = |(_, json): &&(Pos, Arc<str>)| {
            let is_first = bytes == 0;
            bytes += json.len();
            is_first || bytes <= bytes_max
        };
        Some(self.recent.iter().skip(skip).take_while(fits).map(|(_, json)| json.clone()).collect())
    }
}
