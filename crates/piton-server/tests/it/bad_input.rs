//! Every operation with what it does not expect: something unknown, a closed session, a token without
//! the scope, a repetition under a key, eight at once, an executor that does not respond, a full disk.

use std::fmt::Write as _;

use piton_api::client::{Client, Error};
use piton_api::queue::PromptRequest;
use piton_api::session::{CloseRequest, NewSession};
use piton_core::access::Scope;
use serde_json::{Value, json};

use crate::agentctl::{Fleet, HANG};
use crate::world::World;

/// An operation. `{s}`, `{t}` and `{m}` are a session, a task and a queued prompt.
struct Operation {
    name: &'static str,
    verb: &'static str,
    path: &'static str,
    body: &'static str,
    scope: Scope,
    is_keyed: bool,
}

const fn op(
    name: &'static str,
    verb: &'static str,
    path: &'static str,
    body: &'static str,
    scope: Scope,
    is_keyed: bool,
) -> Operation {
    Operation { name, verb, path, body, scope, is_keyed }
}

const LINK: &str = r#"{"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]}"#;
const IMAGE: &str = r#"{"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}"#;

const OPERATIONS: &[Operation] = &[
    op("queue list", "GET", "/sessions/{s}/queue", "", Scope::Read, false),
    op("queue show", "GET", "/sessions/{s}/queue/{m}", "", Scope::Read, false),
    op("queue add", "POST", "/sessions/{s}/queue", r#"{"content": "x"}"#, Scope::Control, true),
    op(
        "queue edit",
        "PATCH",
        "/sessions/{s}/queue/{m}",
        r#"{"content": "y"}"#,
        Scope::Control,
        true,
    ),
    op(
        "queue move",
        "PATCH",
        "/sessions/{s}/queue/{m}",
        r#"{"position": 1}"#,
        Scope::Control,
        true,
    ),
    op("queue remove", "DELETE", "/sessions/{s}/queue/{m}", "", Scope::Control, true),
    op("queue release", "POST", "/sessions/{s}/queue/release", "", Scope::Control, true),
    op("prompt with a link", "POST", "/sessions/{s}/messages", LINK, Scope::Control, true),
    op("prompt with an image", "POST", "/sessions/{s}/messages", IMAGE, Scope::Control, true),
    op("open", "POST", "/sessions/{s}/open", "", Scope::Control, false),
    op("start", "POST", "/sessions/{s}/start", "", Scope::Control, true),
    op("abandon", "POST", "/sessions/{s}/abandon", "", Scope::Control, true),
    op("stop", "POST", "/sessions/{s}/stop", "", Scope::Control, true),
    op("configure", "POST", "/sessions/{s}/agent", r#"{"mode": "code"}"#, Scope::Control, true),
    op("agent view", "GET", "/sessions/{s}/agent", "", Scope::Read, false),
    op(
        "assign",
        "PUT",
        "/sessions/{s}/agent",
        r#"{"agent_profile_id": "echo"}"#,
        Scope::Control,
        true,
    ),
    op("login", "POST", "/sessions/{s}/login", r#"{"auth_method": "key"}"#, Scope::Control, true),
    op("fork", "POST", "/sessions/{s}/fork", r#"{"start": false}"#, Scope::Control, true),
    op("rename", "PATCH", "/sessions/{s}", r#"{"title": "t"}"#, Scope::Control, true),
    op("redact", "POST", "/sessions/{s}/redact", r#"{"value": "hang"}"#, Scope::Admin, false),
    op("verify one", "GET", "/sessions/{s}/verify", "", Scope::Read, false),
    op("bootstrap", "GET", "/sessions/{s}/bootstrap", "", Scope::Read, false),
    op("shells", "GET", "/sessions/{s}/shells", "", Scope::Read, false),
    op(
        "open shell",
        "POST",
        "/sessions/{s}/shells",
        r#"{"cols": 80, "rows": 24}"#,
        Scope::Control,
        true,
    ),
    op("agent sessions", "GET", "/agents/echo/sessions", "", Scope::Read, false),
    op(
        "create with mcp",
        "POST",
        "/sessions",
        r#"{"start": false, "mcp_servers": [{"name": "g", "command": "g"}]}"#,
        Scope::Control,
        true,
    ),
    op("task edit", "PATCH", "/tasks/{t}", r#"{"title": "t"}"#, Scope::Control, true),
    op(
        "task close",
        "PATCH",
        "/tasks/{t}",
        r#"{"closed": true, "outcome": "failed"}"#,
        Scope::Control,
        true,
    ),
    op("task delete", "DELETE", "/tasks/{t}?force=true", "", Scope::Admin, true),
    op("verify", "GET", "/verify", "", Scope::Admin, false),
    op("prune", "POST", "/prune", r#"{"delete_after_s": 86400}"#, Scope::Admin, false),
    op("doctor", "GET", "/doctor", "", Scope::Read, false),
    op("git branch", "GET", "/sessions/{s}/git/branch", "", Scope::Read, false),
    op(
        "git commit",
        "POST",
        "/sessions/{s}/git/commit",
        r#"{"message": "m"}"#,
        Scope::Control,
        true,
    ),
    op("git merge", "POST", "/sessions/{s}/git/merge", "", Scope::Control, true),
    op("git push", "POST", "/sessions/{s}/git/push", "", Scope::Control, true),
    op("reload", "POST", "/reload", "", Scope::Admin, false),
];

/// A session with a run that does not end, a queued prompt and a task.
struct Ids {
    session: String,
    task: String,
    message: String,
}

async fn made(client: &Client) -> Ids {
    let task = client.raw("POST", "/api/v1/tasks", r#"{"title": "T"}"#).await.unwrap();
    let task = task["task_id"].as_str().unwrap().to_owned();
    let new = json!({"task_id": task, "agent_profile_id": "echo"});
    let new: NewSession = serde_json::from_value(new).unwrap();
    let session = client.create_session(&new).await.unwrap().session_id;
    client.prompt(&session, &PromptRequest::new(HANG)).await.unwrap();
    let queued = client.prompt(&session, &PromptRequest::queued("next")).await.unwrap();
    Ids { session: session.to_string(), task, message: queued.message_id }
}

impl Operation {
    async fn ask(&self, client: &Client, ids: &Ids) -> Result<Value, Error> {
        let path = self.path.replace("{s}", &ids.session);
        let path = path.replace("{t}", &ids.task).replace("{m}", &ids.message);
        client.raw(self.verb, &format!("/api/v1{path}"), self.body).await
    }
}

/// The code of a refusal; `ok` otherwise. What is not coded is no answer.
fn code(came: &Result<Value, Error>) -> String {
    match came {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.code().map_or_else(|| panic!("{error:?}"), |code| code.to_string()),
    }
}

async fn all(client: &Client, fleet: &Fleet, world: &World, what: &str) -> Vec<String> {
    let mut codes = Vec::new();
    for operation in OPERATIONS {
        let mut ids = made(client).await;
        let caller = match (what, operation.scope) {
            ("scope", Scope::Read) => world.client_with(&[Scope::Control].into()).await,
            ("scope", _) => world.client_with(&[Scope::Read].into()).await,
            _ => client.clone(),
        };
        let came = match what {
            "unknown" => {
                let none = |kind: &str| format!("{kind}_none");
                ids = Ids { session: none("sess"), task: none("task"), message: none("msg") };
                code(&operation.ask(&caller, &ids).await)
            }
            "scope" => code(&operation.ask(&caller, &ids).await),
            // Its executor is being stopped; the answer depends on whether it responds still.
            "closed" if operation.name == "abandon" => "-".to_owned(),
            "closed" => {
                let session = ids.session.parse().unwrap();
                client.close(&session, &CloseRequest::default()).await.unwrap();
                code(&operation.ask(&caller, &ids).await)
            }
            "away" => {
                fleet.set_away(true);
                let came = operation.ask(&caller, &ids).await;
                fleet.set_away(false);
                code(&came)
            }
            "full" => {
                world.set_full(true);
                let came = operation.ask(&caller, &ids).await;
                world.set_full(false);
                // Nothing is lost, and the same request succeeds or fails for another reason.
                let session = ids.session.parse().unwrap();
                client.session(&session).await.unwrap();
                let again = code(&operation.ask(&caller, &ids).await);
                assert_ne!(again, "disk_full", "{}", operation.name);
                code(&came)
            }
            "key" if operation.is_keyed => {
                let keyed = caller
                    .with_idempotency_key(format!("key-{}", operation.name.replace(' ', "-")));
                let (first, second) =
                    (operation.ask(&keyed, &ids).await, operation.ask(&keyed, &ids).await);
                if let (Ok(first), Ok(second)) = (&first, &second) {
                    assert_eq!(first, second, "{}", operation.name);
                }
                format!("{}/{}", code(&first), code(&second))
            }
            "key" => "-".to_owned(),
            _ => {
                let asked = (0..8).map(|_| operation.ask(&caller, &ids));
                let came = futures_util::future::join_all(asked).await;
                let mut codes: Vec<String> = came.iter().map(code).collect();
                codes.sort();
                codes.dedup();
                codes.join("|")
            }
        };
        codes.push(came);
    }
    codes
}

/// Wants to show: each cell is a coded answer, and which one. A change of the table is a change of the
/// contract.
#[tokio::test(flavor = "multi_thread")]
async fn every_operation_answers_bad_input_with_a_code() {
    let (world, fleet) = World::with_agents().await;
    let client = &world.client;
    let columns = ["unknown", "scope", "closed", "away", "full", "key", "eight"];
    let mut found = vec![String::new(); OPERATIONS.len()];
    for column in columns {
        let codes = all(client, &fleet, &world, column).await;
        for (row, code) in found.iter_mut().zip(codes) {
            write!(row, " {column}={code}").unwrap();
        }
    }
    let named = OPERATIONS.iter().zip(&found);
    let mut table = String::new();
    for (operation, row) in named {
        writeln!(table, "{}:{row}", operation.name).unwrap();
    }
    assert_eq!(table, TABLE, "found:\n{table}");
}

/// A repetition under a key (`key`) is answered as the first time; of eight at once all codes are named.
/// No write is needed where a full disk is `ok`: nothing is read, held, due or different.
const TABLE: &str = "\
queue list: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- eight=ok
queue show: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- eight=ok
queue add: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok eight=ok
queue edit: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok eight=ok
queue move: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=ok key=ok/ok eight=ok
queue remove: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok eight=ok|queued_prompt_not_found
queue release: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=ok key=ok/ok eight=ok
prompt with a link: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok eight=ok
prompt with an image: unknown=session_not_found scope=insufficient_scope closed=content_not_supported away=content_not_supported full=content_not_supported key=content_not_supported/content_not_supported eight=content_not_supported
open: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- eight=ok
start: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=ok key=ok/ok eight=ok
abandon: unknown=session_not_found scope=insufficient_scope closed=- away=ok full=executor_in_use key=executor_in_use/executor_in_use eight=executor_in_use
stop: unknown=session_not_found scope=insufficient_scope closed=session_closed away=run_in_progress full=run_in_progress key=run_in_progress/run_in_progress eight=run_in_progress
configure: unknown=session_not_found scope=insufficient_scope closed=session_closed away=agentctl_unreachable full=disk_full key=ok/ok eight=ok
agent view: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- eight=ok
assign: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=ok key=ok/ok eight=ok
login: unknown=session_not_found scope=insufficient_scope closed=session_closed away=agentctl_unreachable full=ok key=ok/ok eight=ok
fork: unknown=session_not_found scope=insufficient_scope closed=ok away=run_in_progress full=run_in_progress key=run_in_progress/run_in_progress eight=run_in_progress
rename: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok eight=ok
redact: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=- eight=ok
verify one: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- eight=ok
bootstrap: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- eight=ok
shells: unknown=session_not_found scope=insufficient_scope closed=ok away=workspace_missing full=workspace_missing key=- eight=workspace_missing
open shell: unknown=session_not_found scope=insufficient_scope closed=session_closed away=workspace_missing full=workspace_missing key=workspace_missing/workspace_missing eight=workspace_missing
agent sessions: unknown=ok scope=insufficient_scope closed=ok away=agentctl_unreachable full=ok key=- eight=ok
create with mcp: unknown=ok scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok eight=ok
task edit: unknown=task_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok eight=ok
task close: unknown=task_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok eight=ok
task delete: unknown=task_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok eight=ok|task_not_found
verify: unknown=ok scope=insufficient_scope closed=ok away=ok full=ok key=- eight=ok
prune: unknown=ok scope=insufficient_scope closed=ok away=ok full=ok key=- eight=ok
doctor: unknown=not_found scope=insufficient_scope closed=not_found away=not_found full=not_found key=- eight=not_found
git branch: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- eight=ok
git commit: unknown=session_not_found scope=insufficient_scope closed=git_failed away=git_failed full=git_failed key=git_failed/git_failed eight=git_failed
git merge: unknown=session_not_found scope=insufficient_scope closed=base_not_found away=base_not_found full=base_not_found key=base_not_found/base_not_found eight=base_not_found
git push: unknown=session_not_found scope=insufficient_scope closed=base_not_found away=base_not_found full=base_not_found key=base_not_found/base_not_found eight=base_not_found
reload: unknown=not_found scope=insufficient_scope closed=not_found away=not_found full=not_found key=- eight=not_found
";
