//! `piton agents …`: which agents there are, and whether they work.
//!
//! [`contact`] starts an agent and asks it who it is; the commands are a file each.

mod contact;
mod doctor;
mod list;
mod login;
mod probe;
mod sessions;

use clap::Subcommand;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Probe(probe::Args),
    Doctor(doctor::Args),
    Login(login::Args),
    Sessions(sessions::Args),
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    match command {
        Command::List(args) => list::run(ui, cx, &args),
        Command::Probe(args) => probe::run(ui, cx, args).await,
        Command::Doctor(args) => doctor::run(ui, cx, args).await,
        Command::Login(args) => login::run(ui, cx, args).await,
        Command::Sessions(args) => sessions::run(ui, cx, args).await,
    }
}
