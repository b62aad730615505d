//! What goes wrong around nodes: no space, edges for errors, retries over a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use piton_core::id::{SessionId, TokenId};
use piton_core::{Code, Record, Seq, chain, token};
use piton_graph::{
    EdgeSpec, Graph, Node, NodeContext, NodeError, Outcome, Progress, async_trait, command, custom,
    human, template,
};
use piton_store::{
    Appended, Batch, BootLocks, Changes, CopiedRecord, CopyHead, Detail, Finding, Guard, Head,
    Hints, LoadedState, LogCopy, Page, Query, Snapshot, SqliteStore, Stats, Store, Verification,
    WritableRecords, sqlite,
};
use serde_json::{Map, json};

use crate::world::{Ran, World, completed, over};

type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;
type Result<T> = piton_store::Result<T>;

/// A store whose disk can be full.
#[derive(Debug)]
struct Full {
    inner: SqliteStore,
    lacks_space: AtomicBool,
    refused: AtomicU32,
}

impl Store for Full {
    fn append(&self, batch: Batch) -> BoxFuture<Result<Appended>> {
        if self.lacks_space.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Box::pin(async { Err(piton_store::Error::DiskFull(None)) });
        }
        self.inner.append(batch)
    }
    fn head(&self, session: &SessionId) -> BoxFuture<Result<Option<Head>>> {
        self.inner.head(session)
    }
    fn read(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
        detail: Detail,
    ) -> BoxFuture<Result<Vec<Record>>> {
        self.inner.read(session, after, limit, detail)
    }
    fn chain_at(&self, session: &SessionId, seq: Seq) -> BoxFuture<Result<Option<chain::Hash>>> {
        self.inner.chain_at(session, seq)
    }
    fn subscribe(&self, session: &SessionId) -> Hints {
        self.inner.subscribe(session)
    }
    fn changes(&self) -> Changes {
        self.inner.changes()
    }
    fn snapshot(&self, session: &SessionId) -> BoxFuture<Result<Option<Snapshot>>> {
        self.inner.snapshot(session)
    }
    fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> BoxFuture<Result<()>> {
        self.inner.save_snapshot(session, snapshot)
    }
    fn load(&self, session: &SessionId) -> BoxFuture<Result<Option<LoadedState>>> {
        self.inner.load(session)
    }
    fn logs(&self, after: Option<&SessionId>, limit: usize) -> BoxFuture<Result<Vec<SessionId>>> {
        self.inner.logs(after, limit)
    }
    fn list(&self, query: Query) -> BoxFuture<Result<Page>> {
        self.inner.list(query)
    }
    fn token(&self, token: &TokenId) -> BoxFuture<Result<Option<(SessionId, token::Entry)>>> {
        self.inner.token(token)
    }
    fn verify(&self, session: &SessionId) -> BoxFuture<Result<Verification>> {
        self.inner.verify(session)
    }
    fn verify_store(&self) -> BoxFuture<Result<Vec<Finding>>> {
        self.inner.verify_store()
    }
    fn rebuild_caches(&self) -> BoxFuture<Result<()>> {
        self.inner.rebuild_caches()
    }
    fn delete(
        &self,
        session: &SessionId,
        expected: Seq,
        guard: Guard,
        notes: WritableRecords,
    ) -> BoxFuture<Result<()>> {
        self.inner.delete(session, expected, guard, notes)
    }
    fn copy_head(&self, session: &SessionId) -> BoxFuture<Result<Option<CopyHead>>> {
        self.inner.copy_head(session)
    }
    fn copy_records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<Result<Vec<CopiedRecord>>> {
        self.inner.copy_records(session, after, limit)
    }
    fn copy_in(&self, copy: LogCopy) -> BoxFuture<Result<()>> {
        self.inner.copy_in(copy)
    }
    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

struct FillsTheDisk(Arc<Full>, Ran);

#[async_trait]
impl Node for FillsTheDisk {
    async fn run(&self, ctx: &mut NodeContext) -> std::result::Result<(), NodeError> {
        self.1.note(format!("work {}", ctx.attempt()));
        if ctx.attempt() == 1 {
            self.0.lacks_space.store(true, Ordering::SeqCst);
        }
        Ok(())
    }
}

