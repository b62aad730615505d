//! The one request that a screen begins with, and older messages behind it.

use piton_api::queue::PromptRequest;
use piton_api::record::{BootstrapQuery, Message, MessageQuery};
use piton_api::rewind::RewindRequest;
use piton_api::session::NewSession;
use piton_api::task::NewTask;
use serde_json::Value;

use crate::agentctl::HANG;
use crate::world::World;

fn seqs(messages: &[Message]) -> Vec<u64> {
    let seq = |message: &Message| match message {
        Message::User { seq, .. }
        | Message::Agent { seq, .. }
        | Message::Tool { seq, .. }
        | Message::Notice { seq, .. } => *seq,
    };
    messages.iter().map(seq).collect()
}

fn limited(limit: usize) -> BootstrapQuery {
    BootstrapQuery { limit: Some(limit), ..BootstrapQuery::default() }
}

/// Wants to show: one answer has all that a screen needs, as of one record; the rest of the conversation
/// comes in whole messages, page by page, none twice and none left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_screen_begins_with_one_request_and_pages_back() {
    let (world, _fleet) = World::with_agents().await;
    let task = world.client.create_task(&NewTask { title: "T".to_owned() }).await.unwrap();
    let new = NewSession { task_id: Some(task.task_id.to_string()), ..NewSession::default() };
    let session = world.client.create_session(&new).await.unwrap().session_id;
    for at in 0..6 {
        let prompt = PromptRequest::new(format!("hello {at}"));
        let run = world.client.prompt(&session, &prompt).await.unwrap().run_id;
        world
            .wait_for_record(&session, |record: &Value| {
                record["kind"] == "run.completed" && record["run_id"] == *run
            })
            .await;
    }
    world.client.prompt(&session, &PromptRequest::new(HANG)).await.unwrap();
    world.client.prompt(&session, &PromptRequest::queued("later")).await.unwrap();

    let first = world.client.bootstrap(&session, &limited(3)).await.unwrap();
    assert_eq!(first.status.summary.session_id, session);
    assert_eq!(first.status.summary.last_seq, first.last_seq);
    assert_eq!(first.task.unwrap().title, "T");
    assert_eq!(first.queue.prompts.len(), 1);
    assert_eq!(first.queue.prompts[0].text, "later");
    assert_eq!(first.messages.len(), 3);

    let mut all = first.messages.clone();
    let mut before = first.before;
    while let Some(seq) = before {
        let query = MessageQuery { before: Some(seq), limit: Some(2), ..MessageQuery::default() };
        let page = world.client.messages(&session, &query).await.unwrap();
        assert!(page.messages.len() <= 2 && page.next.is_none());
        before = page.before;
        all.splice(0..0, page.messages);
    }
    let query = MessageQuery { limit: Some(1_000), ..MessageQuery::default() };
    let whole = world.client.messages(&session, &query).await.unwrap().messages;
    assert_eq!(seqs(&all), seqs(&whole)[..all.len()]);
    assert!(all.len() >= 12, "{all:?}");
    assert_eq!(all[..10], whole[..10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_after_a_record_or_before_one() {
    let world = World::start().await;
    let new = NewSession { start: Some(false), ..NewSession::default() };
    let session = world.client.create_session(&new).await.unwrap().session_id;
    let both = MessageQuery { after: Some(1), before: Some(1), ..MessageQuery::default() };
    let refused = world.client.messages(&session, &both).await.unwrap_err();
    assert_eq!(refused.code(), Some(piton_core::Code::RequestInvalid));
    let none = world.client.bootstrap(&session, &limited(0)).await;
    assert_eq!(none.unwrap_err().code(), Some(piton_core::Code::RequestInvalid));
    let begun = world.client.bootstrap(&session, &BootstrapQuery::default()).await.unwrap();
    assert_eq!((begun.messages.len(), begun.before, begun.task), (0, None, None));
}

/// Wants to show: what a rewind left behind is on no page, unless it is asked for; then it is marked, and
/// the answer says how the lineages began.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_rewind_left_behind_is_marked_if_it_is_asked_for() {
    let (world, _fleet) = World::with_agents().await;
    let client = &world.client;
    let session = client.create_session(&NewSession::default()).await.unwrap().session_id;
    for at in 0..2 {
        let prompt = PromptRequest::new(format!("hello {at}"));
        let run = client.prompt(&session, &prompt).await.unwrap().run_id;
        let is_done =
            |record: &Value| record["kind"] == "run.completed" && record["run_id"] == *run;
        world.wait_for_record(&session, is_done).await;
    }
    let rewind = RewindRequest { files: Some(false), ..RewindRequest::default() };
    client.rewind(&session, &rewind).await.unwrap();

    let prompts = |messages: &[Message]| -> Vec<(String, bool)> {
        let prompt = |message: &Message| match message {
            Message::User { text, abandoned, .. } => {
                Some((text.clone().unwrap_or_default(), *abandoned))
            }
            _ => None,
        };
        messages.iter().filter_map(prompt).collect()
    };
    let live = client.bootstrap(&session, &BootstrapQuery::default()).await.unwrap();
    assert_eq!(prompts(&live.messages), [("hello 0".to_owned(), false)]);
    let query = BootstrapQuery { abandoned: Some(true), ..BootstrapQuery::default() };
    let all = client.bootstrap(&session, &query).await.unwrap();
    let marked = [("hello 0".to_owned(), false), ("hello 1".to_owned(), true)];
    assert_eq!(prompts(&all.messages), marked);
    let [lineage] = all.lineages.as_slice() else { panic!("{:?}", all.lineages) };
    assert_eq!((lineage.lineage, lineage.from_lineage), (2, 1));
    assert!(lineage.from_seq < lineage.at && lineage.at <= all.last_seq, "{lineage:?}");
    let notice = all.messages.last().unwrap();
    let Message::Notice { kind, from_seq, abandoned, .. } = notice else { panic!("{notice:?}") };
    assert_eq!((kind.as_str(), *from_seq), ("lineage.started", Some(lineage.from_seq)));
    assert!(!abandoned);
    // Both kinds of pages do.
    let before = Some(all.last_seq + 1);
    let query = MessageQuery { before, abandoned: Some(true), ..MessageQuery::default() };
    assert_eq!(client.messages(&session, &query).await.unwrap().messages, all.messages);
    let query = MessageQuery { abandoned: Some(true), ..MessageQuery::default() };
    assert_eq!(prompts(&client.messages(&session, &query).await.unwrap().messages), marked);
    let query = MessageQuery::default();
    assert_eq!(prompts(&client.messages(&session, &query).await.unwrap().messages).len(), 1);
}
