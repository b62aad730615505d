//! Each method of the engine, with its idempotent repetition.

use std::collections::{BTreeMap, BTreeSet};

use piton_core::Code;
use piton_core::access::Scope;
use piton_core::event::Outcome;
use piton_core::redact::{Literal, Selector};
use piton_core::task::TaskState;
use piton_runtime::{ArchiveTarget, NewAccessToken, SessionFilter, SessionSpec};
use serde_json::json;

use super::agentctl::{ASK, HANG, wait_of};
use super::world::{CONTINUE, World, caller, count, created, keyed, kinds, until, until_named};

#[tokio::test]
async fn a_repetition_under_a_key_is_answered_as_the_first_time_also_after_a_restart() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let spec = SessionSpec { title: Some("First".to_owned()), ..SessionSpec::default() };
    let made = engine.create(&keyed("k1"), spec.clone()).await.unwrap();
    let again = engine.create(&keyed("k1"), spec.clone()).await.unwrap();
    assert_eq!((made.replayed, again.replayed), (false, true));
    assert_eq!(made.response, again.response);
    let session = made.response.session_id;
    let said = engine.prompt(&keyed("k1"), &session, "one".to_owned()).await.unwrap();
    until_named(engine, &session, "idle").await;
    world.end(boot).await;

    let boot = world.start("boot_2").await;
    let engine = &boot.engine;
    let again = engine.prompt(&keyed("k1"), &session, "one".to_owned()).await.unwrap();
    assert_eq!((again.replayed, again.response), (true, said.response));
    let other = engine.prompt(&keyed("k1"), &session, "two".to_owned()).await.unwrap_err();
    assert_eq!(other.code(), Code::IdempotencyKeyReused);
    // Another caller's key is another key.
    let theirs = piton_runtime::Caller::new("bob").with_key(Some("k1")).unwrap();
    let created = engine.create(&theirs, spec).await.unwrap();
    assert!(!created.replayed);
    assert_eq!(count(engine, &session, "run.started").await, 1);
    assert_eq!(world.fleet.prompts(), ["one"]);
    world.end(boot).await;
}

#[tokio::test]
async fn every_change_of_a_run_is_made_once_for_a_key() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(engine, &session, |_| world.fleet.prompts().len() == 1).await;
    let paused = engine.pause(&keyed("p"), &session, None).await.unwrap();
    until_named(engine, &session, "paused").await;
    let resumed = engine.resume(&keyed("r"), &session, CONTINUE).await.unwrap();
    assert_eq!(paused.response.run_id, resumed.response.run_id);
    until_named(engine, &session, "idle").await;
    engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(engine, &session, |_| world.fleet.prompts().len() == 3).await;
    // Long after, and under the same keys: nothing happens again.
    let cancelled = engine.cancel(&keyed("c"), &session, None).await.unwrap();
    until_named(engine, &session, "idle").await;
    // What the agent still says about its turn may come meanwhile.
    let of_requests = |kinds: Vec<String>| {
        let is_ours = |kind: &String| kind.starts_with("run.") || kind.starts_with("request.");
        kinds.into_iter().filter(is_ours).collect::<Vec<_>>()
    };
    let before = of_requests(kinds(engine, &session).await);
    for (first, again) in [
        (&paused, engine.pause(&keyed("p"), &session, None).await.unwrap()),
        (&resumed, engine.resume(&keyed("r"), &session, CONTINUE).await.unwrap()),
        (&cancelled, engine.cancel(&keyed("c"), &session, None).await.unwrap()),
    ] {
        assert!(again.replayed);
        assert_eq!(first.response, again.response);
    }
    assert_eq!(of_requests(kinds(engine, &session).await), before);
    let unknown = engine.cancel(&caller(), &session, Some("run_other".parse().unwrap())).await;
    assert_eq!(unknown.unwrap_err().code(), Code::RunNotFound);
    world.end(boot).await;
}

