//! Modelled agentctls, one per execution, outside of all boots: each with its spool, its journal of
//! commands and its agent. They continue without a server, and break by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use piton_core::Code;
use piton_core::decide::Probe;
use piton_core::id::{ExecutionId, RunId, SessionId};
use piton_core::spool::{ENTRY_VERSION, Ended, Entry, Fact, Pos};
use piton_exec::executor::At;
use piton_exec::protocol::{Act, Problem, Withdrawn};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::agent::{After, Agent, Did};
use super::ledger::Property;
use super::world::World;

/// All of a world's agentctls.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    pub machines: BTreeMap<ExecutionId, Machine>,
    pub faults: Faults,
    /// Nothing new is begun any more.
    pub calm: bool,
    /// Executions that were found not to be there: they never will be.
    buried: BTreeSet<ExecutionId>,
    /// The command with which each run's own prompt reached an agent.
    prompted: BTreeMap<(SessionId, RunId), (String, ExecutionId)>,
}

/// Chances in a thousand, per request, frame or tick.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub request_lost: u32,
    pub reply_lost: u32,
    pub duplicated: u32,
    pub cut: u32,
    pub launch_fails: u32,
    pub ack_slow: u32,
    ctl_killed: u32,
    agent_killed: u32,
    away: u32,
}

impl Faults {
    pub(super) fn draw(mut some: impl FnMut(u32) -> u32) -> Self {
        Self {
            request_lost: some(100),
            reply_lost: some(150),
            duplicated: some(200),
            cut: some(150),
            launch_fails: some(200),
            ack_slow: some(300),
            ctl_killed: some(4),
            agent_killed: some(4),
            away: some(6),
        }
    }
}

/// One agentctl and its agent.
#[derive(Debug)]
pub(super) struct Machine {
    pub session: SessionId,
    pub secret: [u8; 32],
    pub epoch: u64,
    pub spool_id: String,
    /// Everything that was ever written, also what was trimmed since, or lost.
    pub written: Vec<Entry>,
    /// What survives a power failure.
    flushed: Pos,
    /// What is there: less than was written after a power failure.
    pub kept: Pos,
    /// What was acknowledged is there no more.
    pub acked: Pos,
    pub journal: BTreeMap<String, (Act, Result<Value, Problem>)>,
    /// Commands that may not be accepted any more.
    withdrawn: BTreeSet<String>,
    pub delivered: BTreeSet<String>,
    pub is_up: bool,
    /// Without an agentctl: a leftover.
    pub agent: Option<Agent>,
    /// Ticks until it can be reached again.
    pub away: u64,
    /// Number of the stream that is served; others are cut.
    pub stream: u64,
    pub is_forgotten: bool,
    pub changed: Arc<Notify>,
}

pub(super) fn problem(code: Code) -> Problem {
    Problem::new(code, format!("The model says {code}"))
}

impl Machine {
    pub(super) fn new(session: SessionId, secret: [u8; 32], epoch: u64, spool_id: String) -> Self {
        Self {
            session,
            secret,
            epoch,
            spool_id,
            written: Vec::new(),
            flushed: 0,
            kept: 0,
            acked: 0,
            journal: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            delivered: BTreeSet::new(),
            is_up: true,
            agent: None,
            away: 0,
            stream: 0,
            is_forgotten: false,
            changed: Arc::default(),
        }
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.is_up && self.away == 0
    }

    /// Something of it runs.
    pub(super) fn lives(&self) -> bool {
        self.is_up || self.agent.is_some()
    }

    fn write(&mut self, world: &World, did: Did) {
        let pos = self.written.len() as Pos + 1;
        let Did { run_id, fact } = did;
        world.note(format_args!("{} writes {pos}: {fact:?}", self.spool_id));
        if is_durable_at_once(&fact) {
            self.flushed = pos;
        }
        let (v, at) = (ENTRY_VERSION, world.now());
        self.written.push(Entry { v, pos, at, run_id, fact, raw: None });
        self.kept = pos;
        self.changed.notify_waiters();
    }

    pub(super) fn cut_streams(&mut self) {
        self.stream += 1;
        self.changed.notify_waiters();
    }

    /// The agent ends, and its agentctl writes that down.
    fn agent_ended(&mut self, world: &World, exit_code: Option<i32>, asked: bool) {
        let Some(mut agent) = self.agent.take() else { return };
        let mut did = Vec::new();
        agent.last_words(&mut did);
        let signal = exit_code.is_none().then_some(9);
        let fact = Fact::AgentExited { exit_code, signal, requested: asked, stderr: String::new() };
        did.push(Did { run_id: None, fact });
        for did in did {
            self.write(world, did);
        }
    }

