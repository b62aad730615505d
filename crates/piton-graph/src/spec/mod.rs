//! What a graph is, as plain data: from a builder in Rust or from a file, and with a digest, so that a
//! resume notices that it changed.

mod check;
mod parse;
mod subgraph;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use piton_core::canonical;
use piton_core::graph::{CheckpointOptions, Edge, Reducer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::expression;
pub(crate) use check::{Checked, check};
pub(crate) use parse::Parsed;
pub use parse::{FILE_BYTES_MAX, parse, parse_checkpoint_options};
pub(crate) use subgraph::Files;
pub use subgraph::SubgraphSpec;

/// The parts of a graph whose entries users name.
const NAMED_PARTS: &[&str] = &["inputs", "memory", "nodes"];

/// The JSON Schema of graph files, for editors.
pub const SCHEMA: &str = include_str!("../../../../docs/reference/graph.schema.json");

/// The version of graph files that this program reads.
pub const VERSION: &str = "graph/v1";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphSpec {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Nodes that the graph ends with; empty: those without an edge that leads further.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub terminal: BTreeSet<String>,
    pub inputs: BTreeMap<String, InputSpec>,
    pub memory: BTreeMap<String, MemorySpec>,
    pub nodes: BTreeMap<String, NodeSpec>,
    pub edges: Vec<EdgeSpec>,
    pub checkpoint: CheckpointOptions,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputSpec {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub of_type: Option<ValueType>,
    pub required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueType {
    String,
    Number,
    Integer,
    Boolean,
    Array,
    Object,
}

impl ValueType {
    pub const ALL: &'static [Self] =
        &[Self::String, Self::Number, Self::Integer, Self::Boolean, Self::Array, Self::Object];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// Whether a value is of this type; nothing is of every type.
    pub fn fits(self, value: &Value) -> bool {
        match self {
            _ if value.is_null() => true,
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

/// How parallel writers of a key are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySpec {
    /// `None`: the later value counts.
    pub reducer: Option<Reducer>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    pub kind: NodeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<MapSpec>,
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    pub repeat: Option<LoopSpec>,
    pub reads: BTreeSet<String>,
    pub writes: BTreeSet<String>,
    pub retry: Retry,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    pub effects: Effects,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
    /// Its completion is a safe point of the graph.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub safe_point: bool,
}

impl NodeSpec {
    pub fn new(kind: NodeKind) -> Self {
        let effects = match &kind {
            NodeKind::Set { .. } | NodeKind::Template { .. } | NodeKind::Subgraph(_) => {
                Effects::None
            }
            NodeKind::Custom | NodeKind::Command(_) | NodeKind::Human(_) | NodeKind::Agent(_) => {
                Effects::External
            }
        };
        Self {
            kind,
            map: None,
            repeat: None,
            reads: BTreeSet::new(),
            writes: BTreeSet::new(),
            retry: Retry::default(),
            timeout_ms: None,
            effects,
            tags: BTreeSet::new(),
            safe_point: false,
        }
    }

    /// The key that the node's one result is written to.
    pub(crate) fn result_key(&self) -> Option<&str> {
        self.writes.first().map(String::as_str)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Code of the program that runs the graph.
    Custom,
    Command(CommandSpec),
    /// Keys and the values that they get: templates in strings are filled.
    Set {
        values: BTreeMap<String, Value>,
    },
    /// One text.
    Template {
        text: String,
    },
    Human(HumanSpec),
    Agent(AgentSpec),
    Subgraph(SubgraphSpec),
}

impl NodeKind {
    /// As graph files name it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Custom => "custom",
            Self::Command(_) => "command",
            Self::Set { .. } => "set",
            Self::Template { .. } => "template",
            Self::Human(_) => "human",
            Self::Agent(_) => "agent",
            Self::Subgraph(_) => "subgraph",
        }
    }
}

/// A prompt to an agent, which works in a session of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentSpec {
    /// `None`: the default agent of who runs the graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    pub prompt: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandSpec {
    /// The program and its arguments; a template fills one of them.
    pub argv: Vec<String>,
    pub output: OutputFormat,
    /// It has a folder in `PITON_ARTIFACTS`, whose files are kept with the session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub artifacts: bool,
}

/// What a command prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// Text, without white space at its end.
    #[default]
    Text,
    Json,
    /// A list of its lines.
    Lines,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HumanSpec {
    pub question: String,
    pub options: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// The node runs once for each item of a list, and its result is the list of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapSpec {
    /// An expression that gives the list.
    pub over: String,
    /// The name of the item in the node's templates.
    #[serde(rename = "as")]
    pub item: String,
    pub parallel: usize,
}

/// The node runs again until it says that it is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopSpec {
    pub max_iterations: u32,
    /// A condition over the loop's outputs that ends it; the body may end it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts after the first.
    pub times: u32,
    pub backoff_min_ms: u64,
    pub backoff_max_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { times: 0, backoff_min_ms: 1_000, backoff_max_ms: 30_000 }
    }
}

impl Retry {
    /// How long to wait after `failures` failed attempts: twice as long each time.
    pub fn delay(&self, failures: u32) -> Duration {
        let doubled = self.backoff_min_ms.saturating_mul(1 << failures.saturating_sub(1).min(20));
        Duration::from_millis(doubled.min(self.backoff_max_ms))
    }
}

/// What repeating a node would do outside the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// Nothing: its start is written together with its completion.
    None,
    /// Something: its start is durable before it runs.
    External,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeSpec {
    pub from: String,
    pub to: String,
    /// It is taken if this holds; without it always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Of a node's edges that can be taken, those of the highest priority are.
    pub priority: i32,
    /// How often it may be taken, for an edge that closes a cycle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// It is taken when its source has failed for good; the others when it completed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_error: bool,
}

impl EdgeSpec {
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            when: None,
            priority: 0,
            max: None,
            on_error: false,
        }
    }
}

