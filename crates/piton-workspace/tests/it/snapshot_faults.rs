//! What goes wrong around snapshots and restores: caches and packs that a crash left, files that
//! others change, ignore rules that changed, and two sessions in one folder.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use piton_workspace::snapshot::tree::{ObjectId, Selection};
use piton_workspace::snapshot::{Error, Force, Limits, Repository, Restored};

struct World {
    folder: tempfile::TempDir,
    workspace: PathBuf,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        Self { folder, workspace }
    }

    /// Of a session.
    fn repository(&self, session: &str) -> PathBuf {
        self.folder.path().join("snapshots").join(session)
    }

    fn open(&self, session: &str) -> Repository {
        Repository::open(&self.repository(session), None, Limits::default()).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.workspace.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.workspace.join(name)).ok()
    }

    fn take(&self) -> ObjectId {
        self.open("a").take(&self.workspace, &BTreeSet::new()).unwrap().id
    }

    fn restore(&self, id: ObjectId) -> Result<Restored, Error> {
        let mut repository = self.open("a");
        let (all, force) = (Selection::all(), Force::Refuse);
        let restored = repository.restore(&self.workspace, id, &all, force, |_, _| false)?;
        repository.settle()?;
        Ok(restored)
    }

    fn names(&self, id: ObjectId) -> Vec<String> {
        let tree = self.open("a").load(id).unwrap().tree;
        tree.nodes.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.workspace.join(name)).unwrap().permissions().mode() & 0o777
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.workspace.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Wants to show: after a crash between two snapshots the cache never pairs what is there now with the
/// older snapshot. Whatever part of the second one's caches reached the disk, the next snapshot has
/// the files as they are.
#[test]
fn a_cache_is_of_the_snapshot_that_it_names() {
    let world = World::new();
    let save = |name: &str| fs::read(world.repository("a").join(name)).ok();
    world.write("a", "one");
    let first = world.take();
    let old: Vec<_> = ["stats", "last"].iter().map(|name| (*name, save(name))).collect();
    std::thread::sleep(Duration::from_millis(50));
    world.write("a", "two");
    let second = world.take();
    let new: Vec<_> = ["stats", "last"].iter().map(|name| (*name, save(name))).collect();
    // Every mixture of the two.
    for mixture in 0..4 {
        for (at, (name, old)) in old.iter().enumerate() {
            let bytes = if mixture & (1 << at) == 0 { old } else { &new[at].1 };
            match bytes {
                Some(bytes) => fs::write(world.repository("a").join(name), bytes).unwrap(),
                None => drop(fs::remove_file(world.repository("a").join(name))),
            }
        }
        assert_eq!(world.take(), second, "mixture {mixture}");
    }
    assert_ne!(first, second);
}

/// Wants to show: a frame whose head and length reached the disk, and whose contents did not, does not
/// count as the object; the next snapshot writes it again.
#[test]
fn a_frame_with_lost_contents_is_no_object() {
    let world = World::new();
    world.write("a", "kept");
    world.take();
    let (pack, index) =
        (world.repository("a").join("pack"), world.repository("a").join("pack.index"));
    let (before, indexed) = (fs::metadata(&pack).unwrap().len(), fs::read(&index).unwrap());
    world.write("b", "a content that the disk did not get");
    let lost = world.take();
    // The crash: the length is there, the index is the old one, and the contents are zeros.
    let mut bytes = fs::read(&pack).unwrap();
    let head = usize::try_from(before).unwrap() + 42;
    bytes[head..].fill(0);
    fs::write(&pack, &bytes).unwrap();
    fs::write(&index, &indexed).unwrap();
    fs::remove_file(world.repository("a").join("stats")).unwrap();
    assert_eq!(world.take(), lost);
    fs::remove_file(world.workspace.join("b")).unwrap();
    world.restore(lost).unwrap();
    assert_eq!(world.text("b").as_deref(), Some("a content that the disk did not get"));
}

/// Wants to show: who may read a file comes back, also when the file was gone.
#[test]
fn permission_bits_come_back() {
    let world = World::new();
    world.write("secret", "s");
    world.set_mode("secret", 0o600);
    world.write("shared", "s");
    world.set_mode("shared", 0o664);
    let taken = world.take();
    fs::remove_file(world.workspace.join("secret")).unwrap();
    world.set_mode("shared", 0o600);
    assert_eq!(world.restore(taken).unwrap().paths.len(), 2);
    assert_eq!((world.mode("secret"), world.mode("shared")), (0o600, 0o664));
}

/// Wants to show: a file that the target's ignore rules left out stays, though it is no longer
/// ignored; one that they did not leave out goes.
#[test]
fn a_file_that_was_ignored_then_is_not_removed() {
    let world = World::new();
    world.write(".gitignore", ".env\n/build/\n!keep.env\n");
    world.write("sub/.gitignore", "local.*\n!local.md\n");
    for name in [".env", "build/out", "sub/local.toml"] {
        world.write(name, "not to be lost");
    }
    let taken = world.take();
    world.write(".gitignore", "");
    world.write("sub/.gitignore", "");
    for name in ["new", "sub/local.md", "sub/build/x"] {
        world.write(name, "of the turn");
    }
    world.restore(taken).unwrap();
    for name in [".env", "build/out", "sub/local.toml"] {
        assert_eq!(world.text(name).as_deref(), Some("not to be lost"), "{name}");
    }
    for name in ["new", "sub/local.md", "sub/build/x"] {
        assert_eq!(world.text(name), None, "{name}");
    }
}

