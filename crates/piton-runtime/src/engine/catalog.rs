//! The agent catalog: the agents that sessions can have.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

use piton_agent::profiles::{Origin, Profile};
use piton_core::State;
use piton_core::resume::Abilities;
use piton_exec::programs;

use crate::error::{Error, Result};

/// The built-in agent without a model: the agent of sessions that name none where no other agent is
/// set or installed.
pub const TEST_AGENT: &str = "echo";
/// Stands for the session's id in an agent's command.
pub const SESSION_PLACEHOLDER: &str = "{session}";

/// The agent of a new session that names none, and where the choice comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultAgent {
    /// By the setting `chat.agent`.
    Set(String),
    /// The first that is installed.
    Installed(String),
    /// None is installed: the built-in test agent.
    Echo,
}

impl DefaultAgent {
    /// Prefers agents from the settings: the user configured them on purpose.
    pub fn among<'a>(
        profiles: impl IntoIterator<Item = &'a Profile>,
        is_installed: impl Fn(&Profile) -> bool,
    ) -> Self {
        let (known, own): (Vec<_>, Vec<_>) = profiles
            .into_iter()
            .filter(|profile| profile.id != TEST_AGENT)
            .partition(|profile| profile.origin == Origin::BuiltIn);
        let found = own.into_iter().chain(known).find(|profile| is_installed(profile));
        found.map_or(Self::Echo, |profile| Self::Installed(profile.id.clone()))
    }

    pub fn id(&self) -> &str {
        match self {
            Self::Set(id) | Self::Installed(id) => id,
            Self::Echo => TEST_AGENT,
        }
    }

    /// What a client that named no agent must know; nothing if the user chose the agent.
    pub fn notice(&self) -> Option<String> {
        match self {
            Self::Set(_) => None,
            Self::Installed(id) => Some(format!(
                "The agent is {id}; agent_profile_id or the setting chat.agent chooses another."
            )),
            Self::Echo => Some(format!(
                "No agent is installed, so this is {TEST_AGENT}, a test agent without a model. \
                 GET /agents lists the agents and how to install them."
            )),
        }
    }
}

/// The agent profiles by their ids.
#[derive(Debug, Default)]
pub struct AgentCatalog {
    by_id: BTreeMap<String, Profile>,
    /// The ids as they were given: of several installed agents the first is the default.
    order: Vec<String>,
    /// The setting `chat.agent`.
    default: Option<String>,
}

