//! `piton tasks …`.

use clap::Subcommand;
use piton_api::session::NewSession;
use piton_api::task::{NewTask, Task, TaskPage, TaskQuery};
use piton_core::Timestamp;
use serde_json::json;

use super::sessions;
use super::sessions::new::InWorktree;
use super::tasks_change::{self, Change};
use crate::agents;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ids::ShownIds;
use crate::lookup;
use crate::server;
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::ui::{Tone, Ui};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    New(New),
    List(List),
    Show(Show),
    Edit(tasks_change::Edit),
    Close(tasks_change::Close),
    Reopen(tasks_change::Reopen),
    Delete(tasks_change::Delete),
}

const NEW_EXAMPLES: &str = "\
Examples:
  piton tasks new 'Fix the flaky test'
  piton tasks new 'Fix the flaky test' --repo . --base main
  piton sessions new --task TASK --repo .         Another agent at it, on a branch of its own

JSON: one object: task_id; with --repo also session_id, worktree_path, worktree_branch.";

/// Create a task; with --repo also its first session, in a git worktree on its own branch
#[derive(Debug, clap::Args)]
#[command(after_help = NEW_EXAMPLES)]
pub(crate) struct New {
    /// The task's title: what is to be done
    title: String,
    #[command(flatten)]
    worktree: InWorktree,
    /// The agent [default: the setting chat.agent, else the first that is installed]
    #[arg(long, value_name = "AGENT", requires = "repo")]
    agent: Option<String>,
}

/// List tasks, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "JSON: an object per line: task_id, title, created_at, state, sessions.")]
pub(crate) struct List {
    /// The maximum number of tasks
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
}

/// Show a task and its sessions
#[derive(Debug, clap::Args)]
#[command(after_help = "JSON: one object: task_id, title, created_at, state, sessions.")]
pub(crate) struct Show {
    /// The task's id, or the beginning or end of it
    task: String,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    let client = server::required(&cx.settings.data.value)?;
    match command {
        Command::New(new) => {
            // Refuse wrong arguments before anything is created.
            let place = match new.worktree.session()? {
                Some(place) => {
                    let agent = agents::chosen(ui, &cx.settings, new.agent)?;
                    Some(NewSession { agent_profile_id: Some(agent), ..place })
                }
                None => None,
            };
            let task = client.create_task(&NewTask { title: new.title.clone() }).await?.task_id;
            let made = match place {
                Some(place) => {
                    let session = NewSession {
                        task_id: Some(task.to_string()),
                        title: Some(new.title),
                        ..place
                    };
                    let made = sessions::new::make(&client, &session).await;
                    Some(made.map_err(|error| error.about(&format!("Task {task}")))?)
                }
                None => None,
            };
            match &made {
                None if ui.json => ui.json_line(&json!({"task_id": task}))?,
                None => ui.line(&task)?,
                Some(made) if ui.json => ui.json_line(&json!({
                    "task_id": task, "session_id": made.session_id,
                    "worktree_path": made.worktree_path, "worktree_branch": made.worktree_branch,
                }))?,
                Some(made) => {
                    ui.line(&task)?;
                    sessions::new::said(ui, made)?;
                }
            }
            if let Some(made) = &made {
                sessions::new::await_start(ui, &client, &made.session_id).await?;
            }
        }
        Command::List(list) => {
            let limit = usize::try_from(list.limit).ok();
            print_tasks(ui, &client.tasks(&TaskQuery { limit, after: None }).await?)?;
        }
        Command::Show(show) => {
            let id = lookup::task_on(&client, &show.task).await?;
            print_task(ui, &client.task(&id).await?, cx.now())?;
        }
        Command::Edit(args) => return tasks_change::run(ui, &client, Change::Edit(args)).await,
        Command::Close(args) => return tasks_change::run(ui, &client, Change::Close(args)).await,
        Command::Reopen(args) => return tasks_change::run(ui, &client, Change::Reopen(args)).await,
        Command::Delete(args) => return tasks_change::run(ui, &client, Change::Delete(args)).await,
    }
    Ok(Exit::Good)
}

fn print_tasks(ui: &mut Ui, page: &TaskPage) -> Result<()> {
    if ui.json {
        return page.tasks.iter().try_for_each(|task| ui.json_line(task));
    }
    if page.tasks.is_empty() {
        return ui.note("There are no tasks; `piton tasks new TITLE` makes one.");
    }
    let columns = [
        Column::Whole("TASK"),
        Column::Whole("STATE"),
        Column::Cut("TITLE"),
        Column::Whole("SESSIONS"),
    ];
    let mut table = Table::new(columns);
    let ids = ShownIds::new(page.tasks.iter().map(|task| task.task_id.as_str()));
    for task in &page.tasks {
        table.row([
            (Tone::Title, ids.shown(task.task_id.as_str())),
            (Tone::Plain, task.state.to_string()),
            (Tone::Plain, task.title.clone()),
            (Tone::Quiet, task.sessions.len().to_string()),
        ]);
    }
    table.print(ui)?;
    if page.next.is_some() {
        ui.note("There are more; --limit shows up to 200.")?;
    }
    Ok(())
}

fn print_task(ui: &mut Ui, task: &Task, now: Timestamp) -> Result<()> {
    if ui.json {
        return ui.json_line(task);
    }
    let title = ui.paint(Tone::Title, &one_line(&task.title));
    ui.line(format_args!("{title}  {}", task.state))?;
    if task.sessions.is_empty() {
        return ui.note("The task has no sessions yet.");
    }
    sessions::print_table(ui, &task.sessions, now)
}
