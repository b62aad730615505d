//! An agent's own features: modes, models, config options, slash commands, plan and usage. The log
//! keeps what an agent says about them as contents; the fold only keeps where the latest of each
//! stands. What a user chose is a record of its own, so that every start of the agent can apply it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{AgentConfigured, AgentUpdated, Fork, Seq};
use crate::limits::{CHOICE_BYTES_MAX, CHOICES_MAX};

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

/// Something that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
}

/// What can be chosen from, and what is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub current: Option<String>,
    pub available: Vec<Named>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigOption {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    /// What it is about: `mode`, `model`, `thought_level`, …
    pub category: Option<String>,
    pub current: Option<ConfigValue>,
    /// What it can be; none for a switch.
    pub values: Vec<Named>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    pub name: String,
    pub description: String,
    /// What may follow its name.
    pub hint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    pub content: String,
    pub status: Option<String>,
    pub priority: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    pub context_tokens: Option<u64>,
    pub context_window_tokens: Option<u64>,
    pub cost_amount: Option<f64>,
    pub cost_currency: Option<String>,
    /// Of the last turn that said so.
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub total_tokens: Option<u64>,
}

/// All that is known of an agent's features.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentView {
    /// `None`: the agent named none.
    pub modes: Option<Selection>,
    pub models: Option<Selection>,
    pub config_options: Vec<ConfigOption>,
    pub commands: Vec<SlashCommand>,
    pub plan: Vec<PlanEntry>,
    pub usage: Option<Usage>,
    pub choices: Choices,
    /// The names of the session's own MCP servers.
    pub mcp_servers: Vec<String>,
    pub fork: Option<Fork>,
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn list<'a>(value: Option<&'a Value>, key: &str) -> impl Iterator<Item = &'a Value> {
    value.and_then(|value| value.get(key)).and_then(Value::as_array).into_iter().flatten()
}

fn named(value: &Value, id: &str) -> Option<Named> {
    let id = text(value, id)?;
    let name = text(value, "name").unwrap_or_else(|| id.clone());
    Some(Named { id, name, description: text(value, "description") })
}

/// The values of a select option; they may be grouped.
fn values(option: &Value) -> Vec<Named> {
    list(Some(option), "options")
        .flat_map(|part| {
            let group: Vec<_> = list(Some(part), "options").collect();
            if group.is_empty() { vec![part] } else { group }
        })
        .filter_map(|value| named(value, "value"))
        .collect()
}

fn config_option(value: &Value) -> Option<ConfigOption> {
    let Named { id, name, description } = named(value, "id")?;
    let current = value.get("currentValue").and_then(|current| match current {
        Value::Bool(on) => Some(ConfigValue::Bool(*on)),
        current => current.as_str().map(|text| ConfigValue::Text(text.to_owned())),
    });
    let category = text(value, "category");
    Some(ConfigOption { id, name, description, category, current, values: values(value) })
}

impl AgentView {
    /// From what the agent said last of each feature; what it spelled in another way is left out.
    pub fn new(said: &BTreeMap<Feature, Value>, choices: Choices) -> Self {
        let selection = |all: Feature, key: &str, list_key: &str, id: &str, one: Feature| {
            let current_key =
                if all == Feature::Modes { "currentModeId" } else { "currentModelId" };
            let told = said.get(&all).map(|told| told.get(key).unwrap_or(told))?;
            let later = said.get(&one).and_then(|told| text(told, current_key));
            let current = later.or_else(|| text(told, current_key));
            let available = list(Some(told), list_key).filter_map(|one| named(one, id)).collect();
            Some(Selection { current, available })
        };
        let config = said.get(&Feature::Config);
        let config_options: Vec<_> =
            list(config, "configOptions").filter_map(config_option).collect();
        let of_category = |category: &str| {
            let option = config_options.iter().find(|o| o.category.as_deref() == Some(category))?;
            let current = match &option.current {
                Some(ConfigValue::Text(current)) => Some(current.clone()),
                _ => None,
            };
            Some(Selection { current, available: option.values.clone() })
        };
        let modes = selection(Feature::Modes, "modes", "availableModes", "id", Feature::Mode);
        let own_models =
            selection(Feature::Models, "models", "availableModels", "modelId", Feature::Model);
        Self {
            modes: modes.or_else(|| of_category("mode")),
            models: own_models.or_else(|| of_category("model")),
            commands: list(said.get(&Feature::Commands), "availableCommands")
                .filter_map(|command| {
                    Some(SlashCommand {
                        name: text(command, "name")?,
                        description: text(command, "description").unwrap_or_default(),
                        hint: command.get("input").and_then(|input| text(input, "hint")),
                    })
                })
                .collect(),
            plan: list(said.get(&Feature::Plan), "entries")
                .filter_map(|entry| {
                    let content = text(entry, "content")?;
                    let (status, priority) = (text(entry, "status"), text(entry, "priority"));
                    Some(PlanEntry { content, status, priority })
                })
                .collect(),
            usage: usage(said),
            config_options,
            choices,
            mcp_servers: Vec::new(),
            fork: None,
        }
    }

