//! Every error that reaches a person has a code, a page (`docs/errors/CODE.md`) and a hint that
//! says what to do. This is the list.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! codes {
    ($($name:ident = $text:literal, $hint:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($name,)* }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What to do about it, in one sentence.
            pub fn hint(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }

            /// Its page of the documentation, as Markdown: cause, and what to do.
            pub fn page(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("../../../docs/errors/", $text, ".md")),)*
                }
            }
        }
    };
}

codes! {
    // What was asked for cannot be.
    IdInvalid = "id_invalid", "Use 1 to 128 of the characters A-Z, a-z, 0-9, _ and -.";
    SessionNotFound = "session_not_found", "Check the id, or list the sessions to find the one you mean.";
    SessionAmbiguous = "session_ambiguous", "Give more of the session's id.";
    SessionExists = "session_exists", "Choose another id, or continue the session that has this one.";
    SessionClosed = "session_closed", "Start a new session; a closed one can be read but not continued.";
    SessionNotClosed = "session_not_closed", "Close the session first; only closed ones are archived.";
    SessionReadOnly = "session_read_only", "Upgrade Piton: a newer version wrote to this session.";
    SessionOwned = "session_owned", "Ask the process that owns the session, or stop it and try again.";
    RunNotFound = "run_not_found", "Read the session's status again; it names the current run.";
    RunInProgress = "run_in_progress", "Wait until the run ends, or cancel it first.";
    RunNotOpen = "run_not_open", "Read the session's status again; the run has ended or was interrupted.";
    RunNotInterrupted = "run_not_interrupted", "Only an interrupted or paused run can be resumed or dismissed.";
    WaitNotFound = "wait_not_found", "List the open waits; this one was answered, cancelled, or never asked.";
    WaitExpired = "wait_expired", "The deadline has passed; resume the session to have the question asked again.";
    AnswerInvalid = "answer_invalid", "Answer with one of the options that the question offers.";
    QueuedPromptNotFound = "queued_prompt_not_found", "List the queue; this prompt was delivered, removed, or never queued.";
    QueuedPromptConflict = "queued_prompt_conflict", "Read the queued prompt again; another client has changed it.";
    ContentNotSupported = "content_not_supported", "Leave out the content blocks of the kind that the error names, or use an agent that accepts them.";
    CallNotOpen = "call_not_open", "Record the call's intent before its outcome, and one outcome per call.";
    MessageNotOpen = "message_not_open", "A streamed message is completed once, after its last piece.";
    OffsetMismatch = "offset_mismatch", "Continue the message at the offset that the error names.";
    ExecutorNotFound = "executor_not_found", "Check the executor's id; `piton sessions show SESSION` shows the current one.";
    ExecutorAlive = "executor_alive", "Wait until the executor is proven dead, or abandon it with `piton sessions abandon SESSION`; `--force` deletes the session anyway.";
    ExecutorInUse = "executor_in_use", "Cancel the run with `piton sessions cancel SESSION`, or end its agent with `POST /api/v1/sessions/SESSION/stop`; only an executor that does not respond is abandoned.";
    AgentctlRefused = "agentctl_refused", "Read the message of agentctl; it changed nothing.";
    AgentctlUnreachable = "agentctl_unreachable", "Wait until agentctl responds, or abandon the executor with `piton sessions abandon SESSION`.";
    SpoolGap = "spool_gap", "Read the spool again from the position that the error names.";
    RecordNotFound = "record_not_found", "Read the session's log with `piton sessions log SESSION` to find the record.";
    RecordEmpty = "record_empty", "Only contents can be redacted; to remove text in a header, delete the session.";
    LimitReached = "limit_reached", "Close, answer or end some of the open ones before you add more.";

    IdempotencyKeyReused = "idempotency_key_reused", "Use a new idempotency key for a new request.";
    RequestInvalid = "request_invalid", "Correct the request; /api/v1/openapi.json describes every request.";
    RequestTimeout = "request_timeout", "Send the whole request at once, and try again.";
    RequestTooLarge = "request_too_large", "Send less at once; put large content into files of the workspace.";
    ResponseNotKept = "response_not_kept", "The request was fulfilled; its answer was shown once. Send the request again with another key.";
    RateLimited = "rate_limited", "Wait for the time in the `Retry-After` header, then send requests more slowly.";
    CursorInvalid = "cursor_invalid", "Begin at the first page, or at a position that the log has.";
    NotFound = "not_found", "Check the path; /api/v1/openapi.json lists all paths.";
    MethodNotAllowed = "method_not_allowed", "Use one of the methods in the `Allow` header.";
    TaskNotFound = "task_not_found", "List the tasks to find the one you mean.";
    TaskClosed = "task_closed", "Reopen the task, or put the session into another one.";
    TaskInUse = "task_in_use", "Close the task's sessions first, or force the deletion: the sessions stay without a task.";
    ChoiceNotOffered = "choice_not_offered", "`piton sessions show SESSION` lists the modes, models and options that the agent offers.";
    AgentNotFound = "agent_not_found", "`piton agents list` shows the agents.";
    AgentProfileRequired = "agent_profile_required", "Choose an agent: `piton sessions resume SESSION --agent NAME`; `piton agents list` shows the names.";
    AgentProfileConflict = "agent_profile_conflict", "Start a new session for another agent; this session keeps the agent that has its conversation.";
    AgentUnusable = "agent_unusable", "`piton agents doctor AGENT` says what is wrong with it.";
    AgentNotRunning = "agent_not_running", "Resume the session; then prompt it again.";
    PathOutside = "path_outside", "Name a file inside the session's workspace.";
    RepositoryInvalid = "repository_invalid", "Name the folder of a git repository that has a work tree and a commit.";
    BaseNotFound = "base_not_found", "Name a branch, a tag or a commit that the repository has.";
    WorktreeNotFound = "worktree_not_found", "Only sessions that were made with a repository have a worktree.";
    WorktreeExists = "worktree_exists", "Remove the session's worktree with `piton sessions cleanup SESSION` first.";
    WorktreeDirty = "worktree_dirty", "Commit and push or merge the listed changes, or force the removal and lose them.";
    NothingToCommit = "nothing_to_commit", "Change something first; everything is committed already.";
    MergeConflict = "merge_conflict", "Resolve the conflict in the branch, for example by asking its agent to merge the base into it; then try again.";
    PushRejected = "push_rejected", "Read what the remote says; bring the branch up to date with it, then push again.";
    WorkspaceConflict = "workspace_conflict", "Look at the files that the error names; `--force` overwrites them, after a safety snapshot.";
    RestoreInProgress = "restore_in_progress", "Wait until the rewind has ended; a prompt that is queued is delivered then.";
    SnapshotNotFound = "snapshot_not_found", "Choose the checkpoint that the error names, or rewind the conversation only.";
    WorkspaceUnusable = "workspace_unusable", "Restore what the reason names, or repair the worktree with `piton sessions repair SESSION`.";
    GitFailed = "git_failed", "Check that git is installed and works in that repository; then try again.";
    ServerRunning = "server_running", "Use the server that runs, or stop it first.";
    ServerNotRunning = "server_not_running", "Start it with `piton serve`.";
    ServiceManagerFailed = "service_manager_failed", "Correct what the service manager says, then run the command again.";
    ServerUnreachable = "server_unreachable", "Look at the server's log, or stop it and start it again.";
    AddressInUse = "address_in_use", "Choose another address with --listen, or stop what uses this one.";
    TlsRequired = "tls_required", "Give a certificate and its key, or pass --insecure if a proxy encrypts.";
    TlsInvalid = "tls_invalid", "Check the certificate and key files: PEM, and belonging to each other.";

    Unauthenticated = "unauthenticated", "Send `Authorization: Bearer …` with a token from `piton tokens new`.";
    AccessTokenExpired = "access_token_expired", "Create a new token with `piton tokens new`; this one has expired.";
    AccessTokenNotFound = "access_token_not_found", "List the tokens to find the one you mean.";
    InsufficientScope = "insufficient_scope", "Use a token that has the scope that the error names.";
    HostRefused = "host_refused", "Use the address that the server printed, or add the name to `server.hosts`.";
    OriginRefused = "origin_refused", "Open the page from the server itself, or add its origin to `server.origins`.";

    ResumeTokenNotFound = "resume_token_not_found", "Check that the token is complete and meant for this server.";
    ResumeTokenMismatch = "resume_token_mismatch", "Use the token with the session, run and wait it was made for.";
    ResumeTokenConsumed = "resume_token_consumed", "The question was answered already, with another answer; read the session to see it.";
    ResumeTokenRevoked = "resume_token_revoked", "Request a new token; this one was replaced or its run ended.";
    ResumeTokenExpired = "resume_token_expired", "Request a new token; this one has expired.";

    // Graphs.
    GraphInvalid = "graph_invalid", "Correct the graph at the line that the error names.";
    GraphChanged = "graph_changed", "Resume with the changed graph, `--graph FILE`, or as it ran, `--recorded-graph`.";
    GraphInputInvalid = "graph_input_invalid", "Give every required input, with the type that the graph declares.";
    NodeFailed = "node_failed", "Read the error of the node, remove its cause, then resume the session.";
    NodeTimeout = "node_timeout", "Give the node a longer `timeout`, or find out what it waits for.";
    NodeOutputInvalid = "node_output_invalid", "Make the node print what its `output` declares, within the limit.";
    ExpressionFailed = "expression_failed", "Correct the expression; the graph's keys are its variables.";
    MemoryKeyUndeclared = "memory_key_undeclared", "Declare the key in the node's `reads` or `writes`.";
    MemoryValueRequired = "memory_value_required", "Set the keys that the error names when you resume.";
    LoopLimitReached = "loop_limit_reached", "Raise `max_iterations`, or let the loop end earlier.";
    ArtifactNotFound = "artifact_not_found", "List the files with `piton sessions artifacts`.";
    CheckpointNotFound = "checkpoint_not_found", "List the session's checkpoints to find the one you mean.";
    CheckpointNotResumable = "checkpoint_not_resumable", "Choose another checkpoint, or resume without one.";
    CheckpointDamaged = "checkpoint_damaged", "Resume without a checkpoint; Piton finds an intact one.";
    CheckpointIncompatible = "checkpoint_incompatible", "Resume from the checkpoint that the error names, or restore the graph.";
    CheckpointInUse = "checkpoint_in_use", "Delete the lineage's later checkpoints instead, or keep this one.";
    ConfigConflict = "config_conflict", "Remove the option, or change the store.";
    SessionNotGraph = "session_not_graph", "Use the id of a session that runs a graph.";
    SessionIsGraph = "session_is_graph", "A graph takes no prompts and has no agent of its own: answer its waits, or resume it.";

    ConfigInvalid = "config_invalid", "Correct the setting in the file, variable or option that the message names.";

    // The store cannot.
    SeqConflict = "seq_conflict", "Read what was appended in between, then decide again.";
    EpochStale = "epoch_stale", "Another process owns the session now; this one must stop writing to it.";
    BatchInvalid = "batch_invalid", "Append at least one record per batch, within the limits.";
    PayloadTooLarge = "payload_too_large", "Store large content as files in the workspace and refer to them.";
    Utf8Invalid = "utf8_invalid", "Send text as UTF-8; attach other bytes as files.";
    StorePoisoned = "store_poisoned", "Check the disk, then restart Piton; what was acknowledged is safe.";
    StoreClosed = "store_closed", "Piton is shutting down; try again after it has started.";
    DiskFull = "disk_full", "Free some space; nothing was lost, and writing continues by itself.";
    StoreReadOnly = "store_read_only", "Make the data folder writable, or use another one.";
    StoreUnreadable = "store_unreadable", "Check that the folder exists and belongs to you.";
    StoreAmbiguous = "store_ambiguous", "Write `sqlite` or `files` into the file `store` in the data folder, or move one of the two stores away.";
    StoreUnsupported = "store_unsupported", "Use a version of Piton that knows this kind of store.";
    StoreNotPiton = "store_not_piton", "Point Piton at its own data folder; another program made this file.";
    StoreDamaged = "store_damaged", "Make a copy of the data folder, then restore a backup or verify what is left.";
    StoreNewer = "store_newer", "Upgrade Piton: this store was made by a newer version.";
    StoreTooOld = "store_too_old", "This store was made before the first release; use the version of Piton that made it to export what you need.";
    StoreBusy = "store_busy", "Another process holds the store for too long; find it and stop it.";
    StoreInUse = "store_in_use", "One process at a time writes to a store of plain files; stop the other one, or convert the store to sqlite.";
    StoreOverloaded = "store_overloaded", "Wait for outstanding appends before sending more, and look at the disk.";
    NetworkFilesystem = "network_filesystem", "Put the data folder on a local disk; locks and flushes cannot be trusted here.";
    KeyMissing = "key_missing", "Provide the key from the source that the store names.";
    KeyWrong = "key_wrong", "Provide the key whose id the store names.";
    KeyInvalid = "key_invalid", "A key is 64 hexadecimal digits.";
    KeyPermissions = "key_permissions", "Make the key file readable by its owner only: chmod 600.";
    FilePermissions = "file_permissions", "Take the file back and keep others from writing to it: chown, chmod go-w.";
    LineDamaged = "line_damaged", "Run `piton verify SESSION` to find the intact part; restore the file from a backup.";
    RecordDamaged = "record_damaged", "Run `piton verify SESSION` to find the intact part, and restore the rest from a backup.";
    ChainBroken = "chain_broken", "Run `piton verify SESSION` to find the first bad record; restore the session from a backup.";
    BlobMissing = "blob_missing", "Restore the blob from a backup; the rest of the session is readable.";
    // A bundle, or a copy of a store.
    BundleNotPiton = "bundle_not_piton", "Check the file; bundles are made by `piton sessions export` and archiving.";
    BundleNewer = "bundle_newer", "Upgrade Piton: this bundle was made by a newer version.";
    BundleTooOld = "bundle_too_old", "This bundle was made before the first release; export it again with a newer version of Piton.";
    BundleDamaged = "bundle_damaged", "Copy the bundle again from its source; nothing was imported.";
    BundleIo = "bundle_io", "Check that the file exists, that it may be read or written, and that there is space.";
    PassphraseRequired = "passphrase_required", "Give the passphrase that the bundle was made with.";
    PassphraseWrong = "passphrase_wrong", "Give the passphrase that the bundle was made with; there is no other way to open it.";
    FileExists = "file_exists", "Choose another name; nothing was written.";
    SecretUnreadable = "secret_unreadable", "Check the file, variable or keychain entry that holds the secret.";
    StoreNotEmpty = "store_not_empty", "Convert into a new folder; stores are not merged.";
    // The agent cannot.
    AgentMissing = "agent_missing", "Install the agent's program; `piton agents doctor AGENT` says how.";
    AgentNotExecutable = "agent_not_executable", "Make the agent's program executable with `chmod +x`, or configure another one.";
    AgentStartFailed = "agent_start_failed", "Read the message; `piton agents doctor AGENT` checks the agent.";
    AgentExited = "agent_exited", "Read the agent's error output; often a login or a setting is missing.";
    AgentClosed = "agent_closed", "Resume the session; the run was interrupted.";
    AgentTimeout = "agent_timeout", "Start the agent by hand to see what it waits for, then try again.";
    AgentVersion = "agent_version", "Use a release of the agent that speaks version 1 of the Agent Client Protocol.";
    AgentProtocol = "agent_protocol", "Read the message; another release of the agent may follow the protocol.";
    AgentError = "agent_error", "Read the message; it is the agent's own.";
    AgentMessageTooLong = "agent_message_too_long", "Ask the agent for less at once.";
    AgentNotOffered = "agent_not_offered", "`piton agents probe AGENT` shows what the agent supports.";
    AgentNoSession = "agent_no_session", "Start the agent first: `piton sessions resume SESSION`.";
    AgentRunning = "agent_running", "Read the session's status; its agent runs already.";
    AgentBusy = "agent_busy", "Wait until the turn ends, or cancel it.";
    AgentAuthRequired = "agent_auth_required", "Log in with the agent's own command or with `piton sessions login SESSION`, then resume the session.";
    AgentAuthFailed = "agent_auth_failed", "Check the key or the account that the agent logs in with.";
    AgentAuthTimeout = "agent_auth_timeout", "Finish the login in the browser that the agent opened, then try again.";
    AgentAuthNotFound = "agent_auth_not_found", "Use one of the login methods that the message names.";
    AgentSessionInUse = "agent_session_in_use", "Close the session that has the conversation first, or name another one.";
    SessionRefused = "session_refused", "Prompt the session again; the agent begins a new conversation.";
    ForkSourceRequired = "fork_source_required", "Name the conversation to fork.";
    PromptTooLong = "prompt_too_long", "Shorten the prompt, or put it into a file of the workspace.";
    TurnNotFound = "turn_not_found", "Read the session's status; that turn has ended.";
    WorkspaceMissing = "workspace_missing", "Restore the folder, or repair the worktree with `piton sessions repair SESSION`.";

    // agentctl or the executor cannot.
    AgentctlClosing = "agentctl_closing", "Try again; a new agentctl is started.";
    AgentctlMissing = "agentctl_missing", "Reinstall Piton; its program cannot be started.";
    AgentctlEnded = "agentctl_ended", "Read the end of agentctl's log in the message.";
    AgentctlTimeout = "agentctl_timeout", "Try again when the machine is less busy; the message has the end of agentctl's log.";
    ProtocolUnsupported = "protocol_unsupported", "Wait until its turn ends; then agentctl is replaced by one of this version.";
    CommandMismatch = "command_mismatch", "Use a new id for another command.";
    CommandWithdrawn = "command_withdrawn", "Send a new command under another id; this one was taken back before it was accepted.";
    CommandInterrupted = "command_interrupted", "Read the session's log; whether the command was carried out is not known.";
    EpochRequired = "epoch_required", "Send the header that names the epoch of the session's lease.";
    EpochNotSaved = "epoch_not_saved", "Free some space on agentctl's disk, then try again.";
    ExecutionExists = "execution_exists", "Launch under a new execution id.";
    ExecutionStuck = "execution_stuck", "Look at the processes that the message names; often a disk does not answer.";
    ExecutorIo = "executor_io", "Check that the path exists, belongs to you, and has space.";
    ProcessesRemain = "processes_remain", "Look at the processes that the message names; often a disk does not answer.";
    ProcessesUnlisted = "processes_unlisted", "Check that /proc is mounted and can be read.";
    OperationInterrupted = "operation_interrupted", "Try again; agentctl stopped in the middle of it.";
    SocketFolderUnsafe = "socket_folder_unsafe", "Remove the folder, or use a data folder with a shorter path.";
    SocketPathTooLong = "socket_path_too_long", "Use a data folder with a shorter path.";
    SpoolNotFound = "spool_not_found", "Read the spool's id again; agentctl has another spool.";
    StreamReplaced = "stream_replaced", "Use the newer stream; agentctl serves one at a time.";
    SpoolClosed = "spool_closed", "Check the disk that holds the data folder; agentctl cannot write its spool.";
    SpoolUnreadable = "spool_unreadable", "Check that the file exists, belongs to you and can be read.";
    SpoolNotPiton = "spool_not_piton", "Move the file out of the spool's folder; it belongs to no spool or to another one.";
    SpoolTooOld = "spool_too_old", "Read the spool with the version of Piton that wrote it; it was left as it is.";
    SpoolNewer = "spool_newer", "Upgrade Piton: a newer version wrote this spool.";
    SpoolDamaged = "spool_damaged", "The damaged rest is beside the spool, as EXECUTION.damaged; everything before it is in the log.";
    SpoolKeyWrong = "spool_key_wrong", "Restore the log that belongs to this spool; it holds the key.";

    // The workspace cannot.
    PathInvalid = "path_invalid", "Give a path without a NUL byte, in UTF-8.";
    PathIsFolder = "path_is_folder", "Name a file; this is a folder.";
    PathNotFolder = "path_not_folder", "Name a folder; this is a file.";
    PathNotFile = "path_not_file", "Name a plain file; this is a link, a pipe or a device.";
    FileTooLarge = "file_too_large", "Read the file with a shell instead.";
    FileNotText = "file_not_text", "Read the file with a shell instead.";
    FileNotPermitted = "file_not_permitted", "Check the owner and the mode of the file.";
    FileIo = "file_io", "Read the message; the disk or the file system refuses it.";
    GitMissing = "git_missing", "Install git.";
    GitTimeout = "git_timeout", "Try again; git took too long in that repository.";
    TerminalNotFound = "terminal_not_found", "Use a terminal that was created and not released.";
    TerminalStartFailed = "terminal_start_failed", "Check the command and its folder.";
    ShellNotFound = "shell_not_found", "List the shells; this one has ended.";
    ShellStartFailed = "shell_start_failed", "Check the shell's program.";
    ShellWriteFailed = "shell_write_failed", "Open another shell; this one takes no input.";

    DemoFailed = "demo_failed", "Run the demo again; if it fails again, please report what it printed.";
    EntropyUnavailable = "entropy_unavailable", "The system has no random numbers; start Piton again when it has.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Code {
    /// agentctl refused a command because of the moment and remembers nothing of it: the same command
    /// may be sent again.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::EpochStale
                | Self::AgentctlClosing
                | Self::ProtocolUnsupported
                | Self::CommandWithdrawn
        ) || self.is_momentary()
    }

    /// Transient, and perhaps over at once: a client may learn that the agent is free before agentctl
    /// itself has acted on it.
    pub fn is_momentary(self) -> bool {
        matches!(self, Self::AgentNotRunning | Self::AgentBusy)
    }

    /// agentctl has carried the command out, had nothing to do, or lost its agent meanwhile: the spool
    /// says which.
    pub fn is_journaled(self) -> bool {
        matches!(
            self,
            Self::CommandMismatch
                | Self::CommandInterrupted
                | Self::TurnNotFound
                | Self::AgentClosed
        )
    }

    /// The agent wants a login, or did not get a good one.
    pub fn is_login(self) -> bool {
        matches!(
            self,
            Self::AgentAuthRequired
                | Self::AgentAuthFailed
                | Self::AgentAuthTimeout
                | Self::AgentAuthNotFound
        )
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A code as written in a record, a spool or an answer of agentctl. One that a newer program wrote is
/// kept as it is spelled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyCode {
    Known(Code),
    Other(Box<str>),
}

