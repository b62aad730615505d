//! The agents that can be run: the built-in one, those that Piton knows, and those of the settings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use piton_agent::profiles::{self, Origin, Profile};
use piton_core::Code;
use piton_core::resume::{Abilities, Strategy};
use piton_exec::programs;
use piton_runtime::DefaultAgent;

use crate::config::Settings;
use crate::echo_memory::EchoMemory;
use crate::error::{Error, Result};
use crate::ui::Ui;

/// The agent that is part of this program.
pub(crate) const ECHO: &str = "echo";

/// All of them. One of the settings stands where the known one of its name stood.
pub(crate) fn all(settings: &Settings) -> Result<Vec<Profile>> {
    let mut agents = vec![echo(&std::env::current_exe()?, &settings.data.value)];
    agents.extend(profiles::built_in());
    for agent in &settings.agents {
        match agents.iter_mut().find(|known| known.id == agent.profile.id) {
            Some(known) => *known = agent.profile.clone(),
            None => agents.push(agent.profile.clone()),
        }
    }
    Ok(agents)
}

pub(crate) fn find(settings: &Settings, id: &str) -> Result<Profile> {
    let all = all(settings)?;
    let likeness = |agent: &&Profile| strsim::jaro_winkler(&agent.id, id);
    let nearest = all.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let hint = match nearest.filter(|agent| likeness(agent) > 0.8) {
        Some(agent) => format!("Did you mean {}?", agent.id),
        None => "`piton agents list` shows which agents there are.".to_owned(),
    };
    let unknown = Error::new(Code::AgentNotFound, format!("There is no agent {id:?}"));
    all.into_iter().find(|agent| agent.id == id).ok_or_else(|| unknown.with_hint(hint))
}

/// The agent of a new session that names none.
fn default_agent(settings: &Settings) -> Result<DefaultAgent> {
    if let Some(id) = &settings.chat_agent.value {
        find(settings, id)?;
        return Ok(DefaultAgent::Set(id.clone()));
    }
    Ok(DefaultAgent::among(&all(settings)?, |profile| installed(profile).is_some()))
}

/// The agent of a new session: the named one, else the default. Prints a note if the user chose
/// neither.
pub(crate) fn chosen(ui: &mut Ui, settings: &Settings, named: Option<String>) -> Result<String> {
    if let Some(named) = named {
        return Ok(named);
    }
    let default = default_agent(settings)?;
    match &default {
        DefaultAgent::Set(_) => {}
        DefaultAgent::Installed(id) => ui.note(&format!(
            "The agent is {id}; --agent or the setting chat.agent chooses another."
        ))?,
        DefaultAgent::Echo => ui.note(
            "No agent is installed, so this is echo, a test agent without a model. \
             `piton agents list` shows which agents there are and how to install them.",
        )?,
    }
    Ok(default.id().to_owned())
}

/// What an agent can do with a conversation that it had, by its profile.
pub(crate) fn abilities(settings: &Settings, id: Option<&str>) -> Result<Abilities> {
    let all = all(settings)?;
    let profile = all.into_iter().find(|agent| agent.id == id.unwrap_or(ECHO));
    Ok(profile.map(|profile| profile.abilities).unwrap_or_default())
}

fn echo(program: &Path, data: &Path) -> Profile {
    let memory = EchoMemory::new(data).file(piton_runtime::SESSION_PLACEHOLDER);
    let parts = [program.as_os_str(), "agent".as_ref(), "echo".as_ref()];
    let rest = ["--".as_ref(), "--memory".as_ref(), memory.as_os_str()];
    let command = parts.into_iter().chain(rest).map(|part| part.to_string_lossy().into_owned());
    Profile {
        name: "Echo (built in, without a model)".to_owned(),
        origin: Origin::BuiltIn,
        // A test agent runs its prompt as a script, so a history in the prompt would be of no use.
        abilities: Abilities { native: true, ..Abilities::default() },
        ..Profile::configured(ECHO, command.collect())
    }
}

/// The first part of its command.
pub(crate) fn program(profile: &Profile) -> &str {
    profile.command.first().map(String::as_str).unwrap_or_default()
}

/// Where its program is, if it is there and may be run.
pub(crate) fn installed(profile: &Profile) -> Option<PathBuf> {
    programs::find(program(profile), path(profile).as_deref())
}

/// Where it finds programs: it may have been given a path of its own.
pub(crate) fn path(profile: &Profile) -> Option<OsString> {
    let own = profile.env.iter().find(|(name, _)| name == "PATH");
    own.map_or_else(|| std::env::var_os("PATH"), |(_, path)| Some(path.into()))
}

/// For people.
pub(crate) fn strategy_text(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Native => "native",
        Strategy::CommandLine => "command line",
        Strategy::History => "history",
        Strategy::None => "none",
    }
}

/// For programs.
pub(crate) fn strategy_name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Native => "native",
        Strategy::CommandLine => "command_line",
        Strategy::History => "history",
        Strategy::None => "none",
    }
}
