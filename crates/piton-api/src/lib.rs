//! The wire contract of Piton's API: what is sent and what is answered, as types that server, command
//! line and other programs share. Types only; it decides nothing and knows no store.

pub mod access;
pub mod agent;
pub mod agent_view;
#[cfg(feature = "client")]
pub mod client;
pub mod enums;
pub mod event;
pub mod graph;
pub mod permission;
pub mod problem;
pub mod queue;
pub mod record;
pub mod rewind;
pub mod server;
pub mod session;
pub mod socket_event;
pub mod status;
pub mod store;
pub mod task;
pub mod wait;
pub mod workspace;
pub mod worktree;

pub use enums::WireEnum;
pub use problem::Problem;
pub use status::{SessionStatus, SessionSummary};
