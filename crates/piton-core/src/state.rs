//! The state that a session's records fold into. Bounded: what is only of historical interest
//! stays in the log and is not kept here.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent_view::AgentFeatures;
use crate::code::AnyCode;
use crate::event::{Event, Outcome, Seq, TokenPurpose, WaitKind};
use crate::id::{
    BootId, CallId, ExecutionId, MessageId, RunId, SessionId, TaskId, TokenId, WaitId,
};
use crate::interruption::Activity;
use crate::limits::{HANDLES_KEPT, WAITS_SETTLED_KEPT};
use crate::reason::Reason;
use crate::request::Requests;
use crate::resume::Strategy;
use crate::spool::{SessionCapabilities, Spool};
use crate::time::Timestamp;
use crate::turns::{KeptConversation, OpenRestore, Turns};
use crate::worktree::Worktree;

/// Raised whenever the fold makes another state of the same records: older snapshots are replayed.
pub const PROJECTOR_VERSION: u32 = 17;

/// Everything that follows from a session's records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub last_seq: Seq,
    pub info: Option<Info>,
    pub lease: Lease,
    pub facts: Facts,
    /// Tokens that are still good.
    pub tokens: BTreeMap<TokenId, ActiveToken>,
    /// Intents of the current run that have no outcome.
    pub calls: BTreeMap<CallId, OpenCall>,
    /// Messages that still stream, with their length so far in bytes.
    pub messages: BTreeMap<MessageId, u64>,
    /// Of those, the ones that masking changed: how much was sent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub messages_sent: BTreeMap<MessageId, u64>,
    /// How far the spools of the latest executions were imported.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spools: BTreeMap<ExecutionId, Spool>,
    /// Those executions, the one that spoke last at the end.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub spools_order: VecDeque<ExecutionId>,
    /// What was asked under an idempotency key, so that asking again is recognised.
    #[serde(default, skip_serializing_if = "Requests::is_empty")]
    pub requests: Requests,
    /// Effects that follow from a record and were not reported as carried out, by its seq.
    pub pending: BTreeMap<Seq, Effect>,
    /// What the agent's next prompt has to tell it.
    #[serde(default, skip_serializing_if = "PendingContext::is_empty")]
    pub pending_context: PendingContext,
    /// What an agent is to be given instead of the bare prompt, and was not known to be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<Prepared>,
    /// The answer that the run's agent gave last, finished or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<MessageId>,
    /// The run whose agent was rejected what it asked for, and has made no other tool call since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_run: Option<RunId>,
    /// What the user said last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_said: Option<MessageRef>,
    /// What the agent said about its features, and what users chose of them.
    #[serde(default, skip_serializing_if = "AgentFeatures::is_empty")]
    pub features: AgentFeatures,
    /// Prompts that wait for the run to end, in the order of their delivery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<QueuedPrompt>,
    /// The prompts that left the queue last, delivered or removed, oldest first, so that a late
    /// repetition is recognised.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub dequeued: VecDeque<MessageId>,
    /// The runs that were started last, oldest first, so that a late repetition is recognised.
    pub recent_runs: VecDeque<RunId>,
    /// The checkpoints of an agent's turns, and the lineages of its conversation.
    #[serde(default, skip_serializing_if = "Turns::is_empty")]
    pub turns: Turns,
    /// What agents knew of the conversations that were left behind last, by lineage.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept_conversations: BTreeMap<u32, KeptConversation>,
    pub updated_at: Option<Timestamp>,
}

/// A prompt that waits for the run to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedPrompt {
    pub message_id: MessageId,
    /// The run that it will start.
    pub run_id: RunId,
    /// The record that has its content: another one after each edit, so it is its version, too.
    pub seq: Seq,
    pub queued_at: Timestamp,
    /// A run was interrupted, failed or was cancelled while it waited: a user has to release it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
}

/// What an agent does not know, and is to be told with its next prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingContext {
    /// It started without its conversation: all that was said before.
    #[serde(default)]
    pub history: bool,
    /// What the last interruption cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<InterruptedWork>,
    /// Prompts in the log that no agent was given, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undelivered: Vec<UndeliveredPrompt>,
}

impl PendingContext {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the prompt that a run was started with was given to no agent.
    pub fn is_undelivered(&self, run_id: &RunId) -> bool {
        self.undelivered.iter().any(|prompt| prompt.run_id == *run_id)
    }
}

/// What was under way when a run was interrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptedWork {
    pub run_id: RunId,
    /// The interruption.
    pub seq: Seq,
    pub reason: Reason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// Where the message stands that the run was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_seq: Option<Seq>,
    /// A message that had begun and was not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
    /// Intents without an outcome: the first of them, where they stand, and how many there were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Seq>,
    #[serde(default)]
    pub calls_total: u64,
    /// The positions of the questions that were not answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Seq>,
}

