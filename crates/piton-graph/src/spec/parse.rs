//! A graph from the text of a YAML or JSON file. Every mistake names its location.

use std::collections::{BTreeMap, BTreeSet};

use piton_core::graph::{CheckpointOptions, Reducer};
use serde_json::Value;

use super::subgraph::Files;
use super::tree::{self, Node, Tree};
use super::{
    AgentSpec, CommandSpec, EdgeSpec, Effects, GraphSpec, HumanSpec, InputSpec, LoopSpec, MapSpec,
    MemorySpec, NodeKind, NodeSpec, OutputFormat, Retry, VERSION, ValueType,
};
use crate::error::{SourceLocation, SpecError};

/// Largest graph file, in bytes.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Most items of a map that run at the same time.
const PARALLEL_MAX: u64 = 256;

/// A graph and where its parts stand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) spec: GraphSpec,
    pub(crate) locations: SourceLocations,
    /// The file, if it is another one than that of the graph around this one.
    pub(crate) file: Option<String>,
    /// The graphs that nodes run, by the node.
    pub(crate) subgraphs: BTreeMap<String, Self>,
    pub(super) nodes_within: usize,
}

/// Where the parts of a graph stand, if it came from a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceLocations(BTreeMap<String, SourceLocation>);

impl SourceLocations {
    pub(crate) fn of(&self, part: &str) -> Option<SourceLocation> {
        self.0.get(part).copied()
    }

    pub(super) fn note(&mut self, part: impl Into<String>, location: SourceLocation) {
        self.0.entry(part.into()).or_insert(location);
    }
}

/// Reads a graph. It is not checked as a whole yet.
pub fn parse(text: &str) -> Result<GraphSpec, SpecError> {
    Parsed::read(text, &Files::default()).map(|parsed| parsed.spec)
}

impl Parsed {
    pub(crate) fn read(text: &str, files: &Files) -> Result<Self, SpecError> {
        if text.len() > FILE_BYTES_MAX {
            let message = format!("The graph file has more than {FILE_BYTES_MAX} bytes");
            return Err(SpecError::new(message));
        }
        Self::from_tree(&tree::read(text)?, false, files)
    }

    /// A graph that stands in another one needs no version of its own.
    pub(super) fn from_tree(
        tree: &Tree,
        is_inline: bool,
        files: &Files,
    ) -> Result<Self, SpecError> {
        let mut parsed = Self::default();
        parsed.graph(tree, is_inline, files)?;
        Ok(parsed)
    }

    fn graph(&mut self, tree: &Tree, is_inline: bool, files: &Files) -> Result<(), SpecError> {
        const FIELDS: &[&str] = &[
            "piton",
            "name",
            "goal",
            "entry",
            "terminal",
            "inputs",
            "memory",
            "checkpoint",
            "nodes",
            "edges",
        ];
        let fields = known_fields(tree, "A graph", FIELDS)?;
        match fields.get("piton") {
            Some(version) if version.text("The version")? == VERSION => {}
            Some(version) => {
                let message = format!("This version of Piton reads `piton: {VERSION}`");
                return Err(version.fail(message));
            }
            None if is_inline => {}
            None => {
                let error = tree.fail("A graph file begins with its version");
                return Err(error.hinting(format!("write `piton: {VERSION}`")));
            }
        }
        match fields.get("name") {
            Some(name) => {
                self.spec.name = name.text("The name")?;
                self.locations.note("name", name.location);
            }
            None if is_inline => "subgraph".clone_into(&mut self.spec.name),
            None => return Err(tree.fail("The graph has no `name`")),
        }
        if let Some(goal) = fields.get("goal") {
            self.spec.goal = Some(goal.text("The goal")?);
        }
        if let Some(entry) = fields.get("entry") {
            self.spec.entry = Some(entry.text("The entry")?);
            self.locations.note("entry", entry.location);
        }
        if let Some(terminal) = fields.get("terminal") {
            for (node, location) in terminal.texts("A terminal node")? {
                self.locations.note(format!("terminal {node}"), location);
                self.spec.terminal.insert(node);
            }
        }
        if let Some(inputs) = fields.get("inputs") {
            self.inputs(inputs)?;
        }
        if let Some(memory) = fields.get("memory") {
            self.memory(memory)?;
        }
        if let Some(checkpoint) = fields.get("checkpoint") {
            self.spec.checkpoint = options(checkpoint)?;
            self.locations.note("checkpoint", checkpoint.location);
        }
        let nodes = fields.get("nodes").ok_or_else(|| tree.fail("The graph has no `nodes`"))?;
        for (name, location, node) in nodes.fields("`nodes`")? {
            self.locations.note(format!("node {name}"), *location);
            let node = self.node(name, node, files)?;
            self.spec.nodes.insert(name.clone(), node);
        }
        if let Some(edges) = fields.get("edges") {
            for edge in edges.items("`edges`")? {
                self.edge(edge)?;
            }
        }
        Ok(())
    }