    /// The config option that stands for a mode or a model, where the agent has no other way to choose
    /// it.
    pub fn option_for(&self, category: &str) -> Option<&ConfigOption> {
        self.config_options.iter().find(|option| option.category.as_deref() == Some(category))
    }

    /// What of a choice the agent does not offer, if it is known what it offers.
    pub fn not_offered(&self, choice: &Configure) -> Option<NotOffered> {
        let missing = |what: &'static str, id: &str, offered: Option<&Selection>| {
            let available: Vec<String> =
                offered.iter().flat_map(|of| &of.available).map(|one| one.id.clone()).collect();
            let is_there = available.iter().any(|one| one == id);
            (!is_there).then(|| NotOffered { what, id: id.to_owned(), available })
        };
        if let Some(mode) = &choice.mode
            && let Some(missing) = missing("mode", mode, self.modes.as_ref())
        {
            return Some(missing);
        }
        if let Some(model) = &choice.model
            && let Some(missing) = missing("model", model, self.models.as_ref())
        {
            return Some(missing);
        }
        for (id, value) in &choice.options {
            let Some(option) = self.config_options.iter().find(|option| option.id == *id) else {
                let available = self.config_options.iter().map(|option| option.id.clone());
                let (what, id) = ("option", id.clone());
                return Some(NotOffered { what, id, available: available.collect() });
            };
            let is_fit = match value {
                ConfigValue::Bool(_) => option.values.is_empty(),
                ConfigValue::Text(text) => option.values.iter().any(|one| one.id == *text),
            };
            if !is_fit {
                let available = match option.values.as_slice() {
                    [] => vec!["true".to_owned(), "false".to_owned()],
                    values => values.iter().map(|one| one.id.clone()).collect(),
                };
                let id = match value {
                    ConfigValue::Bool(on) => format!("{id}={on}"),
                    ConfigValue::Text(text) => format!("{id}={text}"),
                };
                return Some(NotOffered { what: "option", id, available });
            }
        }
        None
    }
}

/// Something that an agent does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOffered {
    pub what: &'static str,
    pub id: String,
    pub available: Vec<String>,
}

