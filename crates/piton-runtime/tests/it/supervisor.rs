//! One test for each cause that wakes a session's supervisor: what the log says afterwards. Recovery
//! has no other way in, so a cause that is lost would be lost here.
#![expect(clippy::unwrap_used, reason = "these are tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use piton_core::State;
use piton_core::decide::{Command as Order, Probe};
use piton_core::event::Outcome as Closed;
use piton_core::id::{BootId, ExecutionId, SessionId};
use piton_core::mask::Masker;
use piton_core::resume::{Abilities, AgentRestart, Policy};
use piton_core::spool::{Pos, Spool};
use piton_exec::executor::{
    At, Drained, EntryStream, Executor, Fault, LaunchOptions, LaunchSpec, ListedExecution, Located,
    Result,
};
use piton_exec::protocol::{Command, Frame, Reply, Start};
use piton_runtime::{
    Executions, Handle, LaunchConfig, LaunchConfigs, NewSession, Options, Outcome, Recovered,
    Service, Settings, StartError,
};
use piton_store::memory::{Disk, MemoryStore, Reliable};
use piton_store::{Liveness, OsEntropy};
use tokio::sync::Notify;

const UNREACHABLE_AFTER: Duration = Duration::from_mins(1);

/// Where executions live: outside of every process.
#[derive(Debug, Default)]
struct Outside {
    alive: Mutex<BTreeSet<BootId>>,
    executions: Mutex<BTreeMap<ExecutionId, (SessionId, bool)>>,
    /// Nothing answers.
    silent: Mutex<bool>,
    /// A launch is not answered, whether or not it launched something.
    mute_launch: Mutex<bool>,
    purged: Mutex<Vec<ExecutionId>>,
    changed: Notify,
}

impl Outside {
    fn is_silent(&self) -> bool {
        *self.silent.lock().unwrap()
    }

    fn set_silent(&self, is_silent: bool) {
        *self.silent.lock().unwrap() = is_silent;
        self.changed.notify_waiters();
    }

    fn lives(&self, execution: &ExecutionId) -> bool {
        self.executions.lock().unwrap().get(execution).is_some_and(|(_, lives)| *lives)
    }

    fn end(&self, execution: &ExecutionId) {
        if let Some((_, lives)) = self.executions.lock().unwrap().get_mut(execution) {
            *lives = false;
        }
        self.changed.notify_waiters();
    }

    fn end_all(&self) {
        self.executions.lock().unwrap().values_mut().for_each(|(_, lives)| *lives = false);
        self.changed.notify_waiters();
    }

    fn living(&self) -> usize {
        self.executions.lock().unwrap().values().filter(|(_, lives)| *lives).count()
    }
}

impl Liveness for Outside {
    fn is_alive(&self, boot: &BootId) -> bool {
        self.alive.lock().unwrap().contains(boot)
    }
}

