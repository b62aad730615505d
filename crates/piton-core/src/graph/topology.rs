//! The shape of a graph, and what it says about a state.
//!
//! An edge with a limit closes a cycle; without those edges a graph has no cycle. A node is ready when
//! each of its other edges is decided (its source completed or was skipped) and one of them was taken,
//! or when a cycle led to it. If none was taken, the node is skipped.

use std::collections::{BTreeMap, BTreeSet};

use super::state::{GraphState, NodePhase};
use super::{EDGES_MAX, NODES_MAX, enclosing};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: String,
    pub to: String,
    /// How often it may be taken, if it closes a cycle.
    pub max: Option<u32>,
}

/// A graph that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    #[error("The graph has no nodes")]
    Empty,
    #[error("The graph has {count} {what}; {max} are the limit")]
    TooLarge { what: &'static str, count: usize, max: usize },
    #[error("An edge from `{from}` leads to `{to}`, and there is no node `{unknown}`")]
    EdgeUnknown { from: String, to: String, unknown: String },
    #[error("There are two edges from `{from}` to `{to}`")]
    EdgeRepeated { from: String, to: String },
    #[error("The entry `{entry}` is not a node of the graph")]
    EntryUnknown { entry: String },
    #[error("No node is without an edge that leads to it: name the `entry`")]
    EntryMissing,
    #[error("The nodes {} form a cycle, and none of its edges has a limit", joined(.path))]
    CycleUnlimited { path: Vec<String> },
    #[error("The edge from `{from}` to `{to}` has a limit and closes no cycle")]
    LimitUnused { from: String, to: String },
    #[error(
        "The edge from `{from}` leads back to `{to}` while `{branch}` may still run: let the branch end before `{from}`"
    )]
    CycleOpen { from: String, to: String, branch: String },
    #[error("No edge leads to the node `{node}`, and it is not the entry")]
    Unreachable { node: String },
}

fn joined(path: &[String]) -> String {
    let names: Vec<_> = path.iter().map(|name| format!("`{name}`")).collect();
    names.join(" -> ")
}

/// A graph's nodes and edges, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: BTreeSet<String>,
    entries: BTreeSet<String>,
    /// Targets of the edges that close no cycle, by source; and the other way round.
    targets: BTreeMap<String, BTreeSet<String>>,
    sources: BTreeMap<String, BTreeSet<String>>,
    /// Edges that close a cycle, with their limits.
    cycles: BTreeMap<(String, String), u32>,
    /// Nodes that run a graph of their own, whose nodes are here, too: `outer/inner`.
    subgraphs: BTreeSet<String>,
}

impl Topology {
    pub fn new(
        nodes: impl IntoIterator<Item = String>,
        edges: &[Edge],
        entry: Option<&str>,
    ) -> Result<Self, TopologyError> {
        let nodes: BTreeSet<String> = nodes.into_iter().collect();
        if nodes.is_empty() {
            return Err(TopologyError::Empty);
        }
        for (what, count, max) in
            [("nodes", nodes.len(), NODES_MAX), ("edges", edges.len(), EDGES_MAX)]
        {
            if count > max {
                return Err(TopologyError::TooLarge { what, count, max });
            }
        }
        let mut graph = Self {
            nodes,
            entries: BTreeSet::new(),
            targets: BTreeMap::new(),
            sources: BTreeMap::new(),
            cycles: BTreeMap::new(),
            subgraphs: BTreeSet::new(),
        };
        for edge in edges {
            graph.insert(edge)?;
        }
        if let Some(path) = graph.cycle() {
            return Err(TopologyError::CycleUnlimited { path });
        }
        let unused = graph
            .cycles
            .keys()
            .find(|(from, to)| from != to && !graph.descendants(to).contains(from.as_str()));
        if let Some((from, to)) = unused {
            return Err(TopologyError::LimitUnused { from: from.clone(), to: to.clone() });
        }
        graph.check_cycles()?;
        graph.set_entries(entry)?;
        Ok(graph)
    }

    /// The same graph, in which a node runs another one. No edge leads from one graph into the other: the
    /// inner graph runs while its node does.
    pub fn with_subgraph(mut self, path: &str, inner: Self) -> Result<Self, TopologyError> {
        let within = |name: String| format!("{path}/{name}");
        let all = |names: BTreeSet<String>| names.into_iter().map(within).collect::<BTreeSet<_>>();
        let linked = |links: BTreeMap<String, BTreeSet<String>>| {
            links.into_iter().map(move |(name, others)| (within(name), all(others)))
        };
        self.nodes.extend(all(inner.nodes));
        self.entries.extend(all(inner.entries));
        self.subgraphs.insert(path.to_owned());
        self.subgraphs.extend(all(inner.subgraphs));
        self.targets.extend(linked(inner.targets));
        self.sources.extend(linked(inner.sources));
        let cycles = inner.cycles.into_iter();
        self.cycles.extend(cycles.map(|((from, to), max)| ((within(from), within(to)), max)));
        let count = self.nodes.len();
        if count > NODES_MAX {
            return Err(TopologyError::TooLarge { what: "nodes", count, max: NODES_MAX });
        }
        Ok(self)
    }