impl AnyCode {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(code) => code.as_str(),
            Self::Other(spelling) => spelling,
        }
    }

    /// The code, if this program knows it.
    pub fn known(&self) -> Option<Code> {
        match self {
            Self::Known(code) => Some(*code),
            Self::Other(_) => None,
        }
    }
}

impl From<Code> for AnyCode {
    fn from(code: Code) -> Self {
        Self::Known(code)
    }
}

impl From<&str> for AnyCode {
    fn from(spelling: &str) -> Self {
        let known = Code::ALL.iter().find(|code| code.as_str() == spelling);
        known.map_or_else(|| Self::Other(spelling.into()), |code| Self::Known(*code))
    }
}

impl PartialEq<Code> for AnyCode {
    fn eq(&self, other: &Code) -> bool {
        self.known() == Some(*other)
    }
}

impl fmt::Display for AnyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for AnyCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for AnyCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|spelling| Self::from(&*spelling))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_code_has_one_spelling_and_an_unknown_one_is_kept() {
        let spellings: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(spellings.len(), Code::ALL.len());
        for code in Code::ALL {
            let json = serde_json::to_string(&AnyCode::from(*code)).unwrap();
            assert_eq!(serde_json::from_str::<AnyCode>(&json).unwrap(), *code);
        }
        let newer: AnyCode = serde_json::from_str("\"agent_on_strike\"").unwrap();
        assert_eq!((newer.known(), newer.as_str()), (None, "agent_on_strike"));
        assert_eq!(serde_json::to_string(&newer).unwrap(), "\"agent_on_strike\"");
    }

    /// Each group by name, so that a code which joins or leaves one is seen here.
    #[test]
    fn retries_are_decided_by_these_codes() {
        let of = |is_one: fn(Code) -> bool| -> Vec<&str> {
            Code::ALL.iter().filter(|code| is_one(**code)).map(|code| code.as_str()).collect()
        };
        assert_eq!(
            of(Code::is_transient),
            [
                "agent_not_running",
                "epoch_stale",
                "agent_busy",
                "agentctl_closing",
                "protocol_unsupported",
                "command_withdrawn"
            ]
        );
        assert_eq!(of(Code::is_momentary), ["agent_not_running", "agent_busy"]);
        assert_eq!(
            of(Code::is_journaled),
            ["agent_closed", "turn_not_found", "command_mismatch", "command_interrupted"]
        );
        assert_eq!(
            of(Code::is_login),
            [
                "agent_auth_required",
                "agent_auth_failed",
                "agent_auth_timeout",
                "agent_auth_not_found"
            ]
        );
    }
}
