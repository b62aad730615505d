//! Worktrees of a repository whose configuration changes while git runs.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use piton_core::id::SessionId;
use piton_workspace::worktree::{Error, Force, Worktrees};

fn git(folder: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.args(["-c", "user.name=A B", "-c", "user.email=a@example.org"]);
    let output = command.args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn program(path: &Path, script: &str) -> PathBuf {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

/// Wants to show: neither making a worktree nor looking what would be lost with it runs a filter
/// that was configured right before git ran.
#[tokio::test]
async fn a_filter_that_appears_later_is_not_run() {
    let temp = tempfile::tempdir().unwrap();
    let repository = temp.path().join("repository");
    fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "-q", "-b", "main"]);
    fs::write(repository.join(".gitattributes"), "file filter=late\n").unwrap();
    fs::write(repository.join("file"), "1\n").unwrap();
    git(&repository, &["add", "-A"]);
    git(&repository, &["commit", "-q", "-m", "first"]);
    let ran = temp.path().join("ran");
    let trap = program(&temp.path().join("trap"), &format!(": > {}\ncat", ran.display()));
    let config = repository.join(".git/config");
    let set = |key: &str| {
        format!("git config -f {} filter.late.{key} {}", config.display(), trap.display())
    };
    let late = format!(
        "for arg; do case \"$arg\" in status|add|reset)\n\
         (unset GIT_DIR GIT_COMMON_DIR\n{}\n{}\n) ;; esac; done\nexec git \"$@\"",
        set("smudge"),
        set("clean")
    );
    let late = program(&temp.path().join("late-git"), &late);
    let worktrees = Worktrees::open(&temp.path().join("worktrees")).unwrap().with_git_program(late);
    let session: SessionId = "sess_late".parse().unwrap();
    let plan = worktrees.plan(&session, &repository, None).await.unwrap();
    let lock = worktrees.lock(&session).await.unwrap();
    worktrees.make(&session, &plan, &lock).await.unwrap();
    let folder = Path::new(&plan.path);
    assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "1\n");
    assert!(!ran.exists(), "the filter was run to make it");

    git(&repository, &["config", "--remove-section", "filter.late"]);
    fs::write(folder.join("file"), "2\n").unwrap();
    let losses = worktrees.losses(&plan).await.unwrap();
    assert_eq!(losses.changed, ["file"]);
    let removed = worktrees.remove(&session, &plan, Force::No, &lock).await.unwrap_err();
    assert!(matches!(removed, Error::Dirty(_)), "{removed}");
    assert!(!ran.exists(), "the filter was run to look at it");

    // The filter is configured now, and the trap is good.
    git(folder, &["status"]);
    assert!(ran.exists());
}
