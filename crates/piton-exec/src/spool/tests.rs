use std::fs;
use std::path::Path;

use piton_core::Code;
use piton_core::Timestamp;
use piton_core::spool::{ENTRY_VERSION, Entry, Fact, Pos};

use super::format::{self, Sealer};
use super::{Error, SpoolReader};

const KEY: [u8; 32] = [7; 32];

fn entry(pos: Pos) -> Entry {
    let fact = match pos % 3 {
        0 => Fact::TurnEnded { stop_reason: "end_turn".to_owned() },
        _ => Fact::Text {
            message_id: "msg_1".parse().unwrap(),
            channel: piton_core::spool::Channel::Answer,
            offset: pos * 10,
            text: format!("piece {pos} – größer"),
        },
    };
    let at = Timestamp::from_millis(1_700_000_000_000 + i64::try_from(pos).unwrap());
    Entry { v: ENTRY_VERSION, pos, at, run_id: None, fact, raw: None }
}

/// A segment's bytes and where each of its frames ends.
fn segment(spool_id: &str, positions: std::ops::RangeInclusive<Pos>) -> (Vec<u8>, Vec<usize>) {
    let sealer = Sealer::new(&KEY, spool_id);
    let mut bytes = format::header(spool_id);
    let mut ends = vec![bytes.len()];
    for pos in positions {
        let nonce = [u8::try_from(pos).unwrap(); 24];
        let json = serde_json::to_vec(&entry(pos)).unwrap();
        bytes.extend(sealer.seal(pos, nonce, &json).unwrap());
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn write(folder: &Path, first: Pos, bytes: &[u8]) {
    fs::write(folder.join(format::segment_name(first)), bytes).unwrap();
}

/// What can be read behind `after`, and the error it ends with.
fn read(folder: &Path, after: Pos) -> (Vec<Entry>, Option<Error>) {
    let reader = match SpoolReader::open(folder, &KEY) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Some(e)),
    };
    let mut entries = Vec::new();
    for item in reader.after(after) {
        match item {
            Ok(entry) => entries.push(entry),
            Err(e) => return (entries, Some(e)),
        }
    }
    (entries, None)
}

fn entries(positions: std::ops::RangeInclusive<Pos>) -> Vec<Entry> {
    positions.map(entry).collect()
}

#[test]
fn what_was_written_is_read_from_every_cursor() {
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), 1, &segment("spool_a", 1..=4).0);
    write(temp.path(), 5, &segment("spool_a", 5..=5).0);
    write(temp.path(), 6, &segment("spool_a", 6..=9).0);
    fs::write(temp.path().join("README"), "not a segment").unwrap();
    let reader = SpoolReader::open(temp.path(), &KEY).unwrap();
    assert_eq!((reader.spool_id(), reader.first()), (Some("spool_a"), 1));
    for after in 0..=11 {
        let (found, error) = read(temp.path(), after);
        assert_eq!(found, entries(after + 1..=9), "after {after}");
        assert!(error.is_none(), "{error:?}");
    }
}

/// Wherever a crash cuts the last segment, the whole frames before it are there and nothing is
/// called damaged.
#[test]
fn a_tail_torn_at_any_byte_is_cut_at_the_last_whole_frame() {
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), 1, &segment("spool_a", 1..=2).0);
    let (bytes, ends) = segment("spool_a", 3..=6);
    for cut in 0..bytes.len() {
        for zeros in [0, 1, 600] {
            let torn = [&bytes[..cut], &vec![0; zeros]].concat();
            write(temp.path(), 3, &torn);
            let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1) as u64;
            let (found, error) = read(temp.path(), 0);
            // Zeros behind the head of a frame make it as long as it says: then there is more
            // behind it than a crash leaves, and that is said.
            let filled =
                zeros > 0 && error.as_ref().is_some_and(|e| e.code() != Code::SpoolUnreadable);
            assert!(error.is_none() || filled, "cut at {cut}, {zeros} zeros: {error:?}");
            if error.as_ref().is_none_or(|e| matches!(e, Error::Damaged { .. })) {
                assert_eq!(found, entries(1..=2 + whole), "cut at {cut}, {zeros} zeros");
            }
        }
    }
}

/// A flipped byte never changes what is read: it ends the reading, and is named unless it is in
/// the last frame, where it looks like a torn one.
#[test]
fn a_flipped_byte_is_named_and_all_before_it_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let (bytes, ends) = segment("spool_a", 1..=4);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        write(temp.path(), 1, &damaged);
        let (found, error) = read(temp.path(), 0);
        let before = ends.iter().filter(|end| **end <= at).count();
        if before == 0 {
            assert!(error.is_some(), "byte {at} of the header");
            assert!(found.is_empty());
            continue;
        }
        let before = before as u64 - 1;
        assert_eq!(found, entries(1..=before), "byte {at}");
        let code = error.map(|e| e.code());
        let expected = (before < 3).then_some(Code::SpoolDamaged);
        assert!(
            code == expected || (before == 3 && code == Some(Code::SpoolDamaged)),
            "byte {at}: {code:?}"
        );
    }
}

#[test]
fn another_key_another_place_and_another_spool_open_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (bytes, ends) = segment("spool_a", 1..=3);
    write(temp.path(), 1, &bytes);
    let reader = SpoolReader::open(temp.path(), &[8; 32]).unwrap();
    let first = reader.after(0).next().unwrap();
    assert!(matches!(first, Err(Error::Key { pos: 1, .. })), "{first:?}");

    // The second frame in the first one's place.
    let swapped = [&bytes[..ends[0]], &bytes[ends[1]..ends[2]], &bytes[ends[0]..ends[1]]].concat();
    write(temp.path(), 1, &swapped);
    assert!(matches!(read(temp.path(), 0).1, Some(Error::Key { pos: 1, .. })));

    write(temp.path(), 1, &bytes);
    write(temp.path(), 4, &segment("spool_b", 4..=4).0);
    assert!(matches!(read(temp.path(), 0).1, Some(Error::Mixed { .. })));
}

