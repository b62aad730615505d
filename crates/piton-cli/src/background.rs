//! A server in the background, as tmux has one: the first command that needs it starts it.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use piton_api::client::Client;
use piton_core::Code;
use tokio::time::Instant;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::server;

const LOG: &str = "server.log";
const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// How long a server that another process started may take before we start one again.
const OTHER_START_TIMEOUT: Duration = Duration::from_secs(5);

/// The data folder's server; one is started if none runs.
pub(crate) async fn ensure(cx: &Context) -> Result<Client> {
    let data = &cx.settings.data.value;
    if let Some(client) = server::connect(data) {
        return Ok(client);
    }
    let log = data.join(LOG);
    let unwritable = |error: std::io::Error| {
        let message = format!("{} cannot be written", log.display());
        Error::new(Code::StoreReadOnly, message).because(&error)
    };
    // Its owner's alone, from the beginning.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(unwritable)?;
    let out = File::options().create(true).append(true).mode(0o600).open(&log);
    let out = out.map_err(unwritable)?;
    let err = out.try_clone().map_err(unwritable)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--data").arg(data);
    // The settings that count here count there.
    if cx.settings.file_exists {
        command.arg("--config").arg(std::path::absolute(&cx.settings.file)?);
    }
    command.args(["serve", "--unless-running"]);
    if cx.settings.server.listen.value.is_none() {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    // In a group of its own: what ends this terminal's commands does not end the server.
    command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
    let mut start = || {
        command.spawn().map_err(|error| {
            Error::new(Code::ServerUnreachable, "The server could not be started").because(&error)
        })
    };
    let mut child = start()?;
    let until = Instant::now() + START_TIMEOUT;
    // Our server ended because another process's server has the data folder; we use that one.
    let mut other_until = None;
    loop {
        if let Some(client) = server::connect(data) {
            return Ok(client);
        }
        let now = Instant::now();
        let has_failed = match (child.try_wait().ok().flatten(), other_until) {
            (None, _) => false,
            (Some(status), None) => {
                other_until = Some(now + OTHER_START_TIMEOUT);
                !status.success()
            }
            (Some(_), Some(end)) if now < end => false,
            (Some(_), Some(_)) => {
                // The other one never came as far as saying where it is.
                (child, other_until) = (start()?, None);
                false
            }
        };
        if has_failed || now >= until {
            let message = "The server did not start";
            let hint = format!("{} says why.", log.display());
            return Err(Error::new(Code::ServerUnreachable, message).with_hint(hint));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
