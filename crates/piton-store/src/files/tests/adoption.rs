//! A folder in the first form of this layout opens as it is, and is brought into this store's form when it is
//! written to. The texts are the requirement's own.

use std::collections::BTreeSet;

use piton_core::status::{self, Name};
use piton_core::{Content, Seq, State, Timestamp};

use super::*;
use crate::conformance::said;

const SNAPSHOT: &str = r#"{
  "id": "sess_123",
  "title": "Fix flaky test",
  "working_dir": "/repo",
  "provider": {"type": "native", "model": "gpt-5.3-codex"},
  "created_at": "2026-02-21T10:00:00Z",
  "updated_at": "2026-02-21T10:03:14Z",
  "last_seq": 148,
  "run": {
    "run_id": "run_9f5",
    "boot_id": "boot_20260221_1",
    "started_at": "2026-02-21T10:01:03Z",
    "ended_at": null,
    "wait": {
      "kind": "tool_result",
      "since_seq": 146,
      "resume_token_id": "rt_5f0",
      "deadline_at": "2026-02-21T10:11:03Z"
    }
  },
  "recovery": {
    "last_boot_seen": "boot_20260221_1",
    "interruption": null
  }
}
"#;

const LOG: &str = r#"{"seq":145,"ts":"2026-02-21T10:01:10Z","kind":"message.user","message_id":"msg_u1","content":"run tests"}
{"seq":146,"ts":"2026-02-21T10:01:25Z","kind":"run.waiting","run_id":"run_9f5","wait_kind":"tool_result","resume_token_id":"rt_5f0"}
{"seq":147,"ts":"2026-02-21T10:02:02Z","kind":"run.interrupted","run_id":"run_9f5","reason":"process_exit"}
{"seq":148,"ts":"2026-02-21T10:03:14Z","kind":"status.derived","status":"interrupted_waiting"}
"#;

/// A log from its first record on.
pub(super) const FROM_ONE: &str = r#"{"seq":1,"ts":"2026-02-21T10:00:00Z","kind":"session.created","session_id":"sess_123"}
{"seq":2,"ts":"2026-02-21T10:01:10Z","kind":"message.user","message_id":"msg_u1","content":"run tests"}
"#;

pub(super) fn example() -> (ModelDisk, SessionId) {
    let disk = model();
    disk.put(&at_path("sess_123.json"), SNAPSHOT.as_bytes());
    disk.put(&at_path("sess_123.messages.jsonl"), LOG.as_bytes());
    (disk, session("sess_123"))
}

pub(super) fn writer(state: State) -> Driver {
    Driver { store: None, session: session("sess_123"), boot: boot("boot_new"), state }
}

fn status(state: &State) -> Name {
    let now: Timestamp = "2026-02-21T10:04:00Z".parse().unwrap();
    let dead: BTreeSet<BootId> = ["boot_20260221_1".parse().unwrap()].into();
    status::derive(&state.facts, &dead, now).name
}

