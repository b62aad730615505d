//! Where a session stands. One spelling for HTTP, WebSocket, server-sent events, the index of sessions
//! and the command line; made here and nowhere else.

use piton_core::id::{ExecutionId, RunId, SessionId, TaskId, TokenId, WaitId};
use piton_core::overview::{OpenWait, Overview};
use piton_core::resume::{Evaluation, context_sentence, needs_choice};
use piton_core::state::{Facts, Info};
use piton_core::status::Status;
use piton_core::worktree::Worktree;
use piton_core::{Seq, State, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::Execution;
use crate::enums::{
    Code, Context, ContinueChoiceName, ExecutorStatus, InterruptedPhase, Phase, Reason,
    ResumeStrategy, RunOutcome, RunPhase, SessionState, StatusName, WaitKind,
};
use crate::permission::PermissionRequest;
use crate::queue::QueueSummary;

/// A session in a list: what the index of sessions knows. A part of [`SessionStatus`], under the same
/// names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionSummary {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub task_id: Option<TaskId>,
    pub title: Option<String>,
    /// What the session does.
    pub status: StatusName,
    /// The same as `status`, as agent front ends spell it.
    pub state: SessionState,
    /// Why it has this status.
    pub reason: Reason,
    /// The reason as one sentence for people.
    pub sentence: String,
    /// How the last run, or the closed session, ended.
    pub last_outcome: Option<RunOutcome>,
    /// A newer program wrote to the session; this one only reads it.
    pub read_only: bool,
    pub agent_profile_id: Option<String>,
    /// The name of the graph that the session runs; null if an agent works in it.
    #[serde(default)]
    pub graph: Option<String>,
    /// The model provider that the session was created with.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub provider: Option<Value>,
    /// The folder that the session works in; of a session with a worktree, the worktree.
    pub working_dir: Option<String>,
    /// The worktree's id; null without a worktree.
    pub worktree_id: Option<String>,
    pub worktree_path: Option<String>,
    pub worktree_branch: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub created_at: Timestamp,
    /// The time of the latest change that a list of sessions shows.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub active_at: Timestamp,
    pub last_seq: Seq,
    /// The latest run.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub run_id: Option<RunId>,
    /// The prompts that wait for the run to end.
    #[serde(default)]
    pub queue: QueueSummary,
    /// Null if there was never an executor.
    pub executor_status: Option<ExecutorStatus>,
    /// Which executor runs the agent.
    pub executor_id: Option<String>,
    /// The kind of executor: `standalone`, …
    pub runtime: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub agent_execution_id: Option<ExecutionId>,
}

/// An open wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Wait {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub wait_id: WaitId,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run_id: RunId,
    pub kind: WaitKind,
    /// What is asked; of a permission with its `options`. Null if it was redacted or is longer than
    /// 64 KiB: the record of `since_seq` has it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub question: Option<Value>,
    /// Of a permission: what is asked for, readable and whole up to 48 KiB; null if the question was
    /// redacted.
    pub permission: Option<PermissionRequest>,
    pub since_seq: Seq,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub deadline_at: Option<Timestamp>,
    /// The public id of the resume token that answers it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub resume_token_id: Option<TokenId>,
}

/// The latest run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Run {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run_id: RunId,
    /// The process that started, resumed or reattached it last.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub boot_id: piton_core::id::BootId,
    pub phase: RunPhase,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub started_at: Timestamp,
    pub started_seq: Seq,
    /// When it was interrupted or ended; null while it has neither.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub ended_at: Option<Timestamp>,
    /// What it waits for: the earliest of its open waits.
    pub wait: Option<Wait>,
}

/// Why the latest run stopped without a request to stop it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Interruption {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run_id: RunId,
    pub reason: Reason,
    /// The reason as one sentence for people.
    pub sentence: String,
    /// What the run was doing; null in logs of earlier versions.
    pub phase: Option<InterruptedPhase>,
    /// The run waited for something from outside.
    pub was_waiting: bool,
    /// When it was interrupted.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub interrupted_at: Option<Timestamp>,
}

