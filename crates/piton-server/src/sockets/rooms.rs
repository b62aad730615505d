//! What the subscribers of one session share: its last records as events, made once. Who falls
//! behind them is served from the log; nobody has a buffer of their own that could grow.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use piton_core::id::SessionId;
use piton_core::{Code, Record, Seq, State};
use piton_runtime::View;
use piton_store::{Detail, Tail};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::translate::{Translator, Whose};
use crate::metrics::Metrics;
use crate::problem::{Problem, Result};

/// Records whose events are kept, by number and by size.
const KEPT_MAX: usize = 1_024;
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Records that a subscriber is given at a time.
const CHUNK_MAX: usize = 64;
/// How often a quiet log is asked whether it is still there: who deletes it hints at no session.
const THERE_EVERY: Duration = Duration::from_secs(2);
/// Records whose headers are read at a time to know a state of the past.
const FOLD_MAX: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Rooms {
    view: View,
    metrics: Metrics,
    by_session: Mutex<HashMap<SessionId, Weak<Room>>>,
}

/// The end of one session's log as events, kept up to date for as long as somebody listens.
#[derive(Debug)]
struct Room {
    kept: Arc<Mutex<Kept>>,
    changed: watch::Receiver<()>,
    following: JoinHandle<()>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// The events of one record.
type Events = Vec<Utf8Bytes>;

#[derive(Debug)]
struct Kept {
    /// The seq before the first one that is kept.
    before: Seq,
    records: VecDeque<Events>,
    bytes: usize,
    /// Why the log cannot be followed any more.
    over: Option<Problem>,
}

/// One subscriber's place in a log.
#[derive(Debug)]
pub(crate) struct Listener {
    view: View,
    metrics: Metrics,
    whose: Whose,
    after: Seq,
    room: Arc<Room>,
    changed: watch::Receiver<()>,
    /// Of one who is behind: the state where they are.
    behind: Option<Translator>,
}

impl Rooms {
    pub(crate) fn new(view: View, metrics: Metrics) -> Self {
        Self { view, metrics, by_session: Mutex::default() }
    }

    /// Listens to a session from after a position; also says where its log stands.
    pub(crate) async fn enter(
        &self,
        session: &SessionId,
        after: Option<Seq>,
    ) -> Result<(Listener, Seq)> {
        let state = self.view.state(session).await?;
        let last = state.last_seq;
        let after = after.unwrap_or(0);
        if after > last {
            let title = format!("The log ends at {last}, before {after}");
            return Err(Problem::new(Code::CursorInvalid, title));
        }
        let task = state.info.as_ref().and_then(|info| info.task_id.clone());
        let whose = Whose { session: session.clone(), task };
        let room = self.room(&whose, state);
        self.metrics.subscribers.inc();
        let listener = Listener {
            view: self.view.clone(),
            metrics: self.metrics.clone(),
            whose,
            after,
            changed: room.changed.clone(),
            room,
            behind: None,
        };
        Ok((listener, last))
    }

