//! What happens without a caller: deadlines pass, and other boots die. Deadlines are slept until, not
//! polled: with nothing due the sweeper wakes as seldom as it looks for dead boots.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use piton_core::Timestamp;
use piton_core::decide::{Command, Verdict};
use piton_store::{Durability, Query, Row, Select};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::coordinator::Coordinator;
use crate::env::Env;
use crate::error::Result;
use crate::service::Handle;
use crate::supervisor::Wake;

const PAGE_ROWS: usize = 256;
/// Boots die less often than deadlines pass.
const RECOVER_EVERY: Duration = Duration::from_secs(10);

/// The earliest deadline that is known of.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    next: Mutex<Option<Timestamp>>,
    changed: Notify,
}

impl Deadlines {
    /// A session has this deadline now: the sweeper wakes for it, if it is the first.
    pub(crate) fn note(&self, deadline: Option<Timestamp>) {
        let Some(deadline) = deadline else { return };
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.is_none_or(|next| deadline < next) {
            *next = Some(deadline);
            self.changed.notify_one();
        }
    }

    fn next(&self) -> Option<Timestamp> {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that have passed are dealt with.
    fn clear(&self) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[derive(Debug)]
pub(crate) struct Sweeper {
    env: Arc<Env>,
    coordinator: Arc<Coordinator>,
    /// At least so often, whatever is known of deadlines: the clock may jump.
    every: Duration,
}

impl Sweeper {
    pub(crate) fn new(env: Arc<Env>, coordinator: Arc<Coordinator>, every: Duration) -> Self {
        Self { env, coordinator, every }
    }

    /// Sweeps for ever. A sweep that fails is tried again: the next one finds the same work.
    pub(crate) async fn run(self: Arc<Self>, handle: Handle) {
        let (mut swept_at, mut recovered_at) = (Instant::now(), Instant::now());
        self.find_next().await;
        loop {
            let deadlines = &self.env.deadlines;
            let until_round = self.every.saturating_sub(swept_at.elapsed());
            let until_deadline = deadlines.next().map(|next| self.until(next));
            let pause = until_deadline.map_or(until_round, |until| until.min(until_round));
            tokio::select! {
                biased;
                () = deadlines.changed.notified() => continue,
                () = self.env.clock.sleep(pause) => {}
            }
            let is_round = swept_at.elapsed() >= self.every;
            let is_due = deadlines.next().is_some_and(|next| next <= self.env.clock.now());
            if !is_round && !is_due {
                continue;
            }
            swept_at = Instant::now();
            deadlines.clear();
            if let Err(error) = self.sweep().await {
                tracing::warn!(code = %error.code(), "sweep failed");
            }
            self.find_next().await;
            if is_round && recovered_at.elapsed() >= RECOVER_EVERY {
                recovered_at = Instant::now();
                if let Err(error) = handle.recover_because(Wake::Sweep, |_| {}).await {
                    tracing::warn!(code = %error.code(), "recovery failed");
                }
            }
        }
    }

    fn until(&self, deadline: Timestamp) -> Duration {
        let left = deadline.as_millis().saturating_sub(self.env.clock.now().as_millis());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    /// The first deadline to come. One that has passed and is still there is another boot's, or could
    /// not be settled: the next round looks at it again.
    async fn find_next(&self) {
        let select = Select::DueBy(Timestamp::from_millis(i64::MAX));
        let query = Query { task_id: None, select, after: None, limit: PAGE_ROWS };
        let now = self.env.clock.now();
        match self.env.store.list(query).await {
            Ok(page) => {
                let deadlines = page.rows.iter().map(|row| row.summary.facts.deadline_at());
                self.env.deadlines.note(deadlines.flatten().find(|deadline| *deadline > now));
            }
            Err(error) => tracing::warn!(code = %error.code(), "deadlines not read"),
        }
    }

    /// Settles every deadline that has passed; says how many sessions changed.
    pub(crate) async fn sweep(&self) -> Result<usize> {
        let mut swept = 0;
        let mut after = None;
        loop {
            let select = Select::DueBy(self.env.clock.now());
            let query = Query { task_id: None, select, after, limit: PAGE_ROWS };
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
        // Another living boot sweeps its own sessions, and a dead one's are recovered first: what is
        // found again gets time to be answered.
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
