//! For tests only. [`sim`] is a world that breaks on purpose, from one seed; [`crash`] is the real
//! one: processes that are killed, system calls that are watched and made to fail.

pub mod crash;
pub mod drive;
pub mod planted;
pub mod sim;
pub mod tools;
