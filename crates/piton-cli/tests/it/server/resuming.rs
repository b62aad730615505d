//! Agents that died come back: on a prompt, when a client opens the session, and on request; and
//! receive an interruption summary.

use serde_json::{Value, json};

use crate::server::world::World;

fn kinds<'a>(records: &'a [serde_json::Value], kind: &str) -> Vec<&'a serde_json::Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

/// A session whose agent remembers something and then died in the middle of a turn.
fn crashed(world: &mut World) -> String {
    let session = world.session();
    world.prompt(&session, "remember colour blue");
    world.when(&session, |status| status["status"] == "idle");
    world.prompt(&session, "say I begin\ncrash");
    let status = world.when(&session, |status| status["is_agent_running"] == false);
    assert_eq!(status["state"], "WAITING_FOR_INPUT", "{status:#}");
    assert_eq!(status["reason"], "process_exit");
    assert_eq!(status["resume_strategy"], "native");
    assert_eq!((&status["needs_resume"], &status["is_resumable"]), (&json!(true), &json!(true)));
    session
}

#[test]
fn a_prompt_brings_the_agent_back_and_it_still_knows() {
    let mut world = World::new();
    let session = crashed(&mut world);
    let run = world.prompt(&session, "recall colour");
    world.when(&session, |status| status["status"] == "idle" && status["run_id"] == run.as_str());
    let said = world.said(&session, &run);
    assert!(said.contains("blue"), "{said}");
    // It was told, once, what it lost.
    assert!(said.contains("your last turn did not end"), "{said}");
    assert!(said.contains("> I begin"), "{said}");
    let run = world.prompt(&session, "recall colour");
    world.when(&session, |status| status["status"] == "idle" && status["run_id"] == run.as_str());
    assert!(!world.said(&session, &run).contains("interrupted"), "once");

    let records = world.records(&session);
    assert_eq!(kinds(&records, "run.interrupted").len(), 1);
    assert_eq!(kinds(&records, "prompt.prepared").len(), 1);
    let resuming = kinds(&records, "agent.resuming");
    assert_eq!(resuming.last().unwrap()["trigger"], "prompt");
    assert_eq!(world.status(&session)["context_restored"], true);
}

#[test]
fn who_looks_brings_the_agent_back_and_who_asks_its_turn() {
    let mut world = World::new();
    let session = crashed(&mut world);
    let opened = world.post(&format!("/api/v1/sessions/{session}/open"), &json!({})).good();
    assert_eq!(opened["is_agent_running"], true, "{opened:#}");
    assert!(opened["status"].as_str().unwrap().starts_with("interrupted"), "{opened:#}");
    assert_eq!(opened["needs_resume"], true, "its turn is asked about");
    // Ten at once are one.
    let path = format!("/api/v1/sessions/{session}/resume");
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| world.post(&path, &json!({"continue": true})));
        }
    });
    world.when(&session, |status| status["status"] == "idle");
    let records = world.records(&session);
    assert_eq!(kinds(&records, "run.resumed").len(), 1);
    assert_eq!(kinds(&records, "agent.ready").len(), 2, "one agent before, and one since");
}

#[test]
fn a_folder_that_is_gone_has_its_reason_and_its_way_back() {
    let mut world = World::new();
    let folder = world.workspace().join("here");
    std::fs::create_dir_all(&folder).unwrap();
    let session = world.quiet_session(Some(&folder));
    let away = world.workspace().join("away");
    std::fs::rename(&folder, &away).unwrap();
    let prompt = json!({"content": "say here I am"});
    let failed = world.post(&format!("/api/v1/sessions/{session}/messages"), &prompt);
    assert_eq!((failed.status, failed.code()), (409, "workspace_unusable"), "{failed:?}");
    let status = world.when(&session, |status| status["state"] == "ERROR");
    assert_eq!(status["reason"], "workspace_missing", "{status:#}");
    let run = status["run_id"].as_str().unwrap().to_owned();
    std::fs::rename(&away, &folder).unwrap();
    let resume = json!({"continue": true});
    world.post(&format!("/api/v1/sessions/{session}/resume"), &resume).good();
    world.when(&session, |status| status["status"] == "idle");
    // The run continues, and does not start a second time: its prompt carries what no agent got.
    let said = world.said(&session, &run);
    assert!(said.contains("did not reach you:\n> say here I am\n"), "nothing was lost: {said}");
    assert_eq!(said.matches("here I am").count(), 1, "nor said twice: {said}");
    assert_eq!(kinds(&world.records(&session), "prompt.prepared").len(), 1);
}

