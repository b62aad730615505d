//! Finishing the work on a branch: commit, merge or rebase it into its base, push.
//!
//! Unlike everything else here, git is run as the user would run it: with the user's configuration,
//! hooks, filters and credentials. So nothing here is called but on a user's explicit request;
//! [`Workspace::branch_report`](crate::Workspace::branch_report) answers who only looks.
//!
//! A merge or rebase is made in a work tree of its own, apart from the user's. Only when its result
//! exists does the base move to it, in one step. Whatever fails or is cut off before that leaves the
//! base, the user's index and the user's files as they were, byte for byte.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use piton_core::Code;
use rustix::process::{Pid, Signal};
use tokio::process::Command;

/// How long a commit or a merge may take, its hooks included.
const CHANGE_TIME_MAX: Duration = Duration::from_mins(5);
/// How long a push may take.
const PUSH_TIME_MAX: Duration = Duration::from_mins(10);
/// What is shown of what git says.
const SAID_BYTES_MAX: usize = 4 * 1024;
/// Files that are named.
const FILES_MAX: usize = 50;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("There is nothing to commit")]
    NothingToCommit,
    #[error("{} and {into} change the same lines of {}", .branch, files_text(.files))]
    Conflict { branch: String, into: String, files: Vec<String> },
    #[error("{path} has changes that are not committed: {}", files_text(.files))]
    Uncommitted { path: String, files: Vec<String> },
    #[error("The repository has no branch {name:?}")]
    BranchNotFound { name: String },
    #[error("The work is not on a branch, or on {name:?} itself")]
    NoBranch { name: String },
    #[error("The remote refused the push")]
    PushRejected { said: String },
    #[error("git {action} failed")]
    Failed { action: &'static str, said: String },
    #[error("git {action} took longer than {seconds} seconds")]
    Timeout { action: &'static str, seconds: u64 },
    #[error("git cannot be run")]
    Io(#[from] std::io::Error),
}

fn files_text(files: &[String]) -> String {
    let named: Vec<&str> = files.iter().take(FILES_MAX).map(String::as_str).collect();
    let more = files.len().saturating_sub(FILES_MAX);
    let more = if more > 0 { format!(" and {more} more files") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::NothingToCommit => Code::NothingToCommit,
            Self::Conflict { .. } => Code::MergeConflict,
            Self::Uncommitted { .. } => Code::WorktreeDirty,
            Self::BranchNotFound { .. } | Self::NoBranch { .. } => Code::BaseNotFound,
            Self::PushRejected { .. } => Code::PushRejected,
            Self::Timeout { .. } => Code::GitTimeout,
            Self::Io(error) if error.kind() == std::io::ErrorKind::NotFound => Code::GitMissing,
            Self::Failed { .. } | Self::Io(_) => Code::GitFailed,
        }
    }

    /// What git said.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::PushRejected { said } | Self::Failed { said, .. } if !said.is_empty() => {
                Some(said.clone())
            }
            _ => None,
        }
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How a branch comes into its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Merge,
    /// All of its changes as one commit.
    Squash,
    Rebase,
}

/// The work that is to be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The work tree that it was done in.
    pub folder: PathBuf,
    /// Where merges are made; it is used for nothing else, and is removed afterwards.
    pub apart: PathBuf,
    /// The local branch that it began at, if it is known.
    pub base: Option<String>,
}

/// What a merge came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    pub into: String,
    /// The base's newest commit.
    pub commit: String,
    /// The base had everything already.
    pub was_up_to_date: bool,
}

struct Ended {
    success: bool,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn said(&self) -> String {
        let both = [self.stderr.trim(), self.stdout.trim()];
        let mut said =
            both.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
        said.truncate(said.floor_char_boundary(SAID_BYTES_MAX));
        said
    }

    fn good(self, action: &'static str) -> Result<String> {
        if self.success {
            return Ok(self.stdout);
        }
        Err(Error::Failed { action, said: self.said() })
    }
}

/// Runs git as the user would. A process that is killed takes its group along when it is dropped.
async fn run(folder: &Path, args: &[&str], within: Duration) -> Result<Ended> {
    let mut command = Command::new("git");
    command.args(["--no-pager"]).args(args).current_dir(folder).process_group(0).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // What would point git at another repository, and what is meant for the server.
        if text.starts_with("GIT_") && !text.starts_with("GIT_SSH") || text.starts_with("PITON_") {
            command.env_remove(name);
        }
    }
    // There is no terminal: a prompt for a passphrase or an editor would wait for ever.
    command.envs([("GIT_TERMINAL_PROMPT", "0"), ("GIT_EDITOR", "true"), ("LC_ALL", "C")]);
    command.env("SSH_ASKPASS_REQUIRE", "never");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let group = Group(child.id());
    let output = tokio::time::timeout(within, child.wait_with_output()).await;
    let action = action_of(args);
    let output = output.map_err(|_| Error::Timeout { action, seconds: within.as_secs() })??;
    group.ended();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    Ok(Ended { success: output.status.success(), stdout, stderr })
}

