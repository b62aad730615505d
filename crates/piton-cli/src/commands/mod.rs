//! The commands: a file for each, in folders that mirror the subcommands. A new one is a file with
//! `Args` and `run`, a line in its parent's enum, and a line in its `match`.

pub(crate) mod agent;
pub(crate) mod agentctl;
pub(crate) mod agents;
pub(crate) mod chat;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod convert;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod open;
pub(crate) mod permissions;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod sessions;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod tasks;
pub(crate) mod tasks_change;
pub(crate) mod tokens;
pub(crate) mod top;
pub(crate) mod verify;

use clap::Subcommand;

use crate::call::Call;
use crate::cli::{Cli, Global};
use crate::config::Settings;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::server;
use crate::ui::Ui;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Chat(chat::ChatArgs),
    Attach(chat::AttachArgs),
    Top(top::Args),
    Run(run::Args),
    Mcp(mcp::Args),
    Serve(serve::Args),
    Status(status::Args),
    Stop(stop::Args),
    Reload(reload::Args),
    Open(open::Args),
    Doctor(doctor::Args),
    /// Run the server as a service that starts when you log in
    #[command(subcommand)]
    Service(service::Command),
    Explain(explain::Args),
    /// List, probe and check agents; log in to them
    #[command(subcommand)]
    Agents(agents::Command),
    /// Create, list and change tasks
    #[command(subcommand)]
    Tasks(tasks::Command),
    /// Create, list and revoke access tokens for the server
    #[command(subcommand)]
    Tokens(tokens::Command),
    /// List, show, answer, resume, stop and delete sessions
    #[command(subcommand, visible_alias = "s")]
    Sessions(sessions::Command),
    /// List and test the rules that answer permission requests
    #[command(subcommand, after_help = permissions::EXAMPLES)]
    Permissions(permissions::Command),
    /// Verify that no log was changed or cut
    Verify(verify::Args),
    Convert(convert::Args),
    /// Kill an agent in a demonstration and watch its session resume; no API key, no network
    Demo(demo::Args),
    #[command(hide = true)]
    DemoWorker(demo::worker::Args),
    #[command(hide = true, subcommand)]
    Agent(agent::Command),
    #[command(hide = true)]
    Agentctl(agentctl::Args),
    /// Show and check the settings
    #[command(subcommand)]
    Config(config::Command),
    #[command(hide = true)]
    Complete(complete::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print a manual page
    Man(man::Args),
}

pub(crate) fn run(ui: &mut Ui, cli: Cli) -> Result<Exit> {
    #[cfg(debug_assertions)]
    assert!(std::env::var_os("PITON_TEST_PANIC").is_none(), "a test asked for this");
    let Some(command) = cli.command else {
        let cx = context(ui, &cli.global)?;
        return block_on(top::run(ui, &cx, top::Args {}));
    };
    match command {
        Command::Completions(_) | Command::Man(_) if ui.json => {
            Err(Error::usage("This prints a script or a page, not data: leave out --json"))
        }
        Command::Completions(args) => completions::run(ui, &args),
        Command::Man(args) => man::run(ui, &args),
        Command::Explain(args) => explain::run(ui, &args),
        // The demo has its own data folder and reads no settings.
        Command::Demo(args) => block_on(demo::run(ui, args)),
        Command::DemoWorker(args) => block_on(demo::worker::run(args)),
        // They speak another language on their input and output, and know no settings.
        Command::Agent(command) => block_on(agent::run(command)),
        Command::Agentctl(args) => agentctl::run(&args),
        Command::Config(command) => {
            let cx = context_of_any_folder(ui, &cli.global)?;
            config::run(ui, &cx, &command)
        }
        Command::Chat(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(chat::chat(ui, &cx, args))
        }
        Command::Attach(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(chat::attach(ui, &cx, args))
        }
        Command::Top(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(top::run(ui, &cx, args))
        }
        Command::Mcp(args) => {
            let cx = context(ui, &cli.global)?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(mcp::run(cx, args))
        }
        Command::Run(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(run::run(ui, &cx, args))
        }
        Command::Serve(args) => {
            let cx = context(ui, &cli.global)?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(serve::run(ui, &cx, &cli.global, args))
        }
        Command::Status(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(status::run(ui, &cx, args))
        }
        Command::Stop(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(stop::run(ui, &cx, args))
        }
        Command::Reload(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(reload::run(ui, &cx, args))
        }
        Command::Open(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(open::run(ui, &cx, args))
        }
        Command::Doctor(args) => {
            let cx = context_of_any_folder(ui, &cli.global)?;
            block_on(doctor::run(ui, &cx, args))
        }
        Command::Service(command) => service(ui, &cli.global, command),
        Command::Complete(args) => complete(ui, &cli.global, args),
        Command::Agents(command) => {
            let cx = context(ui, &cli.global)?;
            block_on(agents::run(ui, &cx, command))
        }
        Command::Tasks(command) => {
            let cx = context(ui, &cli.global)?;
            block_on(tasks::run(ui, &cx, command))
        }
        Command::Permissions(command) => {
            let cx = context_of_any_folder(ui, &cli.global)?;
            permissions::run(ui, &cx, command)
        }
        Command::Tokens(command) => {
            let cx = context(ui, &cli.global)?;
            block_on(tokens::run(ui, &cx, command))
        }
        Command::Sessions(command) => {
            let cx = context(ui, &cli.global)?;
            block_on(sessions::run(ui, &cx, command))
        }
        Command::Verify(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(verify::run(ui, &cx, args))
        }
        Command::Convert(args) => {
            let cx = context(ui, &cli.global)?;
            block_on(convert::run(ui, &cx, args))
        }
    }
}

fn service(ui: &mut Ui, global: &Global, command: service::Command) -> Result<Exit> {
    let cx = context(ui, global)?;
    service::run(ui, &cx, command)
}

/// A shell that completes shows no errors.
fn complete(ui: &mut Ui, global: &Global, args: complete::Args) -> Result<Exit> {
    match context_of_any_folder(ui, global) {
        Ok(cx) => block_on(complete::run(ui, &cx, args)),
        Err(_) => Ok(Exit::Good),
    }
}

/// For a command that executes or believes what lies in the data folder.
fn context(ui: &mut Ui, global: &Global) -> Result<Context> {
    let cx = context_of_any_folder(ui, global)?;
    piton_store::refuse_exposed(&cx.settings.data.value)?;
    warn_of_other_version(ui, &cx)?;
    Ok(cx)
}

/// A server that was not restarted after an upgrade may not know what this program asks for.
fn warn_of_other_version(ui: &mut Ui, cx: &Context) -> Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    match server::find(&cx.settings.data.value) {
        Some(info) if info.version != own && !ui.json => ui.warn(&format!(
            "The server is Piton {}, this program is {own}. Restart the server: `piton stop` ends it, \
             and the next command starts this version; agents keep running.",
            info.version
        )),
        _ => Ok(()),
    }
}

/// For a command that says what is wrong with the data folder, or does not look at it.
fn context_of_any_folder(ui: &mut Ui, global: &Global) -> Result<Context> {
    let settings = Settings::load(global)?;
    ui.set_color(settings.color.value);
    ui.call = Call::of(&settings);
    Ok(Context::new(settings))
}

fn block_on(command: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}
