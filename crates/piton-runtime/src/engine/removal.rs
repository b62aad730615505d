//! What takes something out of the store: deletion, archive, redaction; and bundles.

use std::io::{Read, Write};
use std::path::PathBuf;

use piton_core::decide::{Command, Refusal, Removal};
use piton_core::id::SessionId;
use piton_core::redact::{RedactionPlan, Selector};
use piton_core::worktree::Stage;
use piton_store::{SecretText, Verification, bundle};

use super::{Caller, Engine, Writer};
use crate::error::{Error, Result};
use crate::redaction::{self, Redacted};
use crate::removal::{Archived, Imported};
use crate::worktrees::WorktreeRemoval;

const REASON_BYTES_MAX: usize = 1_024;

/// What became of a deleted session's worktree; `None` if it had none.
#[derive(Debug)]
pub struct Deleted {
    pub session: SessionId,
    pub worktree: Option<WorktreeRemoval>,
}

/// Where an archived session's bundle goes, and how it is closed.
#[derive(Clone, Debug, Default)]
pub struct ArchiveTarget {
    /// `None`: the archive of the data folder.
    pub folder: Option<PathBuf>,
    /// `None`: the bundle is in the clear.
    pub passphrase: Option<SecretText>,
}

/// What a redaction takes out; `done` if it was carried out.
#[derive(Debug)]
pub struct RedactionReport {
    pub plan: RedactionPlan,
    pub done: Option<Redacted>,
}

impl Engine {
    /// What keeps a session from being removed in this way. Changes nothing.
    pub async fn check_removal(&self, session: &SessionId, how: Removal) -> Result<()> {
        match &self.0.writer {
            Writer::Running(_) => {
                let state = self.view().state(session).await?;
                Ok(piton_core::decide::may_remove(&state, how)?)
            }
            Writer::Offline(writer) => writer.may_remove(session, how).await,
        }
    }

