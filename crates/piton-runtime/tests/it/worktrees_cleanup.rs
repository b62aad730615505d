//! Cleaning worktrees up with real git: work that exists nowhere else is not lost without a refusal
//! that names it, and a clean-up that was cut off can be repeated.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::fs;
use std::path::Path;

use piton_core::Code;
use piton_core::decide::Command;
use piton_core::event::{ExecutorReady, ExecutorStarting, Outcome};
use piton_core::id::SessionId;
use piton_core::worktree::{Stage, WorktreePlan};
use piton_runtime::{Error, WorktreeRemoval};
use piton_workspace::worktree::Force;

use crate::repo::{Rig, commit, git, works};

fn has_branch(rig: &Rig, branch: &str) -> bool {
    works(&rig.repo, &["rev-parse", "--verify", "--quiet", &format!("refs/heads/{branch}")])
}

/// The worktree is nowhere any more.
fn assert_gone(rig: &Rig, path: &Path) {
    assert!(!path.exists());
    assert!(!path.with_extension("removing").exists());
    assert_eq!(git(&rig.repo, &["worktree", "list"]).lines().count(), 1);
}

/// What a clean-up that is not forced says would be lost.
async fn losses(rig: &Rig, session: &SessionId) -> String {
    let refused = rig.worktrees.clean_up(session, Force::No).await.unwrap_err();
    assert_eq!(refused.code(), Code::WorktreeDirty);
    let Error::Worktree(fault) = refused else { panic!("{refused:?}") };
    fault.detail().unwrap()
}

#[tokio::test]
async fn a_clean_worktree_goes_with_its_branch() {
    let rig = Rig::new().await;
    let (session, path, plan) = rig.prepared("sess_1").await;
    let cleaned = rig.worktrees.clean_up(&session, Force::No).await.unwrap();
    assert_eq!((cleaned.kept_branch, cleaned.changed), (false, true));
    assert_gone(&rig, &path);
    assert!(!has_branch(&rig, &plan.branch));
    assert_eq!(rig.stage(&session).await, Stage::Removed { kept_branch: false });
    // Again: it is so already.
    let again = rig.worktrees.clean_up(&session, Force::No).await.unwrap();
    assert_eq!((again.kept_branch, again.changed), (false, false));
    assert_eq!(rig.recorded(&session).await, ["planned", "prepared", "removed"]);
    // A start of the agent is refused; it does not fall back to another folder.
    assert_eq!(rig.refused(&session).await, (Code::WorkspaceUnusable, Some("branch_missing")));
}

type Work = fn(&Rig, &Path, &WorktreePlan);

/// Each kind of work that is nowhere else keeps the worktree, is named, and goes when it is forced.
#[tokio::test]
async fn what_is_nowhere_else_is_kept_unless_it_is_forced() {
    let rows: [(&str, Work, &str); 8] = [
        (
            "changed",
            |_, path, _| fs::write(path.join("a"), "two").unwrap(),
            "1 uncommitted change (a)",
        ),
        (
            "staged",
            |_, path, _| {
                fs::write(path.join("ü b"), "x").unwrap();
                git(path, &["add", "ü b"]);
            },
            "1 uncommitted change (ü b)",
        ),
        (
            "removed",
            |_, path, _| fs::remove_file(path.join("a")).unwrap(),
            "1 uncommitted change (a)",
        ),
        (
            "untracked",
            |_, path, _| {
                fs::create_dir(path.join("new folder")).unwrap();
                fs::write(path.join("new folder/x"), "x").unwrap();
                fs::write(path.join("y"), "y").unwrap();
            },
            "2 untracked files (new folder/x, y)",
        ),
        ("committed", |_, path, _| commit(path, "b", "b"), "1 unpushed commit (ID Change b)"),
        (
            "committed on no branch",
            |_, path, _| {
                git(path, &["checkout", "--quiet", "--detach"]);
                commit(path, "b", "b");
            },
            "1 unpushed commit (ID Change b)",
        ),
        (
            "committed, and the folder is gone",
            |_, path, _| {
                commit(path, "b", "b");
                fs::remove_dir_all(path).unwrap();
            },
            "1 unpushed commit (ID Change b)",
        ),
        (
            "all of it",
            |_, path, _| {
                commit(path, "b", "b");
                commit(path, "c", "c");
                fs::write(path.join("a"), "two").unwrap();
                fs::write(path.join("d"), "d").unwrap();
            },
            "1 uncommitted change (a); 1 untracked file (d); \
             2 unpushed commits (ID Change c, ID Change b)",
        ),
    ];
    for (what, work, expected) in rows {
        let rig = Rig::new().await;
        let (session, path, plan) = rig.prepared("sess_1").await;
        work(&rig, &path, &plan);
        let was_there = path.exists();
        let recorded: Vec<String> = losses(&rig, &session)
            .await
            .split(' ')
            .map(|word| {
                let id = word.trim_start_matches('(');
                let is_id = id.len() == 7 && id.chars().all(|c| c.is_ascii_hexdigit());
                if is_id { word.replace(id, "ID") } else { word.to_owned() }
            })
            .collect();
        assert_eq!(recorded.join(" "), expected, "{what}");
        assert_eq!(path.exists(), was_there, "{what}");
        assert!(has_branch(&rig, &plan.branch), "{what}");
        assert_eq!(rig.recorded(&session).await, ["planned", "prepared"], "{what}");

        let cleaned = rig.worktrees.clean_up(&session, Force::Yes).await.unwrap();
        assert!(!cleaned.kept_branch, "{what}");
        assert_gone(&rig, &path);
        assert!(!has_branch(&rig, &plan.branch), "{what}");
        assert_eq!(fs::read_to_string(rig.repo.join("a")).unwrap(), "one\n");
    }
}

