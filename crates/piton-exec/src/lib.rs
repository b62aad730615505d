//! Where agents run.
//!
//! - [`protocol`]: what a server and an agentctl say to each other; [`client`] is the server's side
//! - [`spool`]: what agentctl leaves behind
//! - [`executor`]: how an agentctl is launched, found and ended; [`standalone`] does it on this
//!   machine, and `conformance` says what every executor must do
//! - [`programs`]: where programs are; [`environment`]: what they do not inherit
//! - [`leftovers`]: ends the processes that an execution left running, without its agentctl

pub mod client;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod environment;
pub mod executor;
pub mod leftovers;
mod private;
pub mod programs;
pub mod protocol;
pub mod spool;
pub mod standalone;
