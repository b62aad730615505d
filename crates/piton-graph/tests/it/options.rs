//! Options of checkpoints, seen from a run: which are created, what they leave out, how they are stored.

use std::collections::BTreeSet;
use std::time::Duration;

use piton_core::Code;
use piton_core::graph::{
    CheckpointConfig, KEEP_COUNT_DEFAULT, SMART_CHANGED_KEYS, SMART_LATENCY_MS, SMART_TAGS,
};
use piton_graph::{
    CheckpointFilter, CheckpointOptions, CheckpointPolicy, CheckpointType, Graph, LoopBody,
    LoopContext, LoopStep, Node, NodeContext, NodeError, Outcome, PolicyContext, ValueType,
    async_trait, checkpoints, custom, human, repeat, set, template,
};
use serde_json::{Map, Value, json};

use crate::world::{World, completed};

struct Turns;

#[async_trait]
impl LoopBody for Turns {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
        if ctx.iteration() == 2 && ctx.value("go")?.is_null() {
            return Err(NodeError::new("`go` is not set"));
        }
        ctx.say(format!("turn {}", ctx.iteration()))?;
        ctx.set_output("count", ctx.conversation().len())?;
        Ok(if ctx.iteration() == 3 { LoopStep::Done } else { LoopStep::Continue })
    }
}

struct Safe;

#[async_trait]
impl Node for Safe {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        ctx.safe_point("half").await
    }
}

fn options(value: Value) -> CheckpointOptions {
    serde_json::from_value(value).unwrap()
}

fn graph(given: Value) -> Graph {
    Graph::builder("options")
        .optional_input("go", ValueType::Boolean)
        .checkpoints(options(given))
        .node("begin", set([("x", json!(1))]))
        .node("safe", custom(Safe))
        .node("marked", template("{{ x }}").writes(["text"]).safe_point())
        .node("loop", repeat(9, Turns).reads(["go"]).writes(["count"]))
        .node("ask", human("Well?").writes(["answer"]))
        .edge("begin", "safe")
        .edge("safe", "marked")
        .edge("marked", "loop")
        .edge("loop", "ask")
        .build()
        .unwrap()
}

async fn created(world: &World, session: &piton_core::id::SessionId) -> Vec<(String, String)> {
    let all = CheckpointFilter::default();
    let listed = checkpoints::list(world.store.store(), session, &all, 1_000).await.unwrap();
    let name = |c: &checkpoints::CheckpointSummary| {
        (c.checkpoint_type.as_str().to_owned(), c.current_node.clone().unwrap())
    };
    listed.checkpoints.iter().rev().map(name).collect()
}

#[tokio::test]
async fn all_six_types_are_created_where_they_are_asked_for() {
    let world = World::new();
    let given = json!({"checkpoint_on_edge": true, "checkpoint_every_n_iterations": 2});
    let graph = graph(given);
    let (session, outcome) = world.start(&graph, &[("go", json!(true))]).await;
    assert!(matches!(outcome, Outcome::Waiting { .. }), "{outcome:?}");
    let created = created(&world, &session).await;
    let of = |kind: &str| -> Vec<&str> {
        created.iter().filter(|(of, _)| of == kind).map(|(_, node)| node.as_str()).collect()
    };
    assert_eq!(of("node_start"), ["begin", "safe", "marked", "loop", "ask"]);
    assert_eq!(of("node_complete"), ["begin", "safe", "marked", "loop"]);
    assert_eq!(of("edge_transition"), ["begin", "safe", "marked", "loop"]);
    assert_eq!(of("loop_iteration"), ["loop", "loop"], "the second and the fourth");
    assert_eq!(of("safe_point"), ["safe", "marked"], "from the node, and from the graph");
    assert_eq!(of("user_checkpoint"), ["ask"]);
}

