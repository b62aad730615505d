//! The service on each store: crash and restart, time-outs, stale
//! tokens, reattaching, and what a shutdown leaves.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{Place, Process, on_both};
use piton_core::Code;
use piton_core::Reason;
use piton_core::decide::{Command, Probe, Verdict};
use piton_core::event::{ExecutorReady, ExecutorStarting, WaitKind};
use piton_core::fold;
use piton_core::id::{RunId, SessionId};
use piton_core::status::{self, Name};
use piton_core::transcript::{Item, Outcome};
use piton_runtime::{Clock as _, Handle, NewSession, Question, Recovered};
use piton_store::{Detail, Store};
use serde_json::json;

pub(crate) async fn session(handle: &Handle) -> SessionId {
    handle
        .create(NewSession { title: Some("a test".into()), ..NewSession::default() })
        .await
        .unwrap()
}

pub(crate) fn question(run_id: &RunId, timeout: Duration) -> Question {
    Question {
        run_id: run_id.clone(),
        wait_id: None,
        kind: WaitKind::Permission,
        timeout: Some(timeout),
        question: json!("may I?"),
    }
}

pub(crate) async fn kinds(store: &dyn Store, session: &SessionId) -> Vec<String> {
    let records = store.read(session, 0, 1_000, Detail::Full).await.unwrap();
    records.iter().map(|record| record.kind.to_string()).collect()
}

fn count(kinds: &[String], kind: &str) -> usize {
    kinds.iter().filter(|one| *one == kind).count()
}

pub(crate) async fn executor(handle: &Handle, session: &SessionId) {
    let execution_id = handle.ids().execution().unwrap();
    let runtime = "test".to_owned();
    for event in [
        ExecutorStarting { execution_id: execution_id.clone(), runtime }.into(),
        ExecutorReady { execution_id }.into(),
    ] {
        handle.execute(session, Command::Observe { event, message: None }).await.unwrap();
    }
}

/// A process dies in the middle of a run; the next one records one interruption, says so to a
/// reader that was away, and a third finds nothing left to do.
#[test]
fn crash_in_a_run_gives_one_interruption_and_readers_hear_of_it() {
    on_both(|place: Place| async move {
        let first = place.start("boot_1").await;
        let id = session(&first.handle).await;
        first.handle.prompt(&id, "work").await.unwrap();
        assert_eq!(first.handle.status(&id).await.unwrap().name, Name::Running);
        let seen = first.handle.tail(&id, 0).next().await.unwrap().last().unwrap().seq;
        place.kill(first);

        let second = place.start("boot_2").await;
        assert_eq!(
            second.recovered,
            [Recovered { session: id.clone(), outcome: piton_runtime::Outcome::Settled }]
        );
        let status = second.handle.status(&id).await.unwrap();
        assert_eq!(
            (status.name, status.reason),
            (Name::InterruptedStartup, Reason::ProcessRestart)
        );
        let missed = second.handle.tail(&id, seen).next().await.unwrap();
        let missed: Vec<_> = missed.iter().map(|record| &*record.kind).collect();
        // What the first life managed to note about its effect may or may not have made it.
        let missed: Vec<_> = missed.into_iter().filter(|kind| *kind != "effect.done").collect();
        assert_eq!(missed, ["session.leased", "run.interrupted", "status.derived"]);
        place.kill(second);

        let third = place.start("boot_3").await;
        assert_eq!(third.recovered, []);
        assert_eq!(count(&kinds(&*third.store, &id).await, "run.interrupted"), 1);
    });
}

/// The sweep interrupts a run whose wait is not answered in time; its token is then refused.
#[test]
fn a_wait_times_out_and_its_token_is_refused() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let id = session(&process.handle).await;
        let run = process.handle.prompt(&id, "work").await.unwrap();
        let asked = process.handle.ask(&id, question(&run, Duration::from_secs(10))).await.unwrap();
        let token = asked.token.unwrap();
        assert_eq!(process.handle.status(&id).await.unwrap().name, Name::Waiting);
        place.pass(Duration::from_secs(10));
        let status = process.handle.status(&id).await.unwrap();
        assert_eq!((status.name, status.reason), (Name::InterruptedWaiting, Reason::WaitTimeout));
        let answer = |token| process.handle.answer_with_token(None, token, json!("yes"));
        assert_eq!(answer(token.clone()).await.unwrap_err().code(), Code::ResumeTokenExpired);
        assert_eq!(process.handle.sweep().await.unwrap(), 1);
        assert_eq!(process.handle.sweep().await.unwrap(), 0);
        assert_eq!(answer(token).await.unwrap_err().code(), Code::ResumeTokenRevoked);
        let kinds = kinds(&*process.store, &id).await;
        assert_eq!(count(&kinds, "run.interrupted"), 1);
        assert_eq!(count(&kinds, "token.revoked"), 1);
    });
}

