//! What can be asked of a session, as data.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FailRestore, Import, Rewind, StartRestore, TurnEnd, TurnStart};
use crate::AnyCode;
use crate::agent_view::Configure;
use crate::content::PromptContent;
use crate::event::{Event, Fork, Outcome, Seq, ToolStatus, WaitKind};
use crate::id::{BootId, CallId, ExecutionId, MessageId, RunId, SessionId, TaskId, WaitId};
use crate::mcp::McpServer;
use crate::reason::Reason;
use crate::record::Content;
use crate::request::Request;
use crate::time::Timestamp;
use crate::token::{Entry, NewToken, ResumeToken};
use crate::worktree::WorktreePlan;

/// What a caller wants.
#[derive(Clone, Debug)]
pub enum Command {
    Create(Create),
    /// The same, to work in a worktree that is still to be made: both or neither is in the log.
    CreateInWorktree(Create, Box<WorktreePlan>),
    Close {
        outcome: Outcome,
    },
    /// Gives the session another title, also a closed one; `None` removes the title.
    Rename {
        title: Option<String>,
    },
    /// Gives the session an agent, if it has none or never ran one.
    AssignAgent {
        agent_profile_id: String,
    },
    /// What was asked for needs no record; under a key it is written down that it was asked for.
    Nothing,
    /// Begins a run, with a message or without. While the last run waits, or is paused or
    /// interrupted, the new one takes its place.
    Start {
        run_id: RunId,
        message: Option<Message>,
    },
    /// Begins a run with a message, or queues it while a run is in the way.
    Prompt(Prompt),
    /// Starts the run of the queued prompt that is due. `seq` is the record that `content` was read
    /// from: if the prompt was edited, moved or removed meanwhile, nothing happens.
    Deliver {
        seq: Seq,
        content: PromptContent,
    },
    /// Changes what a queued prompt says. `version`: refused if another edit came first.
    EditQueued {
        message_id: MessageId,
        version: Option<Seq>,
        content: PromptContent,
    },
    /// Gives a queued prompt another place; the first is 1.
    MoveQueued {
        message_id: MessageId,
        position: u32,
    },
    RemoveQueued {
        message_id: MessageId,
        version: Option<Seq>,
    },
    /// Lets the prompts be delivered that an interruption, a failure or a cancellation held.
    ReleaseQueue,
    /// Opens a wait. Asking again under the same id changes nothing.
    Wait(Wait),
    /// The run is stuck on an open wait again, after something else was answered.
    Block {
        run_id: RunId,
        wait_id: WaitId,
    },
    /// Answers a wait, or resumes an interruption, with a token.
    AnswerByToken(AnswerByToken),
    /// Answers a wait by its id; `fresh` is minted and consumed for the record.
    AnswerByWait {
        wait_id: WaitId,
        fresh: NewToken,
        answer: Value,
    },
    /// The same, and queues a prompt before all others: what the user wants to say with the answer.
    AnswerWithMessage {
        wait_id: WaitId,
        fresh: NewToken,
        answer: Value,
        prompt: Prompt,
    },
    /// Makes a new token for a wait and revokes the old one.
    RotateToken {
        wait_id: WaitId,
        fresh: NewToken,
    },
    /// Makes a token with which the interrupted run can be resumed.
    MintInterruption {
        fresh: NewToken,
        expires_at: Option<Timestamp>,
    },
    /// Continues a paused or interrupted run.
    Resume {
        run_id: RunId,
    },
    Pause {
        run_id: RunId,
    },
    Complete {
        run_id: RunId,
    },
    Fail {
        run_id: RunId,
        code: Option<AnyCode>,
        error: String,
    },
    Cancel {
        run_id: RunId,
        reason: Reason,
    },
    Dismiss {
        run_id: RunId,
    },
    Interrupt {
        run_id: RunId,
        reason: Reason,
    },
    /// The next piece of a streamed message. With an offset: refused unless it fits.
    Say {
        message_id: MessageId,
        offset: Option<u64>,
        text: String,
    },
    /// The end of a streamed message; `hash` is the BLAKE3 hash of its whole text, in hex.
    EndMessage {
        message_id: MessageId,
        hash: String,
    },
    Intend {
        run_id: RunId,
        call_id: CallId,
        name: String,
        arguments: Value,
    },
    Conclude {
        run_id: RunId,
        call_id: CallId,
        status: ToolStatus,
        result: Value,
    },
    /// An executor or agent was seen to change: one of the `executor.*` and `agent.*` events.
    Observe {
        event: Event,
        message: Option<String>,
    },
    /// The order to start an agent was not answered, or refused. It is a failure unless the spool
    /// says meanwhile that the agent was started.
    FailStart {
        execution_id: ExecutionId,
        code: AnyCode,
        message: String,
    },
    /// What an execution's spool says.
    Import(Import),
    /// What an agent is given for a record that demands a prompt, when that is more than was said.
    Prepare(Prepare),
    /// The user gives an unreachable executor up.
    Abandon {
        execution_id: ExecutionId,
    },
    /// The session's agent has had nothing to do for this long: it is to be ended.
    EndIdleAgent {
        execution_id: ExecutionId,
        idle_for: Duration,
    },
    /// A user stops the session's agent, which is to be ended: no prompt is given to it any more.
    /// Refused while a run is open.
    EndAgent {
        execution_id: ExecutionId,
    },
    /// Boots have died, or an executor changed: what became of it decides what becomes of its run.
    /// Complete when it is made: by the session's supervisor, which asks the executor first, or by
    /// [`crate::supervise::orphaned_run`] where no executor is left to ask.
    Recover {
        dead: BTreeSet<BootId>,
        /// `None`: no executor may live.
        probe: Option<Probe>,
        /// The execution belonged to another boot: a surviving one is recorded as ready again, so
        /// that clients learn that it was found.
        takes_over: bool,
    },
    /// Deadlines that have passed. `live`: the agent is there and can be told. One whose executor
    /// may live learns it later.
    Sweep {
        live: bool,
    },
    /// The effect that follows from a record was carried out.
    Done {
        of_seq: Seq,
    },
    /// A worktree is to be made, or made again after it was removed.
    PlanWorkspace(WorktreePlan),
    /// The worktree is there, as it was planned.
    WorkspacePrepared(WorktreePlan),
    /// The worktree is not there any more.
    WorkspaceRemoved {
        kept_branch: bool,
    },
    /// A user chooses how the agent works.
    Configure(Configure),
    /// A command that may begin a turn, with the checkpoint that the turn then begins with.
    AtTurnStart {
        start: Box<TurnStart>,
        command: Box<Command>,
    },
    /// A turn has ended, and this is what its files are.
    TurnEnded(TurnEnd),
    /// Files, the conversation or both are to go back. Nothing has been touched yet.
    StartRestore(StartRestore),
    /// Files were restored, or the conversation is to continue behind an earlier record.
    Rewind(Rewind),
    /// A restore could not be carried out.
    FailRestore(FailRestore),
    /// Takes contents out, also of a closed session.
    Redact(Redact),
    /// A client asks for a command, once: a repetition under the same key gets the answer of the first
    /// one came to.
    Requested {
        request: Request,
        command: Box<Command>,
    },
}