#[tokio::test]
async fn the_smart_strategy_keeps_what_is_worth_it() {
    let world = World::new();
    let many: Vec<(String, Value)> = (0..11).map(|n| (format!("k{n}"), json!(n))).collect();
    let graph = Graph::builder("smart")
        .checkpoints(options(json!({"smart": true})))
        .node("plain", template("x").writes(["x"]))
        .node("tagged", template("y").writes(["y"]).tags(["external_tool"]))
        .node("api_call", template("z").writes(["z"]))
        .node("many", set(many))
        .edge("plain", "tagged")
        .edge("tagged", "api_call")
        .edge("api_call", "many")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    completed(outcome);
    let created = created(&world, &session).await;
    let nodes: BTreeSet<&str> = created.iter().map(|(_, node)| node.as_str()).collect();
    assert_eq!(nodes, BTreeSet::from(["api_call", "many", "tagged"]));
}

/// Wants to show: what a checkpoint leaves out is restored from the log.
#[tokio::test]
async fn a_checkpoint_without_contents_can_be_resumed_from() {
    let world = World::new();
    let given = json!({
        "include_full_memory": false,
        "include_conversation_snapshots": false,
        "checkpoint_on_loop_iteration": true,
    });
    let graph = graph(given);
    let (session, outcome) = world.start(&graph, &[]).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let filter = CheckpointFilter {
        checkpoint_type: Some(piton_graph::CheckpointType::LoopIteration),
        ..CheckpointFilter::default()
    };
    let world = world.reopened();
    let store = world.store.store();
    let listed = checkpoints::list(store, &session, &filter, 10).await.unwrap();
    let first = listed.checkpoints.last().unwrap().checkpoint_id.clone();
    let shown = checkpoints::load(store, &session, Some(&first)).await.unwrap();
    assert_eq!((shown.shared_memory, shown.conversation_states), (None, None));
    let go = piton_graph::inputs([("go", true)]);
    let run = graph.runner(&world.store).resume(&session, Some(&first), go).await.unwrap();
    let outcome = run.finish().await.unwrap();
    assert!(matches!(outcome, Outcome::Waiting { .. }), "{outcome:?}");
    let last = checkpoints::diff(store, &session, &first, None).await.unwrap();
    assert_eq!(last.memory.added["count"], json!(3), "the conversation was restored");
}

#[tokio::test]
async fn no_checkpoints_are_created_if_they_are_off() {
    let world = World::new();
    let graph = graph(json!({"checkpoints_enabled": false}));
    let (session, _) = world.start(&graph, &[("go", json!(true))]).await;
    assert_eq!(created(&world, &session).await, []);
    let world = world.reopened();
    let outcome = world.resume(&graph, &session, &[]).await;
    assert!(matches!(outcome, Outcome::Waiting { .. }), "completions stay durable: {outcome:?}");
}

/// Wants to show: the numbers that the documentation promises.
#[test]
fn the_defaults_are_these_numbers() {
    let defaults = CheckpointConfig::default();
    assert_eq!(defaults.max_checkpoints_per_session, 100);
    assert_eq!(defaults.prune_after_node_count, 10);
    assert_eq!(defaults.compression_threshold_bytes, 100_000);
    assert_eq!(defaults.checkpoint_every_n_iterations, 0);
    assert_eq!(KEEP_COUNT_DEFAULT, 10);
    assert_eq!((SMART_LATENCY_MS, SMART_CHANGED_KEYS), (30_000, 10));
    assert_eq!(SMART_TAGS, ["api_call", "external_tool"]);
    let on = [
        defaults.enabled,
        defaults.checkpoint_on_node_start,
        defaults.checkpoint_on_node_complete,
        defaults.async_checkpoint,
        defaults.include_conversation_snapshots,
        defaults.include_full_memory,
        defaults.compress,
        defaults.encrypt_checkpoints,
    ];
    assert_eq!(on, [true; 8]);
    let off = [
        defaults.checkpoint_on_edge,
        defaults.checkpoint_on_loop_iteration,
        defaults.keep_clean_checkpoints_only,
        defaults.required,
        defaults.smart,
    ];
    assert_eq!(off, [false; 5]);
}

/// Wants to show: starts and completions are left out where they are switched off, each for itself.
#[tokio::test]
async fn starts_and_completions_can_be_left_out() {
    let world = World::new();
    for (option, gone, there) in [
        ("checkpoint_on_node_start", "node_start", "node_complete"),
        ("checkpoint_on_node_complete", "node_complete", "node_start"),
    ] {
        let graph = graph(json!({option: false}));
        let (session, _) = world.start(&graph, &[("go", json!(true))]).await;
        let created = created(&world, &session).await;
        assert!(created.iter().all(|(of, _)| of != gone), "{option}: {created:?}");
        assert!(created.iter().filter(|(of, _)| of == there).count() >= 4, "{option}: {created:?}");
        assert!(created.iter().any(|(of, _)| of == "safe_point"), "{option}: {created:?}");
    }
}

