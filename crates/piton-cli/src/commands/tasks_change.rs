//! `piton tasks edit|close|reopen|delete`: changes of a task itself.

use clap::Args;
use piton_api::client::Client;
use piton_api::task::{TaskDeleteQuery, TaskUpdate};
use piton_core::event;
use serde_json::json;

use crate::error::{Exit, Result};
use crate::lookup;
use crate::ui::Ui;

/// Change a task's title
#[derive(Debug, Args)]
#[command(after_help = "JSON: one object: task_id.")]
pub(crate) struct Edit {
    /// The task's id, or the beginning or end of it
    task: String,
    /// The new title
    title: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Outcome {
    Completed,
    Failed,
    Cancelled,
}

/// Close a task: it takes no new sessions
///
/// Its sessions stay as they are. `piton tasks reopen` undoes it.
#[derive(Debug, Args)]
#[command(after_help = "JSON: one object: task_id.")]
pub(crate) struct Close {
    /// The task's id, or the beginning or end of it
    task: String,
    /// The task's outcome
    #[arg(long, value_name = "OUTCOME", default_value = "completed")]
    outcome: Outcome,
}

/// Reopen a closed task: its state follows from its sessions again
#[derive(Debug, Args)]
#[command(after_help = "JSON: one object: task_id.")]
pub(crate) struct Reopen {
    /// The task's id, or the beginning or end of it
    task: String,
}

/// Delete a task; its sessions stay
///
/// Refused while it has sessions that are not closed, unless --force is given.
#[derive(Debug, Args)]
#[command(after_help = "JSON: one object: task_id.")]
pub(crate) struct Delete {
    /// The task's id, or the beginning or end of it
    task: String,
    /// Delete the task even if it has sessions that are not closed
    #[arg(long)]
    force: bool,
}

/// What to do with a task.
#[derive(Debug)]
pub(crate) enum Change {
    Edit(Edit),
    Close(Close),
    Reopen(Reopen),
    Delete(Delete),
}

pub(crate) async fn run(ui: &mut Ui, client: &Client, change: Change) -> Result<Exit> {
    let (task, what) = match change {
        Change::Edit(Edit { task, title }) => {
            let task = lookup::task_on(client, &task).await?;
            let update = TaskUpdate { title: Some(title), ..TaskUpdate::default() };
            client.update_task(&task, &update).await?;
            (task, "has a new title")
        }
        Change::Close(Close { task, outcome }) => {
            let task = lookup::task_on(client, &task).await?;
            let outcome = match outcome {
                Outcome::Completed => event::Outcome::Completed,
                Outcome::Failed => event::Outcome::Failed,
                Outcome::Cancelled => event::Outcome::Cancelled,
            };
            let update = TaskUpdate {
                closed: Some(true),
                outcome: Some(outcome.into()),
                ..TaskUpdate::default()
            };
            client.update_task(&task, &update).await?;
            (task, "is closed")
        }
        Change::Reopen(Reopen { task }) => {
            let task = lookup::task_on(client, &task).await?;
            let update = TaskUpdate { closed: Some(false), ..TaskUpdate::default() };
            client.update_task(&task, &update).await?;
            (task, "is open")
        }
        Change::Delete(Delete { task, force }) => {
            let task = lookup::task_on(client, &task).await?;
            client.delete_task(&task, &TaskDeleteQuery { force: Some(force) }).await?;
            (task, "is deleted")
        }
    };
    if ui.json {
        ui.json_line(&json!({"task_id": task}))?;
    } else {
        ui.line(format_args!("Task {task} {what}."))?;
    }
    Ok(Exit::Good)
}
