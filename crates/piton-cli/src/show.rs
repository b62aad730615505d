//! How things of a session are shown: in words with a tone, and as JSON. The JSON shapes are an
//! interface: fields are added, never changed.

use piton_api::status;
use piton_core::event::WaitKind;
use piton_core::id::{RunId, SessionId, WaitId};
use piton_core::permission::PermissionRequest;
use piton_core::state::{Lease, Run, Wait, WaitToken};
use piton_core::status::Name;
use piton_core::{Timestamp, overview};
use piton_runtime::View;
use piton_store::Detail;
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Result;
use crate::ui::Tone;

/// A status in one word; wider views show which kind of interruption it is.
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
    run_id: RunId,
    pub(crate) wait: Wait,
    /// As it was asked; `None` if it is not there any more.
    pub(crate) question: Option<Value>,
    /// Of a permission: all of what is asked for, with what the agent said of the tool call since.
    pub(crate) permission: Option<PermissionRequest>,
}

/// A wait, and whether its token could still answer it.
#[derive(Debug, Serialize)]
pub(crate) struct WaitLine {
    #[serde(flatten)]
    wait: status::Wait,
    token: WaitToken,
}

impl OpenWait {
    pub(crate) async fn read(
        view: &View,
        session: &SessionId,
        run: &Run,
        id: &WaitId,
        wait: &Wait,
    ) -> Result<Self> {
        let after = wait.since_seq.saturating_sub(1);
        let records = view.store().read(session, after, 1, Detail::Full).await?;
        let question = records.first().and_then(|record| record.content_field("question"));
        let permission = match question.as_ref().filter(|_| wait.kind == WaitKind::Permission) {
            Some(question) => {
                Some(view.permission_request(session, wait.since_seq, question).await)
            }
            None => None,
        };
        let run_id = run.run_id.clone();
        Ok(Self { id: id.clone(), run_id, wait: wait.clone(), question, permission })
    }

    /// As the API spells it.
    pub(crate) fn spelled(&self, session: &SessionId) -> WaitLine {
        let open = overview::OpenWait {
            wait_id: self.id.clone(),
            run_id: self.run_id.clone(),
            wait: self.wait.clone(),
            question: self.question.clone(),
            permission: self.permission.clone(),
        };
        WaitLine { wait: status::Wait::new(session, &open), token: self.wait.token }
    }

    pub(crate) fn question_text(&self) -> String {
        match &self.permission {
            Some(request) => request.title.clone(),
            None => self.question.as_ref().map_or_else(String::new, question_words),
        }
    }

    pub(crate) fn is_overdue(&self, now: Timestamp) -> bool {
        self.wait.deadline_at.is_some_and(|deadline| deadline <= now)
    }
}

/// What a question asks, in a line: the title of a request, if it is one of an agent's, or all of it.
pub(crate) fn question_words(question: &Value) -> String {
    PermissionRequest::new(question, []).title
}

/// A value as text: without quotes if it is one.
pub(crate) fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// What a prompt says, as a record has it; attachments are named.
pub(crate) fn prompt_text(content: &serde_json::Value) -> String {
    let content = serde_json::from_value::<piton_core::PromptContent>(content.clone());
    content.map(|content| content.text()).unwrap_or_default()
}
