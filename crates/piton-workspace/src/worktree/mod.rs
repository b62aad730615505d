//! Git worktrees on this machine's disk: one per session, each on its own branch, all in one folder
//! of Piton's. This module knows no log: the caller passes the plan, and every step can be repeated
//! after it was cut off.
//!
//! - Whatever lies where a worktree is *planned* is an attempt that was cut off, and is cleared away.
//! - A worktree that is to go is moved aside first, in one step: half of one is never seen.
//! - Nothing outside the one folder is removed, and no branch that is not a session's.

mod unsaved_work;

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use piton_core::worktree::{self, Worktree, WorktreeFacts, WorktreePlan, judge};
use piton_core::{Code, Reason};

pub use unsaved_work::UnsavedWork;

use crate::git::{Error as GitError, Git, Runner};

/// How long another process may hold a worktree's lock: longer than the time limit of a git
/// command.
const LOCK_WAIT: Duration = Duration::from_mins(2);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// Where git's private configurations lie; no session has a name like that.
const PRIVATE: &str = ".private";
const BASE_BYTES_MAX: usize = 1_024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No worktree can be made of what was named.
    #[error("{path} {fault}")]
    Repository { path: String, fault: String },
    #[error("{repository} has no commit {base:?}")]
    BaseNotFound { repository: String, base: String },
    /// It is not as the log says.
    #[error("{}", .reason.sentence())]
    Unusable { reason: Reason, path: String },
    /// The log names what was not made here.
    #[error("The worktree {path} was not made for this session in this data folder")]
    NotOurs { path: String },
    /// Something lies where it should be, and it is not known whose it is.
    #[error("{path} is there, and is not the session's worktree")]
    Occupied { path: String },
    #[error("The worktree has what is nowhere else")]
    Dirty(UnsavedWork),
    #[error("Something else is at work on the worktree {path}")]
    Busy { path: String },
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("{path} cannot be changed")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Repository { .. } => Code::RepositoryInvalid,
            Self::BaseNotFound { .. } => Code::BaseNotFound,
            Self::Unusable { .. } | Self::Occupied { .. } => Code::WorkspaceUnusable,
            Self::NotOurs { .. } => Code::WorktreeNotFound,
            Self::Dirty(_) => Code::WorktreeDirty,
            Self::Busy { .. } | Self::Git(_) | Self::Io { .. } => Code::GitFailed,
        }
    }

    /// Which thing is missing, if one is.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Unusable { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// More about this case.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Unusable { reason, path } => Some(format!("{path}: {}", advice(*reason))),
            Self::Dirty(losses) => Some(losses.to_string()),
            Self::Io { source, .. } => Some(source.to_string()),
            _ => None,
        }
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whether what is nowhere else may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    Yes,
    No,
}

/// The folder of all worktrees. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Worktrees {
    root: PathBuf,
    git: Runner,
}

/// Exclusive access to a session's worktree, until it is dropped and every git process that
/// inherited it has ended.
#[derive(Debug)]
pub struct Lock(File);

/// A worktree as the repository knows it.
struct Entry {
    path: String,
    head: Option<String>,
    branch: Option<String>,
}

impl Worktrees {
    /// Makes the folder, its owner's alone.
    pub fn open(root: &Path) -> Result<Self> {
        let cannot = |source| io_error(root, source);
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(cannot)?;
        // git names worktrees by where they really are.
        let root = root.canonicalize().map_err(cannot)?;
        let git = Runner::new(root.join(PRIVATE));
        Ok(Self { root, git })
    }

