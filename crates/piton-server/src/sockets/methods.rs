//! What can be asked over a WebSocket: each method is the function behind the HTTP operation, with
//! the same scope, the same keys and the same limits.

use std::sync::Arc;

use axum::extract::ws::Message;
use piton_core::Code;
use piton_core::access::Scope;
use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use piton_runtime::{Caller, Fulfilled};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::conversation::Line;
use crate::api::{agent, agent_sessions, queue, sessions, status, tasks, waits};
use crate::app::to_value;
use crate::problem::{Problem, Result};

/// What can be asked both ways: the method, the HTTP operation that it is, and the scope that both
/// need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub method: &'static str,
    /// Its HTTP method and path; of the socket's own methods none.
    pub http: Option<(&'static str, &'static str)>,
    pub scope: Scope,
}

macro_rules! operations {
    ($($method:literal $scope:ident $($verb:literal $path:literal)?;)*) => {
        /// Every method of the WebSocket.
        pub const OPERATIONS: &[Operation] = &[$(Operation {
            method: $method,
            http: operations!(@http $($verb $path)?),
            scope: Scope::$scope,
        },)*];
    };
    (@http) => { None };
    (@http $verb:literal $path:literal) => { Some(($verb, $path)) };
}

operations! {
    "ping" Read;
    "session.subscribe" Read "GET" "/sessions/{session_id}/events";
    "session.unsubscribe" Read;
    "tasks.subscribe" Read "GET" "/events";
    "tasks.unsubscribe" Read;
    "task.update" Control "PATCH" "/tasks/{task_id}";
    "task.session.list" Read "GET" "/sessions";
    "task.session.status" Read "GET" "/sessions/{session_id}/status";
    "task.session.create" Control "POST" "/sessions";
    "task.session.answer" Control "POST" "/waits/{wait_id}/answer";
    "task.session.start" Control "POST" "/sessions/{session_id}/start";
    "task.session.open" Control "POST" "/sessions/{session_id}/open";
    "task.session.prompt" Control "POST" "/sessions/{session_id}/messages";
    "task.session.queue.list" Read "GET" "/sessions/{session_id}/queue";
    "task.session.queue.add" Control "POST" "/sessions/{session_id}/queue";
    "task.session.queue.edit" Control "PATCH" "/sessions/{session_id}/queue/{message_id}";
    "task.session.queue.remove" Control "DELETE" "/sessions/{session_id}/queue/{message_id}";
    "task.session.queue.release" Control "POST" "/sessions/{session_id}/queue/release";
    "task.session.resume" Control "POST" "/sessions/{session_id}/resume";
    "task.session.rename" Control "PATCH" "/sessions/{session_id}";
    "task.session.pause" Control "POST" "/sessions/{session_id}/pause";
    "task.session.cancel" Control "POST" "/sessions/{session_id}/cancel";
    "task.session.dismiss" Control "POST" "/sessions/{session_id}/dismiss";
    "task.session.close" Control "POST" "/sessions/{session_id}/close";
    "task.session.stop" Control "POST" "/sessions/{session_id}/stop";
    "task.session.agent" Read "GET" "/sessions/{session_id}/agent";
    "task.session.configure" Control "POST" "/sessions/{session_id}/agent";
    "task.session.login" Control "POST" "/sessions/{session_id}/login";
    "task.session.fork" Control "POST" "/sessions/{session_id}/fork";
    "task.session.abandon" Control "POST" "/sessions/{session_id}/abandon";
}

/// What a method was given.
struct Params(Map<String, Value>);

