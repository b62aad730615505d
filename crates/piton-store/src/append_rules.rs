//! Whether a batch may be appended: its form, its place and its writer. Pure, so that every rule
//! of the contract is tested without a disk.

use piton_core::id::{BootId, SessionId};
use piton_core::limits::{
    BATCH_BYTES_MAX, BATCH_RECORDS_MAX, HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX, SEQ_MAX,
};
use piton_core::planted::{self, Bug};
use piton_core::record::may_follow;
use piton_core::state::Lease;
use piton_core::{Content, Event, Seq, chain};

use crate::contract::{Batch, CopiedRecord, CopyHead, Durability, Guard, Liveness};
use crate::error::{Error, Result};
use crate::writer::WritableRecords;

/// What can be said of a batch without its log.
pub(crate) fn check_form(batch: &Batch) -> Result<()> {
    let invalid = |why| Err(Error::BatchInvalid { why });
    if batch.records.is_empty() {
        return invalid("it has no records");
    }
    if batch.records.len() > BATCH_RECORDS_MAX {
        return invalid("it has too many records");
    }
    if batch.expected > SEQ_MAX - BATCH_RECORDS_MAX as u64 {
        return invalid("the log cannot grow further");
    }
    match (&batch.guard, batch.session.is_metadata_log()) {
        (Guard::Shared, false) => return invalid("a session has one writer, who presents a lease"),
        (Guard::Lease { .. }, true) => return invalid("the metadata log has no lease"),
        (Guard::Shared, true) | (Guard::Lease { .. }, false) => {}
    }
    let limit = |what, bytes, max| {
        if bytes > max { Err(Error::PayloadTooLarge { what, bytes, max }) } else { Ok(()) }
    };
    for (seq, record) in (batch.expected + 1..).zip(&batch.records) {
        if let Event::RecordRedacted(e) = &record.event
            && !(1..seq).contains(&e.target_seq)
        {
            return invalid("only an earlier record can be redacted");
        }
        if record.kind.is_empty() {
            return invalid("a record has no kind");
        }
        if batch.session.is_metadata_log() && is_lease(&record.event) {
            return invalid("the metadata log has no lease");
        }
        limit("A header", record.header.len() + record.kind.len(), HEADER_BYTES_MAX)?;
        limit("A content", record.payload.as_ref().map_or(0, |p| p.len()), PAYLOAD_BYTES_MAX)?;
    }
    limit("A batch", batch_bytes(batch), BATCH_BYTES_MAX)
}

pub(crate) fn batch_bytes(batch: &Batch) -> usize {
    let bytes = |record: &piton_core::NewRecord| {
        record.kind.len() + record.header.len() + record.payload.as_ref().map_or(0, |p| p.len())
    };
    batch.records.iter().map(bytes).sum()
}

fn is_lease(event: &Event) -> bool {
    matches!(event, Event::SessionLeased(_) | Event::SessionReleased(_))
}

/// A log that is to be removed.
#[derive(Debug)]
pub(crate) struct Removal {
    pub(crate) session: SessionId,
    pub(crate) expected: Seq,
    pub(crate) guard: Guard,
    pub(crate) notes: WritableRecords,
}

/// Whether a log may be removed, by the rules of an append.
pub(crate) fn check_removal(
    removal: &Removal,
    last_seq: Seq,
    lease: &Lease,
    liveness: &dyn Liveness,
) -> Result<()> {
    let batch = Batch {
        session: removal.session.clone(),
        expected: removal.expected,
        guard: removal.guard.clone(),
        records: removal.notes.clone(),
        durability: Durability::Synced,
        summary: None,
    };
    if removal.session.is_metadata_log() {
        return Err(Error::BatchInvalid { why: "the metadata log cannot be removed" });
    }
    check_form(&batch)?;
    check(&batch, last_seq, lease, liveness).map(drop)
}

/// Checks a copy of a log, record by record: its links, its batches and its end.
#[derive(Debug)]
pub(crate) struct CopyCheck {
    head: CopyHead,
    last: Seq,
    chain: chain::Hash,
    left: u32,
    at_anchor: Option<chain::Hash>,
}

impl CopyCheck {
    pub(crate) fn new(head: CopyHead) -> Self {
        Self { head, last: 0, chain: chain::GENESIS, left: 0, at_anchor: None }
    }

    pub(crate) fn head(&self) -> &CopyHead {
        &self.head
    }

    fn damaged(&self, seq: Seq) -> Error {
        Error::RecordDamaged { session: self.head.session.clone(), seq, source: None }
    }

