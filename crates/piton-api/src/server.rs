//! Whether the server is there and ready, and where a data folder's server is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::enums::FindingLevel;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// Always `ok`: a server that cannot answer does not.
    pub status: String,
}

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reloaded {
    /// Settings whose new values are in effect.
    pub changed: Vec<String>,
    /// Settings whose new values take effect after a restart of the server.
    pub restart_required: Vec<String>,
}

impl Health {
    pub fn ok() -> Self {
        Self { status: "ok".to_owned() }
    }
}

/// Where [`ServerInfo`] lies in a data folder.
pub const SERVER_INFO_PATH: &str = "run/server.json";

/// Where a data folder's server is, and its owner's access token. Written by the server; only the
/// folder's owner can read it. A killed server leaves it behind.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// `http://127.0.0.1:7411`: for this machine's own programs.
    pub address: String,
    /// Where others find it, if that is elsewhere: `https://piton.example:7411`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<String>,
    pub pid: u32,
    pub boot: String,
    pub version: String,
    /// Good for this life of the server.
    pub token: String,
    /// Started in the background by a command that needed a server. If it is killed, the next such
    /// command starts another one.
    #[serde(default)]
    pub background: bool,
}

impl fmt::Debug for ServerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerInfo({}, pid {})", self.address, self.pid)
    }
}

/// The checks of the server's installation: what `piton doctor` reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Examination {
    /// No check found a problem; warnings do not count.
    pub good: bool,
    pub findings: Vec<ExaminationFinding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExaminationFinding {
    /// What was checked.
    pub check: String,
    pub level: FindingLevel,
    pub says: String,
    /// What to do about it.
    pub hint: Option<String>,
}
