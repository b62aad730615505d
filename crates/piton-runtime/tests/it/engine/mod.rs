//! The session engine without a server: what HTTP, WebSocket and the command line call.
#![expect(clippy::unwrap_used, reason = "test helpers")]

mod agentctl;
mod features;
mod methods;
mod offline;
mod outcomes;
mod recovery;
mod world;
