//! Every kind of agent, killed at every point: it comes back and knows what was promised, nothing
//! happens twice, and the status told the truth meanwhile.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::world::{TEST_TIMEOUT, World};
use crate::tools;

const COLOUR: &str = "ultramarine";
/// What it says in a turn that ends well before it is killed.
const WORD: &str = "heliotrope";
/// One line: in a history no line of it would be done again.
const LONG_TEXT: &str = "stream 100000 50";
/// How long a status may be behind what happened to a process.
const BEHIND: Duration = Duration::from_secs(5);

/// How the agent gets its conversation back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// It remembers by itself.
    Remembers,
    /// Its first prompt carries the history.
    Injected,
    /// It knows nothing, and the session says so.
    Nothing,
}

struct Kind {
    name: &'static str,
    /// Behind `piton agent echo --`.
    args: &'static [&'static str],
    settings: &'static str,
    /// The strategy when it is killed.
    strategy: &'static str,
    promise: Promise,
    /// Where it dies while it comes back.
    stage: &'static str,
    /// It is one process, as long as it is ready.
    stays: bool,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "resumes",
        args: &["--no-load"],
        settings: "",
        strategy: "native",
        promise: Promise::Remembers,
        stage: "load",
        stays: true,
    },
    Kind {
        name: "loads",
        args: &["--no-resume"],
        settings: "",
        strategy: "native",
        promise: Promise::Remembers,
        stage: "load",
        stays: true,
    },
    Kind {
        name: "loads-late",
        args: &["--no-resume", "--replay=after", "--no-message-ids"],
        settings: "",
        strategy: "native",
        promise: Promise::Remembers,
        stage: "load",
        stays: true,
    },
    Kind {
        name: "refuses",
        args: &["--refuse-session"],
        settings: "history = true\n",
        strategy: "native",
        promise: Promise::Injected,
        stage: "load",
        stays: true,
    },
    Kind {
        name: "told",
        args: &["--no-load", "--no-resume"],
        settings: "resume = 'history'\n",
        strategy: "history",
        promise: Promise::Injected,
        stage: "new",
        stays: true,
    },
    Kind {
        name: "ignorant",
        args: &["--no-load", "--no-resume"],
        settings: "resume = 'none'\n",
        strategy: "none",
        promise: Promise::Nothing,
        stage: "new",
        stays: true,
    },
    Kind {
        name: "printed",
        args: &["--print", "--output", "stream-json"],
        settings: "resume = 'command_line'\ncontinue = ['--resume', '{agent_session_id}']\n",
        strategy: "command_line",
        promise: Promise::Remembers,
        stage: "load",
        stays: false,
    },
];

/// When it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    BeforePrompt,
    MidText,
    MidTool,
    Permission,
    /// While it resumes or loads, or begins again.
    ComingBack,
}

const POINTS: &[Point] =
    &[Point::BeforePrompt, Point::MidText, Point::MidTool, Point::Permission, Point::ComingBack];

/// Starts the agent; if a file for it names a stage, it dies there, once. It starts nothing else, which
/// would look like a second agent.
const WRAPPER: &str = r#"
dies=$1
shift
if [ -s "$dies" ]; then
  read -r stage < "$dies"
  : > "$dies"
  exec "$@" --crash-at "$stage"
fi
exec "$@"
"#;

/// A server that knows all of them.
pub(crate) fn world() -> World {
    let mut world = World::not_started();
    let folder = world.folder.path().canonicalize().unwrap();
    let wrapper = folder.join("wrapper.sh");
    std::fs::write(&wrapper, WRAPPER).unwrap();
    let mut config = String::new();
    for kind in KINDS {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let (dies, memory) = (path("{session}.dies"), path("{session}.memory"));
        let mut command = vec!["/bin/sh", wrapper.to_str().unwrap(), &dies];
        command.extend([tools::piton(), "agent", "echo", "--", "--memory", &memory]);
        command.extend(kind.args);
        let (name, settings) = (kind.name, kind.settings);
        let command = json!(command);
        writeln!(config, "[agents.{name}]\ncommand = {command}\n{settings}").unwrap();
    }
    let file = folder.join("piton.toml");
    std::fs::write(&file, config).unwrap();
    world.start_with(|server| {
        server.env("PITON_CONFIG", &file);
    });
    world
}

/// The next server of such a world, which starts agents by themselves on these triggers.
pub(crate) fn restart(world: &mut World, triggers: &str) {
    let config = world.folder.path().canonicalize().unwrap().join("piton.toml");
    world.start_with(|server| {
        server.env("PITON_CONFIG", config).env("PITON_RESUME_AGENT_RESTART", triggers);
    });
}

/// The session's agents that run.
fn agents(memory: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may end while it is looked at.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name before it may hold anything, also brackets.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        let parent: i32 = parent.unwrap().parse().unwrap();
        if String::from_utf8_lossy(&line).contains(memory.to_str().unwrap()) {
            found.push((pid, parent));
        }
    }
    // What an agent starts looks like the agent until it is another program.
    let is_child = |parent: i32| found.iter().any(|(pid, _)| *pid == parent);
    found.iter().filter(|(_, parent)| !is_child(*parent)).map(|(pid, _)| *pid).collect()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn kinds<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

