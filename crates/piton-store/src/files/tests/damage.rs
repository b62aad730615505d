//! Logs that were cut, flipped and edited: repaired at the end, or reported with their line; never a
//! state that never was.

use std::collections::BTreeMap;

use piton_core::{Seq, State};

use super::*;
use crate::conformance::{at, piece, said};
use crate::contract::Problem;

/// A log of several batches, and what it comes to at the end of each.
struct Sample {
    disk: ModelDisk,
    log: Vec<u8>,
    records: Vec<Record>,
    states: BTreeMap<Seq, State>,
    /// Where each batch ends in the file.
    ends: Vec<(u64, Seq)>,
    driver: Driver,
}

fn sample() -> Sample {
    let disk = model();
    let folder = open(&disk);
    let mut one = driver("s");
    let mut states = BTreeMap::new();
    let mut ends = Vec::new();
    let path = at_path("s.messages.jsonl");
    let odd = NewRecord::from_bytes(at(1), "of.tomorrow", b"{ \"a\" :1.50}", Some(b"odd\n"));
    let batches: Vec<Vec<NewRecord>> = vec![
        vec![said("Grüße"), odd.unwrap(), piece(0, "p")],
        vec![said("x")],
        vec![said("y"), piece(1, "q")],
        vec![piece(2, "r")],
    ];
    let mut note = |one: &Driver| {
        states.insert(one.state.last_seq, one.state.clone());
        ends.push((disk.content(&path).unwrap().len() as u64, one.state.last_seq));
    };
    folder.append(&created(&mut one)).unwrap();
    note(&one);
    for batch in batches {
        append(&folder, &mut one, batch).unwrap();
        note(&one);
    }
    folder.write_behind();
    let records = all(&folder, &one.session).unwrap();
    let log = disk.content(&path).unwrap();
    Sample { disk, log, records, states, ends, driver: one }
}

impl Sample {
    /// The disk with another log, with the caches or without.
    fn with(&self, log: &[u8], caches: bool) -> ModelDisk {
        let disk = self.disk.copied();
        disk.put(&at_path("s.messages.jsonl"), log);
        if !caches {
            for name in ["s.json", "s.tokens.json", "s.anchor"] {
                disk.take(&at_path(name));
            }
        }
        disk
    }

    /// What is there is the beginning of what was there, and the state is what that came to.
    fn check_prefix(&self, folder: &Folder) -> Seq {
        let session = &self.driver.session;
        let Some(head) = folder.head(session).unwrap() else { return 0 };
        let loaded = folder.load(session).unwrap().unwrap().state;
        assert_eq!(Some(&loaded), self.states.get(&head.last_seq), "not at a batch's end");
        let count = usize::try_from(head.last_seq).unwrap();
        assert_eq!(all(folder, session).unwrap(), self.records[..count]);
        head.last_seq
    }
}

