//! A session's git worktree: what the log says of it, what the disk has to show for it, and whether
//! the two fit. Values only; the code that runs git asks here first.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::id::SessionId;
use crate::reason::Reason;
use crate::state::Facts;

/// What begins the name of every branch that is made for a session; only those are ever deleted.
const BRANCH: &str = "piton";
/// How much of each end of an id is in a branch's name.
const ID_END_CHARS: usize = 8;

/// A worktree as it is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorktreePlan {
    /// The folder to work in.
    pub path: String,
    /// The work tree of the repository that it belongs to.
    pub repository: String,
    /// Its own branch.
    pub branch: String,
    /// What the branch begins at, as the request named it.
    pub base: String,
    /// The commit that this was.
    pub base_commit: String,
}

/// What the log says of a session's worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    #[serde(flatten)]
    pub plan: WorktreePlan,
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It may be there, or a part of it, or nothing; no agent has worked in it.
    Planned,
    Prepared,
    Removed {
        kept_branch: bool,
    },
}

impl Worktree {
    pub fn is_prepared(&self) -> bool {
        self.stage == Stage::Prepared
    }
}

impl WorktreePlan {
    /// Whether it is what this program plans for a session with its worktrees in `root`. A log may
    /// come from elsewhere, in a bundle: what it names is not removed, nor handed to git, unless it
    /// is ours.
    pub fn is_ours(&self, session: &SessionId, root: &Path) -> bool {
        let is_commit = |c: char| c.is_ascii_hexdigit();
        Path::new(&self.path) == root.join(session.as_str())
            && Path::new(&self.repository).is_absolute()
            && branches(session).any(|name| name == self.branch)
            && self.base_commit.len() >= 40
            && self.base_commit.chars().all(is_commit)
    }
}

/// The names that a session's branch may have, the best first. A repository with a branch `piton`
/// can have none below it.
pub fn branches(session: &SessionId) -> impl Iterator<Item = String> {
    let id = session.as_str();
    let id = id.strip_prefix(SessionId::PREFIX).unwrap_or(id);
    // The beginning is what people type, and the same for all that are made in one minute.
    let short = match id.len() {
        len if len > 2 * ID_END_CHARS + 1 => {
            format!("{}-{}", &id[..ID_END_CHARS], &id[len - ID_END_CHARS..])
        }
        _ => id.to_owned(),
    };
    let names = [short, session.as_str().to_owned()];
    ["/", "-"].into_iter().flat_map(move |between| {
        names.clone().into_iter().map(move |name| format!("{BRANCH}{between}{name}"))
    })
}

/// What the disk says about a worktree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is the answer to a question of its own")]
pub struct WorktreeFacts {
    /// The repository is where it was.
    pub repository: bool,
    /// The worktree's folder is there and belongs to git.
    pub folder: bool,
    /// The repository knows the worktree.
    pub registered: bool,
    /// The branch that the worktree is on; none if it is on a commit.
    pub on: Option<String>,
    /// Its own branch is in the repository.
    pub branch: bool,
    /// The commit that it began at is in the repository.
    pub base: bool,
}

/// Whether a worktree can be worked in, or made if it is only planned; else the first thing that is
/// in the way, those first that nothing else can be done without.
pub fn judge(worktree: &Worktree, seen: &WorktreeFacts) -> Result<(), Reason> {
    if !seen.repository {
        return Err(Reason::RepositoryMissing);
    }
    let base = if seen.base { Ok(()) } else { Err(Reason::BaseMissing) };
    if worktree.stage == Stage::Planned {
        return base;
    }
    // Renamed, or left for another one: the work is on that.
    let is_on_another = seen.on.as_ref().is_some_and(|on| *on != worktree.plan.branch);
    if !seen.branch && !is_on_another {
        return Err(Reason::BranchMissing);
    }
    if !seen.folder || !seen.registered || !worktree.is_prepared() {
        return Err(Reason::WorktreeMissing);
    }
    base
}

