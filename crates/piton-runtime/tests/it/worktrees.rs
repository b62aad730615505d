//! Worktrees with real git: made, found as they were left, refused when something is missing, made
//! again. A process that is killed on the way leaves a plan that the next one carries out.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use piton_core::Code;
use piton_core::worktree::{Stage, WorktreePlan};

use crate::repo::{Rig, commit, git, refusal, repository, works};

/// What is in a worktree that is as it should be.
fn assert_whole(path: &Path, plan: &WorktreePlan) {
    assert_eq!(git(path, &["symbolic-ref", "--short", "HEAD"]), plan.branch);
    assert_eq!(git(path, &["rev-parse", "HEAD"]), plan.base_commit);
    assert_eq!(git(path, &["status", "--porcelain"]), "");
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "one\n");
    let listed = git(path, &["worktree", "list", "--porcelain"]);
    assert!(!listed.lines().any(|line| line.starts_with("locked")), "{listed}");
}

#[tokio::test]
async fn two_sessions_work_side_by_side_and_the_checkout_is_untouched() {
    let rig = Rig::new().await;
    fs::write(rig.repo.join("mine"), "not committed").unwrap();
    let before = (git(&rig.repo, &["rev-parse", "HEAD"]), git(&rig.repo, &["status", "-s"]));
    let (_, one, first) = rig.prepared("sess_0199aa00bb11cc22dd33ee44ff556677").await;
    let (_, two, second) = rig.prepared("sess_0199aa00bb11cc22dd33ee44ff556688").await;
    assert_whole(&one, &first);
    assert_whole(&two, &second);
    assert_eq!(
        [first.branch, second.branch],
        ["piton/0199aa00-ff556677", "piton/0199aa00-ff556688"]
    );
    commit(&one, "a", "two\n");
    assert_eq!(fs::read_to_string(two.join("a")).unwrap(), "one\n");
    assert_eq!(fs::read_to_string(rig.repo.join("a")).unwrap(), "one\n");
    let after = (git(&rig.repo, &["rev-parse", "HEAD"]), git(&rig.repo, &["status", "-s"]));
    assert_eq!(before, after);
}

type Leave = fn(&WorktreePlan, &Path);

/// What an attempt that was killed can have left behind.
fn leftovers() -> Vec<(&'static str, Leave)> {
    fn add(plan: &WorktreePlan, repo: &Path) {
        let args = ["worktree", "add", "-q", "-b", &plan.branch, &plan.path, &plan.base_commit];
        git(repo, &args);
    }
    fn half(plan: &WorktreePlan, repo: &Path) {
        add(plan, repo);
        fs::remove_file(Path::new(&plan.path).join("a")).unwrap();
        // As git leaves it when it is killed while it writes the files.
        let admin = git(Path::new(&plan.path), &["rev-parse", "--absolute-git-dir"]);
        fs::remove_file(Path::new(&admin).join("index")).unwrap();
        fs::write(Path::new(&admin).join("locked"), "initializing").unwrap();
    }
    vec![
        ("nothing", |_, _| {}),
        ("its branch", |plan, repo| {
            git(repo, &["branch", &plan.branch, &plan.base_commit]);
        }),
        ("half a worktree", half),
        ("a worktree that nobody told the log of", add),
        ("a folder that the repository does not know", |plan, _| {
            fs::create_dir_all(Path::new(&plan.path).join("deep")).unwrap();
            fs::write(Path::new(&plan.path).join("deep/x"), "x").unwrap();
        }),
        ("a worktree that was set aside", |plan, repo| {
            half(plan, repo);
            fs::rename(&plan.path, format!("{}.removing", plan.path)).unwrap();
        }),
    ]
}

