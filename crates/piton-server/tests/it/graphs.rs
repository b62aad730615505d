//! Graphs over HTTP: run, answered, resumed, inspected, forked; and what is refused.

use std::time::Duration;

use piton_api::agent_view::ForkRequest;
use piton_api::enums::NodeState;
use piton_api::graph::{
    ArtifactQuery, CheckpointQuery, DiffQuery, GraphQuery, InspectQuery, PruneCheckpointsRequest,
    ResumeGraphRequest, RunGraphRequest,
};
use piton_api::session::{CloseRequest, PromptRequest, RunRequest, SessionQuery, StartRequest};
use piton_api::wait::{AnswerRequest, TokenAnswerRequest};
use piton_core::Code;
use piton_core::access::Scope;
use piton_core::id::SessionId;
use serde_json::{Map, Value, json};

use crate::world::World;

const APPROVAL: &str = r#"
piton: graph/v1
name: approval
inputs:
  api_key: {type: string, required: false}
nodes:
  collect: {set: {found: [1, 2]}}
  approve: {human: {question: "Send {{ found | length }}?", options: [send, stop]}, writes: decision}
  report: {template: "{{ decision }}", writes: report}
edges:
  - collect -> approve -> report
"#;

/// A graph that fails until `ready` is true.
const FAILING: &str = r#"
piton: graph/v1
name: failing
inputs:
  ready: {type: boolean, default: false}
nodes:
  first: {set: {a: 1}}
  second:
    command: [sh, -c, "grep -q '\"ready\":true' || { echo not yet >&2; exit 1; }"]
    reads: [ready]
edges:
  - first -> second
"#;

fn graph(text: &str) -> RunGraphRequest {
    RunGraphRequest { graph: Some(text.into()), ..RunGraphRequest::default() }
}

fn kind(record: &Value) -> &str {
    record["kind"].as_str().unwrap_or_default()
}

async fn until(world: &World, session: &SessionId, wanted: &'static str) {
    world.wait_for_record(session, |record| kind(record) == wanted).await;
}

fn answer(text: &str) -> AnswerRequest {
    AnswerRequest { answer: text.into(), message: None }
}

/// Wants to show: a wait of a graph that is answered over HTTP continues the graph, and both streams
/// deliver its records.
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_waits_and_continues_when_it_is_answered() {
    let world = World::start().await;
    let client = &world.client;
    let keyed = client.with_idempotency_key("run");
    let session = keyed.run_graph(&graph(APPROVAL)).await.unwrap().session_id;
    assert_eq!(keyed.run_graph(&graph(APPROVAL)).await.unwrap().session_id, session);
    until(&world, &session, "run.waiting").await;
    let waits = client.waits().await.unwrap().waits;
    assert_eq!(waits.len(), 1);
    let wait = waits[0].wait_id.clone();

    // Nothing else moves it.
    let prompt: PromptRequest = serde_json::from_value(json!({"content": "hello"})).unwrap();
    let refused = client.prompt(&session, &prompt).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::SessionIsGraph));
    let refused = client.start(&session, &StartRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::SessionIsGraph));
    let invalid = client.answer(&wait, &answer("maybe")).await.unwrap_err();
    assert_eq!(invalid.code(), Some(Code::AnswerInvalid));
    assert!(!client.open_session(&session).await.unwrap().pending, "no agent is started");

    let keyed = client.with_idempotency_key("answer");
    keyed.answer(&wait, &answer("send")).await.unwrap();
    until(&world, &session, "run.completed").await;
    assert!(keyed.answer(&wait, &answer("send")).await.unwrap().replayed);
    let query = GraphQuery { include_memory: Some(true) };
    let view = client.graph(&session, &query).await.unwrap();
    assert_eq!(view.execution_path, ["collect", "approve", "report"]);
    assert_eq!(view.memory.unwrap()["report"], "send");
    assert!(view.nodes.iter().all(|node| node.state == NodeState::Completed), "{:?}", view.nodes);
    assert!(view.edges.iter().all(|edge| edge.is_taken));
    assert!(view.is_on_server);

    let mut socket = client.socket().await.unwrap();
    socket.subscribe(&session, 0).await.unwrap();
    let completed = async {
        loop {
            let event = socket.next_event().await.unwrap();
            if format!("{event:?}").contains("node.completed") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), completed).await.unwrap();
    let timeline = client.timeline(&session).await.unwrap().entries;
    assert!(timeline.iter().any(|entry| entry.node.as_deref() == Some("approve")));
}

