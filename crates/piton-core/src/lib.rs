//! What a session knows and what follows from it.
//!
//! Everything here is a function of values: time, ids, secrets and the set of dead boots come in
//! as arguments; no I/O, no clock, no randomness, no async. What is hard to test elsewhere belongs
//! here.

pub mod access;
pub mod agent_view;
pub mod canonical;
pub mod chain;
pub mod code;
pub mod command_line;
pub mod content;
pub mod conversation;
pub mod decide;
pub mod event;
pub mod fold;
pub mod graph;
pub mod history;
pub mod id;
pub mod interruption;
pub mod interruption_summary;
pub mod limits;
pub mod mask;
pub mod mcp;
pub mod overview;
pub mod permission;
pub mod permissions;
pub mod planted;
pub mod reason;
pub mod record;
pub mod redact;
pub mod registry;
pub mod request;
pub mod resume;
pub mod roster;
pub mod spool;
pub mod state;
pub mod status;
pub mod supervise;
pub mod task;
pub mod time;
pub mod title;
pub mod token;
pub mod tool_text;
pub mod trail;
pub mod transcript;
pub mod turns;
pub mod undelivered;
pub mod worktree;

pub use code::{AnyCode, Code};
pub use content::PromptContent;
pub use event::{Event, Seq};
pub use reason::Reason;
pub use record::{Content, NewRecord, Record};
pub use state::State;
pub use status::Status;
pub use time::Timestamp;
