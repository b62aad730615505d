//! A spool of an earlier format is refused before anything is written. How it was made:
//! `crates/piton-store/tests/fixtures/v1/README.md`.

use std::fs;
use std::path::Path;

use piton_core::Code;
use piton_exec::spool::{Error, SpoolReader};

/// Wants to show: a spool of format 1 is refused by its version, and nothing of it changes.
#[test]
fn a_spool_of_format_1_is_refused() {
    let executions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1");
    let execution = fs::read_dir(executions).unwrap().map(|entry| entry.unwrap().path());
    let spool = execution.map(|path| path.join("spool")).find(|path| path.is_dir()).unwrap();
    let segment = fs::read_dir(&spool).unwrap().next().unwrap().unwrap().path();
    let before = (fs::read(&segment).unwrap(), fs::metadata(&segment).unwrap().modified().unwrap());
    let read = SpoolReader::open(&spool, &[7; 32]).and_then(|reader| {
        let mut entries = reader.after(0);
        entries.next_sealed().map(drop)
    });
    assert!(matches!(read, Err(Error::TooOld { version: 1, .. })), "{read:?}");
    assert_eq!(read.unwrap_err().code(), Code::SpoolTooOld);
    let after = (fs::read(&segment).unwrap(), fs::metadata(&segment).unwrap().modified().unwrap());
    assert_eq!(before, after);
}
