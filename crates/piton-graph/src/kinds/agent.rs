//! An agent as a node: it works in a session of its own, and its last message is the result.

use serde_json::Value;

use crate::agent::AgentTask;
use crate::error::NodeError;
use crate::expression;
use crate::node::{Asked, NodeContext};
use crate::spec::AgentSpec;

pub(super) async fn run(spec: &AgentSpec, ctx: &NodeContext) -> Result<Value, NodeError> {
    let Some(host) = ctx.of.agents.clone() else {
        let message = "The node needs an agent, and nothing here runs agents";
        return Err(NodeError::new(message).permanent());
    };
    let task = AgentTask {
        graph_session: ctx.of.session.clone(),
        node: ctx.of.path.clone(),
        failures: ctx.restored.failures,
        idempotency_key: ctx.of.idempotency_key.clone(),
        profile: spec.profile.clone(),
        prompt: expression::render(&spec.prompt, &ctx.variables())?,
        working_dir: ctx.of.working_dir.clone(),
    };
    let child_session_id = match &ctx.restored.child_session_id {
        Some(known) => known.clone(),
        None => {
            let child_session_id = host.open(&task).await?;
            // Durable before the prompt is sent: a later attempt finds the session again.
            let asked = Asked::AssignSession { child_session_id: child_session_id.clone() };
            ctx.ask(asked).await?;
            child_session_id
        }
    };
    Ok(host.finish(&child_session_id, &task).await?.into())
}
