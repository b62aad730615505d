//! Logging in, and the conversations that the agent has besides the one that is open.

use std::path::PathBuf;

use piton_core::spool::{AgentSessions, AuthMethod, SessionCapabilities};

use super::Error;
use super::connection::{Connection, protocol};
use super::wire::{self, method};

/// Most ways to log in that are reported.
const AUTH_METHODS_MAX: usize = 32;

impl Connection {
    pub async fn authenticate(&self, method_id: &str) -> Result<(), Error> {
        let params = wire::authenticate(method_id);
        self.request(method::AUTHENTICATE, params, self.limits.start_wait).await.map(drop)
    }

    /// The same, in a way that the agent has said it knows.
    pub async fn log_in(&self, method_id: &str) -> Result<(), Error> {
        let methods = self.auth_methods().await;
        if methods.iter().any(|method| method.id == method_id) {
            return self.authenticate(method_id).await;
        }
        let known: Vec<_> = methods.iter().map(|method| format!("{:?}", method.id)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Error::AuthUnknown { id: method_id.to_owned(), known })
    }

    /// The ways to log in that the agent names, masked; none before it was initialised.
    pub async fn auth_methods(&self) -> Vec<AuthMethod> {
        let recorder = self.recorder.lock().await;
        let methods = recorder.hello.iter().flat_map(|hello| &hello.auth_methods);
        let masked = methods.take(AUTH_METHODS_MAX).map(|method| AuthMethod {
            id: recorder.mask_text(&method.id),
            name: recorder.mask_text(&method.name),
            description: method.description.as_deref().map(|text| recorder.mask_text(text)),
        });
        masked.collect()
    }

    /// The conversations that the agent has, a page of them, masked.
    pub async fn list_sessions(
        &self,
        cwd: Option<PathBuf>,
        cursor: Option<String>,
    ) -> Result<AgentSessions, Error> {
        self.require_offered(method::LIST, |capabilities| capabilities.list).await?;
        let params = wire::list_sessions(cwd, cursor);
        let answer = self.request(method::LIST, params, self.limits.request_wait).await?;
        let answer = self.recorder.lock().await.mask(answer);
        wire::sessions(&answer)
            .ok_or_else(|| protocol(method::LIST, "It lists no sessions".to_owned()))
    }

    /// Whether the agent disowned the conversation that it had open, and has none any more.
    pub async fn has_lost_session(&self) -> bool {
        let recorder = self.recorder.lock().await;
        recorder.turns > 0 && recorder.session.is_none()
    }

    /// Asks the agent to close a conversation other than the current one.
    pub async fn close_session(&self, id: &str) -> Result<(), Error> {
        self.require_offered(method::CLOSE, |capabilities| capabilities.close).await?;
        self.refuse_own(id).await?;
        let params = wire::close_session(id);
        self.request(method::CLOSE, params, self.limits.request_wait).await.map(drop)
    }

    /// Asks the agent to delete a conversation other than the current one.
    pub async fn delete_session(&self, id: &str) -> Result<(), Error> {
        self.require_offered(method::DELETE, |capabilities| capabilities.delete).await?;
        self.refuse_own(id).await?;
        let params = wire::delete_session(id);
        self.request(method::DELETE, params, self.limits.request_wait).await.map(drop)
    }

    async fn require_offered(
        &self,
        name: &'static str,
        is_offered: impl FnOnce(SessionCapabilities) -> bool,
    ) -> Result<(), Error> {
        let capabilities =
            self.recorder.lock().await.hello.as_ref().ok_or(Error::NoSession)?.capabilities;
        if is_offered(capabilities) {
            Ok(())
        } else {
            Err(Error::NotOffered { method: name.to_owned() })
        }
    }

    /// The handle that the log has must stay good.
    pub(super) async fn refuse_own(&self, id: &str) -> Result<(), Error> {
        let is_own = self.recorder.lock().await.session.as_deref() == Some(id);
        if is_own { Err(Error::OwnSession { id: id.to_owned() }) } else { Ok(()) }
    }
}
