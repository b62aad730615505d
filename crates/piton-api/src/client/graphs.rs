//! Graphs and their checkpoints.

use bytes::Bytes;
use hyper::Method;
use piton_core::id::SessionId;

use super::http::{encoded, with_query};
use super::requests::of_session;
use super::{Client, Result};
use crate::graph::{
    ArtifactList, ArtifactQuery, CheckpointDiff, CheckpointPage, CheckpointQuery, CheckpointView,
    CheckpointsPruned, DiffQuery, GraphQuery, GraphResumed, GraphTimeline, GraphView, InspectQuery,
    PruneCheckpointsRequest, ResumeGraphRequest, RunGraphRequest,
};
use crate::session::SessionCreated;

impl Client {
    /// Runs a graph in a new session.
    pub async fn run_graph(&self, graph: &RunGraphRequest) -> Result<SessionCreated> {
        self.post("/api/v1/graphs/run", graph).await
    }

    /// Resumes a graph: where it stood, or from a checkpoint, with keys of its memory set.
    pub async fn resume_graph(
        &self,
        session: &SessionId,
        how: &ResumeGraphRequest,
    ) -> Result<GraphResumed> {
        self.post(&of_session(session, "/graph/resume"), how).await
    }

    /// The graph that a session runs, and how far it came.
    pub async fn graph(&self, session: &SessionId, query: &GraphQuery) -> Result<GraphView> {
        self.get(&with_query(&of_session(session, "/graph"), query)).await
    }

    pub async fn timeline(&self, session: &SessionId) -> Result<GraphTimeline> {
        self.get(&of_session(session, "/timeline")).await
    }

    /// The files that nodes left.
    pub async fn artifacts(
        &self,
        session: &SessionId,
        query: &ArtifactQuery,
    ) -> Result<ArtifactList> {
        self.get(&with_query(&of_session(session, "/artifacts"), query)).await
    }

    /// A file that a node left, byte for byte.
    pub async fn artifact(&self, session: &SessionId, name: &str) -> Result<Bytes> {
        let path = of_session(session, &format!("/artifacts/{}", encoded(name)));
        Ok(self.whole(Method::GET, &path, None).await?.2)
    }

    pub async fn checkpoints(
        &self,
        session: &SessionId,
        query: &CheckpointQuery,
    ) -> Result<CheckpointPage> {
        self.get(&with_query(&of_session(session, "/checkpoints"), query)).await
    }

    /// A checkpoint, by its id or the beginning or end of it; `latest` is the newest.
    pub async fn checkpoint(
        &self,
        session: &SessionId,
        checkpoint: &str,
        query: &InspectQuery,
    ) -> Result<CheckpointView> {
        let path = of_session(session, &format!("/checkpoints/{}", encoded(checkpoint)));
        self.get(&with_query(&path, query)).await
    }

    pub async fn diff_checkpoints(
        &self,
        session: &SessionId,
        query: &DiffQuery,
    ) -> Result<CheckpointDiff> {
        self.get(&with_query(&of_session(session, "/checkpoints/diff"), query)).await
    }

    pub async fn delete_checkpoint(&self, session: &SessionId, checkpoint: &str) -> Result<()> {
        let path = of_session(session, &format!("/checkpoints/{}", encoded(checkpoint)));
        self.json(Method::DELETE, &path, None).await
    }

    pub async fn prune_checkpoints(
        &self,
        session: &SessionId,
        how: &PruneCheckpointsRequest,
    ) -> Result<CheckpointsPruned> {
        self.post(&of_session(session, "/checkpoints/prune"), how).await
    }
}
