//! `piton tasks …`: what somebody wants done.

use clap::Subcommand;
use serde_json::{Value, json};

use super::sessions;
use super::sessions::new::InWorktree;
use crate::client::Client;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::ui::{Tone, Ui};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    New(New),
    List(List),
    Show(Show),
}

const NEW_EXAMPLES: &str = "\
Examples:
  piton tasks new 'Fix the flaky test'
  piton tasks new 'Fix the flaky test' --repo . --base main
  piton sessions new --task TASK --repo .         Another agent at it, on a branch of its own

JSON: one object: task_id; with --repo also session_id, worktree_path, worktree_branch.";

/// Make a task; with --repo also its first session, in a worktree on a branch of its own
#[derive(Debug, clap::Args)]
#[command(after_help = NEW_EXAMPLES)]
pub(crate) struct New {
    /// What is to be done
    title: String,
    #[command(flatten)]
    worktree: InWorktree,
    /// Which agent [default: echo, which is built in and needs no key]
    #[arg(long, value_name = "AGENT", requires = "repo")]
    agent: Option<String>,
}

/// List the tasks, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "JSON: an object per line: task_id, title, created_at, state, sessions.")]
pub(crate) struct List {
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
}

/// Show a task and its sessions
#[derive(Debug, clap::Args)]
#[command(after_help = "JSON: one object: task_id, title, created_at, state, sessions.")]
pub(crate) struct Show {
    /// The task's id
    task: String,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    let client = Client::must(&cx.settings.data.value)?;
    match command {
        Command::New(new) => {
            // What was named wrongly is told before anything is made.
            let place = new.worktree.place()?;
            let mut made = client.post("/api/v1/tasks", &json!({"title": new.title})).await?;
            let task = text(&made, "task_id");
            if let Some(mut body) = place {
                body["task_id"] = json!(task);
                body["title"] = json!(new.title);
                body["agent_profile_id"] = json!(new.agent);
                let session = sessions::new::make(&client, &body).await;
                let session = session.map_err(|error| error.about(&format!("Task {task}")))?;
                for name in ["session_id", "worktree_path", "worktree_branch"] {
                    made[name] = session[name].clone();
                }
            }
            if ui.json {
                ui.json_line(&made)?;
            } else {
                ui.line(&task)?;
                if new.worktree.repo.is_some() {
                    sessions::new::said(ui, &made)?;
                }
            }
        }
        Command::List(list) => {
            let page = client.get(&format!("/api/v1/tasks?limit={}", list.limit)).await?;
            print_tasks(ui, &page)?;
        }
        Command::Show(show) => {
            let id: piton_core::id::TaskId = show.task.parse()?;
            let task = client.get(&format!("/api/v1/tasks/{id}")).await?;
            print_task(ui, &task)?;
        }
    }
    Ok(Exit::Good)
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or("").to_owned()
}

fn print_tasks(ui: &mut Ui, page: &Value) -> Result<()> {
    let tasks = page["tasks"].as_array().cloned().unwrap_or_default();
    if ui.json {
        return tasks.iter().try_for_each(|task| ui.json_line(task));
    }
    if tasks.is_empty() {
        return ui.note("There are no tasks; `piton tasks new TITLE` makes one.");
    }
    let columns = [
        Column::Whole("TASK"),
        Column::Whole("STATE"),
        Column::Cut("TITLE"),
        Column::Whole("SESSIONS"),
    ];
    let mut table = Table::new(columns);
    for task in &tasks {
        let sessions = task["sessions"].as_array().map_or(0, Vec::len);
        table.row([
            (Tone::Title, text(task, "task_id")),
            (Tone::Plain, text(task, "state")),
            (Tone::Plain, text(task, "title")),
            (Tone::Quiet, sessions.to_string()),
        ]);
    }
    table.print(ui)?;
    if !page["next"].is_null() {
        ui.note("There are more; --limit shows up to 200.")?;
    }
    Ok(())
}

fn print_task(ui: &mut Ui, task: &Value) -> Result<()> {
    if ui.json {
        return ui.json_line(task);
    }
    let title = ui.paint(Tone::Title, &one_line(&text(task, "title")));
    ui.line(format_args!("{title}  {}", text(task, "state")))?;
    let sessions = task["sessions"].as_array().cloned().unwrap_or_default();
    let columns = [Column::Whole("SESSION"), Column::Whole("STATUS"), Column::Cut("TITLE")];
    let mut table = Table::new(columns);
    for session in &sessions {
        table.row([
            (Tone::Title, text(session, "session_id")),
            (Tone::Plain, text(session, "status")),
            (Tone::Plain, text(session, "title")),
        ]);
    }
    if sessions.is_empty() {
        return ui.note("It has no sessions yet.");
    }
    table.print(ui)
}