    /// Deletes a session's log; the metadata log keeps a note with the reason. `forced`: whatever is
    /// at work in the session. Its worktree is removed if nothing is lost with it.
    pub async fn delete(
        &self,
        caller: &Caller,
        session: &SessionId,
        forced: bool,
        reason: Option<String>,
    ) -> Result<Deleted> {
        if reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            return Err(Error::Invalid(format!("A reason has at most {REASON_BYTES_MAX} bytes")));
        }
        let worktree = match &self.0.writer {
            Writer::Running(running) => {
                let by = format!("by {}", caller.principal());
                let reason = Some(match reason {
                    Some(reason) => format!("{reason} ({by})"),
                    None => by,
                });
                // Only its log knows of the worktree.
                let left = running.worktrees.leave(session).await?;
                if forced {
                    running.handle.delete_forced(session, reason).await?;
                } else {
                    running.handle.delete(session, reason).await?;
                }
                left
            }
            Writer::Offline(writer) => {
                let worktree = self.view().state(session).await?.facts.worktree;
                let how = if forced { Removal::DeleteForced } else { Removal::Delete };
                writer.delete(session, how, reason).await?;
                let there = worktree.filter(|w| !matches!(w.stage, Stage::Removed { .. }));
                there.map(|there| WorktreeRemoval::Kept {
                    plan: there.plan,
                    why: Error::ServerRequired,
                })
            }
        };
        if let (Some(WorktreeRemoval::Kept { plan, .. }), false) = (&worktree, self.is_offline()) {
            self.audit(caller, "worktrees.leave", plan.path.clone()).await?;
        }
        Ok(Deleted { session: session.clone(), worktree })
    }

    /// Moves a closed session into a bundle, which is written, flushed and read back before the log
    /// is deleted. A bundle that is there already is not replaced.
    pub async fn archive(
        &self,
        caller: &Caller,
        session: &SessionId,
        target: ArchiveTarget,
    ) -> Result<Archived> {
        let folder = target.folder.unwrap_or_else(|| self.0.archive.clone());
        if !folder.is_absolute() && !self.is_offline() {
            return Err(Error::Invalid("folder is an absolute path".to_owned()));
        }
        let path = folder.join(format!("{session}.piton"));
        let exists = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || path.symlink_metadata().is_ok()).await
        };
        if exists.unwrap_or(true) {
            return Err(Error::FileExists { path });
        }
        match &self.0.writer {
            Writer::Running(running) => {
                let archived = running.handle.archive(session, &folder, target.passphrase).await?;
                let bundle = archived.bundle.display().to_string();
                if let Err(error) = self.audit(caller, "sessions.archive", bundle).await {
                    // The session is archived, and the metadata log says so: an error would deny it.
                    tracing::error!(%session, code = %error.code(), %error, "archived without an audit record");
                }
                Ok(archived)
            }
            Writer::Offline(writer) => writer.archive(session, &folder, target.passphrase).await,
        }
    }

    /// What a redaction would take out. Changes nothing.
    pub async fn plan_redaction(
        &self,
        session: &SessionId,
        what: Selector,
    ) -> Result<RedactionPlan> {
        self.view().plan_redaction(session, what).await
    }

    /// Takes contents out of a session's log for good, also of a closed one. Repeating it changes
    /// nothing more. Takes no idempotency key: its digest would tell about what was taken out.
    pub async fn redact(
        &self,
        caller: &Caller,
        session: &SessionId,
        what: Selector,
        reason: Option<&str>,
    ) -> Result<RedactionReport> {
        if reason.is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            return Err(Error::Invalid(format!("A reason has at most {REASON_BYTES_MAX} bytes")));
        }
        if let (Selector::Matching(matcher), Some(reason)) = (&what, reason)
            && !matcher.find(reason).is_empty()
        {
            let detail =
                "The reason holds what is to be taken out, and would be written to the log";
            return Err(Error::Invalid(detail.to_owned()));
        }
        let plan = self.plan_redaction(session, what).await?;
        if self.view().state(session).await?.facts.restore.is_some() {
            // It needs the snapshots that go with a redaction.
            return Err(Refusal::RestoreInProgress.into());
        }
        let mut redacted = Redacted::default();
        for redact in redaction::commands(self.view(), session, &plan, reason).await? {
            let ack = self.write(session, Command::Redact(redact.clone())).await;
            // Whatever became of it: a part may be taken out.
            self.view().forget_title(session);
            redacted.count(&redact, &ack?);
        }
        // A snapshot is not masked: it may hold what was taken out.
        if redacted.taken_out > 0 {
            match &self.0.writer {
                Writer::Running(running) => {
                    if let Some(snapshots) = &running.snapshots {
                        snapshots.remove_all(session).await;
                    }
                }
                Writer::Offline(writer) => writer.remove_snapshots(session),
            }
        }
        if redacted.taken_out > 0 && !self.is_offline() {
            self.audit(caller, "sessions.redact", session.to_string()).await?;
        }
        Ok(RedactionReport { plan, done: Some(redacted) })
    }

    /// Writes a session into a bundle; the session stays.
    pub async fn export(
        &self,
        session: &SessionId,
        to: impl Write + Send,
        passphrase: Option<SecretText>,
    ) -> Result<bundle::Contents> {
        let settings = bundle::Settings::new(passphrase);
        Ok(bundle::export(&*self.0.store, session, to, &settings).await?)
    }

    /// Checks a session's log: its chain, its contents, and how far it had come.
    pub async fn verify(&self, session: &SessionId) -> Result<Verification> {
        Ok(self.0.store.verify(session).await?)
    }

    /// Makes a session from a bundle.
    pub async fn import(
        &self,
        from: impl Read + Send + 'static,
        passphrase: Option<&SecretText>,
    ) -> Result<Imported> {
        match &self.0.writer {
            Writer::Running(running) => running.handle.import(from, passphrase).await,
            Writer::Offline(writer) => writer.import(from, passphrase).await,
        }
    }
}