    /// Another program than the `git` of the path.
    pub fn with_git_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.git = self.git.with_program(program);
        self
    }

    /// What a session's worktree is to be. Changes nothing.
    pub async fn plan(
        &self,
        session: &SessionId,
        repository: &Path,
        base: Option<&str>,
    ) -> Result<WorktreePlan> {
        let named = repository.display().to_string();
        let wrong = |fault: &str| Error::Repository { path: named.clone(), fault: fault.into() };
        if !repository.is_absolute() {
            return Err(wrong("is not an absolute path"));
        }
        if !repository.is_dir() {
            return Err(wrong("is not a folder"));
        }
        let git = self.git.at(repository);
        let kind = git.ask(&["rev-parse", "--is-bare-repository", "--is-inside-work-tree"]).await;
        let kind = kind.map_err(|error| match error {
            error if error.is_no_repository() => wrong("is not a git repository"),
            // Such as one that belongs to another user.
            GitError::Failed { message } => wrong(&format!("cannot be used: {message}")),
            error => error.into(),
        })?;
        match kind.lines().collect::<Vec<_>>()[..] {
            ["true", _] => return Err(wrong("is a bare repository, without a work tree")),
            [_, "true"] => {}
            _ => return Err(wrong("is not inside a work tree")),
        }
        let top = git.ask(&["rev-parse", "--show-toplevel"]).await?;
        let top = top.strip_suffix('\n').unwrap_or(&top).to_owned();
        let git = self.git.at(&top);
        let (base, base_commit) = base_of(&git, &top, base).await?;
        let Some(base_commit) = base_commit else {
            return Err(wrong("has no commit yet that a branch could begin at"));
        };
        let branch = free_branch(&git, session).await?;
        let branch = branch.ok_or_else(|| wrong("has a branch of this session's name already"))?;
        let path = self.root.join(session.as_str());
        let path = path.into_os_string().into_string().map_err(|path| {
            let source = io::Error::new(io::ErrorKind::InvalidFilename, "not UTF-8");
            io_error(Path::new(&path), source)
        })?;
        Ok(WorktreePlan { path, repository: top, branch, base, base_commit })
    }

    /// Waits until no process uses a session's worktree, not even a git that a killed process left.
    pub async fn lock(&self, session: &SessionId) -> Result<Lock> {
        let path = self.root.join(format!("{session}.lock"));
        let locking = tokio::task::spawn_blocking(move || lock(&path));
        locking.await.unwrap_or_else(|_| Err(Error::Busy { path: session.to_string() }))
    }

    /// What the disk says.
    pub async fn look(&self, plan: &WorktreePlan) -> Result<WorktreeFacts> {
        let repository = Path::new(&plan.repository);
        if !repository.is_dir() {
            return Ok(WorktreeFacts::default());
        }
        let git = self.git.at(repository);
        let entries = match entries(&git).await {
            Ok(entries) => entries,
            Err(error) if error.is_no_repository() => return Ok(WorktreeFacts::default()),
            Err(error) => return Err(error.into()),
        };
        let entry = entries.iter().find(|entry| entry.path == plan.path);
        Ok(WorktreeFacts {
            repository: true,
            folder: Path::new(&plan.path).join(".git").is_file(),
            registered: entry.is_some(),
            on: entry.and_then(|entry| entry.branch.clone()),
            branch: tip(&git, &plan.branch).await?.is_some(),
            base: commit(&git, &plan.base_commit).await?.is_some(),
        })
    }

    /// Refuses what is not as the log says.
    pub async fn check(&self, worktree: &Worktree) -> Result<()> {
        let seen = self.look(&worktree.plan).await?;
        judge(worktree, &seen).map_err(|reason| Error::unusable(&worktree.plan, reason))
    }

    /// Makes what was planned, whatever an earlier attempt came to. A branch that is there already
    /// is that attempt's, or that of a worktree which is made again.
    pub async fn make(&self, session: &SessionId, plan: &WorktreePlan, lock: &Lock) -> Result<()> {
        self.check_ours(session, plan)?;
        let git = self.git.at(&plan.repository);
        self.set_aside(session, plan).await?;
        self.unregister(&git, plan, lock).await?;
        let add = ["worktree", "add", "--quiet", "--no-checkout"];
        let args: Vec<&str> = if tip(&git, &plan.branch).await?.is_some() {
            add.into_iter().chain([plan.path.as_str(), &plan.branch]).collect()
        } else {
            let new = ["--no-track", "-b", &plan.branch, &plan.path, &plan.base_commit];
            add.into_iter().chain(new).collect()
        };
        git.change(&args, &lock.0).await?;
        // Apart from the rest, since writing files is what runs filters.
        let write = ["reset", "--hard", "--quiet", "--no-recurse-submodules"];
        if let Err(error) = self.git.at(&plan.path).change_sealed(&write, &lock.0).await {
            // Half a work tree must not be taken for a whole one.
            let _ = self.set_aside(session, plan).await;
            let _ = self.unregister(&git, plan, lock).await;
            let _ = self.sweep(session).await;
            return Err(error.into());
        }
        self.sweep(session).await
    }

    /// What would be lost if a worktree and its branch were removed.
    pub async fn losses(&self, plan: &WorktreePlan) -> Result<UnsavedWork> {
        unsaved_work::of(&self.git, plan).await
    }

    /// Removes a worktree, and its branch if nothing is lost with it or if that is accepted. Says
    /// whether the branch is still there.
    pub async fn remove(
        &self,
        session: &SessionId,
        plan: &WorktreePlan,
        force: Force,
        lock: &Lock,
    ) -> Result<bool> {
        self.check_ours(session, plan)?;
        if force == Force::No {
            let losses = self.losses(plan).await?;
            if !losses.is_empty() && !planted::is(Bug::WorktreeLossIgnored) {
                return Err(Error::Dirty(losses));
            }
        }
        self.set_aside(session, plan).await?;
        let kept = if Path::new(&plan.repository).is_dir() {
            let git = self.git.at(&plan.repository);
            self.unregister(&git, plan, lock).await?;
            remove_branch(&git, plan, lock).await?
        } else {
            // Wherever it is now, the branch is in it.
            true
        };
        self.sweep(session).await?;
        Ok(kept)
    }

    fn check_ours(&self, session: &SessionId, plan: &WorktreePlan) -> Result<()> {
        if plan.is_ours(session, &self.root) {
            return Ok(());
        }
        Err(Error::NotOurs { path: plan.path.clone() })
    }

    fn aside(&self, session: &SessionId) -> PathBuf {
        self.root.join(format!("{session}.removing"))
    }

    /// Takes a worktree's folder away in one step.
    async fn set_aside(&self, session: &SessionId, plan: &WorktreePlan) -> Result<()> {
        let (from, to) = (PathBuf::from(&plan.path), self.aside(session));
        blocking(plan.path.clone(), move || {
            // An agent that works in it would follow a link; the check here does not.
            if from.symlink_metadata().is_err() {
                return Ok(());
            }
            delete(&to)?;
            std::fs::rename(&from, &to)
        })
        .await
    }

    /// Deletes what was set aside, now or by an attempt that was cut off.
    async fn sweep(&self, session: &SessionId) -> Result<()> {
        let aside = self.aside(session);
        blocking(aside.display().to_string(), move || delete(&aside)).await
    }

    /// Has the repository forget a worktree whose folder is gone.
    async fn unregister(&self, git: &Git, plan: &WorktreePlan, lock: &Lock) -> Result<()> {
        let known = entries(git).await?.iter().any(|entry| entry.path == plan.path);
        if known {
            // Twice: also one that is locked, as it is while git makes it.
            let args = ["worktree", "remove", "--force", "--force", &plan.path];
            git.change(&args, &lock.0).await?;
        }
        Ok(())
    }
}

