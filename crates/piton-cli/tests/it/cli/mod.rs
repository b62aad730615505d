//! What people and scripts see: whole outputs of every command, in a world of its own with fixed ids,
//! times and widths.
#![expect(clippy::unwrap_used, reason = "test helpers")]

mod agents;
mod bundles;
mod cleaning;
mod completions;
mod config;
mod convert;
mod demo;
mod errors;
mod finding;
mod fixture;
mod graphs;
mod help;
mod home;
mod mcp;
mod reading;
mod service;
pub(crate) mod verify;
mod writing;
