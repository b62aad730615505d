//! `piton chat` and `piton attach`: a conversation in the terminal. The agent does not belong to
//! the terminal: a user who leaves can come back.

mod asking;
mod input;
mod markdown;
mod outcome;
pub(crate) mod screen;
mod slash;
mod talk;

use std::path::{Path, PathBuf};

use piton_api::SessionSummary;
use piton_api::client::Client;
use piton_api::session::{NewSession, SessionPage, SessionQuery};
use piton_core::id::SessionId;
use piton_core::{Code, PromptContent};

use super::sessions::new::folder;
use super::sessions::prompt;
use super::sessions::set::ChoiceArgs;
use crate::agents;
use crate::attachment;
use crate::background;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::lookup;
use crate::mcp_servers::McpServerArgs;
use crate::terminal;
use crate::terminal::chat::Left;
use crate::terminal::dashboard::{self, Chosen};
use crate::ui::Ui;
use talk::{Talk, Until};

/// Sessions that are read at a time to find one of a folder.
const PAGE_SESSIONS: usize = 200;

const CHAT_EXAMPLES: &str = "\
Examples:
  piton chat                           Talk to your agent in this folder
  piton chat \"fix the test\"            The same, with the first prompt
  piton chat --continue                Return to the folder's latest session
  piton chat --continue \"and now?\"     The same, with the next prompt
  piton chat --print \"say hello\"       One prompt, its answer, and an exit code by its outcome
  git diff | piton chat --print -      The prompt from stdin

Ctrl-C stops the turn; a second one leaves, and the agent stays: piton attach brings you back.
/help lists the commands of the chat.

Exit codes of --print: 0 completed, 1 failed, 4 interrupted, 5 it waits for an answer, 6 cancelled
and 7 paused by another client, 130 stopped by Ctrl-C. Unless it completed, stderr says why and
how to continue. No question is asked. The agent ends with the run unless --keep is given; an
agent that waits for an answer, is paused or was stopped by Ctrl-C keeps running.
JSON: with --print, the records of the turn, one per line; the last line has outcome (completed,
failed, interrupted, waiting, cancelled, paused), exit_code, session_id, run_id and wait_id.";

const ATTACH_EXAMPLES: &str = "\
Examples:
  piton attach                         This folder's latest session
  piton attach @last                   The session that was active last, in any folder
  piton attach SESSION </dev/null      Print what was said, and end when its run has ended
  echo 'now the tests' | piton attach SESSION

If stdin is no terminal, it ends when its input and the run have ended, with the exit codes of
`piton chat --print`.
JSON: the session's records, one per line, and the coming ones.";

/// Talk to an agent in this folder
///
/// Starts a server in the background if none runs. The agent keeps running when you leave.
#[derive(Debug, clap::Args)]
#[command(after_help = CHAT_EXAMPLES)]
pub(crate) struct ChatArgs {
    /// The folder in which the agent works [default: this one], or the first prompt; - reads it from
    /// stdin
    #[arg(value_name = "DIR|PROMPT")]
    dir: Option<PathBuf>,
    /// The agent [default: the setting chat.agent, else the first that is installed]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    #[command(flatten)]
    choice: ChoiceArgs,
    #[command(flatten)]
    mcp: McpServerArgs,
    /// Return to this folder's latest session
    #[arg(long = "continue", conflicts_with_all = ["resume", "print", "agent"])]
    continue_last: bool,
    /// Return to a session: its id, the beginning or end of it; without one, choose from a list
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["print", "agent"])]
    resume: Option<String>,
    /// Print plain lines instead of drawing: for screen readers and simple terminals
    #[arg(long)]
    plain: bool,
    /// Send this prompt, print the answer and exit with a code for the outcome; - reads it from stdin
    #[arg(long, value_name = "PROMPT")]
    print: Option<String>,
    /// With --print: send the prompt to this session instead of a new one
    #[arg(long, value_name = "SESSION", requires = "print", conflicts_with = "agent")]
    session: Option<String>,
    /// With --print: print the answer as text, as one JSON object, or every record of the turn as JSON
    #[arg(long, value_name = "FORMAT", requires = "print")]
    output_format: Option<OutputFormat>,
    /// With --print: keep the agent running afterwards. Otherwise it ends, and the session's next prompt
    /// starts it again
    #[arg(long, requires = "print")]
    keep: bool,
    /// With --print: attach a file to the prompt; may be repeated
    #[arg(long, value_name = "FILE", requires = "print")]
    attach: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OutputFormat {
    Text,
    Json,
    StreamJson,
}