    /// When an edge leads back, nothing that it resets may be running: what lies behind its target lies
    /// before or behind its source.
    fn check_cycles(&self) -> Result<(), TopologyError> {
        for (from, to) in self.cycles.keys() {
            let (before, behind) = (self.ancestors(from), self.descendants(from));
            let is_settled = |node: &&str| {
                *node == from.as_str() || before.contains(node) || behind.contains(node)
            };
            if let Some(branch) = self.descendants(to).into_iter().find(|node| !is_settled(node)) {
                let (from, to, branch) = (from.clone(), to.clone(), branch.to_owned());
                return Err(TopologyError::CycleOpen { from, to, branch });
            }
        }
        Ok(())
    }

    fn insert(&mut self, edge: &Edge) -> Result<(), TopologyError> {
        let Edge { from, to, max } = edge;
        if let Some(unknown) = [from, to].into_iter().find(|name| !self.nodes.contains(*name)) {
            return Err(TopologyError::EdgeUnknown {
                from: from.clone(),
                to: to.clone(),
                unknown: unknown.clone(),
            });
        }
        let repeated = || TopologyError::EdgeRepeated { from: from.clone(), to: to.clone() };
        let is_known = self.cycles.contains_key(&(from.clone(), to.clone()))
            || self.targets.get(from).is_some_and(|targets| targets.contains(to));
        if is_known {
            return Err(repeated());
        }
        if let Some(max) = max {
            self.cycles.insert((from.clone(), to.clone()), *max);
        } else {
            self.targets.entry(from.clone()).or_default().insert(to.clone());
            self.sources.entry(to.clone()).or_default().insert(from.clone());
        }
        Ok(())
    }

    fn set_entries(&mut self, entry: Option<&str>) -> Result<(), TopologyError> {
        let without_source = |node: &&String| !self.sources.contains_key(*node);
        let heads: BTreeSet<String> = self.nodes.iter().filter(without_source).cloned().collect();
        self.entries = match entry {
            Some(entry) if self.nodes.contains(entry) => BTreeSet::from([entry.to_owned()]),
            Some(entry) => return Err(TopologyError::EntryUnknown { entry: entry.to_owned() }),
            None if heads.is_empty() => return Err(TopologyError::EntryMissing),
            None => heads,
        };
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        for entry in &self.entries {
            reached.insert(entry);
            reached.extend(self.descendants(entry));
        }
        match self.nodes.iter().find(|node| !reached.contains(node.as_str())) {
            Some(node) => Err(TopologyError::Unreachable { node: node.clone() }),
            None => Ok(()),
        }
    }

