//! What can be run, and what runs.

use std::ffi::OsStr;

use axum::Json;
use axum::extract::State;
use piton_agent::profiles::{self, Profile};
use piton_api::agent::{Agent, AgentList, ExecutionList};
use piton_api::enums::Origin;
use piton_api::problem::Problem as Document;
use piton_core::state::Executor;
use piton_runtime::AgentCatalog;
use piton_store::{Query, Select};

use super::status;
use crate::app::App;
use crate::extract::Reader;
use crate::problem::Result;

/// Executions that are shown; the last active ones.
const SHOWN_MAX: usize = 1_000;

/// `path`: where programs are, unless the agent has a path of its own.
fn view(agent: &Profile, path: Option<&OsStr>) -> Agent {
    let origin = match agent.origin {
        profiles::Origin::BuiltIn => Origin::BuiltIn,
        profiles::Origin::Configured => Origin::Configured,
    };
    Agent {
        agent_profile_id: agent.id.clone(),
        name: agent.name.clone(),
        origin: origin.into(),
        is_installed: AgentCatalog::program(agent, path).is_some(),
        install: Some(agent.install.clone()).filter(|install| !install.is_empty()),
        resume_strategy: profiles::strategy(agent.abilities).into(),
    }
}

/// List the agents that sessions can use.
#[utoipa::path(get, path = "/agents", tag = "agents",
    responses((status = 200, body = AgentList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn agents(State(app): State<App>, _reader: Reader) -> Json<AgentList> {
    // Folders on slow disks are looked into.
    let looking = tokio::task::spawn_blocking(move || {
        let path = std::env::var_os("PATH");
        app.engine().catalog().profiles().map(|agent| view(agent, path.as_deref())).collect()
    });
    // Only a server that ends does not look.
    Json(AgentList { agents: looking.await.unwrap_or_default() })
}

/// List the executors that run or may run, and those of recently active sessions that failed or
/// were stopped.
#[utoipa::path(get, path = "/executors", tag = "agents",
    responses((status = 200, body = ExecutionList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn executors(
    State(app): State<App>,
    _reader: Reader,
) -> Result<Json<ExecutionList>> {
    let (mut executions, mut truncated) = (Vec::new(), false);
    for select in [Select::NeedsRecovery, Select::All] {
        let query = Query { task_id: None, select, after: None, limit: SHOWN_MAX };
        let page = app.handle().view().store().list(query).await?;
        truncated |= page.next.is_some();
        for row in &page.rows {
            let executor = row.summary.facts.executor.as_ref();
            let may_live = executor.is_some_and(Executor::may_live);
            // Those that may live are on the first page.
            if may_live == matches!(select, Select::NeedsRecovery) {
                executions.extend(status::execution(&app, row).await);
            }
        }
    }
    let memory = app.engine().memory().await;
    for execution in &mut executions {
        execution.memory_bytes = memory.get(&execution.agent_execution_id).copied();
    }
    Ok(Json(ExecutionList { executions, truncated }))
}
