//! Taking out, deleting, archiving and importing, on each store.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Place, on_both};
use piton_core::decide::Command;
use piton_core::event::{Event, Outcome, ToolStatus};
use piton_core::id::{BootId, SessionId};
use piton_core::redact::{Literal, Selector};
use piton_core::{Code, Content, Record};
use piton_runtime::{
    Caller, Engine, EngineOptions, Handle, NewSession, Options, Pattern, Redacted,
};
use piton_store::{Detail, OsEntropy, SecretText, Store};
use serde_json::json;

const VALUE: &str = "hunter2-and-more";

async fn records(store: &dyn Store, session: &SessionId) -> Vec<Record> {
    store.read(session, 0, 1_000, Detail::Full).await.unwrap()
}

async fn metadata_kinds(store: &dyn Store) -> Vec<String> {
    let records = records(store, &SessionId::metadata_log()).await;
    records.iter().map(|record| record.kind.to_string()).collect()
}

/// A session whose log has the value in a tool's output, split over a message, and in its title.
async fn leaky(handle: &Handle) -> SessionId {
    let title = Some(format!("about {VALUE}"));
    let id = handle.create(NewSession { title, ..NewSession::default() }).await.unwrap();
    let run_id = handle.prompt(&id, "work").await.unwrap();
    let message_id = handle.ids().message().unwrap();
    for text in ["it is hunter2", "-and-more, you see"] {
        let message_id = message_id.clone();
        let say = Command::Say { message_id, offset: None, text: text.into() };
        handle.execute(&id, say).await.unwrap();
    }
    let call_id = handle.ids().call().unwrap();
    let intend = Command::Intend {
        run_id: run_id.clone(),
        call_id: call_id.clone(),
        name: "shell".into(),
        arguments: json!({ "command": "env" }),
    };
    handle.execute(&id, intend).await.unwrap();
    let result = json!({ "stdout": format!("A={VALUE}\nB={VALUE}") });
    let status = ToolStatus::Succeeded;
    let conclude = Command::Conclude { run_id: run_id.clone(), call_id, status, result };
    handle.execute(&id, conclude).await.unwrap();
    handle.execute(&id, Command::Complete { run_id }).await.unwrap();
    id
}

async fn close(handle: &Handle, id: &SessionId) {
    let command = Command::Close { outcome: Outcome::Completed };
    handle.execute(id, command).await.unwrap();
}

fn by_value() -> Selector {
    Selector::Matching(Box::new(Literal::new(VALUE).unwrap()))
}

/// Planned first, then done: the value is in no content any more, the log verifies, what cannot be
/// taken out was named, and doing it again does nothing.
#[test]
fn a_value_is_taken_out_of_every_content() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = leaky(handle).await;
        close(handle, &id).await;
        let before = records(&*process.store, &id).await;
        let plan = handle.plan_redaction(&id, by_value()).await.unwrap();
        let kinds: Vec<_> = plan.targets.iter().map(|t| (&*t.kind, t.matches)).collect();
        assert_eq!(kinds, [("message.delta", 1), ("message.delta", 1), ("tool.outcome", 2)]);
        assert_eq!(plan.targets[2].excerpt, "A=[masked] B=[masked]");
        assert_eq!(plan.in_headers.len(), 1, "the title cannot be taken out");
        assert_eq!(records(&*process.store, &id).await, before, "a plan changes nothing");

        let done = handle.redact(&id, &plan, Some("leaked")).await.unwrap();
        assert_eq!(done, Redacted { taken_out: 3, gone: 0 });
        let after = records(&*process.store, &id).await;
        let gone = after.iter().filter(|record| record.content == Content::Redacted).count();
        assert_eq!(gone, 3);
        let holds = |record: &&Record| format!("{:?}", record.content).contains("hunter2");
        assert_eq!(after.iter().find(holds), None);
        assert_eq!(process.store.verify(&id).await.unwrap().problem, None);

        let again = handle.redact(&id, &plan, None).await.unwrap();
        assert_eq!(again, Redacted { taken_out: 0, gone: 3 });
        assert_eq!(records(&*process.store, &id).await, after);
        assert!(handle.plan_redaction(&id, by_value()).await.unwrap().targets.is_empty());
    });
}

#[test]
fn patterns_and_seqs_select_too() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = leaky(handle).await;
        let pattern = Selector::Matching(Box::new(Pattern::new(r"hunter\d[a-z-]*").unwrap()));
        let plan = handle.plan_redaction(&id, pattern).await.unwrap();
        let seqs: Vec<_> = plan.targets.iter().map(|target| target.seq).collect();
        assert_eq!(seqs.len(), 3);
        let by_seq = Selector::Seqs(BTreeSet::from([seqs[2], 999]));
        let plan = handle.plan_redaction(&id, by_seq).await.unwrap();
        assert_eq!((plan.targets.len(), plan.missing.clone()), (1, vec![999]));
        handle.redact(&id, &plan, None).await.unwrap();
        assert!(Pattern::new("(").is_err());
        let everywhere = Selector::Matching(Box::new(Pattern::new("x*").unwrap()));
        assert!(handle.plan_redaction(&id, everywhere).await.unwrap().targets.is_empty());
        let nobody = handle.plan_redaction(&"nobody".parse().unwrap(), by_value()).await;
        assert_eq!(nobody.unwrap_err().code(), Code::SessionNotFound);
    });
}

