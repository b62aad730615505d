//! What the writer of this store does.

use piton_core::id::SessionId;

use super::prepare::Prepared;
use crate::append_rules::{Removal, batch_bytes};
use crate::contract::{Appended, Batch, Durability, LogCopy, Snapshot};
use crate::error::Error;
use crate::queue::{self, Reply};

#[derive(Debug)]
pub(crate) enum Work {
    Append { batch: Box<Batch>, prepared: Option<Prepared>, reply: Reply<Appended> },
    Snapshot { session: SessionId, snapshot: Snapshot, reply: Reply<()> },
    Rebuild { reply: Reply<()> },
    Rotate { reply: Reply<()> },
    Delete { removal: Box<Removal>, reply: Reply<()> },
    CopyIn { copy: Box<LogCopy>, reply: Reply<()> },
}

impl queue::Work for Work {
    /// Done alone, in transactions of its own.
    fn is_alone(&self) -> bool {
        match self {
            Self::Append { .. } | Self::Snapshot { .. } => false,
            Self::Rebuild { .. }
            | Self::Rotate { .. }
            | Self::Delete { .. }
            | Self::CopyIn { .. } => true,
        }
    }

    fn is_urgent(&self) -> bool {
        match self {
            Self::Append { batch, .. } => batch.durability == Durability::Synced,
            Self::Snapshot { .. } => false,
            Self::Rebuild { .. }
            | Self::Rotate { .. }
            | Self::Delete { .. }
            | Self::CopyIn { .. } => true,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch_bytes(batch),
            Self::Snapshot { snapshot, .. } => snapshot.body.len(),
            Self::Rebuild { .. }
            | Self::Rotate { .. }
            | Self::Delete { .. }
            | Self::CopyIn { .. } => 0,
        }
    }

    fn refuse(self, error: Error) {
        // Fails only if the caller dropped the future.
        let _ = match self {
            Self::Append { reply, .. } => reply.send(Err(error)).is_ok(),
            Self::Snapshot { reply, .. }
            | Self::Rebuild { reply }
            | Self::Rotate { reply }
            | Self::Delete { reply, .. }
            | Self::CopyIn { reply, .. } => reply.send(Err(error)).is_ok(),
        };
    }
}