fn usage(said: &BTreeMap<Feature, Value>) -> Option<Usage> {
    let (context, turn) = (said.get(&Feature::Usage), said.get(&Feature::TurnUsage));
    if context.is_none() && turn.is_none() {
        return None;
    }
    let number = |of: Option<&Value>, key: &str| of.and_then(|of| of.get(key)?.as_u64());
    let cost = context.and_then(|context| context.get("cost"));
    Some(Usage {
        context_tokens: number(context, "used"),
        context_window_tokens: number(context, "size"),
        cost_amount: cost.and_then(|cost| cost.get("amount")?.as_f64()),
        cost_currency: cost.and_then(|cost| text(cost, "currency")),
        input_tokens: number(turn, "inputTokens"),
        output_tokens: number(turn, "outputTokens"),
        total_tokens: number(turn, "totalTokens"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configured(choice: Configure) -> AgentConfigured {
        AgentConfigured { choice }
    }

    fn said(what: &str) -> AgentUpdated {
        let execution_id = "exec_1".parse().unwrap();
        AgentUpdated { execution_id, what: what.to_owned(), run_id: None, truncated: false }
    }

    fn mode(mode: &str) -> Configure {
        Configure { mode: Some(mode.to_owned()), ..Configure::default() }
    }

    /// Wants to show: a choice is pending until the agent says so, or was started with it; one that the
    /// agent refused is not given to the next one.
    #[test]
    fn a_choice_is_pending_until_an_agent_has_it() {
        let mut features = AgentFeatures::default();
        let is_pending = |features: &AgentFeatures| {
            features.choices.mode.as_ref().map(|choice| choice.is_pending)
        };
        features.configured(1, &configured(mode("plan")));
        assert_eq!(is_pending(&features), Some(true));
        features.updated(2, &said("mode"));
        assert_eq!(is_pending(&features), Some(false));
        features.configured(3, &configured(mode("code")));
        features.resuming(4);
        features.ready();
        assert_eq!(is_pending(&features), Some(false), "it was started with it");
        features.resuming(5);
        features.configured(6, &configured(mode("plan")));
        features.ready();
        assert_eq!(is_pending(&features), Some(true), "it was started without it");
        assert_eq!(features.choices.all(), mode("plan"));
        features.updated(7, &said("choice_refused:mode"));
        assert_eq!(features.choices.all(), Configure::default());
    }

    #[test]
    fn what_an_agent_says_is_read_leniently() {
        let said = BTreeMap::from([
            (
                Feature::Modes,
                json!({"modes": {"currentModeId": "ask", "availableModes": [
                    {"id": "ask", "name": "Ask"}, {"id": "code"}, {"name": "no id"}]}}),
            ),
            (Feature::Mode, json!({"currentModeId": "code"})),
            (
                Feature::Config,
                json!({"configOptions": [
                    {"id": "m", "name": "Model", "category": "model", "type": "select",
                     "currentValue": "big", "options": [{"group": "g", "options": [
                        {"value": "big", "name": "Big"}, {"value": "small", "name": "Small"}]}]},
                    {"id": "web", "name": "Web", "type": "boolean", "currentValue": true}]}),
            ),
            (
                Feature::Commands,
                json!({"availableCommands": [{"name": "test", "description": "Run", "input": {"hint": "what"}}]}),
            ),
            (Feature::Plan, json!({"entries": [{"content": "One", "status": "pending"}, 7]})),
            (
                Feature::Usage,
                json!({"used": 10, "size": 100, "cost": {"amount": 0.5, "currency": "USD"}}),
            ),
            (Feature::TurnUsage, json!({"inputTokens": 3, "outputTokens": "?"})),
        ]);
        let view = AgentView::new(&said, Choices::default());
        let modes = view.modes.clone().unwrap();
        assert_eq!((modes.current.as_deref(), modes.available.len()), (Some("code"), 2));
        let offered = view.models.clone().unwrap();
        assert_eq!((offered.current.as_deref(), offered.available.len()), (Some("big"), 2));
        assert_eq!(view.config_options[1].current, Some(ConfigValue::Bool(true)));
        assert_eq!(view.commands[0].hint.as_deref(), Some("what"));
        assert_eq!(view.plan.len(), 1);
        let usage = view.usage.clone().unwrap();
        assert_eq!((usage.context_tokens, usage.cost_amount), (Some(10), Some(0.5)));
        assert_eq!((usage.input_tokens, usage.output_tokens), (Some(3), None));

        assert_eq!(view.not_offered(&mode("ask")), None);
        let missing = view.not_offered(&mode("fly")).unwrap();
        assert_eq!((missing.what, missing.available.len()), ("mode", 2));
        let option = |id: &str, value: ConfigValue| Configure {
            options: BTreeMap::from([(id.to_owned(), value)]),
            ..Configure::default()
        };
        let small = || ConfigValue::Text("small".to_owned());
        assert_eq!(view.not_offered(&option("m", small())), None);
        assert_eq!(view.not_offered(&option("web", ConfigValue::Bool(false))), None);
        for wrong in
            [option("x", small()), option("web", small()), option("m", ConfigValue::Bool(true))]
        {
            assert!(view.not_offered(&wrong).is_some(), "{wrong:?}");
        }
    }
}
