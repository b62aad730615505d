//! What changes in the index of sessions, for readers that show a list of them. One follower for all
//! readers: it looks at a session when the store hints at it, and renders each entry once. There is
//! no order across sessions and no position to continue from: a reader that joins, or falls behind,
//! is given the whole list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use piton_store::{Change, Changes};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use super::lock;
use super::tasks::{TaskBoard, TaskEvent, TaskSummary};
use crate::error::Result;
use crate::metadata::MetadataLog;
use crate::view::{Listed, View};

/// Sessions that are listed; the last active ones.
const LISTED_MAX: usize = 1_000;
const PAGE_SESSIONS: usize = 200;
/// Changes of one session within this time are one event.
const GATHER_TIME: Duration = Duration::from_millis(100);
/// Sessions that are looked at one by one; if more changed, the list is read again.
const SINGLY_MAX: usize = 64;
/// How long a lost hint can hide a change.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Events that a reader may be behind; one that is further behind is given the whole list.
const BEHIND_MAX: usize = 1_024;

/// What a reader of the index is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexEvent<E> {
    /// All sessions, which replaces everything that was given before; `truncated`: there are more.
    Listing {
        sessions: Vec<E>,
        tasks: Vec<TaskSummary>,
        truncated: bool,
    },
    Changed(E),
    Removed(SessionId),
    Task(TaskEvent),
}

/// The index of sessions as readers show it; followed only while it has a reader.
#[derive(Debug)]
pub struct Index<E> {
    view: View,
    metadata: MetadataLog,
    render: fn(&Listed) -> E,
    shared: Mutex<Weak<Shared<E>>>,
}

#[derive(Debug)]
struct Shared<E> {
    board: Arc<Mutex<Board<E>>>,
    following: JoinHandle<()>,
}

impl<E> Drop for Shared<E> {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// The sessions as they are, and the way to the readers.
#[derive(Debug)]
struct Board<E> {
    sessions: BTreeMap<SessionId, E>,
    truncated: bool,
    tasks: TaskBoard,
    sender: broadcast::Sender<IndexEvent<E>>,
    /// The store cannot be read any more.
    over: bool,
}

/// One reader of the index.
#[derive(Debug)]
pub struct IndexReader<E> {
    shared: Arc<Shared<E>>,
    receiver: broadcast::Receiver<IndexEvent<E>>,
    listing: Option<IndexEvent<E>>,
}

/// An entry of the index as it is shown; cheap to clone.
pub trait IndexItem: Clone + Debug + PartialEq + Send + Sync + 'static {}

impl<E: Clone + Debug + PartialEq + Send + Sync + 'static> IndexItem for E {}

impl<E: IndexItem> Board<E> {
    fn new(sender: broadcast::Sender<IndexEvent<E>>) -> Self {
        let (sessions, tasks) = (BTreeMap::new(), TaskBoard::default());
        Self { sessions, truncated: false, tasks, sender, over: false }
    }

    fn listing(&self) -> IndexEvent<E> {
        let sessions = self.sessions.values().cloned().collect();
        IndexEvent::Listing { sessions, tasks: self.tasks.listing(), truncated: self.truncated }
    }

    fn set(&mut self, listed: &Listed, entry: E) {
        self.tasks.note(listed);
        self.show(listed.row.session.clone(), entry);
    }

    fn show(&mut self, session: SessionId, entry: E) {
        if self.sessions.get(&session) == Some(&entry) {
            return;
        }
        // Fails only without a reader.
        let _ = self.sender.send(IndexEvent::Changed(entry.clone()));
        self.sessions.insert(session, entry);
    }

    fn remove(&mut self, session: &SessionId) {
        self.tasks.forget(session);
        if self.sessions.remove(session).is_some() {
            let _ = self.sender.send(IndexEvent::Removed(session.clone()));
        }
    }
}

impl<E: IndexItem> Shared<E> {
    /// The sessions as they are, and what comes after exactly that.
    fn subscribe(&self) -> (IndexEvent<E>, broadcast::Receiver<IndexEvent<E>>) {
        let board = lock(&self.board);
        (board.listing(), board.sender.subscribe())
    }
}

impl<E: IndexItem> Index<E> {
    pub fn new(view: View, metadata: MetadataLog, render: fn(&Listed) -> E) -> Self {
        Self { view, metadata, render, shared: Mutex::default() }
    }

    pub async fn read(&self) -> Result<IndexReader<E>> {
        let shared = self.follow().await?;
        let (listing, receiver) = shared.subscribe();
        Ok(IndexReader { shared, receiver, listing: Some(listing) })
    }

