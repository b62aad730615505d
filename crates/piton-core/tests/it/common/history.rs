//! Random histories: commands that make sense and commands that do not, restarts, and time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use piton_core::agent_view::{ConfigValue, Configure};
use piton_core::decide::{
    Command, Create, Decision, IfBusy, Import, Message, Prepare, Probe, Prompt, QueuePosition,
    Refusal, Wait, asks,
};
use piton_core::event::{self, Event, Outcome, ToolStatus, WaitKind};
use piton_core::permission::{Action, Rule, Rules};
use piton_core::reason::Reason;
use piton_core::request::Request;
use piton_core::resume::{self, StartTrigger};
use piton_core::spool::{
    Channel, ENTRY_VERSION, Ended, Entry, Fact, OpenedAs, SessionCapabilities,
};
use proptest::prelude::*;
use serde_json::Value;

use super::{World, at, cancel, fresh, id, start};

/// One thing that happens. Small numbers name runs, waits, calls and so on, so that histories
/// meet themselves again.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Pass(u64),
    Restart,
    Create(Option<Value>),
    Close(Outcome),
    Rename(Option<String>),
    /// A mode, or an option.
    Configure(Option<String>, bool),
    Start(u8),
    Wait(u8, u8, WaitKind, u64),
    AnswerByToken(prop::sample::Index, u8),
    AnswerByWait(u8, u8),
    Rotate(u8),
    /// With the token that was minted last, as a retry does it.
    RotateAgain(u8),
    Mint(Option<u64>),
    Resume(u8),
    Pause(u8),
    Complete(u8),
    Fail(u8),
    Cancel(u8),
    Dismiss(u8),
    Interrupt(u8),
    Say(u8, Option<u64>, String),
    Said(u8),
    Intend(u8, u8),
    Conclude(u8, u8, ToolStatus),
    Observe(u8, u8),
    /// What an execution's agent is to be given for the first prompt that waits.
    Prepare(u8),
    /// The agent is to end if it had nothing to do for so many minutes.
    EndIdle(u8),
    Abandon(u8),
    Recover(Option<Probe>),
    Sweep(bool),
    Done(prop::sample::Index),
    /// What the spool of an execution says next of a run, in facts by their numbers.
    Import(u8, u8, Vec<u8>),
    /// Of a worktree: planned (two branches), prepared, removed with its branch or without.
    Workspace(u8),
    /// A prompt that may have to wait: with which choice, and under which number.
    Prompt(u8, u8),
    /// A queued prompt is edited, moved, removed; the queue is released; the next one delivered.
    Queue(u8, u8),
}

pub(crate) fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![Outcome::Completed, Outcome::Failed, Outcome::Cancelled])
}

