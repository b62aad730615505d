//! The record format, version 2, as it was first written. A later program must read these lines,
//! make the same state of them, and pass them on unchanged.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeSet;

use piton_core::event::{Event, KINDS, SCHEMA_VERSION};
use piton_core::{Record, fold};
use serde_json::{Map, Value};

const LINES: &str = include_str!("../fixtures/records-v2.jsonl");

fn lines() -> Vec<Map<String, Value>> {
    LINES.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every kind of this version is in the fixture, and one that it does not know.
#[test]
fn the_fixture_has_every_kind() {
    assert_eq!(SCHEMA_VERSION, 2, "a new version has a fixture of its own beside this one");
    let found: BTreeSet<_> =
        lines().iter().map(|line| line["kind"].as_str().unwrap().to_owned()).collect();
    let known: BTreeSet<_> = KINDS.iter().map(|(kind, _)| (*kind).to_owned()).collect();
    assert_eq!(known.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(found.difference(&known).collect::<Vec<_>>(), ["graph.node_entered"]);
}

#[test]
fn lines_are_read_and_written_unchanged() {
    for line in lines() {
        let record = Record::from_flat(line.clone()).unwrap();
        assert_eq!(record.to_flat().unwrap(), line);
        // The typed view has all of the header: nothing that was written is ignored.
        if let Some(header) = record.event().unwrap().header_json() {
            let written: Value = serde_json::from_str(&record.header).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&header).unwrap(), written);
        } else {
            assert!(matches!(record.event().unwrap(), Event::Unknown(_)));
        }
    }
}

#[test]
fn they_fold_into_the_same_state() {
    let records: Vec<_> =
        lines().into_iter().map(|line| Record::from_flat(line).unwrap()).collect();
    let state = fold::replay(&records).unwrap();
    // Keys sorted: whether a map sorts them depends on a feature that any dependency may switch on.
    let sorted = piton_core::canonical::to_string(&serde_json::to_value(&state).unwrap());
    insta::assert_snapshot!(sorted.replace("\",\"", "\",\n\""));
}
