//! The rules of sessions: records, the fold that computes a session's state from them, and the
//! decisions that turn a command into new records.
//!
//! Everything here is a function of values: time, ids, secrets and the set of dead boots (lives of
//! server processes that have ended) are arguments; no I/O, no clock, no randomness, no async. A rule
//! that can be written as such a function belongs here, where it can be tested without a disk or an
//! agent.

// Records, and the states that are computed from them: begin with `record`, `event` and `fold`.
pub mod canonical;
pub mod chain;
pub mod event;
pub mod expected_sessions;
pub mod fold;
pub mod graph;
pub mod record;
pub mod registry;
pub mod spool;
pub mod state;
pub mod turns;

// Decisions: a state and a command become records, or a refusal.
pub mod decide;
pub mod redact;
pub mod request;
pub mod resume;
pub mod supervise;
pub mod undelivered;

// What readers are shown: computed from a state for each request; a stored copy is a cache.
pub mod conversation;
pub mod overview;
pub mod reason;
pub mod status;
pub mod status_cursor;
pub mod task;
pub mod title;
pub mod tool_text;
pub mod transcript;

// What an agent is sent, and what it reports.
pub mod agent_view;
pub mod command_line;
pub mod content;
pub mod history;
pub mod interruption;
pub mod interruption_summary;
pub mod mcp;
pub mod permission;

// Access and secrets.
pub mod access;
pub mod file_permissions;
pub mod mask;
pub mod token;

// Values that everything uses.
pub mod code;
pub mod id;
pub mod limits;
pub mod time;
pub mod workspace_identity;
pub mod worktree;

// For tests alone: bugs that the tests have to find. Without the feature `planted` they are not compiled.
pub mod planted;

pub use code::{AnyCode, Code};
pub use content::PromptContent;
pub use event::{Event, Seq};
pub use reason::Reason;
pub use record::{Content, NewRecord, Record};
pub use state::State;
pub use status::Status;
pub use time::Timestamp;