#[tokio::test]
async fn a_session_is_renamed_by_a_record() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.rename(&keyed("n"), &session, Some("Better".to_owned())).await.unwrap();
    assert!(
        engine.rename(&keyed("n"), &session, Some("Better".to_owned())).await.unwrap().replayed
    );
    // The same title again writes nothing.
    engine.rename(&caller(), &session, Some("Better".to_owned())).await.unwrap();
    assert_eq!(count(engine, &session, "session.renamed").await, 1);
    let (listed, _) = engine.sessions(SessionFilter::default()).await.unwrap();
    assert_eq!(listed[0].row.summary.info.title.as_deref(), Some("Better"));
    engine.close(&caller(), &session, Outcome::Completed).await.unwrap();
    engine.rename(&caller(), &session, None).await.unwrap();
    let report = engine.session(&session).await.unwrap();
    assert_eq!(report.overview.state.info.unwrap().title, None);
    let long = engine.rename(&caller(), &session, Some("x".repeat(2_000))).await.unwrap_err();
    assert_eq!(long.code(), Code::RequestInvalid);
    world.end(boot).await;
}

#[tokio::test]
async fn waits_are_answered_once_by_id_and_by_token() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.prompt(&caller(), &session, ASK.to_owned()).await.unwrap();
    until_named(engine, &session, "waiting").await;
    let waits = engine.waits().await.unwrap();
    assert_eq!(waits.waits.len(), 1);
    assert_eq!(waits.waits[0].1.question.as_ref().unwrap()["title"], "May I?");
    let wait = wait_of(&session);
    let unfit = engine.answer(&caller(), &wait, json!({"option_id": "else"})).await.unwrap_err();
    assert_eq!(unfit.code(), Code::AnswerInvalid);
    let token = engine.rotate_resume_token(&keyed("t"), &wait).await.unwrap().response;
    assert_eq!(
        engine.rotate_resume_token(&keyed("t"), &wait).await.unwrap_err().code(),
        Code::ResponseNotKept,
        "a secret is shown once"
    );
    let yes = json!({"option_id": "yes"});
    let answered = engine.answer(&keyed("a"), &wait, yes.clone()).await.unwrap();
    assert_eq!(answered.response.session_id, session);
    until_named(engine, &session, "idle").await;
    let again = engine.answer(&keyed("a"), &wait, yes.clone()).await.unwrap();
    assert!(again.replayed, "found by its key though the wait is over");
    let token = token.token.parse().unwrap();
    let late = engine.answer_with_token(Some(&session), token, yes).await.unwrap_err();
    assert_eq!(late.code(), Code::ResumeTokenRevoked);
    world.end(boot).await;
}

#[tokio::test]
async fn tasks_have_sessions_and_a_state() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let made = engine.create_task(&keyed("t"), "Do it".to_owned()).await.unwrap();
    assert!(engine.create_task(&keyed("t"), "Do it".to_owned()).await.unwrap().replayed);
    let task = made.response.task_id;
    assert_eq!(engine.task(&task).await.unwrap().state, TaskState::Todo);
    let spec = SessionSpec {
        task_id: Some(task.clone()),
        agent_profile_id: Some("other".to_owned()),
        start: true,
        ..SessionSpec::default()
    };
    let session = engine.create(&caller(), spec).await.unwrap().response.session_id;
    until(engine, &session, |report| report.overview.evaluation.is_agent_running).await;
    let report = engine.task(&task).await.unwrap();
    assert_eq!(report.sessions.len(), 1);
    assert_eq!(world.fleet.starts()[0].command, ["other-agent", session.as_str()]);
    let unknown =
        SessionSpec { task_id: Some("task_x".parse().unwrap()), ..SessionSpec::default() };
    let unknown = engine.create(&caller(), unknown).await.unwrap_err();
    assert_eq!(unknown.code(), Code::TaskNotFound);
    let unknown = SessionSpec { agent_profile_id: Some("x".to_owned()), ..SessionSpec::default() };
    assert_eq!(engine.create(&caller(), unknown).await.unwrap_err().code(), Code::AgentNotFound);
    let page = engine.tasks(None, Some(1)).await.unwrap();
    assert_eq!((page.tasks.len(), page.next), (1, None));
    world.end(boot).await;
}

