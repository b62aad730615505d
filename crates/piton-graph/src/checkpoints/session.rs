//! A graph's session as a whole.

use std::sync::Arc;

use piton_core::Timestamp;
use piton_core::decide::Refusal;
use piton_core::graph::CheckpointOptions;
use piton_core::id::{CheckpointId, SessionId, WaitId};
use piton_core::state::Phase;
use piton_store::Store;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::log::Reader;
use crate::spec::GraphSpec;

/// How a graph's session stands, for people and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    pub session_id: SessionId,
    pub graph: String,
    /// The file that the graph was read from, if it was.
    pub file: Option<String>,
    /// BLAKE3 of the graph's spec, in hex.
    pub spec_hash: String,
    pub lineage: u32,
    pub phase: Option<Phase>,
    pub execution_path: Vec<String>,
    pub failed_at_node: Option<String>,
    /// The error of that node.
    pub error: Option<String>,
    pub waits: Vec<WaitId>,
    pub last_checkpoint: Option<CheckpointId>,
    /// Where a resume without a checkpoint begins.
    pub resume_from: Option<CheckpointId>,
    /// Keys whose values were never saved.
    pub excluded_keys: Vec<String>,
    /// What the session's executions were given.
    pub checkpoint_options: CheckpointOptions,
    pub created_at: Option<Timestamp>,
    pub updated_at: Option<Timestamp>,
}

/// Looks at a session that runs a graph.
pub async fn view(store: &Arc<dyn Store>, session: &SessionId) -> Result<SessionView> {
    let log = Reader::new(store, session.clone());
    let (folded, _) = log.load_readable().await?;
    let run = folded.session.facts.run.as_ref();
    let waits = run.map(|run| run.waits.keys().cloned().collect());
    let failed = folded.graph.failed();
    let error = match failed {
        Some((_, seq)) => log.shown_text(seq, "error").await?,
        None => None,
    };
    let failed_at_node = failed.map(|(path, _)| path.to_owned());
    let (index, lineage) = (&folded.index, folded.lineage());
    let resume_from = index.resume_point(lineage, failed_at_node.as_deref());
    let excluded = folded.graph.memory.iter().filter(|(_, value)| value.excluded);
    let info = folded.session.info.as_ref();
    Ok(SessionView {
        session_id: session.clone(),
        graph: folded.graph.name.clone(),
        file: folded.graph.file.clone(),
        spec_hash: folded.graph.spec_hash.clone(),
        lineage,
        phase: run.map(|run| run.phase),
        error,
        last_checkpoint: index.latest(lineage).map(|entry| entry.checkpoint_id.clone()),
        resume_from: resume_from.map(|entry| entry.checkpoint_id.clone()),
        failed_at_node,
        execution_path: folded.graph.execution_path.clone(),
        waits: waits.unwrap_or_default(),
        excluded_keys: excluded.map(|(key, _)| key.clone()).collect(),
        checkpoint_options: index.options().clone(),
        created_at: info.map(|info| info.created_at),
        updated_at: info.map(|info| info.active_at),
    })
}

/// The graph that a session runs, as its log has it.
pub async fn graph_spec(
    store: &Arc<dyn Store>,
    session: &SessionId,
) -> Result<(GraphSpec, SessionView)> {
    let log = Reader::new(store, session.clone());
    let (folded, _) = log.load_readable().await?;
    let spec = log.field(folded.graph.spec_seq, "spec").await?.unwrap_or(Value::Null);
    let spec = GraphSpec::from_value(spec).map_err(|source| Error::SpecUnreadable { source })?;
    Ok((spec, view(store, session).await?))
}

/// What an open wait of a graph asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    pub text: String,
    /// What can be answered; empty: anything.
    pub options: Vec<String>,
}

/// What an open wait asks; an error if there is no such wait.
pub async fn question(
    store: &Arc<dyn Store>,
    session: &SessionId,
    wait: &WaitId,
) -> Result<Question> {
    let log = Reader::new(store, session.clone());
    let (folded, _) = log.load_readable().await?;
    let run = folded.session.facts.run.as_ref();
    let Some(open) = run.and_then(|run| run.waits.get(wait)) else {
        return Err(Refusal::WaitNotFound { wait: wait.clone() }.into());
    };
    let asked = log.field(open.since_seq, "question").await?.unwrap_or(Value::Null);
    let text = asked.get("question").and_then(Value::as_str).unwrap_or_default().to_owned();
    let listed = asked.get("options").and_then(Value::as_array).into_iter().flatten();
    let options = listed.filter_map(|option| Some(option.get("option_id")?.as_str()?.to_owned()));
    Ok(Question { text, options: options.collect() })
}