impl Error {
    pub fn unusable(plan: &WorktreePlan, reason: Reason) -> Self {
        let path = match reason {
            Reason::RepositoryMissing => &plan.repository,
            Reason::BranchMissing => &plan.branch,
            Reason::BaseMissing => &plan.base,
            _ => &plan.path,
        };
        Self::Unusable { reason, path: path.clone() }
    }
}

/// What to do about a thing that is missing.
fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::RepositoryMissing => {
            "if it was moved, move it back, or leave a link to it in its old place"
        }
        Reason::WorktreeMissing => "it can be made again from its branch",
        Reason::BranchMissing => "make it again, for instance at a commit of git's reflog",
        Reason::BaseMissing => "fetch it into the repository",
        _ => "put it back",
    }
}

fn io_error(path: &Path, source: io::Error) -> Error {
    Error::Io { path: path.display().to_string(), source }
}

async fn blocking(
    path: String,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<()> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
    done.map_err(|source| Error::Io { path, source })
}

fn delete(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
    }
}

fn lock(path: &Path) -> Result<Lock> {
    let cannot = |source| io_error(path, source);
    let until = Instant::now() + LOCK_WAIT;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(cannot)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                return Err(Error::Busy { path: path.display().to_string() });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL),
        }
    }
}

/// What a branch begins at: its name, and the commit that it is now.
async fn base_of(
    git: &Git,
    repository: &str,
    named: Option<&str>,
) -> Result<(String, Option<String>)> {
    let Some(named) = named else {
        let head = commit(git, "HEAD").await?;
        let branch = git.find(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        let name = branch.or_else(|| head.clone()).unwrap_or_default();
        return Ok((name, head));
    };
    let unknown =
        || Error::BaseNotFound { repository: repository.to_owned(), base: named.to_owned() };
    // What begins like an option would be one.
    let is_name = !named.is_empty()
        && named.len() <= BASE_BYTES_MAX
        && !named.starts_with('-')
        && !named.contains(|c: char| c.is_control());
    if !is_name {
        return Err(unknown());
    }
    let found = commit(git, named).await?;
    Ok((named.to_owned(), Some(found.ok_or_else(unknown)?)))
}

/// The commit that a name stands for.
async fn commit(git: &Git, name: &str) -> Result<Option<String>, GitError> {
    let name = format!("{name}^{{commit}}");
    match git.find(&["rev-parse", "--verify", "--quiet", &name]).await {
        // Of a name that means nothing, or too much, it complains all the same.
        Err(GitError::Failed { .. }) => Ok(None),
        found => found,
    }
}

async fn tip(git: &Git, branch: &str) -> Result<Option<String>, GitError> {
    commit(git, &format!("refs/heads/{branch}")).await
}

/// The first name of a session's that no branch has, nor is in the way of.
async fn free_branch(git: &Git, session: &SessionId) -> Result<Option<String>> {
    let taken = git.ask(&["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"]).await?;
    let in_the_way = |name: &str, taken: &str| {
        let below = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
        name == taken || below(name, taken) || below(taken, name)
    };
    let is_free = |name: &String| !taken.lines().any(|taken| in_the_way(name, taken));
    Ok(worktree::branches(session).find(is_free))
}

/// The worktrees that a repository knows, its own among them.
async fn entries(git: &Git) -> Result<Vec<Entry>, GitError> {
    let text = git.ask(&["worktree", "list", "--porcelain"]).await?;
    Ok(parse_entries(&text))
}

fn parse_entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("worktree ") {
            entries.push(Entry { path: path.to_owned(), head: None, branch: None });
        }
        let Some(entry) = entries.last_mut() else { continue };
        if let Some(head) = line.strip_prefix("HEAD ") {
            // A branch without a commit has zeroes.
            entry.head = Some(head.to_owned()).filter(|head| head.contains(|c| c != '0'));
        } else if let Some(branch) = line.strip_prefix("branch refs/heads/") {
            entry.branch = Some(branch.to_owned());
        }
    }
    entries
}