async fn until(what: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(std::time::Instant::now() < deadline, "it does not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Wants to show: a completion that finds no space waits for it; to pause or cancel is heard meanwhile,
/// and a resume continues with what the log has.
#[tokio::test]
async fn a_full_disk_is_waited_for_and_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let inner = SqliteStore::open(sqlite::Options::new(folder.path())).unwrap();
    let features = piton_graph::sqlite_features(&inner);
    let full =
        Arc::new(Full { inner, lacks_space: AtomicBool::new(false), refused: AtomicU32::new(0) });
    let locks = Arc::new(BootLocks::new(folder.path()));
    let boot: piton_core::id::BootId = "boot_full".parse().unwrap();
    let store = over(full.clone(), boot, locks, features);
    let ran = Ran::default();
    let graph = Graph::builder("full")
        .node("work", custom(FillsTheDisk(full.clone(), ran.clone())))
        .node("end", template("done").writes(["end"]))
        .edge("work", "end")
        .build()
        .unwrap();
    for stop in ["cancel", "pause"] {
        let run = graph.runner(&store).start(Map::new()).await.unwrap();
        let (session, handle) = (run.session().clone(), run.handle());
        let running = tokio::spawn(run.finish());
        let before = full.refused.load(Ordering::SeqCst);
        until(|| full.refused.load(Ordering::SeqCst) > before).await;
        if stop == "cancel" {
            handle.cancel();
        } else {
            handle.pause();
        }
        let stopped = tokio::time::timeout(Duration::from_secs(10), running).await;
        let error = stopped.expect("it is heard").unwrap().unwrap_err();
        assert_eq!(error.code(), Code::DiskFull);
        full.lacks_space.store(false, Ordering::SeqCst);
        let resumed = graph.runner(&store).resume(&session, None, Map::new()).await.unwrap();
        completed(resumed.finish().await.unwrap());
    }
    assert_eq!(
        ran.all(),
        ["work 1", "work 2", "work 1", "work 2"],
        "what was not durable ran again"
    );
    // No one stops it: it continues when there is space.
    let run = graph.runner(&store).start(Map::new()).await.unwrap();
    let running = tokio::spawn(run.finish());
    let before = full.refused.load(Ordering::SeqCst);
    until(|| full.refused.load(Ordering::SeqCst) > before).await;
    full.lacks_space.store(false, Ordering::SeqCst);
    completed(running.await.unwrap().unwrap());
}

/// Wants to show: a question whose time passes fails its node; an edge for errors leads on, and the run
/// completes.
#[tokio::test]
async fn an_error_edge_leads_on_from_a_failed_node() {
    let world = World::new();
    let graph = Graph::from_text(
        "piton: graph/v1\nname: escalation\nnodes:\n  work: {command: [sh, -c, 'sleep 0.4']}\n  ask:\n    human: {question: Well?, deadline: 50ms}\n    writes: decision\n  send: {template: sent, writes: result}\n  escalate: {template: escalated, writes: result}\nmemory: {result: {reducer: replace}}\nedges:\n  - ask -> send\n  - {from: ask, to: escalate, on: error}\n",
    )
    .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    let memory = completed(outcome);
    assert_eq!(memory["result"], json!("escalated"));
    let last = piton_graph::checkpoints::view(world.store.store(), &session).await.unwrap();
    assert_eq!(
        (last.failed_at_node, last.execution_path),
        (None, vec!["escalate".to_owned(), "work".to_owned()])
    );
    let failing = Graph::builder("one")
        .node("bad", command(["false"]))
        .node("after", template("after").writes(["after"]))
        .node("handle", template("handled").writes(["handled"]))
        .edge("bad", "after")
        .edge_spec(EdgeSpec { on_error: true, ..EdgeSpec::new("bad", "handle") })
        .build()
        .unwrap();
    let (session, outcome) = world.start(&failing, &[]).await;
    let memory = completed(outcome);
    assert_eq!((memory.get("handled"), memory.get("after")), (Some(&json!("handled")), None));
    let world = world.reopened();
    completed(world.resume(&failing, &session, &[]).await);
    let failed = world.events(&session).await;
    let failed = failed.iter().filter(|e| matches!(e, piton_core::Event::NodeFailed(_))).count();
    assert_eq!(failed, 1, "a failure that was handled is not tried again");
}

struct Fails(Ran);

#[async_trait]
impl Node for Fails {
    async fn run(&self, ctx: &mut NodeContext) -> std::result::Result<(), NodeError> {
        self.0.note(format!("{}", ctx.attempt()));
        Err(NodeError::new("again"))
    }
}

/// Wants to show: the attempts that are left, and the moment of the next one, survive a crash.
#[tokio::test]
async fn retries_are_counted_over_a_crash() {
    let world = World::new();
    let ran = Ran::default();
    let delay = Duration::from_millis(600);
    let graph = Graph::builder("retried")
        .node("bad", custom(Fails(ran.clone())).retry(2, delay, delay))
        .build()
        .unwrap();
    let (to, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let run = graph.runner(&world.store).progress(to).start(Map::new()).await.unwrap();
    let session = run.session().clone();
    let running = tokio::spawn(run.finish());
    loop {
        if let Progress::NodeFailed { retry_at, .. } = progress.recv().await.unwrap() {
            assert!(retry_at.is_some());
            break;
        }
    }
    // The process dies while it waits for the second attempt.
    running.abort();
    let _ = running.await;
    let world = world.reopened();
    let began = std::time::Instant::now();
    let outcome = world.resume(&graph, &session, &[]).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert!(began.elapsed() >= Duration::from_millis(700), "two delays, one of them begun before");
    assert_eq!(ran.all(), ["1", "2", "3"], "two retries in all");
    // A resume by hand gives it all of its retries again.
    let outcome = world.resume(&graph, &session, &[]).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert_eq!(ran.all().len(), 6);
}

/// Wants to show: another lineage asks its own questions, and answers that its past has count.
#[tokio::test]
async fn a_lineage_asks_again_what_was_answered_after_its_checkpoint() {
    let world = World::new();
    let graph = Graph::builder("asked")
        .node("ask", human("Well?").options(["yes", "no"]).writes(["answer"]))
        .node("end", template("{{ answer }}").writes(["end"]))
        .edge("ask", "end")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    piton_graph::answer(&world.store, &session, &waits[0].wait_id, json!("yes")).await.unwrap();
    completed(world.resume(&graph, &session, &[]).await);
    let filter = piton_graph::CheckpointFilter {
        checkpoint_type: Some(piton_graph::CheckpointType::UserCheckpoint),
        ..Default::default()
    };
    let store = world.store.store();
    let listed = piton_graph::checkpoints::list(store, &session, &filter, 10).await.unwrap();
    let older = &listed.checkpoints[0].checkpoint_id;
    let run = graph.runner(&world.store).resume(&session, Some(older), Map::new()).await.unwrap();
    let outcome = run.finish().await.unwrap();
    let Outcome::Waiting { waits: again } = outcome else { panic!("{outcome:?}") };
    assert_ne!(again[0].wait_id, waits[0].wait_id);
    piton_graph::answer(&world.store, &session, &again[0].wait_id, json!("no")).await.unwrap();
    let memory = completed(world.resume(&graph, &session, &[]).await);
    assert_eq!(memory["end"], json!("no"));
}

/// Wants to show: a command does not get the store's key, nor anything else of Piton's.
#[tokio::test]
async fn commands_do_not_inherit_pitons_variables() {
    let world = World::new();
    let graph = Graph::builder("environment")
        .node(
            "print",
            command(["sh", "-c", "env | grep ^PITON_ | cut -d= -f1 | sort"]).writes(["names"]),
        )
        .build()
        .unwrap();
    let (_, outcome) = world.start(&graph, &[]).await;
    assert_eq!(completed(outcome)["names"], json!("PITON_ATTEMPT\nPITON_IDEMPOTENCY_KEY"));
}
