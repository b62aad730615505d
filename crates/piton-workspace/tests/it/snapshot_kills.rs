//! A process that restores is killed at a random moment; the next one finishes what it began. The
//! workspace is then wholly what the snapshot says, or wholly what it was: never half.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use piton_workspace::snapshot::tree::Selection;
use piton_workspace::snapshot::{Force, Limits, Repository};

const FILES: u32 = 120;
const KILLS: u32 = 10;
const CHILD: &str = "PITON_TEST_RESTORE";

fn fill(workspace: &Path, text: &str) {
    for n in 0..FILES {
        let folder = workspace.join(format!("folder-{}", n % 20));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("file-{n}")), format!("{text} {n}")).unwrap();
    }
}

fn texts(workspace: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![workspace.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let text = fs::read_to_string(&path).unwrap();
                found.insert(format!("{name}: {text}"));
            }
        }
    }
    found
}

fn open(folder: &Path) -> Repository {
    Repository::open(&folder.join("snapshots"), None, Limits::default()).unwrap()
}

/// What the killed process runs; as a test of its own it has nothing to do.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let folder = Path::new(&folder);
    let target = fs::read_to_string(folder.join("target")).unwrap().parse().unwrap();
    let all = Selection::all();
    let mut repository = open(folder);
    repository
        .restore(&folder.join("workspace"), target, &all, Force::Overwrite, |_, _| true)
        .unwrap();
    repository.settle().unwrap();
}

#[test]
fn a_killed_restore_is_finished_or_never_began() {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    fill(&workspace, "old");
    let old = texts(&workspace);
    let target = open(folder.path()).take(&workspace, &BTreeSet::new()).unwrap().id;
    fs::write(folder.path().join("target"), target.to_string()).unwrap();
    // How long it takes undisturbed bounds the moments of the kills.
    let run = || {
        fill(&workspace, "new");
        fs::write(workspace.join("added"), "x").unwrap();
        fs::remove_file(workspace.join("folder-0/file-0")).unwrap();
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "snapshot_kills::child", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let begin = Instant::now();
    assert!(run().wait().unwrap().success());
    let whole = begin.elapsed();
    assert_eq!(texts(&workspace), old);
    let (mut finished, mut untouched) = (0, 0);
    for kill in 0..KILLS {
        let mut child = run();
        let new = {
            let mut new = BTreeSet::from(["added: x".to_owned()]);
            new.extend((1..FILES).map(|n| format!("file-{n}: new {n}")));
            new
        };
        std::thread::sleep((whole * (kill + 1) / (KILLS + 1)).max(Duration::from_millis(1)));
        let _ = child.kill();
        child.wait().unwrap();
        let mut repository = open(folder.path());
        let recovered = repository.recover(&workspace).unwrap();
        // Not recorded yet: it is said again.
        let again = repository.recover(&workspace).unwrap();
        assert_eq!(again.map(|it| it.paths), recovered.as_ref().map(|it| it.paths.clone()));
        repository.settle().unwrap();
        drop(repository);
        let now = texts(&workspace);
        if now == old {
            finished += 1;
        } else {
            assert!(now == new, "kill {kill}: half restored");
            assert!(recovered.is_none(), "kill {kill}: recovered and not at the target");
            untouched += 1;
        }
        assert_eq!(open(folder.path()).recover(&workspace).unwrap(), None);
    }
    println!("{KILLS} kills: {finished} at the target, {untouched} untouched");
}
