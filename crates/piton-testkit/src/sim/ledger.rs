//! What was promised. The ledger is kept by the world, outside everything that can crash, and
//! compared with the disk after every crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use piton_core::event::Event;
use piton_core::id::{BootId, RunId, SessionId, TokenId, WaitId};
use piton_core::state::{Effect, ExecutorStatus};
use piton_core::token::ResumeToken;
use piton_core::{Record, Seq, chain};
use piton_runtime::{Ack, Answered, EffectJob};
use piton_store::{Batch, Guard};
use serde_json::Value;

use super::world::{Boot, World};

/// What must always be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// A record whose append was acknowledged is there after every crash, unchanged.
    AcknowledgedIsDurable,
    /// A record that a reader was given is there after every crash, unchanged.
    DeliveredIsDurable,
    /// A reader is given every record once, in order, without a gap.
    DeliveredInOrder,
    /// A batch is in the log whole or not at all.
    BatchesAreWhole,
    /// Only the lease's holder writes, and a lease is taken only from the dead.
    OneWriter,
    /// A run is interrupted at most once per start, resume or reattach.
    OneInterruption,
    /// A token is consumed once, a wait answered once, and the two records name each other; a wait that
    /// was answered or ran out is not asked again.
    TokensSingleUse,
    /// A retry with the same token and answer gets the first result; another answer is refused.
    RetryGetsFirstResult,
    /// Nothing is done before the record that says so is durable.
    CommitThenAct,
    /// What the log says a living agent must get is carried out by the next boot that can.
    PendingEffectsAreDone,
    /// An effect's key stands for one effect; each run begins, and each answer arrives, once.
    NothingTwice,
    /// The state from snapshot and rest is the state from all records.
    SnapshotIsReplay,
    /// The index row that came with a batch is what the records fold into.
    IndexIsFold,
    /// The metadata log lists every durable session once, and says nothing that did not happen.
    RosterIsTrue,
    /// The chain verifies.
    ChainHolds,
    /// After a recovery no run is left with a dead boot, and every status has a reason.
    StatusExplained,
    /// An operation fails only for a reason that the world gave it.
    ErrorsAreHonest,
    /// What an agent said is in the log once and in order, all of it when its spool is drained. What
    /// a power failure took from a spool's unflushed end was never said.
    SaidOnce,
    /// A session has one live agent at most, besides those that were given up, which are ended when
    /// they come back.
    OneAgent,
    /// A command reaches the agent once, and a run's prompt once in all.
    DeliveredOnce,
    /// What an agent asks can be answered, whatever died meanwhile, and the answer reaches it.
    QuestionKept,
    /// A run whose agent is gone was interrupted, for the right reason; nothing of an execution
    /// that is said to be gone is left, and no run is left without an agent.
    GoneIsInterrupted,
    /// What a session says of its agent's memory is so: it knows everything that the session's agents
    /// were given, or the session does not say so.
    ContextIsTrue,
    /// A process has one supervisor for a session: it never follows or probes one execution twice at
    /// the same time.
    OneSupervisor,
    /// A permission request is decided by the standing rules at most once, as the model's own table of
    /// them says, and answered so.
    RulesHold,
    /// A queued prompt is delivered once, in the queue's order and not while it is held, or is still
    /// queued, or was removed; one that is due is delivered by the next boot that can.
    QueueKept,
    /// An agent that cannot be started is started three times for a prompt, and once for a prompt that
    /// follows a run without an agent; it keeps the id of its conversation.
    StartsAreLimited,
    /// The same seed does the same.
    Deterministic,
}

