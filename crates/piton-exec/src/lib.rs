//! Where agents run. [`protocol`] is what a server and an agentctl say to each other.

pub mod protocol;