/// Merged, pushed or tagged: it is elsewhere, and nothing is lost.
#[tokio::test]
async fn what_is_elsewhere_keeps_nothing() {
    let ways: [(&str, Work); 3] = [
        ("merged", |rig, _, plan| {
            git(&rig.repo, &["merge", "--quiet", &plan.branch]);
        }),
        ("pushed", |rig, path, plan| {
            let remote = rig.repo.with_file_name("remote.git");
            git(&rig.repo, &["init", "--quiet", "--bare", remote.to_str().unwrap()]);
            git(&rig.repo, &["remote", "add", "origin", remote.to_str().unwrap()]);
            git(path, &["push", "--quiet", "origin", &plan.branch]);
        }),
        ("tagged", |_, path, _| {
            git(path, &["tag", "v1"]);
        }),
    ];
    for (what, keep) in ways {
        let rig = Rig::new().await;
        let (session, path, plan) = rig.prepared("sess_1").await;
        commit(&path, "b", "b");
        keep(&rig, &path, &plan);
        let cleaned = rig.worktrees.clean_up(&session, Force::No).await.unwrap();
        assert!(!cleaned.kept_branch, "{what}");
        assert_gone(&rig, &path);
    }
}

/// A branch that is checked out elsewhere stays, forced or not.
#[tokio::test]
async fn a_branch_that_is_checked_out_elsewhere_is_kept() {
    let rig = Rig::new().await;
    let (session, path, plan) = rig.prepared("sess_1").await;
    git(&path, &["checkout", "--quiet", "--detach"]);
    git(&rig.repo, &["checkout", "--quiet", &plan.branch]);
    let cleaned = rig.worktrees.clean_up(&session, Force::Yes).await.unwrap();
    assert!(cleaned.kept_branch);
    assert_gone(&rig, &path);
    assert!(has_branch(&rig, &plan.branch));
    assert_eq!(rig.stage(&session).await, Stage::Removed { kept_branch: true });
    // While its branch exists the worktree can be made again, once the branch is not checked out
    // elsewhere.
    git(&rig.repo, &["checkout", "--quiet", "main"]);
    assert!(rig.worktrees.repair(&session).await.unwrap().is_prepared());
    assert!(path.join("a").exists());
}

/// Wherever a clean-up was killed: doing it again finishes it.
#[tokio::test]
async fn a_clean_up_that_was_cut_off_is_finished_by_the_next() {
    let aside: Work = |_, path, _| fs::rename(path, path.with_extension("removing")).unwrap();
    let unregistered: Work = |rig, path, _| {
        fs::rename(path, path.with_extension("removing")).unwrap();
        git(&rig.repo, &["worktree", "prune"]);
    };
    let branch_gone: Work = |rig, path, plan| {
        fs::rename(path, path.with_extension("removing")).unwrap();
        git(&rig.repo, &["worktree", "prune"]);
        git(&rig.repo, &["branch", "-D", &plan.branch]);
    };
    let all_gone: Work = |rig, path, plan| {
        git(&rig.repo, &["worktree", "remove", path.to_str().unwrap()]);
        git(&rig.repo, &["branch", "-D", &plan.branch]);
    };
    for (step, cut) in [aside, unregistered, branch_gone, all_gone].into_iter().enumerate() {
        let rig = Rig::new().await;
        let (session, path, plan) = rig.prepared("sess_1").await;
        cut(&rig, &path, &plan);
        let rig = rig.again().await;
        // Until then a start is refused: there is no worktree.
        assert_eq!(rig.refused(&session).await.0, Code::WorkspaceUnusable, "step {step}");
        let cleaned = rig.worktrees.clean_up(&session, Force::No).await.unwrap();
        assert_eq!((cleaned.kept_branch, cleaned.changed), (false, true), "step {step}");
        assert_gone(&rig, &path);
        assert!(!has_branch(&rig, &plan.branch), "step {step}");
    }
}