impl Property {
    pub const ALL: &'static [Self] = &[
        Self::AcknowledgedIsDurable,
        Self::DeliveredIsDurable,
        Self::DeliveredInOrder,
        Self::BatchesAreWhole,
        Self::OneWriter,
        Self::OneInterruption,
        Self::TokensSingleUse,
        Self::RetryGetsFirstResult,
        Self::CommitThenAct,
        Self::PendingEffectsAreDone,
        Self::NothingTwice,
        Self::SnapshotIsReplay,
        Self::IndexIsFold,
        Self::RosterIsTrue,
        Self::ChainHolds,
        Self::StatusExplained,
        Self::ErrorsAreHonest,
        Self::SaidOnce,
        Self::OneAgent,
        Self::DeliveredOnce,
        Self::QuestionKept,
        Self::GoneIsInterrupted,
        Self::ContextIsTrue,
        Self::OneSupervisor,
        Self::RulesHold,
        Self::QueueKept,
        Self::StartsAreLimited,
        Self::Deterministic,
    ];
}

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub property: Property,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.detail)
    }
}

/// A position that was promised: the chain's hash there covers all records up to it.
type Promise = BTreeMap<SessionId, (Seq, chain::Hash)>;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub violations: Vec<Violation>,
    acknowledged: Promise,
    delivered: Promise,
    /// Where each reader stands in each session.
    pub positions: BTreeMap<(u64, SessionId), Seq>,
    /// Batches by session, as first and last seq.
    batches: BTreeMap<SessionId, Vec<(Seq, Seq)>>,
    owners: BTreeMap<SessionId, BootId>,
    jobs: BTreeMap<String, String>,
    begun: BTreeSet<(SessionId, RunId)>,
    answered: BTreeSet<(SessionId, WaitId)>,
    pub tokens: Vec<(SessionId, ResumeToken)>,
    /// What was asked in each run, in worlds whose clients repeat it.
    pub asked: BTreeMap<(SessionId, RunId), Vec<WaitId>>,
    /// The first answer that was acknowledged to any client, per token.
    answers: BTreeMap<TokenId, (Value, Seq)>,
    /// Tokens whose answer was acknowledged as taken, not as repeated.
    taken: BTreeSet<TokenId>,
}

impl World {
    /// The hash at a position, as the disk has it now.
    fn chain_now(&self, session: &SessionId, seq: Seq) -> Option<chain::Hash> {
        let index = usize::try_from(seq).ok()?.checked_sub(1)?;
        self.disk().logs.get(session)?.lines.get(index).map(|line| line.chain)
    }

    fn promise(&self, session: &SessionId, seq: Seq, property: Property) {
        let Some(hash) = self.chain_now(session, seq) else {
            return self.violated(property, format!("{session} has no record {seq}"));
        };
        let mut inner = self.inner();
        let promises = match property {
            Property::DeliveredIsDurable => &mut inner.ledger.delivered,
            _ => &mut inner.ledger.acknowledged,
        };
        let newest = promises.entry(session.clone()).or_insert((seq, hash));
        if newest.0 < seq {
            *newest = (seq, hash);
        }
    }

    pub(super) fn acknowledged(&self, session: &SessionId, ack: &Ack) {
        self.inner().stats.acknowledged += 1;
        if ack.last_seq > 0 {
            self.promise(session, ack.last_seq, Property::AcknowledgedIsDurable);
        }
    }

    pub(super) fn delivered(&self, reader: u64, session: &SessionId, records: &[Record]) {
        for record in records {
            let expected = {
                let mut inner = self.inner();
                inner.stats.delivered += 1;
                let place = (reader, session.clone());
                let position = inner.ledger.positions.entry(place).or_insert(0);
                *position += 1;
                *position
            };
            if record.seq != expected {
                self.inner().ledger.positions.insert((reader, session.clone()), record.seq);
                let detail = format!("{session}: record {} instead of {expected}", record.seq);
                self.violated(Property::DeliveredInOrder, detail);
                continue;
            }
            let index = usize::try_from(record.seq - 1).unwrap_or(usize::MAX);
            let same = self
                .disk()
                .logs
                .get(session)
                .and_then(|log| log.lines.get(index))
                .is_some_and(|line| line.record == *record);
            if !same {
                let detail = format!("{session}: record {} is not the log's", record.seq);
                self.violated(Property::DeliveredIsDurable, detail);
            }
        }
        if let Some(last) = records.last() {
            self.promise(session, last.seq, Property::DeliveredIsDurable);
        }
    }