#[test]
fn a_missing_segment_is_named_and_a_trimmed_one_is_not() {
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), 3, &segment("spool_a", 3..=4).0);
    write(temp.path(), 7, &segment("spool_a", 7..=8).0);
    let (found, error) = read(temp.path(), 0);
    assert_eq!(found, entries(3..=4));
    assert!(matches!(error, Some(Error::Missing { first: 5, last: 6 })), "{error:?}");
    assert_eq!(read(temp.path(), 6).0, entries(7..=8));
}

/// After a failed flush, the entries that may not have reached the disk are in a later segment.
#[test]
fn where_segments_overlap_the_later_one_counts() {
    let temp = tempfile::tempdir().unwrap();
    let (mut bytes, ends) = segment("spool_a", 1..=5);
    bytes[ends[3] + 20] ^= 1;
    write(temp.path(), 1, &bytes);
    write(temp.path(), 3, &segment("spool_a", 3..=7).0);
    for after in 0..=7 {
        let (found, error) = read(temp.path(), after);
        assert_eq!(found, entries(after + 1..=7), "after {after}");
        assert!(error.is_none(), "{error:?}");
    }
}

#[test]
fn nothing_at_all_is_an_empty_spool() {
    let temp = tempfile::tempdir().unwrap();
    let reader = SpoolReader::open(&temp.path().join("spool"), &KEY).unwrap();
    assert_eq!((reader.spool_id(), reader.first()), (None, 1));
    assert!(reader.after(0).next().is_none());
}

/// Truncated between frames, without its last segments, or damaged in its last frame: what was flushed
/// and is missing is named behind what can be read.
#[test]
fn an_end_that_was_flushed_and_is_missing_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let (last, ends) = segment("spool_a", 5..=7);
    let flushed = temp.path().join(format::FLUSHED_FILE);
    let mut flipped = last.clone();
    flipped[ends[3] - 1] ^= 1;
    for (tail, whole) in [
        (Some(&last[..]), 7),
        (Some(&last[..ends[2]]), 6),
        (Some(&last[..ends[3] - 1]), 6),
        (Some(&flipped[..]), 6),
        (Some(&last[..ends[0]]), 4),
        (None, 4),
    ] {
        write(temp.path(), 1, &segment("spool_a", 1..=4).0);
        match tail {
            Some(tail) => write(temp.path(), 5, tail),
            None => fs::remove_file(temp.path().join(format::segment_name(5))).unwrap(),
        }
        for (of, pos) in [("spool_a", 7), ("spool_a", 4), ("spool_b", 7)] {
            fs::write(&flushed, format::flushed_line(of, pos)).unwrap();
            let (found, error) = read(temp.path(), 0);
            assert_eq!(found, entries(1..=whole));
            let missing = (of == "spool_a" && whole < pos).then_some((whole + 1, pos));
            let error = error.map(|error| match error {
                Error::Missing { first, last } => (first, last),
                error => panic!("{error}"),
            });
            assert_eq!(error, missing, "{whole} of {pos}");
        }
    }
    // What the log has is not missed.
    fs::write(&flushed, format::flushed_line("spool_a", 4)).unwrap();
    fs::remove_file(temp.path().join(format::segment_name(1))).unwrap();
    let reader = SpoolReader::open(temp.path(), &KEY).unwrap();
    assert_eq!(reader.spool_id(), Some("spool_a"), "though no segment is left");
    assert!(matches!(read(temp.path(), 1).1, Some(Error::Missing { first: 2, last: 4 })));
    assert!(read(temp.path(), 4).1.is_none());
    fs::write(&flushed, "half a li").unwrap();
    assert!(read(temp.path(), 0).1.is_none(), "what is not whole says nothing");
}

/// An entry that a crash cut off was never acknowledged: it is no error, and can be asked for.
#[test]
fn an_entry_that_was_cut_off_is_reported() {
    let temp = tempfile::tempdir().unwrap();
    let (bytes, ends) = segment("spool_a", 1..=3);
    for (length, cut_off) in
        [(ends[3], None), (ends[3] - 1, Some(3)), (ends[2] + 5, Some(3)), (ends[2], None)]
    {
        write(temp.path(), 1, &bytes[..length]);
        let reader = SpoolReader::open(temp.path(), &KEY).unwrap();
        let mut entries = reader.after(0);
        assert_eq!(entries.cut_off(), None, "not read to its end yet");
        assert!(entries.by_ref().all(|entry| entry.is_ok()));
        assert_eq!(entries.cut_off(), cut_off, "{length}");
    }
}

#[test]
fn what_is_no_segment_or_a_newer_one_is_named() {
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), 1, b"something else entirely");
    assert!(matches!(read(temp.path(), 0).1, Some(Error::Foreign { .. })));
    let mut bytes = segment("spool_a", 1..=1).0;
    bytes[8] = 9;
    write(temp.path(), 1, &bytes);
    assert!(matches!(read(temp.path(), 0).1, Some(Error::Newer { version: 9, .. })));
}

/// The format is a promise: what version 2 wrote is read by every later program.
#[test]
fn the_fixture_of_version_2_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/spool-v2");
    if std::env::var_os("PITON_WRITE_FIXTURES").is_some() {
        fs::create_dir_all(&folder).unwrap();
        write(&folder, 1, &segment("spool_fixture", 1..=4).0);
        write(&folder, 5, &segment("spool_fixture", 5..=7).0);
    }
    let (found, error) = read(&folder, 0);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(found, entries(1..=7));
}
