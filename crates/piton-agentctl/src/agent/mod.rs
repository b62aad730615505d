//! The agent that agentctl owns: at most one, with everything that it starts. The spool records how
//! it ends; agentctl then runs without an agent.

mod agent_link;
mod one_shot;
mod process;
mod stderr;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use piton_agent::acp::{self, Connection, MakeIds};
use piton_agent::one_shot as one_shot_output;
use piton_core::Code;
use piton_core::PromptContent;
use piton_core::id::{CallId, MessageId, RunId, SessionId, WaitId};
use piton_core::mask::{KeyPatterns, Masker, environment_values};
use piton_core::mcp;
use piton_core::spool::{Fact, Note, SessionCapabilities};
use piton_exec::protocol::{Act, AgentHealth, AgentStatus, Limits, Problem, Start};
use serde_json::Value;
use tokio::sync::watch;

use crate::host::Host;
use crate::problem::problem;
use crate::spool::Spool;
use crate::tree::Scope;
use crate::workspace::Workspace;
use agent_link::AgentLink;

/// A connection that is held up by a full spool does not say what it is doing.
const ASK_WAIT: Duration = Duration::from_millis(200);

/// What an agent is started with, and noted in.
#[derive(Clone, Debug)]
pub(crate) struct AgentContext {
    pub(crate) session: SessionId,
    pub(crate) spool: Spool,
    pub(crate) masker: Arc<Masker>,
    /// Names of variables whose values are secrets.
    pub(crate) keys: KeyPatterns,
    pub(crate) host: Host,
    pub(crate) workspace: Workspace,
    pub(crate) limits: Limits,
}

/// Clones own the same agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentProcess {
    context: AgentContext,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    status: Option<AgentStatus>,
    capabilities: SessionCapabilities,
    agent_session_id: Option<String>,
    /// What was last heard of it.
    turn: Option<RunId>,
    asking: Vec<WaitId>,
    agent: Option<Agent>,
    /// agentctl is about to end: there will be no other agent.
    is_closing: bool,
}

/// One that is there.
#[derive(Clone, Debug)]
struct Agent {
    pid: Option<u32>,
    /// Once it has a conversation; gone when it has ended.
    link: watch::Receiver<Option<AgentLink>>,
    /// Its end is being noted.
    is_ending: bool,
    /// `true`: the agent is to end.
    stop: Arc<watch::Sender<bool>>,
    /// It has ended, and everything was noted.
    done: watch::Receiver<bool>,
}

