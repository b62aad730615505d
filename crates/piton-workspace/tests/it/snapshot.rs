//! Snapshots: what is in them, what a restore brings back, and what it refuses.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use piton_workspace::snapshot::tree::{Node, ObjectId, Selection, changes};
use piton_workspace::snapshot::{
    Error, Force, Limits, Repository, Restored, SavedSnapshot, SkipReason, SnapshotKey,
};

struct World {
    _folder: tempfile::TempDir,
    workspace: PathBuf,
    repository: PathBuf,
    key: Option<SnapshotKey>,
    limits: Limits,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        let repository = folder.path().join("snapshots");
        let key = Some(SnapshotKey::derive(b"a secret of the session"));
        Self { _folder: folder, workspace, repository, key, limits: Limits::default() }
    }

    fn open(&self) -> Repository {
        Repository::open(&self.repository, self.key.clone(), self.limits).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.workspace.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn take(&self) -> SavedSnapshot {
        self.open().take(&self.workspace, &BTreeSet::new()).unwrap()
    }

    fn names(&self, id: ObjectId) -> Vec<String> {
        let tree = self.open().load(id).unwrap().tree;
        tree.nodes.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    fn restore(&self, id: ObjectId) -> Result<Restored, Error> {
        let mut repository = self.open();
        let all = Selection::all();
        let restored =
            repository.restore(&self.workspace, id, &all, Force::Refuse, |_, _| false)?;
        repository.settle()?;
        Ok(restored)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Everything in the workspace but `.git`: path, kind and content.
    fn contents(&self) -> Vec<(Vec<u8>, String)> {
        let mut found = Vec::new();
        let mut folders = vec![self.workspace.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let kind = fs::symlink_metadata(&path).unwrap();
                let name =
                    path.strip_prefix(&self.workspace).unwrap().as_os_str().as_bytes().to_vec();
                if name == b".git" {
                } else if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_symlink() {
                    found.push((name, format!("link {}", fs::read_link(&path).unwrap().display())));
                } else {
                    let bits = kind.permissions().mode() & 0o777;
                    found.push((name, format!("{bits:o} {:?}", fs::read(&path).unwrap())));
                }
            }
        }
        found.sort();
        found
    }
}

fn git(folder: &Path, args: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn untracked_files_are_in_it_and_ignored_ones_are_not() {
    let world = World::new();
    world.write(".gitignore", "*.log\nbuild/\n");
    world.write("src/a.rs", "a");
    world.write("notes.log", "no");
    world.write("build/out", "no");
    world.write(".hidden", "yes");
    let taken = world.take();
    assert_eq!(world.names(taken.id), [".gitignore", ".hidden", "src/a.rs"]);
    assert!(!taken.unchanged);
    assert!(world.take().unchanged);
}

#[test]
fn a_restore_brings_back_every_byte_bit_link_and_name() {
    let world = World::new();
    world.write("text", "one\r\ntwo\n");
    world.write("run.sh", "#!/bin/sh\n");
    fs::set_permissions(world.path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    world.write("a line\nbreak", "name");
    world.write("folder/deep/file", "deep");
    world.write("becomes-a-folder", "file");
    symlink("../outside", world.path("link")).unwrap();
    let before = world.contents();
    let taken = world.take();

    world.write("text", "changed");
    fs::set_permissions(world.path("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(world.path("a line\nbreak")).unwrap();
    fs::remove_dir_all(world.path("folder")).unwrap();
    world.write("folder", "a file now");
    fs::remove_file(world.path("becomes-a-folder")).unwrap();
    world.write("becomes-a-folder/with/content", "x");
    fs::remove_file(world.path("link")).unwrap();
    symlink("elsewhere", world.path("link")).unwrap();
    world.write("new", "new");
    let after = world.contents();

    let restored = world.restore(taken.id).unwrap();
    assert_eq!(world.contents(), before);
    assert!(world.take().unchanged || world.take().id == taken.id);
    // The safety snapshot undoes it.
    world.restore(restored.safety).unwrap();
    assert_eq!(world.contents(), after);
}

#[test]
fn only_the_selected_paths_are_restored() {
    let world = World::new();
    world.write("a/one", "1");
    world.write("b", "1");
    let taken = world.take();
    world.write("a/one", "2");
    world.write("b", "2");
    let selection = Selection { paths: vec![b"a".to_vec()] };
    let mut repository = world.open();
    repository
        .restore(&world.workspace, taken.id, &selection, Force::Refuse, |_, _| false)
        .unwrap();
    assert_eq!((world.text("a/one").as_str(), world.text("b").as_str()), ("1", "2"));
}

#[test]
fn foreign_changes_are_refused_and_named_and_forced() {
    let world = World::new();
    world.write("mine", "1");
    world.write("yours", "1");
    let taken = world.take();
    world.write("mine", "2");
    world.write("yours", "2");
    let mut repository = world.open();
    let foreign = |path: &[u8], _: &_| path == b"yours";
    let all = Selection::all();
    let refused = repository.restore(&world.workspace, taken.id, &all, Force::Refuse, foreign);
    let Err(Error::ForeignChanges { paths }) = refused else { panic!("{refused:?}") };
    assert_eq!(paths, [b"yours".to_vec()]);
    assert_eq!((world.text("mine").as_str(), world.text("yours").as_str()), ("2", "2"));
    repository.restore(&world.workspace, taken.id, &all, Force::Overwrite, foreign).unwrap();
    assert_eq!((world.text("mine").as_str(), world.text("yours").as_str()), ("1", "1"));
}

#[test]
fn an_ignored_file_in_the_way_is_saved_first() {
    let world = World::new();
    world.write("settings", "kept");
    let taken = world.take();
    world.write("settings", "ignored since, and precious");
    world.write(".gitignore", "settings\n");
    let restored = world.restore(taken.id).unwrap();
    assert_eq!(world.text("settings"), "kept");
    world.restore(restored.safety).unwrap();
    assert_eq!(world.text("settings"), "ignored since, and precious");
}

#[test]
fn what_cannot_be_saved_is_not_overwritten() {
    let mut world = World::new();
    world.write("file", "small");
    let taken = world.take();
    world.limits.file_bytes_max = 100;
    world.write("file", &"x".repeat(101));
    let refused = world.restore(taken.id);
    let Err(Error::NotSaved { paths }) = refused else { panic!("{refused:?}") };
    assert_eq!(paths, [b"file".to_vec()]);
    assert_eq!(world.text("file").len(), 101);
    // Nor is a folder with ignored contents removed to make room for a file.
    fs::remove_file(world.path("file")).unwrap();
    world.write("file/ignored", "x");
    world.write(".gitignore", "ignored\n");
    assert!(matches!(world.restore(taken.id), Err(Error::NotSaved { .. })));
    assert_eq!(world.text("file/ignored"), "x");
}

#[test]
fn large_files_nested_repositories_and_pipes_are_left_alone_and_named() {
    let mut world = World::new();
    world.limits.file_bytes_max = 10;
    world.write("large", "more than ten bytes");
    world.write("small", "x");
    fs::create_dir(world.path("nested")).unwrap();
    git(&world.path("nested"), &["init", "-q"]);
    world.write("nested/file", "x");
    let pipe = world.path("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let taken = world.take();
    assert_eq!(world.names(taken.id), ["small"]);
    let mut skipped: Vec<_> = taken
        .skipped
        .iter()
        .map(|skip| (String::from_utf8_lossy(&skip.path).into_owned(), skip.reason))
        .collect();
    skipped.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("large", SkipReason::TooLarge),
        ("nested", SkipReason::NestedRepository),
        ("pipe", SkipReason::NotAFile),
    ];
    assert_eq!(skipped, expected.map(|(path, reason)| (path.to_owned(), reason)));
    // Restoring removes none of them.
    world.write("small", "y");
    world.restore(taken.id).unwrap();
    assert!(pipe.exists() && world.path("large").exists() && world.path("nested/file").exists());
}

/// The user's repository: every file of `.git` is the same, and no command sees a snapshot.
#[test]
fn the_users_git_is_not_touched() {
    let world = World::new();
    git(&world.workspace, &["init", "-q"]);
    world.write("a", "1");
    git(&world.workspace, &["add", "a"]);
    git(&world.workspace, &["commit", "-qm", "first"]);
    world.write("a", "2");
    world.write("b", "untracked");
    git(&world.workspace, &["stash", "-q"]);
    world.write("a", "3");
    let state = || {
        let mut files = Vec::new();
        let mut folders = vec![world.path(".git")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push((path.clone(), fs::read(&path).unwrap()));
                }
            }
        }
        files.sort();
        files
    };
    let before = state();
    let taken = world.take();
    world.write("a", "4");
    world.restore(taken.id).unwrap();
    assert_eq!(state(), before);
    assert_eq!(world.text("a"), "3");
    assert_eq!(git(&world.workspace, &["status", "--porcelain"]), " M a\n?? b\n");
}

#[test]
fn no_content_is_readable_without_the_key() {
    let world = World::new();
    world.write("secret", "correct horse battery staple");
    let taken = world.take();
    for entry in fs::read_dir(&world.repository).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        for needle in [&b"correct horse"[..], b"secret"] {
            let found = bytes.windows(needle.len()).any(|window| window == needle);
            // The cache of metadata has names, as a folder listing has them.
            assert!(!found || path.ends_with("stats"), "{needle:?} in {path:?}");
        }
    }
    let other = Some(SnapshotKey::derive(b"another secret"));
    let repository = Repository::open(&world.repository, other, world.limits).unwrap();
    assert!(matches!(repository.load(taken.id), Err(Error::ObjectDamaged { .. })));
}

/// Wants to show: opened with another key or with none, and without its index, a repository keeps what
/// it has, also when something is added.
#[test]
fn another_key_cuts_nothing_off() {
    let world = World::new();
    world.write("a", "1");
    let taken = world.take();
    for key in [Some(SnapshotKey::derive(b"another secret")), None] {
        fs::remove_file(world.repository.join("pack.index")).unwrap();
        let mut repository = Repository::open(&world.repository, key, world.limits).unwrap();
        repository.take(&world.workspace, &BTreeSet::new()).unwrap();
        assert!(!repository.is_whole(taken.id));
        drop(repository);
        let _ = fs::remove_file(world.repository.join("pack.index"));
        assert!(world.open().is_whole(taken.id));
        world.restore(taken.id).unwrap();
    }
}

#[test]
fn every_flipped_byte_of_the_pack_is_noticed() {
    let world = World::new();
    world.write("a", "some contents of a file");
    world.write("b/c", "others");
    let taken = world.take();
    let pack = world.repository.join("pack");
    let good = fs::read(&pack).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&pack, &bad).unwrap();
        let _ = fs::remove_file(world.repository.join("pack.index"));
        let repository = world.open();
        let intact = repository.load(taken.id).and_then(|snapshot| {
            snapshot.tree.nodes.values().try_for_each(|node| match node {
                Node::File { id, .. } => repository.read(*id).map(drop),
                Node::Link { .. } => Ok(()),
            })
        });
        assert!(intact.is_err(), "byte {at}");
    }
}

