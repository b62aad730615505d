//! The session engine: complete without HTTP. [`Engine`] has one method for each thing that a client
//! can ask; server and command line call it, and nothing else.
//!
//! Below it is the session service ([`Service`], held by callers as a [`Handle`]). The coordinator
//! brings commands to sessions, a session decides, makes durable and then acts, a session's
//! supervisor owns its execution, the sweeper settles what deadlines left, the token service answers
//! for those without a login.
//!
//! A process that runs no sessions reads them with a [`View`], and changes a session that no
//! process runs with an [`OfflineWriter`].

pub mod broadcast;
mod conversation;
mod coordinator;
mod counts;
mod engine;
mod env;
mod error;
mod executions;
mod graphs;
mod interfaces;
mod messages;
mod metadata;
mod metadata_snapshot;
mod offline;
mod permission_rules;
mod redaction;
mod removal;
mod retention;
mod service;
mod session;
mod settings;
mod supervisor;
mod sweeper;
mod titles;
mod tokens;
mod view;
mod worktrees;

pub use conversation::{Abandoned, ConversationPage};
pub use counts::{Counts, RunActivity};
pub use engine::{
    AffectedQueue, AffectedRun, AgentCatalog, AnsweredWait, ArchiveTarget, Caller, ChangedTask,
    CheckpointQuery, CommittedWork, Contact, CreatedSession, CreatedTask, DefaultAgent, Deleted,
    Engine, EngineOptions, FileChange, ForkSpec, Fulfilled, GraphResume, GraphRunSpec, GraphSource,
    IssuedResumeToken, IssuedToken, MergedWork, NewAccessToken, OpenWaits, OpenedSession,
    OpenedShell, Prompted, Pruned, PushedWork, QueueReport, QueuedPromptReport, RedactionReport,
    ResumeSpec, ResumedGraph, RewindReport, RewindSpec, RewoundConversation, RewoundFiles,
    RunningEngine, SESSION_PLACEHOLDER, SessionFilter, SessionReport, SessionSpec, TEST_AGENT,
    TaskPage, TaskReport, VerifiedPage, check_terminal_side,
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
