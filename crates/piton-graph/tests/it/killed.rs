//! A real process that runs a graph is killed at random moments and resumed until it is done.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use piton_core::Event;
use piton_core::id::SessionId;
use piton_graph::{
    Graph, ItemContext, LoopBody, LoopContext, LoopStep, MapBody, Node, NodeContext, NodeError,
    Outcome, Reducer, async_trait, custom, map, repeat, set, subgraph,
};
use serde_json::{Map, Value, json};

use crate::world::{World, completed};

const VARIABLE: &str = "PITON_TEST_GRAPH_DATA";
const SESSION: &str = "sess_killed";
/// Kills in `make test`, and how long they may take.
const KILLS: u32 = 30;
const TIME_MAX: Duration = Duration::from_secs(60);

/// Notes each attempt outside the store, before and after a little work.
struct Effect(PathBuf);

fn note(file: &Path, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    // One write: a line is there or not.
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[async_trait]
impl Node for Effect {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        note(&self.0, &format!("{} {}", ctx.node(), ctx.attempt()));
        tokio::time::sleep(Duration::from_millis(2)).await;
        ctx.write("sum", 1)?;
        ctx.write("names", Map::from_iter([(ctx.node().to_owned(), json!(ctx.idempotency_key()))]))
    }
}

struct Item(PathBuf);

#[async_trait]
impl MapBody for Item {
    async fn item(&self, ctx: &ItemContext) -> Result<Value, NodeError> {
        note(&self.0, &format!("map[{}] {}", ctx.index(), ctx.attempt()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(json!(ctx.item().as_i64().unwrap_or_default() * 2))
    }
}

struct Turn(PathBuf);

#[async_trait]
impl LoopBody for Turn {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
        note(&self.0, &format!("loop[{}] {}", ctx.iteration(), ctx.attempt()));
        tokio::time::sleep(Duration::from_millis(1)).await;
        ctx.say(format!("turn {} of {}", ctx.iteration(), ctx.conversation().len()))?;
        let text = ctx.outputs().get("text").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{text}{}", ctx.iteration());
        ctx.set_output("text", text)?;
        ctx.set_output("conversation", ctx.conversation().to_vec())?;
        Ok(if ctx.iteration() == 5 { LoopStep::Done } else { LoopStep::Continue })
    }
}

/// Thirty nodes: a fan of nine branches of two, a map, a loop, and a chain behind the join with a
/// graph of three nodes in it.
fn graph(file: &Path) -> Graph {
    let effect = || custom(Effect(file.to_owned())).writes(["sum", "names"]);
    let mut graph = Graph::builder("killed")
        .reducer("sum", Reducer::Add)
        .reducer("names", Reducer::Merge)
        .node("begin", set([("list", json!([1, 2, 3, 4, 5]))]))
        .node("map", map("list", 2, Item(file.to_owned())).reads(["list"]).writes(["doubled"]))
        .node("loop", repeat(9, Turn(file.to_owned())).writes(["text", "conversation"]))
        .node("join", set([("joined", json!("{{ sum }} {{ doubled | sum }} {{ text }}"))]))
        .edge("begin", "map")
        .edge("begin", "loop")
        .edge("map", "join")
        .edge("loop", "join");
    for branch in 0..9 {
        let (one, two) = (format!("a{branch}"), format!("b{branch}"));
        graph = graph
            .node(&one, effect())
            .node(&two, effect())
            .edge("begin", &one)
            .edge(&one, &two)
            .edge(&two, "join");
    }
    let inner = Graph::builder("inner")
        .reducer("sum", Reducer::Add)
        .reducer("names", Reducer::Merge)
        .node("x", effect())
        .node("y", effect())
        .node("z", effect())
        .edge("x", "z")
        .edge("y", "z")
        .build()
        .unwrap();
    graph = graph
        .node("inner", subgraph(&inner).taking("sum", "sum").taking("names", "names"))
        .edge("join", "inner");
    let mut last = "inner".to_owned();
    for n in 0..4 {
        let next = format!("c{n}");
        graph = graph.node(&next, effect()).edge(last, &next);
        last = next;
    }
    let graph = graph.build().unwrap();
    assert_eq!(graph.spec().all_nodes().len(), 30);
    graph
}

/// The test below runs this one in a process of its own.
#[test]
fn graph_process() {
    let Some(data) = std::env::var_os(VARIABLE) else { return };
    let data = PathBuf::from(data);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = piton_graph::open(&data).unwrap();
        let graph = graph(&data.join("effects"));
        let session: SessionId = SESSION.parse().unwrap();
        let runner = graph.runner(&store);
        let run = match store.store().head(&session).await.unwrap() {
            None => runner.session(session).start(Map::new()).await.unwrap(),
            Some(_) => runner.resume(&session, None, Map::new()).await.unwrap(),
        };
        match run.finish().await.unwrap() {
            Outcome::Completed(_) => {}
            other => panic!("{other:?}"),
        }
    });
}

