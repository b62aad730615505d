//! git in real repositories.
#![expect(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use piton_agentctl::tree::Tree;
use piton_agentctl::workspace::{Staged, Workspace};
use piton_exec::protocol::workspace::{DIFF_BYTES_MAX, GitDiff, GitStatus};
use tempfile::TempDir;

struct Repository {
    workspace: Workspace,
    folder: TempDir,
}

fn folder() -> Repository {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::without_cgroup(&common::execution("git"));
    Repository { workspace: Workspace::open(folder.path(), &tree).unwrap(), folder }
}

fn repository() -> Repository {
    let repository = folder();
    repository.git(&["init", "-q", "-b", "main"]);
    repository
}

impl Repository {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn git(&self, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.current_dir(self.folder.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.args(["-c", "user.name=A B", "-c", "user.email=a@example.org"]);
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn commit(&self, subject: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.git(&["rev-parse", "HEAD"])
    }

    async fn changed(&self) -> Vec<(String, String)> {
        let status = self.workspace.git_status().await.unwrap();
        status.changed.into_iter().map(|change| (change.status, change.path)).collect()
    }
}

fn pair(status: &str, path: &str) -> (String, String) {
    (status.to_owned(), path.to_owned())
}

#[tokio::test]
async fn where_there_is_no_repository_all_is_empty() {
    let plain = folder();
    assert_eq!(plain.workspace.git_status().await.unwrap(), GitStatus::default());
    assert_eq!(plain.workspace.git_diff(Staged::No, None).await.unwrap(), GitDiff::default());
    assert_eq!(plain.workspace.git_log(5).await.unwrap(), []);
}

#[tokio::test]
async fn a_branch_without_a_commit() {
    let unborn = repository();
    fs::write(unborn.path("new"), "text\n").unwrap();
    let status = unborn.workspace.git_status().await.unwrap();
    assert!(status.repository);
    assert_eq!((status.branch.as_deref(), status.head), (Some("main"), None));
    assert_eq!(unborn.changed().await, [pair("??", "new")]);
    assert_eq!(unborn.workspace.git_log(5).await.unwrap(), []);
    unborn.git(&["add", "new"]);
    let diff = unborn.workspace.git_diff(Staged::Yes, None).await.unwrap();
    assert!(diff.diff.contains("+text\n"), "{diff:?}");
}

#[tokio::test]
async fn renames_and_names_that_are_hard_to_print() {
    let repository = repository();
    fs::write(repository.path("old name"), "a\nb\nc\nd\n").unwrap();
    fs::write(repository.path("kept"), "1\n").unwrap();
    let head = repository.commit("first");
    repository.git(&["mv", "old name", "new\nname"]);
    fs::write(repository.path("kept"), "2\n").unwrap();
    fs::create_dir(repository.path("fö")).unwrap();
    fs::write(repository.path("fö/a \"b\""), "").unwrap();
    let expected = [pair(".M", "kept"), pair("R.", "new\nname"), pair("??", "fö/a \"b\"")];
    assert_eq!(repository.changed().await, expected);
    let status = repository.workspace.git_status().await.unwrap();
    assert_eq!((status.head, status.truncated), (Some(head), false));
    let diff = repository.workspace.git_diff(Staged::No, None).await.unwrap().diff;
    assert!(diff.contains("-1\n+2\n") && !diff.contains("rename"), "{diff}");
    let diff = repository.workspace.git_diff(Staged::Yes, None).await.unwrap().diff;
    assert!(diff.contains("rename from old name"), "{diff}");
    let of = |path: &'static str| repository.workspace.git_diff(Staged::No, Some(Path::new(path)));
    assert!(of("kept").await.unwrap().diff.contains("+2"));
    assert_eq!(of("k*").await.unwrap(), GitDiff::default());
    assert_eq!(of("../kept").await.unwrap_err().code(), "path_outside");
}

#[tokio::test]
async fn a_head_without_a_branch_and_the_log() {
    let repository = repository();
    fs::write(repository.path("file"), "1").unwrap();
    let first = repository.commit("first");
    let second = repository.commit("second: ä");
    repository.git(&["checkout", "-q", "--detach", &first]);
    let status = repository.workspace.git_status().await.unwrap();
    assert_eq!((status.branch, status.head), (None, Some(first.clone())));
    repository.git(&["checkout", "-q", "main"]);
    let log = repository.workspace.git_log(10).await.unwrap();
    let ids: Vec<_> = log.iter().map(|commit| commit.id.clone()).collect();
    assert_eq!(ids, [second, first]);
    assert_eq!((log[0].author.as_str(), log[0].subject.as_str()), ("A B", "second: ä"));
    assert!(log[0].at.contains('T'));
    assert_eq!(repository.workspace.git_log(1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_large_diff_is_cut_at_a_line() {
    let repository = repository();
    let lines = |text: &str| format!("{text}\n").repeat(DIFF_BYTES_MAX / 8);
    fs::write(repository.path("file"), lines("old old")).unwrap();
    repository.commit("first");
    fs::write(repository.path("file"), lines("new new")).unwrap();
    let diff = repository.workspace.git_diff(Staged::No, None).await.unwrap();
    assert!(diff.truncated);
    assert!(diff.diff.len() <= DIFF_BYTES_MAX && diff.diff.ends_with('\n'));
}

/// A workspace below the repository's top sees its own files, by its own paths.
#[tokio::test]
async fn a_workspace_within_a_repository() {
    let repository = repository();
    fs::create_dir(repository.path("sub")).unwrap();
    fs::write(repository.path("sub/file"), "1\n").unwrap();
    fs::write(repository.path("top"), "1\n").unwrap();
    repository.commit("first");
    fs::write(repository.path("sub/file"), "2\n").unwrap();
    fs::write(repository.path("top"), "2\n").unwrap();
    let tree = Tree::without_cgroup(&common::execution("sub"));
    let workspace = Workspace::open(&repository.path("sub"), &tree).unwrap();
    let status = workspace.git_status().await.unwrap();
    let paths: Vec<_> = status.changed.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["file"]);
    let diff = workspace.git_diff(Staged::No, None).await.unwrap().diff;
    assert!(diff.contains("a/file") && !diff.contains("top"), "{diff}");
}

/// What a repository's configuration names is not run.
#[tokio::test]
async fn no_program_of_the_repository_is_run() {
    let repository = repository();
    fs::write(repository.path("file"), "1\n").unwrap();
    fs::write(repository.path(".gitattributes"), "file diff=evil\n").unwrap();
    repository.commit("first");
    let trap = repository.path("trap");
    fs::write(&trap, "#!/bin/sh\ntouch \"$0.ran\"\n").unwrap();
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).unwrap();
    let trap = trap.to_str().unwrap();
    for key in ["core.fsmonitor", "core.pager", "diff.external", "diff.evil.textconv"] {
        repository.git(&["config", key, trap]);
    }
    fs::write(repository.path("file"), "2\n").unwrap();
    repository.workspace.git_status().await.unwrap();
    let diff = repository.workspace.git_diff(Staged::No, None).await.unwrap();
    assert!(diff.diff.contains("-1\n+2\n"), "{diff:?}");
    repository.workspace.git_log(3).await.unwrap();
    assert!(!repository.path("trap.ran").exists());
}