/// One way to continue a session whose agent lost its context, or would lose it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ContinueChoice {
    pub choice: ContinueChoiceName,
    /// A label for people.
    pub label: String,
    /// The `context` to start the agent with; null where another session is created instead.
    pub context: Option<Context>,
}

impl From<piton_core::resume::ContextChoice> for ContinueChoice {
    fn from(choice: piton_core::resume::ContextChoice) -> Self {
        Self {
            choice: choice.into(),
            label: choice.label().to_owned(),
            context: choice.context().map(Into::into),
        }
    }
}

/// Something to know before an interrupted run is resumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResumeNotice {
    pub reason: Reason,
    /// The reason as one sentence for people.
    pub sentence: String,
}

impl From<piton_core::Reason> for ResumeNotice {
    fn from(reason: piton_core::Reason) -> Self {
        Self { reason: reason.into(), sentence: reason.sentence().to_owned() }
    }
}

/// Live facts from outside the log, with the time they were observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Live {
    /// When the server observed them.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub at: Timestamp,
    /// The server is connected to the session's agentctl.
    pub is_connected: bool,
    /// When the session's agentctl last responded, since the server started; null if it did not.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub last_seen_at: Option<Timestamp>,
}

/// The full status of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of its own on the wire")]
pub struct SessionStatus {
    #[serde(flatten)]
    pub summary: SessionSummary,
    /// The agent runs, and its executor responds.
    pub is_agent_running: bool,
    /// The session can be resumed.
    pub is_resumable: bool,
    /// The session does nothing until it is resumed.
    pub needs_resume: bool,
    /// Why it has to be resumed, or cannot be.
    pub resume_reason: Option<Reason>,
    /// How the agent would restore its conversation.
    pub resume_strategy: ResumeStrategy,
    /// What the running agent knows of what was said before it was started; null if it does not run.
    pub context: Option<Context>,
    /// Whether the agent knows what was said before it was started; null if it does not run, or
    /// nothing was said.
    pub context_restored: Option<bool>,
    /// Why the agent does not have its own conversation, or would not: `not_resumable`,
    /// `missing_resume_token`, `session_refused`, `user_request`.
    pub context_reason: Option<Reason>,
    /// What the running agent knows of what was said before, as one sentence for people; null if
    /// there is nothing to say.
    pub context_sentence: Option<String>,
    /// How the session can continue, where a user has to choose: the agent lost its context, would
    /// lose it, or could not be started with it. Empty otherwise.
    pub choices: Vec<ContinueChoice>,
    /// What to know before the interrupted run is resumed: `workspace_missing`, `worktree_missing` and
    /// the like keep the agent from starting; `repository_changed`, `branch_changed` and
    /// `interrupted_long_ago` do not.
    #[serde(default)]
    pub resume_notices: Vec<ResumeNotice>,
    /// Why the executor or the agent is in error, in its own words.
    pub error_message: Option<String>,
    /// The code of that error.
    pub error_code: Option<Code>,
    /// The session's latest executor.
    pub executor: Option<Execution>,
    pub run: Option<Run>,
    /// Why the latest run was interrupted; null if it was not.
    pub interruption: Option<Interruption>,
    /// The earliest open wait.
    pub wait: Option<Wait>,
    /// All open waits, the earliest first.
    pub waits: Vec<Wait>,
    /// Null without a server.
    pub live: Option<Live>,
    /// The request started the agent, which is not ready yet. In answers to `open` only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
}