/// Wants to show: cut at any byte, the log is what its whole batches say, the rest lies in a side
/// file to the byte, and appends succeed. With an anchor that knows more, nothing is thrown away.
#[test]
fn cut_at_every_byte() {
    let sample = sample();
    let session = &sample.driver.session;
    for cut in 0..=sample.log.len() {
        let bytes = &sample.log[..cut];
        let whole = sample.ends.iter().rfind(|(end, _)| *end <= cut as u64);
        let (end, last) = whole.copied().unwrap_or((0, 0));
        let disk = sample.with(bytes, false);
        let folder = open(&disk);
        assert_eq!(sample.check_prefix(&folder), last, "cut at {cut}");
        let aside = disk.content(&at_path("s.messages.jsonl.torn-1"));
        let rest = &bytes[usize::try_from(end).unwrap()..];
        assert_eq!(aside.unwrap_or_default(), rest, "cut at {cut}");
        let mut writer = sample.driver.clone();
        writer.state = sample.states.get(&last).cloned().unwrap_or_default();
        if last == 0 {
            folder.append(&created(&mut writer)).unwrap();
        }
        append(&folder, &mut writer, vec![said("goes on")]).unwrap();
        assert_sound(&folder);
        let folder = open(&disk);
        assert_eq!(folder.load(session).unwrap().unwrap().state, writer.state);
        assert_sound(&folder);

        // The anchor says that everything was durable.
        let disk = sample.with(bytes, true);
        let folder = open(&disk);
        assert_eq!(disk.content(&at_path("s.messages.jsonl.torn-1")), None, "cut at {cut}");
        if cut == sample.log.len() {
            assert_eq!(sample.check_prefix(&folder), 9);
        } else if cut as u64 == end {
            assert_eq!(sample.check_prefix(&folder), last);
            let problem = folder.verify(session).unwrap().problem;
            let known = Problem::CutBehindAnchor { anchored: 9, found: last };
            assert_eq!(problem, Some(known));
            check_cut_behind_anchor(&sample, &disk, &folder, last);
        } else {
            let refused = folder.head(session).unwrap_err();
            assert!(matches!(refused, Error::LineDamaged { .. }), "cut at {cut}: {refused}");
            let read = folder.read(session, 0, 100, Detail::Full).unwrap_or_default();
            assert_eq!(read, sample.records[..usize::try_from(last).unwrap()]);
        }
    }
}

/// A clean cut behind the anchor stays known, in this life and the next: nothing is written behind
/// it, the anchor does not go back, and no copy of it is taken for whole.
fn check_cut_behind_anchor(sample: &Sample, disk: &ModelDisk, folder: &Folder, last: Seq) {
    let session = &sample.driver.session;
    let anchor = disk.content(&at_path("s.anchor"));
    let mut writer = sample.driver.clone();
    writer.state = sample.states.get(&last).cloned().unwrap_or_default();
    let next = if last == 0 { created(&mut writer) } else { writer.batch(vec![said("no")]) };
    let refused = folder.append(&next).unwrap_err();
    assert!(matches!(refused, Error::ChainBroken { seq, .. } if seq == last + 1), "{refused}");
    if last > 0 {
        let head = folder.copy_head(session).unwrap().unwrap();
        assert_eq!(head.anchor.map(|(seq, _)| seq), Some(9));
        let records = folder.copy_records(session, 0, 100).unwrap();
        let records = Box::new(records.into_iter().map(Ok));
        let refused = open(&model()).copy_in(LogCopy { head, records, note: None }).unwrap_err();
        assert!(matches!(refused, Error::ChainBroken { .. }), "{refused}");
        let state = folder.load(session).unwrap().unwrap().state;
        let body = serde_json::to_string(&state).unwrap();
        let chain = folder.head(session).unwrap().unwrap().chain;
        let snapshot = Snapshot { seq: last, projector: 1, chain, body };
        folder.save_snapshot(session, snapshot).unwrap();
    }
    folder.write_behind();
    assert_eq!(disk.content(&at_path("s.anchor")), anchor, "the anchor went back");
    let again = open(disk);
    again.write_behind();
    let problem = again.verify(session).unwrap().problem;
    assert_eq!(problem, Some(Problem::CutBehindAnchor { anchored: 9, found: last }));
}

