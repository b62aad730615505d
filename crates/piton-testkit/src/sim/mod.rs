//! The simulator: the real core and runtime on a simulated clock, disk, agents and boots. One seed
//! decides everything, so a failure can be replayed; a run is done twice and compared.
//!
//! What can happen: a process dies between any two steps; the power fails and unflushed writes are
//! lost, torn or kept; a flush fails; the disk fills; the clock jumps; two boots want one session;
//! a boot loses its lock and does not know it; wake-ups are lost; snapshots are swapped for wrong
//! ones; an agent outlives its boot, or not, or cannot be reached, and is brought back, knowing or
//! not; an offline writer changes a session that no process runs.

mod agent;
mod agent_checks;
mod agent_client;
mod agentctl;
mod client;
mod ledger;
mod log_checks;
mod machine;
mod on_files;
mod parts;
mod queueing;
mod resuming;
mod roster;
mod rules;
mod stuck;
mod world;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use piton_core::mask::{KeyPatterns, Masker};
use piton_core::planted::Bug;
use piton_exec::executor::LaunchOptions;
use piton_runtime::{Executions, Ids, Options, PermissionRules, Service, Settings, Supervisors};
use tokio::task::JoinSet;

pub use ledger::{Property, Violation};
use world::{Boot, World};

/// Knows part of what is streamed: some of it is masked, and what may be the beginning of it waits,
/// over crashes too.
static MASKER: LazyLock<Arc<Masker>> = LazyLock::new(|| {
    let masker = Masker::new(KeyPatterns::default(), ["word word word"]);
    Arc::new(masker.expect("one value can be looked for"))
});

/// Which store a world has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum On {
    /// The modelled one, which several processes can have open.
    #[default]
    Memory,
    /// Plain files on a modelled disk, for one process at a time.
    Files,
}

/// What a simulation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    pub on: On,
    pub violations: Vec<Violation>,
    /// A hash over everything that happened; equal for equal runs.
    pub digest: String,
    pub stats: Stats,
    /// Every step, if asked for.
    pub trace: Vec<String>,
}

/// How much a simulation went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub lives: u64,
    pub steps: u64,
    pub operations: u64,
    pub acknowledged: u64,
    pub delivered: u64,
    pub jobs: u64,
    pub records: u64,
    pub interruptions: u64,
    pub answers: u64,
    pub replays: u64,
    /// Changes that offline writers made.
    pub visits: u64,
    /// In worlds whose agents are brought back, of the session that had most of them: agents that were
    /// ended because they were idle, runs that were interrupted because no agent could be started, and
    /// executors that were given up.
    pub idle_ends: u64,
    pub failed_starts: u64,
    pub abandoned: u64,
    /// Of the session that had most of them: queued prompts that were delivered, times that the queue
    /// was held with something in it, and permission requests that a rule decided.
    pub queue_deliveries: u64,
    pub queue_holds: u64,
    pub rule_decisions: u64,
}

/// Runs one seed, with a planted bug or without.
pub fn simulate(seed: u64, bug: Option<Bug>, tracing: bool) -> Report {
    simulate_on(On::Memory, seed, bug, tracing)
}

/// The same on a given store.
///
/// # Panics
/// If no single-threaded runtime can be made, or a bug is to be planted in a build without the
/// feature `planted`.
pub fn simulate_on(on: On, seed: u64, bug: Option<Bug>, tracing: bool) -> Report {
    plant(bug);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let report = match runtime {
        Ok(runtime) => runtime.block_on(live(on, seed, tracing)),
        Err(error) => panic!("no runtime to simulate on: {error}"),
    };
    plant(None);
    report
}

#[cfg(feature = "planted")]
fn plant(bug: Option<Bug>) {
    piton_core::planted::plant(bug);
}

/// There is no switch in this build.
#[cfg(not(feature = "planted"))]
fn plant(bug: Option<Bug>) {
    assert!(bug.is_none(), "{bug:?} can be planted only in a build with the feature `planted`");
}

/// Runs one seed twice; a difference is a violation like any other.
pub fn simulate_twice(seed: u64) -> Report {
    simulate_twice_on(On::Memory, seed)
}

