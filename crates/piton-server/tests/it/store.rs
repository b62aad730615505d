//! The store as a whole, for administrators: verified and pruned a page at a time; and shells.

use piton_api::enums::Pruning;
use piton_api::session::{CloseRequest, NewSession};
use piton_api::store::{PruneRequest, VerifyQuery};
use piton_core::Code;
use piton_core::access::Scope;

use crate::world::World;

fn unstarted() -> NewSession {
    NewSession { start: Some(false), ..NewSession::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_log_is_verified_in_pages() {
    let world = World::start().await;
    let client = &world.client;
    for _ in 0..3 {
        client.create_session(&unstarted()).await.unwrap();
    }
    let (mut after, mut seen, mut pages) = (None, Vec::new(), 0);
    loop {
        let query = VerifyQuery { after, limit: Some(2) };
        let page = client.verify_store(&query).await.unwrap();
        assert!(page.logs.iter().all(|log| log.good), "{page:?}");
        assert!(page.findings.is_empty(), "{page:?}");
        seen.extend(page.logs.into_iter().map(|log| log.session_id));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let count = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), count, "each once");
    assert!(count >= 3 && pages >= 2, "{count} logs on {pages} pages");
    let too_many = VerifyQuery { after: None, limit: Some(1_000) };
    let refused = client.verify_store(&too_many).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::RequestInvalid));
    let controller = world.client_with(&[Scope::Control].into()).await;
    let refused = controller.verify_store(&VerifyQuery::default()).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InsufficientScope));
}

/// Wants to show: a server that owns closed sessions archives and deletes them; what is open stays.
#[tokio::test(flavor = "multi_thread")]
async fn closed_sessions_are_pruned() {
    let world = World::start().await;
    let client = &world.client;
    let open = client.create_session(&unstarted()).await.unwrap().session_id;
    let mut closed = Vec::new();
    for _ in 0..3 {
        let session = client.create_session(&unstarted()).await.unwrap().session_id;
        client.close(&session, &CloseRequest::default()).await.unwrap();
        closed.push(session);
    }
    let nothing = client.prune(&PruneRequest::default()).await.unwrap_err();
    assert_eq!(nothing.code(), Some(Code::RequestInvalid));
    let controller = world.client_with(&[Scope::Control].into()).await;
    let archive = PruneRequest { archive_after_s: Some(0), limit: Some(2), ..Default::default() };
    let refused = controller.prune(&archive).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InsufficientScope));
    let due = client.prune(&PruneRequest { dry_run: true, ..archive }).await.unwrap();
    assert_eq!((due.sessions.len(), due.truncated), (2, true));
    assert!(due.sessions.iter().all(|one| !one.done && one.due == Pruning::Archive), "{due:?}");
    let done = client.prune(&archive).await.unwrap();
    assert!(done.sessions.iter().all(|one| one.done), "{done:?}");
    let delete = PruneRequest { delete_after_s: Some(0), ..Default::default() };
    let done = client.prune(&delete).await.unwrap();
    assert_eq!((done.sessions.len(), done.truncated), (1, false));
    assert_eq!((done.sessions[0].due.as_str(), done.sessions[0].done), ("delete", true));
    for session in &closed {
        let gone = client.session(session).await.unwrap_err();
        assert_eq!(gone.code(), Some(Code::SessionNotFound));
    }
    client.session(&open).await.unwrap();
    assert_eq!(client.prune(&delete).await.unwrap().sessions.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_an_agentctl_has_no_shells() {
    let world = World::start().await;
    let session = world.client.create_session(&unstarted()).await.unwrap().session_id;
    assert_eq!(world.client.shells(&session).await.unwrap().shells, []);
    let path = "/api/v1/sessions/sess_none/shells";
    let unknown = world.client.raw("GET", path, "").await.unwrap_err();
    assert_eq!(unknown.code(), Some(Code::SessionNotFound));
}
