//! A webhook: one POST when a session begins to wait, and one when a run ends. What was delivered is a
//! record of the metadata log, so that a notification survives a restart and is sent at least once; its
//! id is the same each time.

mod send;

use std::collections::HashMap;
use std::time::Duration;

use piton_core::Seq;
use piton_core::event::{AuditRecorded, Event};
use piton_core::id::SessionId;
use piton_core::reason::Reason;
use piton_core::registry::{Command, NOTIFY_DELIVERED, NOTIFY_ENABLED};
use piton_core::time::Timestamp;
use piton_runtime::Listed;
use piton_runtime::broadcast::{Index, IndexEvent};
use serde::Serialize;

use crate::app::App;
pub use send::{Endpoint, EndpointError};

/// Records that are looked at together.
const PAGE_RECORDS: usize = 500;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(500);
const RETRY_DELAY_MAX: Duration = Duration::from_mins(5);
/// An older notification is of no use to anybody, and is given up.
const AGE_MAX: Duration = Duration::from_hours(24);

/// What a person wants to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyEvent {
    Waiting,
    Ended,
}

impl NotifyEvent {
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("waiting", Self::Waiting), ("ended", Self::Ended)];
}

/// Where notifications go, and which.
#[derive(Clone, Debug)]
pub struct Notify {
    pub endpoint: Endpoint,
    pub events: Vec<NotifyEvent>,
    /// The `topic` of the message, as ntfy reads it from a POST to its root.
    pub topic: Option<String>,
}

/// A session as far as notifications need it.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    session: SessionId,
    last_seq: Seq,
    active_at: Timestamp,
    title: Option<String>,
    task: Option<String>,
    agent: Option<String>,
}

fn entry(listed: &Listed) -> Entry {
    let info = &listed.row.summary.info;
    Entry {
        session: listed.row.session.clone(),
        last_seq: listed.row.last_seq,
        active_at: info.active_at,
        // A notification leaves the machine; it says nothing of the conversation.
        title: info.title.clone().filter(|_| !listed.is_title_derived),
        task: info.task_id.as_ref().map(ToString::to_string),
        agent: info.agent_profile_id.clone(),
    }
}

/// What is posted. `title`, `message`, `tags`, `priority` and `topic` are what ntfy shows.
#[derive(Debug, PartialEq, Serialize)]
struct Notification {
    /// The same in every attempt.
    id: String,
    event: &'static str,
    session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    seq: Seq,
    ts: String,
    /// `permission`, `user_input`, … of a wait; how a run ended.
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    title: String,
    message: String,
    tags: [&'static str; 1],
    priority: u8,
}

/// Which notification a record is.
fn read(event: &Event) -> Option<(NotifyEvent, String, &'static str)> {
    let ended = |what: &str, text| Some((NotifyEvent::Ended, what.to_owned(), text));
    match event {
        Event::RunWaiting(e) => {
            let kind = serde_json::to_value(e.wait_kind).ok()?;
            let kind = kind.as_str().unwrap_or("input").to_owned();
            let text =
                if kind == "permission" { "asks for permission" } else { "waits for an answer" };
            Some((NotifyEvent::Waiting, kind, text))
        }
        Event::RunCompleted(_) => ended("completed", "is done"),
        Event::RunFailed(_) => ended("failed", "failed"),
        // A new prompt took its place: nothing to tell.
        Event::RunCancelled(e) if e.reason == Some(Reason::Superseded) => None,
        Event::RunCancelled(_) => ended("cancelled", "was cancelled"),
        Event::RunInterrupted(_) => ended("interrupted", "was interrupted"),
        _ => None,
    }
}

/// Tells of what happens until the server ends.
pub(crate) async fn run(app: App, notify: Notify) {
    let stop = app.stop().clone();
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = async {
            let mut delay = RETRY_DELAY_MIN;
            loop {
                let mut notifier = Notifier { app: &app, notify: &notify, positions: HashMap::new() };
                if let Err(error) = notifier.follow().await {
                    tracing::warn!(code = %error.code(), "notifications cannot be made; they are tried again");
                }
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(RETRY_DELAY_MAX);
            }
        } => {}
    }
}

struct Notifier<'a> {
    app: &'a App,
    notify: &'a Notify,
    /// How far each session was looked at.
    positions: HashMap<SessionId, Seq>,
}

