//! Where agents run. [`protocol`] is what a server and an agentctl say to each other, [`spool`]
//! is what agentctl leaves behind.

pub mod client;
pub mod protocol;
pub mod spool;
