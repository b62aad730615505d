//! The metadata log: what belongs to no session.

use serde::{Deserialize, Serialize};

use super::Seq;
use super::values::Outcome;
use crate::access::Scope;
use crate::id::{AccessTokenId, SessionId, TaskId};
use crate::time::Timestamp;

records! {
    /// In the metadata log: a task was created.
    TaskCreated = "task.created" { task_id: TaskId, title: String, } content [];
    /// In the metadata log: the task has another title.
    TaskUpdated = "task.updated" { task_id: TaskId, title: String, } content [];
    /// In the metadata log: a user says how the task ended, whatever its sessions say.
    TaskClosed = "task.closed" { task_id: TaskId, outcome: Outcome, } content [];
    /// In the metadata log: the task's state follows from its sessions again.
    TaskReopened = "task.reopened" { task_id: TaskId, } content [];
    /// In the metadata log: the task was deleted. Its sessions stay.
    TaskDeleted = "task.deleted" { task_id: TaskId, } content [];
    /// In the metadata log: an access token or a sign-in link was created.
    AccessTokenCreated = "access_token.created" {
        access_token_id: AccessTokenId,
        name: String,
        scopes: Vec<Scope>,
        /// BLAKE3 of the secret, in hex.
        hash: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] expires_at: Option<Timestamp>,
        /// Good once, to be exchanged for a lasting one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] single_use: bool,
    } content [];
    /// In the metadata log: a sign-in link was used.
    AccessTokenUsed = "access_token.used" { access_token_id: AccessTokenId, } content [];
    /// In the metadata log: an access token was revoked.
    AccessTokenRevoked = "access_token.revoked" { access_token_id: AccessTokenId, } content [];
    /// In the metadata log: a refusal, or a change that no session's log contains.
    AuditRecorded = "audit.recorded" {
        #[serde(default, skip_serializing_if = "Option::is_none")] principal: Option<String>,
        action: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] target: Option<String>,
        outcome: String,
        /// How often, since the last one like it; once, if it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")] count: Option<u64>,
    } content [];
    /// In the metadata log: a session's log exists from here on, until a record says that it was
    /// deleted or archived. The store writes it by itself.
    SessionRegistered = "session.registered" { session_id: SessionId, } content [];
    /// In the metadata log: anchors were missing or damaged and were made again from the logs as
    /// they were then. A log that was cut before that does not show it.
    AnchorsRecreated = "anchors.recreated" {
        /// How many logs got a new anchor.
        logs: u64,
        reason: String,
    } content [];
    /// In the metadata log: a session's log was deleted.
    SessionDeleted = "session.deleted" {
        session_id: SessionId,
        last_seq: Seq,
        /// The log's last link, in hex: which log it was.
        #[serde(default, skip_serializing_if = "Option::is_none")] chain: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
    } content [];
    /// In the metadata log: a closed session's log was moved into a bundle.
    SessionArchived = "session.archived" {
        session_id: SessionId,
        last_seq: Seq,
        chain: String,
        /// The bundle's name in the archive folder.
        bundle: String,
        /// BLAKE3 of the bundle, in hex.
        digest: String,
    } content [];
    /// In the metadata log: a log was made from a bundle.
    SessionImported = "session.imported" {
        session_id: SessionId,
        last_seq: Seq,
        chain: String,
    } content [];
}
