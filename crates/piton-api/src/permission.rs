//! What an agent asks permission for.

use piton_core::permission;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A permission request, combined from the question and the agent's updates of the tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PermissionRequest {
    /// The tool, as the agent names it.
    pub tool: Option<String>,
    /// The kind of tool: `execute`, `edit`, `read`, `delete`, `fetch`, …
    pub kind: Option<String>,
    /// One line for people.
    pub title: String,
    /// The whole command line, if the tool runs one.
    pub command: Option<String>,
    /// The tool's arguments; null if the agent says none.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub arguments: Value,
    pub locations: Vec<Location>,
    pub diffs: Vec<Diff>,
    /// The agent's explanation.
    pub text: Option<String>,
    pub options: Vec<PermissionOption>,
    /// A part of the request is left out here; null if it is whole. `GET /waits/{wait_id}` and the
    /// record of `since_seq` have what the log has.
    pub truncated: Option<Truncated>,
}

/// A location that a tool call refers to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Location {
    pub path: String,
    pub line: Option<u64>,
}

/// A change of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Diff {
    pub path: String,
    /// Null if the file is new.
    pub old_text: Option<String>,
    pub new_text: String,
}

/// An option of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PermissionOption {
    pub option_id: String,
    pub name: String,
    /// `allow_once`, `allow_always`, `reject_once`, `reject_always`, as the agent spelled it.
    pub kind: Option<String>,
}

/// How much is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Truncated {
    pub missing_bytes: u64,
}

impl From<PermissionRequest> for permission::PermissionRequest {
    fn from(request: PermissionRequest) -> Self {
        let mut whole = Self::default();
        whole.tool = request.tool;
        whole.kind = request.kind;
        whole.title = request.title;
        whole.command = request.command;
        whole.arguments = request.arguments;
        let places = request.locations.into_iter();
        whole.locations =
            places.map(|Location { path, line }| permission::Location { path, line }).collect();
        let diffs = request.diffs.into_iter();
        whole.diffs = diffs
            .map(|Diff { path, old_text, new_text }| permission::Diff { path, old_text, new_text })
            .collect();
        whole.text = request.text;
        let options = request.options.into_iter();
        whole.options = options
            .map(|PermissionOption { option_id, name, kind }| permission::PermissionOption {
                option_id,
                name,
                kind,
            })
            .collect();
        whole.missing_bytes = request.truncated.map_or(0, |truncated| truncated.missing_bytes);
        whole
    }
}

impl From<permission::PermissionRequest> for PermissionRequest {
    fn from(request: permission::PermissionRequest) -> Self {
        let missing_bytes = request.missing_bytes;
        Self {
            tool: request.tool,
            kind: request.kind,
            title: request.title,
            command: request.command,
            arguments: request.arguments,
            locations: request
                .locations
                .into_iter()
                .map(|place| Location { path: place.path, line: place.line })
                .collect(),
            diffs: request
                .diffs
                .into_iter()
                .map(|diff| Diff {
                    path: diff.path,
                    old_text: diff.old_text,
                    new_text: diff.new_text,
                })
                .collect(),
            text: request.text,
            options: request
                .options
                .into_iter()
                .map(|option| PermissionOption {
                    option_id: option.option_id,
                    name: option.name,
                    kind: option.kind,
                })
                .collect(),
            truncated: (missing_bytes > 0).then_some(Truncated { missing_bytes }),
        }
    }
}
