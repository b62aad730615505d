//! A process that dies at each of its steps, and power that fails there: what is found afterwards
//! is what was before, or what was to be, whole.

use super::adoption;
use super::*;
use crate::append_rules::Removal;
use crate::conformance::{piece, said};
use piton_core::Content;

const SECRET: &str = "the secret that must go";

fn secret_large() -> String {
    // Larger than what is kept in a line, and not compressed: it could be found by looking.
    format!("{SECRET} {}", "s".repeat(30_000))
}

/// Something that changes a store.
type Act<'a> = dyn Fn(&Folder) -> Result<()> + 'a;
/// What must be true of the store that is found; says whether the act is done.
type Check<'a> = dyn Fn(&ModelDisk, &Folder) -> bool + 'a;

/// Lets an act die at each of its steps, by a kill and by several power failures.
fn die_everywhere(base: &ModelDisk, act: &Act<'_>, check: &Check<'_>) {
    let mut random = Random::new();
    let whole = base.copied();
    let folder = open(&whole);
    let before = whole.calls();
    act(&folder).unwrap();
    let steps = whole.calls() - before;
    assert!(steps >= 2, "{steps} steps: nothing was tried");
    let (mut undone, mut done) = (0, 0);
    for step in 0..=steps {
        for round in 0..12 {
            let disk = base.copied();
            let folder = open(&disk);
            disk.die_after(Some(step));
            let acted = act(&folder);
            assert_eq!(acted.is_ok(), step >= steps || !disk.is_dead(), "{step}: {acted:?}");
            drop(folder);
            if round == 0 {
                disk.die_after(None);
            } else {
                disk.power_loss(&mut |limit| random.below(limit));
            }
            let folder = open(&disk);
            assert_sound(&folder);
            let is_done = check(&disk, &folder);
            assert!(is_done || acted.is_err(), "step {step}: acknowledged, and not there");
            done += u32::from(is_done);
            undone += u32::from(!is_done);
            // And once more: the next life has nothing left to do, and whatever a reader saw is
            // durable, though the writer was killed before the flush.
            drop(folder);
            disk.power_loss(&mut |limit| random.below(limit));
            let again = open(&disk);
            assert_eq!(check(&disk, &again), is_done, "step {step}");
        }
    }
    println!("{steps} steps: {undone} times undone, {done} times done");
    assert!(undone > 0 && done > 0, "{undone} {done}");
}

/// Two sessions; one has contents to lose, the other one of the same.
fn two() -> (ModelDisk, Driver, Driver) {
    let disk = model();
    let folder = open(&disk);
    let (mut one, mut other) = (driver("s"), driver("t"));
    folder.append(&created(&mut one)).unwrap();
    folder.append(&created(&mut other)).unwrap();
    append(&folder, &mut one, vec![said(SECRET), said(secret_large()), said("b".repeat(20_000))])
        .unwrap();
    append(&folder, &mut other, vec![said("b".repeat(20_000)), said("y")]).unwrap();
    folder.write_behind();
    for path in [DATA, "/data/sessions", "/data/blobs"] {
        disk.sync_folder(Path::new(path)).unwrap();
    }
    (disk, one, other)
}

fn is_anywhere(disk: &ModelDisk, text: &str) -> bool {
    let contains = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    disk.names().iter().any(|path| disk.content(path).is_some_and(|bytes| contains(&bytes)))
}

/// Wants to show: at every step the content is there and the record is not, or the record is there
/// and the content nowhere, in no file.
#[test]
fn dying_while_redacting() {
    let (disk, one, _) = two();
    // What was cut off from the log once goes, too.
    disk.put(&at_path("s.messages.jsonl.torn-1"), SECRET.as_bytes());
    let redacted = |target_seq| of(9, event::RecordRedacted { target_seq, reason: None });
    let records = vec![redacted(3), redacted(4), redacted(5)];
    let session = one.session.clone();
    let before = all(&open(&disk.copied()), &session).unwrap();
    let act = |folder: &Folder| append(folder, &mut one.clone(), records.clone()).map(drop);
    die_everywhere(&disk, &act, &|disk, folder| {
        let found = all(folder, &session).unwrap();
        let other = all(folder, &"t".parse().unwrap()).unwrap();
        assert_eq!(other[2].content_field("content"), Some("b".repeat(20_000).into()));
        if found.len() == 5 {
            assert_eq!(found, before);
            return false;
        }
        assert_eq!(found.len(), 8);
        for (found, before) in found.iter().zip(&before) {
            let out = (3..=5).contains(&found.seq);
            let content = if out { Content::Redacted } else { before.content.clone() };
            assert_eq!(*found, Record { content, ..before.clone() });
        }
        assert!(!is_anywhere(disk, SECRET), "the content is left in a file");
        true
    });
}

