//! The store, changed through the offline engine: no server runs.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use piton_api::SessionStatus;
use piton_api::session::SessionArchived;
use piton_api::status::Wait;
use piton_api::wait::ResumeTokenCreated;
use piton_core::Code;
use piton_core::decide::Removal;
use piton_core::id::{RunId, SessionId, WaitId};
use piton_runtime::{
    ArchiveTarget, Archived, Caller, Engine, EngineOptions, Ids, Imported, IssuedResumeToken,
    Options, WorktreeRemoval,
};
use piton_store::{BootGuard, BootLocks, Holder, OsEntropy, SecretText};

use super::{LeftWorktree, Redact, Settled, Settling};
use crate::context::Context;
use crate::echo_memory::EchoMemory;
use crate::error::{Error, Result};
use crate::lookup::{self, SessionName};
use crate::{agents, conversion, masking, stores};

/// The offline engine, and the lock that says that its process lives.
#[derive(Debug)]
pub(crate) struct StoreBackend {
    engine: Engine,
    locks: BootLocks,
    _alive: BootGuard,
}

impl StoreBackend {
    /// `None` if there is no store.
    pub(super) fn open(cx: &Context) -> Result<Option<Self>> {
        if stores::detect(&cx.settings.data.value)?.is_none() {
            return Ok(None);
        }
        Self::open_or_create(cx).map(Some)
    }

    /// Makes a store if there is none.
    pub(crate) fn open_or_create(cx: &Context) -> Result<Self> {
        let data = &cx.settings.data.value;
        let masker = Arc::new(masking::masker(&cx.settings)?);
        let (locks, entropy) = (cx.locks(), Arc::new(OsEntropy));
        let boot = Ids::new(cx.clock(), entropy.clone()).boot()?;
        // Alive first, then a look at who converts the store: a conversion looks the other way round,
        // so that one of the two sees the other.
        let alive = locks.hold(boot.clone())?;
        conversion::refuse(data)?;
        let store = stores::open_or_create_store(&cx.settings)?;
        let options = Options {
            clock: cx.clock(),
            files: Arc::new(EchoMemory::new(data)),
            masker,
            ..Options::new(boot, store, Arc::new(cx.locks()), entropy)
        };
        let options = EngineOptions {
            profiles: agents::all(&cx.settings)?,
            default_agent: cx.settings.chat_agent.value.clone(),
            policy: cx.settings.resume.policy(),
            snapshots: Some(data.join(super::SNAPSHOTS_FOLDER)),
            ..EngineOptions::new(options, data)
        };
        Ok(Self { engine: Engine::offline(options), locks, _alive: alive })
    }

    /// Adds to a refusal which process owns the session, so that the user can stop it.
    fn named(&self, error: piton_runtime::Error) -> Error {
        let piton_runtime::Error::Store(piton_store::Error::SessionOwned { owner, .. }) = &error
        else {
            return error.into();
        };
        let hint = match self.locks.holder(owner) {
            Some(Holder { pid, program }) => format!(
                "Ask {program} (pid {pid}), which owns the session, or stop it and try again."
            ),
            None => Code::SessionOwned.hint().to_owned(),
        };
        Error::from(error).with_hint(hint)
    }

    pub(super) async fn find(&self, name: SessionName) -> Result<SessionId> {
        lookup::session(self.engine.view(), name).await
    }

    pub(super) async fn settle(
        &self,
        session: &SessionId,
        run: Option<RunId>,
        how: Settling,
    ) -> Result<Settled> {
        let (engine, caller) = (&self.engine, Caller::local());
        let before = engine.view().state(session).await?.last_seq;
        let done = match how {
            Settling::Cancel => engine.cancel(&caller, session, run).await,
            Settling::Dismiss => engine.dismiss(&caller, session, run).await,
        };
        let done = done.map_err(|error| self.named(error))?.response;
        let last_seq = engine.view().state(session).await?.last_seq;
        let run_id = done.run_id.map(|run| run.to_string());
        Ok(Settled { run_id, changed: last_seq > before, last_seq })
    }

    pub(super) async fn waits(&self, session: &SessionId) -> Result<Vec<Wait>> {
        let overview = self.engine.session(session).await?.overview;
        // The waits ended with their run, though the log does not say so yet.
        if self.engine.view().stranded(&overview.state.facts).is_some() {
            return Ok(Vec::new());
        }
        Ok(SessionStatus::new(&overview, None).waits)
    }

    pub(super) async fn rotate_resume_token(&self, wait: &WaitId) -> Result<ResumeTokenCreated> {
        let issued = self.engine.rotate_resume_token(&Caller::local(), wait).await;
        Ok(spelled(issued.map_err(|error| self.named(error))?.response))
    }

    pub(super) async fn create_resume_token(
        &self,
        session: &SessionId,
        valid_for: Option<Duration>,
    ) -> Result<ResumeTokenCreated> {
        let issued = self.engine.create_resume_token(&Caller::local(), session, valid_for).await;
        Ok(spelled(issued.map_err(|error| self.named(error))?.response))
    }

    pub(super) async fn check_removal(&self, session: &SessionId, how: Removal) -> Result<()> {
        self.engine.check_removal(session, how).await.map_err(|error| self.named(error))
    }

    pub(super) async fn delete(
        &self,
        session: &SessionId,
        how: Removal,
        reason: Option<&str>,
    ) -> Result<Option<LeftWorktree>> {
        let (forced, reason) = (how == Removal::DeleteForced, reason.map(str::to_owned));
        let deleted = self.engine.delete(&Caller::local(), session, forced, reason).await;
        Ok(match deleted.map_err(|error| self.named(error))?.worktree {
            Some(WorktreeRemoval::Kept { plan, why }) => {
                Some(LeftWorktree { path: plan.path, because: why.to_string() })
            }
            Some(WorktreeRemoval::Removed(_)) | None => None,
        })
    }

    pub(super) async fn archive(
        &self,
        session: &SessionId,
        folder: &Path,
        passphrase: Option<&SecretText>,
    ) -> Result<SessionArchived> {
        let target =
            ArchiveTarget { folder: Some(folder.to_owned()), passphrase: passphrase.cloned() };
        let archived = self.engine.archive(&Caller::local(), session, target).await;
        let Archived { session, last_seq, bundle } = archived.map_err(|error| self.named(error))?;
        Ok(SessionArchived {
            session_id: session,
            bundle: bundle.display().to_string(),
            last_seq,
            encrypted: passphrase.is_some(),
        })
    }

    pub(super) async fn redact(&self, session: &SessionId, what: Redact) -> Result<usize> {
        let (caller, reason) = (Caller::local(), what.request.reason.as_deref());
        let report = self.engine.redact(&caller, session, what.selector, reason).await;
        let report = report.map_err(|error| self.named(error))?;
        Ok(report.done.map_or(0, |done| done.taken_out))
    }

    /// Makes a session from a bundle.
    pub(crate) async fn import(
        &self,
        from: impl Read + Send + 'static,
        passphrase: Option<&SecretText>,
    ) -> Result<Imported> {
        Ok(self.engine.import(from, passphrase).await?)
    }
}

fn spelled(issued: IssuedResumeToken) -> ResumeTokenCreated {
    let IssuedResumeToken { session_id, token_id, token } = issued;
    ResumeTokenCreated { session_id, token_id: token_id.to_string(), token }
}
