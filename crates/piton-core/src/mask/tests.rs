use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::event::{
    AgentReady, MessageDelta, RunFailed, SessionCreated, TokenConsumed, ToolIntent, ToolOutcome,
    ToolStatus,
};
use crate::time::Timestamp;

const SECRET: &str = "sk-live-4f9a\"q\\7";

fn masker(values: &[&str]) -> Masker {
    Masker::new(KeyPatterns::default(), values).unwrap()
}

fn outcome(result: Value) -> NewRecord {
    let (call_id, run_id) = ("call_1".parse().unwrap(), "run_1".parse().unwrap());
    let event = ToolOutcome { call_id, run_id, status: ToolStatus::Succeeded };
    NewRecord::with_content(Timestamp::from_millis(0), event, "result", result)
}

fn result(masker: &Masker, value: Value) -> Value {
    let record = masker.record(outcome(value)).unwrap();
    record.at(1).content_field("result").unwrap()
}

/// Learns as the runtime does: first what a record gives away, then the record is masked.
fn learned_result(value: Value) -> Value {
    let masker = Masker::default();
    let values = masker.unknown_values(&outcome(value.clone()));
    result(&masker.learn(values).unwrap().masker, value)
}

#[test]
fn a_value_is_masked_in_every_string_key_and_spelling() {
    let known = masker(&[SECRET, "line one\nline two"]);
    // Keys in their order: whether a map sorts them depends on a feature of any dependency.
    let text = json!({ "deeper": json!({ "k": SECRET }).to_string(), "inner": SECRET }).to_string();
    let value = json!([
        format!("a {SECRET} b {SECRET}"),
        { SECRET: 1, "list": [SECRET] },
        text,
        "x line one\r\nline two y",
        "x line one\\nline two y",
    ]);
    assert!(value.to_string().contains("sk-live"), "the test says what it wants to hide");
    let masked = result(&known, value);
    assert_eq!(
        masked,
        json!([
            "a [masked] b [masked]",
            { "[masked]": 1, "list": ["[masked]"] },
            r#"{"deeper":"{\"k\":\"[masked]\"}","inner":"[masked]"}"#,
            "x [masked] y",
            "x [masked] y",
        ])
    );
    assert_eq!(result(&known, masked.clone()), masked, "masking twice changes nothing");
}

#[test]
fn of_values_that_begin_together_the_longest_counts() {
    let masker = masker(&["secret-1", "secret-1-more", "1-more-and"]);
    assert_eq!(masker.text("secret-1-mor"), "[masked]-mor");
    assert_eq!(masker.text("secret-1-more-and"), "[masked]-and");
    assert_eq!(masker.text("x1-more-and"), "x[masked]");
}

#[test]
fn what_stands_under_an_excluded_key_is_masked_whatever_it_is() {
    let masked = learned_result(json!({
        "api_key": "k", "Access-Token": 12, "clientSecret": ["a", { "b": 1 }],
        "password": "", "secret": null, "token": false,
        "credentials": { "user": "u" },
        "max_tokens": 4096, "resume_token_id": "rt_1",
        "headers": [{ "x-api-key": "k2" }],
    }));
    assert_eq!(
        masked,
        json!({
            "api_key": "[masked]", "Access-Token": "[masked]", "clientSecret": "[masked]",
            "password": "", "secret": null, "token": false,
            "credentials": "[masked]",
            "max_tokens": 4096, "resume_token_id": "rt_1",
            "headers": [{ "x-api-key": "[masked]" }],
        })
    );
}

#[test]
fn a_value_that_stood_under_an_excluded_key_is_known_from_then_on() {
    let masker = Masker::default();
    assert!(masker.knows_nothing());
    let arguments = json!({
        "api_key": SECRET, "token": 12_345_678, "password": "short",
        "credentials": { "type": "string", "key": "AKIA-9-X", "word": "lettersonlybutlong" },
        "text": r#"{"refresh_token":"in-a-text"}"#,
    });
    let mut values = masker.unknown_values(&outcome(arguments.clone()));
    values.sort();
    assert_eq!(values, ["12345678", "AKIA-9-X", "in-a-text", "lettersonlybutlong", SECRET]);
    let masker = masker.learn(values).unwrap().masker;
    assert_eq!(masker.unknown_values(&outcome(arguments)), Vec::<String>::new());
    let echoed = json!([SECRET, 12_345_678, "no 12345678", "short", "a string", "AKIA-9-X"]);
    assert_eq!(
        result(&masker, echoed),
        json!(["[masked]", "[masked]", "no [masked]", "short", "a string", "[masked]"])
    );
}

