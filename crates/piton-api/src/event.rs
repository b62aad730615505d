//! Events of the all-sessions stream (`GET /events`).

use piton_core::id::SessionId;
use serde::{Deserialize, Serialize};

/// The name of the server-sent event that carries a [`Listing`].
pub const LISTING: &str = "listing";
/// The name of the server-sent event that carries a [`SessionSummary`](crate::SessionSummary).
pub const INDEX: &str = "index";
/// The name of the server-sent event that carries a [`Gone`].
pub const GONE: &str = "gone";

/// How many `index` events follow that replace all that was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Listing {
    pub sessions: usize,
    /// There are more sessions than are listed.
    pub truncated: bool,
}

/// A session was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gone {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
}