/// JSON, with the numbers that are easily spoilt on the way through text.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-c]{1,2}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(vec![
        WaitKind::Input,
        WaitKind::Permission,
        WaitKind::ToolResult,
        WaitKind::Human,
    ]);
    let probe =
        prop::option::of(prop::sample::select(vec![Probe::Alive, Probe::Gone, Probe::Unreachable]));
    let status = prop::sample::select(vec![ToolStatus::Succeeded, ToolStatus::Unknown]);
    let run = || 0..3_u8;
    let (wait, few) = (|| 0..3_u8, || 0..2_u8);
    let minutes = || 0..12_u64;
    let ends = prop_oneof![
        run().prop_map(Step::Complete),
        run().prop_map(Step::Fail),
        run().prop_map(Step::Cancel),
        run().prop_map(Step::Dismiss),
        run().prop_map(Step::Interrupt),
        run().prop_map(Step::Pause),
    ];
    let answers = prop_oneof![
        (any::<prop::sample::Index>(), few()).prop_map(|(t, a)| Step::AnswerByToken(t, a)),
        (wait(), few()).prop_map(|(w, a)| Step::AnswerByWait(w, a)),
        wait().prop_map(Step::Rotate),
        wait().prop_map(Step::RotateAgain),
        prop::option::of(minutes()).prop_map(Step::Mint),
    ];
    let stream = prop_oneof![
        (few(), prop::option::of(0..4_u64), "[aü]{0,2}").prop_map(|(m, o, t)| Step::Say(m, o, t)),
        few().prop_map(Step::Said),
        (run(), few()).prop_map(|(r, c)| Step::Intend(r, c)),
        (run(), few(), status).prop_map(|(r, c, s)| Step::Conclude(r, c, s)),
    ];
    let world = prop_oneof![
        2 => minutes().prop_map(Step::Pass),
        2 => Just(Step::Restart),
        6 => (0..12_u8, few()).prop_map(|(event, execution)| Step::Observe(event, execution)),
        2 => few().prop_map(Step::Prepare),
        2 => few().prop_map(Step::EndIdle),
        2 => few().prop_map(Step::Abandon),
        2 => probe.prop_map(Step::Recover),
        1 => any::<bool>().prop_map(Step::Sweep),
        3 => any::<prop::sample::Index>().prop_map(Step::Done),
        2 => (few(), run(), prop::collection::vec(0..19_u8, 1..6))
            .prop_map(|(execution, run, facts)| Step::Import(execution, run, facts)),
    ];
    prop_oneof![
        1 => outcome().prop_map(Step::Close),
        1 => prop::option::of("[a-z ]{0,8}").prop_map(Step::Rename),
        1 => (prop::option::of("[a-z]{1,3}"), any::<bool>()).prop_map(|(m, o)| Step::Configure(m, o)),
        1 => prop::option::of(json()).prop_map(Step::Create),
        12 => run().prop_map(Step::Start),
        16 => (run(), wait(), kind, minutes()).prop_map(|(r, w, k, m)| Step::Wait(r, w, k, m)),
        4 => run().prop_map(Step::Resume),
        8 => ends,
        16 => answers,
        12 => stream,
        24 => world,
        3 => (0..6_u8).prop_map(Step::Workspace),
        12 => (0..5_u8, 0..8_u8).prop_map(|(choice, n)| Step::Prompt(choice, n)),
        12 => (0..7_u8, 0..8_u8).prop_map(|(what, n)| Step::Queue(what, n)),
    ]
}

/// An agent is started, and nothing needs it; single steps hardly ever come in this order.
fn idles() -> impl Strategy<Value = Vec<Step>> {
    (0..2_u8, 0..3_u64, 0..2_u8).prop_map(|(execution, passes, minutes)| {
        vec![
            Step::Observe(0, execution),
            Step::Observe(8, execution),
            Step::Pass(passes),
            Step::EndIdle(minutes),
        ]
    })
}

/// Most histories begin with a session's creation; some do not.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let created = prop::option::weighted(0.95, prop::option::of(json()).prop_map(Step::Create));
    let stretch = prop_oneof![40 => step().prop_map(|step| vec![step]), 1 => idles()];
    (created, prop::collection::vec(stretch, 0..60))
        .prop_map(|(created, rest)| created.into_iter().chain(rest.into_iter().flatten()).collect())
}

fn workspace(step: u8) -> Command {
    let plan = |branch: &str| piton_core::worktree::WorktreePlan {
        path: "/data/worktrees/sess_1".into(),
        repository: "/repo".into(),
        branch: branch.into(),
        base: "main".into(),
        base_commit: "0123456789abcdef0123456789abcdef01234567".into(),
    };
    match step {
        0 => Command::PlanWorkspace(plan("piton/1")),
        1 => Command::PlanWorkspace(plan("piton/2")),
        2 => Command::WorkspacePrepared(plan("piton/1")),
        5 => Command::AssignAgent { agent_profile_id: "echo".into() },
        step => Command::WorkspaceRemoved { kept_branch: step == 3 },
    }
}

fn observed(event: u8, execution: u8) -> Event {
    let execution_id = id(&format!("exec_{execution}"));
    match event {
        0 | 1 => event::ExecutorStarting { execution_id, runtime: "docker".into() }.into(),
        2 | 3 => event::ExecutorReady { execution_id }.into(),
        4 => event::ExecutorUnreachable { execution_id, code: None }.into(),
        5 => event::ExecutorStopped { execution_id }.into(),
        6 => event::ExecutorError { execution_id, reason: None, code: None }.into(),
        7 => event::AgentStarting { execution_id }.into(),
        8 => event::AgentReady { execution_id, agent_session_id: Some("theirs".into()) }.into(),
        9 => event::AgentResuming {
            execution_id,
            trigger: StartTrigger::Open,
            strategy: resume::Strategy::History,
            history: true,
            interruption_summary: true,
            context: None,
            context_reason: None,
        }
        .into(),
        10 => {
            let (until, reason) = (at(2_000_000), Reason::AgentWaitingToLoad);
            event::AgentWaiting { until, reason }.into()
        }
        _ => event::AgentExited { execution_id, exit_code: None, signal: None }.into(),
    }
}