/// Wants to show: a graph that asks again, at once after the first answer, takes the second answer, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_asks_again_and_is_answered_again() {
    const TWICE: &str = r#"
piton: graph/v1
name: twice
nodes:
  draft: {template: "text", writes: draft}
  approve: {human: {question: "Send?", options: [send, revise]}, writes: decision}
  send: {template: "sent", writes: result}
edges:
  - draft -> approve
  - {from: approve, to: send, when: "decision == 'send'"}
  - {from: approve, to: draft, when: "decision == 'revise'", max: 3}
"#;
    let world = World::start().await;
    let client = &world.client;
    let session = client.run_graph(&graph(TWICE)).await.unwrap().session_id;
    let mut answered = Vec::new();
    for choice in ["revise", "revise", "send"] {
        let is_new = |record: &Value| {
            kind(record) == "run.waiting" && !answered.contains(&record["wait_id"].to_string())
        };
        world.wait_for_record(&session, is_new).await;
        let waits = client.waits().await.unwrap().waits;
        client.answer(&waits[0].wait_id, &answer(choice)).await.unwrap();
        answered.push(json!(waits[0].wait_id).to_string());
    }
    until(&world, &session, "run.completed").await;
    let view = client.graph(&session, &GraphQuery::default()).await.unwrap();
    assert_eq!(view.nodes.iter().find(|node| node.node == "approve").unwrap().visit, 3);
}

/// Wants to show: the answer to a node that writes an excluded key is not accepted, since it would be
/// written; a resume that sets the key stands in for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_must_not_be_written_is_refused() {
    let world = World::start().await;
    let client = &world.client;
    let text = "piton: graph/v1\nname: secret\nnodes:\n  ask: {human: {question: Key?}, writes: api_key}\n";
    let session = client.run_graph(&graph(text)).await.unwrap().session_id;
    until(&world, &session, "run.waiting").await;
    let wait = client.waits().await.unwrap().waits[0].wait_id.clone();
    let refused = client.answer(&wait, &answer("sk-never-written")).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::MemoryValueRequired));
    assert_eq!(client.waits().await.unwrap().waits.len(), 1, "the wait is still open");
}

/// Wants to show: an answer reaches a graph while another branch of it runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_answered_while_another_branch_runs() {
    let world = World::start().await;
    let client = &world.client;
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let text = format!(
        "piton: graph/v1\nname: branches\nnodes:\n  ask: {{human: {{question: Go?}}, writes: said}}\n  \
         slow: {{command: [sh, -c, \"while [ ! -e {} ]; do sleep 0.05; done\"]}}\n",
        go.display()
    );
    let session = client.run_graph(&graph(&text)).await.unwrap().session_id;
    until(&world, &session, "run.waiting").await;
    let wait = client.waits().await.unwrap().waits[0].wait_id.clone();
    client.answer(&wait, &answer("yes")).await.unwrap();
    world
        .wait_for_record(&session, |record| {
            kind(record) == "node.completed" && record["path"] == "ask"
        })
        .await;
    let busy = client.resume_graph(&session, &ResumeGraphRequest::default()).await.unwrap_err();
    assert_eq!(busy.code(), Some(Code::RunInProgress));
    // Its title can be changed meanwhile; it cannot be closed.
    let rename = piton_api::session::RenameRequest { title: Some("Branches".to_owned()) };
    client.rename_session(&session, &rename).await.unwrap();
    let close = client.close(&session, &CloseRequest::default()).await.unwrap_err();
    assert_eq!(close.code(), Some(Code::RunInProgress));
    std::fs::write(go, "").unwrap();
    until(&world, &session, "run.completed").await;
}