/// With a live agent a time-out cancels the question, and the run continues.
#[test]
fn a_live_agent_learns_that_no_user_answered() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let id = session(&process.handle).await;
        let run = process.handle.prompt(&id, "work").await.unwrap();
        executor(&process.handle, &id).await;
        *place.outside.live.lock().unwrap() = true;
        process.handle.ask(&id, question(&run, Duration::from_secs(10))).await.unwrap();
        place.pass(Duration::from_secs(11));
        assert_eq!(process.handle.sweep().await.unwrap(), 1);
        assert_eq!(process.handle.status(&id).await.unwrap().name, Name::Running);
        process.service.shut_down().await;
        let performed = place.outside.performed.lock().unwrap();
        assert!(
            performed.iter().any(|(_, effect)| effect.starts_with("CancelWait")),
            "{performed:?}"
        );
    });
}

/// The agent outlived its server: the run is taken over with its waits, and what the old server
/// had not delivered is delivered, under its old key.
#[test]
fn a_living_agent_is_reattached_and_given_what_it_lacks() {
    on_both(|place: Place| async move {
        let first = place.start("boot_1").await;
        let id = session(&first.handle).await;
        let run = first.handle.prompt(&id, "work").await.unwrap();
        executor(&first.handle, &id).await;
        let asked = first.handle.ask(&id, question(&run, Duration::from_secs(10))).await.unwrap();
        let kept = first.handle.ask(&id, question(&run, Duration::from_secs(10))).await.unwrap();
        *place.outside.listens.lock().unwrap() = false;
        let answered = first.handle.answer_with_token(None, asked.token.unwrap(), json!(1)).await;
        let answer_seq = answered.unwrap().result_seq;
        place.kill(first);
        place.outside.performed.lock().unwrap().clear();
        place.pass(Duration::from_hours(1));
        *place.outside.listens.lock().unwrap() = true;
        *place.outside.probe.lock().unwrap() = Probe::Alive;

        let second = place.start("boot_2").await;
        let kinds = kinds(&*second.store, &id).await;
        assert_eq!((count(&kinds, "run.reattached"), count(&kinds, "run.interrupted")), (1, 0));
        let status = second.handle.status(&id).await.unwrap();
        assert_eq!((status.name, status.reason), (Name::Running, Reason::RunOpen));
        // No answer could arrive for an hour: the other wait has time again, and its token works.
        let answered = second.handle.answer_with_token(None, kept.token.unwrap(), json!(2)).await;
        assert!(!answered.unwrap().replayed);
        second.service.shut_down().await;
        let performed = place.outside.performed.lock().unwrap();
        let key = format!("{id}/{answer_seq}");
        assert!(performed.iter().any(|(known, _)| *known == key), "{key} not in {performed:?}");
    });
}

/// The run was cancelled, and the server died before it notified the agent: the next server does.
#[test]
fn what_is_pending_for_a_living_agent_is_delivered_by_the_next_boot() {
    on_both(|place: Place| async move {
        let first = place.start("boot_1").await;
        let id = session(&first.handle).await;
        let run_id = first.handle.prompt(&id, "work").await.unwrap();
        executor(&first.handle, &id).await;
        *place.outside.listens.lock().unwrap() = false;
        let cancel = Command::Cancel { run_id, reason: Reason::UserRequest };
        first.handle.execute(&id, cancel).await.unwrap();
        place.kill(first);
        place.outside.performed.lock().unwrap().clear();
        *place.outside.listens.lock().unwrap() = true;
        *place.outside.probe.lock().unwrap() = Probe::Alive;
        let second = place.start("boot_2").await;
        second.service.shut_down().await;
        let performed = place.outside.performed.lock().unwrap();
        assert!(performed.iter().any(|(_, effect)| effect.starts_with("Stop")), "{performed:?}");
    });
}

/// An agent that refuses one effect still gets the next.
#[test]
fn an_agent_that_does_not_listen_once_is_given_the_next() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let id = session(&process.handle).await;
        *place.outside.listens.lock().unwrap() = false;
        let run_id = process.handle.prompt(&id, "work").await.unwrap();
        let pause = Command::Pause { run_id: run_id.clone() };
        *place.outside.listens.lock().unwrap() = true;
        process.handle.execute(&id, pause).await.unwrap();
        process.service.shut_down().await;
        let performed = place.outside.performed.lock().unwrap();
        assert!(performed.iter().any(|(_, effect)| effect.starts_with("Stop")), "{performed:?}");
    });
}