/// A rule that answers a request to list files, and one that leaves a request to a person.
fn rules() -> Arc<Rules> {
    let rule = |action, command: &str| Rule {
        name: None,
        action,
        tool: None,
        command: Some(command.to_owned()),
        path: None,
        agent: None,
        folder: None,
    };
    let rules = vec![rule(Action::Allow, "ls"), rule(Action::Ask, "rm *")];
    Arc::new(Rules::new(rules).expect("the rules are valid"))
}

fn asks_to_run(command: &str) -> serde_json::Value {
    serde_json::json!({"toolCall": {"kind": "execute", "rawInput": {"command": command}},
        "options": [{"option_id": "yes", "kind": "allow_once"}]})
}

fn spoken(fact: u8) -> Fact {
    let (call_id, wait_id) = (id("call_0"), id("wait_0"));
    let (message_id, value) = (id("msg_0"), Value::Null);
    match fact {
        0 | 1 => Fact::Text { message_id, channel: Channel::Thought, offset: 0, text: "ü".into() },
        2 => Fact::TextEnd { message_id, length: 2, hash: String::new() },
        3 => Fact::ToolCall { call_id, name: "shell".into(), arguments: value },
        4 | 17 => Fact::ToolResult { call_id, status: ToolStatus::Failed, result: value },
        5 => Fact::ToolUpdate { call_id, update: value },
        6 => {
            let question = asks_to_run("ls");
            Fact::WaitOpened { wait_id, wait_kind: WaitKind::Permission, question }
        }
        7 => Fact::WaitEnded { wait_id, why: Ended::Withdrawn },
        8 => Fact::AgentStarting {},
        9 => Fact::AgentReady {
            opened_as: OpenedAs::New,
            agent_session_id: Some("another".into()),
            requested_session_id: None,
            agent: None,
            capabilities: SessionCapabilities::default(),
        },
        10 => Fact::AgentSessionAssigned { agent_session_id: "theirs".into() },
        11 => {
            let agent_session_id = Some("theirs".into());
            Fact::AgentSessionRefused { code: -32002, message: "no".into(), agent_session_id }
        }
        12 => {
            let (code, message) = ("agent_missing".into(), "no".into());
            Fact::AgentError { code, message, auth_methods: Vec::new() }
        }
        13 => {
            let stderr = String::new();
            Fact::AgentExited { exit_code: Some(1), signal: None, requested: false, stderr }
        }
        14 => Fact::TurnEnded { stop_reason: "end_turn".into() },
        18 => {
            let (wait_id, question) = (id("wait_1"), asks_to_run("rm x"));
            Fact::WaitOpened { wait_id, wait_kind: WaitKind::Permission, question }
        }
        15 => Fact::TurnFailed { code: "agent_error".into(), message: "no".into() },
        _ => Fact::HistoryDiverged { unseen: 1, rest: value },
    }
}

/// A history that is being made.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) world: World,
    minted: u32,
    boots: u32,
}

/// As someone who can be named asks for it.
fn requested(command: Command) -> Command {
    let (principal, action) = ("key_1".into(), "sessions.pause".into());
    let request = Request { principal, action, key: None, response: None };
    Command::Requested { request, command: Box::new(command) }
}

fn prompt(choice: u8, n: u8) -> Command {
    let if_busy = match choice {
        0 => IfBusy::Default,
        1 => IfBusy::Reject,
        2 => IfBusy::Supersede,
        _ => IfBusy::Queue,
    };
    let position = if choice == 4 { QueuePosition::First } else { QueuePosition::Last };
    let message = Message { message_id: id(&format!("msg_q{n}")), content: "and?".into() };
    Command::Prompt(Prompt {
        run_id: id(&format!("run_q{n}")),
        message,
        if_busy,
        position,
        queue_max: 4,
    })
}

