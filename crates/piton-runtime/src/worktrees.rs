//! Sessions' worktrees: the plan is in the log before git runs, and the result after git is done. A
//! process that is killed in between leaves a plan, and the next process that needs the worktree
//! carries it out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_core::decide::{Command, Refusal, Removal, Verdict, may_remove};
use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use piton_core::state::Run;
use piton_core::worktree::{Stage, Worktree, WorktreePlan};
use piton_core::{Reason, State};
use piton_workspace::worktree::{Error as Fault, Force, Lock, Worktrees as Disk};

use crate::error::{Error, Result};
use crate::executions::Executions;
use crate::service::Handle;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Worktrees {
    handle: Handle,
    disk: Disk,
    executions: Option<Executions>,
}

/// What a clean-up came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanupResult {
    pub plan: WorktreePlan,
    /// The branch is still in the repository.
    pub kept_branch: bool,
    /// It was not so before.
    pub changed: bool,
}

/// What becomes of the worktree of a session that is deleted.
#[derive(Debug)]
pub enum WorktreeRemoval {
    Removed(CleanupResult),
    /// It stays where it is.
    Kept {
        plan: WorktreePlan,
        why: Error,
    },
}

impl Worktrees {
    /// With all worktrees in one folder, which is made.
    pub fn open(handle: Handle, root: &Path) -> Result<Self> {
        Ok(Self { handle, disk: Disk::open(root)?, executions: None })
    }

    /// With the means to end an agent that is in the way of a clean-up.
    pub fn with_executions(self, executions: Executions) -> Self {
        Self { executions: Some(executions), ..self }
    }

    /// What a session's worktree is to be, for the record that it is made with. Changes nothing.
    pub async fn plan(
        &self,
        session: &SessionId,
        repository: &Path,
        base: Option<&str>,
    ) -> Result<WorktreePlan> {
        Ok(self.disk.plan(session, repository, base).await?)
    }

    /// Where a session is to work: made if it is only planned, and refused if it is not as the log
    /// says. `None` if it was given no worktree.
    pub async fn ready(&self, session: &SessionId) -> Result<Option<PathBuf>> {
        let (this, session) = (self.clone(), session.clone());
        detached(async move { this.ready_now(&session).await }).await
    }

    async fn ready_now(&self, session: &SessionId) -> Result<Option<PathBuf>> {
        if self.state(session).await?.facts.worktree.is_none() {
            return Ok(None);
        }
        let lock = self.disk.lock(session).await?;
        let worktree = self.known(session).await?;
        self.disk.check(&worktree).await?;
        self.prepare(session, &worktree, &lock).await?;
        Ok(Some(worktree.plan.path.into()))
    }

    /// Makes a worktree that is planned, and says so.
    async fn prepare(&self, session: &SessionId, worktree: &Worktree, lock: &Lock) -> Result<()> {
        if worktree.is_prepared() {
            return Ok(());
        }
        self.disk.make(session, &worktree.plan, lock).await?;
        let prepared = Command::WorkspacePrepared(worktree.plan.clone());
        self.handle.execute(session, prepared).await.map(drop)
    }

    /// Makes a worktree again that was removed, as long as its branch is there.
    pub async fn repair(&self, session: &SessionId) -> Result<Worktree> {
        let (this, session) = (self.clone(), session.clone());
        detached(async move { this.repair_now(&session).await }).await
    }

    async fn repair_now(&self, session: &SessionId) -> Result<Worktree> {
        let lock = self.disk.lock(session).await?;
        let worktree = self.known(session).await?;
        match self.disk.check(&worktree).await {
            Ok(()) => {}
            Err(Fault::Unusable { reason: Reason::WorktreeMissing, .. }) => {
                self.plan_again(session, &worktree).await?;
            }
            Err(fault) => return Err(fault.into()),
        }
        let worktree = self.known(session).await?;
        self.prepare(session, &worktree, &lock).await?;
        self.known(session).await
    }