/// Killed between plan and worktree, wherever git was: the next process has it whole.
#[tokio::test]
async fn a_plan_that_was_cut_off_is_carried_out() {
    for (what, leave) in leftovers() {
        let rig = Rig::new().await;
        let (session, plan) = rig.planned("sess_1").await;
        leave(&plan, &rig.repo);
        let rig = rig.again().await;
        assert_eq!(rig.stage(&session).await, Stage::Planned, "{what}");
        let path = rig.worktrees.ready(&session).await.unwrap().unwrap();
        assert_eq!(path, Path::new(&plan.path), "{what}");
        assert_whole(&path, &plan);
        assert!(!path.join("deep").exists(), "{what}");
        // Once: what is there stays as it is, with whatever is done in it.
        fs::write(path.join("work"), "precious").unwrap();
        let rig = rig.again().await;
        rig.worktrees.ready(&session).await.unwrap();
        assert_eq!(fs::read_to_string(path.join("work")).unwrap(), "precious", "{what}");
        assert_eq!(rig.recorded(&session).await, ["planned", "prepared"], "{what}");
        let mut left: Vec<_> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            // What keeps git from a repository's settings.
            .filter(|name| name != ".private")
            .collect();
        left.sort();
        assert_eq!(left, ["sess_1", "sess_1.lock"], "{what}");
    }
}

/// Ten at once make one worktree.
#[tokio::test]
async fn several_who_need_it_at_once_make_it_once() {
    let rig = Rig::new().await;
    let (session, plan) = rig.planned("sess_1").await;
    let ten = (0..10).map(|_| rig.worktrees.ready(&session));
    for ready in futures_util::future::join_all(ten).await {
        assert_eq!(ready.unwrap().unwrap(), Path::new(&plan.path));
    }
    assert_whole(Path::new(&plan.path), &plan);
    assert_eq!(rig.recorded(&session).await, ["planned", "prepared"]);
}

type Harm = fn(&Rig, &Path, &WorktreePlan);

#[tokio::test]
async fn what_is_missing_has_a_reason_of_its_own() {
    let rows: [(&str, Harm, &str); 7] = [
        ("worktree deleted", |_, path, _| fs::remove_dir_all(path).unwrap(), "worktree_missing"),
        (
            "worktree removed with git",
            |rig, path, _| {
                git(&rig.repo, &["worktree", "remove", path.to_str().unwrap()]);
            },
            "worktree_missing",
        ),
        (
            "worktree moved",
            |_, path, _| fs::rename(path, path.with_extension("elsewhere")).unwrap(),
            "worktree_missing",
        ),
        (
            "branch deleted",
            |rig, path, plan| {
                git(path, &["checkout", "--quiet", "--detach"]);
                git(&rig.repo, &["branch", "-D", &plan.branch]);
            },
            "branch_missing",
        ),
        (
            "branch deleted under its worktree",
            |rig, _, plan| {
                let name = format!("refs/heads/{}", plan.branch);
                git(&rig.repo, &["update-ref", "-d", &name]);
            },
            "branch_missing",
        ),
        (
            "repository moved",
            |rig, _, _| fs::rename(&rig.repo, rig.repo.with_extension("moved")).unwrap(),
            "repository_missing",
        ),
        (
            "no repository any more",
            |rig, _, _| fs::remove_dir_all(rig.repo.join(".git")).unwrap(),
            "repository_missing",
        ),
    ];
    for (what, harm, reason) in rows {
        let rig = Rig::new().await;
        let (session, path, plan) = rig.prepared("sess_1").await;
        harm(&rig, &path, &plan);
        let refused = rig.refused(&session).await;
        assert_eq!(refused, (Code::WorkspaceUnusable, Some(reason)), "{what}");
        // Only looked at.
        assert_eq!(rig.recorded(&session).await, ["planned", "prepared"], "{what}");
    }
}

/// A commit that is gone before the branch was made from it.
#[tokio::test]
async fn a_base_that_is_gone_is_reported() {
    let rig = Rig::new().await;
    git(&rig.repo, &["checkout", "--quiet", "-b", "other"]);
    commit(&rig.repo, "b", "b");
    let (session, plan) = rig.planned("sess_1").await;
    assert_eq!(plan.base, "other");
    git(&rig.repo, &["checkout", "--quiet", "main"]);
    git(&rig.repo, &["branch", "-D", "other"]);
    git(&rig.repo, &["reflog", "expire", "--expire=now", "--all"]);
    git(&rig.repo, &["gc", "--quiet", "--prune=now"]);
    let refused = rig.refused(&session).await;
    assert_eq!(refused, (Code::WorkspaceUnusable, Some("base_missing")));
}