/// Wants to show: a failed graph is resumed with another value, from where it stood and from an older
/// checkpoint; its checkpoints are listed, inspected, compared, pruned, deleted and forked.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_graph_is_resumed_with_another_value() {
    let world = World::start().await;
    let client = &world.client;
    let session = client.run_graph(&graph(FAILING)).await.unwrap().session_id;
    until(&world, &session, "run.failed").await;
    let page = client.checkpoints(&session, &CheckpointQuery::default()).await.unwrap();
    assert_eq!(page.checkpoints.len(), page.total_checkpoints);
    let resume_from = page.resume_from_checkpoint_id.clone().unwrap();
    let failed = page.checkpoints.iter().find(|one| one.checkpoint_id == resume_from).unwrap();
    assert_eq!(failed.failed_at_node.as_deref(), Some("second"));
    assert!(failed.error.as_deref().unwrap().contains("not yet"));
    let query = CheckpointQuery {
        checkpoint_type: Some("node_complete".to_owned()),
        node: Some("first".to_owned()),
        ..CheckpointQuery::default()
    };
    let first = client.checkpoints(&session, &query).await.unwrap().checkpoints;
    assert_eq!(first.len(), 1);
    let first = &first[0].checkpoint_id;
    let bare = client.checkpoint(&session, first, &InspectQuery::default()).await.unwrap();
    assert_eq!(bare.shared_memory, None);
    let query = InspectQuery { include_memory: Some(true) };
    let shown = client.checkpoint(&session, "latest", &query).await.unwrap();
    assert_eq!(shown.shared_memory.unwrap()["a"], 1);

    let set = Map::from_iter([("ready".to_owned(), Value::Bool(true))]);
    let how = ResumeGraphRequest { set: set.clone(), ..ResumeGraphRequest::default() };
    let resumed = client.resume_graph(&session, &how).await.unwrap();
    assert_eq!(resumed.resumed_from, Some(resume_from));
    until(&world, &session, "run.completed").await;
    let diff = DiffQuery { from: first.clone(), to: None };
    let diff = client.diff_checkpoints(&session, &diff).await.unwrap();
    assert_eq!(diff.nodes_completed, ["second"]);
    assert_eq!(diff.memory.changed["ready"], json!({"from": false, "to": true}));

    let how = ResumeGraphRequest {
        checkpoint_id: Some(first.clone()),
        set,
        ..ResumeGraphRequest::default()
    };
    client.resume_graph(&session, &how).await.unwrap();
    let mut records = client.records_from(&session, 0);
    let again = async {
        let mut completed = 0;
        while completed < 2 {
            let record = serde_json::to_value(records.next().await.unwrap()).unwrap();
            completed += usize::from(kind(&record) == "run.completed");
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again).await.unwrap();
    assert_eq!(client.graph(&session, &GraphQuery::default()).await.unwrap().lineage, 2);

    let fork = ForkRequest { checkpoint_id: Some(first.clone()), ..ForkRequest::default() };
    let keyed = client.with_idempotency_key("fork");
    let forked = keyed.fork(&session, &fork).await.unwrap().session_id;
    assert_eq!(keyed.fork(&session, &fork).await.unwrap().session_id, forked);
    client.resume_graph(&forked, &ResumeGraphRequest::default()).await.unwrap();
    until(&world, &forked, "run.failed").await;

    let in_use = client.delete_checkpoint(&session, first).await.unwrap_err();
    assert_eq!(in_use.code(), Some(Code::CheckpointInUse), "a lineage began with it");
    let plan = PruneCheckpointsRequest {
        keep_count: Some(1),
        dry_run: true,
        ..PruneCheckpointsRequest::default()
    };
    let planned = client.prune_checkpoints(&session, &plan).await.unwrap().pruned;
    assert!(!planned.is_empty());
    client.delete_checkpoint(&session, &planned[0]).await.unwrap();
    let how = PruneCheckpointsRequest { dry_run: false, ..plan };
    let pruned = client.prune_checkpoints(&session, &how).await.unwrap().pruned;
    assert_eq!(pruned.len(), planned.len() - 1);
}

