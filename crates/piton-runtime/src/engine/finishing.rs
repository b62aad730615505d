//! Finishing a session's work: its branch is committed, merged into its base, pushed. Only on a user's
//! request, and with the user's own git: hooks, filters and credentials. Who only looks at the branch
//! runs no program of the repository.

use std::path::Path;
use std::sync::Arc;

use piton_core::id::SessionId;
use piton_core::registry;
use piton_workspace::finish::{self, Strategy, Work};
use piton_workspace::git::Runner;
use piton_workspace::{BranchReport, GitDiff, Workspace};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::requests::{Request, audited};
use super::{Caller, Engine, Fulfilled};
use crate::error::{Error, Result};

const MESSAGE_BYTES_MAX: usize = 16 * 1024;
const NAME_BYTES_MAX: usize = 1_024;

/// One at a time: two merges into one base would be in each other's way.
static FINISHING: Mutex<()> = Mutex::const_new(());

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedWork {
    pub session_id: SessionId,
    pub commit: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedWork {
    pub session_id: SessionId,
    pub into: String,
    pub commit: String,
    pub was_up_to_date: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedWork {
    pub session_id: SessionId,
    pub remote: String,
    pub branch: String,
}

fn failed(error: finish::Error) -> Error {
    Error::Finish(Arc::new(error))
}

fn unreadable(error: piton_workspace::Error) -> Error {
    Error::Folder(Arc::new(error))
}

impl Engine {
    async fn work(&self, session: &SessionId) -> Result<Work> {
        let plans = &self.running()?.plans;
        let state = self.view().state(session).await?;
        let folder = plans.folder(session, &state)?;
        let plan = state.facts.worktree.as_ref().map(|worktree| &worktree.plan);
        let base = match plan {
            // What the repository was on is what the work began at.
            Some(plan) if plan.base == "HEAD" => {
                let git = Runner::new(plans.private()).at(&plan.repository);
                git.find(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await.ok().flatten()
            }
            Some(plan) => Some(plan.base.clone()),
            None => None,
        };
        let apart = plans.private().join(format!("merge-{session}"));
        Ok(Work { folder, apart, base })
    }

    /// How the session's branch stands to its base.
    pub async fn branch(&self, session: &SessionId) -> Result<BranchReport> {
        let work = self.work(session).await?;
        let base = work.base.clone();
        let folder = self.look(work).await?;
        folder.branch_report(base.as_deref()).await.map_err(unreadable)
    }

    /// What the session's branch and its uncommitted changes add to its base.
    pub async fn branch_diff(&self, session: &SessionId, path: Option<&str>) -> Result<GitDiff> {
        let work = self.work(session).await?;
        let base = work.base.clone();
        let folder = self.look(work).await?;
        let report = folder.branch_report(base.as_deref()).await.map_err(unreadable)?;
        let Some(since) = report.merge_base.or(report.head) else { return Ok(GitDiff::default()) };
        folder.git_diff_since(&since, path.map(Path::new)).await.map_err(unreadable)
    }

    /// The folder of the work, for looking at it.
    async fn look(&self, work: Work) -> Result<Workspace> {
        let git = Runner::new(self.running()?.plans.private());
        let opened = tokio::task::spawn_blocking(move || Workspace::open(&work.folder, git)).await;
        opened.unwrap_or(Err(piton_workspace::Error::Interrupted)).map_err(unreadable)
    }

    /// Commits everything that has changed in the session's folder.
    pub async fn commit_work(
        &self,
        caller: &Caller,
        session: &SessionId,
        message: &str,
    ) -> Result<Fulfilled<CommittedWork>> {
        check_text("message", message, MESSAGE_BYTES_MAX)?;
        let work = self.work(session).await?;
        let doing = async move {
            let commit = work.commit(message).await.map_err(failed)?;
            Ok(CommittedWork { session_id: session.clone(), commit })
        };
        self.finish(caller, "git.commit", session, &json!({"message": message}), doing).await
    }

    /// Brings the session's branch into a local branch: `into`, or its base. A conflict changes nothing.
    pub async fn merge_work(
        &self,
        caller: &Caller,
        session: &SessionId,
        into: Option<&str>,
        strategy: Strategy,
        message: Option<&str>,
    ) -> Result<Fulfilled<MergedWork>> {
        into.map_or(Ok(()), |into| check_text("into", into, NAME_BYTES_MAX))?;
        message.map_or(Ok(()), |message| check_text("message", message, MESSAGE_BYTES_MAX))?;
        let work = self.work(session).await?;
        let arguments =
            json!({"into": into, "strategy": format!("{strategy:?}"), "message": message});
        let doing = async move {
            let merged = work.merge(into, strategy, message).await.map_err(failed)?;
            let finish::Merged { into, commit, was_up_to_date } = merged;
            Ok(MergedWork { session_id: session.clone(), into, commit, was_up_to_date })
        };
        self.finish(caller, "git.merge", session, &arguments, doing).await
    }

    /// Pushes the session's branch to a remote; never over what the remote has.
    pub async fn push_work(
        &self,
        caller: &Caller,
        session: &SessionId,
        remote: Option<&str>,
    ) -> Result<Fulfilled<PushedWork>> {
        remote.map_or(Ok(()), |remote| check_text("remote", remote, NAME_BYTES_MAX))?;
        let work = self.work(session).await?;
        let doing = async move {
            let (remote, branch) = work.push(remote).await.map_err(failed)?;
            Ok(PushedWork { session_id: session.clone(), remote, branch })
        };
        self.finish(caller, "git.push", session, &json!({"remote": remote}), doing).await
    }

    /// Once under a key. What was done and is not in the log yet does no harm when it is done again: a
    /// commit has nothing left to commit, a merge and a push are up to date.
    async fn finish<T: Serialize + DeserializeOwned>(
        &self,
        caller: &Caller,
        action: &'static str,
        session: &SessionId,
        arguments: &Value,
        doing: impl Future<Output = Result<T>>,
    ) -> Result<Fulfilled<T>> {
        let request = Request::new(caller, action, session, arguments)?;
        let _one = FINISHING.lock().await;
        let requests = self.metadata().await?.read(|known| known.requests.clone());
        let metadata_log = SessionId::metadata_log();
        if let Some(replayed) = self.find_replay(&metadata_log, &requests, &request).await? {
            return Ok(replayed);
        }
        let done = doing.await?;
        let note = audited(caller, action, session.to_string());
        self.register(&request, done, registry::Command::Note(note)).await
    }
}

fn check_text(name: &str, text: &str, bytes_max: usize) -> Result<()> {
    let is_good = !text.trim().is_empty() && text.len() <= bytes_max && !text.contains('\0');
    let is_option = name != "message" && text.starts_with('-');
    if is_good && !is_option {
        return Ok(());
    }
    Err(Error::Invalid(format!("{name} has 1 to {bytes_max} bytes and begins with no -")))
}
