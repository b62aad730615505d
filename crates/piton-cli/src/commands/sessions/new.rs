//! `piton sessions new`: a session without a conversation in this terminal, in a folder or in a
//! worktree of its own.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::background;
use crate::client::Client;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions new                              In this folder, like piton chat
  piton sessions new --repo . --base main         On a branch of its own, beside your checkout
  piton sessions new --repo . --task TASK         One more for a task, side by side with the others
  piton sessions cleanup SESSION                  When its branch is merged or pushed

JSON: one object: session_id, worktree_path, worktree_branch (both null without --repo).";

/// Make a session and start its agent
///
/// With --repo it works in a git worktree in the data folder, on a branch piton/ID; the repository's
/// own checkout is not touched. A server is started in the background if none runs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where the agent works, in place [default: here]
    #[arg(conflicts_with = "repo")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    worktree: InWorktree,
    /// Which agent [default: echo, which is built in and needs no key]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// The task that it belongs to
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// What it is called in lists
    #[arg(long, value_name = "TITLE")]
    title: Option<String>,
}

/// A worktree instead of a folder.
#[derive(Debug, clap::Args)]
pub(crate) struct InWorktree {
    /// Work in a worktree of this git repository, on a branch of its own
    #[arg(long, value_name = "DIR")]
    pub(crate) repo: Option<PathBuf>,
    /// The branch, tag or commit to begin at [default: the repository's HEAD]
    #[arg(long, value_name = "BASE", requires = "repo")]
    base: Option<String>,
}

impl InWorktree {
    /// What a new session is told of it; `None` without a repository.
    pub(crate) fn place(&self) -> Result<Option<Value>> {
        let Some(repo) = &self.repo else { return Ok(None) };
        Ok(Some(json!({"repo": folder(repo)?, "base": self.base})))
    }
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let mut body = match args.worktree.place()? {
        Some(body) => body,
        None => json!({"working_dir": folder(args.dir.as_deref().unwrap_or(Path::new(".")))?}),
    };
    body["agent_profile_id"] = json!(args.agent);
    body["task_id"] = json!(args.task);
    body["title"] = json!(args.title);
    let client = background::ensure(cx).await?;
    let made = make(&client, &body).await?;
    if ui.json {
        ui.json_line(&made)?;
    } else {
        said(ui, &made)?;
    }
    Ok(Exit::Good)
}

/// Makes a session; says where it works.
pub(crate) async fn make(client: &Client, body: &Value) -> Result<Value> {
    let made = client.post("/api/v1/sessions", body).await?;
    let id = made["session_id"].as_str().unwrap_or_default();
    let status = client.get(&format!("/api/v1/sessions/{id}")).await?;
    Ok(json!({
        "session_id": id,
        "worktree_path": status["worktree_path"],
        "worktree_branch": status["worktree_branch"],
    }))
}

/// The id alone on its line, for scripts; where it works beside it.
pub(crate) fn said(ui: &mut Ui, made: &Value) -> Result<()> {
    let text = |name: &str| made[name].as_str();
    ui.line(text("session_id").unwrap_or_default())?;
    if let (Some(path), Some(branch)) = (text("worktree_path"), text("worktree_branch")) {
        ui.note(&format!("It works on the branch {branch} in {path}"))?;
    }
    Ok(())
}

fn folder(dir: &Path) -> Result<PathBuf> {
    let found = dir.canonicalize().ok().filter(|dir| dir.is_dir());
    found.ok_or_else(|| Error::usage(&format!("{} is not a folder", dir.display())))
}
