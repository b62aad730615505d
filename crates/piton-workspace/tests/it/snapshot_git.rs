//! Snapshots of workspaces whose git is in an unusual state: the files count, and git stays as it is.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use piton_workspace::identity;
use piton_workspace::snapshot::tree::{ObjectId, Selection};
use piton_workspace::snapshot::{Force, Limits, Repository, SavedSnapshot, SnapshotKey};

struct World {
    _folder: tempfile::TempDir,
    workspace: PathBuf,
    snapshots: PathBuf,
}

/// Whether it succeeded, and what it wrote.
fn git_may_fail(folder: &Path, args: &[&str]) -> (bool, String) {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.args(["-c", "user.name=A", "-c", "user.email=a@example.org"]).args(args);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        let snapshots = folder.path().join("snapshots");
        let world = Self { _folder: folder, workspace, snapshots };
        world.git(&["init", "-q", "-b", "main"]);
        world
    }

    fn git(&self, args: &[&str]) -> String {
        let (is_good, text) = git_may_fail(&self.workspace, args);
        assert!(is_good, "{args:?}");
        text
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.workspace.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn commit(&self, text: &str) {
        self.write("a", text);
        self.git(&["add", "-A"]);
        self.git(&["commit", "-qm", text.trim()]);
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.workspace.join(name)).ok()
    }

    fn open(&self) -> Repository {
        let key = Some(SnapshotKey::derive(b"a secret of the session"));
        Repository::open(&self.snapshots, key, Limits::default()).unwrap()
    }

    fn take(&self) -> SavedSnapshot {
        self.open().take(&self.workspace, &BTreeSet::new()).unwrap()
    }

    fn restore(&self, id: ObjectId) {
        let mut repository = self.open();
        let all = Selection::all();
        repository.restore(&self.workspace, id, &all, Force::Refuse, |_, _| false).unwrap();
        repository.settle().unwrap();
    }

    fn names(&self, id: ObjectId) -> Vec<String> {
        let tree = self.open().load(id).unwrap().tree;
        tree.nodes.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    /// Every file of git's, byte for byte.
    fn git_files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut found, mut folders) = (Vec::new(), vec![self.workspace.join(".git")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = fs::read(&path).unwrap();
                    found.push((path, bytes));
                }
            }
        }
        found.sort();
        found
    }

    /// Takes a snapshot, edits a file, restores it: the file is back, and git's files are as they were.
    fn goes_back(&self, state: &str) {
        self.write("a", "at the snapshot\n");
        let before = self.git_files();
        let taken = self.take();
        self.write("a", "after it\n");
        self.write("new", "after it\n");
        self.restore(taken.id);
        assert_eq!(self.text("a").as_deref(), Some("at the snapshot\n"), "{state}");
        assert_eq!(self.text("new"), None, "{state}");
        assert_eq!(self.git_files(), before, "{state}");
    }
}

#[test]
fn a_merge_or_a_rebase_in_progress_stays_in_progress() {
    for command in ["merge", "rebase"] {
        let world = World::new();
        world.commit("one\n");
        world.git(&["checkout", "-q", "-b", "side"]);
        world.commit("side\n");
        world.git(&["checkout", "-q", "main"]);
        world.commit("main\n");
        let (is_good, _) = git_may_fail(&world.workspace, &[command, "side"]);
        assert!(!is_good, "{command} must stop at a conflict");
        world.goes_back(command);
        world.write("a", "resolved\n");
        world.git(&["add", "a"]);
        world.git(&["-c", "core.editor=true", command, "--continue"]);
        assert_eq!(world.text("a").as_deref(), Some("resolved\n"));
    }
}

#[test]
fn a_head_on_no_branch_and_an_empty_repository_are_no_problem() {
    let empty = World::new();
    empty.goes_back("empty");
    let detached = World::new();
    detached.commit("one\n");
    detached.git(&["checkout", "-q", "--detach"]);
    detached.goes_back("detached");
}

#[test]
fn files_outside_a_sparse_checkout_stay_away() {
    let world = World::new();
    world.write("in/b", "one\n");
    world.write("out/c", "one\n");
    world.commit("one\n");
    world.git(&["sparse-checkout", "set", "in"]);
    assert_eq!(world.text("out/c"), None);
    world.goes_back("sparse");
    assert_eq!(world.text("out/c"), None);
    // What was brought in later goes again, though git tracks it: it was not there.
    let taken = world.take();
    world.git(&["sparse-checkout", "add", "out"]);
    assert!(world.text("out/c").is_some());
    world.restore(taken.id);
    assert_eq!(world.text("out/c"), None);
}

/// Wants to show: the files that a split index names in its shared part are tracked, those that it took
/// out of there are not.
#[test]
fn a_split_index_is_read_whole() {
    for version in ["2", "4"] {
        let world = World::new();
        world.git(&["config", "core.splitIndex", "true"]);
        world.git(&["config", "splitIndex.maxPercentChange", "100"]);
        for name in ["a.lock", "b.lock", "c.lock", "d.lock"] {
            world.write(name, "one\n");
        }
        world.git(&["add", "-A"]);
        world.git(&["update-index", "--index-version", version, "--split-index"]);
        world.write(".gitignore", "*.lock\n");
        world.write("e.lock", "one\n");
        world.write("c.lock", "two\n");
        // One is taken out, one changed, one added.
        world.git(&["rm", "-q", "--cached", "b.lock"]);
        world.git(&["add", "-f", "c.lock", "e.lock", ".gitignore"]);
        let shared = fs::read_dir(world.workspace.join(".git")).unwrap();
        let names = shared.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(names.into_iter().any(|name| name.starts_with("sharedindex.")), "not split");
        let tracked = world.git(&["ls-files", "-z"]);
        let mut tracked: Vec<&str> = tracked.split('\0').filter(|name| !name.is_empty()).collect();
        tracked.sort_unstable();
        assert_eq!(tracked, [".gitignore", "a.lock", "c.lock", "d.lock", "e.lock"]);
        assert_eq!(world.names(world.take().id), tracked, "version {version}");
    }
}

#[test]
fn a_workspace_is_identified_by_its_repository_and_branch() {
    let world = World::new();
    let unborn = identity(&world.workspace).unwrap();
    assert_eq!((unborn.branch.as_deref(), unborn.head), (Some("main"), None));
    world.commit("one\n");
    let head = world.git(&["rev-parse", "HEAD"]);
    let loose = identity(&world.workspace).unwrap();
    assert_eq!((loose.branch.as_deref(), loose.head.as_deref()), (Some("main"), Some(&*head)));
    world.git(&["pack-refs", "--all"]);
    assert_eq!(identity(&world.workspace).unwrap(), loose);
    world.write("sub/b", "one\n");
    assert_eq!(identity(&world.workspace.join("sub")).unwrap(), loose);
    let worktree = world.workspace.with_file_name("worktree");
    world.git(&["worktree", "add", "-q", "-b", "side/one", worktree.to_str().unwrap()]);
    let linked = identity(&worktree).unwrap();
    assert_eq!(linked.repository, loose.repository);
    assert_eq!(
        (linked.branch.as_deref(), linked.head.as_deref()),
        (Some("side/one"), Some(&*head))
    );
    world.git(&["checkout", "-q", "--detach"]);
    let detached = identity(&world.workspace).unwrap();
    assert_eq!((detached.branch, detached.head.as_deref()), (None, Some(&*head)));
    let plain = tempfile::tempdir().unwrap();
    assert_eq!(identity(plain.path()).unwrap().repository, None);
}
