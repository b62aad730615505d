//! The same methods over the offline writer, where no engine runs.

use piton_core::Code;
use piton_core::event::Outcome;
use piton_core::redact::{Literal, Selector};
use piton_runtime::{ArchiveTarget, SessionSpec};
use serde_json::json;

use super::agentctl::HANG;
use super::world::{World, caller, count, created, kinds, until, until_named};

#[tokio::test]
async fn a_session_that_no_process_owns_is_changed_offline() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    boot.engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(&boot.engine, &session, |_| world.fleet.prompts().len() == 1).await;
    world.fleet.kill();
    until_named(&boot.engine, &session, "interrupted_startup").await;

    // The engine lives and owns it.
    let beside = world.offline("boot_2");
    let owned = beside.cancel(&caller(), &session, None).await.unwrap_err();
    assert_eq!(owned.code(), Code::SessionOwned);
    let owned = beside.rename(&caller(), &session, Some("x".to_owned())).await.unwrap_err();
    assert_eq!(owned.code(), Code::SessionOwned);
    world.end(boot).await;

    let offline = world.offline("boot_3");
    let before = kinds(&offline, &session).await.len();
    let done = offline.dismiss(&caller(), &session, None).await.unwrap();
    assert!(done.response.run_id.is_some());
    let written = kinds(&offline, &session).await[before..].to_vec();
    assert_eq!(written, ["session.leased", "run.dismissed", "session.released"]);
    offline.rename(&caller(), &session, Some("Offline".to_owned())).await.unwrap();
    let secret = Selector::Matching(Box::new(Literal::new(HANG).unwrap()));
    let redacted = offline.redact(&caller(), &session, secret, None).await.unwrap();
    assert!(redacted.done.unwrap().taken_out > 0);
    let report = offline.session(&session).await.unwrap();
    assert_eq!(report.overview.state.info.unwrap().title.as_deref(), Some("Offline"));
    assert_eq!(report.overview.state.lease.owner, None, "the lease is given back");
    let open = offline.archive(&caller(), &session, ArchiveTarget::default()).await.unwrap_err();
    assert_eq!(open.code(), Code::SessionNotClosed);
    offline.delete(&caller(), &session, false, None).await.unwrap();
    assert_eq!(offline.session(&session).await.unwrap_err().code(), Code::SessionNotFound);
}

#[tokio::test]
async fn a_closed_session_is_archived_offline() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    boot.engine.close(&caller(), &session, Outcome::Completed).await.unwrap();
    world.end(boot).await;
    let offline = world.offline("boot_2");
    let archived = offline.archive(&caller(), &session, ArchiveTarget::default()).await.unwrap();
    assert!(archived.bundle.is_file());
}

#[tokio::test]
async fn what_needs_an_agent_needs_a_server() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let session = created(&boot.engine).await;
    world.end(boot).await;
    let offline = world.offline("boot_2");
    let (caller, records) = (caller(), count(&offline, &session, "session.created").await);
    assert_eq!(records, 1);
    let wait = "wait_1".parse().unwrap();
    let codes = [
        offline.create(&caller, SessionSpec::default()).await.err().map(|e| e.code()),
        offline.prompt(&caller, &session, "x".to_owned()).await.err().map(|e| e.code()),
        offline
            .resume(&caller, &session, piton_runtime::ResumeSpec::default())
            .await
            .err()
            .map(|e| e.code()),
        offline
            .start_agent(&caller, &session, piton_core::resume::StartContext::Fresh)
            .await
            .err()
            .map(|e| e.code()),
        offline.open(&session).await.err().map(|e| e.code()),
        offline.pause(&caller, &session, None).await.err().map(|e| e.code()),
        offline.abandon(&caller, &session, None).await.err().map(|e| e.code()),
        offline.close(&caller, &session, Outcome::Completed).await.err().map(|e| e.code()),
        offline.answer(&caller, &wait, json!({})).await.err().map(|e| e.code()),
        offline.workspace(&session).await.err().map(|e| e.code()),
        offline.repair_worktree(&session).await.err().map(|e| e.code()),
    ];
    assert_eq!(codes, [Some(Code::ServerNotRunning); 11]);
}
