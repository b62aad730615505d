//! Where agents run. [`protocol`] is what a server and an agentctl say to each other;
//! [`leftovers`] ends what an execution left running when nobody is there to be asked.

pub mod leftovers;
pub mod protocol;
