//! The store as a whole: verified, pruned.

use piton_core::id::SessionId;
use serde::{Deserialize, Serialize};

use crate::enums::PruneAction;
use crate::record::Verification;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct VerifyQuery {
    /// Where the last page ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The maximum number of logs; 20 by default.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 200))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// A problem of the store as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoreFinding {
    /// The session; null if the whole store is affected.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub session_id: Option<SessionId>,
    pub problem: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoreVerification {
    /// The logs of this page, good or not.
    pub logs: Vec<Verification>,
    /// What is wrong with the store as a whole; checked with the last page.
    pub findings: Vec<StoreFinding>,
    /// Where the next page begins; null on the last one.
    pub next: Option<String>,
}

/// What to prune. A session that is due for both is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneRequest {
    /// Archive closed sessions to which nothing happened for so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_after_s: Option<u64>,
    /// Delete closed sessions to which nothing happened for so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_after_s: Option<u64>,
    /// Report what is due and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// The maximum number of sessions; 50 by default.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 200))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// One session that is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrunedSession {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub due: PruneAction,
    pub done: bool,
    /// Why the session was not archived or deleted.
    pub error: Option<String>,
    /// The code of that error.
    pub error_code: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneReport {
    pub sessions: Vec<PrunedSession>,
    /// There is more that is due.
    pub truncated: bool,
}
