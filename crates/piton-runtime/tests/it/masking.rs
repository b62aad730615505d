//! Known secrets do not reach the disk, whichever way they come, on each store; and what masking
//! changes is counted and hashed as it is written.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::path::Path;
use std::sync::Arc;

use crate::common::{Place, on_both};
use piton_core::decide::{Command, Probe};
use piton_core::event::{Event, ExecutorReady, ExecutorStarting, ToolStatus, WaitKind};
use piton_core::id::{MessageId, SessionId};
use piton_core::mask::{KeyPatterns, Masker, REPLACEMENT, environment_values};
use piton_core::{Code, Record};
use piton_runtime::{Handle, NewSession, Question};
use piton_store::{Detail, Store};
use serde_json::{Value, json};

/// Under an excluded key, and with all that JSON escapes.
const ARGUMENT: &str = "sk-live-Zq7\"\\x9/Vb\nüé";
/// In the environment, from which the masker knows it.
const ENVIRONMENT: &str = "env-value-31337-XYZ";
const PROVIDER: &str = "provider-key-0042";
const SECRETS: [&str; 3] = [ARGUMENT, ENVIRONMENT, PROVIDER];

fn masker() -> Arc<Masker> {
    let environment = [("PATH", "/usr/bin"), ("MY_API_KEY", ENVIRONMENT)];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let keys = KeyPatterns::default();
    let values = environment_values(environment, &keys);
    Arc::new(Masker::new(keys, values).unwrap())
}

async fn all_records(store: &dyn Store, session: &SessionId) -> Vec<Record> {
    let records = store.read(session, 0, 10_000, Detail::Full).await.unwrap();
    assert_eq!(records.last().unwrap().seq, records.len() as u64, "all of them");
    records
}

fn say(message: &MessageId, offset: Option<u64>, text: &str) -> Command {
    Command::Say { message_id: message.clone(), offset, text: text.into() }
}

fn said(message: &MessageId, text: &str) -> Command {
    let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
    Command::EndMessage { message_id: message.clone(), hash }
}

/// The text of a message as the log has it, with what its end says about it.
fn message(records: &[Record], id: &MessageId) -> (String, Option<(u64, String)>) {
    let mut text = String::new();
    let mut end = None;
    for record in records {
        match record.event().unwrap() {
            Event::MessageDelta(e) if e.message_id == *id => {
                assert_eq!(e.offset, text.len() as u64, "pieces follow each other");
                let Some(Value::String(piece)) = record.content_field("text") else { panic!() };
                assert_eq!(e.length, piece.len() as u64);
                text.push_str(&piece);
            }
            Event::MessageCompleted(e) if e.message_id == *id => end = Some((e.length, e.hash)),
            _ => {}
        }
    }
    (text, end)
}

fn assert_hidden(what: &str, text: &str) {
    for secret in SECRETS {
        let once = Value::from(secret).to_string();
        let twice = Value::from(&once[1..once.len() - 1]).to_string();
        for spelling in [secret, &once[1..once.len() - 1], &twice[1..twice.len() - 1]] {
            assert!(!text.contains(spelling), "{spelling} is in {what}:\n{text}");
        }
    }
}

fn assert_not_in_files(folder: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += assert_not_in_files(&path);
            continue;
        }
        files += 1;
        let bytes = std::fs::read(&path).unwrap();
        for secret in SECRETS {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} is in {}", path.display());
        }
    }
    files
}

async fn executor(handle: &Handle, session: &SessionId) {
    let execution_id = handle.ids().execution().unwrap();
    let runtime = format!("test with {ENVIRONMENT}");
    for event in [
        ExecutorStarting { execution_id: execution_id.clone(), runtime }.into(),
        ExecutorReady { execution_id }.into(),
    ] {
        handle.execute(session, Command::Observe { event, message: None }).await.unwrap();
    }
}