/// A plan that was never carried out leaves nothing either.
#[tokio::test]
async fn a_plan_can_be_cleaned_up() {
    let rig = Rig::new().await;
    let (session, plan) = rig.planned("sess_1").await;
    let cleaned = rig.worktrees.clean_up(&session, Force::No).await.unwrap();
    assert_eq!((cleaned.kept_branch, cleaned.changed), (false, true));
    assert_gone(&rig, Path::new(&plan.path));
}

/// Without the repository it is unknown which work exists elsewhere: only force removes the folder.
#[tokio::test]
async fn without_its_repository_a_worktree_goes_by_force_only() {
    let rig = Rig::new().await;
    let (session, path, _) = rig.prepared("sess_1").await;
    fs::rename(&rig.repo, rig.repo.with_extension("moved")).unwrap();
    let refused = rig.worktrees.clean_up(&session, Force::No).await.unwrap_err();
    assert_eq!(
        crate::repo::refusal(&refused),
        (Code::WorkspaceUnusable, Some("repository_missing"))
    );
    assert!(path.join("a").exists());
    let cleaned = rig.worktrees.clean_up(&session, Force::Yes).await.unwrap();
    assert!(cleaned.kept_branch && !path.exists());
}

/// Before a session is deleted: a clean worktree is removed; a dirty one stays and is reported, and
/// so does one that an agent may work in.
#[tokio::test]
async fn deletion_leaves_what_is_not_clean() {
    let rig = Rig::new().await;
    let (clean, clean_path, _) = rig.prepared("sess_clean").await;
    let (dirty, dirty_path, _) = rig.prepared("sess_dirty").await;
    let (used, used_path, _) = rig.prepared("sess_used").await;
    let handle = &rig.process.handle;
    let left = rig.worktrees.leave(&clean).await.unwrap();
    assert!(matches!(left, Some(WorktreeRemoval::Removed(_))) && !clean_path.exists(), "{left:?}");
    assert!(rig.worktrees.leave(&clean).await.unwrap().is_none());

    fs::write(dirty_path.join("x"), "x").unwrap();
    let Some(WorktreeRemoval::Kept { why, .. }) = rig.worktrees.leave(&dirty).await.unwrap() else {
        panic!("kept")
    };
    assert!(why.code() == Code::WorktreeDirty && dirty_path.exists());

    let execution_id: piton_core::id::ExecutionId = "exec_1".parse().unwrap();
    let runtime = "standalone".to_owned();
    let starting = ExecutorStarting { execution_id: execution_id.clone(), runtime };
    for event in [starting.into(), ExecutorReady { execution_id }.into()] {
        handle.execute(&used, Command::Observe { event, message: None }).await.unwrap();
    }
    let Some(WorktreeRemoval::Kept { why, .. }) = rig.worktrees.leave(&used).await.unwrap() else {
        panic!("kept")
    };
    assert!(why.code() == Code::ExecutorAlive && used_path.exists());
    // Nor is it cleaned up under an executor that this process cannot end.
    let refused = rig.worktrees.clean_up(&used, Force::Yes).await.unwrap_err();
    assert!(refused.code() == Code::ExecutorAlive && used_path.exists());

    let plain = handle.create(piton_runtime::NewSession::default()).await.unwrap();
    assert!(rig.worktrees.leave(&plain).await.unwrap().is_none());
    let refused = rig.worktrees.clean_up(&plain, Force::No).await.unwrap_err();
    assert_eq!(refused.code(), Code::WorktreeNotFound);
    assert_eq!(rig.worktrees.ready(&plain).await.unwrap(), None);

    // A closed session's worktree is cleaned up, too.
    handle.execute(&dirty, Command::Close { outcome: Outcome::Completed }).await.unwrap();
    rig.worktrees.clean_up(&dirty, Force::Yes).await.unwrap();
    assert!(!dirty_path.exists());
}
