//! Lines that another thread reads ahead are the same lines, up to the same end.

use piton_core::chain;

use super::super::disk::Disk as _;
use super::super::line::{Kept, Line};
use super::super::scan::{Bad, Fault, Form, Scanner};
use super::*;
use crate::conformance::{piece, said};
use crate::contract::Problem;

const NAME: &str = "s.messages.jsonl";

/// A disk with a log of so many records of 1 KB, in batches of three.
fn long(records: usize) -> (ModelDisk, Driver) {
    let disk = model();
    let folder = open(&disk);
    let mut one = driver("s");
    folder.append(&created(&mut one)).unwrap();
    for _ in 0..records / 3 {
        let batch = vec![said("x".repeat(1_024)), piece(0, "p"), said("ü\n".repeat(500))];
        append(&folder, &mut one, batch).unwrap();
    }
    folder.write_behind();
    (disk, one)
}

type Seen = (Vec<String>, Option<Bad>);

/// Notes a line but for its content; false at the end.
fn note(seen: &mut Seen, next: Result<Option<Line<'_>>, Fault>) -> bool {
    match next {
        Ok(Some(line)) => {
            let content = match line.content {
                Kept::Json(_) => Kept::Json("".into()),
                other => other,
            };
            seen.0.push(format!("{:?}", Line { content, ..line }));
            return true;
        }
        Ok(None) => {}
        Err(Fault::Bad(bad)) => seen.1 = Some(bad),
        Err(Fault::Io(e)) => panic!("{e}"),
    }
    false
}

/// Wants to show: whatever is wrong with a log of many chunks, reading ahead gives the same lines
/// and then the same fault, at the same place and for the same reason.
#[test]
fn the_same_lines_and_the_same_fault() {
    let (disk, one) = long(600);
    let key = open(&disk).chain_key(&one.session).unwrap();
    let log = disk.content(&at_path(NAME)).unwrap();
    let check = |log: &[u8], what: &str| {
        disk.put(&at_path(NAME), log);
        let file = disk.open(&at_path(NAME)).unwrap();
        let scanner = || {
            let end = log.len() as u64;
            let (file, key) = (file.clone(), key.clone());
            Scanner::from_start(file, end, key, Form::Native, 0, chain::GENESIS)
        };
        let (mut here, mut ahead) = (Seen::default(), Seen::default());
        let mut lines = scanner();
        while note(&mut here, lines.next()) {}
        std::thread::scope(|scope| {
            let mut lines = scanner().ahead(scope);
            while note(&mut ahead, lines.next()) {}
        });
        assert_eq!(ahead, here, "{what}");
        here
    };
    let (lines, bad) = check(&log, "nothing");
    assert_eq!((lines.len(), bad), (602, None));
    let mut random = Random::new();
    let mut whys = std::collections::BTreeSet::new();
    for round in 0..120 {
        let mut bent = log.clone();
        let at = random.below(log.len());
        let what = match round % 4 {
            0 => {
                bent[at] ^= 1 << random.below(8);
                "flipped"
            }
            1 => {
                bent.truncate(at);
                "cut"
            }
            2 => {
                let mut lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
                lines.remove(random.below(lines.len() - 1));
                bent = lines.concat();
                "a line less"
            }
            _ => {
                let mut lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
                lines.swap(random.below(300), 300 + random.below(300));
                bent = lines.concat();
                "two swapped"
            }
        };
        let (_, bad) = check(&bent, &format!("{what}, round {round}, byte {at}"));
        whys.extend(bad.map(|bad| bad.why));
    }
    assert!(whys.len() > 2, "hardly anything was tried: {whys:?}");
}

/// Wants to show: a log that is long enough to be read ahead is verified to its end, and what is
/// damaged in it is named, with all before it good.
#[test]
fn a_long_log_is_verified() {
    let (disk, one) = long(1_200);
    let log = disk.content(&at_path(NAME)).unwrap();
    assert!(log.len() > 1024 * 1024);
    assert_sound(&open(&disk));
    let line = 999;
    let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    let from: usize = lines[..line - 1].iter().map(|line| line.len()).sum();
    let text = |text: &str| {
        let found = lines[line - 1].windows(text.len()).position(|part| part == text.as_bytes());
        from + found.unwrap()
    };
    let seq = line as u64;
    for (at, problem) in [
        (text("xxxxxx"), Problem::PayloadDamaged { seq }),
        (text("\"message_id\":\"") + 15, Problem::ChainBroken { seq }),
    ] {
        let disk = disk.copied();
        let mut bent = log.clone();
        bent[at] ^= 1;
        disk.put(&at_path(NAME), &bent);
        let found = open(&disk).verify(&one.session).unwrap();
        assert_eq!((found.good_to, found.problem), (seq - 1, Some(problem)));
    }
}
