//! The sessions that a socket listens to: so many and no more, each from its own place in the log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::ws::Message;
use bytes::Bytes;
use piton_api::socket_event::{SocketEvent, TaskListing, TasksUnsubscribed, Unsubscribed};
use piton_core::id::SessionId;
use piton_core::{Code, Seq};
use piton_runtime::broadcast::{IndexEvent, IndexReader, TaskSummary};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::conversation::Line;
use super::methods;
use crate::api::tasks;
use crate::app::to_value;
use crate::metrics::Subscriber;
use crate::problem::{Problem, Result};
use crate::{frames, index};

/// Sessions that one socket may listen to.
const SUBSCRIPTIONS_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Subscriptions {
    by_session: Arc<Mutex<HashMap<SessionId, Subscription>>>,
    tasks: Arc<Mutex<Option<Subscription>>>,
}

#[derive(Debug)]
struct Subscription {
    stop: CancellationToken,
    /// `None` while it is being prepared.
    sending: Option<JoinHandle<()>>,
}

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Subscription>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to a session. The answer is on its way before the first event.
    pub(super) async fn begin(
        &self,
        line: &Line,
        id: &Value,
        session: &SessionId,
        after: Option<Seq>,
    ) -> Result<()> {
        let stop = self.reserve(session)?;
        let read = frames::read(&line.app, session, after.unwrap_or(0)).await;
        let (log, last) = match read {
            Ok(read) => read,
            Err(problem) => {
                self.lock().remove(session);
                return Err(problem);
            }
        };
        let result = json!({"session_id": session.to_string(), "last_seq": last});
        let answered = line.out.send(methods::answer(id, &result, false)).await;
        let mut subscriptions = self.lock();
        // It may have been ended meanwhile.
        if let (Some(subscription), Ok(())) = (subscriptions.get_mut(session), answered)
            && !stop.is_cancelled()
        {
            let subscriber = line.app.metrics().subscribe();
            let sending = send(line.clone(), log, subscriber, stop);
            subscription.sending = Some(tokio::spawn(sending));
        }
        Ok(())
    }

    fn reserve(&self, session: &SessionId) -> Result<CancellationToken> {
        let mut subscriptions = self.lock();
        if subscriptions.contains_key(session) {
            return Err(Problem::malformed("This socket listens to the session already"));
        }
        if subscriptions.len() >= SUBSCRIPTIONS_MAX {
            let title = format!("A socket listens to at most {SUBSCRIPTIONS_MAX} sessions");
            return Err(Problem::new(Code::LimitReached, title));
        }
        let stop = CancellationToken::new();
        let subscription = Subscription { stop: stop.clone(), sending: None };
        subscriptions.insert(session.clone(), subscription);
        Ok(stop)
    }

    /// Listens no more; no event comes after this. Whether it had listened.
    pub(super) async fn end(&self, session: &SessionId) -> bool {
        let subscription = self.lock().remove(session);
        let Some(Subscription { stop, sending }) = subscription else { return false };
        stop.cancel();
        if let Some(sending) = sending {
            // A panic in there is reported where it happened.
            let _ = sending.await;
        }
        true
    }

    pub(super) async fn end_all(&self) {
        let sessions: Vec<SessionId> = self.lock().keys().cloned().collect();
        for session in sessions {
            self.end(&session).await;
        }
        self.end_tasks().await;
    }

    fn lock_tasks(&self) -> MutexGuard<'_, Option<Subscription>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to the tasks. The answer has them as they are, and is on its way before the first event.
    /// With the sessions, the listing comes as events, since it may be long.
    pub(super) async fn begin_tasks(
        &self,
        line: &Line,
        id: &Value,
        with_sessions: bool,
    ) -> Result<()> {
        let stop = CancellationToken::new();
        {
            let mut tasks = self.lock_tasks();
            if tasks.is_some() {
                return Err(Problem::malformed("This socket listens to the tasks already"));
            }
            *tasks = Some(Subscription { stop: stop.clone(), sending: None });
        }
        let mut index = match line.app.index().read().await {
            Ok(index) => index,
            Err(error) => {
                self.lock_tasks().take();
                return Err(error.into());
            }
        };
        let result = if with_sessions {
            json!({})
        } else {
            match index.next().await {
                Some(IndexEvent::Listing { tasks, .. }) => to_value(&task_listing(&tasks))?,
                _ => to_value(&task_listing(&[]))?,
            }
        };
        let answered = methods::answer(id, &result, false);
        let is_sent = line.out.send(answered).await.is_ok();
        let mut tasks = self.lock_tasks();
        if let (Some(subscription), true) = (tasks.as_mut(), is_sent && !stop.is_cancelled()) {
            let subscriber = line.app.metrics().subscribe();
            let line = line.clone();
            subscription.sending = Some(if with_sessions {
                tokio::spawn(send_index(line, index, subscriber, stop))
            } else {
                tokio::spawn(send_tasks(line, index, subscriber, stop))
            });
        }
        Ok(())
    }

    /// Listens to the tasks no more. Whether it had listened.
    pub(super) async fn end_tasks(&self) -> bool {
        let subscription = self.lock_tasks().take();
        let Some(Subscription { stop, sending }) = subscription else { return false };
        stop.cancel();
        if let Some(sending) = sending {
            // A panic in there is reported where it happened.
            let _ = sending.await;
        }
        true
    }

    /// One that ended by itself; a later one of the same session stays.
    fn forget(&self, session: &SessionId, stop: &CancellationToken) {
        if !stop.is_cancelled() {
            self.lock().remove(session);
        }
    }
}