/// Looks at the session again and again, and at its processes.
fn watch(world: &World, kind: &Kind, session: &str, memory: &Path, over: &AtomicBool) -> usize {
    let (mut samples, mut last_seq) = (0, 0);
    let mut alone_since: Option<Instant> = None;
    while !over.load(Ordering::SeqCst) {
        let there = agents(memory);
        let status = world.status(session);
        samples += 1;
        let at = format!("{} {session}: {status:#}", kind.name);
        assert!(there.len() <= 1, "two agents: {there:?}, {at}");
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        assert!(!text("sentence").is_empty() && !text("reason").is_empty(), "{at}");
        assert_ne!(text("reason"), "unrecognised", "{at}");
        let seq = status["last_seq"].as_u64().unwrap();
        assert!(seq >= last_seq, "it went back: {at}");
        last_seq = seq;
        let running = status["is_agent_running"] == true;
        if status["needs_resume"] == true {
            assert!(status["is_resumable"] == true && !text("resume_reason").is_empty(), "{at}");
        }
        assert!(running || status["context_restored"].is_null(), "who would know it? {at}");
        if kind.promise == Promise::Nothing {
            assert_ne!(status["context_restored"], true, "{at}");
        }
        alone_since = match alone_since {
            _ if !there.is_empty() => None,
            None => Some(Instant::now()),
            since => since,
        };
        // Only the process itself is the agent.
        let alone = alone_since.is_some_and(|since| since.elapsed() > BEHIND);
        assert!(!(kind.stays && running && alone), "nothing runs any more: {at}");
        std::thread::sleep(Duration::from_millis(15));
    }
    samples
}

/// One cell of the matrix.
struct Cell<'a> {
    world: &'a World,
    kind: &'a Kind,
    point: Point,
    session: String,
    memory: PathBuf,
}