impl Notifier<'_> {
    async fn follow(&mut self) -> piton_runtime::Result<()> {
        let since = self.since().await?;
        let view = self.app.handle().view().clone();
        let index = Index::new(view, self.app.metadata().clone(), entry);
        let mut reader = index.read().await?;
        while let Some(event) = reader.next().await {
            match event {
                IndexEvent::Listing { sessions, .. } => {
                    for entry in sessions {
                        self.look(&entry, since).await?;
                    }
                }
                IndexEvent::Changed(entry) => self.look(&entry, since).await?,
                IndexEvent::Removed(session) => drop(self.positions.remove(&session)),
                IndexEvent::Task(_) => {}
            }
        }
        Ok(())
    }

    /// Since when notifications go to this host: what happened before is not told.
    async fn since(&self) -> piton_runtime::Result<Timestamp> {
        let host = self.notify.endpoint.host().to_owned();
        let known = |registry: &piton_core::registry::Registry| {
            registry.notify_since.as_ref().filter(|(to, _)| *to == host).map(|(_, at)| *at)
        };
        if let Some(since) = self.app.metadata().read(known) {
            return Ok(since);
        }
        self.note(NOTIFY_ENABLED, host.clone(), "enabled").await?;
        Ok(self.app.metadata().read(known).unwrap_or_else(|| self.app.handle().view().now()))
    }

    async fn note(&self, action: &str, target: String, outcome: &str) -> piton_runtime::Result<()> {
        let (action, outcome) = (action.to_owned(), outcome.to_owned());
        let note =
            AuditRecorded { principal: None, action, target: Some(target), outcome, count: None };
        self.app.metadata().execute(None, Command::Note(note)).await?;
        Ok(())
    }

    /// Tells what the session's records say since the last one that was told of.
    async fn look(&mut self, entry: &Entry, since: Timestamp) -> piton_runtime::Result<()> {
        let session = &entry.session;
        let delivered =
            || self.app.metadata().read(|registry| registry.notified.get(session).copied());
        let known = self.positions.get(session).copied().or_else(delivered);
        if known.is_none() && entry.active_at < since {
            self.positions.insert(session.clone(), entry.last_seq);
            return Ok(());
        }
        let mut after = known.unwrap_or(0);
        while after < entry.last_seq {
            let view = self.app.handle().view();
            let records = view.records(session, after, PAGE_RECORDS).await?;
            let Some(last) = records.last() else { break };
            let last = last.seq;
            for record in &records {
                let Some((event, what, text)) = record.event().ok().and_then(|event| read(&event))
                else {
                    continue;
                };
                if record.ts < since || !self.notify.events.contains(&event) {
                    continue;
                }
                let notification =
                    self.notification(entry, record.seq, record.ts, event, what, text);
                self.deliver(entry, record.seq, record.ts, &notification).await?;
            }
            after = last;
            self.positions.insert(session.clone(), after);
        }
        Ok(())
    }

    fn notification(
        &self,
        entry: &Entry,
        seq: Seq,
        ts: Timestamp,
        event: NotifyEvent,
        what: String,
        text: &str,
    ) -> Notification {
        let is_waiting = event == NotifyEvent::Waiting;
        let agent = entry.agent.as_deref().unwrap_or("The agent");
        Notification {
            id: format!("{}/{seq}", entry.session),
            event: if is_waiting { "waiting" } else { "ended" },
            session_id: entry.session.to_string(),
            task_id: entry.task.clone(),
            seq,
            ts: ts.to_string(),
            what,
            topic: self.notify.topic.clone(),
            title: entry.title.clone().unwrap_or_else(|| entry.session.to_string()),
            message: format!("{agent} {text}"),
            tags: [if is_waiting { "raised_hand" } else { "checkered_flag" }],
            priority: if is_waiting { 4 } else { 3 },
        }
    }

    /// Until the other side has it, refuses it, or it is too old to be of use.
    async fn deliver(
        &self,
        entry: &Entry,
        seq: Seq,
        ts: Timestamp,
        notification: &Notification,
    ) -> piton_runtime::Result<()> {
        let body = serde_json::to_vec(notification).unwrap_or_default();
        let (endpoint, mut delay) = (&self.notify.endpoint, RETRY_DELAY_MIN);
        let outcome = loop {
            if self.app.handle().view().now().since(ts) > AGE_MAX {
                break "given up".to_owned();
            }
            match endpoint.post(&notification.id, body.clone()).await {
                Ok(status) if (200..300).contains(&status) => break "delivered".to_owned(),
                // The message itself is at fault: it would be refused again.
                Ok(status @ (400 | 413 | 415 | 422)) => break format!("refused {status}"),
                Ok(status) => {
                    tracing::warn!(host = endpoint.host(), status, "a notification is not taken");
                }
                Err(error) => {
                    tracing::warn!(host = endpoint.host(), %error, "a notification is not sent");
                }
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        };
        if outcome != "delivered" {
            tracing::warn!(
                host = endpoint.host(),
                id = notification.id,
                outcome,
                "a notification is dropped"
            );
        }
        self.note(NOTIFY_DELIVERED, format!("{}/{seq}", entry.session), &outcome).await
    }
}