    fn inputs(&mut self, tree: &Tree) -> Result<(), SpecError> {
        for (name, location, input) in tree.fields("`inputs`")? {
            self.locations.note(format!("input {name}"), *location);
            let fields = known_fields(input, "An input", &["type", "required", "default"])?;
            let of_type = fields.get("type").map(|of| value_type(of)).transpose()?;
            let required = fields.get("required").map(|of| of.boolean("`required`")).transpose()?;
            let default = fields.get("default").map(|of| of.value());
            if let (Some(of_type), Some(value)) = (of_type, &default)
                && !of_type.fits(value)
            {
                let message = format!("The default of `{name}` is no {}", of_type.as_str());
                return Err(fields["default"].fail(message));
            }
            let required = required.unwrap_or(default.is_none());
            self.spec.inputs.insert(name.clone(), InputSpec { of_type, required, default });
        }
        Ok(())
    }

    fn memory(&mut self, tree: &Tree) -> Result<(), SpecError> {
        for (name, location, key) in tree.fields("`memory`")? {
            self.locations.note(format!("memory {name}"), *location);
            let fields = known_fields(key, "A key of the memory", &["reducer"])?;
            let reducer = match fields.get("reducer") {
                None => None,
                Some(tree) => {
                    let text = tree.text("A reducer")?;
                    let known = Reducer::ALL.iter().find(|reducer| reducer.as_str() == text);
                    if known.is_none() && text != "replace" {
                        let names = Reducer::ALL.iter().map(|reducer| reducer.as_str());
                        let error = tree.fail(format!("There is no reducer `{text}`"));
                        return Err(error.suggesting(&text, names.chain(["replace"])));
                    }
                    known.copied()
                }
            };
            self.spec.memory.insert(name.clone(), MemorySpec { reducer });
        }
        Ok(())
    }