/// A branch that the agent renamed, or left for another one, is no problem.
#[tokio::test]
async fn another_branch_is_as_good() {
    let rig = Rig::new().await;
    let (session, path, plan) = rig.prepared("sess_1").await;
    git(&path, &["branch", "-m", "better-name"]);
    assert!(!works(&rig.repo, &["rev-parse", "--verify", "-q", &plan.branch]));
    assert_eq!(rig.worktrees.ready(&session).await.unwrap().unwrap(), path);
}

#[tokio::test]
async fn a_removed_worktree_is_made_again_from_its_branch() {
    let rig = Rig::new().await;
    let (session, path, _) = rig.prepared("sess_1").await;
    commit(&path, "a", "two\n");
    let worktree = rig.worktrees.repair(&session).await.unwrap();
    assert!(worktree.is_prepared());
    assert_eq!(rig.recorded(&session).await, ["planned", "prepared"]);

    fs::remove_dir_all(&path).unwrap();
    rig.worktrees.repair(&session).await.unwrap();
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "two\n");
    assert_eq!(rig.worktrees.ready(&session).await.unwrap().unwrap(), path);
    let recorded = ["planned", "prepared", "removed", "planned", "prepared"];
    assert_eq!(rig.recorded(&session).await, recorded);

    // A folder in its place belongs to a user.
    git(&rig.repo, &["worktree", "remove", path.to_str().unwrap()]);
    fs::create_dir(&path).unwrap();
    fs::write(path.join("precious"), "x").unwrap();
    let refused = rig.worktrees.repair(&session).await.unwrap_err();
    assert_eq!(refusal(&refused), (Code::WorkspaceUnusable, None));
    assert!(path.join("precious").exists());
    fs::remove_dir_all(&path).unwrap();

    git(&rig.repo, &["branch", "-D", "piton/1"]);
    let refused = rig.worktrees.repair(&session).await.unwrap_err();
    assert_eq!(refusal(&refused), (Code::WorkspaceUnusable, Some("branch_missing")));
}

/// Neither its hooks nor the filters that its configuration names are run.
#[tokio::test]
async fn a_hostile_repository_runs_nothing() {
    let rig = Rig::new().await;
    let ran = rig.repo.join("ran");
    let script = format!("#!/bin/sh\ntouch '{}'\ncat\n", ran.display());
    let evil = rig.repo.join(".git/evil");
    fs::write(&evil, &script).unwrap();
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).unwrap();
    for hook in ["post-checkout", "reference-transaction", "post-index-change"] {
        fs::copy(&evil, rig.repo.join(".git/hooks").join(hook)).unwrap();
    }
    let evil = evil.to_str().unwrap();
    fs::write(rig.repo.join(".git/info/attributes"), "* filter=evil\n").unwrap();
    for key in ["filter.evil.smudge", "filter.evil.clean", "core.fsmonitor"] {
        git(&rig.repo, &["config", key, evil]);
    }
    let (session, path, plan) = rig.prepared("sess_1").await;
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "one\n");
    fs::write(path.join("a"), "changed\n").unwrap();
    let force = piton_workspace::worktree::Force::No;
    assert_eq!(
        rig.worktrees.clean_up(&session, force).await.unwrap_err().code(),
        Code::WorktreeDirty
    );
    assert!(!ran.exists(), "something of {} ran", plan.repository);
    // They would have: this is what the test rests on.
    git(&path, &["checkout", "--quiet", "--", "a"]);
    assert!(ran.exists());
}

