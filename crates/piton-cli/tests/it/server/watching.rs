//! What operators see: counts, refusals, tokens that were taken back, and a server that serves before
//! it has found its executors.

use std::io::{BufRead as _, BufReader};

use piton_core::id::SessionId;
use piton_store::{Detail, SqliteStore, Store as _, sqlite};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::server::world::{TEST_TIMEOUT, World};

/// The metadata log, once no process holds the store.
fn metadata(world: &World) -> Vec<Value> {
    let store = SqliteStore::open(sqlite::Options::new(world.data())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let read = store.read(&SessionId::metadata_log(), 0, 1_000, Detail::Full);
    let records = runtime.block_on(read).unwrap();
    store.close();
    records.iter().map(|record| Value::Object(record.to_flat().unwrap())).collect()
}

#[test]
fn who_was_refused_and_what_was_done_is_in_the_metadata_log() {
    let mut world = World::new();
    let session = world.session();
    let grant = json!({"name": "x", "scopes": ["read"]});
    let granted = world.post("/api/v1/access-tokens", &grant).good();
    let (id, token) = (granted["access_token_id"].clone(), granted["token"].as_str().unwrap());
    let bearer = format!("Bearer {token}");
    for _ in 0..3 {
        let answer = world.raw("GET", "/api/v1/access-tokens", None, &[("authorization", &bearer)]);
        assert_eq!(answer.code(), "insufficient_scope");
        assert_eq!(world.raw("GET", "/api/v1/waits", None, &[]).code(), "unauthenticated");
        let evil = [("host", "evil.example"), ("authorization", bearer.as_str())];
        assert_eq!(world.raw("GET", "/api/v1/waits", None, &evil).code(), "host_refused");
    }
    let path = format!("/api/v1/sessions/{session}/files/content?path=a.txt");
    let octets = ("content-type", "application/octet-stream");
    let own = format!("Bearer {}", world.token);
    let written = world.raw("PUT", &path, Some(b"x"), &[("authorization", &own), octets]);
    assert_eq!(written.status, 204, "{written:?}");
    world.end();
    let records = metadata(&world);
    let noted: Vec<&Value> = records.iter().filter(|r| r["kind"] == "audit.recorded").collect();
    // Alike ones are written once in a while.
    let of = |outcome: &str| noted.iter().filter(|note| note["outcome"] == outcome).count();
    for outcome in ["insufficient_scope", "unauthenticated", "host_refused", "done"] {
        assert_eq!(of(outcome), 1, "{outcome}: {noted:#?}");
    }
    let refused = noted.iter().find(|note| note["outcome"] == "insufficient_scope").unwrap();
    assert_eq!((&refused["principal"], &refused["target"]), (&id, &json!("/api/v1/access-tokens")));
    assert!(noted.iter().all(|note| !note.to_string().contains(token)));
    let done = noted.iter().find(|note| note["outcome"] == "done").unwrap();
    let expected = (&json!("files.write"), &json!(format!("{session}/a.txt")));
    assert_eq!((&done["action"], &done["target"]), expected);
    world.start();
}

#[test]
fn a_token_that_is_taken_back_ends_its_streams() {
    let mut world = World::new();
    let session = world.session();
    let granted =
        world.post("/api/v1/access-tokens", &json!({"name": "x", "scopes": ["read"]})).good();
    let bearer = format!("Bearer {}", granted["token"].as_str().unwrap());
    let streams: Vec<_> = [format!("/api/v1/sessions/{session}/events"), "/api/v1/events".into()]
        .iter()
        .map(|path| BufReader::new(world.send("GET", path, None, &[("authorization", &bearer)])))
        .map(|mut stream| {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            assert_eq!(line.trim_end(), "HTTP/1.1 200 OK");
            stream
        })
        .collect();
    let access = granted["access_token_id"].as_str().unwrap();
    let taken_back = world.ask("DELETE", &format!("/api/v1/access-tokens/{access}"), None, &[]);
    assert_eq!(taken_back.status, 204);
    let (tell, ended) = std::sync::mpsc::channel();
    let count = streams.len();
    for stream in streams {
        let tell = tell.clone();
        std::thread::spawn(move || tell.send(stream.lines().map_while(Result::ok).count()));
    }
    // Nothing happens in the session: that it was taken back is enough.
    for _ in 0..count {
        ended.recv_timeout(TEST_TIMEOUT).expect("a stream goes on");
    }
}

#[test]
fn interruptions_and_resumes_are_counted() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "say before\ncrash\nsay after");
    world.when(&session, |status| status["status"] == "interrupted_startup");
    let resume = json!({"continue": true});
    world.post(&format!("/api/v1/sessions/{session}/resume"), &resume).good();
    world.when(&session, |status| status["status"] == "idle");
    let metrics = world.get("/metrics").text;
    let has =
        |line: &str| assert!(metrics.lines().any(|l| l.starts_with(line)), "{line}: {metrics}");
    let value = |name: &str| -> &str {
        let line = metrics.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name}: {metrics}"));
        line.rsplit(' ').next().unwrap()
    };
    let number = |name: &str| -> f64 { value(name).parse().unwrap() };
    has("piton_interruptions_total{phase=\"");
    assert_eq!(value("piton_interruptions_total"), "1");
    assert_eq!(value("piton_resumes_total"), "1");
    assert!(metrics.contains("reason=\"process_exit\""), "{metrics}");
    let phase = metrics.split("piton_interruptions_total{phase=\"").nth(1).unwrap();
    let phase = format!("phase=\"{}\"", phase.split('"').next().unwrap());
    assert_eq!(value(&format!("piton_time_to_resume_seconds_count{{{phase}}}")), "1");
    let ended = format!("piton_resumed_ended_total{{outcome=\"completed\",{phase}}}");
    assert_eq!(value(&ended), "1");
    assert_eq!(value(&format!("piton_resume_success_ratio{{{phase}}}")), "1.0");
    assert!(number("piton_flush_duration_seconds_count") >= 1.0);
    assert_eq!(
        value("piton_flush_duration_seconds_bucket{le=\"+Inf\"}"),
        value("piton_flush_duration_seconds_count")
    );
    assert_eq!(value("piton_executions{status=\"ready\"}"), "1.0");
    assert_eq!(value("piton_open_runs"), "0.0");
    assert_eq!(value("piton_live_agents"), "1.0");
    // A process that runs has at least a megabyte.
    assert!(number("piton_agents_memory_bytes") > 1e6);
    let status = world.json(&["status"]);
    assert_eq!(status["agents"], 1, "{status}");
    assert!(status["memory_bytes"].as_u64().unwrap() > 1_000_000, "{status}");
    assert!(number("piton_append_records_total") > 10.0);
}

