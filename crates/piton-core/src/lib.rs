//! What a session knows and what follows from it.
//!
//! Everything here is a function of values: time, ids, secrets and the set of dead boots come in
//! as arguments; no I/O, no clock, no randomness, no async. What is hard to test elsewhere belongs
//! here.

// Records, and what they add up to: begin with `record`, `event` and `fold`.
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

// What readers are shown: derived whenever it is asked for, stored nowhere as truth.
pub mod conversation;
pub mod overview;
pub mod reason;
pub mod status;
pub mod status_cursor;
pub mod task;
pub mod title;
pub mod tool_text;
pub mod transcript;

// What an agent is given, and what it reports.
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
