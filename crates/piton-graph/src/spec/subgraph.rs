//! Graphs in graphs: written in place, or in a file of their own that is read now. What a run binds is
//! one spec that holds them all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use piton_core::graph::{NODES_MAX, SUBGRAPH_DEPTH_MAX};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::GraphSpec;
use super::parse::{FILE_BYTES_MAX, Parsed, known_fields};
use super::tree::{self, Node, Tree};
use crate::error::SpecError;

/// A graph that a node runs. Its memory is its own: it gets `inputs`, and gives `outputs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubgraphSpec {
    #[serde(with = "as_value")]
    pub graph: Box<GraphSpec>,
    /// Its inputs: values whose strings are templates over the memory of the graph around it.
    #[serde(with = "as_pairs")]
    pub inputs: BTreeMap<String, Value>,
    /// Keys of the graph around it, and the keys of its own memory that they get.
    #[serde(with = "as_pairs")]
    pub outputs: BTreeMap<String, String>,
}

/// A graph as the log has it: see [`GraphSpec::to_value`].
mod as_value {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};
    use serde_json::Value;

    use super::GraphSpec;

    pub(super) fn serialize<S: Serializer>(graph: &GraphSpec, to: S) -> Result<S::Ok, S::Error> {
        graph.to_value().serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Box<GraphSpec>, D::Error> {
        let value = Value::deserialize(from)?;
        GraphSpec::from_value(value).map(Box::new).map_err(D::Error::custom)
    }
}

/// As pairs, because the value of a key that is called like a secret would be masked.
mod as_pairs {
    use std::collections::BTreeMap;

    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        map: &BTreeMap<String, T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'a, T: Deserialize<'a>, D: Deserializer<'a>>(
        from: D,
    ) -> Result<BTreeMap<String, T>, D::Error> {
        let pairs = Vec::<(String, T)>::deserialize(from)?;
        Ok(pairs.into_iter().collect())
    }
}

/// The files that are being read, each named by the one before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// As they are named, and as the system names them.
    open: Vec<(PathBuf, PathBuf)>,
    /// How deep in graphs this one is.
    depth: usize,
}

impl Files {
    /// Of a graph file.
    pub(crate) fn of(path: &Path) -> Self {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self { open: vec![(path.to_owned(), real)], depth: 0 }
    }

    /// The file that is read now, as it is named in messages.
    pub(super) fn name(&self) -> Option<String> {
        self.open.last().map(|(path, _)| path.display().to_string())
    }
}

impl Parsed {
    /// A node's `subgraph`.
    pub(super) fn subgraph(
        &mut self,
        name: &str,
        tree: &Tree,
        files: &Files,
    ) -> Result<SubgraphSpec, SpecError> {
        let fields = known_fields(tree, "A subgraph", &["graph", "file", "inputs", "outputs"])?;
        let mut inner_files = files.clone();
        inner_files.depth += 1;
        if inner_files.depth > SUBGRAPH_DEPTH_MAX {
            let message = format!("Graphs are nested more than {SUBGRAPH_DEPTH_MAX} deep");
            return Err(tree.fail(message));
        }
        let parsed = match (fields.get("graph"), fields.get("file")) {
            (Some(graph), None) => Self::from_tree(graph, true, &inner_files)?,
            (None, Some(file)) => read_file(file, inner_files)?,
            _ => return Err(tree.fail("A subgraph needs one of `graph` and `file`")),
        };
        self.nodes_within += parsed.nodes_within + parsed.spec.nodes.len();
        if self.nodes_within > NODES_MAX {
            let message = format!("The graph has more than {NODES_MAX} nodes with its subgraphs");
            return Err(tree.fail(message));
        }
        let mut inputs = BTreeMap::new();
        if let Some(of) = fields.get("inputs") {
            for (key, location, value) in of.fields("`inputs`")? {
                self.locations.note(format!("given {name} {key}"), *location);
                inputs.insert(key.clone(), value.value());
            }
        }
        let mut outputs = BTreeMap::new();
        if let Some(of) = fields.get("outputs") {
            let pairs = match &of.node {
                Node::Object(fields) => {
                    let pairs = fields.iter().map(|(key, location, from)| {
                        Ok((key.clone(), from.text("A key of the subgraph")?, *location))
                    });
                    pairs.collect::<Result<Vec<_>, SpecError>>()?
                }
                // The same name on both sides.
                _ => {
                    let keys = of.texts("An output")?.into_iter();
                    keys.map(|(key, location)| (key.clone(), key, location)).collect()
                }
            };
            for (key, from, location) in pairs {
                self.locations.note(format!("taken {name} {key}"), location);
                outputs.insert(key, from);
            }
        }
        let graph = Box::new(parsed.spec.clone());
        self.subgraphs.insert(name.to_owned(), parsed);
        Ok(SubgraphSpec { graph, inputs, outputs })
    }

    /// The subgraphs of a spec that was not read from a file.
    pub(crate) fn from_spec(spec: GraphSpec) -> Self {
        let inner = spec.nodes.iter().filter_map(|(name, node)| match &node.kind {
            super::NodeKind::Subgraph(subgraph) => {
                Some((name.clone(), Self::from_spec((*subgraph.graph).clone())))
            }
            _ => None,
        });
        let subgraphs = inner.collect();
        Self { spec, subgraphs, ..Self::default() }
    }
}

fn read_file(file: &Tree, mut files: Files) -> Result<Parsed, SpecError> {
    let named = file.text("A file")?;
    let Some((around, _)) = files.open.last() else {
        let error = file.fail("A graph that is no file cannot name the file of another one");
        return Err(error.hinting("write the graph in its place: `subgraph: {graph: …}`"));
    };
    let path = around.parent().unwrap_or(Path::new("")).join(&named);
    let cannot = |error: &std::io::Error| {
        file.fail(format!("The file {} cannot be read: {error}", path.display()))
    };
    let real = path.canonicalize().map_err(|error| cannot(&error))?;
    if files.open.iter().any(|(_, open)| *open == real) {
        let message = format!("The file {} is a subgraph of itself", path.display());
        return Err(file.fail(message));
    }
    let bytes = std::fs::metadata(&real).map_err(|error| cannot(&error))?.len();
    if bytes > FILE_BYTES_MAX as u64 {
        return Err(file.fail(format!("The graph file has more than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(&real).map_err(|error| cannot(&error))?;
    files.open.push((path.clone(), real));
    let parsed = tree::read(&text).and_then(|tree| Parsed::from_tree(&tree, false, &files));
    let parsed = parsed.map_err(|error| error.in_file(path.display().to_string()))?;
    Ok(Parsed { file: files.name(), ..parsed })
}
