//! What every part of the service works with.

use std::collections::BTreeSet;
use std::sync::Arc;

use piton_core::id::BootId;
use piton_core::state::{Facts, Run};
use piton_core::status::{self, Status};
use piton_store::{Liveness, Store};

use crate::masking::Masking;
use crate::world::{Clock, Driver, Executors, Ids};

#[derive(Debug)]
pub(crate) struct Env {
    pub boot: BootId,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub liveness: Arc<dyn Liveness>,
    pub driver: Arc<dyn Driver>,
    pub executors: Arc<dyn Executors>,
    pub masking: Masking,
    pub snapshot_every: u64,
    pub ids: Ids,
}

impl Env {
    /// Asks the one function that derives statuses; only the run's own boot matters to it.
    pub(crate) fn status(&self, facts: &Facts) -> Status {
        let boot = facts.run.as_ref().map(|run: &Run| &run.boot_id);
        let dead: BTreeSet<BootId> =
            boot.filter(|boot| !self.is_alive(boot)).cloned().into_iter().collect();
        status::derive(facts, &dead, self.clock.now())
    }

    pub(crate) fn is_alive(&self, boot: &BootId) -> bool {
        *boot == self.boot || self.liveness.is_alive(boot)
    }
}