    /// From here on what lies in its place is an attempt of ours: that nothing else does is seen
    /// first.
    async fn plan_again(&self, session: &SessionId, worktree: &Worktree) -> Result<()> {
        let path = Path::new(&worktree.plan.path);
        if path.symlink_metadata().is_ok() {
            return Err(Fault::Occupied { path: worktree.plan.path.clone() }.into());
        }
        if !matches!(worktree.stage, Stage::Removed { .. }) {
            let removed = Command::WorkspaceRemoved { kept_branch: true };
            self.handle.execute(session, removed).await?;
        }
        let plan = Command::PlanWorkspace(worktree.plan.clone());
        self.handle.execute(session, plan).await.map(drop)
    }

    /// Removes a session's worktree, and its branch if everything on it is elsewhere, too. What is
    /// nowhere else is lost only if that is forced; so is a turn that is under way. An agent that
    /// has nothing to do is ended.
    pub async fn clean_up(&self, session: &SessionId, force: Force) -> Result<CleanupResult> {
        let (this, session) = (self.clone(), session.clone());
        detached(async move { this.clean_up_now(&session, force).await }).await
    }

    async fn clean_up_now(&self, session: &SessionId, force: Force) -> Result<CleanupResult> {
        let lock = self.disk.lock(session).await?;
        let worktree = self.known(session).await?;
        if worktree.stage == (Stage::Removed { kept_branch: false }) {
            return Ok(CleanupResult { plan: worktree.plan, kept_branch: false, changed: false });
        }
        self.make_way(session, &worktree.plan, force).await?;
        let kept_branch = self.disk.remove(session, &worktree.plan, force, &lock).await?;
        let removed = Command::WorkspaceRemoved { kept_branch };
        let ack = self.handle.execute(session, removed).await?;
        let changed = ack.verdict != Verdict::Already;
        Ok(CleanupResult { plan: worktree.plan, kept_branch, changed })
    }

    /// Ends who is at work in a worktree, if it may go at all.
    async fn make_way(&self, session: &SessionId, plan: &WorktreePlan, force: Force) -> Result<()> {
        let facts = self.state(session).await?.facts;
        let Some(executor) = facts.executor.as_ref().filter(|executor| executor.may_live()) else {
            return Ok(());
        };
        if force == Force::No {
            let open = |run: &&Run| run.is_open() && facts.closed.is_none();
            if let Some(run) = facts.run.as_ref().filter(open) {
                return Err(Refusal::RunInProgress { run: run.run_id.clone() }.into());
            }
            // Checked again after the agent's end. The check here keeps the agent alive if the
            // clean-up would be refused anyway.
            let losses = self.disk.losses(plan).await?;
            if !losses.is_empty() && !planted::is(Bug::WorktreeLossIgnored) {
                return Err(Fault::Dirty(losses).into());
            }
        }
        match &self.executions {
            Some(executions) => executions.stop(session).await,
            None => Err(Refusal::ExecutorAlive { execution: executor.execution_id.clone() }.into()),
        }
    }

    /// Before a session is deleted: removes its worktree if nothing is lost with it and no agent
    /// works in it. `None` if it has none.
    pub async fn leave(&self, session: &SessionId) -> Result<Option<WorktreeRemoval>> {
        let state = self.state(session).await?;
        let Some(Worktree { plan, stage }) = state.facts.worktree.clone() else { return Ok(None) };
        if matches!(stage, Stage::Removed { .. }) {
            return Ok(None);
        }
        if let Err(refusal) = may_remove(&state, Removal::Delete) {
            return Ok(Some(WorktreeRemoval::Kept { plan, why: refusal.into() }));
        }
        Ok(Some(match self.clean_up(session, Force::No).await {
            Ok(cleaned) => WorktreeRemoval::Removed(cleaned),
            Err(why) => WorktreeRemoval::Kept { plan, why },
        }))
    }

    async fn state(&self, session: &SessionId) -> Result<State> {
        self.handle.state(session).await
    }

    /// What the log says now.
    async fn known(&self, session: &SessionId) -> Result<Worktree> {
        let worktree = self.state(session).await?.facts.worktree;
        Ok(worktree.ok_or(Refusal::WorktreeNotFound)?)
    }
}

/// Runs to its end even if the caller stops waiting: a change that is begun is finished.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work).await.map_err(|_| Error::ShuttingDown)?
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Worktree(Arc::new(fault))
    }
}
