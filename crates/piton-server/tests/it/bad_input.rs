//! Every operation with what it does not expect: something unknown, a closed session, a token without
//! the scope, a repetition under a key, eight at once, an executor that does not respond, a full disk,
//! more than a limit allows.

use std::fmt::Write as _;
use std::path::Path;

use piton_api::client::{Client, Error};
use piton_api::queue::PromptRequest;
use piton_api::session::{CloseRequest, NewSession, RunRequest};
use piton_core::access::Scope;
use piton_core::id::SessionId;
use serde_json::{Value, json};

use crate::agentctl::{ASK, Fleet, HANG, wait_of};
use crate::world::World;

/// How the session is when the operation comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Its run does not end, and a prompt is queued.
    Running,
    /// The same, with a second prompt in front of it.
    TwoQueued,
    /// The same, and then its run was cancelled: the prompts are held.
    Held,
    /// Its agent has nothing to do.
    Idle,
    /// Its agent waits for a permission.
    Asking,
    /// Its agent was killed in a run.
    Interrupted,
    /// Running, and its executor does not respond.
    Unresponsive,
    Closed,
    /// Idle, in a worktree of a repository.
    InWorktree,
    /// The same, with a file that is not committed.
    Changed,
    /// The same, with a commit that neither the base nor the remote has.
    Committed,
}

/// How to ask for more than a limit allows.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// There is none of its own.
    None,
    /// The queue is full.
    Queue,
    /// With this body.
    Body(fn() -> String),
}

/// A method of the WebSocket; its path is the method.
const SOCKET: &str = "SOCKET";

/// What a second request under the same key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeated {
    /// It changes nothing.
    Read,
    /// Answered as the first one.
    Keyed,
    /// Done again, or refused since it is done, key or not: it comes to the same.
    Again,
}

/// An operation. `{s}`, `{t}`, `{m}` and `{w}` are a session, a task, a queued prompt and a wait.
struct Operation {
    name: &'static str,
    verb: &'static str,
    path: &'static str,
    body: &'static str,
    scope: Scope,
    repeated: Repeated,
    setting: Setting,
    limit: Limit,
}

impl Operation {
    /// Done again when it is repeated.
    const fn again(self) -> Self {
        Self { repeated: Repeated::Again, ..self }
    }

    const fn on(self, setting: Setting) -> Self {
        Self { setting, ..self }
    }

    const fn limited(self, limit: Limit) -> Self {
        Self { limit, ..self }
    }
}

const fn op(
    name: &'static str,
    verb: &'static str,
    path: &'static str,
    body: &'static str,
    scope: Scope,
    is_keyed: bool,
) -> Operation {
    let (setting, limit) = (Setting::Running, Limit::None);
    let repeated = if is_keyed { Repeated::Keyed } else { Repeated::Read };
    Operation { name, verb, path, body, scope, repeated, setting, limit }
}

fn long_title() -> String {
    json!({"title": "t".repeat(1_025)}).to_string()
}

fn long_title_of_task() -> String {
    json!({"task_id": "{t}", "title": "t".repeat(1_025)}).to_string()
}

fn many_blocks() -> String {
    let block = json!({"type": "text", "text": "x"});
    json!({"content": vec![block; 257]}).to_string()
}

fn no_text() -> String {
    json!({"text": ""}).to_string()
}

fn many_servers() -> String {
    let server = |number: u32| json!({"name": format!("g{number}"), "command": "g"});
    let servers: Vec<_> = (0..33).map(server).collect();
    json!({"start": false, "mcp_servers": servers}).to_string()
}

fn large_shell() -> String {
    json!({"cols": 1_001, "rows": 24}).to_string()
}

fn long_reason() -> String {
    json!({"value": "hang", "reason": "r".repeat(1_025)}).to_string()
}

fn long_commit() -> String {
    json!({"message": "m".repeat(16 * 1_024 + 1)}).to_string()
}