/// Wants to show: at every step the log is there and the note is not, or the note is there and
/// nothing of the log.
#[test]
fn dying_while_deleting() {
    let (disk, one, _) = two();
    let session = one.session.clone();
    let note = event::SessionDeleted {
        session_id: session.clone(),
        last_seq: 5,
        chain: None,
        reason: None,
    };
    let removal = Removal {
        session: session.clone(),
        expected: 5,
        guard: Guard::Lease { boot: one.boot.clone(), epoch: 1 },
        notes: crate::WritableRecords::verbatim(vec![of(9, note)]),
    };
    let before = all(&open(&disk.copied()), &session).unwrap();
    die_everywhere(&disk, &|folder| folder.delete(&removal), &|disk, folder| {
        let notes = all(folder, &SessionId::metadata_log()).unwrap();
        let other = all(folder, &"t".parse().unwrap()).unwrap();
        assert_eq!(other.len(), 4);
        assert!(disk.content(&at_path("s.deleting")).is_none());
        if notes.is_empty() {
            assert_eq!(all(folder, &session).unwrap(), before);
            return false;
        }
        assert_eq!(folder.head(&session).unwrap(), None);
        assert!(!is_anywhere(disk, SECRET), "the content is left in a file");
        let left = disk
            .names()
            .into_iter()
            .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with("s."));
        assert_eq!(left, None);
        true
    });
}

/// Wants to show: an intent removes exactly the log that it names.
#[test]
fn an_intent_of_another_log_removes_nothing() {
    let (disk, one, _) = two();
    let intent = format!(
        r#"{{"last_seq":5,"chain":"{0}","note_seq":1,"note_chain":"{0}"}}"#,
        "00".repeat(32)
    );
    for text in [intent.as_str(), "{", ""] {
        disk.put(&at_path("s.deleting"), text.as_bytes());
        let folder = open(&disk);
        assert_eq!(all(&folder, &one.session).unwrap().len(), 5);
        assert!(disk.content(&at_path("s.deleting")).is_none());
    }
}

/// Wants to show: a log of the old form is of the old form, or of the new one with the batch.
#[test]
fn dying_while_upgrading() {
    let (disk, session) = adoption::example();
    drop(open(&disk));
    disk.sync_folder(Path::new(DATA)).unwrap();
    let folder = open(&disk.copied());
    let before = all(&folder, &session).unwrap();
    let one = adoption::writer(folder.load(&session).unwrap().unwrap().state);
    let act = |folder: &Folder| {
        let mut one = one.clone();
        let lease = leased(&one.boot, 1);
        append(folder, &mut one, vec![lease, said("b".repeat(20_000))]).map(drop)
    };
    die_everywhere(&disk, &act, &|_, folder| {
        let found = all(folder, &session).unwrap();
        assert_eq!(found[..5], before);
        assert!(found.len() == 5 || found.len() == 7, "{found:?}");
        found.len() == 7
    });
}

/// Wants to show: the same for a log that begins with its first record and has no snapshot.
#[test]
fn dying_while_upgrading_without_a_snapshot() {
    let disk = model();
    disk.put(&at_path("sess_123.messages.jsonl"), adoption::FROM_ONE.as_bytes());
    let session = session("sess_123");
    drop(open(&disk));
    disk.sync_folder(Path::new(DATA)).unwrap();
    let folder = open(&disk.copied());
    let before = all(&folder, &session).unwrap();
    assert_eq!(before.len(), 2);
    let one = adoption::writer(folder.load(&session).unwrap().unwrap().state);
    let act = |folder: &Folder| {
        let mut one = one.clone();
        let lease = leased(&one.boot, 1);
        append(folder, &mut one, vec![lease, said("x")]).map(drop)
    };
    die_everywhere(&disk, &act, &|disk, folder| {
        let found = all(folder, &session).unwrap();
        assert_eq!(found[..2], before);
        assert!(found.len() == 2 || found.len() == 4, "{found:?}");
        assert_eq!(disk.content(&at_path("sess_123.messages.jsonl.torn-1")), None);
        found.len() == 4
    });
}