/// A run that no agent accepted before it was paused begins when it is resumed, and once.
#[test]
fn a_run_that_was_paused_before_it_was_begun_begins() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let id = session(&process.handle).await;
        *place.outside.listens.lock().unwrap() = false;
        let run_id = process.handle.prompt(&id, "work").await.unwrap();
        let pause = Command::Pause { run_id: run_id.clone() };
        process.handle.execute(&id, pause).await.unwrap();
        *place.outside.listens.lock().unwrap() = true;
        process.handle.execute(&id, Command::Resume { run_id }).await.unwrap();
        process.service.shut_down().await;
        let performed = place.outside.performed.lock().unwrap();
        assert!(
            matches!(&performed[..], [(_, effect)] if effect.starts_with("Begin")),
            "{performed:?}"
        );
    });
}

/// One session that cannot be read holds up no other's deadline.
#[test]
fn a_damaged_session_does_not_stop_the_sweep() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let place = Place::new(crate::common::Kind::Memory);
        let first = place.start("boot_1").await;
        let mut sessions = Vec::new();
        for seconds in [1, 2] {
            let id = session(&first.handle).await;
            let run = first.handle.prompt(&id, "work").await.unwrap();
            executor(&first.handle, &id).await;
            let wait = question(&run, Duration::from_secs(seconds));
            first.handle.ask(&id, wait).await.unwrap();
            sessions.push(id);
        }
        place.kill(first);
        *place.outside.probe.lock().unwrap() = Probe::Unreachable;
        place.damage(&sessions[0]);
        place.pass(Duration::from_mins(1));
        let second = place.start("boot_2").await;
        assert_eq!(second.handle.sweep().await.unwrap(), 1);
        let swept = second.handle.state(&sessions[1]).await.unwrap();
        assert!(swept.facts.run.unwrap().waits.is_empty());
        assert!(second.handle.state(&sessions[0]).await.is_err());
    });
}

/// An executor that does not answer is an error, not an interruption; found again, the run
/// continues.
#[test]
fn an_unreachable_executor_decides_nothing() {
    on_both(|place: Place| async move {
        let first = place.start("boot_1").await;
        let id = session(&first.handle).await;
        first.handle.prompt(&id, "work").await.unwrap();
        executor(&first.handle, &id).await;
        place.kill(first);
        *place.outside.probe.lock().unwrap() = Probe::Unreachable;
        let second = place.start("boot_2").await;
        let status = second.handle.status(&id).await.unwrap();
        assert_eq!((status.name, status.reason), (Name::Error, Reason::ExecutorUnreachable));
        let refused = second.handle.prompt(&id, "again").await.unwrap_err();
        assert_eq!(refused.code(), Code::RunInProgress);
        *place.outside.probe.lock().unwrap() = Probe::Alive;
        second.handle.recover(|_| {}).await.unwrap();
        let status = second.handle.status(&id).await.unwrap();
        assert_eq!((status.name, status.reason), (Name::Running, Reason::RunOpen));
        assert_eq!(count(&kinds(&*second.store, &id).await, "run.interrupted"), 0);
    });
}

/// A second process reads beside the first, may not write to its sessions, and takes them over
/// when it is dead.
#[test]
fn two_processes_and_one_session() {
    on_both(|place: Place| async move {
        let first = place.start("boot_1").await;
        let id = session(&first.handle).await;
        first.handle.prompt(&id, "work").await.unwrap();
        let second = place.start("boot_2").await;
        assert_eq!(second.recovered[0].outcome, piton_runtime::Outcome::Owned);
        assert_eq!(second.handle.status(&id).await.unwrap().name, Name::Running);
        let run_id = first.handle.state(&id).await.unwrap().facts.run.unwrap().run_id;
        let cancel = Command::Cancel { run_id, reason: Reason::UserRequest };
        let refused = second.handle.execute(&id, cancel.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::SessionOwned);
        place.kill(first);
        // A command that comes before anybody recovered finds the run interrupted first.
        assert_eq!(second.handle.execute(&id, cancel).await.unwrap().verdict, Verdict::Done);
        let kinds = kinds(&*second.store, &id).await;
        assert_eq!(count(&kinds, "run.interrupted"), 1);
        assert_eq!(kinds.last().unwrap(), "run.cancelled");
    });
}

