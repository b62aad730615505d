//! Every operation of the API, asked for once in a life as people lead it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::server::world::{Answer, World};

/// What the API describes and what was asked.
struct Walk {
    world: World,
    asked: BTreeSet<(String, String)>,
}

impl Walk {
    /// Asks for an operation by its name in the description; `names` fill the braces.
    fn ask(&mut self, method: &str, path: &str, names: &[&str], body: Option<&Value>) -> Answer {
        self.asked.insert((method.to_lowercase(), path.to_owned()));
        let mut filled = path.to_owned();
        for name in names {
            let (begin, end) = (filled.find('{').unwrap(), filled.find('}').unwrap());
            filled.replace_range(begin..=end, name);
        }
        self.world.ask(method, &filled, body, &[])
    }

    fn good(&mut self, method: &str, path: &str, names: &[&str], body: Option<&Value>) -> Value {
        self.ask(method, path, names, body).good()
    }
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}")).to_owned()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one life, in its order")]
fn every_operation_does_what_it_says() {
    let mut walk = Walk { world: World::new(), asked: BTreeSet::new() };
    let walk = &mut walk;
    for path in ["/health", "/ready"] {
        assert_eq!(walk.good("GET", path, &[], None)["status"], "ok");
    }
    let agents = walk.good("GET", "/api/v1/agents", &[], None);
    let listed = agents["agents"].as_array().unwrap();
    assert!(listed.iter().any(|agent| agent["agent_profile_id"] == "echo"), "{agents:#}");

    let body = json!({"title": "Fix it"});
    let task = text(&walk.good("POST", "/api/v1/tasks", &[], Some(&body)), "task_id");
    assert_eq!(walk.good("GET", "/api/v1/tasks", &[], None)["tasks"][0]["state"], "TODO");
    let body = json!({"task_id": task, "title": "one", "start": false, "working_dir": walk.world.workspace()});
    let made = walk.good("POST", "/api/v1/sessions", &[], Some(&body));
    let session = &text(&made, "session_id");
    let empty = json!({});
    walk.good("POST", "/api/v1/sessions/{session_id}/start", &[session], Some(&empty));
    let opened = walk.good("POST", "/api/v1/sessions/{session_id}/open", &[session], Some(&empty));
    assert_eq!(opened["session_id"], session.as_str());
    let shown = walk.good("GET", "/api/v1/sessions/{session_id}", &[session], None);
    assert_eq!((&shown["is_agent_running"], &shown["task_id"]), (&json!(true), &json!(task)));
    let listed = walk.good("GET", "/api/v1/sessions", &[], None);
    assert_eq!(listed["sessions"][0]["session_id"], session.as_str());
    let running = walk.good("GET", "/api/v1/executors", &[], None);
    assert_eq!(running["executions"][0]["session_id"], session.as_str());

    // A turn with a question, answered by its id.
    let messages = "/api/v1/sessions/{session_id}/messages";
    walk.good("POST", messages, &[session], Some(&json!({"content": "ask May I?\nsay thanks"})));
    walk.world.when(session, |status| status["status"] == "waiting");
    let waits = walk.good("GET", "/api/v1/waits", &[], None);
    let wait = &text(&waits["waits"][0], "wait_id");
    let records = walk.good("GET", "/api/v1/sessions/{session_id}/records", &[session], None);
    let asked = records["records"].as_array().unwrap();
    let asked = asked.iter().find(|record| record["kind"] == "run.waiting").unwrap();
    let option = text(&asked["question"]["options"][0], "option_id");
    let whole = walk.good("GET", "/api/v1/waits/{wait_id}", &[wait], None);
    assert_eq!(whole["permission"]["title"], "May I?", "{whole:#}");
    assert_eq!(whole["permission"]["options"][0]["option_id"], option.as_str());
    let minted = walk.good("POST", "/api/v1/waits/{wait_id}/token", &[wait], None);
    assert!(text(&minted, "token").starts_with("rt_"));
    let unfit = json!({"answer": {"option_id": "perhaps"}});
    let refused = walk.ask("POST", "/api/v1/waits/{wait_id}/answer", &[wait], Some(&unfit));
    assert_eq!((refused.status, refused.code()), (400, "answer_invalid"));
    let answer = json!({"answer": {"option_id": option}});
    walk.good("POST", "/api/v1/waits/{wait_id}/answer", &[wait], Some(&answer));
    let done = walk.world.when(session, |status| status["status"] == "idle");
    assert_eq!(done["last_outcome"], "completed");
    let said = walk.good("GET", messages, &[session], None).to_string();
    assert!(said.contains("thanks"), "{said}");

    // The same, answered with the token of a stranger.
    walk.good("POST", messages, &[session], Some(&json!({"content": "ask And now?"})));
    let waiting = walk.world.when(session, |status| status["status"] == "waiting");
    let wait = &text(&waiting["waits"][0], "wait_id");
    let minted = walk.good("POST", "/api/v1/waits/{wait_id}/token", &[wait], None);
    let answer = json!({"token": minted["token"], "answer": {"option_id": option}});
    let token_id = &text(&minted, "token_id");
    for replayed in [false, true] {
        let answered =
            walk.good("POST", "/api/v1/resume-tokens/{token_id}", &[token_id], Some(&answer));
        assert_eq!(answered["replayed"], replayed);
    }
    walk.world.when(session, |status| status["status"] == "idle");

    // Paused and resumed, cancelled, interrupted and dismissed.
    walk.good("POST", messages, &[session], Some(&json!({"content": "wait 60000"})));
    walk.world.when(session, |status| status["status"] == "running");
    walk.good("POST", "/api/v1/sessions/{session_id}/pause", &[session], Some(&empty));
    walk.world.when(session, |status| status["status"] == "paused");
    walk.good("POST", "/api/v1/sessions/{session_id}/resume", &[session], Some(&empty));
    let other = walk.world.session();
    walk.world.prompt(&other, "wait 60000");
    walk.good("POST", "/api/v1/sessions/{session_id}/cancel", &[&other], Some(&empty));
    walk.world.when(&other, |status| status["last_outcome"] == "cancelled");
    walk.world.prompt(&other, "crash");
    walk.world.when(&other, |status| status["status"] == "interrupted_startup");
    let minted = walk.good(
        "POST",
        "/api/v1/sessions/{session_id}/token",
        &[&other],
        Some(&json!({"valid_for_s": 60})),
    );
    assert!(text(&minted, "token").starts_with("rt_"));
    walk.good("POST", "/api/v1/sessions/{session_id}/dismiss", &[&other], Some(&empty));
    walk.world.when(&other, |status| status["reason"] == "run_dismissed");
    walk.good("POST", "/api/v1/sessions/{session_id}/stop", &[&other], None);
    walk.world.when(&other, |status| status["executor_status"] == "stopped");

    // Prompts that wait for the run to end, and are held when it is cancelled.
    let queue = "/api/v1/sessions/{session_id}/queue";
    walk.world.prompt(&other, "wait 60000");
    let first = walk.good("POST", queue, &[&other], Some(&json!({"content": "say first"})));
    assert_eq!((&first["queued"], &first["position"]), (&json!(true), &json!(1)));
    let second = walk.good("POST", queue, &[&other], Some(&json!({"content": "say second"})));
    let one = "/api/v1/sessions/{session_id}/queue/{message_id}";
    let (first, second) = (&text(&first, "message_id"), &text(&second, "message_id"));
    assert_eq!(walk.good("GET", one, &[&other, first], None)["content"], "say first");
    walk.good("PATCH", one, &[&other, second], Some(&json!({"position": 1})));
    walk.good("DELETE", one, &[&other, first], None);
    let listed = walk.good("GET", queue, &[&other], None);
    assert_eq!(listed["prompts"].as_array().unwrap().len(), 1);
    assert_eq!(listed["prompts"][0]["message_id"], second.as_str());
    walk.good("POST", "/api/v1/sessions/{session_id}/cancel", &[&other], Some(&empty));
    let held = walk.world.when(&other, |status| status["reason"] == "queue_held");
    assert_eq!(held["queue"], json!({"length": 1, "held": true}));
    let release = "/api/v1/sessions/{session_id}/queue/release";
    walk.good("POST", release, &[&other], Some(&empty));
    let done = walk.world.when(&other, |status| status["reason"] == "run_completed");
    assert_eq!(done["queue"], json!({"length": 0, "held": false}));

    // Who may do all this.
    let body = json!({"name": "phone", "scopes": ["read"], "expires_in_s": 60});
    let granted = walk.good("POST", "/api/v1/access-tokens", &[], Some(&body));
    assert!(text(&granted, "token").starts_with("key_"));
    assert_eq!(walk.good("GET", "/api/v1/access-tokens", &[], None)["access"][0]["name"], "phone");
    let audit = walk.good("GET", "/api/v1/audit", &[], None);
    let audit = audit["records"].as_array().unwrap();
    let granted_to = audit.iter().find(|record| record["kind"] == "access_token.created").unwrap();
    assert_eq!((&granted_to["name"], &granted_to["hash"]), (&json!("phone"), &Value::Null));
    let by = audit.iter().find(|record| record["action"] == "access.create").unwrap();
    assert_eq!((&by["principal"], &by["key"]), (&json!("local"), &Value::Null));
    let id = &text(&granted, "access_token_id");
    assert_eq!(
        walk.ask("DELETE", "/api/v1/access-tokens/{access_token_id}", &[id], None).status,
        204
    );
    let body = json!({"name": "browser", "scopes": ["read", "control"]});
    let link = text(&walk.good("POST", "/api/v1/links", &[], Some(&body)), "token");
    let signed = walk.good("POST", "/api/v1/sign-in", &[], Some(&json!({"link": link})));
    assert!(text(&signed, "token").starts_with("key_"));

    // What its agent offers, and has: agent_sessions.rs and others of the server's tests are about it.
    let agent = "/api/v1/sessions/{session_id}/agent";
    let offered = walk.good("GET", agent, &[&other], None);
    assert_eq!(offered["modes"]["available"][1]["id"], "quiet", "{offered:#}");
    walk.good("POST", agent, &[&other], Some(&json!({"mode": "quiet"})));
    let unknown = walk.ask("POST", agent, &[&other], Some(&json!({"mode": "none"})));
    assert_eq!((unknown.status, unknown.code()), (409, "choice_not_offered"));
    assert_eq!(walk.good("GET", agent, &[&other], None)["chosen"], json!({"mode": "quiet"}));
    // No profile is given by this name, whatever the session's own is.
    let nobody = walk.ask("PUT", agent, &[&other], Some(&json!({"agent_profile_id": "nobody"})));
    assert_eq!(nobody.code(), "agent_not_found");
    let listed = walk.good("GET", "/api/v1/agents/{agent}/sessions", &["echo"], None);
    assert!(listed["sessions"][0]["agent_session_id"].is_string(), "{listed:#}");
    let own = &text(&walk.world.status(&other)["executor"], "agent_session_id");
    let conversation = "/api/v1/agents/{agent}/sessions/{agent_session_id}";
    let kept = walk.ask("POST", &format!("{conversation}/close"), &["echo", own], None);
    assert_eq!((kept.status, kept.code()), (409, "agent_session_in_use"));
    let kept = walk.ask("DELETE", conversation, &["echo", own], None);
    assert_eq!((kept.status, kept.code()), (409, "agent_session_in_use"));
    let quiet = json!({"start": false});
    let fork = walk.good("POST", "/api/v1/sessions/{session_id}/fork", &[&other], Some(&quiet));
    let fork = &text(&fork, "session_id");
    walk.world.adopt(fork);
    assert_eq!(walk.good("GET", agent, &[fork], None)["forked_from"], other.as_str());
    let abandon = "/api/v1/sessions/{session_id}/abandon";
    let nothing = walk.ask("POST", abandon, &[fork], Some(&empty));
    assert_eq!((nothing.status, nothing.code()), (409, "executor_not_found"));
    let login = walk.ask("POST", "/api/v1/sessions/{session_id}/login", &[&other], Some(&empty));
    assert_eq!((login.status, login.code()), (400, "request_invalid"), "it has no way to log in");

    // What is left of it.
    let store = walk.good("GET", "/api/v1/verify", &[], None);
    let logs = store["logs"].as_array().unwrap();
    assert!(logs.len() > 2 && logs.iter().all(|log| log["good"] == true), "{store:#}");
    let due = json!({"delete_after_s": 3600, "dry_run": true});
    let due = walk.good("POST", "/api/v1/prune", &[], Some(&due));
    assert_eq!(due, json!({"sessions": [], "truncated": false}));
    let verified = walk.good("GET", "/api/v1/sessions/{session_id}/verify", &[session], None);
    assert_eq!(verified["good"], true);
    let shown = walk.good("GET", "/api/v1/tasks/{task_id}", &[&task], None);
    assert_eq!(shown["sessions"].as_array().unwrap().len(), 1);
    let metrics = walk.ask("GET", "/metrics", &[], None);
    assert!(metrics.text.contains("piton_append_records_total"), "{}", metrics.text);
    let path = "/api/v1/sessions/{session_id}";
    walk.good("PATCH", path, &[session], Some(&json!({"title": "renamed"})));
    assert_eq!(walk.world.status(session)["title"], "renamed");
    let redact = "/api/v1/sessions/{session_id}/redact";
    let redaction = walk.good("POST", redact, &[session], Some(&json!({"value": "thanks"})));
    assert_eq!(redaction["session_id"], session.as_str());
    let archive = "/api/v1/sessions/{session_id}/archive";
    let open = walk.ask("POST", archive, &[session], Some(&empty));
    assert_eq!(open.code(), "session_not_closed");
    walk.good("POST", "/api/v1/sessions/{session_id}/close", &[session], Some(&empty));
    assert_eq!(walk.world.status(session)["state"], "COMPLETED");
    walk.world.when(session, |status| status["executor_status"] == "stopped");
    assert_eq!(walk.ask("DELETE", path, &[session], None).status, 204);
    assert_eq!(walk.world.get(&format!("/api/v1/sessions/{session}")).code(), "session_not_found");

    let one = "/api/v1/tasks/{task_id}";
    let closed = json!({"title": "Fixed", "closed": true, "outcome": "completed"});
    walk.good("PATCH", one, &[&task], Some(&closed));
    let shown = walk.good("GET", one, &[&task], None);
    assert_eq!((&shown["title"], &shown["state"]), (&json!("Fixed"), &json!("COMPLETED")));
    assert_eq!(walk.ask("DELETE", one, &[&task], None).status, 204);
    assert_eq!(walk.ask("GET", one, &[&task], None).code(), "task_not_found");

    // The workspace, which workspace.rs is about.
    let of = "/api/v1/sessions/{session_id}";
    for path in ["files", "git/status", "git/diff", "git/log", "workspace/truth", "bootstrap"] {
        walk.good("GET", &format!("{of}/{path}"), &[&other], None);
    }
    walk.good("GET", "/api/v1/doctor", &[], None);
    // Finishing a branch, which piton-workspace's tests are about: this session has no worktree.
    let branch = walk.good("GET", &format!("{of}/git/branch"), &[&other], None);
    assert_eq!(branch["base"], json!(null), "{branch}");
    for (path, body, code) in [
        ("commit", json!({"message": "m"}), "git_failed"),
        ("merge", json!({}), "base_not_found"),
        ("push", json!({}), "base_not_found"),
    ] {
        let refused = walk.ask("POST", &format!("{of}/git/{path}"), &[&other], Some(&body));
        assert_eq!(refused.code(), code, "{path}");
    }
    let content = format!("{of}/files/content");
    assert_eq!(walk.ask("PUT", &content, &[&other], None).code(), "request_invalid");
    assert_eq!(walk.ask("GET", &content, &[&other], None).code(), "request_invalid");
    let shell = walk.good("POST", &format!("{of}/shells"), &[&other], Some(&empty));
    let shell = &text(&shell, "shell_id");
    let shells = walk.good("GET", &format!("{of}/shells"), &[&other], None);
    assert_eq!(shells["shells"][0]["shell_id"], shell.as_str());
    let one = format!("{of}/shells/{{shell_id}}");
    let socket = walk.ask("GET", &format!("{one}/socket"), &[&other, shell], None);
    assert_eq!(socket.code(), "request_invalid");
    assert_eq!(walk.ask("DELETE", &one, &[&other, shell], None).status, 204);
    assert_eq!(walk.ask("GET", "/api/v1/ws", &[], None).code(), "request_invalid");

    // A worktree, which worktrees.rs is about: this one has none.
    for method in ["POST", "DELETE"] {
        let none = walk.ask(method, &format!("{of}/worktree"), &[&other], None);
        assert_eq!((none.status, none.code()), (404, "worktree_not_found"));
    }

    // The way back, which rewind.rs is about.
    walk.good("GET", &format!("{of}/turn-checkpoints"), &[&other], None);
    let back = json!({"turns": 1_000});
    let none = walk.ask("POST", &format!("{of}/rewind"), &[&other], Some(&back));
    assert_eq!(none.code(), "checkpoint_not_found");
    assert_eq!(walk.ask("POST", &format!("{of}/undo"), &[&other], None).code(), "request_invalid");
    assert_eq!(walk.ask("GET", &format!("{of}/diff"), &[&other], None).code(), "request_invalid");

    // Graphs, which graphs.rs is about: this session runs none.
    let run = walk.ask("POST", "/api/v1/graphs/run", &[], Some(&json!({"graph": "nodes: 1"})));
    assert_eq!(run.code(), "graph_invalid");
    for (method, path) in [
        ("GET", "graph"),
        ("POST", "graph/resume"),
        ("GET", "timeline"),
        ("GET", "artifacts"),
        ("GET", "checkpoints"),
        ("POST", "checkpoints/prune"),
    ] {
        let none = walk.ask(method, &format!("{of}/{path}"), &[&other], None);
        assert_eq!((none.status, none.code()), (409, "session_not_graph"), "{method} {path}");
    }
    let one = format!("{of}/checkpoints/{{checkpoint_id}}");
    for method in ["GET", "DELETE"] {
        let none = walk.ask(method, &one, &[&other, "cp_none"], None);
        assert_eq!((none.status, none.code()), (409, "session_not_graph"), "{method}");
    }
    let artifact = format!("{of}/artifacts/{{name}}");
    let none = walk.ask("GET", &artifact, &[&other, "report.txt"], None);
    assert_eq!((none.status, none.code()), (409, "session_not_graph"));
    let diff = walk.ask("GET", &format!("{of}/checkpoints/diff"), &[&other], None);
    assert_eq!(diff.code(), "request_invalid");

    // The one that settings.rs is about.
    walk.good("POST", "/api/v1/reload", &[], None);
    // Those that streams.rs and index.rs are about.
    walk.asked.insert(("get".into(), "/api/v1/sessions/{session_id}/events".into()));
    walk.asked.insert(("get".into(), "/api/v1/events".into()));
    walk.good("GET", "/api/v1/sessions/{session_id}/status", &[&other], None);
    let description = walk.world.get("/api/v1/openapi.json").good();
    assert_eq!(description["openapi"], "3.1.0");
    let mut described = BTreeSet::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            described.insert((method.clone(), path.clone()));
        }
    }
    assert_eq!(walk.asked, described);
}

