//! How a spool lies on the disk, and how it is read. agentctl writes it; a server reads it when
//! agentctl is dead.
//!
//! A spool is a folder of segments, each named by the position of its first entry. A segment is a
//! header and frames; a frame is one sealed entry ([`format`](self::format)). Positions have no
//! gaps. Where two segments overlap, the later one counts: it was written because it is
//! unknown what became of the end of the earlier one.
//!
//! What a crash cut off at the very end is no damage: it was never acknowledged.

pub mod format;
mod reader;
mod segment;
#[cfg(test)]
mod tests;

pub use reader::{Entries, SpoolReader};
pub use segment::{Sealed, SegmentReader};

use std::io;
use std::path::PathBuf;

use piton_core::Code;
use piton_core::spool::Pos;

/// Why a spool cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Cannot read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is not a piece of a spool", path.display())]
    Foreign { path: PathBuf },
    #[error("{} has version {version} of the spool's format, from before the first release", path.display())]
    TooOld { path: PathBuf, version: u32 },
    #[error("{} has version {version} of the spool's format, which a newer Piton wrote", path.display())]
    Newer { path: PathBuf, version: u32 },
    #[error("Entry {pos} in {} is damaged", path.display())]
    Damaged { path: PathBuf, pos: Pos },
    #[error("Entry {pos} in {} cannot be opened with this key", path.display())]
    Key { path: PathBuf, pos: Pos },
    #[error("Entry {pos} in {} is none that this program can read", path.display())]
    Entry { path: PathBuf, pos: Pos, source: serde_json::Error },
    #[error("Entries {first} to {last} are missing")]
    Missing { first: Pos, last: Pos },
    #[error("{} belongs to another spool", path.display())]
    Mixed { path: PathBuf },
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Io { .. } => Code::SpoolUnreadable,
            Self::Foreign { .. } | Self::Mixed { .. } => Code::SpoolNotPiton,
            Self::TooOld { .. } => Code::SpoolTooOld,
            Self::Newer { .. } => Code::SpoolNewer,
            Self::Damaged { .. } | Self::Missing { .. } | Self::Entry { .. } => Code::SpoolDamaged,
            Self::Key { .. } => Code::SpoolKeyWrong,
        }
    }
}
