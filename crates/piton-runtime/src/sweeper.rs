//! What happens while nobody looks: deadlines pass, and other boots die.

use std::sync::Arc;
use std::time::Duration;

use piton_core::decide::{Command, Verdict};
use piton_store::{Durability, Query, Row, Select};

use crate::coordinator::Coordinator;
use crate::env::Env;
use crate::error::Result;
use crate::service::Handle;
use crate::supervisor::Wake;

const PAGE: usize = 256;
/// Boots die less often than deadlines pass.
const RECOVER_EVERY_ROUNDS: u64 = 10;

#[derive(Debug)]
pub(crate) struct Sweeper {
    env: Arc<Env>,
    coordinator: Arc<Coordinator>,
    every: Duration,
}

impl Sweeper {
    pub(crate) fn new(env: Arc<Env>, coordinator: Arc<Coordinator>, every: Duration) -> Self {
        Self { env, coordinator, every }
    }

    /// Sweeps for ever. A sweep that fails is tried again: the next one finds the same work.
    pub(crate) async fn run(self: Arc<Self>, handle: Handle) {
        for round in 1_u64.. {
            self.env.clock.sleep(self.every).await;
            if let Err(error) = self.sweep().await {
                tracing::warn!(code = %error.code(), "sweep failed");
            }
            if round.is_multiple_of(RECOVER_EVERY_ROUNDS)
                && let Err(error) = handle.recover_because(Wake::Sweep, |_| {}).await
            {
                tracing::warn!(code = %error.code(), "recovery failed");
            }
        }
    }

    /// Settles every deadline that has passed; says how many sessions changed.
    pub(crate) async fn sweep(&self) -> Result<usize> {
        let mut swept = 0;
        let mut after = None;
        loop {
            let select = Select::DueBy(self.env.clock.now());
            let query = Query { task_id: None, select, after, limit: PAGE };
            let page = self.env.store.list(query).await?;
            for row in page.rows {
                swept += usize::from(self.sweep_one(row).await);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(swept),
            }
        }
    }

    /// True if something changed. What keeps one session from being swept holds up no other.
    async fn sweep_one(&self, row: Row) -> bool {
        // Another living boot sweeps its own sessions, and a dead one's are recovered first: whoever
        // is found again gets time to be answered.
        if row.lease.owner.is_some_and(|owner| owner != self.env.boot) {
            return false;
        }
        let live = self.env.driver.is_live(&row.session);
        let command = Command::Sweep { live };
        match self.coordinator.execute(&row.session, command, Durability::Synced).await {
            Ok(ack) => ack.verdict != Verdict::Already,
            Err(error) => {
                tracing::warn!(session = %row.session, code = %error.code(), "not swept");
                false
            }
        }
    }
}
