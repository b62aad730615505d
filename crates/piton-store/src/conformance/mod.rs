//! What every store must do, as cases that run against any of them. [`conformance!`] makes one
//! test of each case for a given [`Harness`].

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "these are tests")]

pub mod appends;
pub mod caches;
pub mod contents;
pub mod index;
pub mod leases;
pub mod listing;
pub mod removal;
pub mod tails;

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use piton_core::fold::Change;
use piton_core::id::{BootId, SessionId};
use piton_core::{Event, NewRecord, State, Timestamp, event};
use serde_json::Value;

use crate::contract::{Appended, Batch, BoxFuture, Durability, Guard, Liveness, Store};
use crate::error::Result;
use crate::writer::WritableRecords;

/// One data folder (or what stands for it) and the boots that use it.
pub trait Harness: fmt::Debug {
    /// Opens the store: an empty one at first, later what the last life left.
    fn open(&self) -> BoxFuture<Arc<dyn Store>>;

    /// The store as the next process finds it. Everything that was acknowledged must be there.
    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<Arc<dyn Store>> {
        drop(store);
        self.open()
    }

    /// From now on this boot is dead.
    fn kill(&self, boot: &BootId);
}

/// Boots that live until they are killed.
#[derive(Debug, Default)]
pub struct Boots {
    dead: Mutex<HashSet<BootId>>,
}

impl Boots {
    pub fn kill(&self, boot: &BootId) {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).insert(boot.clone());
    }
}

impl Liveness for Boots {
    fn is_alive(&self, boot: &BootId) -> bool {
        !self.dead.lock().unwrap_or_else(PoisonError::into_inner).contains(boot)
    }
}

/// Runs a case to its end.
pub fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.unwrap().block_on(case);
}

/// One `#[test]` per case. The expression makes a fresh harness for each.
#[macro_export]
macro_rules! conformance {
    ($harness:expr) => {
        $crate::conformance_cases! { $harness;
            appends: batches_are_whole_and_in_order,
            appends: a_seq_conflict_writes_nothing,
            appends: a_refused_batch_leaves_its_neighbours_alone,
            appends: limits_are_named,
            appends: pipelined_appends_keep_the_order_of_the_calls,
            appends: a_dropped_future_takes_nothing_back,
            appends: one_of_many_at_the_same_place_wins,
            appends: sessions_do_not_disturb_each_other,
            appends: acknowledged_means_durable,
            appends: a_synced_batch_flushes_what_was_queued_before_it,
            leases: a_session_needs_a_writer,
            leases: a_living_owner_keeps_its_session,
            leases: a_dead_owner_loses_its_session,
            leases: a_stale_writer_is_refused,
            leases: a_released_session_is_free,
            leases: the_same_boot_may_take_again,
            leases: a_lease_must_be_ones_own_and_the_next,
            leases: the_metadata_log_has_no_lease,
            leases: leases_survive,
            contents: pages_have_no_gap_and_no_repeat,
            contents: headers_come_without_contents,
            contents: unknown_kinds_and_fields_are_kept_to_the_byte,
            contents: contents_round_trip,
            contents: large_answers_stop_early_but_not_empty,
            contents: the_chain_is_known_at_every_record,
            contents: what_is_not_there_is_not_there,
            contents: snapshots_are_kept_and_replaced,
            contents: loading_is_replaying,
            contents: a_snapshot_that_does_not_fit_is_passed_over,
            index: all_are_listed_last_active_first,
            index: filters_select,
            index: pages_with_ties_are_complete,
            index: deadlines_are_listed_earliest_first,
            index: rows_follow_their_sessions,
            index: tokens_are_found,
            index: all_logs_are_named,
            listing: a_session_is_listed_once,
            tails: a_tail_delivers_every_record_once,
            tails: a_late_tail_catches_up,
            tails: lost_hints_lose_nothing,
            tails: a_tail_waits_for_a_session_that_is_not_there_yet,
            tails: a_thousand_tails,
            caches: rebuilding_changes_no_answer,
            caches: a_sound_log_verifies,
        }
    };
}

