//! Worlds in which agents cannot load the conversations that they had, and executors that are given up by
//! a setting; and how often an agent may be started for a prompt. The limits are the simulator's own.

use std::time::Duration;

use piton_core::event::Event;
use piton_core::id::{RunId, SessionId};
use piton_core::reason::Reason;
use piton_core::resume::StartTrigger;
use piton_core::{Record, Seq};

use super::ledger::Property;
use super::world::World;

/// Starts for one prompt, and for one that follows a run whose agent could not be started.
const STARTS_MAX: u32 = 3;
const STARTS_AFTER_FAILURE_MAX: u32 = 1;
/// How long an agentctl waits for an agent that does not answer.
pub(super) const LOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// What becomes of every load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// The agent says that it failed, and ends.
    Fails,
    /// The agent does not answer.
    Silent,
}

/// Of the worlds in which agents are brought back, one in four. By its number and not by the dice: other
/// worlds stay what they are.
pub(super) fn in_world(seed: u64) -> Option<Stuck> {
    match seed % 40 {
        11 => Some(Stuck::Fails),
        34 => Some(Stuck::Silent),
        _ => None,
    }
}

/// In some worlds with agents an executor that does not answer is given up by itself.
pub(super) fn abandon_after(seed: u64) -> Option<Duration> {
    matches!(seed % 40, 14 | 22 | 31 | 33).then_some(Duration::from_secs(20))
}

/// The prompt that waits for an agent, and the starts that were made because of it.
struct Waiting {
    run_id: RunId,
    /// Where it began to wait.
    since: Seq,
    starts: u32,
    starts_max: u32,
}

/// One log, as far as it is durable.
pub(super) fn check(world: &World, session: &SessionId, records: &[Record]) {
    let Some(habits) = world.habits else { return };
    let broken =
        |what: String| world.violated(Property::StartsAreLimited, format!("{session}: {what}"));
    let mut waiting: Option<Waiting> = None;
    // What the next start is for.
    let mut is_for_prompt = false;
    let (mut last_failed, mut was_started) = (false, false);
    let (mut failures, mut ends, mut given_up) = (0, 0, 0);
    for record in records {
        match record.event() {
            Ok(Event::RunStarted(e)) => {
                // Where no agent ever was, there is nothing that could not be loaded.
                let is_retried = last_failed && was_started;
                let starts_max = if is_retried { STARTS_AFTER_FAILURE_MAX } else { STARTS_MAX };
                let (run_id, since) = (e.run_id, record.seq);
                waiting = Some(Waiting { run_id, since, starts: 0, starts_max });
                last_failed = false;
            }
            // The prompt was delivered, or a client resumed the run.
            Ok(Event::EffectDone(_)) => waiting = None,
            Ok(Event::RunResumed(_)) => (waiting, last_failed) = (None, false),
            // What a dead boot's start came to may be known only when the next one has begun another.
            Ok(Event::SessionLeased(_)) => {
                if let Some(waiting) = &mut waiting {
                    waiting.starts = 0;
                }
                is_for_prompt = false;
            }
            Ok(Event::AgentResuming(e)) => {
                is_for_prompt = matches!(e.trigger, StartTrigger::Prompt | StartTrigger::Retry);
            }
            Ok(Event::AgentStarting(_)) => {
                was_started = true;
                if let Some(waiting) = waiting.as_mut().filter(|_| is_for_prompt) {
                    waiting.starts += 1;
                    if waiting.starts > waiting.starts_max {
                        let Waiting { run_id, starts, since, .. } = waiting;
                        let happened =
                            records.iter().filter(|r| (*since..=record.seq).contains(&r.seq));
                        let happened: Vec<String> =
                            happened.map(|r| format!("{} {}", r.seq, r.kind)).collect();
                        broken(format!("{starts} starts for {run_id}: {}", happened.join(", ")));
                    }
                }
                is_for_prompt = false;
            }
            Ok(Event::RunInterrupted(e)) => {
                last_failed = e.reason == Reason::AgentStartFailed;
                failures += u64::from(last_failed);
                waiting = None;
            }
            // The next prompt is unrelated to a run that ended or was dismissed.
            Ok(
                Event::RunDismissed(_)
                | Event::RunCancelled(_)
                | Event::RunCompleted(_)
                | Event::RunFailed(_),
            ) => last_failed = false,
            Ok(Event::AgentSessionCleared(_)) if habits.stuck.is_some() => {
                broken(format!("its id is dropped at {}, and no agent refused it", record.seq));
            }
            Ok(Event::AgentEnding(_)) => ends += 1,
            Ok(Event::ExecutorAbandoned(_)) => given_up += 1,
            _ => {}
        }
    }
    let mut inner = world.inner();
    let stats = &mut inner.stats;
    stats.failed_starts = stats.failed_starts.max(failures);
    stats.idle_ends = stats.idle_ends.max(ends);
    stats.abandoned = stats.abandoned.max(given_up);
}
