//! What a workspace says of itself after an interruption: HEAD, branch, what has changed and how much,
//! and what became of some paths. One answer, in a bounded time and of a bounded size, also for a tree
//! with hundreds of thousands of changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_core::interruption_summary::{PathState, Stat};
use piton_core::limits::CHANGED_FILES_MAX;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::git;
use crate::status::{STATUS, entry, take_header};
use crate::types::GitChange;
use crate::workspace::{Error, Workspace};

/// How long it may take; what is known by then is the answer.
pub const TRUTH_TIME_MAX: Duration = Duration::from_secs(2);
/// Of that, for what HEAD and branch are if git's listing was late.
const HEAD_TIME: Duration = Duration::from_millis(200);
/// Bytes of the paths that are named.
const NAMED_BYTES_MAX: usize = 128 * 1024;
/// Paths that can be asked for, and the bytes of each.
pub const TRUTH_PATHS_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 1024;
/// More than `git diff --shortstat` writes.
const STAT_BYTES_MAX: usize = 4 * 1024;
/// The tree without files, by the length of the repository's hashes: before the first commit, what is in
/// the index is compared with it.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const EMPTY_TREE_SHA256: &str = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthRequest {
    /// So many changed files are named; `None`: as many as by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_max: Option<usize>,
    /// Paths of which it is asked what became of them, absolute or relative to the workspace. The first
    /// [`TRUTH_PATHS_MAX`] are answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// What a workspace says of itself. `repository` is false where there is none; all else is then empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub repository: bool,
    pub branch: Option<String>,
    pub head: Option<String>,
    /// The first changed files, untracked ones too.
    pub changed: Vec<GitChange>,
    /// Changed files that are not among them; at least so many if `truncated`.
    pub more: u64,
    /// How tracked files differ from HEAD; `None`: that could not be counted in time.
    pub stat: Option<Stat>,
    /// Something could not be read in time, or is too long.
    pub truncated: bool,
    /// Of each path that was asked for, as it was spelled.
    #[serde(default)]
    pub paths: Vec<(String, PathState)>,
}

impl Workspace {
    /// Looks at the workspace. What is late is left out, and the answer says so; an error is what would
    /// be one at any time: no git, no folder, a repository that git refuses.
    pub async fn truth(&self, request: &TruthRequest) -> Result<Truth, Error> {
        self.truth_within(request, TRUTH_TIME_MAX).await
    }

    /// The same in another time. For tests.
    #[doc(hidden)]
    pub async fn truth_within(
        &self,
        request: &TruthRequest,
        within: Duration,
    ) -> Result<Truth, Error> {
        let deadline = Instant::now() + within.saturating_sub(HEAD_TIME);
        let late = || git::Error::Timeout { seconds: within.as_secs() };
        let prefix = tokio::time::timeout_at(deadline, self.git_prefix()).await;
        let Some(prefix) = prefix.map_err(|_| late())?? else { return Ok(Truth::default()) };
        let files_max = request.files_max.unwrap_or(CHANGED_FILES_MAX);
        let mut listing = Listing::new(prefix, files_max, self.asked(&request.paths));
        let mut listed = |record: &[u8]| listing.take(&String::from_utf8_lossy(record));
        let git = self.git();
        let (status, stat) = tokio::join!(
            git.sealed_records(STATUS, left(deadline), &mut listed),
            tokio::time::timeout_at(deadline, self.stat(deadline)),
        );
        let is_late = match status {
            Err(git::Error::Timeout { .. }) => true,
            status => status.map(|()| false)?,
        };
        if is_late {
            (listing.truth.branch, listing.truth.head) = self.branch_and_head().await;
        }
        let stat = match stat {
            Err(_) | Ok(Err(git::Error::Timeout { .. })) => None,
            Ok(stat) => stat?,
        };
        let Listing { mut truth, asked, .. } = listing;
        truth.repository = true;
        truth.stat = stat;
        truth.truncated |= is_late || stat.is_none();
        truth.paths = self.states(asked, is_late, deadline).await;
        Ok(truth)
    }

