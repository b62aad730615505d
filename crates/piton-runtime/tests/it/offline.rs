//! Offline writers: processes that run no sessions and change a session that no process runs.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use piton_core::Code;
use piton_core::Reason;
use piton_core::decide::{Command, Probe, Refusal, Verdict};
use piton_core::id::{BootId, RunId, SessionId, WaitId};
use piton_core::status::Name;
use piton_core::token::{NewToken, ResumeToken};
use piton_runtime::{Ack, Error, Ids, OfflineWriter, Options, Service, View};
use piton_store::{Detail, OsEntropy, Store};
use serde_json::json;

use crate::common::{Place, on_both};
use crate::service::{executor, kinds, question, session};

/// An offline writer with a store of its own, as another process would have it.
struct Offline {
    writer: OfflineWriter,
    ids: Ids,
}

impl Offline {
    fn view(&self) -> &View {
        self.writer.view()
    }

    /// The named run, or the latest.
    async fn run(&self, session: &SessionId, run: Option<RunId>) -> Result<RunId, Error> {
        let latest = self.view().state(session).await?.facts.run;
        run.or_else(|| latest.map(|run| run.run_id)).ok_or_else(|| Refusal::NeverRun.into())
    }

    async fn cancel(&self, session: &SessionId, run: Option<RunId>) -> Result<Ack, Error> {
        let run_id = self.run(session, run).await?;
        let command = Command::Cancel { run_id, reason: Reason::UserRequest };
        self.writer.execute(session, command).await
    }

    async fn dismiss(&self, session: &SessionId, run: Option<RunId>) -> Result<Ack, Error> {
        let run_id = self.run(session, run).await?;
        self.writer.execute(session, Command::Dismiss { run_id }).await
    }

    async fn rotate_token(&self, id: &SessionId, wait: &WaitId) -> Result<ResumeToken, Error> {
        let token = self.ids.token()?;
        let (wait_id, fresh) = (wait.clone(), NewToken::from(&token));
        self.writer.execute(id, Command::RotateToken { wait_id, fresh }).await?;
        Ok(token)
    }

    async fn interruption_token(
        &self,
        session: &SessionId,
        valid_for: Option<Duration>,
    ) -> Result<ResumeToken, Error> {
        let token = self.ids.token()?;
        let expires_at = valid_for.map(|span| self.view().now().after(span));
        let command = Command::MintInterruption { fresh: NewToken::from(&token), expires_at };
        self.writer.execute(session, command).await?;
        Ok(token)
    }
}

fn offline_writer(place: &Place, boot: &str) -> Offline {
    let boot: BootId = boot.parse().unwrap();
    place.live(&boot);
    let options = Options {
        clock: place.outside.clone(),
        ..Options::new(boot, place.store(), place.outside.clone(), Arc::new(OsEntropy))
    };
    let ids = Ids::new(place.outside.clone(), Arc::new(OsEntropy));
    Offline { writer: Service::offline_writer(options), ids }
}

async fn last_kinds(store: &dyn Store, session: &SessionId, after: u64) -> Vec<String> {
    kinds(store, session).await.split_off(usize::try_from(after).unwrap())
}

async fn last_seq(writer: &Offline, session: &SessionId) -> u64 {
    writer.view().state(session).await.unwrap().last_seq
}

/// A session with an open run, whose process was killed and which no process has opened since.
async fn abandoned(place: &Place) -> SessionId {
    let process = place.start("boot_1").await;
    let id = session(&process.handle).await;
    // So that no record about the delivery is written, early or late.
    *place.outside.listens.lock().unwrap() = false;
    process.handle.prompt(&id, "work").await.unwrap();
    place.kill(process);
    *place.outside.listens.lock().unwrap() = true;
    id
}

/// A living process owns the session: the offline writer learns which one, and writes nothing.
#[test]
fn a_session_that_a_user_runs_is_left_alone() {
    on_both(|place: Place| async move {
        let owner = place.start("boot_1").await;
        let id = session(&owner.handle).await;
        let run = owner.handle.prompt(&id, "work").await.unwrap();
        let wait = owner.handle.ask(&id, question(&run, Duration::from_mins(1))).await.unwrap();
        let writer = offline_writer(&place, "boot_offline");
        let before = kinds(&*owner.store, &id).await;
        let refusals = [
            writer.cancel(&id, None).await.unwrap_err(),
            writer.dismiss(&id, None).await.unwrap_err(),
            writer.rotate_token(&id, &wait.wait_id).await.unwrap_err(),
            writer.interruption_token(&id, None).await.unwrap_err(),
        ];
        for refusal in refusals {
            let text = format!("Session {id} is owned by boot_1, which is alive");
            assert_eq!((refusal.code(), refusal.to_string()), (Code::SessionOwned, text));
        }
        assert_eq!(kinds(&*owner.store, &id).await, before);
        // The owner was not disturbed.
        owner.handle.answer_wait(&id, wait.wait_id, json!("yes")).await.unwrap();
    });
}