impl Params {
    fn text(&mut self, name: &str) -> Result<Option<String>> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::malformed(format!("{name} is a string"))),
        }
    }

    fn needed(&mut self, name: &str) -> Result<String> {
        self.text(name)?.ok_or_else(|| Problem::malformed(format!("{name} is missing")))
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let malformed = || Problem::malformed(format!("{name} is a whole number"));
                value.as_u64().map(Some).ok_or_else(malformed)
            }
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(Problem::malformed(format!("{name} is true or false"))),
        }
    }

    /// All that is left is what the HTTP operation has as its body or query.
    fn rest<T: DeserializeOwned>(self) -> Result<T> {
        serde_json::from_value(Value::Object(self.0))
            .map_err(|error| Problem::malformed(error.to_string()))
    }

    fn empty(self) -> Result<()> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(Problem::malformed(format!("{name} is not known here"))),
        }
    }
}

/// Fulfils a request; `None` if it is answered already.
#[expect(clippy::too_many_lines, reason = "one arm for each method")]
pub(super) async fn call(
    line: &Line,
    id: &Value,
    method: &str,
    params: Map<String, Value>,
) -> Result<Option<Message>> {
    let mut params = Params(params);
    let found = OPERATIONS.iter().find(|operation| operation.method == method);
    let Operation { scope, .. } = found.ok_or_else(|| unknown(method))?;
    // Before anything else is looked at: who may not ask learns nothing.
    let is_open = planted::is(Bug::OpenNeedsRead) && method == "task.session.open";
    let principal = admit(line, if is_open { Scope::Read } else { *scope })?;
    let app = &line.app;
    match method {
        "task.session.list" => {
            let page = sessions::list_now(app, &params.rest()?).await?;
            return Ok(Some(answer(id, &to_value(&page)?, false)));
        }
        "ping" => {
            params.empty()?;
            return Ok(Some(answer(id, &json!({}), false)));
        }
        "tasks.subscribe" => {
            let with_sessions = params.flag("sessions")?;
            params.empty()?;
            line.subscriptions.begin_tasks(line, id, with_sessions).await?;
            return Ok(None);
        }
        "tasks.unsubscribe" => {
            params.empty()?;
            let was = line.subscriptions.end_tasks().await;
            return Ok(Some(answer(id, &json!({"was_subscribed": was}), false)));
        }
        "task.update" => {
            let (task, key) = (params.needed("task_id")?, params.text("idempotency_key")?);
            let caller = Caller::new(principal).with_key(key.as_deref())?;
            return fulfilled(id, tasks::update_now(app, &caller, &task, params.rest()?).await?);
        }
        "task.session.create" => {
            let key = params.text("idempotency_key")?;
            let caller = Caller::new(principal).with_key(key.as_deref())?;
            return fulfilled(id, sessions::create_now(app, &caller, params.rest()?).await?);
        }
        "task.session.answer" => {
            let (wait, key) = (params.needed("wait_id")?, params.text("idempotency_key")?);
            if let Some(task) = params.text("task_id")? {
                waits::check_task(app, &wait, &task).await?;
            }
            let caller = Caller::new(principal).with_key(key.as_deref())?;
            let answered = waits::answer_now(app, &caller, &wait, params.rest()?).await?;
            return fulfilled(id, answered);
        }
        _ => {}
    }
    let session = params.needed("session_id")?;
    if let Some(task) = params.text("task_id")? {
        sessions::check_task(app, &SessionId::from_user(&session)?, &task).await?;
    }
    match method {
        "session.subscribe" => {
            let after = params.number("after")?;
            params.empty()?;
            let session = SessionId::from_user(&session)?;
            line.subscriptions.begin(line, id, &session, after).await?;
            return Ok(None);
        }
        "session.unsubscribe" => {
            params.empty()?;
            let session = SessionId::from_user(&session)?;
            let was = line.subscriptions.end(&session).await;
            let result = json!({"session_id": session.to_string(), "was_subscribed": was});
            return Ok(Some(answer(id, &result, false)));
        }
        "task.session.status" => {
            params.empty()?;
            let status = status::of(app, &SessionId::from_user(&session)?).await?;
            return Ok(Some(answer(id, &to_value(&status)?, false)));
        }
        "task.session.agent" => {
            params.empty()?;
            let view = agent::show_now(app, &session).await?;
            return Ok(Some(answer(id, &to_value(&view)?, false)));
        }
        "task.session.queue.list" => {
            params.empty()?;
            let queue = queue::list_now(app, &session).await?;
            return Ok(Some(answer(id, &to_value(&queue)?, false)));
        }
        "task.session.open" => {
            params.empty()?;
            let status = sessions::open_now(app, &session).await?;
            return Ok(Some(answer(id, &to_value(&status)?, false)));
        }
        _ => {}
    }
    let key = params.text("idempotency_key")?;
    let caller = &Caller::new(principal).with_key(key.as_deref())?;
    let done = match method {
        "task.session.prompt" => {
            let prompted = queue::prompt_now(app, caller, &session, params.rest()?).await?;
            return fulfilled(id, prompted);
        }
        "task.session.fork" => {
            let forked = agent_sessions::fork_now(app, caller, &session, params.rest()?).await?;
            return fulfilled(id, forked);
        }
        "task.session.queue.add" => {
            let prompted = queue::add_now(app, caller, &session, params.rest()?).await?;
            return fulfilled(id, prompted);
        }
        "task.session.queue.edit" => {
            let message = params.needed("message_id")?;
            let edit = params.rest()?;
            return fulfilled(id, queue::edit_now(app, caller, &session, &message, edit).await?);
        }
        "task.session.queue.remove" => {
            let message = params.needed("message_id")?;
            let removal = params.rest()?;
            let removed = queue::remove_now(app, caller, &session, &message, &removal).await?;
            return fulfilled(id, removed);
        }
        "task.session.queue.release" => {
            params.empty()?;
            return fulfilled(id, queue::release_now(app, caller, &session).await?);
        }
        "task.session.start" => sessions::start_now(app, caller, &session, &params.rest()?).await?,
        "task.session.close" => sessions::close_now(app, caller, &session, params.rest()?).await?,
        "task.session.rename" => {
            sessions::rename_now(app, caller, &session, params.rest()?).await?
        }
        "task.session.pause" => sessions::pause_now(app, caller, &session, &params.rest()?).await?,
        "task.session.cancel" => {
            sessions::cancel_now(app, caller, &session, &params.rest()?).await?
        }
        "task.session.stop" => sessions::stop_now(app, caller, &session).await?,
        "task.session.dismiss" => {
            sessions::dismiss_now(app, caller, &session, &params.rest()?).await?
        }
        "task.session.configure" => {
            agent::configure_now(app, caller, &session, params.rest()?).await?
        }
        "task.session.login" => agent::log_in_now(app, caller, &session, params.rest()?).await?,
        "task.session.abandon" => {
            sessions::abandon_now(app, caller, &session, &params.rest()?).await?
        }
        "task.session.resume" => {
            sessions::resume_now(app, caller, &session, &params.rest()?).await?
        }
        _ => return Err(unknown(method)),
    };
    fulfilled(id, done)
}

/// Lets in who has the scope, as for a request of their own.
fn admit(line: &Line, needed: Scope) -> Result<Arc<str>> {
    let principal = line.app.admit(&line.connection, Some(&line.bearer), needed)?;
    line.app.limits().take(&principal)?;
    Ok(principal)
}

fn unknown(method: &str) -> Problem {
    let shown: String = method.chars().take(64).collect();
    Problem::new(Code::NotFound, format!("There is no method {shown:?}"))
}

fn fulfilled<T: Serialize>(id: &Value, fulfilled: Fulfilled<T>) -> Result<Option<Message>> {
    let Fulfilled { response, replayed } = fulfilled;
    Ok(Some(answer(id, &to_value(&response)?, replayed)))
}

pub(super) fn answer(id: &Value, result: &Value, replayed: bool) -> Message {
    let mut answer = json!({"id": id, "result": result});
    if replayed {
        answer["replayed"] = true.into();
    }
    Message::text(answer.to_string())
}
