//! The removal of whole sessions, anchors or the metadata log is noticed, and a crash is never taken
//! for such a removal.

use piton_core::Code;

use super::*;
use crate::conformance::said;
use crate::contract::{Finding, Problem};

fn read_only(disk: &ModelDisk) -> Folder {
    let (boots, entropy) = (Arc::new(Boots::default()), Arc::new(Counting::default()));
    let disk = Arc::new(disk.clone());
    Folder::open(disk, Path::new(DATA), Access::ReadOnly, boots, entropy).unwrap()
}

/// What the behind thread and the writer do some time after a change.
fn tick(folder: &Folder) {
    folder.write_behind();
    folder.register().unwrap();
    folder.write_behind();
}

/// A disk with the sessions `s` and `t`, registered.
fn written() -> (ModelDisk, Driver) {
    let disk = model();
    let folder = open(&disk);
    let (mut one, mut other) = (driver("s"), driver("t"));
    folder.append(&created(&mut one)).unwrap();
    folder.append(&created(&mut other)).unwrap();
    append(&folder, &mut one, vec![said("x")]).unwrap();
    tick(&folder);
    (disk, one)
}

/// Removes every file of a log.
fn take_away(disk: &ModelDisk, name: &str) {
    let of_log = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_str().unwrap();
        file.starts_with(&format!("{name}."))
    };
    disk.names().iter().filter(|path| of_log(path)).for_each(|path| disk.take(path));
}

fn kinds(folder: &Folder) -> Vec<String> {
    let records = all(folder, &SessionId::metadata_log()).unwrap();
    records.iter().map(|record| record.kind.to_string()).collect()
}

/// Wants to show: a session of which no file is left is missed, named and not made again.
#[test]
fn a_session_that_was_taken_away_is_missed() {
    let (disk, mut one) = written();
    assert_sound(&read_only(&disk));
    assert_eq!(read_only(&disk).verify_store(), []);
    take_away(&disk, "s");
    for folder in [read_only(&disk), open(&disk)] {
        let names = [SessionId::metadata_log(), session("s"), session("t")];
        assert_eq!(folder.names(None, 10), names);
        let problem = folder.verify(&session("s")).unwrap().problem;
        assert_eq!(problem, Some(Problem::SessionMissing));
    }
    one.state = State::default();
    let refused = open(&disk).append(&created(&mut one)).unwrap_err();
    assert_eq!(refused.code(), Code::ChainBroken);
}

/// Wants to show: the metadata log is missed, whichever of its files are left.
#[test]
fn the_metadata_log_is_missed() {
    let (disk, _) = written();
    let metadata = SessionId::metadata_log();
    let files =
        ["_piton.messages.jsonl", "_piton.json", "_piton.anchor", "_piton.key"].map(at_path);
    for left in 0..files.len() {
        let disk = disk.copied();
        files[..=left].iter().for_each(|path| disk.take(path));
        for folder in [read_only(&disk), open(&disk)] {
            let named = folder.names(None, 10).contains(&metadata);
            let missing =
                Finding { session: Some(metadata.clone()), problem: Problem::MetadataMissing };
            let said = folder.verify_store() == [missing];
            assert!(
                named && (said || folder.verify(&metadata).unwrap().problem.is_some()),
                "{left}"
            );
        }
        let folder = open(&disk);
        folder.append(&created(&mut driver("u"))).unwrap();
        folder.write_behind();
        assert_eq!(folder.register().unwrap_err().code(), Code::ChainBroken, "{left}");
    }
}

