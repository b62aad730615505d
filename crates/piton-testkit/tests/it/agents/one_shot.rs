//! An agent that speaks no protocol, behind a real server: its turns are processes, and whichever
//! process dies, the next turn continues the conversation.

use piton_testkit::crash::Kind;
use piton_testkit::drive::{Server, wait_until};
use serde_json::{Value, json};

use super::fixture::{
    Fixture, PROGRAM, SESSION, TEST_TIMEOUT, assert_nothing_left, check_offsets, count, header,
    idle, last, prompt, said, sigkill,
};

/// The built-in agent, printing; resumes the conversation `id`.
fn start_agent(bench: &Fixture, server: &mut Server, id: Option<&Value>) {
    let memory = bench.data().with_extension("memory.json");
    let command = [PROGRAM, "echo", "--memory", memory.to_str().expect("UTF-8")];
    let print = ["--print", "--output", "stream-json"];
    let resume = [&print[..], &["--resume", "{agent_session_id}"]].concat();
    let at = [&resume[..], &["--resume-session-at", "{agent_message_id}"]].concat();
    let line = json!({"new": print, "resume": resume, "resume_at": at, "output": "stream_json"});
    let start = json!({"command": command, "command_line": line, "agent_session_id": id});
    server.must(json!({"do": "start", "session": SESSION, "start": start}));
    server.status_when(SESSION, |status| status["facts"]["agent"]["status"] == "ready");
}

/// Until the agent has said something in this run.
fn until_said(bench: &Fixture, run: &str, text: &str) {
    let is_said = || said(&bench.log(), run) == text;
    assert!(wait_until(TEST_TIMEOUT, is_said), "{:?}", said(&bench.log(), run));
}

/// Wants to show: killed are, one after the other, the server, the agent and agentctl, each in the
/// middle of a turn; what was said is in the log once, each loss is one interruption with its
/// reason, and the agent still remembers what earlier prompts said: the test asks it.
#[test]
fn a_conversation_survives_every_death() {
    let bench = Fixture::new(Kind::Sqlite);
    let mut server = bench.serve();
    server.must(json!({"do": "create", "session": SESSION}));
    let execution = bench.launch(&mut server);
    start_agent(&bench, &mut server, None);
    assert_eq!(Fixture::agent(&execution), None, "it is ready without a process");
    prompt(&mut server, "remember colour green");
    let status = idle(&mut server);
    let id = status["facts"]["agent"]["session_id"].clone();
    assert!(id.as_str().is_some_and(|id| id.starts_with("echo-")), "{status:#}");

    // The server: the turn continues without it.
    let run = prompt(&mut server, "say before\nwait 500\ntool one\nsay after");
    until_said(&bench, &run, "before");
    server.kill();
    server = bench.serve();
    assert_eq!(idle(&mut server)["reason"], "run_completed");
    assert_eq!(said(&bench.log(), &run), "beforeafter");

    // The agent: the turn is interrupted, and its agentctl takes the next one.
    let run = prompt(&mut server, "say half\nhang");
    until_said(&bench, &run, "half");
    sigkill(Fixture::agent(&execution).expect("it is at work"));
    server.status_when(SESSION, |status| status["reason"] == "process_exit");
    let run = prompt(&mut server, "recall colour");
    let status = idle(&mut server);
    assert_eq!(said(&bench.log(), &run), "green", "{status:#}");
    assert_eq!(status["facts"]["agent"]["session_id"], id);

    // agentctl: another one resumes the conversation by its id.
    let run = prompt(&mut server, "say again half\nescape sleep 1000\nhang");
    until_said(&bench, &run, "again half");
    let agentctl = bench.agentctl(&execution);
    sigkill(agentctl);
    server.status_when(SESSION, |status| status["facts"]["executor"]["status"] != "ready");
    assert_nothing_left(&execution, Some(agentctl));
    let next = bench.launch(&mut server);
    start_agent(&bench, &mut server, Some(&id));
    let run = prompt(&mut server, "recall colour");
    idle(&mut server);
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&next, None);
    server.kill();
    let log = bench.log();
    assert_eq!(said(&log, &run), "green");
    check_offsets(&log);
    assert_eq!(count(&log, "run.interrupted"), 2);
    assert_eq!(header(last(&log, "agent.initialized"))["context_restored"], json!(true));
}

/// Wants to show: an id that the agent does not know fails the turn, is dropped from the session,
/// and the next prompt begins a conversation.
#[test]
fn a_refused_conversation_is_reported_and_started_fresh() {
    let bench = Fixture::new(Kind::Sqlite);
    let mut server = bench.serve();
    server.must(json!({"do": "create", "session": SESSION}));
    bench.launch(&mut server);
    start_agent(&bench, &mut server, Some(&json!("lost")));
    prompt(&mut server, "say x");
    // The failure and the cleared id are two entries of the spool, and may arrive one after the other.
    server.status_when(SESSION, |status| {
        status["reason"] == "run_failed" && status["facts"]["agent"]["session_id"].is_null()
    });
    let run = prompt(&mut server, "recall");
    let status = idle(&mut server);
    assert!(status["facts"]["agent"]["session_id"].is_string(), "{status:#}");
    server.must(json!({"do": "stop", "session": SESSION}));
    server.kill();
    let log = bench.log();
    assert_eq!(said(&log, &run), "0 prompts");
    assert_eq!(header(last(&log, "run.failed"))["code"], "session_refused");
    assert_eq!(count(&log, "agent.session_cleared"), 1);
}