/// A run echoes its secrets as argument, environment value, tool output, error text and split over
/// two pieces of a message; also in title, provider, question and answer. Afterwards no file and no
/// record has them, and the log is whole.
#[test]
fn a_run_that_echoes_its_secrets_leaves_none_on_the_disk() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let process = place.start("boot_1").await;
        let handle = process.handle.clone();
        let new = NewSession {
            title: Some(format!("about {ENVIRONMENT}")),
            working_dir: Some(format!("/srv/{ENVIRONMENT}")),
            provider: Some(json!({ "api_key": PROVIDER, "url": format!("http://{ENVIRONMENT}") })),
            ..NewSession::default()
        };
        let id = handle.create(new).await.unwrap();
        executor(&handle, &id).await;
        let run_id =
            handle.prompt(&id, &format!("use {ENVIRONMENT} and {PROVIDER}")).await.unwrap();
        let call_id = handle.ids().call().unwrap();
        let arguments = json!({ "api_key": ARGUMENT, "command": format!("echo {ARGUMENT}") });
        let intend = Command::Intend {
            run_id: run_id.clone(),
            call_id: call_id.clone(),
            name: format!("shell {ENVIRONMENT}"),
            arguments,
        };
        handle.execute(&id, intend).await.unwrap();
        let output = json!({ "stdout": ARGUMENT, "env": [ENVIRONMENT] }).to_string();
        let result = json!({ "output": output, ARGUMENT: { "deep": [PROVIDER] } });
        let status = ToolStatus::Succeeded;
        let conclude = Command::Conclude { run_id: run_id.clone(), call_id, status, result };
        handle.execute(&id, conclude).await.unwrap();

        // Split over two pieces, with the offsets of what was sent.
        let message_id = handle.ids().message().unwrap();
        let whole = format!("it is {ARGUMENT} and {ENVIRONMENT}, it is");
        let middle = "it is sk-live-Z".len();
        let first = handle.execute(&id, say(&message_id, Some(0), &whole[..middle])).await.unwrap();
        assert_eq!(first.held_bytes, "sk-live-Z".len() as u64);
        let rest = say(&message_id, Some(middle as u64), &whole[middle..]);
        let last = handle.execute(&id, rest).await.unwrap();
        assert_eq!(last.held_bytes, 1, "the last letter may begin another one");
        handle.execute(&id, said(&message_id, &whole)).await.unwrap();

        let question = Question {
            run_id: run_id.clone(),
            wait_id: None,
            kind: WaitKind::Input,
            timeout: None,
            question: json!({ "text": format!("is {ARGUMENT} right?") }),
        };
        let token = handle.ask(&id, question).await.unwrap().token.unwrap();
        let answer = |handle: Handle, token, answer: Value| async move {
            handle.answer_with_token(None, token, answer).await
        };
        let right = json!({ "yes": ARGUMENT });
        let answered = answer(handle.clone(), token.clone(), right.clone()).await.unwrap();
        assert!(!answered.replayed);
        let again = answer(handle.clone(), token.clone(), right.clone()).await.unwrap();
        assert_eq!((again.result_seq, again.replayed), (answered.result_seq, true));
        let other = answer(handle.clone(), token.clone(), json!({ "yes": REPLACEMENT })).await;
        assert_eq!(
            other.unwrap_err().code(),
            Code::ResumeTokenConsumed,
            "the masked form is another"
        );

        let error = format!("could not use {ARGUMENT:?}: {ARGUMENT}");
        let code = Some(ENVIRONMENT.into());
        handle.execute(&id, Command::Fail { run_id, code, error }).await.unwrap();
        process.service.shut_down().await;
        drop(handle);

        let records = all_records(&*process.store, &id).await;
        let mut masked = 0;
        for record in &records {
            let text = format!("{record:?}");
            masked += text.matches(REPLACEMENT).count();
            assert_hidden("a record", &text);
            assert_hidden(
                "a record's flat form",
                &Value::from(record.to_flat().unwrap()).to_string(),
            );
        }
        assert!(masked >= 15, "the run echoed them: {masked}");
        let (text, end) = message(&records, &message_id);
        assert_eq!(text, "it is [masked] and [masked], it is");
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        assert_eq!(end, Some((text.len() as u64, hash)));
        let state = piton_store::load(&*process.store, &id).await.unwrap().state;
        let replayed = piton_core::fold::replay(&records).unwrap();
        assert_eq!(state, replayed, "what was folded is what is written");
        assert_hidden("the state", &serde_json::to_string(&state).unwrap());
        assert_eq!(process.store.verify(&id).await.unwrap().problem, None);
        let files = assert_not_in_files(place.folder());
        assert_eq!(files > 0, place.kind() == crate::common::Kind::Sqlite);

        // The same token and answer are recognised by the next process, too.
        drop(process.store);
        place.outside.alive_no_more("boot_1");
        let next = place.start("boot_2").await;
        let replayed = answer(next.handle.clone(), token, right).await.unwrap();
        assert_eq!((replayed.result_seq, replayed.replayed), (answered.result_seq, true));
    });
}

