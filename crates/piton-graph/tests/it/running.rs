//! What a run does, and what its log says.

use std::time::Duration;

use piton_core::{Code, Event};
use piton_graph::{
    CheckpointFilter, Effects, Graph, ItemContext, LoopBody, LoopContext, LoopStep, MapBody, Node,
    NodeContext, NodeError, Outcome, OutputFormat, Reducer, ValueType, async_trait, checkpoints,
    command, custom, map, repeat, set, template,
};
use serde_json::{Map, Value, json};

use crate::world::{Ran, World, completed};

const ALL: usize = 1_000;

#[tokio::test]
async fn values_flow_from_node_to_node() {
    let world = World::new();
    let graph = Graph::from_text(
        "piton: graph/v1\nname: flow\ninputs: {who: {type: string}}\nnodes:\n  greet: {template: \"Hello {{ who }}\", writes: greeting}\n  shout:\n    command: [tr, a-z, A-Z]\n    reads: greeting\n    output: json\n    writes: shouted\n  count: {set: {length: \"{{ shouted.GREETING | length }}\", both: [\"{{ who }}\", 1]}}\nedges:\n  - greet -> shout -> count\n",
    )
    .unwrap();
    let (session, outcome) = world.start(&graph, &[("who", json!("Ada"))]).await;
    let memory = completed(outcome);
    assert_eq!(memory["greeting"], json!("Hello Ada"));
    assert_eq!(memory["shouted"], json!({"GREETING": "HELLO ADA"}));
    assert_eq!((&memory["length"], &memory["both"]), (&json!(9), &json!(["Ada", 1])));
    let state = piton_store::load(&**world.store.store(), &session).await.unwrap().state;
    assert_eq!(state.facts.graph.as_deref(), Some("flow"));
    assert!(state.pending.is_empty() && state.lease.owner.is_none());
    let verified = world.store.store().verify(&session).await.unwrap();
    assert_eq!(verified.problem, None);
}

#[tokio::test]
async fn conditions_choose_and_what_is_not_chosen_is_skipped() {
    let world = World::new();
    let ran = Ran::default();
    let build = || {
        Graph::builder("choose")
            .input("n", ValueType::Integer)
            .node("start", custom(ran.node()))
            .node("large", custom(ran.node()))
            .node("small", custom(ran.node()))
            .node("behind_large", custom(ran.node()))
            .node("join", custom(ran.node()))
            .edge_if("start", "large", "n > 10")
            .edge_spec(piton_graph::EdgeSpec {
                priority: -1,
                ..piton_graph::EdgeSpec::new("start", "small")
            })
            .edge("large", "behind_large")
            .edge("behind_large", "join")
            .edge("small", "join")
            .build()
            .unwrap()
    };
    let (session, outcome) = world.start(&build(), &[("n", json!(3))]).await;
    completed(outcome);
    assert_eq!(ran.all(), ["start", "small", "join"], "the lower priority is taken if no other is");
    let events = world.events(&session).await;
    let skipped = events.iter().filter_map(|event| match event {
        Event::NodeSkipped(e) => Some(e.path.as_str()),
        _ => None,
    });
    assert_eq!(skipped.collect::<Vec<_>>(), ["large", "behind_large"]);
    let (_, outcome) = world.start(&build(), &[("n", json!(30))]).await;
    completed(outcome);
    assert_eq!(ran.all()[3..], ["start", "large", "behind_large", "join"]);
}

struct Draft;

#[async_trait]
impl Node for Draft {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        ctx.write("draft", ctx.visit())?;
        ctx.write("keys", ctx.idempotency_key().to_owned())
    }
}

#[tokio::test]
async fn a_cycle_runs_as_often_as_its_limit_allows() {
    let world = World::new();
    let back = piton_graph::EdgeSpec {
        when: Some("draft < 9".to_owned()),
        max: Some(2),
        priority: 1,
        ..piton_graph::EdgeSpec::new("review", "draft")
    };
    let graph = Graph::builder("cycle")
        .reducer("keys", Reducer::Append)
        .node("draft", custom(Draft).writes(["draft", "keys"]))
        .node("review", template("{{ draft }}").writes(["seen"]))
        .node("send", template("sent {{ draft }}").writes(["sent"]))
        .edge("draft", "review")
        .edge("review", "send")
        .edge_spec(back)
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    let memory = completed(outcome);
    assert_eq!(memory["sent"], json!("sent 3"), "twice back, then on");
    let keys: Vec<String> = serde_json::from_value(memory["keys"].clone()).unwrap();
    assert_eq!(keys[2], format!("{session}/1/draft/3"));
    let view = checkpoints::view(world.store.store(), &session).await.unwrap();
    assert_eq!(view.execution_path.len(), 7);
}