/// The same for taking out, removing and copying.
#[macro_export]
macro_rules! conformance_of_removal {
    ($harness:expr) => {
        $crate::conformance_cases! { $harness;
            removal: redaction_takes_a_content_out,
            removal: a_batch_may_take_out_its_own_contents,
            removal: only_earlier_records_can_be_taken_out,
            removal: redaction_leaves_other_logs_alone,
            removal: deleting_removes_a_log_and_notes_it,
            removal: deleting_keeps_the_rules,
            removal: a_copy_is_the_same_to_the_byte,
            removal: a_bad_copy_leaves_nothing,
            removal: an_adopted_log_starts_later,
            listing: every_session_is_listed,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($harness:expr; $($module:ident: $case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                let harness = $harness;
                $crate::conformance::run($crate::conformance::$module::$case(&harness));
            }
        )*
    };
}

pub(crate) fn session(name: &str) -> SessionId {
    name.parse().unwrap()
}

pub(crate) fn boot(name: &str) -> BootId {
    name.parse().unwrap()
}

/// A moment some milliseconds after the suite's beginning of time.
pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_771_668_000_000 + millis)
}

pub(crate) fn leased(boot: &BootId, epoch: u64) -> NewRecord {
    NewRecord::new(at(0), event::SessionLeased { boot_id: boot.clone(), epoch })
}

pub(crate) fn released(boot: &BootId, epoch: u64) -> NewRecord {
    NewRecord::new(at(0), event::SessionReleased { boot_id: boot.clone(), epoch })
}

pub(crate) fn said(text: impl Into<Value>) -> NewRecord {
    said_at(0, text)
}

pub(crate) fn said_at(millis: i64, text: impl Into<Value>) -> NewRecord {
    let event = event::MessageUser { message_id: "msg_1".parse().unwrap(), run_id: None };
    NewRecord::with_content(at(millis), event, "content", text.into())
}

/// A piece of a streamed message: changes no index row.
pub(crate) fn piece(offset: u64, text: &str) -> NewRecord {
    let event = event::MessageDelta {
        message_id: "msg_a".parse().unwrap(),
        run_id: None,
        offset,
        length: text.len() as u64,
        channel: piton_core::spool::Channel::Answer,
        sent: None,
    };
    NewRecord::with_content(at(0), event, "text", text.into())
}

pub(crate) fn of(millis: i64, event: impl Into<Event>) -> NewRecord {
    NewRecord::new(at(millis), event)
}

/// One writer of one session: keeps the place, the lease and the state that follow from its
/// batches, as a runtime would.
#[derive(Clone, Debug)]
pub struct Driver {
    /// `None` while the store is between two lives.
    pub store: Option<Arc<dyn Store>>,
    pub session: SessionId,
    pub boot: BootId,
    pub state: State,
}

impl Driver {
    /// Makes a session and takes its lease.
    pub async fn create(store: &Arc<dyn Store>, name: &str) -> Self {
        Self::create_with(store, name, None, 0).await
    }

    pub(crate) async fn create_with(
        store: &Arc<dyn Store>,
        name: &str,
        task: Option<&str>,
        millis: i64,
    ) -> Self {
        let mut driver = Self {
            store: Some(store.clone()),
            session: session(name),
            boot: boot("boot_1"),
            state: State::default(),
        };
        let created = event::SessionCreated {
            session_id: driver.session.clone(),
            title: Some(format!("About {name}")),
            task_id: task.map(|task| task.parse().unwrap()),
            working_dir: None,
            provider: None,
            agent_profile_id: None,
        };
        let lease = leased(&driver.boot, 1);
        driver.append(vec![of(millis, created), lease]).await.unwrap();
        driver
    }

    /// The next batch. What it says is taken for appended.
    pub fn batch(&mut self, records: Vec<NewRecord>) -> Batch {
        let expected = self.state.last_seq;
        let mut changed = false;
        for (seq, record) in (expected + 1..).zip(&records) {
            changed |= self.state.apply(seq, record.ts, &record.event) == Change::Summary;
        }
        Batch {
            session: self.session.clone(),
            expected,
            guard: Guard::Lease { boot: self.boot.clone(), epoch: self.state.lease.epoch },
            records: WritableRecords::verbatim(records),
            durability: Durability::Synced,
            summary: if changed { self.state.summary() } else { None },
        }
    }

    pub async fn append(&mut self, records: Vec<NewRecord>) -> Result<Appended> {
        let batch = self.batch(records);
        let store = self.store.clone().unwrap();
        store.append(batch).await
    }

    /// Returns the store and drops the driver's reference, so that the store can be reopened.
    pub(crate) fn let_go(&mut self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        self.store = None;
        store
    }

    /// The same session, as another boot would write to it.
    pub(crate) fn rival(&self, name: &str) -> Self {
        Self { boot: boot(name), ..self.clone() }
    }
}
