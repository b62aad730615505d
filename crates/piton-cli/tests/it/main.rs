//! `piton` as people start it, as one program: what the commands print, and the server with real
//! agents.

mod cli;
mod server;
