//! Serves what an agent asks of its client: files and terminals, inside the workspace.

use std::error::Error;
use std::path::PathBuf;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use piton_agent::{HostError, TerminalExit, TerminalOutput, TerminalSpec, ToolHost};

use crate::terminals::{self, Terminals};
use crate::workspace::{self, Workspace};

/// Files and terminals of one workspace. Clones are the same host.
#[derive(Clone, Debug)]
pub struct Host {
    workspace: Workspace,
    terminals: Terminals,
}

impl Host {
    pub fn new(workspace: &Workspace) -> Self {
        Self { workspace: workspace.clone(), terminals: Terminals::new(workspace) }
    }

    /// Ends and forgets all terminals, as when the agent has ended.
    pub async fn release_all(&self) -> Result<(), terminals::Error> {
        self.terminals.release_all().await
    }

    async fn read(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> Result<String, workspace::Error> {
        let text = self.workspace.read_text(&path).await?;
        if line.is_none() && limit.is_none() {
            return Ok(text);
        }
        let skipped = line.unwrap_or(1).saturating_sub(1) as usize;
        let wanted = limit.map_or(usize::MAX, |limit| limit as usize);
        Ok(text.split_inclusive('\n').skip(skipped).take(wanted).collect())
    }
}

fn of_workspace(error: &workspace::Error) -> HostError {
    HostError { code: error.code(), message: with_causes(error) }
}

fn of_terminals(error: &terminals::Error) -> HostError {
    HostError { code: error.code(), message: with_causes(error) }
}

/// The agent gets one line: what failed, and why.
fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |with_causes, cause| format!("{with_causes}: {cause}"))
}

impl ToolHost for Host {
    fn read_text_file(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> BoxFuture<'_, Result<String, HostError>> {
        async move { self.read(path, line, limit).await.map_err(|error| of_workspace(&error)) }
            .boxed()
    }

    fn write_text_file(
        &self,
        path: PathBuf,
        content: String,
    ) -> BoxFuture<'_, Result<(), HostError>> {
        async move {
            let written = self.workspace.write(&path, content.into_bytes()).await;
            written.map_err(|error| of_workspace(&error))
        }
        .boxed()
    }

    fn create_terminal(&self, spec: TerminalSpec) -> BoxFuture<'_, Result<String, HostError>> {
        async move { self.terminals.create(spec).await.map_err(|error| of_terminals(&error)) }
            .boxed()
    }

    fn terminal_output(&self, id: String) -> BoxFuture<'_, Result<TerminalOutput, HostError>> {
        async move { self.terminals.output(&id).map_err(|error| of_terminals(&error)) }.boxed()
    }

    fn wait_for_exit(&self, id: String) -> BoxFuture<'_, Result<TerminalExit, HostError>> {
        async move {
            let exit = self.terminals.wait_for_exit(&id).await;
            exit.map_err(|error| of_terminals(&error))
        }
        .boxed()
    }

    fn kill_terminal(&self, id: String) -> BoxFuture<'_, Result<(), HostError>> {
        async move { self.terminals.kill(&id).await.map_err(|error| of_terminals(&error)) }.boxed()
    }

    fn release_terminal(&self, id: String) -> BoxFuture<'_, Result<(), HostError>> {
        async move { self.terminals.release(&id).await.map_err(|error| of_terminals(&error)) }
            .boxed()
    }
}
