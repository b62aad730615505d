//! What git says about a workspace: status, diff, log.

use std::path::Path;

use crate::git::{LOOK_TIME_MAX, OUTPUT_BYTES_MAX, Output};
use crate::types::{DIFF_BYTES_MAX, GitChange, GitCommit, GitDiff, GitStatus, LIST_MAX, LOG_MAX};
use crate::workspace::{Error, Workspace};

/// git's second format: see [`entry`].
pub(crate) const STATUS: &[&str] = &[
    "status",
    "--porcelain=v2",
    "-z",
    "--branch",
    "--untracked-files=all",
    "--ignore-submodules=dirty",
    "--",
    ".",
];

/// Which changes: those in the index, or those that are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    Yes,
    No,
}

impl Workspace {
    pub async fn git_status(&self) -> Result<GitStatus, Error> {
        let Some(prefix) = self.git_prefix().await? else { return Ok(GitStatus::default()) };
        let output = self.git().sealed(STATUS, OUTPUT_BYTES_MAX, LOOK_TIME_MAX).await?;
        Ok(parse_status(&output, &prefix))
    }

    /// What has changed: in the work tree, or, if `staged`, in the index; of one path, or of all.
    pub async fn git_diff(&self, staged: Staged, path: Option<&Path>) -> Result<GitDiff, Error> {
        let which: &[&str] = if staged == Staged::Yes { &["--cached"] } else { &[] };
        self.diff(which, path).await
    }

    /// What has changed since a commit, in commits and in the work tree; files that are not tracked are
    /// left out.
    pub async fn git_diff_since(
        &self,
        commit: &str,
        path: Option<&Path>,
    ) -> Result<GitDiff, Error> {
        self.diff(&["--end-of-options", commit], path).await
    }

    async fn diff(&self, which: &[&str], path: Option<&Path>) -> Result<GitDiff, Error> {
        let path = match path {
            Some(path) => self.inner.relative(path)?,
            None => ".".into(),
        };
        let mut args = vec!["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative"];
        args.extend(["--submodule=short", "--ignore-submodules=dirty"]);
        args.extend(which);
        let path = path.to_string_lossy();
        args.extend(["--", &*path]);
        // Outside a repository `git diff` compares files instead.
        if self.git_prefix().await?.is_none() {
            return Ok(GitDiff::default());
        }
        let mut output = self.git().sealed(&args, DIFF_BYTES_MAX, LOOK_TIME_MAX).await?;
        if output.truncated {
            let whole = output.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            output.bytes.truncate(whole);
        }
        let diff = String::from_utf8_lossy(&output.bytes).into_owned();
        Ok(GitDiff { diff, truncated: output.truncated })
    }

    /// The newest commits, at most [`LOG_MAX`].
    pub async fn git_log(&self, limit: usize) -> Result<Vec<GitCommit>, Error> {
        let count = format!("--max-count={}", limit.min(LOG_MAX));
        let git = self.git();
        match git.find(&["rev-parse", "--verify", "--quiet", "HEAD"]).await {
            // A branch without a commit.
            Ok(None) => return Ok(Vec::new()),
            Err(error) if error.is_no_repository() => return Ok(Vec::new()),
            found => found?,
        };
        let args = ["log", "-z", "--no-color", &count, "--format=%H%x00%an%x00%aI%x00%s"];
        let text = git.output(&args, OUTPUT_BYTES_MAX).await?.text();
        let fields: Vec<&str> = text.split('\0').collect();
        let commits = fields.chunks_exact(4).map(|fields| GitCommit {
            id: fields[0].to_owned(),
            author: fields[1].to_owned(),
            at: fields[2].to_owned(),
            subject: fields[3].to_owned(),
        });
        Ok(commits.collect())
    }

    /// Where in the repository's work tree the workspace is; `None`: in no work tree.
    pub(crate) async fn git_prefix(&self) -> Result<Option<String>, Error> {
        let args = ["rev-parse", "--is-inside-work-tree", "--show-prefix"];
        let text = match self.git().ask(&args).await {
            Err(error) if error.is_no_repository() => return Ok(None),
            text => text?,
        };
        let prefix = text.strip_prefix("true\n").map(|prefix| prefix.trim_end_matches('\n'));
        Ok(prefix.map(str::to_owned))
    }
}

/// git's second format: records that end in NUL. A renamed file has its old name in a record of
/// its own.
fn parse_status(output: &Output, prefix: &str) -> GitStatus {
    let mut status =
        GitStatus { repository: true, truncated: output.truncated, ..GitStatus::default() };
    let text = String::from_utf8_lossy(&output.bytes);
    let mut records: Vec<&str> = text.split('\0').collect();
    // After the last NUL comes nothing, or a record that was cut.
    records.pop();
    let mut records = records.into_iter();
    while let Some(record) = records.next() {
        if let Some(header) = record.strip_prefix("# ") {
            take_header(header, &mut status.branch, &mut status.head);
            continue;
        }
        let Some(Entry { letters, path, has_old_name }) = entry(record) else { continue };
        if has_old_name {
            records.next();
        }
        if status.changed.len() == LIST_MAX {
            status.truncated = true;
            break;
        }
        let path = path.strip_prefix(prefix).unwrap_or(path).to_owned();
        status.changed.push(GitChange { status: letters.to_owned(), path });
    }
    status
}

/// What a header says of branch and commit.
pub(crate) fn take_header(header: &str, branch: &mut Option<String>, head: &mut Option<String>) {
    match header.split_once(' ') {
        Some(("branch.oid", "(initial)") | ("branch.head", "(detached)")) => {}
        Some(("branch.oid", id)) => *head = Some(id.to_owned()),
        Some(("branch.head", name)) => *branch = Some(name.to_owned()),
        _ => {}
    }
}

/// A record about one path.
pub(crate) struct Entry<'a> {
    /// Git's two letters: index and work tree.
    pub(crate) letters: &'a str,
    pub(crate) path: &'a str,
    /// The next record is the name that it had.
    pub(crate) has_old_name: bool,
}

pub(crate) fn entry(record: &str) -> Option<Entry<'_>> {
    let (letters, path, has_old_name) = match record.split_once(' ')? {
        ("1", rest) => (rest.get(..2), rest.splitn(8, ' ').nth(7), false),
        ("2", rest) => (rest.get(..2), rest.splitn(9, ' ').nth(8), true),
        ("u", rest) => (rest.get(..2), rest.splitn(10, ' ').nth(9), false),
        ("?", path) => (Some("??"), Some(path), false),
        _ => return None,
    };
    Some(Entry { letters: letters?, path: path?, has_old_name })
}
