//! An agent's own features: modes, models, config options, slash commands, plan and usage. The log
//! keeps what an agent says about them as contents; the fold only keeps where the latest of each
//! stands. What a user chose is a record of its own, so that every start of the agent can apply it.

mod view;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{AgentConfigured, AgentUpdated, Fork, Seq};
use crate::limits::{CHOICE_BYTES_MAX, CHOICES_MAX};

pub use view::{
    AgentView, ConfigOption, NamedChoice, NotOffered, PlanEntry, Selection, SlashCommand, Usage,
};

/// The value of a config option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ConfigValue {
    Bool(bool),
    Text(String),
}

/// How an agent is to work. What is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Configure {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Config options by their ids.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, ConfigValue>,
}

impl Configure {
    pub fn is_empty(&self) -> bool {
        self.mode.is_none() && self.model.is_none() && self.options.is_empty()
    }

    /// What is wrong with it, before any agent is asked.
    pub fn fault(&self) -> Option<String> {
        let texts = self.mode.iter().chain(&self.model).chain(self.options.keys());
        let values = self.options.values().filter_map(|value| match value {
            ConfigValue::Text(text) => Some(text),
            ConfigValue::Bool(_) => None,
        });
        if texts.chain(values).any(|text| text.is_empty() || text.len() > CHOICE_BYTES_MAX) {
            return Some(format!("A mode, model or option has 1 to {CHOICE_BYTES_MAX} bytes"));
        }
        let is_over = self.options.len() > CHOICES_MAX;
        is_over.then(|| format!("At most {CHOICES_MAX} options can be set"))
    }
}

/// Something that a user chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice<T> {
    pub value: T,
    pub seq: Seq,
    /// No agent is known to have been given it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_pending: bool,
}

/// What users chose, each under the record that says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choices {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Choice<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Choice<String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Choice<ConfigValue>>,
    /// When an agent was last about to be started: it is given all that was chosen before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<Seq>,
}

impl Choices {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All of it, for an agent that starts.
    pub fn all(&self) -> Configure {
        Configure {
            mode: self.mode.as_ref().map(|choice| choice.value.clone()),
            model: self.model.as_ref().map(|choice| choice.value.clone()),
            options: self.options.iter().map(|(id, of)| (id.clone(), of.value.clone())).collect(),
        }
    }

    fn configured(&mut self, seq: Seq, e: &AgentConfigured) {
        fn choice<T: Clone>(value: &T, seq: Seq) -> Choice<T> {
            Choice { value: value.clone(), seq, is_pending: true }
        }
        let Configure { mode, model, options } = &e.choice;
        if let Some(mode) = mode {
            self.mode = Some(choice(mode, seq));
        }
        if let Some(model) = model {
            self.model = Some(choice(model, seq));
        }
        for (id, value) in options {
            if self.options.len() < CHOICES_MAX || self.options.contains_key(id) {
                self.options.insert(id.clone(), choice(value, seq));
            }
        }
    }

    /// An agent has started with all that was chosen before its start was decided.
    fn given(&mut self) {
        let Some(carried) = self.carried else { return };
        for choice in self.mode.iter_mut().chain(&mut self.model) {
            choice.is_pending &= choice.seq > carried;
        }
        for choice in self.options.values_mut() {
            choice.is_pending &= choice.seq > carried;
        }
    }
}

/// Where the agent's latest words about each of its features stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentFeatures {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub latest: BTreeMap<Feature, Seq>,
    #[serde(skip_serializing_if = "Choices::is_empty")]
    pub choices: Choices,
    /// Where the session's own MCP servers stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Seq>,
    /// The conversation that the agent begins with a copy of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    Modes,
    Mode,
    Models,
    Model,
    Config,
    Commands,
    Plan,
    Usage,
    TurnUsage,
}

/// An agent refused what a user chose: followed by `mode`, `model` or an option's id.
pub const CHOICE_REFUSED: &str = "choice_refused:";

impl Feature {
    fn of(what: &str) -> Option<Self> {
        Some(match what {
            "modes" => Self::Modes,
            "mode" => Self::Mode,
            "models" => Self::Models,
            "model" => Self::Model,
            "config" => Self::Config,
            "commands" => Self::Commands,
            "plan" => Self::Plan,
            "usage" => Self::Usage,
            "turn_usage" => Self::TurnUsage,
            _ => return None,
        })
    }
}

impl AgentFeatures {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn configured(&mut self, seq: Seq, e: &AgentConfigured) {
        self.choices.configured(seq, e);
    }

    /// An agent is about to be started.
    pub(crate) fn resuming(&mut self, seq: Seq) {
        self.choices.carried = Some(seq).filter(|_| !self.choices.is_empty());
    }

    pub(crate) fn ready(&mut self) {
        self.choices.given();
    }

    /// Something that the agent says about itself.
    pub(crate) fn updated(&mut self, seq: Seq, e: &AgentUpdated) {
        if let Some(refused) = e.what.strip_prefix(CHOICE_REFUSED) {
            match refused {
                "mode" => self.choices.mode = None,
                "model" => self.choices.model = None,
                id => drop(self.choices.options.remove(id)),
            }
            return;
        }
        let Some(feature) = Feature::of(&e.what) else { return };
        self.latest.insert(feature, seq);
        let settle = |choice: &mut Option<Choice<String>>| {
            if let Some(choice) = choice {
                choice.is_pending = false;
            }
        };
        match feature {
            // They name the current one, too.
            Feature::Modes => drop(self.latest.remove(&Feature::Mode)),
            Feature::Models => drop(self.latest.remove(&Feature::Model)),
            Feature::Mode => settle(&mut self.choices.mode),
            Feature::Model => settle(&mut self.choices.model),
            Feature::Config => {
                for choice in self.choices.options.values_mut() {
                    choice.is_pending = false;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