/// Wants to show: a whole last line whose header only a later version can read was not torn: it
/// stays where it is, and nothing is written behind it.
#[test]
fn a_line_of_a_later_version_is_not_cut_off() {
    use super::super::line;
    let sample = sample();
    let session = &sample.driver.session;
    let folder = open(&sample.with(&sample.log, false));
    let head = folder.head(session).unwrap().unwrap();
    let key = folder.chain_key(session).unwrap();
    let mut later = line::Line {
        seq: 10,
        ts: at(9),
        kind: "run.started".into(),
        header: "{\"run_id\":[1]}".into(),
        content: line::Kept::None,
        batch_left: 0,
        payload_hash: None,
        chain: head.chain,
        flushed: Some(9),
    };
    assert!(later.event().is_err());
    later.chain = later.link(&key, &head.chain);
    let mut log = sample.log.clone();
    line::encode(&later, &mut log);
    let disk = sample.with(&log, false);
    let folder = open(&disk);
    let refused = folder.head(session).unwrap_err();
    assert!(matches!(refused, Error::LineDamaged { line: 10, .. }), "{refused}");
    assert_eq!(folder.read(session, 0, 100, Detail::Full).unwrap(), sample.records);
    let refused = append(&folder, &mut sample.driver.clone(), vec![said("no")]);
    assert!(matches!(refused, Err(Error::LineDamaged { .. })), "{refused:?}");
    assert_eq!(disk.content(&at_path("s.messages.jsonl")).unwrap(), log);
    assert_eq!(disk.content(&at_path("s.messages.jsonl.torn-1")), None);
}

/// Wants to show: where a torn end cannot be put aside for want of space, that log can be read, and
/// others can be written.
#[test]
fn a_torn_end_on_a_full_disk() {
    let sample = sample();
    let disk = sample.with(&sample.log[..sample.log.len() - 5], false);
    let mut other = driver("other");
    open(&disk.copied()).append(&created(&mut other.clone())).unwrap();
    disk.set_space(Some(0));
    let folder = open(&disk);
    assert_eq!(sample.check_prefix(&folder), 8);
    let mut writer = sample.driver.clone();
    writer.state = sample.states[&8].clone();
    disk.set_space(None);
    let refused = append(&folder, &mut writer.clone(), vec![said("no")]);
    assert!(matches!(refused, Err(Error::DiskFull(_))), "{refused:?}");
    folder.append(&created(&mut other)).unwrap();
    let folder = open(&disk);
    append(&folder, &mut writer, vec![said("goes on")]).unwrap();
    assert_sound(&folder);
}

fn check_flipped(sample: &Sample, log: &[u8], line: u64, caches: bool, what: &str) {
    let session = &sample.driver.session;
    let disk = sample.with(log, caches);
    let folder = open(&disk);
    match folder.head(session) {
        Ok(_) if !caches => {
            // Repaired at its end, or not changed in anything that counts.
            let last = sample.check_prefix(&folder);
            let aside = disk.content(&at_path("s.messages.jsonl.torn-1"));
            assert!(last == 9 || aside.is_some(), "{what}: dropped without a trace");
        }
        // With a snapshot the damage may lie in a part that opening does not read.
        Ok(_) => match all(&folder, session) {
            Ok(records) if records == sample.records => {}
            Ok(_) => panic!("{what}: other records, and no error"),
            Err(Error::LineDamaged { line: named, .. }) => {
                assert_eq!(named, line, "{what}");
                let mut writer = sample.driver.clone();
                let refused = append(&folder, &mut writer, vec![said("no")]);
                assert!(matches!(refused, Err(Error::LineDamaged { .. })), "{what}: {refused:?}");
                assert!(folder.verify(session).unwrap().problem.is_some(), "{what}");
            }
            Err(e) => panic!("{what}: {e}"),
        },
        Err(Error::LineDamaged { line: named, .. }) => {
            assert_eq!(named, line, "{what}");
            let read = folder.read(session, 0, 100, Detail::Full).unwrap_or_default();
            assert_eq!(read, sample.records[..read.len()], "{what}");
            let verified = folder.verify(session).unwrap();
            assert!(verified.problem.is_some(), "{what}");
            assert!(verified.good_to < line || verified.good_to == 0, "{what}: {verified:?}");
        }
        Err(e) => panic!("{what}: {e}"),
    }
}