/// Wants to show: a graph that runs is paused, resumed and cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_is_paused_and_cancelled() {
    let world = World::start().await;
    let client = &world.client;
    let text = "piton: graph/v1\nname: slow\nnodes:\n  a: {command: [sleep, '0.3']}\n  b: {command: [sleep, '60']}\nedges: [a -> b]\n";
    let session = client.run_graph(&graph(text)).await.unwrap().session_id;
    client.pause(&session, &RunRequest::default()).await.unwrap();
    until(&world, &session, "run.paused").await;
    client.resume(&session).await.unwrap();
    world
        .wait_for_record(&session, |record| kind(record) == "node.started" && record["path"] == "b")
        .await;
    client.cancel(&session, &RunRequest::default()).await.unwrap();
    until(&world, &session, "run.cancelled").await;
}

/// Wants to show: what makes no sense is refused with a code, and nothing begins.
#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused() {
    let world = World::start().await;
    let client = &world.client;
    let post = async |body: Value| {
        let came = client.raw("POST", "/api/v1/graphs/run", &body.to_string()).await;
        came.unwrap_err().code().unwrap()
    };
    assert_eq!(post(json!({})).await, Code::RequestInvalid);
    assert_eq!(post(json!({"graph": 7})).await, Code::RequestInvalid);
    assert_eq!(post(json!({"graph": "a", "file": "/b"})).await, Code::RequestInvalid);
    assert_eq!(post(json!({"graph": "name: x", "surprise": 1})).await, Code::RequestInvalid);
    assert_eq!(post(json!({"graph": "- no graph"})).await, Code::GraphInvalid);
    assert_eq!(post(json!({"file": "relative.yaml"})).await, Code::RequestInvalid);
    assert_eq!(post(json!({"file": "/no/such/graph.yaml"})).await, Code::GraphInvalid);
    assert_eq!(
        post(json!({"graph": FAILING, "inputs": {"ready": "x"}})).await,
        Code::GraphInputInvalid
    );
    assert_eq!(
        post(json!({"graph": FAILING, "inputs": {"reddy": true}})).await,
        Code::GraphInputInvalid
    );
    assert_eq!(
        post(json!({"graph": FAILING, "checkpoint": {"no": 1}})).await,
        Code::RequestInvalid
    );
    assert_eq!(
        post(json!({"graph": FAILING, "working_dir": "/no/such"})).await,
        Code::RequestInvalid
    );
    let agent = "piton: graph/v1\nname: a\nnodes:\n  a: {agent: {profile: nobody, prompt: hi}, writes: x}\n";
    assert_eq!(post(json!({"graph": agent})).await, Code::AgentNotFound);
    assert!(client.sessions(&SessionQuery::default()).await.unwrap().sessions.is_empty());

    let session = client.run_graph(&graph(FAILING)).await.unwrap().session_id;
    until(&world, &session, "run.failed").await;
    let get = async |rest: &str| {
        let path = format!("/api/v1/sessions/{session}{rest}");
        client.raw("GET", &path, "").await.unwrap_err().code().unwrap()
    };
    assert_eq!(get("/checkpoints?type=nothing").await, Code::RequestInvalid);
    assert_eq!(get("/checkpoints?limit=0").await, Code::RequestInvalid);
    assert_eq!(get("/checkpoints?clean=perhaps").await, Code::RequestInvalid);
    assert_eq!(get("/checkpoints/cp_none").await, Code::CheckpointNotFound);
    assert_eq!(get("/checkpoints/diff").await, Code::RequestInvalid);
    assert_eq!(get("/checkpoints/diff?from=cp_none").await, Code::CheckpointNotFound);
    let resume = async |body: Value| {
        let path = format!("/api/v1/sessions/{session}/graph/resume");
        client.raw("POST", &path, &body.to_string()).await.unwrap_err().code().unwrap()
    };
    assert_eq!(resume(json!({"set": {"unknown": 1}})).await, Code::GraphInputInvalid);
    assert_eq!(resume(json!({"checkpoint_id": "cp_none"})).await, Code::CheckpointNotFound);
    assert_eq!(resume(json!({"graph": APPROVAL})).await, Code::SessionNotGraph);

    let plain = piton_api::session::NewSession { start: Some(false), ..Default::default() };
    let plain = client.create_session(&plain).await.unwrap().session_id;
    let none = client.graph(&plain, &GraphQuery::default()).await.unwrap_err();
    assert_eq!(none.code(), Some(Code::SessionNotGraph));
    let none = client.resume_graph(&plain, &ResumeGraphRequest::default()).await.unwrap_err();
    assert_eq!(none.code(), Some(Code::SessionNotGraph));
}

