//! `piton doctor` for those who ask the server: run as a process of its own, so that it sees what a user
//! would see, and cannot hold the server up.

use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use piton_api::server::Examination;
use piton_server::Doctor;
use tokio::process::Command;

/// How long it may take.
const TIME_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Examiner {
    program: PathBuf,
    data: PathBuf,
}

impl Examiner {
    pub(crate) fn new(program: PathBuf, data: PathBuf) -> Self {
        Self { program, data }
    }
}

impl Doctor for Examiner {
    fn examine(&self) -> Pin<Box<dyn Future<Output = Result<Examination, String>> + Send>> {
        let mut command = Command::new(&self.program);
        command.arg("--data").arg(&self.data).args(["--json", "doctor"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.kill_on_drop(true);
        Box::pin(async move {
            let ended = tokio::time::timeout(TIME_MAX, command.output()).await;
            let output = ended.map_err(|late| late.to_string())?;
            let output = output.map_err(|error| error.to_string())?;
            serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
        })
    }
}