/// Wants to show: `async_checkpoint` and `required` are taken at every level, and a run has the same
/// checkpoints whatever they say: each is durable with what it is about.
#[tokio::test]
async fn whether_checkpoints_are_waited_for_or_required_changes_none() {
    let world = World::new();
    let mut all = Vec::new();
    for given in [
        json!({}),
        json!({"async_checkpoint": true, "required": true}),
        json!({"async_checkpoint": false, "required": false}),
    ] {
        for is_execution in [false, true] {
            let (of_graph, of_execution) =
                if is_execution { (json!({}), given.clone()) } else { (given.clone(), json!({})) };
            let graph = graph(of_graph);
            let go = piton_graph::inputs([("go", true)]);
            let runner = graph.runner(&world.store).checkpoints(options(of_execution));
            let run = runner.start(go).await.unwrap();
            let session = run.session().clone();
            run.finish().await.unwrap();
            all.push(created(&world, &session).await);
        }
    }
    assert!(all[0].len() >= 10 && all.iter().all(|one| *one == all[0]), "{all:?}");
}

struct FailsOnce;

#[async_trait]
impl Node for FailsOnce {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        if ctx.attempt() == 1 { Err(NodeError::new("not yet")) } else { Ok(()) }
    }
}

/// Wants to show: with `keep_clean_checkpoints_only`, what follows a retry is pruned, but for the newest.
#[tokio::test]
async fn only_clean_checkpoints_are_kept_where_that_is_asked_for() {
    let world = World::new();
    let mut left = Vec::new();
    for clean_only in [true, false] {
        let given = json!({
            "keep_clean_checkpoints_only": clean_only,
            "prune_after_node_count": 1,
            "max_checkpoints_per_session": 50,
        });
        let soon = Duration::from_millis(1);
        let graph = Graph::builder("clean")
            .checkpoints(options(given))
            .node("a", set([("x", json!(1))]))
            .node("b", custom(FailsOnce).retry(1, soon, soon))
            .node("c", set([("y", json!(1))]))
            .node("d", set([("z", json!(1))]))
            .edge("a", "b")
            .edge("b", "c")
            .edge("c", "d")
            .build()
            .unwrap();
        let (session, outcome) = world.start(&graph, &[]).await;
        completed(outcome);
        let all = CheckpointFilter::default();
        let listed = checkpoints::list(world.store.store(), &session, &all, 100).await.unwrap();
        let unclean = listed.checkpoints.iter().filter(|one| !one.is_clean).count();
        let clean = listed.checkpoints.len() - unclean;
        left.push((clean, unclean));
    }
    let [(clean, unclean), (all_clean, all_unclean)] = left[..] else { panic!("{left:?}") };
    assert_eq!(clean, all_clean, "clean ones stay");
    assert!(unclean <= 1 && all_unclean >= 4, "{left:?}");
}

#[tokio::test]
async fn what_contradicts_the_store_is_refused() {
    let world = World::new();
    for (given, code) in [
        (json!({"storage_url": "s3://bucket/"}), Code::StoreUnsupported),
        (json!({"storage_backend": "gcs"}), Code::StoreUnsupported),
        (json!({"encryption_key_source": "paper"}), Code::ConfigConflict),
        (json!({"encrypt_checkpoints": false}), Code::ConfigConflict),
        (json!({"compress": false}), Code::ConfigConflict),
    ] {
        let refused = graph(given.clone()).runner(&world.store).start(Map::new()).await;
        assert_eq!(refused.unwrap_err().code(), code, "{given}");
    }
}