/// Wants to show: who may read may look at graphs, and needs `control` to change them.
#[tokio::test(flavor = "multi_thread")]
async fn changes_need_the_scope_control() {
    let world = World::start().await;
    let session = world.client.run_graph(&graph(FAILING)).await.unwrap().session_id;
    until(&world, &session, "run.failed").await;
    let reader = world.client_with(&[Scope::Read].into()).await;
    let controller = world.client_with(&[Scope::Control].into()).await;
    let at = |rest: &str| format!("/api/v1/sessions/{session}{rest}");
    for path in ["/graph", "/timeline", "/checkpoints", "/checkpoints/latest"] {
        reader.raw("GET", &at(path), "").await.unwrap();
        let refused = controller.raw("GET", &at(path), "").await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::InsufficientScope), "{path}");
    }
    let changes = [
        ("POST", at("/graph/resume")),
        ("POST", at("/checkpoints/prune")),
        ("DELETE", at("/checkpoints/latest")),
        ("POST", "/api/v1/graphs/run".to_owned()),
    ];
    for (verb, path) in changes {
        let refused = reader.raw(verb, &path, "{}").await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::InsufficientScope), "{verb} {path}");
    }
}

const UNANSWERED: &str = r#"
piton: graph/v1
name: unanswered
memory: {result: {reducer: replace}}
nodes:
  ask: {human: {question: "Well?", deadline: 2s}, writes: answer}
  use: {template: "{{ answer }}", writes: result}
  escalate: {template: nobody, writes: result}
edges:
  - ask -> use
  - {from: ask, to: escalate, on: error}
"#;

/// Wants to show: the time of a wait passes without anybody doing anything, and the graph continues with
/// what the node makes of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_nobody_answers_fails_its_node() {
    let world = World::start().await;
    let session = world.client.run_graph(&graph(UNANSWERED)).await.unwrap().session_id;
    until(&world, &session, "run.waiting").await;
    until(&world, &session, "run.completed").await;
    let query = GraphQuery { include_memory: Some(true) };
    let view = world.client.graph(&session, &query).await.unwrap();
    assert_eq!(view.memory.unwrap()["result"], "nobody");
    let failed = view.nodes.iter().find(|node| node.node == "ask").unwrap();
    assert_eq!(failed.state, NodeState::Failed);
}

