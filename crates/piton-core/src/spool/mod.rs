//! What agentctl writes down while no server may be listening. For one execution the spool is the
//! log's not yet imported tail: what its entries say is true before the log says it.
//!
//! Entries speak Piton's own words; what the agent said in its own is kept beside them in `raw`,
//! which no decision reads.

mod entry;
mod sessions;

pub use entry::{
    AgentInfo, AuthMethod, Channel, ENTRY_VERSION, Ended, Entry, Fact, Note, OpenedAs, Pos,
    REFUSAL, SessionCapabilities, Spool,
};
pub use sessions::{AgentSessionInfo, AgentSessions};
