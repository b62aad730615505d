//! What can go wrong with a graph, each with its code.

use std::fmt;

use piton_core::decide::Refusal;
use piton_core::graph::{ConfigConflict, ResumeRefusal};
use piton_core::id::{CheckpointId, SessionId};
use piton_core::{AnyCode, Code, Seq};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A location in a graph file; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    pub line: usize,
    pub column: usize,
}

/// A mistake in a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SpecError {
    pub message: String,
    /// The file as it was named by the caller.
    pub file: Option<String>,
    pub location: Option<SourceLocation>,
    /// What was probably meant.
    pub hint: Option<String>,
}

impl SpecError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), file: None, location: None, hint: None }
    }

    pub(crate) fn at(mut self, location: Option<SourceLocation>) -> Self {
        self.location = self.location.or(location);
        self
    }

    /// The file that it is in, unless that is known.
    pub(crate) fn in_file(mut self, file: String) -> Self {
        self.file.get_or_insert(file);
        self
    }

    pub(crate) fn hinting(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With a hint if one of the known names is close to the unknown one.
    pub(crate) fn suggesting<'a>(
        self,
        unknown: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        match nearest(unknown, known) {
            Some(name) => self.hinting(format!("did you mean `{name}`?")),
            None => self,
        }
    }
}

/// The known name that is closest to an unknown one, if it is close.
pub(crate) fn nearest<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(unknown, name), name));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 > 0.8).then_some(best.1)
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(SourceLocation { line, column }) = self.location {
            let file = self.file.as_deref().unwrap_or("graph");
            write!(f, "\n  --> {file}:{line}:{column}")?;
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("The graph file {path} cannot be read")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Store(#[from] piton_store::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{message}")]
    Input { message: String, hint: Option<String> },
    #[error(transparent)]
    Config(#[from] ConfigConflict),
    #[error("Session {session} runs no graph")]
    NotGraph { session: SessionId },
    #[error("The session runs the graph `{found}`, not `{expected}`")]
    OtherGraph { found: String, expected: String },
    #[error(transparent)]
    Resume(#[from] ResumeRefusal),
    #[error("No checkpoint of the session is intact: {}", .damages.join("; "))]
    NoneIntact { damages: Vec<String> },
    #[error("Checkpoint {checkpoint} does not fit the graph any more: {why}{}", earlier(.nearest.as_ref()))]
    Incompatible { checkpoint: String, why: String, nearest: Option<CheckpointId> },
    #[error("These values are never saved and have to be set again: {}", .keys.join(", "))]
    ValuesRequired { keys: Vec<String> },
    #[error("Checkpoint {checkpoint} is still needed: {why}")]
    CheckpointInUse { checkpoint: CheckpointId, why: &'static str },
    #[error("{} checkpoint of the session {} `{named}`", if *is_ambiguous { "More than one" } else { "No" }, if *is_ambiguous { "is meant by" } else { "is" })]
    CheckpointUnknown { named: String, is_ambiguous: bool },
    #[error("The session has no artifact `{name}`")]
    ArtifactUnknown { name: String },
    #[error("Session {session} is a fork that was cut off, and has not all of its records")]
    ForkIncomplete { session: SessionId },
    #[error("Record {seq} of session {session} is damaged, and nothing can be written behind it")]
    LogBroken { session: SessionId, seq: Seq, checkpoint: Option<CheckpointId> },
    #[error("The graph in the session's log cannot be read")]
    SpecUnreadable {
        #[source]
        source: serde_json::Error,
    },
    #[error("The graph in the session's log is not whole: a secret in it was masked")]
    SpecMasked,
    #[error("The graph file {file} changed since the session ran it")]
    GraphChanged { file: String },
    #[error("The graph has `agent` nodes, and nothing here runs agents: {}", .nodes.join(", "))]
    AgentHostMissing { nodes: Vec<String> },
    #[error("The graph has nodes of its own that were not given: {}", .nodes.join(", "))]
    NodesMissing { nodes: Vec<String> },
}

fn earlier(nearest: Option<&CheckpointId>) -> String {
    nearest.map_or_else(String::new, |id| format!("; {id} is the nearest one that does"))
}

/// A code of records that are not what was written.
pub(crate) fn is_damage(code: Code) -> bool {
    use Code::{BlobMissing, ChainBroken, LineDamaged, RecordDamaged};
    matches!(code, RecordDamaged | LineDamaged | BlobMissing | ChainBroken)
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Spec(_)
            | Self::File { .. }
            | Self::NodesMissing { .. }
            | Self::SpecUnreadable { .. } => Code::GraphInvalid,
            Self::AgentHostMissing { .. } => Code::ServerNotRunning,
            Self::GraphChanged { .. } | Self::SpecMasked => Code::GraphChanged,
            Self::Store(error) => error.code(),
            Self::Refused(refusal) => refusal.code(),
            Self::Input { .. } => Code::GraphInputInvalid,
            Self::Config(ConfigConflict::Backend { .. } | ConfigConflict::Url) => {
                Code::StoreUnsupported
            }
            Self::Config(_) => Code::ConfigConflict,
            Self::NotGraph { .. } | Self::OtherGraph { .. } | Self::ForkIncomplete { .. } => {
                Code::SessionNotGraph
            }
            Self::Resume(ResumeRefusal::NotFound { .. })
            | Self::NoneIntact { .. }
            | Self::CheckpointUnknown { .. } => Code::CheckpointNotFound,
            Self::Resume(ResumeRefusal::NotResumable { .. }) => Code::CheckpointNotResumable,
            Self::Resume(ResumeRefusal::Damaged { .. }) => Code::CheckpointDamaged,
            Self::Incompatible { .. } => Code::CheckpointIncompatible,
            Self::ValuesRequired { .. } => Code::MemoryValueRequired,
            Self::CheckpointInUse { .. } => Code::CheckpointInUse,
            Self::ArtifactUnknown { .. } => Code::ArtifactNotFound,
            Self::LogBroken { .. } => Code::ChainBroken,
        }
    }

    /// A content is not there, or not what was written.
    pub(crate) fn is_damage(&self) -> bool {
        is_damage(self.code())
    }

    /// What to do about it: more than the code's own hint, if more is known.
    pub fn hint(&self) -> String {
        let own = match self {
            Self::Spec(error) => error.hint.clone(),
            Self::Input { hint, .. } => hint.clone(),
            Self::ForkIncomplete { session } => {
                Some(format!("Remove it with `piton sessions delete {session}`, and fork again."))
            }
            Self::LogBroken { session, checkpoint: Some(checkpoint), .. } => Some(format!(
                "Continue in a new session, from the newest checkpoint before it: `piton sessions \
                 fork {session} --checkpoint {checkpoint}`, then resume that session."
            )),
            Self::SpecMasked => Some(
                "Put the graph file back as it was and resume again, or choose the file as it is: \
                 `piton sessions resume SESSION --graph FILE`."
                    .to_owned(),
            ),
            Self::ValuesRequired { keys } => {
                let sets: Vec<_> = keys.iter().map(|key| format!("--set {key}=VALUE")).collect();
                Some(format!("Resume with {}.", sets.join(" ")))
            }
            _ => None,
        };
        own.unwrap_or_else(|| self.code().hint().to_owned())
    }
}

/// Why an attempt of a node failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NodeError {
    pub code: AnyCode,
    pub message: String,
    /// Another attempt may succeed.
    pub is_retryable: bool,
}

impl NodeError {
    /// A failure that another attempt may not have.
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: Code::NodeFailed.into(), message: message.into(), is_retryable: true }
    }

    pub fn with_code(mut self, code: impl Into<AnyCode>) -> Self {
        self.code = code.into();
        self
    }

    /// A failure that every attempt would have.
    pub fn permanent(mut self) -> Self {
        self.is_retryable = false;
        self
    }
}

impl From<std::io::Error> for NodeError {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<serde_json::Error> for NodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error.to_string()).permanent()
    }
}
