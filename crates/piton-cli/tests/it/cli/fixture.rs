//! A store with one session of every sort, made through the real store and runtime by two processes:
//! `boot_past`, which has ended, and `boot_live`, which is this test.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use piton_core::Timestamp;
use piton_core::decide::{Command, Message, Wait};
use piton_core::event::{ExecutorReady, ExecutorStarting, Outcome, ToolStatus, WaitKind};
use piton_core::id::{BootId, ExecutionId, RunId, SessionId};
use piton_core::token::{NewToken, ResumeToken, Secret};
use piton_runtime::{Clock, Handle, NewSession, Options, Service};
use piton_store::{BootGuard, BootLocks, BoxFuture, Entropy, Liveness, SqliteStore, sqlite};
use serde_json::json;

use crate::cli::home::Home;

#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) home: Home,
    /// Keeps `boot_live` alive.
    _live: BootGuard,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let home = Home::new();
        let past = BootLocks::new(&home.data()).hold("boot_past".parse().unwrap()).unwrap();
        in_process(&home, "boot_past", "2026-02-21T10:00:00Z", past_work);
        drop(past);
        let live = BootLocks::new(&home.data()).hold("boot_live".parse().unwrap()).unwrap();
        in_process(&home, "boot_live", "2026-02-21T11:50:00Z", live_work);
        Self { home, _live: live }
    }

    /// A home in which a process that has ended did some work.
    pub(crate) fn past<F: Future<Output = ()>>(work: impl FnOnce(Writer) -> F) -> Home {
        let home = Home::new();
        in_process(&home, "boot_past", "2026-02-21T10:00:00Z", work);
        home
    }

    pub(crate) fn run(&self, line: &str) -> String {
        self.home.run(line)
    }

    /// Ends `boot_live`.
    pub(crate) fn end(self) -> Home {
        self.home
    }

    /// Lets `boot_live` do some more.
    pub(crate) fn work<F: Future<Output = ()>>(&self, work: impl FnOnce(Writer) -> F) {
        in_process(&self.home, "boot_live", "2026-02-21T11:59:00Z", work);
    }

    pub(crate) fn sql(&self, sql: &str) {
        let path = self.home.data().join("store.sqlite3");
        rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
    }
}

/// A process with a service, until `work` ends.
fn in_process<F: Future<Output = ()>>(
    home: &Home,
    boot: &str,
    begin: &str,
    work: impl FnOnce(Writer) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = Arc::new(Hands(Mutex::new(begin.parse().unwrap())));
        let entropy = Arc::new(Counter(Mutex::new(0)));
        let options =
            sqlite::Options { entropy: entropy.clone(), ..sqlite::Options::new(home.data()) };
        let store = Arc::new(SqliteStore::open(options).unwrap());
        let options = Options {
            clock: clock.clone(),
            sweep_every: Duration::from_hours(24),
            ..Options::new(boot.parse().unwrap(), store.clone(), Arc::new(Everybody), entropy)
        };
        let service = Service::start(options, |_| {}).await.unwrap();
        work(Writer { handle: service.handle(), clock }).await;
        service.shut_down().await;
        store.close();
    });
}

/// Writes to sessions; each step takes ten seconds.
pub(crate) struct Writer {
    handle: Handle,
    clock: Arc<Hands>,
}

impl Writer {
    pub(crate) async fn create(&self, id: &str, title: &str) -> SessionId {
        self.clock.step();
        let new = NewSession {
            id: Some(id.parse().unwrap()),
            title: Some(title.to_owned()),
            working_dir: Some("/repo".to_owned()),
            ..NewSession::default()
        };
        self.handle.create(new).await.unwrap()
    }

    pub(crate) async fn execute(&self, session: &SessionId, command: Command) {
        self.clock.step();
        self.handle.execute(session, command).await.unwrap();
    }

    pub(crate) async fn start(&self, session: &SessionId, content: &str) {
        let name = session.as_str().trim_start_matches("sess_");
        let message_id = format!("msg_{name}").parse().unwrap();
        let message = Some(Message { message_id, content: content.into() });
        let run_id = format!("run_{name}").parse().unwrap();
        self.execute(session, Command::Start { run_id, message }).await;
    }

    pub(crate) async fn say(&self, session: &SessionId, message: &str, text: &str) {
        let message_id = message.parse().unwrap();
        self.execute(session, Command::Say { message_id, offset: None, text: text.to_owned() })
            .await;
    }

    pub(crate) async fn call(&self, session: &SessionId, call: &str, arguments: serde_json::Value) {
        let run_id = run_of(session);
        let call_id = call.parse().unwrap();
        let name = "bash".to_owned();
        self.execute(session, Command::Intend { run_id, call_id, name, arguments }).await;
    }