#[derive(Clone, Debug)]
struct Fake(Arc<Outside>);

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Executor for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn launch(&self, spec: LaunchSpec) -> BoxFuture<'_, Result<(), Fault>> {
        self.0.executions.lock().unwrap().insert(spec.execution, (spec.session, true));
        if *self.0.mute_launch.lock().unwrap() {
            return ready(Err(Fault::unreachable("the launch was not answered")));
        }
        ready(Ok(()))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ListedExecution>>> {
        let executions = self.0.executions.lock().unwrap();
        let found = |(execution, (session, _)): (&ExecutionId, &(SessionId, bool))| {
            ListedExecution { session: session.clone(), execution: execution.clone() }
        };
        ready(Ok(executions.iter().map(found).collect()))
    }

    fn find<'a>(&'a self, _execution: &'a ExecutionId) -> BoxFuture<'a, Result<Option<Located>>> {
        ready(Ok(None))
    }

    fn probe<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Probe> {
        ready(match (self.0.is_silent(), self.0.lives(execution)) {
            (true, _) => Probe::Unreachable,
            (false, true) => Probe::Alive,
            (false, false) => Probe::Gone,
        })
    }

    fn stop<'a>(
        &'a self,
        execution: &'a ExecutionId,
        _epoch: u64,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        if *self.0.mute_launch.lock().unwrap() {
            return ready(Err(Fault::unreachable("it does not answer")));
        }
        self.0.end(execution);
        ready(Ok(()))
    }

    fn spool<'a>(&'a self, _execution: &'a ExecutionId) -> BoxFuture<'a, Result<PathBuf>> {
        ready(Ok(PathBuf::new()))
    }

    fn set_aside<'a>(&'a self, _execution: &'a ExecutionId) -> BoxFuture<'a, Result<()>> {
        ready(Ok(()))
    }

    fn forget<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<()>> {
        self.0.executions.lock().unwrap().remove(execution);
        ready(Ok(()))
    }

    fn purge<'a>(&'a self, found: &'a ListedExecution) -> BoxFuture<'a, Result<(), Fault>> {
        self.0.executions.lock().unwrap().remove(&found.execution);
        self.0.purged.lock().unwrap().push(found.execution.clone());
        ready(Ok(()))
    }

    fn tidy(&self) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }

    fn command<'a>(&'a self, at: &'a At, command: Command) -> BoxFuture<'a, Result<Reply, Fault>> {
        if self.0.is_silent() || !self.0.lives(&at.execution) {
            return ready(Err(Fault::unreachable("it does not answer")));
        }
        let result = serde_json::Value::Null;
        ready(Ok(Reply { id: command.id, replayed: false, result }))
    }

    fn follow<'a>(
        &'a self,
        at: &'a At,
        _after: Option<Spool>,
    ) -> BoxFuture<'a, Result<Box<dyn EntryStream>, Fault>> {
        if self.0.is_silent() || !self.0.lives(&at.execution) {
            return ready(Err(Fault::unreachable("it does not answer")));
        }
        let stream = Stream { outside: Arc::clone(&self.0), execution: at.execution.clone() };
        ready(Ok(Box::new(stream) as Box<dyn EntryStream>))
    }

    fn drain<'a>(&'a self, _at: &'a At, _after: Option<Spool>) -> BoxFuture<'a, Drained> {
        ready(Drained::default())
    }
}

/// Says nothing, until its execution ends or falls silent.
struct Stream {
    outside: Arc<Outside>,
    execution: ExecutionId,
}

impl EntryStream for Stream {
    fn spool_id(&self) -> &'static str {
        "spool"
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Frame>> {
        Box::pin(async {
            loop {
                let changed = self.outside.changed.notified();
                if self.outside.is_silent() || !self.outside.lives(&self.execution) {
                    return None;
                }
                changed.await;
            }
        })
    }

    fn ack(&mut self, _pos: Pos) -> BoxFuture<'_, ()> {
        ready(())
    }
}

#[derive(Debug)]
struct Catalog;

impl LaunchConfigs for Catalog {
    fn abilities(&self, _state: &State) -> Abilities {
        Abilities::default()
    }

    fn launch_config(
        &self,
        _session: &SessionId,
        _state: &State,
    ) -> piton_store::BoxFuture<Result<LaunchConfig, StartError>> {
        let (start, abilities) = (Start::default(), Abilities::default());
        Box::pin(
            async move { Ok(LaunchConfig { start, abilities, workspace: PathBuf::from("/") }) },
        )
    }
}

struct World {
    outside: Arc<Outside>,
    disk: Arc<Mutex<Disk>>,
}

struct Process {
    service: Service,
    executions: Executions,
    handle: Handle,
    boot: BootId,
    recovered: Vec<Recovered>,
}

impl World {
    fn new() -> Self {
        Self { outside: Arc::default(), disk: Arc::default() }
    }

