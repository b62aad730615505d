//! The standing permission rules of a running process. They can be replaced while it runs: each
//! request is judged by the rules of the moment at which it is imported.

use std::sync::{Arc, PoisonError, RwLock};

use piton_core::permission::Rules;

/// Rules that several parts share. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PermissionRules(Arc<RwLock<Arc<Rules>>>);

impl PermissionRules {
    pub fn new(rules: Rules) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(rules))))
    }

    pub fn get(&self) -> Arc<Rules> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Open waits stay open: they were asked under the rules before.
    pub fn set(&self, rules: Rules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }
}
