//! What many readers of one session share: its last records, rendered once. A reader that falls
//! behind them is served from the log, and so is whoever is at the same place; nobody has a buffer of
//! their own that could grow.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::{Bytes, BytesMut};
use piton_core::id::SessionId;
use piton_core::{Record, Seq};
use piton_runtime::View;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::metrics::Metrics;
use crate::problem::Result;

/// Rendered records that are kept, by number and by size.
const KEPT_MAX: usize = 4_096;
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What a reader is given at a time.
const CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Records that a reader who fell behind reads at a time.
const READ_MAX: usize = 256;
const REDACTED: &str = "record.redacted";
/// What is remembered of what was read for those who fell behind.
const BEHIND_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Feeds {
    view: View,
    metrics: Metrics,
    by_session: Mutex<HashMap<SessionId, Weak<Feed>>>,
}

/// The end of one session's log, kept up to date for as long as somebody reads it.
#[derive(Debug)]
struct Feed {
    kept: Arc<Mutex<Kept>>,
    /// Held while the log is read: whoever comes to the same place meanwhile finds it read.
    reading: tokio::sync::Mutex<()>,
    changed: watch::Receiver<()>,
    following: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The seq before the first one that is kept.
    before: Seq,
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// What was read from the log for those who fell behind, by the seq before it, with its last.
    behind: BTreeMap<Seq, (Bytes, Seq)>,
    behind_bytes: usize,
    /// How often something was taken out of the log.
    redactions: u64,
    /// The log cannot be followed any more.
    over: bool,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// One reader's place in a log.
#[derive(Debug)]
pub(crate) struct Reader {
    view: View,
    metrics: Metrics,
    session: SessionId,
    after: Seq,
    feed: Arc<Feed>,
    changed: watch::Receiver<()>,
}

impl Feeds {
    pub(crate) fn new(view: View, metrics: Metrics) -> Self {
        Self { view, metrics, by_session: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Weak<Feed>>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a session from after a position; `last` is where its log stands.
    pub(crate) fn read(&self, session: &SessionId, after: Seq, last: Seq) -> Reader {
        let feed = self.feed(session, last);
        self.metrics.subscribers.inc();
        Reader {
            view: self.view.clone(),
            metrics: self.metrics.clone(),
            session: session.clone(),
            after,
            changed: feed.changed.clone(),
            feed,
        }
    }

    fn feed(&self, session: &SessionId, last: Seq) -> Arc<Feed> {
        let mut feeds = self.lock();
        if let Some(feed) = feeds.get(session).and_then(Weak::upgrade)
            && !kept(&feed.kept).over
        {
            return feed;
        }
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let frames = Arc::new(Mutex::new(Kept { before: last, ..Kept::default() }));
        let (tell, changed) = watch::channel(());
        let mut tail = self.view.tail(session, last);
        let followed = Arc::clone(&frames);
        let session_id = session.clone();
        let following = tokio::spawn(async move {
            loop {
                match tail.next().await {
                    Ok(records) => kept(&followed).extend(&records),
                    Err(error) => {
                        tracing::warn!(session = %session_id, code = %error.code(), "not followed");
                        kept(&followed).over = true;
                    }
                }
                // Nobody reads: then nobody is told.
                let _ = tell.send(());
                if kept(&followed).over {
                    return;
                }
            }
        });
        let reading = tokio::sync::Mutex::default();
        let feed = Arc::new(Feed { kept: frames, reading, changed, following });
        feeds.insert(session.clone(), Arc::downgrade(&feed));
        feed
    }
}

fn kept(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn extend(&mut self, records: &[Record]) {
        for record in records {
            if &*record.kind == REDACTED {
                // What was taken out of the log must not be shown from memory.
                self.redactions += 1;
                self.before += self.frames.len() as u64;
                (self.frames, self.bytes) = (VecDeque::new(), 0);
                (self.behind, self.behind_bytes) = (BTreeMap::new(), 0);
            }
            let frame = render(record);
            self.bytes += frame.len();
            self.frames.push_back(frame);
        }
        while self.frames.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(first) = self.frames.pop_front() else { return };
            self.bytes -= first.len();
            self.before += 1;
        }
    }

    /// Remembers what was read from the log; those who are furthest behind have had it.
    fn read(&mut self, after: Seq, chunk: Bytes, last: Seq) {
        self.behind_bytes += chunk.len();
        if let Some((old, _)) = self.behind.insert(after, (chunk, last)) {
            self.behind_bytes -= old.len();
        }
        while self.behind_bytes > BEHIND_BYTES_MAX {
            let Some((_, (first, _))) = self.behind.pop_first() else { return };
            self.behind_bytes -= first.len();
        }
    }

    /// What comes after a position; `None` if that is not kept any more.
    fn after(&self, after: Seq) -> Option<(Bytes, Seq)> {
        let skip = usize::try_from(after.checked_sub(self.before)?).ok()?;
        let mut wanted = self.frames.iter().skip(skip).peekable();
        let Some(first) = wanted.next() else { return Some((Bytes::new(), after)) };
        if wanted.peek().is_none() {
            return Some((first.clone(), after + 1));
        }
        let mut chunk = BytesMut::from(&first[..]);
        let mut last = after + 1;
        for frame in wanted {
            if chunk.len() + frame.len() > CHUNK_BYTES_MAX {
                break;
            }
            chunk.extend_from_slice(frame);
            last += 1;
        }
        Some((chunk.freeze(), last))
    }
}

impl Reader {
    pub(crate) fn session(&self) -> &SessionId {
        &self.session
    }