impl History {
    fn queue(&self, what: u8, n: u8) -> Command {
        let message_id = id(&format!("msg_q{n}"));
        match what {
            0 => Command::EditQueued { message_id, version: None, content: "but?".into() },
            1 => Command::MoveQueued { message_id, position: u32::from(n) },
            2 => Command::RemoveQueued { message_id, version: None },
            3 => Command::ReleaseQueue,
            _ => {
                let next = self.world.state.queue.iter().find(|prompt| !prompt.held);
                let seq = next.map_or(0, |prompt| prompt.seq);
                Command::Deliver { seq, content: "and?".into() }
            }
        }
    }

    pub(crate) fn new() -> Self {
        Self { world: World::empty(), minted: 0, boots: 1 }
    }

    fn fresh(&mut self) -> String {
        self.minted += 1;
        format!("rt_{}", self.minted)
    }

    /// Does it; what was decided, if something was asked.
    pub(crate) fn take(&mut self, step: Step) -> Option<Result<Decision, Refusal>> {
        match step {
            Step::Pass(minutes) => {
                self.world.pass(Duration::from_mins(minutes));
                None
            }
            Step::Restart => {
                self.boots += 1;
                self.world.restart(&format!("boot_{}", self.boots));
                None
            }
            step => {
                let command = self.command(step);
                Some(self.world.decide(command))
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    fn command(&mut self, step: Step) -> Command {
        let run = |n| id(&format!("run_{n}"));
        let wait = |n| id(&format!("wait_{n}"));
        // The first number stands for the current run, whatever it is called.
        let current = self.world.state.facts.run.as_ref().map(|run| run.run_id.clone());
        let current_or = |n: u8| current.clone().filter(|_| n == 0).unwrap_or_else(|| run(n));
        let later = |world: &World, minutes| world.now.after(Duration::from_mins(minutes));
        match step {
            Step::Create(provider) => Command::Create(Create {
                session_id: id("sess_1"),
                title: None,
                task_id: Some(id("task_1")),
                working_dir: None,
                provider,
                agent_profile_id: None,
                setup: piton_core::decide::Setup::default(),
            }),
            Step::Close(outcome) => Command::Close { outcome },
            Step::Rename(title) => Command::Rename { title },
            Step::Configure(mode, on) => {
                let option = ("web".to_owned(), ConfigValue::Bool(on));
                let options = if mode.is_none() { [option].into() } else { [].into() };
                Command::Configure(Configure { mode, model: None, options })
            }
            Step::Workspace(step) => workspace(step),
            Step::Start(n) => start(&format!("run_{n}")),
            Step::Prompt(choice, n) => prompt(choice, n),
            Step::Queue(what, n) => self.queue(what, n),
            Step::Wait(r, w, kind, minutes) => Command::Wait(Wait {
                run_id: run(r),
                wait_id: wait(w),
                kind,
                deadline_at: later(&self.world, minutes),
                fresh: fresh(&self.fresh()),
                question: Value::Null,
            }),
            Step::AnswerByToken(index, answer) => {
                // One of those that were minted, or the next, which no one knows.
                let n = 1 + index.index(self.minted as usize + 1);
                self.world.answer(&format!("rt_{n}"), answer)
            }
            Step::AnswerByWait(w, answer) => Command::AnswerByWait {
                wait_id: wait(w),
                fresh: fresh(&self.fresh()),
                answer: answer.into(),
            },
            Step::Rotate(w) => {
                Command::RotateToken { wait_id: wait(w), fresh: fresh(&self.fresh()) }
            }
            Step::RotateAgain(w) => match self.current(w) {
                Some(name) => Command::RotateToken { wait_id: wait(w), fresh: fresh(&name) },
                None => Command::RotateToken { wait_id: wait(w), fresh: fresh(&self.fresh()) },
            },
            Step::Mint(minutes) => Command::MintInterruption {
                fresh: fresh(&self.fresh()),
                expires_at: minutes.map(|minutes| later(&self.world, minutes)),
            },
            Step::Resume(n) => Command::Resume { run_id: current_or(n) },
            Step::Pause(n) if n % 2 == 1 => requested(Command::Pause { run_id: current_or(n) }),
            Step::Pause(n) => Command::Pause { run_id: current_or(n) },
            Step::Complete(n) => Command::Complete { run_id: current_or(n) },
            Step::Fail(n) => {
                Command::Fail { run_id: current_or(n), code: None, error: "no".into() }
            }
            Step::Cancel(n) => cancel(current_or(n).as_str()),
            Step::Dismiss(n) => Command::Dismiss { run_id: current_or(n) },
            Step::Interrupt(n) => {
                Command::Interrupt { run_id: current_or(n), reason: Reason::ProcessExit }
            }
            Step::Say(n, offset, text) => {
                Command::Say { message_id: id(&format!("msg_{n}")), offset, text }
            }
            Step::Said(n) => {
                Command::EndMessage { message_id: id(&format!("msg_{n}")), hash: String::new() }
            }
            Step::Intend(r, c) => Command::Intend {
                run_id: run(r),
                call_id: id(&format!("call_{c}")),
                name: "shell".into(),
                arguments: Value::Null,
            },
            Step::Conclude(r, c, status) => Command::Conclude {
                run_id: run(r),
                call_id: id(&format!("call_{c}")),
                status,
                result: Value::Null,
            },
            Step::Observe(event, execution) => {
                Command::Observe { event: observed(event, execution), message: None }
            }
            Step::Prepare(n) => {
                let prompts = self.world.state.pending.iter();
                let mut prompts = prompts.filter(|(_, effect)| effect.is_prompt());
                Command::Prepare(Prepare {
                    of_seq: prompts.next().map_or(1, |(seq, _)| *seq),
                    execution_id: id(&format!("exec_{n}")),
                    history: true,
                    note: true,
                    prompt: "All of it".into(),
                })
            }
            Step::EndIdle(minutes) => {
                let executor = self.world.state.facts.executor.as_ref();
                let current = executor.map(|executor| executor.execution_id.clone());
                Command::EndIdleAgent {
                    execution_id: current.unwrap_or_else(|| id("exec_0")),
                    idle_for: Duration::from_mins(u64::from(minutes)),
                }
            }
            Step::Abandon(n) => Command::Abandon { execution_id: id(&format!("exec_{n}")) },
            Step::Recover(probe) => self.world.recovery(probe),
            Step::Sweep(live) => Command::Sweep { live },
            Step::Done(index) => {
                // Mostly one that is to be carried out.
                let pending: Vec<_> = self.world.state.pending.keys().copied().collect();
                let any = index.index(self.world.log.len() + 1) as u64;
                let of_seq = pending.get(index.index(pending.len() + 1)).copied().unwrap_or(any);
                Command::Done { of_seq }
            }
            Step::Import(execution, run, facts) => self.import(execution, run, &facts),
            Step::Pass(_) | Step::Restart => unreachable!("nothing is asked"),
        }
    }

    fn import(&mut self, execution: u8, run: u8, facts: &[u8]) -> Command {
        let execution_id = id(&format!("exec_{execution}"));
        let spool = self.world.state.spools.get(&execution_id);
        let first = spool.map_or(0, |spool| spool.pos) + 1;
        let entry = |(pos, fact): (u64, &u8)| Entry {
            v: ENTRY_VERSION,
            pos,
            at: self.world.now,
            run_id: (*fact != 17).then(|| id(&format!("run_{run}"))),
            fact: spoken(*fact),
            raw: None,
        };
        let entries: Vec<Entry> = (first..).zip(facts).map(entry).collect();
        let fresh = (0..asks(&entries)).map(|_| fresh(&self.fresh())).collect();
        let (spool_id, masked) = (format!("spool_{execution}"), BTreeMap::new());
        Command::Import(Import {
            execution_id,
            spool_id,
            entries,
            lost: None,
            damage: None,
            masked,
            fresh,
            rules: if run == 1 { rules() } else { Arc::default() },
        })
    }

    /// The token that a wait has now.
    fn current(&self, wait: u8) -> Option<String> {
        let run = self.world.state.facts.run.as_ref()?;
        let wait = run.waits.get(&id(&format!("wait_{wait}")))?;
        wait.token_id.as_ref().map(ToString::to_string)
    }
}
