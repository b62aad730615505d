//! A graph that can be run: its spec, checked, and the code of its own nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use piton_core::graph::{CheckpointOptions, Reducer, Topology};
use piton_core::id::SessionId;
use piton_store::Store;
use serde_json::Value;

use crate::checkpoints;
use crate::error::{Error, Result, SpecError};
use crate::node::{LoopBody, MapBody, Node};
use crate::policy::CheckpointPolicy;
use crate::spec::{
    AgentSpec, Checked, CommandSpec, EdgeSpec, Effects, FILE_BYTES_MAX, Files, GraphSpec,
    HumanSpec, InputSpec, LoopSpec, MapSpec, MemorySpec, NodeKind, NodeSpec, OutputFormat, Parsed,
    Retry, SubgraphSpec, ValueType, check, split, within,
};

/// A graph, checked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Graph {
    checked: Arc<Checked>,
    bodies: Arc<BTreeMap<String, Body>>,
    hash: Arc<str>,
    /// The file that it was read from.
    file: Option<Arc<Path>>,
    policy: Option<Arc<dyn CheckpointPolicy>>,
}

/// The code of a node of your own.
#[derive(Clone)]
pub(crate) enum Body {
    Node(Arc<dyn Node>),
    Map(Arc<dyn MapBody>),
    Loop(Arc<dyn LoopBody>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node(_) => "Node",
            Self::Map(_) => "Map",
            Self::Loop(_) => "Loop",
        })
    }
}

impl Graph {
    pub fn builder(name: impl Into<String>) -> Builder {
        let spec = GraphSpec { name: name.into(), ..GraphSpec::default() };
        Builder { spec, bodies: BTreeMap::new(), repeated: None, policy: None }
    }

