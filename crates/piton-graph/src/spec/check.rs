//! Every mistake that can be found before a graph runs.

use std::collections::{BTreeMap, BTreeSet};

use piton_core::graph::{
    CheckpointConfig, CheckpointOptions, Edge, NAME_BYTES_MAX, SUBGRAPH_DEPTH_MAX, Topology,
    TopologyError, WRITES_MAX,
};
use piton_core::mask::KeyPatterns;

use super::parse::{Parsed, SourceLocations};
use super::{GraphSpec, InputSpec, NodeKind, NodeSpec, SubgraphSpec};
use crate::error::SpecError;
use crate::expression;

/// A graph that can be run.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) spec: GraphSpec,
    pub(crate) topology: Topology,
    /// The keys that each edge's condition reads, by the edge's number.
    pub(crate) conditions: BTreeMap<usize, BTreeSet<String>>,
    /// The graphs that nodes run, by the node.
    pub(crate) subgraphs: BTreeMap<String, Self>,
}

impl Checked {
    /// The graph that a node runs; this one for the empty path.
    pub(crate) fn scope(&self, path: &str) -> Option<&Self> {
        let mut checked = self;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            checked = checked.subgraphs.get(name)?;
        }
        Some(checked)
    }
}

/// Checks a graph, with the keys that it excludes.
pub(crate) fn check(parsed: Parsed) -> Result<Checked, SpecError> {
    let config = CheckpointConfig::of([&parsed.spec.checkpoint]);
    check_within(parsed, &KeyPatterns::new(&config.exclude_memory_keys), 0)
}

fn check_within(
    parsed: Parsed,
    excluded: &KeyPatterns,
    depth: usize,
) -> Result<Checked, SpecError> {
    let Parsed { mut spec, locations, file, subgraphs: inner, .. } = parsed;
    let in_file = |error: SpecError| match &file {
        Some(file) => error.in_file(file.clone()),
        None => error,
    };
    if depth > SUBGRAPH_DEPTH_MAX {
        let message = format!("Graphs are nested more than {SUBGRAPH_DEPTH_MAX} deep");
        return Err(SpecError::new(message));
    }
    let mut subgraphs = BTreeMap::new();
    for (name, parsed) in inner {
        let options = parsed.locations.of("checkpoint");
        if parsed.spec.checkpoint != CheckpointOptions::default() {
            let file = parsed.file.clone();
            let message = "A subgraph has no checkpoint options: those of the whole graph apply";
            let error =
                SpecError::new(message).at(options.or(locations.of(&format!("kind {name}"))));
            return Err(in_file(SpecError { file, ..error }));
        }
        let checked = check_within(parsed, excluded, depth + 1).map_err(in_file)?;
        if let Some(NodeKind::Subgraph(subgraph)) =
            spec.nodes.get_mut(&name).map(|node| &mut node.kind)
        {
            // With what its templates were found to read.
            (*subgraph.graph).clone_from(&checked.spec);
        }
        subgraphs.insert(name, checked);
    }
    check_graph(spec, &locations, excluded, subgraphs).map_err(in_file)
}

fn check_graph(
    mut spec: GraphSpec,
    locations: &SourceLocations,
    excluded: &KeyPatterns,
    subgraphs: BTreeMap<String, Checked>,
) -> Result<Checked, SpecError> {
    check_names(&spec, locations)?;
    let edges: Vec<Edge> = spec.edges.iter().map(Edge::from).collect();
    let topology = Topology::new(spec.nodes.keys().cloned(), &edges, spec.entry.as_deref());
    let topology = subgraphs.iter().try_fold(
        topology.map_err(|error| topology_error(&error, &spec, locations))?,
        |topology, (name, inner)| {
            let joined = topology.with_subgraph(name, inner.topology.clone());
            joined.map_err(|error| topology_error(&error, &spec, locations))
        },
    )?;
    check_terminal(&spec, locations)?;
    let names: Vec<String> = spec.nodes.keys().cloned().collect();
    for name in names {
        let inferred = check_node(&name, &spec.nodes[&name], locations, excluded)?;
        if let Some(node) = spec.nodes.get_mut(&name) {
            node.reads.extend(inferred);
        }
    }
    check_keys(&spec, locations)?;
    check_writers(&spec, &topology, locations)?;
    let mut conditions = BTreeMap::new();
    for (number, edge) in spec.edges.iter().enumerate() {
        let Some(when) = &edge.when else { continue };
        let location = locations.of(&format!("when {number}"));
        let used = expression::variables(when).map_err(|why| {
            SpecError::new(format!("The condition `{when}` does not parse: {why}")).at(location)
        })?;
        let keys = spec.keys();
        if let Some(unknown) = used.iter().find(|key| !keys.contains(key.as_str())) {
            let message = format!(
                "The condition `{when}` uses `{unknown}`, which no node writes and no input declares"
            );
            return Err(SpecError::new(message).at(location).suggesting(unknown, keys));
        }
        conditions.insert(number, used);
    }
    Ok(Checked { spec, topology, conditions, subgraphs })
}

