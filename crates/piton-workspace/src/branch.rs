//! How a branch stands to its base. Every client that may read a session may ask, so git runs no program
//! that the repository names, unlike in [`crate::finish`].

use crate::git::{LOOK_TIME_MAX, OUTPUT_BYTES_MAX};
use crate::workspace::{Error, Workspace};

/// How a branch stands to its base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchReport {
    /// `None`: the work tree is on a commit.
    pub branch: Option<String>,
    pub head: Option<String>,
    /// The local branch that the work can go into; `None`: it is not known, or does not exist.
    pub base: Option<String>,
    /// The commit that both have.
    pub merge_base: Option<String>,
    /// Commits that the base does not have, and that it alone has.
    pub ahead: u64,
    pub behind: u64,
    /// Files with changes that are not committed, in the whole work tree.
    pub uncommitted: usize,
    pub remotes: Vec<String>,
}

impl Workspace {
    /// `base` is the local branch that the work began at, if it is known. Of a folder in no repository
    /// the report is empty.
    pub async fn branch_report(&self, base: Option<&str>) -> Result<BranchReport, Error> {
        let git = self.git();
        match git.ask(&["rev-parse", "--git-dir"]).await {
            Err(error) if error.is_no_repository() => return Ok(BranchReport::default()),
            found => found?,
        };
        let branch = git.find(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
        let head = git.find(&["rev-parse", "--verify", "--quiet", "HEAD"]).await?;
        let remotes = git.ask(&["remote"]).await?;
        let mut report = BranchReport {
            branch,
            head,
            uncommitted: self.uncommitted_files().await?,
            remotes: remotes.lines().map(str::to_owned).collect(),
            ..BranchReport::default()
        };
        let (Some(base), Some(_)) = (base, &report.head) else { return Ok(report) };
        let name = format!("refs/heads/{base}^{{commit}}");
        let tip = ["rev-parse", "--verify", "--quiet", "--end-of-options", &name];
        let Some(tip) = git.find(&tip).await? else { return Ok(report) };
        report.base = Some(base.to_owned());
        report.merge_base = git.find(&["merge-base", "HEAD", &tip]).await?;
        let range = format!("{tip}...HEAD");
        let counts = git.ask(&["rev-list", "--left-right", "--count", &range]).await?;
        if let Some((behind, ahead)) = counts.trim_end().split_once('\t') {
            (report.behind, report.ahead) =
                (behind.parse().unwrap_or(0), ahead.parse().unwrap_or(0));
        }
        Ok(report)
    }

    async fn uncommitted_files(&self) -> Result<usize, Error> {
        let args = ["status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=dirty"];
        let listed = self.git().sealed(&args, OUTPUT_BYTES_MAX, LOOK_TIME_MAX).await?;
        Ok(listed.bytes.split(|byte| *byte == 0).count().saturating_sub(1))
    }
}
