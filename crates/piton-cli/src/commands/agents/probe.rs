//! `piton agents probe`: asks an agent who it is and what it can do.

use std::time::Duration;

use piton_agent::profiles::{self, Profile};
use piton_core::Code;
use piton_core::spool::{AuthMethod, SessionCapabilities};
use serde_json::{Value, json};

use super::contact::{self, Asked, Failure, Heard};
use crate::agents;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::text::{one_line, padded};
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton agents probe echo
  piton agents probe claude-code --wait 2m
  piton agents probe codex --json | jq .capabilities

Starts the agent in an empty temporary folder, then ends it with every process that it started.
Opens no session and calls no model: it costs nothing and records nothing.
JSON: one object: agent_profile_id, program, agent {name, version}, capabilities {load, resume,
list, close, delete, fork}, auth_methods, resume_strategy, expected_strategy, answered_in_ms.";

/// Start an agent and show its version, what it offers and how it resumes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The agent's id; `piton agents list` shows them
    agent: String,
    /// How long to wait for its answer [default: 30s]
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    wait: Option<Duration>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let profile = agents::find(&cx.settings, &args.agent)?;
    if !profile.is_acp() {
        let message = format!("{} does not speak the Agent Client Protocol", profile.name);
        return Err(Error::new(Code::AgentUnusable, message).with_hint(format!(
            "Piton runs it once per prompt, so there is no process to probe. `piton agents doctor \
             {}` says whether it is installed.",
            profile.id
        )));
    }
    Ui::progress(&format!("Asking {}", profile.id));
    let asked = contact::ask(cx, &profile, args.wait.unwrap_or(contact::WAIT)).await;
    Ui::progress("");
    match asked {
        Asked::Heard(heard) => tell(ui, &profile, &heard),
        Asked::Failed(failure) => Err(error(&profile, &failure)),
        Asked::Interrupted(exit) => Ok(exit),
    }
}

pub(super) fn error(profile: &Profile, failure: &Failure) -> Error {
    let message = format!("{} cannot be used: {}", profile.id, one_line(&failure.message));
    let mut error = Error::new(Code::AgentUnusable, message).with_hint(hint(profile, failure));
    if !failure.last_words.is_empty() {
        error = error.because(&LastWords(one_line(&failure.last_words)));
    }
    error
}

/// What to do about it; also for the doctor.
pub(super) fn hint(profile: &Profile, failure: &Failure) -> String {
    match failure.code {
        Code::AgentMissing if profile.install.is_empty() => {
            format!("Install it, or correct the setting agents.{}.command.", profile.id)
        }
        Code::AgentMissing => profile.install.clone(),
        Code::AgentNotExecutable => "Make it executable with `chmod +x`.".to_owned(),
        Code::AgentTimeout => {
            "Start it by hand to see what it waits for, or give it more time with --wait."
                .to_owned()
        }
        Code::AgentVersion => "Use a release of it that speaks version 1.".to_owned(),
        _ if failure.wants_login => "Log in with the agent's own command.".to_owned(),
        _ => format!(
            "Start it by hand to see what is wrong: {}",
            profile.command.join(" ").replace(piton_runtime::SESSION_PLACEHOLDER, "ID")
        ),
    }
}

/// What an agent wrote last, as the cause of an error.
#[derive(Debug)]
struct LastWords(String);

impl std::fmt::Display for LastWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "It wrote: {}", self.0)
    }
}

impl std::error::Error for LastWords {}

/// The names of what it offers.
pub(super) fn offered(capabilities: SessionCapabilities) -> String {
    let SessionCapabilities { load, resume, list, close, delete, fork, prompt: _ } = capabilities;
    let all = [
        (load, "load"),
        (resume, "resume"),
        (list, "list"),
        (close, "close"),
        (delete, "delete"),
        (fork, "fork"),
    ];
    let names: Vec<&str> = all.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Who it says it is.
pub(super) fn who(heard: &Heard) -> String {
    match &heard.hello.agent {
        Some(agent) => match &agent.version {
            Some(version) => one_line(&format!("{} {version}", agent.name)),
            None => one_line(&agent.name),
        },
        None => "it does not say".to_owned(),
    }
}

/// The ways to log in.
pub(super) fn logins(methods: &[AuthMethod]) -> String {
    let each = methods.iter().map(|method| one_line(&format!("{} ({})", method.id, method.name)));
    each.collect::<Vec<_>>().join(", ")
}

fn tell(ui: &mut Ui, profile: &Profile, heard: &Heard) -> Result<Exit> {
    let hello = &heard.hello;
    let now = profiles::strategy(profile.advertised(hello.capabilities));
    let expected = profiles::strategy(profile.abilities);
    let program = agents::installed(profile);
    if ui.json {
        let methods: Vec<Value> = hello.auth_methods.iter().map(|method| json!(method)).collect();
        ui.json_line(&json!({
            "agent_profile_id": profile.id,
            "program": program,
            "agent": hello.agent,
            "capabilities": hello.capabilities,
            "auth_methods": methods,
            "resume_strategy": agents::strategy_name(now),
            "expected_strategy": agents::strategy_name(expected),
            "answered_in_ms": u64::try_from(heard.after.as_millis()).unwrap_or(u64::MAX),
        }))?;
        return Ok(Exit::Good);
    }
    let mut row = |name: &str, text: String| {
        let name = ui.paint(Tone::Quiet, &padded(name, 12));
        ui.line(format_args!("{name} {text}"))
    };
    row("agent", format!("{} ({})", profile.id, profile.name))?;
    let program = program.map_or_else(String::new, |path| path.display().to_string());
    row("program", program)?;
    row("says it is", who(heard))?;
    row("capabilities", offered(hello.capabilities))?;
    let methods = logins(&hello.auth_methods);
    row(
        "logs in by",
        if methods.is_empty() { "nothing that it names".to_owned() } else { methods },
    )?;
    let mut resumes = agents::strategy_text(now).to_owned();
    if now != expected {
        resumes = format!("{resumes} (expected: {})", agents::strategy_text(expected));
    }
    row("resumes by", resumes)?;
    for note in profile.quirks.notes {
        row("note", (*note).to_owned())?;
    }
    Ok(Exit::Good)
}