/// Return to a session: shows the latest messages and follows what comes
#[derive(Debug, clap::Args)]
#[command(after_help = ATTACH_EXAMPLES)]
pub(crate) struct AttachArgs {
    /// The session: its id, the beginning or end of it, or @last [default: this folder's latest session,
    /// else the latest of any folder]
    session: Option<String>,
    /// Print plain lines instead of drawing: for screen readers and simple terminals
    #[arg(long)]
    plain: bool,
}

pub(crate) async fn chat(ui: &mut Ui, cx: &Context, args: ChatArgs) -> Result<Exit> {
    let mut args = args;
    let is_one_object = args.output_format == Some(OutputFormat::Json);
    ui.json |= args.output_format.is_some_and(|format| format != OutputFormat::Text);
    let first = first_prompt(&mut args)?;
    // Before anything is started or made.
    let text = args.print.map(|text| prompt::given(text, &args.attach)).transpose()?;
    let print = text.map(|text| attachment::prompt(text, &args.attach)).transpose()?;
    let is_earlier = args.continue_last || args.resume.is_some() || args.session.is_some();
    if is_earlier && !args.mcp.is_empty() {
        let message = "A session keeps its MCP servers: --mcp-server is for a new one";
        return Err(Error::usage(message));
    }
    let folder = folder(args.dir.as_deref().unwrap_or(Path::new(".")))?;
    if args.continue_last || args.resume.is_some() {
        let client = background::ensure(cx).await?;
        match earlier(ui, cx, &client, folder.clone(), args.resume).await? {
            Chosen::Attach(session) => {
                return talk_on(ui, cx, client, session, first, args.plain).await;
            }
            Chosen::Leave => return Ok(Exit::Good),
            Chosen::New => {}
        }
    }
    if let (Some(named), Some(print)) = (&args.session, &print) {
        let client = background::ensure(cx).await?;
        let session = find(&client, Some(named)).await?;
        let before = client.session(&session).await?;
        open(ui, &client, &session).await?;
        let after = client.session(&session).await?.summary.last_seq;
        let (asked, of) = (client.clone(), session.clone());
        let talk = Talk::new(ui, cx, client, session, Until::TurnEnds);
        let talk = talk.with_prompt(print.clone(), after).with_one_object(is_one_object);
        let exit = talk.with_key_delay(cx.settings.permissions.key_delay).run().await?;
        // An agent that ran before is another client's.
        if !before.is_agent_running && !args.keep {
            end_agent(ui, &asked, &of, exit).await?;
        }
        return Ok(exit);
    }
    let agent = agents::chosen(ui, &cx.settings, args.agent)?;
    let client = background::ensure(cx).await?;
    let new = NewSession {
        working_dir: Some(folder),
        agent_profile_id: Some(agent),
        start: Some(true),
        agent: args.choice.choice()?,
        mcp_servers: args.mcp.servers()?,
        ..NewSession::default()
    };
    let session = client.create_session(&new).await?.session_id;
    if print.is_none() && !args.plain && terminal::is_possible(ui) {
        return draw(ui, cx, client, session, Some(new), first).await;
    }
    let until = if print.is_some() { Until::TurnEnds } else { Until::Left };
    let ends_agent = print.is_some() && !args.keep;
    let (asked, of) = (client.clone(), session.clone());
    let print = print.or_else(|| first.map(PromptContent::from));
    let talk = Talk::new(ui, cx, client, session, until).with_new_agent(print);
    let talk = talk.with_one_object(is_one_object);
    let exit = talk.with_key_delay(cx.settings.permissions.key_delay).run().await?;
    if ends_agent {
        end_agent(ui, &asked, &of, exit).await?;
    }
    Ok(exit)
}

