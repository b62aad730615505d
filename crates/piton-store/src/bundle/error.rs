//! What can be wrong with a bundle.

use std::io;
use std::sync::Arc;

use piton_core::Code;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("This is not a bundle")]
    Foreign,
    #[error("The bundle has format {found}; this version reads up to {supported}")]
    Newer { found: u16, supported: u16 },
    #[error("The bundle has format {found}; this version reads format {supported} only")]
    TooOld { found: u16, supported: u16 },
    /// `at`: how many bytes of the file had been read.
    #[error("The bundle is damaged near byte {at}: {why}")]
    Damaged { at: u64, why: &'static str },
    #[error("The bundle is encrypted, and no passphrase was given")]
    PassphraseRequired,
    #[error("The passphrase does not open the bundle")]
    PassphraseWrong,
    #[error("The bundle could not be {doing}")]
    Io {
        doing: &'static str,
        #[source]
        source: Arc<io::Error>,
    },
    #[error("The target has sessions already")]
    NotEmpty,
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Foreign => Code::BundleNotPiton,
            Self::Newer { .. } => Code::BundleNewer,
            Self::TooOld { .. } => Code::BundleTooOld,
            Self::Damaged { .. } => Code::BundleDamaged,
            Self::PassphraseRequired => Code::PassphraseRequired,
            Self::PassphraseWrong => Code::PassphraseWrong,
            Self::Io { .. } => Code::BundleIo,
            Self::NotEmpty => Code::StoreNotEmpty,
        }
    }

    pub(super) fn writing(source: io::Error) -> Self {
        Self::Io { doing: "written", source: Arc::new(source) }
    }
}
