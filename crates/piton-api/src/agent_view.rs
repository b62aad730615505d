//! An agent's own features: modes, models, config options, slash commands, plan, usage and cost.

use std::collections::BTreeMap;

use piton_core::agent_view as core;
use serde::{Deserialize, Serialize};

/// The value of a config option: a string of its `values`, or a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OptionValue {
    Bool(bool),
    Text(String),
}

/// Mode, model and options of the agent. Absent fields stay as they are. Applied now, if the agent
/// runs, and whenever it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentChoice {
    /// The id of a mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The id of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Config options by their ids; at most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, OptionValue>,
}

/// Options of a fork.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ForkRequest {
    /// Without one, that of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether the agent is started at once. The default is `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<bool>,
    /// Of a graph: the checkpoint that the new session begins with; without one, the newest. The new
    /// session is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<String>,
}

/// A conversation that an agent keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentSession {
    pub agent_session_id: String,
    /// The folder of the conversation.
    pub folder: Option<String>,
    pub title: Option<String>,
    /// As the agent spells it.
    pub updated_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentSessionPage {
    pub sessions: Vec<AgentSession>,
    /// Where the next page begins; null on the last one.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct AgentSessionQuery {
    /// Only conversations of this folder: an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Where the last page ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// How an agent logs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoginRequest {
    /// The agent's id of the way to log in; without it, the only one that the agent named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
}

/// An available choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NamedChoice {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
}

/// The available choices and the current one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChoiceList {
    pub current: Option<String>,
    pub available: Vec<NamedChoice>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConfigOption {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    /// The category, as the agent spells it: `mode`, `model`, `thought_level`, …
    pub category: Option<String>,
    pub current: Option<OptionValue>,
    /// The allowed values; empty for a switch.
    pub values: Vec<NamedChoice>,
}

/// A slash command: a prompt that begins with `/` and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SlashCommand {
    pub name: String,
    pub description: String,
    /// A hint at the command's arguments.
    pub hint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanEntry {
    pub content: String,
    /// As the agent spells it: `pending`, `in_progress`, `completed`.
    pub status: Option<String>,
    pub priority: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cost {
    /// Of the whole conversation.
    pub amount: f64,
    /// A currency code, or another unit.
    pub currency: String,
}

/// The usage that the agent reported; null where it reported none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Tokens in the context now.
    pub context_tokens: Option<u64>,
    pub context_window_tokens: Option<u64>,
    pub cost: Option<Cost>,
    /// Of the latest turn for which the agent reported it.
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub total_tokens: Option<u64>,
}

/// What the session's agent offers and said about itself, as of its latest words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentView {
    /// Null if the agent named none.
    pub modes: Option<ChoiceList>,
    pub models: Option<ChoiceList>,
    pub config_options: Vec<ConfigOption>,
    pub commands: Vec<SlashCommand>,
    pub plan: Vec<PlanEntry>,
    pub usage: Option<Usage>,
    /// What users chose for this session.
    pub chosen: AgentChoice,
    /// The names of the session's own MCP servers.
    pub mcp_servers: Vec<String>,
    /// The session whose conversation this one began with a copy of.
    pub forked_from: Option<String>,
}

/// How an MCP server at an address is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum McpTransport {
    Http,
    Sse,
}

/// An MCP server: a program that the agent starts (`command`), or an address (`url`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct McpServer {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables of the server's own environment that the program is given: for secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `http` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<McpTransport>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers, and the variables of the server's own environment that hold their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers_from: BTreeMap<String, String>,
}

impl From<McpServer> for piton_core::mcp::McpServer {
    fn from(server: McpServer) -> Self {
        let transport = server.transport.map(|transport| match transport {
            McpTransport::Http => piton_core::mcp::Transport::Http,
            McpTransport::Sse => piton_core::mcp::Transport::Sse,
        });
        Self {
            name: server.name,
            command: server.command,
            args: server.args,
            env: server.env,
            env_from: server.env_from,
            url: server.url,
            transport,
            headers: server.headers,
            headers_from: server.headers_from,
        }
    }
}

impl From<core::ConfigValue> for OptionValue {
    fn from(value: core::ConfigValue) -> Self {
        match value {
            core::ConfigValue::Bool(on) => Self::Bool(on),
            core::ConfigValue::Text(text) => Self::Text(text),
        }
    }
}

impl From<OptionValue> for core::ConfigValue {
    fn from(value: OptionValue) -> Self {
        match value {
            OptionValue::Bool(on) => Self::Bool(on),
            OptionValue::Text(text) => Self::Text(text),
        }
    }
}

impl From<AgentChoice> for core::Configure {
    fn from(choice: AgentChoice) -> Self {
        let AgentChoice { mode, model, options } = choice;
        let options = options.into_iter().map(|(id, value)| (id, value.into())).collect();
        Self { mode, model, options }
    }
}

impl From<core::Configure> for AgentChoice {
    fn from(choice: core::Configure) -> Self {
        let core::Configure { mode, model, options } = choice;
        let options = options.into_iter().map(|(id, value)| (id, value.into())).collect();
        Self { mode, model, options }
    }
}

fn named(one: core::NamedChoice) -> NamedChoice {
    let core::NamedChoice { id, name, description } = one;
    NamedChoice { id, name, description }
}

fn choices(selection: core::Selection) -> ChoiceList {
    let core::Selection { current, available } = selection;
    ChoiceList { current, available: available.into_iter().map(named).collect() }
}

impl From<core::AgentView> for AgentView {
    fn from(view: core::AgentView) -> Self {
        let option = |option: core::ConfigOption| ConfigOption {
            id: option.id,
            name: option.name,
            description: option.description,
            category: option.category,
            current: option.current.map(Into::into),
            values: option.values.into_iter().map(named).collect(),
        };
        let command = |command: core::SlashCommand| {
            let core::SlashCommand { name, description, hint } = command;
            SlashCommand { name, description, hint }
        };
        let entry = |entry: core::PlanEntry| {
            let core::PlanEntry { content, status, priority } = entry;
            PlanEntry { content, status, priority }
        };
        let usage = |usage: core::Usage| Usage {
            context_tokens: usage.context_tokens,
            context_window_tokens: usage.context_window_tokens,
            cost: usage
                .cost_amount
                .map(|amount| Cost { amount, currency: usage.cost_currency.unwrap_or_default() }),
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            total_tokens: usage.total_tokens,
        };
        Self {
            modes: view.modes.map(choices),
            models: view.models.map(choices),
            config_options: view.config_options.into_iter().map(option).collect(),
            commands: view.commands.into_iter().map(command).collect(),
            plan: view.plan.into_iter().map(entry).collect(),
            usage: view.usage.map(usage),
            chosen: view.choices.all().into(),
            mcp_servers: view.mcp_servers,
            forked_from: view.fork.map(|fork| fork.from_session_id.to_string()),
        }
    }
}
