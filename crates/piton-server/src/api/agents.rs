//! What can be run, and what runs.

use axum::Json;
use axum::extract::State;
use piton_core::state::Executor;
use piton_store::{Query, Select};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::extract::Reader;
use crate::problem::{Document, Result};

/// Executions that are shown; the last active ones.
const SHOWN_MAX: usize = 1_000;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentView {
    agent_profile_id: String,
    name: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Agents {
    agents: Vec<AgentView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecutionView {
    session_id: String,
    agent_execution_id: String,
    runtime: String,
    /// `starting`, `ready`, `unreachable`, `error`, `stopped`.
    status: String,
    agent_status: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Executions {
    executions: Vec<ExecutionView>,
    /// There are more than are shown.
    truncated: bool,
}

/// The agents that sessions can have.
#[utoipa::path(get, path = "/agents", tag = "agents",
    responses((status = 200, body = Agents),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn agents(State(app): State<App>, _reader: Reader) -> Json<Agents> {
    let view = |agent: &crate::app::Agent| AgentView {
        agent_profile_id: agent.id.clone(),
        name: agent.name.clone(),
    };
    Json(Agents { agents: app.agents().values().map(view).collect() })
}

/// The executions that live, or may.
#[utoipa::path(get, path = "/executors", tag = "agents",
    responses((status = 200, body = Executions),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn executors(State(app): State<App>, _reader: Reader) -> Result<Json<Executions>> {
    let query =
        Query { task_id: None, select: Select::NeedsRecovery, after: None, limit: SHOWN_MAX };
    let page = app.handle().view().store().list(query).await?;
    let spelled = |value: serde_json::Result<serde_json::Value>| {
        value.ok().and_then(|value| value.as_str().map(str::to_owned))
    };
    let executions = page.rows.iter().filter_map(|row| {
        let facts = &row.summary.facts;
        let executor =
            facts.executor.as_ref().filter(|executor: &&Executor| executor.may_live())?;
        let agent = facts.agent.as_ref();
        Some(ExecutionView {
            session_id: row.session.to_string(),
            agent_execution_id: executor.execution_id.to_string(),
            runtime: executor.runtime.clone(),
            status: spelled(serde_json::to_value(executor.status)).unwrap_or_default(),
            agent_status: agent.and_then(|agent| spelled(serde_json::to_value(agent.status))),
        })
    });
    let executions = executions.collect();
    Ok(Json(Executions { executions, truncated: page.next.is_some() }))
}
