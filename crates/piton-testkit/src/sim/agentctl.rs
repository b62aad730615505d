//! What a boot sees of the modelled agentctls. Requests and replies get lost or come twice,
//! connections are cut at any frame, and every step is a place where the boot can die.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use piton_core::Code;
use piton_core::Seq;
use piton_core::decide::Probe;
use piton_core::id::{ExecutionId, SessionId};
use piton_core::spool::{Entry, Pos, Spool};
use piton_exec::client::Client;
use piton_exec::executor::{
    At, Drained, EntryStream, Error, Executor, Fault, LaunchSpec, ListedExecution, Located,
};
use piton_exec::protocol::{Act, Command, Frame, Reply};

use super::ledger::Property;
use super::machine::{Fleet, Machine, problem};
use super::parts::step;
use super::resuming::is_own_prompt;
use super::world::{Boot, World};

/// What clients ask for begins like this; what the runtime says by itself does not.
pub(super) const PROMPT: &str = "do ";

#[derive(Clone)]
struct Remote {
    world: Arc<World>,
    boot: Arc<Boot>,
    /// What this boot does at this moment, and to which execution.
    doing: Arc<Mutex<BTreeMap<(&'static str, ExecutionId), u32>>>,
}

/// Something that a boot must not do twice at the same time. The simulator counts it itself: it does
/// not ask the runtime which supervisors there are.
struct Alone {
    remote: Remote,
    key: (&'static str, ExecutionId),
}

impl Drop for Alone {
    fn drop(&mut self) {
        if let Some(count) = self.remote.doing().get_mut(&self.key) {
            *count -= 1;
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.boot.id)
    }
}

pub(super) fn executor(world: &Arc<World>, boot: &Arc<Boot>) -> Arc<dyn Executor> {
    let (world, boot) = (Arc::clone(world), Arc::clone(boot));
    Arc::new(Remote { world, boot, doing: Arc::default() })
}

fn unreachable(what: &str) -> Fault {
    Fault::Unreachable { message: what.to_owned() }
}

impl Remote {
    async fn step(&self) {
        step(&self.world, &self.boot).await;
    }

    fn doing(&self) -> MutexGuard<'_, BTreeMap<(&'static str, ExecutionId), u32>> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until it is dropped, the boot does this, and must not do it a second time.
    fn alone(&self, what: &'static str, execution: &ExecutionId) -> Alone {
        let key = (what, execution.clone());
        let count = {
            let mut doing = self.doing();
            let count = doing.entry(key.clone()).or_default();
            *count += 1;
            *count
        };
        if count > 1 {
            let detail = format!("{} {what} {execution} {count} times at once", self.boot.id);
            self.world.violated(Property::OneSupervisor, detail);
        }
        Alone { remote: self.clone(), key }
    }

    fn hit(&self, chance: u32) -> bool {
        chance > 0 && self.world.range(0, 999) < u64::from(chance)
    }

    /// A request arrives: its epoch is looked at, and streams of lower ones are cut.
    fn arrive<'a>(fleet: &'a mut Fleet, at: &At) -> Result<&'a mut Machine, Fault> {
        let machine = fleet.machines.get_mut(&at.execution).filter(|m| m.is_reachable());
        let machine = machine.ok_or_else(|| unreachable("cannot reach it"))?;
        if machine.secret != at.secret {
            return Err(problem(Code::Unauthenticated).into());
        }
        if at.epoch < machine.epoch {
            return Err(problem(Code::EpochStale).into());
        }
        if at.epoch > machine.epoch {
            machine.epoch = at.epoch;
            machine.cut_streams();
        }
        Ok(machine)
    }

    fn do_command(&self, at: &At, command: &Command) -> Result<Reply, Fault> {
        let world = &self.world;
        let mut fleet = world.fleet();
        let others_live = fleet.machines.iter().any(|(id, machine)| {
            let elsewhere = *id != at.execution && machine.session == at.session;
            elsewhere && machine.agent.is_some() && !world.is_abandoned(&at.session, id)
        });
        let machine = Self::arrive(&mut fleet, at)?;
        world.commanded(&at.session, &command.id);
        let (replayed, result) = machine.command(world, &command.id, &command.act, others_live);
        if let (Act::Prompt { run_id, content }, false, Ok(_)) = (&command.act, replayed, &result) {
            let text = &content.text();
            let agent = machine.agent.as_ref();
            let conversation = agent.and_then(|agent| agent.conversation.clone());
            if let Some(conversation) = conversation {
                let before: Vec<_> = fleet.given(&at.session).map(|(run, _)| run.clone()).collect();
                world.receive_prompt(&conversation, run_id, text, &before);
            }
            if is_own_prompt(text) {
                fleet.prompted(world, at, run_id, &command.id);
            }
        }
        world.note(format_args!("{} receives {command:?}: {replayed} {result:?}", at.execution));
        Ok(Reply { id: command.id.clone(), replayed, result: result? })
    }
}