/// Wants to show: the example is readable as it lies there, and nothing of it is touched.
#[test]
fn the_example_opens_as_it_is() {
    let (disk, session) = example();
    let folder = open(&disk);
    let records = all(&folder, &session).unwrap();
    let seqs: Vec<Seq> = records.iter().map(|record| record.seq).collect();
    assert_eq!(seqs, [144, 145, 146, 147, 148]);
    assert_eq!(&*records[0].kind, "session.adopted");
    let adopted: serde_json::Value = serde_json::from_str(&records[0].header).unwrap();
    assert_eq!(
        adopted,
        serde_json::json!({
            "session_id": "sess_123",
            "created_at": "2026-02-21T10:00:00.000Z",
            "title": "Fix flaky test",
            "working_dir": "/repo",
            "provider": {"type": "native", "model": "gpt-5.3-codex"},
            "run": {
                "run_id": "run_9f5",
                "boot_id": "boot_20260221_1",
                "started_at": "2026-02-21T10:01:03.000Z",
            },
        })
    );
    assert_eq!(&*records[1].header, r#"{"message_id":"msg_u1"}"#);
    assert_eq!(records[1].content, Content::Json(r#"{"content":"run tests"}"#.into()));
    let second = r#"{"run_id":"run_9f5","wait_kind":"tool_result","resume_token_id":"rt_5f0"}"#;
    assert_eq!(&*records[2].header, second, "order and spelling of the line");
    let loaded = folder.load(&session).unwrap().unwrap();
    assert_eq!(status(&loaded.state), Name::InterruptedWaiting);
    assert_eq!(loaded.head.last_seq, 148);
    assert_sound(&folder);
    assert_eq!(folder.read(&session, 145, 2, Detail::Full).unwrap(), records[2..4]);
    assert!(folder.chain_at(&session, 144).unwrap().is_some());
    assert_eq!(folder.chain_at(&session, 143).unwrap(), None);
    folder.write_behind();
    for (name, text) in [("sess_123.json", SNAPSHOT), ("sess_123.messages.jsonl", LOG)] {
        assert_eq!(disk.content(&at_path(name)).unwrap(), text.as_bytes(), "{name} was touched");
    }
}

/// Wants to show: the first append makes it a log like any other; its records stay what they were.
#[test]
fn the_first_append_upgrades() {
    let (disk, session) = example();
    // The program that wrote it may have left out the last line break.
    disk.put(&at_path("sess_123.messages.jsonl"), LOG.trim_end().as_bytes());
    let folder = open(&disk);
    let before = all(&folder, &session).unwrap();
    let state = folder.load(&session).unwrap().unwrap().state;
    let mut one = writer(state);
    let lease = leased(&one.boot, 1);
    append(&folder, &mut one, vec![lease, said("go on")]).unwrap();
    append(&folder, &mut one, vec![said("and on")]).unwrap();
    folder.write_behind();
    for folder in [folder, open(&disk)] {
        let records = all(&folder, &session).unwrap();
        assert_eq!(records[..5], before);
        assert_eq!(records.len(), 8);
        assert_eq!(folder.load(&session).unwrap().unwrap().state, one.state);
        assert_eq!(status(&one.state), Name::InterruptedWaiting);
        assert_sound(&folder);
    }
    let log = String::from_utf8(disk.content(&at_path("sess_123.messages.jsonl")).unwrap());
    assert!(log.unwrap().lines().all(|line| line.contains(",\"_\":{")));
    assert!(disk.content(&at_path("sess_123.key")).is_some());
}

/// Wants to show: the run's start in the log is not repeated from the snapshot; large contents of
/// the old form are read, and become blobs.
#[test]
fn other_logs_of_that_form() {
    let (disk, session) = example();
    let large = "l".repeat(50_000);
    let started = r#"{"seq":144,"ts":"2026-02-21T10:01:03Z","kind":"run.started","run_id":"run_9f5","boot_id":"boot_20260221_1"}"#;
    let more = format!(
        r#"{{"seq":149,"ts":"2026-02-21T10:05:00Z","kind":"message.user","message_id":"msg_u2","content":"{large}"}}"#
    );
    disk.put(&at_path("sess_123.messages.jsonl"), format!("{started}\n{LOG}{more}\n").as_bytes());
    let folder = open(&disk);
    let before = all(&folder, &session).unwrap();
    assert_eq!((before[0].seq, before.len()), (143, 7));
    assert!(!before[0].header.contains("run_9f5"), "{}", before[0].header);
    let mut one = writer(folder.load(&session).unwrap().unwrap().state);
    let lease = leased(&one.boot, 1);
    append(&folder, &mut one, vec![lease]).unwrap();
    assert_eq!(all(&folder, &session).unwrap()[..7], before);
    assert!(disk.names().iter().any(|path| path.starts_with("/data/blobs")));
    assert_sound(&folder);
}

/// Wants to show: what no snapshot vouches for, or what it knows and the log lacks, is reported.
#[test]
fn what_does_not_add_up_is_said() {
    let damaged = |change: &dyn Fn(&ModelDisk)| {
        let (disk, session) = example();
        change(&disk);
        let folder = open(&disk);
        let refused = folder.head(&session).unwrap_err();
        let Error::LineDamaged { line, why, .. } = refused else { panic!("{refused}") };
        let append = append(&folder, &mut writer(State::default()), vec![said("no")]);
        assert!(append.is_err());
        (line, why)
    };
    let log = at_path("sess_123.messages.jsonl");
    let lines: Vec<&str> = LOG.lines().collect();
    assert_eq!(damaged(&|disk| disk.take(&at_path("sess_123.json"))).0, 1);
    assert_eq!(damaged(&|disk| disk.put(&at_path("sess_123.json"), b"{")).0, 1);
    assert_eq!(damaged(&|disk| disk.put(&log, lines[..3].join("\n").as_bytes())).0, 3);
    let gap = [lines[0], lines[2], lines[3]].join("\n");
    assert_eq!(damaged(&|disk| disk.put(&log, gap.as_bytes())).0, 2);
    let garbage = [lines[0], lines[1], "garbage", lines[3]].join("\n");
    assert_eq!(damaged(&|disk| disk.put(&log, garbage.as_bytes())).0, 3);
}

/// Wants to show: the torn last line of such a log is put aside, and the rest stays usable, unless
/// the snapshot knows that the line was there.
#[test]
fn a_torn_last_line_is_put_aside() {
    let log = at_path("sess_123.messages.jsonl");
    let (disk, session) = example();
    let torn = r#"{"seq":149,"ts":"2026-02-21T10:05:00Z","kind":"mess"#;
    disk.put(&log, format!("{LOG}{torn}").as_bytes());
    let folder = open(&disk);
    let before = all(&folder, &session).unwrap();
    assert_eq!(before.len(), 5);
    assert_eq!(disk.content(&at_path("sess_123.messages.jsonl.torn-1")).unwrap(), torn.as_bytes());
    assert_eq!(disk.content(&log).unwrap(), LOG.as_bytes());
    assert_sound(&folder);
    let mut one = writer(folder.load(&session).unwrap().unwrap().state);
    let lease = leased(&one.boot, 1);
    append(&folder, &mut one, vec![lease]).unwrap();
    assert_eq!(all(&folder, &session).unwrap()[..5], before);
    assert_sound(&open(&disk));

    let (disk, session) = example();
    let cut = &LOG[..LOG.len() - 10];
    disk.put(&log, cut.as_bytes());
    let refused = open(&disk).head(&session).unwrap_err();
    assert!(matches!(refused, Error::LineDamaged { line: 4, .. }), "{refused}");
    assert_eq!(disk.content(&log).unwrap(), cut.as_bytes());
}

/// Wants to show: the only line of a log of this store is not taken for another program's when its
/// mark is damaged, and is not cut off either.
#[test]
fn a_damaged_mark_makes_no_other_form() {
    let disk = model();
    let folder = open(&disk);
    let batch = driver("s").batch(vec![created(&mut driver("s")).records.into_vec().remove(0)]);
    let batch = Batch { guard: Guard::Shared, ..batch };
    if folder.append(&batch).is_err() {
        // Only with its lease: two lines, of which one is lost.
        folder.append(&created(&mut driver("s"))).unwrap();
    }
    let path = at_path("s.messages.jsonl");
    let text = String::from_utf8(disk.content(&path).unwrap()).unwrap();
    let first = text.lines().next().unwrap().replace(",\"_\":{", ",\"^\":{");
    disk.put(&path, format!("{first}\n").as_bytes());
    let folder = open(&disk);
    let refused = folder.head(&session("s")).unwrap_err();
    assert!(matches!(refused, Error::LineDamaged { line: 1, .. }), "{refused}");
    assert_eq!(disk.content(&path).unwrap(), format!("{first}\n").into_bytes());
}

/// Wants to show: what this store could not read again is refused before anything is changed; it
/// stays readable as it is.
#[test]
fn what_does_not_fit_is_not_brought_over() {
    let (disk, session) = example();
    let content = format!(
        r#"{{"seq":149,"ts":"2026-02-21T10:05:00Z","kind":"message.user","message_id":"m","content":"{}"}}"#,
        "c".repeat(30_000)
    );
    let large = format!(
        r#"{{"seq":150,"ts":"2026-02-21T10:05:00Z","kind":"of.elsewhere","x":"{}"}}"#,
        "x".repeat(1_100_000)
    );
    let log = format!("{LOG}{content}\n{large}\n");
    disk.put(&at_path("sess_123.messages.jsonl"), log.as_bytes());
    let folder = open(&disk);
    let before = all(&folder, &session).unwrap();
    assert_eq!(before.len(), 7);
    let names = disk.names();
    let mut one = writer(folder.load(&session).unwrap().unwrap().state);
    let lease = leased(&one.boot, 1);
    let refused = append(&folder, &mut one, vec![lease]).unwrap_err();
    assert!(matches!(refused, Error::PayloadTooLarge { what: "A header", .. }), "{refused}");
    let refused = folder.copy_head(&session).unwrap_err();
    assert!(matches!(refused, Error::PayloadTooLarge { .. }), "{refused}");
    assert_eq!(disk.names(), names);
    assert_eq!(disk.content(&at_path("sess_123.messages.jsonl")).unwrap(), log.as_bytes());
    for folder in [folder, open(&disk)] {
        assert_eq!(all(&folder, &session).unwrap(), before);
    }
}

/// Wants to show: a copy of such a log has a random key of its own; without the right to write
/// there is no copy.
#[test]
fn a_copy_has_a_key_of_its_own() {
    let (disk, session) = example();
    let (boots, entropy) = (Arc::new(Boots::default()), Arc::new(Counting::default()));
    let reading = Arc::new(disk.clone());
    let reader = Folder::open(reading, Path::new(DATA), Access::ReadOnly, boots, entropy).unwrap();
    let refused = reader.copy_head(&session).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
    let entropy = Arc::new(Counting(AtomicU64::new(7)));
    let boots = Arc::new(Boots::default());
    let writing = Arc::new(disk.clone());
    let folder = Folder::open(writing, Path::new(DATA), Access::ReadWrite, boots, entropy).unwrap();
    let before = all(&folder, &session).unwrap();
    let head = folder.copy_head(&session).unwrap().unwrap();
    assert_eq!(head.chain_key, chain::Key::new([8; 32]));
    assert_eq!(all(&folder, &session).unwrap(), before);
    assert_sound(&folder);
    let records = folder.copy_records(&session, 0, 100).unwrap();
    let other = open(&model());
    let records = Box::new(records.into_iter().map(Ok));
    other.copy_in(LogCopy { head, records, note: None }).unwrap();
    assert_eq!(all(&other, &session).unwrap(), before);
    assert_sound(&open(&disk));
}

/// Wants to show: the same through the store and its threads.
#[test]
fn a_copy_through_the_store() {
    let place = InFolder::new();
    std::fs::create_dir(place.folder.path().join("sessions")).unwrap();
    for (name, text) in [("sess_123.json", SNAPSHOT), ("sess_123.messages.jsonl", LOG)] {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(place.file(name), text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(place.file(name), mode).unwrap();
    }
    let sessions = place.folder.path().join("sessions");
    std::fs::set_permissions(sessions, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    crate::conformance::run(async {
        let store = place.open().await;
        let head = store.copy_head(&session("sess_123")).await.unwrap().unwrap();
        assert_ne!(head.chain_key, chain::Key::new([0; 32]));
        assert_eq!(store.copy_head(&session("sess_123")).await.unwrap().unwrap(), head);
    });
}

/// Wants to show: lines of that form in the place of a log of this store are not taken for one.
#[test]
fn another_file_in_its_place_is_noticed() {
    for without in ["", "s.anchor", "s.json", "s.key"] {
        let disk = model();
        let folder = open(&disk);
        folder.append(&created(&mut driver("s"))).unwrap();
        folder.write_behind();
        disk.put(&at_path("s.messages.jsonl"), FROM_ONE.as_bytes());
        disk.take(&at_path(without));
        let folder = open(&disk);
        assert!(folder.head(&session("s")).is_err(), "without {without}");
        assert_eq!(disk.content(&at_path("s.messages.jsonl")).unwrap(), FROM_ONE.as_bytes());
    }
}
