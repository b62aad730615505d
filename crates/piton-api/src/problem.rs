//! What went wrong, in the form of RFC 9457.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::enums::{Code, Reason};

/// The media type of a problem document.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// A problem document (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// `urn:piton:error:CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// One sentence.
    pub title: String,
    /// The status of the HTTP response.
    pub status: u16,
    /// Which of Piton's errors it is; each has a page in the documentation.
    pub code: Code,
    /// What to do about it.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    #[serde(default)]
    pub hint: String,
    /// Details of this occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The reason, as in a session's status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}