impl AgentProcess {
    pub(crate) fn new(context: AgentContext) -> Self {
        Self { context, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts it; what becomes of it is noted.
    pub(crate) async fn start(&self, start: Start) -> Result<Value, Problem> {
        if start.command.is_empty() {
            return Err(problem(Code::RequestInvalid, "The agent's command is empty"));
        }
        if start.fork && start.agent_session_id.is_none() {
            let message = "There is no conversation to fork: agent_session_id is missing";
            return Err(problem(Code::RequestInvalid, message));
        }
        if let Some(line) = &start.command_line {
            let is_bad = |id: &&String| !one_shot_output::is_good(id);
            let ids = [&start.agent_session_id, &line.agent_message_id];
            if let Some(id) = ids.into_iter().flatten().find(is_bad) {
                let message = format!("{id:?} cannot be an argument of the agent's");
                return Err(problem(Code::RequestInvalid, message));
            }
            if let Some(fault) = line.fault() {
                return Err(problem(Code::RequestInvalid, fault));
            }
        }
        let (end, done) = watch::channel(false);
        let stop = Arc::new(watch::Sender::new(false));
        let (connected, agent_link) = watch::channel(None);
        let agent =
            Agent { pid: None, link: agent_link, is_ending: false, stop: stop.clone(), done };
        self.make_room(agent).await?;
        let owner = self.clone();
        tokio::spawn(async move {
            let status = process::run(&owner, start, connected, stop.subscribe()).await;
            owner.mark_ended(status);
            end.send_replace(true);
        });
        Ok(Value::Null)
    }

    /// One at a time. Who has just read of an agent's end may be faster than we are: then we wait.
    async fn make_room(&self, agent: Agent) -> Result<(), Problem> {
        loop {
            let mut ended = {
                let mut state = self.state();
                if state.is_closing {
                    return Err(closing());
                }
                match &state.agent {
                    None => {
                        *state = State { status: Some(AgentStatus::Starting), ..State::default() };
                        state.agent = Some(agent);
                        return Ok(());
                    }
                    Some(Agent { is_ending: true, done, .. }) => done.clone(),
                    Some(_) => {
                        return Err(problem(Code::AgentRunning, "An agent is running already"));
                    }
                }
            };
            let _ = ended.wait_for(|done| *done).await;
        }
    }

    /// From now on nothing is started.
    pub(crate) fn close(&self) {
        self.state().is_closing = true;
    }

    /// Whether something may still be started.
    pub(crate) fn admit_start(&self) -> Result<(), Problem> {
        if self.state().is_closing { Err(closing()) } else { Ok(()) }
    }

    fn mark_ending(&self) {
        if let Some(agent) = &mut self.state().agent {
            agent.is_ending = true;
        }
    }

    fn set_pid(&self, pid: Option<u32>) {
        if let Some(agent) = &mut self.state().agent {
            agent.pid = pid;
        }
    }

    fn set_ready(&self, agent_session_id: Option<String>) {
        let mut state = self.state();
        state.status = Some(AgentStatus::Ready);
        state.agent_session_id = agent_session_id;
    }

    fn set_agent_session(&self, agent_session_id: Option<String>) {
        self.state().agent_session_id = agent_session_id;
    }

    fn mark_ended(&self, status: AgentStatus) {
        let mut state = self.state();
        state.status = Some(status);
        (state.agent, state.turn, state.asking) = (None, None, Vec::new());
    }

    /// Ends the agent and all that it left running. Nothing is done if there is none.
    pub(crate) async fn stop(&self) -> Result<Value, Problem> {
        let agent = self.state().agent.clone();
        if let Some(mut agent) = agent {
            agent.stop.send_replace(true);
            // An error means that its task is gone, and the agent with it.
            let _ = agent.done.wait_for(|done| *done).await;
        }
        let ended = self.context.workspace.tree().end(Scope::Agent, self.term()).await;
        ended.map_err(|error| problem(error.code(), error.to_string()))?;
        Ok(Value::Null)
    }

    /// Whether there is an agent that could do it now.
    pub(crate) async fn admit(&self, act: &Act) -> Result<(), Problem> {
        match act {
            Act::Prompt { .. } if self.state().is_closing => Err(closing()),
            Act::Prompt { .. } => match self.agent_link().await?.turn().await {
                None => Ok(()),
                Some(run_id) => {
                    let message = format!("The turn of {run_id} is under way");
                    Err(problem(Code::AgentBusy, message))
                }
            },
            Act::Cancel { .. } => self.agent_link().await.map(drop),
            Act::Answer { .. }
            | Act::Ask { .. }
            | Act::ListSessions { .. }
            | Act::CloseSession { .. }
            | Act::DeleteSession { .. } => self.connection().await.map(drop),
            Act::Start(_) => self.admit_start(),
            Act::Stop {} | Act::Close {} | Act::Withdraw { .. } => Ok(()),
        }
    }

    pub(crate) async fn prompt(
        &self,
        run_id: RunId,
        content: PromptContent,
    ) -> Result<Value, Problem> {
        let prompted = match self.agent_link().await {
            Ok(agent_link) => agent_link.prompt(run_id.clone(), content).await.map_err(refused),
            Err(problem) => Err(problem),
        };
        if let Err(Problem { code, message, .. }) = &prompted {
            // It was accepted, and nothing will come of it: its run must not wait for its end.
            let is_gone = *code == Code::AgentNotRunning;
            let code = if is_gone { Code::AgentClosed.into() } else { code.clone() };
            let fact = Fact::TurnFailed { code, message: message.clone() };
            let note = Note { run_id: Some(run_id), fact, raw: None, at: None };
            // A spool that is closed says the same by its end.
            let _ = self.context.spool.keep_now(vec![note]).await;
        }
        prompted.map(|()| Value::Null)
    }

    pub(crate) async fn cancel(&self, run_id: &RunId) -> Result<Value, Problem> {
        match self.agent_link().await? {
            AgentLink::Acp(connection) => {
                connection.cancel(run_id).await.map_err(refused)?;
                let timeout = Duration::from_millis(self.context.limits.cancel_ms_max);
                tokio::spawn(process::give_up_after(timeout, connection, run_id.clone()));
            }
            AgentLink::OneShot(turns) => turns.cancel(run_id).await.map_err(refused)?,
        }
        Ok(Value::Null)
    }

    pub(crate) async fn answer(
        &self,
        wait_id: &WaitId,
        answer: Option<Value>,
    ) -> Result<Value, Problem> {
        self.connection().await?.answer(wait_id, answer).await.map_err(refused)?;
        Ok(Value::Null)
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Value, Problem> {
        self.connection().await?.ask(method, params).await.map_err(refused)
    }

    pub(crate) async fn list_sessions(
        &self,
        cwd: Option<PathBuf>,
        cursor: Option<String>,
    ) -> Result<Value, Problem> {
        let listed = self.connection().await?.list_sessions(cwd, cursor).await.map_err(refused)?;
        serde_json::to_value(listed)
            .map_err(|error| problem(Code::AgentProtocol, error.to_string()))
    }

    pub(crate) async fn close_session(&self, id: &str) -> Result<Value, Problem> {
        self.connection().await?.close_session(id).await.map_err(refused)?;
        Ok(Value::Null)
    }

    pub(crate) async fn delete_session(&self, id: &str) -> Result<Value, Problem> {
        self.connection().await?.delete_session(id).await.map_err(refused)?;
        Ok(Value::Null)
    }

    /// The same, with a masker that knows the secrets which this agent gets in its environment.
    fn with_secrets_of(&self, start: &Start) -> Self {
        let own = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let given = start.env.iter().cloned().chain(mcp::values(&start.mcp_servers));
        let mut values = environment_values(own.chain(given), &self.context.keys);
        values.extend(mcp::credentials(&start.mcp_servers));
        let mut owner = self.clone();
        match self.context.masker.learn(values) {
            Ok(learned) => owner.context.masker = Arc::new(learned.masker),
            Err(error) => tracing::error!("The agent's secrets are not all known: {error}"),
        }
        owner
    }

    /// Waits for an agent that is starting: who has just read that it is ready may be faster than
    /// we are.
    async fn agent_link(&self) -> Result<AgentLink, Problem> {
        let agent = self.state().agent.clone();
        let none = || problem(Code::AgentNotRunning, "No agent is running");
        let mut agent_link = agent.ok_or_else(none)?.link;
        let found = agent_link.wait_for(Option::is_some).await;
        found.ok().and_then(|found| found.clone()).ok_or_else(none)
    }

    /// For what only a protocol has.
    async fn connection(&self) -> Result<Connection, Problem> {
        match self.agent_link().await? {
            AgentLink::Acp(connection) => Ok(connection),
            AgentLink::OneShot(_) => {
                let message = "This agent speaks no protocol, and can only be given prompts";
                Err(problem(Code::AgentNotOffered, message))
            }
        }
    }

    /// Also the turn that is under way, and the questions that wait.
    pub(crate) async fn health(&self) -> (AgentHealth, Option<RunId>, Vec<WaitId>) {
        self.look().await;
        let state = self.state();
        let health = AgentHealth {
            status: state.status,
            pid: state.agent.as_ref().and_then(|agent| agent.pid),
            agent_session_id: state.agent_session_id.clone(),
        };
        (health, state.turn.clone(), state.asking.clone())
    }

    pub(crate) fn capabilities(&self) -> SessionCapabilities {
        self.state().capabilities
    }

    pub(crate) async fn is_working(&self) -> bool {
        self.look().await;
        let state = self.state();
        state.status == Some(AgentStatus::Starting) || state.turn.is_some()
    }

    /// Asks the connection what it is doing. What it does not say in time is as it was.
    async fn look(&self) {
        let agent = self.state().agent.clone();
        let agent_link = agent.and_then(|agent| agent.link.borrow().clone());
        let Some(agent_link) = agent_link else { return };
        let asked = async { (agent_link.turn().await, agent_link.asking().await) };
        let asked = tokio::time::timeout(ASK_WAIT, asked).await;
        let mut state = self.state();
        if let (Ok((turn, asking)), true) = (asked, state.agent.is_some()) {
            (state.turn, state.asking) = (turn, asking);
        }
    }

    fn term(&self) -> Duration {
        Duration::from_millis(self.context.limits.term_ms)
    }
}

fn closing() -> Problem {
    problem(Code::AgentctlClosing, "agentctl is about to end")
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn refused(error: acp::Error) -> Problem {
    problem(error.code(), error.to_string())
}

/// Ids of now and chance.
struct Ids;

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids")
    }
}

fn parts() -> (u64, [u8; 10]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut random = [0; 10];
    if let Err(error) = getrandom::fill(&mut random) {
        // The time alone makes them differ, but for those of one millisecond.
        tracing::error!("The kernel gives no random bytes: {error}");
    }
    (u64::try_from(now).unwrap_or(u64::MAX), random)
}

impl MakeIds for Ids {
    fn message(&self) -> MessageId {
        let (now, random) = parts();
        MessageId::new(now, random)
    }

    fn wait(&self) -> WaitId {
        let (now, random) = parts();
        WaitId::new(now, random)
    }

    fn call(&self) -> CallId {
        let (now, random) = parts();
        CallId::new(now, random)
    }
}