impl Executor for Remote {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn launch(&self, at: LaunchSpec) -> BoxFuture<'_, Result<(), Fault>> {
        let remote = self.clone();
        Box::pin(async move {
            remote.step().await;
            let faults = remote.world.fleet().faults;
            if remote.hit(faults.launch_fails) {
                return Err(problem(Code::AgentctlEnded).into());
            }
            if remote.world.chance(20) {
                tokio::time::sleep(Duration::from_millis(remote.world.range(1, 1_000))).await;
                remote.step().await;
            }
            let machine =
                Machine::new(at.session, at.secret, at.epoch, format!("spool_{}", at.execution));
            if !remote.world.fleet().launch(&at.execution, machine) {
                return Err(problem(Code::AgentctlClosing).into());
            }
            remote.world.note(format_args!("{} is launched", at.execution));
            remote.step().await;
            if remote.hit(faults.launch_fails / 2) {
                return Err(unreachable("the launch was not answered"));
            }
            Ok(())
        })
    }

    fn probe<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Probe> {
        let (remote, execution) = (self.clone(), execution.clone());
        Box::pin(async move {
            let _alone = remote.alone("probes", &execution);
            remote.step().await;
            let lost = remote.world.fleet().faults.request_lost;
            if remote.hit(lost / 4) {
                // Longer than anybody waits.
                tokio::time::sleep(Duration::from_secs(15)).await;
                return Probe::Unreachable;
            }
            let probe = remote.world.fleet().probe(&execution);
            remote.world.note(format_args!("{execution} is {probe:?}"));
            remote.step().await;
            probe
        })
    }

    fn command<'a>(&'a self, at: &'a At, command: Command) -> BoxFuture<'a, Result<Reply, Fault>> {
        let (remote, at) = (self.clone(), at.clone());
        Box::pin(async move {
            remote.step().await;
            let faults = remote.world.fleet().faults;
            if remote.hit(faults.request_lost) {
                return Err(unreachable("the request was lost"));
            }
            if matches!(command.act, Act::Stop {}) && remote.world.chance(50) {
                // An agent takes its time to end; meanwhile people say things.
                tokio::time::sleep(Duration::from_millis(remote.world.range(1, 5_000))).await;
                remote.step().await;
            }
            let reply = remote.do_command(&at, &command);
            if remote.hit(faults.duplicated) {
                // The command arrives twice; the second reply is dropped.
                drop(remote.do_command(&at, &command));
            }
            remote.step().await;
            if remote.hit(faults.reply_lost) {
                return Err(unreachable("the reply was lost"));
            }
            reply
        })
    }

    fn follow<'a>(
        &'a self,
        at: &'a At,
        after: Option<Spool>,
    ) -> BoxFuture<'a, Result<Box<dyn EntryStream>, Fault>> {
        let (remote, at) = (self.clone(), at.clone());
        Box::pin(async move {
            remote.step().await;
            let lost = remote.world.fleet().faults.request_lost;
            if remote.hit(lost) {
                return Err(unreachable("the request was lost"));
            }
            let alone = remote.alone("follows", &at.execution);
            let stream = {
                let mut fleet = remote.world.fleet();
                let machine = Self::arrive(&mut fleet, &at)?;
                let after = after.map_or(0, |spool| spool.pos);
                if after > machine.kept {
                    return Err(problem(Code::CursorInvalid).into());
                }
                // One stream at a time.
                machine.cut_streams();
                let (own, spool_id) = (machine.stream, machine.spool_id.clone());
                Stream { remote: remote.clone(), at, own, after, spool_id, _alone: alone }
            };
            remote.step().await;
            Ok(Box::new(stream) as Box<dyn EntryStream>)
        })
    }

    fn is_working<'a>(&'a self, at: &'a At) -> BoxFuture<'a, Result<bool, Fault>> {
        let (remote, at) = (self.clone(), at.clone());
        Box::pin(async move {
            remote.step().await;
            let mut fleet = remote.world.fleet();
            let machine = Self::arrive(&mut fleet, &at)?;
            Ok(machine.agent.as_ref().is_some_and(|agent| agent.turn.is_some()))
        })
    }

    fn has_shells<'a>(&'a self, at: &'a At) -> BoxFuture<'a, Result<bool, Fault>> {
        let (remote, at) = (self.clone(), at.clone());
        Box::pin(async move {
            remote.step().await;
            let mut fleet = remote.world.fleet();
            Self::arrive(&mut fleet, &at).map(|_| false)
        })
    }

    /// The modelled ones have no disk.
    fn client<'a>(&'a self, _at: &'a At) -> BoxFuture<'a, Result<Client, Fault>> {
        Box::pin(std::future::ready(Err(problem(Code::WorkspaceMissing).into())))
    }

    /// Nor a socket.
    fn find<'a>(
        &'a self,
        _execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<Option<Located>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn spool<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<PathBuf, Error>> {
        Box::pin(std::future::ready(Ok(PathBuf::from(execution.as_str()))))
    }

    fn drain<'a>(&'a self, at: &'a At, after: Option<Spool>) -> BoxFuture<'a, Drained> {
        let (remote, at) = (self.clone(), at.clone());
        Box::pin(async move {
            remote.step().await;
            let most = remote.world.range(1, 40);
            let fleet = remote.world.fleet();
            let there = fleet.machines.get(&at.execution).filter(|machine| !machine.is_forgotten);
            let Some(machine) = there else { return Drained::default() };
            let after = after.map_or(0, |spool| spool.pos).max(machine.acked);
            let entries = machine.after(after, most);
            Drained { spool_id: machine.spool_id.clone(), entries, ..Drained::default() }
        })
    }

    fn stop<'a>(
        &'a self,
        execution: &'a ExecutionId,
        epoch: u64,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let remote = self.clone();
        Box::pin(async move {
            remote.step().await;
            let faults = remote.world.fleet().faults;
            if remote.hit(faults.request_lost) {
                return Err(unreachable("the request was lost"));
            }
            if let Some(machine) = remote.world.fleet().machines.get_mut(execution) {
                if machine.away > 0 {
                    return Err(unreachable("cannot reach it"));
                }
                if machine.is_up && epoch < machine.epoch {
                    return Err(problem(Code::EpochStale).into());
                }
                machine.stop(&remote.world);
                remote.world.note(format_args!("{execution} is stopped"));
            }
            remote.step().await;
            if remote.hit(faults.reply_lost) {
                return Err(unreachable("the reply was lost"));
            }
            Ok(())
        })
    }

    fn forget<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<(), Error>> {
        let remote = self.clone();
        Box::pin(async move {
            remote.step().await;
            let session = remote.world.fleet().machines.get(execution).map(|m| m.session.clone());
            if let Some(session) = session {
                remote.world.forgets(&session, execution);
            }
            Ok(())
        })
    }

    fn set_aside<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<(), Error>> {
        self.forget(execution)
    }

    fn purge<'a>(&'a self, found: &'a ListedExecution) -> BoxFuture<'a, Result<(), Fault>> {
        let remote = self.clone();
        Box::pin(async move {
            remote.step().await;
            // No session is ever deleted here.
            let detail = format!("{found:?} is purged, and its session is there");
            remote.world.violated(Property::SaidOnce, detail);
            Ok(())
        })
    }

    fn tidy(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ListedExecution>, Error>> {
        let remote = self.clone();
        Box::pin(async move {
            remote.step().await;
            let fleet = remote.world.fleet();
            let there = fleet.machines.iter().filter(|(_, machine)| !machine.is_forgotten);
            let found = |(execution, machine): (&ExecutionId, &Machine)| ListedExecution {
                session: machine.session.clone(),
                execution: execution.clone(),
            };
            Ok(there.map(found).collect())
        })
    }
}

