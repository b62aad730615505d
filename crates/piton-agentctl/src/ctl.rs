//! What agentctl is made of, and what it does when it is told to.

use std::sync::Arc;

use piton_core::id::{ExecutionId, SessionId};
use piton_exec::protocol::{
    Act, AgentHealth, Capabilities, Health, Launch, PROTOCOL, PROTOCOL_MIN, Problem, bearer,
};
use serde_json::Value;
use tokio::sync::watch;

use crate::activity::Activity;
use crate::commands::Commands;
use crate::epoch::Epochs;
use crate::problem::problem;
use crate::spool::Spool;

#[derive(Debug)]
pub(crate) struct Ctl {
    pub(crate) session_id: SessionId,
    pub(crate) execution_id: ExecutionId,
    /// Hash of the token.
    pub(crate) bearer: blake3::Hash,
    pub(crate) protocol: (u32, u32),
    pub(crate) spool: Spool,
    pub(crate) epochs: Epochs,
    pub(crate) commands: Commands,
    pub(crate) activity: Activity,
    /// Number of the newest stream.
    streams: watch::Sender<u64>,
    /// Everything was said and done.
    over: watch::Sender<bool>,
}

impl Ctl {
    pub(crate) fn new(launch: &Launch, secret: &[u8; 32], spool: Spool, epochs: Epochs) -> Self {
        let newest = launch.protocol_max.unwrap_or(PROTOCOL).clamp(PROTOCOL_MIN, PROTOCOL);
        Self {
            session_id: launch.session_id.clone(),
            execution_id: launch.execution_id.clone(),
            bearer: blake3::hash(bearer(secret).as_bytes()),
            protocol: (PROTOCOL_MIN, newest),
            commands: Commands::new(spool.clone()),
            spool,
            epochs,
            activity: Activity::new(),
            streams: watch::Sender::new(0),
            over: watch::Sender::new(false),
        }
    }

    pub(crate) async fn health(&self) -> Health {
        Health {
            protocol: self.protocol,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            session_id: self.session_id.clone(),
            execution_id: self.execution_id.clone(),
            pid: std::process::id(),
            epoch: self.epochs.highest(),
            spool: self.spool.health(),
            agent: AgentHealth::default(),
            run_id: None,
            asking: Vec::new(),
        }
    }

    pub(crate) async fn capabilities(&self) -> Capabilities {
        Capabilities {
            supports_session_resume: true,
            supports_workspace_only: true,
            offers: piton_core::spool::Offers::default(),
        }
    }

    pub(crate) async fn act(self: Arc<Self>, act: Act) -> Result<Value, Problem> {
        match act {
            Act::Close {} => {
                self.end().await;
                Ok(Value::Null)
            }
            Act::Stop {} => Ok(Value::Null),
            _ => Err(problem("agent_none", "No agent was started")),
        }
    }

    /// Ends the agent, flushes the spool, and says that it is over.
    pub(crate) async fn end(&self) {
        self.spool.close().await;
        self.is_over();
    }

    pub(crate) fn is_over(&self) {
        self.over.send_replace(true);
    }

    /// Whether an agent is at work.
    pub(crate) async fn is_working(&self) -> bool {
        false
    }

    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
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