#[tokio::test]
async fn names_with_spaces_and_other_letters() {
    let rig = Rig::with_repo_at("mein Projekt – größer 'n \"x\"").await;
    git(&rig.repo, &["branch", "größe/ß-β"]);
    fs::write(rig.repo.join("Überschrift neu"), "x").unwrap();
    let session = "sess_1".parse().unwrap();
    // A folder inside it means the same repository.
    fs::create_dir(rig.repo.join("ein Ordner")).unwrap();
    let named = rig.repo.join("ein Ordner");
    let plan = rig.worktrees.plan(&session, &named, Some("größe/ß-β")).await.unwrap();
    assert_eq!(Path::new(&plan.repository), rig.repo);
    assert_eq!(plan.base, "größe/ß-β");
    rig.create(&session, plan.clone()).await;
    let path = rig.worktrees.ready(&session).await.unwrap().unwrap();
    assert_whole(&path, &plan);
}

#[tokio::test]
async fn what_cannot_be_planned_is_refused_and_nothing_is_made() {
    let rig = Rig::new().await;
    let at = |name: &str| rig.repo.with_file_name(name);
    fs::create_dir(at("plain")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    git(&at("empty"), &["init", "--quiet"]);
    git(&at(""), &["clone", "--quiet", "--bare", "repo", "bare.git"]);
    fs::write(at("file"), "").unwrap();
    let repository_invalid = [
        (Path::new("repo").to_owned(), "is not an absolute path"),
        (at("missing"), "is not a folder"),
        (at("file"), "is not a folder"),
        (at("plain"), "is not a git repository"),
        (at("bare.git"), "is a bare repository, without a work tree"),
        (rig.repo.join(".git"), "is not inside a work tree"),
        (at("empty"), "has no commit yet that a branch could begin at"),
    ];
    let session = "sess_1".parse().unwrap();
    for (path, fault) in repository_invalid {
        let refused = rig.worktrees.plan(&session, &path, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::RepositoryInvalid);
        assert_eq!(refused.to_string(), format!("{} {fault}", path.display()));
    }
    let tree = git(&rig.repo, &["rev-parse", "HEAD^{tree}"]);
    for base in ["nowhere", "", "-D", "--all", "main..HEAD", "a\nb", "a\0b", &tree] {
        let refused = rig.worktrees.plan(&session, &rig.repo, Some(base)).await.unwrap_err();
        assert_eq!(refused.code(), Code::BaseNotFound, "{base:?}");
    }
    assert_eq!(git(&rig.repo, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(&rig.repo, &["branch", "--format=%(refname:short)"]), "main");
}

/// Names that are taken, or that nothing can lie below.
#[tokio::test]
async fn a_branch_gets_a_name_that_is_free() {
    let rig = Rig::new().await;
    let session = "sess_0199aa00bb11cc22dd33ee44ff556677".parse().unwrap();
    let named = async || rig.worktrees.plan(&session, &rig.repo, None).await.unwrap().branch;
    assert_eq!(named().await, "piton/0199aa00-ff556677");
    git(&rig.repo, &["branch", "piton/0199aa00-ff556677/below"]);
    assert_eq!(named().await, format!("piton/{session}"));
    git(&rig.repo, &["branch", "-D", "piton/0199aa00-ff556677/below"]);
    git(&rig.repo, &["branch", "piton"]);
    assert_eq!(named().await, "piton-0199aa00-ff556677");
}

/// A log that came in a bundle may name anything: what it names is not made, nor removed.
#[tokio::test]
async fn what_a_log_from_elsewhere_names_is_not_touched() {
    let rig = Rig::new().await;
    let precious = rig.repo.with_file_name("precious");
    repository(&precious);
    let session = "sess_1".parse().unwrap();
    let plan = rig.worktrees.plan(&session, &rig.repo, None).await.unwrap();
    let path = precious.to_str().unwrap().to_owned();
    rig.create(&session, WorktreePlan { path, ..plan }).await;
    assert_eq!(rig.refused(&session).await, (Code::WorktreeNotFound, None));
    let force = piton_workspace::worktree::Force::Yes;
    let refused = rig.worktrees.clean_up(&session, force).await.unwrap_err();
    assert_eq!(refusal(&refused), (Code::WorktreeNotFound, None));
    assert_eq!(fs::read_to_string(precious.join("a")).unwrap(), "one\n");
}
