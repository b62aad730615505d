//! A server in the background, as tmux has one: started by whoever needs it first.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use piton_core::Code;
use tokio::time::Instant;

use crate::client::Client;
use crate::context::Context;
use crate::error::{Error, Result};

const LOG: &str = "server.log";
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// The data folder's server; one is started if none runs.
pub(crate) async fn ensure(cx: &Context) -> Result<Client> {
    let data = &cx.settings.data.value;
    if let Some(client) = Client::find(data) {
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
    command.arg("serve");
    if cx.settings.server.listen.value.is_none() {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    // In a group of its own: what ends this terminal's commands does not end the server.
    command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
    let mut child = command.spawn().map_err(|error| {
        Error::new(Code::ServerUnreachable, "The server could not be started").because(&error)
    })?;
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(client) = Client::find(data) {
            return Ok(client);
        }
        let ended = child.try_wait().ok().flatten().is_some();
        // Somebody else's may have been faster than ours.
        if (ended && Client::find(data).is_none()) || Instant::now() >= until {
            let message = "The server did not start";
            let hint = format!("{} says why.", log.display());
            return Err(Error::new(Code::ServerUnreachable, message).with_hint(hint));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