/// The same on a given store.
pub fn simulate_twice_on(on: On, seed: u64) -> Report {
    let mut first = simulate_on(on, seed, None, false);
    let second = simulate_on(on, seed, None, false);
    if first.digest != second.digest {
        let detail = "two runs of one seed differ".to_owned();
        first.violations.push(Violation { property: Property::Deterministic, detail });
    }
    first
}

async fn live(on: On, seed: u64, tracing: bool) -> Report {
    let world = World::new(on, seed, tracing);
    let ticking = world.agents.then(|| tokio::spawn(tick(Arc::clone(&world))));
    let lives = world.range(2, 6);
    let mut boots: Vec<Life> = Vec::new();
    for _ in 0..lives {
        let wanted = if world.chance(30) && on == On::Memory { 2 } else { 1 };
        while boots.len() < wanted && !world.has_violations() {
            match Life::begin(&world).await {
                Some(life) => boots.push(life),
                None => world.after_crash(),
            }
        }
        world.arm();
        run_clients(&world, &boots).await;
        end_some(&world, &mut boots).await;
        if world.has_violations() {
            break;
        }
    }
    // The last word: everything ends, one clean boot recovers, and the books are closed.
    world.calm();
    for life in boots.drain(..) {
        life.end(&world).await;
    }
    world.agents_return();
    if let Some(life) = Life::begin(&world).await {
        if world.agents {
            quiet(&world, &life).await;
        } else {
            // Long enough for every pending effect to be carried out and recorded.
            tokio::time::sleep(Duration::from_secs(5)).await;
            log_checks::pending_effects_done(&world, &life.boot.id);
        }
        life.end(&world).await;
    }
    world.power_loss_everywhere();
    if let Some(last) = Life::begin(&world).await {
        log_checks::no_orphans(&world, &last.boot.id);
        if world.agents {
            tokio::time::sleep(LOOKED_AROUND).await;
            agent_checks::calm(&world);
        } else {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        queueing::none_due(&world);
        last.end(&world).await;
    }
    world.check_logs().await;
    if let Some(ticking) = ticking {
        ticking.abort();
    }
    world.report(seed)
}

/// Longer than it takes a boot to look at every execution that is there, twice.
const LOOKED_AROUND: Duration = Duration::from_secs(65);

/// Short, so that agents are ended between what clients do, and while they do it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Agents continue, with or without a server.
async fn tick(world: Arc<World>) {
    loop {
        let busy = world.fleet().is_busy();
        let pause = if busy { world.range(5, 60) } else { world.range(100, 300) };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        world.fleet().tick(&world);
    }
}

/// Nothing breaks any more: agents end what they are at, questions are answered, and the books of
/// agents and logs have to agree.
async fn quiet(world: &Arc<World>, life: &Life) {
    tokio::time::sleep(LOOKED_AROUND).await;
    agent_client::answer_all(world, &life.service.handle()).await;
    tokio::time::sleep(LOOKED_AROUND).await;
    agent_checks::calm(world);
}

/// One boot with its service.
struct Life {
    boot: Arc<Boot>,
    service: Service,
    executions: Option<Executions>,
    /// In worlds whose agents the runtime starts.
    supervisors: Option<Supervisors>,
}

impl Life {
    /// Starts a boot; `None` if it died while starting.
    async fn begin(world: &Arc<World>) -> Option<Self> {
        let boot = world.new_boot();
        let Some(store) = boot.store(world) else {
            world.kill(&boot);
            return None;
        };
        let options = Options {
            clock: parts::clock(world, &boot),
            driver: parts::driver(world, &boot),
            executors: parts::executors(world, &boot),
            masker: Arc::clone(&MASKER),
            rules: PermissionRules::new(rules::of(world)),
            sweep_every: Duration::from_secs(5),
            snapshot_every: 8,
            settings: Settings {
                unreachable_after: Duration::from_secs(5),
                agent_idle_timeout: Some(IDLE_TIMEOUT),
                abandon_after: stuck::abandon_after(world.seed),
                ..Settings::default()
            },
            ..Options::new(
                boot.id.clone(),
                Arc::clone(&store),
                parts::liveness(world),
                parts::entropy(world),
            )
        };
        let executions = world.agents.then(|| {
            let launch_options = LaunchOptions::new(&Masker::default());
            Executions::new(agentctl::executor(world, &boot), store, launch_options)
        });
        let options = match &executions {
            None => options,
            Some(executions) => Options {
                driver: Arc::new(executions.clone()),
                executors: Arc::new(executions.clone()),
                ..options
            },
        };
        let mut recovered = Vec::new();
        let started = {
            let starting = Service::start(options, |one| recovered.push(one));
            tokio::select! {
                biased;
                () = boot.died.notified() => None,
                started = starting => started.ok(),
            }
        };
        let Some(service) = started else {
            world.note(format_args!("{} does not start", boot.id));
            world.kill(&boot);
            return None;
        };
        world.note(format_args!("{} starts", boot.id));
        log_checks::recovered(world, &boot.id, &recovered);
        let supervisors = resuming::supervisors(world, &boot, &service.handle());
        Some(Self { boot, service, executions, supervisors })
    }

    async fn end(self, world: &Arc<World>) {
        self.service.abort();
        drop(self.service);
        // Aborted tasks are dropped when the scheduler gets to them.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        world.kill(&self.boot);
    }
}

/// Lets clients and readers work until they are through or a boot dies.
async fn run_clients(world: &Arc<World>, boots: &[Life]) {
    let mut tasks = JoinSet::new();
    for (reader, life) in (0..).zip(boots) {
        for _ in 0..world.range(1, 3) {
            let (world, boot, handle) =
                (Arc::clone(world), Arc::clone(&life.boot), life.service.handle());
            match life.executions.clone() {
                None => tasks.spawn(client::work(world, boot, handle)),
                Some(executions) => {
                    let supervisors = life.supervisors.clone();
                    tasks.spawn(agent_client::work(world, boot, handle, executions, supervisors))
                }
            };
        }
        let (world, boot, handle) =
            (Arc::clone(world), Arc::clone(&life.boot), life.service.handle());
        tasks.spawn(client::read(world, boot, handle, reader));
    }
    let comes = world.chance(30);
    // Plain files have room for one process.
    let visitor = (comes && world.files.is_none()).then(|| world.new_boot());
    let visited = visitor.as_ref().and_then(|boot| Some((boot, boot.store(world)?)));
    if let Some((boot, store)) = visited {
        let (liveness, entropy) = (parts::liveness(world), parts::entropy(world));
        let options = Options {
            clock: parts::clock(world, boot),
            masker: Arc::clone(&MASKER),
            ..Options::new(boot.id.clone(), store, liveness, entropy)
        };
        let ids = Ids::new(parts::clock(world, boot), parts::entropy(world));
        let writer = Service::offline_writer(options);
        tasks.spawn(client::visit(Arc::clone(world), Arc::clone(boot), writer, ids));
    }
    let working = async { while tasks.join_next().await.is_some() {} };
    tokio::select! {
        biased;
        () = world.died.notified() => {}
        () = working => {}
    }
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    if let Some(boot) = &visitor {
        world.kill(boot);
    }
}

/// What ends a stretch: one process dies, or the power fails, or nothing.
async fn end_some(world: &Arc<World>, boots: &mut Vec<Life>) {
    if world.chance(40) {
        for life in boots.drain(..) {
            life.end(world).await;
        }
        // Agents may be on another machine, and continue.
        if world.agents && world.chance(50) {
            world.power_loss();
        } else {
            world.power_loss_everywhere();
        }
    } else {
        let (dead, alive): (Vec<_>, Vec<_>) =
            boots.drain(..).partition(|life| !life.boot.is_running() || world.chance(50));
        *boots = alive;
        for life in dead {
            life.end(world).await;
        }
    }
    world.after_crash();
    world.check_logs().await;
    if world.agents {
        // No server runs for a while, which may be short.
        let pause = world.range(0, 3_000);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: ", self.seed)?;
        if self.violations.is_empty() {
            return write!(f, "ok, {} steps, {} records", self.stats.steps, self.stats.records);
        }
        for violation in &self.violations {
            write!(f, "\n  {violation}")?;
        }
        let replay = "cargo run -p piton-testkit --bin piton-sim -- --seed";
        let store = if self.on == On::Files { " --store files" } else { "" };
        write!(f, "\n  replay with: {replay} {} --trace{store}", self.seed)
    }
}
