//! The session engine: complete without HTTP. [`Engine`] has one method for each thing that a client
//! can ask; the server and the command line change sessions through it alone.
//!
//! Below it is the session service ([`Service`]; callers hold a [`Handle`]):
//!
//! - the coordinator passes each command to the task of its session (`session`), which decides, makes
//!   the records durable, and only then acts;
//! - a session's supervisor finds, starts, follows and ends its execution: one life of an agentctl, the
//!   process that owns an agent;
//! - the sweeper acts without a caller: when a deadline passes, or another boot (a server process's life)
//!   ends;
//! - the token service answers a wait for a caller who presents a resume token instead of a login.
//!
//! A process that runs no sessions reads them with a [`View`], and changes a session that no
//! process runs with an [`OfflineWriter`].

// What clients can ask: begin with `engine`.
mod engine;
mod error;
mod settings;

// One session: its task, its agent, its deadlines.
mod coordinator;
mod executions;
mod service;
mod session;
mod supervisor;
mod sweeper;

// Parts of a session's work.
mod graphs;
mod messages;
mod permission_rules;
mod redaction;
mod titles;
mod tokens;
mod worktrees;

// What belongs to no session, and sessions that come and go.
mod metadata;
mod metadata_snapshot;
mod removal;
mod retention;

// Reading, and writing without a server.
pub mod broadcast;
mod conversation;
mod counts;
mod offline;
mod view;

// What comes from outside: time, ids, executors, the store.
mod env;
mod interfaces;

pub use conversation::{Abandoned, ConversationPage};
pub use counts::{Counts, RunActivity};
pub use engine::{
    AffectedQueue, AffectedRun, AgentCatalog, AnsweredWait, ArchiveTarget, Caller, ChangedTask,
    CheckpointQuery, CommittedWork, Contact, CreatedSession, CreatedTask, DefaultAgent, Deleted,
    Engine, EngineOptions, FileChange, ForkSpec, Fulfilled, GraphResume, GraphRunSpec, GraphSource,
    IssuedResumeToken, IssuedToken, MergedWork, NewAccessToken, OpenWaits, OpenedSession,
    OpenedShell, Prompted, Pruned, PushedWork, QueueReport, QueuedPromptReport, RedactionReport,
    ResumeSpec, ResumedGraph, RewindReport, RewindSpec, RewoundConversation, RewoundFiles,
    RunningEngine, SESSION_PLACEHOLDER, SessionFilter, SessionReport, SessionSpec, SkippedPath,
    TEST_AGENT, TaskPage, TaskReport, VerifiedPage, check_terminal_side,
};
pub use error::{Error, Result, StartFailure};
pub use executions::Executions;
pub use interfaces::{
    Clock, Driver, EffectJob, Executors, Ids, NoDriver, NoExecutors, NoSessionFiles,
    NoTurnSnapshots, SessionFiles, SystemClock, TurnSnapshots,
};
pub use metadata::{MetadataAck, MetadataLog};
pub use offline::OfflineWriter;
pub use permission_rules::PermissionRules;
pub use redaction::{Pattern, PatternInvalid, Redacted};
pub use removal::{Archived, Imported};
pub use retention::{DueRemoval, Retention, due};
pub use service::{Handle, NewSession, OpenedWait, Options, Question, Service};
pub use session::Ack;
pub use settings::{Settings, SnapshotSettings};
pub use supervisor::{LaunchConfig, LaunchConfigs, Outcome, Recovered, StartError, Supervisors};
pub use tokens::Answered;
pub use view::{Listed, View};
pub use worktrees::{CleanupResult, WorktreeRemoval, Worktrees};