    /// Ends everything, in good order.
    pub(super) fn stop(&mut self, world: &World) {
        if self.is_up {
            self.agent_ended(world, None, true);
        }
        self.agent = None;
        self.is_up = false;
        self.cut_streams();
    }

    /// SIGKILL. What was written stays; the agent may stay, too, without a reader of its output.
    fn killed(&mut self, world: &World) {
        self.is_up = false;
        if world.chance(50) {
            self.agent = None;
        }
        self.cut_streams();
    }

    fn power_loss(&mut self, world: &World) {
        self.is_up = false;
        self.agent = None;
        self.away = 0;
        let flushed = self.flushed.min(self.kept);
        self.kept = world.range(flushed, self.kept);
        self.cut_streams();
    }

    fn tick(&mut self, world: &World, faults: Faults, calm: bool) {
        let hit = |chance: u32| chance > 0 && world.range(0, 999) < u64::from(chance);
        if self.away > 0 {
            self.away = if calm { 0 } else { self.away - 1 };
        } else if self.is_up && hit(faults.away) {
            self.away = world.range(1, 400);
            world.note(format_args!("{} cannot be reached", self.spool_id));
            self.cut_streams();
        }
        if self.is_up && hit(faults.ctl_killed) {
            world.note(format_args!("{} is killed", self.spool_id));
            return self.killed(world);
        }
        if !self.is_up {
            return;
        }
        if self.agent.is_some() && hit(faults.agent_killed) {
            return self.agent_ended(world, None, false);
        }
        let Some(agent) = &mut self.agent else { return };
        let mut did = Vec::new();
        let after = agent.step(world, calm, &mut did);
        for did in did {
            self.write(world, did);
        }
        if let After::Ends { exit_code } = after {
            self.agent_ended(world, exit_code, false);
        }
    }

    /// Does a command, or answers as the first time. What is refused for now only (no agent, a busy
    /// one) leaves no trace; everything else is in the spool before the agent is touched.
    pub(super) fn command(
        &mut self,
        world: &World,
        id: &str,
        act: &Act,
        others_live: bool,
    ) -> (bool, Result<Value, Problem>) {
        if let Some((known, result)) = self.journal.get(id) {
            let result =
                if known == act { result.clone() } else { Err(problem(Code::CommandMismatch)) };
            return (true, result);
        }
        if self.withdrawn.contains(id) {
            return (false, Err(problem(Code::CommandWithdrawn)));
        }
        if let Some(code) = self.not_now(act) {
            return (false, Err(problem(code)));
        }
        let run_id = match act {
            Act::Prompt { run_id, .. } | Act::Cancel { run_id } => Some(run_id.clone()),
            _ => None,
        };
        let fact =
            Fact::CommandAccepted { command_id: id.to_owned(), command: act.name().to_owned() };
        self.write(world, Did { run_id, fact });
        let result = self.act(world, act, others_live);
        if result.is_ok() && !self.delivered.insert(id.to_owned()) {
            world.violated(Property::DeliveredOnce, format!("{id} reaches the agent again"));
        }
        self.journal.insert(id.to_owned(), (act.clone(), result.clone()));
        (false, result)
    }

    fn not_now(&self, act: &Act) -> Option<Code> {
        let agent = self.agent.as_ref();
        match act {
            Act::Start(_) => agent.is_some().then_some(Code::AgentRunning),
            Act::Prompt { .. } => match agent {
                Some(agent) if agent.turn.is_some() => Some(Code::AgentBusy),
                Some(agent) if agent.is_ready => None,
                _ => Some(Code::AgentNotRunning),
            },
            // Without an agent there is nothing to end.
            Act::Stop {} | Act::Withdraw { .. } => None,
            _ => agent.is_none().then_some(Code::AgentNotRunning),
        }
    }