const THEIRS: &str = "/agents/echo/sessions/theirs_old";
const THEIRS_CLOSE: &str = "/agents/echo/sessions/theirs_old/close";
const THEIR_OWN: &str = "/agents/echo/sessions/theirs_{s}";
/// A conversation that the agent does not know: the agent says so.
const NONE_OF_THEIRS: &str = "/agents/echo/sessions/theirs_none";
const NO_AGENT: &str = "/agents/nobody/sessions/theirs_old";
const NO_AGENT_CLOSE: &str = "/agents/nobody/sessions/theirs_old/close";

const TEXT: &str = r#"{"text": "y"}"#;
const LINK: &str = r#"{"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]}"#;
const AUDIO: &str = r#"{"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]}"#;
const IMAGE: &str = r#"{"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}"#;

const OPERATIONS: &[Operation] = &[
    op("queue list", "GET", "/sessions/{s}/queue", "", Scope::Read, false),
    op("queue show", "GET", "/sessions/{s}/queue/{m}", "", Scope::Read, false),
    op("queue add", "POST", "/sessions/{s}/queue", r#"{"content": "x"}"#, Scope::Control, true)
        .limited(Limit::Queue),
    op(
        "queue edit",
        "PATCH",
        "/sessions/{s}/queue/{m}",
        r#"{"content": "y"}"#,
        Scope::Control,
        true,
    )
    .limited(Limit::Body(many_blocks)),
    op("queue edit text", "PATCH", "/sessions/{s}/queue/{m}", TEXT, Scope::Control, true)
        .limited(Limit::Body(no_text)),
    op(
        "queue move",
        "PATCH",
        "/sessions/{s}/queue/{m}",
        r#"{"position": 1}"#,
        Scope::Control,
        true,
    )
    .on(Setting::TwoQueued),
    op("queue remove", "DELETE", "/sessions/{s}/queue/{m}", "", Scope::Control, true),
    op("queue release", "POST", "/sessions/{s}/queue/release", "", Scope::Control, true)
        .on(Setting::Held),
    op("prompt with a link", "POST", "/sessions/{s}/messages", LINK, Scope::Control, true)
        .limited(Limit::Body(many_blocks)),
    op("prompt with an image", "POST", "/sessions/{s}/messages", IMAGE, Scope::Control, true)
        .limited(Limit::Queue),
    op("prompt with a sound", "POST", "/sessions/{s}/messages", AUDIO, Scope::Control, true),
    op(
        "answer with a message",
        "POST",
        "/waits/{w}/answer",
        r#"{"answer": {"option_id": "no"}, "message": "why"}"#,
        Scope::Control,
        true,
    )
    .on(Setting::Asking)
    .limited(Limit::Queue),
    op("new resume token", "POST", "/waits/{w}/token", "", Scope::Control, true)
        .on(Setting::Asking),
    op("resume", "POST", "/sessions/{s}/resume", r#"{"continue": true}"#, Scope::Control, true)
        .on(Setting::Interrupted),
    op(
        "resume with history",
        "POST",
        "/sessions/{s}/resume",
        r#"{"continue": true, "context": "injected"}"#,
        Scope::Control,
        true,
    )
    .on(Setting::Interrupted),
    op("open", "POST", "/sessions/{s}/open", "", Scope::Control, false).again(),
    op("start", "POST", "/sessions/{s}/start", "", Scope::Control, true),
    op("abandon", "POST", "/sessions/{s}/abandon", "", Scope::Control, true),
    op("abandon what is away", "POST", "/sessions/{s}/abandon", "", Scope::Control, true)
        .on(Setting::Unresponsive),
    op("stop an idle agent", "POST", "/sessions/{s}/stop", "", Scope::Control, true)
        .on(Setting::Idle),
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
    op(
        "fork an idle one",
        "POST",
        "/sessions/{s}/fork",
        r#"{"start": false}"#,
        Scope::Control,
        true,
    )
    .on(Setting::Idle)
    .limited(Limit::Body(long_title)),
    op("fork", "POST", "/sessions/{s}/fork", r#"{"start": false}"#, Scope::Control, true),
    op("rename", "PATCH", "/sessions/{s}", r#"{"title": "t"}"#, Scope::Control, true)
        .limited(Limit::Body(long_title)),
    op("redact", "POST", "/sessions/{s}/redact", r#"{"value": "hang"}"#, Scope::Admin, false)
        .again()
        .limited(Limit::Body(long_reason)),
    op("archive", "POST", "/sessions/{s}/archive", "", Scope::Admin, false)
        .again()
        .on(Setting::Closed),
    op("archive a running one", "POST", "/sessions/{s}/archive", "", Scope::Admin, false).again(),
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
    )
    .limited(Limit::Body(large_shell)),
    op("write file", "PUT", "/sessions/{s}/files/content?path=a", "x", Scope::Control, false)
        .again(),
    op("repair worktree", "POST", "/sessions/{s}/worktree", "", Scope::Control, false)
        .again()
        .on(Setting::InWorktree),
    op("clean up worktree", "DELETE", "/sessions/{s}/worktree", "", Scope::Control, false)
        .again()
        .on(Setting::InWorktree),
    op("agent session close", "POST", THEIRS_CLOSE, "", Scope::Control, false).again(),
    op("agent session close, no agent", "POST", NO_AGENT_CLOSE, "", Scope::Control, false).again(),
    op("agent session delete", "DELETE", THEIRS, "", Scope::Admin, false).again(),
    op("agent session delete, its own", "DELETE", THEIR_OWN, "", Scope::Admin, false).again(),
    op("agent session delete, none", "DELETE", NONE_OF_THEIRS, "", Scope::Admin, false).again(),
    op("agent session delete, no agent", "DELETE", NO_AGENT, "", Scope::Admin, false).again(),
    op("agent sessions", "GET", "/agents/echo/sessions", "", Scope::Read, false),
    op(
        "create with mcp",
        "POST",
        "/sessions",
        r#"{"start": false, "mcp_servers": [{"name": "g", "command": "g"}]}"#,
        Scope::Control,
        true,
    )
    .limited(Limit::Body(many_servers)),
    op("task edit", "PATCH", "/tasks/{t}", r#"{"title": "t"}"#, Scope::Control, true)
        .limited(Limit::Body(long_title)),
    op(
        "task close",
        "PATCH",
        "/tasks/{t}",
        r#"{"closed": true, "outcome": "failed"}"#,
        Scope::Control,
        true,
    ),
    op(
        "task.update",
        SOCKET,
        "task.update",
        r#"{"task_id": "{t}", "title": "t"}"#,
        Scope::Control,
        true,
    )
    .limited(Limit::Body(long_title_of_task)),
    op("tasks.subscribe", SOCKET, "tasks.subscribe", "{}", Scope::Read, false),
    op("task delete", "DELETE", "/tasks/{t}?force=true", "", Scope::Admin, true),
    op("verify", "GET", "/verify", "", Scope::Admin, false),
    op("prune", "POST", "/prune", r#"{"delete_after_s": 86400}"#, Scope::Admin, false).again(),
    op("doctor", "GET", "/doctor", "", Scope::Read, false),
    op("git branch", "GET", "/sessions/{s}/git/branch", "", Scope::Read, false),
    op(
        "git commit",
        "POST",
        "/sessions/{s}/git/commit",
        r#"{"message": "m"}"#,
        Scope::Control,
        true,
    )
    .on(Setting::Changed)
    .limited(Limit::Body(long_commit)),
    op("git merge", "POST", "/sessions/{s}/git/merge", "", Scope::Control, true)
        .on(Setting::Committed),
    op("git push", "POST", "/sessions/{s}/git/push", "", Scope::Control, true)
        .on(Setting::Committed),
    op("reload", "POST", "/reload", "", Scope::Admin, false).again(),
];

/// Eight of these at once are answered by how far the first one is.
const RACES: &[&str] = &["resume with history", "stop an idle agent", "archive"];

/// A session and what belongs to it.
struct Ids {
    session: String,
    task: String,
    message: String,
    wait: String,
}

impl Ids {
    fn put_into(&self, text: &str) -> String {
        let text = text.replace("{s}", &self.session).replace("{w}", &self.wait);
        text.replace("{t}", &self.task).replace("{m}", &self.message)
    }
}

fn none_of() -> Ids {
    let none = |kind: &str| format!("{kind}_none");
    Ids { session: none("sess"), task: none("task"), message: none("msg"), wait: none("wait") }
}

fn git(at: &Path, arguments: &[&str]) {
    let mut git = std::process::Command::new("git");
    let done = git.current_dir(at).args(arguments).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A repository with one commit, and a remote.
fn repository(at: &Path) {
    std::fs::create_dir_all(at).unwrap();
    git(at, &["init", "-q"]);
    git(at, &["config", "user.name", "t"]);
    git(at, &["config", "user.email", "t@example.com"]);
    git(at, &["commit", "-q", "--allow-empty", "-m", "first"]);
    let remote = at.with_file_name("remote");
    let remote = remote.to_str().unwrap();
    git(at, &["init", "-q", "--bare", remote]);
    git(at, &["remote", "add", "origin", remote]);
}

/// Work in the worktree of a session, in a file that no other session has.
async fn work(client: &Client, session: &SessionId, is_committed: bool) {
    let worktree = client.session(session).await.unwrap().summary.worktree_path.unwrap();
    let worktree = Path::new(&worktree);
    std::fs::write(worktree.join(session.as_str()), "work").unwrap();
    if is_committed {
        git(worktree, &["add", "--all"]);
        git(worktree, &["commit", "-q", "-m", "work"]);
    }
}

async fn made(world: &World, fleet: &Fleet, setting: Setting) -> Ids {
    let client = &world.client;
    let task = client.raw("POST", "/api/v1/tasks", r#"{"title": "T"}"#).await.unwrap();
    let task = task["task_id"].as_str().unwrap().to_owned();
    let mut new = json!({"task_id": task, "agent_profile_id": "echo"});
    if matches!(setting, Setting::InWorktree | Setting::Changed | Setting::Committed) {
        let repo = world.web_folder().with_file_name("repository");
        if !repo.exists() {
            repository(&repo);
        }
        new["repo"] = json!(repo);
    }
    let new: NewSession = serde_json::from_value(new).unwrap();
    let session = client.create_session(&new).await.unwrap().session_id;
    let has = |kind: &'static str| {
        world.wait_for_record(&session, move |record: &Value| record["kind"] == kind)
    };
    let prompt = match setting {
        Setting::Running
        | Setting::TwoQueued
        | Setting::Held
        | Setting::Interrupted
        | Setting::Unresponsive => HANG,
        Setting::Asking => ASK,
        Setting::Idle
        | Setting::Closed
        | Setting::InWorktree
        | Setting::Changed
        | Setting::Committed => "hello",
    };
    client.prompt(&session, &PromptRequest::new(prompt)).await.unwrap();
    let mut ids = Ids { session: session.to_string(), task, ..none_of() };
    match setting {
        Setting::Running | Setting::TwoQueued | Setting::Held | Setting::Unresponsive => {
            if matches!(setting, Setting::TwoQueued | Setting::Held) {
                client.prompt(&session, &PromptRequest::queued("before")).await.unwrap();
            }
            let queued = client.prompt(&session, &PromptRequest::queued("next")).await.unwrap();
            ids.message = queued.message_id;
            if setting == Setting::Held {
                client.cancel(&session, &RunRequest::default()).await.unwrap();
                has("run.cancelled").await;
            }
        }
        Setting::Asking => {
            has("run.waiting").await;
            ids.wait = wait_of(&session).to_string();
        }
        Setting::Idle | Setting::InWorktree => has("run.completed").await,
        Setting::Changed | Setting::Committed => {
            has("run.completed").await;
            work(client, &session, setting == Setting::Committed).await;
        }
        Setting::Interrupted => {
            fleet.wait_for_turn(&session).await;
            world.kill_agents(fleet, &session).await;
            has("run.interrupted").await;
        }
        Setting::Closed => {
            has("run.completed").await;
            client.close(&session, &CloseRequest::default()).await.unwrap();
            has("executor.stopped").await;
        }
    }
    ids
}

impl Operation {
    async fn ask(&self, client: &Client, ids: &Ids) -> Result<Value, Error> {
        self.ask_with(client, ids, self.body).await
    }

    async fn ask_with(&self, client: &Client, ids: &Ids, body: &str) -> Result<Value, Error> {
        let path = ids.put_into(self.path);
        if self.verb == SOCKET {
            let params: Value = serde_json::from_str(&ids.put_into(body)).unwrap();
            return client.socket().await.unwrap().call(&path, &params).await;
        }
        client.raw(self.verb, &format!("/api/v1{path}"), body).await
    }

    /// With an idempotency key.
    async fn ask_keyed(&self, client: &Client, ids: &Ids) -> Result<Value, Error> {
        let key = format!("key-{}", self.name.replace(' ', "-"));
        if self.verb == SOCKET {
            let mut params: Value = serde_json::from_str(self.body).unwrap();
            params["idempotency_key"] = key.into();
            return self.ask_with(client, ids, &params.to_string()).await;
        }
        self.ask(&client.with_idempotency_key(key), ids).await
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
        let mut ids = made(world, fleet, operation.setting).await;
        fleet.set_away(operation.setting == Setting::Unresponsive);
        let caller = match (what, operation.scope) {
            ("scope", Scope::Read) => world.client_with(&[Scope::Control].into()).await,
            ("scope", _) => world.client_with(&[Scope::Read].into()).await,
            _ => client.clone(),
        };
        let came = match what {
            "unknown" => {
                ids = none_of();
                code(&operation.ask(&caller, &ids).await)
            }
            "scope" => code(&operation.ask(&caller, &ids).await),
            // Its executor is being stopped; the answer depends on whether it responds still.
            "closed" if operation.name.starts_with("abandon") => "-".to_owned(),
            "closed" if operation.name.starts_with("archive") => "-".to_owned(),
            // What the first one leaves for the others is a race.
            "eight" if RACES.contains(&operation.name) => "-".to_owned(),
            "closed" => {
                let session = ids.session.parse().unwrap();
                client.close(&session, &CloseRequest::default()).await.unwrap();
                code(&operation.ask(&caller, &ids).await)
            }
            "away" => {
                fleet.set_away(true);
                let came = operation.ask(&caller, &ids).await;
                code(&came)
            }
            "full" => {
                world.set_full(true);
                let came = operation.ask(&caller, &ids).await;
                world.set_full(false);
                // Nothing is lost, and the same request succeeds or fails for another reason.
                let session = ids.session.parse().unwrap();
                if came.is_err() {
                    client.session(&session).await.unwrap();
                }
                let again = code(&operation.ask(&caller, &ids).await);
                assert_ne!(again, "disk_full", "{}", operation.name);
                code(&came)
            }
            "key" if operation.repeated != Repeated::Read => {
                let first = operation.ask_keyed(&caller, &ids).await;
                let second = operation.ask_keyed(&caller, &ids).await;
                if let (Repeated::Keyed, Ok(first), Ok(second)) =
                    (operation.repeated, &first, &second)
                {
                    let (mut first, mut second) = (first.clone(), second.clone());
                    // Some answers say that they are repeated.
                    for answer in [&mut first, &mut second] {
                        answer.as_object_mut().map(|answer| answer.remove("replayed"));
                    }
                    assert_eq!(first, second, "{}", operation.name);
                }
                format!("{}/{}", code(&first), code(&second))
            }
            "key" => "-".to_owned(),
            "limit" => {
                let session = ids.session.parse().unwrap();
                let came = match operation.limit {
                    Limit::None => {
                        fleet.set_away(false);
                        codes.push("-".to_owned());
                        continue;
                    }
                    Limit::Queue => {
                        let queued = PromptRequest::queued("more");
                        while client.prompt(&session, &queued).await.is_ok() {}
                        code(&operation.ask(&caller, &ids).await)
                    }
                    Limit::Body(body) => code(&operation.ask_with(&caller, &ids, &body()).await),
                };
                // The request without the excess is answered as ever.
                client.session(&session).await.unwrap();
                came
            }
            _ => {
                let asked = (0..8).map(|_| operation.ask(&caller, &ids));
                let came = futures_util::future::join_all(asked).await;
                let mut codes: Vec<String> = came.iter().map(code).collect();
                codes.sort();
                codes.dedup();
                codes.join("|")
            }
        };
        fleet.set_away(false);
        codes.push(came);
    }
    codes
}

/// Wants to show: each cell is a coded answer, and which one. A change of the table is a change of the
/// contract.
#[tokio::test(flavor = "multi_thread")]
async fn every_operation_answers_bad_input_with_a_code() {
    let (world, fleet) = World::with_agents().await;
    fleet.take_images();
    let client = &world.client;
    let columns = ["unknown", "scope", "closed", "away", "full", "key", "limit", "eight"];
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

/// A repetition under a key (`key`) is answered as the first time, or done again where that comes to the
/// same ([`Repeated::Again`]): an archive that is there is not written again (`file_exists`), a file has what it was given, a conversation is
/// gone, settings are read, a worktree is whole or gone. Of eight at once all codes are named.
/// No write is needed where a full disk is `ok`: nothing is read, held, due or different.
const TABLE: &str = "\
queue list: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- limit=- eight=ok
queue show: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- limit=- eight=ok
queue add: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok limit=limit_reached eight=ok
queue edit: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok limit=request_invalid eight=ok
queue edit text: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok limit=request_invalid eight=ok
queue move: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok limit=- eight=ok
queue remove: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok limit=- eight=ok|queued_prompt_not_found
queue release: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok limit=- eight=ok
prompt with a link: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok limit=request_invalid eight=ok
prompt with an image: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok limit=limit_reached eight=ok
prompt with a sound: unknown=session_not_found scope=insufficient_scope closed=content_not_supported away=content_not_supported full=content_not_supported key=content_not_supported/content_not_supported limit=- eight=content_not_supported
answer with a message: unknown=wait_not_found scope=insufficient_scope closed=wait_not_found away=ok full=disk_full key=ok/ok limit=limit_reached eight=ok|wait_not_found
new resume token: unknown=wait_not_found scope=insufficient_scope closed=wait_not_found away=ok full=disk_full key=ok/response_not_kept limit=- eight=ok
resume: unknown=session_not_found scope=insufficient_scope closed=session_closed away=agentctl_unreachable full=disk_full key=ok/ok limit=- eight=ok
resume with history: unknown=session_not_found scope=insufficient_scope closed=session_closed away=agentctl_unreachable full=disk_full key=ok/ok limit=- eight=-
open: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=ok/ok limit=- eight=ok
start: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=ok key=ok/ok limit=- eight=ok
abandon: unknown=session_not_found scope=insufficient_scope closed=- away=ok full=executor_in_use key=executor_in_use/executor_in_use limit=- eight=executor_in_use
abandon what is away: unknown=session_not_found scope=insufficient_scope closed=- away=ok full=disk_full key=ok/ok limit=- eight=ok
stop an idle agent: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=disk_full key=ok/ok limit=- eight=-
stop: unknown=session_not_found scope=insufficient_scope closed=session_closed away=run_in_progress full=run_in_progress key=run_in_progress/run_in_progress limit=- eight=run_in_progress
configure: unknown=session_not_found scope=insufficient_scope closed=session_closed away=agentctl_unreachable full=disk_full key=ok/ok limit=- eight=ok
agent view: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- limit=- eight=ok
assign: unknown=session_not_found scope=insufficient_scope closed=session_closed away=ok full=ok key=ok/ok limit=- eight=ok
login: unknown=session_not_found scope=insufficient_scope closed=session_closed away=agentctl_unreachable full=ok key=ok/ok limit=- eight=ok
fork an idle one: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=request_invalid eight=ok
fork: unknown=session_not_found scope=insufficient_scope closed=ok away=run_in_progress full=run_in_progress key=run_in_progress/run_in_progress limit=- eight=run_in_progress
rename: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=request_invalid eight=ok
redact: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=request_invalid eight=ok
archive: unknown=session_not_found scope=insufficient_scope closed=- away=ok full=ok key=ok/file_exists limit=- eight=-
archive a running one: unknown=session_not_found scope=insufficient_scope closed=- away=session_not_closed full=session_not_closed key=session_not_closed/session_not_closed limit=- eight=session_not_closed
verify one: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- limit=- eight=ok
bootstrap: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- limit=- eight=ok
shells: unknown=session_not_found scope=insufficient_scope closed=ok away=workspace_missing full=workspace_missing key=- limit=- eight=workspace_missing
open shell: unknown=session_not_found scope=insufficient_scope closed=session_closed away=workspace_missing full=workspace_missing key=workspace_missing/workspace_missing limit=request_invalid eight=workspace_missing
write file: unknown=session_not_found scope=insufficient_scope closed=session_closed away=workspace_missing full=workspace_missing key=workspace_missing/workspace_missing limit=- eight=workspace_missing
repair worktree: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=ok/ok limit=- eight=ok
clean up worktree: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=- eight=ok
agent session close: unknown=agent_not_offered scope=insufficient_scope closed=agent_not_offered away=agent_not_offered full=agent_not_offered key=agent_not_offered/agent_not_offered limit=- eight=agent_not_offered
agent session close, no agent: unknown=agent_not_found scope=insufficient_scope closed=agent_not_found away=agent_not_found full=agent_not_found key=agent_not_found/agent_not_found limit=- eight=agent_not_found
agent session delete: unknown=ok scope=insufficient_scope closed=ok away=agentctl_unreachable full=disk_full key=ok/ok limit=- eight=ok
agent session delete, its own: unknown=ok scope=insufficient_scope closed=ok away=agent_session_in_use full=agent_session_in_use key=agent_session_in_use/agent_session_in_use limit=- eight=agent_session_in_use
agent session delete, none: unknown=agent_error scope=insufficient_scope closed=agent_error away=agentctl_unreachable full=agent_error key=agent_error/agent_error limit=- eight=agent_error
agent session delete, no agent: unknown=agent_not_found scope=insufficient_scope closed=agent_not_found away=agent_not_found full=agent_not_found key=agent_not_found/agent_not_found limit=- eight=agent_not_found
agent sessions: unknown=ok scope=insufficient_scope closed=ok away=agentctl_unreachable full=ok key=- limit=- eight=ok
create with mcp: unknown=ok scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=request_invalid eight=ok
task edit: unknown=task_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=request_invalid eight=ok
task close: unknown=task_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=- eight=ok
task.update: unknown=task_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=request_invalid eight=ok
tasks.subscribe: unknown=ok scope=insufficient_scope closed=ok away=ok full=ok key=- limit=- eight=ok
task delete: unknown=task_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=- eight=ok|task_not_found
verify: unknown=ok scope=insufficient_scope closed=ok away=ok full=ok key=- limit=- eight=ok
prune: unknown=ok scope=insufficient_scope closed=ok away=ok full=ok key=ok/ok limit=- eight=ok
doctor: unknown=ok scope=insufficient_scope closed=ok away=ok full=ok key=- limit=- eight=ok
git branch: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=ok key=- limit=- eight=ok
git commit: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=request_invalid eight=nothing_to_commit|ok
git merge: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=- eight=ok
git push: unknown=session_not_found scope=insufficient_scope closed=ok away=ok full=disk_full key=ok/ok limit=- eight=ok
reload: unknown=ok scope=insufficient_scope closed=ok away=ok full=ok key=ok/ok limit=- eight=ok
";