/// Deletes a branch unless another worktree has it checked out; returns whether it still exists.
async fn remove_branch(git: &Git, plan: &WorktreePlan, lock: &Lock) -> Result<bool> {
    if tip(git, &plan.branch).await?.is_none() {
        return Ok(false);
    }
    let used = entries(git).await?.into_iter().any(|e| e.branch.as_ref() == Some(&plan.branch));
    if used {
        return Ok(true);
    }
    git.change(&["branch", "--quiet", "-D", &plan.branch], &lock.0).await?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repositorys_own_list_is_read() {
        let text = "worktree /a b\nHEAD 12\nbranch refs/heads/main\n\n\
                    worktree /data/é\nHEAD 34\ndetached\nprunable gone\n\n\
                    worktree /c\nHEAD 0000\nbranch refs/heads/piton/1\nlocked\n";
        let found: Vec<_> = parse_entries(text)
            .into_iter()
            .map(|entry| (entry.path, entry.head, entry.branch))
            .collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            found,
            [
                ("/a b".to_owned(), some("12"), some("main")),
                ("/data/é".to_owned(), some("34"), None),
                ("/c".to_owned(), None, some("piton/1")),
            ]
        );
    }

    /// One waits for the other, and a lock outlives its holder in a process that inherited its
    /// file.
    #[test]
    fn a_lock_is_held_by_the_process_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.lock");
        let held = lock(&path).unwrap();
        let handed = held.0.try_clone().unwrap();
        drop(held);
        let other = File::options().write(true).open(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(handed);
        other.try_lock().unwrap();
    }
}
