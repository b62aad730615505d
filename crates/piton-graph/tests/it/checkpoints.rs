//! Checkpoints: what they hold, how to resume from them, and what never reaches the disk.

use piton_core::id::{CheckpointId, SessionId};
use piton_core::{Code, Event};
use piton_graph::checkpoints::{self, CheckpointSummary};
use piton_graph::{
    CheckpointFilter, CheckpointOptions, CheckpointType, Graph, Node, NodeContext, NodeError,
    Outcome, Reducer, ValueType, async_trait, command, custom, inputs, set, template,
};
use serde_json::{Map, Value, json};

use crate::world::{Ran, World, bytes_below, completed};

const ALL: usize = 1_000;

async fn listed(world: &World, session: &SessionId) -> Vec<CheckpointSummary> {
    let filter = CheckpointFilter::default();
    let mut list =
        checkpoints::list(world.store.store(), session, &filter, ALL).await.unwrap().checkpoints;
    list.reverse();
    list
}

/// Eight nodes that run, a ninth that needs a credential, and one behind it.
fn nine(ran: &Ran) -> Graph {
    let mut graph = Graph::builder("nine").optional_input("api_key", ValueType::String);
    for n in 1..=8 {
        graph = graph.node(format!("n{n}"), custom(ran.node()));
    }
    graph = graph
        .node("n9", custom(ran.needing("api_key")).reads(["api_key"]))
        .node("n10", custom(ran.node()));
    for n in 1..=9 {
        graph = graph.edge(format!("n{n}"), format!("n{}", n + 1));
    }
    graph.build().unwrap()
}

/// Wants to show: a missing credential fails node nine; with it set the run completes, and the eight
/// before it do not run again.
#[tokio::test]
async fn a_failed_node_is_resumed_with_what_it_lacked() {
    let world = World::new();
    let ran = Ran::default();
    let (session, outcome) = world.start(&nine(&ran), &[]).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!((failure.node.as_str(), failure.error.as_str()), ("n9", "api_key is not set"));
    let list = checkpoints::list(world.store.store(), &session, &CheckpointFilter::default(), ALL)
        .await
        .unwrap();
    assert_eq!(list.resume_from_checkpoint_id, failure.checkpoint);
    assert_eq!(
        list.latest_checkpoint_id.as_ref(),
        list.checkpoints.first().map(|c| &c.checkpoint_id)
    );
    assert_eq!(list.total_checkpoints, list.checkpoints.len());
    let point =
        list.checkpoints.iter().find(|c| Some(&c.checkpoint_id) == failure.checkpoint.as_ref());
    let point = point.unwrap();
    assert_eq!(
        (point.checkpoint_type, point.current_node.as_deref()),
        (CheckpointType::NodeStart, Some("n9"))
    );
    assert_eq!(point.error.as_deref(), Some("api_key is not set"));
    assert_eq!(point.failed_at_node.as_deref(), Some("n9"));

    let world = world.reopened();
    let unknown = inputs([("apikey", "x")]);
    let refused =
        nine(&ran).runner(&world.store).resume(&session, None, unknown).await.unwrap_err();
    assert_eq!(refused.hint(), "Did you mean `api_key`?");
    let secret = "sk-very-secret-0123456789";
    completed(world.resume(&nine(&ran), &session, &[("api_key", json!(secret))]).await);
    let expected = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n9", "n10"];
    assert_eq!(ran.all(), expected);
    let state = piton_store::load(&**world.store.store(), &session).await.unwrap().state;
    assert_eq!(state.facts.closed, None, "a run's end leaves the session open");
    let bytes = bytes_below(world.folder.path());
    assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()));
}