    async fn ask(&self, session: &SessionId, wait: &str, deadline: &str, question: &str) {
        let secret = Secret::new([7; 32]);
        let token = ResumeToken { id: format!("rt_{wait}").parse().unwrap(), secret };
        let wait = Wait {
            run_id: run_of(session),
            wait_id: wait.parse().unwrap(),
            kind: WaitKind::Permission,
            deadline_at: deadline.parse().unwrap(),
            fresh: NewToken::from(&token),
            question: json!(question),
        };
        self.execute(session, Command::Wait(wait)).await;
    }
}

pub(crate) fn run_of(session: &SessionId) -> RunId {
    format!("run_{}", session.as_str().trim_start_matches("sess_")).parse().unwrap()
}

async fn past_work(to: Writer) {
    let done = to.create("sess_done", "Write the changelog").await;
    to.start(&done, "Write a changelog for the last release").await;
    to.call(&done, "call_1", json!({"command": "git log --oneline"})).await;
    let outcome = Command::Conclude {
        run_id: run_of(&done),
        call_id: "call_1".parse().unwrap(),
        status: ToolStatus::Succeeded,
        result: json!("03b770a store: the contract"),
    };
    to.execute(&done, outcome).await;
    let text = "Here it is: nothing changed, and everything got better.";
    to.say(&done, "msg_agent", text).await;
    let hash = "17c2b83b3b8e0c0ff6dd4eac3d4df1f4ee2d1df4f8b1bfb9fc3c7d2c4a4d3c1e".to_owned();
    let said = Command::EndMessage { message_id: "msg_agent".parse().unwrap(), hash };
    to.execute(&done, said).await;
    to.execute(&done, Command::Complete { run_id: run_of(&done) }).await;
    to.execute(&done, Command::Close { outcome: Outcome::Completed }).await;

    to.create("sess_new", "Nothing yet").await;

    let cut = to.create("sess_cut_working", "Fix the flaky test").await;
    to.start(&cut, "Fix the flaky test").await;
    to.say(&cut, "msg_cut", "I will first look at\nthe last failures, then").await;
    to.call(&cut, "call_2", json!({"command": "rm -r target/flaky"})).await;

    let asking = to.create("sess_cut_asking", "Tidy up the repository").await;
    to.start(&asking, "Tidy up").await;
    to.ask(&asking, "wait_1", "2026-02-28T10:00:00Z", "May I delete target/?").await;

    // Its agent may have outlived its process.
    let detached = to.create("sess_detached", "Upgrade all dependencies").await;
    to.start(&detached, "Upgrade all dependencies").await;
    let execution_id: ExecutionId = "exec_1".parse().unwrap();
    for event in [
        ExecutorStarting { execution_id: execution_id.clone(), runtime: "docker".into() }.into(),
        ExecutorReady { execution_id }.into(),
    ] {
        to.execute(&detached, Command::Observe { event, message: None }).await;
    }
    to.ask(&detached, "wait_2", "2026-02-21T12:10:00Z", "Is serde 2 fine?").await;
    to.ask(&detached, "wait_3", "2026-02-28T10:00:00Z", "And may I rewrite the parser?").await;
}

async fn live_work(to: Writer) {
    let title =
        "日本語のとても長い題名: \x1b[31mred\x1b[0m and so long that it fits nowhere at all";
    let odd = to.create("sess_odd", title).await;
    to.start(&odd, "line one\nline two \x1b]0;owned\x07").await;
    let failed = Command::Fail {
        run_id: run_of(&odd),
        code: Some("agent_gone".into()),
        error: "The agent left without a word".into(),
    };
    to.execute(&odd, failed).await;

    let live = to.create("sess_live", "Review the pull request").await;
    to.start(&live, "Review it").await;
    to.ask(&live, "wait_4", "2026-02-21T18:00:00Z", "May I push to main?").await;
}

/// What other processes left is left for the commands to find.
#[derive(Debug)]
struct Everybody;

impl Liveness for Everybody {
    fn is_alive(&self, _boot: &BootId) -> bool {
        true
    }
}

/// A clock that only this test moves.
#[derive(Debug)]
struct Hands(Mutex<Timestamp>);

impl Hands {
    fn step(&self) {
        let mut now = self.0.lock().unwrap();
        *now = now.after(Duration::from_secs(10));
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// “Random” numbers that are the same in every run.
#[derive(Debug)]
struct Counter(Mutex<u8>);

impl Entropy for Counter {
    fn fill(&self, bytes: &mut [u8]) -> piton_store::Result<()> {
        let mut last = self.0.lock().unwrap();
        for byte in bytes {
            *last = last.wrapping_add(1);
            *byte = *last;
        }
        Ok(())
    }
}