/// Wants to show: whatever bit flips, either nothing that counts has changed, or the end was put
/// aside, or the damaged line is named.
#[test]
fn two_thousand_flipped_bits() {
    let mut random = Random::new();
    let sample = sample();
    for _ in 0..2_000 {
        let mut log = sample.log.clone();
        let (at, bit) = (random.below(log.len()), random.below(8));
        log[at] ^= 1 << bit;
        let line = sample.log[..at].split(|byte| *byte == b'\n').count() as u64;
        for caches in [false, true] {
            check_flipped(
                &sample,
                &log,
                line,
                caches,
                &format!("bit {bit} of byte {at}, {caches}"),
            );
        }
    }
}

/// The log's lines, each with its line break.
fn lines(log: &[u8]) -> Vec<Vec<u8>> {
    log.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// Wants to show: what is wrong in the middle is named with its file and line, what is before it
/// can be read, nothing is appended behind it, and other sessions still work.
#[test]
fn damage_in_the_middle_is_named() {
    let sample = sample();
    let session = &sample.driver.session;
    let edited = |edit: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut lines = lines(&sample.log);
        edit(&mut lines);
        lines.concat()
    };
    let long = vec![b'x'; 2 * 1024 * 1024];
    let cases: Vec<(&str, Vec<u8>, u64)> = vec![
        ("not JSON", edited(&|lines| lines[5] = b"{\"seq\":6,\n".to_vec()), 6),
        ("NULs", edited(&|lines| lines[5].fill(0)), 6),
        ("a long line", edited(&|lines| lines.insert(5, [&long[..], b"\n"].concat())), 6),
        ("a duplicate", edited(&|lines| lines.insert(6, lines[5].clone())), 7),
        ("a duplicate at the end", edited(&|lines| lines.push(lines[8].clone())), 10),
        ("a missing line", edited(&|lines| drop(lines.remove(5))), 6),
        ("two swapped", edited(&|lines| lines.swap(5, 6)), 6),
        ("an empty line", edited(&|lines| lines.insert(5, b"\n".to_vec())), 6),
        (
            "another text",
            edited(&|lines| {
                let line = String::from_utf8(lines[2].clone()).unwrap();
                lines[2] = line.replace("msg_1", "msg_2").into_bytes();
            }),
            3,
        ),
    ];
    for (what, log, line) in cases {
        let disk = sample.with(&log, false);
        let folder = open(&disk);
        let refused = folder.head(session).unwrap_err();
        let Error::LineDamaged { path, line: named, .. } = &refused else {
            panic!("{what}: {refused}")
        };
        assert_eq!((path, *named), (&at_path("s.messages.jsonl"), line), "{what}: {refused}");
        assert_eq!(refused.code(), piton_core::Code::LineDamaged);
        let good = usize::try_from(line - 1).unwrap();
        let read = folder.read(session, 0, 100, Detail::Full).unwrap_or_default();
        // Up to the last whole batch before it.
        assert!(read.len() <= good && read == sample.records[..read.len()], "{what}");
        let beyond = folder.read(session, read.len() as u64, 10, Detail::Full);
        assert!(matches!(beyond, Err(Error::LineDamaged { .. })), "{what}: {beyond:?}");
        let refused = append(&folder, &mut sample.driver.clone(), vec![said("no")]);
        assert!(matches!(refused, Err(Error::LineDamaged { .. })), "{what}: {refused:?}");
        assert!(folder.verify(session).unwrap().problem.is_some(), "{what}");
        assert_eq!(disk.content(&at_path("s.messages.jsonl")).unwrap(), log, "{what}: changed");
        let mut other = driver("other");
        folder.append(&created(&mut other)).unwrap();
    }
}

