//! Graphs on a real server that is killed: what runs is continued, and an agent gets its prompt once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::world::World;

/// The session's records, once one of them is of this kind.
fn records_with(world: &World, session: &str, kind: &str) -> Vec<Value> {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        let records = world.records(session);
        if records.iter().any(|record| record["kind"] == kind) {
            return records;
        }
        assert!(Instant::now() < end, "there is no {kind}: {records:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn count(records: &[Value], kind: &str) -> usize {
    records.iter().filter(|record| record["kind"] == kind).count()
}

/// Wants to show: a server that is killed in the middle of an agent's turn continues the graph when it is
/// started again; the agent is found again and got the prompt once.
#[test]
fn a_killed_server_continues_a_graph_and_finds_its_agent_again() {
    let mut world = World::new();
    let graph = "piton: graph/v1\nname: killed\nnodes:\n  a: {agent: {profile: echo, prompt: \"tool look\\nwait 1500\\nsay done\"}, writes: said}\n  b: {template: \"{{ said }}!\", writes: out}\nedges: [a -> b]\n";
    let started = world.post("/api/v1/graphs/run", &json!({"graph": graph})).good();
    let session = started["session_id"].as_str().unwrap().to_owned();
    let records = records_with(&world, &session, "node.session_assigned");
    let assigned = records.iter().find(|record| record["kind"] == "node.session_assigned").unwrap();
    let child = assigned["child_session_id"].as_str().unwrap().to_owned();
    world.adopt(&session);
    world.adopt(&child);
    // The agent works on it.
    records_with(&world, &child, "tool.outcome");
    world.kill();
    world.start();
    let records = records_with(&world, &session, "run.completed");
    assert_eq!(count(&records, "run.interrupted"), 1);
    assert_eq!(count(&records, "node.session_assigned"), 1);
    let view = world.get(&format!("/api/v1/sessions/{session}/graph?include_memory=true")).good();
    assert_eq!(view["memory"]["out"], "done!");
    assert_eq!(count(&world.records(&child), "message.user"), 1);
}
