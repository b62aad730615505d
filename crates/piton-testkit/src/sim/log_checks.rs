//! What the logs themselves must show, whatever happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use piton_core::event::Event;
use piton_core::id::{BootId, RunId, SessionId, TokenId, WaitId};
use piton_core::state::Executor;
use piton_core::{Record, Seq, State, fold, status};
use piton_runtime::{Outcome, Recovered};
use piton_store::Store;

use super::ledger::Property;
use super::world::World;
use super::{agent_checks, parts, queueing, roster, stuck};

/// Checks each log, and the state that would be loaded from it.
pub(super) async fn all(world: &Arc<World>) {
    let logs: Vec<(SessionId, Vec<Record>, State)> = {
        let disk = world.disk();
        let flushed = |log: &piton_store::memory::Log| {
            log.lines[..log.flushed].iter().map(|line| line.record.clone()).collect()
        };
        disk.logs.iter().map(|(id, log)| (id.clone(), flushed(log), log.state.clone())).collect()
    };
    let (reader, folder) = (reader(world), world.found());
    if world.agents {
        world.check_stopped();
    }
    if let Some(folder) = &folder {
        roster::check(world, folder, world.is_open());
    }
    for (session, records, folded) in logs {
        // A store of files writes to it by itself, behind the world's books.
        if folder.is_some() && session.is_metadata_log() {
            continue;
        }
        interruptions(world, &session, &records);
        tokens(world, &session, &records);
        queueing::check(world, &session, &records);
        if world.agents {
            agent_checks::log(world, &session, &records);
            stuck::check(world, &session, &records);
        }
        let Ok(replayed) = fold::replay(&records) else {
            world.violated(Property::SnapshotIsReplay, format!("{session} does not replay"));
            continue;
        };
        if records.is_empty() {
            continue;
        }
        let loaded = match &folder {
            None => piton_store::load(&reader, &session).await,
            Some(folder) => folder.load(&session).and_then(|loaded| {
                loaded
                    .ok_or_else(|| piton_store::Error::SessionNotFound { session: session.clone() })
            }),
        };
        match loaded {
            Ok(loaded) if loaded.state == replayed && folded == replayed => {}
            Ok(loaded) => {
                let detail = format!("{session}: {:?} instead of {replayed:?}", loaded.state);
                world.violated(Property::SnapshotIsReplay, detail);
            }
            Err(error) => {
                world.violated(Property::SnapshotIsReplay, format!("{session}: {error}"));
            }
        }
        let verified = match &folder {
            None => reader.verify(&session).await,
            Some(folder) => folder.verify(&session),
        };
        match verified {
            Ok(verification) if verification.problem.is_none() => {}
            other => world.violated(Property::ChainHolds, format!("{session}: {other:?}")),
        }
    }
}

/// A reader outside of all boots: it cannot die.
fn reader(world: &Arc<World>) -> piton_store::memory::MemoryStore {
    piton_store::memory::MemoryStore::open(
        Arc::clone(&world.disk),
        parts::liveness(world),
        parts::entropy(world),
        Arc::new(piton_store::memory::Reliable),
    )
}

fn interruptions(world: &World, session: &SessionId, records: &[Record]) {
    let mut interrupted: BTreeSet<RunId> = BTreeSet::new();
    let mut count = 0;
    for record in records {
        match record.event() {
            Ok(Event::RunStarted(e)) => {
                interrupted.remove(&e.run_id);
            }
            Ok(Event::RunResumed(e)) => {
                interrupted.remove(&e.run_id);
            }
            Ok(Event::RunReattached(e)) => {
                interrupted.remove(&e.run_id);
            }
            Ok(Event::RunInterrupted(e)) => {
                count += 1;
                if !interrupted.insert(e.run_id.clone()) {
                    let detail = format!("{session}: {} at {}", e.run_id, record.seq);
                    world.violated(Property::OneInterruption, detail);
                }
            }
            _ => {}
        }
    }
    let mut inner = world.inner();
    inner.stats.interruptions = inner.stats.interruptions.max(count);
}