    /// A batch was accepted: by the right writer, and with the right index row.
    pub(super) fn wrote(&self, boot: &Boot, batch: &Batch) {
        let session = &batch.session;
        let Guard::Lease { boot: writer, .. } = &batch.guard else { return };
        let claims = batch.records.iter().any(|r| matches!(r.event, Event::SessionLeased(_)));
        let broken = {
            let mut inner = self.inner();
            let owner = inner.ledger.owners.get(session).cloned();
            let allowed = match &owner {
                Some(owner) if claims => owner == writer || !inner.locked.contains(owner),
                Some(owner) => owner == writer,
                None => claims,
            };
            if claims {
                inner.ledger.owners.insert(session.clone(), writer.clone());
            }
            let releases =
                batch.records.iter().any(|r| matches!(r.event, Event::SessionReleased(_)));
            if releases {
                inner.ledger.owners.remove(session);
            }
            let last = batch.expected + batch.records.len() as Seq;
            let batches = inner.ledger.batches.entry(session.clone()).or_default();
            batches.push((batch.expected + 1, last));
            (!allowed || *writer != boot.id).then_some(owner)
        };
        if let Some(owner) = broken {
            let detail = format!("{writer} writes to {session}, which {owner:?} owns");
            self.violated(Property::OneWriter, detail);
        }
        if let Some(summary) = &batch.summary
            && self.chance(10)
        {
            let disk = self.disk();
            let lines = disk.logs.get(session).map(|log| log.lines.iter().map(|l| &l.record));
            let folded = lines.and_then(|lines| piton_core::fold::replay(lines).ok());
            drop(disk);
            if folded.and_then(|state| state.summary()).as_ref() != Some(summary) {
                let detail = format!("{session} at {}", batch.expected);
                self.violated(Property::IndexIsFold, detail);
            }
        }
    }

    /// An effect reaches the world. Its agent keeps a journal of keys.
    pub(super) fn performed(&self, job: &EffectJob) {
        let (session, seq) = (&job.session, job.cause.seq);
        let durable = self.disk().logs.get(session).is_some_and(|log| log.flushed as Seq >= seq);
        if !durable {
            self.violated(Property::CommitThenAct, format!("{session}: record {seq}"));
        }
        let description = format!("{:?} because of {:?}", job.effect, job.cause);
        self.note(format_args!("{} does {description}", job.key));
        let mut inner = self.inner();
        inner.stats.jobs += 1;
        let repetition = match inner.ledger.jobs.get(&job.key) {
            Some(known) if *known == description => return,
            Some(known) => Some(format!("{}: {known}, then {description}", job.key)),
            None => None,
        };
        inner.ledger.jobs.insert(job.key.clone(), description);
        let first_time = match &job.effect {
            Effect::Begin { run_id, .. } => {
                inner.ledger.begun.insert((session.clone(), run_id.clone()))
            }
            Effect::Answer { wait_id, .. } => {
                inner.ledger.answered.insert((session.clone(), wait_id.clone()))
            }
            Effect::Continue { .. } | Effect::CancelWait { .. } | Effect::Stop { .. } => true,
        };
        drop(inner);
        if let Some(detail) = repetition {
            self.violated(Property::NothingTwice, detail);
        }
        if !first_time {
            self.violated(Property::NothingTwice, format!("{:?} again", job.effect));
        }
    }

    pub(super) fn agent_is_live(&self, session: &SessionId) -> bool {
        let disk = self.disk();
        let executor = disk.logs.get(session).and_then(|log| log.state.facts.executor.as_ref());
        executor.is_some_and(|executor| executor.status == ExecutorStatus::Ready)
    }

    /// An answer was taken, or given again.
    pub(super) fn answer_settled(&self, answered: &Answered, answer: &Value) {
        let mut inner = self.inner();
        if answered.replayed {
            inner.stats.replays += 1;
        } else {
            inner.stats.answers += 1;
        }
        let answered_with = (answer.clone(), answered.result_seq);
        let first =
            inner.ledger.answers.entry(answered.token.clone()).or_insert(answered_with.clone());
        let mut detail =
            (*first != answered_with).then(|| format!("{first:?}, then {answered_with:?}"));
        if !answered.replayed && !inner.ledger.taken.insert(answered.token.clone()) {
            detail = Some("taken twice".to_owned());
        }
        drop(inner);
        if let Some(detail) = detail {
            let detail = format!("{}: {detail}", answered.token);
            self.violated(Property::RetryGetsFirstResult, detail);
        }
    }

