//! What an operator can change while the process runs. Every value has a default; code that needs one asks
//! for it when it is needed, so that a change counts from then on.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use piton_core::supervise::UNREACHABLE_AFTER;
use piton_exec::executor::READY_TIMEOUT;
use piton_exec::protocol::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long an agent may take until the log says what became of its start; requests that need it are
    /// then answered that it still starts.
    pub agent_start_timeout: Duration,
    /// How long an agent may have nothing to do before it is ended; `None`: for ever.
    pub agent_idle_timeout: Option<Duration>,
    /// How long an agentctl may take to answer after its launch.
    pub executor_ready_timeout: Duration,
    /// How long an agentctl that is alone and idle stays, if it is launched from now on.
    pub agentctl_idle_timeout: Duration,
    /// How long an execution may be silent before the log calls it unreachable.
    pub unreachable_after: Duration,
    /// How long an execution may be silent before it is given up; `None`: until a user does that.
    pub abandon_after: Option<Duration>,
    /// Agents that are started at the same time when the process starts.
    pub boot_parallel: usize,
    /// Only sessions that were active so recently have their agents started when the process starts.
    pub boot_active_within: Duration,
    /// Snapshots of workspaces around turns.
    pub snapshots: SnapshotSettings,
    /// What decisions are made by.
    pub limits: piton_core::limits::Limits,
}

/// By default.
const AGENT_START_TIMEOUT: Duration = Duration::from_secs(90);

impl Settings {
    /// By how many milliseconds more than by default an agent may be waited for: its agentctl gives it as
    /// much more time for its first answers.
    pub(crate) fn more_start_ms(&self) -> u64 {
        let more = self.agent_start_timeout.saturating_sub(AGENT_START_TIMEOUT);
        u64::try_from(more.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whether and how the files of a workspace are saved around turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    pub enabled: bool,
    /// How long a prompt waits for the snapshot before it.
    pub timeout: Duration,
    pub files_max: usize,
    /// A larger file is left out and named.
    pub file_mb_max: usize,
    pub tree_mb_max: usize,
}

impl SnapshotSettings {
    pub(crate) fn limits(&self) -> piton_workspace::snapshot::Limits {
        let bytes = |mb: usize| (mb as u64).saturating_mul(1024 * 1024);
        piton_workspace::snapshot::Limits {
            file_bytes_max: bytes(self.file_mb_max),
            files_max: self.files_max,
            tree_bytes_max: bytes(self.tree_mb_max),
        }
    }
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            timeout: Duration::from_secs(2),
            files_max: 500_000,
            file_mb_max: 64,
            tree_mb_max: 8 * 1024,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            agent_start_timeout: AGENT_START_TIMEOUT,
            agent_idle_timeout: Some(Duration::from_mins(30)),
            executor_ready_timeout: READY_TIMEOUT,
            agentctl_idle_timeout: Duration::from_secs(Limits::default().idle_s_max),
            unreachable_after: UNREACHABLE_AFTER,
            abandon_after: None,
            boot_parallel: 4,
            boot_active_within: Duration::from_hours(24),
            snapshots: SnapshotSettings::default(),
            limits: piton_core::limits::Limits::default(),
        }
    }
}

/// The settings as they are now.
#[derive(Debug, Default)]
pub(crate) struct LiveSettings(RwLock<Settings>);

impl LiveSettings {
    #[expect(clippy::large_types_passed_by_value, reason = "it is stored")]
    pub(crate) fn new(settings: Settings) -> Self {
        Self(RwLock::new(settings))
    }

    pub(crate) fn get(&self) -> Settings {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::large_types_passed_by_value, reason = "it is stored")]
    pub(crate) fn set(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }
}