fn tokens(world: &World, session: &SessionId, records: &[Record]) {
    let mut consumed: BTreeMap<TokenId, Seq> = BTreeMap::new();
    let mut waits: BTreeSet<WaitId> = BTreeSet::new();
    let mut settled: BTreeSet<(RunId, WaitId)> = BTreeSet::new();
    let broken = |what: String| {
        world.violated(Property::TokensSingleUse, format!("{session}: {what}"));
    };
    for record in records {
        match record.event() {
            Ok(Event::TokenConsumed(e))
                if consumed.insert(e.token_id.clone(), e.result_seq).is_some() =>
            {
                broken(format!("{} is consumed again at {}", e.token_id, record.seq));
            }
            Ok(Event::RunResumed(e)) => {
                if let Some(token) = &e.resume_token_id
                    && consumed.get(token) != Some(&record.seq)
                {
                    broken(format!("{token} does not name its result {}", record.seq));
                }
                settled.extend(e.wait_id.clone().map(|wait| (e.run_id.clone(), wait)));
                if let Some(wait) = e.wait_id.filter(|wait| !waits.insert(wait.clone())) {
                    broken(format!("{wait} is answered again at {}", record.seq));
                }
            }
            Ok(Event::WaitCancelled(e)) => {
                settled.insert((e.run_id, e.wait_id));
            }
            Ok(Event::RunWaiting(e)) => {
                let asked = e.wait_id.map(|wait| (e.run_id, wait));
                if let Some((_, wait)) = asked.filter(|asked| settled.contains(asked)) {
                    broken(format!("{wait} is asked again at {}", record.seq));
                }
            }
            _ => {}
        }
    }
}

/// After a recovery: does what was settled belong to a living boot, and has every status an
/// explanation?
pub(super) fn recovered(world: &World, boot: &BootId, recovered: &[Recovered]) {
    for Recovered { session, outcome } in recovered {
        let state = world.disk().logs.get(session).map(|log| log.state.clone());
        let Some(state) = state.filter(|_| *outcome == Outcome::Settled) else { continue };
        let orphan = state.facts.run.as_ref().is_some_and(|r| r.is_open() && r.boot_id != *boot);
        let ours = state.lease.owner.as_ref() == Some(boot);
        if ours && orphan && !state.facts.executor.as_ref().is_some_and(Executor::may_live) {
            let detail = format!("{session}: an open run is left with a dead boot");
            world.violated(Property::StatusExplained, detail);
        }
    }
    let now = world.now();
    let facts: Vec<_> = world.disk().logs.values().map(|log| log.state.facts.clone()).collect();
    for facts in facts {
        let run_boot = facts.run.as_ref().map(|run| run.boot_id.clone());
        let dead = run_boot.into_iter().filter(|b| !world.inner().locked.contains(b)).collect();
        let derived = status::derive(&facts, &dead, now);
        if derived.sentence().is_empty() || derived.reason == piton_core::Reason::Unrecognised {
            world.violated(Property::StatusExplained, format!("{derived:?}"));
        }
    }
}

/// With its agent alive and a boot that recovered, a session owes nothing any more.
pub(super) fn pending_effects_done(world: &World, boot: &BootId) {
    for (session, state) in durable_states(world) {
        let lives = state.facts.executor.as_ref().is_some_and(Executor::may_live);
        if lives && !state.pending.is_empty() {
            let detail = format!("{session} under {boot}: {:?} is pending", state.pending);
            world.violated(Property::PendingEffectsAreDone, detail);
        }
    }
}

/// With every agent dead and a boot that recovered, no run of another boot is open.
pub(super) fn no_orphans(world: &World, boot: &BootId) {
    for (session, state) in durable_states(world) {
        let open = state.facts.run.as_ref().is_some_and(|r| r.is_open() && r.boot_id != *boot);
        if open && state.facts.closed.is_none() {
            let detail = format!("{session}: a dead boot's run is open after all");
            world.violated(Property::StatusExplained, detail);
        }
    }
}

pub(super) fn durable_states(world: &World) -> Vec<(SessionId, State)> {
    let disk = world.disk();
    disk.logs.iter().map(|(id, log)| (id.clone(), log.state.clone())).collect()
}