/// Wants to show: an anchor that is gone or damaged is a finding of its own, also when everything
/// else that was made of the log is gone, and the next opening records it.
#[test]
fn lost_anchors_are_missed_and_recorded() {
    let (base, one) = written();
    let short = {
        let log = base.content(&at_path("s.messages.jsonl")).unwrap();
        let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
        lines[..2].concat()
    };
    for (damage, cut) in [(false, false), (true, false), (false, true)] {
        for caches in [true, false] {
            let disk = base.copied();
            disk.take(&at_path("s.anchor"));
            if damage {
                disk.put(&at_path("s.anchor"), b"{}");
            }
            if cut {
                disk.put(&at_path("s.messages.jsonl"), &short);
            }
            if !caches {
                disk.take(&at_path("s.json"));
            }
            let problem = read_only(&disk).verify(&one.session).unwrap().problem;
            assert_eq!(problem, Some(Problem::AnchorMissing), "{damage} {cut} {caches}");
            let folder = open(&disk);
            assert_eq!(kinds(&folder).last().unwrap(), "anchors.recreated");
            folder.write_behind();
            let recorded = kinds(&folder).len();
            drop(folder);
            let folder = open(&disk);
            assert_eq!(kinds(&folder).len(), recorded, "once");
            assert_sound(&folder);
        }
    }
}

/// Wants to show: whenever a process dies or the power fails while sessions are made, registered
/// and removed, nothing is missed that was not taken away, and in the end everything is listed.
#[test]
fn no_crash_looks_like_a_theft() {
    let mut random = Random::new();
    let act = |folder: &Folder| -> Result<()> {
        for name in ["a", "b"] {
            folder.append(&created(&mut driver(name)))?;
        }
        folder.write_behind();
        folder.register()?;
        let mut late = driver("c");
        folder.append(&created(&mut late))?;
        append(folder, &mut late, vec![said("x")])?;
        folder.write_behind();
        folder.register()
    };
    let whole = model();
    act(&open(&whole)).unwrap();
    let steps = whole.calls();
    for step in 0..=steps {
        for round in 0..8 {
            let disk = model();
            disk.die_after(Some(step));
            if let Ok(folder) = try_open(&disk) {
                let _ = act(&folder);
            }
            match round {
                0 => disk.die_after(None),
                _ => disk.power_loss(&mut |limit| random.below(limit)),
            }
            let reader = read_only(&disk);
            assert_eq!(reader.verify_store(), [], "step {step}");
            let there: Vec<_> = reader.sessions().into_iter().map(|(session, _)| session).collect();
            assert_eq!(reader.names(None, 10), there, "step {step}: missed");
            let folder = open(&disk);
            tick(&folder);
            assert_sound(&folder);
            drop(folder);
            let folder = open(&disk);
            let sessions = folder.sessions().into_iter().filter(|(id, _)| !id.is_metadata_log());
            for (session, _) in sessions {
                assert!(folder.logs().roster.contains(&session), "step {step}: {session}");
                disk.copied().take(&at_path(&format!("{session}.anchor")));
            }
        }
    }
}

/// Wants to show: the key of a new log is as durable as its first line.
#[test]
fn the_key_of_a_new_log_survives_a_power_cut() {
    let disk = model();
    let folder = open(&disk);
    let mut one = driver("s");
    folder.append(&created(&mut one)).unwrap();
    drop(folder);
    disk.power_loss(&mut |_| 0);
    let folder = open(&disk);
    assert_eq!(all(&folder, &one.session).unwrap().len(), 2);
    assert_sound(&folder);
}

/// Wants to show: so is one that an earlier life left behind when it died before the first line.
#[test]
fn a_key_that_was_left_behind_survives_a_power_cut() {
    let disk = model();
    drop(open(&disk));
    let key = disk.create(&at_path("s.key")).unwrap();
    key.write_at(format!("{}\n", "07".repeat(32)).as_bytes(), 0).unwrap();
    let folder = open(&disk);
    let mut one = driver("s");
    folder.append(&created(&mut one)).unwrap();
    assert_eq!(folder.chain_key(&one.session), Some(chain::Key::new([7; 32])));
    drop(folder);
    disk.power_loss(&mut |_| 0);
    let folder = open(&disk);
    assert_eq!(all(&folder, &one.session).unwrap().len(), 2);
    assert_sound(&folder);
}
