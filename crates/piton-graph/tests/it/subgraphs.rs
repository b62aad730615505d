//! Graphs in graphs: written in place, in a file, in Rust.

use std::time::Duration;

use piton_core::graph::CheckpointFilter;
use piton_core::{Code, Event};
use piton_graph::{
    EdgeSpec, Error, Graph, Outcome, Reducer, ValueType, answer, checkpoints, command, custom,
    inputs, set, subgraph, template,
};
use serde_json::{Map, json};

use crate::world::{Ran, World, completed};

const OUTER: &str = "
piton: graph/v1
name: outer
inputs: {words: {type: array}}
nodes:
  before: {set: {text: from outside}}
  count:
    subgraph:
      graph:
        inputs: {items: {type: array}, more: {type: integer, default: 1}}
        nodes:
          each:
            map: {over: items, as: item}
            template: \"{{ item | upper }}\"
            writes: text
          sum: {set: {total: \"{{ (text | length) + more }}\"}}
          long: {template: long, writes: size}
          short: {template: short, writes: size}
        memory: {size: {reducer: replace}}
        edges:
          - each -> sum
          - {from: sum, to: long, when: total > 3}
          - {from: sum, to: short, when: total <= 3}
      inputs: {items: \"{{ words }}\"}
      outputs: {total: total, kind: size}
  after: {template: \"{{ text }}: {{ total }} {{ kind }}\", writes: said}
edges:
  - before -> count -> after
";

#[tokio::test]
async fn a_graph_in_a_graph_has_a_memory_of_its_own() {
    let world = World::new();
    let graph = Graph::from_text(OUTER).unwrap();
    let (session, outcome) = world.start(&graph, &[("words", json!(["a", "b"]))]).await;
    let memory = completed(outcome);
    // The inner key `text` is another one than the outer.
    assert_eq!(memory["said"], json!("from outside: 3 short"));
    assert_eq!(memory["text"], json!("from outside"));
    assert!(memory.keys().all(|key| !key.contains('/')), "{memory:?}");

    let store = world.store.store();
    let overview = checkpoints::overview(store, &session, true).await.unwrap();
    let path = ["before", "count/each", "count/sum", "count/short", "count", "after"];
    assert_eq!(overview.execution_path, path);
    let shown: Vec<(&str, &str, &str)> =
        overview.nodes.iter().map(|n| (n.node.as_str(), n.kind, n.state)).collect();
    assert_eq!(
        shown,
        [
            ("after", "template", "completed"),
            ("before", "set", "completed"),
            ("count", "subgraph", "completed"),
            ("count/each", "template", "completed"),
            ("count/long", "template", "skipped"),
            ("count/short", "template", "completed"),
            ("count/sum", "set", "completed"),
        ]
    );
    let edge = overview.edges.iter().find(|edge| edge.to == "count/short").unwrap();
    assert_eq!((edge.from.as_str(), edge.is_taken), ("count/sum", true));
    assert_eq!(overview.memory.unwrap()["count/text"], json!(["A", "B"]));
    let timeline = checkpoints::timeline(store, &session).await.unwrap();
    let nodes = |kind: &str| {
        let entries = timeline.iter().filter(|entry| entry.kind == kind);
        entries.map(|entry| entry.node.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(nodes("node.completed"), path);
    assert_eq!(
        nodes("node.started"),
        ["before", "count", "count/each", "count/sum", "count/short", "after"]
    );
    // The log has all of it, in one spec with one hash.
    let recorded = Graph::recorded(store, &session).await.unwrap();
    assert_eq!((recorded.spec(), recorded.hash()), (graph.spec(), graph.hash()));
}

#[tokio::test]
async fn a_checkpoint_inside_is_resumed_from_with_another_value() {
    let world = World::new();
    let graph = Graph::from_text(OUTER).unwrap();
    let (session, outcome) = world.start(&graph, &[("words", json!(["a", "b"]))]).await;
    completed(outcome);
    let filter = CheckpointFilter { node: Some("count/sum".into()), ..Default::default() };
    let list = checkpoints::list(world.store.store(), &session, &filter, 10).await.unwrap();
    let start = list.checkpoints.iter().find(|one| one.description.contains("Before")).unwrap();
    let id = &start.checkpoint_id;
    let held = checkpoints::load(world.store.store(), &session, Some(id)).await.unwrap();
    assert_eq!(held.execution_path, ["before", "count/each"]);
    let set = inputs([("count/more", json!(5))]);
    let run = graph.runner(&world.store).resume(&session, Some(id), set).await.unwrap();
    assert_eq!(completed(run.finish().await.unwrap())["said"], json!("from outside: 7 long"));
    let events = world.events(&session).await;
    let counts = events
        .iter()
        .filter(|event| matches!(event, Event::NodeCompleted(e) if e.path == "count/each"));
    assert_eq!(counts.count(), 1, "what completed before the checkpoint does not run again");
    let set = inputs([("count/mroe", json!(5))]);
    let error = graph.runner(&world.store).resume(&session, Some(id), set).await.unwrap_err();
    assert_eq!(error.hint(), "Did you mean `count/more`?");
}

/// An inner graph whose second node needs a key that is never saved.
fn needing(ran: &Ran) -> Graph {
    let inner = Graph::builder("inner")
        .optional_input("api_key", ValueType::String)
        .node("first", ran.node())
        .node("second", custom(ran.needing("api_key")).reads(["api_key"]))
        .edge("first", "second")
        .build()
        .unwrap();
    let middle = Graph::builder("middle")
        .optional_input("api_key", ValueType::String)
        .node("deep", subgraph(&inner).given("api_key", "{{ api_key }}"))
        .build()
        .unwrap();
    Graph::builder("needing")
        .optional_input("api_key", ValueType::String)
        .node("begin", ran.node())
        .node("outer", subgraph(&middle).given("api_key", "{{ api_key }}"))
        .node("end", ran.node())
        .edge("begin", "outer")
        .edge("outer", "end")
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_failure_inside_is_resumed_where_it_was_with_the_key_set_outside() {
    let mut world = World::new();
    let ran = Ran::default();
    let graph = needing(&ran);
    let (session, outcome) = world.start(&graph, &[]).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.node, "outer/deep/second");
    let view = checkpoints::view(world.store.store(), &session).await.unwrap();
    assert_eq!(view.failed_at_node.as_deref(), Some("outer/deep/second"));
    assert_eq!(view.resume_from, failure.checkpoint);
    // The input came to nothing when the graphs began; a value for the whole graph changes nothing there.
    let outcome = world.resume(&graph, &session, &[("outer/deep/api_key", json!("sk-1"))]).await;
    completed(outcome);
    let all = ["begin", "outer/deep/first", "outer/deep/second", "outer/deep/second", "end"];
    assert_eq!(ran.all(), all);

    // Given from the start and lost with the process: the key is asked for by its outer name.
    let ran = Ran::default();
    let slow = Graph::builder("slow")
        .input("api_key", ValueType::String)
        .node("ask", piton_graph::human("Go on?").writes(["said"]))
        .node("use", custom(ran.needing("api_key")).reads(["api_key"]))
        .edge("ask", "use")
        .build()
        .unwrap();
    let graph = Graph::builder("keyed")
        .input("api_key", ValueType::String)
        .node("outer", subgraph(&slow).given("api_key", "{{ api_key }}"))
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[("api_key", json!("sk-secret-1"))]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    assert_eq!(waits[0].node, "outer/ask");
    world = world.reopened();
    answer(&world.store, &session, &waits[0].wait_id, json!("yes")).await.unwrap();
    let runner = graph.runner(&world.store);
    match runner.resume(&session, None, Map::new()).await.unwrap_err() {
        Error::ValuesRequired { keys } => assert_eq!(keys, ["api_key"]),
        other => panic!("{other}"),
    }
    completed(world.resume(&graph, &session, &[("api_key", json!("sk-secret-1"))]).await);
    assert_eq!(ran.all(), ["outer/use"]);
    let bytes = crate::world::bytes_below(world.folder.path());
    assert!(!bytes.windows(11).any(|window| window == b"sk-secret-1"));
}

#[tokio::test]
async fn a_failure_inside_takes_the_edge_of_the_graph_around() {
    let world = World::new();
    let ran = Ran::default();
    let inner = Graph::builder("inner")
        .node("fails", custom(ran.needing("missing")).reads(["missing"]))
        .node("slow", command(["sleep", "600"]))
        .node("behind", ran.node())
        .edge("fails", "behind")
        .replaceable("missing")
        .build()
        .unwrap();
    let graph = Graph::builder("handled")
        .node("outer", subgraph(&inner))
        .node("rescue", ran.node())
        .node("never", ran.node())
        .edge("outer", "never")
        .edge_spec(EdgeSpec { on_error: true, ..EdgeSpec::new("outer", "rescue") })
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    completed(outcome);
    assert_eq!(ran.all(), ["outer/fails", "rescue"]);
    let view = checkpoints::view(world.store.store(), &session).await.unwrap();
    assert_eq!((view.failed_at_node, view.execution_path), (None, vec!["rescue".to_owned()]));
}

#[tokio::test]
async fn a_cycle_around_a_subgraph_begins_it_again() {
    let world = World::new();
    let inner = Graph::builder("inner")
        .input("n", ValueType::Integer)
        .reducer("list", Reducer::Append)
        .node("one", set([("list", json!(["{{ n }}"]))]))
        .node("two", set([("list", json!(["x"]))]))
        .edge("one", "two")
        .build()
        .unwrap();
    let graph = Graph::builder("again")
        .reducer("n", Reducer::Add)
        .node("add", set([("n", json!(1))]))
        .node("inner", subgraph(&inner).given("n", "{{ n }}").taking("last", "list"))
        .node("end", template("{{ last | join('-') }}").writes(["said"]))
        .edge("add", "inner")
        .edge_spec(EdgeSpec { priority: 1, max: Some(2), ..EdgeSpec::new("inner", "add") })
        .edge("inner", "end")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    assert_eq!(completed(outcome)["said"], json!("3-x"));
    let overview = checkpoints::overview(world.store.store(), &session, false).await.unwrap();
    let visits = overview.nodes.iter().map(|node| (node.node.as_str(), node.visit));
    assert!(visits.into_iter().any(|visit| visit == ("inner/one", 3)));
}

#[tokio::test]
async fn people_loops_and_retries_inside() {
    let world = World::new();
    let graph = Graph::from_text(
        "
piton: graph/v1
name: people
nodes:
  outer:
    subgraph:
      graph:
        nodes:
          turn:
            loop: {max_iterations: 5, until: \"n == 2\"}
            command: [sh, -c, 'echo \"{\\\"outputs\\\": {\\\"n\\\": 2}, \\\"messages\\\": [\\\"hi\\\"]}\"']
            output: json
            writes: n
          ask: {human: {question: \"{{ n }}?\", options: [yes, no]}, writes: said}
        edges: [turn -> ask]
      outputs: [said]
",
    )
    .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    let question =
        checkpoints::question(world.store.store(), &session, &waits[0].wait_id).await.unwrap();
    assert_eq!((waits[0].node.as_str(), question.text.as_str()), ("outer/ask", "2?"));
    answer(&world.store, &session, &waits[0].wait_id, json!("yes")).await.unwrap();
    assert_eq!(completed(world.resume(&graph, &session, &[]).await)["said"], json!("yes"));
}

/// The mistake in a graph file, and the file and location that it names.
fn mistake(folder: &std::path::Path, text: &str) -> String {
    let file = folder.join("outer.yaml");
    std::fs::write(&file, text).unwrap();
    let error = Graph::from_file(&file).unwrap_err();
    assert_eq!(error.code(), Code::GraphInvalid);
    error.to_string().replace(&format!("{}/", folder.display()), "")
}

#[test]
fn files_are_found_beside_the_file_that_names_them_and_mistakes_at_their_place() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("parts")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let head = "piton: graph/v1\nname: outer\nnodes:\n";
    let naming = format!("{head}  a: {{subgraph: {{file: parts/inner.yaml}}}}\n");
    write(
        "parts/inner.yaml",
        "piton: graph/v1\nname: inner\nnodes:\n  b: {subgraph: {file: deep.yaml}}\n",
    );
    write("parts/deep.yaml", "piton: graph/v1\nname: deep\nnodes: {c: {set: {x: 1}}}\n");
    write("outer.yaml", &naming);
    let graph = Graph::from_file(folder.path().join("outer.yaml")).unwrap();
    let paths: Vec<String> = graph.spec().all_nodes().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["a", "a/b", "a/b/c"]);
    // The same written in place is the same graph.
    let inline = "piton: graph/v1\nname: outer\nnodes: {a: {subgraph: {graph: {name: inner, nodes: {b: {subgraph: {graph: {name: deep, nodes: {c: {set: {x: 1}}}}}}}}}}}";
    assert_eq!(Graph::from_text(inline).unwrap().hash(), graph.hash());

    write("parts/deep.yaml", "piton: graph/v1\nname: deep\nnodes:\n  c: {tempalte: x}\n");
    let said = mistake(folder.path(), &naming);
    assert_eq!(said, "The node `c` has no field `tempalte`\n  --> parts/deep.yaml:4:7");
    write(
        "parts/deep.yaml",
        "piton: graph/v1\nname: deep\nnodes:\n  c: {template: x, reads: y, writes: z}\n",
    );
    let said = mistake(folder.path(), &naming);
    assert!(
        said.ends_with("which no node writes and no input declares\n  --> parts/deep.yaml:4:27"),
        "{said}"
    );
    write(
        "parts/deep.yaml",
        "piton: graph/v1\nname: deep\nnodes:\n  c: {subgraph: {file: ../outer.yaml}}\n",
    );
    let said = mistake(folder.path(), &naming);
    assert_eq!(
        said,
        "The file parts/../outer.yaml is a subgraph of itself\n  --> parts/deep.yaml:4:24"
    );
    std::fs::remove_file(folder.path().join("parts/deep.yaml")).unwrap();
    let said = mistake(folder.path(), &naming);
    assert!(said.starts_with("The file parts/deep.yaml cannot be read: "), "{said}");
    assert!(said.ends_with("\n  --> parts/inner.yaml:4:24"), "{said}");

    let inner = "{inputs: {n: {type: integer}}, nodes: {c: {set: {x: \"{{ n }}\"}}}}";
    for (node, expected) in [
        (
            format!("{{subgraph: {{graph: {inner}, inputs: {{m: 1}}}}}}"),
            "The graph of `a` has no input `m`\n  --> outer.yaml:4:101",
        ),
        (
            format!("{{subgraph: {{graph: {inner}}}}}"),
            "The graph of `a` needs the input `n`\n  --> outer.yaml:4:17",
        ),
        (
            format!("{{subgraph: {{graph: {inner}, inputs: {{n: 1}}, outputs: {{y: z}}}}}}"),
            "The graph of `a` has no key `z`\n  --> outer.yaml:4:118",
        ),
        (
            format!("{{subgraph: {{graph: {inner}, inputs: {{n: 1}}}}, retry: {{times: 1}}}}"),
            "A subgraph has no `retry` of its own\n  --> outer.yaml:4:116",
        ),
        (
            "{subgraph: {inputs: {n: 1}}}".to_owned(),
            "A subgraph needs one of `graph` and `file`\n  --> outer.yaml:4:17",
        ),
    ] {
        assert_eq!(mistake(folder.path(), &format!("{head}  a: {node}\n")), expected);
    }
    // A graph that came as text has no folder.
    let error = Graph::from_text(&naming).unwrap_err();
    assert!(error.hint().contains("write the graph in its place"), "{}", error.hint());
}

#[test]
fn depth_and_size_have_limits() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    for n in 0..12 {
        let text = format!(
            "piton: graph/v1\nname: g{n}\nnodes: {{a: {{subgraph: {{file: g{}.yaml}}}}}}\n",
            n + 1
        );
        write(&format!("g{n}.yaml"), &text);
    }
    let error = Graph::from_file(folder.path().join("g0.yaml")).unwrap_err();
    assert!(error.to_string().starts_with("Graphs are nested more than 8 deep"), "{error}");
    let mut graph = Graph::builder("g").node("a", set([("x", json!(1))])).build().unwrap();
    for _ in 0..8 {
        graph = Graph::builder("g").node("a", subgraph(&graph)).build().unwrap();
    }
    let error = Graph::builder("g").node("a", subgraph(&graph)).build().unwrap_err();
    assert!(error.to_string().starts_with("Graphs are nested more than 8 deep"), "{error}");
    // Few files that name each other many times are many nodes.
    for n in 0..8 {
        let nodes: Vec<String> =
            (0..5).map(|m| format!("  a{m}: {{subgraph: {{file: w{}.yaml}}}}\n", n + 1)).collect();
        write(
            &format!("w{n}.yaml"),
            &format!("piton: graph/v1\nname: w{n}\nnodes:\n{}", nodes.concat()),
        );
    }
    write("w8.yaml", "piton: graph/v1\nname: w8\nnodes: {a: {set: {x: 1}}}\n");
    let began = std::time::Instant::now();
    let error = Graph::from_file(folder.path().join("w0.yaml")).unwrap_err();
    assert!(error.to_string().contains("more than 500 nodes"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_value_of_another_type_fails_the_node_before_its_graph_runs() {
    let world = World::new();
    let ran = Ran::default();
    let inner = Graph::builder("inner")
        .input("n", ValueType::Integer)
        .node("a", ran.node())
        .build()
        .unwrap();
    let graph = Graph::builder("typed")
        .node("begin", set([("n", json!("many"))]))
        .node("outer", subgraph(&inner).given("n", "{{ n }}"))
        .edge("begin", "outer")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!((failure.node.as_str(), failure.code.as_str()), ("outer", "graph_input_invalid"));
    assert_eq!(ran.all(), Vec::<String>::new());
    let memory = completed(world.resume(&graph, &session, &[("n", json!(7))]).await);
    assert_eq!((memory["n"].clone(), ran.all()), (json!(7), vec!["outer/a".to_owned()]));
}