    fn node(&mut self, name: &str, tree: &Tree, files: &Files) -> Result<NodeSpec, SpecError> {
        const KINDS: &[&str] =
            &["command", "set", "template", "human", "agent", "subgraph", "custom"];
        const FIELDS: &[&str] = &[
            "command",
            "set",
            "template",
            "human",
            "agent",
            "subgraph",
            "custom",
            "output",
            "artifacts",
            "map",
            "loop",
            "reads",
            "writes",
            "retry",
            "timeout",
            "effects",
            "tags",
            "safe_point",
        ];
        let what = format!("The node `{name}`");
        let fields = known_fields(tree, &what, FIELDS)?;
        let kinds: Vec<&str> = KINDS.iter().copied().filter(|k| fields.contains_key(k)).collect();
        let [kind] = kinds[..] else {
            let message = format!("{what} needs one of `{}`", KINDS.join("`, `"));
            return Err(tree.fail(message));
        };
        let kind_tree = fields[kind];
        self.locations.note(format!("kind {name}"), kind_tree.location);
        let mut node = NodeSpec::new(match kind {
            "command" => {
                let argv = match &kind_tree.node {
                    Node::List(_) => kind_tree.texts("An argument")?,
                    _ => {
                        let error =
                            kind_tree.fail("A command is a list: the program, then each argument");
                        return Err(error.hinting("write `command: [program, argument]`"));
                    }
                };
                let argv: Vec<String> = argv.into_iter().map(|(text, _)| text).collect();
                if argv.is_empty() {
                    return Err(kind_tree.fail("The command is empty"));
                }
                let output = fields.get("output").map(|of| output(of)).transpose()?;
                let output = output.unwrap_or_default();
                let artifacts = fields.get("artifacts").map(|of| of.boolean("`artifacts`"));
                let artifacts = artifacts.transpose()?.unwrap_or(false);
                NodeKind::Command(CommandSpec { argv, output, artifacts })
            }
            "set" => {
                let values = kind_tree.fields("`set`")?;
                let values = values.iter().map(|(key, _, value)| (key.clone(), value.value()));
                NodeKind::Set { values: values.collect() }
            }
            "template" => NodeKind::Template { text: kind_tree.text("A template")? },
            "human" => NodeKind::Human(human(kind_tree)?),
            "agent" => NodeKind::Agent(agent(kind_tree)?),
            "subgraph" => NodeKind::Subgraph(self.subgraph(name, kind_tree, files)?),
            _ => NodeKind::Custom,
        });
        if let (Some(of), false) = (fields.get("output"), kind == "command") {
            return Err(of.fail("`output` says what a command prints; this node is none"));
        }
        if let (Some(of), false) = (fields.get("artifacts"), kind == "command") {
            return Err(of.fail("`artifacts` are the files of a command; this node is none"));
        }
        if let NodeKind::Set { values } = &node.kind {
            node.writes = values.keys().cloned().collect();
        }
        if let NodeKind::Subgraph(subgraph) = &node.kind {
            const OWN: &[&str] = &["map", "loop", "reads", "writes", "retry", "timeout", "effects"];
            if let Some((field, of)) = OWN.iter().find_map(|name| fields.get_key_value(name)) {
                let error = of.fail(format!("A subgraph has no `{field}` of its own"));
                return Err(error.hinting("its nodes have; keys are in `inputs` and `outputs`"));
            }
            node.writes = subgraph.outputs.keys().cloned().collect();
        }
        if let Some(of) = fields.get("map") {
            node.map = Some(self.map(name, of)?);
        }
        if let Some(of) = fields.get("loop") {
            let fields = known_fields(of, "A loop", &["max_iterations", "until"])?;
            let Some(max) = fields.get("max_iterations") else {
                return Err(of.fail("A loop needs `max_iterations`"));
            };
            let max_iterations = u32::try_from(max.number("`max_iterations`")?)
                .ok()
                .filter(|max| (1..=100_000).contains(max))
                .ok_or_else(|| max.fail("`max_iterations` is from 1 to 100000"))?;
            let until = fields.get("until").map(|of| of.text("`until`")).transpose()?;
            node.repeat = Some(LoopSpec { max_iterations, until });
            self.locations.note(format!("loop {name}"), of.location);
        }
        for (field, what) in [("reads", "A key that is read"), ("writes", "A key that is written")]
        {
            let Some(of) = fields.get(field) else { continue };
            for (key, location) in of.texts(what)? {
                self.locations.note(format!("{field} {name} {key}"), location);
                let keys = if field == "reads" { &mut node.reads } else { &mut node.writes };
                keys.insert(key);
            }
        }
        if let Some(of) = fields.get("retry") {
            node.retry = retry(of)?;
        }
        if let Some(of) = fields.get("timeout") {
            node.timeout_ms = Some(duration(of)?);
        }
        if let Some(of) = fields.get("effects") {
            node.effects = match of.text("`effects`")?.as_str() {
                "none" => Effects::None,
                "external" => Effects::External,
                other => {
                    let error =
                        of.fail(format!("`effects` is `none` or `external`, not `{other}`"));
                    return Err(error);
                }
            };
        }
        if let Some(of) = fields.get("tags") {
            node.tags = of.texts("A tag")?.into_iter().map(|(tag, _)| tag).collect();
        }
        if let Some(of) = fields.get("safe_point") {
            node.safe_point = of.boolean("`safe_point`")?;
        }
        Ok(node)
    }