/// Wants to show: a batch, of a new session too, is whole or not there; so is a copy.
#[test]
fn dying_while_appending() {
    let (disk, one, _) = two();
    let records = vec![said("x"), said("c".repeat(20_000)), piece(0, "z")];
    let session = one.session.clone();
    let act = |folder: &Folder| append(folder, &mut one.clone(), records.clone()).map(drop);
    die_everywhere(&disk, &act, &|_, folder| {
        let count = all(folder, &session).unwrap().len();
        assert!(count == 5 || count == 8, "{count}");
        count == 8
    });
    let act = |folder: &Folder| folder.append(&created(&mut driver("new"))).map(drop);
    die_everywhere(&disk, &act, &|_, folder| {
        let count = all(folder, &"new".parse().unwrap()).unwrap().len();
        assert!(count == 0 || count == 2, "{count}");
        count == 2
    });
    let source = open(&disk.copied());
    let mut head = source.copy_head(&session).unwrap().unwrap();
    head.session = "copy".parse().unwrap();
    let records = source.copy_records(&session, 0, 100).unwrap();
    let act = |folder: &Folder| {
        let records = Box::new(records.clone().into_iter().map(Ok));
        folder.copy_in(LogCopy { head: head.clone(), records, note: None })
    };
    die_everywhere(&disk, &act, &|_, folder| {
        let count = all(folder, &head.session).unwrap().len();
        assert!(count == 0 || count == 5, "{count}");
        count == 5
    });
}

/// Wants to show: wherever the space ends, the batch is refused and nothing of it is left; with
/// space again, the same process can append.
#[test]
fn no_space_is_no_harm() {
    let (base, one, _) = two();
    let mut refused = 0;
    for space in (0..60_000).step_by(997) {
        let disk = base.copied();
        let folder = open(&disk);
        disk.set_space(Some(space));
        let mut writer = one.clone();
        let text = "n".repeat(24_000);
        let tried = append(&folder, &mut writer, vec![said("a"), said(text), said("b")]);
        let made = folder.append(&created(&mut driver("new")));
        disk.set_space(None);
        if let Err(e) = &tried {
            assert!(matches!(e, Error::DiskFull(_)), "{space}: {e}");
            refused += 1;
            writer = one.clone();
        }
        if let Err(e) = &made {
            assert!(matches!(e, Error::DiskFull(_)), "{space}: {e}");
            folder.append(&created(&mut driver("new"))).unwrap();
        }
        append(&folder, &mut writer, vec![said("after")]).unwrap();
        assert_sound(&folder);
        drop(folder);
        let folder = open(&disk);
        assert_eq!(folder.load(&writer.session).unwrap().unwrap().state, writer.state);
        assert_eq!(folder.sessions().len(), 3);
        assert_sound(&folder);
    }
    assert!(refused > 10, "{refused}");
}

/// Wants to show: after a failed flush nothing is written any more, whatever the disk says later;
/// what was acknowledged before is there.
#[test]
fn a_failed_flush_is_the_end() {
    let (disk, one, _) = two();
    let folder = open(&disk);
    disk.set_flush_fails(true);
    let failed = append(&folder, &mut one.clone(), vec![said("x")]);
    assert!(matches!(failed, Err(Error::Poisoned(Some(_)))), "{failed:?}");
    disk.set_flush_fails(false);
    for _ in 0..2 {
        let refused = append(&folder, &mut one.clone(), vec![said("x")]);
        assert!(matches!(refused, Err(Error::Poisoned(_))), "{refused:?}");
    }
    assert_eq!(all(&folder, &one.session).unwrap().len(), 5, "unflushed records are shown");
    drop(folder);
    let mut random = Random::new();
    disk.power_loss(&mut |limit| random.below(limit));
    let folder = open(&disk);
    let count = all(&folder, &one.session).unwrap().len();
    assert!(count == 5 || count == 6, "{count}");
    assert_sound(&folder);
}
