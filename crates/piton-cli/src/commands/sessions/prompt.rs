//! `piton sessions prompt`: says something and does not wait for the answer.

use std::io::Read as _;
use std::path::PathBuf;

use piton_api::enums::IfBusy;
use piton_api::queue::PromptRequest;
use piton_core::decide;
use serde_json::json;

use crate::attachment;
use crate::backend;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions prompt SESSION 'now the tests'
  git diff | piton sessions prompt SESSION -
  piton sessions prompt SESSION 'what is wrong here?' --attach shot.png
  piton attach SESSION                            See what it answers

JSON: one object: session_id, run_id, message_id, pending, queued, position.";

/// The longest prompt that is read; the server takes no more.
const PROMPT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Send a prompt to a session's agent; starts the agent if it does not run
///
/// Returns as soon as the prompt is durable; `piton chat --print` waits for the answer. While a turn runs
/// the prompt is queued; while the run only waits for an answer, the prompt replaces the run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The prompt; - reads it from stdin
    prompt: String,
    /// Attach a file: an image, audio, or any other; may be repeated
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// What to do with the prompt while a run is open
    #[arg(long, value_name = "CHOICE", value_parser = ["queue", "reject", "supersede"])]
    if_busy: Option<String>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let content = given(args.prompt, &args.attach)?;
    let content = attachment::prompt(content, &args.attach)?;
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let if_busy = args.if_busy.as_deref().and_then(if_busy);
    let accepted = client.prompt(&id, &PromptRequest { content, if_busy }).await?;
    if ui.json {
        ui.json_line(&json!({
            "session_id": id,
            "run_id": accepted.run_id,
            "message_id": accepted.message_id,
            "pending": accepted.pending,
            "queued": accepted.queued,
            "position": accepted.position,
        }))?;
    } else if accepted.queued {
        let (message, position) = (accepted.message_id, accepted.position.unwrap_or_default());
        ui.line(format_args!(
            "Prompt {message} of session {id} is queued at position {position}."
        ))?;
    } else if accepted.pending {
        // Whether the prompt is delivered is not known yet.
        ui.line(format_args!("Run {} of session {id} is starting.", accepted.run_id))?;
        ui.note("The agent still starts; `piton sessions show` says what becomes of it")?;
    } else {
        ui.line(format_args!("Run {} of session {id} has begun.", accepted.run_id))?;
    }
    Ok(Exit::Good)
}

/// A prompt as it was given: `-` is what stands on stdin. An empty one is refused, unless files
/// come with it.
pub(crate) fn given(prompt: String, attached: &[PathBuf]) -> Result<String> {
    let content = if prompt == "-" { read()? } else { prompt };
    if content.trim().is_empty() && attached.is_empty() {
        return Err(Error::usage("There is nothing to say: the prompt is empty"));
    }
    Ok(content)
}

fn if_busy(choice: &str) -> Option<IfBusy> {
    match choice {
        "queue" => Some(decide::IfBusy::Queue.into()),
        "reject" => Some(decide::IfBusy::Reject.into()),
        "supersede" => Some(decide::IfBusy::Supersede.into()),
        _ => None,
    }
}

fn read() -> Result<String> {
    let unreadable = |error: std::io::Error| {
        Error::usage(&format!("The prompt cannot be read from stdin: {error}"))
    };
    let mut text = String::new();
    let mut stdin = std::io::stdin().take(PROMPT_BYTES_MAX + 1);
    stdin.read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > PROMPT_BYTES_MAX {
        return Err(Error::usage("The prompt is longer than 4 MiB"));
    }
    Ok(text)
}