/// What waits is written before anything that comes after it, never as a whole secret; and not when
/// the service stops, since its sender is led back to it.
#[test]
fn what_waits_is_written_in_its_order() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let process = place.start("boot_1").await;
        let handle = process.handle.clone();
        let id = handle.create(NewSession::default()).await.unwrap();
        let run_id = handle.prompt(&id, "work").await.unwrap();
        let message_id = handle.ids().message().unwrap();
        let (begin, rest) = ENVIRONMENT.split_at(3);
        handle.execute(&id, say(&message_id, None, &format!("a {begin}"))).await.unwrap();
        let call_id = handle.ids().call().unwrap();
        let intend =
            Command::Intend { run_id, call_id, name: "shell".into(), arguments: json!({}) };
        handle.execute(&id, intend).await.unwrap();
        // The sender counts what it sent, and continues in the middle of the secret.
        let before = "a env".len() as u64;
        handle.execute(&id, say(&message_id, Some(before), rest)).await.unwrap();
        let sent = before + rest.len() as u64;
        let refused = handle.execute(&id, say(&message_id, Some(sent - 1), "x")).await.unwrap_err();
        assert_eq!(refused.code(), Code::OffsetMismatch);
        let ack = handle.execute(&id, say(&message_id, Some(sent), " env-va")).await.unwrap();
        assert_eq!(ack.held_bytes, 6);
        process.service.shut_down().await;
        let state = piton_store::load(&*process.store, &id).await.unwrap().state;
        assert_eq!(state.messages_sent.get(&message_id), Some(&(sent + 1)));

        let records = all_records(&*process.store, &id).await;
        assert_eq!(message(&records, &message_id).0, "a env[masked] ");
        let kinds: Vec<_> = records.iter().map(|record| &*record.kind).collect();
        let at = kinds.iter().position(|kind| *kind == "tool.intent").unwrap();
        let before = kinds[..at].iter().filter(|kind| **kind == "message.delta").count();
        assert_eq!(before, 2, "both pieces were said before it: {kinds:?}");
    });
}

/// A message continues in the next process: its sender counts on, and its hash covers what both
/// wrote.
#[test]
fn a_message_continues_in_another_life() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let first = place.start("boot_1").await;
        let id = first.handle.create(NewSession::default()).await.unwrap();
        first.handle.prompt(&id, "work").await.unwrap();
        executor(&first.handle, &id).await;
        let message_id = first.handle.ids().message().unwrap();
        let whole = format!("one {ENVIRONMENT} two env-three");
        let cut = whole.len() - "-three".len();
        let ack =
            first.handle.execute(&id, say(&message_id, Some(0), &whole[..cut])).await.unwrap();
        assert_eq!(ack.held_bytes, 3);
        place.kill(first);

        *place.outside.probe.lock().unwrap() = Probe::Alive;
        let second = place.start("boot_2").await;
        // The text that waited is lost with its process; the log's offset leads the sender back to
        // it.
        let refused =
            second.handle.execute(&id, say(&message_id, Some(cut as u64), "-three")).await;
        assert_eq!(refused.unwrap_err().code(), Code::OffsetMismatch);
        let durable = cut - 3;
        let rest = say(&message_id, Some(durable as u64), &whole[durable..]);
        second.handle.execute(&id, rest).await.unwrap();
        second.handle.execute(&id, said(&message_id, &whole)).await.unwrap();
        let records = all_records(&*second.store, &id).await;
        let (text, end) = message(&records, &message_id);
        assert_eq!(text, "one [masked] two env-three");
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        assert_eq!(end, Some((text.len() as u64, hash)));
    });
}

