//! A session's status, as S2 and S4 name its fields. Derived by one function in the core; here it is
//! only spelled.

use piton_core::id::SessionId;
use piton_core::state::{Executor, ExecutorStatus, Facts, State};
use piton_core::status::{Name, Status};
use piton_core::{Timestamp, resume};
use piton_runtime::Listed;
use piton_store::Detail;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::app::App;
use crate::problem::Result;

/// Longer questions are read from the log.
const QUESTION_BYTES_MAX: usize = 64 * 1024;

/// A session in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Brief {
    pub(crate) session_id: String,
    pub(crate) task_id: Option<String>,
    pub(crate) title: Option<String>,
    /// S4's name: `running`, `waiting`, `idle`, `interrupted_startup`, …
    #[schema(example = "running")]
    pub(crate) status: String,
    /// S2's name: `RUNNING`, `WAITING_FOR_INPUT`, …
    #[schema(example = "RUNNING")]
    pub(crate) state: String,
    #[schema(example = "run_open")]
    pub(crate) reason: String,
    pub(crate) agent_profile_id: Option<String>,
    pub(crate) created_at: String,
    pub(crate) active_at: String,
    pub(crate) last_seq: u64,
}

impl Brief {
    pub(crate) fn of(listed: &Listed) -> Self {
        let info = &listed.row.summary.info;
        Self {
            session_id: listed.row.session.to_string(),
            task_id: info.task_id.as_ref().map(ToString::to_string),
            title: info.title.clone(),
            status: listed.status.name.to_string(),
            state: wire(listed.status.name),
            reason: listed.status.reason.as_str().to_owned(),
            agent_profile_id: info.agent_profile_id.clone(),
            created_at: info.created_at.to_string(),
            active_at: info.active_at.to_string(),
            last_seq: listed.row.last_seq,
        }
    }
}

/// A wait that is open.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WaitView {
    pub(crate) wait_id: String,
    pub(crate) session_id: String,
    pub(crate) run_id: String,
    /// `input`, `permission`, `tool_result`, `human`.
    pub(crate) kind: String,
    /// What is asked; of a permission with its `options`. Null if it was taken out of the log, or is
    /// longer than 64 KiB: the record of `since_seq` has it.
    #[schema(value_type = Option<Object>)]
    pub(crate) question: Option<Value>,
    pub(crate) since_seq: u64,
    pub(crate) deadline_at: Option<String>,
}

/// What is known of the world outside the log, and when it was seen.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Live {
    /// Whether the agent can be told something now.
    pub(crate) is_followed: bool,
    pub(crate) seen_at: String,
}

/// Everything about where a session stands.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "S2's fields are as S2 names them")]
pub(crate) struct SessionStatus {
    pub(crate) session_id: String,
    pub(crate) task_id: Option<String>,
    pub(crate) title: Option<String>,
    /// `STARTING`, `RUNNING`, `WAITING_FOR_INPUT`, `ERROR`, `COMPLETED`, `FAILED`, `CANCELLED`.
    pub(crate) state: String,
    pub(crate) agent_profile_id: Option<String>,
    /// `starting`, `ready`, `unreachable`, `error`, `stopped`; null if there was none.
    pub(crate) executor_status: Option<String>,
    pub(crate) agent_execution_id: Option<String>,
    pub(crate) runtime: Option<String>,
    pub(crate) is_agent_running: bool,
    pub(crate) is_resumable: bool,
    pub(crate) needs_resume: bool,
    pub(crate) resume_reason: Option<String>,
    pub(crate) worktree_path: Option<String>,
    pub(crate) worktree_branch: Option<String>,
    pub(crate) working_dir: Option<String>,
    /// S4's derived status.
    pub(crate) status: String,
    pub(crate) reason: String,
    /// The reason as one sentence for people.
    pub(crate) sentence: String,
    pub(crate) run_id: Option<String>,
    pub(crate) last_outcome: Option<String>,
    /// How the agent would get its conversation back: `native`, `command_line`, `history`, `none`.
    pub(crate) resume_strategy: String,
    /// Whether the agent knows what was said before it was started; null if it does not run, or
    /// nothing was.
    pub(crate) context_restored: Option<bool>,
    /// Why a context would be lost: `not_resumable`, `missing_resume_token`.
    pub(crate) context_reason: Option<String>,
    /// A newer program wrote to the session; this one only reads it.
    pub(crate) read_only: bool,
    pub(crate) waits: Vec<WaitView>,
    pub(crate) live: Live,
    pub(crate) last_seq: u64,
}

