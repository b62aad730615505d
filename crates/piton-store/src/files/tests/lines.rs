//! The form of a line, and what the readers of lines and caches do with garbage.

use std::borrow::Cow;

use piton_core::{Timestamp, chain};
use serde_json::Value;

use super::super::line::{self, Kept, Line};
use super::super::snapshot;
use super::*;
use crate::conformance::said;

fn line(kind: &'static str, header: &'static str, content: Kept<'static>) -> Line<'static> {
    let payload_hash = (content != Kept::None).then_some([7; 32]);
    Line {
        seq: 3,
        ts: Timestamp::from_millis(1_771_668_000_000),
        kind: kind.into(),
        header: header.into(),
        content,
        batch_left: 1,
        payload_hash,
        chain: [9; 32],
        flushed: Some(2),
    }
}

fn text(line: &Line<'_>) -> String {
    let mut bytes = Vec::new();
    line::encode(line, &mut bytes);
    String::from_utf8(bytes).unwrap()
}

fn json(text: &'static str) -> Kept<'static> {
    Kept::Json(Cow::Borrowed(text))
}

fn samples() -> Vec<Line<'static>> {
    vec![
        line("message.user", r#"{"message_id":"m"}"#, json(r#"{"content":"Grüße \n"}"#)),
        line("run.paused", r#"{"run_id":"r"}"#, Kept::None),
        line("x", "{}", json("{}")),
        line("x", "{ }", json("")),
        line("x", r#"{ "z" : 1, "a" :[null,  1.50, 1e40]}"#, json(r#"{"b": "ü\u00fc" }"#)),
        line("x", "{\"a\":\n1}", json("{\"b\":\r\n2}")),
        line("x", r#"{"seq":9,"kind":"y"}"#, json(r#"{"_":{"left":4}}"#)),
        line("x", r#"{"a":1,"a":2}"#, json(r#"{"b":",\"_\":{"}"#)),
        line("x", r#"{"same":1}"#, json(r#"{"same":1}"#)),
        line("a \"quoted\" kind", r#"{"redacted":false}"#, Kept::Redacted),
        line("message.user", r#"{"message_id":"m"}"#, Kept::Redacted),
        line("message.user", "{}", Kept::Blob { address: [4; 32], bytes: 99_999 }),
        line("x", r#"{"k":"v"}"#, json("\0 not JSON \u{1F9D7}\n")),
    ]
}

/// Wants to show: whatever the bytes, a line is one line of valid JSON and gives them back.
#[test]
fn lines_give_back_every_byte() {
    for sample in samples() {
        let text = text(&sample);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let object: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(object["seq"], 3);
        assert_eq!(line::decode(text.trim_end_matches('\n').as_bytes()).unwrap(), sample);
    }
}

/// A compatibility surface: this is how a line looks.
#[test]
fn a_line_reads_well() {
    let hash = "07".repeat(32);
    let chain = "09".repeat(32);
    assert_eq!(
        text(&samples()[0]),
        format!(
            r#"{{"seq":3,"ts":"2026-02-21T10:00:00.000Z","kind":"message.user","message_id":"m","content":"Grüße \n","_":{{"left":1,"header":16,"content":22,"hash":"{hash}","chain":"{chain}","flushed":2}}}}"#
        ) + "\n"
    );
    assert_eq!(
        text(&samples()[10]),
        format!(
            r#"{{"seq":3,"ts":"2026-02-21T10:00:00.000Z","kind":"message.user","message_id":"m","redacted":true,"_":{{"left":1,"header":16,"content":{{"redacted":true}},"hash":"{hash}","chain":"{chain}","flushed":2}}}}"#
        ) + "\n"
    );
}

fn mutated(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len().max(1));
        match random.below(5) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => drop(bytes.remove(at)),
            2 => bytes.insert(at.min(bytes.len()), u8::try_from(random.below(256)).unwrap()),
            3 => bytes.truncate(at),
            _ => {
                let from = random.below(bytes.len().max(1));
                let piece = bytes[from.min(bytes.len())..].to_vec();
                bytes.extend(piece);
            }
        }
    }
    bytes
}

/// Wants to show: no bytes make the line readers panic, and what is read is written and read the
/// same again.
#[test]
fn mutated_lines_never_panic() {
    let mut random = Random::new();
    let key = chain::Key::new([1; 32]);
    let lines: Vec<String> = samples().iter().map(text).collect();
    let (mut good, mut foreign) = (0, 0);
    for _ in 0..30_000 {
        let sample = &lines[random.below(lines.len())];
        let bytes = mutated(&mut random, sample.trim_end_matches('\n').as_bytes());
        if let Ok(read) = line::decode(&bytes) {
            good += 1;
            let text = text(&read);
            assert_eq!(line::decode(text.trim_end_matches('\n').as_bytes()).unwrap(), read);
        }
        foreign += usize::from(line::decode_foreign(&bytes, &key).is_ok());
    }
    assert!(good > 100 && foreign > 100, "{good} {foreign}: nothing was tried");
}

/// Wants to show: a snapshot, token index or anchor that is not what was written changes nothing.
#[test]
fn mutated_caches_are_passed_over() {
    let mut random = Random::new();
    let disk = model();
    let folder = open(&disk);
    let mut one = driver("s");
    folder.append(&created(&mut one)).unwrap();
    let minted = event::TokenMinted {
        token_id: "rt_1".parse().unwrap(),
        run_id: "run_1".parse().unwrap(),
        purpose: event::TokenPurpose::Interruption,
        wait_id: None,
        wait_kind: None,
        hash: "00".repeat(32),
        expires_at: None,
    };
    append(&folder, &mut one, vec![said("x"), of(1, minted)]).unwrap();
    folder.write_behind();
    let token = folder.token(&"rt_1".parse().unwrap());
    assert!(token.is_some());
    let key = chain::Key::new([0; 32]);
    for name in ["s.json", "s.tokens.json", "s.anchor"] {
        let written = disk.content(&at_path(name)).unwrap();
        for round in 0..700 {
            let bytes = mutated(&mut random, &written);
            let copy = disk.copied();
            if round == 0 {
                copy.take(&at_path(name));
            } else {
                copy.put(&at_path(name), &bytes);
            }
            if bytes != written {
                assert!(snapshot::read(&one.session, &key, &bytes).is_none());
                assert!(snapshot::read_tokens(&key, &bytes).is_none());
                assert!(snapshot::read_anchor(&key, &bytes).is_none());
            }
            let folder = open(&copy);
            assert_eq!(folder.load(&one.session).unwrap().unwrap().state, one.state, "{name}");
            assert_eq!(folder.token(&"rt_1".parse().unwrap()), token, "{name}");
            assert_sound(&folder);
        }
    }
}
