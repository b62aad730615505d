//! One token, many answers, on the real store: the first counts.
#![expect(clippy::unwrap_used, reason = "these are tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use piton_core::event::WaitKind;
use piton_core::id::SessionId;
use piton_core::token::ResumeToken;
use piton_core::{Code, Event, Timestamp};
use piton_runtime::{Answered, Clock, Handle, Ids, NewSession, Options, Question, Service};
use piton_store::{BootGuard, BootLocks, BoxFuture, Detail, OsEntropy, SqliteStore, Store, sqlite};
use serde_json::{Value, json};

const ANSWERS: usize = 1_000;
const TIMEOUT: Duration = Duration::from_mins(10);

/// A clock that is set by hand. Its sleepers sleep for ever: nothing here waits for a sweep.
#[derive(Clone, Debug)]
struct Hand(Arc<AtomicI64>);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn sleep(&self, _span: Duration) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

impl Hand {
    fn pass(&self, span: Duration) {
        self.0.fetch_add(i64::try_from(span.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

/// One life of a process, within this one.
struct Life {
    service: Service,
    store: Arc<dyn Store>,
    _guard: BootGuard,
}

impl Life {
    async fn begin(data: &Path, clock: &Hand) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let boot = Ids::new(Arc::clone(&clock), Arc::new(OsEntropy)).boot().unwrap();
        let locks = BootLocks::new(data);
        let guard = locks.hold(boot.clone()).unwrap();
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(sqlite::Options::new(data)).unwrap());
        let mut options =
            Options::new(boot, Arc::clone(&store), Arc::new(locks), Arc::new(OsEntropy));
        options.clock = clock;
        let service = Service::start(options, |_| {}).await.unwrap();
        Self { service, store, _guard: guard }
    }

    /// A session whose run asks; the question's token.
    async fn ask(&self) -> (SessionId, ResumeToken) {
        let handle = self.service.handle();
        let session = handle.create(NewSession::default()).await.unwrap();
        let run_id = handle.prompt(&session, "go").await.unwrap();
        let question = Question {
            run_id,
            wait_id: None,
            kind: WaitKind::Permission,
            timeout: Some(TIMEOUT),
            question: json!("may I?"),
        };
        (session.clone(), handle.ask(&session, question).await.unwrap().token.unwrap())
    }

    /// How often the session's run was resumed, and its last record.
    async fn resumed(&self, session: &SessionId) -> (usize, u64) {
        let records = self.store.read(session, 0, 10_000, Detail::Headers).await.unwrap();
        let resumed = |event| matches!(event, Ok(Event::RunResumed(_)));
        let last = records.last().unwrap().seq;
        (records.iter().filter(|record| resumed(record.event())).count(), last)
    }

    async fn end(self) {
        self.service.shut_down().await;
    }
}

type Outcome = Result<Answered, Code>;

/// All at once, on several threads.
async fn answer_all(handle: &Handle, token: &ResumeToken, answers: Vec<Value>) -> Vec<Outcome> {
    let tasks: Vec<_> = answers
        .into_iter()
        .map(|answer| {
            let (handle, token) = (handle.clone(), token.clone());
            tokio::spawn(async move {
                handle.answer_with_token(None, token, answer).await.map_err(|e| e.code())
            })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

fn hand() -> Hand {
    Hand(Arc::new(AtomicI64::new(1_770_000_000_000)))
}

/// Wants to show: of 1,000 simultaneous answers with one token exactly one resumes the run, and the
/// other 999 get the same result, also after a restart and after the token expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_answers_resume_once() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), hand());
    let life = Life::begin(folder.path(), &clock).await;
    let (session, token) = life.ask().await;
    let yes = json!({ "yes": true, "by": "ada" });
    let results = answer_all(&life.service.handle(), &token, vec![yes.clone(); ANSWERS]).await;
    let (first, others): (Vec<_>, Vec<_>) =
        results.into_iter().map(Result::unwrap).partition(|answered| !answered.replayed);
    let [first] = first.as_slice() else { panic!("{} first answers", first.len()) };
    let again = Answered { replayed: true, ..first.clone() };
    assert_eq!(others, vec![again.clone(); ANSWERS - 1]);
    let (resumed, last) = life.resumed(&session).await;
    assert_eq!(resumed, 1);
    assert_eq!(first.result_seq, last);
    life.end().await;

    // The same answer with its fields in another order is the same answer.
    let same = json!({ "by": "ada", "yes": true });
    for wait in [Duration::ZERO, TIMEOUT * 2] {
        clock.pass(wait);
        let life = Life::begin(folder.path(), &clock).await;
        let before = life.resumed(&session).await;
        let results = answer_all(&life.service.handle(), &token, vec![same.clone(); 50]).await;
        assert_eq!(results, vec![Ok(again.clone()); 50]);
        let results = answer_all(&life.service.handle(), &token, vec![json!("no"); 50]).await;
        assert_eq!(results, vec![Err(Code::ResumeTokenConsumed); 50]);
        life.service.handle().sweep().await.unwrap();
        assert_eq!(life.resumed(&session).await, before, "a replay wrote something");
        life.end().await;
    }
}

/// Wants to show: of 1,000 simultaneous answers of ten different kinds one kind wins; its senders
/// get the one result, all others learn that the token was used.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_different_answers_resume_once() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), hand());
    let life = Life::begin(folder.path(), &clock).await;
    let (session, token) = life.ask().await;
    let answers: Vec<_> = (0..ANSWERS).map(|n| json!({ "choice": n % 10 })).collect();
    let results = answer_all(&life.service.handle(), &token, answers).await;
    let winner =
        results.iter().position(|results| matches!(results, Ok(a) if !a.replayed)).unwrap();
    let first = results[winner].clone().unwrap();
    for (n, results) in results.into_iter().enumerate() {
        match results {
            Ok(answered) => {
                assert_eq!(n % 10, winner % 10, "two different answers were taken");
                let replayed = n != winner;
                assert_eq!(answered, Answered { replayed, ..first.clone() });
            }
            Err(code) => {
                assert_ne!(n % 10, winner % 10, "the answer that was taken is refused");
                assert_eq!(code, Code::ResumeTokenConsumed);
            }
        }
    }
    assert_eq!(life.resumed(&session).await.0, 1);
    life.end().await;
}

/// Wants to show: a token that was not used in time is refused afterwards, for every client, and
/// the run is not resumed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_expired_token_resumes_nothing() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), hand());
    let life = Life::begin(folder.path(), &clock).await;
    let (session, token) = life.ask().await;
    clock.pass(TIMEOUT + Duration::from_millis(1));
    let results = answer_all(&life.service.handle(), &token, vec![json!("yes"); 100]).await;
    assert_eq!(results, vec![Err(Code::ResumeTokenExpired); 100]);
    assert_eq!(life.service.handle().sweep().await.unwrap(), 1);
    let results = answer_all(&life.service.handle(), &token, vec![json!("yes"); 100]).await;
    let refused = |results: &Outcome| {
        matches!(results, Err(Code::ResumeTokenExpired | Code::ResumeTokenRevoked))
    };
    assert!(results.iter().all(refused), "{results:?}");
    assert_eq!(life.resumed(&session).await.0, 0);
    life.end().await;
}
