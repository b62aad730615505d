//! A session in memory: decisions are appended to a log and folded, as the runtime does it.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use piton_core::decide::{self, Command, Context, Create, Decision, Message, Probe, Refusal};
use piton_core::event::{Event, Outcome, WaitKind};
use piton_core::fold;
use piton_core::id::{BootId, TokenId};
use piton_core::limits::Limits;
use piton_core::reason::Reason;
use piton_core::record::Record;
use piton_core::state::State;
use piton_core::status::{self, Name, Status};
use piton_core::time::Timestamp;
use piton_core::token::{self, Entry, NewToken, ResumeToken, Secret};
use serde_json::{Value, json};

/// Ten minutes, the time that a wait in these tests has.
pub(crate) const WAIT: Duration = Duration::from_mins(10);

pub(crate) fn id<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("ids in tests are well-formed")
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// The token whose secret follows from its name.
pub(crate) fn token(name: &str) -> ResumeToken {
    ResumeToken { id: id(name), secret: Secret::new(*blake3::hash(name.as_bytes()).as_bytes()) }
}

pub(crate) fn fresh(name: &str) -> NewToken {
    NewToken::from(&token(name))
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) log: Vec<Record>,
    pub(crate) now: Timestamp,
    pub(crate) boot: BootId,
    pub(crate) dead: BTreeSet<BootId>,
}

impl World {
    /// Nothing was written yet.
    pub(crate) fn empty() -> Self {
        Self {
            state: State::default(),
            log: Vec::new(),
            now: at(1_000_000),
            boot: id("boot_1"),
            dead: BTreeSet::new(),
        }
    }

    /// A session that was made.
    pub(crate) fn new() -> Self {
        let mut world = Self::empty();
        world.done(create("sess_1"));
        world
    }

    /// With run `run_1` at work.
    pub(crate) fn running() -> Self {
        let mut world = Self::new();
        world.done(start("run_1"));
        world
    }

    /// With `run_1` blocked on `wait_1`, answered by the token `rt_1`.
    pub(crate) fn waiting() -> Self {
        let mut world = Self::running();
        world.ask("wait_1", "rt_1");
        world
    }

    /// With `run_1` interrupted by its process's exit.
    pub(crate) fn interrupted() -> Self {
        let mut world = Self::running();
        world.done(Command::Interrupt { run_id: id("run_1"), reason: Reason::ProcessExit });
        world
    }

    /// With an executor and its agent at work on `run_1`.
    pub(crate) fn executed() -> Self {
        let mut world = Self::new();
        world.observe(piton_core::event::ExecutorStarting {
            execution_id: id("exec_1"),
            runtime: "standalone".into(),
        });
        world.observe(piton_core::event::ExecutorReady { execution_id: id("exec_1") });
        world.done(start("run_1"));
        world
    }

    pub(crate) fn context(&self) -> Context {
        Context { now: self.now, boot: self.boot.clone(), limits: Limits::default() }
    }

    /// Decides, and makes it so.
    pub(crate) fn decide(&mut self, command: Command) -> Result<Decision, Refusal> {
        let decision = decide::decide(&self.state, &self.context(), command)?;
        for new in &decision.records {
            let record = new.at(self.state.last_seq + 1);
            self.state.apply(record.seq, record.ts, &new.event);
            self.log.push(record);
        }
        Ok(decision)
    }

    /// Decides what must be possible; the kinds of the records that it took.
    pub(crate) fn done(&mut self, command: Command) -> Vec<String> {
        let decision = self.decide(command).expect("possible here");
        decision.records.iter().map(|record| record.kind.to_string()).collect()
    }

    pub(crate) fn refused(&mut self, command: Command) -> Refusal {
        let before = self.clone();
        let refusal = self.decide(command).expect_err("impossible here");
        assert_eq!((&before.state, &before.log), (&self.state, &self.log));
        refusal
    }

