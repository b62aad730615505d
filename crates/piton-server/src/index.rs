//! What changes in the index of sessions, for whoever shows a list of them. One follower for all
//! readers: it looks at a session when the store hints at it, and makes each event once. There is
//! no order across sessions and no place to go on from: who comes, or falls behind, is told how
//! things stand.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use piton_api::problem::Problem as Document;
use piton_core::id::SessionId;
use piton_runtime::{Listed, View};
use piton_store::{Change, Changes};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::api::status;
use crate::app::App;
use crate::events::{HEARTBEAT, event_stream};
use crate::extract::Reader;
use crate::problem::Result;

/// Sessions that are told of; the last active ones.
const LISTED_MAX: usize = 1_000;
const PAGE: usize = 200;
/// Changes of one session within this time are told once.
const GATHER: Duration = Duration::from_millis(100);
/// Sessions that are looked at one by one; if more changed, the list is read anew.
const SINGLY_MAX: usize = 64;
/// How long a hint that was lost can hide a change.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Events that a reader may be behind; one that is further behind gets the list anew.
const BEHIND_MAX: usize = 1_024;

/// The follower that all readers share, for as long as there is one.
#[derive(Debug)]
pub(crate) struct Index {
    view: View,
    shared: Mutex<Weak<Shared>>,
}

#[derive(Debug)]
struct Shared {
    board: Arc<Mutex<Board>>,
    following: JoinHandle<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// How things stand, and who is told of changes.
#[derive(Debug)]
struct Board {
    sessions: BTreeMap<SessionId, Bytes>,
    /// There are more than are told of.
    truncated: bool,
    tell: broadcast::Sender<Bytes>,
    /// The store cannot be read any more.
    over: bool,
}

impl Board {
    /// All of it, as one text.
    fn listing(&self) -> Bytes {
        let (count, truncated) = (self.sessions.len(), self.truncated);
        let head =
            format!("event: listing\ndata: {{\"sessions\":{count},\"truncated\":{truncated}}}\n\n");
        let mut listing = BytesMut::from(head.as_bytes());
        for event in self.sessions.values() {
            listing.extend_from_slice(event);
        }
        listing.freeze()
    }

    fn set(&mut self, session: SessionId, event: Bytes) {
        if self.sessions.get(&session) == Some(&event) {
            return;
        }
        // Nobody may be there just now.
        let _ = self.tell.send(event.clone());
        self.sessions.insert(session, event);
    }

    fn remove(&mut self, session: &SessionId) {
        if self.sessions.remove(session).is_some() {
            let gone = format!("event: gone\ndata: {{\"session_id\":\"{session}\"}}\n\n");
            let _ = self.tell.send(gone.into());
        }
    }
}

fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

fn render(listed: &Listed) -> Bytes {
    let event = status::summary(listed);
    // Strings and a number: that they can be written is certain.
    let data = serde_json::to_string(&event).unwrap_or_default();
    Bytes::from(format!("event: index\ndata: {data}\n\n"))
}

impl Index {
    pub(crate) fn new(view: View) -> Self {
        Self { view, shared: Mutex::default() }
    }

