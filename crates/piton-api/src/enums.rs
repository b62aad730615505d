//! Closed lists of values. Each is one type of the core and one schema; a client that is older than its
//! server keeps the spelling of a value that it does not know instead of failing.

use std::fmt;

use piton_core::access::Scope;
use piton_core::decide::IfBusy as CoreIfBusy;
use piton_core::event::{Outcome, ToolStatus as CoreToolStatus, WaitKind as CoreWaitKind};
use piton_core::graph::CheckpointType as CoreCheckpointType;
use piton_core::interruption::Activity;
use piton_core::resume::{
    AgentRestart as CoreAgentRestart, Context as CoreContext, ContextChoice as CoreContextChoice,
    Strategy,
};
use piton_core::spool::Channel as CoreChannel;
use piton_core::state::{AgentStatus as CoreAgentStatus, ExecutorStatus as CoreExecutorStatus};
use piton_core::status::{Name, WireState};
use piton_core::task::TaskState as CoreTaskState;
use piton_core::{AnyCode, Code as CoreCode, Reason as CoreReason};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A type with a closed list of values, each with one spelling.
pub trait ClosedList: Copy + 'static {
    /// The schema's name.
    const NAME: &'static str;
    /// All values that are sent.
    const ALL: &'static [Self];

    fn spelling(self) -> &'static str;
}

/// A value of a closed list as it is on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WireEnum<T> {
    Known(T),
    /// Sent by a newer server.
    Other(Box<str>),
}

impl<T: ClosedList> WireEnum<T> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(value) => value.spelling(),
            Self::Other(spelling) => spelling,
        }
    }

    /// The value of this spelling; one that this program does not know is kept.
    pub fn spelled(spelling: &str) -> Self {
        let known = T::ALL.iter().copied().find(|value| value.spelling() == spelling);
        known.map_or_else(|| Self::Other(spelling.into()), Self::Known)
    }

    /// The value, if this program knows it.
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Other(_) => None,
        }
    }
}

impl<T> From<T> for WireEnum<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<T: PartialEq> PartialEq<T> for WireEnum<T> {
    fn eq(&self, other: &T) -> bool {
        matches!(self, Self::Known(value) if value == other)
    }
}

impl<T: ClosedList> fmt::Display for WireEnum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T: ClosedList> Serialize for WireEnum<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, T: ClosedList> Deserialize<'de> for WireEnum<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::spelled(&String::deserialize(deserializer)?))
    }
}

#[cfg(feature = "openapi")]
mod schema {
    use std::borrow::Cow;

    use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
    use utoipa::openapi::{RefOr, schema};
    use utoipa::{PartialSchema, ToSchema};

    use super::{ClosedList, WireEnum};

    impl<T: ClosedList> PartialSchema for WireEnum<T> {
        fn schema() -> RefOr<Schema> {
            let values = T::ALL.iter().map(|value| value.spelling());
            let object = ObjectBuilder::new()
                .schema_type(schema::SchemaType::new(Type::String))
                .enum_values(Some(values));
            object.into()
        }
    }

    impl<T: ClosedList> ToSchema for WireEnum<T> {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed(T::NAME)
        }
    }
}