async fn send(
    line: Line,
    mut log: frames::Reader,
    subscriber: Subscriber,
    stop: CancellationToken,
) {
    let problem = loop {
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = log.next() => next,
        };
        let parts = match next {
            Ok(parts) => parts,
            Err(error) => break Problem::from(error),
        };
        subscriber.delivered(frames::count(&parts));
        for part in &parts {
            for message in frames::messages(log.owner(), part).iter() {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    sent = line.out.send(Message::Text(message.clone())) => {
                        if sent.is_err() { return }
                    }
                }
            }
        }
    };
    let session = log.owner().session.clone();
    // The log is gone, or cannot be read: a listener must not believe that nothing happens.
    line.subscriptions.forget(&session, &stop);
    let ended = Unsubscribed { session_id: session, error: problem.document() };
    let ended = frames::message(&SocketEvent::Unsubscribed(ended.into()));
    // The socket may be closed meanwhile.
    let _ = line.out.send(Message::text(ended)).await;
}

/// Sessions and tasks, as the server-sent events have them.
async fn send_index(
    line: Line,
    mut index: IndexReader<Bytes>,
    subscriber: Subscriber,
    stop: CancellationToken,
) {
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = index.next() => event,
        };
        let is_over = event.is_none();
        let messages = event.map_or_else(
            || {
                line.subscriptions.lock_tasks().take();
                vec![frames::message(&SocketEvent::TasksUnsubscribed(TasksUnsubscribed {}))]
            },
            index::messages,
        );
        subscriber.delivered(messages.len() as u64);
        for message in messages {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                sent = line.out.send(Message::text(message)) => {
                    if sent.is_err() { return }
                }
            }
        }
        if is_over {
            return;
        }
    }
}

fn task_listing(listed: &[TaskSummary]) -> TaskListing {
    TaskListing { tasks: listed.iter().map(tasks::summary).collect() }
}

async fn send_tasks(
    line: Line,
    mut index: IndexReader<Bytes>,
    subscriber: Subscriber,
    stop: CancellationToken,
) {
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = index.next() => event,
        };
        let is_over = event.is_none();
        let event = match event {
            Some(IndexEvent::Task(event)) => index::task_event(event),
            // It fell behind: this replaces all that it knows.
            Some(IndexEvent::Listing { tasks, .. }) => {
                SocketEvent::TaskListing(task_listing(&tasks))
            }
            Some(IndexEvent::Changed(_) | IndexEvent::Removed(_)) => continue,
            None => {
                line.subscriptions.lock_tasks().take();
                SocketEvent::TasksUnsubscribed(TasksUnsubscribed {})
            }
        };
        subscriber.delivered(1);
        let message = Message::text(frames::message(&event));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            sent = line.out.send(message) => {
                if sent.is_err() || is_over { return }
            }
        }
    }
}
