//! What a worktree has that is nowhere else.

use std::fmt;
use std::path::Path;

use piton_core::Reason;
use piton_core::worktree::WorktreePlan;

use crate::git::{CHANGE_TIME_MAX, Git, OUTPUT_BYTES_MAX, Runner};

use super::{Error, Result, entries, tip};

/// How many of each kind are named.
const NAMED_MAX: usize = 20;
/// How many commits are counted.
const COMMITS_MAX: usize = 1_000;

/// What would be lost with a worktree and its branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsavedWork {
    /// Files that differ from what is committed.
    pub changed: Vec<String>,
    /// Files that git does not know, but for those that it ignores.
    pub untracked: Vec<String>,
    /// Commits that no other branch, tag or remote has, newest first: id and subject.
    pub commits: Vec<String>,
    /// Submodules were set up in it; what is in them is not looked at.
    pub submodules: bool,
}

impl UnsavedWork {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for UnsavedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let kinds = [
            (&self.changed, "uncommitted change", "uncommitted changes"),
            (&self.untracked, "untracked file", "untracked files"),
            (&self.commits, "unpushed commit", "unpushed commits"),
        ];
        for (found, one, many) in kinds {
            let named = found.iter().take(NAMED_MAX).map(String::as_str);
            let more = match found.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            match found.len() {
                0 => {}
                n => {
                    let what = if n == 1 { one } else { many };
                    let named: Vec<&str> = named.collect();
                    parts.push(format!("{n} {what} ({}{more})", named.join(", ")));
                }
            }
        }
        if self.submodules {
            parts.push("submodules, which are not looked into".to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

pub(super) async fn of(runner: &Runner, plan: &WorktreePlan) -> Result<UnsavedWork> {
    if !Path::new(&plan.repository).is_dir() {
        // Without the repository it is unknown which work exists elsewhere.
        return Err(Error::unusable(plan, Reason::RepositoryMissing));
    }
    let repository = runner.at(&plan.repository);
    let entries = entries(&repository).await?;
    let entry = entries.iter().find(|entry| entry.path == plan.path);
    let folder = Path::new(&plan.path);
    let mut losses = UnsavedWork::default();
    match (folder.symlink_metadata().is_ok(), entry) {
        (true, Some(_)) if folder.join(".git").is_file() => {
            let git = runner.at(folder);
            in_folder(&git, &mut losses).await?;
            let modules = git.ask(&["rev-parse", "--git-path", "modules"]).await?;
            losses.submodules = folder.join(modules.trim_end_matches('\n')).is_dir();
        }
        // Files without a git that could tell what is in them.
        (true, _) => return Err(Error::Occupied { path: plan.path.clone() }),
        (false, _) => {}
    }
    // It may stand on no branch at all.
    let tips = [tip(&repository, &plan.branch).await?, entry.and_then(|entry| entry.head.clone())];
    let tips: Vec<&str> = tips.iter().flatten().map(String::as_str).collect();
    if !tips.is_empty() {
        losses.commits = commits(&repository, plan, &tips).await?;
    }
    Ok(losses)
}

/// What is in the work tree and not in a commit.
async fn in_folder(git: &Git, losses: &mut UnsavedWork) -> Result<()> {
    let args = [
        "status",
        "--porcelain=v2",
        "-z",
        "--no-renames",
        "--untracked-files=all",
        "--ignore-submodules=dirty",
    ];
    // If there is too much to read, its beginning is enough to keep the worktree.
    let text = git.sealed(&args, OUTPUT_BYTES_MAX, CHANGE_TIME_MAX).await?.text();
    for record in text.split('\0') {
        // A path comes last; before it a number of fields that depends on the kind.
        let (fields, into) = match record.split_once(' ').map(|(kind, _)| kind) {
            Some("1") => (9, &mut losses.changed),
            Some("u") => (11, &mut losses.changed),
            Some("?") => (2, &mut losses.untracked),
            _ => continue,
        };
        into.extend(record.splitn(fields, ' ').last().map(str::to_owned));
    }
    Ok(())
}

async fn commits(git: &Git, plan: &WorktreePlan, tips: &[&str]) -> Result<Vec<String>> {
    let (count, not_this) =
        (format!("--max-count={COMMITS_MAX}"), format!("--exclude={}", plan.branch));
    let mut args = vec!["log", "-z", "--no-color", &count, "--format=%h %s"];
    args.extend(tips);
    args.extend(["--not", &not_this, "--branches", "--remotes", "--tags", "--"]);
    let text = git.ask(&args).await?;
    Ok(text.split('\0').filter(|commit| !commit.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_lost_is_reported_in_one_line() {
        let names = |n: usize| (0..n).map(|n| format!("f{n}")).collect::<Vec<_>>();
        let losses = UnsavedWork {
            changed: names(1),
            untracked: names(22),
            commits: vec!["abc Do it".to_owned(), "def Begin".to_owned()],
            submodules: true,
        };
        let untracked = names(20).join(", ");
        let expected = format!(
            "1 uncommitted change (f0); 22 untracked files ({untracked} and 2 more); \
             2 unpushed commits (abc Do it, def Begin); submodules, which are not looked into"
        );
        assert_eq!(losses.to_string(), expected);
        assert!(UnsavedWork::default().is_empty() && !losses.is_empty());
    }
}