/// A run of a dead boot is given up; the lease is free at once, also while the offline writer lives on.
#[test]
fn a_run_of_a_dead_boot_is_cancelled_and_the_lease_given_back() {
    on_both(|place: Place| async move {
        let id = abandoned(&place).await;
        let writer = offline_writer(&place, "boot_offline");
        let before = last_seq(&writer, &id).await;
        let ack = writer.cancel(&id, None).await.unwrap();
        assert_eq!(ack.verdict, Verdict::Done);
        let written = last_kinds(&**writer.view().store(), &id, before).await;
        assert_eq!(
            written,
            [
                "session.leased",
                "run.interrupted",
                "status.derived",
                "run.cancelled",
                "session.released"
            ]
        );
        assert_eq!(ack.last_seq, before + 5);
        let state = writer.view().state(&id).await.unwrap();
        assert_eq!((state.lease.owner.clone(), state.lease.epoch), (None, 2));
        let status = writer.view().status(&state.facts);
        assert_eq!((status.name, status.reason), (Name::Idle, Reason::RunCancelled));
        // Asked again, it is so already, and nothing is written.
        assert_eq!(writer.cancel(&id, None).await.unwrap().verdict, Verdict::Already);
        assert_eq!(last_seq(&writer, &id).await, ack.last_seq);

        let next = place.start("boot_2").await;
        assert_eq!(next.recovered, []);
        next.handle.prompt(&id, "go on").await.unwrap();
        let lease = next.handle.state(&id).await.unwrap().lease;
        assert_eq!((lease.owner, lease.epoch), (Some(next.boot.clone()), 3));
        assert_eq!(writer.cancel(&id, None).await.unwrap_err().code(), Code::SessionOwned);
    });
}

/// A recorded interruption is dismissed. A service that read the session before sees the dismissal,
/// and can use the session at once.
#[test]
fn an_interrupted_run_is_dismissed_beside_a_service() {
    on_both(|place: Place| async move {
        let id = abandoned(&place).await;
        // Recovery settles it, and its process dies: recorded, and no living process owns it.
        place.kill(place.start("boot_2").await);
        let service = place.start("boot_3").await;
        let run_id = service.handle.state(&id).await.unwrap().facts.run.unwrap().run_id;
        let pause = Command::Pause { run_id: run_id.clone() };
        let refused = service.handle.execute(&id, pause).await.unwrap_err();
        assert_eq!(refused.code(), Code::RunNotOpen);

        let writer = offline_writer(&place, "boot_offline");
        let before = last_seq(&writer, &id).await;
        writer.dismiss(&id, Some(run_id)).await.unwrap();
        let written = last_kinds(&*service.store, &id, before).await;
        assert_eq!(written, ["session.leased", "run.dismissed", "session.released"]);
        assert_eq!(service.handle.status(&id).await.unwrap().reason, Reason::RunDismissed);
        service.handle.recover(|_| {}).await.unwrap();
        service.handle.prompt(&id, "go on").await.unwrap();
        assert_eq!(service.handle.status(&id).await.unwrap().name, Name::Running);
    });
}

/// Refused, nothing is written, not even the interruption that would have come first.
#[test]
fn what_is_refused_leaves_no_trace() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let id = session(&process.handle).await;
        let empty = session(&process.handle).await;
        let run = process.handle.prompt(&id, "work").await.unwrap();
        let asked = process.handle.ask(&id, question(&run, Duration::from_mins(1))).await.unwrap();
        place.kill(process);
        let writer = offline_writer(&place, "boot_offline");
        let before = last_seq(&writer, &id).await;
        // The wait died with its run.
        let refused = writer.rotate_token(&id, &asked.wait_id).await.unwrap_err();
        assert_eq!(refused.code(), Code::WaitNotFound);
        let other = "run_other".parse().unwrap();
        assert_eq!(writer.cancel(&id, Some(other)).await.unwrap_err().code(), Code::RunNotFound);
        assert_eq!(writer.cancel(&empty, None).await.unwrap_err().code(), Code::RunNotInterrupted);
        let nobody = "sess_nobody".parse().unwrap();
        assert_eq!(writer.cancel(&nobody, None).await.unwrap_err().code(), Code::SessionNotFound);
        assert_eq!(last_seq(&writer, &id).await, before);
    });
}

