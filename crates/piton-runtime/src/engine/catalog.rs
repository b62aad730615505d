//! The agent catalog: the agents that sessions can have.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

use piton_agent::profiles::Profile;
use piton_core::State;
use piton_core::resume::Abilities;
use piton_exec::programs;

use crate::error::{Error, Result};

/// The agent of sessions that name none, unless the options say otherwise.
pub const DEFAULT_AGENT: &str = "echo";
/// Stands for the session's id in an agent's command.
pub const SESSION_PLACEHOLDER: &str = "{session}";

/// The agent profiles by their ids.
#[derive(Debug, Default)]
pub struct AgentCatalog {
    by_id: BTreeMap<String, Profile>,
    default: String,
}

impl AgentCatalog {
    /// Of several profiles with one id the last counts.
    pub fn new(profiles: Vec<Profile>, default: impl Into<String>) -> Self {
        let by_id = profiles.into_iter().map(|profile| (profile.id.clone(), profile)).collect();
        Self { by_id, default: default.into() }
    }

    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        self.by_id.values()
    }

    /// The agent of sessions that name none.
    pub fn default_agent(&self) -> &str {
        &self.default
    }

    pub fn get(&self, id: &str) -> Result<&Profile> {
        self.by_id.get(id).ok_or_else(|| Error::AgentNotFound { agent: id.to_owned() })
    }

    /// Refuses a session whose log another program began without naming an agent: the default one
    /// would not have its conversation.
    pub fn require_named(&self, state: &State) -> Result<()> {
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
        self.get(named.unwrap_or(&self.default))
    }

    /// What an agent can do with a conversation that it had, by its profile.
    pub fn abilities(&self, agent_profile_id: Option<&str>) -> Abilities {
        let profile = self.by_id.get(agent_profile_id.unwrap_or(&self.default));
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
        let catalog = AgentCatalog::new(vec![profile("echo"), profile("codex")], "echo");
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
}
