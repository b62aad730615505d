//! What an agent may ask of its client: files and terminals, inside its workspace.

use piton_core::Code;
use std::fmt;
use std::path::PathBuf;

use futures_util::future::BoxFuture;

/// Serves an agent's requests. Paths are absolute, as the agent gave them; the host keeps them
/// inside the workspace.
pub trait ToolHost: Send + Sync + fmt::Debug {
    /// `line` counts from 1.
    fn read_text_file(
        &self,
        path: PathBuf,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> BoxFuture<'_, Result<String, HostError>>;

    fn write_text_file(
        &self,
        path: PathBuf,
        content: String,
    ) -> BoxFuture<'_, Result<(), HostError>>;

    /// Starts a command; gives the terminal's id.
    fn create_terminal(&self, spec: TerminalSpec) -> BoxFuture<'_, Result<String, HostError>>;

    fn terminal_output(&self, id: String) -> BoxFuture<'_, Result<TerminalOutput, HostError>>;

    fn wait_for_exit(&self, id: String) -> BoxFuture<'_, Result<TerminalExit, HostError>>;

    /// Ends the command; its output stays readable.
    fn kill_terminal(&self, id: String) -> BoxFuture<'_, Result<(), HostError>>;

    /// Ends the command if it runs, and forgets it.
    fn release_terminal(&self, id: String) -> BoxFuture<'_, Result<(), HostError>>;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalSpec {
    pub command: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<PathBuf>,
    /// Of more output than this, the beginning is forgotten.
    pub output_bytes_max: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalOutput {
    pub output: String,
    pub truncated: bool,
    pub exit: Option<TerminalExit>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalExit {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
}

/// Why a request of the agent cannot be served; the message is for the agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    pub code: Code,
    pub message: String,
}