#[tokio::test]
async fn a_checkpoint_shows_all_that_it_holds() {
    let world = World::new();
    let graph = Graph::builder("shown")
        .input("a", ValueType::Integer)
        .optional_input("api_key", ValueType::String)
        .node("first", set([("b", json!("{{ a + 1 }}"))]))
        .node("second", set([("c", json!("{{ b + 1 }}"))]))
        .edge("first", "second")
        .build()
        .unwrap();
    let given = [("a", json!(1)), ("api_key", json!("sk-0123456789abc"))];
    let (session, outcome) = world.start(&graph, &given).await;
    completed(outcome);
    let all = listed(&world, &session).await;
    let kinds: Vec<_> =
        all.iter().map(|c| (c.checkpoint_type.as_str(), c.current_node.clone().unwrap())).collect();
    let expected = [
        ("node_start", "first"),
        ("node_complete", "first"),
        ("node_start", "second"),
        ("node_complete", "second"),
    ];
    assert_eq!(kinds, expected.map(|(kind, node)| (kind, node.to_owned())));
    let shown = checkpoints::load(world.store.store(), &session, Some(&all[1].checkpoint_id))
        .await
        .unwrap();
    let json = serde_json::to_value(&shown).unwrap();
    let fields: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    for field in [
        "checkpoint_id",
        "session_id",
        "checkpoint_type",
        "created_at",
        "current_node",
        "next_node",
        "execution_path",
        "shared_memory",
        "conversation_states",
        "accumulated_outputs",
        "metrics_snapshot",
        "is_clean",
        "can_resume_from",
        "description",
        "signature",
        "log_position",
        "parent",
        "lineage",
    ] {
        assert!(fields.contains(&field), "{field}");
    }
    assert_eq!(json["shared_memory"], json!({"a": 1, "b": 2}));
    assert_eq!(json["excluded_keys"], json!(["api_key"]));
    assert_eq!(json["next_node"], json!("second"));
    assert_eq!(json["execution_path"], json!(["first"]));
    assert_eq!(json["parent"], json!(all[0].checkpoint_id.as_str()));
    assert_eq!(json["signature"].as_str().unwrap().len(), 64);
    let ids: std::collections::BTreeSet<_> = all.iter().map(|c| &c.checkpoint_id).collect();
    assert_eq!(ids.len(), all.len());
}

#[tokio::test]
async fn an_older_checkpoint_opens_a_lineage_with_edited_memory() {
    let world = World::new();
    let ran = Ran::default();
    let graph = Graph::builder("lineage")
        .input("x", ValueType::Integer)
        .reducer("log", Reducer::Append)
        .node("a", set([("log", json!(["a{{ x }}"]))]))
        .node("b", set([("log", json!(["b{{ x }}"]))]))
        .node("c", custom(ran.node()))
        .edge("a", "b")
        .edge("b", "c")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[("x", json!(1))]).await;
    assert_eq!(completed(outcome)["log"], json!(["a1", "b1"]));
    let all = listed(&world, &session).await;
    let after_a =
        all.iter().find(|c| c.description == "`a` completed").unwrap().checkpoint_id.clone();
    let resume = async |checkpoint: &CheckpointId, x: i64| {
        let run = graph.runner(&world.store);
        let run = run.resume(&session, Some(checkpoint), inputs([("x", x)])).await.unwrap();
        assert_eq!(run.resumed_from(), Some(checkpoint));
        completed(run.finish().await.unwrap())
    };
    assert_eq!(
        resume(&after_a, 2).await["log"],
        json!(["a1", "b2"]),
        "the old branch does not count"
    );
    let view = checkpoints::view(world.store.store(), &session).await.unwrap();
    assert_eq!((view.lineage, view.execution_path.len()), (2, 3));
    assert_eq!(resume(&after_a, 3).await["log"], json!(["a1", "b3"]));
    assert_eq!(ran.all(), ["c", "c", "c"]);
    let second = listed(&world, &session).await;
    let of_second = second.iter().filter(|c| c.lineage == 2).count();
    assert_eq!(of_second, 4);
    // What a lineage began with stays.
    let gone = checkpoints::delete(&world.store, &session, &after_a).await.unwrap_err();
    assert_eq!(gone.code(), Code::CheckpointInUse);
    let verified = world.store.store().verify(&session).await.unwrap();
    assert_eq!(verified.problem, None);
}

#[tokio::test]
async fn a_fork_is_a_session_of_its_own() {
    let world = World::new();
    let ran = Ran::default();
    let graph = Graph::builder("fork")
        .input("x", ValueType::Integer)
        .node("a", set([("y", json!("{{ x * 10 }}"))]))
        .node("b", custom(ran.node()))
        .node("c", set([("z", json!("{{ y + x }}"))]))
        .edge("a", "b")
        .edge("b", "c")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[("x", json!(1))]).await;
    assert_eq!(completed(outcome)["z"], json!(11));
    let all = listed(&world, &session).await;
    let after_b = all.iter().find(|c| c.description == "`b` completed").unwrap();
    let forked = checkpoints::fork(&world.store, &session, &after_b.checkpoint_id).await.unwrap();
    let memory = completed(world.resume(&graph, &forked, &[("x", json!(5))]).await);
    assert_eq!(memory["z"], json!(15), "`y` is the first session's");
    assert_eq!(ran.all(), ["b"], "what completed before the fork does not run again");
    let first = checkpoints::load(world.store.store(), &session, None).await.unwrap();
    assert_eq!(first.shared_memory.unwrap()["z"], json!(11));
    assert!(matches!(world.events(&forked).await[2], Event::GraphForked(_)));
    assert_eq!(world.store.store().verify(&forked).await.unwrap().problem, None);
}

