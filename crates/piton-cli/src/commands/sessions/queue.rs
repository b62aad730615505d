//! `piton sessions queue …`: the prompts that wait for a run to end.

use piton_api::client::Client;
use piton_api::queue::{QueueChanged, QueueEdit, QueueRemoval, QueuedPrompt};
use piton_core::id::{MessageId, SessionId};
use piton_core::{Code, PromptContent};
use piton_store::Detail;
use serde_json::json;

use crate::backend;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::times;
use crate::ui::{Tone, Ui};

const LIST_EXAMPLES: &str = "\
Examples:
  piton sessions queue list SESSION
  piton sessions queue list SESSION --json | jq -r .text

JSON: one object per prompt and line: session_id, message_id, position, version, queued_at, held,
text.";

const EDIT_EXAMPLES: &str = "\
Examples:
  piton sessions queue edit SESSION 2 'only the unit tests'

JSON: one object: session_id, message_id.";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(ListArgs),
    Edit(EditArgs),
    Move(MoveArgs),
    Remove(RemoveArgs),
    Release(ReleaseArgs),
}

/// List a session's queued prompts in delivery order
#[derive(Debug, clap::Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
}

/// Edit the text of a queued prompt
///
/// The prompt's attachments stay. Refused if another client has edited the prompt in the meantime.
#[derive(Debug, clap::Args)]
#[command(after_help = EDIT_EXAMPLES)]
pub(crate) struct EditArgs {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The prompt: its position in the queue, or the beginning of its message id
    prompt: String,
    /// The new text
    text: String,
}

/// Move a queued prompt to another position
#[derive(Debug, clap::Args)]
pub(crate) struct MoveArgs {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The prompt: its position in the queue, or the beginning of its message id
    prompt: String,
    /// The new position; 1 is delivered next
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    position: u32,
}

/// Remove prompts from the queue
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The prompts: their positions in the queue, or the beginnings of their message ids
    #[arg(required = true)]
    prompts: Vec<String>,
}

/// Release prompts held by an interruption, failure or cancellation
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    match command {
        Command::List(args) => list(ui, cx, &args).await,
        Command::Edit(args) => {
            let (client, id, queue) = open(cx, &args.session).await?;
            let prompt = named(&queue, &args.prompt)?;
            let (text, version) = (Some(args.text), Some(prompt.version));
            let edit = QueueEdit { text, version, ..QueueEdit::default() };
            let done = client.edit_queued(&id, &message(prompt)?, &edit).await?;
            changed(ui, &done, "says something else now")
        }
        Command::Move(args) => {
            let (client, id, queue) = open(cx, &args.session).await?;
            let prompt = named(&queue, &args.prompt)?;
            let edit = QueueEdit { position: Some(args.position), ..QueueEdit::default() };
            let done = client.edit_queued(&id, &message(prompt)?, &edit).await?;
            changed(ui, &done, "was moved")
        }
        Command::Remove(args) => {
            let (client, id, queue) = open(cx, &args.session).await?;
            let named = args.prompts.iter().map(|prompt| named(&queue, prompt));
            for prompt in named.collect::<Result<Vec<_>>>()? {
                let removal = QueueRemoval::default();
                let done = client.remove_queued(&id, &message(prompt)?, &removal).await?;
                changed(ui, &done, "is not queued any more")?;
            }
            Ok(Exit::Good)
        }
        Command::Release(args) => {
            let (client, id, queue) = open(cx, &args.session).await?;
            let held = queue.iter().filter(|prompt| prompt.held).count();
            client.release_queue(&id).await?;
            if ui.json {
                ui.json_line(&json!({"session_id": id, "released": held}))?;
            } else if held == 0 {
                ui.note(&format!("No queued prompt of session {id} was held"))?;
            } else {
                ui.line(format_args!("The queue of session {id} is released."))?;
            }
            Ok(Exit::Good)
        }
    }
}

/// Reads the store, as a server may not run.
async fn list(ui: &mut Ui, cx: &Context, args: &ListArgs) -> Result<Exit> {
    let (view, id) = cx.view_of(&args.session).await?;
    let state = view.state(&id).await?;
    let mut table = Table::new([
        Column::Whole("#"),
        Column::Whole("MESSAGE"),
        Column::Whole("QUEUED"),
        Column::Whole("HELD"),
        Column::Cut("PROMPT"),
    ]);
    for (at, queued) in state.queue.iter().enumerate() {
        let piton_core::state::QueuedPrompt { message_id, seq, queued_at, held, .. } = queued;
        let records = view.store().read(&id, seq - 1, 1, Detail::Full).await?;
        let content = records.first().and_then(|record| PromptContent::of(record, "content"));
        let text = content.map(|content| content.text()).unwrap_or_default();
        if ui.json {
            ui.json_line(&json!({
                "session_id": id,
                "message_id": message_id,
                "position": at + 1,
                "version": seq,
                "queued_at": queued_at,
                "held": held,
                "text": text,
            }))?;
            continue;
        }
        let held = if *held { (Tone::Attention, "held") } else { (Tone::Quiet, "") };
        table.row([
            (Tone::Plain, (at + 1).to_string()),
            (Tone::Plain, message_id.to_string()),
            (Tone::Quiet, times::relative(*queued_at, view.now())),
            (held.0, held.1.to_owned()),
            (Tone::Plain, one_line(&text)),
        ]);
    }
    if !ui.json && state.queue.is_empty() {
        ui.note("No queued prompts.")?;
    } else if !ui.json {
        table.print(ui)?;
    }
    if !ui.json && state.facts.queue.held > 0 {
        ui.note(&format!(
            "Held until you continue the run, or: {} sessions queue release {id}",
            ui.call
        ))?;
    }
    Ok(Exit::Good)
}

/// The server, the session, and the prompts that it has queued.
async fn open(cx: &Context, session: &str) -> Result<(Client, SessionId, Vec<QueuedPrompt>)> {
    let (client, id) = backend::server_for(cx, session).await?;
    let prompts = client.queue(&id).await?.prompts;
    Ok((client, id, prompts))
}

fn message(prompt: &QueuedPrompt) -> Result<MessageId> {
    Ok(prompt.message_id.parse()?)
}

/// The queued prompt that is meant: by its position, or by the beginning of its id.
fn named<'a>(queue: &'a [QueuedPrompt], name: &str) -> Result<&'a QueuedPrompt> {
    let position = name.parse::<u32>().ok();
    let mut found = queue.iter().filter(|prompt| match position {
        Some(position) => prompt.position == position,
        None => !name.is_empty() && prompt.message_id.starts_with(name),
    });
    match (found.next(), found.next()) {
        (Some(prompt), None) => Ok(prompt),
        (Some(_), Some(_)) => {
            Err(Error::usage(&format!("Several queued prompts begin with {name}")))
        }
        (None, _) => {
            Err(Error::new(Code::QueuedPromptNotFound, format!("There is no queued prompt {name}")))
        }
    }
}

fn changed(ui: &mut Ui, done: &QueueChanged, is_so: &str) -> Result<Exit> {
    let message = done.message_id.as_deref().unwrap_or_default();
    if ui.json {
        ui.json_line(&json!({"session_id": done.session_id, "message_id": message}))?;
    } else {
        ui.line(format_args!("Prompt {message} of session {} {is_so}.", done.session_id))?;
    }
    Ok(Exit::Good)
}