    fn act(&mut self, world: &World, act: &Act, others_live: bool) -> Result<Value, Problem> {
        let mut did = Vec::new();
        match (act, &mut self.agent) {
            (Act::Start(start), agent) => {
                if others_live {
                    let detail =
                        format!("{}: {} starts a second agent", self.session, self.spool_id);
                    world.violated(Property::OneAgent, detail);
                }
                *agent = Some(Agent::new(start.agent_session_id.clone()));
                did.push(Did { run_id: None, fact: Fact::AgentStarting {} });
            }
            (Act::Prompt { run_id, .. }, Some(agent)) => {
                agent.begin(run_id.clone());
                did.push(Did { run_id: Some(run_id.clone()), fact: Fact::TurnStarted {} });
            }
            (Act::Cancel { run_id }, Some(agent)) => {
                if agent.turn.as_ref().is_none_or(|turn| turn.run_id != *run_id) {
                    return Err(problem(Code::TurnNotFound));
                }
                agent.cancel();
                for wait_id in std::mem::take(&mut agent.asks) {
                    agent.answers.insert(wait_id.clone(), false);
                    let fact = Fact::WaitEnded { wait_id, why: Ended::Cancelled };
                    did.push(Did { run_id: Some(run_id.clone()), fact });
                }
            }
            (Act::Answer { wait_id, answer }, Some(agent)) => {
                if !agent.asks.remove(wait_id) {
                    return Err(problem(Code::WaitNotFound));
                }
                agent.answers.insert(wait_id.clone(), answer.is_some());
                let why = if answer.is_some() { Ended::Answered } else { Ended::Cancelled };
                let run_id = agent.turn.as_ref().map(|turn| turn.run_id.clone());
                did.push(Did { run_id, fact: Fact::WaitEnded { wait_id: wait_id.clone(), why } });
            }
            (Act::Stop {}, _) => self.agent_ended(world, None, true),
            (Act::Withdraw { command_id }, _) => {
                let accepted = self.journal.contains_key(command_id);
                if !accepted {
                    self.withdrawn.insert(command_id.clone());
                }
                return Ok(json!(Withdrawn { accepted }));
            }
            _ => return Err(problem(Code::RequestInvalid)),
        }
        for did in did {
            self.write(world, did);
        }
        Ok(Value::Null)
    }
}

impl Fleet {
    pub(super) fn new(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    /// False if it was found not to be there before.
    pub(super) fn launch(&mut self, execution: &ExecutionId, machine: Machine) -> bool {
        let may = !self.buried.contains(execution);
        if may {
            self.machines.insert(execution.clone(), machine);
        }
        may
    }

    pub(super) fn probe(&mut self, execution: &ExecutionId) -> Probe {
        match self.machines.get_mut(execution) {
            Some(machine) if machine.away > 0 => Probe::Unreachable,
            Some(machine) if machine.is_up => Probe::Alive,
            Some(machine) => {
                // What it left is ended first.
                machine.agent = None;
                Probe::Gone
            }
            None => {
                self.buried.insert(execution.clone());
                Probe::Gone
            }
        }
    }

    /// A run's own prompt has reached an agent.
    pub(super) fn prompted(&mut self, world: &World, at: &At, run: &RunId, id: &str) {
        let At { session, execution, .. } = at;
        let place = (session.clone(), run.clone());
        if let Some((first, _)) = self.prompted.insert(place, (id.to_owned(), execution.clone())) {
            let detail = format!("{session}: the prompt of {run} by {first}, then by {id}");
            world.violated(Property::DeliveredOnce, detail);
        }
    }

    /// Runs of a session whose prompt reached an agent, each with its execution.
    pub(super) fn given(
        &self,
        session: &SessionId,
    ) -> impl Iterator<Item = (&RunId, &ExecutionId)> {
        let given = self.prompted.iter().filter(move |((of, _), _)| of == session);
        given.map(|((_, run), (_, execution))| (run, execution))
    }

    pub(super) fn tick(&mut self, world: &World) {
        let (faults, calm) = (self.faults, self.calm);
        self.machines.values_mut().for_each(|machine| machine.tick(world, faults, calm));
    }

    /// Something is under way that the next tick would move.
    pub(super) fn is_busy(&self) -> bool {
        let busy = |machine: &Machine| {
            machine.away > 0
                || machine.agent.as_ref().is_some_and(|a| !a.is_ready || a.turn.is_some())
        };
        self.machines.values().any(busy)
    }

    pub(super) fn power_loss(&mut self, world: &World) {
        self.machines.values_mut().for_each(|machine| machine.power_loss(world));
    }

    pub(super) fn calm(&mut self) {
        self.calm = true;
        self.faults = Faults::default();
        self.machines.values_mut().for_each(|machine| machine.away = 0);
    }
}

/// What agentctl promises to have on its disk before any client acts on it: all but what can be
/// sent again, or only informs. The world's own copy of the rule, kind by kind.
fn is_durable_at_once(fact: &Fact) -> bool {
    match fact {
        Fact::CommandAccepted { .. }
        | Fact::AgentReady { .. }
        | Fact::AgentSessionAssigned { .. }
        | Fact::AgentSessionRefused { .. }
        | Fact::AgentError { .. }
        | Fact::AgentExited { .. }
        | Fact::TurnStarted {}
        | Fact::TurnEnded { .. }
        | Fact::TurnFailed { .. }
        | Fact::TextEnd { .. }
        | Fact::ToolCall { .. }
        | Fact::ToolResult { .. }
        | Fact::WaitOpened { .. }
        | Fact::WaitEnded { .. }
        | Fact::HistoryDiverged { .. }
        | Fact::Unknown { .. } => true,
        Fact::AgentStarting {}
        | Fact::Text { .. }
        | Fact::ToolUpdate { .. }
        | Fact::Update { .. }
        | Fact::Dropped { .. } => false,
    }
}
