//! A limit on everything (law 10). Defaults; the caller may ask for less.

use std::time::Duration;

use crate::event::WaitKind;

/// Waits that one run can have open.
pub const WAITS_OPEN_MAX: usize = 64;
/// Waits of one run that are remembered after their end, so that asking again is recognised.
pub const WAITS_SETTLED_KEPT: usize = 64;
/// Prompts that one session can have queued.
pub const QUEUED_PROMPTS_MAX: usize = 64;
/// Checkpoints of turns that one session keeps.
pub const TURN_CHECKPOINTS_MAX: usize = 100;
/// Prompts of one session that are remembered after they left the queue, so that queueing one again is
/// recognised.
pub const PROMPTS_DEQUEUED_KEPT: usize = 128;
/// Runs that are remembered, so that starting one again is recognised.
pub const RUNS_KEPT: usize = 64;
/// Tool calls without an outcome in one run.
pub const CALLS_OPEN_MAX: usize = 1_024;
/// Effects that were not reported as carried out, beyond which nothing that causes more begins.
pub const EFFECTS_PENDING_MAX: usize = 256;
/// Messages that stream at the same time in one session.
pub const MESSAGES_OPEN_MAX: usize = 64;
/// Requests that are remembered by their idempotency keys in one log, beyond which the oldest are
/// forgotten.
pub const REQUESTS_KEPT: usize = 512;
/// How long a request is remembered by its idempotency key.
pub const REQUEST_KEPT_FOR: Duration = Duration::from_hours(24);
/// Secrets with which the API may be used, at the same time.
pub const ACCESS_MAX: usize = 1_024;
/// Executions of one session whose spools are remembered, so that a repetition is recognised.
pub const SPOOLS_KEPT: usize = 64;
/// Entries of a spool that are imported in one batch. An entry makes five records at most.
pub const IMPORT_ENTRIES_MAX: usize = 192;
/// About how many bytes of entries are imported in one batch, if it is more than one entry.
pub const IMPORT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Streamed text of one record, in bytes.
pub const DELTA_BYTES_MAX: usize = 4 * 1024;
/// An agent's earlier session ids that a state holds; the log has them all.
pub const HANDLES_KEPT: usize = 16;
/// Ways to log in that a record names.
pub const AUTH_METHODS_MAX: usize = 16;
/// Calls and questions that were cut off by an interruption and are listed one by one.
pub const LOST_CALLS_MAX: usize = 20;
pub const LOST_QUESTIONS_MAX: usize = 10;
/// Changed files that are named.
pub const CHANGED_FILES_MAX: usize = 50;
/// Starts of an agent that ended before it could be given anything; then a user has to decide.
pub const FAILED_STARTS_MAX: u32 = 3;
/// Of one message, one tool's result, and all of it, in a history that an agent is given: characters.
pub const HISTORY_MESSAGE_CHARS_MAX: usize = 2_000;
pub const HISTORY_RESULT_CHARS_MAX: usize = 500;
pub const HISTORY_CHARS_MAX: usize = 60_000;
/// Messages and calls in it, the newest.
pub const HISTORY_ITEMS_MAX: usize = 200;
/// Most records in one log.
pub const SEQ_MAX: u64 = (1 << 32) - 2;
/// Largest batch, in bytes.
pub const BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest content of one record, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Largest header of one record, in bytes.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Most records in one batch.
pub const BATCH_RECORDS_MAX: usize = 1_024;
/// Contents larger than this become blobs.
pub const PAYLOAD_INLINE_BYTES_MAX: usize = 16 * 1024;

/// Records that are redacted in one batch, beside what takes the lease.
pub const REDACT_RECORDS_MAX: usize = BATCH_RECORDS_MAX / 2;
/// Shorter secrets are masked under their key and not looked for elsewhere: they would shred text.
pub const MASK_VALUE_BYTES_MIN: usize = 6;
/// Longer secrets are looked for in pieces of this size. Bounds what a stream holds back.
pub const MASK_VALUE_BYTES_MAX: usize = 8 * 1024;
/// Shorter numbers are masked under their key and not looked for elsewhere.
pub const MASK_NUMBER_BYTES_MIN: usize = 8;
/// Inside an object under an excluded key, shorter words of nothing but letters do not become known.
pub const MASK_WORD_BYTES_MIN: usize = 16;
/// Values of excluded keys that are remembered; beyond it the oldest are forgotten.
pub const MASK_LEARNED_MAX: usize = 512;

/// What a reattached run's waits have left at least, however long no client could answer.
pub const REATTACH_GRACE: Duration = Duration::from_mins(5);

/// How long a wait waits by default.
pub fn wait_default(kind: WaitKind) -> Duration {
    Limits::default().wait(kind)
}

/// The limits that an operator can change. They decide what is written from now on; what a log means
/// does not depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub wait_tool_result: Duration,
    pub wait_permission: Duration,
    pub wait_input: Duration,
    pub wait_human: Duration,
    /// How long a request is remembered by its idempotency key, but for [`REQUESTS_KEPT`].
    pub request_kept_for: Duration,
    pub history: HistoryLimits,
    /// Changed files that are named.
    pub changed_files: usize,
    /// Prompts that may be queued in one session.
    pub queued_prompts: usize,
    /// Checkpoints of turns that one session keeps; older ones are pruned.
    pub turn_checkpoints: usize,
}

/// Of a history that an agent is given, in characters; and how many messages and calls, the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    pub message_chars: usize,
    pub result_chars: usize,
    pub total_chars: usize,
    pub items: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            message_chars: HISTORY_MESSAGE_CHARS_MAX,
            result_chars: HISTORY_RESULT_CHARS_MAX,
            total_chars: HISTORY_CHARS_MAX,
            items: HISTORY_ITEMS_MAX,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let week = Duration::from_hours(7 * 24);
        Self {
            wait_tool_result: Duration::from_mins(10),
            wait_permission: week,
            wait_input: week,
            wait_human: week,
            request_kept_for: REQUEST_KEPT_FOR,
            history: HistoryLimits::default(),
            changed_files: CHANGED_FILES_MAX,
            queued_prompts: QUEUED_PROMPTS_MAX,
            turn_checkpoints: TURN_CHECKPOINTS_MAX,
        }
    }
}

impl Limits {
    /// How long a wait waits by default.
    pub fn wait(&self, kind: WaitKind) -> Duration {
        match kind {
            WaitKind::ToolResult => self.wait_tool_result,
            WaitKind::Permission => self.wait_permission,
            WaitKind::Input => self.wait_input,
            WaitKind::Human | WaitKind::Other => self.wait_human,
        }
    }
}

/// Config options that a user can set for one session's agent.
pub const CHOICES_MAX: usize = 64;
/// One mode, model, option or value that a user chooses, in bytes.
pub const CHOICE_BYTES_MAX: usize = 512;

/// MCP servers of one session.
pub const MCP_SERVERS_MAX: usize = 32;
/// Arguments, variables or headers of one MCP server.
pub const MCP_VARIABLES_MAX: usize = 100;
/// The name of an MCP server, in bytes.
pub const MCP_TEXT_BYTES_MAX: usize = 256;

/// Left conversations of which it is kept what the agent knew, so that a rewind can be undone.
pub const LINEAGES_KEPT: usize = 8;
/// Times between two snapshots in which others may have changed files.
pub const FOREIGN_SPANS_KEPT: usize = 1_000;