impl AgentCatalog {
    /// Of several profiles with one id the last counts.
    pub fn new(profiles: Vec<Profile>, default: Option<String>) -> Self {
        let order = profiles.iter().map(|profile| profile.id.clone()).collect();
        let by_id = profiles.into_iter().map(|profile| (profile.id.clone(), profile)).collect();
        Self { by_id, order, default }
    }

    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        self.by_id.values()
    }

    /// The agent of new sessions that name none. `path`: the search path, as for
    /// [`program`](Self::program).
    pub fn default_agent(&self, path: Option<&OsStr>) -> DefaultAgent {
        if let Some(id) = &self.default {
            return DefaultAgent::Set(id.clone());
        }
        let profiles = self.order.iter().filter_map(|id| self.by_id.get(id));
        DefaultAgent::among(profiles, |agent| Self::program(agent, path).is_some())
    }

    /// The agent of a session whose log names none, though it was not adopted.
    fn unnamed(&self) -> &str {
        self.default.as_deref().unwrap_or(TEST_AGENT)
    }

    pub fn get(&self, id: &str) -> Result<&Profile> {
        self.by_id.get(id).ok_or_else(|| Error::AgentNotFound { agent: id.to_owned() })
    }

    /// Refuses a session whose log another program began without naming an agent: the default one
    /// would not have its conversation.
    pub fn require_named(&self, state: &State) -> Result<()> {
        if state.facts.graph.is_some()
            && let Some(info) = &state.info
        {
            return Err(Error::SessionIsGraph { session: info.session_id.clone() });
        }
        match state.info.as_ref() {
            Some(info) if info.is_adopted && info.agent_profile_id.is_none() => {
                Err(Error::AgentProfileRequired { session: info.session_id.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The agent that a session runs.
    pub fn of(&self, state: &State) -> Result<&Profile> {
        self.require_named(state)?;
        let named = state.info.as_ref().and_then(|info| info.agent_profile_id.as_deref());
        self.get(named.unwrap_or(self.unnamed()))
    }

    /// What an agent can do with a conversation that it had, by its profile.
    pub fn abilities(&self, agent_profile_id: Option<&str>) -> Abilities {
        let profile = self.by_id.get(agent_profile_id.unwrap_or(self.unnamed()));
        profile.map(|profile| profile.abilities).unwrap_or_default()
    }

    /// Where an agent's program is, if it is installed. `path`: the search path, unless the profile
    /// has one of its own.
    pub fn program(profile: &Profile, path: Option<&OsStr>) -> Option<PathBuf> {
        let own = profile.env.iter().find(|(name, _)| name == "PATH");
        let path = own.map(|(_, path)| OsStr::new(path)).or(path);
        programs::find(profile.command.first()?, path)
    }
}

#[cfg(test)]
mod tests {
    use piton_core::Timestamp;
    use piton_core::event::{Event, SessionAdopted, SessionAgentAssigned};

    use super::*;

    /// Wants to show: a log that another program began, and that names no agent, runs none by itself;
    /// given one, it runs that one.
    #[test]
    fn an_adopted_log_asks_for_its_agent() {
        let profile = |id: &str| Profile::configured(id, vec![id.to_owned()]);
        let catalog = AgentCatalog::new(vec![profile("echo"), profile("codex")], None);
        let adopted: Event = SessionAdopted {
            session_id: "sess_1".parse().unwrap(),
            created_at: Timestamp::from_millis(0),
            title: None,
            working_dir: None,
            provider: None,
            run: None,
        }
        .into();
        let mut state = State::default();
        state.apply(1, Timestamp::from_millis(1), &adopted);
        let refused = catalog.of(&state).unwrap_err();
        assert_eq!(refused.code(), piton_core::Code::AgentProfileRequired);
        assert!(refused.hint().contains("--agent"), "{}", refused.hint());
        let assigned: Event = SessionAgentAssigned { agent_profile_id: "codex".to_owned() }.into();
        state.apply(2, Timestamp::from_millis(2), &assigned);
        assert_eq!(catalog.of(&state).unwrap().id, "codex");
        // A session that Piton made names its agent, or has the default one.
        assert_eq!(catalog.of(&State::default()).unwrap().id, "echo");
    }

    /// Wants to show: a new session that names no agent has the one that is set, else the first that is
    /// installed, an own one before a built-in one, else the test agent; unless it is set, a notice
    /// says so.
    #[test]
    fn the_default_agent_is_the_set_one_an_installed_one_or_echo() {
        let known = |id: &str| Profile {
            origin: Origin::BuiltIn,
            ..Profile::configured(id, vec![id.to_owned()])
        };
        let own = Profile::configured("mine", vec!["mine".to_owned()]);
        let all = [known(TEST_AGENT), known("two"), known("one"), own];
        let among =
            |ids: &[&str]| DefaultAgent::among(&all, |profile| ids.contains(&profile.id.as_str()));
        assert_eq!(among(&[TEST_AGENT]), DefaultAgent::Echo, "the built-in one is always there");
        assert_eq!(among(&["one", "two"]), DefaultAgent::Installed("two".to_owned()));
        assert_eq!(among(&["one", "mine"]), DefaultAgent::Installed("mine".to_owned()));

        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("one");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let path = Some(folder.path().as_os_str());
        let found = |set: Option<&str>, path| {
            AgentCatalog::new(all.to_vec(), set.map(str::to_owned)).default_agent(path)
        };
        assert_eq!(found(None, path), DefaultAgent::Installed("one".to_owned()));
        assert_eq!(found(None, Some(OsStr::new("/nonexistent"))), DefaultAgent::Echo);
        assert_eq!(found(Some("two"), path), DefaultAgent::Set("two".to_owned()));
        assert_eq!(found(Some("two"), path).notice(), None);
        assert!(found(None, path).notice().unwrap().contains("The agent is one"));
        assert!(DefaultAgent::Echo.notice().unwrap().contains("test agent"));
    }
}