fn action_of(args: &[&str]) -> &'static str {
    const ACTIONS: [&str; 8] =
        ["add", "commit", "merge", "rebase", "push", "worktree", "update-ref", "reset"];
    let named = |known: &&str| args.first() == Some(known);
    ACTIONS.into_iter().find(named).unwrap_or("rev-parse")
}

/// git's process group: it has hooks and helpers.
struct Group(Option<u32>);

impl Group {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let _ = pid.map(|pid| rustix::process::kill_process_group(pid, Signal::KILL));
    }
}

impl Work {
    async fn git(&self, args: &[&str]) -> Result<Ended> {
        run(&self.folder, args, CHANGE_TIME_MAX).await
    }

    /// What a question has one line as the answer to; `None` if there is none.
    async fn ask(&self, args: &[&str]) -> Result<Option<String>> {
        let ended = self.git(args).await?;
        let line = ended.stdout.trim_end_matches('\n').to_owned();
        Ok((ended.success && !line.is_empty()).then_some(line))
    }

    async fn branch(&self) -> Result<Option<String>> {
        self.ask(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await
    }

    async fn tip(&self, branch: &str) -> Result<Option<String>> {
        let name = format!("refs/heads/{branch}^{{commit}}");
        self.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &name]).await
    }

    /// Commits everything that has changed. If that fails, the index is as it was.
    pub async fn commit(&self, message: &str) -> Result<String> {
        if uncommitted(&self.folder).await?.is_empty() {
            return Err(Error::NothingToCommit);
        }
        let index =
            self.ask(&["rev-parse", "--path-format=absolute", "--git-path", "index"]).await?;
        let index = index.map(PathBuf::from);
        let before = index.as_ref().and_then(|index| std::fs::read(index).ok());
        let committed = async {
            self.git(&["add", "--all"]).await?.good("add")?;
            let message = format!("--message={message}");
            self.git(&["commit", "--quiet", &message]).await?.good("commit")
        };
        if let Err(error) = committed.await {
            if let (Some(index), Some(before)) = (index, before) {
                // In one step: half an index is none.
                let aside = index.with_extension("piton");
                std::fs::write(&aside, before)?;
                std::fs::rename(&aside, &index)?;
            }
            return Err(error);
        }
        let head = self.ask(&["rev-parse", "HEAD"]).await?;
        head.ok_or(Error::Failed { action: "commit", said: String::new() })
    }

    /// Brings the branch into a local branch: `into`, or the base.
    pub async fn merge(
        &self,
        into: Option<&str>,
        strategy: Strategy,
        message: Option<&str>,
    ) -> Result<Merged> {
        let into = into.map(str::to_owned).or_else(|| self.base.clone()).unwrap_or_default();
        let missing = || Error::BranchNotFound { name: into.clone() };
        let tip = self.tip(&into).await?.ok_or_else(missing)?;
        let branch = self.branch().await?.filter(|branch| *branch != into);
        let branch = branch.ok_or_else(|| Error::NoBranch { name: into.clone() })?;
        let changed = uncommitted(&self.folder).await?;
        if !changed.is_empty() {
            let path = self.folder.display().to_string();
            return Err(Error::Uncommitted { path, files: changed });
        }
        let source = self.tip(&branch).await?.ok_or_else(missing)?;
        let is_in = self.git(&["merge-base", "--is-ancestor", &source, &tip]).await?.success;
        if is_in {
            return Ok(Merged { into, commit: tip, was_up_to_date: true });
        }
        self.clear_apart().await?;
        let made = self.merge_apart(&branch, &into, (&source, &tip), strategy, message).await;
        let cleared = self.clear_apart().await;
        let commit = made?;
        cleared?;
        self.advance(&into, &tip, &commit).await?;
        if strategy == Strategy::Rebase && commit != source {
            // The branch is where its commits are now. Its work tree has no changes.
            self.git(&["reset", "--keep", "--quiet", &commit]).await?.good("reset")?;
        }
        Ok(Merged { into, commit, was_up_to_date: false })
    }

    /// Removes what an earlier merge left that was cut off.
    async fn clear_apart(&self) -> Result<()> {
        if self.apart.exists() {
            let apart = self.apart.display().to_string();
            let args = ["worktree", "remove", "--force", "--force", &apart];
            if !self.git(&args).await?.success {
                std::fs::remove_dir_all(&self.apart)?;
            }
        }
        self.git(&["worktree", "prune"]).await?.good("worktree").map(drop)
    }

    /// The commit that the base is to be at.
    async fn merge_apart(
        &self,
        branch: &str,
        into: &str,
        (source, tip): (&str, &str),
        strategy: Strategy,
        message: Option<&str>,
    ) -> Result<String> {
        let apart = self.apart.display().to_string();
        let start = if strategy == Strategy::Rebase { source } else { tip };
        self.git(&["worktree", "add", "--quiet", "--detach", &apart, start])
            .await?
            .good("worktree")?;
        let message = message.map_or_else(|| format!("Merge {branch} into {into}"), str::to_owned);
        let message = format!("--message={message}");
        let steps: Vec<(&'static str, Vec<&str>)> = match strategy {
            Strategy::Merge => {
                vec![("merge", vec!["merge", "--quiet", "--no-edit", &message, source])]
            }
            Strategy::Squash => vec![
                ("merge", vec!["merge", "--quiet", "--squash", source]),
                ("commit", vec!["commit", "--quiet", &message]),
            ],
            Strategy::Rebase => vec![("rebase", vec!["rebase", "--quiet", tip])],
        };
        for (action, args) in steps {
            let ended = run(&self.apart, &args, CHANGE_TIME_MAX).await?;
            if !ended.success {
                let unmerged = ["diff", "--name-only", "--diff-filter=U", "-z"];
                let unmerged = run(&self.apart, &unmerged, CHANGE_TIME_MAX).await?.stdout;
                let files: Vec<String> = unmerged
                    .split('\0')
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned)
                    .collect();
                if files.is_empty() {
                    return Err(Error::Failed { action, said: ended.said() });
                }
                let (branch, into) = (branch.to_owned(), into.to_owned());
                return Err(Error::Conflict { branch, into, files });
            }
        }
        let made = run(&self.apart, &["rev-parse", "HEAD"], CHANGE_TIME_MAX).await?;
        Ok(made.good("merge")?.trim().to_owned())
    }

    /// Moves the base forward, together with the work tree that it is checked out in, if it is.
    async fn advance(&self, into: &str, from: &str, to: &str) -> Result<()> {
        let listed =
            self.git(&["worktree", "list", "--porcelain", "-z"]).await?.good("worktree")?;
        let Some(checked_out) = work_tree_on(&listed, into) else {
            let name = format!("refs/heads/{into}");
            let why = "piton: merge";
            let args = ["update-ref", "-m", why, &name, to, from];
            return self.git(&args).await?.good("update-ref").map(drop);
        };
        let names = ["diff", "--name-only", "-z", from, to];
        let names = run(&checked_out, &names, CHANGE_TIME_MAX).await?.good("merge")?;
        let touched: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
        let changed = uncommitted(&checked_out).await?;
        let files: Vec<String> =
            changed.into_iter().filter(|name| touched.contains(&name.as_str())).collect();
        if !files.is_empty() {
            return Err(Error::Uncommitted { path: checked_out.display().to_string(), files });
        }
        let args = ["merge", "--quiet", "--ff-only", to];
        run(&checked_out, &args, CHANGE_TIME_MAX).await?.good("merge").map(drop)
    }

    /// Pushes the branch under its own name. Never overwrites what the remote has.
    pub async fn push(&self, remote: Option<&str>) -> Result<(String, String)> {
        let none = || Error::NoBranch { name: "HEAD".to_owned() };
        let branch = self.branch().await?.ok_or_else(none)?;
        let remotes = self.ask(&["remote"]).await?.unwrap_or_default();
        let known: Vec<&str> = remotes.lines().collect();
        let remote = match remote {
            Some(remote) => known.iter().find(|known| **known == remote).copied(),
            None => known.iter().find(|known| **known == "origin").or(known.first()).copied(),
        };
        let remote = remote.ok_or_else(|| Error::Failed {
            action: "push",
            said: "The repository has no such remote".to_owned(),
        })?;
        let refspec = format!("refs/heads/{branch}:refs/heads/{branch}");
        let args = ["push", "--porcelain", "--set-upstream", remote, &refspec];
        let ended = run(&self.folder, &args, PUSH_TIME_MAX).await?;
        if ended.success {
            return Ok((remote.to_owned(), branch));
        }
        // A line for each reference that was refused begins with an exclamation mark.
        let is_rejected = ended.stdout.lines().any(|line| line.starts_with('!'));
        let said = ended.said();
        Err(if is_rejected {
            Error::PushRejected { said }
        } else {
            Error::Failed { action: "push", said }
        })
    }
}

/// Files of a work tree with changes that are not committed.
async fn uncommitted(folder: &Path) -> Result<Vec<String>> {
    let args = ["--no-optional-locks", "status", "--porcelain=v1", "-z", "--no-renames"];
    let listed = run(folder, &args, CHANGE_TIME_MAX).await?.good("rev-parse")?;
    let path = |entry: &str| entry.get(3..).map(str::to_owned);
    Ok(listed.split('\0').filter(|entry| !entry.is_empty()).filter_map(path).collect())
}

/// The work tree that a branch is checked out in.
fn work_tree_on(listed: &str, branch: &str) -> Option<PathBuf> {
    let wanted = format!("branch refs/heads/{branch}");
    let mut path = None;
    for line in listed.split('\0') {
        if let Some(named) = line.strip_prefix("worktree ") {
            path = Some(PathBuf::from(named));
        } else if line == wanted {
            return path;
        }
    }
    None
}
