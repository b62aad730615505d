//! `piton agents doctor`: is everything there that an agent needs? [`Facts`] are gathered, [`judge`]
//! is pure: what is judged can be tested without being ill.

use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_agent::profiles::{Origin, Profile, Retention};
use serde_json::{Value, json};

use super::contact::{self, Asked, Failure, Heard};
use super::probe;
use crate::agents;
use crate::call::Call;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::findings::{self, Finding, ok, problem, warning};
use crate::programs;
use crate::times;
use crate::ui::{Tone, Ui};
use piton_core::Code;

const EXAMPLES: &str = "\
Examples:
  piton agents doctor                Those that are installed or configured
  piton agents doctor claude-code    One, whether or not it is there
  piton agents doctor --json | jq '.agents[] | select(.good | not)'

Starts each agent for a moment, as `piton agents probe` does: it costs nothing.
Exits with 1 if there is a problem with an agent that was named.
JSON: one object: good, agents: a list of {agent_profile_id, good, findings: a list of {check,
level (ok, warning, problem), says, hint}}.";

/// Check agents: program, Node.js, home folder, first answer, login
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The agent [default: all that are installed or configured]
    agent: Option<String>,
    /// How long to wait for each answer [default: 30s]
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    wait: Option<Duration>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let profiles = match &args.agent {
        Some(id) => vec![agents::find(&cx.settings, id)?],
        None => worth_a_look(agents::all(&cx.settings)?),
    };
    let mut looked = Vec::new();
    for profile in profiles {
        Ui::progress(&format!("Looking at {}", profile.id));
        let wait = args.wait.unwrap_or(contact::WAIT);
        let facts = Facts::gather(cx, &profile, wait).await;
        Ui::progress("");
        let facts = match facts {
            Ok(facts) => facts,
            Err(exit) => return Ok(exit),
        };
        let findings = judge(&profile, &facts);
        if !ui.json {
            print(ui, &profile, &findings)?;
        }
        looked.push((profile, findings));
    }
    let good = looked.iter().all(|(_, findings)| findings::are_good(findings));
    if ui.json {
        let agents: Vec<Value> = looked.iter().map(|looked| to_json(looked, &ui.call)).collect();
        ui.json_line(&json!({"good": good, "agents": agents}))?;
    }
    Ok(if good || args.agent.is_none() { Exit::Good } else { Exit::Failed })
}

/// An agent that is neither configured nor installed is not a problem.
fn worth_a_look(all: Vec<Profile>) -> Vec<Profile> {
    let is_wanted =
        |agent: &Profile| agent.origin == Origin::Configured || agents::installed(agent).is_some();
    all.into_iter().filter(is_wanted).collect()
}

fn print(ui: &mut Ui, profile: &Profile, findings: &[Finding]) -> Result<()> {
    let title = ui.paint(Tone::Title, &profile.id);
    ui.line(format_args!("{title} ({})", profile.name))?;
    findings.iter().try_for_each(|finding| finding.print(ui))
}

fn to_json((profile, findings): &(Profile, Vec<Finding>), call: &Call) -> Value {
    json!({
        "agent_profile_id": profile.id,
        "good": findings::are_good(findings),
        "findings": findings.iter().map(|finding| finding.to_json(call)).collect::<Vec<_>>(),
    })
}

#[derive(Clone, Debug)]
struct Facts {
    program: ProgramFact,
    /// What `node --version` says; `None` if there is none.
    node: Option<String>,
    home: HomeFact,
    retention: RetentionFact,
    /// `None`: it was not asked.
    answer: Option<Result<Heard, Failure>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ProgramFact {
    There(PathBuf),
    NotExecutable(PathBuf),
    Missing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HomeFact {
    Good(PathBuf),
    Unset,
    Missing(PathBuf),
    ReadOnly(PathBuf),
}

/// What an agent's settings say of keeping its conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RetentionFact {
    Unset,
    Set(bool),
    /// Why the settings could not be read.
    Unreadable(String),
}

impl Facts {
    /// Or the signal that ended us meanwhile.
    async fn gather(cx: &Context, profile: &Profile, wait: Duration) -> Result<Self, Exit> {
        let program = program(profile);
        let answer = match program {
            ProgramFact::There(_) if profile.is_acp() => {
                match contact::ask(cx, profile, wait).await {
                    Asked::Heard(heard) => Some(Ok(heard)),
                    Asked::Failed(failure) => Some(Err(failure)),
                    Asked::Interrupted(exit) => return Err(exit),
                }
            }
            _ => None,
        };
        let path = agents::path(profile);
        let node = profile.node_major_min;
        let node = node.and_then(|_| programs::said_in(path.as_deref(), "node", &["--version"]));
        Ok(Self { program, node, home: home(), retention: retention(profile), answer })
    }
}

fn program(profile: &Profile) -> ProgramFact {
    if let Some(path) = agents::installed(profile) {
        return ProgramFact::There(path);
    }
    let name = agents::program(profile);
    let folders = agents::path(profile).unwrap_or_default();
    let mut places = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        std::env::split_paths(&folders).map(|folder| folder.join(name)).collect()
    };
    places.retain(|place| place.is_file());
    places.into_iter().next().map_or(ProgramFact::Missing, ProgramFact::NotExecutable)
}