    fn room(&self, whose: &Whose, state: State) -> Arc<Room> {
        let session = &whose.session;
        let mut rooms = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(session).and_then(Weak::upgrade)
            && lock(&room.kept).over.is_none()
        {
            return room;
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let last = state.last_seq;
        let kept = Kept { before: last, records: VecDeque::new(), bytes: 0, over: None };
        let kept = Arc::new(Mutex::new(kept));
        let (tell, changed) = watch::channel(());
        let mut tail = self.view.tail(session, last);
        let mut translator = Translator::new(whose.clone(), state);
        let (followed, view, session_id) = (Arc::clone(&kept), self.view.clone(), session.clone());
        let following = tokio::spawn(async move {
            loop {
                let over = match next(&view, &session_id, &mut tail).await {
                    Ok(records) => {
                        let events: Vec<_> =
                            records.iter().map(|record| render(&mut translator, record)).collect();
                        lock(&followed).extend(events);
                        false
                    }
                    Err(problem) => {
                        tracing::info!(session = %session_id, code = %problem.code, "not followed");
                        lock(&followed).over = Some(problem);
                        true
                    }
                };
                // Nobody listens: then nobody is told.
                let _ = tell.send(());
                if over {
                    return;
                }
            }
        });
        let room = Arc::new(Room { kept, changed, following });
        rooms.insert(session.clone(), Arc::downgrade(&room));
        room
    }
}

/// What is appended next, or why nothing will be.
async fn next(view: &View, session: &SessionId, tail: &mut Tail) -> Result<Vec<Record>> {
    loop {
        match tokio::time::timeout(THERE_EVERY, tail.next()).await {
            Ok(records) => return Ok(records?),
            Err(_) if view.store().head(session).await?.is_none() => return Err(gone(session)),
            Err(_) => {}
        }
    }
}

fn gone(session: &SessionId) -> Problem {
    piton_store::Error::SessionNotFound { session: session.clone() }.into()
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn render(translator: &mut Translator, record: &Record) -> Events {
    translator.translate(record).into_iter().map(|told| told.text().into()).collect()
}

fn weight(events: &Events) -> usize {
    events.iter().map(|event| event.len()).sum()
}

impl Kept {
    fn extend(&mut self, records: Vec<Events>) {
        self.bytes += records.iter().map(weight).sum::<usize>();
        self.records.extend(records);
        while self.records.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX {
            let Some(first) = self.records.pop_front() else { return };
            self.bytes -= weight(&first);
            self.before += 1;
        }
    }

    /// What comes after a position; `None` if that is not kept any more.
    fn after(&self, after: Seq) -> Option<Vec<Events>> {
        let skip = usize::try_from(after.checked_sub(self.before)?).ok()?;
        Some(self.records.iter().skip(skip).take(CHUNK_MAX).cloned().collect())
    }
}

impl Listener {
    /// The next events; waits until there are some. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Result<Events> {
        loop {
            self.changed.borrow_and_update();
            let (kept, over) = {
                let kept = lock(&self.room.kept);
                (kept.after(self.after), kept.over.clone())
            };
            match (kept, over) {
                (Some(records), _) if !records.is_empty() => {
                    self.behind = None;
                    let count = records.len() as u64;
                    return Ok(self.given(self.after + count, count, records));
                }
                (Some(_), Some(problem)) => return Err(problem),
                (Some(_), None) => {
                    // Whoever follows the log says why before they leave.
                    let left = |_| piton_runtime::Error::ShuttingDown;
                    self.changed.changed().await.map_err(left)?;
                }
                (None, _) => return self.read_log().await,
            }
        }
    }

    fn given(&mut self, last: Seq, count: u64, records: Vec<Events>) -> Events {
        self.metrics.delivered.inc_by(count);
        self.after = last;
        records.into_iter().flatten().collect()
    }

    async fn read_log(&mut self) -> Result<Events> {
        let mut translator = match self.behind.take() {
            Some(translator) if translator.position() == self.after => translator,
            _ => Translator::new(self.whose.clone(), self.state_here().await?),
        };
        let records = self.view.records(&self.whose.session, self.after, CHUNK_MAX).await?;
        let last = records.last().map(|record| record.seq);
        let last = last.ok_or_else(|| gone(&self.whose.session))?;
        let events: Vec<_> = records.iter().map(|record| render(&mut translator, record)).collect();
        self.behind = Some(translator);
        Ok(self.given(last, records.len() as u64, events))
    }

    /// The state as it was after the last record that was given.
    async fn state_here(&self) -> Result<State> {
        if self.after == 0 {
            return Ok(State::default());
        }
        let now = self.view.state(&self.whose.session).await?;
        if now.last_seq == self.after {
            return Ok(now);
        }
        let mut state = State::default();
        while state.last_seq < self.after {
            let left = usize::try_from(self.after - state.last_seq).unwrap_or(FOLD_MAX);
            let (store, limit) = (self.view.store(), left.min(FOLD_MAX));
            let read =
                store.read(&self.whose.session, state.last_seq, limit, Detail::Headers).await?;
            let read: Vec<_> = read.into_iter().filter(|r| r.seq <= self.after).collect();
            if read.is_empty() {
                break;
            }
            for record in &read {
                // One that cannot be read changes nothing, here as there.
                if state.apply_record(record).is_err() {
                    state.last_seq = record.seq;
                }
            }
        }
        Ok(state)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.metrics.subscribers.dec();
    }
}
