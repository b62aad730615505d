//! A scripted agentctl for each execution, with an agent that does what its prompt says. They
//! outlive engines, as real ones do.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use piton_core::Code;
use piton_core::decide::Probe;
use piton_core::event::WaitKind;
use piton_core::id::{ExecutionId, MessageId, RunId, SessionId, WaitId};
use piton_core::spool::{
    AgentSessionInfo, AgentSessions, AuthMethod, Channel, ENTRY_VERSION, Ended, Entry, Fact,
    OpenedAs, Pos, SessionCapabilities, Spool,
};
use piton_exec::client::Client;
use piton_exec::executor::{
    At, Drained, EntryStream, Error, Executor, Fault, LaunchSpec, ListedExecution, Located,
};
use piton_exec::protocol::{Act, Command, Frame, Problem, Reply, Start, Withdrawn};
use piton_runtime::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The prompt of a turn that does not end by itself.
pub(crate) const HANG: &str = "hang";
/// The prompt of a turn that waits for a permission.
pub(crate) const ASK: &str = "ask";
/// The prompt of a turn in which the agent tells its plan, commands and usage.
pub(crate) const TELL: &str = "tell";
/// The id of the wait that a session's agent asks in.
pub(crate) fn wait_of(session: &SessionId) -> WaitId {
    format!("wait_{session}").parse().unwrap()
}

/// What agents say they can do with their sessions: everything but to close them.
const SCRIPTED: SessionCapabilities = SessionCapabilities {
    load: false,
    resume: false,
    list: true,
    close: false,
    delete: true,
    fork: true,
    prompt: piton_core::content::PromptCapabilities {
        image: false,
        audio: false,
        embedded_context: false,
    },
};

#[derive(Clone, Default)]
pub(crate) struct Fleet(Arc<Mutex<Machines>>);

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the script")]
struct Machines {
    by_id: BTreeMap<ExecutionId, Machine>,
    /// Every start of an agent, with the conversation that it was to continue.
    starts: Vec<(SessionId, Start)>,
    prompts: Vec<String>,
    /// How agents want to be logged in.
    auth: Option<&'static str>,
    /// Launches that are under way, and how many there were at most.
    launching: (usize, usize),
    /// How long the latest agentctl was told to wait for each of its agent's first answers.
    start_ms_max: u64,
    /// So many starts of agents fail from now on.
    failing_starts: u32,
    /// Agents do not get ready until they are released.
    holds_starts: bool,
    held: Vec<(ExecutionId, Act)>,
    /// Stops of executions take until they are released.
    holds_stops: bool,
    /// Agents live and take no prompt.
    refuses_prompts: bool,
    /// Agents take images with their prompts.
    takes_images: bool,
    /// No agentctl can be reached; all of them live.
    is_away: bool,
    changed: Arc<Notify>,
}

struct Machine {
    session: SessionId,
    is_up: bool,
    epoch: u64,
    auth: Option<&'static str>,
    takes_images: bool,
    entries: Vec<Entry>,
    journal: BTreeMap<String, Result<Value, Problem>>,
    /// The agent runs; the turn that it is in.
    #[expect(clippy::option_option, reason = "no agent, an idle one, one in a turn")]
    agent: Option<Option<RunId>>,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fleet")
    }
}

fn problem(code: Code) -> Problem {
    Problem::new(code, format!("The script says {code}"))
}