/// Wants to show: what a run over HTTP excluded stays out of the data folder when an answer continues it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_continues_a_run_with_what_it_excluded() {
    const SECRET: &str = "078-05-1120-never-on-disk";
    let world = World::start().await;
    let text = format!(
        "piton: graph/v1\nname: later\nnodes:\n  ask: {{human: {{question: Go?}}, writes: said}}\n  \
         look: {{command: [sh, -c, \"echo {} | rev\"], writes: ssn}}\n  \
         use: {{template: \"{{{{ ssn | length }}}}\", writes: length}}\nedges:\n  - ask -> look -> use\n",
        SECRET.chars().rev().collect::<String>()
    );
    let checkpoint = json!({"exclude_memory_keys": ["ssn"]});
    let request = RunGraphRequest { checkpoint: Some(checkpoint), ..graph(&text) };
    let session = world.client.run_graph(&request).await.unwrap().session_id;
    until(&world, &session, "run.waiting").await;
    let wait = world.client.waits().await.unwrap().waits[0].wait_id.clone();
    world.client.answer(&wait, &answer("go")).await.unwrap();
    until(&world, &session, "run.completed").await;
    let query = GraphQuery { include_memory: Some(true) };
    let view = world.client.graph(&session, &query).await.unwrap();
    let memory = view.memory.unwrap();
    assert_eq!(memory["length"], SECRET.len().to_string());
    assert!(!format!("{memory:?}").contains(SECRET), "it is not saved");
}

/// Wants to show: a resume token answers a graph's question by the option's name, as everybody else does,
/// and again with the same result.
#[tokio::test(flavor = "multi_thread")]
async fn a_resume_token_answers_a_graph_by_the_name_of_an_option() {
    let world = World::start().await;
    let client = &world.client;
    let session = client.run_graph(&graph(APPROVAL)).await.unwrap().session_id;
    until(&world, &session, "run.waiting").await;
    let wait = client.waits().await.unwrap().waits[0].wait_id.clone();
    let token = client.rotate_resume_token(&wait).await.unwrap().token;
    let given = |answer: &str| TokenAnswerRequest {
        token: token.clone(),
        answer: answer.into(),
        session_id: None,
    };
    let refused = client.answer_with_token(&given("maybe")).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::AnswerInvalid));
    assert!(!client.answer_with_token(&given("send")).await.unwrap().replayed);
    until(&world, &session, "run.completed").await;
    assert!(client.answer_with_token(&given("send")).await.unwrap().replayed);
    let other = client.answer_with_token(&given("stop")).await.unwrap_err();
    assert_eq!(other.code(), Some(Code::ResumeTokenConsumed));
    let query = GraphQuery { include_memory: Some(true) };
    assert_eq!(client.graph(&session, &query).await.unwrap().memory.unwrap()["report"], "send");
}

/// Wants to show: what a command left is listed and read byte for byte over HTTP, and nothing else is.
#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_listed_and_read() {
    let world = World::start().await;
    let client = &world.client;
    let text = r#"{"piton": "graph/v1", "name": "files", "nodes": {"inner": {"subgraph": {"graph": {"nodes": {"make":
        {"command": ["sh", "-c", "printf '<b>\\377' > $PITON_ARTIFACTS/page.html"], "artifacts": true}}}}}}}"#;
    let session = client.run_graph(&graph(text)).await.unwrap().session_id;
    until(&world, &session, "run.completed").await;
    let all = ArtifactQuery::default();
    let listed = client.artifacts(&session, &all).await.unwrap().artifacts;
    let shown: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.node.as_str())).collect();
    assert_eq!((shown, listed[0].bytes), (vec![("page.html", "inner/make")], 4));
    let none = ArtifactQuery { node: Some("make".into()) };
    assert_eq!(client.artifacts(&session, &none).await.unwrap().artifacts, []);
    assert_eq!(&client.artifact(&session, "page.html").await.unwrap()[..], b"<b>\xff");
    for name in ["other", "../page.html", "page.html/"] {
        let refused = client.artifact(&session, name).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::ArtifactNotFound), "{name}");
    }
    let view = client.checkpoint(&session, "latest", &InspectQuery::default()).await.unwrap();
    assert_eq!(view.artifacts, listed);
}