    fn options(&self, boot: &BootId) -> (Options, Executions) {
        let store: Arc<dyn piton_store::Store> = Arc::new(MemoryStore::open(
            Arc::clone(&self.disk),
            Arc::clone(&self.outside) as Arc<dyn Liveness>,
            Arc::new(OsEntropy),
            Arc::new(Reliable),
        ));
        let launch_options = LaunchOptions::new(&Masker::default());
        let fake = Arc::new(Fake(Arc::clone(&self.outside)));
        let executions = Executions::new(fake, Arc::clone(&store), launch_options);
        let options = Options {
            driver: Arc::new(executions.clone()),
            executors: Arc::new(executions.clone()),
            // Sweeps are asked for.
            sweep_every: Duration::from_hours(24),
            settings: Settings { unreachable_after: UNREACHABLE_AFTER, ..Settings::default() },
            ..Options::new(
                boot.clone(),
                store,
                Arc::clone(&self.outside) as Arc<dyn Liveness>,
                Arc::new(OsEntropy),
            )
        };
        (options, executions)
    }

    async fn start(&self, boot: &str) -> Process {
        self.start_with(boot, |options| options).await
    }

    async fn start_with(&self, boot: &str, change: impl FnOnce(Options) -> Options) -> Process {
        let boot: BootId = boot.parse().unwrap();
        self.outside.alive.lock().unwrap().insert(boot.clone());
        let (options, executions) = self.options(&boot);
        let options = change(options);
        let mut recovered = Vec::new();
        let service = Service::start(options, |one| recovered.push(one)).await.unwrap();
        let handle = service.handle();
        Process { service, executions, handle, boot, recovered }
    }

    /// The process is gone from one moment to the next.
    fn kill(&self, process: Process) {
        let Process { service, boot, .. } = process;
        drop(service);
        self.outside.alive.lock().unwrap().remove(&boot);
        self.disk.lock().unwrap().process_killed(&boot, &mut |_| 0);
    }

    /// A process with a session whose execution is launched and followed.
    async fn launched(&self) -> (Process, SessionId) {
        let process = self.start("boot_1").await;
        self.launched_by(process).await
    }

    async fn launched_by(&self, process: Process) -> (Process, SessionId) {
        let session = process.handle.create(NewSession::default()).await.unwrap();
        process.executions.launch(&session, PathBuf::from("/")).await.unwrap();
        process.until_followed(&session).await;
        (process, session)
    }
}

impl Process {
    async fn kinds(&self, session: &SessionId) -> Vec<String> {
        let records = self.handle.records(session, 0, 256).await.unwrap();
        records.iter().map(|record| record.kind.to_string()).collect()
    }

    /// The kinds that matter here, behind the first `skip` records.
    async fn count(&self, session: &SessionId, kind: &str) -> usize {
        self.kinds(session).await.iter().filter(|known| *known == kind).count()
    }

    async fn recorded(&self, session: &SessionId, skip: usize) -> Vec<String> {
        let kinds = self.kinds(session).await;
        let kept = kinds.into_iter().skip(skip).filter(|kind| kind != "status.derived");
        kept.collect()
    }

    /// Waits until the log has so many records of a kind.
    async fn until(&self, session: &SessionId, kind: &str, count: usize) {
        let waiting = async {
            while self.kinds(session).await.iter().filter(|one| *one == kind).count() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(10), waiting).await;
        assert!(waited.is_ok(), "no {kind}: {:?}", self.kinds(session).await);
    }

    async fn until_followed(&self, session: &SessionId) {
        use piton_runtime::Driver as _;
        let waiting = async {
            while !self.executions.is_live(session) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(10), waiting).await.unwrap();
    }
}

/// Former trigger: the recovery manager at the start. A gone execution is settled before the service
/// has started.
#[tokio::test(start_paused = true)]
async fn boot_finds_a_gone_execution() {
    let world = World::new();
    let (first, session) = world.launched().await;
    first.handle.prompt(&session, "work").await.unwrap();
    world.kill(first);
    world.outside.end_all();
    let second = world.start("boot_2").await;
    let outcome = Outcome::Settled;
    assert_eq!(second.recovered, [Recovered { session: session.clone(), outcome }]);
    let kinds = second.kinds(&session).await;
    assert!(kinds.contains(&"executor.stopped".to_owned()), "{kinds:?}");
}