fn spool_id(execution: &ExecutionId) -> String {
    format!("spool_{execution}")
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Machine {
    fn write(&mut self, run_id: Option<&RunId>, fact: Fact) {
        let (v, pos, at) = (ENTRY_VERSION, self.entries.len() as Pos + 1, SystemClock.now());
        self.entries.push(Entry { v, pos, at, run_id: run_id.cloned(), fact, raw: None });
    }

    fn say(&mut self, run_id: &RunId, text: &str) {
        let message_id: MessageId = format!("msg_{run_id}_{}", self.entries.len()).parse().unwrap();
        let (channel, offset) = (Channel::Answer, 0);
        let said =
            Fact::Text { message_id: message_id.clone(), channel, offset, text: text.into() };
        self.write(Some(run_id), said);
        let (length, hash) =
            (text.len() as u64, blake3::hash(text.as_bytes()).to_hex().to_string());
        self.write(Some(run_id), Fact::TextEnd { message_id, length, hash });
    }

    fn end_turn(&mut self, stop_reason: &str) {
        let Some(run_id) = self.agent.as_mut().and_then(Option::take) else { return };
        self.write(Some(&run_id), Fact::TurnEnded { stop_reason: stop_reason.to_owned() });
    }

    /// The agent cannot load its conversation, and says nothing about the id.
    fn fail_start(&mut self) {
        self.write(None, Fact::AgentStarting {});
        let (code, message) = (Code::AgentError.into(), "Internal error".to_owned());
        self.write(None, Fact::AgentError { code, message, auth_methods: Vec::new() });
    }

    fn end_agent(&mut self, requested: bool) {
        if self.agent.take().is_some() {
            let (exit_code, signal, stderr) = (Some(0), None, String::new());
            self.write(None, Fact::AgentExited { exit_code, signal, requested, stderr });
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each act")]
    fn act(&mut self, act: &Act) -> Result<Value, Problem> {
        match act {
            Act::Start(start) => {
                self.write(None, Fact::AgentStarting {});
                if self.auth.is_some() && start.auth_method.as_deref() != self.auth {
                    let method = AuthMethod {
                        id: self.auth.unwrap_or_default().to_owned(),
                        name: "Log in".to_owned(),
                        description: None,
                    };
                    self.write(
                        None,
                        Fact::AgentError {
                            code: Code::AgentAuthRequired.into(),
                            message: "Log in first".to_owned(),
                            auth_methods: vec![method],
                        },
                    );
                    return Ok(Value::Null);
                }
                self.agent = Some(None);
                let opened_as = match start.agent_session_id {
                    Some(_) if start.fork => OpenedAs::Forked,
                    Some(_) => OpenedAs::Loaded,
                    None => OpenedAs::New,
                };
                let requested_session_id = start.agent_session_id.clone();
                let agent_session_id = Some(format!("theirs_{}", self.session));
                let mut capabilities = SessionCapabilities { load: true, ..SCRIPTED };
                capabilities.prompt.image = self.takes_images;
                let agent = None;
                self.write(
                    None,
                    Fact::AgentReady {
                        opened_as,
                        agent_session_id,
                        requested_session_id,
                        agent,
                        capabilities,
                    },
                );
                let modes = json!({"modes": {"currentModeId": "ask", "availableModes": [
                    {"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]}});
                self.update("modes", modes);
                let offered = json!({"models": {"currentModelId": "small", "availableModels": [
                    {"modelId": "small", "name": "Small"}, {"modelId": "large", "name": "Large"}]}});
                self.update("models", offered);
                let config = json!({"configOptions": [
                    {"id": "web", "name": "Web", "type": "boolean", "currentValue": false}]});
                self.update("config", config);
                if let Some(mode) = &start.choice.mode {
                    self.choose("mode", "currentModeId", mode, &["ask", "code"]).ok();
                }
                if let Some(model) = &start.choice.model {
                    self.choose("model", "currentModelId", model, &["small", "large"]).ok();
                }
            }
            Act::Ask { method, params } => {
                let text = |key: &str| params[key].as_str().unwrap_or_default().to_owned();
                match method.as_str() {
                    "set_mode" => {
                        self.choose("mode", "currentModeId", &text("modeId"), &["ask", "code"])?;
                    }
                    "set_model" => {
                        let known = ["small", "large"];
                        self.choose("model", "currentModelId", &text("modelId"), &known)?;
                    }
                    "set_config_option" => {
                        let config = json!({"configOptions": [{"id": "web", "name": "Web",
                            "type": "boolean", "currentValue": params["value"]}]});
                        self.update("config", config);
                    }
                    "authenticate" => {}
                    _ => return Err(problem(Code::AgentNotOffered)),
                }
            }
            Act::ListSessions { cwd, .. } => {
                let listed = AgentSessionInfo {
                    agent_session_id: "theirs_old".to_owned(),
                    cwd: cwd.clone(),
                    title: Some("Old".to_owned()),
                    updated_at: None,
                };
                let page = AgentSessions { sessions: vec![listed], next_cursor: None };
                return Ok(serde_json::to_value(page).unwrap());
            }
            // It knows no such conversation.
            Act::DeleteSession { agent_session_id } if agent_session_id == "theirs_none" => {
                return Err(problem(Code::AgentError));
            }
            Act::DeleteSession { .. } => {}
            Act::Prompt { run_id, content } => {
                let text = content.text();
                self.agent = Some(Some(run_id.clone()));
                self.write(Some(run_id), Fact::TurnStarted {});
                if text.ends_with(ASK) {
                    let (wait_id, wait_kind) = (wait_of(&self.session), WaitKind::Permission);
                    let question = json!({"title": "May I?", "options": [
                        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                        {"optionId": "no", "name": "No", "kind": "reject_once"},
                    ]});
                    self.write(Some(run_id), Fact::WaitOpened { wait_id, wait_kind, question });
                } else if text.ends_with(TELL) {
                    self.update(
                        "plan",
                        json!({"entries": [{"content": "One", "status": "pending"}]}),
                    );
                    let command = json!({"name": "test", "description": "Run the tests"});
                    self.update("commands", json!({"availableCommands": [command]}));
                    let cost = json!({"amount": 0.25, "currency": "USD"});
                    self.update("usage", json!({"used": 10, "size": 100, "cost": cost}));
                    self.end_turn("end_turn");
                } else if !text.ends_with(HANG) {
                    self.say(run_id, &text);
                    self.end_turn("end_turn");
                }
            }
            Act::Answer { wait_id, .. } => self.answered(wait_id),
            Act::Cancel { .. } => self.end_turn("cancelled"),
            Act::Stop {} => self.end_agent(true),
            Act::Withdraw { command_id } => {
                let accepted = self.journal.contains_key(command_id);
                if !accepted {
                    let refused = Err(problem(Code::CommandWithdrawn));
                    self.journal.insert(command_id.clone(), refused);
                }
                return Ok(serde_json::to_value(Withdrawn { accepted }).unwrap());
            }
            Act::Close {} => {
                self.end_agent(true);
                self.is_up = false;
            }
            Act::CloseSession { .. } => return Err(problem(Code::RequestInvalid)),
        }
        Ok(Value::Null)
    }

    fn update(&mut self, what: &str, update: Value) {
        let run_id = self.agent.clone().flatten();
        self.write(run_id.as_ref(), Fact::Update { what: what.to_owned(), update });
    }

    fn choose(&mut self, what: &str, key: &str, id: &str, known: &[&str]) -> Result<(), Problem> {
        if known.contains(&id) {
            self.update(what, json!({ key: id }));
            return Ok(());
        }
        self.update(&format!("choice_refused:{what}"), json!({"value": id}));
        Err(problem(Code::AgentError))
    }

    fn answered(&mut self, wait_id: &WaitId) {
        let run_id = self.agent.clone().flatten();
        let (wait_id, why) = (wait_id.clone(), Ended::Answered);
        self.write(run_id.as_ref(), Fact::WaitEnded { wait_id, why });
        self.end_turn("end_turn");
    }
}

impl Fleet {
    fn lock(&self) -> MutexGuard<'_, Machines> {
        self.0.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Machines) -> T) -> T {
        let mut machines = self.lock();
        let changed = change(&mut machines);
        machines.changed.notify_waiters();
        changed
    }

    /// The turns that hang end well.
    pub(crate) fn finish(&self) {
        self.change(|machines| {
            for machine in machines.by_id.values_mut().filter(|machine| machine.is_up) {
                machine.end_turn("end_turn");
            }
        });
    }

    /// SIGKILL for every agentctl and agent: their last words are on the disk, and no more come.
    pub(crate) fn kill(&self) {
        self.change(|machines| {
            for machine in machines.by_id.values_mut() {
                (machine.is_up, machine.agent) = (false, None);
            }
        });
    }

    /// Returns when this session's agent is in a turn. One that is killed before leaves a prompt that
    /// was never delivered, and no interruption.
    #[allow(dead_code, reason = "for the tests of the server")]
    pub(crate) async fn wait_for_turn(&self, session: &SessionId) {
        let changed = Arc::clone(&self.lock().changed);
        let in_turn = |machine: &Machine| {
            machine.session == *session && matches!(machine.agent, Some(Some(_)))
        };
        loop {
            let mut notified = std::pin::pin!(changed.notified());
            notified.as_mut().enable();
            if self.lock().by_id.values().any(in_turn) {
                return;
            }
            notified.await;
        }
    }

    /// From now on agents want to be logged in this way.
    pub(crate) fn set_auth(&self, method: &'static str) {
        self.lock().auth = Some(method);
    }

    /// From now on agents take images with their prompts.
    #[allow(dead_code, reason = "for the tests of the server")]
    pub(crate) fn take_images(&self) {
        self.lock().takes_images = true;
    }

    #[allow(dead_code, reason = "for the tests of the engine")]
    pub(crate) fn start_ms_max(&self) -> u64 {
        self.lock().start_ms_max
    }

    pub(crate) fn fail_starts(&self, count: u32) {
        self.change(|machines| machines.failing_starts = count);
    }

    pub(crate) fn hold_starts(&self) {
        self.change(|machines| machines.holds_starts = true);
    }

    /// Agents whose starts were held are ready.
    pub(crate) fn release_starts(&self) {
        self.change(|machines| {
            machines.holds_starts = false;
            for (execution, act) in std::mem::take(&mut machines.held) {
                if let Some(machine) = machines.by_id.get_mut(&execution) {
                    machine.act(&act).unwrap();
                }
            }
        });
    }

    /// Executions end only when their stops are released.
    #[allow(dead_code, reason = "for the tests of the engine")]
    pub(crate) fn hold_stops(&self, holds_stops: bool) {
        self.change(|machines| machines.holds_stops = holds_stops);
    }

    /// Every agentctl has accepted this command, and its spool has not said so.
    pub(crate) fn accept_silently(&self, command_id: &str) {
        self.change(|machines| {
            for machine in machines.by_id.values_mut() {
                machine.journal.insert(command_id.to_owned(), Ok(Value::Null));
            }
        });
    }

    pub(crate) fn refuse_prompts(&self, refuses_prompts: bool) {
        self.change(|machines| machines.refuses_prompts = refuses_prompts);
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.change(|machines| machines.is_away = is_away);
    }

    pub(crate) fn starts(&self) -> Vec<Start> {
        self.lock().starts.iter().map(|(_, start)| start.clone()).collect()
    }

    /// Of which sessions, in their order.
    #[allow(dead_code, reason = "for the tests of the engine")]
    pub(crate) fn started_sessions(&self) -> Vec<SessionId> {
        self.lock().starts.iter().map(|(session, _)| session.clone()).collect()
    }

    /// How many launches were under way at the same time, at most, since it was last asked.
    pub(crate) fn launched_at_once(&self) -> usize {
        std::mem::take(&mut self.lock().launching.1)
    }

    pub(crate) fn prompts(&self) -> Vec<String> {
        self.lock().prompts.clone()
    }

    fn do_command(&self, at: &At, command: &Command) -> Result<Reply, Fault> {
        self.change(|machines| {
            let (machines_away, refuses_prompts) = (machines.is_away, machines.refuses_prompts);
            let Machines { by_id, starts, prompts, failing_starts, holds_starts, held, .. } =
                machines;
            let machine = by_id.get_mut(&at.execution).filter(|machine| machine.is_up);
            let Some(machine) = machine else {
                return Err(Fault::unreachable("it does not run"));
            };
            if machines_away {
                return Err(Fault::unreachable("it does not answer"));
            }
            if at.epoch < machine.epoch {
                return Err(problem(Code::EpochStale).into());
            }
            machine.epoch = at.epoch;
            if let Some(known) = machine.journal.get(&command.id) {
                let (id, result) = (command.id.clone(), known.clone()?);
                return Ok(Reply { id, replayed: true, result });
            }
            match (&command.act, &machine.agent) {
                (Act::Start(_), Some(_)) => return Err(problem(Code::AgentRunning).into()),
                (Act::Prompt { .. }, Some(_)) if refuses_prompts => {
                    return Err(problem(Code::AgentBusy).into());
                }
                (Act::Prompt { .. }, Some(Some(_))) => return Err(problem(Code::AgentBusy).into()),
                (Act::Start(_) | Act::Close {} | Act::Withdraw { .. }, _) | (_, Some(_)) => {}
                (_, None) => return Err(problem(Code::AgentNotRunning).into()),
            }
            match &command.act {
                Act::Start(start) => starts.push((at.session.clone(), start.clone())),
                Act::Prompt { content, .. } => prompts.push(content.text()),
                _ => {}
            }
            let run_id = match &command.act {
                Act::Prompt { run_id, .. } | Act::Cancel { run_id } => Some(run_id),
                _ => None,
            };
            let (command_id, name) = (command.id.clone(), command.act.name().to_owned());
            machine.write(run_id, Fact::CommandAccepted { command_id, command: name });
            let result = match &command.act {
                Act::Start(_) if *failing_starts > 0 => {
                    *failing_starts -= 1;
                    machine.fail_start();
                    Ok(Value::Null)
                }
                Act::Start(_) if *holds_starts => {
                    machine.write(None, Fact::AgentStarting {});
                    held.push((at.execution.clone(), command.act.clone()));
                    Ok(Value::Null)
                }
                act => machine.act(act),
            };
            machine.journal.insert(command.id.clone(), result.clone());
            Ok(Reply { id: command.id.clone(), replayed: false, result: result? })
        })
    }

    fn after(&self, execution: &ExecutionId, after: Pos) -> Option<Vec<Entry>> {
        let machines = self.lock();
        let machine = machines.by_id.get(execution)?;
        Some(machine.entries.iter().filter(|entry| entry.pos > after).cloned().collect())
    }

    fn is_up(&self, execution: &ExecutionId) -> bool {
        self.lock().by_id.get(execution).is_some_and(|machine| machine.is_up)
    }
}

impl Executor for Fleet {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn launch(&self, spec: LaunchSpec) -> BoxFuture<'_, Result<(), Fault>> {
        self.change(|machines| {
            let machine = Machine {
                session: spec.session.clone(),
                is_up: true,
                epoch: spec.epoch,
                auth: machines.auth,
                takes_images: machines.takes_images,
                entries: Vec::new(),
                journal: BTreeMap::new(),
                agent: None,
            };
            machines.by_id.insert(spec.execution.clone(), machine);
            machines.start_ms_max = spec.limits.start_ms_max;
            machines.launching.0 += 1;
            machines.launching.1 = machines.launching.1.max(machines.launching.0);
        });
        Box::pin(async {
            // Long enough for another one to begin meanwhile.
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.change(|machines| machines.launching.0 -= 1);
            Ok(())
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ListedExecution>, Error>> {
        ready(Ok(Vec::new()))
    }

    fn find<'a>(
        &'a self,
        _execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<Option<Located>, Error>> {
        ready(Ok(None))
    }

    fn probe<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Probe> {
        if self.lock().is_away {
            return ready(Probe::Unreachable);
        }
        ready(if self.is_up(execution) { Probe::Alive } else { Probe::Gone })
    }

    fn stop<'a>(
        &'a self,
        execution: &'a ExecutionId,
        _epoch: u64,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let changed = Arc::clone(&self.lock().changed);
            loop {
                let mut notified = std::pin::pin!(changed.notified());
                notified.as_mut().enable();
                if !self.lock().holds_stops {
                    break;
                }
                notified.await;
            }
            self.change(|machines| {
                if let Some(machine) = machines.by_id.get_mut(execution) {
                    machine.end_agent(true);
                    machine.is_up = false;
                }
            });
            Ok(())
        })
    }

    fn spool<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<PathBuf, Error>> {
        ready(Ok(PathBuf::from(execution.as_str())))
    }

    fn set_aside<'a>(&'a self, _execution: &'a ExecutionId) -> BoxFuture<'a, Result<(), Error>> {
        ready(Ok(()))
    }

    fn forget<'a>(&'a self, _execution: &'a ExecutionId) -> BoxFuture<'a, Result<(), Error>> {
        ready(Ok(()))
    }

    fn tidy(&self) -> BoxFuture<'_, Result<(), Error>> {
        ready(Ok(()))
    }

    fn purge<'a>(&'a self, found: &'a ListedExecution) -> BoxFuture<'a, Result<(), Fault>> {
        self.change(|machines| machines.by_id.remove(&found.execution));
        ready(Ok(()))
    }

    fn client<'a>(&'a self, _at: &'a At) -> BoxFuture<'a, Result<Client, Fault>> {
        ready(Err(problem(Code::WorkspaceMissing).into()))
    }

    fn command<'a>(&'a self, at: &'a At, command: Command) -> BoxFuture<'a, Result<Reply, Fault>> {
        ready(self.do_command(at, &command))
    }

    fn follow<'a>(
        &'a self,
        at: &'a At,
        after: Option<Spool>,
    ) -> BoxFuture<'a, Result<Box<dyn EntryStream>, Fault>> {
        if !self.is_up(&at.execution) {
            return ready(Err(Fault::unreachable("it does not run")));
        }
        let after = after.map_or(0, |spool| spool.pos);
        let (fleet, execution) = (self.clone(), at.execution.clone());
        let spool_id = spool_id(&execution);
        ready(Ok(Box::new(Stream { fleet, execution, spool_id, after }) as Box<dyn EntryStream>))
    }

    fn is_working<'a>(&'a self, at: &'a At) -> BoxFuture<'a, Result<bool, Fault>> {
        let machines = self.lock();
        let agent = machines.by_id.get(&at.execution).and_then(|machine| machine.agent.clone());
        ready(Ok(agent.flatten().is_some()))
    }

    fn has_shells<'a>(&'a self, _at: &'a At) -> BoxFuture<'a, Result<bool, Fault>> {
        ready(Ok(false))
    }

    fn drain<'a>(&'a self, at: &'a At, after: Option<Spool>) -> BoxFuture<'a, Drained> {
        let after = after.map_or(0, |spool| spool.pos);
        let Some(entries) = self.after(&at.execution, after) else {
            return ready(Drained::default());
        };
        ready(Drained { spool_id: spool_id(&at.execution), entries, ..Drained::default() })
    }
}

struct Stream {
    fleet: Fleet,
    execution: ExecutionId,
    spool_id: String,
    after: Pos,
}

impl EntryStream for Stream {
    fn spool_id(&self) -> &str {
        &self.spool_id
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Frame>> {
        Box::pin(async move {
            let changed = Arc::clone(&self.fleet.lock().changed);
            loop {
                let mut notified = std::pin::pin!(changed.notified());
                notified.as_mut().enable();
                let entries = self.fleet.after(&self.execution, self.after)?;
                if let Some(last) = entries.last() {
                    self.after = last.pos;
                    return Some(Frame { entries, lost: None });
                }
                if !self.fleet.is_up(&self.execution) {
                    return None;
                }
                notified.await;
            }
        })
    }

    fn ack(&mut self, _pos: Pos) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