fn check_names(spec: &GraphSpec, locations: &SourceLocations) -> Result<(), SpecError> {
    let name_fault = |name: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(allowed);
        (!fits).then(|| {
            format!("`{name}`: a name has 1 to {NAME_BYTES_MAX} letters, digits, `_` or `-`")
        })
    };
    if let Some(fault) = name_fault(&spec.name) {
        return Err(SpecError::new(fault).at(locations.of("name")));
    }
    for node in spec.nodes.keys() {
        if let Some(fault) = name_fault(node) {
            return Err(SpecError::new(fault).at(locations.of(&format!("node {node}"))));
        }
    }
    for key in spec.keys() {
        let fault = name_fault(key).or_else(|| {
            // A key is a variable in expressions.
            let is_variable = !key.contains('-') && !key.starts_with(|c: char| c.is_ascii_digit());
            (!is_variable).then(|| {
                format!("`{key}` cannot be used in expressions: letters, digits and `_` only")
            })
        });
        if let Some(fault) = fault {
            let location = locations.of(&format!("input {key}"));
            return Err(SpecError::new(fault)
                .at(location.or_else(|| locations.of(&format!("memory {key}")))));
        }
    }
    Ok(())
}

fn topology_error(
    error: &TopologyError,
    spec: &GraphSpec,
    locations: &SourceLocations,
) -> SpecError {
    let edge_location = |from: &str, to: &str| {
        let number = spec.edges.iter().position(|edge| edge.from == from && edge.to == to)?;
        locations.of(&format!("edge {number}"))
    };
    let nodes = || spec.nodes.keys().map(String::as_str);
    let plain = SpecError::new(error.to_string());
    match error {
        TopologyError::EdgeUnknown { from, to, unknown } => {
            plain.at(edge_location(from, to)).suggesting(unknown, nodes())
        }
        TopologyError::EdgeRepeated { from, to }
        | TopologyError::LimitUnused { from, to }
        | TopologyError::CycleOpen { from, to, .. } => plain.at(edge_location(from, to)),
        TopologyError::EntryUnknown { entry } => {
            plain.at(locations.of("entry")).suggesting(entry, nodes())
        }
        TopologyError::CycleUnlimited { path } => {
            let pair = path.first().zip(path.get(1));
            let location = pair.and_then(|(from, to)| edge_location(from, to));
            plain.at(location).hinting("give the edge that leads back a limit: `max: 3`")
        }
        TopologyError::Unreachable { node } => plain.at(locations.of(&format!("node {node}"))),
        TopologyError::Empty | TopologyError::TooLarge { .. } | TopologyError::EntryMissing => {
            plain
        }
    }
}

fn check_terminal(spec: &GraphSpec, locations: &SourceLocations) -> Result<(), SpecError> {
    for node in &spec.terminal {
        let location = locations.of(&format!("terminal {node}"));
        if !spec.nodes.contains_key(node) {
            let error = SpecError::new(format!("The terminal node `{node}` is not in the graph"));
            return Err(error.at(location).suggesting(node, spec.nodes.keys().map(String::as_str)));
        }
        if let Some(edge) = spec.edges.iter().find(|edge| edge.from == *node) {
            let message =
                format!("The graph ends with `{node}`, and an edge leads from it to `{}`", edge.to);
            return Err(SpecError::new(message).at(location));
        }
    }
    Ok(())
}

