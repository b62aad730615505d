//! From one store into another, log by log, byte for byte.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use piton_core::event::SessionRegistered;
use piton_core::expected_sessions::ExpectedSessions;
use piton_core::id::SessionId;
use piton_core::{NewRecord, Seq};

use super::{Error, PAGE_RECORDS};
use crate::contract::{CopiedRecord, CopyHead, Detail, LogCopy, Query, Select, Store};
use crate::error::Result;

/// A log that was copied, compared and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub session: SessionId,
    /// Copied verbatim: byte for byte, not masked again.
    pub records: u64,
    /// How many logs are done, this one included.
    pub done: u64,
}

/// Copies the metadata log and every session into an empty store, and verifies each there. No other
/// process may write to either store meanwhile; a log that grows during the copy fails the
/// conversion (`SeqConflict`).
pub async fn convert(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    mut progress: impl FnMut(Progress),
) -> Result<u64> {
    let metadata = SessionId::metadata_log();
    let first = Query { task_id: None, select: Select::All, after: None, limit: 1 };
    let has_sessions = !to.list(first).await?.rows.is_empty();
    if has_sessions || to.head(&metadata).await?.is_some() {
        return Err(Error::NotEmpty.into());
    }
    let mut done = 0;
    // First: what it does not list is added to it.
    if let Some(head) = from.copy_head(&metadata).await? {
        copy(from, to, head, None, &mut done, &mut progress).await?;
    }
    let listed = roster(&**from).await?;
    let mut after = None;
    loop {
        let page = from.logs(after.as_ref(), PAGE_RECORDS).await?;
        let Some(last) = page.last() else { return Ok(done) };
        after = Some(last.clone());
        for session in page.into_iter().filter(|session| !session.is_metadata_log()) {
            let unknown = || crate::Error::SessionNotFound { session: session.clone() };
            let head = from.copy_head(&session).await?.ok_or_else(unknown)?;
            let is_listed = listed.contains(&session);
            let note = if is_listed { None } else { registration(&**from, &session).await? };
            copy(from, to, head, note, &mut done, &mut progress).await?;
        }
    }
}

/// What a store's metadata log lists.
async fn roster(store: &dyn Store) -> Result<ExpectedSessions> {
    let (mut roster, mut last) = (ExpectedSessions::default(), 0);
    loop {
        let page =
            store.read(&SessionId::metadata_log(), last, PAGE_RECORDS, Detail::Headers).await?;
        let Some(end) = page.last() else { return Ok(roster) };
        last = end.seq;
        for event in page.iter().filter_map(|record| record.event().ok()) {
            roster.apply(&event);
        }
    }
}

/// The record that lists a session, for one that began elsewhere.
async fn registration(store: &dyn Store, session: &SessionId) -> Result<Option<NewRecord>> {
    let first = store.read(session, 0, 1, Detail::Headers).await?;
    let event = SessionRegistered { session_id: session.clone() };
    Ok(first.first().map(|record| NewRecord::new(record.ts, event)))
}

async fn copy(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    head: CopyHead,
    note: Option<NewRecord>,
    done: &mut u64,
    progress: &mut impl FnMut(Progress),
) -> Result<()> {
    let session = head.session.clone();
    let copied = Arc::new(AtomicU64::new(0));
    let records = Pages {
        copied: Arc::clone(&copied),
        store: Arc::clone(from),
        session: session.clone(),
        after: 0,
        last: head.last_seq,
        page: VecDeque::new(),
    };
    to.copy_in(LogCopy { head: head.clone(), records: Box::new(records), note }).await?;
    let unknown = || crate::Error::SessionNotFound { session: session.clone() };
    let there = to.copy_head(&session).await?.ok_or_else(unknown)?;
    let now = from.copy_head(&session).await?.ok_or_else(unknown)?;
    if now.last_seq != head.last_seq {
        let (expected, actual) = (head.last_seq, now.last_seq);
        return Err(crate::Error::SeqConflict { session, expected, actual });
    }
    let same = there.chain_key == head.chain_key
        && (there.last_seq, there.chain) == (head.last_seq, head.chain);
    let verified = to.verify(&session).await?;
    if !same || verified.problem.is_some() || verified.good_to != head.last_seq {
        return Err(crate::Error::ChainBroken { session, seq: verified.good_to + 1 });
    }
    *done += 1;
    let records = copied.load(Ordering::Relaxed);
    progress(Progress { session, records, done: *done });
    Ok(())
}

/// A store's records as an iterator. The store that takes them in waits for them where it writes.
struct Pages {
    /// How many were given.
    copied: Arc<AtomicU64>,
    store: Arc<dyn Store>,
    session: SessionId,
    after: Seq,
    last: Seq,
    page: VecDeque<CopiedRecord>,
}

impl Iterator for Pages {
    type Item = Result<CopiedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty() && self.after < self.last {
            match wait(self.store.copy_records(&self.session, self.after, PAGE_RECORDS)) {
                Ok(page) => self.page = page.into(),
                Err(error) => {
                    self.last = 0;
                    return Some(Err(error));
                }
            }
        }
        let copied = self.page.pop_front()?;
        self.copied.fetch_add(1, Ordering::Relaxed);
        self.after = copied.record.seq;
        (self.after <= self.last).then_some(Ok(copied))
    }
}

/// Waits for a future on this thread. Only for a store's reads, which need nothing of the runtime
/// that polls them.
fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
