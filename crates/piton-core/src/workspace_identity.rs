//! Where an agent works: recorded when a turn begins, and compared before an interrupted run is resumed.

use serde::{Deserialize, Serialize};

use crate::reason::Reason;
use crate::time::Timestamp;

/// An interruption that is older is mentioned, in milliseconds.
pub const INTERRUPTED_LONG_AGO_MS: i64 = 25 * 60 * 1_000;

/// Which repository a workspace is in, and where in it. All empty: it is in none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceIdentity {
    /// The folder that all worktrees of the repository share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// `None`: HEAD is on no branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// `None`: there is no commit yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
}

/// What the workspace is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceNow {
    /// Why the folder cannot be used.
    Missing(Reason),
    /// `None`: its repository could not be read.
    There(Option<WorkspaceIdentity>),
}

/// How the workspace of an interrupted run differs from what it was when its turn began. Only a
/// missing workspace keeps the run from being resumed.
pub fn differences(
    began_in: Option<&WorkspaceIdentity>,
    now_in: &WorkspaceNow,
    interrupted_at: Option<Timestamp>,
    now: Timestamp,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    match (began_in, now_in) {
        (_, WorkspaceNow::Missing(reason)) => reasons.push(*reason),
        (Some(before), WorkspaceNow::There(Some(after))) => {
            if before.repository != after.repository {
                reasons.push(Reason::RepositoryChanged);
            } else if before.branch != after.branch {
                reasons.push(Reason::BranchChanged);
            }
        }
        _ => {}
    }
    let age_ms = interrupted_at.map_or(0, |at| now.as_millis().saturating_sub(at.as_millis()));
    if age_ms > INTERRUPTED_LONG_AGO_MS {
        reasons.push(Reason::InterruptedLongAgo);
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(repository: &str, branch: Option<&str>) -> WorkspaceIdentity {
        let branch = branch.map(str::to_owned);
        WorkspaceIdentity { repository: Some(repository.to_owned()), branch, head: None }
    }

    #[test]
    fn each_difference_is_a_reason_of_its_own() {
        let began = identity("/a/.git", Some("main"));
        let at = |minutes: i64| Timestamp::from_millis(minutes * 60_000);
        let of = |now_in: WorkspaceNow, minutes| {
            differences(Some(&began), &now_in, Some(at(0)), at(minutes))
        };
        let there = |identity| WorkspaceNow::There(Some(identity));
        assert_eq!(of(there(began.clone()), 25), []);
        assert_eq!(of(there(began.clone()), 26), [Reason::InterruptedLongAgo]);
        assert_eq!(of(there(identity("/a/.git", Some("x"))), 1), [Reason::BranchChanged]);
        assert_eq!(of(there(identity("/a/.git", None)), 1), [Reason::BranchChanged]);
        assert_eq!(of(there(identity("/b/.git", Some("x"))), 1), [Reason::RepositoryChanged]);
        assert_eq!(of(there(WorkspaceIdentity::default()), 1), [Reason::RepositoryChanged]);
        assert_eq!(of(WorkspaceNow::There(None), 1), []);
        let both = [Reason::WorktreeMissing, Reason::InterruptedLongAgo];
        assert_eq!(of(WorkspaceNow::Missing(Reason::WorktreeMissing), 90), both);
        // A log of an earlier version says nothing of it.
        assert_eq!(differences(None, &there(began.clone()), Some(at(0)), at(1)), []);
    }
}