/// Ends the agent of a run that was printed, if the run has ended.
async fn end_agent(ui: &mut Ui, client: &Client, session: &SessionId, exit: Exit) -> Result<()> {
    if exit.has_run_ended()
        // The answer is there all the same; what stays is ended when it has been idle for long enough.
        && let Err(error) = client.stop_agent(session).await
    {
        ui.warn(&format!("The agent of session {session} was not ended: {error}"))?;
    }
    Ok(())
}

pub(crate) async fn attach(ui: &mut Ui, cx: &Context, args: AttachArgs) -> Result<Exit> {
    let client = background::ensure(cx).await?;
    let session = find(&client, args.session.as_deref()).await?;
    talk_on(ui, cx, client, session, None, args.plain).await
}

/// Returns to a session, drawn or printed.
async fn talk_on(
    ui: &mut Ui,
    cx: &Context,
    client: Client,
    session: SessionId,
    first: Option<String>,
    plain: bool,
) -> Result<Exit> {
    if !plain && terminal::is_possible(ui) {
        return draw(ui, cx, client, session, None, first).await;
    }
    open(ui, &client, &session).await?;
    let mut talk = Talk::new(ui, cx, client, session, Until::Left);
    if let Some(first) = first {
        talk = talk.with_first_prompt(first.into());
    }
    talk.with_key_delay(cx.settings.permissions.key_delay).run().await
}

/// Draws a session that was chosen on the dashboard.
pub(crate) async fn attach_to(
    ui: &mut Ui,
    cx: &Context,
    client: Client,
    session: SessionId,
) -> Result<Exit> {
    talk_on(ui, cx, client, session, None, false).await
}

/// Draws a new session in this folder.
pub(crate) async fn begin(ui: &mut Ui, cx: &Context, client: Client) -> Result<Exit> {
    let new = NewSession {
        working_dir: Some(folder(Path::new("."))?),
        agent_profile_id: Some(agents::chosen(ui, &cx.settings, None)?),
        start: Some(true),
        ..NewSession::default()
    };
    let session = client.create_session(&new).await?.session_id;
    draw(ui, cx, client, session, Some(new), None).await
}

/// The session to go back to: the one that is named or chosen, or the latest of the folder.
async fn earlier(
    ui: &mut Ui,
    cx: &Context,
    client: &Client,
    folder: String,
    named: Option<String>,
) -> Result<Chosen> {
    match named {
        Some(named) if !named.is_empty() => find(client, Some(&named)).await.map(Chosen::Attach),
        Some(_) if terminal::is_possible(ui) => dashboard::run(ui, cx, client, Some(folder)).await,
        Some(_) => Err(Error::usage("Name the session: there is no terminal to choose one on")),
        None => {
            let Latest { here, .. } = latest(client, Some(&folder)).await?;
            let message = format!("There is no session in {folder}");
            let none = Error::new(Code::SessionNotFound, message);
            here.map(Chosen::Attach).ok_or_else(|| none.with_hint("Begin one with `piton chat`."))
        }
    }
}

/// The first prompt, if the argument is one and no folder.
fn first_prompt(args: &mut ChatArgs) -> Result<Option<String>> {
    let is_prompt = |text: &&str| *text == "-" || is_prompt(text);
    let named = args.dir.as_deref().and_then(Path::to_str).filter(is_prompt).map(str::to_owned);
    if named.is_some() {
        args.dir = None;
    }
    named.map(|text| prompt::given(text, &[])).transpose()
}

