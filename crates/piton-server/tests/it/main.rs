//! The server in this process: its router over a memory store and a scripted executor, on loopback.
#![expect(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "it has more than these tests use")]
#[path = "../../../piton-runtime/tests/it/engine/agentctl.rs"]
mod agentctl;

mod abandon;
mod agent;
mod agent_sessions;
mod bad_input;
mod bootstrap;
mod description;
mod graphs;
mod login;
mod mcp;
mod problems;
mod same_methods;
mod scopes;
mod status;
mod store;
mod tasks;
mod web;
mod world;
