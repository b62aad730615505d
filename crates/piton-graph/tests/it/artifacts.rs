//! Files that nodes leave with their session.

use piton_core::Code;
use piton_core::graph::CheckpointFilter;
use piton_graph::{Graph, Outcome, checkpoints};

use crate::world::{World, completed};

const GRAPH: &str = r#"
piton: graph/v1
name: files
nodes:
  one:
    command: [sh, -c, 'printf text > "$PITON_ARTIFACTS/a.txt"; printf "\377\0" > "$PITON_ARTIFACTS/b.bin"; echo "$PITON_ARTIFACTS"']
    artifacts: true
    writes: folder
  inner:
    subgraph:
      graph:
        nodes:
          two: {command: [sh, -c, 'echo later > "$PITON_ARTIFACTS/a.txt"'], artifacts: true}
  none: {command: [sh, -c, 'test -z "$PITON_ARTIFACTS"']}
edges: [one -> inner -> none]
"#;

#[tokio::test]
async fn a_command_leaves_files_that_are_listed_and_read_and_restored() {
    let world = World::new();
    let (session, outcome) = world.start(&Graph::from_text(GRAPH).unwrap(), &[]).await;
    let folder = completed(outcome)["folder"].as_str().unwrap().to_owned();
    assert!(!std::path::Path::new(&folder).exists(), "the folder is removed");
    let world = world.reopened();
    let store = world.store.store();
    let list = async |node: Option<&str>| {
        let found = checkpoints::artifacts(store, &session, None, node).await.unwrap();
        found.into_iter().map(|one| (one.name, one.node, one.bytes)).collect::<Vec<_>>()
    };
    let a = ("a.txt".to_owned(), "inner/two".to_owned(), 6);
    let b = ("b.bin".to_owned(), "one".to_owned(), 2);
    assert_eq!(list(None).await, [a.clone(), b.clone()]);
    assert_eq!(list(Some("inner")).await, [a]);
    assert_eq!(list(Some("one")).await, [b]);
    assert_eq!(list(Some("on")).await, []);
    assert_eq!(checkpoints::artifact(store, &session, "a.txt").await.unwrap(), b"later\n");
    assert_eq!(checkpoints::artifact(store, &session, "b.bin").await.unwrap(), b"\xff\0");
    let error = checkpoints::artifact(store, &session, "../a.txt").await.unwrap_err();
    assert_eq!(error.code(), Code::ArtifactNotFound);
    // A checkpoint has those that there were.
    let filter = CheckpointFilter { node: Some("one".into()), ..Default::default() };
    let all = checkpoints::list(store, &session, &filter, 10).await.unwrap().checkpoints;
    let held = checkpoints::load(store, &session, Some(&all[0].checkpoint_id)).await.unwrap();
    let held: Vec<_> = held.artifacts.into_iter().map(|one| (one.name, one.node)).collect();
    let before = ["a.txt", "b.bin"].map(|name| (name.to_owned(), "one".to_owned()));
    assert_eq!(held, before);
}

#[tokio::test]
async fn what_is_no_plain_file_of_a_plain_name_fails_the_node() {
    let world = World::new();
    for (script, code, said) in [
        ("mkdir d", Code::NodeOutputInvalid, "The artifact `d` is no plain file"),
        ("ln -s /etc/passwd l", Code::NodeOutputInvalid, "The artifact `l` is no plain file"),
        ("touch 'a b'", Code::NodeOutputInvalid, "`a b` is no name of an artifact"),
        ("touch .hidden", Code::NodeOutputInvalid, "`.hidden` is no name of an artifact"),
        ("truncate -s 1G big", Code::PayloadTooLarge, "The artifact `big` has 1073741824 bytes"),
        ("touch $(seq 101)", Code::NodeOutputInvalid, "more than 100 artifacts"),
    ] {
        let text = format!(
            "piton: graph/v1\nname: bad\nnodes:\n  a: {{command: [sh, -c, \"cd $PITON_ARTIFACTS; {script}\"], artifacts: true}}\n"
        );
        let (session, outcome) = world.start(&Graph::from_text(&text).unwrap(), &[]).await;
        let Outcome::Failed(failure) = outcome else { panic!("{script}: {outcome:?}") };
        assert_eq!(failure.code.as_str(), code.as_str(), "{script}");
        assert!(failure.error.contains(said), "{script}: {}", failure.error);
        let left = checkpoints::artifacts(world.store.store(), &session, None, None).await.unwrap();
        assert_eq!(left, []);
    }
}