/// Wants to show: a checkpoint that was pruned or deleted does not come back in a fork.
#[tokio::test]
async fn a_fork_has_no_checkpoint_that_was_pruned_or_deleted() {
    let world = World::new();
    let ran = Ran::default();
    let (session, _) = world.start(&nine(&ran), &[]).await;
    let all = listed(&world, &session).await;
    let (deleted, newest) = (&all[all.len() - 3], all.last().unwrap());
    assert!(checkpoints::delete(&world.store, &session, &deleted.checkpoint_id).await.unwrap());
    let pruned = checkpoints::prune(&world.store, &session, 3, false).await.unwrap();
    assert!(!pruned.is_empty());
    let left = listed(&world, &session).await;
    let forked = checkpoints::fork(&world.store, &session, &newest.checkpoint_id).await.unwrap();
    let ids = |list: &[CheckpointSummary]| -> Vec<CheckpointId> {
        list.iter().map(|entry| entry.checkpoint_id.clone()).collect()
    };
    assert_eq!(ids(&listed(&world, &forked).await), ids(&left));
    let refused = checkpoints::load(world.store.store(), &forked, Some(&pruned[0])).await;
    assert_eq!(refused.unwrap_err().code(), Code::CheckpointNotFound);
    completed(world.resume(&nine(&ran), &forked, &[("api_key", json!("k"))]).await);
}

#[tokio::test]
async fn excluded_values_never_reach_the_disk_and_are_asked_for() {
    let world = World::new();
    let options: CheckpointOptions =
        serde_json::from_value(json!({"exclude_memory_keys": ["ssn"]})).unwrap();
    let build = |ran: &Ran| {
        Graph::builder("secrets")
            .input("ssn", ValueType::String)
            .input("password", ValueType::String)
            .optional_input("go", ValueType::Boolean)
            .checkpoints(options.clone())
            // What a command echoes is not written either.
            .node("echo", command(["cat"]).reads(["ssn", "password"]).writes(["echoed"]))
            .node("gate", custom(ran.needing("go")).reads(["go", "ssn"]))
            .node("end", template("done").writes(["end"]))
            .edge("echo", "gate")
            .edge("gate", "end")
            .build()
            .unwrap()
    };
    let ran = Ran::default();
    let (ssn, password) = ("078-05-1120-private", "correct horse battery staple 9");
    let given = [("ssn", json!(ssn)), ("password", json!(password))];
    let (session, outcome) = world.start(&build(&ran), &given).await;
    assert!(matches!(outcome, Outcome::Failed(_)));
    let records = world.records(&session).await;
    let text = format!("{records:?}");
    assert!(text.contains("[masked]"), "what was echoed is there, masked");
    assert!(!text.contains(ssn) && !text.contains(password));
    let world = world.reopened();
    let graph = build(&ran);
    let refused = graph.runner(&world.store).resume(&session, None, inputs([("go", true)])).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::MemoryValueRequired);
    assert!(
        refused.to_string().ends_with(": ssn"),
        "{refused}: nothing reads the password any more"
    );
    let set = [("go", json!(true)), ("ssn", json!(ssn))];
    completed(world.resume(&graph, &session, &set).await);
    assert_eq!(ran.all(), ["gate", "gate"]);
    let text = format!("{:?}", world.records(&session).await);
    assert!(!text.contains(ssn) && !text.contains(password));
}

#[tokio::test]
async fn a_graph_that_changed_is_checked_before_it_is_resumed() {
    let world = World::new();
    let ran = Ran::default();
    let build = |names: [&str; 3]| {
        Graph::builder("changing")
            .optional_input("go", ValueType::Boolean)
            .node(names[0], set([("x", json!(1))]))
            .node(names[1], set([("y", json!(2))]))
            .node(names[2], custom(ran.needing("go")).reads(["go"]))
            .edge(names[0], names[1])
            .edge(names[1], names[2])
            .build()
            .unwrap()
    };
    let (session, outcome) = world.start(&build(["a", "b", "c"]), &[]).await;
    assert!(matches!(outcome, Outcome::Failed(_)));
    let renamed = build(["a", "renamed", "c"]);
    let refused =
        renamed.runner(&world.store).resume(&session, None, Map::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::CheckpointIncompatible);
    let all = listed(&world, &session).await;
    let after_a = all.iter().rfind(|c| {
        c.current_node.as_deref() == Some("b") && c.checkpoint_type == CheckpointType::NodeStart
    });
    let after_a = after_a.unwrap().checkpoint_id.clone();
    assert!(refused.to_string().contains(&format!("{after_a} is the nearest")), "{refused}");
    let run = renamed.runner(&world.store).resume(&session, Some(&after_a), inputs([("go", true)]));
    completed(run.await.unwrap().finish().await.unwrap());
    assert_eq!(ran.all(), ["c", "c"], "the renamed node leads on");
    let bound = world.events(&session).await;
    let bound = bound.iter().filter(|event| matches!(event, Event::GraphBound(_))).count();
    assert_eq!(bound, 2, "the log says that the graph changed");
    let other = Graph::builder("other").node("a", template("x").writes(["x"])).build().unwrap();
    let refused = other.runner(&world.store).resume(&session, None, Map::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::SessionNotGraph);
}

