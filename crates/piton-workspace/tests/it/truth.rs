//! What a workspace says of itself, in bounded time and size.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use piton_core::Code;
use piton_core::interruption_summary::{PathState, Stat};
use piton_workspace::git::Runner;
use piton_workspace::{Truth, TruthRequest, Workspace};
use tempfile::TempDir;

struct Repository {
    workspace: Workspace,
    folder: TempDir,
    private: TempDir,
}

/// Enough for a machine that is busy: the limit has a test of its own.
const LONG: Duration = Duration::from_mins(2);

fn folder() -> Repository {
    let (folder, private) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let workspace = Workspace::open(folder.path(), Runner::new(private.path())).unwrap();
    Repository { workspace, folder, private }
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

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn git(&self, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.current_dir(self.folder.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.args(["-c", "user.name=A B", "-c", "user.email=a@example.org"]);
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn commit(&self) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "saved"]);
        self.git(&["rev-parse", "HEAD"])
    }

    async fn truth(&self, request: &TruthRequest) -> Truth {
        self.workspace.truth_within(request, LONG).await.unwrap()
    }
}

fn changed(truth: &Truth) -> Vec<(&str, &str)> {
    truth.changed.iter().map(|change| (&*change.status, &*change.path)).collect()
}

fn stat(files: u64, added: u64, removed: u64) -> Stat {
    Stat { files, added, removed }
}

fn of_paths(paths: &[&str]) -> TruthRequest {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    TruthRequest { paths, ..TruthRequest::default() }
}

#[tokio::test]
async fn where_there_is_no_repository_the_truth_is_empty() {
    assert_eq!(folder().truth(&TruthRequest::default()).await, Truth::default());
}

#[tokio::test]
async fn without_git_the_truth_is_an_error() {
    let plain = folder();
    let runner = Runner::new(plain.private.path()).with_program("/nonexistent/git");
    let workspace = Workspace::open(plain.folder.path(), runner).unwrap();
    let error = workspace.truth(&TruthRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::GitMissing);
}

#[tokio::test]
async fn a_file_that_is_staged_and_edited_again_counts_once() {
    let repository = repository();
    repository.write("a", "one\n");
    let head = repository.commit();
    repository.write("a", "two\n");
    repository.git(&["add", "a"]);
    repository.write("a", "three\n");
    repository.write("new", "text\n");
    let truth = repository.truth(&TruthRequest::default()).await;
    assert_eq!((truth.branch.as_deref(), truth.head), (Some("main"), Some(head)));
    assert_eq!(truth.changed.len(), 2);
    // The untracked file is named, and not counted: git has nothing to compare it with.
    assert_eq!(truth.stat, Some(stat(1, 1, 1)));
    assert!(truth.repository && !truth.truncated);
}

#[tokio::test]
async fn before_the_first_commit_what_is_staged_is_counted() {
    for format in ["sha1", "sha256"] {
        let unborn = folder();
        unborn.git(&["init", "-q", "-b", "main", "--object-format", format]);
        let nothing = unborn.truth(&TruthRequest::default()).await;
        assert_eq!((nothing.head, nothing.stat), (None, Some(stat(0, 0, 0))), "{format}");
        unborn.write("a", "one\ntwo\n");
        unborn.git(&["add", "a"]);
        unborn.write("a", "one\ntwo\nthree\n");
        let truth = unborn.truth(&TruthRequest::default()).await;
        assert_eq!((truth.branch.as_deref(), truth.head.as_deref()), (Some("main"), None));
        assert_eq!(changed(&truth), [("AM", "a")]);
        assert_eq!(truth.stat, Some(stat(1, 3, 0)), "{format}");
    }
}

#[tokio::test]
async fn a_head_on_no_branch_is_named_by_its_commit() {
    let repository = repository();
    repository.write("a", "one\n");
    let head = repository.commit();
    repository.git(&["checkout", "-q", "--detach"]);
    let truth = repository.truth(&TruthRequest::default()).await;
    assert_eq!((truth.branch, truth.head), (None, Some(head)));
}