fn spawn(data: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::graph_process", "--nocapture"])
        .env(VARIABLE, data)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs the graph in processes that are killed, until one of them completes it. How many were killed.
fn run_to_the_end(data: &Path, random: &mut fastrand::Rng, kills_max: u32) -> u32 {
    let mut kills = 0;
    loop {
        let mut child = spawn(data);
        let deadline = Instant::now() + TIME_MAX;
        let kill_at = (kills < kills_max)
            .then(|| Instant::now() + Duration::from_micros(random.u64(5_000..130_000)));
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if kill_at.is_some_and(|at| Instant::now() >= at) {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            assert!(Instant::now() < deadline, "a process does not end");
            std::thread::sleep(Duration::from_micros(500));
        };
        match ended {
            None => kills += 1,
            Some(status) if status.success() => return kills,
            Some(status) => {
                let mut said = String::new();
                let mut errors = child.stderr.take().unwrap();
                std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
                panic!("{status}: {said}");
            }
        }
    }
}

/// Checks one killed run against the log, the effects and an undisturbed run.
async fn check(data: &Path, kills: u32, undisturbed: &Map<String, Value>) {
    let store = piton_graph::open(data).unwrap();
    let session: SessionId = SESSION.parse().unwrap();
    let last = piton_graph::checkpoints::load(store.store(), &session, None).await.unwrap();
    let memory = last.shared_memory.unwrap().into_iter();
    let memory: Map<String, Value> = memory.filter(|(key, _)| !key.contains('/')).collect();
    assert_eq!(&memory, undisturbed);
    assert_eq!(store.store().verify(&session).await.unwrap().problem, None);

    let records =
        store.store().read(&session, 0, 100_000, piton_store::Detail::Headers).await.unwrap();
    let (mut starts, mut ends) = (BTreeMap::<String, u32>::new(), BTreeMap::<String, u32>::new());
    // Interruptions while each node ran: a process was killed under it.
    let (mut running, mut cut_off) = (BTreeSet::<String>::new(), BTreeMap::<String, u32>::new());
    for record in &records {
        match record.event().unwrap() {
            Event::NodeStarted(e) => {
                assert!(!ends.contains_key(&e.path), "{} started after it completed", e.path);
                running.insert(e.path.clone());
                *starts.entry(e.path).or_default() += 1;
            }
            Event::RunInterrupted(_) => {
                for path in std::mem::take(&mut running) {
                    *cut_off.entry(path).or_default() += 1;
                }
            }
            Event::NodeCompleted(e) => {
                running.remove(&e.path);
                let twice = ends.insert(e.path.clone(), e.attempt);
                assert_eq!(twice, None, "{} completed twice", e.path);
            }
            _ => {}
        }
    }
    assert_eq!(ends.len(), 30);
    for (path, count) in &starts {
        let hits = cut_off.get(path).copied().unwrap_or(0);
        assert!(hits <= kills, "{path} was cut off {hits} times by {kills} kills");
        assert!(*count <= 1 + hits, "{path} began {count} attempts, {hits} of them were cut off");
        assert_eq!(
            Some(count),
            ends.get(path),
            "{path}: the last attempt is the one that completed"
        );
    }
    // Outside the store: an attempt leaves one line, and none comes after the one that completed.
    let effects = std::fs::read_to_string(data.join("effects")).unwrap();
    let mut lines = BTreeMap::<&str, Vec<u32>>::new();
    for line in effects.lines() {
        let (path, attempt) = line.split_once(' ').unwrap();
        lines.entry(path).or_default().push(attempt.parse().unwrap());
    }
    for (path, attempts) in &lines {
        let mut sorted = attempts.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(&sorted, attempts, "{path}: an attempt ran twice");
        if let Some(completed) = ends.get(*path) {
            assert_eq!(attempts.last(), Some(completed), "{path} ran after it completed");
        }
    }
    let single = records.iter().filter_map(|record| match record.event().unwrap() {
        Event::MapItemCompleted(e) => Some(format!("map[{}]", e.index)),
        Event::LoopIterated(e) => Some(format!("loop[{}]", e.iteration)),
        _ => None,
    });
    let mut steps: Vec<String> = single.collect();
    let count = steps.len();
    steps.sort_unstable();
    steps.dedup();
    assert_eq!((count, steps.len()), (11, 11), "each item and each iteration is complete once");
}

fn kill_until(kills_wanted: u32, time_max: Duration) {
    let seed = std::env::var("PITON_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed: PITON_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let undisturbed = runtime.block_on(async {
        let world = World::new();
        let graph = graph(&world.folder.path().join("effects"));
        let session: SessionId = SESSION.parse().unwrap();
        let runner = graph.runner(&world.store).session(session);
        completed(runner.start(Map::new()).await.unwrap().finish().await.unwrap())
    });
    let (mut kills, began) = (0, Instant::now());
    while kills < kills_wanted {
        assert!(began.elapsed() < time_max, "{kills} of {kills_wanted} kills in {time_max:?}");
        let data = tempfile::tempdir().unwrap();
        let killed = run_to_the_end(data.path(), &mut random, 12);
        runtime.block_on(check(data.path(), killed, &undisturbed));
        kills += killed;
    }
    println!("{kills} kills in {:?}", began.elapsed());
}

/// Wants to show: whatever moment a process is killed at, each node that completed did so once, no
/// completed node runs again, and the memory is what an undisturbed run leaves.
#[test]
fn killed_at_random_moments_it_ends_as_if_it_had_not_been() {
    kill_until(KILLS, TIME_MAX);
}

#[test]
#[ignore = "takes long: part of `make soak`"]
fn killed_two_thousand_times() {
    kill_until(2_000, Duration::from_hours(1));
}