    /// Reads and checks a graph file, YAML or JSON. Of a file over the limit no more than that is read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text =
            read_spec_file(path).map_err(|source| Error::File { path: name.clone(), source })?;
        let parsed = Parsed::read(&text, &Files::of(path)).and_then(check);
        let checked = parsed.map_err(|error| error.in_file(name))?;
        let graph = Self::new(checked, BTreeMap::new());
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self { file: Some(path.into()), ..graph })
    }

    /// From a spec that is not checked yet, as a log has it.
    pub fn from_spec(spec: GraphSpec) -> Result<Self> {
        Ok(Self::new(check(Parsed::from_spec(spec))?, BTreeMap::new()))
    }

    /// The graph that a session runs, from its log. Refused if the file that it was read from has
    /// changed since: which of the two is meant has to be said.
    pub async fn of_session(store: &Arc<dyn Store>, session: &SessionId) -> Result<Self> {
        let view = checkpoints::view(store, session).await?;
        let Some(file) = view.file.filter(|file| Path::new(file).exists()) else {
            return Self::recorded(store, session).await;
        };
        // A file that is no graph any more has changed, too.
        match Self::from_file(&file) {
            Ok(now) if *now.hash == view.spec_hash => Ok(now),
            _ => Err(Error::GraphChanged { file }),
        }
    }

    /// The graph that a session runs, from its log, whatever became of its file.
    pub async fn recorded(store: &Arc<dyn Store>, session: &SessionId) -> Result<Self> {
        let (spec, view) = checkpoints::graph_spec(store, session).await?;
        let file = view.file.map(|file| Path::new(&file).into());
        let graph = Self { file, ..Self::from_spec(spec)? };
        // Masking took a secret out of it that stood in the graph itself.
        if *graph.hash != view.spec_hash {
            return Err(Error::SpecMasked);
        }
        Ok(graph)
    }

    /// Reads and checks a graph, YAML or JSON. Nodes of your own (`custom: true`) are given with
    /// [`Graph::with_node`]. Its subgraphs stand in it: it has no folder in which files could be.
    pub fn from_text(text: &str) -> Result<Self> {
        Ok(Self::new(check(Parsed::read(text, &Files::default())?)?, BTreeMap::new()))
    }

    fn new(checked: Checked, bodies: BTreeMap<String, Body>) -> Self {
        let hash = checked.spec.hash().into();
        Self {
            checked: Arc::new(checked),
            bodies: Arc::new(bodies),
            hash,
            file: None,
            policy: None,
        }
    }

    /// Gives a `custom` node of a file its code; `outer/inner` names a node of a subgraph.
    pub fn with_node(mut self, name: &str, node: impl Node) -> Self {
        Arc::make_mut(&mut self.bodies).insert(name.to_owned(), Body::Node(Arc::new(node)));
        self
    }

    /// Decides which checkpoints are made. It is code, and not in the graph's spec: give it again when
    /// a session is resumed.
    pub fn with_policy(mut self, policy: impl CheckpointPolicy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    pub(crate) fn policy(&self) -> Option<&dyn CheckpointPolicy> {
        self.policy.as_deref()
    }

    pub fn name(&self) -> &str {
        &self.checked.spec.name
    }

    pub fn spec(&self) -> &GraphSpec {
        &self.checked.spec
    }

    /// The file that it was read from.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// BLAKE3 of the spec, in hex.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub fn topology(&self) -> &Topology {
        &self.checked.topology
    }

    pub(crate) fn checked(&self) -> &Checked {
        &self.checked
    }

    /// The nodes that need an agent.
    pub fn agent_nodes(&self) -> impl Iterator<Item = String> {
        let nodes = self.spec().all_nodes().into_iter();
        let agents = nodes.filter(|(_, node)| matches!(node.kind, NodeKind::Agent(_)));
        agents.map(|(path, _)| path)
    }

    /// A node by its path.
    pub fn node(&self, path: &str) -> Option<&NodeSpec> {
        self.spec().node(path)
    }

    /// The keys that a node reads, as the memory names them.
    pub fn reads(&self, path: &str) -> BTreeSet<String> {
        let (scope, _) = split(path);
        let keys = self.node(path).into_iter().flat_map(|node| &node.reads);
        keys.map(|key| within(scope, key)).collect()
    }

    /// Whether a node writes a key, as the memory names it.
    pub(crate) fn has_written(&self, path: &str, key: &str) -> bool {
        let ((scope, _), (of, name)) = (split(path), split(key));
        scope == of && self.node(path).is_some_and(|node| node.writes.contains(name))
    }

    pub(crate) fn body(&self, path: &str) -> Option<&Body> {
        self.bodies.get(path)
    }

    /// Every custom node has its code, of the right kind.
    pub(crate) fn check_bodies(&self) -> Result<()> {
        let lacks = |(name, node): (String, &NodeSpec)| {
            if !matches!(node.kind, NodeKind::Custom) {
                return None;
            }
            let fits = match self.body(&name) {
                Some(Body::Node(_)) => node.map.is_none() && node.repeat.is_none(),
                Some(Body::Map(_)) => node.map.is_some(),
                Some(Body::Loop(_)) => node.repeat.is_some(),
                None => false,
            };
            (!fits).then_some(name)
        };
        let nodes = self.spec().all_nodes();
        let nodes: Vec<String> = nodes.into_iter().filter_map(lacks).collect();
        if nodes.is_empty() { Ok(()) } else { Err(Error::NodesMissing { nodes }) }
    }
}

/// A node in the making: what it does, and its settings.
#[derive(Clone, Debug)]
pub struct NodeDef {
    spec: NodeSpec,
    body: Option<Body>,
    /// The code of a subgraph's nodes.
    inner: Arc<BTreeMap<String, Body>>,
}

impl NodeDef {
    fn new(spec: NodeSpec, body: Option<Body>) -> Self {
        Self { spec, body, inner: Arc::default() }
    }
}

impl<N: Node> From<N> for NodeDef {
    fn from(node: N) -> Self {
        let body = Some(Body::Node(Arc::new(node)));
        Self::new(NodeSpec::new(NodeKind::Custom), body)
    }
}

/// A node of your own.
pub fn custom(node: impl Node) -> NodeDef {
    node.into()
}

/// A process: its standard output is what the node writes.
pub fn command<A: Into<String>>(argv: impl IntoIterator<Item = A>) -> NodeDef {
    let argv = argv.into_iter().map(Into::into).collect();
    let command = CommandSpec { argv, output: OutputFormat::Text, artifacts: false };
    NodeDef::new(NodeSpec::new(NodeKind::Command(command)), None)
}

/// Sets keys; strings are templates.
pub fn set<K: Into<String>>(values: impl IntoIterator<Item = (K, Value)>) -> NodeDef {
    let values: BTreeMap<String, Value> =
        values.into_iter().map(|(key, value)| (key.into(), value)).collect();
    let writes = values.keys().cloned().collect();
    NodeDef::new(NodeSpec { writes, ..NodeSpec::new(NodeKind::Set { values }) }, None)
}