/// Former trigger: `Executions::attach`, which listed the same sessions again. A survivor is taken over
/// at once, the log says so for clients that wait for it, and it is followed.
#[tokio::test(start_paused = true)]
async fn boot_finds_a_surviving_execution() {
    let world = World::new();
    let (first, session) = world.launched().await;
    let before = first.kinds(&session).await.len();
    world.kill(first);
    let second = world.start("boot_2").await;
    let found = ["session.leased", "executor.ready"];
    assert_eq!(second.recorded(&session, before).await, found);
    second.until_followed(&session).await;
    assert_eq!(second.recorded(&session, before).await, found, "nothing is written twice");
}

/// Former trigger: the follower whose execution answered before its dead boot was noticed. Another
/// process dies while this one runs.
#[tokio::test(start_paused = true)]
async fn a_sweep_finds_what_another_process_left() {
    let world = World::new();
    let (first, session) = world.launched().await;
    let second = world.start("boot_2").await;
    assert_eq!(second.recovered[0].outcome, Outcome::Owned);
    world.kill(first);
    let mut recovered = Vec::new();
    second.handle.recover(|one| recovered.push(one)).await.unwrap();
    assert_eq!(recovered, [Recovered { session: session.clone(), outcome: Outcome::Settled }]);
    second.until_followed(&session).await;
}

/// Former trigger: the session's writer, which probed before each command of a dead boot's session.
#[tokio::test(start_paused = true)]
async fn a_command_waits_until_it_is_settled() {
    let world = World::new();
    let (first, session) = world.launched().await;
    let second = world.start("boot_2").await;
    let before = first.kinds(&session).await.len();
    world.kill(first);
    second.handle.prompt(&session, "work").await.unwrap();
    let recorded = second.recorded(&session, before).await;
    assert_eq!(recorded[..3], ["session.leased", "executor.ready", "message.user"], "{recorded:?}");
}

/// Former trigger: the removal of a log, which probed in the writer.
#[tokio::test(start_paused = true)]
async fn a_removal_waits_until_it_is_settled() {
    let world = World::new();
    let (first, session) = world.launched().await;
    let second = world.start("boot_2").await;
    world.kill(first);
    world.outside.end_all();
    second.handle.delete(&session, None).await.unwrap();
}