/// What a run was to begin with when it was interrupted before an agent was given it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndeliveredPrompt {
    pub run_id: RunId,
    /// The record that asked for it to be given: an agent may have accepted it all the same, and what
    /// says so comes late.
    pub of_seq: Seq,
    /// The execution that there was then: its agentctl knows whether its agent was given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    pub said: MessageRef,
}

/// A message of the user's, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRef {
    pub message_id: MessageId,
    pub seq: Seq,
}

/// Where it stands what an execution's agent is to be given for a record that demands a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    pub of_seq: Seq,
    pub seq: Seq,
    pub execution_id: ExecutionId,
    pub history: bool,
}

/// What the session was made with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    pub session_id: SessionId,
    pub title: Option<String>,
    pub task_id: Option<TaskId>,
    pub working_dir: Option<String>,
    pub provider: Option<Value>,
    pub agent_profile_id: Option<String>,
    /// Its log began in another program, which did not name an agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_adopted: bool,
    pub created_at: Timestamp,
    /// The last time something happened that a list of sessions shows.
    pub active_at: Timestamp,
}

/// Who may write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub owner: Option<BootId>,
    pub epoch: u64,
}

impl Lease {
    /// The lease after an event: taken, or released by its holder.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::SessionLeased(e) => {
                *self = Self { owner: Some(e.boot_id.clone()), epoch: e.epoch };
            }
            Event::SessionReleased(e) if e.epoch == self.epoch => self.owner = None,
            _ => {}
        }
    }
}

/// All that the status is derived from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub closed: Option<Outcome>,
    /// A critical kind that this program does not know: the session is read-only for it.
    pub unknown_critical: Option<String>,
    pub executor: Option<Executor>,
    pub agent: Option<Agent>,
    /// The agent is not started before this moment, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_waits: Option<AgentWait>,
    /// The latest run.
    pub run: Option<Run>,
    /// When the first token that belongs to no wait runs out.
    pub token_deadline_at: Option<Timestamp>,
    /// The worktree that it works in, if it was given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Worktree>,
    /// How many prompts are queued.
    #[serde(default, skip_serializing_if = "QueueCounts::is_empty")]
    pub queue: QueueCounts,
    /// The name of the graph that the session runs. All else about it is in
    /// [`crate::graph::GraphState`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// A rewind that has begun and has not ended: no run begins before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<OpenRestore>,
    /// A server runs that graph, and continues it after a restart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph_on_server: bool,
}

/// How many prompts are queued, and how many of them are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    pub length: u32,
    #[serde(default)]
    pub held: u32,
}

impl QueueCounts {
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Until when an agent is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentWait {
    pub until: Timestamp,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub run_id: RunId,
    /// The boot of the last start, resume or reattach.
    pub boot_id: BootId,
    pub started_at: Timestamp,
    pub started_seq: Seq,
    /// When it was interrupted or ended; `None` while it has neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    pub phase: Phase,
    /// Nothing runs: the run is stuck on its waits.
    pub blocked: bool,
    pub waits: BTreeMap<WaitId, Wait>,
    /// The waits that ended last, oldest first.
    pub settled_waits: VecDeque<WaitId>,
    /// A part of what the agent said in it was left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Where the message stands that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_seq: Option<Seq>,
    /// The agent was answered `cancelled` because a deadline passed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait_timed_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Open,
    Paused,
    Interrupted {
        reason: Reason,
        was_waiting: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        activity: Option<Activity>,
    },
    Dismissed,
    Ended(Outcome),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    pub kind: WaitKind,
    pub since_seq: Seq,
    pub token_id: Option<TokenId>,
    pub token: WaitToken,
    pub deadline_at: Option<Timestamp>,
    /// The ids of the options that reject what is asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reject_options: Vec<String>,
}

/// Whether a wait's token could still answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitToken {
    Active,
    Expired,
    Revoked,
    Missing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executor {
    pub execution_id: ExecutionId,
    pub runtime: String,
    pub status: ExecutorStatus,
    /// Of one that is unreachable: why, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<AnyCode>,
    /// Of one that failed: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The record that says why it failed or does not respond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_seq: Option<Seq>,
    /// How its agent is to get its conversation back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<PromisedContext>,
    /// Its agent is about to be started, and nothing is known of the agent yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expects_agent: bool,
}

/// What was promised of an agent before it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromisedContext {
    pub strategy: Strategy,
    pub history: bool,
    pub note: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutorStatus {
    Starting,
    Ready,
    Unreachable,
    Error,
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    pub status: AgentStatus,
    /// The agent's own handle on its conversation; dropped only when the agent disowns it.
    pub session_id: Option<String>,
    /// Handles that another one took the place of, oldest first: what they stand for is not what
    /// the agent has before it now, and it never said that it does not know them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_session_ids: Vec<String>,
    /// What it said it can do with its sessions, when it was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<SessionCapabilities>,
    /// Why it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Reason>,
    /// The record that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_seq: Option<Seq>,
    /// Starts since it was last given something, or asked for.
    #[serde(default)]
    pub failed_starts: u32,
    /// Whether it knows what was said before it was started; `None`: there was nothing, or it is
    /// not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<bool>,
    /// Its conversation began without what was said before, and is not known to hold it since. It
    /// does not know it any better when it continues that conversation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_history: bool,
    /// It was told, and no turn has ended well since: it may not have kept it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_history_unconfirmed: bool,
    /// What it knows of what was said before it was started, it knows from the history that a prompt
    /// carried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_injected: bool,
    /// Why it does not have its own conversation of what was said before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_reason: Option<Reason>,
    /// The record that decided that it is to be ended. Until it is gone it is given nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending_seq: Option<Seq>,
}

impl Agent {
    pub fn new(status: AgentStatus) -> Self {
        Self {
            status,
            session_id: None,
            earlier_session_ids: Vec::new(),
            capabilities: None,
            error: None,
            failed_starts: 0,
            restored: None,
            lacks_history: false,
            is_history_unconfirmed: false,
            is_injected: false,
            context_reason: None,
            ending_seq: None,
            error_seq: None,
        }
    }