/// Wants to show: a batch of a group whose first page was lost in a power failure is torn, not
/// damaged, though later lines of the same group are whole; the same hole is damage once a later
/// flush covered it.
#[test]
fn a_hole_in_an_unflushed_group_is_torn() {
    for flushed_between in [false, true] {
        let disk = model();
        let folder = open(&disk);
        let mut one = driver("s");
        folder.append(&created(&mut one)).unwrap();
        let path = at_path("s.messages.jsonl");
        let from = disk.content(&path).unwrap().len();
        folder.stage(&one.batch(vec![said("first")])).unwrap();
        if flushed_between {
            assert!(folder.write_out().is_empty());
            folder.sync().unwrap();
        }
        let second = one.batch(vec![said("second")]);
        folder.stage(&second).unwrap();
        assert!(folder.write_out().is_empty());
        folder.sync().unwrap();
        let mut log = disk.content(&path).unwrap();
        log[from..from + 20].fill(0);
        disk.put(&path, &log);
        let opened = open(&disk);
        if flushed_between {
            let refused = opened.head(&one.session).unwrap_err();
            assert!(matches!(refused, Error::LineDamaged { line: 3, .. }), "{refused}");
        } else {
            assert_eq!(opened.head(&one.session).unwrap().unwrap().last_seq, 2);
            let aside = disk.content(&at_path("s.messages.jsonl.torn-1")).unwrap();
            assert_eq!(aside, log[from..]);
        }
    }
}

/// Wants to show: a line of 100 MB is refused without being loaded, and named.
#[test]
fn a_line_of_a_hundred_megabytes() {
    use std::io::{Seek as _, SeekFrom, Write as _};
    let place = InFolder::new();
    let sample = sample();
    std::fs::create_dir(place.folder.path().join("sessions")).unwrap();
    let name = "s.messages.jsonl";
    let split: usize = lines(&sample.log)[..5].iter().map(Vec::len).sum();
    let mut file = std::fs::File::create(place.file(name)).unwrap();
    file.write_all(&sample.log[..split]).unwrap();
    // A hole: it takes no space.
    file.seek(SeekFrom::Current(100 * 1024 * 1024)).unwrap();
    file.write_all(b"\n").unwrap();
    file.write_all(&sample.log[split..]).unwrap();
    let key = sample.disk.content(&at_path("s.key")).unwrap();
    std::fs::write(place.file("s.key"), key).unwrap();
    for name in [name, "s.key"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(place.file(name), mode).unwrap();
    }
    let store = place.store();
    let refused = store.folder.head(&sample.driver.session).unwrap_err();
    assert!(matches!(refused, Error::LineDamaged { line: 6, .. }), "{refused}");
    let read = store.folder.read(&sample.driver.session, 0, 100, Detail::Full).unwrap();
    assert_eq!(read, sample.records[..5]);
}