#[tokio::test]
async fn a_merge_and_a_rebase_that_stopped_are_looked_at() {
    for command in ["merge", "rebase"] {
        let repository = repository();
        repository.write("a", "one\n");
        repository.commit();
        repository.git(&["checkout", "-q", "-b", "side"]);
        repository.write("a", "side\n");
        repository.commit();
        repository.git(&["checkout", "-q", "main"]);
        repository.write("a", "main\n");
        repository.commit();
        let mut stopped = Command::new("git");
        stopped.current_dir(repository.folder.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        stopped.args(["-c", "user.name=A", "-c", "user.email=a@example.org", command, "side"]);
        assert!(!stopped.output().unwrap().status.success(), "{command} must stop at a conflict");
        let truth = repository.truth(&of_paths(&["a"])).await;
        let letters = &*truth.changed[0].status;
        assert!(["UU", "AA"].contains(&letters), "{command}: {letters}");
        assert_eq!(truth.paths, [("a".to_owned(), PathState::Changed)]);
        assert_eq!(truth.branch.as_deref(), (command == "merge").then_some("main"));
    }
}

#[tokio::test]
async fn files_outside_a_sparse_checkout_are_unchanged() {
    let repository = repository();
    repository.write("in/a", "one\n");
    repository.write("out/b", "one\n");
    repository.commit();
    repository.git(&["sparse-checkout", "set", "in"]);
    assert!(!repository.path("out/b").exists());
    repository.write("in/a", "two\n");
    let truth = repository.truth(&of_paths(&["out/b"])).await;
    assert_eq!(changed(&truth), [(".M", "in/a")]);
    assert_eq!(truth.stat, Some(stat(1, 1, 1)));
    assert_eq!(truth.paths, [("out/b".to_owned(), PathState::Missing)]);
}

#[tokio::test]
async fn of_a_folder_in_a_repository_only_what_is_in_it_is_said() {
    let repository = repository();
    repository.write("sub/a", "one\n");
    repository.write("b", "one\n");
    repository.commit();
    repository.write("sub/a", "two\n");
    repository.write("b", "two\n");
    let sub = repository.path("sub");
    let workspace = Workspace::open(&sub, Runner::new(repository.private.path())).unwrap();
    let truth = workspace.truth_within(&of_paths(&["a", "../b"]), LONG).await.unwrap();
    assert_eq!(changed(&truth), [(".M", "a")]);
    assert_eq!(truth.stat, Some(stat(1, 1, 1)));
    let states = [("a".to_owned(), PathState::Changed), ("../b".to_owned(), PathState::Outside)];
    assert_eq!(truth.paths, states);
}

#[tokio::test]
async fn each_path_says_what_became_of_it() {
    let repository = repository();
    for name in ["same", "edited", "deleted", "old", "folder/a"] {
        repository.write(name, &format!("{name}\nand more\nof it\n"));
    }
    repository.write(".gitignore", "target\n");
    repository.commit();
    repository.write("edited", "other\n");
    fs::remove_file(repository.path("deleted")).unwrap();
    repository.git(&["mv", "old", "new name"]);
    repository.write("folder/b", "new\n");
    repository.write("target/out", "made\n");
    std::os::unix::fs::symlink("/etc", repository.path("link")).unwrap();
    let absolute = repository.folder.path().join("edited").to_str().unwrap().to_owned();
    let expected = [
        ("same", PathState::Unchanged),
        ("edited", PathState::Changed),
        (absolute.as_str(), PathState::Changed),
        ("./edited", PathState::Changed),
        ("deleted", PathState::Missing),
        ("old", PathState::Missing),
        ("new name", PathState::Changed),
        ("folder", PathState::Changed),
        ("folder/a", PathState::Unchanged),
        ("target/out", PathState::Ignored),
        ("never", PathState::Missing),
        ("same/below", PathState::Missing),
        ("link", PathState::Changed),
        ("link/hosts", PathState::Outside),
        ("/etc/hosts", PathState::Outside),
        ("../x", PathState::Outside),
    ];
    let asked: Vec<&str> = expected.iter().map(|(path, _)| *path).collect();
    let truth = repository.truth(&of_paths(&asked)).await;
    let expected = expected.map(|(path, state)| (path.to_owned(), state));
    assert_eq!(truth.paths, expected);
}

#[tokio::test]
async fn more_files_than_are_named_are_counted_right() {
    let repository = repository();
    repository.commit();
    // More than one listing of git's may have.
    let count = piton_workspace::LIST_MAX + 1_000;
    for n in 0..count {
        fs::write(repository.path(&format!("f{n:05}")), "").unwrap();
    }
    let truth = repository.truth(&TruthRequest::default()).await;
    assert_eq!((truth.changed.len(), truth.more), (50, count as u64 - 50));
    assert!(!truth.truncated);
    let few = TruthRequest { files_max: Some(3), ..TruthRequest::default() };
    let truth = repository.truth(&few).await;
    assert_eq!((truth.changed.len(), truth.more), (3, count as u64 - 3));
}

#[tokio::test]
async fn long_paths_are_cut_and_the_answer_says_so() {
    let repository = repository();
    repository.commit();
    let long = "x".repeat(200);
    let folder = format!("{long}/{long}/{long}/{long}");
    for n in 0..300 {
        repository.write(&format!("{folder}/{n}"), "");
    }
    let request = TruthRequest { files_max: Some(1_000), ..TruthRequest::default() };
    let truth = repository.truth(&request).await;
    assert!(truth.truncated);
    assert_eq!(truth.changed.len() as u64 + truth.more, 300);
    assert!(serde_json::to_vec(&truth).unwrap().len() <= 256 * 1024);
}

/// A git that lists nothing until it is ended, and answers what it can answer at once.
#[tokio::test]
async fn what_is_late_is_left_out_and_the_answer_says_so() {
    let repository = repository();
    repository.write("a", "one\n");
    let head = repository.commit();
    let slow = repository.private.path().join("slow-git");
    let script = "#!/bin/sh\nfor word; do case $word in status|diff) exec sleep 600;; esac; done\n\
                  exec git \"$@\"\n";
    fs::write(&slow, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&slow, mode).unwrap();
    let runner = Runner::new(repository.private.path()).with_program(&slow);
    let workspace = Workspace::open(Path::new(repository.folder.path()), runner).unwrap();
    let started = std::time::Instant::now();
    let truth = workspace.truth(&of_paths(&["a", "never"])).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(truth.truncated && truth.repository);
    assert_eq!((truth.branch.as_deref(), truth.head), (Some("main"), Some(head)));
    assert_eq!((truth.changed.len(), truth.stat), (0, None));
    let states = [("a".to_owned(), PathState::Unknown), ("never".to_owned(), PathState::Missing)];
    assert_eq!(truth.paths, states);
}
