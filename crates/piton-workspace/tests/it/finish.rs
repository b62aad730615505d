//! Commits, merges, rebases and pushes in real repositories; conflicts, hooks, and a process that is
//! killed in the middle.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use piton_core::Code;
use piton_workspace::finish::{Strategy, Work};
use tempfile::TempDir;

/// A repository on `main`, and a work tree of it on `work`.
struct Repository {
    folder: TempDir,
}

fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git").current_dir(folder).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

impl Repository {
    fn new() -> Self {
        let repository = Self { folder: tempfile::tempdir().unwrap() };
        let main = repository.main();
        fs::create_dir(&main).unwrap();
        git(&main, &["init", "-q", "-b", "main"]);
        git(&main, &["config", "user.name", "A B"]);
        git(&main, &["config", "user.email", "a@example.org"]);
        fs::write(main.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        git(&main, &["add", "-A"]);
        git(&main, &["commit", "-qm", "first"]);
        let work = repository.work().folder.display().to_string();
        git(&main, &["worktree", "add", "-q", "-b", "work", &work]);
        repository
    }

    fn main(&self) -> PathBuf {
        self.folder.path().join("main")
    }

    fn work(&self) -> Work {
        Work {
            folder: self.folder.path().join("work"),
            apart: self.folder.path().join("apart"),
            base: Some("main".to_owned()),
        }
    }

    fn commit(&self, folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).unwrap();
        git(folder, &["add", "-A"]);
        git(folder, &["commit", "-qm", name]);
        assert!(self.folder.path().is_dir());
    }