/// Wants to show: contents above the threshold take less space, smaller ones what they are.
#[tokio::test]
async fn the_compression_threshold_counts() {
    let text = "Durable sessions survive. ".repeat(380);
    let mut sizes = Vec::new();
    for threshold in [100_000, 4_096] {
        let world = World::new();
        let mut graph = Graph::builder("large").checkpoints(options(
            json!({"compression_threshold_bytes": threshold, "max_checkpoints_per_session": 5}),
        ));
        for n in 0..40 {
            let (name, key) = (format!("n{n}"), format!("k{n}"));
            let value = format!("{n} {text}");
            graph = graph.node(&name, set([(key, json!(value))]));
            if n > 0 {
                graph = graph.edge(format!("n{}", n - 1), &name);
            }
        }
        let graph = graph.build().unwrap();
        let (_, outcome) = world.start(&graph, &[]).await;
        let memory = completed(outcome);
        assert_eq!(memory["k7"], json!(format!("7 {text}")));
        let World { folder, store } = world;
        drop(store);
        sizes.push(std::fs::metadata(folder.path().join("store.sqlite3")).unwrap().len());
    }
    assert!(sizes[1] < sizes[0] / 2, "{sizes:?}");
}

/// Iterates often in one node.
struct Often;

#[async_trait]
impl LoopBody for Often {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
        Ok(if ctx.iteration() == 49 { LoopStep::Done } else { LoopStep::Continue })
    }
}

/// Wants to show: the maximum counts where no node completes, too, and at a run's end.
#[tokio::test]
async fn a_loop_leaves_no_more_than_the_maximum() {
    let world = World::new();
    let graph = Graph::builder("often")
        .checkpoints(options(
            json!({"checkpoint_on_loop_iteration": true, "max_checkpoints_per_session": 10}),
        ))
        .node("loop", repeat(60, Often))
        .node("ask", human("Well?").writes(["answer"]))
        .edge("loop", "ask")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    assert!(matches!(outcome, Outcome::Waiting { .. }), "{outcome:?}");
    assert_eq!(created(&world, &session).await.len(), 10);
}

/// Notes what it is asked about; wants what takes part in the node `b`, and every second iteration.
#[derive(Clone, Debug, Default)]
struct OnlyB(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl CheckpointPolicy for OnlyB {
    fn should_checkpoint(&self, of: &PolicyContext<'_>) -> bool {
        let known = (of.latency.is_some(), of.changed_keys, of.iteration);
        self.0.lock().unwrap().push(format!("{:?} {} {known:?}", of.boundary, of.node));
        of.node.ends_with('b') || of.tags.contains("kept")
    }
}

#[tokio::test]
async fn a_policy_of_your_own_decides_about_checkpoints() {
    let world = World::new();
    let policy = OnlyB::default();
    let inner = Graph::builder("inner")
        .node("a", set([("x", json!(1))]))
        .node("b", set([("y", json!(1)), ("z", json!(2))]))
        .edge("a", "b")
        .build()
        .unwrap();
    let graph = Graph::builder("policy")
        .node("begin", set([("n", json!(1))]).safe_point())
        .node("inner", piton_graph::subgraph(&inner))
        .node("end", set([("n", json!(2))]).tags(["kept"]))
        .edge("begin", "inner")
        .edge("inner", "end")
        .policy(policy.clone())
        .build()
        .unwrap();
    let (session, _) = world.start(&graph, &[]).await;
    let filter = CheckpointFilter::default();
    let list = checkpoints::list(world.store.store(), &session, &filter, 100).await.unwrap();
    let made: Vec<(CheckpointType, String)> = list
        .checkpoints
        .into_iter()
        .rev()
        .map(|one| (one.checkpoint_type, one.current_node.unwrap()))
        .collect();
    let expected = [
        // A safe point is no matter of the policy.
        (CheckpointType::SafePoint, "begin"),
        (CheckpointType::NodeStart, "inner/b"),
        (CheckpointType::NodeComplete, "inner/b"),
        (CheckpointType::NodeStart, "end"),
        (CheckpointType::NodeComplete, "end"),
    ];
    assert_eq!(made, expected.map(|(kind, node)| (kind, node.to_owned())));
    let asked = policy.0.lock().unwrap().clone();
    assert!(asked.contains(&"NodeStart inner/b (false, 0, None)".to_owned()), "{asked:?}");
    assert!(asked.contains(&"NodeComplete inner/b (true, 2, None)".to_owned()), "{asked:?}");
    assert!(!asked.iter().any(|one| one.starts_with("Edge")), "the options do not want those");
}