/// What a deleted session leaves running is ended.
#[tokio::test(start_paused = true)]
async fn a_deleted_sessions_execution_is_ended() {
    let world = World::new();
    let (process, session) = world.launched().await;
    process.handle.delete_forced(&session, None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((world.outside.living(), world.outside.purged.lock().unwrap().len()), (0, 1));
}

/// Former trigger: the offline writer, which interrupts a run that no executor can be asked about.
#[tokio::test(start_paused = true)]
async fn an_offline_writer_interrupts_an_orphaned_run() {
    let world = World::new();
    let first = world.start("boot_1").await;
    let session = first.handle.create(NewSession::default()).await.unwrap();
    first.handle.prompt(&session, "work").await.unwrap();
    world.kill(first);
    let boot: BootId = "boot_2".parse().unwrap();
    world.outside.alive.lock().unwrap().insert(boot.clone());
    let (options, _) = world.options(&boot);
    let offline = Service::offline_writer(options);
    let run = offline.view().state(&session).await.unwrap().facts.run.unwrap();
    let dismiss = Order::Dismiss { run_id: run.run_id };
    offline.execute(&session, dismiss).await.unwrap();
    let records = offline.view().records(&session, 0, 256).await.unwrap();
    let kinds: Vec<_> = records.iter().map(|record| &*record.kind).collect();
    assert!(kinds.contains(&"run.interrupted"), "{kinds:?}");
}

/// Former trigger: the follower whose connection was lost, to an execution that is gone.
#[tokio::test(start_paused = true)]
async fn a_lost_connection_to_a_gone_execution() {
    let world = World::new();
    let (process, session) = world.launched().await;
    world.outside.end_all();
    process.until(&session, "executor.stopped", 1).await;
}

/// Former triggers: the follower that could not connect, and the one that connected again. Silence
/// is written down when it has lasted, not before; the execution is followed again by itself.
#[tokio::test(start_paused = true)]
async fn a_silent_execution_is_unreachable_after_a_while_and_comes_back() {
    let world = World::new();
    let (process, session) = world.launched().await;
    let (before, begun) = (process.kinds(&session).await.len(), tokio::time::Instant::now());
    world.outside.set_silent(true);
    process.until(&session, "executor.unreachable", 1).await;
    let after = begun.elapsed();
    let limit = UNREACHABLE_AFTER + Duration::from_secs(2);
    assert!((UNREACHABLE_AFTER..limit).contains(&after), "{after:?}");
    world.outside.set_silent(false);
    process.until_followed(&session).await;
    process.until(&session, "executor.ready", 2).await;
    assert_eq!(
        process.recorded(&session, before).await,
        ["executor.unreachable", "executor.ready"]
    );
}

/// Former trigger: a launch that failed and may have launched something.
#[tokio::test(start_paused = true)]
async fn a_launch_that_was_not_answered() {
    let world = World::new();
    let process = world.start("boot_1").await;
    let session = process.handle.create(NewSession::default()).await.unwrap();
    *world.outside.mute_launch.lock().unwrap() = true;
    process.executions.launch(&session, PathBuf::from("/")).await.unwrap_err();
    process.until_followed(&session).await;
    process.until(&session, "executor.ready", 1).await;
}

/// Former trigger: the end of an execution on request.
#[tokio::test(start_paused = true)]
async fn a_stopped_execution_is_settled_before_the_caller_is_answered() {
    let world = World::new();
    let (process, session) = world.launched().await;
    process.executions.stop(&session).await.unwrap();
    assert_eq!(process.kinds(&session).await.last().map(String::as_str), Some("status.derived"));
    assert!(process.kinds(&session).await.contains(&"executor.stopped".to_owned()));
    assert_eq!(world.outside.living(), 0);
}

/// Former trigger: a request to the execution of a dead boot's session.
#[tokio::test(start_paused = true)]
async fn a_request_to_an_execution_takes_it_over_first() {
    let world = World::new();
    let (first, session) = world.launched().await;
    let second = world.start("boot_2").await;
    let before = first.kinds(&session).await.len();
    world.kill(first);
    second.executions.stop_agent(&session).await.unwrap();
    assert_eq!(second.recorded(&session, before).await, ["session.leased", "executor.ready"]);
}

/// Former trigger: the look for executions that are no session's any more.
#[tokio::test(start_paused = true)]
async fn a_closed_sessions_execution_is_ended() {
    let world = World::new();
    let (process, session) = world.launched().await;
    let close = Order::Close { outcome: Closed::Completed };
    process.handle.execute(&session, close).await.unwrap();
    process.until(&session, "executor.stopped", 1).await;
    assert_eq!(world.outside.living(), 0);
}

/// The same for one that a user gave up: it is ended when it is reached.
#[tokio::test(start_paused = true)]
async fn an_abandoned_execution_is_ended() {
    let world = World::new();
    let (process, session) = world.launched().await;
    let state = process.handle.state(&session).await.unwrap();
    let execution_id = state.facts.executor.unwrap().execution_id;
    process.handle.execute(&session, Order::Abandon { execution_id }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.outside.living(), 0);
}

/// Wants to show: with a deadline for silent executions one is abandoned, not before it, and without a
/// user; without a deadline nothing is decided.
#[tokio::test(start_paused = true)]
async fn a_silent_execution_is_abandoned_after_its_deadline() {
    const ABANDON_AFTER: Duration = Duration::from_mins(5);
    let world = World::new();
    let process = world.start_with("boot_1", |options| {
        let settings = Settings { abandon_after: Some(ABANDON_AFTER), ..options.settings };
        Options { settings, ..options }
    });
    let (process, session) = world.launched_by(process.await).await;
    let begun = tokio::time::Instant::now();
    world.outside.set_silent(true);
    process.until(&session, "executor.abandoned", 1).await;
    let after = begun.elapsed();
    let limit = ABANDON_AFTER + Duration::from_mins(1);
    assert!((ABANDON_AFTER..limit).contains(&after), "{after:?}");
    assert_eq!(process.count(&session, "executor.unreachable").await, 1, "the log said so before");
    // It returns, and is ended.
    world.outside.set_silent(false);
    process.executions.launch(&session, PathBuf::from("/")).await.unwrap();
    process.until_followed(&session).await;
    assert_eq!(process.count(&session, "executor.starting").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_execution_is_waited_for_without_a_deadline() {
    let world = World::new();
    let (process, session) = world.launched().await;
    world.outside.set_silent(true);
    process.until(&session, "executor.unreachable", 1).await;
    tokio::time::sleep(Duration::from_hours(48)).await;
    assert_eq!(process.count(&session, "executor.abandoned").await, 0);
    world.outside.set_silent(false);
    process.until_followed(&session).await;
}

/// Former trigger: the starts at boot, which the server had to ask for. An embedded runtime makes them,
/// too, for sessions that were active lately.
#[tokio::test(start_paused = true)]
async fn an_embedded_runtime_starts_agents_at_boot() {
    let world = World::new();
    let (first, session) = world.launched().await;
    world.kill(first);
    world.outside.end_all();
    let second = world.start("boot_2").await;
    let policy = Policy { agent_restart: AgentRestart::OnBoot, ..Policy::default() };
    second.handle.supervisors().set_agents(Arc::new(Catalog), policy);
    second.until(&session, "agent.resuming", 1).await;
    assert_eq!(world.outside.living(), 1);
}

/// Former trigger: a watch that only the server ran. A prompt that found no agent has one
/// started.
#[tokio::test(start_paused = true)]
async fn an_embedded_runtime_starts_an_agent_for_an_undelivered_prompt() {
    let world = World::new();
    let process = world.start("boot_1").await;
    let session = process.handle.create(NewSession::default()).await.unwrap();
    // Before it is known how agents are started: the prompt waits for that.
    process.handle.prompt(&session, "work").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.outside.living(), 0);
    process.handle.supervisors().set_agents(Arc::new(Catalog), Policy::default());
    process.until(&session, "agent.resuming", 1).await;
    assert_eq!(world.outside.living(), 1);
}

/// However many wake it, a session has one supervisor: one execution is launched.
#[tokio::test(start_paused = true)]
async fn many_wakes_make_one_supervisor() {
    let world = World::new();
    let process = world.start("boot_1").await;
    let session = process.handle.create(NewSession::default()).await.unwrap();
    let eight = (0..8).map(|_| process.executions.launch(&session, PathBuf::from("/")));
    let launched = futures_util::future::join_all(eight).await;
    assert_eq!(launched.iter().filter(|one| one.is_ok()).count(), 1, "{launched:?}");
    assert_eq!(world.outside.living(), 1);
    process.until_followed(&session).await;
    assert_eq!(format!("{:?}", process.handle.supervisors()), "Supervisors(1)");
}

/// A stored session costs nothing: the supervisor ends with what it was needed for.
#[tokio::test(start_paused = true)]
async fn a_session_without_an_execution_has_no_supervisor() {
    let world = World::new();
    let (process, session) = world.launched().await;
    assert_eq!(format!("{:?}", process.handle.supervisors()), "Supervisors(1)");
    process.executions.stop(&session).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(format!("{:?}", process.handle.supervisors()), "Supervisors(0)");
}
