//! Real processes that are killed. [`writer`] is the program `piton-crash-writer`: the real store,
//! boot locks and service in a process of their own, which says line by line what was acknowledged
//! to it. [`parent`] starts, reads and kills it; [`audit`] compares what it said with what the
//! logs say; [`trace`] reads what strace saw of it.

pub mod audit;
mod lines;
pub mod parent;
mod serve;
mod store;
pub mod trace;
mod work;
pub mod writer;

pub use lines::{Ack, Line, filler, mark};
pub use store::Kind;