/// What was accepted before a shutdown is durable; afterwards nothing is accepted.
#[test]
fn a_shutdown_keeps_what_was_accepted() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let id = session(&process.handle).await;
        process.handle.prompt(&id, "work").await.unwrap();
        let handle = process.handle.clone();
        let message_id = handle.ids().message().unwrap();
        let text = "half a sentence".to_owned();
        let say = Command::Say { message_id, offset: None, text };
        let saying = {
            let (handle, id) = (handle.clone(), id.clone());
            tokio::spawn(async move { handle.execute_buffered(&id, say).await })
        };
        tokio::task::yield_now().await;
        process.service.shut_down().await;
        let said = saying.await.unwrap();
        let kinds = kinds(&*process.store, &id).await;
        assert_eq!(count(&kinds, "message.delta"), usize::from(said.is_ok()));
        assert_eq!(handle.prompt(&id, "more").await.unwrap_err().code(), Code::StoreClosed);
    });
}

/// A tool call whose outcome the crash took is unknown, and paired, in the transcript.
#[test]
fn a_cut_off_tool_call_is_unknown() {
    on_both(|place: Place| async move {
        let first = place.start("boot_1").await;
        let id = session(&first.handle).await;
        let run_id = first.handle.prompt(&id, "work").await.unwrap();
        let call_id = first.handle.ids().call().unwrap();
        let (name, arguments) = ("shell".to_owned(), json!({ "command": "make" }));
        let intend = Command::Intend { run_id, call_id, name, arguments };
        first.handle.execute(&id, intend).await.unwrap();
        let outcome = |items: Vec<Item>| match items.last() {
            Some(Item::Tool { outcome, .. }) => outcome.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(outcome(first.handle.transcript(&id).await.unwrap()), Outcome::Pending);
        place.kill(first);
        let second = place.start("boot_2").await;
        assert_eq!(outcome(second.handle.transcript(&id).await.unwrap()), Outcome::Unknown);
    });
}

/// Law 1: with every cache deleted, each answer is the same as before.
#[test]
fn with_all_caches_deleted_nothing_is_forgotten() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let mut tokens = Vec::new();
        for n in 0..8 {
            let id = session(&process.handle).await;
            let run = process.handle.prompt(&id, &format!("work {n}")).await.unwrap();
            let wait = question(&run, Duration::from_mins(n + 1));
            let asked = process.handle.ask(&id, wait).await.unwrap();
            tokens.push((id, asked.token.unwrap()));
        }
        let before = answers(&process.handle).await;
        process.store.rebuild_caches().await.unwrap();
        assert_eq!(answers(&process.handle).await, before);
        let (id, token) = tokens.swap_remove(3);
        let answered = process.handle.answer_with_token(None, token, json!("yes")).await.unwrap();
        assert_eq!(answered.session, id);
    });
}

/// Everything that is answered from caches, as text.
async fn answers(handle: &Handle) -> Vec<String> {
    let mut answers = Vec::new();
    let mut after = None;
    loop {
        let (listed, next) = handle.list(None, None, after, 3).await.unwrap();
        for one in listed {
            let state = handle.state(&one.row.session).await.unwrap();
            answers.push(format!("{:?} {:?} {state:?}", one.row, one.status));
        }
        match next {
            Some(next) => after = Some(next),
            None => return answers,
        }
    }
}

/// The facade holds nothing of its own: whatever it answers is what the log alone gives, after every
/// step, and what a process that has seen none of it answers.
#[test]
fn what_is_answered_is_derived_from_the_log_alone() {
    on_both(|place: Place| async move {
        let first = place.start("boot_1").await;
        let handle = &first.handle;
        let id = session(handle).await;
        assert_from_log(&place, &first, &id).await;
        let run = handle.prompt(&id, "work").await.unwrap();
        assert_from_log(&place, &first, &id).await;
        let asked = handle.ask(&id, question(&run, Duration::from_mins(5))).await.unwrap();
        assert_from_log(&place, &first, &id).await;
        let token = asked.token.unwrap();
        handle.answer_with_token(None, token, json!("yes")).await.unwrap();
        assert_from_log(&place, &first, &id).await;
        let complete = Command::Complete { run_id: run };
        handle.execute(&id, complete).await.unwrap();
        assert_from_log(&place, &first, &id).await;

        let before = answers(handle).await;
        first.service.shut_down().await;
        let second = place.start("boot_2").await;
        assert_eq!(answers(&second.handle).await, before);
    });
}

/// State and status as answered are those of the records, folded here.
async fn assert_from_log(place: &Place, process: &Process, session: &SessionId) {
    let records = process.store.read(session, 0, 1_000, Detail::Full).await.unwrap();
    let folded = fold::replay(&records).unwrap();
    assert_eq!(process.handle.state(session).await.unwrap(), folded);
    let status = status::derive(&folded.facts, &BTreeSet::new(), place.outside.now());
    assert_eq!(process.handle.status(session).await.unwrap(), status);
}