/// Wants to show: a removed log is still listed, and verifying says what is missing; no new log can
/// begin in its place, and a copy can be put back.
#[test]
fn a_removed_log_is_missed() {
    let sample = sample();
    let session = &sample.driver.session;
    let folder = open(&sample.disk.copied());
    let head = folder.copy_head(session).unwrap().unwrap();
    let records = folder.copy_records(session, 0, 100).unwrap();
    for without_anchor in [false, true] {
        let disk = sample.disk.copied();
        disk.put(&at_path("crashed.key"), &disk.content(&at_path("s.key")).unwrap());
        disk.take(&at_path("s.messages.jsonl"));
        if without_anchor {
            disk.take(&at_path("s.anchor"));
        }
        let folder = open(&disk);
        folder.append(&created(&mut driver("t"))).unwrap();
        folder.append(&created(&mut driver("a"))).unwrap();
        let names = |after: Option<&SessionId>, limit| {
            let names = folder.names(after, limit).into_iter();
            names.map(|name| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(None, 10), ["a", "s", "t"]);
        assert_eq!(names(None, 2), ["a", "s"]);
        assert_eq!(names(Some(session), 2), ["t"]);
        let found = folder.verify(session).unwrap();
        assert_eq!(found.problem, Some(Problem::CutBehindAnchor { anchored: 9, found: 0 }));
        assert_eq!(folder.head(session).unwrap(), None);
        assert_eq!(folder.read(session, 0, 10, Detail::Full).unwrap(), []);
        let refused = folder.append(&created(&mut driver("s"))).unwrap_err();
        assert!(matches!(refused, Error::ChainBroken { seq: 1, .. }), "{refused}");
        assert!(folder.copy_head(session).is_err());
        let records = Box::new(records.clone().into_iter().map(Ok));
        folder.copy_in(LogCopy { head: head.clone(), records, note: None }).unwrap();
        assert_eq!(all(&folder, session).unwrap(), sample.records);
        assert_sound(&folder);
        assert_eq!(names(None, 10), ["a", "s", "t"]);
        folder.append(&created(&mut driver("crashed"))).unwrap();
    }
}

/// Wants to show: an append while a log is verified does not make its caches look wrong.
#[test]
fn verifying_while_others_append() {
    let sample = sample();
    let session = &sample.driver.session;
    let folder = open(&sample.disk);
    let view = folder.view(session, 1).unwrap().unwrap();
    let mut writer = sample.driver.clone();
    append(&folder, &mut writer, vec![said("meanwhile")]).unwrap();
    let head = folder.head(session).unwrap().unwrap();
    let body = serde_json::to_string(&writer.state).unwrap();
    let (seq, chain) = (head.last_seq, head.chain);
    let projector = piton_core::state::PROJECTOR_VERSION;
    folder.save_snapshot(session, Snapshot { seq, projector, chain, body }).unwrap();
    for _ in 0..2 {
        let found = folder.verify_view(&view, None).unwrap();
        assert_eq!((found.good_to, found.problem), (9, None));
        folder.write_behind();
    }
    assert_sound(&folder);
}

fn minted(id: &str) -> NewRecord {
    let event = event::TokenMinted {
        token_id: id.parse().unwrap(),
        run_id: "run_1".parse().unwrap(),
        purpose: event::TokenPurpose::Interruption,
        wait_id: None,
        wait_kind: None,
        hash: "00".repeat(32),
        expires_at: None,
    };
    of(1, event)
}

/// Wants to show: a changed cache is reported, both to a read-only process and to the process that
/// has the folder open; a missing one is not.
#[test]
fn changed_caches_are_said() {
    let sample = sample();
    let session = &sample.driver.session;
    let read_only = |disk: &ModelDisk| {
        let (boots, entropy) = (Arc::new(Boots::default()), Arc::new(Counting::default()));
        let disk = Arc::new(disk.clone());
        Folder::open(disk, Path::new(DATA), Access::ReadOnly, boots, entropy).unwrap()
    };
    let folder = open(&sample.disk);
    append(&folder, &mut sample.driver.clone(), vec![minted("rt_1")]).unwrap();
    folder.write_behind();
    for name in ["s.json", "s.tokens.json", "s.anchor"] {
        let path = at_path(name);
        let text = sample.disk.content(&path).unwrap();
        for at in (0..text.len()).step_by(7).chain([text.len() - 1]) {
            let disk = sample.disk.copied();
            let writing = open(&disk);
            assert_sound(&writing);
            let mut changed = text.clone();
            changed[at] ^= 1;
            disk.put(&path, &changed);
            for folder in [&writing, &read_only(&disk)] {
                let found = folder.verify(session).unwrap();
                let said = match name {
                    "s.json" => matches!(found.problem, Some(Problem::SnapshotDisagrees { .. })),
                    "s.anchor" => found.problem == Some(Problem::AnchorMissing),
                    _ => matches!(found.problem, Some(Problem::IndexDisagrees { .. })),
                };
                assert!(said, "byte {at} of {name}: {found:?}");
                assert_eq!(found.good_to, 10);
            }
            // The next life makes it again.
            let next = open(&disk);
            next.write_behind();
            assert_sound(&next);
            assert_sound(&read_only(&disk));
            disk.take(&path);
            assert_sound(&read_only(&disk));
        }
    }
}