#[tokio::test]
async fn checkpoints_are_pruned_and_deleted() {
    let world = World::new();
    let options = |json: Value| serde_json::from_value::<CheckpointOptions>(json).unwrap();
    let mut graph = Graph::builder("many");
    for n in 0..12 {
        graph = graph.node(format!("n{n}"), set([(format!("k{n}"), json!(n))]));
    }
    for n in 1..12 {
        graph = graph.edge(format!("n{}", n - 1), format!("n{n}"));
    }
    let graph = graph.build().unwrap();
    let limited = options(json!({"max_checkpoints_per_session": 5, "prune_after_node_count": 4}));
    let run = graph.runner(&world.store).checkpoints(limited).start(Map::new()).await.unwrap();
    let session = run.session().clone();
    completed(run.finish().await.unwrap());
    assert_eq!(listed(&world, &session).await.len(), 5);
    let newest = listed(&world, &session).await.pop().unwrap().checkpoint_id;
    let pruned = checkpoints::prune(&world.store, &session, 2, false).await.unwrap();
    assert_eq!(pruned.len(), 3);
    let refused = checkpoints::delete(&world.store, &session, &newest).await.unwrap_err();
    assert_eq!(refused.code(), Code::CheckpointInUse);
    let oldest = listed(&world, &session).await.remove(0).checkpoint_id;
    assert!(checkpoints::delete(&world.store, &session, &oldest).await.unwrap());
    assert!(!checkpoints::delete(&world.store, &session, &oldest).await.unwrap());
    let left: Vec<_> =
        listed(&world, &session).await.into_iter().map(|c| c.checkpoint_id).collect();
    assert_eq!(left, [newest]);
    let gone = graph.runner(&world.store).resume(&session, Some(&oldest), Map::new()).await;
    assert_eq!(gone.unwrap_err().code(), Code::CheckpointNotFound);

    let off = options(json!({"enabled": false}));
    let run = graph.runner(&world.store).checkpoints(off).start(Map::new()).await.unwrap();
    let session = run.session().clone();
    completed(run.finish().await.unwrap());
    assert_eq!(listed(&world, &session).await, [], "it runs without them");
    let all = options(json!({"checkpoint_on_edge": true, "include_full_memory": false}));
    let run = graph.runner(&world.store).checkpoints(all).start(Map::new()).await.unwrap();
    let session = run.session().clone();
    completed(run.finish().await.unwrap());
    let kinds = listed(&world, &session).await;
    let edges =
        kinds.iter().filter(|c| c.checkpoint_type == CheckpointType::EdgeTransition).count();
    assert_eq!(edges, 11);
    let shown = checkpoints::load(world.store.store(), &session, None).await.unwrap();
    assert_eq!(shown.shared_memory, None);
    let conflict = options(json!({"encrypt_checkpoints": false}));
    let refused = graph.runner(&world.store).checkpoints(conflict).start(Map::new()).await;
    assert_eq!(refused.unwrap_err().code(), Code::ConfigConflict);
    let cloud = options(json!({"storage_backend": "s3"}));
    let refused = graph.runner(&world.store).checkpoints(cloud).start(Map::new()).await;
    assert_eq!(refused.unwrap_err().code(), Code::StoreUnsupported);
}

struct Forever;

#[async_trait]
impl Node for Forever {
    async fn run(&self, _ctx: &mut NodeContext) -> Result<(), NodeError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_session_that_runs_elsewhere_is_not_resumed() {
    let world = World::new();
    let graph = Graph::builder("owned").node("n", custom(Forever)).build().unwrap();
    let run = graph.runner(&world.store).start(Map::new()).await.unwrap();
    let session = run.session().clone();
    let twice = graph.runner(&world.store).resume(&session, None, Map::new()).await.unwrap_err();
    assert_eq!(twice.code(), Code::SessionOwned, "not in this process either");
    let other = piton_graph::open(world.folder.path()).unwrap();
    let refused = graph.runner(&other).resume(&session, None, Map::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::SessionOwned);
    let unknown =
        graph.runner(&other).resume(&"sess_none".parse().unwrap(), None, Map::new()).await;
    assert_eq!(unknown.unwrap_err().code(), Code::SessionNotFound);
}