#[test]
fn a_torn_pack_is_cut_and_used_again() {
    let world = World::new();
    world.write("a", "1");
    let first = world.take();
    let pack = world.repository.join("pack");
    let mut torn = fs::read(&pack).unwrap();
    torn.extend_from_slice(&[0xA7, 1, 2, 3]);
    fs::write(&pack, &torn).unwrap();
    world.write("a", "2");
    let second = world.take();
    // Also without the caches.
    for cache in ["pack.index", "stats"] {
        let _ = fs::remove_file(world.repository.join(cache));
    }
    let repository = world.open();
    let (first, second) = (repository.load(first.id).unwrap(), repository.load(second.id).unwrap());
    assert_eq!(changes(&first.tree, &second.tree).len(), 1);
}

#[test]
fn pruned_snapshots_are_gone_and_kept_ones_are_whole() {
    let world = World::new();
    let mut ids = Vec::new();
    for n in 0..10 {
        world.write("file", &format!("{n} {}", "content ".repeat(100 + n)));
        world.write(&format!("only/{n}"), &format!("only in {n}"));
        ids.push(world.take().id);
    }
    let mut repository = world.open();
    let before = repository.bytes();
    let freed = repository.prune(&ids[8..]).unwrap();
    assert_eq!(repository.bytes() + freed, before);
    assert!(matches!(repository.load(ids[0]), Err(Error::ObjectMissing { .. })));
    drop(repository);
    world.restore(ids[8]).unwrap();
    assert!(world.text("file").starts_with('8'));
}