/// Without secrets, text passes as it came, and its hash is what its sender says.
#[test]
fn text_without_secrets_passes_untouched() {
    on_both(|place: Place| async move {
        for masker in [Arc::default(), masker()] {
            let place = Place::new(place.kind()).with_masker(masker);
            let process = place.start("boot_1").await;
            let handle = &process.handle;
            let id = handle.create(NewSession::default()).await.unwrap();
            handle.prompt(&id, "work").await.unwrap();
            let message_id = handle.ids().message().unwrap();
            handle.execute(&id, say(&message_id, Some(0), "an environ")).await.unwrap();
            handle.execute(&id, say(&message_id, Some(10), "ment, e")).await.unwrap();
            let said =
                Command::EndMessage { message_id: message_id.clone(), hash: "theirs".into() };
            handle.execute(&id, said).await.unwrap();
            let records = all_records(&*process.store, &id).await;
            let (text, end) = message(&records, &message_id);
            assert_eq!(text, "an environment, e");
            assert_eq!(end, Some((17, "theirs".to_owned())));
        }
    });
}

/// What waits is not kept for ever: when nothing follows, it is written.
#[test]
fn what_waits_is_written_when_nothing_follows() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = handle.create(NewSession::default()).await.unwrap();
        handle.prompt(&id, "work").await.unwrap();
        let message_id = handle.ids().message().unwrap();
        *place.outside.hurries.lock().unwrap() = true;
        let ack = handle.execute(&id, say(&message_id, None, "an e")).await.unwrap();
        assert_eq!(ack.held_bytes, 1);
        let mut tail = handle.tail(&id, ack.last_seq);
        while !tail.next().await.unwrap().iter().any(|record| &*record.kind == "message.delta") {}
        let records = all_records(&*process.store, &id).await;
        assert_eq!(message(&records, &message_id).0, "an e");
    });
}

/// The agent receives the answer unmasked; the log has it masked.
#[test]
fn an_answer_reaches_the_agent_as_it_was_given() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = handle.create(NewSession::default()).await.unwrap();
        let run_id = handle.prompt(&id, "work").await.unwrap();
        let question = Question {
            run_id,
            wait_id: None,
            kind: WaitKind::Input,
            timeout: None,
            question: json!("which key?"),
        };
        let wait_id = handle.ask(&id, question).await.unwrap().wait_id;
        handle.answer_wait(&id, wait_id, json!(ENVIRONMENT)).await.unwrap();
        process.service.shut_down().await;
        let causes = std::mem::take(&mut *place.outside.causes.lock().unwrap());
        let answer = causes.iter().find_map(|cause| cause.content_field("answer"));
        assert_eq!(answer, Some(json!(ENVIRONMENT)));
        let records = all_records(&*process.store, &id).await;
        let answer = records.iter().find_map(|record| record.content_field("answer"));
        assert_eq!(answer, Some(json!(REPLACEMENT)));
    });
}

fn intend(handle: &Handle, run_id: &piton_core::id::RunId) -> Command {
    let call_id = handle.ids().call().unwrap();
    Command::Intend { run_id: run_id.clone(), call_id, name: "shell".into(), arguments: json!({}) }
}