/// Writes a text.
pub fn template(text: impl Into<String>) -> NodeDef {
    NodeDef::new(NodeSpec::new(NodeKind::Template { text: text.into() }), None)
}

/// Asks a person, and waits.
pub fn human(question: impl Into<String>) -> NodeDef {
    let human = HumanSpec { question: question.into(), options: Vec::new(), deadline_ms: None };
    NodeDef::new(NodeSpec::new(NodeKind::Human(human)), None)
}

/// A prompt to an agent, which works in a session of its own; its last message is what the node writes.
pub fn agent(profile: impl Into<String>) -> NodeDef {
    let agent = AgentSpec { profile: Some(profile.into()), prompt: String::new() };
    NodeDef::new(NodeSpec::new(NodeKind::Agent(agent)), None)
}

/// Runs code of your own once for each item of a list; `over` is an expression.
pub fn map(over: impl Into<String>, parallel: usize, body: impl MapBody) -> NodeDef {
    let map = MapSpec { over: over.into(), item: "item".to_owned(), parallel: parallel.max(1) };
    let spec = NodeSpec { map: Some(map), ..NodeSpec::new(NodeKind::Custom) };
    NodeDef::new(spec, Some(Body::Map(Arc::new(body))))
}

/// Runs code of your own until it says that it is done.
pub fn repeat(max_iterations: u32, body: impl LoopBody) -> NodeDef {
    let repeat = LoopSpec { max_iterations, until: None };
    let spec = NodeSpec { repeat: Some(repeat), ..NodeSpec::new(NodeKind::Custom) };
    NodeDef::new(spec, Some(Body::Loop(Arc::new(body))))
}

/// Runs a graph, with a memory of its own: give it [`NodeDef::given`], and take what it leaves with
/// [`NodeDef::taking`].
pub fn subgraph(graph: &Graph) -> NodeDef {
    let (inputs, outputs) = (BTreeMap::new(), BTreeMap::new());
    let subgraph = SubgraphSpec { graph: Box::new(graph.spec().clone()), inputs, outputs };
    let spec = NodeSpec::new(NodeKind::Subgraph(subgraph));
    NodeDef { inner: Arc::clone(&graph.bodies), ..NodeDef::new(spec, None) }
}

