//! The connections that an executor keeps: one client for each execution. Its handshake settled which
//! version is spoken, so that a command is one request.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use piton_core::id::ExecutionId;

use super::{At, Fault};
use crate::client::{Client, ClientError};

/// By execution: the lease that it was made with, and the client.
#[derive(Debug, Default)]
pub struct Connections(Mutex<HashMap<ExecutionId, (u64, Client)>>);

impl Connections {
    fn kept(&self) -> MutexGuard<'_, HashMap<ExecutionId, (u64, Client)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another lease is another connection.
    pub fn get(&self, at: &At) -> Option<Client> {
        let kept = self.kept();
        let (_, client) = kept.get(&at.execution).filter(|(epoch, _)| *epoch == at.epoch)?;
        Some(client.clone())
    }

    pub fn insert(&self, at: &At, client: Client) {
        self.kept().insert(at.execution.clone(), (at.epoch, client));
    }

    pub fn remove(&self, execution: &ExecutionId) {
        self.kept().remove(execution);
    }
}

/// After silence, or an answer that was not understood, the next request shakes hands again.
pub(super) fn answered<T>(
    connections: Option<&Connections>,
    at: &At,
    answer: Result<T, ClientError>,
) -> Result<T, Fault> {
    if let (Some(connections), Err(ClientError::Unreachable(_) | ClientError::Protocol(_))) =
        (connections, &answer)
    {
        connections.remove(&at.execution);
    }
    Ok(answer?)
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
