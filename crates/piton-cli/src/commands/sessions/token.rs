//! `piton sessions token`: a secret, shown once, with which somebody can answer or resume.

use std::time::Duration;

use piton_core::State;
use piton_core::id::{SessionId, WaitId};
use piton_runtime::View;
use serde_json::json;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::times;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions token sess_0199                    For its open wait, or its interruption
  piton sessions token sess_0199 --wait wait_0199   For one of several waits
  piton sessions token sess_0199 --valid-for 1h     For an interruption, for an hour

JSON: one object: session, token (the secret), token_id, purpose (wait or interruption), wait_id,
expires_at.";

/// Make a token that answers a session's wait, or resumes its interrupted run
///
/// The token is printed once and kept nowhere; one that was made before for the same purpose is
/// revoked.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session's id, or its beginning
    session: String,
    /// The wait to answer [default: the only one that is open]
    #[arg(long, value_name = "WAIT", value_parser = str::parse::<WaitId>)]
    wait: Option<WaitId>,
    /// How long a token for an interruption is good, such as 90s, 15m, 1h or 2d [default: for ever]
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span, conflicts_with = "wait")]
    valid_for: Option<Duration>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (held, id) = cx.guest_for(&args.session).await?;
    let guest = &held.guest;
    let view = guest.view();
    let state = view.state(&id).await?;
    let wait = match args.wait {
        Some(wait) => Some(wait),
        None => the_wait(view, &id, &state)?,
    };
    let expires_at = match &wait {
        Some(wait) => {
            let run = state.facts.run.as_ref();
            run.and_then(|run| run.waits.get(wait)).and_then(|wait| wait.deadline_at)
        }
        None => args.valid_for.map(|span| view.now().after(span)),
    };
    let token = match &wait {
        Some(_) if args.valid_for.is_some() => {
            return Err(Error::usage(
                "A wait's token is good until the wait's deadline: leave out --valid-for",
            ));
        }
        Some(wait) => guest.rotate_token(&id, wait).await,
        None => guest.interruption_token(&id, args.valid_for).await,
    };
    let token = token.map_err(|error| cx.name_owner(error))?;
    if ui.json {
        ui.json_line(&json!({
            "session": id,
            "token": token.reveal(),
            "token_id": token.id,
            "purpose": if wait.is_some() { "wait" } else { "interruption" },
            "wait_id": wait,
            "expires_at": expires_at,
        }))?;
    } else {
        ui.line(token.reveal())?;
    }
    let does = match &wait {
        Some(wait) => format!("answer {wait}"),
        None => "resume the interrupted run".to_owned(),
    };
    let until = expires_at.map_or_else(String::new, |at| format!(", until {at}"));
    ui.warn(&format!("This is shown once. Whoever has it can {does}{until}."))?;
    Ok(Exit::Good)
}

/// The wait that is meant when none is named; `None` if there is none that could be answered.
fn the_wait(view: &View, id: &SessionId, state: &State) -> Result<Option<WaitId>> {
    let run = state.facts.run.as_ref().filter(|run| run.is_open());
    // Its waits died with it, though nobody has written that down yet.
    let run = run.filter(|_| view.stranded(&state.facts).is_none());
    let waits: Vec<&WaitId> = run.iter().flat_map(|run| run.waits.keys()).collect();
    match waits.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some((*only).clone())),
        several => {
            let names: Vec<_> = several.iter().map(|wait| wait.as_str()).collect();
            let message = format!("Session {id} has {} open waits", several.len());
            let hint = format!("Say which one with --wait: {}.", names.join(", "));
            Err(Error::usage(&message).with_hint(hint))
        }
    }
}
