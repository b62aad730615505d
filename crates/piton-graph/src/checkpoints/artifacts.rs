//! The files that nodes left with a session.

use std::sync::Arc;

use piton_core::Seq;
use piton_core::graph::Artifact;
use piton_core::id::{CheckpointId, SessionId};
use piton_store::Store;
use serde::Serialize;
use serde_json::Value;

use super::entry_of;
use crate::error::{Error, Result};
use crate::log::{Folded, Reader};

/// A file that a node left; one of the same name took the place of those before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArtifactSummary {
    pub name: String,
    pub node: String,
    pub bytes: u64,
    /// Masking changed it: parts of it are replaced by the mask.
    pub is_masked: bool,
    /// The record that has it.
    pub seq: Seq,
}

impl ArtifactSummary {
    pub(super) fn of(name: &str, artifact: &Artifact) -> Self {
        Self {
            name: name.to_owned(),
            node: artifact.path.clone(),
            bytes: artifact.bytes,
            is_masked: artifact.excluded,
            seq: artifact.seq,
        }
    }
}

/// The files of a session, by name: those that there were at a checkpoint, or that there are now. With
/// a node, those that it left, or the nodes of its subgraph.
pub async fn artifacts(
    store: &Arc<dyn Store>,
    session: &SessionId,
    checkpoint: Option<&CheckpointId>,
    node: Option<&str>,
) -> Result<Vec<ArtifactSummary>> {
    let log = Reader::new(store, session.clone());
    let (folded, events) = log.load_readable().await?;
    let state = match checkpoint {
        Some(_) => {
            let entry = entry_of(&folded, checkpoint)?;
            folded.fold_at(&events, entry.lineage, entry.seq)
        }
        None => folded.graph,
    };
    let is_of = |path: &str| {
        node.is_none_or(|node| {
            path.strip_prefix(node).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let listed = state.artifacts.iter().filter(|(_, artifact)| is_of(&artifact.path));
    Ok(listed.map(|(name, artifact)| ArtifactSummary::of(name, artifact)).collect())
}

/// A file's bytes.
pub async fn artifact(store: &Arc<dyn Store>, session: &SessionId, name: &str) -> Result<Vec<u8>> {
    let log = Reader::new(store, session.clone());
    let (folded, _) = log.load_readable().await?;
    let Folded { graph, .. } = folded;
    let Some(artifact) = graph.artifacts.get(name) else {
        return Err(Error::ArtifactUnknown { name: name.to_owned() });
    };
    let damaged = || {
        let (session, seq, source) = (session.clone(), artifact.seq, None);
        Error::from(piton_store::Error::RecordDamaged { session, seq, source })
    };
    match log.field(artifact.seq, "data").await? {
        Some(Value::String(text)) if artifact.is_hex => hex::decode(text).map_err(|_| damaged()),
        Some(Value::String(text)) => Ok(text.into_bytes()),
        // It was redacted.
        None => Err(Error::ArtifactUnknown { name: name.to_owned() }),
        Some(_) => Err(damaged()),
    }
}