#[derive(Clone, Debug)]
pub struct Create {
    pub session_id: SessionId,
    pub title: Option<String>,
    pub task_id: Option<TaskId>,
    pub working_dir: Option<String>,
    pub provider: Option<Value>,
    pub agent_profile_id: Option<String>,
    pub setup: Setup,
}

/// What a new session's agent is given, from its first start on.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub choice: Configure,
    pub mcp_servers: Vec<McpServer>,
    pub fork: Option<Fork>,
}

#[derive(Clone, Debug)]
pub struct Message {
    pub message_id: MessageId,
    pub content: PromptContent,
}

#[derive(Clone, Debug)]
pub struct Prompt {
    /// The run that it starts, now or when it is delivered.
    pub run_id: RunId,
    pub message: Message,
    pub if_busy: IfBusy,
    /// Where it stands if it is queued.
    pub position: QueuePosition,
    /// Most prompts that may be queued.
    pub queue_max: usize,
}

/// What becomes of a prompt while a run is in its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfBusy {
    /// It is queued while a turn is active, and takes the run's place while the run only waits or is
    /// paused.
    #[default]
    Default,
    /// It is queued.
    Queue,
    /// It is refused.
    Reject,
    /// The run is cancelled and it takes the run's place.
    Supersede,
}

/// Where a queued prompt stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePosition {
    #[default]
    Last,
    /// Before all others, as what belongs to the current turn.
    First,
}

#[derive(Clone, Debug)]
pub struct Wait {
    pub run_id: RunId,
    pub wait_id: WaitId,
    pub kind: WaitKind,
    pub deadline_at: Timestamp,
    pub fresh: NewToken,
    pub question: Value,
}

#[derive(Clone, Debug)]
pub struct Prepare {
    pub of_seq: Seq,
    pub execution_id: ExecutionId,
    /// It tells the history; it says what an interruption cost.
    pub history: bool,
    pub note: bool,
    pub prompt: String,
}

#[derive(Clone, Debug)]
pub struct AnswerByToken {
    pub token: ResumeToken,
    /// What the token index of *this session* says about it.
    pub entry: Option<Entry>,
    pub answer: Value,
}

#[derive(Clone, Debug)]
pub struct Redact {
    pub targets: Vec<RedactTarget>,
    pub reason: Option<String>,
}

/// A record whose content is to be taken out.
#[derive(Clone, Debug)]
pub struct RedactTarget {
    pub seq: Seq,
    /// What the log has of it; `Omitted` is enough to know that there is some.
    pub content: Content,
}

/// What asking an executor came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Alive,
    Gone,
    Unreachable,
}