/// What was cut is known to the life that cut it. The next one knows a secret by how it ends.
#[test]
fn the_rest_of_a_secret_is_masked_in_another_life() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        // How much comes before the cut, and what is written of the whole.
        for (at, expected) in [
            (4, "a env-[masked] and on"),
            (5, "a [masked][masked] and on"),
            (12, "a [masked][masked] and on"),
        ] {
            let place = Place::new(place.kind()).with_masker(masker());
            let first = place.start("boot_1").await;
            let id = first.handle.create(NewSession::default()).await.unwrap();
            let run_id = first.handle.prompt(&id, "work").await.unwrap();
            executor(&first.handle, &id).await;
            let message_id = first.handle.ids().message().unwrap();
            let (begin, rest) = ENVIRONMENT.split_at(at);
            let begin = format!("a {begin}");
            first.handle.execute(&id, say(&message_id, Some(0), &begin)).await.unwrap();
            first.handle.execute(&id, intend(&first.handle, &run_id)).await.unwrap();
            first.service.shut_down().await;
            drop((first.handle, first.store));
            place.outside.alive_no_more("boot_1");

            *place.outside.probe.lock().unwrap() = Probe::Alive;
            let second = place.start("boot_2").await;
            for (offset, piece) in [(0, &rest[..2]), (2, &rest[2..]), (rest.len(), " and on")] {
                let offset = Some((begin.len() + offset) as u64);
                second.handle.execute(&id, say(&message_id, offset, piece)).await.unwrap();
            }
            let whole = format!("a {ENVIRONMENT} and on");
            second.handle.execute(&id, said(&message_id, &whole)).await.unwrap();
            let records = all_records(&*second.store, &id).await;
            let (text, end) = message(&records, &message_id);
            assert_eq!(text, expected, "{at}");
            let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
            assert_eq!(end, Some((text.len() as u64, hash)));
        }
    });
}

/// The log forgets a message with its run, and the process ends: a sender that continues without an
/// offset seems to begin. Text that is part of a secret only by chance is written as it is.
#[test]
fn the_rest_of_a_secret_is_masked_after_its_run_in_another_life() {
    on_both(|place: Place| async move {
        for at in [2, 4, 7, 12] {
            let place = Place::new(place.kind()).with_masker(masker());
            let first = place.start("boot_1").await;
            let id = first.handle.create(NewSession::default()).await.unwrap();
            let run_id = first.handle.prompt(&id, "work").await.unwrap();
            let message_id = first.handle.ids().message().unwrap();
            let (begin, rest) = ENVIRONMENT.split_at(at);
            first.handle.execute(&id, say(&message_id, None, begin)).await.unwrap();
            first.handle.execute(&id, Command::Complete { run_id }).await.unwrap();
            first.service.shut_down().await;
            let in_first = all_records(&*first.store, &id).await.len();
            drop((first.handle, first.store));
            place.outside.alive_no_more("boot_1");

            let second = place.start("boot_2").await;
            let run_id = second.handle.prompt(&id, "more").await.unwrap();
            second.handle.execute(&id, say(&message_id, None, rest)).await.unwrap();
            second.handle.execute(&id, say(&message_id, None, " and on")).await.unwrap();
            let other = second.handle.ids().message().unwrap();
            second.handle.execute(&id, say(&other, None, "va")).await.unwrap();
            second.handle.execute(&id, intend(&second.handle, &run_id)).await.unwrap();
            second.handle.execute(&id, say(&other, None, "st")).await.unwrap();
            let records = all_records(&*second.store, &id).await;
            let in_second = &records[in_first..];
            assert_eq!(message(in_second, &message_id).0, "[masked] and on", "{at}");
            assert_eq!(message(in_second, &other).0, "vast");
            for record in records {
                assert!(!format!("{record:?}").contains("XYZ"), "{at}: {record:?}");
            }
        }
    });
}

