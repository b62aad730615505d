//! Whether the server is there and ready.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// Always `ok`: a server that cannot answer does not.
    pub status: String,
}

impl Health {
    pub fn ok() -> Self {
        Self { status: "ok".to_owned() }
    }
}