macro_rules! closed_lists {
    ($($(#[$doc:meta])* $alias:ident: $type:ty { $($variant:ident = $spelling:literal,)* $(; not sent: $($unsent:ident = $text:literal,)*)? })*) => {$(
        $(#[$doc])*
        pub type $alias = WireEnum<$type>;

        impl ClosedList for $type {
            const NAME: &'static str = stringify!($alias);
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            fn spelling(self) -> &'static str {
                match self {
                    $(Self::$variant => $spelling,)*
                    $($(Self::$unsent => $text,)*)?
                }
            }
        }
    )*};
}

closed_lists! {
    /// What becomes of a prompt while a run is open.
    IfBusy: CoreIfBusy {
        Queue = "queue",
        Reject = "reject",
        Supersede = "supersede",
        ; not sent: Default = "default",
    }
    /// The state of a session, in the words of agent front ends.
    SessionState: WireState {
        Starting = "STARTING",
        Running = "RUNNING",
        WaitingForInput = "WAITING_FOR_INPUT",
        Error = "ERROR",
        Completed = "COMPLETED",
        Failed = "FAILED",
        Cancelled = "CANCELLED",
    }
    /// How a run or a session ended.
    RunOutcome: Outcome {
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
    /// What a wait waits for.
    WaitKind: CoreWaitKind {
        Input = "input",
        Permission = "permission",
        ToolResult = "tool_result",
        Human = "human",
        Other = "other",
    }
    /// What became of a tool call.
    ToolStatus: ToolState {
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
        Pending = "pending",
        Unknown = "unknown",
    }
    /// How an agent gets its conversation back.
    ResumeStrategy: Strategy {
        Native = "native",
        CommandLine = "command_line",
        History = "history",
        None = "none",
    }
    /// What a running agent knows of what was said before it was started: its own conversation, the
    /// history that Piton gives it with a prompt, nothing since nothing was said, nothing though
    /// something was.
    Context: CoreContext {
        Native = "native",
        Injected = "injected",
        None = "none",
        Lost = "lost",
    }
    /// When an agent that does not run is started.
    AgentRestart: CoreAgentRestart {
        OnBoot = "on_boot",
        OnOpen = "on_open",
        OnPrompt = "on_prompt",
        Manual = "manual",
    }
    /// What an agent's process does.
    AgentStatus: CoreAgentStatus {
        Starting = "starting",
        Ready = "ready",
        Error = "error",
        Exited = "exited",
    }
    /// What an executor does. One that does not respond is in `error`, with the reason
    /// `executor_unreachable`.
    ExecutorStatus: CoreExecutorStatus {
        Starting = "starting",
        Ready = "ready",
        Error = "error",
        Stopped = "stopped",
        ; not sent: Unreachable = "error",
    }
    /// The state of a task, derived from its sessions.
    TaskState: CoreTaskState {
        Todo = "TODO",
        InProgress = "IN_PROGRESS",
        Review = "REVIEW",
        Completed = "COMPLETED",
        Failed = "FAILED",
        Cancelled = "CANCELLED",
    }
    /// What an access token permits.
    AccessScope: Scope {
        Read = "read",
        Control = "control",
        Admin = "admin",
        ; not sent: Unrecognised = "unrecognised",
    }
    /// Where an agent's description comes from.
    AgentOrigin: Origin {
        BuiltIn = "built_in",
        Configured = "configured",
    }
    /// What a folder contains.
    FileKind: Kind {
        Folder = "folder",
        File = "file",
        Link = "link",
        Other = "other",
    }
    /// What a run does.
    RunPhase: Phase {
        Open = "open",
        Paused = "paused",
        Interrupted = "interrupted",
        Dismissed = "dismissed",
        Ended = "ended",
    }
    /// What a user can do about a session whose agent lost its context.
    ContinueChoiceName: CoreContextChoice {
        Retry = "retry",
        ContinueWithHistory = "continue_with_history",
        ContinueWithoutContext = "continue_without_context",
        NewSession = "new_session",
    }
    /// Where an agent says something.
    Channel: CoreChannel {
        Answer = "answer",
        Thought = "thought",
    }
    /// Where a checkpoint was made: around a graph's nodes, edges and loops, or around a turn of an
    /// agent.
    CheckpointType: CoreCheckpointType {
        NodeStart = "node_start",
        NodeComplete = "node_complete",
        EdgeTransition = "edge_transition",
        LoopIteration = "loop_iteration",
        SafePoint = "safe_point",
        UserCheckpoint = "user_checkpoint",
        TurnStart = "turn_start",
        TurnComplete = "turn_complete",
    }
    /// What a graph's node does.
    GraphNodeState: NodeState {
        Pending = "pending",
        Running = "running",
        Failed = "failed",
        Completed = "completed",
        Skipped = "skipped",
    }
    /// What became of a file.
    FileChangeKind: ChangeKind {
        Added = "added",
        Modified = "modified",
        Removed = "removed",
    }
    /// Why a snapshot does not hold a file or folder.
    SkipReason: WhySkipped {
        TooLarge = "too_large",
        NestedRepository = "nested_repository",
        NotAFile = "not_a_file",
        Unreadable = "unreadable",
    }
    /// What is to become of an old session.
    PruneAction: Pruning {
        Archive = "archive",
        Delete = "delete",
    }
    /// How serious a finding of the doctor is.
    FindingLevel: Level {
        Ok = "ok",
        Warning = "warning",
        Problem = "problem",
    }
    /// What a run was doing when it was interrupted.
    InterruptedPhase: Activity {
        Starting = "starting",
        Answering = "answering",
        RunningTool = "running_tool",
        Waiting = "waiting",
        ; not sent: Unrecognised = "unrecognised",
    }
}

/// What became of a tool call, also of one without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolState {
    Succeeded,
    Failed,
    Cancelled,
    /// It runs.
    Pending,
    /// It may have happened, wholly or in part.
    Unknown,
}

impl From<CoreToolStatus> for ToolState {
    fn from(status: CoreToolStatus) -> Self {
        match status {
            CoreToolStatus::Succeeded => Self::Succeeded,
            CoreToolStatus::Failed => Self::Failed,
            CoreToolStatus::Cancelled => Self::Cancelled,
            CoreToolStatus::Unknown => Self::Unknown,
        }
    }
}

/// Where an agent's description comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    BuiltIn,
    Configured,
}

