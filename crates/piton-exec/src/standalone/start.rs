//! Starting an agentctl that outlives us.

use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::paths::ExecutionFolder;
use super::{ANSWER_WAIT, POLL, Standalone, answers, program};
use crate::environment;
use crate::executor::{Error, LaunchSpec, Result};
use crate::protocol::Launch;

/// `systemd-run`, if there is a systemd that it can talk to.
pub(super) fn scope_program() -> Option<PathBuf> {
    if !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("systemd-run")).find(|p| p.is_file())
}

impl Standalone {
    pub(super) async fn launch_now(&self, spec: LaunchSpec) -> Result<()> {
        let place = self.place(&spec.execution);
        place.make(&spec.session)?;
        let socket = place.choose_socket(&self.temp)?;
        let program = program::prepare(&self.data, &self.program).await?;
        let ready_timeout = spec.ready_timeout;
        let launch = Launch {
            session_id: spec.session,
            execution_id: spec.execution,
            epoch: spec.epoch,
            folder: place.folder.clone(),
            socket,
            workspace: spec.workspace,
            secret: hex::encode(spec.secret),
            mask_values: spec.mask_values,
            mask_keys: spec.mask_keys,
            limits: spec.limits,
            protocol_max: spec.protocol_max.or(self.protocol_max),
        };
        let mut started = self.start_in_scope(&place, &program, &launch, ready_timeout).await;
        if matches!(&started, Err(Error::Program { source, .. }) if source.kind() == NotFound) {
            // A server of another version has just tidied, and nothing ran from this copy yet.
            let program = program::prepare(&self.data, &self.program).await?;
            started = self.start_in_scope(&place, &program, &launch, ready_timeout).await;
        }
        if started.is_err() {
            // What began and does not answer must not be left behind.
            self.stop_now(&place.execution).await?;
        }
        started
    }

    async fn start_in_scope(
        &self,
        place: &ExecutionFolder,
        program: &Path,
        launch: &Launch,
        ready_timeout: Duration,
    ) -> Result<()> {
        if let Some(scope) = self.scope_program.as_deref() {
            let started = self.start(place, program, Some(scope), launch, ready_timeout).await;
            // Without a session bus there is a systemd that puts nothing into a scope.
            let never_began = matches!(started, Err(Error::Ended { .. })) && !place.has_begun();
            if !never_began {
                return started;
            }
        }
        self.start(place, program, None, launch, ready_timeout).await
    }

    async fn start(
        &self,
        place: &ExecutionFolder,
        program: &Path,
        scope: Option<&Path>,
        launch: &Launch,
        ready_timeout: Duration,
    ) -> Result<()> {
        let failed = |source| Error::Program { path: program.to_owned(), source };
        let mut child = self.command(program, scope).spawn().map_err(failed)?;
        let text = serde_json::to_vec(launch).map_err(|e| failed(e.into()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that ends before it has read everything says more by how it ended.
            let _ = stdin.write_all(&text).await;
        }
        let deadline = Instant::now() + ready_timeout;
        let mut pause = Duration::from_millis(2);
        while !(place.is_bound() && answers(place, ANSWER_WAIT).await) {
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Err(ended(place, status));
            }
            if Instant::now() >= deadline {
                reap(child);
                return Err(Error::Silent { seconds: ready_timeout.as_secs(), said: place.said() });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(10 * POLL);
        }
        reap(child);
        match place.located()? {
            Some(_) => Ok(()),
            None => Err(Error::Exists { execution: place.execution.clone() }),
        }
    }

    fn command(&self, program: &Path, scope: Option<&Path>) -> Command {
        let mut command = match scope {
            Some(scope) => {
                let mut command = Command::new(scope);
                if !rustix::process::geteuid().is_root() {
                    command.arg("--user");
                }
                command.args(["--scope", "--quiet", "--collect", "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(&self.args);
        for name in environment::private_variables() {
            command.env_remove(name);
        }
        // The server's own folder may be removed or unmounted.
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

fn ended(place: &ExecutionFolder, status: ExitStatus) -> Error {
    Error::Ended { status: status.to_string(), said: place.said() }
}

/// For as long as we live, its end is ours to ask for.
fn reap(mut child: Child) {
    tokio::spawn(async move {
        let _ = child.wait().await;
    });
}