    async fn follow(&self) -> Result<Arc<Shared>> {
        let running = || {
            let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.upgrade().filter(|shared| !lock(&shared.board).over)
        };
        if let Some(shared) = running() {
            return Ok(shared);
        }
        // Before the first look, so that nothing falls between the two.
        let changes = self.view.store().changes();
        let (sessions, truncated) = list(&self.view).await?;
        let tell = broadcast::channel(BEHIND_MAX).0;
        let board = Arc::new(Mutex::new(Board { sessions, truncated, tell, over: false }));
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = shared.upgrade().filter(|shared| !lock(&shared.board).over) {
            // Somebody was faster.
            return Ok(other);
        }
        let following = keep_up(self.view.clone(), Arc::clone(&board), changes);
        let fresh = Arc::new(Shared { board, following: tokio::spawn(following) });
        *shared = Arc::downgrade(&fresh);
        Ok(fresh)
    }
}

/// The last active sessions, and whether there are more.
async fn list(view: &View) -> Result<(BTreeMap<SessionId, Bytes>, bool)> {
    let (mut sessions, mut after) = (BTreeMap::new(), None);
    loop {
        let (listed, next) = view.list(None, |_| true, after, PAGE).await?;
        sessions.extend(listed.iter().map(|one| (one.row.session.clone(), render(one))));
        after = match next {
            None => return Ok((sessions, false)),
            Some(_) if sessions.len() >= LISTED_MAX => return Ok((sessions, true)),
            next => next,
        };
    }
}

/// Keeps the board up to date until nobody reads it.
async fn keep_up(view: View, board: Arc<Mutex<Board>>, mut changes: Changes) {
    loop {
        let dirty = gather(&mut changes).await;
        let done = match dirty {
            Some(dirty) => look_at(&view, &board, dirty).await,
            None => look_at_all(&view, &board).await,
        };
        if let Err(problem) = done {
            tracing::warn!(code = %problem.code, title = problem.title, "the index is not followed");
            let mut board = lock(&board);
            board.over = true;
            // Who waits is told by the end of the channel.
            board.tell = broadcast::channel(1).0;
            return;
        }
    }
}

/// The sessions that changed within a moment; `None`: look at all.
async fn gather(changes: &mut Changes) -> Option<BTreeSet<SessionId>> {
    let mut dirty = BTreeSet::new();
    match tokio::time::timeout(LOOK_EVERY, changes.next()).await {
        Ok(Change::Of(session)) => drop(dirty.insert(session)),
        Ok(Change::Look) => {
            // Others may write for a while: not one look for each.
            tokio::time::sleep(GATHER).await;
            return None;
        }
        Err(_) => return None,
    }
    let until = tokio::time::Instant::now() + GATHER;
    while let Ok(change) = tokio::time::timeout_at(until, changes.next()).await {
        match change {
            Change::Of(session) => drop(dirty.insert(session)),
            Change::Look => return None,
        }
    }
    dirty.retain(|session| !session.is_reserved());
    (dirty.len() <= SINGLY_MAX).then_some(dirty)
}

async fn look_at(view: &View, board: &Mutex<Board>, dirty: BTreeSet<SessionId>) -> Result<()> {
    for session in dirty {
        match view.listed(&session).await {
            Ok(Some(listed)) => lock(board).set(session, render(&listed)),
            Ok(None) => lock(board).remove(&session),
            Err(error) => {
                // A log that is damaged must not hide the others: the index still has its row.
                tracing::warn!(%session, code = %error.code(), "looked up in the index");
                return look_at_all(view, board).await;
            }
        }
    }
    // What is told of is bounded: with too many the last active ones are listed anew.
    if lock(board).sessions.len() > LISTED_MAX + PAGE {
        look_at_all(view, board).await?;
    }
    Ok(())
}

async fn look_at_all(view: &View, board: &Mutex<Board>) -> Result<()> {
    let (sessions, truncated) = list(view).await?;
    let missing: Vec<SessionId> = {
        let board = lock(board);
        board.sessions.keys().filter(|known| !sessions.contains_key(*known)).cloned().collect()
    };
    for session in missing {
        if view.store().head(&session).await?.is_none() {
            lock(board).remove(&session);
        } else {
            // Still there, and not among the last active any more: told of when it changes.
            lock(board).sessions.remove(&session);
        }
    }
    let mut board = lock(board);
    board.truncated = truncated;
    for (session, event) in sessions {
        board.set(session, event);
    }
    Ok(())
}

/// Changes of the index of sessions, in no order across them.
///
/// First `listing` with the number of sessions that follow, which replaces all that was known; then
/// an `index` event for each of them (the last active 1,000; `truncated` says that there are more);
/// then `index` for whatever changes, and `gone` for what is deleted. There is nothing to go on
/// from: a new connection, and a reader that falls behind, gets a `listing` again.
#[utoipa::path(
    get, path = "/events", tag = "sessions",
    responses(
        (status = 200, description = "`listing`, `index` and `gone` events", content_type = "text/event-stream", body = String),
        (status = "4XX", body = Document, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn index_events(State(app): State<App>, reader: Reader) -> Result<Response> {
    let shared = app.index().follow().await?;
    app.metrics().subscribers.inc();
    let (listing, receiver) = subscribe(&shared);
    let listing = [&b"retry: 1000\n\n"[..], &listing].concat().into();
    let taken_back = Box::pin(reader.pass().lost(app.clone()));
    let reading = Reading { app, taken_back, shared, receiver, next: Some(listing) };
    let frames = stream::unfold(reading, |mut reading| async move {
        let frame = reading.next().await?;
        Some((Ok::<_, Infallible>(frame), reading))
    });
    Ok(event_stream(frames))
}

/// How things stand, and what comes after exactly that.
fn subscribe(shared: &Shared) -> (Bytes, broadcast::Receiver<Bytes>) {
    let board = lock(&shared.board);
    (board.listing(), board.tell.subscribe())
}

struct Reading {
    app: App,
    taken_back: Pin<Box<dyn Future<Output = ()> + Send>>,
    shared: Arc<Shared>,
    receiver: broadcast::Receiver<Bytes>,
    next: Option<Bytes>,
}

impl Reading {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        let heard = tokio::select! {
            biased;
            () = self.app.stop().cancelled() => return None,
            () = &mut self.taken_back => return None,
            heard = tokio::time::timeout(HEARTBEAT, hear(&self.shared, &mut self.receiver)) => heard,
        };
        heard.unwrap_or(Some(Bytes::from_static(b": here\n\n")))
    }
}

/// What comes next; for who fell behind, all of it anew. `None`: nothing will.
async fn hear(shared: &Shared, receiver: &mut broadcast::Receiver<Bytes>) -> Option<Bytes> {
    match receiver.recv().await {
        Ok(frame) => Some(frame),
        Err(broadcast::error::RecvError::Lagged(_)) => {
            let (listing, fresh) = subscribe(shared);
            *receiver = fresh;
            Some(listing)
        }
        Err(broadcast::error::RecvError::Closed) => None,
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.app.metrics().subscribers.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Shared {
        let tell = broadcast::channel(BEHIND_MAX).0;
        let board = Board { sessions: BTreeMap::new(), truncated: false, tell, over: false };
        let following = tokio::spawn(std::future::pending());
        Shared { board: Arc::new(Mutex::new(board)), following }
    }

    fn event(text: &str) -> Bytes {
        Bytes::from(format!("event: index\ndata: {text}\n\n"))
    }

    #[tokio::test]
    async fn who_comes_is_told_how_things_stand_and_then_what_changes() {
        let shared = shared();
        let session: SessionId = "s1".parse().unwrap();
        lock(&shared.board).set(session.clone(), event("1"));
        let (listing, mut receiver) = subscribe(&shared);
        let expected = "event: listing\ndata: {\"sessions\":1,\"truncated\":false}\n\n";
        assert_eq!(listing, [expected.as_bytes(), &event("1")].concat());
        // What did not change is not told.
        lock(&shared.board).set(session.clone(), event("1"));
        lock(&shared.board).set(session.clone(), event("2"));
        assert_eq!(hear(&shared, &mut receiver).await, Some(event("2")));
        lock(&shared.board).remove(&session);
        lock(&shared.board).remove(&session);
        let gone = Bytes::from("event: gone\ndata: {\"session_id\":\"s1\"}\n\n");
        assert_eq!(hear(&shared, &mut receiver).await, Some(gone));
        assert!(receiver.is_empty());
    }

    #[tokio::test]
    async fn who_falls_behind_is_told_everything_anew() {
        let shared = shared();
        let (_, mut receiver) = subscribe(&shared);
        for round in 0..2 * BEHIND_MAX {
            let session = format!("s{}", round % 10).parse().unwrap();
            lock(&shared.board).set(session, event(&round.to_string()));
        }
        let listing = lock(&shared.board).listing();
        assert_eq!(hear(&shared, &mut receiver).await, Some(listing));
        assert!(receiver.is_empty());
        lock(&shared.board).set("s1".parse().unwrap(), event("new"));
        assert_eq!(hear(&shared, &mut receiver).await, Some(event("new")));
    }
}
