//! Why a request was not fulfilled.

use piton_core::Code;
use piton_core::decide::Refusal;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The rules say no. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store says no, or cannot.
    #[error(transparent)]
    Store(#[from] piton_store::Error),
    #[error("The session service is shutting down")]
    ShuttingDown,
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Store(error) => error.code(),
            Self::ShuttingDown => Code::StoreClosed,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        self.code().hint()
    }
}
