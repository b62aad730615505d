//! Graphs that this process runs: its store and its life in it, and values that a user gives.

use std::sync::Arc;

use piton_api::client::Client;
use piton_core::Code;
use piton_core::graph::CheckpointConfig;
use piton_core::id::SessionId;
use piton_core::mask::KeyPatterns;
use piton_graph::{CheckpointOptions, Graph, GraphSpec, GraphStore, StoreParts, ValueType};
use piton_runtime::{Ids, View};
use piton_store::{BootGuard, Holder, OsEntropy, Store};
use serde_json::{Map, Value};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::stores::Kind;
use crate::{conversion, masking, server, stores};

/// Longest value that is read from a file or from standard input.
const VALUE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The store that graphs run in, and the lock that says that this process lives.
#[derive(Debug)]
pub(crate) struct GraphHost {
    pub(crate) store: GraphStore,
    _alive: BootGuard,
}

impl GraphHost {
    /// Makes a store if there is none.
    pub(crate) fn open(cx: &Context) -> Result<Self> {
        let settings = &cx.settings;
        let masker = Arc::new(masking::masker(settings)?);
        let locks = cx.locks();
        let boot = Ids::new(cx.clock(), Arc::new(OsEntropy)).boot()?;
        // Alive first, then a look at who converts the store: a conversion looks the other way round,
        // so that one of the two sees the other.
        let alive = locks.hold(boot.clone())?;
        conversion::refuse(&settings.data.value)?;
        let (store, features) = stores::open_or_create_with_features(settings)?;
        let parts = StoreParts { store, boot, liveness: Arc::new(locks), features, masker };
        let store = GraphStore::from_parts(parts).with_checkpoints(settings.checkpoint.clone());
        Ok(Self { store, _alive: alive })
    }
}

/// The server that alone writes to the store, if one runs: beside a server no other process writes to a store
/// of files.
pub(crate) fn server_of_store(cx: &Context) -> Result<Option<Client>> {
    let data = &cx.settings.data.value;
    let kind = stores::detect(data)?.unwrap_or(cx.settings.store.value);
    Ok(server::connect(data).filter(|_| kind == Kind::Files))
}

/// The server that changes a session; `None`: this process does. What the server owns is changed there.
pub(crate) async fn server_for_change(cx: &Context, session: &SessionId) -> Result<Option<Client>> {
    if let Some(client) = server_of_store(cx)? {
        return Ok(Some(client));
    }
    let data = &cx.settings.data.value;
    let Some(info) = server::find(data) else { return Ok(None) };
    let owner = cx.existing_view()?.state(session).await?.lease.owner;
    let is_servers = owner.is_some_and(|owner| owner.as_str() == info.boot);
    Ok(server::connect(data).filter(|_| is_servers))
}

/// Names the process that owns a session.
pub(crate) fn owned(cx: &Context, error: piton_graph::Error) -> Error {
    if let piton_graph::Error::Store(piton_store::Error::SessionOwned { owner, .. }) = &error
        && let Some(Holder { pid, program }) = cx.holder(owner)
    {
        let hint = format!("{program} (pid {pid}) runs it: wait for its end, or stop it.");
        return Error::from(error).with_hint(hint);
    }
    error.into()
}

/// Whether a session runs a graph.
pub(crate) async fn is_graph(view: &View, session: &SessionId) -> Result<bool> {
    Ok(view.state(session).await?.facts.graph.is_some())
}

/// Refuses a session that runs no graph.
pub(crate) async fn require_graph(view: &View, session: &SessionId) -> Result<()> {
    if is_graph(view, session).await? {
        return Ok(());
    }
    Err(Error::new(Code::SessionNotGraph, format!("Session {session} runs no graph")))
}

/// Which graph a session is resumed with.
pub(crate) async fn graph_for(
    store: &Arc<dyn Store>,
    session: &SessionId,
    file: Option<&std::path::Path>,
    is_recorded: bool,
) -> Result<Graph> {
    Ok(match file {
        Some(file) => Graph::from_file(file)?,
        None if is_recorded => Graph::recorded(store, session).await?,
        None => Graph::of_session(store, session).await?,
    })
}

/// The options of a file for `--checkpoint-config`.
pub(crate) fn checkpoint_options(file: Option<&std::path::Path>) -> Result<CheckpointOptions> {
    let Some(file) = file else { return Ok(CheckpointOptions::default()) };
    let text = piton_graph::read_spec_file(file).map_err(|error| {
        let message = format!("{} cannot be read", file.display());
        Error::new(Code::ConfigInvalid, message).because(&error)
    })?;
    piton_graph::parse_checkpoint_options(&text).map_err(|error| {
        let file = Some(file.display().to_string());
        let hint = error.hint.clone();
        let error = piton_graph::SpecError { file, ..error };
        let error = Error::new(Code::ConfigInvalid, error.to_string());
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    })
}