struct Slow;

#[async_trait]
impl Node for Slow {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        let barrier: u64 = 2;
        // Both are here at the same time, or the time-out ends the test.
        let here = ctx.node().to_owned();
        BARRIER.wait().await;
        ctx.write("names", here)?;
        ctx.write("sum", barrier)
    }
}

static BARRIER: std::sync::LazyLock<tokio::sync::Barrier> =
    std::sync::LazyLock::new(|| tokio::sync::Barrier::new(2));

#[tokio::test]
async fn branches_run_at_the_same_time_and_are_joined_by_reducers() {
    let world = World::new();
    let slow = || custom(Slow).writes(["names", "sum"]).timeout(Duration::from_secs(20));
    let graph = Graph::builder("parallel")
        .reducer("names", Reducer::Append)
        .reducer("sum", Reducer::Add)
        .node("a", slow())
        .node("b", slow())
        .node("c", template("{{ names | sort | join(',') }}={{ sum }}").writes(["all"]))
        .edge("a", "c")
        .edge("b", "c")
        .build()
        .unwrap();
    let (_, outcome) = world.start(&graph, &[]).await;
    assert_eq!(completed(outcome)["all"], json!("a,b=4"));
}

struct Square(Ran);

#[async_trait]
impl MapBody for Square {
    async fn item(&self, ctx: &ItemContext) -> Result<Value, NodeError> {
        self.0.note(format!("{}", ctx.index()));
        let n = ctx.item().as_i64().unwrap_or_default();
        if n < 0 && ctx.value("ok")?.is_null() {
            return Err(NodeError::new("negative"));
        }
        Ok((n * n).into())
    }
}

/// Wants to show: an item that completed does not run again when another one failed.
#[tokio::test]
async fn a_map_keeps_the_items_that_completed() {
    let world = World::new();
    let ran = Ran::default();
    let graph = Graph::builder("map")
        .input("list", ValueType::Array)
        .optional_input("ok", ValueType::Boolean)
        .node(
            "square",
            map("list", 2, Square(ran.clone())).reads(["list", "ok"]).writes(["squares"]),
        )
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[("list", json!([1, 2, -3, 4]))]).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.error, "Item 2: negative");
    let before = ran.all();
    let outcome = world.resume(&graph, &session, &[("ok", json!(true))]).await;
    assert_eq!(completed(outcome)["squares"], json!([1, 4, 9, 16]));
    let after = ran.all();
    let again = &after[before.len()..];
    assert!(again.contains(&"2".to_owned()) && !again.contains(&"0".to_owned()), "{after:?}");
    assert_eq!(after.iter().filter(|index| *index == "0").count(), 1);
}

struct Counting {
    ran: Ran,
    fails_at: Option<u32>,
}

#[async_trait]
impl LoopBody for Counting {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
        self.ran.note(ctx.iteration().to_string());
        if self.fails_at == Some(ctx.iteration()) {
            return Err(NodeError::new("not today"));
        }
        assert_eq!(ctx.conversation().len(), ctx.iteration() as usize);
        ctx.say(json!({"role": "assistant", "content": format!("turn {}", ctx.iteration())}))?;
        let sum = ctx.outputs().get("sum").and_then(Value::as_u64).unwrap_or(0);
        ctx.set_output("sum", sum + u64::from(ctx.iteration()))?;
        Ok(if ctx.iteration() == 4 { LoopStep::Done } else { LoopStep::Continue })
    }
}

fn counting(ran: &Ran, fails_at: Option<u32>, max: u32) -> Graph {
    let body = Counting { ran: ran.clone(), fails_at };
    Graph::builder("loop").node("count", repeat(max, body).writes(["sum"])).build().unwrap()
}