/// What the node's templates read.
fn check_node(
    name: &str,
    node: &NodeSpec,
    locations: &SourceLocations,
    excluded: &KeyPatterns,
) -> Result<BTreeSet<String>, SpecError> {
    let location = locations.of(&format!("kind {name}"));
    let fail = |message: String| Err(SpecError::new(message).at(location));
    if node.writes.len() > WRITES_MAX {
        return fail(format!("The node `{name}` writes more than {WRITES_MAX} keys"));
    }
    if node.map.is_some() && node.repeat.is_some() {
        return fail(format!("The node `{name}` is a map and a loop; make two nodes of it"));
    }
    if let NodeKind::Subgraph(subgraph) = &node.kind {
        return check_subgraph(name, node, subgraph, locations);
    }
    let has_body = !matches!(node.kind, NodeKind::Human(_) | NodeKind::Agent(_));
    if (node.map.is_some() || node.repeat.is_some()) && !has_body {
        return fail(format!(
            "The node `{name}` asks a person or an agent: it can be neither map nor loop"
        ));
    }
    if node.repeat.is_some() && !matches!(node.kind, NodeKind::Command(_) | NodeKind::Custom) {
        return fail(format!("The loop `{name}` needs a `command` or code of your own"));
    }
    if node.map.is_some() && matches!(node.kind, NodeKind::Set { .. }) {
        return fail(format!(
            "The map `{name}` needs a `command`, a `template` or code of your own"
        ));
    }
    let results = match node.kind {
        _ if node.map.is_some() => 1..=1,
        // A loop writes those of its outputs that it names.
        _ if node.repeat.is_some() => 0..=WRITES_MAX,
        NodeKind::Template { .. } | NodeKind::Human(_) => 1..=1,
        NodeKind::Command(_) | NodeKind::Agent(_) => 0..=1,
        NodeKind::Custom | NodeKind::Set { .. } | NodeKind::Subgraph(_) => 0..=WRITES_MAX,
    };
    if !results.contains(&node.writes.len()) {
        return fail(format!("The node `{name}` has one result: `writes` names one key"));
    }
    if let NodeKind::Set { values } = &node.kind
        && node.writes.iter().any(|key| !values.contains_key(key))
    {
        return fail(format!("The node `{name}` writes what `set` gives, and nothing else"));
    }
    let parse = |found: Result<BTreeSet<String>, String>| {
        found.map_err(|why| {
            SpecError::new(format!("A template of the node `{name}` does not parse: {why}"))
                .at(location)
        })
    };
    let mut used = BTreeSet::new();
    match &node.kind {
        NodeKind::Custom | NodeKind::Subgraph(_) => {}
        NodeKind::Command(command) => {
            for argument in &command.argv {
                let variables = parse(expression::template_variables(argument))?;
                if let Some(secret) = variables.iter().find(|key| excluded.matches(key)) {
                    let message = format!(
                        "The command of `{name}` has the excluded key `{secret}` in an argument, where other processes see it"
                    );
                    let error = SpecError::new(message).at(location);
                    return Err(error.hinting("name it in `reads`: it comes on standard input"));
                }
                used.extend(variables);
            }
        }
        NodeKind::Set { values } => {
            for value in values.values() {
                used.extend(parse(expression::value_variables(value))?);
            }
        }
        NodeKind::Template { text } => used.extend(parse(expression::template_variables(text))?),
        NodeKind::Agent(agent) => {
            let variables = parse(expression::template_variables(&agent.prompt))?;
            if let Some(secret) = variables.iter().find(|key| excluded.matches(key)) {
                let message = format!(
                    "The prompt of `{name}` has the excluded key `{secret}`: it would be in the log of the agent's session"
                );
                return fail(message);
            }
            used.extend(variables);
        }
        NodeKind::Human(human) => {
            used.extend(parse(expression::template_variables(&human.question))?);
        }
    }
    if let Some(map) = &node.map {
        used.remove(&map.item);
        used.remove("index");
        let over = expression::whole_expression(&map.over).unwrap_or(&map.over);
        used.extend(parse(expression::variables(over))?);
    }
    if let Some(until) = node.repeat.as_ref().and_then(|repeat| repeat.until.as_ref()) {
        // Its variables are the loop's outputs, which no field declares.
        parse(expression::variables(until))?;
    }
    if node.repeat.is_some() {
        for name in ["iteration", "outputs", "conversation"] {
            used.remove(name);
        }
    }
    Ok(used)
}

