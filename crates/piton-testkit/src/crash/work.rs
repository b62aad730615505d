//! What one session of a writer goes through: prompts, text, tool calls, questions. Its run is open
//! most of the time, so that a kill finds one to interrupt.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use piton_core::Code;
use piton_core::decide::{Command, Create, Message, Wait};
use piton_core::event::{ToolStatus, WaitKind};
use piton_core::id::{RunId, SessionId};
use piton_core::limits;
use piton_core::state::Phase;
use piton_core::token::NewToken;
use piton_runtime::{Clock as _, Error, Handle, SystemClock};
use serde_json::Value;

use super::lines::{Ack, Line, filler, mark};
use super::writer::{EXIT_POISONED, EXIT_REFUSED, Mode, Out, Plan, take};

/// How often a poisoned store is tried again: it has to refuse every time.
const TRIES_POISONED: usize = 5;

pub(crate) struct Worker {
    handle: Handle,
    session: SessionId,
    out: Arc<Out>,
    random: fastrand::Rng,
    serial: bool,
    /// The size of every content, if it is given.
    bytes: Option<usize>,
    /// The open run.
    run: Option<RunId>,
}

/// A command, and how its record will be found.
struct Task {
    command: Command,
    buffered: bool,
    mark: String,
    bytes: usize,
}

impl Worker {
    pub(crate) fn new(plan: &Plan, number: usize, handle: Handle, out: Arc<Out>) -> Self {
        let session = format!("{}-{number}", plan.prefix);
        let session = session.parse().unwrap_or_else(|e| panic!("{session}: {e}"));
        let seed = plan.seed.wrapping_add(number as u64);
        let random = fastrand::Rng::with_seed(seed);
        let (serial, bytes) = (plan.mode == Mode::Serial, plan.bytes);
        Self { handle, session, out, random, serial, bytes, run: None }
    }

    /// Works until there are no steps left; says how the process should end.
    pub(crate) async fn run(mut self, left: Arc<AtomicU64>) -> u8 {
        let mut settled = false;
        while take(&left) {
            let done = if settled { self.step().await } else { self.settle_in().await };
            settled = match done {
                Ok(()) => true,
                Err(error) if error.code() == Code::DiskFull => {
                    self.refused(&error);
                    false
                }
                Err(error) => {
                    self.refused(&error);
                    return self.give_up(&error).await;
                }
            };
        }
        0
    }

    fn refused(&self, error: &Error) {
        self.out.say(&Line::Refused(self.session.to_string(), error.code().to_string()));
    }

    /// A poisoned store must stay so; anything else was not expected.
    async fn give_up(&mut self, error: &Error) -> u8 {
        if error.code() != Code::StorePoisoned {
            return EXIT_REFUSED;
        }
        for _ in 0..TRIES_POISONED {
            match self.say(1).await {
                Err(error) => self.refused(&error),
                Ok(()) => return EXIT_REFUSED,
            }
        }
        EXIT_POISONED
    }

    /// Finds out where the session stands: makes it, tidies up after an earlier life, has a run.
    async fn settle_in(&mut self) -> Result<(), Error> {
        let state = match self.handle.state(&self.session).await {
            Ok(state) => state,
            Err(error) if error.code() == Code::SessionNotFound => {
                self.create().await?;
                self.handle.state(&self.session).await?
            }
            Err(error) => return Err(error),
        };
        for message_id in state.messages.keys() {
            let mark = mark("message.completed", &[("message_id", message_id.as_str())]);
            let command = Command::EndMessage {
                message_id: message_id.clone(),
                hash: String::from("unfinished"),
            };
            self.act(Task { command, buffered: false, mark, bytes: 0 }).await?;
        }
        for (call_id, call) in &state.calls {
            let (run_id, call_id) = (call.run_id.clone(), call_id.clone());
            if state.facts.run.as_ref().is_some_and(|run| run.run_id == run_id) {
                self.act(Self::conclude(run_id, call_id, ToolStatus::Unknown, 40)).await?;
            }
        }
        self.run = None;
        if let Some(run) = &state.facts.run {
            match run.phase {
                Phase::Open => self.run = Some(run.run_id.clone()),
                Phase::Interrupted { .. } if self.random.bool() => {
                    self.resume(run.run_id.clone()).await?;
                }
                _ => {}
            }
        }
        if self.run.is_none() { self.start().await } else { Ok(()) }
    }

    async fn step(&mut self) -> Result<(), Error> {
        let Some(run_id) = self.run.clone() else { return self.start().await };
        match self.random.u32(0..100) {
            0..50 => {
                let at_once = if self.serial { 1 } else { self.random.usize(1..5) };
                self.say(at_once).await
            }
            50..72 => self.use_tool(run_id).await,
            72..94 => self.ask(run_id).await,
            _ => {
                let mark = mark("run.completed", &[("run_id", run_id.as_str())]);
                let command = Command::Complete { run_id };
                self.run = None;
                self.act(Task { command, buffered: false, mark, bytes: 0 }).await
            }
        }
    }

    async fn act(&self, task: Task) -> Result<(), Error> {
        let ack = self.acknowledged(task).await?;
        self.out.say(&Line::Ack(ack));
        Ok(())
    }

    async fn acknowledged(&self, task: Task) -> Result<Ack, Error> {
        let Task { command, buffered, mark, bytes } = task;
        let ack = if buffered {
            self.handle.execute_buffered(&self.session, command).await?
        } else {
            self.handle.execute(&self.session, command).await?
        };
        let (session, last_seq) = (self.session.to_string(), ack.last_seq);
        Ok(Ack { session, last_seq, bytes, mark })
    }