/// The fields of an executor, name by name.
#[test]
fn a_status_has_every_field_that_is_asked_for() {
    let mut world = World::new();
    let session = world.session();
    let status = world.status(&session);
    for name in [
        "session_id",
        "task_id",
        "state",
        "agent_profile_id",
        "executor_status",
        "agent_execution_id",
        "runtime",
        "is_agent_running",
        "is_resumable",
        "needs_resume",
        "resume_reason",
        "worktree_path",
        "worktree_branch",
        "status",
        "resume_strategy",
        "context_restored",
        "waits",
        "live",
    ] {
        assert!(status.get(name).is_some(), "{name} is missing: {status:#}");
    }
    assert_eq!(status["state"], "WAITING_FOR_INPUT");
    assert_eq!(status["executor_status"], "ready");
}

/// The same request under the same key is fulfilled once, also by another life of the server.
#[test]
fn requests_are_fulfilled_once() {
    let mut world = World::new();
    let session = world.session();
    let key = [("idempotency-key", "k1")];
    let body = json!({"content": "say once"});
    let path = format!("/api/v1/sessions/{session}/messages");
    let first = world.ask("POST", &path, Some(&body), &key).good();
    world.when(&session, |status| status["status"] == "idle");
    world.kill();
    world.start();
    // The local token is another one in another life; a lasting one is the same principal.
    let access = json!({"name": "script", "scopes": ["read", "control"]});
    let token = world.post("/api/v1/access-tokens", &access).good();
    let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
    let again = world.ask("POST", &path, Some(&body), &key);
    assert!(again.headers.contains("idempotency-replayed: true"), "{}", again.headers);
    assert_eq!(again.good(), first);
    let other = world.ask("POST", &path, Some(&json!({"content": "else"})), &key);
    assert_eq!((other.status, other.code()), (422, "idempotency_key_reused"));
    // The same key of another principal is another key.
    let headers = [("authorization", bearer.as_str()), key[0]];
    let body = body.to_string();
    let theirs = world.raw("POST", &path, Some(body.as_bytes()), &headers).good();
    assert_ne!(theirs["run_id"], first["run_id"]);

    // Answered, a question is not open any more; its answer is still known.
    let session = world.session();
    let run = world.prompt(&session, "ask May I?");
    let status = world.when(&session, |status| status["status"] == "waiting");
    let wait = &status["waits"][0];
    assert_eq!(wait["question"]["options"][0]["option_id"], "allow_once", "{wait:#}");
    assert_eq!(world.get("/api/v1/waits").good()["waits"][0]["question"], wait["question"]);
    let path = format!("/api/v1/waits/{}/answer", wait["wait_id"].as_str().unwrap());
    let yes = json!({"answer": {"option_id": "allow_once"}});
    let first = world.ask("POST", &path, Some(&yes), &key).good();
    let again = world.ask("POST", &path, Some(&yes), &key);
    assert!(again.headers.contains("idempotency-replayed: true"), "{again:?}");
    assert_eq!(again.good()["session_id"], first["session_id"]);
    let no = json!({"answer": {"option_id": "reject_once"}});
    let other = world.ask("POST", &path, Some(&no), &key);
    assert_eq!((other.status, other.code()), (422, "idempotency_key_reused"));
    assert_eq!(world.post(&path, &yes).code(), "wait_not_found");
    let rotate = path.replace("/answer", "/token");
    assert_eq!(world.ask("POST", &rotate, None, &key).code(), "wait_not_found");
    world.when(&session, |status| status["status"] == "idle" && status["run_id"] == run.as_str());

    // Also when other runs came after it, and another server.
    let next = world.prompt(&session, "say next");
    world.when(&session, |status| status["status"] == "idle" && status["run_id"] == next.as_str());
    world.kill();
    world.start();
    let again = world.ask("POST", &path, Some(&yes), &key);
    assert!(again.headers.contains("idempotency-replayed: true"), "{again:?}");
    assert_eq!(again.good()["replayed"], true);

    // A resume that had nothing to do does nothing later either.
    let path = format!("/api/v1/sessions/{session}/resume");
    let first = world.ask("POST", &path, None, &key).good();
    world.prompt(&session, "say there\ncrash");
    world.when(&session, |status| status["reason"] == "process_exit");
    let again = world.ask("POST", &path, None, &key);
    assert!(again.headers.contains("idempotency-replayed: true"), "{again:?}");
    assert_eq!(again.good(), first);
    assert_eq!(world.status(&session)["reason"], "process_exit", "nobody wished for more");

    let path = format!("/api/v1/sessions/{session}/shells");
    let shell = world.ask("POST", &path, Some(&json!({})), &key).good();
    let again = world.ask("POST", &path, Some(&json!({})), &key);
    assert!(again.headers.contains("idempotency-replayed: true"), "{again:?}");
    assert_eq!(again.good(), shell);
    assert_ne!(world.post(&path, &json!({})).good()["shell_id"], shell["shell_id"]);

    let create = json!({"title": "t", "start": false});
    let ask = |world: &World| world.ask("POST", "/api/v1/sessions", Some(&create), &key).good();
    let made = ask(&world);
    assert_eq!(ask(&world), made);
    let records = world.records(made["session_id"].as_str().unwrap());
    let created = records.iter().filter(|record| record["kind"] == "session.created");
    assert_eq!(created.count(), 1);
}