/// With a manual restart, the server does not start an agent on its own.
#[test]
fn a_manual_restart_waits_for_a_user() {
    let mut world = World::new();
    let session = crashed(&mut world);
    world.end();
    world.start_with(|server| {
        server.env("PITON_RESUME_AGENT_RESTART", "manual");
    });
    let opened = world.post(&format!("/api/v1/sessions/{session}/open"), &json!({})).good();
    assert_eq!(opened["is_agent_running"], false);
    let path = format!("/api/v1/sessions/{session}/messages");
    let refused = world.post(&path, &json!({"content": "recall colour"}));
    assert_eq!(refused.code(), "agent_not_running");
    world.post(&format!("/api/v1/sessions/{session}/start"), &json!({})).good();
    assert_eq!(world.status(&session)["is_agent_running"], true);
}

/// Without a request, the server itself brings its agents back, and their turns.
#[test]
fn a_server_that_starts_brings_its_agents_back() {
    let mut world = World::new();
    let session = crashed(&mut world);
    world.kill();
    world.start_with(|server| {
        server.env("PITON_RESUME_AGENT_RESTART", "on_boot");
        server.env("PITON_RESUME_CONTINUE_RUN", "auto");
    });
    let status = world.when(&session, |status| status["status"] == "idle");
    assert_eq!(status["is_agent_running"], true, "{status:#}");
    assert_eq!(status["context_restored"], true, "{status:#}");
    let records = world.records(&session);
    assert_eq!(kinds(&records, "run.resumed").len(), 1);
    assert_eq!(kinds(&records, "run.interrupted").len(), 1);
    let resuming = kinds(&records, "agent.resuming");
    assert_eq!(resuming.last().unwrap()["trigger"], "boot");
    let run = world.prompt(&session, "recall colour");
    world.when(&session, |status| status["status"] == "idle" && status["run_id"] == run.as_str());
    assert!(world.said(&session, &run).contains("blue"));
}

/// Claude announces a call without its arguments, and says them when it makes it.
#[test]
fn a_note_says_what_a_call_was_made_with() {
    let mut world = World::new();
    let session = world.session();
    let update = |update: serde_json::Value| {
        let params = json!({"update": update});
        json!({"jsonrpc": "2.0", "method": "session/update", "params": params}).to_string()
    };
    let call =
        json!({"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "Bash", "rawInput": {}});
    let made = json!({"sessionUpdate": "tool_call_update", "toolCallId": "t1", "rawInput": {"command": "make"}});
    world.prompt(&session, &format!("raw {}\nraw {}\nwait 100\ncrash", update(call), update(made)));
    world.when(&session, |status| status["reason"] == "process_exit");
    let run = world.prompt(&session, "recall colour");
    world.when(&session, |status| status["status"] == "idle" && status["run_id"] == run.as_str());
    let said = world.said(&session, &run);
    assert!(said.contains("- Bash `make`"), "{said}");
}

/// An agent that fails with its conversation for ever, and does not say that it does not know it.
#[test]
fn a_user_can_have_the_agent_start_fresh() {
    let mut world = World::new();
    let session = crashed(&mut world);
    let opened = world.post(&format!("/api/v1/sessions/{session}/start"), &json!({"fresh": true}));
    opened.good();
    let status = world.status(&session);
    assert_eq!(
        (&status["is_agent_running"], &status["context_restored"]),
        (&json!(true), &json!(false))
    );
    let run = world.prompt(&session, "recall colour");
    world.when(&session, |status| status["status"] == "idle" && status["run_id"] == run.as_str());
    assert!(!world.said(&session, &run).contains("blue"), "it is another conversation");
    let records = world.records(&session);
    assert!(kinds(&records, "agent.session_cleared").is_empty(), "and the first is not disowned");
}

/// One that runs and has nothing to do makes way; one that is at work is not ended by that.
#[test]
fn an_agent_that_runs_starts_fresh_between_its_turns() {
    let mut world = World::new();
    let session = world.session();
    let run = world.prompt(&session, "remember colour blue");
    let is_idle = |status: &Value, run: &str| status["status"] == "idle" && status["run_id"] == run;
    world.when(&session, |status| is_idle(status, &run));
    let start = format!("/api/v1/sessions/{session}/start");
    let before = world.agents(&session);
    assert_eq!(before.len(), 1);
    let shells = format!("/api/v1/sessions/{session}/shells");
    let shell = world.post(&shells, &json!({})).good()["shell_id"].as_str().unwrap().to_owned();
    let key = [("idempotency-key", "k")];
    world.ask("POST", &start, Some(&json!({"fresh": true})), &key).good();
    let after = world.agents(&session);
    assert_ne!(after, before, "another process");
    world.ask("POST", &start, Some(&json!({"fresh": true})), &key).good();
    assert_eq!(world.agents(&session), after, "once under its key");
    assert_eq!(world.ask("DELETE", &format!("{shells}/{shell}"), None, &[]).status, 204);
    assert_eq!(world.status(&session)["context_restored"], false);
    let run = world.prompt(&session, "recall colour");
    world.when(&session, |status| is_idle(status, &run));
    assert!(!world.said(&session, &run).contains("blue"), "it is another conversation");

    let run = world.prompt(&session, "say I begin\nhang");
    world.when(&session, |status| status["status"] == "running");
    let before = world.agents(&session);
    let refused = world.post(&start, &json!({"fresh": true}));
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("run_in_progress")));
    assert_eq!(world.agents(&session), before);
    world.post(&format!("/api/v1/sessions/{session}/cancel"), &json!({})).good();
    world.when(&session, |status| status["status"] == "idle" && status["run_id"] == run.as_str());
}