    fn map(&mut self, name: &str, tree: &Tree) -> Result<MapSpec, SpecError> {
        let fields = known_fields(tree, "A map", &["over", "as", "parallel"])?;
        let over = fields.get("over").ok_or_else(|| tree.fail("A map needs `over`, a list"))?;
        let item = fields.get("as").map(|of| of.text("`as`")).transpose()?;
        let parallel = fields.get("parallel").map(|of| of.number("`parallel`")).transpose()?;
        let parallel = parallel.unwrap_or(1);
        if !(1..=PARALLEL_MAX).contains(&parallel) {
            return Err(tree.fail(format!("`parallel` is from 1 to {PARALLEL_MAX}")));
        }
        self.locations.note(format!("map {name}"), over.location);
        Ok(MapSpec {
            over: over.text("`over`")?,
            item: item.unwrap_or_else(|| "item".to_owned()),
            parallel: usize::try_from(parallel).unwrap_or(1),
        })
    }

    fn edge(&mut self, tree: &Tree) -> Result<(), SpecError> {
        if let Node::Scalar(Value::String(text)) = &tree.node {
            let names: Vec<&str> = text.split("->").map(str::trim).collect();
            if names.len() < 2 || names.iter().any(|name| name.is_empty()) {
                let error = tree.fail(format!("`{text}` is no edge"));
                return Err(error.hinting("write `from -> to`"));
            }
            for pair in names.windows(2) {
                self.locations.note(format!("edge {}", self.spec.edges.len()), tree.location);
                self.spec.edges.push(EdgeSpec::new(pair[0], pair[1]));
            }
            return Ok(());
        }
        let fields =
            known_fields(tree, "An edge", &["from", "to", "when", "priority", "max", "on"])?;
        let end = |field: &str| match fields.get(field) {
            Some(of) => of.text("The end of an edge"),
            None => Err(tree.fail(format!("The edge has no `{field}`"))),
        };
        let mut edge = EdgeSpec::new(end("from")?, end("to")?);
        let number = self.spec.edges.len();
        if let Some(when) = fields.get("when") {
            edge.when = Some(when.text("`when`")?);
            self.locations.note(format!("when {number}"), when.location);
        }
        if let Some(of) = fields.get("priority") {
            let priority = of.value().as_i64().and_then(|n| i32::try_from(n).ok());
            edge.priority =
                priority.ok_or_else(|| of.fail("`priority` has to be a whole number"))?;
        }
        if let Some(of) = fields.get("max") {
            let max = of.number("`max`")?;
            let max = u32::try_from(max).ok().filter(|max| (1..=10_000).contains(max));
            edge.max = Some(max.ok_or_else(|| of.fail("`max` is from 1 to 10000"))?);
        }
        if let Some(of) = fields.get("on") {
            edge.on_error = match of.text("`on`")?.as_str() {
                "completed" => false,
                "error" => true,
                other => {
                    return Err(of.fail(format!("`on` is `completed` or `error`, not `{other}`")));
                }
            };
        }
        self.locations.note(format!("edge {number}"), tree.location);
        self.spec.edges.push(edge);
        Ok(())
    }
}

/// The fields of an object, none of which may be unknown.
pub(super) fn known_fields<'a>(
    tree: &'a Tree,
    what: &str,
    known: &[&str],
) -> Result<BTreeMap<&'a str, &'a Tree>, SpecError> {
    let mut fields = BTreeMap::new();
    for (name, location, value) in tree.fields(what)? {
        if !known.contains(&name.as_str()) {
            let error = SpecError::new(format!("{what} has no field `{name}`")).at(Some(*location));
            return Err(error.suggesting(name, known.iter().copied()));
        }
        fields.insert(name.as_str(), value);
    }
    Ok(fields)
}

fn value_type(tree: &Tree) -> Result<ValueType, SpecError> {
    let text = tree.text("A type")?;
    let found = ValueType::ALL.iter().find(|of| of.as_str() == text);
    found.copied().ok_or_else(|| {
        let names = ValueType::ALL.iter().map(|of| of.as_str());
        tree.fail(format!("There is no type `{text}`")).suggesting(&text, names)
    })
}