/// The state on S2's and S3's wire.
pub(crate) fn wire(name: Name) -> String {
    spelled(name.wire())
}

fn spelled(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

pub(crate) fn executor_status(executor: &Executor) -> &'static str {
    match executor.status {
        ExecutorStatus::Starting => "starting",
        ExecutorStatus::Ready => "ready",
        ExecutorStatus::Unreachable => "unreachable",
        ExecutorStatus::Error => "error",
        ExecutorStatus::Stopped => "stopped",
    }
}

pub(crate) async fn waits(app: &App, session: &SessionId, facts: &Facts) -> Result<Vec<WaitView>> {
    let run = facts.run.as_ref().filter(|run| run.is_unfinished() && facts.closed.is_none());
    let Some(run) = run else { return Ok(Vec::new()) };
    let (store, mut waits) = (app.handle().view().store(), Vec::with_capacity(run.waits.len()));
    for (wait_id, wait) in &run.waits {
        let question = match store.read(session, wait.since_seq - 1, 1, Detail::Full).await {
            Ok(asked) => asked.first().and_then(|record| record.content_field("question")),
            // That somebody waits is known all the same.
            Err(error) => {
                tracing::warn!(%session, %wait_id, code = %error.code(), "no question");
                None
            }
        };
        let is_short = |question: &Value| question.to_string().len() <= QUESTION_BYTES_MAX;
        waits.push(WaitView {
            wait_id: wait_id.to_string(),
            session_id: session.to_string(),
            run_id: run.run_id.to_string(),
            kind: spelled(wait.kind),
            question: question.filter(is_short),
            since_seq: wait.since_seq,
            deadline_at: wait.deadline_at.as_ref().map(ToString::to_string),
        });
    }
    Ok(waits)
}

pub(crate) async fn of(app: &App, session: &SessionId) -> Result<SessionStatus> {
    let state = app.handle().state(session).await?;
    let status = app.handle().view().status(&state.facts);
    let waits = waits(app, session, &state.facts).await?;
    Ok(spell(app, session, &state, &status, waits))
}

fn spell(
    app: &App,
    session: &SessionId,
    state: &State,
    status: &Status,
    waits: Vec<WaitView>,
) -> SessionStatus {
    let (facts, info) = (&state.facts, state.info.as_ref());
    // A dead boot's: it is being asked whether it is still there.
    let asked = state.lease.owner.as_ref() != Some(app.handle().boot());
    let found = resume::evaluate(state, app.resumer().abilities(state), asked);
    let executor = facts.executor.as_ref();
    let worktree = facts.worktree.as_ref().filter(|worktree| worktree.is_prepared());
    let outcome = status.last_outcome.and_then(|outcome| serde_json::to_value(outcome).ok());
    SessionStatus {
        session_id: session.to_string(),
        task_id: info.and_then(|info| info.task_id.as_ref()).map(ToString::to_string),
        title: info.and_then(|info| info.title.clone()),
        state: wire(status.name),
        agent_profile_id: info.and_then(|info| info.agent_profile_id.clone()),
        executor_status: executor.map(|executor| {
            let starting = asked && executor.may_live();
            let status = if starting { "starting" } else { executor_status(executor) };
            status.to_owned()
        }),
        agent_execution_id: executor.map(|executor| executor.execution_id.to_string()),
        runtime: executor.map(|executor| executor.runtime.clone()),
        is_agent_running: found.is_agent_running,
        is_resumable: found.is_resumable,
        needs_resume: found.needs_resume,
        resume_reason: found.reason.map(|reason| reason.as_str().to_owned()),
        worktree_path: worktree.map(|worktree| worktree.plan.path.clone()),
        worktree_branch: worktree.map(|worktree| worktree.plan.branch.clone()),
        working_dir: info.and_then(|info| info.working_dir.clone()),
        status: status.name.to_string(),
        reason: status.reason.as_str().to_owned(),
        sentence: status.sentence().to_owned(),
        run_id: facts.run.as_ref().map(|run| run.run_id.to_string()),
        last_outcome: outcome.and_then(|outcome| outcome.as_str().map(str::to_owned)),
        resume_strategy: spelled(found.strategy),
        context_restored: found.context_restored,
        context_reason: found.context_reason.map(|reason| reason.as_str().to_owned()),
        read_only: status.read_only,
        waits,
        live: live(app, session),
        last_seq: state.last_seq,
    }
}

fn live(app: &App, session: &SessionId) -> Live {
    use piton_runtime::Driver as _;
    let now: Timestamp = app.handle().view().now();
    Live { is_followed: app.executions().is_live(session), seen_at: now.to_string() }
}