    /// The next rendered records; waits until there are some. `None`: the log cannot be followed
    /// any more. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.changed.borrow_and_update();
            let (kept, over) = {
                let kept = kept(&self.feed.kept);
                (kept.after(self.after), kept.over)
            };
            match kept {
                Some((chunk, last)) if last > self.after => {
                    self.metrics.delivered.inc_by(last - self.after);
                    self.after = last;
                    return Ok(Some(chunk));
                }
                Some(_) if over => return Ok(None),
                Some(_) => {
                    if self.changed.changed().await.is_err() {
                        return Ok(None);
                    }
                }
                None => {
                    let Some((chunk, last)) = self.read_behind().await? else { return Ok(None) };
                    self.metrics.delivered.inc_by(last - self.after);
                    self.after = last;
                    return Ok(Some(chunk));
                }
            }
        }
    }

    /// What the log has after this reader's place; `None` if it has no more.
    async fn read_behind(&self) -> Result<Option<(Bytes, Seq)>> {
        let _alone = self.feed.reading.lock().await;
        let redactions = {
            let kept = kept(&self.feed.kept);
            if let Some(found) = kept.behind.get(&self.after) {
                return Ok(Some(found.clone()));
            }
            kept.redactions
        };
        let records = self.view.records(&self.session, self.after, READ_MAX).await?;
        let Some(last) = records.last().map(|record| record.seq) else { return Ok(None) };
        let mut chunk = BytesMut::new();
        for record in &records {
            chunk.extend_from_slice(&render(record));
        }
        let chunk = chunk.freeze();
        let mut kept = kept(&self.feed.kept);
        // It may show what was taken out meanwhile.
        if kept.redactions == redactions {
            kept.read(self.after, chunk.clone(), last);
        }
        Ok(Some((chunk, last)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.metrics.subscribers.dec();
    }
}

/// A record as a server-sent event.
fn render(record: &Record) -> Bytes {
    let data = match record.to_flat() {
        Ok(flat) => serde_json::Value::Object(flat).to_string(),
        // What cannot be shown still has its place: a reader must not see a gap.
        Err(_) => format!("{{\"seq\":{},\"kind\":\"{}\"}}", record.seq, record.kind),
    };
    Bytes::from(format!("id: {}\nevent: {}\ndata: {data}\n\n", record.seq, record.kind))
}

#[cfg(test)]
mod tests {
    use piton_core::event::{MessageUser, RecordRedacted};
    use piton_core::{Event, NewRecord, Timestamp};

    use super::*;

    fn record(seq: Seq, event: impl Into<Event>) -> Record {
        NewRecord::new(Timestamp::from_millis(1), event).at(seq)
    }

    fn said(seq: Seq) -> Record {
        let message_id = format!("msg_{seq}").parse().unwrap();
        record(seq, MessageUser { message_id, run_id: None })
    }

    #[test]
    fn what_is_kept_is_bounded_and_follows_on() {
        let mut kept = Kept { before: 10, ..Kept::default() };
        for seq in 11..11 + 2 * KEPT_MAX as u64 {
            kept.extend(&[said(seq)]);
        }
        assert_eq!((kept.frames.len(), kept.before), (KEPT_MAX, 10 + KEPT_MAX as u64));
        assert!(kept.after(kept.before - 1).is_none(), "read from the log");
        let (chunk, last) = kept.after(kept.before).unwrap();
        assert!(chunk.len() <= CHUNK_BYTES_MAX && last > kept.before + 1);
        let end = kept.before + KEPT_MAX as u64;
        assert_eq!(kept.after(end), Some((Bytes::new(), end)));
        for n in 0..3 {
            kept.read(n, Bytes::from(vec![0; BEHIND_BYTES_MAX / 2]), n + 1);
        }
        assert_eq!(kept.behind.keys().copied().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_was_taken_out_is_not_shown_from_memory() {
        let mut kept = Kept::default();
        kept.extend(&[said(1), said(2)]);
        kept.read(0, Bytes::from_static(b"x"), 1);
        let redacted = RecordRedacted { target_seq: 1, reason: None };
        kept.extend(&[record(3, redacted), said(4)]);
        assert!(kept.after(0).is_none() && kept.behind.is_empty(), "read from the log");
        assert_eq!(kept.after(2).unwrap().1, 4);
        assert_eq!((kept.behind_bytes, kept.redactions), (0, 1));
    }
}