    /// A token was refused as no longer good, or unknown: the log must say so, durably.
    pub(super) fn token_refused(&self, session: &SessionId, token: &TokenId) {
        let disk = self.disk();
        let entry = disk.logs.get(session).and_then(|log| log.tokens.get(token));
        let good = entry.is_none_or(|entry| entry.state == piton_core::token::State::Active);
        drop(disk);
        if good {
            let detail = format!("{session}: {token} is good, and was refused");
            self.violated(Property::ErrorsAreHonest, detail);
        }
    }

    /// A token was refused as used: it must have been, with another answer.
    pub(super) fn answer_refused(&self, token: &TokenId, answer: &Value) {
        let known = self.inner().ledger.answers.get(token).cloned();
        if known.is_some_and(|(first, _)| first == *answer) {
            let detail = format!("{token} with its own answer was refused");
            self.violated(Property::RetryGetsFirstResult, detail);
        }
    }

    /// Compares what was promised with what is there.
    pub(super) fn check_promises(&self) {
        for property in [Property::AcknowledgedIsDurable, Property::DeliveredIsDurable] {
            let promises = match property {
                Property::DeliveredIsDurable => self.inner().ledger.delivered.clone(),
                _ => self.inner().ledger.acknowledged.clone(),
            };
            for (session, (seq, hash)) in promises {
                match self.chain_now(&session, seq) {
                    Some(now) if now == hash => {}
                    Some(_) => self.violated(property, format!("{session}: {seq} was changed")),
                    None => self.violated(property, format!("{session}: {seq} is lost")),
                }
            }
        }
        self.check_batches();
    }

    fn check_batches(&self) {
        let lengths: BTreeMap<SessionId, Seq> = {
            let disk = self.disk();
            disk.logs.iter().map(|(id, log)| (id.clone(), log.lines.len() as Seq)).collect()
        };
        let mut split = Vec::new();
        {
            let mut inner = self.inner();
            let owners: Vec<SessionId> = inner.ledger.batches.keys().cloned().collect();
            for session in owners {
                let length = lengths.get(&session).copied().unwrap_or(0);
                let Some(batches) = inner.ledger.batches.get_mut(&session) else { continue };
                let cut = batches.iter().find(|(first, last)| *first <= length && length < *last);
                split.extend(cut.map(|batch| format!("{session}: {batch:?} cut at {length}")));
                batches.retain(|(_, last)| *last <= length);
                if length == 0 {
                    inner.ledger.owners.remove(&session);
                }
            }
        }
        for detail in split {
            self.violated(Property::BatchesAreWhole, detail);
        }
        self.recall_owners();
    }

    /// A lost claim was never made.
    fn recall_owners(&self) {
        let leases: Vec<(SessionId, Option<BootId>)> = {
            let disk = self.disk();
            let owner = |log: &piton_store::memory::Log| {
                owner_of(log.lines.iter().map(|line| &line.record))
            };
            disk.logs.iter().map(|(id, log)| (id.clone(), owner(log))).collect()
        };
        let mut inner = self.inner();
        for (session, owner) in leases {
            match owner {
                Some(owner) => inner.ledger.owners.insert(session, owner),
                None => inner.ledger.owners.remove(&session),
            };
        }
    }
}

/// Whose a log is: of the last one who claimed it and did not give it back.
fn owner_of<'a>(records: impl Iterator<Item = &'a Record>) -> Option<BootId> {
    let mut owner = None;
    for record in records {
        match record.event() {
            Ok(Event::SessionLeased(e)) => owner = Some(e.boot_id),
            Ok(Event::SessionReleased(e)) if owner.as_ref() == Some(&e.boot_id) => owner = None,
            _ => {}
        }
    }
    owner
}
