//! Runs, their waits, and the resume tokens that are made for them.

use serde::{Deserialize, Serialize};

use super::Seq;
use super::values::{TokenPurpose, WaitDeadline, WaitKind};
use crate::code::AnyCode;
use crate::id::{BootId, MessageId, RunId, TokenId, WaitId};
use crate::interruption::Activity;
use crate::permission::{Action, AskReason};
use crate::reason::Reason;
use crate::time::Timestamp;

records! {
    /// A run begins; `boot_id` is the process that runs it.
    RunStarted = "run.started" {
        run_id: RunId,
        boot_id: BootId,
        #[serde(default, skip_serializing_if = "Option::is_none")] message_id: Option<MessageId>,
    } content [];
    /// The run needs something from outside. With an open `wait_id`: it is blocked on it again.
    RunWaiting = "run.waiting" {
        run_id: RunId,
        #[serde(default, skip_serializing_if = "Option::is_none")] wait_id: Option<WaitId>,
        wait_kind: WaitKind,
        #[serde(default, skip_serializing_if = "Option::is_none")] resume_token_id: Option<TokenId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] deadline_at: Option<Timestamp>,
        /// The ids of the options that reject what is asked.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] reject_options: Vec<String>,
    } content ["question"];
    /// The run continues: with the answer to a wait, or after a pause or an interruption.
    RunResumed = "run.resumed" {
        run_id: RunId,
        boot_id: BootId,
        #[serde(default, skip_serializing_if = "Option::is_none")] wait_id: Option<WaitId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] resume_token_id: Option<TokenId>,
        /// The answer rejects what was asked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] rejected: bool,
    } content ["answer"];
    /// A new boot found the run's agent alive and took it over.
    RunReattached = "run.reattached" {
        run_id: RunId,
        boot_id: BootId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] deadlines: Vec<WaitDeadline>,
    } content [];
    /// A client paused the run.
    RunPaused = "run.paused" { run_id: RunId, } content [];
    /// The agent ended its turn.
    RunCompleted = "run.completed" {
        run_id: RunId,
        /// Why the agent stopped, as it spelled it.
        #[serde(default, skip_serializing_if = "Option::is_none")] stop_reason: Option<String>,
        /// A part of what the agent said was left out: it was over a limit.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] truncated: bool,
    } content [];
    /// The run ended with an error.
    RunFailed = "run.failed" {
        run_id: RunId,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
    } content ["error"];
    /// A client cancelled the run, or a new prompt took its place.
    RunCancelled = "run.cancelled" {
        run_id: RunId,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<Reason>,
    } content [];
    /// The run stopped although no one asked for it.
    RunInterrupted = "run.interrupted" {
        run_id: RunId,
        reason: Reason,
        #[serde(default, skip_serializing_if = "Option::is_none")] boot_id: Option<BootId>,
        /// What the run was doing.
        #[serde(default, skip_serializing_if = "Option::is_none")] phase: Option<Activity>,
        /// How the agent said that its turn ended, where that is not believed: as cancelled though no
        /// cancel was requested, or just before it ended by a signal. With it a completed run is
        /// interrupted, too.
        #[serde(default, skip_serializing_if = "Option::is_none")] stop_reason: Option<String>,
    } content [];
    /// A client decided not to continue an interrupted run.
    RunDismissed = "run.dismissed" { run_id: RunId, } content [];
    /// A wait ended without an answer; the agent receives `cancelled` and continues.
    WaitCancelled = "wait.cancelled" { run_id: RunId, wait_id: WaitId, reason: Reason, } content [];

    /// A standing rule answers a permission request; the records after it, in the same batch, say so.
    PermissionDecided = "permission.decided" {
        run_id: RunId,
        wait_id: WaitId,
        action: Action,
        /// The rule's name, or its number.
        rule: String,
        option_id: String,
    } content [];
    /// A standing rule matches a permission request and leaves it to a person, in the batch of the request:
    /// an `ask` rule, or a rule that allows or forbids only what it can be sure of.
    PermissionAsked = "permission.asked" {
        run_id: RunId,
        wait_id: WaitId,
        /// What the rule is for: `ask`, or what it would have answered.
        action: Action,
        /// The rule's name, or its number.
        rule: String,
        /// Why a rule that allows or forbids did not answer.
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<AskReason>,
    } content [];

    /// A resume token was created.
    TokenMinted = "token.minted" {
        token_id: TokenId,
        run_id: RunId,
        purpose: TokenPurpose,
        #[serde(default, skip_serializing_if = "Option::is_none")] wait_id: Option<WaitId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] wait_kind: Option<WaitKind>,
        /// BLAKE3 of the secret, in hex; the secret itself is never written.
        hash: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] expires_at: Option<Timestamp>,
    } content [];
    /// A resume token was used. Keeps what a retry needs to get the first result again.
    TokenConsumed = "token.consumed" {
        token_id: TokenId,
        run_id: RunId,
        answer_digest: String,
        result_seq: Seq,
    } content [];
    /// A resume token was revoked before it was used.
    TokenRevoked = "token.revoked" { token_id: TokenId, reason: Reason, } content [];
    /// A resume token was not used in time.
    TokenExpired = "token.expired" { token_id: TokenId, } content [];
}