    async fn follow(&self) -> Result<Arc<Shared<E>>> {
        let running = || {
            let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.upgrade().filter(|shared| !lock(&shared.board).over)
        };
        if let Some(shared) = running() {
            return Ok(shared);
        }
        // Before the first look, so that nothing falls between the two.
        let changes = self.view.store().changes();
        let sender = broadcast::channel(BEHIND_MAX).0;
        let board = Arc::new(Mutex::new(Board::new(sender)));
        let follower = Follower {
            view: self.view.clone(),
            metadata: self.metadata.clone(),
            render: self.render,
            board: Arc::clone(&board),
        };
        follower.look_at_all().await?;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = shared.upgrade().filter(|shared| !lock(&shared.board).over) {
            // Another reader was faster.
            return Ok(other);
        }
        let following = tokio::spawn(follower.keep_up(changes));
        let fresh = Arc::new(Shared { board, following });
        *shared = Arc::downgrade(&fresh);
        Ok(fresh)
    }
}

impl<E: IndexItem> IndexReader<E> {
    /// The next event; the first one is the whole list. `None`: no further one comes. Safe to cancel.
    pub async fn next(&mut self) -> Option<IndexEvent<E>> {
        if let Some(listing) = self.listing.take() {
            return Some(listing);
        }
        match self.receiver.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                let (listing, receiver) = self.shared.subscribe();
                self.receiver = receiver;
                Some(listing)
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The last active sessions, and whether there are more.
async fn list(view: &View) -> Result<(BTreeMap<SessionId, Listed>, bool)> {
    let (mut sessions, mut after) = (BTreeMap::new(), None);
    loop {
        let (listed, next) = view.list(None, |_| true, after, PAGE_SESSIONS).await?;
        sessions.extend(listed.into_iter().map(|one| (one.row.session.clone(), one)));
        after = match next {
            None => return Ok((sessions, false)),
            Some(_) if sessions.len() >= LISTED_MAX => return Ok((sessions, true)),
            next => next,
        };
    }
}

/// What keeps a board up to date.
struct Follower<E> {
    view: View,
    metadata: MetadataLog,
    render: fn(&Listed) -> E,
    board: Arc<Mutex<Board<E>>>,
}

impl<E: IndexItem> Follower<E> {
    /// Until the board has no reader.
    async fn keep_up(self, mut changes: Changes) {
        loop {
            let done = match gather(&mut changes).await {
                Some(dirty) => self.look_at(dirty).await,
                None => self.look_at_all().await,
            };
            if let Err(error) = done {
                tracing::warn!(code = %error.code(), %error, "the index is not followed");
                let mut board = lock(&self.board);
                board.over = true;
                // The end of the channel ends the readers.
                board.sender = broadcast::channel(1).0;
                return;
            }
        }
    }

    async fn look_at(&self, mut dirty: BTreeSet<SessionId>) -> Result<()> {
        let is_metadata_changed = dirty.remove(&SessionId::metadata_log());
        for session in dirty {
            match self.view.listed(&session).await {
                Ok(Some(listed)) => lock(&self.board).set(&listed, (self.render)(&listed)),
                Ok(None) => lock(&self.board).remove(&session),
                Err(error) => {
                    // A log that is damaged must not hide the others: the index still has its row.
                    tracing::warn!(%session, code = %error.code(), "a session cannot be read; the index is listed again");
                    return self.look_at_all().await;
                }
            }
        }
        // The list is bounded: with too many sessions the last active ones are listed again.
        if lock(&self.board).sessions.len() > LISTED_MAX + PAGE_SESSIONS {
            return self.look_at_all().await;
        }
        if is_metadata_changed {
            self.look_at_registry().await?;
        }
        self.look_at_tasks().await
    }

    async fn look_at_all(&self) -> Result<()> {
        let (sessions, truncated) = list(&self.view).await?;
        let missing: Vec<SessionId> = {
            let board = lock(&self.board);
            board.sessions.keys().filter(|known| !sessions.contains_key(*known)).cloned().collect()
        };
        for session in missing {
            if self.view.store().head(&session).await?.is_none() {
                lock(&self.board).remove(&session);
            } else {
                // Still there, and not among the last active any more: listed when it changes.
                let mut board = lock(&self.board);
                board.sessions.remove(&session);
                board.tasks.unlist(&session);
            }
        }
        {
            let mut board = lock(&self.board);
            board.truncated = truncated;
            for listed in sessions.values() {
                board.set(listed, (self.render)(listed));
            }
        }
        self.look_at_registry().await?;
        self.look_at_tasks().await
    }

    /// Which tasks there are.
    async fn look_at_registry(&self) -> Result<()> {
        self.metadata.catch_up().await?;
        self.metadata.read(|known| {
            let newest = known.tasks.values().rev().take(LISTED_MAX).cloned().collect();
            let mut board = lock(&self.board);
            for event in board.tasks.set_all(newest, |task| known.tasks.contains_key(task)) {
                let _ = board.sender.send(IndexEvent::Task(event));
            }
        });
        Ok(())
    }

    /// Derives the states of tasks that something happened to.
    async fn look_at_tasks(&self) -> Result<()> {
        let dirty = lock(&self.board).tasks.take_dirty();
        for task in dirty {
            let sessions = self.view.list_task(&task).await?.0;
            let mut board = lock(&self.board);
            if let Some(event) = board.tasks.set_state(&task, &sessions) {
                let _ = board.sender.send(IndexEvent::Task(event));
            }
        }
        Ok(())
    }
}

/// The sessions that changed within a moment; `None`: look at all.
async fn gather(changes: &mut Changes) -> Option<BTreeSet<SessionId>> {
    let mut dirty = BTreeSet::new();
    match tokio::time::timeout(POLL_INTERVAL, changes.next()).await {
        Ok(Change::Of(session)) => drop(dirty.insert(session)),
        Ok(Change::Look) => {
            // Another process may write for a while: not one look for each of its batches.
            tokio::time::sleep(GATHER_TIME).await;
            return None;
        }
        Err(_) => return None,
    }
    let until = tokio::time::Instant::now() + GATHER_TIME;
    while let Ok(change) = tokio::time::timeout_at(until, changes.next()).await {
        match change {
            Change::Of(session) => drop(dirty.insert(session)),
            Change::Look if planted::is(Bug::LookAgainLost) => {}
            Change::Look => return None,
        }
    }
    (dirty.len() <= SINGLY_MAX).then_some(dirty)
}

#[cfg(test)]
mod tests {
    use piton_store::Hub;

    use super::*;

    fn session(name: &str) -> SessionId {
        name.parse().unwrap()
    }

    fn shared() -> Arc<Shared<String>> {
        let sender = broadcast::channel(BEHIND_MAX).0;
        let board = Board::new(sender);
        let following = tokio::spawn(std::future::pending());
        Arc::new(Shared { board: Arc::new(Mutex::new(board)), following })
    }

    fn reader(shared: &Arc<Shared<String>>) -> IndexReader<String> {
        let (listing, receiver) = shared.subscribe();
        IndexReader { shared: Arc::clone(shared), receiver, listing: Some(listing) }
    }

    #[tokio::test]
    async fn a_reader_is_given_the_list_and_then_what_changes() {
        let shared = shared();
        lock(&shared.board).show(session("s1"), "1".into());
        let mut reader = reader(&shared);
        let listing =
            IndexEvent::Listing { sessions: vec!["1".into()], tasks: Vec::new(), truncated: false };
        assert_eq!(reader.next().await, Some(listing));
        // What did not change is no event.
        lock(&shared.board).show(session("s1"), "1".into());
        lock(&shared.board).show(session("s1"), "2".into());
        assert_eq!(reader.next().await, Some(IndexEvent::Changed("2".into())));
        lock(&shared.board).remove(&session("s1"));
        lock(&shared.board).remove(&session("s1"));
        assert_eq!(reader.next().await, Some(IndexEvent::Removed(session("s1"))));
        assert!(reader.receiver.is_empty());
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_is_given_the_list_again() {
        let shared = shared();
        let mut reader = reader(&shared);
        reader.next().await;
        for round in 0..2 * BEHIND_MAX {
            lock(&shared.board).show(session(&format!("s{}", round % 10)), round.to_string());
        }
        let listing = lock(&shared.board).listing();
        assert_eq!(reader.next().await, Some(listing));
        assert!(reader.receiver.is_empty());
        lock(&shared.board).show(session("s1"), "new".into());
        assert_eq!(reader.next().await, Some(IndexEvent::Changed("new".into())));
    }

    /// A hint to look at everything must not be lost because it came while changes of single sessions
    /// were gathered.
    #[tokio::test(start_paused = true)]
    async fn a_hint_to_look_again_is_not_lost_while_gathering() {
        let hub = Hub::default();
        let mut changes = hub.changes();
        hub.committed(&session("s1"), 1, Vec::new);
        hub.look();
        hub.committed(&session("s2"), 1, Vec::new);
        assert_eq!(gather(&mut changes).await, None, "all are looked at");
        // What came after it is not lost either.
        assert_eq!(gather(&mut changes).await, Some([session("s2")].into()));
        hub.committed(&session("s1"), 1, Vec::new);
        hub.committed(&SessionId::metadata_log(), 1, Vec::new);
        let both = [session("s1"), SessionId::metadata_log()].into();
        assert_eq!(gather(&mut changes).await, Some(both), "tasks are in the metadata log");
        hub.look();
        assert_eq!(gather(&mut changes).await, None);
        assert_eq!(gather(&mut changes).await, None, "once in a while without any hint");
    }
}
