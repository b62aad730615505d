//! Who makes a request, and under which idempotency key.

use std::sync::Arc;

use crate::error::{Error, Result};

const KEY_BYTES_MAX: usize = 255;
/// The principal of everybody who may read the data folder.
const LOCAL: &str = "local";

/// Who makes a request. A repetition of a request by the same caller under the same key is answered
/// as the first one was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    principal: Arc<str>,
    key: Option<Arc<str>>,
}

impl Caller {
    pub fn new(principal: impl Into<Arc<str>>) -> Self {
        Self { principal: principal.into(), key: None }
    }

    /// The owner of the data folder.
    pub fn local() -> Self {
        Self::new(LOCAL)
    }

    pub fn with_key(self, key: Option<&str>) -> Result<Self> {
        if key.is_some_and(|key| !(1..=KEY_BYTES_MAX).contains(&key.len())) {
            let detail = format!("An idempotency key has 1 to {KEY_BYTES_MAX} visible characters");
            return Err(Error::Invalid(detail));
        }
        Ok(Self { key: key.map(Into::into), ..self })
    }

    pub fn principal(&self) -> &str {
        &self.principal
    }

    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}