/// Wants to show: each completed iteration exists once, and the conversation is what it would have been.
#[tokio::test]
async fn a_loop_continues_with_the_iteration_that_failed() {
    let world = World::new();
    let ran = Ran::default();
    let (session, outcome) = world.start(&counting(&ran, Some(3), 9), &[]).await;
    assert!(matches!(outcome, Outcome::Failed(_)));
    let shown = checkpoints::load(world.store.store(), &session, None).await.unwrap();
    assert_eq!(shown.conversation_states, Some([].into()), "its start has no conversation yet");
    let world = world.reopened();
    let outcome = world.resume(&counting(&ran, None, 9), &session, &[]).await;
    let Outcome::Completed(finished) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*finished.memory["sum"], json!(10));
    assert_eq!(finished.outputs["sum"], json!(10));
    assert_eq!(ran.all(), ["0", "1", "2", "3", "3", "4"]);
    let (_, outcome) = world.start(&counting(&Ran::default(), None, 3), &[]).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.code, Code::LoopLimitReached);
}

#[tokio::test]
async fn commands_loop_and_map_too() {
    let world = World::new();
    let graph = Graph::from_text(
        "piton: graph/v1\nname: shell\ninputs: {names: {type: array}}\nnodes:\n  greet:\n    map: {over: \"{{ names }}\", as: name, parallel: 3}\n    command: [echo, \"hi {{ name }} {{ index }}\"]\n    writes: greetings\n  dig:\n    loop: {max_iterations: 5, until: \"depth >= 3\"}\n    command: [sh, -c, \"echo '{\\\"messages\\\": [\\\"dug\\\"], \\\"outputs\\\": {\\\"depth\\\": {{ iteration + 1 }}}}'\"]\n    output: json\n    writes: depth\nedges: [greet -> dig]\n",
    )
    .unwrap();
    let (_, outcome) = world.start(&graph, &[("names", json!(["a", "b"]))]).await;
    let memory = completed(outcome);
    assert_eq!(memory["greetings"], json!(["hi a 0", "hi b 1"]));
    assert_eq!(memory["depth"], json!(3));
}

#[tokio::test]
async fn what_a_command_does_wrong_is_named() {
    let world = World::new();
    let run = async |node: piton_graph::NodeDef| {
        let graph = Graph::builder("bad").node("n", node).build().unwrap();
        match world.start(&graph, &[]).await.1 {
            Outcome::Failed(failure) => (failure.code.as_str().to_owned(), failure.error),
            other => panic!("{other:?}"),
        }
    };
    let failed = run(command(["sh", "-c", "echo oops >&2; exit 3"])).await;
    assert_eq!(failed, ("node_failed".into(), "`sh` ended with exit status: 3: oops".into()));
    let missing = run(command(["/does/not/exist"])).await;
    assert!(missing.1.starts_with("`/does/not/exist` cannot be started"), "{missing:?}");
    let endless = run(command(["sleep", "600"]).timeout(Duration::from_millis(100))).await;
    assert_eq!(endless, ("node_timeout".into(), "It did not end within 100 ms".into()));
    let no_json = command(["echo", "x"]).output(OutputFormat::Json).writes(["v"]);
    assert_eq!(run(no_json).await.0, "node_output_invalid");
    let loud = run(command(["yes"]).timeout(Duration::from_secs(30))).await;
    assert_eq!(loud.0, "node_output_invalid", "{loud:?}");
}

struct Flaky;

#[async_trait]
impl Node for Flaky {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        if ctx.attempt() < 3 {
            return Err(NodeError::new("not yet"));
        }
        ctx.write("attempt", ctx.attempt())
    }
}

#[tokio::test]
async fn a_retry_is_another_attempt_and_what_follows_is_not_clean() {
    let world = World::new();
    let millis = Duration::from_millis;
    let flaky = custom(Flaky).writes(["attempt"]).retry(2, millis(1), millis(2));
    let graph = Graph::builder("retry")
        .node("flaky", flaky)
        .node("after", set([("x", json!(1))]))
        .edge("flaky", "after")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    assert_eq!(completed(outcome)["attempt"], json!(3));
    let all = checkpoints::list(world.store.store(), &session, &CheckpointFilter::default(), ALL)
        .await
        .unwrap();
    let clean: Vec<bool> = all.checkpoints.iter().rev().map(|entry| entry.is_clean).collect();
    assert_eq!(clean, [true, false, false, false, false, false]);
    let last = checkpoints::load(world.store.store(), &session, None).await.unwrap();
    assert_eq!(last.metrics_snapshot.total_retries, 2);
    assert_eq!(last.metrics_snapshot.nodes_with_failures, ["flaky"]);
}

