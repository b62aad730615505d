//! A folder with a store, a workspace, and a session with the built-in agent in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_core::event::Event;
use piton_core::id::{RunId, SessionId};
use piton_core::transcript::{self, Item, Text};
use piton_core::{Record, Seq};
use piton_testkit::crash::Kind;
use piton_testkit::drive::{Server, processes_of, wait_until};
use serde_json::{Value, json};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_piton-drive");
pub(crate) const SESSION: &str = "sess_agents";
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Fixture {
    pub(crate) folder: Arc<tempfile::TempDir>,
    pub(crate) kind: Kind,
    /// The data folder's name.
    name: String,
}

impl Fixture {
    pub(crate) fn new(kind: Kind) -> Self {
        Self::named(kind, "data")
    }

    /// With another name for the data folder.
    pub(crate) fn named(kind: Kind, name: &str) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        Self { folder, kind, name: name.to_owned() }
    }

    /// The same, with a data folder of another name.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self { folder: Arc::clone(&self.folder), kind: self.kind, name: name.to_owned() }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        let workspace = self.folder.path().join("workspace");
        std::fs::create_dir_all(&workspace).expect("writable");
        workspace
    }

    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    pub(crate) fn serve_with(&self, arguments: &[&str]) -> Server {
        Server::start(PROGRAM, self.kind.as_str(), &self.data(), arguments)
    }

    /// A server with the session, its agentctl and its agent. Gives the execution's id.
    pub(crate) fn start(&self) -> (Server, String) {
        let mut server = self.serve();
        server.must(json!({"do": "create", "session": SESSION}));
        let execution = self.launch(&mut server);
        self.start_agent(&mut server, &[]);
        (server, execution)
    }

    pub(crate) fn launch(&self, server: &mut Server) -> String {
        let launch = json!({"do": "launch", "session": SESSION, "workspace": self.workspace()});
        server.must(launch).as_str().expect("an id").to_owned()
    }

    pub(crate) fn start_agent(&self, server: &mut Server, arguments: &[&str]) {
        self.try_agent(server, arguments);
        server.status_when(SESSION, |status| status["facts"]["agent"]["status"] == "ready");
    }

    /// Starts an agent that need not become one.
    pub(crate) fn try_agent(&self, server: &mut Server, arguments: &[&str]) {
        let memory = self.data().with_extension("memory.json");
        let mut command = vec![PROGRAM, "echo", "--memory", memory.to_str().expect("UTF-8")];
        command.extend(arguments);
        server.must(json!({"do": "start", "session": SESSION, "start": {"command": command}}));
    }

    /// The log, read beside its writer (for plain files: when no process writes).
    pub(crate) fn log(&self) -> Vec<Record> {
        self.log_after(0)
    }

    /// The same from behind a position.
    pub(crate) fn log_after(&self, seq: Seq) -> Vec<Record> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let store = self.kind.open_to_read(&self.data()).expect("there is a store");
            let session: SessionId = SESSION.parse().expect("an id");
            let (mut all, mut after) = (Vec::new(), seq);
            loop {
                let page = store.read(&session, after, 512, piton_store::Detail::Full).await;
                let page = page.expect("readable");
                let Some(last) = page.last() else { return all };
                after = last.seq;
                all.extend(page);
            }
        })
    }

    /// The pid of the agent of an execution: the process that was started with `echo`.
    pub(crate) fn agent(execution: &str) -> Option<u32> {
        let marked = processes_of(&format!("PITON_EXECUTION={execution}"));
        marked.iter().find(|(_, command)| command.contains(" echo ")).map(|(pid, _)| *pid)
    }

    /// agentctl's pid, as its lock file tells it.
    pub(crate) fn agentctl(&self, execution: &str) -> u32 {
        let lock = self.data().join("run").join(execution).join("lock");
        let text =
            std::fs::read_to_string(&lock).unwrap_or_else(|e| panic!("{}: {e}", lock.display()));
        text.trim().parse().unwrap_or_else(|_| panic!("{text:?} is no pid"))
    }
}

/// Gives the agent a prompt; the run's id.
pub(crate) fn prompt(server: &mut Server, text: &str) -> String {
    let prompt = json!({"do": "prompt", "session": SESSION, "text": text});
    server.must(prompt).as_str().expect("an id").to_owned()
}

/// Waits until the agent asks something; the question's id.
pub(crate) fn asked(server: &mut Server) -> Value {
    server.status_when(SESSION, |status| status["waits"].get(0).is_some())["waits"][0].clone()
}

/// Lets the agent do what it asks for.
pub(crate) fn answer(server: &mut Server, wait_id: &Value) {
    let answer = json!({"option_id": "allow_once"});
    server.must(json!({"do": "answer", "session": SESSION, "wait_id": wait_id, "answer": answer}));
}

/// Waits until no turn is under way.
pub(crate) fn idle(server: &mut Server) -> Value {
    server.status_when(SESSION, |status| status["status"] == "idle")
}

/// What the agent answered in a run, put together.
pub(crate) fn said(log: &[Record], run: &str) -> String {
    let run: RunId = run.parse().expect("an id");
    let of_run = |record: &&Record| match record.event() {
        Ok(Event::MessageDelta(e)) => e.run_id.as_ref() == Some(&run),
        _ => false,
    };
    let items = transcript::build(log.iter().filter(of_run), None).expect("readable");
    let text = |item: Item| match item {
        Item::Agent { text: Text::Whole(text), .. } => text,
        other => panic!("{other:?}"),
    };
    items.into_iter().map(text).collect()
}

/// Every piece of streamed text begins where the last one of its message ended.
pub(crate) fn check_offsets(log: &[Record]) {
    let mut ends = std::collections::BTreeMap::new();
    for record in log {
        if let Ok(Event::MessageDelta(e)) = record.event() {
            let end = ends.entry(e.message_id.clone()).or_insert(0);
            assert_eq!(e.offset, *end, "record {} repeats or leaves out text", record.seq);
            *end += e.length;
        }
    }
}

pub(crate) fn count(log: &[Record], kind: &str) -> usize {
    log.iter().filter(|record| &*record.kind == kind).count()
}

pub(crate) fn last<'a>(log: &'a [Record], kind: &str) -> &'a Record {
    log.iter().rev().find(|record| &*record.kind == kind).unwrap_or_else(|| panic!("no {kind}"))
}

pub(crate) fn header(record: &Record) -> Value {
    serde_json::from_str(&record.header).expect("JSON")
}

pub(crate) fn chunks(count: usize) -> String {
    (1..=count).flat_map(|n| ["chunk ".to_owned(), n.to_string(), " ".to_owned()]).collect()
}

/// Ends a process at once.
pub(crate) fn sigkill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let raw = i32::try_from(pid).expect("a pid");
    let pid = rustix::process::Pid::from_raw(raw).expect("not zero");
    rustix::process::kill_process(pid, signal).expect("it is there");
}

/// Nothing of an execution is left running, its agentctl neither.
pub(crate) fn assert_nothing_left(execution: &str, agentctl: Option<u32>) {
    let mark = format!("PITON_EXECUTION={execution}");
    let gone = wait_until(TEST_TIMEOUT, || processes_of(&mark).is_empty());
    assert!(gone, "left running: {:?}", processes_of(&mark));
    if let Some(pid) = agentctl {
        let dead = wait_until(TEST_TIMEOUT, || !is_running(pid));
        assert!(dead, "agentctl {pid} is left running");
    }
}

/// Whether a process runs; one that only waits to be reaped does not.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}