fn output(tree: &Tree) -> Result<OutputFormat, SpecError> {
    match tree.text("`output`")?.as_str() {
        "text" => Ok(OutputFormat::Text),
        "json" => Ok(OutputFormat::Json),
        "lines" => Ok(OutputFormat::Lines),
        other => Err(tree.fail(format!("`output` is `text`, `json` or `lines`, not `{other}`"))),
    }
}

fn human(tree: &Tree) -> Result<HumanSpec, SpecError> {
    let fields = known_fields(tree, "A question", &["question", "options", "deadline"])?;
    let question = fields.get("question").ok_or_else(|| tree.fail("There is no `question`"))?;
    let options = fields.get("options").map(|of| of.texts("An option")).transpose()?;
    let options: Vec<String> =
        options.unwrap_or_default().into_iter().map(|(option, _)| option).collect();
    if options.iter().collect::<BTreeSet<_>>().len() < options.len() {
        return Err(fields["options"].fail("Two options are the same"));
    }
    let deadline_ms = fields.get("deadline").map(|of| duration(of)).transpose()?;
    Ok(HumanSpec { question: question.text("A question")?, options, deadline_ms })
}

fn agent(tree: &Tree) -> Result<AgentSpec, SpecError> {
    let fields = known_fields(tree, "An agent", &["profile", "prompt"])?;
    let prompt = fields.get("prompt").ok_or_else(|| tree.fail("There is no `prompt`"))?;
    let profile = fields.get("profile").map(|of| of.text("`profile`")).transpose()?;
    Ok(AgentSpec { profile, prompt: prompt.text("A prompt")? })
}

fn retry(tree: &Tree) -> Result<Retry, SpecError> {
    let fields = known_fields(tree, "A retry", &["times", "backoff"])?;
    let mut retry = Retry::default();
    if let Some(of) = fields.get("times") {
        let times = u32::try_from(of.number("`times`")?).ok().filter(|times| *times <= 100);
        retry.times = times.ok_or_else(|| of.fail("`times` is from 0 to 100"))?;
    }
    if let Some(of) = fields.get("backoff") {
        let text = of.text("`backoff`")?;
        let (min, max) = text.split_once("..").unwrap_or((&text, &text));
        let (min, max) = (span(of, min)?, span(of, max)?);
        if min > max {
            return Err(of.fail("The shortest delay is longer than the longest"));
        }
        (retry.backoff_min_ms, retry.backoff_max_ms) = (min, max);
    }
    Ok(retry)
}

/// A span of time, in milliseconds.
fn duration(tree: &Tree) -> Result<u64, SpecError> {
    span(tree, &tree.text("A span of time")?)
}

fn span(tree: &Tree, text: &str) -> Result<u64, SpecError> {
    let text = text.trim();
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let unit = match &text[digits..] {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let number = text[..digits].parse::<u64>().ok();
    let span = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    span.filter(|span| *span > 0).ok_or_else(|| {
        let error = tree.fail(format!("`{text}` is no span of time"));
        error.hinting("write a number and its unit: `500ms`, `30s`, `20m`, `2h`, `7d`")
    })
}

/// Reads options of checkpoints from a file of their own, YAML or JSON.
pub fn parse_checkpoint_options(text: &str) -> Result<CheckpointOptions, SpecError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(SpecError::new(format!("The file has more than {FILE_BYTES_MAX} bytes")));
    }
    options(&tree::read(text)?)
}

/// The options of checkpoints, with a location for each mistake.
fn options(tree: &Tree) -> Result<CheckpointOptions, SpecError> {
    let fields = known_fields(tree, "`checkpoint`", CheckpointOptions::NAMES)?;
    for (name, of) in &fields {
        let one = Value::Object([((*name).to_owned(), of.value())].into_iter().collect());
        if let Err(error) = serde_json::from_value::<CheckpointOptions>(one) {
            return Err(of.fail(format!("`{name}`: {error}")));
        }
    }
    serde_json::from_value(tree.value()).map_err(|error| tree.fail(error.to_string()))
}
