//! What happens without a caller: deadlines pass, and other boots die. Deadlines are slept until, not
//! polled. With nothing due, a round looks at the clock and at the boots' lock files, and reads nothing:
//! the store is asked only if a boot has died, or [`FULL_EVERY`] has passed.

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
use crate::supervisor::{Outcome, Recovered, Wake};

const PAGE_ROWS: usize = 256;
/// Boots die less often than deadlines pass.
const RECOVER_EVERY: Duration = Duration::from_secs(10);
/// How often the store is asked for deadlines and for what dead boots left though nothing hints at any.
const FULL_EVERY: Duration = Duration::from_mins(5);

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
    /// A round at least so often, whatever is known of deadlines: the clock may jump.
    every: Duration,
}

impl Sweeper {
    pub(crate) fn new(env: Arc<Env>, coordinator: Arc<Coordinator>, every: Duration) -> Self {
        Self { env, coordinator, every }
    }

    /// Sweeps for ever. A sweep that fails is tried again: the next one finds the same work.
    pub(crate) async fn run(self: Arc<Self>, handle: Handle) {
        let (mut round_at, mut recovered_at) = (Instant::now(), Instant::now());
        // As of the last recovery that settled everything it found.
        let mut settled_boots = None;
        let (mut full_every, mut failures) = (FULL_EVERY, 0);
        let mut is_unsettled = self.find_next().await;
        loop {
            let deadlines = &self.env.deadlines;
            let until_round = self.every.saturating_sub(round_at.elapsed());
            let until_deadline = deadlines.next().map(|next| self.until(next));
            let pause = until_deadline.map_or(until_round, |until| until.min(until_round));
            tokio::select! {
                biased;
                () = deadlines.changed.notified() => continue,
                () = self.env.clock.sleep(pause) => {}
            }
            let is_round = round_at.elapsed() >= self.every;
            let is_due = deadlines.next().is_some_and(|next| next <= self.env.clock.now());
            if !is_round && !is_due {
                continue;
            }
            if is_round {
                round_at = Instant::now();
            }
            let boots = if is_round { self.env.liveness.known() } else { None };
            let is_full = is_round
                && (boots.is_none()
                    || boots != settled_boots
                    || recovered_at.elapsed() >= full_every);
            if is_due || is_full || (is_round && is_unsettled) {
                deadlines.clear();
                if let Err(error) = self.sweep().await {
                    tracing::warn!(code = %error.code(), "sweep failed");
                }
                is_unsettled = self.find_next().await;
            }
            if is_full && recovered_at.elapsed() >= RECOVER_EVERY {
                recovered_at = Instant::now();
                settled_boots = boots;
                (full_every, failures) = if self.recover(&handle).await {
                    (FULL_EVERY, 0)
                } else {
                    // Tried again in the next round, and then ever less often.
                    let pause = self.every * 2_u32.saturating_pow(failures);
                    (pause.min(FULL_EVERY), failures.saturating_add(1).min(16))
                };
            }
        }
    }

    /// False if something could not be settled.
    async fn recover(&self, handle: &Handle) -> bool {
        let mut failed = 0;
        let count = |recovered: Recovered| {
            failed += usize::from(matches!(recovered.outcome, Outcome::Failed(_)));
        };
        if let Err(error) = handle.recover_because(Wake::Sweep, count).await {
            tracing::warn!(code = %error.code(), "recovery failed");
            return false;
        }
        failed == 0
    }

    fn until(&self, deadline: Timestamp) -> Duration {
        let left = deadline.as_millis().saturating_sub(self.env.clock.now().as_millis());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    /// The first deadline to come. True if one that has passed is still there: it is another boot's, or
    /// could not be settled, and the next round looks at it again.
    async fn find_next(&self) -> bool {
        let select = Select::DueBy(Timestamp::from_millis(i64::MAX));
        let query = Query { task_id: None, select, after: None, limit: PAGE_ROWS };
        let now = self.env.clock.now();
        match self.env.store.list(query).await {
            Ok(page) => {
                let rows = page.rows.iter();
                let deadlines = rows.filter_map(|row| row.summary.facts.deadline_at());
                let (passed, to_come): (Vec<_>, Vec<_>) = deadlines.partition(|at| *at <= now);
                self.env.deadlines.note(to_come.first().copied());
                !passed.is_empty()
            }
            Err(error) => {
                tracing::warn!(code = %error.code(), "deadlines not read");
                true
            }
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
        // A graph that runs here ends its waits itself.
        if self.env.graphs.is_hosted(&row.session) {
            return false;
        }
        let live = self.env.driver.is_live(&row.session);
        let command = Command::Sweep { live };
        let facts = &row.summary.facts;
        let is_graph_of_server = facts.is_graph_waiting() && facts.graph_on_server;
        match self.coordinator.execute(&row.session, command, Durability::Synced).await {
            Ok(ack) => {
                let is_swept = ack.verdict != Verdict::Already;
                if is_swept && is_graph_of_server {
                    self.env.graphs.note_due(row.session);
                }
                is_swept
            }
            Err(error) => {
                tracing::warn!(session = %row.session, code = %error.code(), "the session was not swept");
                false
            }
        }
    }
}
