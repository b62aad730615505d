//! Snapshots of 20,000 files beside `git status` there, in turns; the ratio is the median over the
//! rounds. Prints a table; asserts nothing.

#![expect(clippy::print_stdout, reason = "a table is what it makes")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot continue ends")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use piton_workspace::snapshot::tree::Selection;
use piton_workspace::snapshot::{Force, Limits, Repository, SnapshotKey};

const FILES: usize = 20_000;
const ROUNDS: usize = 15;

fn main() {
    // `cargo test --benches` would run it, too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    for n in 0..FILES {
        let at = workspace.join(format!("folder-{}/sub-{}", n % 100, n % 7));
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join(format!("file-{n}.rs")), format!("// {n}\n{}", "fn x() {}\n".repeat(40)))
            .unwrap();
    }
    git(&workspace, &["init", "-q"]);
    git(&workspace, &["add", "-A"]);
    git(&workspace, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"]);
    let mut repository = Repository::open(
        &folder.path().join("snapshots"),
        Some(SnapshotKey::derive(b"key")),
        Limits::default(),
    )
    .unwrap();
    let none = BTreeSet::new();
    let first = timed(|| repository.take(&workspace, &none).unwrap());
    println!("The first snapshot of {FILES} files: {:.0} ms", millis(first.0));
    // What was just written is read once more, until its time is past.
    std::thread::sleep(Duration::from_millis(50));
    repository.take(&workspace, &none).unwrap();

    let mut unchanged = Vec::new();
    let mut three = Vec::new();
    let mut restored = Vec::new();
    for round in 0..ROUNDS {
        let status = timed(|| git(&workspace, &["status", "--porcelain"])).0;
        let (ours, taken) = timed(|| repository.take(&workspace, &none).unwrap());
        assert!(taken.unchanged);
        unchanged.push(ours.as_secs_f64() / status.as_secs_f64());

        edit(&workspace, round);
        let (ours, after) = timed(|| repository.take(&workspace, &none).unwrap());
        assert_ne!(after.id, taken.id);
        let status = timed(|| git(&workspace, &["status", "--porcelain"])).0;
        three.push(ours.as_secs_f64() / status.as_secs_f64());

        let (ours, _) = timed(|| {
            let all = Selection::all();
            repository.restore(&workspace, taken.id, &all, Force::Refuse, |_, _| false).unwrap()
        });
        edit(&workspace, round);
        let theirs = timed(|| {
            repository.take(&workspace, &none).unwrap();
            git(&workspace, &["checkout", "-q", "--", "folder-0", "folder-1", "folder-2"]);
        });
        restored.push(ours.as_secs_f64() / theirs.0.as_secs_f64());
        repository.take(&workspace, &none).unwrap();
    }
    row("nothing changed, beside `git status`", &mut unchanged, 1.3);
    row("3 files changed, beside `git status`", &mut three, 2.5);
    row("3 files restored, beside one snapshot and `git checkout`", &mut restored, 1.5);
}

fn edit(workspace: &Path, round: usize) {
    for n in 0..3 {
        let path = workspace.join(format!("folder-{n}/sub-{n}/file-{n}.rs"));
        fs::write(path, format!("// changed {round} {n}\n")).unwrap();
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begin = Instant::now();
    let made = work();
    (begin.elapsed(), made)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn row(name: &str, ratios: &mut [f64], target: f64) {
    ratios.sort_by(f64::total_cmp);
    let at = |quarter: usize| ratios[(ratios.len() - 1) * quarter / 4];
    let met = if at(2) <= target { "met" } else { "MISSED" };
    println!(
        "{name}: {:.2}x, quartiles {:.2} to {:.2} ({:.2} to {:.2}), at most {target}: {met}",
        at(2),
        at(1),
        at(3),
        at(0),
        at(4)
    );
}

fn git(folder: &Path, args: &[&str]) {
    let output = Command::new("git").args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{args:?}");
}
