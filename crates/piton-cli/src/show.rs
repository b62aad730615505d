//! How things of a session are shown: in words with a tone, and as JSON. The JSON shapes are an
//! interface: fields are added, never changed.

use piton_core::Timestamp;
use piton_core::event::WaitKind;
use piton_core::id::{SessionId, WaitId};
use piton_core::state::{Lease, Wait};
use piton_core::status::{Name, Status};
use piton_runtime::View;
use piton_store::{Detail, Store};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Result;
use crate::ui::Tone;

/// Statuses in a word; the two kinds of interruption are told apart where there is room.
pub(crate) fn status_word(name: Name) -> &'static str {
    if name.is_interrupted() { "interrupted" } else { name.as_str() }
}

pub(crate) fn status_tone(name: Name) -> Tone {
    match name {
        Name::Running | Name::Starting => Tone::Active,
        Name::Waiting | Name::Paused | Name::InterruptedStartup | Name::InterruptedWaiting => {
            Tone::Attention
        }
        Name::Error | Name::Failed => Tone::Bad,
        Name::Completed => Tone::Good,
        Name::Idle | Name::Cancelled => Tone::Quiet,
    }
}

pub(crate) fn status_json(status: &Status) -> Value {
    json!({
        "name": status.name,
        "reason": status.reason,
        "sentence": status.sentence(),
        "state": status.name.wire(),
        "last_outcome": status.last_outcome,
        "read_only": status.read_only,
    })
}

/// Who may write, and whether that process lives.
pub(crate) fn lease_json(cx: &Context, view: &View, lease: &Lease) -> Value {
    let owner = lease.owner.as_ref();
    let holder = owner.and_then(|owner| cx.holder(owner));
    json!({
        "epoch": lease.epoch,
        "owner": owner,
        "alive": owner.map(|owner| view.is_alive(owner)),
        "pid": holder.as_ref().map(|holder| holder.pid),
        "program": holder.as_ref().map(|holder| &holder.program),
    })
}

pub(crate) fn wait_kind(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::Input => "input",
        WaitKind::Permission => "permission",
        WaitKind::ToolResult => "tool_result",
        WaitKind::Human => "human",
        WaitKind::Other => "other",
    }
}

/// An open wait with its question.
#[derive(Debug)]
pub(crate) struct OpenWait {
    pub(crate) id: WaitId,
    pub(crate) wait: Wait,
    /// As it was asked; `None` if it is not there any more.
    pub(crate) question: Option<Value>,
}

impl OpenWait {
    pub(crate) async fn read(
        store: &dyn Store,
        session: &SessionId,
        id: &WaitId,
        wait: &Wait,
    ) -> Result<Self> {
        let after = wait.since_seq.saturating_sub(1);
        let records = store.read(session, after, 1, Detail::Full).await?;
        let question = records.first().and_then(|record| record.content_field("question"));
        Ok(Self { id: id.clone(), wait: wait.clone(), question })
    }

    pub(crate) fn to_json(&self, session: &SessionId) -> Value {
        json!({
            "session": session,
            "wait_id": self.id,
            "kind": self.wait.kind,
            "question": self.question,
            "since_seq": self.wait.since_seq,
            "deadline_at": self.wait.deadline_at,
            "token_id": self.wait.token_id,
            "token": self.wait.token,
        })
    }

    pub(crate) fn question_text(&self) -> String {
        self.question.as_ref().map_or_else(String::new, question_words)
    }

    pub(crate) fn is_overdue(&self, now: Timestamp) -> bool {
        self.wait.deadline_at.is_some_and(|deadline| deadline <= now)
    }
}

/// What a question asks: its title, if it is one of an agent's, or all of it.
pub(crate) fn question_words(question: &Value) -> String {
    let title = question["toolCall"]["title"].as_str().or_else(|| question["title"].as_str());
    title.map_or_else(|| words(question), str::to_owned)
}

/// A value as text: without quotes if it is one.
pub(crate) fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
