//! Every error that reaches a person has a code, a page (`docs/errors/CODE.md`) and a hint that
//! says what to do. This is the list.

use std::fmt;

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
        }
    };
}

codes! {
    // What was asked for cannot be.
    IdInvalid = "id_invalid", "Use 1 to 128 of the characters A-Z, a-z, 0-9, _ and -.";
    SessionNotFound = "session_not_found", "Check the id, or list the sessions to find the one you mean.";
    SessionAmbiguous = "session_ambiguous", "Give more of the session's id.";
    SessionExists = "session_exists", "Choose another id, or go on with the session that has this one.";
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
    CallNotOpen = "call_not_open", "Record the call's intent before its outcome, and one outcome per call.";
    MessageNotOpen = "message_not_open", "A streamed message is completed once, after its last piece.";
    OffsetMismatch = "offset_mismatch", "Continue the message at the offset that the error names.";
    ExecutorNotFound = "executor_not_found", "The session has no executor that could be meant.";
    ExecutorAlive = "executor_alive", "Wait until the executor is proven dead, or abandon it first; a deletion can be forced.";
    AgentctlRefused = "agentctl_refused", "Read what agentctl says; it changed nothing.";
    AgentctlUnreachable = "agentctl_unreachable", "Wait: it is asked again; if it will not come back, abandon the execution.";
    SpoolGap = "spool_gap", "Read the spool again from the position that the error names.";
    RecordNotFound = "record_not_found", "Read the session's log; it says which records there are.";
    RecordEmpty = "record_empty", "Only contents can be taken out; to remove what is in a header, delete the session.";
    LimitReached = "limit_reached", "End or answer some of what is open before adding more.";

    IdempotencyKeyReused = "idempotency_key_reused", "Use a new idempotency key for a new request.";
    RequestInvalid = "request_invalid", "Correct the request; /api/v1/openapi.json describes what is taken.";
    RequestTimeout = "request_timeout", "Send the whole request at once, and try again.";
    RequestTooLarge = "request_too_large", "Send less at once; large content belongs into files of the workspace.";
    ResponseNotKept = "response_not_kept", "The request was fulfilled; what it answered was shown once. Ask anew with another key.";
    RateLimited = "rate_limited", "Wait as long as the answer says, then go on more slowly.";
    CursorInvalid = "cursor_invalid", "Begin at the first page, or at a position that the log has.";
    NotFound = "not_found", "Check the path; /api/v1/openapi.json lists what there is.";
    MethodNotAllowed = "method_not_allowed", "Use one of the methods that the answer allows.";
    TaskNotFound = "task_not_found", "List the tasks to find the one you mean.";
    AgentNotFound = "agent_not_found", "`piton agents list` shows which agents there are.";
    AgentUnusable = "agent_unusable", "`piton agents doctor AGENT` says what is wrong with it.";
    AgentNotRunning = "agent_not_running", "Resume the session; then prompt it again.";
    PathOutside = "path_outside", "Name a file inside the session's workspace.";
    RepositoryInvalid = "repository_invalid", "Name the folder of a git repository that has a work tree and a commit.";
    BaseNotFound = "base_not_found", "Name a branch, a tag or a commit that the repository has.";
    WorktreeNotFound = "worktree_not_found", "Only sessions that were made with a repository have a worktree.";
    WorktreeExists = "worktree_exists", "Clean the session's worktree up before it is given another one.";
    WorktreeDirty = "worktree_dirty", "Commit and push or merge what is listed, or force it: then it is lost.";
    WorkspaceUnusable = "workspace_unusable", "The reason says what is missing; put it back, or have the worktree repaired.";
    GitFailed = "git_failed", "Check that git is installed and works in that repository; then try again.";
    ServerRunning = "server_running", "Use the server that runs, or stop it first.";
    ServerNotRunning = "server_not_running", "Start it with `piton serve`.";
    ServerUnreachable = "server_unreachable", "Look at the server's log, or stop it and start it again.";
    AddressInUse = "address_in_use", "Choose another address with --listen, or stop what uses this one.";
    TlsRequired = "tls_required", "Give a certificate and its key, or say --insecure if something else encrypts.";
    TlsInvalid = "tls_invalid", "Check the certificate and key files: PEM, and belonging to each other.";

    Unauthenticated = "unauthenticated", "Send `Authorization: Bearer …` with a token from `piton tokens new`.";
    AccessTokenExpired = "access_token_expired", "Ask for a new token; this one's time has passed.";
    AccessTokenNotFound = "access_token_not_found", "List the tokens to find the one you mean.";
    InsufficientScope = "insufficient_scope", "Use a token that has the scope which the answer names.";
    HostRefused = "host_refused", "Use the address that the server printed, or add the name to `server.hosts`.";
    OriginRefused = "origin_refused", "Open the page from the server itself, or add its origin to `server.origins`.";

    ResumeTokenNotFound = "resume_token_not_found", "Check that the token is complete and meant for this server.";
    ResumeTokenMismatch = "resume_token_mismatch", "Use the token with the session, run and wait it was made for.";
    ResumeTokenConsumed = "resume_token_consumed", "The question was answered already, with another answer; read the session to see it.";
    ResumeTokenRevoked = "resume_token_revoked", "Ask for a new token; this one was replaced or its run ended.";
    ResumeTokenExpired = "resume_token_expired", "Ask for a new token; this one's time has passed.";

    ConfigInvalid = "config_invalid", "Correct the setting; `piton config show` says where each one comes from.";

    // The store cannot.
    SeqConflict = "seq_conflict", "Read what was appended in between, then decide again.";
    EpochStale = "epoch_stale", "Another process owns the session now; this one must stop writing to it.";
    BatchInvalid = "batch_invalid", "Append at least one record per batch, within the limits.";
    PayloadTooLarge = "payload_too_large", "Store large content as files in the workspace and refer to them.";
    Utf8Invalid = "utf8_invalid", "Send text as UTF-8; attach other bytes as files.";
    StorePoisoned = "store_poisoned", "Check the disk, then restart Piton; what was acknowledged is safe.";
    StoreClosed = "store_closed", "Piton is shutting down; try again after it has started.";
    DiskFull = "disk_full", "Free some space; nothing was lost, and writing goes on by itself.";
    StoreReadOnly = "store_read_only", "Make the data folder writable, or use another one.";
    StoreUnreadable = "store_unreadable", "Check that the folder exists and belongs to you.";
    StoreAmbiguous = "store_ambiguous", "Write `sqlite` or `files` into the file `store` in the data folder, or move one of the two stores away.";
    StoreUnsupported = "store_unsupported", "Use a version of Piton that knows this kind of store.";
    StoreNotPiton = "store_not_piton", "Point Piton at its own data folder; this file was made by something else.";
    StoreDamaged = "store_damaged", "Make a copy of the data folder, then restore a backup or verify what is left.";
    StoreNewer = "store_newer", "Upgrade Piton: this store was made by a newer version.";
    StoreTooOld = "store_too_old", "This store was made before the first release; use the version of Piton that made it to export what you need.";
    StoreBusy = "store_busy", "Another process holds the store for too long; find it and stop it.";
    StoreInUse = "store_in_use", "One process at a time writes to a store of plain files; stop the other one, or convert the store to sqlite.";
    StoreOverloaded = "store_overloaded", "Wait for outstanding appends before sending more, and look at the disk.";
    NetworkFilesystem = "network_filesystem", "Put the data folder on a local disk; locks and flushes cannot be trusted here.";
    KeyMissing = "key_missing", "Provide the key that the store names, from the source it names.";
    KeyWrong = "key_wrong", "Provide the key whose id the store names.";
    KeyInvalid = "key_invalid", "A key is 64 hexadecimal digits.";
    KeyPermissions = "key_permissions", "Make the key file readable by its owner only: chmod 600.";
    FilePermissions = "file_permissions", "Take the file back and keep others from writing to it: chown, chmod go-w.";
    LineDamaged = "line_damaged", "Verify the session to see what is still good; restore the file from a backup.";
    RecordDamaged = "record_damaged", "Verify the session to see what is still good, and restore the rest.";
    ChainBroken = "chain_broken", "Verify the session to see the first bad record; restore it from a backup.";
    BlobMissing = "blob_missing", "Restore the blob from a backup; the rest of the session is readable.";
    // A bundle, or a copy of a store.
    BundleNotPiton = "bundle_not_piton", "Check the file; bundles are made by `piton sessions export` and archiving.";
    BundleNewer = "bundle_newer", "Upgrade Piton: this bundle was made by a newer version.";
    BundleTooOld = "bundle_too_old", "This bundle was made before the first release; export it again with a newer version of Piton.";
    BundleDamaged = "bundle_damaged", "Get the bundle again from where it came from; nothing was imported.";
    BundleIo = "bundle_io", "Check that the file exists, that it may be read or written, and that there is space.";
    PassphraseRequired = "passphrase_required", "Give the passphrase that the bundle was made with.";
    PassphraseWrong = "passphrase_wrong", "Give the passphrase that the bundle was made with; there is no other way to open it.";
    FileExists = "file_exists", "Choose another name; nothing was written.";
    SecretUnreadable = "secret_unreadable", "Check where the secret is to be taken from.";
    StoreNotEmpty = "store_not_empty", "Convert into a new folder; stores are not merged.";
    DemoFailed = "demo_failed", "Run the demo again; if it fails again, please report what it printed.";
    EntropyUnavailable = "entropy_unavailable", "The system gives no random numbers; start Piton when it does.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
