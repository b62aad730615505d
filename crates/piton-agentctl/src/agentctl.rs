//! The parts of agentctl, and the commands it carries out.

use std::sync::Arc;
use std::time::Duration;

use piton_core::id::{ExecutionId, SessionId};
use piton_exec::protocol::{
    Act, Capabilities, Health, Launch, PROTOCOL, PROTOCOL_MIN, Problem, Withdrawn, bearer,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::activity::Activity;
use crate::agent::{AgentContext, AgentProcess};
use crate::commands::Commands;
use crate::epoch::Epochs;
use crate::spool::Spool;
use crate::tree::Scope;
use crate::workspace::{Shells, Workspace};

/// For people's shells, when all is over.
const SIGTERM_WAIT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Agentctl {
    pub(crate) session_id: SessionId,
    pub(crate) execution_id: ExecutionId,
    /// Hash of the token.
    pub(crate) bearer: blake3::Hash,
    pub(crate) protocol: (u32, u32),
    pub(crate) spool: Spool,
    pub(crate) epochs: Epochs,
    pub(crate) commands: Commands,
    pub(crate) activity: Activity,
    pub(crate) agent: AgentProcess,
    pub(crate) workspace: Workspace,
    pub(crate) shells: Shells,
    /// Number of the newest stream.
    streams: watch::Sender<u64>,
    /// Everything was said and done.
    over: watch::Sender<bool>,
}

impl Agentctl {
    pub(crate) fn new(
        launch: &Launch,
        secret: &[u8; 32],
        context: AgentContext,
        epochs: Epochs,
    ) -> Self {
        let protocol = match launch.protocol_max.unwrap_or(PROTOCOL) {
            other if !(PROTOCOL_MIN..=PROTOCOL).contains(&other) => (other, other),
            newest => (PROTOCOL_MIN, newest),
        };
        Self {
            session_id: launch.session_id.clone(),
            execution_id: launch.execution_id.clone(),
            bearer: blake3::hash(bearer(secret).as_bytes()),
            protocol,
            commands: Commands::new(context.spool.clone()),
            spool: context.spool.clone(),
            shells: Shells::new(&context.workspace),
            workspace: context.workspace.clone(),
            agent: AgentProcess::new(context),
            epochs,
            activity: Activity::new(),
            streams: watch::Sender::new(0),
            over: watch::Sender::new(false),
        }
    }

    pub(crate) async fn health(&self) -> Health {
        let (agent, run_id, asking) = self.agent.health().await;
        Health {
            protocol: self.protocol,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            session_id: self.session_id.clone(),
            execution_id: self.execution_id.clone(),
            pid: std::process::id(),
            epoch: self.epochs.highest(),
            spool: self.spool.health(),
            agent,
            run_id,
            asking,
            shells: self.shells.open_count(),
        }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let capabilities = self.agent.capabilities();
        Capabilities {
            // What the agent advertised; before it was started it has advertised nothing.
            supports_session_resume: capabilities.resume || capabilities.load,
            supports_workspace_only: true,
            capabilities,
        }
    }

    pub(crate) async fn act(self: Arc<Self>, act: Act) -> Result<Value, Problem> {
        match act {
            Act::Start(start) => self.agent.start(start).await,
            Act::Prompt { run_id, content } => self.agent.prompt(run_id, content).await,
            Act::Withdraw { command_id } => {
                let accepted = self.commands.withdraw(&command_id).await;
                Ok(json!(Withdrawn { accepted }))
            }
            Act::Cancel { run_id } => self.agent.cancel(&run_id).await,
            Act::Answer { wait_id, answer } => self.agent.answer(&wait_id, answer).await,
            Act::Ask { method, params } => self.agent.ask(&method, params).await,
            Act::ListSessions { cwd, cursor } => self.agent.list_sessions(cwd, cursor).await,
            Act::CloseSession { agent_session_id } => {
                self.agent.close_session(&agent_session_id).await
            }
            Act::DeleteSession { agent_session_id } => {
                self.agent.delete_session(&agent_session_id).await
            }
            Act::Stop {} => self.agent.stop().await,
            Act::Close {} => {
                self.end().await;
                Ok(Value::Null)
            }
        }
    }

    /// Ends the agent, flushes the spool, and says that it is over.
    pub(crate) async fn end(&self) {
        // First: what is started from here on would be left behind.
        self.agent.close();
        if let Err(problem) = self.agent.stop().await {
            tracing::error!("The agent does not end: {problem}");
        }
        if let Err(error) = self.shells.close_all().await {
            tracing::error!("A shell does not end: {error}");
        }
        if let Err(error) = self.workspace.tree().end(Scope::All, SIGTERM_WAIT).await {
            tracing::error!("Some processes do not end: {error}");
        }
        self.spool.close().await;
        self.mark_ended();
    }

    pub(crate) fn mark_ended(&self) {
        self.over.send_replace(true);
    }

    /// Whether an agent is at work.
    pub(crate) async fn is_working(&self) -> bool {
        self.agent.is_working().await
    }

    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
    }

    pub(crate) async fn until_over(&self) {
        let _ = self.over().wait_for(|over| *over).await;
    }

    pub(crate) fn streams(&self) -> watch::Receiver<u64> {
        self.streams.subscribe()
    }

    /// The number of a stream that replaces all before it.
    pub(crate) fn next_stream(&self) -> u64 {
        let mut own = 0;
        self.streams.send_modify(|newest| {
            *newest += 1;
            own = *newest;
        });
        own
    }
}
