//! How a session's agent comes back: what can be promised, who may start it, and what it is told.
//! Values only; whoever starts processes asks here first.

use serde::{Deserialize, Serialize};

/// What an agent's profile says it can do with a conversation that it had. What the agent itself
/// advertises counts for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Abilities {
    /// It resumes or loads over its protocol.
    pub native: bool,
    /// It is continued by arguments of its command line.
    pub command_line: bool,
    /// It may be told the history with its first prompt.
    pub history: bool,
}

/// How an agent gets its conversation back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// `session/resume` or `session/load`, whichever it offers.
    Native,
    /// Its command is given the conversation's id.
    CommandLine,
    /// It starts afresh, and its first prompt carries the history.
    History,
    /// It starts afresh and knows nothing.
    #[serde(other)]
    None,
}

/// When an agent that does not run is started.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum AgentRestart {
    OnBoot,
    #[default]
    OnOpen,
    OnPrompt,
    Manual,
}

/// Whether a turn that was interrupted goes on by itself.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ContinueTurn {
    #[default]
    Ask,
    Auto,
    Never,
}

/// What somebody decided for all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    pub agent_restart: AgentRestart,
    pub continue_turn: ContinueTurn,
    /// Whether an agent is told what it lost.
    pub note: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            agent_restart: AgentRestart::default(),
            continue_turn: ContinueTurn::default(),
            note: true,
        }
    }
}

/// Why an agent is wanted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// The session was made.
    Created,
    /// The server has started.
    Boot,
    /// Somebody looks at the session.
    Open,
    /// Somebody said something to it.
    Prompt,
    /// Its agent ended before it was given what somebody said.
    Retry,
    /// Somebody asked for it.
    #[serde(other)]
    Asked,
}
