//! `piton service …`: the server as a service of the user's system: systemd on Linux, launchd on macOS.

mod unit;

use std::fs;
use std::path::PathBuf;
use std::process::Command as Process;

use clap::Subcommand;
use piton_core::Code;
use serde_json::json;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::server;
use crate::ui::{Tone, Ui};
use unit::{Manager, Service};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Install(Install),
    Uninstall(Uninstall),
    Status(Status),
}

const INSTALL_EXAMPLES: &str = "\
Examples:
  piton service install --dry-run      Print the file and the commands; change nothing
  piton service install
  piton --data /srv/piton service install

Agents outlive the service: stopping or restarting it ends the server alone.

JSON: one object: manager (systemd or launchd), file, dry_run, and with --dry-run text.";

/// Install the server as a service that starts when you log in
///
/// Writes a systemd user unit, or a launchd agent on macOS, and starts it; an installed service is
/// updated and restarted. The service uses this program, this data folder and this config file.
#[derive(Debug, clap::Args)]
#[command(after_help = INSTALL_EXAMPLES)]
pub(crate) struct Install {
    /// Print what would be written and run; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Write for this service manager [default: the one of this system]
    #[arg(long, value_name = "MANAGER", requires = "dry_run")]
    manager: Option<Manager>,
}

/// Stop the service and remove its file; sessions and agents stay
#[derive(Debug, clap::Args)]
#[command(after_help = "JSON: one object: manager, file, removed.")]
pub(crate) struct Uninstall {
    /// Print what would be removed and run; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Show whether the service is installed and running
///
/// Exits with 1 if it is not installed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "JSON: one object: manager, file, installed, active, server (the address, or null)."
)]
pub(crate) struct Status {}

pub(crate) fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    match command {
        Command::Install(args) => install(ui, cx, &args),
        Command::Uninstall(args) => uninstall(ui, &args),
        Command::Status(_) => status(ui, cx),
    }
}

/// A file of the service manager cannot be written or removed.
fn unwritable(path: &std::path::Path, error: &std::io::Error) -> Error {
    let message = format!("{} cannot be changed", path.display());
    Error::new(Code::FilePermissions, message)
        .because(error)
        .with_hint("Make its folder writable; `piton service install --dry-run` prints the file.")
}

fn file_of(manager: Manager) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.filter(|folder| folder.is_absolute());
    manager.file(home.as_deref(), config.as_deref()).ok_or_else(|| {
        Error::usage("HOME is not set, so there is no folder for the service's file")
    })
}

fn install(ui: &mut Ui, cx: &Context, args: &Install) -> Result<Exit> {
    let manager = args.manager.unwrap_or(Manager::HERE);
    let file = file_of(manager)?;
    let settings = &cx.settings;
    let service = Service {
        program: std::env::current_exe()?,
        data: std::path::absolute(&settings.data.value)?,
        config: settings.file_exists.then(|| std::path::absolute(&settings.file)).transpose()?,
        path: std::env::var("PATH").ok(),
    };
    let text = service.text(manager).map_err(|why| Error::usage(&why))?;
    let is_installed = file.exists();
    if args.dry_run {
        let commands = manager.start(&file, is_installed);
        if ui.json {
            ui.json_line(&json!({
                "manager": manager.name(), "file": file, "dry_run": true, "text": text,
            }))?;
            return Ok(Exit::Good);
        }
        ui.line(ui.paint(Tone::Title, &format!("# {}", file.display())))?;
        ui.text(&text)?;
        for command in &commands {
            ui.note(&format!("Would run: {}", command.join(" ")))?;
        }
        return Ok(Exit::Good);
    }
    // Its service would find the data folder taken.
    if let Some(info) = server::find(&settings.data.value).filter(|_| !is_installed) {
        let message = format!("A server runs on this data folder already (pid {})", info.pid);
        return Err(Error::new(Code::ServerRunning, message).with_hint(
            "Stop it with `piton stop`: agents keep running. Then install the service.",
        ));
    }
    require_manager(manager)?;
    let folder = file.parent().unwrap_or(&file);
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
    fs::write(&file, &text).map_err(|error| unwritable(&file, &error))?;
    // Asked of launchd itself: it may have loaded a file that was removed since.
    let is_loaded = manager == Manager::Launchd && execute(&manager.query()).is_ok();
    for command in &manager.start(&file, is_loaded) {
        execute(command)?;
    }
    if ui.json {
        ui.json_line(&json!({"manager": manager.name(), "file": file, "dry_run": false}))?;
        return Ok(Exit::Good);
    }
    let how = if is_installed { "updated and restarted" } else { "installed and started" };
    ui.line(format_args!("The service is {how}: {}", file.display()))?;
    if manager == Manager::Systemd {
        ui.note("It stops when you log out. To keep it running: loginctl enable-linger")?;
    }
    Ok(Exit::Good)
}

