//! What an agent said about its features, made readable from the contents of its records.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Choices, ConfigValue, Configure, Feature};
use crate::event::Fork;

/// Something that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedChoice {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
}

/// What can be chosen from, and what is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub current: Option<String>,
    pub available: Vec<NamedChoice>,
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
    pub values: Vec<NamedChoice>,
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

fn named(value: &Value, id: &str) -> Option<NamedChoice> {
    let id = text(value, id)?;
    let name = text(value, "name").unwrap_or_else(|| id.clone());
    Some(NamedChoice { id, name, description: text(value, "description") })
}

/// The values of a select option; they may be grouped.
fn values(option: &Value) -> Vec<NamedChoice> {
    list(Some(option), "options")
        .flat_map(|part| {
            let group: Vec<_> = list(Some(part), "options").collect();
            if group.is_empty() { vec![part] } else { group }
        })
        .filter_map(|value| named(value, "value"))
        .collect()
}

fn config_option(value: &Value) -> Option<ConfigOption> {
    let NamedChoice { id, name, description } = named(value, "id")?;
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
            let reported = said.get(&all).map(|reported| reported.get(key).unwrap_or(reported))?;
            let later = said.get(&one).and_then(|reported| text(reported, current_key));
            let current = later.or_else(|| text(reported, current_key));
            let available =
                list(Some(reported), list_key).filter_map(|one| named(one, id)).collect();
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