/// Wants to show: what git tracks belongs to a snapshot, whatever the ignore rules say, in every format
/// of git's index.
#[test]
fn tracked_files_are_in_it_though_they_are_ignored() {
    for version in ["2", "3", "4"] {
        let world = World::new();
        let git = |arguments: &[&str]| {
            let done = Command::new("git").args(arguments).current_dir(&world.workspace).output();
            assert!(done.as_ref().unwrap().status.success(), "{done:?}");
        };
        git(&["init", "-q"]);
        world.write(".gitignore", "*.lock\nlogs/\n");
        world.write("Cargo.lock", "tracked");
        world.write("other.lock", "not tracked");
        world.write("logs/kept.txt", "tracked");
        world.write("planned", "later");
        git(&["add", "-f", "Cargo.lock", "logs/kept.txt", ".gitignore"]);
        if version != "2" {
            // An entry with an extended flag makes it version 3.
            git(&["add", "-N", "planned"]);
        }
        if version == "4" {
            git(&["update-index", "--index-version", "4"]);
        }
        let index = fs::read(world.workspace.join(".git/index")).unwrap();
        assert_eq!(index[7].to_string(), version);
        let taken = world.take();
        let names = [".gitignore", "Cargo.lock", "logs/kept.txt", "planned"];
        assert_eq!(world.names(taken), names, "version {version}");
        world.write("Cargo.lock", "changed by the turn");
        fs::remove_dir_all(world.workspace.join("logs")).unwrap();
        world.restore(taken).unwrap();
        assert_eq!(world.text("Cargo.lock").as_deref(), Some("tracked"));
        assert_eq!(world.text("logs/kept.txt").as_deref(), Some("tracked"));
        assert_eq!(world.text("other.lock").as_deref(), Some("not tracked"));
        // Tracked from a folder below, too.
        fs::create_dir_all(world.workspace.join("below")).unwrap();
        world.write("below/x.lock", "1");
        git(&["add", "-f", "below/x.lock"]);
        let mut repository = world.open("b");
        let below = repository.take(&world.workspace.join("below"), &BTreeSet::new()).unwrap();
        let tree = repository.load(below.id).unwrap().tree;
        assert!(tree.nodes.contains_key(&b"x.lock"[..]), "version {version}");
    }
}

/// Wants to show: what is saved to a file between the safety snapshot and its step is not overwritten;
/// the restore is rolled back, and what it had written is as before. The callback that says what is
/// foreign runs after the safety snapshot.
#[test]
fn an_edit_between_the_look_and_the_step_is_kept() {
    let world = World::new();
    world.write("a", "target");
    world.write("z", "target");
    let target = world.take();
    world.write("a", "before");
    world.write("z", "before");
    let mut repository = world.open("a");
    let edit = |path: &[u8]| {
        if path == b"z" {
            world.write("z", "saved by a user");
        }
        false
    };
    let all = Selection::all();
    let restored =
        repository.restore(&world.workspace, target, &all, Force::Refuse, |path, _| edit(path));
    let Err(Error::ForeignChanges { paths }) = restored else { panic!("{restored:?}") };
    assert_eq!(paths, [b"z".to_vec()]);
    assert_eq!(world.text("z").as_deref(), Some("saved by a user"));
    assert_eq!(world.text("a").as_deref(), Some("before"));
    // The journal says that it was rolled back, until that is recorded.
    assert!(repository.recover(&world.workspace).unwrap().unwrap().rolled_back);
}

fn names_of(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Wants to show: what a crash left beside a file's place is in no snapshot, and the recovery removes
/// it; a restore of another session has another name.
#[test]
fn litter_of_a_crash_is_in_no_snapshot_and_removed() {
    let world = World::new();
    world.write("folder/a", "target");
    let target = world.take();
    world.write("folder/a", "before");
    let safety = world.take();
    let litter = ".piton-restore-00112233445566ff.tmp";
    let journal = format!(
        r#"{{"version":1,"safety":"{safety}","target":"{target}","paths":[],"back":true,"temporary":"{litter}"}}"#
    );
    fs::write(world.repository("a").join("restore.journal"), journal).unwrap();
    world.write(&format!("folder/{litter}"), "half a fi");
    assert_eq!(world.take(), safety);
    let recovered = world.open("a").recover(&world.workspace).unwrap().unwrap();
    assert!(recovered.rolled_back);
    assert_eq!(names_of(&world.workspace.join("folder")), ["a"]);
}

/// Wants to show: while one session restores a folder, another session of that folder neither looks at
/// it nor restores it; it does so afterwards.
#[test]
fn one_workspace_is_restored_by_one_session_at_a_time() {
    let world = World::new();
    world.write("a", "target");
    let target = world.take();
    world.write("a", "before");
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (world, has_begun) = (&world, &has_begun);
        scope.spawn(move || {
            let mut repository = world.open("a");
            let all = Selection::all();
            // Called in the middle of the restore.
            let stop = |_: &[u8]| {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                false
            };
            let force = Force::Refuse;
            repository
                .restore(&world.workspace, target, &all, force, |path, _| stop(path))
                .unwrap();
        });
        has_begun.recv().unwrap();
        let (done, is_done) = mpsc::channel();
        scope.spawn(move || {
            let mut other = world.open("b");
            let taken = other.take(&world.workspace, &BTreeSet::new()).unwrap();
            let tree = other.load(taken.id).unwrap().tree;
            let piton_workspace::snapshot::tree::Node::File { id, .. } = tree.nodes[&b"a"[..]]
            else {
                panic!("no file")
            };
            done.send(other.read(id).unwrap()).unwrap();
        });
        // It may not end while the restore is open, however long that takes.
        assert!(is_done.recv_timeout(Duration::from_millis(300)).is_err());
        go_on.send(()).unwrap();
        assert_eq!(is_done.recv().unwrap(), b"target");
    });
}