    fn hook(&self, name: &str, script: &str) {
        let path = self.main().join(".git/hooks").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// HEAD, index and files of both work trees, and all references, byte for byte.
    fn bytes(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        for folder in [self.main(), self.work().folder] {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    found.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
            for name in ["HEAD", "index"] {
                let path = PathBuf::from(git(&folder, &["rev-parse", "--git-path", name]));
                let path = folder.join(path);
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
        let refs = git(&self.main(), &["for-each-ref"]);
        found.insert("refs".into(), refs.into_bytes());
        found
    }
}

/// Wants to show: what has changed is committed with the user's hooks and filters; where a hook refuses,
/// the index is as it was.
#[tokio::test]
async fn a_commit_runs_the_users_hooks_and_filters() {
    let repository = Repository::new();
    let work = repository.work();
    assert_eq!(work.commit("x").await.unwrap_err().code(), Code::NothingToCommit);
    git(&repository.main(), &["config", "filter.shout.clean", "tr a-z A-Z"]);
    fs::write(work.folder.join(".gitattributes"), "*.loud filter=shout\n").unwrap();
    fs::write(work.folder.join("b.loud"), "hello\n").unwrap();
    repository.hook("pre-commit", "exit 3");
    let before = repository.bytes();
    let refused = work.commit("no").await.unwrap_err();
    assert_eq!(refused.code(), Code::GitFailed);
    assert_eq!(repository.bytes(), before);
    repository.hook("pre-commit", "exit 0");
    repository.hook("commit-msg", "echo 'Signed: hook' >> \"$1\"");
    let commit = work.commit("add b").await.unwrap();
    assert_eq!(git(&work.folder, &["rev-parse", "HEAD"]), commit);
    assert_eq!(git(&work.folder, &["show", "HEAD:b.loud"]), "HELLO");
    assert!(git(&work.folder, &["log", "-1", "--format=%B"]).contains("Signed: hook"));
    assert_eq!(git(&work.folder, &["status", "--porcelain"]), "");
}

/// Wants to show: each way brings the branch into a base that is checked out and into one that is not,
/// and doing it again changes nothing.
#[tokio::test]
async fn a_branch_comes_into_its_base() {
    for strategy in [Strategy::Merge, Strategy::Squash, Strategy::Rebase] {
        for is_checked_out in [true, false] {
            let repository = Repository::new();
            let (work, main) = (repository.work(), repository.main());
            repository.commit(&main, "c.txt", "from main\n");
            repository.commit(&work.folder, "b.txt", "from work\n");
            if !is_checked_out {
                git(&main, &["checkout", "-q", "--detach"]);
            }
            let merged = work.merge(None, strategy, None).await.unwrap();
            assert_eq!(git(&main, &["rev-parse", "main"]), merged.commit, "{strategy:?}");
            assert_eq!(git(&main, &["show", "main:b.txt"]), "from work");
            assert_eq!(git(&main, &["show", "main:c.txt"]), "from main");
            assert_eq!(main.join("b.txt").exists(), is_checked_out);
            assert_eq!(git(&main, &["status", "--porcelain"]), "");
            assert!(!work.apart.exists());
            if strategy != Strategy::Squash {
                let again = work.merge(None, strategy, None).await.unwrap();
                assert!(again.was_up_to_date && again.commit == merged.commit, "{strategy:?}");
            }
        }
    }
}

/// Wants to show: a conflict, also with what the user has not committed, is named with its files, and
/// HEAD, index and files are byte for byte what they were.
#[tokio::test]
async fn a_conflict_leaves_everything_as_it_was() {
    let repository = Repository::new();
    let (work, main) = (repository.work(), repository.main());
    repository.commit(&main, "a.txt", "one\nMAIN\nthree\n");
    repository.commit(&work.folder, "a.txt", "one\nWORK\nthree\n");
    fs::write(main.join("untracked.txt"), "mine\n").unwrap();
    for strategy in [Strategy::Merge, Strategy::Squash, Strategy::Rebase] {
        let before = repository.bytes();
        let refused = work.merge(None, strategy, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::MergeConflict, "{refused}");
        assert!(refused.to_string().contains("a.txt"), "{refused}");
        assert_eq!(repository.bytes(), before, "{strategy:?}");
        assert!(!work.apart.exists());
    }

    let repository = Repository::new();
    let (work, main) = (repository.work(), repository.main());
    repository.commit(&work.folder, "a.txt", "one\nWORK\nthree\n");
    fs::write(main.join("a.txt"), "not committed\n").unwrap();
    let before = repository.bytes();
    let refused = work.merge(None, Strategy::Merge, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::WorktreeDirty, "{refused}");
    assert_eq!(repository.bytes(), before);
    fs::write(work.folder.join("new.txt"), "not committed\n").unwrap();
    let refused = work.merge(None, Strategy::Merge, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::WorktreeDirty, "{refused}");
    let refused = work.merge(Some("nothing"), Strategy::Merge, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::BaseNotFound, "{refused}");
}

#[tokio::test]
async fn a_push_goes_to_a_remote_and_never_overwrites() {
    let repository = Repository::new();
    let (work, main) = (repository.work(), repository.main());
    assert_eq!(work.push(None).await.unwrap_err().code(), Code::GitFailed);
    let remote = repository.folder.path().join("remote.git").display().to_string();
    git(&main, &["init", "-q", "--bare", &remote]);
    git(&main, &["remote", "add", "origin", &remote]);
    repository.commit(&work.folder, "b.txt", "b\n");
    let pushed = work.push(None).await.unwrap();
    assert_eq!(pushed, ("origin".to_owned(), "work".to_owned()));
    assert_eq!(git(Path::new(&remote), &["show", "work:b.txt"]), "b");
    git(&work.folder, &["commit", "-q", "--amend", "-m", "other"]);
    assert_eq!(work.push(Some("origin")).await.unwrap_err().code(), Code::PushRejected);
}

const CHILD: &str = "PITON_FINISH_CHILD";

/// What the process does that is killed.
#[tokio::test]
#[ignore = "run by the test below, in a process of its own"]
async fn child_that_merges() {
    let folder = PathBuf::from(std::env::var_os(CHILD).unwrap());
    let work = Work {
        folder: folder.join("work"),
        apart: folder.join("apart"),
        base: Some("main".to_owned()),
    };
    work.merge(None, Strategy::Merge, None).await.unwrap();
}

/// Wants to show: killed at any moment of a merge, the base has moved or has not, the user's work tree is
/// the one or the other whole, and the next merge works.
#[test]
fn a_killed_merge_is_made_or_not() {
    for (hook, moves) in
        [("pre-merge-commit", false), ("post-checkout", false), ("post-merge", true)]
    {
        let repository = Repository::new();
        let (work, main) = (repository.work(), repository.main());
        repository.commit(&main, "c.txt", "from main\n");
        repository.commit(&work.folder, "b.txt", "from work\n");
        let reached = repository.folder.path().join("reached");
        let here = main.display();
        // The last one runs in the user's work tree, where the base has moved already.
        let is_there =
            if moves { format!("[ \"$PWD\" = \"{here}\" ] || exit 0") } else { String::new() };
        repository.hook(hook, &format!("{is_there}\ntouch '{}'\nsleep 20", reached.display()));
        let before = repository.bytes();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "finish::child_that_merges", "--ignored"])
            .env(CHILD, repository.folder.path())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while !reached.exists() {
            assert!(Instant::now() < until, "{hook} was not run");
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_file(main.join(".git/hooks").join(hook)).unwrap();
        if moves {
            assert_eq!(git(&main, &["status", "--porcelain"]), "");
            assert!(main.join("b.txt").exists());
        } else {
            assert_eq!(repository.bytes(), before, "{hook}");
        }
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let merged = runtime.block_on(work.merge(None, Strategy::Merge, None)).unwrap();
        assert_eq!(git(&main, &["rev-parse", "main"]), merged.commit);
        assert_eq!(git(&main, &["status", "--porcelain"]), "");
        assert!(main.join("b.txt").exists() && !work.apart.exists());
    }
}