/// What a folder contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Folder,
    File,
    Link,
    Other,
}

/// What a graph's node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    Pending,
    Running,
    Failed,
    Completed,
    Skipped,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    Added,
    Modified,
    Removed,
}

/// Why a snapshot does not hold a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WhySkipped {
    TooLarge,
    NestedRepository,
    NotAFile,
    Unreadable,
}

/// What is to become of an old session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pruning {
    Archive,
    Delete,
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Ok,
    Warning,
    Problem,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Open,
    Paused,
    Interrupted,
    Dismissed,
    Ended,
}

impl From<&piton_core::state::Phase> for Phase {
    fn from(phase: &piton_core::state::Phase) -> Self {
        use piton_core::state::Phase as Core;
        match phase {
            Core::Open => Self::Open,
            Core::Paused => Self::Paused,
            Core::Interrupted { .. } => Self::Interrupted,
            Core::Dismissed => Self::Dismissed,
            Core::Ended(_) => Self::Ended,
        }
    }
}

/// What a session does.
pub type StatusName = WireEnum<Name>;

impl ClosedList for Name {
    const NAME: &'static str = "StatusName";
    const ALL: &'static [Self] = Self::ALL;

    fn spelling(self) -> &'static str {
        self.as_str()
    }
}

/// Why a session has its status, why a run ended, why a token is not good any more.
pub type Reason = WireEnum<CoreReason>;

impl ClosedList for CoreReason {
    const NAME: &'static str = "Reason";
    const ALL: &'static [Self] = Self::ALL;

    fn spelling(self) -> &'static str {
        self.as_str()
    }
}

/// Which of Piton's errors it is; each has a page in the documentation.
pub type Code = WireEnum<CoreCode>;

impl From<AnyCode> for Code {
    fn from(code: AnyCode) -> Self {
        match code {
            AnyCode::Known(code) => Self::Known(code),
            AnyCode::Other(spelling) => Self::Other(spelling),
        }
    }
}

impl ClosedList for CoreCode {
    const NAME: &'static str = "Code";
    const ALL: &'static [Self] = Self::ALL;

    fn spelling(self) -> &'static str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trips<T: ClosedList + PartialEq + fmt::Debug>() {
        for value in T::ALL {
            let json = serde_json::to_string(&WireEnum::Known(*value)).unwrap();
            assert_eq!(json, format!("\"{}\"", value.spelling()));
            let read: WireEnum<T> = serde_json::from_str(&json).unwrap();
            assert_eq!(read.known(), Some(*value));
        }
        let newer: WireEnum<T> = serde_json::from_str("\"of tomorrow\"").unwrap();
        assert_eq!((newer.known(), newer.as_str()), (None, "of tomorrow"));
        assert_eq!(serde_json::to_string(&newer).unwrap(), "\"of tomorrow\"");
    }

    /// Wants to show: each spelling is read as it is written, and one of a newer server is kept.
    #[test]
    fn spellings_round_trip_and_newer_ones_are_kept() {
        round_trips::<WireState>();
        round_trips::<Name>();
        round_trips::<Outcome>();
        round_trips::<CoreWaitKind>();
        round_trips::<ToolState>();
        round_trips::<Strategy>();
        round_trips::<CoreContext>();
        round_trips::<CoreAgentRestart>();
        round_trips::<CoreAgentStatus>();
        round_trips::<CoreExecutorStatus>();
        round_trips::<CoreTaskState>();
        round_trips::<Scope>();
        round_trips::<Origin>();
        round_trips::<Kind>();
        round_trips::<Phase>();
        round_trips::<CoreCheckpointType>();
        round_trips::<NodeState>();
        round_trips::<ChangeKind>();
        round_trips::<Level>();
        round_trips::<Pruning>();
        round_trips::<WhySkipped>();
        round_trips::<Activity>();
        round_trips::<CoreContextChoice>();
        round_trips::<CoreReason>();
        round_trips::<CoreCode>();
    }

    /// Wants to show: the wire spells as the log does.
    #[test]
    fn spellings_are_those_of_the_core() {
        fn same<T: ClosedList + Serialize>() {
            for value in T::ALL {
                assert_eq!(serde_json::to_value(value).unwrap(), value.spelling());
            }
        }
        same::<WireState>();
        same::<Name>();
        same::<Outcome>();
        same::<CoreWaitKind>();
        same::<Strategy>();
        same::<CoreContext>();
        same::<CoreAgentRestart>();
        same::<CoreAgentStatus>();
        same::<CoreExecutorStatus>();
        same::<CoreTaskState>();
        same::<Scope>();
        same::<CoreCheckpointType>();
        same::<Activity>();
        same::<CoreContextChoice>();
        same::<CoreReason>();
    }
}
