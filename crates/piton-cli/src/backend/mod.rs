//! The session backend: one interface over "ask the data folder's server" and "open the store". The
//! sessions belong to the server if one runs; else this process changes them through the same engine,
//! offline. The one place that chooses.

mod server;
mod store;

use std::path::Path;
use std::time::Duration;

use piton_api::client::Client;
use piton_api::session::{RedactRequest, SessionArchived};
use piton_api::status::Wait;
use piton_api::wait::ResumeTokenCreated;
use piton_core::decide::{self, Removal};
use piton_core::id::{RunId, SessionId, WaitId};
use piton_core::redact::Selector;
use piton_core::{Reason, Seq, State};
use piton_store::SecretText;

pub(crate) use server::ServerBackend;
pub(crate) use store::StoreBackend;

use crate::background;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::lookup::{self, SessionName};

/// The folder of workspaces' snapshots in a data folder.
pub(crate) const SNAPSHOTS_FOLDER: &str = "snapshots";

#[derive(Debug)]
pub(crate) enum SessionBackend {
    Server(ServerBackend),
    Store(Box<StoreBackend>),
}

/// What ends a run without its agent's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    Cancel,
    Dismiss,
}

impl Settling {
    /// The status's reason when it was done before.
    fn reason(self) -> Reason {
        match self {
            Self::Cancel => Reason::RunCancelled,
            Self::Dismiss => Reason::RunDismissed,
        }
    }
}

/// What became of a session's run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) run_id: Option<String>,
    /// It was not so before.
    pub(crate) changed: bool,
    pub(crate) last_seq: Seq,
}

/// A deleted session's worktree, which is still there.
#[derive(Debug)]
pub(crate) struct LeftWorktree {
    pub(crate) path: String,
    pub(crate) because: String,
}

/// What to take out of a log: as the engine is asked for it, and as a server is.
#[derive(Debug)]
pub(crate) struct Redact {
    pub(crate) selector: Selector,
    pub(crate) request: RedactRequest,
}

macro_rules! ask {
    ($backend:expr, $method:ident($($argument:expr),*)) => {
        match $backend {
            SessionBackend::Server(backend) => backend.$method($($argument),*).await,
            SessionBackend::Store(backend) => backend.$method($($argument),*).await,
        }
    };
}

impl SessionBackend {
    /// `None` if there is no store.
    pub(crate) fn of(cx: &Context) -> Result<Option<Self>> {
        match crate::server::connect(&cx.settings.data.value) {
            Some(client) => Ok(Some(Self::Server(ServerBackend::new(client)))),
            None => Ok(StoreBackend::open(cx)?.map(|store| Self::Store(Box::new(store)))),
        }
    }

    /// For one session, which may be named by a part of its id.
    pub(crate) async fn for_session(cx: &Context, session: &str) -> Result<(Self, SessionId)> {
        let name: SessionName = session.parse()?;
        let Some(backend) = Self::of(cx)? else { return Err(cx.no_store(&name)) };
        let id = ask!(&backend, find(name))?;
        Ok((backend, id))
    }

    /// For several. All of them must be there; one that is named twice is meant once.
    pub(crate) async fn for_sessions(
        cx: &Context,
        sessions: &[String],
    ) -> Result<(Self, Vec<SessionId>)> {
        let Some(backend) = Self::of(cx)? else { return Err(cx.missing_store()) };
        let mut ids = Vec::new();
        for session in sessions {
            let id = ask!(&backend, find(session.parse()?))?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok((backend, ids))
    }

    /// Ends a run: `run`, if it is still the session's, or the latest.
    pub(crate) async fn settle(
        &self,
        session: &SessionId,
        run: Option<RunId>,
        how: Settling,
    ) -> Result<Settled> {
        ask!(self, settle(session, run, how))
    }

    /// The waits that could be answered now.
    pub(crate) async fn waits(&self, session: &SessionId) -> Result<Vec<Wait>> {
        ask!(self, waits(session))
    }

    /// A new token for a wait; the old one is revoked.
    pub(crate) async fn rotate_resume_token(&self, wait: &WaitId) -> Result<ResumeTokenCreated> {
        ask!(self, rotate_resume_token(wait))
    }

    /// A token with which the interrupted run can be resumed.
    pub(crate) async fn create_resume_token(
        &self,
        session: &SessionId,
        valid_for: Option<Duration>,
    ) -> Result<ResumeTokenCreated> {
        ask!(self, create_resume_token(session, valid_for))
    }

    /// What keeps a session, which is in this state, from being removed. Changes nothing.
    pub(crate) async fn check_removal(
        &self,
        session: &SessionId,
        state: &State,
        how: Removal,
    ) -> Result<()> {
        match self {
            // By the same rule as the server.
            Self::Server(_) => decide::may_remove(state, how)
                .map_err(|refusal| Error::new(refusal.code(), refusal.to_string())),
            Self::Store(store) => store.check_removal(session, how).await,
        }
    }

    /// Deletes a session; says what became of a worktree that is left.
    pub(crate) async fn delete(
        &self,
        session: &SessionId,
        how: Removal,
        reason: Option<&str>,
    ) -> Result<Option<LeftWorktree>> {
        ask!(self, delete(session, how, reason))
    }

    /// Moves a closed session into a bundle in this folder.
    pub(crate) async fn archive(
        &self,
        session: &SessionId,
        folder: &Path,
        passphrase: Option<&SecretText>,
    ) -> Result<SessionArchived> {
        ask!(self, archive(session, folder, passphrase))
    }

    /// Takes contents out of a session's log; says how many.
    pub(crate) async fn redact(&self, session: &SessionId, what: Redact) -> Result<usize> {
        ask!(self, redact(session, what))
    }
}

/// A server for what needs the session's agent; one is started if none runs.
pub(crate) async fn server_for(cx: &Context, session: &str) -> Result<(Client, SessionId)> {
    let name: SessionName = session.parse()?;
    // A server would create a store that the user did not ask for.
    if crate::stores::detect(&cx.settings.data.value)?.is_none() {
        return Err(cx.no_store(&name));
    }
    let client = background::ensure(cx).await?;
    let id = lookup::session_on(&client, name).await?;
    Ok((client, id))
}
