//! Bugs planted on purpose, so that the tests can show that they would find them. Without the feature
//! `planted` every question is answered `false` at compile time.
//!
//! One switch for all of them: a bug is planted on a thread by [`plant`], as the simulator does, or in a
//! whole process and all that it starts by the environment variable [`VARIABLE`], read once.

/// Names the bug that is planted in a process, in a build with the feature `planted`.
pub const VARIABLE: &str = "PLANTED_BUG";

/// Whether bugs can be planted in this build: never in what ships, nor in what `make test` tests.
pub const IS_COMPILED: bool = cfg!(feature = "planted");

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident,)*) => {
        /// A bug and where it sits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        impl Bug {
            pub const ALL: &'static [Self] = &[$(Self::$bug,)*];

            /// The bug of this name.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($bug) => Some(Self::$bug),)*
                    _ => None,
                }
            }
        }
    };
}

bugs! {
    // The simulator notices these.
    /// Store: an append is acknowledged without its flush.
    FlushLeftOut,
    /// Store: the lease's epoch is not checked.
    EpochIgnored,
    /// Decisions: a consumed token is accepted again.
    TokenCheckSkipped,
    /// Store: the records of a batch survive one by one.
    BatchSplit,
    /// Tail: the hint's records are delivered without looking for a gap.
    WakeUpTrusted,
    /// Runtime: a snapshot is used though it does not fit the log.
    SnapshotStale,
    /// Decisions: a run of a dead boot is interrupted though it already was.
    InterruptedTwice,
    /// Runtime: an effect is carried out before its record is durable.
    ActBeforeCommit,
    /// Decisions: streamed text is imported without its cursor.
    CursorLeftOut,
    /// Runtime: a spool is acknowledged before what it said is durable.
    AckBeforeDurable,
    /// Decisions: an execution is started though the last one may live.
    LaunchedBeside,
    /// Runtime: a command's id is not that of its effect, but new with every try.
    CommandIdNew,
    /// Runtime: who does not answer is taken for dead.
    SilenceIsDeath,
    /// Runtime: an answer is noted and not handed over.
    AnswerKeptBack,
    /// Runtime: each wake makes a supervisor of its own, though the session has one.
    SupervisedTwice,
    /// Fold: a queued prompt stays queued though it was delivered.
    QueueDeliveredTwice,
    /// Fold: an interruption, failure or cancellation does not hold the queue.
    HoldIgnored,
    /// Decisions: no agent is started for a prompt that no agent was given.
    StrandedUnnoticed,

    /// Files: a session is listed in the metadata log again when it is written to.
    ListedTwice,

    // Named tests notice these.
    /// Decisions: a wait that was answered is opened again when its question is repeated.
    SettledWaitAsked,
    /// Decisions: a wait is answered after its time.
    WaitAnsweredLate,
    /// Decisions: open tool calls are not limited on import.
    CallsUnlimited,
    /// Decisions: an agent that continues by its command line counts as one that begins without context.
    CommandLineIsFresh,
    /// Decisions: an executor that does not respond counts as running.
    UnreachableIsRunning,
    /// Decisions: a key that was used for another request is accepted.
    KeyReused,
    /// Decisions: an access token opens after its time.
    AccessExpired,
    /// Decisions: any answer is one that was offered.
    AnswerNotOffered,
    /// Masking: a secret that comes in two pieces passes.
    SecretInPieces,
    /// Spool: a tool call is acted on before it is flushed.
    ToolCallUnflushed,

    /// Store: records are written as they are said.
    WriterUnmasked,
    /// SQLite: the log is not flushed when a batch is committed.
    SqliteUnflushed,
    /// SQLite: a log that was cut by one record grows over what is missing.
    CutByOneUnnoticed,
    /// SQLite: redacted text stays in the pages that it was in.
    RedactedInFreePages,
    /// SQLite: a content opens in the place of another one.
    ContentNotBound,
    /// Files: the key of a new log is not flushed before its first line.
    LogKeyUnflushed,
    /// Stores: a batch is appended though the log has grown meanwhile.
    SeqUnchecked,
    /// Stores: a data folder that others can write to is opened.
    FolderExposed,
    /// Bundles: what was changed on the way is imported.
    BundleUnchecked,

    /// Broadcast: text that was read before a redaction is kept after it.
    RedactedTextKept,
    /// Index: a hint to look at all sessions is lost while changes are gathered.
    LookAgainLost,
    /// Runtime: a revocation that is read before it is applied leaves streams open.
    RevocationMissed,
    /// Runtime: a snapshot of the metadata log that another program made gives access.
    RegistryForged,
    /// Runtime: a worktree is removed with what is nowhere else.
    WorktreeLossIgnored,

    /// agentctl: a batch that ends in text is acknowledged before its flush.
    MixedBatchEarly,
    /// agentctl: a command that is under way is forgotten, and a repeat of it done again.
    CommandForgotten,
    /// agentctl: a server that lost the lease is still obeyed.
    LowerEpochHeard,
    /// agentctl: everybody who reaches the socket is heard.
    SocketUnguarded,
    /// agentctl: people's shells end with the agent.
    ShellsEndWithAgent,
    /// Executor: processes that appear while others are killed survive.
    LateProcessSurvives,
    /// Spool: an end that was flushed and is missing is a shorter spool.
    SpoolEndMissing,

    /// Agents: messages that the log has are imported again when a conversation is loaded.
    ReplayImported,
    /// Agents: any error disowns the conversation's id.
    AnyErrorDisowns,
    /// Built-in agent: it remembers secrets in the clear.
    MemoryUnmasked,

    /// Workspace: a link that leads outside is followed.
    LinkFollowed,
    /// Workspace: git reads the repository's own configuration.
    GitUnsealed,

    /// Server: the WebSocket's method `task.session.open` needs to read only.
    OpenNeedsRead,
    /// Server: the address counts more than `Last-Event-ID`.
    AddressBeatsHeader,
    /// Server: a request whose token lacks the scope is not counted.
    RefusalUncounted,
    /// Server: sockets of shells are not counted.
    ShellSocketUncounted,
    /// Server: what follows the port of a `Host` is not looked at.
    HostUnchecked,
    /// Server: a peer that takes nothing is waited for without end.
    StallUnnoticed,
    /// Client: a line end that comes in two pieces is two line ends.
    LineEndTwice,
    /// Command line: escape sequences of others reach the terminal.
    EscapesPrinted,
}

#[cfg(feature = "planted")]
mod switch {
    use std::cell::Cell;
    use std::sync::OnceLock;

    use super::{Bug, VARIABLE};

    thread_local!(static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) });

    fn of_process() -> Option<Bug> {
        static OF_PROCESS: OnceLock<Option<Bug>> = OnceLock::new();
        *OF_PROCESS.get_or_init(|| {
            let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty())?;
            let bug = Bug::named(&name);
            assert!(bug.is_some(), "{VARIABLE}={name} names no bug");
            bug
        })
    }

    /// Whether this bug is planted, on this thread or in this process.
    pub fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug) || of_process() == Some(bug)
    }

    /// Plants one bug on this thread, or none.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }
}

#[cfg(not(feature = "planted"))]
mod switch {
    /// Whether this bug is planted: never, in this build.
    #[inline]
    pub const fn is(_bug: super::Bug) -> bool {
        false
    }
}

pub use switch::*;