fn uninstall(ui: &mut Ui, args: &Uninstall) -> Result<Exit> {
    let manager = Manager::HERE;
    let file = file_of(manager)?;
    let is_installed = file.exists();
    if args.dry_run {
        for command in manager.stop() {
            ui.note(&format!("Would run: {}", command.join(" ")))?;
        }
        ui.note(&format!("Would remove {}", file.display()))?;
        return Ok(Exit::Good);
    }
    if is_installed {
        // A service that does not run, or that the manager does not know, is stopped.
        for command in manager.stop() {
            if let Err(error) = execute(&command) {
                ui.warn(error.message())?;
            }
        }
        fs::remove_file(&file).map_err(|error| unwritable(&file, &error))?;
        for command in manager.forget() {
            if let Err(error) = execute(&command) {
                ui.warn(error.message())?;
            }
        }
    }
    if ui.json {
        ui.json_line(&json!({"manager": manager.name(), "file": file, "removed": is_installed}))?;
    } else if is_installed {
        ui.line(format_args!("The service is stopped and {} is removed.", file.display()))?;
    } else {
        ui.line("The service is not installed.")?;
    }
    Ok(Exit::Good)
}

fn status(ui: &mut Ui, cx: &Context) -> Result<Exit> {
    let manager = Manager::HERE;
    let file = file_of(manager)?;
    let is_installed = file.exists();
    let active = is_installed.then(|| is_active(manager)).flatten();
    let address = server::find(&cx.settings.data.value).map(|info| info.address);
    if ui.json {
        ui.json_line(&json!({
            "manager": manager.name(), "file": file, "installed": is_installed, "active": active,
            "server": address,
        }))?;
    } else if is_installed {
        let state = match active {
            Some(true) => ui.paint(Tone::Good, "running"),
            Some(false) => ui.paint(Tone::Attention, "not running"),
            None => format!("not known: {} does not answer", manager.name()),
        };
        ui.line(format_args!("The service is installed: {}", file.display()))?;
        ui.line(format_args!("{}: {state}", manager.name()))?;
        if let Some(address) = address {
            ui.line(format_args!("The server listens on {address}"))?;
        }
    } else {
        ui.line("The service is not installed.")?;
        ui.note("`piton service install` installs it; `--dry-run` shows how.")?;
    }
    Ok(if is_installed { Exit::Good } else { Exit::Failed })
}

/// Whether the manager says that the service runs; `None` if it says nothing.
fn is_active(manager: Manager) -> Option<bool> {
    let command = manager.query();
    let (program, arguments) = command.split_first()?;
    let output = Process::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match manager {
        Manager::Systemd => match text.trim() {
            "active" | "activating" | "reloading" => Some(true),
            "inactive" | "failed" | "deactivating" => Some(false),
            _ => None,
        },
        Manager::Launchd => Some(output.status.success() && text.contains("state = running")),
    }
}

/// Refuses before anything is written where the manager does not answer.
fn require_manager(manager: Manager) -> Result<()> {
    let command = manager.probe();
    execute(&command).map_err(|error| {
        Error::usage(&format!("{} does not answer here: {}", manager.name(), error.message()))
            .with_hint("`piton service install --dry-run` prints the file for another manager.")
    })
}

fn execute(command: &[String]) -> Result<()> {
    let line = command.join(" ");
    let failed =
        |why: String| Error::new(Code::ServiceManagerFailed, format!("`{line}` failed: {why}"));
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    match Process::new(program).args(arguments).output() {
        Err(error) => Err(failed(error.to_string())),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(failed(if said.is_empty() { output.status.to_string() } else { said }))
        }
    }
}
