//! The parameters of the tools, each with its description.

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListSessions {
    /// Only sessions that work in this folder; empty: all
    #[serde(default)]
    pub(super) agent_work_dir: String,
    /// "failed", "paused", "cancelled", "active" or "completed"
    #[serde(default = "failed")]
    pub(super) status: String,
    /// How many at most
    #[serde(default = "twenty")]
    pub(super) limit: usize,
}

fn failed() -> String {
    "failed".to_owned()
}

fn twenty() -> usize {
    20
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListCheckpoints {
    /// The folder that the session works in; empty: any
    #[serde(default)]
    pub(super) agent_work_dir: String,
    /// The session's id
    pub(super) session_id: String,
    /// Only checkpoints of this type, such as `node_start` or `node_complete`; empty: all
    #[serde(default)]
    pub(super) checkpoint_type: String,
    /// Only clean checkpoints: without a failure or a retry before them
    #[serde(default)]
    pub(super) clean_only: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct InspectCheckpoint {
    /// The folder that the session works in; empty: any
    #[serde(default)]
    pub(super) agent_work_dir: String,
    /// The session's id
    pub(super) session_id: String,
    /// The checkpoint's id
    pub(super) checkpoint_id: String,
    /// Include the values of the memory
    #[serde(default)]
    pub(super) include_memory: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ResumeSession {
    /// The folder that the session works in; empty: any
    #[serde(default)]
    pub(super) agent_work_dir: String,
    /// The session's id
    pub(super) session_id: String,
    /// The checkpoint to resume from; empty: the latest
    #[serde(default)]
    pub(super) checkpoint_id: String,
    /// A JSON object with keys of the memory to set first
    #[serde(default = "nothing")]
    pub(super) memory_modifications: String,
}

fn nothing() -> String {
    "{}".to_owned()
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RunGraph {
    /// The graph file, YAML or JSON
    pub(super) graph: String,
    /// The graph's inputs
    #[serde(default)]
    pub(super) inputs: Map<String, Value>,
    /// The folder in which commands run; empty: that of this process
    #[serde(default)]
    pub(super) agent_work_dir: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ForkSession {
    /// The session's id
    pub(super) session_id: String,
    /// The checkpoint to fork from; empty: the latest
    #[serde(default)]
    pub(super) checkpoint_id: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AnswerWait {
    /// The session's id
    pub(super) session_id: String,
    /// The wait's id; empty: the session's only open wait
    #[serde(default)]
    pub(super) wait_id: String,
    /// The answer: an option's name, or what the question asks for
    pub(super) answer: Value,
}
