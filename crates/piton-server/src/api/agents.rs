//! What can be run, and what runs.

use std::ffi::OsStr;

use axum::Json;
use axum::extract::State;
use piton_agent::profiles::{self, Profile};
use piton_core::state::Executor;
use piton_exec::programs;
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
    /// `built_in`, `configured`.
    origin: String,
    /// Its program was found where the server looks for programs.
    is_installed: bool,
    /// How to get it, for people; absent if nobody said.
    install: Option<String>,
    /// How it is expected to get a conversation back: `native`, `command_line`, `history`, `none`. What
    /// it advertises when it is started counts for more.
    resume_strategy: String,
}

impl AgentView {
    /// `path`: where programs are, unless the agent has a path of its own.
    fn of(agent: &Profile, path: Option<&OsStr>) -> Self {
        let own = agent.env.iter().find(|(name, _)| name == "PATH");
        let path = own.map(|(_, path)| OsStr::new(path)).or(path);
        let program = agent.command.first().map(String::as_str).unwrap_or_default();
        Self {
            agent_profile_id: agent.id.clone(),
            name: agent.name.clone(),
            origin: agent.origin.as_str().to_owned(),
            is_installed: programs::find(program, path).is_some(),
            install: Some(agent.install.clone()).filter(|install| !install.is_empty()),
            resume_strategy: spelled(&profiles::strategy(agent.abilities)).unwrap_or_default(),
        }
    }
}

/// A value that is written as one word.
fn spelled(value: &impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
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
    // Folders on slow disks are looked into.
    let looking = tokio::task::spawn_blocking(move || {
        let path = std::env::var_os("PATH");
        app.agents().values().map(|agent| AgentView::of(agent, path.as_deref())).collect()
    });
    // Only a server that ends does not look.
    Json(Agents { agents: looking.await.unwrap_or_default() })
}

/// The executions that live, or may.
#[utoipa::path(get, path = "/executors", tag = "agents",
    responses((status = 200, body = Executions),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn executors(State(app): State<App>, _reader: Reader) -> Result<Json<Executions>> {
    let query =
        Query { task_id: None, select: Select::NeedsRecovery, after: None, limit: SHOWN_MAX };
    let page = app.handle().view().store().list(query).await?;
    let executions = page.rows.iter().filter_map(|row| {
        let facts = &row.summary.facts;
        let executor =
            facts.executor.as_ref().filter(|executor: &&Executor| executor.may_live())?;
        let agent = facts.agent.as_ref();
        Some(ExecutionView {
            session_id: row.session.to_string(),
            agent_execution_id: executor.execution_id.to_string(),
            runtime: executor.runtime.clone(),
            status: spelled(&executor.status).unwrap_or_default(),
            agent_status: agent.and_then(|agent| spelled(&agent.status)),
        })
    });
    let executions = executions.collect();
    Ok(Json(Executions { executions, truncated: page.next.is_some() }))
}