    /// It is to be ended, and is not gone yet.
    pub fn is_ending(&self) -> bool {
        self.ending_seq.is_some()
    }

    /// What it has before it from now on has no name yet; the name that it went by is kept.
    pub(crate) fn clear_session_id(&mut self) {
        self.earlier_session_ids.extend(self.session_id.take());
        self.forget_names();
    }

    fn forget_names(&mut self) {
        let over = self.earlier_session_ids.len().saturating_sub(HANDLES_KEPT);
        self.earlier_session_ids.drain(..over);
    }

    /// What it knows of the conversation, when that is left behind.
    pub(crate) fn keep_conversation(&self, seq: Seq, pending: PendingContext) -> KeptConversation {
        KeptConversation {
            seq,
            agent_session_id: self.session_id.clone(),
            lacks_history: self.lacks_history,
            is_history_unconfirmed: self.is_history_unconfirmed,
            is_injected: self.is_injected,
            context_reason: self.context_reason,
            pending_context: pending,
        }
    }

    /// The conversation that was left behind is there again, just as it was.
    pub(crate) fn return_to(&mut self, kept: &KeptConversation) {
        if let Some(id) = &kept.agent_session_id {
            self.set_session_id(id);
        }
        self.lacks_history = kept.lacks_history;
        self.is_history_unconfirmed = kept.is_history_unconfirmed;
        self.is_injected = kept.is_injected;
        self.context_reason = kept.context_reason;
    }

    /// It goes by this handle from now on; the one before is kept.
    pub(crate) fn set_session_id(&mut self, id: &str) {
        if self.session_id.as_deref() == Some(id) {
            return;
        }
        self.earlier_session_ids.retain(|earlier| earlier != id);
        self.earlier_session_ids.extend(self.session_id.replace(id.to_owned()));
        self.forget_names();
    }

    /// It said that it does not know this handle; `None`: the one that it goes by.
    pub(crate) fn apply_session_cleared(&mut self, id: Option<&str>) {
        if id.is_none() || self.session_id.as_deref() == id {
            self.session_id = None;
        }
        self.earlier_session_ids.retain(|earlier| Some(earlier.as_str()) != id);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    Starting,
    Ready,
    Error,
    Exited,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveToken {
    pub run_id: RunId,
    pub purpose: TokenPurpose,
    pub wait_id: Option<WaitId>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    pub run_id: RunId,
    pub name: String,
    pub seq: Seq,
}

/// Something that must be done because a record says so. Its idempotency key is made of the
/// session and the record's seq, so a repetition after a crash is recognised as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Effect {
    /// Give the run's first message to the agent.
    Begin {
        run_id: RunId,
        message_id: Option<MessageId>,
        /// Where the message stands.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_seq: Option<Seq>,
    },
    /// Go on after a pause or an interruption.
    Continue { run_id: RunId },
    /// Hand over the answer that the record holds.
    Answer { run_id: RunId, wait_id: WaitId },
    /// Tell the agent that no answer will come.
    CancelWait { run_id: RunId, wait_id: WaitId },
    /// End the agent's turn.
    Stop { run_id: RunId },
}

impl State {
    /// The prompts that the log does not know to be given, oldest first.
    pub fn prompts(&self, run_id: &RunId) -> impl Iterator<Item = Seq> {
        let of_run = move |effect: &Effect| effect.is_prompt() && effect.run_id() == run_id;
        self.pending.iter().filter(move |(_, effect)| of_run(effect)).map(|(seq, _)| *seq)
    }
}

impl Effect {
    pub fn run_id(&self) -> &RunId {
        match self {
            Self::Begin { run_id, .. }
            | Self::Continue { run_id }
            | Self::Answer { run_id, .. }
            | Self::CancelWait { run_id, .. }
            | Self::Stop { run_id } => run_id,
        }
    }