/// A silent executor does not keep the server from serving clients.
#[test]
fn the_server_serves_before_it_has_found_its_executors() {
    let mut world = World::new();
    let (silent, other) = (world.session(), world.session());
    let execution = world.status(&silent)["agent_execution_id"].as_str().unwrap().to_owned();
    let lock = world.data().join("run").join(execution).join("lock");
    let pid = std::fs::read_to_string(lock).unwrap().trim().parse().unwrap();
    let agentctl = Pid::from_raw(pid).unwrap();
    kill_process(agentctl, Signal::STOP).unwrap();
    world.kill();
    world.start();
    // It is asked, and the log has not heard yet that it does not answer.
    let status = world.status(&silent);
    assert_eq!((&status["executor_status"], &status["status"]), (&json!("ready"), &json!("idle")));
    assert_eq!(status["resume_reason"], "executor_probing");
    world.when(&other, |status| status["executor_status"] == "ready");
    world.prompt(&other, "say hello");
    world.when(&other, |status| status["last_outcome"] == "completed");
    kill_process(agentctl, Signal::CONT).unwrap();
    world.when(&silent, |status| {
        status["executor_status"] == "ready" && status["live"]["is_connected"] == true
    });
    world.prompt(&silent, "say hello");
    world.when(&silent, |status| status["last_outcome"] == "completed");
    let records = world.records(&silent);
    assert!(records.iter().all(|record| record["kind"] != "run.interrupted"));
}