/// An agent that has just died may have received a prompt that the server sent before it noticed:
/// the run is interrupted, or another agent gets the prompt; the run never fails.
#[test]
fn a_prompt_to_a_dying_agent_does_not_fail() {
    let mut world = World::new();
    for _ in 0..12 {
        let session = world.session();
        let there = world.agents(&session);
        assert_eq!(there.len(), 1);
        for pid in there {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        let run = world.prompt(&session, "say again");
        let status = world.when(&session, |status| {
            let name = status["status"].as_str().unwrap();
            status["run_id"] == run.as_str() && (name == "idle" || name.starts_with("interrupted"))
        });
        let reason = status["reason"].as_str().unwrap();
        assert!(["run_completed", "process_exit"].contains(&reason), "{status:#}");
    }
}

/// A session with something to remember; then everything dies: server, agentctl and agent.
fn all_dead(world: &mut World, agent: &str) -> String {
    let body = json!({"start": false, "agent_profile_id": agent});
    let made = world.post("/api/v1/sessions", &body).good();
    let session = made["session_id"].as_str().unwrap().to_owned();
    world.adopt(&session);
    world.post(&format!("/api/v1/sessions/{session}/start"), &json!({})).good();
    world.prompt(&session, "remember colour blue");
    world.when(&session, |status| status["status"] == "idle" && !status["run_id"].is_null());
    world.kill();
    world.kill_agentctls();
    session
}

/// The kinds of the records behind a position that are about executors and agents.
fn arrows(records: &[serde_json::Value], after: u64) -> Vec<&str> {
    let newer = records.iter().filter(|record| record["seq"].as_u64() > Some(after));
    let kinds = newer.filter_map(|record| record["kind"].as_str());
    let is_life_cycle = |kind: &&str| kind.starts_with("executor.") || kind.starts_with("agent.");
    kinds.filter(is_life_cycle).filter(|kind| *kind != "agent.updated").collect()
}

/// The standalone executor after a restart, step by step: what ran is known from the log, nothing of
/// it is there, it is launched, `starting`, `ready`, and the agent resumed; `WAITING_FOR_INPUT`. That
/// an agent will be is said with the launch, so that the start is one state.
#[test]
fn standalone_after_a_restart_executor_then_agent_come_back() {
    let mut world = crate::server::matrix::world();
    let session = all_dead(&mut world, "loads");
    crate::server::matrix::restart(&mut world, "on_boot");
    let status = world.when(&session, |status| {
        status["executor_status"] == "ready" && status["context_restored"] == true
    });
    assert_eq!(status["state"], "WAITING_FOR_INPUT", "{status:#}");
    let records = world.records(&session);
    let stopped = records.iter().find(|record| record["kind"] == "executor.stopped").unwrap();
    let seen = arrows(&records, stopped["seq"].as_u64().unwrap() - 1);
    let expected = [
        "executor.stopped",
        "executor.starting",
        "agent.resuming",
        "executor.ready",
        "agent.starting",
        "agent.initialized",
        "agent.ready",
    ];
    assert_eq!(seen, expected, "{seen:?}");
    world.get(&format!("/api/v1/sessions/{session}/files")).good();
}

/// The other branch: without a way to resume the workspace is there all the same, and what is lost is
/// said.
#[test]
fn standalone_an_agent_that_cannot_resume_keeps_its_workspace() {
    let mut world = crate::server::matrix::world();
    let session = all_dead(&mut world, "ignorant");
    crate::server::matrix::restart(&mut world, "on_prompt");
    // The log sweep has found that nothing is there.
    let status = world.when(&session, |status| status["executor_status"] == "stopped");
    assert_eq!(status["resume_reason"], "agent_not_running_fresh_start", "{status:#}");
    assert_eq!(status["context_reason"], "not_resumable", "{status:#}");
    // Workspace only: shells, files and git do not wait for an agent.
    world.get(&format!("/api/v1/sessions/{session}/files")).good();
    let status = world.status(&session);
    assert_eq!(status["executor_status"], "ready", "{status:#}");
    assert_eq!(status["is_agent_running"], false, "{status:#}");
}