impl From<&EdgeSpec> for Edge {
    fn from(edge: &EdgeSpec) -> Self {
        Self { from: edge.from.clone(), to: edge.to.clone(), max: edge.max }
    }
}

impl GraphSpec {
    /// From what the log has. An error: another version of Piton wrote it.
    pub fn from_value(mut value: Value) -> Result<Self, serde_json::Error> {
        for part in NAMED_PARTS {
            let Some(listed) = value.get_mut(*part) else { continue };
            let pairs: Vec<(String, Value)> = serde_json::from_value(listed.take())?;
            *listed = Value::Object(pairs.into_iter().collect());
        }
        serde_json::from_value(value)
    }

    /// As it is written to the log: what has a name is a pair, because the value of a key that is called
    /// like a secret (an input `api_key`) would be masked.
    pub fn to_value(&self) -> Value {
        // Plain data with text keys: that it can be written is certain.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        for part in NAMED_PARTS {
            if let Some(Value::Object(named)) = value.get_mut(*part).map(Value::take) {
                let pairs =
                    named.into_iter().map(|(name, one)| Value::Array(vec![name.into(), one]));
                value[*part] = pairs.collect();
            }
        }
        value
    }

    /// BLAKE3 of the canonical form, in hex. The order of nodes and white space do not matter.
    pub fn hash(&self) -> String {
        canonical::digest(&self.to_value())
    }

    /// A node by its path: `outer/inner` is in the graph that `outer` runs.
    pub fn node(&self, path: &str) -> Option<&NodeSpec> {
        let (scope, name) = split(path);
        self.scope(scope)?.nodes.get(name)
    }

    /// The graph that a node runs; this one for the empty path.
    pub fn scope(&self, path: &str) -> Option<&Self> {
        if path.is_empty() {
            return Some(self);
        }
        match &self.node(path)?.kind {
            NodeKind::Subgraph(subgraph) => Some(&subgraph.graph),
            _ => None,
        }
    }

    /// The nodes by their paths, those of subgraphs behind the node that runs them.
    pub fn all_nodes(&self) -> Vec<(String, &NodeSpec)> {
        let mut all = Vec::new();
        for (name, node) in &self.nodes {
            all.push((name.clone(), node));
            if let NodeKind::Subgraph(subgraph) = &node.kind {
                let inner = subgraph.graph.all_nodes().into_iter();
                all.extend(inner.map(|(path, node)| (format!("{name}/{path}"), node)));
            }
        }
        all
    }

    /// The edges by the paths of their nodes, those of subgraphs behind the others.
    pub fn all_edges(&self) -> Vec<EdgeSpec> {
        let mut all = self.edges.clone();
        for (path, node) in self.all_nodes() {
            if let NodeKind::Subgraph(subgraph) = &node.kind {
                all.extend(subgraph.graph.edges.iter().map(|edge| EdgeSpec {
                    from: within(&path, &edge.from),
                    to: within(&path, &edge.to),
                    ..edge.clone()
                }));
            }
        }
        all
    }

    /// The keys of the memory with those of subgraphs: `outer/key`.
    pub fn all_keys(&self) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = self.keys().into_iter().map(str::to_owned).collect();
        for (path, node) in self.all_nodes() {
            if let NodeKind::Subgraph(subgraph) = &node.kind {
                all.extend(subgraph.graph.keys().into_iter().map(|key| within(&path, key)));
            }
        }
        all
    }

    /// The key that an input of a subgraph is a copy of, if it is one.
    pub fn source_of(&self, key: &str) -> Option<String> {
        let (scope, name) = split(key);
        let NodeKind::Subgraph(subgraph) = &self.node(scope)?.kind else { return None };
        let expression = expression::whole_expression(subgraph.inputs.get(name)?.as_str()?)?;
        let is_name = expression.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then(|| within(split(scope).0, expression))
    }

    /// The outermost key that a key is a copy of, or itself.
    pub fn origin_of(&self, key: String) -> String {
        let from = std::iter::successors(Some(key), |key| self.source_of(key));
        from.last().unwrap_or_default()
    }

    /// What is declared of an input, also of a subgraph's: `outer/key`.
    pub fn input(&self, key: &str) -> Option<&InputSpec> {
        let (scope, name) = split(key);
        self.scope(scope)?.inputs.get(name)
    }

    /// The keys of the memory: inputs and what nodes write. Not those of subgraphs.
    pub fn keys(&self) -> BTreeSet<&str> {
        let written = self.nodes.values().flat_map(|node| &node.writes);
        self.inputs.keys().chain(written).chain(self.memory.keys()).map(String::as_str).collect()
    }

    /// How a write to the key joins the old value; the key may be a subgraph's.
    pub fn reducer(&self, key: &str) -> Option<Reducer> {
        let (scope, name) = split(key);
        self.scope(scope)?.memory.get(name).and_then(|memory| memory.reducer)
    }
}

/// The graph that a node or a key is in, and its name there.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The path of a node or a key of a graph.
pub(crate) fn within(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}/{name}") }
}
