//! `piton chat` and `piton attach`: a conversation in the terminal. The agent is not the terminal's:
//! whoever leaves can come back.

mod asking;
mod input;
mod markdown;
mod outcome;
mod screen;
mod slash;
mod talk;

use std::path::{Path, PathBuf};

use piton_api::client::Client;
use piton_api::session::{NewSession, SessionQuery};
use piton_core::Code;
use piton_core::id::SessionId;

use super::sessions::new::folder;
use super::sessions::prompt;
use super::sessions::set::ChoiceArgs;
use crate::agents;
use crate::attachment;
use crate::background;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::lookup;
use crate::ui::Ui;
use talk::{Talk, Until};

const CHAT_EXAMPLES: &str = "\
Examples:
  piton chat                           Talk to your agent in this folder
  piton chat --print \"say hello\"       One prompt, its answer, and an exit code by its outcome
  git diff | piton chat --print -      The prompt from stdin

Ctrl-C stops the turn; a second one leaves, and the agent stays: piton attach brings you back.
/help lists what can be typed beside prompts.

Exit codes of --print: 0 completed, 1 failed, 4 interrupted, 5 it waits for an answer, 6 cancelled
and 7 paused by another client, 130 stopped by Ctrl-C. Unless it completed, stderr says why and how
to continue. No question is asked. The agent ends with the run unless --keep is given; an agent that
waits for an answer, is paused or was stopped by Ctrl-C keeps running.
JSON: with --print, the records of the turn, one per line; the last line has outcome (completed,
failed, interrupted, waiting, cancelled, paused), exit_code, session, run_id and wait_id.";

const ATTACH_EXAMPLES: &str = "\
Examples:
  piton attach                         The session that was active last
  piton attach sess_0199 </dev/null    Print what was said, and end when its run has ended
  echo 'go on' | piton attach sess_0199

If stdin is no terminal, it ends when its input and the run have ended, with the exit codes of
`piton chat --print`.
JSON: the session's records, one per line, and the coming ones.";

/// Talk to an agent in a folder; a server is started in the background if none runs
#[derive(Debug, clap::Args)]
#[command(after_help = CHAT_EXAMPLES)]
pub(crate) struct ChatArgs {
    /// Where the agent works [default: here]
    dir: Option<PathBuf>,
    /// Which agent [default: the setting chat.agent, else the first that is installed]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    #[command(flatten)]
    choice: ChoiceArgs,
    /// Say this, print the answer, and end with an exit code by the run's outcome; - reads it from
    /// stdin
    #[arg(long, value_name = "PROMPT")]
    print: Option<String>,
    /// Leave the agent running when --print ends; without it the agent ends, and the session's next
    /// prompt starts it again
    #[arg(long, requires = "print")]
    keep: bool,
    /// With --print: a file that comes with the prompt; may be repeated
    #[arg(long, value_name = "FILE", requires = "print")]
    attach: Vec<PathBuf>,
}

/// Come back to a session: what was said last, and what is being said
#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH_EXAMPLES)]
pub(crate) struct AttachArgs {
    /// The session's id, or its beginning [default: the one that was active last]
    session: Option<String>,
}

pub(crate) async fn chat(ui: &mut Ui, cx: &Context, args: ChatArgs) -> Result<Exit> {
    // Before anything is started or made.
    let text = args.print.map(|text| prompt::given(text, &args.attach)).transpose()?;
    let title = text.as_deref().map(title);
    let print = text.map(|text| attachment::prompt(text, &args.attach)).transpose()?;
    let folder = folder(args.dir.as_deref().unwrap_or(Path::new(".")))?;
    let agent = agents::chosen(ui, &cx.settings, args.agent)?;
    let client = background::ensure(cx).await?;
    let new = NewSession {
        working_dir: Some(folder),
        agent_profile_id: Some(agent),
        title,
        start: Some(true),
        agent: args.choice.choice()?,
        ..NewSession::default()
    };
    let session = client.create_session(&new).await?.session_id;
    let until = if print.is_some() { Until::TurnEnds } else { Until::Left };
    let ends_agent = print.is_some() && !args.keep;
    let (asked, of) = (client.clone(), session.clone());
    let talk = Talk::new(ui, cx, client, session, until).with_new_agent(print);
    let exit = talk.with_key_delay(cx.settings.permissions.key_delay).run().await?;
    if ends_agent && exit.has_run_ended() {
        // The answer is there all the same; what stays is ended when it has been idle for long enough.
        if let Err(error) = asked.stop_agent(&of).await {
            ui.warn(&format!("The agent of session {of} was not ended: {error}"))?;
        }
    }
    Ok(exit)
}

pub(crate) async fn attach(ui: &mut Ui, cx: &Context, args: AttachArgs) -> Result<Exit> {
    let client = background::ensure(cx).await?;
    let session = find(&client, args.session.as_deref()).await?;
    let status = client.session(&session).await?;
    if status.is_resumable && !status.is_agent_running {
        // Only the agent is started: whether an interrupted run goes on is for a person to say.
        // An agent that cannot be started is no reason to hide what was said.
        match client.open_session(&session).await {
            Err(error) if error.is_connection() => return Err(error.into()),
            Err(error) => drop(ui.report(&error.into())),
            Ok(_) => {}
        }
    }
    let talk = Talk::new(ui, cx, client, session, Until::Left);
    talk.with_key_delay(cx.settings.permissions.key_delay).run().await
}

fn title(prompt: &str) -> String {
    prompt.lines().next().unwrap_or_default().chars().take(80).collect()
}

/// The session that is meant: by the beginning of its id, or the one that was active last.
async fn find(client: &Client, named: Option<&str>) -> Result<SessionId> {
    if let Some(named) = named {
        return lookup::session_on(client, SessionId::from_user(named)?).await;
    }
    let query = SessionQuery { limit: Some(1), ..SessionQuery::default() };
    let first = client.sessions(&query).await?.sessions.into_iter().next();
    first.map(|session| session.session_id).ok_or_else(|| {
        Error::new(Code::SessionNotFound, "There are no sessions")
            .with_hint("Begin one with `piton chat`.")
    })
}
