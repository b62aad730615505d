//! The agents of graphs: each `agent` node works in a session of its own, which is a session like any other.

use piton_core::Code;
use piton_core::decide::Refusal;
use piton_core::event::Outcome;
use piton_core::id::SessionId;
use piton_core::resume::StartContext;
use piton_core::state::Phase;
use piton_core::transcript::{Item, Text};
use piton_graph::{AgentHost, AgentTask, NodeError, async_trait};

use super::graphs::Graphs;
use super::{Caller, Engine, ResumeSpec, SessionSpec};
use crate::error::{Error, Result};

/// Who the log says asked for it.
const PRINCIPAL: &str = "graph";

/// Runs the agents of an engine's graphs.
#[derive(Debug)]
pub(super) struct EngineAgents {
    engine: Engine,
    graphs: Graphs,
}

impl EngineAgents {
    pub(super) fn new(engine: Engine, graphs: Graphs) -> Self {
        Self { engine, graphs }
    }

    /// The caller under the task's key.
    fn caller(key: &str) -> Result<Caller> {
        Caller::new(PRINCIPAL).with_key(Some(key))
    }

    async fn create(&self, task: &AgentTask) -> Result<SessionId> {
        let caller = Self::caller(&task.idempotency_key)?;
        let spec = SessionSpec {
            title: Some(task.node.clone()),
            agent_profile_id: task.profile.clone(),
            working_dir: task.working_dir.clone(),
            start: false,
            ..SessionSpec::default()
        };
        Ok(self.engine.create(&caller, spec).await?.response.session_id)
    }

    /// Gives the prompt, unless an earlier attempt did.
    async fn prompt(&self, session: &SessionId, task: &AgentTask) -> Result<()> {
        let has_run = self.engine.view().state(session).await?.facts.run.is_some();
        if has_run && task.failures == 0 {
            return Ok(());
        }
        let caller = Self::caller(&format!("{}/{}", task.idempotency_key, task.failures))?;
        self.engine.prompt(&caller, session, task.prompt.clone()).await?;
        Ok(())
    }

    /// Until the session's run has ended.
    async fn ended(&self, session: &SessionId) -> Result<Outcome> {
        let view = self.engine.view();
        let mut tail = view.tail(session, 0);
        let mut has_resumed = false;
        loop {
            let state = view.state(session).await?;
            if state.facts.closed.is_some() {
                return Err(Refusal::SessionClosed.into());
            }
            match state.facts.run.as_ref().map(|run| run.phase) {
                Some(Phase::Ended(outcome)) => return Ok(outcome),
                Some(Phase::Dismissed) => return Ok(Outcome::Cancelled),
                // Its agent was lost: it is started again and continues. A second time it is not.
                Some(Phase::Interrupted { .. }) if !has_resumed => {
                    has_resumed = true;
                    let how =
                        ResumeSpec { continue_run: Some(true), context: StartContext::Native };
                    self.engine.resume(&Caller::new(PRINCIPAL), session, how).await?;
                    continue;
                }
                Some(Phase::Interrupted { .. }) => {
                    return Err(self.engine.view().start_failure(session, &state).await.into());
                }
                None | Some(Phase::Open | Phase::Paused) => {}
            }
            tail.seek(state.last_seq);
            tail.next().await?;
        }
    }

    async fn last_message(&self, session: &SessionId) -> Result<String> {
        let items = self.engine.view().transcript(session).await?;
        let said = items.into_iter().rev().find_map(|item| match item {
            Item::Agent { text: Text::Whole(text), .. } => Some(text),
            _ => None,
        });
        Ok(said.unwrap_or_default())
    }
}

/// What an error means for the node: whether another attempt may succeed.
fn failed(error: &Error) -> NodeError {
    let failure = NodeError::new(error.to_string()).with_code(error.code());
    match error.code() {
        Code::AgentNotFound | Code::SessionClosed | Code::RequestInvalid => failure.permanent(),
        _ => failure,
    }
}

/// Ends the agent's run if the attempt of the node ends first.
struct CancelOnDrop<'a> {
    agents: &'a EngineAgents,
    session: &'a SessionId,
    is_armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        // An engine that ends leaves its agents at work: the next boot finds them again.
        if !self.is_armed || self.agents.graphs.is_detached() {
            return;
        }
        let (engine, session) = (self.agents.engine.clone(), self.session.clone());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Err(error) = engine.cancel(&Caller::new(PRINCIPAL), &session, None).await {
                tracing::warn!(%session, code = %error.code(), "agent's run not cancelled");
            }
        });
    }
}

#[async_trait]
impl AgentHost for EngineAgents {
    async fn open(&self, task: &AgentTask) -> Result<SessionId, NodeError> {
        self.create(task).await.map_err(|error| failed(&error))
    }

    async fn finish(&self, session: &SessionId, task: &AgentTask) -> Result<String, NodeError> {
        let mut guard = CancelOnDrop { agents: self, session, is_armed: true };
        let finishing = async {
            self.prompt(session, task).await?;
            Box::pin(self.ended(session)).await
        };
        let ended = Box::pin(finishing).await;
        guard.is_armed = false;
        match ended.map_err(|error| failed(&error))? {
            Outcome::Completed => self.last_message(session).await.map_err(|error| failed(&error)),
            Outcome::Failed => {
                Err(NodeError::new(format!("The agent's run failed: session {session}")))
            }
            Outcome::Cancelled => {
                let message = format!("The agent's run was cancelled: session {session}");
                Err(NodeError::new(message).permanent())
            }
        }
    }
}