impl Machine {
    /// Entries behind a position.
    pub(super) fn after(&self, after: Pos, most: u64) -> Vec<Entry> {
        let kept = self.written.iter().take(usize::try_from(self.kept).unwrap_or(usize::MAX));
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        kept.filter(|entry| entry.pos > after).take(most).cloned().collect()
    }
}

/// One connection.
struct Stream {
    remote: Remote,
    at: At,
    own: u64,
    after: Pos,
    spool_id: String,
    _alone: Alone,
}

impl Stream {
    /// The next frame, if there is one; `Err` when the connection is lost.
    fn take(&mut self) -> Result<Option<Frame>, ()> {
        let cut = self.remote.world.fleet().faults.cut;
        if self.remote.hit(cut) {
            return Err(());
        }
        let most = self.remote.world.range(1, 30);
        let fleet = self.remote.world.fleet();
        let machine = fleet.machines.get(&self.at.execution).filter(|m| m.is_reachable());
        let machine = machine.filter(|m| m.stream == self.own).ok_or(())?;
        let lost = (self.after < machine.acked).then_some((self.after + 1, machine.acked));
        self.after = self.after.max(machine.acked);
        let entries = machine.after(self.after, most);
        if entries.is_empty() && lost.is_none() {
            return Ok(None);
        }
        self.after = entries.last().map_or(self.after, |entry| entry.pos);
        Ok(Some(Frame { entries, lost }))
    }
}