    /// It gives an agent the run.
    pub fn is_prompt(&self) -> bool {
        matches!(self, Self::Begin { .. } | Self::Continue { .. })
    }

    /// The same for the same effect, by which process and however often it is carried out.
    pub fn key(session: &SessionId, seq: Seq) -> String {
        format!("{session}/{seq}")
    }
}

impl Run {
    /// The run's work may go on: it has neither ended nor been interrupted.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// The run has work left that was not given up: it is open or paused.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Paused)
    }

    /// Ends a wait; false if it was not open.
    pub(crate) fn settle_wait(&mut self, wait_id: &WaitId) -> bool {
        let was_open = self.waits.remove(wait_id).is_some();
        if was_open {
            self.settled_waits.push_back(wait_id.clone());
            if self.settled_waits.len() > WAITS_SETTLED_KEPT {
                self.settled_waits.pop_front();
            }
        }
        was_open
    }

    pub fn is_waiting(&self) -> bool {
        self.is_open() && self.blocked && !self.waits.is_empty()
    }

    /// The wait that is shown when one is shown: the first to run out, else the oldest.
    pub fn earliest_wait(&self) -> Option<(&WaitId, &Wait)> {
        self.waits
            .iter()
            .min_by_key(|(_, wait)| (wait.deadline_at.is_none(), wait.deadline_at, wait.since_seq))
    }
}

impl Executor {
    /// Its executor would have to be asked whether it still lives.
    pub fn may_live(&self) -> bool {
        matches!(
            self.status,
            ExecutorStatus::Starting | ExecutorStatus::Ready | ExecutorStatus::Unreachable
        )
    }
}

impl Facts {
    /// The record that says why the executor or the agent is in error, if one of them is.
    pub fn error_seq(&self) -> Option<Seq> {
        let executor = self.executor.as_ref().and_then(|executor| executor.error_seq);
        let agent = self.agent.as_ref().filter(|agent| agent.status == AgentStatus::Error);
        executor.or_else(|| agent.and_then(|agent| agent.error_seq))
    }

    /// There is an agent that can be told something, as far as the log knows.
    pub fn can_receive(&self) -> bool {
        self.agent
            .as_ref()
            .is_some_and(|agent| agent.status == AgentStatus::Ready && !agent.is_ending())
            && self.executor.as_ref().is_some_and(Executor::may_live)
    }

    /// Recovery has to look at this session: something of it may belong to a boot that died.
    pub fn needs_recovery(&self) -> bool {
        let run_open = self.run.as_ref().is_some_and(Run::is_open) && self.closed.is_none();
        let is_restoring = self.restore.is_some();
        run_open
            || is_restoring
            || self.has_due_prompt()
            || self.executor.as_ref().is_some_and(Executor::may_live)
    }

    /// A queued prompt is to be delivered now: no run is in its way, and it is not held.
    pub fn has_due_prompt(&self) -> bool {
        self.queue.length > self.queue.held
            && self.closed.is_none()
            && self.unknown_critical.is_none()
            && self.restore.is_none()
            && !self.run.as_ref().is_some_and(Run::is_unfinished)
    }

    /// The run is a graph's and only waits: no process needs to live for that, and its waits stay open
    /// when the process that asked has ended.
    pub fn is_graph_waiting(&self) -> bool {
        self.graph.is_some() && self.run.as_ref().is_some_and(Run::is_waiting)
    }

    /// The next moment at which a sweep has something to do.
    pub fn deadline_at(&self) -> Option<Timestamp> {
        let run = self.run.iter().filter(|run| run.is_open() && self.closed.is_none());
        let waits = run.flat_map(|run| run.waits.values()).filter_map(|wait| wait.deadline_at);
        waits.chain(self.token_deadline_at).min()
    }
}

/// One row of the session index: a cache of what the log says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub info: Info,
    pub facts: Facts,
}

impl State {
    /// The queued prompt that is to be delivered now.
    pub fn due_prompt(&self) -> Option<&QueuedPrompt> {
        let next = self.queue.iter().find(|prompt| !prompt.held);
        next.filter(|_| self.facts.has_due_prompt())
    }

    pub fn summary(&self) -> Option<Summary> {
        let info = self.info.clone()?;
        Some(Summary { info, facts: self.facts.clone() })
    }
}