/// A text that is no folder: a folder is there, or is spelled like a path.
fn is_prompt(text: &str) -> bool {
    let is_spelled_like_a_path =
        !text.contains(char::is_whitespace) && (text.contains('/') || text.starts_with(['.', '~']));
    !is_spelled_like_a_path && !Path::new(text).exists()
}

/// Starts the agent of a session that can be resumed. What is drawn starts it itself, on the screen.
async fn open(ui: &mut Ui, client: &Client, session: &SessionId) -> Result<()> {
    let status = client.session(session).await?;
    if status.is_resumable && !status.is_agent_running {
        // Only the agent is started: whether an interrupted run continues is for a person to say.
        // An agent that cannot be started is no reason to hide what was said.
        match client.open_session(session).await {
            Err(error) if error.is_connection() => return Err(error.into()),
            Err(error) => drop(ui.report(&error.into())),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Draws the conversation on the terminal, and those that follow it.
async fn draw(
    ui: &mut Ui,
    cx: &Context,
    client: Client,
    mut session: SessionId,
    mut new: Option<NewSession>,
    mut first_prompt: Option<String>,
) -> Result<Exit> {
    let mut is_new = new.is_some();
    loop {
        let (of, first) = (session.clone(), first_prompt.take());
        let left = terminal::chat::run(ui, cx, client.clone(), of, first, is_new).await?;
        session = match left {
            (Left::Quit, exit) => return Ok(exit),
            (Left::To(other), _) => {
                is_new = false;
                other
            }
            (Left::New, _) => {
                is_new = true;
                let like = match &new {
                    Some(new) => new.clone(),
                    None => like(&client, &session).await?,
                };
                let created = client.create_session(&like).await?.session_id;
                new = Some(like);
                created
            }
        };
    }
}

/// A new session in the folder of another one, with its agent.
async fn like(client: &Client, session: &SessionId) -> Result<NewSession> {
    let summary = client.session(session).await?.summary;
    Ok(NewSession {
        working_dir: summary.working_dir,
        agent_profile_id: summary.agent_profile_id,
        start: Some(true),
        ..NewSession::default()
    })
}

/// The session that is named, or the one to come back to from this folder.
async fn find(client: &Client, named: Option<&str>) -> Result<SessionId> {
    if let Some(named) = named {
        return lookup::session_on(client, named.parse()?).await;
    }
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    let here = here.ok().and_then(|here| here.to_str().map(str::to_owned));
    let Latest { here, anywhere } = latest(client, here.as_deref()).await?;
    here.or(anywhere).ok_or_else(lookup::none)
}

/// The sessions that were active last.
#[derive(Debug, Default)]
struct Latest {
    /// In the folder.
    here: Option<SessionId>,
    anywhere: Option<SessionId>,
}

/// Looks through all sessions, last active first, for one of the folder.
async fn latest(client: &Client, folder: Option<&str>) -> Result<Latest> {
    let mut query = SessionQuery { limit: Some(PAGE_SESSIONS), ..SessionQuery::default() };
    let mut found = Latest::default();
    loop {
        let SessionPage { sessions, next } = client.sessions(&query).await?;
        let is_here = |one: &&SessionSummary| one.working_dir.as_deref() == folder;
        let here = sessions.iter().find(is_here).filter(|_| folder.is_some());
        found.here = here.map(|one| one.session_id.clone());
        found.anywhere =
            found.anywhere.or_else(|| sessions.into_iter().next().map(|one| one.session_id));
        query.after = next;
        if found.here.is_some() || folder.is_none() || query.after.is_none() {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_prompt_unless_it_is_a_folder() {
        for text in ["hello", "fix the test", "what is /etc/passwd?", ""] {
            assert!(is_prompt(text), "{text}");
        }
        for text in ["src", ".", "./src", "/tmp", "missing/folder", "~/missing", "../x"] {
            assert!(!is_prompt(text), "{text}");
        }
    }
}