/// Values that a user gives: `key=value`, `key=@FILE`, `key=@env:NAME`, or `-` for a JSON object on
/// standard input. A value is a text where the graph says so, and JSON where it can be.
pub(crate) fn values(spec: &GraphSpec, given: &[String]) -> Result<Map<String, Value>> {
    let mut values = Map::new();
    for one in given {
        if one == "-" {
            values.extend(object_from_stdin()?);
            continue;
        }
        let Some((key, text)) = one.split_once('=') else {
            let error = Error::usage(&format!("{one:?} is not of the form key=value"));
            return Err(error.with_hint("Write key=value, key=@FILE or key=@env:NAME."));
        };
        let text = match text.strip_prefix('@') {
            None => text.to_owned(),
            Some(source) => match source.strip_prefix("env:") {
                Some(name) => std::env::var(name).map_err(|_| {
                    let message = format!("The variable ${name} for `{key}` is not set");
                    Error::new(Code::GraphInputInvalid, message)
                        .with_hint(format!("Set it first: export {name}=…"))
                })?,
                None => from_file(key, source)?,
            },
        };
        let of_type = spec.input(key).and_then(|input| input.of_type);
        values.insert(key.to_owned(), value(key, text, of_type)?);
    }
    Ok(values)
}

fn value(key: &str, text: String, of_type: Option<ValueType>) -> Result<Value> {
    if of_type == Some(ValueType::String) {
        return Ok(text.into());
    }
    match serde_json::from_str(&text) {
        Ok(value) => Ok(value),
        Err(_) if of_type.is_none() => Ok(text.into()),
        Err(error) => {
            let of_type = of_type.map_or("any", ValueType::as_str);
            let message = format!("`{key}` has to be of the type `{of_type}`, as JSON: {error}");
            Err(Error::new(Code::GraphInputInvalid, message))
        }
    }
}

/// A file's text, without the line end that editors add.
fn from_file(key: &str, path: &str) -> Result<String> {
    use std::io::Read as _;
    let unreadable = |error: std::io::Error| {
        let message = format!("The file {path} for `{key}` cannot be read");
        Error::new(Code::GraphInputInvalid, message).because(&error)
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(VALUE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    too_long(&text, path)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn object_from_stdin() -> Result<Map<String, Value>> {
    use std::io::Read as _;
    let mut text = String::new();
    std::io::stdin().take(VALUE_BYTES_MAX + 1).read_to_string(&mut text)?;
    too_long(&text, "standard input")?;
    serde_json::from_str(&text).map_err(|error| {
        let message = "Standard input is not a JSON object of inputs";
        Error::new(Code::GraphInputInvalid, message).because(&error)
    })
}

fn too_long(text: &str, what: &str) -> Result<()> {
    if text.len() as u64 <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{what} has more than {VALUE_BYTES_MAX} bytes");
    Err(Error::new(Code::PayloadTooLarge, message))
}

/// The command that resumes a session, as it can be pasted: with the keys whose values are never saved
/// and that a node may still read.
pub(crate) fn resume_command(
    call: &crate::call::Call,
    session: &SessionId,
    graph: &Graph,
    [settings, recorded, options]: [&CheckpointOptions; 3],
    done: &[String],
) -> String {
    let levels = [&graph.spec().checkpoint, settings, recorded, options];
    let excluded = CheckpointConfig::of(levels).exclude_memory_keys;
    let patterns = KeyPatterns::new(&excluded);
    let name = |key: &str| key.rsplit('/').next().unwrap_or(key).to_owned();
    let nodes = graph.spec().all_nodes().into_iter().map(|(path, _)| path);
    let read = nodes.filter(|path| !done.contains(path)).flat_map(|path| graph.reads(&path));
    let secret = read.filter(|key| patterns.matches(&name(key)));
    let keys: std::collections::BTreeSet<String> =
        secret.map(|key| graph.spec().origin_of(key)).collect();
    let sets = keys.iter().map(|key| format!(" --set {key}=@env:{}", name(key).to_uppercase()));
    let sets = sets.collect::<Vec<_>>().concat();
    format!("{call} sessions resume {session}{sets}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_text_where_the_graph_says_so_and_json_where_it_can_be() {
        let read = |text: &str, of_type| value("key", text.to_owned(), of_type).ok();
        assert_eq!(read("12", Some(ValueType::String)), Some("12".into()));
        assert_eq!(read("12", Some(ValueType::Integer)), Some(12.into()));
        assert_eq!(read("[1]", None), Some(serde_json::json!([1])));
        assert_eq!(read("a b", None), Some("a b".into()));
        assert_eq!(read("a b", Some(ValueType::Array)), None);
    }
}
