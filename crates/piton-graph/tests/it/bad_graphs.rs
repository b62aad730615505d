//! Every mistake in a graph is found before it runs, at its place.

use piton_core::Code;
use piton_graph::{Error, Graph, ValueType, command, inputs, template};

use crate::world::World;

/// The place and the message of the mistake in a graph, and the hint.
fn mistake(text: &str) -> (String, String) {
    match Graph::from_text(text) {
        Err(Error::Spec(error)) => {
            let place = error.location.map(|at| format!("{}:{} ", at.line, at.column));
            (
                format!("{}{}", place.unwrap_or_default(), error.message),
                error.hint.unwrap_or_default(),
            )
        }
        other => panic!("{other:?}"),
    }
}

const HEAD: &str = "piton: graph/v1\nname: test\n";

fn graph(rest: &str) -> String {
    format!("{HEAD}{rest}")
}

#[test]
fn a_mistake_names_its_place_and_what_was_meant() {
    for (text, said, hint) in [
        (
            "inputs:\n  api_key: {type: string, required: false}\nnodes:\n  publish: {command: [./p.sh], reads: apikey}\n",
            "6:39 Node `publish` reads `apikey`, which no node writes and no input declares",
            "did you mean `api_key`?",
        ),
        (
            "nodes:\n  collect: {template: x, writes: a}\nedges:\n  - collect -> analyse\n",
            "6:5 An edge from `collect` leads to `analyse`, and there is no node `analyse`",
            "",
        ),
        (
            "nodes:\n  a: {template: x, writes: x}\n  b: {template: y, writes: y}\nedges:\n  - a -> b\n  - b -> a\n",
            "7:5 The nodes `a` -> `b` -> `a` form a cycle, and none of its edges has a limit",
            "give the edge that leads back a limit: `max: 3`",
        ),
        (
            "nodes:\n  a: {template: x, writes: x}\n  b: {template: y, writes: y}\nedges:\n  - {from: a, to: b, when: \"x ==\"}\n",
            "7:28 The condition `x ==` does not parse: unexpected end of input, expected expression",
            "",
        ),
        (
            "nodes:\n  a: {template: x, writes: decision}\n  b: {template: y, writes: y}\nedges:\n  - {from: a, to: b, when: \"descision == 'x'\"}\n",
            "7:28 The condition `descision == 'x'` uses `descision`, which no node writes and no input declares",
            "did you mean `decision`?",
        ),
        (
            "nodes:\n  a: {template: x, writes: x, timeout: 20}\n",
            "4:40 `20` is no span of time",
            "write a number and its unit: `500ms`, `30s`, `20m`, `2h`, `7d`",
        ),
        (
            "checkpoint: {checkpoint_on_egde: true}\nnodes:\n  a: {template: x, writes: x}\n",
            "3:14 `checkpoint` has no field `checkpoint_on_egde`",
            "did you mean `checkpoint_on_edge`?",
        ),
        (
            "nodes:\n  a: {template: x, writes: x}\n  b: {template: x, writes: x}\n",
            "5:28 `a` and `b` both write `x`, and neither comes before the other",
            "declare how they are joined: `memory: {x: {reducer: append}}`; `replace` if only one of them ever runs",
        ),
        (
            "inputs: {api_key: {}}\nnodes:\n  a: {command: [curl, \"{{ api_key }}\"]}\n",
            "5:16 The command of `a` has the excluded key `api_key` in an argument, where other processes see it",
            "name it in `reads`: it comes on standard input",
        ),
        (
            "nodes:\n  a: {command: ls}\n",
            "4:16 A command is a list: the program, then each argument",
            "write `command: [program, argument]`",
        ),
        (
            "nodes:\n  a: {writes: x}\n",
            "4:6 The node `a` needs one of `command`, `set`, `template`, `human`, `agent`, `subgraph`, `custom`",
            "",
        ),
        (
            "nodes:\n  a: {template: \"{{ x\", writes: x}\n",
            "4:17 A template of the node `a` does not parse: unexpected end of input, expected end of variable block",
            "",
        ),
    ] {
        assert_eq!(mistake(&graph(text)), (said.to_owned(), hint.to_owned()), "{text}");
    }
}

#[test]
fn what_is_no_graph_file_is_refused() {
    for (text, said) in [
        ("", "The graph file is empty"),
        ("piton: graph/v2\n", "This version of Piton reads `piton: graph/v1`"),
        ("name: x\n", "A graph file begins with its version"),
        ("piton: graph/v1\nname: [x\n", "The file is not valid YAML"),
        ("piton: graph/v1\nname: x\nname: y\n", "The key `name` stands here twice"),
        ("a: &a [x]\nb: *a\n", "Anchors and aliases are not supported"),
        ("piton: graph/v1\nname: x\nnodes: {}\n", "The graph has no nodes"),
    ] {
        let (found, _) = mistake(text);
        assert!(found.contains(said), "{text:?}: {found}");
    }
    let deep = format!("piton: {}1{}", "[".repeat(200), "]".repeat(200));
    assert!(mistake(&deep).0.contains("nested too deeply"));
    let long = format!("{HEAD}# {}", "x".repeat(piton_graph::FILE_BYTES_MAX));
    assert!(mistake(&long).0.contains("more than"));
}

#[test]
fn json_is_read_as_well_and_order_does_not_change_the_hash() {
    let yaml =
        graph("nodes:\n  a: {template: x, writes: x}\n  b: {set: {n: 7}}\nedges: [a -> b]\n");
    let json = r#"{"name":"test","piton":"graph/v1","edges":["a -> b"],
        "nodes":{"b":{"set":{"n":7}},"a":{"writes":["x"],"template":"x"}}}"#;
    let (yaml, json) = (Graph::from_text(&yaml).unwrap(), Graph::from_text(json).unwrap());
    assert_eq!(yaml.hash(), json.hash());
    let built = Graph::builder("test")
        .node("a", template("x").writes(["x"]))
        .node("b", piton_graph::set([("n", 7.into())]))
        .edge("a", "b")
        .build()
        .unwrap();
    assert_eq!(built.hash(), yaml.hash());
    let other = Graph::builder("test").node("a", template("y").writes(["x"])).build().unwrap();
    assert_ne!(other.hash(), yaml.hash());
}

#[test]
fn an_error_in_a_file_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.yaml");
    std::fs::write(&path, graph("nodes:\n  a: {tempalte: x}\n")).unwrap();
    let error = Graph::from_file(&path).unwrap_err();
    let place = format!("  --> {}:4:7", path.display());
    assert_eq!(error.to_string(), format!("The node `a` has no field `tempalte`\n{place}"));
    assert_eq!(
        (error.code(), error.hint().as_str()),
        (Code::GraphInvalid, "did you mean `template`?")
    );
    assert_eq!(
        Graph::from_file(folder.path().join("none")).unwrap_err().code(),
        Code::GraphInvalid
    );
}

#[tokio::test]
async fn inputs_are_checked_before_anything_starts() {
    let world = World::new();
    let graph = Graph::builder("g")
        .input("repos", ValueType::Array)
        .node("a", command(["true"]).reads(["repos"]))
        .build()
        .unwrap();
    for (given, said) in [
        (inputs([("x", 1)]), "The graph has no input `x`"),
        (inputs::<&str, i32>([]), "The input `repos` is required"),
        (inputs([("repos", "a")]), "`repos` has to be of the type `array`"),
    ] {
        let error = graph.runner(&world.store).start(given).await.unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (Code::GraphInputInvalid, said));
    }
}
