//! `piton sessions resume-token`: a secret, shown once, that answers a wait or resumes a run.

use std::time::Duration;

use piton_api::status::Wait;
use piton_core::id::{SessionId, WaitId};
use serde_json::json;

use crate::backend::SessionBackend;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::lookup;
use crate::times;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions resume-token SESSION                      For its open wait, or its interruption
  piton sessions resume-token SESSION --wait WAIT          For one of several waits
  piton sessions resume-token SESSION --valid-for 1h       For an interruption, for an hour

JSON: one object: session_id, token (the secret), token_id, purpose (wait or interruption), wait_id,
expires_at.";

/// Create a resume token: it answers a session's wait, or resumes its interrupted run
///
/// The token is shown once. An earlier token for the same purpose is revoked.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The wait to answer: its id, or the beginning or end of it [default: the only open one]
    #[arg(long, value_name = "WAIT")]
    wait: Option<String>,
    /// How long a token for an interruption is valid, such as 90s, 15m, 1h or 2d [default: for ever]
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span, conflicts_with = "wait")]
    valid_for: Option<Duration>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (backend, id) = SessionBackend::for_session(cx, &args.session).await?;
    let waits = backend.waits(&id).await?;
    let wait = match args.wait {
        Some(wait) => Some(match lookup::wait(&wait, waits.iter().map(|open| &open.wait_id))? {
            Some(wait) => wait,
            None => wait.parse()?,
        }),
        None => the_wait(&id, &waits)?,
    };
    let expires_at = match &wait {
        Some(wait) => waits.iter().find(|open| open.wait_id == *wait).and_then(|w| w.deadline_at),
        None => args.valid_for.map(|span| cx.now().after(span)),
    };
    let shown = match &wait {
        Some(_) if args.valid_for.is_some() => {
            return Err(Error::usage(
                "A wait's token is good until the wait's deadline: leave out --valid-for",
            ));
        }
        Some(wait) => backend.rotate_resume_token(wait).await?,
        None => backend.create_resume_token(&id, args.valid_for).await?,
    };
    if ui.json {
        ui.json_line(&json!({
            "session_id": id,
            "token": shown.token,
            "token_id": shown.token_id,
            "purpose": if wait.is_some() { "wait" } else { "interruption" },
            "wait_id": wait,
            "expires_at": expires_at,
        }))?;
    } else {
        ui.line(shown.token)?;
    }
    let does = match &wait {
        Some(wait) => format!("answer {wait}"),
        None => "resume the interrupted run".to_owned(),
    };
    let until = expires_at.map_or_else(String::new, |at| format!(", until {at}"));
    ui.warn(&format!("This token is shown once. Anyone who has it can {does}{until}."))?;
    Ok(Exit::Good)
}

/// The wait that is meant when none is named; `None` if there is none that could be answered.
fn the_wait(id: &SessionId, waits: &[Wait]) -> Result<Option<WaitId>> {
    match waits {
        [] => Ok(None),
        [only] => Ok(Some(only.wait_id.clone())),
        several => {
            let names: Vec<_> = several.iter().map(|wait| wait.wait_id.as_str()).collect();
            let message = format!("Session {id} has {} open waits", several.len());
            let hint = format!("Say which one with --wait: {}.", names.join(", "));
            Err(Error::usage(&message).with_hint(hint))
        }
    }
}
