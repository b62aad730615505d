//! What git says about the workspace. git is run so that it changes nothing, runs no program that
//! a repository's configuration names for it (hooks, monitors, filters, external diffs, pagers,
//! transports), and asks nobody.
//!
//! - Filters are known by the names that the configuration has for them, and all are emptied: a
//!   file that one of them would change is compared as it lies there.
//! - Submodules are looked at from outside only: the git that would look inside is another process,
//!   which reads the submodule's own configuration and gets none of these settings.
//! - What a partial clone does not have is not fetched.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use piton_exec::protocol::workspace::{
    DIFF_BYTES_MAX, GitChange, GitCommit, GitDiff, GitStatus, LIST_MAX, LOG_MAX,
};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{Error, Workspace};
use crate::tree::{Part, Program, Streams};

const GIT_TIME_MAX: Duration = Duration::from_secs(10);
const STATUS_BYTES_MAX: usize = 4 * 1024 * 1024;
const COMPLAINT_BYTES_MAX: usize = 4 * 1024;

struct Output {
    bytes: Vec<u8>,
    truncated: bool,
}

/// What git answers, or that there is no repository.
enum Answer {
    Output(Output),
    NoRepository,
}

impl Workspace {
    pub async fn git_status(&self) -> Result<GitStatus, Error> {
        let Some(prefix) = self.git_prefix().await? else { return Ok(GitStatus::default()) };
        let args = [
            "status",
            "--porcelain=v2",
            "-z",
            "--branch",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
            "--",
            ".",
        ];
        match self.git_unfiltered(&args, STATUS_BYTES_MAX).await? {
            Answer::NoRepository => Ok(GitStatus::default()),
            Answer::Output(output) => Ok(parse_status(&output, &prefix)),
        }
    }

    /// What has changed: in the work tree, or, if `staged`, in the index; of one path, or of all.
    pub async fn git_diff(&self, staged: Staged, path: Option<&Path>) -> Result<GitDiff, Error> {
        let path = match path {
            Some(path) => self.inner.relative(path)?,
            None => ".".into(),
        };
        let mut args = vec!["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative"];
        args.extend(["--submodule=short", "--ignore-submodules=dirty"]);
        if staged == Staged::Yes {
            args.push("--cached");
        }
        let path = path.to_string_lossy();
        args.extend(["--", &*path]);
        // Outside a repository `git diff` compares files instead.
        if self.git_prefix().await?.is_none() {
            return Ok(GitDiff::default());
        }
        let Answer::Output(mut output) = self.git_unfiltered(&args, DIFF_BYTES_MAX).await? else {
            return Ok(GitDiff::default());
        };
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
        let head = ["rev-parse", "--verify", "--quiet", "HEAD"];
        match self.git(&head, COMPLAINT_BYTES_MAX).await? {
            // Quiet and empty: a branch without a commit.
            Answer::Output(output) if !output.bytes.is_empty() => {}
            _ => return Ok(Vec::new()),
        }
        let args = ["log", "-z", "--no-color", &count, "--format=%H%x00%an%x00%aI%x00%s"];
        let Answer::Output(output) = self.git(&args, STATUS_BYTES_MAX).await? else {
            return Ok(Vec::new());
        };
        let text = String::from_utf8_lossy(&output.bytes);
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
    async fn git_prefix(&self) -> Result<Option<String>, Error> {
        let args = ["rev-parse", "--is-inside-work-tree", "--show-prefix"];
        let Answer::Output(output) = self.git(&args, STATUS_BYTES_MAX).await? else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&output.bytes);
        let prefix = text.strip_prefix("true\n").map(|prefix| prefix.trim_end_matches('\n'));
        Ok(prefix.map(str::to_owned))
    }

    async fn git(&self, args: &[&str], bytes_max: usize) -> Result<Answer, Error> {
        in_time(self.git_unbounded(args, &BTreeSet::new(), bytes_max)).await
    }

    /// For what reads files of the work tree.
    async fn git_unfiltered(&self, args: &[&str], bytes_max: usize) -> Result<Answer, Error> {
        in_time(async {
            let filters = self.filters().await?;
            self.git_unbounded(args, &filters, bytes_max).await
        })
        .await
    }

    /// The names of all filters that are configured anywhere. Reading a configuration runs nothing.
    async fn filters(&self) -> Result<BTreeSet<String>, Error> {
        let args = ["config", "--null", "--name-only", "--get-regexp", r"^filter\."];
        let Answer::Output(output) =
            self.git_unbounded(&args, &BTreeSet::new(), STATUS_BYTES_MAX).await?
        else {
            return Ok(BTreeSet::new());
        };
        if output.truncated {
            let message = "It has more filters than can be switched off".to_owned();
            return Err(Error::GitFailed { message });
        }
        // A name that is no text cannot be handed on, and would be left in force.
        let text = String::from_utf8(output.bytes).map_err(|_| Error::GitFailed {
            message: "A filter in git's configuration has a name that is not UTF-8".to_owned(),
        })?;
        let names = text.split('\0').filter_map(|key| {
            let (name, _) = key.strip_prefix("filter.")?.rsplit_once('.')?;
            Some(name.to_owned())
        });
        Ok(names.collect())
    }

