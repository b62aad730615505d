//! What can be asked over a WebSocket: each method is the function behind the HTTP operation, with
//! the same scope, the same keys and the same limits.

use axum::extract::ws::Message;
use piton_core::Code;
use piton_core::access::Scope;
use piton_core::id::SessionId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::conversation::Line;
use crate::api::{sessions, status, waits};
use crate::app::{Fulfilled, to_value};
use crate::extract::Asker;
use crate::problem::{Problem, Result};

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
pub(super) async fn call(
    line: &Line,
    id: &Value,
    method: &str,
    params: Map<String, Value>,
) -> Result<Option<Message>> {
    let mut params = Params(params);
    if let "session.subscribe" | "session.unsubscribe" = method {
        admit(line, Scope::Read, String::new(), None)?;
        let session = SessionId::from_user(&params.needed("session_id")?)?;
        let after = params.number("after")?;
        params.empty()?;
        if method == "session.unsubscribe" {
            let was = line.subscriptions.end(&session).await;
            let result = json!({"session_id": session.to_string(), "was_subscribed": was});
            return Ok(Some(answer(id, &result, false)));
        }
        line.subscriptions.begin(line, id, &session, after).await?;
        return Ok(None);
    }
    let Some(name) = method.strip_prefix("task.session.") else { return Err(unknown(method)) };
    let app = &line.app;
    match name {
        "list" => {
            admit(line, Scope::Read, String::new(), None)?;
            let page = sessions::list_now(app, &params.rest()?).await?;
            Ok(Some(answer(id, &to_value(&page)?, false)))
        }
        "status" => {
            admit(line, Scope::Read, String::new(), None)?;
            let session = SessionId::from_user(&params.needed("session_id")?)?;
            params.empty()?;
            let status = status::of(app, &session).await?;
            Ok(Some(answer(id, &to_value(&status)?, false)))
        }
        "create" => {
            let key = params.text("idempotency_key")?;
            let asker = admit(line, Scope::Control, "/sessions".to_owned(), key)?;
            fulfilled(id, sessions::create_now(app, &asker, params.rest()?).await?)
        }
        "answer" => {
            let (wait, key) = (params.needed("wait_id")?, params.text("idempotency_key")?);
            let asker = admit(line, Scope::Control, format!("/waits/{wait}/answer"), key)?;
            fulfilled(id, waits::answer_now(app, &asker, &wait, params.rest()?).await?)
        }
        "start" => {
            let (session, key) = (params.needed("session_id")?, params.text("idempotency_key")?);
            let asker = admit(line, Scope::Control, format!("/sessions/{session}/start"), key)?;
            fulfilled(id, sessions::start_now(app, &asker, &session, &params.rest()?).await?)
        }
        "open" => {
            admit(line, Scope::Control, String::new(), None)?;
            let session = params.needed("session_id")?;
            params.empty()?;
            let status = sessions::open_now(app, &session).await?;
            Ok(Some(answer(id, &to_value(&status)?, false)))
        }
        "prompt" | "resume" | "pause" | "cancel" | "dismiss" | "close" => {
            let (session, key) = (params.needed("session_id")?, params.text("idempotency_key")?);
            let place = if name == "prompt" { "messages" } else { name };
            let path = format!("/sessions/{session}/{place}");
            let asker = &admit(line, Scope::Control, path, key)?;
            match name {
                "prompt" => {
                    let prompt = params.rest()?;
                    return fulfilled(
                        id,
                        sessions::prompt_now(app, asker, &session, prompt).await?,
                    );
                }
                "close" => {
                    let closing = params.rest()?;
                    return fulfilled(
                        id,
                        sessions::close_now(app, asker, &session, closing).await?,
                    );
                }
                "resume" => {
                    params.empty()?;
                    return fulfilled(id, sessions::resume_now(app, asker, &session).await?);
                }
                _ => {}
            }
            let of = &params.rest()?;
            let done = match name {
                "pause" => sessions::pause_now(app, asker, &session, of).await?,
                "cancel" => sessions::cancel_now(app, asker, &session, of).await?,
                _ => sessions::dismiss_now(app, asker, &session, of).await?,
            };
            fulfilled(id, done)
        }
        _ => Err(unknown(method)),
    }
}

/// Lets in who has the scope, as for a request of their own.
fn admit(line: &Line, needed: Scope, path: String, key: Option<String>) -> Result<Asker> {
    let principal = line.app.admit(&line.connection, Some(&line.bearer), needed)?;
    line.app.limits().take(&principal)?;
    Asker::new(principal, path, key)
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