/// A run's end ends its messages; what then still comes of a secret is masked all the same.
#[test]
fn the_rest_of_a_secret_is_masked_after_the_end_of_its_run() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = handle.create(NewSession::default()).await.unwrap();
        for at in [2, 4, 7] {
            let run_id = handle.prompt(&id, "work").await.unwrap();
            let message_id = handle.ids().message().unwrap();
            let (begin, rest) = ENVIRONMENT.split_at(at);
            handle.execute(&id, say(&message_id, None, &format!("a {begin}"))).await.unwrap();
            handle.execute(&id, Command::Complete { run_id }).await.unwrap();
            // The sender may also start at offset 0: the log knows nothing of the message any more.
            let beginning = say(&message_id, Some(0), rest);
            handle.execute(&id, beginning).await.unwrap();
            handle.execute(&id, say(&message_id, Some(rest.len() as u64), " end")).await.unwrap();
        }
        for record in all_records(&*process.store, &id).await {
            assert!(!format!("{record:?}").contains("31337"), "{record:?}");
        }
    });
}

#[test]
fn several_messages_that_wait_are_all_kept_in_mind() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = handle.create(NewSession::default()).await.unwrap();
        let run_id = handle.prompt(&id, "work").await.unwrap();
        let messages = [(); 3].map(|()| handle.ids().message().unwrap());
        let (begin, rest) = ENVIRONMENT.split_at(4);
        for message_id in &messages {
            let ack = handle.execute(&id, say(message_id, Some(0), begin)).await.unwrap();
            assert_eq!(ack.held_bytes, 4, "all of it waits");
        }
        handle.execute(&id, intend(handle, &run_id)).await.unwrap();
        for message_id in &messages {
            handle.execute(&id, say(message_id, Some(4), &format!("{rest}."))).await.unwrap();
            handle.execute(&id, said(message_id, &format!("{ENVIRONMENT}."))).await.unwrap();
        }
        let records = all_records(&*process.store, &id).await;
        for message_id in &messages {
            let (text, end) = message(&records, message_id);
            assert_eq!(text, "env-[masked].");
            let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
            assert_eq!(end, Some((text.len() as u64, hash)));
        }
    });
}

