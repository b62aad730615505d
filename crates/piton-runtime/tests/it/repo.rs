//! A real repository with a commit, a session that is to work in a worktree of it, and git as the
//! user would run it.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use piton_core::Code;
use piton_core::decide::{self, Create};
use piton_core::id::SessionId;
use piton_core::worktree::{Stage, WorktreePlan};
use piton_runtime::{Error, Worktrees};

use crate::common::{Kind, Place, Process};

pub(crate) struct Rig {
    pub(crate) place: Place,
    pub(crate) process: Process,
    pub(crate) worktrees: Worktrees,
    pub(crate) repo: PathBuf,
}

/// The output of a git command that must succeed. It reads no user's settings.
pub(crate) fn git(folder: &Path, args: &[&str]) -> String {
    let output = command(folder, args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

pub(crate) fn works(folder: &Path, args: &[&str]) -> bool {
    command(folder, args).output().unwrap().status.success()
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]).args(args);
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

/// A repository on `main` with the file `a`.
pub(crate) fn repository(at: &Path) {
    fs::create_dir_all(at).unwrap();
    git(at, &["init", "--quiet", "--initial-branch=main"]);
    commit(at, "a", "one\n");
}

pub(crate) fn commit(at: &Path, file: &str, text: &str) {
    fs::write(at.join(file), text).unwrap();
    git(at, &["add", file]);
    git(at, &["commit", "--quiet", "--message", &format!("Change {file}")]);
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with_repo_at("repo").await
    }

    pub(crate) async fn with_repo_at(name: &str) -> Self {
        let place = Place::new(Kind::Memory);
        let repo = place.folder().canonicalize().unwrap().join(name);
        repository(&repo);
        let process = place.start("boot_1").await;
        let worktrees = Worktrees::open(process.handle.clone(), &root(&place)).unwrap();
        Self { place, process, worktrees, repo }
    }

    /// Kills the process; another one begins.
    pub(crate) async fn again(self) -> Self {
        let Self { place, process, repo, .. } = self;
        place.kill(process);
        let process = place.start("boot_2").await;
        let worktrees = Worktrees::open(process.handle.clone(), &root(&place)).unwrap();
        Self { place, process, worktrees, repo }
    }

    /// A session whose worktree is planned and nothing more.
    pub(crate) async fn planned(&self, id: &str) -> (SessionId, WorktreePlan) {
        let session: SessionId = id.parse().unwrap();
        let plan = self.worktrees.plan(&session, &self.repo, None).await.unwrap();
        self.create(&session, plan.clone()).await;
        (session, plan)
    }

    pub(crate) async fn create(&self, session: &SessionId, plan: WorktreePlan) {
        let create = Create {
            session_id: session.clone(),
            title: None,
            task_id: None,
            working_dir: None,
            provider: None,
            agent_profile_id: None,
            setup: piton_core::decide::Setup::default(),
        };
        let command = decide::Command::CreateInWorktree(create, Box::new(plan));
        self.process.handle.execute(session, command).await.unwrap();
    }

    /// A session that can work in its worktree.
    pub(crate) async fn prepared(&self, id: &str) -> (SessionId, PathBuf, WorktreePlan) {
        let (session, plan) = self.planned(id).await;
        let path = self.worktrees.ready(&session).await.unwrap().unwrap();
        (session, path, plan)
    }

    pub(crate) async fn stage(&self, session: &SessionId) -> Stage {
        let state = self.process.handle.state(session).await.unwrap();
        state.facts.worktree.unwrap().stage
    }

    /// The kinds of the records about the worktree.
    pub(crate) async fn recorded(&self, session: &SessionId) -> Vec<String> {
        let records = self.process.handle.records(session, 0, 100).await.unwrap();
        let kinds = records.iter().filter_map(|record| record.kind.strip_prefix("workspace."));
        kinds.map(str::to_owned).collect()
    }

    /// The code and the reason that starting an agent would be refused with.
    pub(crate) async fn refused(&self, session: &SessionId) -> (Code, Option<&'static str>) {
        refusal(&self.worktrees.ready(session).await.unwrap_err())
    }
}

pub(crate) fn refusal(error: &Error) -> (Code, Option<&'static str>) {
    let Error::Worktree(fault) = error else { return (error.code(), None) };
    (fault.code(), fault.reason().map(piton_core::Reason::as_str))
}

fn root(place: &Place) -> PathBuf {
    place.folder().join("data/worktrees")
}