impl EntryStream for Stream {
    fn spool_id(&self) -> &str {
        &self.spool_id
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Frame>> {
        Box::pin(async move {
            loop {
                self.remote.step().await;
                let changed = {
                    let fleet = self.remote.world.fleet();
                    Arc::clone(&fleet.machines.get(&self.at.execution)?.changed)
                };
                let notified = changed.notified();
                match self.take() {
                    Ok(Some(frame)) => return Some(frame),
                    Ok(None) => notified.await,
                    Err(()) => return None,
                }
            }
        })
    }

    fn ack(&mut self, pos: Pos) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.remote.step().await;
            let slow = self.remote.world.fleet().faults.ack_slow;
            if self.remote.hit(slow) {
                tokio::time::sleep(Duration::from_millis(self.remote.world.range(1, 300))).await;
                self.remote.step().await;
            }
            self.remote.world.acks(&self.at, pos);
            let mut fleet = self.remote.world.fleet();
            let machine = fleet.machines.get_mut(&self.at.execution);
            if let Some(machine) = machine.filter(|m| m.is_reachable() && m.stream == self.own) {
                machine.acked = machine.acked.max(pos.min(machine.kept));
            }
        })
    }
}

impl World {
    /// How far the durable log has imported an execution's spool.
    pub(super) fn imported(&self, session: &SessionId, execution: &ExecutionId) -> Pos {
        let disk = self.disk();
        let log = disk.logs.get(session);
        log.and_then(|log| log.state.spools.get(execution)).map_or(0, |spool| spool.pos)
    }

    fn acks(&self, at: &At, pos: Pos) {
        let imported = self.imported(&at.session, &at.execution);
        if imported < pos {
            let detail = format!("{}: {pos} is acknowledged, {imported} durable", at.execution);
            self.violated(Property::SaidOnce, detail);
        }
    }

    /// What an execution left on the disk is removed: everything of it has to be in the log.
    fn forgets(&self, session: &SessionId, execution: &ExecutionId) {
        self.note(format_args!("{execution} is forgotten"));
        let imported = self.imported(session, execution);
        let mut fleet = self.fleet();
        let Some(machine) = fleet.machines.get_mut(execution) else { return };
        machine.is_forgotten = true;
        if machine.lives() {
            let detail = format!("{session}: {execution} is forgotten, and lives");
            self.violated(Property::GoneIsInterrupted, detail);
        }
        if imported < machine.kept {
            let detail = format!(
                "{session}: {execution} is forgotten with {} entries, {imported} imported",
                machine.kept
            );
            self.violated(Property::SaidOnce, detail);
        }
    }

    /// A command reaches an agentctl: what it follows from must be durable.
    fn commanded(&self, session: &SessionId, id: &str) {
        self.inner().stats.jobs += 1;
        let seq = id.strip_prefix(session.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let Some(seq) = seq.and_then(|seq| seq.parse::<Seq>().ok()) else { return };
        let durable = self.disk().logs.get(session).is_some_and(|log| log.flushed as Seq >= seq);
        if !durable {
            self.violated(Property::CommitThenAct, format!("{session}: record {seq}"));
        }
    }
}
