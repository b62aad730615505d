//! The one way into a log. A store appends only [`WritableRecords`], and there are two ways to make
//! them: [`Writer::mask`], for everything that a process says, and [`WritableRecords::verbatim`], for
//! records that are copied as they were first written. So nothing is appended unmasked by oversight.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use piton_core::id::{BootId, SessionId};
use piton_core::mask::Masker;
use piton_core::planted::{self, Bug};
use piton_core::state::Summary;
use piton_core::{NewRecord, Seq};

use crate::contract::{Appended, Batch, BoxFuture, Durability, Guard, Store};
use crate::error::{Cause, Error, Result};
use crate::masking::Masking;

/// Records that may be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WritableRecords {
    records: Vec<NewRecord>,
    compress_above: Option<usize>,
}

impl WritableRecords {
    /// Records that are written byte for byte, **unmasked**: copies of what a log already holds.
    pub fn verbatim(records: Vec<NewRecord>) -> Self {
        Self { records, compress_above: None }
    }

    /// Contents of more bytes are compressed, smaller ones are not. Without it the store decides. A
    /// store that cannot compress so small contents leaves them as they are.
    pub fn compressing_above(self, bytes: usize) -> Self {
        Self { compress_above: Some(bytes), ..self }
    }

    pub(crate) fn compress_above(&self) -> Option<usize> {
        self.compress_above
    }

    /// Adds records behind these, in the same batch.
    pub fn extend(&mut self, more: Self) {
        self.records.extend(more.records);
    }

    pub fn into_vec(self) -> Vec<NewRecord> {
        self.records
    }
}

impl Deref for WritableRecords {
    type Target = [NewRecord];

    fn deref(&self) -> &[NewRecord] {
        &self.records
    }
}

impl<'a> IntoIterator for &'a WritableRecords {
    type Item = &'a NewRecord;
    type IntoIter = std::slice::Iter<'a, NewRecord>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.iter()
    }
}

/// What masking came to.
#[derive(Debug)]
pub struct MaskedRecords {
    pub records: WritableRecords,
    /// The records that changed, as they were before, by their index. Never to be written; an agent
    /// is given what was meant.
    pub originals: BTreeMap<usize, NewRecord>,
}

/// Where a batch belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The log's last seq; 0 for a session that does not exist yet.
    pub expected: Seq,
    /// The epoch of the lease that this boot holds, or takes with this batch.
    pub epoch: u64,
}

/// Appends for one boot: masks by what is known to be secret, and names the lease under which it
/// writes. The store checks the lease in the transaction that appends.
#[derive(Debug)]
pub struct Writer {
    store: Arc<dyn Store>,
    boot: BootId,
    masking: Masking,
}

impl Writer {
    pub fn new(store: Arc<dyn Store>, boot: BootId, masker: Arc<Masker>) -> Self {
        Self { store, boot, masking: Masking::new(masker) }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn boot(&self) -> &BootId {
        &self.boot
    }

    /// Everything that is masked in a log: what was given, and what its records taught.
    pub fn masker(&self, log: &SessionId) -> Arc<Masker> {
        self.masking.current(log)
    }

    /// Makes records writable. A value under an excluded key is masked wherever it stands in these
    /// records, and in this log from now on. `expected` is the log's last seq, for the error.
    pub fn mask(
        &self,
        log: &SessionId,
        expected: Seq,
        mut records: Vec<NewRecord>,
    ) -> Result<MaskedRecords> {
        if planted::is(Bug::WriterUnmasked) {
            let originals = BTreeMap::new();
            return Ok(MaskedRecords { records: WritableRecords::verbatim(records), originals });
        }
        let originals = self.masking.mask(log, &mut records).map_err(|error| {
            let source: Cause = Arc::new(error);
            Error::RecordDamaged { session: log.clone(), seq: expected + 1, source: Some(source) }
        })?;
        Ok(MaskedRecords { records: WritableRecords::verbatim(records), originals })
    }

    /// Appends to a session's log under this boot's lease. Takes its place in the log's order when
    /// it is called; see [`Store::append`].
    pub fn append(
        &self,
        session: &SessionId,
        at: Position,
        records: WritableRecords,
        durability: Durability,
        summary: Option<Summary>,
    ) -> BoxFuture<Result<Appended>> {
        let (session, guard) = (session.clone(), self.lease(at.epoch));
        let expected = at.expected;
        self.store.append(Batch { session, expected, guard, records, durability, summary })
    }

    /// Masks and appends to the metadata log, which has no lease: others write to it as well, and
    /// then this fails with `SeqConflict`. Returns the records as they were written, too.
    pub async fn append_metadata(
        &self,
        expected: Seq,
        records: Vec<NewRecord>,
    ) -> Result<(Appended, WritableRecords)> {
        let log = SessionId::metadata_log();
        let records = self.mask(&log, expected, records)?.records;
        let appended = self.store.append(Batch {
            session: log,
            expected,
            guard: Guard::Shared,
            records: records.clone(),
            durability: Durability::Synced,
            summary: None,
        });
        Ok((appended.await?, records))
    }

    /// Deletes a session's log under this boot's lease and appends `note` to the metadata log, both
    /// or neither. The note is masked by what the session taught.
    pub async fn delete(&self, session: &SessionId, at: Position, note: NewRecord) -> Result<()> {
        let notes = self.mask(session, at.expected, vec![note])?.records;
        self.store.delete(session, at.expected, self.lease(at.epoch), notes).await
    }

    fn lease(&self, epoch: u64) -> Guard {
        Guard::Lease { boot: self.boot.clone(), epoch }
    }
}
