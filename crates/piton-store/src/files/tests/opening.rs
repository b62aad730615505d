//! The folder: who has it open, who may write to its files, and what opening reads.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use super::*;
use crate::conformance::{run, said};
use crate::contract::Problem;

async fn two_sessions(store: &Arc<dyn Store>) -> Driver {
    let mut one = Driver::create(store, "s").await;
    Driver::create(store, "t").await;
    one.append((0..200).map(said).collect()).await.unwrap();
    one.store = None;
    one
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Wants to show: a second writer is refused with the name of the first, a reader is not refused; a
/// child that was started meanwhile does not hold the folder.
#[test]
fn one_writer_at_a_time() {
    let place = InFolder::new();
    let store = place.store();
    let refused = FilesStore::open(place.options()).unwrap_err();
    assert_eq!(refused.code(), piton_core::Code::StoreInUse);
    let holder = format!("process {}", std::process::id());
    assert!(matches!(&refused, Error::InUse { holder: named, .. } if *named == holder));
    let reading = Options { access: Access::ReadOnly, ..place.options() };
    drop(FilesStore::open(reading).unwrap());
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    drop(store);
    let store = place.store();
    assert!(child.try_wait().unwrap().is_none(), "the child ended too early");
    drop(store);
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Wants to show: to read is not to write, and what is read is all there is.
#[test]
fn reading_changes_nothing() {
    let place = InFolder::new();
    run(async {
        let store = place.open().await;
        let mut one = two_sessions(&store).await;
        drop(store);
        let before = listing(place.folder.path());
        let options = Options { access: Access::ReadOnly, ..place.options() };
        let store: Arc<dyn Store> = Arc::new(FilesStore::open(options).unwrap());
        let loaded = crate::load(&*store, &one.session).await.unwrap();
        assert_eq!(loaded.state, one.state);
        one.store = Some(store.clone());
        let refused = one.append(vec![said("x")]).await.unwrap_err();
        assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
        drop((one, store));
        assert_eq!(listing(place.folder.path()), before);
    });
}

/// Every file with its bytes.
fn listing(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(listing(&path));
        } else {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Wants to show: files that others can write to are refused, one session at a time; a folder as a
/// whole.
#[test]
fn exposed_files_are_refused() {
    let place = InFolder::new();
    run(async {
        let store = place.open().await;
        let one = two_sessions(&store).await;
        drop(store);
        for (name, mode, code) in [
            ("s.messages.jsonl", 0o620, piton_core::Code::FilePermissions),
            ("s.messages.jsonl", 0o602, piton_core::Code::FilePermissions),
            ("s.key", 0o640, piton_core::Code::KeyPermissions),
        ] {
            set_mode(&place.file(name), mode);
            let store = place.open().await;
            let refused = store.head(&one.session).await.unwrap_err();
            assert_eq!(refused.code(), code, "{name}: {refused}");
            assert!(store.head(&"t".parse().unwrap()).await.unwrap().is_some());
            drop(store);
            set_mode(&place.file(name), 0o600);
        }
        let sessions = place.folder.path().join("sessions");
        set_mode(&sessions, 0o770);
        let refused = FilesStore::open(place.options()).unwrap_err();
        assert!(matches!(refused, Error::FilePermissions { .. }), "{refused}");
        set_mode(&sessions, 0o700);
        let store = place.open().await;
        assert!(store.head(&one.session).await.unwrap().is_some());
        let made = fs::metadata(place.file("s.key")).unwrap().permissions().mode();
        assert_eq!(made & 0o777, 0o600);
    });
}

/// Wants to show: with its snapshot a log is not read again; without it, it is; both come to the
/// same.
#[test]
fn a_current_snapshot_saves_reading() {
    let disk = model();
    let folder = open(&disk);
    let mut one = driver("s");
    folder.append(&created(&mut one)).unwrap();
    for _ in 0..10 {
        append(&folder, &mut one, (0..100).map(said).collect()).unwrap();
    }
    folder.write_behind();
    append(&folder, &mut one, vec![said("behind the snapshot")]).unwrap();
    drop(folder);
    // Damage that only a reader of the whole log finds.
    let path = at_path("s.messages.jsonl");
    let mut log = disk.content(&path).unwrap();
    let good = log.clone();
    log[300] ^= 1;
    disk.put(&path, &log);
    let folder = open(&disk);
    assert_eq!(folder.head(&one.session).unwrap().unwrap().last_seq, 1_003);
    assert!(folder.verify(&one.session).unwrap().problem.is_some());
    disk.take(&at_path("s.json"));
    assert!(open(&disk).head(&one.session).is_err(), "nobody read it");
    disk.put(&path, &good);
    let folder = open(&disk);
    assert_eq!(folder.load(&one.session).unwrap().unwrap().state, one.state);
    assert_sound(&folder);
}

/// Wants to show: a snapshot that knows more than the log is passed over, and verifying says so.
#[test]
fn a_snapshot_from_the_future_is_passed_over() {
    let disk = model();
    let folder = open(&disk);
    let mut one = driver("s");
    folder.append(&created(&mut one)).unwrap();
    let path = at_path("s.messages.jsonl");
    let short = disk.content(&path).unwrap();
    let state = one.state.clone();
    append(&folder, &mut one, vec![said("x")]).unwrap();
    folder.write_behind();
    drop(folder);
    disk.put(&path, &short);
    disk.take(&at_path("s.anchor"));
    let folder = open(&disk);
    assert_eq!(folder.load(&one.session).unwrap().unwrap().state, state);
    let problem = folder.verify(&one.session).unwrap().problem;
    assert_eq!(problem, Some(Problem::CutBehindCache { known: 3, found: 2 }));
    let newer = Snapshot { seq: 2, projector: u32::MAX, chain: [0; 32], body: "{}".into() };
    folder.save_snapshot(&one.session, newer).unwrap();
    folder.write_behind();
    let folder = open(&disk);
    assert_eq!(folder.load(&one.session).unwrap().unwrap().state, state);
    let problem = folder.verify(&one.session).unwrap().problem;
    assert_eq!(problem, Some(Problem::SnapshotDisagrees { seq: 2 }));
}

/// Wants to show: a blob that is missing or changed is named; the rest of the log is readable.
#[test]
fn blobs_are_checked() {
    let disk = model();
    let folder = open(&disk);
    let mut one = driver("s");
    folder.append(&created(&mut one)).unwrap();
    append(&folder, &mut one, vec![said("x"), said("b".repeat(100_000)), said("y")]).unwrap();
    let blob = disk.names().into_iter().find(|path| path.starts_with("/data/blobs")).unwrap();
    assert_eq!(blob.extension().unwrap(), "zst");
    let mut bytes = disk.content(&blob).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    disk.put(&blob, &bytes);
    assert_eq!(folder.read(&one.session, 0, 10, Detail::Full).unwrap().len(), 3);
    let refused = folder.read(&one.session, 3, 10, Detail::Full).unwrap_err();
    assert!(matches!(refused, Error::LineDamaged { line: 4, .. }), "{refused}");
    let found = folder.verify(&one.session).unwrap();
    assert_eq!((found.good_to, found.problem), (3, Some(Problem::PayloadDamaged { seq: 4 })));
    disk.take(&blob);
    let refused = folder.read(&one.session, 3, 10, Detail::Full).unwrap_err();
    assert!(matches!(refused, Error::BlobMissing { seq: 4, .. }), "{refused}");
    let found = folder.verify(&one.session).unwrap();
    assert_eq!(found.problem, Some(Problem::BlobMissing { seq: 4 }));
    assert_eq!(folder.read(&one.session, 4, 10, Detail::Full).unwrap().len(), 1);
    // Rebuilding sweeps unreferenced blobs.
    let unknown_file = Path::new("/data/blobs/00").join(format!("{}.json", "00".repeat(32)));
    disk.put(&unknown_file, b"{}");
    folder.rebuild().unwrap();
    assert_eq!(disk.content(&unknown_file), None);
}

/// Wants to show: a folder of a newer form is refused, and so is one that is something else.
#[test]
fn other_formats_are_refused() {
    let disk = model();
    drop(open(&disk));
    let path = Path::new(DATA).join("files.json");
    disk.put(&path, br#"{"store":"files","format":3}"#);
    assert!(matches!(try_open(&disk), Err(Error::Newer { found: 3, supported: 2 })));
    disk.put(&path, br#"{"store":"files","format":1}"#);
    assert!(matches!(try_open(&disk), Err(Error::TooOld { found: 1, supported: 2 })));
    disk.put(&path, b"[]");
    assert!(matches!(try_open(&disk), Err(Error::Foreign { .. })));
    assert!(disk.content(&Path::new(DATA).join("README")).unwrap().starts_with(b"This folder"));
}

/// Wants to show: a log that cannot be opened, or is a link, is refused by itself; others are there,
/// and can be written, redacted and removed.
#[test]
fn one_unreadable_log_is_no_harm_to_others() {
    let disk = model();
    let folder = open(&disk);
    let (mut one, mut other) = (driver("s"), driver("t"));
    folder.append(&created(&mut one)).unwrap();
    folder.append(&created(&mut other)).unwrap();
    append(&folder, &mut other, vec![said("b".repeat(20_000))]).unwrap();
    folder.write_behind();
    disk.refuse(&at_path("s.messages.jsonl"));
    let folder = open(&disk);
    let refused = folder.head(&one.session).unwrap_err();
    assert!(matches!(refused, Error::Unreadable { .. }), "{refused}");
    assert!(folder.verify(&one.session).is_err());
    assert!(append(&folder, &mut one, vec![said("no")]).is_err());
    let redacted = of(9, event::RecordRedacted { target_seq: 3, reason: None });
    append(&folder, &mut other, vec![redacted]).unwrap();
    append(&folder, &mut other, vec![said("x")]).unwrap();
    assert_eq!(folder.names(None, 10).len(), 2);
    assert_eq!(all(&folder, &other.session).unwrap().len(), 5);
    // A blob that may still be referenced stays, and the next process checks it again.
    let blob = |disk: &ModelDisk| disk.names().iter().any(|path| path.starts_with("/data/blobs"));
    assert!(blob(&disk));
    let later = disk.copied();
    open(&later);
    assert!(!blob(&later));

    let place = InFolder::new();
    run(async {
        let store = place.open().await;
        let one = two_sessions(&store).await;
        drop(store);
        let target = place.folder.path().join("elsewhere");
        fs::rename(place.file("s.messages.jsonl"), &target).unwrap();
        std::os::unix::fs::symlink(&target, place.file("s.messages.jsonl")).unwrap();
        let before = fs::read(&target).unwrap();
        let store = place.open().await;
        assert!(store.head(&one.session).await.is_err());
        assert!(store.head(&"t".parse().unwrap()).await.unwrap().is_some());
        drop(store);
        assert_eq!(fs::read(&target).unwrap(), before);
    });
}

/// Wants to show: whatever has a new log's name is not overwritten, nor followed; neither is the
/// user's own README.
#[test]
fn nothing_is_overwritten() {
    let place = InFolder::new();
    fs::write(place.folder.path().join("README"), "mine").unwrap();
    let store = place.store();
    assert_eq!(fs::read(place.folder.path().join("README")).unwrap(), b"mine");
    let folder = &store.folder;
    // All of it comes while the store is open.
    let target = place.folder.path().join("elsewhere");
    fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, place.file("s.messages.jsonl")).unwrap();
    fs::write(place.file("t.messages.jsonl"), "{}\n").unwrap();
    for name in ["s", "t"] {
        assert!(folder.append(&created(&mut driver(name))).is_err(), "{name}");
        assert!(!place.file(&format!("{name}.key")).exists());
    }
    assert_eq!(fs::read(&target).unwrap(), b"");
    assert_eq!(fs::read(place.file("t.messages.jsonl")).unwrap(), b"{}\n");
    // An empty file is what a crash leaves.
    fs::write(place.file("u.messages.jsonl"), "").unwrap();
    folder.append(&created(&mut driver("u"))).unwrap();
    // A link in a key's place is not written through.
    std::os::unix::fs::symlink(&target, place.file("v.key")).unwrap();
    assert!(folder.append(&created(&mut driver("v"))).is_err());
    assert_eq!(fs::read(&target).unwrap(), b"");
    assert!(!folder.is_poisoned());
}

/// Wants to show: that nothing more can be opened is not a failed flush: what was written is
/// flushed, what cannot be is refused, and later everything works again.
#[test]
fn no_more_handles_is_not_the_end() {
    let disk = model();
    let folder = open(&disk);
    let (mut one, mut new) = (driver("s"), driver("new"));
    folder.append(&created(&mut one)).unwrap();
    folder.stage(&one.batch(vec![said("x")])).unwrap();
    folder.stage(&created(&mut new)).unwrap();
    assert!(folder.write_out().is_empty());
    for session in [&one.session, &new.session] {
        folder.writer().forget(session);
    }
    disk.set_no_handles(true);
    folder.sync().unwrap();
    for records in [vec![said("no")], vec![said("l".repeat(20_000))]] {
        let refused = append(&folder, &mut one.clone(), records).unwrap_err();
        assert!(!matches!(refused, Error::Poisoned(_)), "{refused}");
    }
    assert!(folder.append(&created(&mut driver("other"))).is_err());
    assert!(!folder.is_poisoned());
    disk.set_no_handles(false);
    append(&folder, &mut one, vec![said("l".repeat(20_000))]).unwrap();
    folder.append(&created(&mut driver("other"))).unwrap();
    assert_eq!(all(&folder, &one.session).unwrap().len(), 4);
    assert_sound(&folder);
    assert_sound(&open(&disk));
}