    async fn git_unbounded(
        &self,
        args: &[&str],
        filters: &BTreeSet<String>,
        bytes_max: usize,
    ) -> Result<Answer, Error> {
        let before = ["git", "--no-optional-locks", "--no-pager", "--literal-pathspecs"];
        let settings = [
            "core.fsmonitor=false",
            "core.hooksPath=/dev/null",
            "core.quotePath=false",
            "log.showSignature=false",
            "credential.helper=",
            "status.submoduleSummary=false",
            "protocol.allow=never",
        ];
        let mut command: Vec<String> = before.iter().map(ToString::to_string).collect();
        command.extend(settings.iter().flat_map(|set| ["-c".to_owned(), (*set).to_owned()]));
        command.extend(args.iter().map(ToString::to_string));
        let mut env: Vec<(String, String)> = [
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            // None: not even a path, behind which a program could be named.
            ("GIT_ALLOW_PROTOCOL", ""),
            ("LC_ALL", "C"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        env.extend(without(filters));
        let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let program = Program {
            command,
            cwd: self.root().to_owned(),
            env,
            // They would point git at another repository, or give it programs to run.
            env_remove: ours.filter(|name| name.starts_with("GIT_")).collect(),
            part: Part::Own,
            streams: Streams::Piped,
        };
        let failed = |error: std::io::Error| Error::GitFailed { message: error.to_string() };
        let mut child = self.tree().spawn(program).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::GitMissing,
            _ => failed(error),
        })?;
        let group = Group(child.id());
        drop(child.stdin.take());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let complaint = tokio::spawn(bounded(stderr, COMPLAINT_BYTES_MAX));
        let output = bounded(stdout, bytes_max).await.map_err(failed)?;
        if output.truncated {
            group.kill();
        }
        let status = child.wait().await.map_err(failed)?;
        // Waited for, its pid may become another's.
        group.ended();
        if output.truncated || status.success() {
            return Ok(Answer::Output(output));
        }
        let complaint = complaint.await.map_err(|_| Error::Interrupted)?.map_err(failed)?;
        let complaint = String::from_utf8_lossy(&complaint.bytes);
        if complaint.contains("not a git repository") {
            return Ok(Answer::NoRepository);
        }
        // What was asked quietly and is not there.
        if complaint.is_empty() && output.bytes.is_empty() {
            return Ok(Answer::Output(output));
        }
        let message = complaint.lines().next().unwrap_or_default().to_owned();
        Err(Error::GitFailed { message })
    }
}

async fn in_time(run: impl Future<Output = Result<Answer, Error>>) -> Result<Answer, Error> {
    match tokio::time::timeout(GIT_TIME_MAX, run).await {
        Ok(answer) => answer,
        // Dropped with its future, git and its helpers are killed.
        Err(_) => Err(Error::GitTimeout { seconds: GIT_TIME_MAX.as_secs() }),
    }
}

/// Settings that empty these filters; as variables, since a name may have any character in it.
fn without(filters: &BTreeSet<String>) -> Vec<(String, String)> {
    let settings = filters.iter().flat_map(|name| {
        [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")]
            .map(|(key, value)| (format!("filter.{name}.{key}"), value))
    });
    let mut env = Vec::new();
    let mut count = 0;
    for (key, value) in settings {
        env.push((format!("GIT_CONFIG_KEY_{count}"), key));
        env.push((format!("GIT_CONFIG_VALUE_{count}"), value.to_owned()));
        count += 1;
    }
    env.push(("GIT_CONFIG_COUNT".to_owned(), count.to_string()));
    env
}

/// git's process group: it may have helpers.
struct Group(Option<u32>);

impl Group {
    fn kill(&self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let _ = pid.map(|pid| rustix::process::kill_process_group(pid, Signal::KILL));
    }

    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    Yes,
    No,
}

/// Reads to the end, or until there is more than is wanted.
async fn bounded(
    from: Option<impl AsyncRead + Unpin>,
    bytes_max: usize,
) -> std::io::Result<Output> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(bytes_max as u64 + 1).read_to_end(&mut bytes).await?;
    }
    let truncated = bytes.len() > bytes_max;
    bytes.truncate(bytes_max);
    Ok(Output { bytes, truncated })
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
            match header.split_once(' ') {
                Some(("branch.oid", "(initial)") | ("branch.head", "(detached)")) => {}
                Some(("branch.oid", id)) => status.head = Some(id.to_owned()),
                Some(("branch.head", name)) => status.branch = Some(name.to_owned()),
                _ => {}
            }
            continue;
        }
        let (letters, path) = match record.split_once(' ') {
            Some(("1", rest)) => (rest.get(..2), rest.splitn(8, ' ').nth(7)),
            Some(("2", rest)) => {
                records.next();
                (rest.get(..2), rest.splitn(9, ' ').nth(8))
            }
            Some(("u", rest)) => (rest.get(..2), rest.splitn(10, ' ').nth(9)),
            Some(("?", path)) => (Some("??"), Some(path)),
            _ => continue,
        };
        let (Some(letters), Some(path)) = (letters, path) else { continue };
        if status.changed.len() == LIST_MAX {
            status.truncated = true;
            break;
        }
        let path = path.strip_prefix(prefix).unwrap_or(path).to_owned();
        status.changed.push(GitChange { status: letters.to_owned(), path });
    }
    status
}