#[tokio::test]
async fn access_tokens_are_shown_once_and_links_work_once() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let new = NewAccessToken {
        name: "phone".to_owned(),
        scopes: BTreeSet::from([Scope::Read]),
        expires_in_s: None,
    };
    let issued = engine.create_access_token(&keyed("t"), new.clone()).await.unwrap().response;
    let again = engine.create_access_token(&keyed("t"), new.clone()).await.unwrap_err();
    assert_eq!(again.code(), Code::ResponseNotKept);
    let link = engine.create_sign_in_link(&caller(), new).await.unwrap().response;
    let link = link.token.parse().unwrap();
    engine.sign_in(&link).await.unwrap();
    assert_eq!(engine.sign_in(&link).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(engine.access_tokens().await.unwrap().len(), 2);
    engine.revoke_access_token(&caller(), issued.access_token_id.clone()).await.unwrap();
    let gone = engine.revoke_access_token(&caller(), issued.access_token_id).await.unwrap_err();
    assert_eq!(gone.code(), Code::AccessTokenNotFound);
    world.end(boot).await;
}

/// A server owns its closed sessions; it archives and redacts them itself.
#[tokio::test]
async fn a_running_engine_redacts_and_archives_a_closed_session() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.prompt(&caller(), &session, "the word is hunter22".to_owned()).await.unwrap();
    until_named(engine, &session, "idle").await;
    let open = engine.archive(&caller(), &session, ArchiveTarget::default()).await.unwrap_err();
    assert_eq!(open.code(), Code::SessionNotClosed);
    engine.close(&caller(), &session, Outcome::Completed).await.unwrap();
    until(engine, &session, |report| {
        let executor = report.overview.state.facts.executor.as_ref();
        executor.is_none_or(|executor| !executor.may_live())
    })
    .await;

    let secret = || Selector::Matching(Box::new(Literal::new("hunter22").unwrap()));
    let leaky = engine.redact(&caller(), &session, secret(), Some("was hunter22")).await;
    assert_eq!(leaky.unwrap_err().code(), Code::RequestInvalid);
    let redacted = engine.redact(&caller(), &session, secret(), Some("leaked")).await.unwrap();
    assert_eq!(redacted.done.unwrap().taken_out, redacted.plan.targets.len());
    assert!(redacted.plan.targets.len() >= 2, "the prompt and what the agent said");
    let records = engine.view().records(&session, 0, 1_000).await.unwrap();
    assert!(!format!("{records:?}").contains("hunter22"));

    let archived = engine.archive(&caller(), &session, ArchiveTarget::default()).await.unwrap();
    assert!(archived.bundle.starts_with(world.data().join("archive")));
    assert_eq!(engine.session(&session).await.unwrap_err().code(), Code::SessionNotFound);
    let bundle = std::fs::File::open(&archived.bundle).unwrap();
    assert_eq!(engine.import(bundle, None).await.unwrap().session, session);
    let again = engine.archive(&caller(), &session, ArchiveTarget::default()).await.unwrap_err();
    assert_eq!(again.code(), Code::FileExists, "a bundle is not replaced");
    let metadata = piton_core::id::SessionId::metadata_log();
    let records = engine.view().records(&metadata, 0, 1_000).await.unwrap();
    let mut audited = BTreeMap::<String, usize>::new();
    for record in records {
        if let Some(action) = serde_json::from_str::<serde_json::Value>(&record.header)
            .ok()
            .and_then(|header| header["action"].as_str().map(str::to_owned))
        {
            *audited.entry(action).or_default() += 1;
        }
    }
    assert_eq!((audited["sessions.redact"], audited["sessions.archive"]), (1, 1));
    world.end(boot).await;
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_its_agent_with_it_if_that_is_forced() {
    let world = World::new();
    let boot = world.start("boot_1").await;
    let engine = &boot.engine;
    let session = created(engine).await;
    engine.prompt(&caller(), &session, HANG.to_owned()).await.unwrap();
    until(engine, &session, |_| world.fleet.prompts().len() == 1).await;
    let refused = engine.delete(&caller(), &session, false, None).await.unwrap_err();
    assert_eq!(refused.code(), Code::RunInProgress);
    let deleted = engine.delete(&caller(), &session, true, None).await.unwrap();
    assert!(deleted.worktree.is_none());
    assert_eq!(engine.session(&session).await.unwrap_err().code(), Code::SessionNotFound);
    world.end(boot).await;
}