    pub(crate) fn next(&mut self, copied: &CopiedRecord) -> Result<()> {
        let CopiedRecord { record, batch_left, payload_hash, chain } = copied;
        let seq = record.seq;
        if !may_follow(self.last, seq, &record.kind) || seq > SEQ_MAX {
            return Err(self.damaged(self.last + 1));
        }
        // A batch counts down to its last record.
        if self.left > 0 && *batch_left != self.left - 1 {
            return Err(self.damaged(seq));
        }
        let fits = match &record.content {
            Content::None => payload_hash.is_none(),
            Content::Redacted => payload_hash.is_some(),
            Content::Omitted => false,
            Content::Json(json) => {
                *payload_hash == Some(self.head.chain_key.payload_hash(json.as_bytes()))
            }
        };
        let sizes = record.header.len() <= HEADER_BYTES_MAX;
        if !fits || !sizes || record.event().is_err() {
            return Err(self.damaged(seq));
        }
        let link = chain::LinkInput {
            seq,
            ts: record.ts,
            kind: &record.kind,
            header: &record.header,
            payload_hash: *payload_hash,
            batch_left: *batch_left,
        };
        if self.head.chain_key.link(&self.chain, link) != *chain {
            return Err(Error::ChainBroken { session: self.head.session.clone(), seq });
        }
        (self.last, self.chain, self.left) = (seq, *chain, *batch_left);
        if self.head.anchor.is_some_and(|(anchored, _)| anchored == seq) {
            self.at_anchor = Some(*chain);
        }
        Ok(())
    }

    /// The copy is whole, and reaches what was anchored.
    pub(crate) fn end(&self) -> Result<()> {
        let head = &self.head;
        if self.left > 0 || self.last == 0 || self.last != head.last_seq {
            return Err(self.damaged(self.last + 1));
        }
        let anchored = head.anchor.is_none_or(|(_, chain)| self.at_anchor == Some(chain));
        if self.chain != head.chain || !anchored {
            return Err(Error::ChainBroken { session: head.session.clone(), seq: self.last });
        }
        Ok(())
    }
}

/// Checks a batch against its log's end and lease. Answers the lease after it, if it changes.
pub(crate) fn check(
    batch: &Batch,
    last_seq: Seq,
    lease: &Lease,
    liveness: &dyn Liveness,
) -> Result<Option<Lease>> {
    let after = check_guard(batch, lease, liveness)?;
    if batch.expected != last_seq && !planted::is(Bug::SeqUnchecked) {
        return Err(Error::SeqConflict {
            session: batch.session.clone(),
            expected: batch.expected,
            actual: last_seq,
        });
    }
    Ok(after)
}

/// The writer comes before the place: who may not write need not know where.
fn check_guard(batch: &Batch, lease: &Lease, liveness: &dyn Liveness) -> Result<Option<Lease>> {
    let Guard::Lease { boot, epoch } = &batch.guard else { return Ok(None) };
    let mut changes = batch.records.iter().map(|r| &r.event).filter(|e| is_lease(e)).peekable();
    match changes.peek() {
        Some(Event::SessionLeased(_)) => take(batch, boot, lease, liveness)?,
        _ => hold(batch, boot, *epoch, lease)?,
    }
    if changes.peek().is_none() {
        return Ok(None);
    }
    let mut after = lease.clone();
    for event in changes {
        if let Event::SessionLeased(e) = event {
            if e.boot_id != *boot {
                return Err(Error::BatchInvalid { why: "a lease is taken for its own writer" });
            }
            if e.epoch <= after.epoch {
                return Err(stale(batch, e.epoch, after.epoch));
            }
            if e.epoch != after.epoch + 1 {
                return Err(Error::BatchInvalid {
                    why: "a lease's epoch is the last one plus one",
                });
            }
        }
        after.apply(event);
    }
    Ok(Some(after))
}

fn stale(batch: &Batch, presented: u64, actual: u64) -> Error {
    Error::EpochStale { session: batch.session.clone(), presented, actual }
}

/// The batch takes the lease: no other living boot may hold it.
fn take(batch: &Batch, boot: &BootId, lease: &Lease, liveness: &dyn Liveness) -> Result<()> {
    match &lease.owner {
        Some(owner) if owner != boot && liveness.is_alive(owner) => {
            Err(Error::SessionOwned { session: batch.session.clone(), owner: owner.clone() })
        }
        _ => Ok(()),
    }
}

/// The batch is written under the lease: it must be the writer's.
fn hold(batch: &Batch, boot: &BootId, epoch: u64, lease: &Lease) -> Result<()> {
    match &lease.owner {
        _ if epoch != lease.epoch => Err(stale(batch, epoch, lease.epoch)),
        Some(owner) if owner == boot => Ok(()),
        Some(owner) => {
            Err(Error::SessionOwned { session: batch.session.clone(), owner: owner.clone() })
        }
        // Released: the epoch was the writer's, and is over.
        None => Err(stale(batch, epoch, lease.epoch)),
    }
}
