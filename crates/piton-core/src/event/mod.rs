//! The kinds of records. One declaration per kind names its header fields (those that the fold reads,
//! stored in the clear) and its content fields (text, arguments, results: encrypted, maskable,
//! redactable).
//!
//! An event is the *typed view* of a record's header. The record itself keeps the bytes that were
//! written, so kinds and fields of a newer program pass through this one unchanged.

#[macro_use]
mod declare;
mod execution;
mod graph;
mod metadata;
mod run;
mod session;
mod snapshot;
mod values;

use serde::Deserialize;

pub use execution::*;
pub use graph::*;
pub use metadata::*;
pub use run::*;
pub use session::*;
pub use snapshot::*;
pub use values::{
    AdoptedRun, Critical, Fork, Outcome, TokenPurpose, ToolStatus, WaitDeadline, WaitKind,
};

/// Version of the record schema that this program writes.
pub const SCHEMA_VERSION: u32 = 2;

/// Position in a session's log: 1, 2, 3, … without gaps; 0 is before the first record.
pub type Seq = u64;

/// A header that could not be read as its kind demands.
#[derive(Debug, thiserror::Error)]
#[error("The header of a {kind} record is not readable")]
pub struct ParseError {
    pub kind: String,
    #[source]
    pub source: serde_json::Error,
}

/// A kind that this program does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct Unknown {
    pub kind: String,
    /// A program that does not know a critical kind may read the log, and must not append to it.
    pub critical: bool,
}

#[derive(Deserialize)]
struct UnknownHeader {
    #[serde(default)]
    critical: bool,
}

/// The content fields of a kind; none for kinds that this program does not know.
pub fn content_fields(kind: &str) -> &'static [&'static str] {
    KINDS.iter().find(|(known, _)| *known == kind).map_or(&[], |(_, fields)| fields)
}

// The kinds in the order of the documentation. Each is declared in the module of its concept.
events! {
    SessionCreated, SessionAdopted, SessionRenamed, SessionClosed, SessionForked, SessionLeased, SessionReleased, SessionAgentAssigned, MessageUser, MessageDelta, MessageCompleted, PromptQueued, PromptEdited, PromptMoved, PromptRemoved, QueueReleased, ToolIntent, ToolUpdated, ToolOutcome,
    RunStarted, RunWaiting, RunResumed, RunReattached, RunPaused, RunCompleted, RunFailed, RunCancelled, RunInterrupted, RunDismissed, WaitCancelled, PermissionDecided, PermissionAsked, TokenMinted, TokenConsumed, TokenRevoked, TokenExpired,
    ExecutorStarting, ExecutorReady, ExecutorUnreachable, ExecutorError, ExecutorStopped, ExecutorAbandoned, WorkspacePlanned, WorkspacePrepared, WorkspaceRemoved, WorkspaceSnapshotTaken, WorkspaceSnapshotLate, WorkspaceSnapshotFailed, WorkspaceUnchanged, WorkspaceRestoreStarted, WorkspaceRestoreFailed, WorkspaceRestored, AgentResuming, AgentStarting, AgentReady, AgentSessionAssigned, AgentInitialized, AgentError, AgentExited, AgentUpdated, AgentHistoryDiverged, SpoolImported, WorkspaceRecreated, AgentSessionCleared, AgentConfigured, AgentMcpServersSet, AgentEnding, AgentWaiting, StatusDerived, PromptPrepared, EffectDone, RecordRedacted, RequestAccepted,
    GraphBound, GraphConfigured, GraphForked, GraphHosted, NodeStarted, NodeCompleted, NodeFailed, NodeSkipped, NodeSafePoint, NodeSessionAssigned, NodeEvent, NodeText, ArtifactAdded, EdgeTaken, MemoryChanged, OutputAdded, LoopIterated, MapListed, MapItemCompleted, CheckpointCreated, CheckpointPruned, CheckpointDeleted, CheckpointDamaged, LineageStarted,
    TaskCreated, TaskUpdated, TaskClosed, TaskReopened, TaskDeleted, AccessTokenCreated, AccessTokenUsed, AccessTokenRevoked, AuditRecorded, SessionRegistered, AnchorsRecreated, SessionDeleted, SessionArchived, SessionImported,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_kinds_parse_and_unknown_fields_do_not_disturb() {
        let header = r#"{"run_id":"run_9f5","boot_id":"boot_1","of_tomorrow":[1,2]}"#;
        let event = Event::parse("run.started", header).unwrap();
        assert_eq!(
            event,
            RunStarted {
                run_id: "run_9f5".parse().unwrap(),
                boot_id: "boot_1".parse().unwrap(),
                message_id: None
            }
            .into()
        );
    }

    #[test]
    fn unknown_kinds_say_whether_they_are_critical() {
        let event = Event::parse("graph.node", r#"{"critical":true,"x":1}"#).unwrap();
        assert_eq!(event, Event::Unknown(Unknown { kind: "graph.node".into(), critical: true }));
        assert!(Event::parse("graph.node", "[").is_err());
    }

    #[test]
    fn content_is_declared_per_kind() {
        assert_eq!(content_fields("tool.intent"), ["arguments"]);
        assert_eq!(content_fields("run.started"), [""; 0]);
        let mut kinds: Vec<_> = KINDS.iter().map(|(kind, _)| kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), KINDS.len(), "a kind is declared twice");
    }
}
