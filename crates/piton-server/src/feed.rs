//! What many readers of one session share: its last records, rendered once. A reader that falls
//! behind them is served from the log; nobody has a buffer of their own that could grow.

use std::collections::{HashMap, VecDeque};
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
    changed: watch::Receiver<()>,
    following: JoinHandle<()>,
}

#[derive(Debug)]
struct Kept {
    /// The seq before the first one that is kept.
    before: Seq,
    frames: VecDeque<Bytes>,
    bytes: usize,
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
        let frames = Kept { before: last, frames: VecDeque::new(), bytes: 0, over: false };
        let frames = Arc::new(Mutex::new(frames));
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
        let feed = Arc::new(Feed { kept: frames, changed, following });
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
                    let records = self.view.records(&self.session, self.after, READ_MAX).await?;
                    let Some(last) = records.last().map(|record| record.seq) else {
                        return Ok(None);
                    };
                    self.metrics.delivered.inc_by(last - self.after);
                    self.after = last;
                    let mut chunk = BytesMut::new();
                    for record in &records {
                        chunk.extend_from_slice(&render(record));
                    }
                    return Ok(Some(chunk.freeze()));
                }
            }
        }
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
