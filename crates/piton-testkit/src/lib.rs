//! For tests only. [`sim`] is a world that breaks on purpose, from one seed.

pub mod sim;
