//! The data folder's server, asked over its API.

use std::path::Path;
use std::time::Duration;

use piton_api::client::Client;
use piton_api::session::{ArchiveRequest, DeleteQuery, RunRequest, SessionArchived};
use piton_api::status::Wait;
use piton_api::wait::{NewResumeToken, ResumeTokenCreated};
use piton_core::decide::Removal;
use piton_core::id::{RunId, SessionId, WaitId};
use piton_store::SecretText;

use super::{LeftWorktree, Redact, Settled, Settling};
use crate::error::{Error, Result};
use crate::lookup::{self, SessionName};

#[derive(Debug)]
pub(crate) struct ServerBackend {
    client: Client,
}

impl ServerBackend {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) async fn find(&self, name: SessionName) -> Result<SessionId> {
        lookup::session_on(&self.client, name).await
    }

    pub(super) async fn settle(
        &self,
        session: &SessionId,
        run: Option<RunId>,
        how: Settling,
    ) -> Result<Settled> {
        let before = self.client.session(session).await?.summary;
        let run = RunRequest { run_id: run.map(|run| run.to_string()) };
        let done = match how {
            Settling::Cancel => self.client.cancel(session, &run).await?,
            Settling::Dismiss => self.client.dismiss(session, &run).await?,
        };
        let after = self.client.session(session).await?.summary;
        // Other records may come in between, so that both have to say it.
        let changed = after.last_seq > before.last_seq && before.reason != how.reason();
        Ok(Settled { run_id: done.run_id, changed, last_seq: after.last_seq })
    }

    pub(super) async fn waits(&self, session: &SessionId) -> Result<Vec<Wait>> {
        Ok(self.client.session(session).await?.waits)
    }

    pub(super) async fn rotate_resume_token(&self, wait: &WaitId) -> Result<ResumeTokenCreated> {
        Ok(self.client.rotate_resume_token(wait).await?)
    }

    pub(super) async fn create_resume_token(
        &self,
        session: &SessionId,
        valid_for: Option<Duration>,
    ) -> Result<ResumeTokenCreated> {
        let new = NewResumeToken { valid_for_s: valid_for.map(|span| span.as_secs()) };
        Ok(self.client.create_resume_token(session, &new).await?)
    }

    pub(super) async fn delete(
        &self,
        session: &SessionId,
        how: Removal,
        reason: Option<&str>,
    ) -> Result<Option<LeftWorktree>> {
        let force = Some(how == Removal::DeleteForced);
        let query = DeleteQuery { force, reason: reason.map(str::to_owned) };
        let deleted = self.client.delete_session(session, &query).await?;
        Ok(deleted.and_then(|deleted| {
            let because = deleted.left_because?;
            Some(LeftWorktree { path: deleted.worktree_path, because })
        }))
    }

    pub(super) async fn archive(
        &self,
        session: &SessionId,
        folder: &Path,
        passphrase: Option<&SecretText>,
    ) -> Result<SessionArchived> {
        let folder = std::path::absolute(folder)?;
        let Some(folder) = folder.to_str() else {
            return Err(Error::usage(&format!("{} is not UTF-8", folder.display())));
        };
        let request = ArchiveRequest {
            folder: Some(folder.to_owned()),
            passphrase: passphrase.map(|passphrase| passphrase.reveal().to_owned()),
        };
        Ok(self.client.archive_session(session, &request).await?)
    }

    pub(super) async fn redact(&self, session: &SessionId, what: Redact) -> Result<usize> {
        Ok(self.client.redact_session(session, &what.request).await?.taken_out)
    }
}