/// Arguments are often JSON written as a text.
#[test]
fn excluded_keys_are_found_in_objects_that_are_text() {
    let masked = learned_result(json!(r#" {"api_key": "abc", "q": 1} "#));
    assert_eq!(masked, json!(r#"{"api_key":"[masked]","q":1}"#));
    let untouched = json!(r#" { "b": 1, "a": "the api_key is elsewhere" } "#);
    assert_eq!(learned_result(untouched.clone()), untouched);
}

#[test]
fn the_oldest_learned_values_make_room_and_given_ones_stay() {
    let masker = masker(&["given-value"]);
    let values: Vec<_> = (0..MASK_LEARNED_MAX + 3).map(|i| format!("learned-{i:04}")).collect();
    let MaskerUpdate { masker, forgotten } = masker.learn(&values).unwrap();
    assert_eq!(forgotten, 3);
    assert_eq!(masker.text("given-value learned-0002"), "[masked] learned-0002");
    assert_eq!(masker.text("learned-0003"), "[masked]");
}

#[test]
fn headers_are_masked_where_they_are_free_and_still_parse() {
    let masker = masker(&["hidden-1", "agent-session-9", "rt_secret"]);
    let created = SessionCreated {
        session_id: "hidden-1".parse().unwrap(),
        title: Some("about hidden-1".into()),
        task_id: None,
        working_dir: Some("/srv/hidden-1".into()),
        provider: Some(json!({ "model": "m", "api_key": "x", "url": "http://hidden-1" })),
        agent_profile_id: None,
    };
    let ts = Timestamp::from_millis(0);
    let record = masker.record(NewRecord::new(ts, created.clone())).unwrap();
    let expected = SessionCreated {
        title: Some("about [masked]".into()),
        working_dir: Some("/srv/[masked]".into()),
        provider: Some(json!({ "model": "m", "api_key": "[masked]", "url": "http://[masked]" })),
        ..created
    };
    assert_eq!(record.event, expected.into());
    assert_eq!(record.at(1).event().unwrap(), record.event, "the bytes say what the event says");

    let run_id: crate::id::RunId = "run_1".parse().unwrap();
    let failed = RunFailed { run_id: run_id.clone(), code: Some("hidden-1".into()) };
    let failed = NewRecord::with_content(ts, failed, "error", "it was hidden-1".into());
    let failed = masker.record(failed).unwrap();
    let header: Value = serde_json::from_str(&failed.header).unwrap();
    assert_eq!(header, json!({ "code": "[masked]", "run_id": "run_1" }));
    assert_eq!(failed.payload.as_deref(), Some(r#"{"error":"it was [masked]"}"#));

    let ready = AgentReady {
        execution_id: "exec_1".parse().unwrap(),
        agent_session_id: Some("agent-session-9".into()),
    };
    let consumed = TokenConsumed {
        token_id: "rt_secret".parse().unwrap(),
        run_id,
        answer_digest: "hidden-1".into(),
        result_seq: 4,
    };
    for structural in [NewRecord::new(ts, ready), NewRecord::new(ts, consumed)] {
        assert_eq!(masker.record(structural.clone()).unwrap(), structural);
    }
}

#[test]
fn the_length_of_a_piece_of_text_is_that_of_what_is_written() {
    let delta = MessageDelta {
        message_id: "m".parse().unwrap(),
        run_id: None,
        offset: 7,
        length: 19,
        channel: crate::spool::Channel::Answer,
        sent: None,
    };
    let record = NewRecord::with_content(
        Timestamp::from_millis(0),
        delta.clone(),
        "text",
        "so hidden-1 it is ü".into(),
    );
    let record = masker(&["hidden-1"]).record(record).unwrap();
    let length = "so [masked] it is ü".len() as u64;
    let sent = Some(7 + 19);
    assert_eq!(record.event, MessageDelta { length, sent, ..delta.clone() }.into());
    assert_eq!(record.at(1).event().unwrap(), record.event);
    // What is known about what was sent is kept; what is not masked says nothing about it.
    let record = |sent, text: &str| {
        let delta = MessageDelta { sent, length: text.len() as u64, ..delta.clone() };
        let record = NewRecord::with_content(Timestamp::from_millis(0), delta, "text", text.into());
        let Event::MessageDelta(delta) = masker(&["hidden-1"]).record(record).unwrap().event else {
            panic!()
        };
        (delta.length, delta.sent)
    };
    assert_eq!(record(Some(40), "hidden-1!"), (9, Some(40)));
    assert_eq!(record(None, r#"{"token": ""}"#), (13, None));
}

/// Content comes from anywhere: what it teaches must not change what our own fields say.
#[test]
fn learned_values_are_masked_in_contents_and_free_json_only() {
    let masker = masker(&["given-value-1"]).learn(["alice-token-1", "given-value-1"]).unwrap();
    let masker = masker.masker;
    let created = SessionCreated {
        session_id: "s".parse().unwrap(),
        title: Some("alice-token-1 given-value-1".into()),
        task_id: None,
        working_dir: Some("/repo/alice-token-1".into()),
        provider: Some(json!({ "url": "http://alice-token-1" })),
        agent_profile_id: Some("alice-token-1".into()),
    };
    let record = masker.record(NewRecord::new(Timestamp::from_millis(0), created.clone())).unwrap();
    let expected = SessionCreated {
        title: Some("alice-token-1 [masked]".into()),
        provider: Some(json!({ "url": "http://[masked]" })),
        ..created
    };
    assert_eq!(record.event, expected.into());
    assert_eq!(result(&masker, json!("alice-token-1")), json!("[masked]"));
}

/// A value that does not look like a secret is masked under its key and nowhere else.
#[test]
fn plain_values_under_excluded_keys_teach_nothing() {
    let plain = json!({
        "token": "/repo/alice", "next_token": "claude", "password": "----------",
        "secret": "x1".repeat(3_000), "api_key": "production",
    });
    let masker = Masker::default();
    assert_eq!(masker.unknown_values(&outcome(plain.clone())), Vec::<String>::new());
    let written = result(&masker, plain);
    assert!(written.as_object().unwrap().values().all(|value| value == REPLACEMENT), "{written}");
}

#[test]
fn what_is_learned_is_limited_in_bytes() {
    let value = |i: usize| format!("{i:04}-{}", "x".repeat(1_000));
    let MaskerUpdate { masker, forgotten } = masker(&[]).learn((0..100).map(value)).unwrap();
    assert!(forgotten > 0);
    assert!(masker.bytes() <= 64 * 1024, "{}", masker.bytes());
    assert_eq!(masker.text(&value(99)), REPLACEMENT);
    assert_eq!(masker.text(&value(0)), value(0));
}

/// JSON that is nested more deeply than it can be read is masked all the same.
#[test]
fn content_that_cannot_be_looked_into_keeps_nothing() {
    let deep = |leaf: Value| (0..200).fold(leaf, |value, _| json!([value]));
    let known = masker(&[SECRET]);
    let masked = known.record(outcome(deep(json!(format!("a {SECRET}"))))).unwrap();
    assert!(masked.payload.as_deref().unwrap().contains("\"a [masked]\""));
    let masked = known.record(outcome(deep(json!({ "api_key": "x" })))).unwrap();
    assert_eq!(masked.payload.as_deref(), Some(r#"{"[masked]":"[masked]"}"#));
    let untouched = outcome(deep(json!("nothing")));
    assert_eq!(known.record(untouched.clone()).unwrap(), untouched);
}

#[test]
fn records_without_secrets_keep_their_bytes() {
    let (call_id, run_id) = ("c".parse().unwrap(), "r".parse().unwrap());
    let event = ToolIntent { call_id, run_id, name: "read_token_file".into() };
    let arguments = json!({ "path": "src/token.rs", "max_tokens": 5 });
    let ts = Timestamp::from_millis(0);
    let record = NewRecord::with_content(ts, event, "arguments", arguments);
    assert_eq!(masker(&[SECRET]).record(record.clone()).unwrap(), record);
}

#[test]
fn a_masker_shows_nothing_of_what_it_knows() {
    assert_eq!(format!("{:?}", masker(&["hidden-1"])), "Masker(1 given, 0 learned)");
}

#[test]
fn environment_values_go_by_name() {
    let environment = [("PATH", "/usr/bin"), ("GITHUB_TOKEN", " ghp_12345 "), ("A_SECRET", "abc")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(environment_values(environment, &KeyPatterns::default()), ["ghp_12345"]);
}

fn whole_stream(masker: &Arc<Masker>, pieces: &[String]) -> String {
    let mut stream = StreamMasker::new(Arc::clone(masker));
    let mut out: String = pieces.iter().map(|piece| stream.push(piece)).collect();
    out.push_str(&stream.finish());
    assert_eq!(stream.held(), 0);
    out
}

#[test]
fn a_stream_holds_back_only_what_may_be_a_secret() {
    let mut stream = StreamMasker::new(Arc::new(masker(&["secret-1", "secret-1-more"])));
    assert_eq!(stream.push("no se"), "no ");
    assert_eq!(stream.push("a"), "sea");
    assert_eq!(stream.push(" secret-1"), " ");
    assert_eq!(stream.held(), 8);
    assert_eq!(stream.push("-m"), "");
    assert_eq!(stream.push("x"), "[masked]-mx");
    assert_eq!(stream.push("secret-1-more"), "[masked]");
    assert_eq!(stream.push("secret-"), "");
    assert_eq!(stream.finish(), "secret-");
}

#[test]
fn a_cut_stream_gives_out_little_and_masks_the_rest_of_a_secret() {
    let mut stream = StreamMasker::new(Arc::new(masker(&["secret-1"])));
    assert_eq!(stream.push("a se"), "a ");
    assert!(stream.may_show());
    assert_eq!(stream.cut(), "se");
    assert_eq!(stream.cut(), "");
    assert_eq!(stream.push("cret-1 b"), "[masked] b");
    assert_eq!(stream.push("sec"), "");
    assert!(!stream.may_show());
    assert_eq!(stream.cut(), "[masked]", "more than a quarter");
    assert_eq!(stream.push("ret-1 c"), " c");
    assert_eq!(stream.push("secret-"), "");
    assert_eq!(stream.cut(), "[masked]");
    assert_eq!(stream.push("2"), "2");
    assert_eq!(stream.push("se"), "");
    assert_eq!(stream.cut(), "se");
    assert_eq!(stream.push("t"), "t");
}

/// Of six bytes, five are nearly all; and a long secret must not be the measure for a short one.
#[test]
fn a_cut_shows_at_most_a_quarter_of_the_shortest_secret_it_may_be() {
    let secrets =
        ["abcdef", "abcdefghijklmnopqrstuvwxyz", "zzzzabxyzw", "secret-1", "secret-1-more"];
    for (text, shown) in [
        ("a", "a"),
        ("ab", REPLACEMENT),
        ("abcde", REPLACEMENT),
        ("zz", "zz"),
        ("zzzzab", REPLACEMENT),
        ("secret-1", REPLACEMENT),
    ] {
        let mut stream = StreamMasker::new(Arc::new(masker(&secrets)));
        assert_eq!(stream.push(text), "", "{text}");
        assert_eq!(stream.cut(), shown, "{text}");
    }
}

/// A writer that continues a text that another began does not know what was held or masked at its end.
#[test]
fn the_rest_of_a_secret_that_another_life_began_is_masked() {
    let masker = Arc::new(masker(&["ghp_ABCDEFGHIJKLMNOP", "second-secret"]));
    let resumed = || StreamMasker::resumed(Arc::clone(&masker));
    for begun in 1..=15 {
        let rest = &"ghp_ABCDEFGHIJKLMNOP"[begun..];
        for cut in 0..rest.len() {
            let mut stream = resumed();
            let mut out = stream.push(&rest[..cut]);
            out.push_str(&stream.push(&rest[cut..]));
            out.push_str(&stream.push(" and on"));
            out.push_str(&stream.finish());
            if rest.len() > 5 {
                assert_eq!(out, "[masked] and on", "{begun} {cut}");
                assert!(stream.has_changed());
            }
        }
    }
    let mut stream = resumed();
    assert_eq!(stream.push("CDEFGH"), "", "it may go on");
    assert_eq!(stream.cut(), REPLACEMENT);
    assert_eq!(stream.push("IJKLMNOP."), ".");
    let mut stream = resumed();
    assert_eq!(stream.push("CDEFGH"), "");
    assert_eq!(stream.finish(), REPLACEMENT, "nor is a part of it shown at the end");
    let mut stream = resumed();
    assert_eq!(stream.push("words, CDEFGHIJKLMNOP"), "words, CDEFGHIJKLMNOP", "only at once");
    let mut stream = resumed();
    assert_eq!(stream.push("P, ghp_ABCDEFGHIJKLMNOP"), "P, [masked]", "a little is shown");
}

/// Where it is not known whether something was written before, a text that continues as a secret ends is
/// masked, and a little that is in one by chance is not.
#[test]
fn the_rest_of_a_secret_is_masked_where_its_beginning_is_forgotten() {
    let masker = Arc::new(masker(&["ghp_ABCDEFGHIJKLMNOP"]));
    let perhaps = || StreamMasker::perhaps_resumed(Arc::clone(&masker));
    for begun in 1..=14 {
        let rest = &"ghp_ABCDEFGHIJKLMNOP"[begun..];
        for cut in 0..rest.len() {
            let mut stream = perhaps();
            let mut out = stream.push(&rest[..cut]);
            out.push_str(&stream.cut());
            out.push_str(&stream.push(&rest[cut..]));
            out.push_str(&stream.push(" and on"));
            out.push_str(&stream.finish());
            let shown = if cut > 5 { "" } else { &rest[..cut] };
            assert_eq!(out, format!("{shown}[masked] and on"), "{begun} {cut}");
            assert!(stream.has_changed());
        }
    }
    let mut stream = perhaps();
    assert_eq!(stream.push("ABC"), "", "it may go on");
    assert!(stream.may_show());
    assert_eq!(stream.cut(), "ABC");
    assert_eq!(stream.push(" of it"), " of it");
    assert!(!stream.has_changed());
    let mut stream = perhaps();
    assert_eq!(stream.push("words, CDEFGHIJKLMNOP"), "words, CDEFGHIJKLMNOP", "only at once");
}

/// Few letters, so that secrets overlap, contain each other, and touch what stands for them.
fn secrets() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ab\\[\\]masked\"\nü]{6,12}", 1..5)
}

fn texts(secrets: &[String]) -> impl Strategy<Value = Vec<String>> + use<> {
    let mut parts: Vec<String> = secrets.to_vec();
    for secret in secrets {
        let middle = secret.floor_char_boundary(secret.len() / 2);
        parts.push(secret[..middle].to_owned());
        parts.push(secret[middle..].to_owned());
        parts.push(spelling::in_json(secret));
    }
    parts.extend(["a", "b", "[", "]", "[masked]", "masked", "ü", "\n", "x"].map(str::to_owned));
    prop::collection::vec(prop::sample::select(parts), 0..12)
}

fn cases() -> impl Strategy<Value = (Vec<String>, String, Vec<prop::sample::Index>)> {
    let text = secrets().prop_flat_map(|secrets| (Just(secrets.clone()), texts(&secrets)));
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..6);
    (text, cuts).prop_map(|((secrets, parts), cuts)| (secrets, parts.concat(), cuts))
}

fn split(text: &str, cuts: &[prop::sample::Index]) -> Vec<String> {
    let mut places: Vec<usize> =
        cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
    places.extend([0, text.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| text[pair[0]..pair[1]].to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// However a text is cut into pieces, a stream gives what masking the whole gives.
    #[test]
    fn any_split_gives_the_same((secrets, text, cuts) in cases()) {
        let masker = Arc::new(Masker::new(KeyPatterns::default(), &secrets).unwrap());
        let whole = masker.text(&text).into_owned();
        prop_assert_eq!(whole_stream(&masker, &split(&text, &cuts)), whole);
    }

    /// No secret is left in what is given out, even when a reader cannot wait between the pieces.
    #[test]
    fn no_secret_gets_through_cuts((secrets, text, cuts) in cases()) {
        // With brackets in it a secret can be made of what stands for another one.
        let secrets: Vec<_> = secrets.iter().map(|s| s.replace(['[', ']'], "z")).collect();
        let text = text.replace(['[', ']'], "z");
        let masker = Arc::new(Masker::new(KeyPatterns::default(), &secrets).unwrap());
        let mut stream = StreamMasker::new(Arc::clone(&masker));
        let mut out = String::new();
        for piece in split(&text, &cuts) {
            out.push_str(&stream.push(&piece));
            out.push_str(&stream.cut());
        }
        out.push_str(&stream.finish());
        let left = out.replace(REPLACEMENT, "|");
        for secret in secrets.iter().map(|s| s.trim()).filter(|s| s.len() >= 6) {
            prop_assert!(!left.contains(secret), "{} in {}", secret, out);
        }
    }

    /// Masking twice changes nothing, whatever the secrets are made of but brackets.
    #[test]
    fn masking_twice_is_masking_once((secrets, text, _) in cases()) {
        let secrets: Vec<_> = secrets.iter().map(|s| s.replace(['[', ']'], "z")).collect();
        let masker = Masker::new(KeyPatterns::default(), &secrets).unwrap();
        let once = masker.text(&text).into_owned();
        prop_assert_eq!(masker.text(&once).into_owned(), once);
    }
}

#[test]
fn free_json_is_masked_by_value_and_by_key_and_says_what_it_taught() {
    let masker = masker(&["hunter2-value"]);
    let mut value = serde_json::json!({
        "hunter2-value": ["a hunter2-value"],
        "login": { "api_key": "sk-1234567" },
        "given_token": "hunter2-value",
    });
    assert_eq!(masker.unknown_in(&value), ["sk-1234567"]);
    masker.json(&mut value);
    assert_eq!(
        value,
        serde_json::json!({
            "[masked]": ["a [masked]"],
            "login": { "api_key": "[masked]" },
            "given_token": "[masked]",
        })
    );
}