impl NodeDef {
    pub fn reads<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.spec.reads.extend(keys.into_iter().map(Into::into));
        self
    }

    pub fn writes<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.spec.writes.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Attempts after the first, and the shortest and longest delay before them.
    pub fn retry(mut self, times: u32, delay_min: Duration, delay_max: Duration) -> Self {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.spec.retry =
            Retry { times, backoff_min_ms: millis(delay_min), backoff_max_ms: millis(delay_max) };
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    pub fn effects(mut self, effects: Effects) -> Self {
        self.spec.effects = effects;
        self
    }

    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.spec.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// Its completion is a safe point of the graph.
    pub fn safe_point(mut self) -> Self {
        self.spec.safe_point = true;
        self
    }

    /// Of a command: what it prints.
    pub fn output(mut self, output: OutputFormat) -> Self {
        if let NodeKind::Command(command) = &mut self.spec.kind {
            command.output = output;
        }
        self
    }

    /// Of a command: it has a folder in `PITON_ARTIFACTS`, whose files are kept with the session.
    pub fn artifacts(mut self) -> Self {
        if let NodeKind::Command(command) = &mut self.spec.kind {
            command.artifacts = true;
        }
        self
    }

    /// Of an agent: what it is asked; a template.
    pub fn prompt(mut self, prompt: impl Into<String>) -> Self {
        if let NodeKind::Agent(agent) = &mut self.spec.kind {
            agent.prompt = prompt.into();
        }
        self
    }

    /// Of a subgraph: an input; strings are templates over the memory around it.
    pub fn given(mut self, input: impl Into<String>, value: impl Into<Value>) -> Self {
        if let NodeKind::Subgraph(subgraph) = &mut self.spec.kind {
            subgraph.inputs.insert(input.into(), value.into());
        }
        self
    }

    /// Of a subgraph: a key around it that gets the value of one of its own keys.
    pub fn taking(mut self, key: impl Into<String>, from: impl Into<String>) -> Self {
        if let NodeKind::Subgraph(subgraph) = &mut self.spec.kind {
            let key = key.into();
            self.spec.writes.insert(key.clone());
            subgraph.outputs.insert(key, from.into());
        }
        self
    }

    /// Of a question: what can be answered.
    pub fn options<T: Into<String>>(mut self, options: impl IntoIterator<Item = T>) -> Self {
        if let NodeKind::Human(human) = &mut self.spec.kind {
            human.options.extend(options.into_iter().map(Into::into));
        }
        self
    }

    /// Of a question: how long it waits.
    pub fn deadline(mut self, span: Duration) -> Self {
        if let NodeKind::Human(human) = &mut self.spec.kind {
            human.deadline_ms = Some(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        }
        self
    }
}

/// Makes a graph in Rust.
#[derive(Debug)]
pub struct Builder {
    spec: GraphSpec,
    bodies: BTreeMap<String, Body>,
    /// A node name that was given twice.
    repeated: Option<String>,
    policy: Option<Arc<dyn CheckpointPolicy>>,
}

impl Builder {
    pub fn goal(mut self, goal: impl Into<String>) -> Self {
        self.spec.goal = Some(goal.into());
        self
    }

    pub fn entry(mut self, node: impl Into<String>) -> Self {
        self.spec.entry = Some(node.into());
        self
    }

    pub fn terminal(mut self, node: impl Into<String>) -> Self {
        self.spec.terminal.insert(node.into());
        self
    }

    /// An input that has to be given.
    pub fn input(mut self, name: impl Into<String>, of_type: ValueType) -> Self {
        let input = InputSpec { of_type: Some(of_type), required: true, default: None };
        self.spec.inputs.insert(name.into(), input);
        self
    }

    /// An input that may be given.
    pub fn optional_input(mut self, name: impl Into<String>, of_type: ValueType) -> Self {
        let input = InputSpec { of_type: Some(of_type), required: false, default: None };
        self.spec.inputs.insert(name.into(), input);
        self
    }

    /// How parallel writers of a key are joined.
    pub fn reducer(mut self, key: impl Into<String>, reducer: Reducer) -> Self {
        self.spec.memory.insert(key.into(), MemorySpec { reducer: Some(reducer) });
        self
    }

    /// Several nodes may write the key, and the later one counts: for branches of which one runs.
    pub fn replaceable(mut self, key: impl Into<String>) -> Self {
        self.spec.memory.insert(key.into(), MemorySpec { reducer: None });
        self
    }

    pub fn checkpoints(mut self, options: CheckpointOptions) -> Self {
        self.spec.checkpoint = options;
        self
    }

    /// Decides which checkpoints are made.
    pub fn policy(mut self, policy: impl CheckpointPolicy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    pub fn node(mut self, name: impl Into<String>, node: impl Into<NodeDef>) -> Self {
        let (name, NodeDef { spec, body, inner }) = (name.into(), node.into());
        self.bodies.extend(body.map(|body| (name.clone(), body)));
        let inner = inner.iter().map(|(path, body)| (within(&name, path), body.clone()));
        self.bodies.extend(inner);
        if self.spec.nodes.insert(name.clone(), spec).is_some() {
            self.repeated.get_or_insert(name);
        }
        self
    }

    pub fn edge(self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.edge_spec(EdgeSpec::new(from, to))
    }

    /// An edge that is taken if a condition holds.
    pub fn edge_if(
        self,
        from: impl Into<String>,
        to: impl Into<String>,
        when: impl Into<String>,
    ) -> Self {
        self.edge_spec(EdgeSpec { when: Some(when.into()), ..EdgeSpec::new(from, to) })
    }

    pub fn edge_spec(mut self, edge: EdgeSpec) -> Self {
        self.spec.edges.push(edge);
        self
    }

    /// Checks everything that can be checked before a run.
    pub fn build(self) -> Result<Graph> {
        if let Some(name) = self.repeated {
            return Err(SpecError::new(format!("There are two nodes `{name}`")).into());
        }
        let graph = Graph::new(check(Parsed::from_spec(self.spec))?, self.bodies);
        let graph = Graph { policy: self.policy, ..graph };
        graph.check_bodies()?;
        Ok(graph)
    }
}

/// The text of a file for a graph or for options. Of a file that is too large the text has one byte more
/// than is allowed, for its reader to refuse.
pub fn read_spec_file(path: impl AsRef<Path>) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    match String::from_utf8(text) {
        Ok(text) => Ok(text),
        // The limit may have cut a character.
        Err(error) if error.as_bytes().len() > FILE_BYTES_MAX => {
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(error) => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, error)),
    }
}
