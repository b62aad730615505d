//! `piton sessions new`: a session without a conversation in this terminal, in a folder or in a
//! worktree of its own.

use std::path::{Path, PathBuf};

use piton_api::client::Client;
use piton_api::session::{NewSession, StartRequest};
use piton_core::id::SessionId;
use serde::Serialize;

use super::set::ChoiceArgs;
use crate::agents;
use crate::background;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::lookup;
use crate::mcp_servers::McpServerArgs;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions new                              In this folder, like piton chat
  piton sessions new --repo . --base main         On a branch of its own, beside your checkout
  piton sessions new --repo . --task TASK         One more for a task, side by side with the others
  piton sessions new --mcp-server 'docs=npx -y docs-server'
  piton sessions cleanup SESSION                  When its branch is merged or pushed

JSON: one object: session_id, worktree_path, worktree_branch (both null without --repo).";

/// Create a session and start its agent
///
/// With --repo the agent works in a git worktree in the data folder, on a branch piton/ID; the
/// repository's own checkout does not change. Starts a server in the background if none runs. If the
/// agent cannot be started, the session stays, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The folder in which the agent works [default: this one]
    #[arg(conflicts_with = "repo")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    worktree: InWorktree,
    /// The agent [default: the setting chat.agent, else the first that is installed]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    #[command(flatten)]
    choice: ChoiceArgs,
    #[command(flatten)]
    mcp: McpServerArgs,
    /// The session's task: its id, or the beginning or end of it
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// The session's title
    #[arg(long, value_name = "TITLE")]
    title: Option<String>,
}

/// A worktree instead of a folder.
#[derive(Debug, clap::Args)]
pub(crate) struct InWorktree {
    /// Work in a new worktree of this git repository, on its own branch
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// The branch, tag or commit to start from [default: the repository's HEAD]
    #[arg(long, value_name = "BASE", requires = "repo")]
    base: Option<String>,
}

impl InWorktree {
    /// A session in this worktree; `None` without a repository.
    pub(crate) fn session(&self) -> Result<Option<NewSession>> {
        let Some(repo) = &self.repo else { return Ok(None) };
        let repo = Some(folder(repo)?);
        Ok(Some(NewSession { repo, base: self.base.clone(), ..NewSession::default() }))
    }
}

/// A session that was made, and where it works.
#[derive(Debug, Serialize)]
pub(crate) struct Made {
    pub(crate) session_id: SessionId,
    pub(crate) worktree_path: Option<String>,
    pub(crate) worktree_branch: Option<String>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let new = if let Some(new) = args.worktree.session()? {
        new
    } else {
        let folder = folder(args.dir.as_deref().unwrap_or(Path::new(".")))?;
        NewSession { working_dir: Some(folder), ..NewSession::default() }
    };
    let mut new = NewSession {
        agent_profile_id: Some(agents::chosen(ui, &cx.settings, args.agent)?),
        agent: args.choice.choice()?,
        mcp_servers: args.mcp.servers()?,
        title: args.title,
        ..new
    };
    let client = background::ensure(cx).await?;
    if let Some(task) = &args.task {
        new.task_id = Some(lookup::task_on(&client, task).await?.to_string());
    }
    let made = make(&client, &new).await?;
    if ui.json {
        ui.json_line(&made)?;
    } else {
        said(ui, &made)?;
    }
    await_start(ui, &client, &made.session_id).await?;
    Ok(Exit::Good)
}

/// Waits until it is known whether the agent of a new session runs: a start that failed is an error, though
/// the session is there.
pub(crate) async fn await_start(ui: &mut Ui, client: &Client, session: &SessionId) -> Result<()> {
    let started = client.start(session, &StartRequest::default()).await;
    let started =
        started.map_err(|error| Error::from(error).about(&format!("Session {session}")))?;
    if started.pending && !ui.json {
        ui.note("The agent still starts; `piton sessions show` says what becomes of it")?;
    }
    Ok(())
}

/// Makes a session; says where it works.
pub(crate) async fn make(client: &Client, new: &NewSession) -> Result<Made> {
    let session_id = client.create_session(new).await?.session_id;
    let status = client.session(&session_id).await?.summary;
    let (worktree_path, worktree_branch) = (status.worktree_path, status.worktree_branch);
    Ok(Made { session_id, worktree_path, worktree_branch })
}

/// The id alone on its line, for scripts; where it works beside it.
pub(crate) fn said(ui: &mut Ui, made: &Made) -> Result<()> {
    ui.line(&made.session_id)?;
    if let (Some(path), Some(branch)) = (&made.worktree_path, &made.worktree_branch) {
        ui.note(&format!("It works on the branch {branch} in {path}"))?;
    }
    Ok(())
}

/// The whole path of a folder that is there.
pub(crate) fn folder(dir: &Path) -> Result<String> {
    let found = dir.canonicalize().ok().filter(|dir| dir.is_dir());
    let found = found.ok_or_else(|| Error::usage(&format!("{} is not a folder", dir.display())))?;
    let unspeakable = |path: std::ffi::OsString| {
        Error::usage(&format!("{} is not UTF-8", Path::new(&path).display()))
    };
    found.into_os_string().into_string().map_err(unspeakable)
}