/// A token that an offline writer made for an interruption resumes the run in the service that
/// takes it, and that service becomes the run's boot.
#[test]
fn a_offline_writers_token_resumes_at_a_service() {
    on_both(|place: Place| async move {
        let id = abandoned(&place).await;
        let writer = offline_writer(&place, "boot_offline");
        let first = writer.interruption_token(&id, Some(Duration::from_mins(1))).await.unwrap();
        let second = writer.interruption_token(&id, Some(Duration::from_mins(1))).await.unwrap();
        let service = place.start("boot_2").await;
        assert_eq!(service.recovered, []);
        let answer = |token| service.handle.answer_with_token(Some(&id), token, json!("go"));
        assert_eq!(answer(first).await.unwrap_err().code(), Code::ResumeTokenRevoked);
        answer(second).await.unwrap();
        let run = service.handle.state(&id).await.unwrap().facts.run.unwrap();
        assert_eq!(run.boot_id, service.boot);
    });
}

/// The agent may outlive its server: an offline writer cannot find out, so it interrupts nothing. A
/// wait's token is rotated and works after the run is reattached; the agent of a cancelled run
/// receives a stop.
#[test]
fn a_run_whose_agent_may_live_is_not_interrupted() {
    on_both(|place: Place| async move {
        let process = place.start("boot_1").await;
        let id = session(&process.handle).await;
        let run = process.handle.prompt(&id, "work").await.unwrap();
        executor(&process.handle, &id).await;
        let asked = process.handle.ask(&id, question(&run, Duration::from_hours(1))).await.unwrap();
        place.kill(process);
        *place.outside.probe.lock().unwrap() = Probe::Alive;

        let writer = offline_writer(&place, "boot_offline");
        let before = last_seq(&writer, &id).await;
        let refused = writer.dismiss(&id, None).await.unwrap_err();
        assert_eq!(refused.code(), Code::RunNotInterrupted);
        let token = writer.rotate_token(&id, &asked.wait_id).await.unwrap();
        let written = last_kinds(&**writer.view().store(), &id, before).await;
        assert_eq!(
            written,
            ["session.leased", "token.minted", "token.revoked", "session.released"]
        );

        let service = place.start("boot_2").await;
        let answer = |token| service.handle.answer_with_token(None, token, json!("yes"));
        assert_eq!(
            answer(asked.token.unwrap()).await.unwrap_err().code(),
            Code::ResumeTokenRevoked
        );
        answer(token).await.unwrap();
        place.kill(service);

        writer.cancel(&id, None).await.unwrap();
        place.outside.performed.lock().unwrap().clear();
        let last = place.start("boot_3").await;
        last.service.shut_down().await;
        let performed = place.outside.performed.lock().unwrap();
        assert!(performed.iter().any(|(_, effect)| effect.starts_with("Stop")), "{performed:?}");
    });
}

/// Whatever an offline writer does, its boot stands in lease records only: nothing runs in it.
#[test]
fn a_offline_writer_is_never_a_runs_boot() {
    on_both(|place: Place| async move {
        let id = abandoned(&place).await;
        let writer = offline_writer(&place, "boot_offline");
        writer.interruption_token(&id, None).await.unwrap();
        writer.dismiss(&id, None).await.unwrap();
        writer.cancel(&id, None).await.unwrap_err();
        let records = writer.view().store().read(&id, 0, 1_000, Detail::Full).await.unwrap();
        let named = records.iter().filter(|record| record.header.contains("boot_offline"));
        let named: Vec<_> = named.map(|record| &*record.kind).collect();
        assert_eq!(
            named,
            ["session.leased", "session.released", "session.leased", "session.released"]
        );
    });
}

/// Killed at any moment, an offline writer leaves the session unchanged or fully changed, and
/// without an owner: the next writer takes it at once. Runs on the modelled disk, which loses what
/// was not flushed.
#[test]
fn a_killed_offline_writer_leaves_the_session_to_the_next() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for polls in 0..16 {
        runtime.block_on(async {
            let place = Place::new(crate::common::Kind::Memory);
            let id = abandoned(&place).await;
            let killed = offline_writer(&place, "boot_offline");
            {
                let mut change = Box::pin(killed.cancel(&id, None));
                let mut cx = Context::from_waker(Waker::noop());
                for _ in 0..polls {
                    if let Poll::Ready(done) = change.as_mut().poll(&mut cx) {
                        done.unwrap();
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            place.killed(&"boot_offline".parse().unwrap());
            let next = place.start("boot_2").await;
            let kinds = kinds(&*next.store, &id).await;
            let all = ["run.cancelled", "session.released"];
            let done = all.map(|kind| kinds.iter().filter(|one| *one == kind).count());
            assert!(matches!(done, [0, 0] | [1, 1]), "{kinds:?}");
            seen.insert(done);
            next.handle.prompt(&id, "go on").await.unwrap();
            let lease = next.handle.state(&id).await.unwrap().lease;
            assert_eq!(lease.owner, Some(next.boot.clone()));
        });
    }
    assert_eq!(seen.len(), 2, "killed before and after the flush");
}
