//! Which records of a log belong to a lineage. Resuming from an older checkpoint does not rewrite the
//! log: the new lineage is the old one's records up to the checkpoint, then what follows the record
//! that started it.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Seq};

/// Records that belong to a lineage, first and last.
pub type Segment = RangeInclusive<Seq>;

/// How a lineage began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineageStart {
    pub lineage: u32,
    pub from_lineage: u32,
    /// The last record of the older lineage that belongs to this one, too.
    pub from_seq: Seq,
    /// The record that started it.
    pub at: Seq,
}

/// The lineages of a graph's log. The first one has the number 1 and begins with the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineages {
    starts: Vec<LineageStart>,
}

impl Lineages {
    pub fn apply(&mut self, seq: Seq, event: &Event) {
        if let Event::LineageStarted(e) = event {
            let (lineage, from_lineage, from_seq) = (e.lineage, e.from_lineage, e.from_seq);
            self.starts.push(LineageStart { lineage, from_lineage, from_seq, at: seq });
        }
    }

    /// All but the first one, in the order of the log.
    pub fn starts(&self) -> &[LineageStart] {
        &self.starts
    }

    /// The lineage that the log's end belongs to.
    pub fn current(&self) -> u32 {
        self.starts.last().map_or(1, |start| start.lineage)
    }

    /// A lineage and those that it comes from, oldest first.
    pub fn ancestry(&self, lineage: u32) -> Vec<u32> {
        let mut line = vec![lineage];
        // A lineage comes from an older one; a log that says otherwise must not lead in circles.
        while let Some(start) = self.starts.iter().find(|start| Some(&start.lineage) == line.last())
            && line.len() <= self.starts.len()
        {
            line.push(start.from_lineage);
        }
        line.reverse();
        line
    }

    /// The number of the next one.
    pub fn next(&self) -> u32 {
        self.starts.iter().map(|start| start.lineage).max().unwrap_or(1) + 1
    }

    /// The records of a lineage up to `seq`, in order. Later lineages that began before `seq` do not
    /// count.
    pub fn segments(&self, lineage: u32, seq: Seq) -> Vec<Segment> {
        let mut segments = Vec::new();
        let (mut lineage, mut end) = (lineage, seq);
        // A lineage comes from an older one; a log that says otherwise must not lead in circles.
        for _ in 0..=self.starts.len() {
            let start = self.starts.iter().find(|start| start.lineage == lineage);
            let from = start.map_or(1, |start| start.at);
            // Another lineage may have begun in between: the records behind that are not this one's.
            let later = self.starts.iter().map(|start| start.at).filter(|at| *at > from).min();
            end = later.map_or(end, |at| end.min(at - 1));
            if from <= end {
                segments.push(from..=end);
            }
            let Some(start) = start else { break };
            (lineage, end) = (start.from_lineage, start.from_seq);
        }
        segments.reverse();
        segments
    }
}