impl Facts {
    pub(crate) fn apply_workspace(&mut self, event: &Event) {
        match event {
            Event::WorkspacePlanned(e) => {
                self.worktree = Some(Worktree { plan: e.plan.clone(), stage: Stage::Planned });
            }
            Event::WorkspacePrepared(e) => {
                self.worktree = Some(Worktree { plan: e.plan.clone(), stage: Stage::Prepared });
            }
            Event::WorkspaceRemoved(e) => {
                if let Some(known) = self.worktree.as_mut().filter(|w| w.plan.path == e.path) {
                    known.stage = Stage::Removed { kept_branch: e.kept_branch };
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionId {
        id.parse().unwrap()
    }

    #[test]
    fn a_branch_is_named_after_its_session() {
        let names: Vec<_> = branches(&session("sess_0199aa00bb11cc22dd33ee44ff556677")).collect();
        let whole = "sess_0199aa00bb11cc22dd33ee44ff556677";
        assert_eq!(
            names,
            [
                "piton/0199aa00-ff556677".to_owned(),
                format!("piton/{whole}"),
                "piton-0199aa00-ff556677".to_owned(),
                format!("piton-{whole}"),
            ]
        );
        assert_eq!(branches(&session("mine")).next().as_deref(), Some("piton/mine"));
    }

    /// What a log from elsewhere names is not touched.
    #[test]
    fn only_what_is_planned_here_is_ours() {
        let root = Path::new("/data/worktrees");
        let ours = WorktreePlan {
            path: "/data/worktrees/sess_1".into(),
            repository: "/repo".into(),
            branch: "piton/1".into(),
            base: "main".into(),
            base_commit: "0123456789abcdef0123456789abcdef01234567".into(),
        };
        assert!(ours.is_ours(&session("sess_1"), root));
        let others: &[fn(&mut WorktreePlan)] = &[
            |plan| plan.path = "/data/worktrees/sess_2".into(),
            |plan| plan.path = "/data/worktrees/../precious".into(),
            |plan| plan.repository = "--upload-pack=x".into(),
            |plan| plan.branch = "main".into(),
            |plan| plan.branch = "-D".into(),
            |plan| plan.base_commit = "--force".into(),
            |plan| plan.base_commit = "abc".into(),
        ];
        for change in others {
            let mut other = ours.clone();
            change(&mut other);
            assert!(!other.is_ours(&session("sess_1"), root), "{other:?}");
        }
    }

    /// A stage, what is there, what it is on, and the verdict.
    type Row = (Stage, &'static str, Option<&'static str>, Result<(), Reason>);

    /// The first thing that is in the way counts; nothing is, if all is as the log says it.
    #[test]
    fn what_the_disk_says_is_judged() {
        let plan = WorktreePlan {
            path: "/data/worktrees/sess_1".into(),
            repository: "/repo".into(),
            branch: "piton/1".into(),
            base: "main".into(),
            base_commit: "c".into(),
        };
        let removed = |kept_branch| Stage::Removed { kept_branch };
        let (planned, prepared) = (Stage::Planned, Stage::Prepared);
        let missing = |reason| Err(reason);
        // Letters for what is there: Repository, Folder, known to git (K), its Branch, its bAse.
        let rows: &[Row] = &[
            (planned, "RA", None, Ok(())),
            (planned, "RFKBA", Some("piton/1"), Ok(())),
            (planned, "RFA", None, Ok(())),
            (planned, "RFKB", Some("piton/1"), missing(Reason::BaseMissing)),
            (planned, "A", None, missing(Reason::RepositoryMissing)),
            (prepared, "RFKBA", Some("piton/1"), Ok(())),
            (prepared, "RFKBA", None, Ok(())),
            (prepared, "RFKBA", Some("theirs"), Ok(())),
            (prepared, "RFKA", Some("theirs"), Ok(())),
            (prepared, "RFKA", Some("piton/1"), missing(Reason::BranchMissing)),
            (prepared, "RFKA", None, missing(Reason::BranchMissing)),
            (prepared, "RA", None, missing(Reason::BranchMissing)),
            (prepared, "RKBA", Some("piton/1"), missing(Reason::WorktreeMissing)),
            (prepared, "RFBA", None, missing(Reason::WorktreeMissing)),
            (prepared, "RBA", None, missing(Reason::WorktreeMissing)),
            (prepared, "RB", None, missing(Reason::WorktreeMissing)),
            (prepared, "RFKB", Some("piton/1"), missing(Reason::BaseMissing)),
            (prepared, "FKBA", Some("piton/1"), missing(Reason::RepositoryMissing)),
            (prepared, "", None, missing(Reason::RepositoryMissing)),
            (removed(true), "RBA", None, missing(Reason::WorktreeMissing)),
            (removed(true), "RFKBA", Some("piton/1"), missing(Reason::WorktreeMissing)),
            (removed(true), "RA", None, missing(Reason::BranchMissing)),
            (removed(false), "RA", None, missing(Reason::BranchMissing)),
            (removed(false), "", None, missing(Reason::RepositoryMissing)),
        ];
        for (stage, there, on, expected) in rows {
            let seen = WorktreeFacts {
                repository: there.contains('R'),
                folder: there.contains('F'),
                registered: there.contains('K'),
                on: on.map(str::to_owned),
                branch: there.contains('B'),
                base: there.contains('A'),
            };
            let worktree = Worktree { plan: plan.clone(), stage: *stage };
            assert_eq!(judge(&worktree, &seen), *expected, "{stage:?} {there} {on:?}");
        }
    }
}