struct Undeclared(&'static str);

#[async_trait]
impl Node for Undeclared {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        match self.0 {
            "read" => ctx.value("secretly").map(drop),
            "write" => ctx.write("secretly", 1),
            "panic" => panic!("the test wants this"),
            _ => ctx.write("declared", "x".repeat(33 << 20)),
        }
    }
}

#[tokio::test]
async fn a_node_does_what_it_declared() {
    let world = World::new();
    for (what, code) in [
        ("read", "memory_key_undeclared"),
        ("write", "memory_key_undeclared"),
        ("large", "payload_too_large"),
        ("panic", "node_failed"),
    ] {
        let node = custom(Undeclared(what)).writes(["declared"]);
        let graph = Graph::builder("strict").node("n", node).build().unwrap();
        let (_, outcome) = world.start(&graph, &[]).await;
        let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.code.as_str(), code, "{what}: {}", failure.error);
    }
}

/// Wants to show: a node without effects costs one flush, one with effects two.
#[tokio::test]
async fn a_start_is_flushed_only_before_effects() {
    let world = World::new();
    let flushes = async |effects| {
        let mut graph = Graph::builder("chain");
        for n in 0..10 {
            let node = set([(format!("k{n}"), json!(n))]).effects(effects);
            graph = graph.node(format!("n{n}"), node);
        }
        for n in 1..10 {
            graph = graph.edge(format!("n{}", n - 1), format!("n{n}"));
        }
        let graph = graph.build().unwrap();
        let before = world.store.store().stats().batches;
        completed(world.start(&graph, &[]).await.1);
        world.store.store().stats().batches - before
    };
    // Beside the nodes: the beginning and the end of the run.
    assert_eq!(flushes(Effects::None).await, 12);
    assert_eq!(flushes(Effects::External).await, 22);
}

#[tokio::test]
async fn a_run_pauses_when_its_nodes_completed_and_continues() {
    let world = World::new();
    let ran = Ran::default();
    let graph = Graph::builder("pause")
        .node("a", custom(ran.node()))
        .node("b", custom(ran.node()))
        .edge("a", "b")
        .build()
        .unwrap();
    let run = graph.runner(&world.store).start(Map::new()).await.unwrap();
    let session = run.session().clone();
    run.handle().pause();
    assert_eq!(run.finish().await.unwrap(), Outcome::Paused);
    assert_eq!(ran.all(), [""; 0]);
    completed(world.resume(&graph, &session, &[]).await);
    assert_eq!(ran.all(), ["a", "b"]);
    let run = graph.runner(&world.store).start(Map::new()).await.unwrap();
    run.handle().cancel();
    assert_eq!(run.finish().await.unwrap(), Outcome::Cancelled);
}

/// Wants to show: a condition, a template and the list of a map that would take all of the memory fail
/// their node and the run, with a code, and the process keeps running.
#[tokio::test]
async fn what_would_take_all_of_the_memory_fails_its_node() {
    let world = World::new();
    let doubled =
        format!("{{% set a = text %}}{}{{{{ a | length }}}}", "{% set a = a ~ a %}".repeat(40));
    let large = json!("0123456789abcdef".repeat(1_000));
    let graph = || Graph::builder("large").input("text", ValueType::String);
    for (graph, node) in [
        (
            graph().node("a", set([("x", json!(1))])).node("b", set([("y", json!(1))])).edge_if(
                "a",
                "b",
                "(text * 10000000) | length > 1",
            ),
            "a",
        ),
        (graph().node("t", template(&doubled).writes(["out"])), "t"),
        (graph().node("s", set([("out", json!("{{ [text] * 100000000 }}"))])), "s"),
    ] {
        let (_, outcome) = world.start(&graph.build().unwrap(), &[("text", large.clone())]).await;
        let Outcome::Failed(failure) = outcome else { panic!("{node}: {outcome:?}") };
        assert_eq!(failure.node, node);
        assert_eq!(failure.code, Code::ExpressionFailed, "{}", failure.error);
    }
}