    pub(crate) fn observe(&mut self, event: impl Into<Event>) -> Vec<String> {
        self.done(Command::Observe { event: event.into(), message: None })
    }

    pub(crate) fn ask(&mut self, wait: &str, token: &str) -> Vec<String> {
        let command = self.wait(wait, token);
        self.done(command)
    }

    /// The run is stuck on a wait again.
    pub(crate) fn block(&mut self, wait: &str) -> Vec<String> {
        self.done(Command::Block { run_id: id("run_1"), wait_id: id(wait) })
    }

    pub(crate) fn wait(&self, wait: &str, token: &str) -> Command {
        Command::Wait(decide::Wait {
            run_id: id("run_1"),
            wait_id: id(wait),
            kind: WaitKind::Permission,
            deadline_at: self.now.after(WAIT),
            fresh: fresh(token),
            question: json!({ "may": "I?" }),
        })
    }

    /// What the token index says, made of the log alone.
    pub(crate) fn entry(&self, token_id: &TokenId) -> Option<Entry> {
        self.log.iter().fold(None, |entry, record| {
            let event = record.event().expect("our own records are readable");
            match token::subject(&event) {
                Some(subject) if subject == token_id => {
                    token::transition(entry, record.seq, &event)
                }
                _ => entry,
            }
        })
    }

    /// The end of a token as its entry tells it.
    pub(crate) fn token_state(&self, name: &str) -> Option<token::State> {
        self.entry(&id(name)).map(|entry| entry.state)
    }

    pub(crate) fn answer(&self, name: &str, answer: impl Into<Value>) -> Command {
        let token = token(name);
        let entry = self.entry(&token.id);
        Command::AnswerByToken(decide::AnswerByToken { token, entry, answer: answer.into() })
    }

    pub(crate) fn status(&self) -> Status {
        status::derive(&self.state.facts, &self.dead, self.now)
    }

    pub(crate) fn named(&self) -> (Name, Reason) {
        let status = self.status();
        (status.name, status.reason)
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
    }

    /// The process dies and another starts: only the log is left.
    pub(crate) fn restart(&mut self, boot: &str) {
        self.dead.insert(self.boot.clone());
        self.boot = id(boot);
        let replayed = fold::replay(&self.log).expect("our own records are readable");
        assert_eq!(replayed, self.state, "the log is the truth");
        self.state = replayed;
    }

    pub(crate) fn recover(&mut self, probe: Option<Probe>) -> Vec<String> {
        self.done(self.recovery(probe))
    }

    /// Asks for recovery with the boots that have died so far.
    pub(crate) fn recovery(&self, probe: Option<Probe>) -> Command {
        Command::Recover { dead: self.dead.clone(), probe, takes_over: false }
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.log.iter().filter(|record| &*record.kind == kind).count()
    }

    /// How often each kind of token record is in the log.
    pub(crate) fn token_records(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for record in self.log.iter().filter(|record| record.kind.starts_with("token.")) {
            *counts.entry(record.kind.to_string()).or_default() += 1;
        }
        counts
    }
}

pub(crate) fn create(session: &str) -> Command {
    Command::Create(Create {
        session_id: id(session),
        title: Some("Fix flaky test".into()),
        task_id: None,
        working_dir: None,
        provider: None,
        agent_profile_id: None,
        setup: piton_core::decide::Setup::default(),
    })
}

pub(crate) fn start(run: &str) -> Command {
    let message = Message { message_id: id(&format!("msg_{run}")), content: "run tests".into() };
    Command::Start { run_id: id(run), message: Some(message) }
}

pub(crate) fn complete(run: &str) -> Command {
    Command::Complete { run_id: id(run) }
}

pub(crate) fn cancel(run: &str) -> Command {
    Command::Cancel { run_id: id(run), reason: Reason::UserRequest }
}

pub(crate) fn resume(run: &str) -> Command {
    Command::Resume { run_id: id(run) }
}

pub(crate) fn close(outcome: Outcome) -> Command {
    Command::Close { outcome }
}
