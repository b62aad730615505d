//! `piton sessions prompt`: says something and does not wait for the answer.

use std::io::Read as _;

use piton_api::session::PromptRequest;
use serde_json::json;

use crate::backend;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions prompt sess_0199 'now the tests'
  git diff | piton sessions prompt sess_0199 -
  piton attach sess_0199                          See what it answers

JSON: one object: session, run_id, message_id.";

/// The longest prompt that is read; the server takes no more.
const PROMPT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Say something to a session's agent; it is started if it does not run
///
/// Returns as soon as the prompt is durable. `piton chat --print` waits for the answer.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session's id, or its beginning
    session: String,
    /// What to say; - reads it from stdin
    prompt: String,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let content = given(args.prompt)?;
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let accepted = client.prompt(&id, &PromptRequest { content }).await?;
    if ui.json {
        ui.json_line(&json!({
            "session": id, "run_id": accepted.run_id, "message_id": accepted.message_id,
        }))?;
    } else {
        ui.line(format_args!("Run {} of session {id} has begun.", accepted.run_id))?;
    }
    Ok(Exit::Good)
}

/// A prompt as it was given: `-` is what stands on stdin. An empty one is refused.
pub(crate) fn given(prompt: String) -> Result<String> {
    let content = if prompt == "-" { read()? } else { prompt };
    if content.trim().is_empty() {
        return Err(Error::usage("There is nothing to say: the prompt is empty"));
    }
    Ok(content)
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
