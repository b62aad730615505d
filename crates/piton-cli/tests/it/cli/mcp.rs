//! `piton mcp`, driven over standard input and output as a client does: every tool's parameters and result.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::home::Home;
use crate::tools;

struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Client {
    fn start(home: &Home) -> Self {
        let mut command = home.command(["mcp"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, input, output, last: 0 };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let info = client.ask("initialize", &hello);
        assert_eq!(info["serverInfo"]["name"], "piton");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
        input.flush().unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the server ended");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == self.last {
                assert_eq!(answer.get("error"), None, "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// What a tool returns.
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, Value> {
        let result = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        let content = result["structuredContent"].clone();
        let text: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, content, "clients without structured content get the same");
        if result["isError"] == true { Err(content["error"].clone()) } else { Ok(content) }
    }

    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// The names of an object's fields.
fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs");
    folder.join(name).canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// Asks until there is something.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Wants to show: the tools have the promised parameters, and no others.
#[test]
fn tools_have_their_parameters() {
    let home = Home::new();
    let mut client = Client::start(&home);
    let listed = client.ask("tools/list", &json!({}));
    let mut tools: Vec<(String, Vec<String>, Vec<String>)> = Vec::new();
    for tool in listed["tools"].as_array().unwrap() {
        let schema = &tool["inputSchema"];
        let own = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let required = required.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        tools.push((
            tool["name"].as_str().unwrap().to_owned(),
            own(fields(&schema["properties"])),
            required,
        ));
    }
    tools.sort();
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let tool = |name: &str, all: &[&str], required: &[&str]| {
        (name.to_owned(), names(all), names(required))
    };
    assert_eq!(
        tools,
        [
            tool("answer_wait", &["answer", "session_id", "wait_id"], &["session_id", "answer"]),
            tool("fork_session", &["checkpoint_id", "session_id"], &["session_id"]),
            tool(
                "inspect_checkpoint",
                &["agent_work_dir", "checkpoint_id", "include_memory", "session_id"],
                &["session_id", "checkpoint_id"]
            ),
            tool("list_resumable_sessions", &["agent_work_dir", "limit", "status"], &[]),
            tool(
                "list_session_checkpoints",
                &["agent_work_dir", "checkpoint_type", "clean_only", "session_id"],
                &["session_id"]
            ),
            tool(
                "resume_session",
                &["agent_work_dir", "checkpoint_id", "memory_modifications", "session_id"],
                &["session_id"]
            ),
            tool("run_graph", &["agent_work_dir", "graph", "inputs"], &["graph"]),
        ]
    );
    client.end();
}

/// Wants to show: an agent finds a failed run, looks into it, sets the missing value, and it completes; each
/// result has the promised fields, and no others.
#[test]
fn an_agent_mends_a_failed_run() {
    let home = Home::new();
    let mut client = Client::start(&home);
    let started = client.call("run_graph", &json!({"graph": example("credential.yaml")})).unwrap();
    assert_eq!(fields(&started), ["graph", "session_id", "status"]);
    let session = started["session_id"].as_str().unwrap().to_owned();
    let failed = until(|| {
        let listed = client.call("list_resumable_sessions", &json!({})).unwrap();
        assert_eq!(fields(&listed), ["sessions", "total"]);
        (listed["total"] == 1).then(|| listed["sessions"][0].clone())
    });
    assert_eq!(
        fields(&failed),
        [
            "created_at",
            "error",
            "failed_at_node",
            "last_checkpoint",
            "session_id",
            "status",
            "updated_at"
        ]
    );
    assert_eq!(failed["session_id"], session.as_str());
    assert_eq!((&failed["failed_at_node"], &failed["status"]), (&"n9".into(), &"failed".into()));
    assert!(failed["error"].as_str().unwrap().contains("api_key is not set"));
    let elsewhere = json!({"agent_work_dir": "/nowhere"});
    assert_eq!(client.call("list_resumable_sessions", &elsewhere).unwrap()["total"], 0);

    let asked =
        json!({"session_id": session, "checkpoint_type": "node_complete", "clean_only": true});
    let listed = client.call("list_session_checkpoints", &asked).unwrap();
    assert_eq!(fields(&listed), ["checkpoints", "session_id"]);
    let checkpoints = listed["checkpoints"].as_array().unwrap();
    assert_eq!(checkpoints.len(), 8);
    assert_eq!(
        fields(&checkpoints[7]),
        [
            "can_resume_from",
            "checkpoint_id",
            "created_at",
            "current_node",
            "description",
            "is_clean",
            "type"
        ]
    );
    let last = checkpoints[7]["checkpoint_id"].as_str().unwrap();
    let mut asked = json!({"session_id": session, "checkpoint_id": last});
    let inspected = client.call("inspect_checkpoint", &asked.clone()).unwrap();
    let mut expected = vec![
        "accumulated_outputs",
        "checkpoint_id",
        "current_node",
        "execution_path",
        "metrics_snapshot",
        "type",
    ];
    assert_eq!(fields(&inspected), expected);
    assert_eq!(fields(&inspected["metrics_snapshot"]), ["nodes_with_failures", "total_retries"]);
    asked["include_memory"] = true.into();
    let inspected = client.call("inspect_checkpoint", &asked).unwrap();
    expected.insert(4, "memory");
    assert_eq!(fields(&inspected), expected);
    assert_eq!(inspected["memory"]["h"], 8);

    let wrong = json!({"session_id": session, "memory_modifications": "{\"apikey\": 1}"});
    let error = client.call("resume_session", &wrong).unwrap_err();
    assert_eq!(error["code"], "graph_input_invalid");
    assert_eq!(error["hint"], "Did you mean `api_key`?");
    let set =
        json!({"session_id": session, "memory_modifications": "{\"api_key\": \"sk-0123456789\"}"});
    let resumed = client.call("resume_session", &set).unwrap();
    assert_eq!(fields(&resumed), ["message", "resumed_from", "session_id", "status"]);
    assert_eq!(resumed["status"], "active");
    until(|| {
        let asked = json!({"status": "completed"});
        let listed = client.call("list_resumable_sessions", &asked).unwrap();
        (listed["total"] == 1).then_some(())
    });
    let forked =
        client.call("fork_session", &json!({"session_id": session, "checkpoint_id": last}));
    assert_eq!(fields(&forked.unwrap()), ["checkpoint_id", "forked_from", "session_id"]);
    client.end();
    assert_eq!(home.files_with("sk-0123456789"), Vec::<std::path::PathBuf>::new());
}

/// Wants to show: a question is answered by a tool, and the graph continues; and what is wrong has a code.
#[test]
fn an_agent_answers_a_question() {
    let home = Home::new();
    let mut client = Client::start(&home);
    let run = json!({"graph": example("approval.yaml"), "inputs": {"topic": "pitons"}});
    let session = client.call("run_graph", &run).unwrap()["session_id"].clone();
    let answer = |option: &str| json!({"session_id": session, "answer": option});
    until(|| match client.call("answer_wait", &answer("perhaps")) {
        Err(error) if error["code"] == "answer_invalid" => Some(()),
        // It does not wait yet, or its process has not let go of it.
        Err(error) => {
            let code = error["code"].as_str().unwrap();
            assert!(["wait_not_found", "session_owned"].contains(&code), "{error}");
            None
        }
        Ok(answered) => panic!("{answered}"),
    });
    client.call("answer_wait", &answer("send")).unwrap();
    until(|| {
        let asked = json!({"status": "completed"});
        let listed = client.call("list_resumable_sessions", &asked).unwrap();
        (listed["total"] == 1).then_some(())
    });
    for (tool, arguments, code) in [
        ("run_graph", json!({"graph": "/nowhere.yaml"}), "graph_invalid"),
        ("resume_session", json!({"session_id": "sess_none"}), "session_not_found"),
        ("list_resumable_sessions", json!({"status": "lost"}), "request_invalid"),
        (
            "inspect_checkpoint",
            json!({"session_id": session, "checkpoint_id": "x"}),
            "checkpoint_not_found",
        ),
    ] {
        assert_eq!(client.call(tool, &arguments).unwrap_err()["code"], code, "{tool}");
    }
    client.end();
}

/// Wants to show: the official SDK's client understands the server.
#[test]
fn the_official_client_understands_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../target/tools/mcp/bin/python");
    if !python.exists() {
        tools::left_out("MCP", "the SDK is not installed; `make setup` does that");
        return;
    }
    let home = Home::new();
    let ran = std::process::Command::new(python)
        .arg(root.join("tests/it/cli/mcp_client.py"))
        .arg(tools::piton())
        .arg(home.data())
        .arg(example("credential.yaml"))
        .env("HOME", home.path())
        .output()
        .unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{printed}\n{}", String::from_utf8_lossy(&ran.stderr));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[1..], ["n9", "17", "8", "active", "completed"]);
}