/// What a subgraph is given and what is taken from it fits its graph. Returns what its inputs read.
fn check_subgraph(
    name: &str,
    node: &NodeSpec,
    subgraph: &SubgraphSpec,
    locations: &SourceLocations,
) -> Result<BTreeSet<String>, SpecError> {
    let location = locations.of(&format!("kind {name}"));
    let fail = |message: String| Err(SpecError::new(message).at(location));
    let plain = NodeSpec::new(node.kind.clone());
    let has_own = node.map.is_some()
        || node.repeat.is_some()
        || node.timeout_ms.is_some()
        || node.retry != plain.retry
        || node.effects != plain.effects;
    if has_own {
        return fail(format!(
            "The subgraph `{name}` can be neither map nor loop, and its nodes have the retries, timeouts and effects"
        ));
    }
    if !node.writes.iter().eq(subgraph.outputs.keys()) {
        return fail(format!("The subgraph `{name}` writes its `outputs`, and nothing else"));
    }
    let graph = &subgraph.graph;
    let mut used = BTreeSet::new();
    for (key, value) in &subgraph.inputs {
        let location = locations.of(&format!("given {name} {key}")).or(location);
        if !graph.inputs.contains_key(key) {
            let message = format!("The graph of `{name}` has no input `{key}`");
            let known = graph.inputs.keys().map(String::as_str);
            return Err(SpecError::new(message).at(location).suggesting(key, known));
        }
        used.extend(expression::value_variables(value).map_err(|why| {
            let message = format!("The input `{key}` of `{name}` does not parse: {why}");
            SpecError::new(message).at(location)
        })?);
    }
    let is_missing = |(key, input): &(&String, &InputSpec)| {
        input.required && input.default.is_none() && !subgraph.inputs.contains_key(*key)
    };
    if let Some((key, _)) = graph.inputs.iter().find(is_missing) {
        return fail(format!("The graph of `{name}` needs the input `{key}`"));
    }
    let keys = graph.keys();
    for (key, from) in &subgraph.outputs {
        if !keys.contains(from.as_str()) {
            let location = locations.of(&format!("taken {name} {key}")).or(location);
            let message = format!("The graph of `{name}` has no key `{from}`");
            return Err(SpecError::new(message).at(location).suggesting(from, keys));
        }
    }
    Ok(used)
}

/// Each key that is read is an input, or some node writes it.
fn check_keys(spec: &GraphSpec, locations: &SourceLocations) -> Result<(), SpecError> {
    let keys = spec.keys();
    for (name, node) in &spec.nodes {
        for key in &node.reads {
            if !keys.contains(key.as_str()) {
                let message = format!(
                    "Node `{name}` reads `{key}`, which no node writes and no input declares"
                );
                let location = locations.of(&format!("reads {name} {key}"));
                let location = location.or_else(|| locations.of(&format!("kind {name}")));
                return Err(SpecError::new(message).at(location).suggesting(key, keys));
            }
        }
    }
    Ok(())
}

/// Two nodes that may run at the same time write one key only if its reducer is declared.
fn check_writers(
    spec: &GraphSpec,
    topology: &Topology,
    locations: &SourceLocations,
) -> Result<(), SpecError> {
    let mut writers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, node) in &spec.nodes {
        for key in node.writes.iter().filter(|key| !spec.memory.contains_key(*key)) {
            writers.entry(key).or_default().push(name);
        }
    }
    for (key, nodes) in writers {
        for (at, one) in nodes.iter().enumerate() {
            let behind = topology.descendants(one);
            let before = topology.ancestors(one);
            let parallel =
                nodes[at + 1..].iter().find(|o| !behind.contains(*o) && !before.contains(*o));
            if let Some(other) = parallel {
                let message = format!(
                    "`{one}` and `{other}` both write `{key}`, and neither comes before the other"
                );
                let location = locations.of(&format!("writes {other} {key}"));
                let location = location.or_else(|| locations.of(&format!("kind {other}")));
                let hint = format!(
                    "declare how they are joined: `memory: {{{key}: {{reducer: append}}}}`; `replace` if only one of them ever runs"
                );
                return Err(SpecError::new(message).at(location).hinting(hint));
            }
        }
    }
    Ok(())
}