    /// Mostly small; some do not fit beside their record and become blobs.
    fn bytes(&mut self) -> usize {
        if let Some(bytes) = self.bytes {
            return bytes;
        }
        match self.random.u32(0..100) {
            0..5 => self.random.usize(limits::PAYLOAD_INLINE_BYTES_MAX + 1..60_000),
            5..15 => self.random.usize(2_000..12_000),
            _ => self.random.usize(40..600),
        }
    }

    async fn create(&self) -> Result<(), Error> {
        let mark = mark("session.created", &[("session_id", self.session.as_str())]);
        let command = Command::Create(Create {
            session_id: self.session.clone(),
            title: None,
            task_id: None,
            working_dir: None,
            provider: None,
            agent_profile_id: None,
            setup: piton_core::decide::Setup::default(),
        });
        self.act(Task { command, buffered: false, mark, bytes: 0 }).await
    }

    async fn start(&mut self) -> Result<(), Error> {
        let (run_id, message_id) = (self.handle.ids().run()?, self.handle.ids().message()?);
        let mark = mark("message.user", &[("message_id", message_id.as_str())]);
        let bytes = self.bytes();
        let content = filler(message_id.as_str(), bytes);
        let message = Some(Message { message_id, content: content.into() });
        let command = Command::Start { run_id: run_id.clone(), message };
        self.act(Task { command, buffered: false, mark, bytes }).await?;
        self.run = Some(run_id);
        Ok(())
    }

    async fn resume(&mut self, run_id: RunId) -> Result<(), Error> {
        let boot = self.handle.boot().as_str();
        let mark = mark("run.resumed", &[("run_id", run_id.as_str()), ("boot_id", boot)]);
        let command = Command::Resume { run_id: run_id.clone() };
        self.act(Task { command, buffered: false, mark, bytes: 0 }).await?;
        self.run = Some(run_id);
        Ok(())
    }

    /// Some messages side by side, then the end of each.
    async fn say(&mut self, at_once: usize) -> Result<(), Error> {
        let mut says = Vec::new();
        let mut saids = Vec::new();
        for _ in 0..at_once {
            let message_id = self.handle.ids().message()?;
            let id = [("message_id", message_id.as_str())];
            let (delta, completed) = (mark("message.delta", &id), mark("message.completed", &id));
            let bytes = self.bytes();
            let text = filler(message_id.as_str(), bytes);
            let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
            let say = Command::Say { message_id: message_id.clone(), offset: Some(0), text };
            let buffered = !self.serial && self.random.u32(0..100) < 80;
            says.push(Task { command: say, buffered, mark: delta, bytes });
            let said = Command::EndMessage { message_id, hash };
            let buffered = !self.serial && self.random.bool();
            saids.push(Task { command: said, buffered, mark: completed, bytes: 0 });
        }
        for tasks in [says, saids] {
            // Several may be acknowledged between two looks at them: they are said in their order.
            let acknowledged = tasks.into_iter().map(|task| self.acknowledged(task));
            let mut acknowledged: FuturesOrdered<_> = acknowledged.collect();
            while let Some(ack) = acknowledged.next().await {
                self.out.say(&Line::Ack(ack?));
            }
        }
        Ok(())
    }

    async fn use_tool(&mut self, run_id: RunId) -> Result<(), Error> {
        let call_id = self.handle.ids().call()?;
        let mark = mark("tool.intent", &[("call_id", call_id.as_str())]);
        let bytes = self.random.usize(40..300);
        let command = Command::Intend {
            run_id: run_id.clone(),
            call_id: call_id.clone(),
            name: "shell".into(),
            arguments: Value::String(filler(call_id.as_str(), bytes)),
        };
        self.act(Task { command, buffered: false, mark, bytes }).await?;
        let bytes = self.bytes();
        self.act(Self::conclude(run_id, call_id, ToolStatus::Succeeded, bytes)).await
    }

    fn conclude(
        run_id: RunId,
        call_id: piton_core::id::CallId,
        status: ToolStatus,
        bytes: usize,
    ) -> Task {
        let mark = mark("tool.outcome", &[("call_id", call_id.as_str())]);
        let result = Value::String(filler(call_id.as_str(), bytes));
        let command = Command::Conclude { run_id, call_id, status, result };
        Task { command, buffered: false, mark, bytes }
    }

    async fn ask(&mut self, run_id: RunId) -> Result<(), Error> {
        let wait_id = self.handle.ids().wait()?;
        let run = ("run_id", run_id.as_str());
        let asked = mark("run.waiting", &[run, ("wait_id", wait_id.as_str())]);
        let boot = ("boot_id", self.handle.boot().as_str());
        let resumed = mark("run.resumed", &[run, boot, ("wait_id", wait_id.as_str())]);
        let bytes = self.random.usize(40..300);
        let kind = WaitKind::Permission;
        let command = Command::Wait(Wait {
            run_id,
            wait_id: wait_id.clone(),
            kind,
            deadline_at: SystemClock.now().after(limits::wait_default(kind)),
            fresh: NewToken::from(&self.handle.ids().token()?),
            question: Value::String(filler(wait_id.as_str(), bytes)),
        });
        self.act(Task { command, buffered: false, mark: asked, bytes }).await?;
        let bytes = self.bytes();
        let answer = Value::String(filler(wait_id.as_str(), bytes));
        let fresh = NewToken::from(&self.handle.ids().token()?);
        let command = Command::AnswerByWait { wait_id, fresh, answer };
        self.act(Task { command, buffered: false, mark: resumed, bytes }).await
    }
}