fn home() -> HomeFact {
    let Some(home) = std::env::var_os("HOME").filter(|home| !home.is_empty()) else {
        return HomeFact::Unset;
    };
    let home = PathBuf::from(home);
    if !home.is_dir() {
        return HomeFact::Missing(home);
    }
    let writable = rustix::fs::access(&home, rustix::fs::Access::WRITE_OK).is_ok();
    if writable { HomeFact::Good(home) } else { HomeFact::ReadOnly(home) }
}

fn retention(profile: &Profile) -> RetentionFact {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let (Some(setting), Some(home)) = (profile.quirks.retention, home) else {
        return RetentionFact::Unset;
    };
    read_retention(&setting, &home)
}

fn read_retention(setting: &Retention, home: &Path) -> RetentionFact {
    let path = home.join(setting.file);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return RetentionFact::Unset,
        Err(error) => return RetentionFact::Unreadable(format!("{}: {error}", path.display())),
    };
    match serde_json::from_str::<Value>(&text) {
        Ok(settings) => settings
            .pointer(setting.pointer)
            .and_then(Value::as_bool)
            .map_or(RetentionFact::Unset, RetentionFact::Set),
        // Comments are permitted there, and not read here.
        Err(error) => RetentionFact::Unreadable(format!("{}: {error}", path.display())),
    }
}

fn judge(profile: &Profile, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![judge_program(profile, &facts.program)];
    findings.extend(profile.node_major_min.map(|min| judge_node(min, facts.node.as_deref())));
    findings.push(judge_home(&facts.home));
    findings.extend(
        profile.quirks.retention.map(|setting| judge_retention(&setting, &facts.retention)),
    );
    match &facts.answer {
        Some(Ok(heard)) => findings.extend([judge_answer(heard), judge_login(heard)]),
        Some(Err(failure)) => findings.push(judge_silence(profile, failure)),
        None if !profile.is_acp() => {
            findings.push(ok("answer", "not asked: it is run once for each prompt"));
        }
        None => {}
    }
    findings
}

fn judge_program(profile: &Profile, found: &ProgramFact) -> Finding {
    const CHECK: &str = "program";
    match found {
        ProgramFact::There(path) => ok(CHECK, path.display().to_string()),
        ProgramFact::NotExecutable(path) => problem(
            CHECK,
            format!("{} may not be executed", path.display()),
            format!("chmod +x {}", path.display()),
        ),
        ProgramFact::Missing => {
            let failure = Failure {
                code: Code::AgentMissing,
                message: String::new(),
                last_words: String::new(),
                wants_login: false,
            };
            let says = format!("{} is not found", agents::program(profile));
            problem(CHECK, says, probe::hint(profile, &failure))
        }
    }
}

fn judge_node(min: u32, version: Option<&str>) -> Finding {
    const CHECK: &str = "node";
    let hint = format!("Install Node.js {min} or newer, and then the agent again.");
    let Some(version) = version else {
        return problem(CHECK, "not found", hint);
    };
    let major = version.trim_start_matches('v').split('.').next();
    match major.and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if major >= min => ok(CHECK, version),
        Some(_) => problem(CHECK, format!("{version}, and it needs {min} or newer"), hint),
        None => warning(CHECK, format!("{version:?} is no version"), hint),
    }
}

fn judge_home(found: &HomeFact) -> Finding {
    const CHECK: &str = "home";
    let hint = "Agents keep conversations and logins in the home folder: without it they forget.";
    let at = |path: &Path| path.display().to_string();
    match found {
        HomeFact::Good(path) => ok(CHECK, at(path)),
        HomeFact::Unset => problem(CHECK, "HOME is not set", hint),
        HomeFact::Missing(path) => problem(CHECK, format!("{} is no folder", at(path)), hint),
        HomeFact::ReadOnly(path) => {
            problem(CHECK, format!("{} cannot be written to", at(path)), hint)
        }
    }
}

/// Without the setting the agent deletes conversations by itself, and then starts without context.
fn judge_retention(setting: &Retention, found: &RetentionFact) -> Finding {
    const CHECK: &str = "retention";
    let Retention { file, setting: name, keeps, .. } = setting;
    let hint = format!("Set {name} to {keeps} in ~/{file}.");
    let says = |value: &str| format!("{name} is {value}: the agent may delete its conversations");
    match found {
        RetentionFact::Set(value) if value == keeps => ok(CHECK, format!("{name} is {value}")),
        RetentionFact::Set(value) => warning(CHECK, says(&value.to_string()), hint),
        RetentionFact::Unset => warning(CHECK, says("not set"), hint),
        RetentionFact::Unreadable(why) => warning(CHECK, format!("Cannot read {why}"), hint),
    }
}

fn judge_answer(heard: &Heard) -> Finding {
    let offers = probe::offered(heard.hello.capabilities);
    ok("answer", format!("{}; offers {offers}", probe::who(heard)))
}

/// Whether it wants a login is known when a session is opened, and none is opened here.
fn judge_login(heard: &Heard) -> Finding {
    let methods = probe::logins(&heard.hello.auth_methods);
    if methods.is_empty() {
        return ok("login", "it names no way to log in");
    }
    ok("login", format!("if it wants one: {methods}"))
}

fn judge_silence(profile: &Profile, failure: &Failure) -> Finding {
    let check = if failure.wants_login { "login" } else { "answer" };
    let mut says = failure.message.clone();
    if !failure.last_words.is_empty() {
        says = format!("{says}. It wrote: {}", failure.last_words);
    }
    problem(check, says, probe::hint(profile, failure))
}

#[cfg(test)]
#[path = "doctor_tests.rs"]
mod tests;
