//! Agents that Piton knows: how each one is started, installed and brought back, and where it
//! differs from what the protocol says. Data and pure functions, a file for each agent: nothing is
//! started, looked for or read here.
//!
//! What an agent advertises about itself counts for more than what is written down here
//! ([`Profile::advertised`]). No profile says where an agent's home folder or its working folder is:
//! both stay where they were, or the agent would find another past than its own.

mod amp;
mod auggie;
mod claude_code;
mod cline;
mod codex;
mod continuation;
mod copilot;
mod gemini;
mod goose;
mod opencode;
mod pi;
mod quirks;
mod qwen;

use std::fmt;
use std::time::Duration;

use piton_core::Timestamp;
use piton_core::mcp::McpServer;
use piton_core::resume::{Abilities, Strategy};
use piton_core::spool::SessionCapabilities;

use crate::acp::Refusal;

pub use continuation::Continuation;
pub use piton_core::command_line::{AGENT_MESSAGE_ID, AGENT_SESSION_ID, CommandLine, Output};
pub use quirks::{LoadTiming, Quirks, Retention};

/// What there is to know about an agent.
#[derive(Clone, PartialEq, Eq)]
pub struct Profile {
    pub id: String,
    /// For people.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// A sentence: how to get the program. Empty: not known.
    pub install: String,
    /// Added to its environment. The values may be secret: [`fmt::Debug`] shows the names alone.
    pub env: Vec<(String, String)>,
    /// Removed from its environment.
    pub env_remove: Vec<String>,
    /// How it logs in at each start, for one that forgets it.
    pub auth_method: Option<String>,
    /// Given to it with every conversation.
    pub mcp_servers: Vec<McpServer>,
    /// What it can do with a conversation that it had, as far as is known before it is asked.
    pub abilities: Abilities,
    /// How its command line resumes a conversation.
    pub continuation: Option<Continuation>,
    /// The oldest Node.js that runs it, if it needs one.
    pub node_major_min: Option<u32>,
    pub quirks: Quirks,
    pub origin: Origin,
}

/// Who said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    BuiltIn,
    #[default]
    Configured,
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BuiltIn => "built_in",
            Self::Configured => "configured",
        }
    }
}

/// The built-in profiles: first those that must resume natively or by history, then by name.
pub fn built_in() -> Vec<Profile> {
    vec![
        claude_code::profile(),
        codex::profile(),
        copilot::profile(),
        auggie::profile(),
        gemini::profile(),
        amp::profile(),
        opencode::profile(),
        cline::profile(),
        goose::profile(),
        pi::profile(),
        qwen::profile(),
    ]
}

/// The built-in one of this id.
pub fn find(id: &str) -> Option<Profile> {
    built_in().into_iter().find(|profile| profile.id == id)
}

impl Profile {
    /// An agent from the user's configuration: only its command is known, and that it speaks the
    /// protocol. The agent itself reports whether it can resume.
    pub fn configured(id: impl Into<String>, command: Vec<String>) -> Self {
        let id = id.into();
        Self {
            name: id.clone(),
            id,
            command,
            install: String::new(),
            env: Vec::new(),
            env_remove: Vec::new(),
            auth_method: None,
            mcp_servers: Vec::new(),
            // An id can be refused: then its first prompt carries the history.
            abilities: Abilities { native: true, command_line: false, history: true },
            continuation: None,
            node_major_min: None,
            quirks: Quirks::default(),
            origin: Origin::Configured,
        }
    }

    /// A built-in one with nothing special about it.
    fn known(id: &str, name: &str, command: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            origin: Origin::BuiltIn,
            ..Self::configured(id, texts(command))
        }
    }

    /// Whether it speaks the Agent Client Protocol. An agent that its command line continues runs
    /// once for each prompt, and answers no requests in between.
    pub fn is_acp(&self) -> bool {
        !self.abilities.command_line
    }

    /// What it can do now that it was asked. The protocol's part is as the agent says, whatever the
    /// table has; about the rest it says nothing.
    pub fn advertised(&self, capabilities: SessionCapabilities) -> Abilities {
        Abilities { native: capabilities.resume || capabilities.load, ..self.abilities }
    }

    /// What an error of `session/load` or `session/resume` means for the id. Where neither the
    /// profile nor the general rule is sure, the id is kept.
    pub fn refusal(&self, code: i64, message: &str) -> Refusal {
        self.quirks.wording.refusal(code, message)
    }

    /// How long to wait before a conversation is loaded that was opened last at `opened_at`; `None`:
    /// not at all.
    pub fn settle_before_load(&self, opened_at: Timestamp, now: Timestamp) -> Option<Duration> {
        match self.quirks.loads {
            LoadTiming::AtOnce => None,
            LoadTiming::InAnotherMinute => gemini::another_minute(opened_at, now),
        }
    }
}

/// How one with these abilities gets its conversation back: the best that there is.
pub fn strategy(abilities: Abilities) -> Strategy {
    match abilities {
        Abilities { native: true, .. } => Strategy::Native,
        Abilities { command_line: true, .. } => Strategy::CommandLine,
        Abilities { history: true, .. } => Strategy::History,
        Abilities { .. } => Strategy::None,
    }
}

/// Environments hold keys: their values are in no text.
impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Profile")
            .field("id", &self.id)
            .field("command", &self.command)
            .field("env", &names)
            .field("env_remove", &self.env_remove)
            .field("abilities", &self.abilities)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

fn texts(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|&part| part.to_owned()).collect()
}

fn npm(package: &str) -> String {
    format!("Install it with `npm install -g {package}`.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environments_values_are_in_no_text() {
        let env = vec![("A_KEY".to_owned(), "hunter2".to_owned())];
        let profile = Profile { env, ..Profile::configured("mine", texts(&["x"])) };
        let text = format!("{profile:?}");
        assert!(text.contains("A_KEY") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn the_best_way_is_taken() {
        let can = |native, command_line, history| Abilities { native, command_line, history };
        assert_eq!(strategy(can(true, true, true)), Strategy::Native);
        assert_eq!(strategy(can(false, true, true)), Strategy::CommandLine);
        assert_eq!(strategy(can(false, false, true)), Strategy::History);
        assert_eq!(strategy(can(false, false, false)), Strategy::None);
    }
}
