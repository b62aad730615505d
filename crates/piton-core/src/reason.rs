//! The closed list of reasons: why a session has the status it has, why a run ended, why a token
//! is no longer good. Spellings are the wire's and the log's; they are only ever added to.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $sentence:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
            /// Written by a newer program; its spelling stays in the record.
            #[serde(other, rename = "unrecognised")]
            Unrecognised,
        }

        impl Reason {
            pub const ALL: &'static [Self] = &[$(Self::$name,)* Self::Unrecognised];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Unrecognised => "unrecognised",
                }
            }

            /// One sentence for people.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                    Self::Unrecognised => "A newer version of Piton gave a reason that this one does not know.",
                }
            }
        }
    };
}

reasons! {
    ProcessRestart = "process_restart", "The process that ran it ended, and another one found that out when it started.";
    ProcessExit = "process_exit", "The process that ran it ended.";
    WaitTimeout = "wait_timeout", "The wait was not answered before its deadline.";
    AgentNotRunning = "agent_not_running", "The agent is not running; it can be resumed.";
    AgentNotRunningFreshStart = "agent_not_running_fresh_start", "The agent is not running and would start without its conversation.";
    NotResumable = "not_resumable", "This agent cannot resume earlier sessions.";
    MissingResumeToken = "missing_resume_token", "The agent left no session id to resume from.";

    NeverRun = "never_run", "Nothing has been asked of it yet.";
    RunOpen = "run_open", "The agent is at work.";
    RunCompleted = "run_completed", "The last run was completed.";
    RunFailed = "run_failed", "The last run failed.";
    RunCancelled = "run_cancelled", "The last run was cancelled.";
    RunDismissed = "run_dismissed", "The interrupted run was dismissed.";
    Paused = "paused", "It is paused; resume the session to continue it.";
    Input = "input", "It waits for an answer from the user.";
    Permission = "permission", "It waits for a permission.";
    ToolResult = "tool_result", "It waits for a tool's result.";
    Human = "human", "It waits for a person's decision.";
    TokenExpired = "token_expired", "It waits, but the token that could answer has expired.";
    TokenRevoked = "token_revoked", "It waits, but the token that could answer was revoked.";
    TokenMissing = "token_missing", "It waits, but there is no token that could answer.";
    SessionCompleted = "session_completed", "The session was closed as completed.";
    SessionFailed = "session_failed", "The session was closed as failed.";
    SessionCancelled = "session_cancelled", "The session was closed as cancelled.";
    ExecutorStarting = "executor_starting", "Its workspace is being prepared.";
    ExecutorProbing = "executor_probing", "Its executor is being asked whether the agent is still at work.";
    ExecutorUnreachable = "executor_unreachable", "Its executor does not answer; the agent may still be at work.";
    ExecutorError = "executor_error", "Its executor failed.";
    AgentStarting = "agent_starting", "The agent is starting.";
    AgentError = "agent_error", "The agent could not be started.";
    Superseded = "superseded", "A newer message took its place.";
    PermissionRejected = "permission_rejected", "The agent ended its turn because a permission was rejected.";
    UserRequest = "user_request", "A user asked for it.";
    Rotated = "rotated", "A newer token took its place.";
    RunEnded = "run_ended", "The run it belonged to ended.";
    SessionRefused = "session_refused", "The agent does not know its session id any more.";
    AgentMissing = "agent_missing", "The agent's program is not there.";
    LoginNeeded = "login_needed", "The agent requires a login.";
    AgentGaveUp = "agent_gave_up", "The agent ended again and again before it could be given anything.";
    AgentStartFailed = "agent_start_failed", "The agent could not be started, and the run's prompt was not delivered.";
    AgentWaitingToLoad = "agent_waiting_to_load", "The agent cannot load its conversation in the minute in which it was opened: it starts in the next minute.";
    Withdrawn = "withdrawn", "The agent took its question back.";
    Abandoned = "abandoned", "A user abandoned its executor.";
    WorkspaceMissing = "workspace_missing", "The folder that it works in is not there any more.";
    WorktreeMissing = "worktree_missing", "Its git worktree was removed.";
    BranchMissing = "branch_missing", "The branch that it works on is not in the repository any more.";
    BaseMissing = "base_missing", "The commit that it began at is not in the repository any more.";
    RepositoryMissing = "repository_missing", "The repository that its worktree belongs to is not there any more.";
    WorkspaceRecreated = "workspace_recreated", "The workspace is gone; starting fresh.";
    RepositoryChanged = "repository_changed", "The workspace is in another repository than when the run was started.";
    BranchChanged = "branch_changed", "The workspace is on another branch than when the run was started.";
    InterruptedLongAgo = "interrupted_long_ago", "The run was interrupted a while ago; the workspace may have changed since.";
    IdleTimeout = "idle_timeout", "Nothing needed the agent for a while.";
    PromptDue = "prompt_due", "The next queued prompt is about to be delivered.";
    QueueHeld = "queue_held", "The last run did not end well: its queued prompts are held until a user releases them.";
    NewerVersion = "newer_version", "A newer version of Piton wrote something that this one must not write behind.";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_round_trip_and_unknown_ones_are_tolerated() {
        for reason in Reason::ALL {
            let json = serde_json::to_string(reason).unwrap();
            assert_eq!(json, format!("\"{reason}\""));
            assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), *reason);
        }
        let unknown: Reason = serde_json::from_str("\"of_tomorrow\"").unwrap();
        assert_eq!(unknown, Reason::Unrecognised);
    }
}