impl SessionSummary {
    pub fn new(
        session_id: &SessionId,
        info: &Info,
        facts: &Facts,
        last_seq: Seq,
        status: &Status,
    ) -> Self {
        let executor = facts.executor.as_ref();
        let worktree = facts.worktree.as_ref().filter(|worktree| worktree.is_prepared());
        let worktree_path = worktree.map(|worktree: &Worktree| worktree.plan.path.clone());
        Self {
            session_id: session_id.clone(),
            task_id: info.task_id.clone(),
            title: info.title.clone(),
            status: status.name.into(),
            state: status.name.wire().into(),
            reason: status.reason.into(),
            sentence: status.sentence(),
            last_outcome: status.last_outcome.map(Into::into),
            read_only: status.read_only,
            agent_profile_id: info.agent_profile_id.clone(),
            graph: facts.graph.clone(),
            provider: info.provider.clone(),
            working_dir: info.working_dir.clone().or_else(|| worktree_path.clone()),
            worktree_id: worktree.map(|_| session_id.to_string()),
            worktree_path,
            worktree_branch: worktree.map(|worktree| worktree.plan.branch.clone()),
            created_at: info.created_at,
            active_at: info.active_at,
            last_seq,
            run_id: facts.run.as_ref().map(|run| run.run_id.clone()),
            queue: QueueSummary { length: facts.queue.length, held: facts.queue.held > 0 },
            executor_status: executor.map(|executor| executor.status.into()),
            executor_id: executor.map(|executor| executor.runtime.clone()),
            runtime: executor.map(|executor| executor.runtime.clone()),
            agent_execution_id: executor.map(|executor| executor.execution_id.clone()),
        }
    }
}

impl Wait {
    pub fn new(session_id: &SessionId, open: &OpenWait) -> Self {
        Self {
            wait_id: open.wait_id.clone(),
            session_id: session_id.clone(),
            run_id: open.run_id.clone(),
            kind: open.wait.kind.into(),
            question: open.question.clone(),
            permission: open.permission.clone().map(Into::into),
            since_seq: open.wait.since_seq,
            deadline_at: open.wait.deadline_at,
            resume_token_id: open.wait.token_id.clone(),
        }
    }
}

impl Run {
    fn new(run: &piton_core::state::Run, wait: Option<Wait>) -> Self {
        Self {
            run_id: run.run_id.clone(),
            boot_id: run.boot_id.clone(),
            phase: Phase::from(&run.phase).into(),
            started_at: run.started_at,
            started_seq: run.started_seq,
            ended_at: run.ended_at,
            wait,
        }
    }
}

impl Interruption {
    fn new(run: &piton_core::state::Run) -> Option<Self> {
        let piton_core::state::Phase::Interrupted { reason, was_waiting, activity } = run.phase
        else {
            return None;
        };
        Some(Self {
            run_id: run.run_id.clone(),
            reason: reason.into(),
            sentence: piton_core::interruption::sentence(reason, activity),
            phase: activity.map(Into::into),
            was_waiting,
            interrupted_at: run.ended_at,
        })
    }
}

fn choices(state: &State, evaluation: Evaluation) -> Vec<ContinueChoice> {
    let all = piton_core::resume::ContextChoice::ALL;
    if needs_choice(state, &evaluation) { all.map(Into::into).into() } else { Vec::new() }
}

impl SessionStatus {
    /// Spells what is known of a session; `live`: where a server was asked.
    pub fn new(overview: &Overview, live: Option<Live>) -> Self {
        let Overview { session_id, info, state, status, evaluation, waits, error, .. } = overview;
        let run = state.facts.run.as_ref();
        let waits: Vec<Wait> = waits.iter().map(|open| Wait::new(session_id, open)).collect();
        let summary = SessionSummary::new(session_id, info, &state.facts, state.last_seq, status);
        let executor = Execution::new(&summary, &state.facts, overview.abilities);
        Self {
            is_agent_running: evaluation.is_agent_running,
            is_resumable: evaluation.is_resumable,
            needs_resume: evaluation.needs_resume,
            resume_reason: evaluation.reason.map(Into::into),
            resume_strategy: evaluation.strategy.into(),
            context: evaluation.context.map(Into::into),
            context_restored: evaluation.context_restored,
            context_reason: evaluation.context_reason.map(Into::into),
            context_sentence: context_sentence(evaluation.context, evaluation.context_reason),
            choices: choices(state, *evaluation),
            resume_notices: Vec::new(),
            error_message: error.as_ref().and_then(|error| error.message.clone()),
            error_code: error.as_ref().and_then(|error| error.code.clone()).map(Into::into),
            executor: executor
                .map(|executor| executor.with_error(error.as_ref()).with_last_seen(live.as_ref())),
            run: run.map(|run| Run::new(run, waits.first().cloned())),
            interruption: run.and_then(Interruption::new),
            wait: waits.first().cloned(),
            waits,
            live,
            pending: false,
            summary,
        }
    }
}