/// Deleting is refused while a run is open, leaves a note, and the process forgets the session.
#[test]
fn a_deleted_session_is_gone_and_noted() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = handle.create(NewSession::default()).await.unwrap();
        handle.prompt(&id, "work").await.unwrap();
        let refused = handle.delete(&id, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::RunInProgress);
        handle.delete_forced(&id, Some("by mistake".into())).await.unwrap();
        assert_eq!(process.store.head(&id).await.unwrap(), None);
        assert_eq!(
            metadata_kinds(&*process.store).await,
            ["session.registered", "session.deleted"]
        );
        let gone = handle.execute(&id, Command::Close { outcome: Outcome::Completed }).await;
        assert_eq!(gone.unwrap_err().code(), Code::SessionNotFound, "it is not in memory, either");
        assert_eq!(handle.delete(&id, None).await.unwrap_err().code(), Code::SessionNotFound);
        // The name is free again, and nothing of the old one is left under it.
        handle.create(NewSession { id: Some(id.clone()), ..NewSession::default() }).await.unwrap();
        assert_eq!(records(&*process.store, &id).await.len(), 2);
    });
}

/// What a dead boot left is settled first; a living one's session is not touched.
#[test]
fn only_its_owner_or_no_one_deletes_a_session() {
    on_both(|place: Place| async move {
        let first = place.start("boot_1").await;
        let id = first.handle.create(NewSession::default()).await.unwrap();
        first.handle.prompt(&id, "work").await.unwrap();
        let second = place.start("boot_2").await;
        let refused = second.handle.delete_forced(&id, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::SessionOwned);
        place.kill(first);
        second.handle.delete(&id, None).await.unwrap();
        assert_eq!(second.store.head(&id).await.unwrap(), None);
    });
}

/// Into a bundle and back: the same records, with a note for each way.
#[test]
fn an_archived_session_comes_back_as_it_was() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = leaky(handle).await;
        let folder = place.folder().join("archive");
        let passphrase = Some(SecretText::from("p".to_owned()));
        let refused = handle.archive(&id, &folder, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::SessionNotClosed);
        close(handle, &id).await;
        let before = records(&*process.store, &id).await;
        let archived = handle.archive(&id, &folder, passphrase.clone()).await.unwrap();
        assert_eq!(archived.bundle, folder.join(format!("{id}.piton")));
        assert_eq!(archived.last_seq, before.len() as u64);
        assert_eq!(process.store.head(&id).await.unwrap(), None);
        let notes = records(&*process.store, &SessionId::metadata_log()).await;
        let Event::SessionArchived(note) = notes[1].event().unwrap() else { panic!("{notes:?}") };
        let bytes = std::fs::read(&archived.bundle).unwrap();
        assert_eq!(note.digest, blake3::hash(&bytes).to_hex().to_string());
        assert_eq!((note.session_id, note.last_seq), (id.clone(), archived.last_seq));

        let cut = Cursor::new(bytes[..bytes.len() - 1].to_vec());
        let refused = handle.import(cut, passphrase.as_ref()).await.unwrap_err();
        assert_eq!(refused.code(), Code::BundleDamaged);
        let file = File::open(&archived.bundle).unwrap();
        let imported = handle.import(file, passphrase.as_ref()).await.unwrap();
        assert_eq!((&imported.session, imported.last_seq), (&id, archived.last_seq));
        assert_eq!(records(&*process.store, &id).await, before);
        assert_eq!(process.store.verify(&id).await.unwrap().problem, None);
        let notes = metadata_kinds(&*process.store).await;
        assert_eq!(notes, ["session.registered", "session.archived", "session.imported"]);
    });
}

/// An archive that cannot be written leaves the session where it is.
#[test]
fn a_failed_archive_takes_nothing_away() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = leaky(handle).await;
        close(handle, &id).await;
        // A folder is where the bundle should be.
        let folder = place.folder().join("archive");
        std::fs::create_dir_all(folder.join(format!("{id}.piton"))).unwrap();
        let refused = handle.archive(&id, &folder, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::BundleIo);
        assert_eq!(process.store.verify(&id).await.unwrap().problem, None);
        assert_eq!(handle.status(&id).await.unwrap().name, piton_core::status::Name::Completed);
    });
}

/// Two who take out the same at the same time write about it once.
#[test]
fn what_two_take_out_at_once_is_noted_once() {
    on_both(|place: Place| async move {
        let noted = |records: &[Record]| {
            records.iter().filter(|record| &*record.kind == "record.redacted").count()
        };
        let process = place.start("boot_1").await;
        let handle = &process.handle;
        let id = leaky(handle).await;
        let plan = handle.plan_redaction(&id, by_value()).await.unwrap();
        let (one, other) =
            tokio::join!(handle.redact(&id, &plan, None), handle.redact(&id, &plan, None));
        assert_eq!(one.unwrap().taken_out + other.unwrap().taken_out, 3);
        assert_eq!(noted(&records(&*process.store, &id).await), 3);

        let id = leaky(handle).await;
        process.service.shut_down().await;
        place.outside.alive_no_more("boot_1");
        let writers = ["boot_2", "boot_3"].map(|boot| {
            let boot: BootId = boot.parse().unwrap();
            place.live(&boot);
            let (store, alive) = (Arc::clone(&process.store), place.outside.clone());
            let options = Options::new(boot, store, alive, Arc::new(OsEntropy));
            let options = Options { clock: place.outside.clone(), ..options };
            Engine::offline(EngineOptions::new(options, Path::new("/nonexistent")))
        });
        let redact = async |writer: &Engine| {
            let report = writer.redact(&Caller::local(), &id, by_value(), None).await.unwrap();
            report.done.unwrap().taken_out
        };
        let (one, other) = tokio::join!(redact(&writers[0]), redact(&writers[1]));
        assert_eq!(one + other, 3);
        assert_eq!(noted(&records(&*process.store, &id).await), 3);
    });
}