    /// How tracked files differ from the last commit, staged or not: a file that was staged and edited
    /// again is one file.
    async fn stat(&self, deadline: Instant) -> git::Result<Option<Stat>> {
        let git = self.git();
        let head = git.find(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).await?;
        let against = if let Some(head) = head {
            head
        } else {
            let format = git.ask(&["rev-parse", "--show-object-format"]).await?;
            let is_long = format.trim_end() == "sha256";
            if is_long { EMPTY_TREE_SHA256 } else { EMPTY_TREE }.to_owned()
        };
        let args = [
            "diff",
            "--shortstat",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--no-renames",
            "--relative",
            "--submodule=short",
            "--ignore-submodules=dirty",
            "--end-of-options",
            &against,
            "--",
            ".",
        ];
        let output = git.sealed(&args, STAT_BYTES_MAX, left(deadline)).await?;
        Ok(parse_stat(&output.text()))
    }

    /// What is known at once, whatever the work tree holds.
    async fn branch_and_head(&self) -> (Option<String>, Option<String>) {
        let asking = async {
            let git = self.git();
            let branch = git.find(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await;
            let head = git.find(&["rev-parse", "--verify", "--quiet", "HEAD"]).await;
            (branch.ok().flatten(), head.ok().flatten())
        };
        tokio::time::timeout(HEAD_TIME, asking).await.unwrap_or_default()
    }

    fn asked(&self, paths: &[String]) -> Vec<Asked> {
        let asked = |path: &String| {
            let relative = (path.len() <= PATH_BYTES_MAX)
                .then(|| self.inner.relative(Path::new(path)).ok())
                .flatten();
            Asked { spelled: path.clone(), relative, is_changed: false }
        };
        paths.iter().take(TRUTH_PATHS_MAX).map(asked).collect()
    }

    /// What became of each path. `is_late`: the listing of changes is not whole.
    async fn states(
        &self,
        asked: Vec<Asked>,
        is_late: bool,
        deadline: Instant,
    ) -> Vec<(String, PathState)> {
        if asked.is_empty() {
            return Vec::new();
        }
        let there = self
            .blocking(move |inner| {
                let state = |asked: &Asked| {
                    let Some(relative) = &asked.relative else { return Some(PathState::Outside) };
                    match inner.look(relative) {
                        Err(Error::NotFound { .. } | Error::NotFolder { .. }) => {
                            Some(PathState::Missing)
                        }
                        Err(Error::PathOutside { .. }) => Some(PathState::Outside),
                        _ if asked.is_changed => Some(PathState::Changed),
                        _ if is_late => Some(PathState::Unknown),
                        _ => None,
                    }
                };
                let states: Vec<_> = asked.iter().map(state).collect();
                Ok((asked, states))
            })
            .await;
        let Ok((asked, mut states)) = there else { return Vec::new() };
        let open: Vec<usize> = (0..asked.len()).filter(|at| states[*at].is_none()).collect();
        let tracked = self.tracked(&asked, &open, deadline).await;
        for (at, is_tracked) in open.into_iter().zip(tracked) {
            states[at] = Some(match is_tracked {
                Some(true) => PathState::Unchanged,
                Some(false) => PathState::Ignored,
                None => PathState::Unknown,
            });
        }
        let states = states.into_iter().map(|state| state.unwrap_or(PathState::Unknown));
        asked.into_iter().map(|asked| asked.spelled).zip(states).collect()
    }

    /// Which of these paths git tracks, or something below them.
    async fn tracked(
        &self,
        asked: &[Asked],
        open: &[usize],
        deadline: Instant,
    ) -> Vec<Option<bool>> {
        let paths: Vec<&str> =
            open.iter().filter_map(|at| asked[*at].relative.as_ref()?.to_str()).collect();
        if paths.is_empty() {
            return vec![None; open.len()];
        }
        let mut args = vec!["ls-files", "-z", "--"];
        args.extend(&paths);
        let mut tracked = vec![false; paths.len()];
        let mut each = |record: &[u8]| {
            let record = String::from_utf8_lossy(record);
            for (path, is_tracked) in paths.iter().zip(&mut tracked) {
                *is_tracked |= is_at_or_below(&record, path);
            }
        };
        let listed = self.git().records(&args, left(deadline), &mut each).await;
        tracked.into_iter().map(|is_tracked| listed.is_ok().then_some(is_tracked)).collect()
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A path that was asked for.
#[derive(Debug)]
struct Asked {
    spelled: String,
    /// `None`: it is not in the workspace.
    relative: Option<PathBuf>,
    is_changed: bool,
}

/// git's list of changes, as it comes.
struct Listing {
    prefix: String,
    files_max: usize,
    asked: Vec<Asked>,
    truth: Truth,
    named_bytes: usize,
    /// The next record is the name that a file had.
    is_old_name: bool,
}

impl Listing {
    fn new(prefix: String, files_max: usize, asked: Vec<Asked>) -> Self {
        let (truth, named_bytes, is_old_name) = (Truth::default(), 0, false);
        Self { prefix, files_max, asked, truth, named_bytes, is_old_name }
    }

    fn take(&mut self, record: &str) {
        if std::mem::take(&mut self.is_old_name) {
            return self.mark(record);
        }
        if let Some(header) = record.strip_prefix("# ") {
            return take_header(header, &mut self.truth.branch, &mut self.truth.head);
        }
        let Some(entry) = entry(record) else { return };
        self.is_old_name = entry.has_old_name;
        let path = entry.path.strip_prefix(&*self.prefix).unwrap_or(entry.path).to_owned();
        self.mark(&path);
        let bytes = self.named_bytes + path.len();
        let changed = &mut self.truth.changed;
        // In the order in which git lists them: none is left out before one that is named.
        let is_first = self.truth.more == 0;
        if is_first && changed.len() < self.files_max && bytes <= NAMED_BYTES_MAX {
            self.named_bytes = bytes;
            changed.push(GitChange { status: entry.letters.to_owned(), path });
        } else {
            self.truth.truncated |= changed.len() < self.files_max;
            self.truth.more += 1;
        }
    }

    fn mark(&mut self, path: &str) {
        let path = path.strip_prefix(&*self.prefix).unwrap_or(path);
        for asked in &mut self.asked {
            let relative = asked.relative.as_deref().and_then(Path::to_str);
            asked.is_changed |= relative.is_some_and(|of| is_at_or_below(path, of));
        }
    }
}

/// Whether a path is this one, or below it.
fn is_at_or_below(path: &str, of: &str) -> bool {
    let below = path.strip_prefix(of);
    of == "." || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// ` 3 files changed, 10 insertions(+), 2 deletions(-)`, of which each part may be left out.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut stat = Stat::default();
    for part in text.trim().split(", ").filter(|part| !part.is_empty()) {
        let (count, what) = part.split_once(' ')?;
        let count = count.parse().ok()?;
        match what {
            _ if what.starts_with("file") => stat.files = count,
            _ if what.starts_with("insertion") => stat.added = count,
            _ if what.starts_with("deletion") => stat.removed = count,
            _ => return None,
        }
    }
    Some(stat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_is_read_with_any_of_its_parts() {
        let stat = |files, added, removed| Some(Stat { files, added, removed });
        let all = " 3 files changed, 10 insertions(+), 2 deletions(-)\n";
        assert_eq!(parse_stat(all), stat(3, 10, 2));
        assert_eq!(parse_stat(" 1 file changed, 1 deletion(-)\n"), stat(1, 0, 1));
        assert_eq!(parse_stat(" 2 files changed\n"), stat(2, 0, 0));
        assert_eq!(parse_stat(""), stat(0, 0, 0));
        assert_eq!(parse_stat("error: no"), None);
    }
}