#[test]
fn a_second_writer_is_refused() {
    let world = World::new();
    let _first = world.open();
    let second = Repository::open(&world.repository, None, world.limits);
    assert!(matches!(second, Err(Error::InUse)));
}

#[test]
fn a_touched_file_and_one_rewritten_at_once_are_noticed() {
    let world = World::new();
    world.write("a", "1");
    let mut last = world.take().id;
    // The same length, as fast as possible: times alone would not show it.
    for n in 2..9 {
        world.write("a", &n.to_string());
        let taken = world.take();
        assert_ne!(taken.id, last, "change {n}");
        last = taken.id;
    }
    fs::set_permissions(world.path("a"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_ne!(world.take().id, last);
}

#[test]
fn a_folder_that_cannot_be_written_to_refuses_before_the_first_change() {
    if rustix::process::geteuid().is_root() {
        // Root may write everywhere: a folder that was replaced by a link is refused in its place.
        let world = World::new();
        world.write("folder/a", "1");
        world.write("z", "1");
        let taken = world.take();
        let outside = world.path("../outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("a"), "theirs").unwrap();
        fs::remove_dir_all(world.path("folder")).unwrap();
        symlink("../outside", world.path("folder")).unwrap();
        world.restore(taken.id).unwrap();
        // The link gave way to a folder; what it pointed to is as it was.
        assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "theirs");
        assert_eq!(world.text("folder/a"), "1");
        return;
    }
    let world = World::new();
    world.write("folder/a", "1");
    world.write("z", "1");
    let taken = world.take();
    world.write("folder/a", "2");
    world.write("z", "2");
    fs::set_permissions(world.path("folder"), fs::Permissions::from_mode(0o555)).unwrap();
    assert!(matches!(world.restore(taken.id), Err(Error::NotWritable { .. })));
    assert_eq!(world.text("z"), "2");
    fs::set_permissions(world.path("folder"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Wants to show: a file that was replaced by an empty folder comes back, also by folders in it.
#[test]
fn a_file_comes_back_over_an_empty_folder() {
    let world = World::new();
    world.write("a", "one");
    world.write("b", "two");
    let taken = world.take();
    fs::remove_file(world.path("a")).unwrap();
    fs::create_dir_all(world.path("a/empty/deep")).unwrap();
    fs::remove_file(world.path("b")).unwrap();
    fs::create_dir(world.path("b")).unwrap();
    world.restore(taken.id).unwrap();
    assert_eq!((world.text("a"), world.text("b")), ("one".to_owned(), "two".to_owned()));
}

/// Wants to show: what a restore that was cut off needs is not pruned, and what was edited since the
/// crash is in the snapshot that the recovery returns.
#[test]
fn a_cut_off_restore_survives_pruning_and_keeps_later_edits() {
    let world = World::new();
    world.write("a", "target");
    let target = world.take().id;
    world.write("a", "before");
    let safety = world.take().id;
    let journal = format!(
        r#"{{"version":1,"safety":"{safety}","target":"{target}","paths":[],"back":false}}"#
    );
    fs::write(world.repository.join("restore.journal"), journal).unwrap();
    assert!(Repository::has_journal(&world.repository));
    world.write("a", "edited since");
    world.open().prune(&[]).unwrap();
    let mut repository = world.open();
    let recovered = repository.recover(&world.workspace).unwrap().unwrap();
    assert_eq!(world.text("a"), "target");
    assert!(recovered.is_edited);
    // It stays until someone has written down what happened.
    assert!(Repository::has_journal(&world.repository));
    repository.settle().unwrap();
    assert!(!Repository::has_journal(&world.repository));
    drop(repository);
    world.restore(recovered.found.unwrap()).unwrap();
    assert_eq!(world.text("a"), "edited since");
}

/// Wants to show: what a crash left half restored is no user's edit.
#[test]
fn a_half_restored_workspace_is_not_edited() {
    let world = World::new();
    world.write("a", "target");
    world.write("b", "target");
    let target = world.take().id;
    world.write("a", "before");
    fs::remove_file(world.path("b")).unwrap();
    world.write("c", "before");
    let safety = world.take().id;
    let journal = format!(
        r#"{{"version":1,"safety":"{safety}","target":"{target}","paths":[],"back":false}}"#
    );
    fs::write(world.repository.join("restore.journal"), journal).unwrap();
    world.write("a", "target");
    let mut repository = world.open();
    let recovered = repository.recover(&world.workspace).unwrap().unwrap();
    assert!(!recovered.is_edited && recovered.found.is_some());
    assert_eq!((world.text("a"), world.text("b")), ("target".to_owned(), "target".to_owned()));
    assert!(!world.path("c").exists());
}

impl World {
    /// A snapshot whose flush a power failure came before; says where the pack ended without it.
    fn take_unflushed(&self) -> (SavedSnapshot, usize) {
        let pack = self.repository.join("pack");
        let flushed = fs::metadata(&pack).map_or(0, |found| usize::try_from(found.len()).unwrap());
        let taken = self.open().take_unflushed(&self.workspace, &BTreeSet::new()).unwrap();
        (taken, flushed)
    }
}

/// Wants to show: a snapshot that was not flushed survives the end of its process.
#[test]
fn an_unflushed_snapshot_survives_its_process() {
    let world = World::new();
    world.write("a", "1");
    world.take();
    world.write("a", "2");
    let (taken, _) = world.take_unflushed();
    world.write("a", "3");
    assert!(world.open().is_whole(taken.id));
    world.take();
    world.restore(taken.id).unwrap();
    assert_eq!(world.text("a"), "2");
}

/// Wants to show: whatever a power failure leaves of a snapshot that was not flushed, no other snapshot
/// is lost with it, no one takes it for whole if it is not, and the next snapshot of the same files
/// writes again what is missing.
#[test]
fn what_a_power_failure_leaves_of_a_snapshot_is_whole_or_written_again() {
    let world = World::new();
    world.write("a", "1");
    world.write("b/c", "unchanged");
    let first = world.take();
    world.write("a", "2");
    world.write("d", "added");
    let (second, flushed) = world.take_unflushed();
    let pack = world.repository.join("pack");
    let good = fs::read(&pack).unwrap();
    let caches = ["pack.index", "stats"].map(|name| world.repository.join(name));
    let kept = caches.clone().map(|path| fs::read(path).unwrap());
    let mut whole = 0;
    // Every byte takes a minute: the steps are of no frame's length, and meet every part of one.
    for at in (flushed..good.len()).step_by(13) {
        let mut cut = good.clone();
        cut.truncate(at);
        let mut zeros = good.clone();
        zeros[at..].fill(0);
        let mut hole = good.clone();
        hole[at] ^= 1;
        for left in [cut, zeros, hole] {
            fs::write(&pack, &left).unwrap();
            for (path, bytes) in caches.iter().zip(&kept) {
                fs::write(path, bytes).unwrap();
            }
            let repository = world.open();
            assert!(repository.is_whole(first.id), "byte {at}: the flushed one");
            assert!(!repository.is_whole(second.id), "byte {at}: taken for whole");
            drop(repository);
            let again = world.take();
            assert_eq!(again.id, second.id);
            let repository = world.open();
            assert!(repository.is_whole(second.id), "byte {at}: not written again");
            for id in repository.load(second.id).unwrap().tree.nodes.values() {
                if let Node::File { id, .. } = id {
                    repository.read(*id).unwrap();
                    whole += 1;
                }
            }
        }
    }
    assert!(whole > 0);
}

/// Wants to show: a snapshot that is not whole any more keeps no other one from being pruned.
#[test]
fn a_lost_snapshot_is_in_nobodys_way_when_others_are_pruned() {
    let world = World::new();
    world.write("a", "1");
    let first = world.take();
    world.write("a", "2");
    let second = world.take();
    world.write("a", "3");
    let (third, _) = world.take_unflushed();
    let pack = world.repository.join("pack");
    let length = fs::metadata(&pack).unwrap().len();
    fs::File::options().write(true).open(&pack).unwrap().set_len(length - 1).unwrap();
    let mut repository = world.open();
    assert!(repository.prune(&[second.id, third.id]).unwrap() > 0);
    assert!(repository.is_whole(second.id));
    assert!(!repository.is_whole(first.id) && !repository.is_whole(third.id));
    drop(repository);
    assert!(world.open().is_whole(second.id));
    world.restore(second.id).unwrap();
    assert_eq!(world.text("a"), "2");
}