/// What is said may be JSON, and have a value under its key: the gate masks it, and offsets, length
/// and hash are right all the same.
#[test]
fn text_that_the_gate_masks_is_counted_as_it_was_sent() {
    on_both(|place: Place| async move {
        for masker in [Arc::default(), masker()] {
            let place = Place::new(place.kind()).with_masker(masker);
            let process = place.start("boot_1").await;
            let handle = &process.handle;
            let id = handle.create(NewSession::default()).await.unwrap();
            handle.prompt(&id, "work").await.unwrap();
            let message_id = handle.ids().message().unwrap();
            let object = r#"{"api_key":"sk-1234567"}"#;
            let mut whole = String::new();
            for piece in [object, " is plain, ", "sk-1234567."] {
                let offset = Some(whole.len() as u64);
                handle.execute(&id, say(&message_id, offset, piece)).await.unwrap();
                whole.push_str(piece);
                let state = piton_store::load(&*process.store, &id).await.unwrap().state;
                assert_eq!(state.messages_sent.get(&message_id), Some(&(whole.len() as u64)));
            }
            handle.execute(&id, said(&message_id, &whole)).await.unwrap();
            let records = all_records(&*process.store, &id).await;
            let (text, end) = message(&records, &message_id);
            assert_eq!(text, r#"{"api_key":"[masked]"} is plain, [masked]."#);
            let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
            assert_eq!(end, Some((text.len() as u64, hash)));
        }
    });
}

/// A session masks what it learned, and no other does: content comes from anywhere.
#[test]
fn what_a_session_teaches_changes_nothing_in_others() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let teaches = handle.create(NewSession::default()).await.unwrap();
        let run_id = handle.prompt(&teaches, "work").await.unwrap();
        let taught = json!({
            "token": "/repo/alice", "next_token": "claude", "password": "----------",
            "api_key": "alice-key-1",
        });
        let echo = |text: &str| Command::Intend {
            run_id: run_id.clone(),
            call_id: handle.ids().call().unwrap(),
            name: "alice-key-1".into(),
            arguments: json!(text),
        };
        let call_id = handle.ids().call().unwrap();
        let learn = Command::Intend {
            run_id: run_id.clone(),
            call_id,
            name: "shell".into(),
            arguments: taught,
        };
        handle.execute(&teaches, learn).await.unwrap();
        let text = "alice-key-1 of claude in /repo/alice\n----------";
        handle.execute(&teaches, echo(text)).await.unwrap();
        let records = all_records(&*process.store, &teaches).await;
        let last = records.iter().rfind(|record| &*record.kind == "tool.intent").unwrap();
        let Event::ToolIntent(intent) = last.event().unwrap() else { panic!() };
        assert_eq!(intent.name, "alice-key-1", "a field of ours");
        let expected = json!(text.replace("alice-key-1", REPLACEMENT));
        assert_eq!(last.content_field("arguments"), Some(expected));

        let new = NewSession {
            title: Some("for alice-key-1".into()),
            working_dir: Some("/repo/alice/work".into()),
            agent_profile_id: Some("claude".into()),
            ..NewSession::default()
        };
        let other = handle.create(new).await.unwrap();
        handle.prompt(&other, text).await.unwrap();
        let records = all_records(&*process.store, &other).await;
        let created = records.iter().find_map(|record| match record.event().unwrap() {
            Event::SessionCreated(created) => Some(created),
            _ => None,
        });
        let created = created.unwrap();
        assert_eq!(created.title.as_deref(), Some("for alice-key-1"));
        assert_eq!(created.working_dir.as_deref(), Some("/repo/alice/work"));
        assert_eq!(created.agent_profile_id.as_deref(), Some("claude"));
        let prompt = records.iter().find_map(|record| record.content_field("content"));
        assert_eq!(prompt, Some(json!(text)));
    });
}

/// What else happens in the session does not make it wait longer.
#[test]
fn what_waits_is_written_though_others_talk() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = handle.create(NewSession::default()).await.unwrap();
        handle.prompt(&id, "work").await.unwrap();
        let [waits, talks] = [(); 2].map(|()| handle.ids().message().unwrap());
        *place.outside.hurries.lock().unwrap() = true;
        handle.execute(&id, say(&waits, None, "an e")).await.unwrap();
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(200) {
            handle.execute(&id, say(&talks, None, "x")).await.unwrap();
        }
        let records = all_records(&*process.store, &id).await;
        assert_eq!(message(&records, &waits).0, "an e");
    });
}

/// More than a little of a secret waits for as long as it takes; the session stays in memory.
#[test]
fn what_may_not_be_shown_waits_on() {
    on_both(|place: Place| async move {
        let place = place.with_masker(masker());
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = handle.create(NewSession::default()).await.unwrap();
        handle.prompt(&id, "work").await.unwrap();
        let message_id = handle.ids().message().unwrap();
        *place.outside.hurries.lock().unwrap() = true;
        let ack = handle.execute(&id, say(&message_id, Some(0), "an env-v")).await.unwrap();
        // Once a little of another message was written because it waited long enough, this one was
        // passed over.
        let little = handle.ids().message().unwrap();
        let held = handle.execute(&id, say(&little, Some(0), "e")).await.unwrap().held_bytes;
        assert_eq!(held, 1);
        let mut tail = handle.tail(&id, ack.last_seq);
        while !tail.next().await.unwrap().iter().any(|record| &*record.kind == "message.delta") {}
        let records = all_records(&*process.store, &id).await;
        assert_eq!(message(&records, &little).0, "e");
        assert_eq!(message(&records, &message_id).0, "an ");
        handle.execute(&id, say(&message_id, Some(8), "ironment")).await.unwrap();
        let records = all_records(&*process.store, &id).await;
        assert_eq!(message(&records, &message_id).0, "an env-vironment");
    });
}
