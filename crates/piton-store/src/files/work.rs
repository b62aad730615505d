//! What the writer of this store does.

use piton_core::id::SessionId;

use crate::append_rules::{Removal, batch_bytes};
use crate::contract::{Appended, Batch, CopyHead, Durability, LogCopy};
use crate::error::Error;
use crate::queue::{self, Reply};

#[derive(Debug)]
pub(super) enum Work {
    Append {
        batch: Box<Batch>,
        reply: Reply<Appended>,
    },
    Delete {
        removal: Box<Removal>,
        reply: Reply<()>,
    },
    CopyIn {
        copy: Box<LogCopy>,
        reply: Reply<()>,
    },
    Rebuild {
        reply: Reply<()>,
    },
    /// Of a log that must be brought into this store's form first.
    CopyHead {
        session: SessionId,
        reply: Reply<Option<CopyHead>>,
    },
    /// List new sessions in the metadata log.
    Register,
}

impl queue::Work for Work {
    /// The writer commits what came before it and then does it: a group may hold any of them.
    fn is_alone(&self) -> bool {
        false
    }

    fn is_urgent(&self) -> bool {
        match self {
            Self::Append { batch, .. } => batch.durability == Durability::Synced,
            Self::Delete { .. }
            | Self::CopyIn { .. }
            | Self::Rebuild { .. }
            | Self::CopyHead { .. }
            | Self::Register => true,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch_bytes(batch),
            Self::Delete { .. }
            | Self::CopyIn { .. }
            | Self::Rebuild { .. }
            | Self::CopyHead { .. }
            | Self::Register => 0,
        }
    }

    fn refuse(self, error: Error) {
        // Fails only if the caller dropped the future.
        let _ = match self {
            Self::Append { reply, .. } => reply.send(Err(error)).is_ok(),
            Self::CopyHead { reply, .. } => reply.send(Err(error)).is_ok(),
            Self::Delete { reply, .. } | Self::CopyIn { reply, .. } | Self::Rebuild { reply } => {
                reply.send(Err(error)).is_ok()
            }
            Self::Register => true,
        };
    }
}