    /// Nodes that form a cycle of edges without a limit; the first one stands at the end again.
    fn cycle(&self) -> Option<Vec<String>> {
        // Nodes that nothing leads to are taken away until none is left; what remains has a cycle.
        let mut left: BTreeMap<&str, usize> = self
            .nodes
            .iter()
            .map(|node| (node.as_str(), self.sources.get(node).map_or(0, BTreeSet::len)))
            .collect();
        let mut free: Vec<&str> =
            left.iter().filter(|(_, count)| **count == 0).map(|(node, _)| *node).collect();
        while let Some(node) = free.pop() {
            left.remove(node);
            for target in self.targets.get(node).into_iter().flatten() {
                if let Some(count) = left.get_mut(target.as_str()) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(target);
                    }
                }
            }
        }
        // Each that is left has a source that is left: going back leads into the cycle.
        let mut path = vec![*left.keys().next()?];
        loop {
            let node = path.last()?;
            let back = self.sources.get(*node)?.iter().find(|s| left.contains_key(s.as_str()))?;
            if let Some(at) = path.iter().position(|seen| *seen == back.as_str()) {
                let mut cycle: Vec<String> = path[at..].iter().map(|s| (*s).to_owned()).collect();
                cycle.push(cycle.first()?.clone());
                cycle.reverse();
                return Some(cycle);
            }
            path.push(back);
        }
    }

    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(String::as_str)
    }

    pub fn has_node(&self, path: &str) -> bool {
        self.nodes.contains(path)
    }

    pub fn is_entry(&self, path: &str) -> bool {
        self.entries.contains(path)
    }

    /// The limit of an edge that closes a cycle; `None` for the others.
    pub fn cycle_limit(&self, from: &str, to: &str) -> Option<u32> {
        self.cycles.get(&(from.to_owned(), to.to_owned())).copied()
    }

    /// The nodes that edges without a limit lead to from here, however far. Not the node itself.
    pub fn descendants(&self, path: &str) -> BTreeSet<&str> {
        walk(path, &self.targets)
    }

    /// The nodes from which edges without a limit lead here, however far. Not the node itself.
    pub fn ancestors(&self, path: &str) -> BTreeSet<&str> {
        walk(path, &self.sources)
    }

    /// What an edge that closes a cycle resets: its target and everything behind it, with what is in
    /// them.
    pub fn resets(&self, to: &str) -> Vec<String> {
        let reset = std::iter::once(to).chain(self.descendants(to));
        let with_inner = reset.flat_map(|path| std::iter::once(path).chain(self.within(path)));
        with_inner.map(str::to_owned).collect()
    }

    /// Whether the node runs a graph of its own.
    pub fn is_subgraph(&self, path: &str) -> bool {
        self.subgraphs.contains(path)
    }

    /// The nodes of a subgraph, however deep.
    pub fn within(&self, path: &str) -> impl Iterator<Item = &str> {
        let inner = self.subgraphs.contains(path).then(|| format!("{path}/"));
        inner.into_iter().flat_map(|begin| {
            let from = self.nodes.range(begin.clone()..).map(String::as_str);
            from.take_while(move |node| node.starts_with(&begin))
        })
    }

    /// Whether the graphs that the node is in all run.
    pub fn is_enclosed_by_running(state: &GraphState, path: &str) -> bool {
        enclosing(path).all(|outer| state.phase(outer) == NodePhase::Running)
    }

    /// Whether the node itself, or a graph that it is in, has come to an end: it will not run in this
    /// visit.
    pub fn is_over(state: &GraphState, path: &str) -> bool {
        std::iter::once(path).chain(enclosing(path)).any(|path| has_ended(state, path))
    }

    /// Subgraphs that run and whose nodes have all come to an end, innermost first.
    pub fn closable(&self, state: &GraphState) -> Vec<&str> {
        let is_done = |path: &&String| {
            let mut inner = self.within(path);
            state.phase(path) == NodePhase::Running
                && inner.all(|node| enclosing(node).next() != Some(path) || has_ended(state, node))
        };
        self.subgraphs.iter().rev().filter(is_done).map(String::as_str).collect()
    }

    /// Whether an edge is taken; `None`: its source has not come to an end.
    fn is_taken(state: &GraphState, from: &str, to: &str) -> Option<bool> {
        let node = state.node(from)?;
        match node.phase {
            NodePhase::Completed => Some(node.taken.iter().any(|taken| taken == to)),
            NodePhase::Skipped => Some(false),
            NodePhase::Failed { .. } if node.handled => {
                Some(node.taken.iter().any(|taken| taken == to))
            }
            NodePhase::Pending | NodePhase::Running | NodePhase::Failed { .. } => None,
        }
    }

    /// What its edges say about a pending node.
    fn verdict(&self, state: &GraphState, path: &str) -> Verdict {
        if state.phase(path) != NodePhase::Pending || !Self::is_enclosed_by_running(state, path) {
            return Verdict::Wait;
        }
        let is_triggered = state.node(path).is_some_and(|node| node.triggered);
        // A cycle around a subgraph leads to its entry again.
        let is_first = state.visit(path) == 1 || path.contains('/');
        if is_triggered || (self.is_entry(path) && is_first) {
            return Verdict::Ready;
        }
        let mut any = false;
        for source in self.sources.get(path).into_iter().flatten() {
            match Self::is_taken(state, source, path) {
                Some(is_taken) => any |= is_taken,
                None => return Verdict::Wait,
            }
        }
        if any { Verdict::Ready } else { Verdict::Skip }
    }

    /// The nodes whose first attempt in their visit can begin, in order.
    pub fn ready(&self, state: &GraphState) -> Vec<&str> {
        self.nodes().filter(|node| self.verdict(state, node) == Verdict::Ready).collect()
    }

    /// The nodes that no edge leads to any more. Applying them may make others so: ask again.
    pub fn skipped(&self, state: &GraphState) -> Vec<&str> {
        self.nodes().filter(|node| self.verdict(state, node) == Verdict::Skip).collect()
    }

    /// Nothing runs, is ready, or failed.
    pub fn is_complete(&self, state: &GraphState) -> bool {
        self.nodes().all(|node| Self::is_over(state, node))
    }
}

/// Completed, skipped, or failed with an edge that led on.
fn has_ended(state: &GraphState, path: &str) -> bool {
    matches!(state.phase(path), NodePhase::Completed | NodePhase::Skipped)
        || state.node(path).is_some_and(|node| node.handled)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ready,
    Skip,
    Wait,
}

/// Everything that lies behind a node, one way or the other.
fn walk<'a>(path: &str, next: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut left: Vec<&str> = next.get(path).into_iter().flatten().map(String::as_str).collect();
    while let Some(node) = left.pop() {
        if seen.insert(node) {
            left.extend(next.get(node).into_iter().flatten().map(String::as_str));
        }
    }
    seen
}