impl Cell<'_> {
    fn idle(&self, run: &str) -> Value {
        let done = |status: &Value| status["status"] == "idle" && status["run_id"] == run;
        self.world.when(&self.session, done)
    }

    fn until(&self, what: &str, is: impl Fn(&[Value]) -> bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !is(&self.world.records(&self.session)) {
            assert!(Instant::now() < until, "{} {:?}: never {what}", self.kind.name, self.point);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the record that its process has ended; one without a process has none.
    fn until_exited(&self) {
        if self.kind.stays {
            self.until("agent.exited", |records| !kinds(records, "agent.exited").is_empty());
        }
    }

    fn until_interrupted(&self, run: &str) {
        self.until("run.interrupted", |records| {
            let is_of_run = |record: &&Value| record["run_id"] == run;
            kinds(records, "run.interrupted").iter().any(is_of_run)
        });
    }

    fn kill_agent(&self) {
        let there = agents(&self.memory);
        assert!(there.len() == 1 || !self.kind.stays && there.is_empty(), "{there:?}");
        there.into_iter().for_each(kill);
    }

    /// Says something, and kills the agent in the middle of it.
    fn killed_at(&self, prompt: &str, kind: &'static str) {
        let run = self.world.prompt(&self.session, prompt);
        self.until(kind, |records| {
            kinds(records, kind).iter().any(|record| record["run_id"] == run.as_str())
        });
        self.kill_agent();
        self.until_interrupted(&run);
        let status = self.world.status(&self.session);
        assert_eq!(status["reason"], "process_exit", "{status:#}");
        assert_eq!(status["state"], "WAITING_FOR_INPUT", "{status:#}");
        assert_eq!(status["needs_resume"], true);
        assert_eq!(status["resume_strategy"], self.kind.strategy, "{status:#}");
    }

    fn run(&self) {
        let Self { world, kind, session, .. } = self;
        let (name, point) = (kind.name, self.point);
        world.post(&format!("/api/v1/sessions/{session}/start"), &json!({})).good();
        let run = world.prompt(session, &format!("remember colour {COLOUR}"));
        self.idle(&run);
        let run = world.prompt(session, &format!("say {WORD}"));
        self.idle(&run);
        let mut interruptions = 1;
        match point {
            Point::BeforePrompt => {
                interruptions = 0;
                self.kill_agent();
                self.until_exited();
            }
            // One that has no protocol says a message at a time, and cannot ask.
            Point::MidText | Point::Permission if !kind.stays => {
                self.killed_at("say I begin\nhang", "message.delta");
            }
            Point::MidText => self.killed_at(LONG_TEXT, "message.delta"),
            Point::MidTool => self.killed_at("run sleep 1000", "tool.intent"),
            Point::Permission => self.killed_at("ask May I?", "run.waiting"),
            Point::ComingBack => {
                interruptions = 0;
                self.kill_agent();
                self.until_exited();
                let dies = self.memory.with_extension("dies");
                std::fs::write(dies, format!("{}\n", kind.stage)).unwrap();
                if !kind.stays {
                    // Its process is its turn: given the prompt, it dies in it.
                    interruptions = 1;
                    let run = world.prompt(session, "say never");
                    self.until_interrupted(&run);
                }
            }
        }
        let asked = world.prompt(session, "recall colour");
        if point == Point::ComingBack && kind.stays {
            // It could not be started: that is recorded, and the start is retried for the prompt.
            self.until("agent.error", |records| !kinds(records, "agent.error").is_empty());
        }
        let status = self.idle(&asked);
        let said = world.said(session, &asked);
        let at = format!("{name} {point:?}: {said:?} {status:#}");
        let injected = format!("[USER]: remember colour {COLOUR}");
        match kind.promise {
            Promise::Remembers => {
                assert!(said.contains(COLOUR), "{at}");
                assert!(!said.contains(&injected), "it is told what it knows: {at}");
            }
            Promise::Injected => assert!(said.contains(&injected), "{at}"),
            Promise::Nothing => assert!(!said.contains(COLOUR), "{at}"),
        }
        let restored = match kind.promise {
            // Its processes are its turns: only one that was cut off makes a difference.
            _ if !kind.stays && interruptions == 0 => Value::Null,
            Promise::Remembers | Promise::Injected => json!(true),
            Promise::Nothing => json!(false),
        };
        assert_eq!(status["context_restored"], restored, "{at}");
        // Once: the next prompt carries no history.
        let again = world.prompt(session, "say more");
        self.idle(&again);
        assert_eq!(world.said(session, &again).trim(), "more", "{at}");

        let records = world.records(session);
        assert_eq!(kinds(&records, "run.interrupted").len(), interruptions, "{at}");
        let started = kinds(&records, "run.started").len();
        let prompts = kinds(&records, "message.user").len();
        assert_eq!(started, prompts, "{at}");
        let completed = kinds(&records, "run.completed").len();
        assert_eq!(completed, prompts - interruptions, "{at}");
        let noted = kinds(&records, "prompt.prepared").len();
        let pending = interruptions > 0 || kind.promise == Promise::Injected;
        assert_eq!(noted, usize::from(pending), "{at}");
        // Said once, whatever the agent told of its past; what it was told it says back.
        let all = kinds(&records, "message.delta").into_iter();
        let all = all.filter(|record| record["run_id"] != asked.as_str());
        let all: String = all.map(|record| record["text"].as_str().unwrap()).collect();
        assert_eq!(all.matches(WORD).count(), 1, "{at}: {all}");
        let cut_off = usize::from(point == Point::MidText && kind.stays);
        assert_eq!(all.matches("chunk 1 ").count(), cut_off, "{at}: {all}");
        if kind.promise == Promise::Remembers && kind.stays {
            // What it counts are the prompts of turns that it finished.
            let count = world.prompt(session, "recall");
            self.idle(&count);
            assert_eq!(world.said(session, &count).trim(), "4 prompts", "{at}");
        }
    }
}

/// Wants to show: whatever the agent can do and wherever it dies, the next prompt finds an agent
/// that knows what its strategy promises, and no sample of the status was a lie.
#[test]
fn every_kind_of_agent_killed_at_every_point() {
    let mut world = world();
    let mut cells = Vec::new();
    for kind in KINDS {
        for point in POINTS {
            let body = json!({"start": false, "agent_profile_id": kind.name});
            let made = world.post("/api/v1/sessions", &body).good();
            let session = made["session_id"].as_str().unwrap().to_owned();
            world.adopt(&session);
            cells.push((kind, *point, session));
        }
    }
    let folder = world.folder.path().canonicalize().unwrap();
    let next = std::sync::Mutex::new(cells.into_iter());
    let (world, samples) = (&world, std::sync::atomic::AtomicUsize::new(0));
    // Some at a time: they wait for each other's processes more than they compute.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((kind, point, session)) = next.lock().unwrap().next() else { return };
                    let memory = folder.join(format!("{session}.memory"));
                    let cell = Cell { world, kind, point, session, memory };
                    let over = AtomicBool::new(false);
                    std::thread::scope(|scope| {
                        let watching =
                            scope.spawn(|| watch(world, kind, &cell.session, &cell.memory, &over));
                        // The watcher must be told, whatever becomes of the cell.
                        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                            cell.run();
                        }));
                        over.store(true, Ordering::SeqCst);
                        let seen = watching.join().unwrap();
                        samples.fetch_add(seen, Ordering::SeqCst);
                        if let Err(why) = ran {
                            std::panic::resume_unwind(why);
                        }
                    });
                    let path = format!("/api/v1/sessions/{}/close", cell.session);
                    world.post(&path, &json!({})).good();
                }
            });
        }
    });
    let cells = KINDS.len() * POINTS.len();
    let samples = samples.into_inner();
    assert!(samples > 10 * cells, "{samples} samples of {cells} cells");
}
