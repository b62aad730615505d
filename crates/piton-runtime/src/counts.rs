//! Interruptions and resumes since this process began, for the operator's metrics. Counted from
//! records, when they are durable.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use piton_core::event::{Event, Outcome};
use piton_core::id::RunId;
use piton_core::state::Phase;
use piton_core::{Reason, State, Timestamp};
use piton_store::Latency;

/// Interrupted runs of which it is remembered when and where; more would be a leak.
const RUNS_MAX: usize = 10_000;

/// What a run was doing when it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunActivity {
    /// Its prompt was still to be given.
    Starting,
    Streaming,
    Tool,
    Waiting,
    /// Nothing that the log knows of.
    Thinking,
    /// It was interrupted before this process began.
    Unknown,
}

impl RunActivity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Streaming => "streaming",
            Self::Tool => "tool",
            Self::Waiting => "waiting",
            Self::Thinking => "thinking",
            Self::Unknown => "unknown",
        }
    }

    fn of(state: &State) -> Self {
        let Some(run) = &state.facts.run else { return Self::Unknown };
        if !run.waits.is_empty() {
            Self::Waiting
        } else if state.calls.values().any(|call| call.run_id == run.run_id) {
            Self::Tool
        } else if !state.messages.is_empty() {
            Self::Streaming
        } else if state.prompts(&run.run_id).next().is_some() {
            Self::Starting
        } else {
            Self::Thinking
        }
    }
}

/// What the counts are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub interruptions: BTreeMap<(RunActivity, Reason), u64>,
    /// Runs that were resumed after an interruption.
    pub resumes: BTreeMap<(RunActivity, Reason), u64>,
    /// Runs whose agent was found again and had not noticed.
    pub reattached: u64,
    /// From an interruption that this process saw until the run was resumed, by what it was doing.
    pub time_to_resume: BTreeMap<RunActivity, Latency>,
    /// How runs ended that had been resumed after an interruption, by what they were doing then.
    pub resumed_ended: BTreeMap<(&'static str, RunActivity), u64>,
}

#[derive(Debug, Default)]
pub(crate) struct RunCounter(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counts: Counts,
    /// Interrupted, and not resumed.
    interrupted: BTreeMap<RunId, (RunActivity, Timestamp)>,
    /// Resumed, and not ended.
    resumed: BTreeMap<RunId, RunActivity>,
}

/// Something that counts once it is durable.
#[derive(Clone, Debug)]
pub(crate) enum RunChange {
    Interrupted { run_id: RunId, doing: RunActivity, reason: Reason, at: Timestamp },
    Resumed { run_id: RunId, reason: Reason, at: Timestamp },
    Reattached,
    Ended { run_id: RunId, outcome: Outcome },
}

impl RunChange {
    /// What a record means in a state that does not know it yet.
    pub(crate) fn of(state: &State, at: Timestamp, event: &Event) -> Option<Self> {
        let ended = |run_id: &RunId, outcome| Self::Ended { run_id: run_id.clone(), outcome };
        Some(match event {
            Event::RunInterrupted(e) => Self::Interrupted {
                run_id: e.run_id.clone(),
                doing: RunActivity::of(state),
                reason: e.reason,
                at,
            },
            Event::RunResumed(e) => {
                // An answer continues a run, too; only an interrupted run counts as resumed.
                let run = state.facts.run.as_ref().filter(|run| run.run_id == e.run_id)?;
                let Phase::Interrupted { reason, .. } = run.phase else { return None };
                Self::Resumed { run_id: e.run_id.clone(), reason, at }
            }
            Event::RunReattached(_) => Self::Reattached,
            Event::RunCompleted(e) => ended(&e.run_id, Outcome::Completed),
            Event::RunFailed(e) => ended(&e.run_id, Outcome::Failed),
            Event::RunCancelled(e) => ended(&e.run_id, Outcome::Cancelled),
            _ => return None,
        })
    }
}

impl RunCounter {
    pub(crate) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }

    pub(crate) fn add(&self, happened: impl IntoIterator<Item = RunChange>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for happened in happened {
            inner.add(happened);
        }
    }
}

impl Inner {
    fn add(&mut self, happened: RunChange) {
        let counts = &mut self.counts;
        match happened {
            RunChange::Interrupted { run_id, doing, reason, at } => {
                *counts.interruptions.entry((doing, reason)).or_default() += 1;
                if let Some(before) = self.resumed.remove(&run_id) {
                    *counts.resumed_ended.entry(("interrupted", before)).or_default() += 1;
                }
                if self.interrupted.len() < RUNS_MAX {
                    self.interrupted.insert(run_id, (doing, at));
                }
            }
            RunChange::Resumed { run_id, reason, at } => {
                let known = self.interrupted.remove(&run_id);
                let doing = known.map_or(RunActivity::Unknown, |(doing, _)| doing);
                *counts.resumes.entry((doing, reason)).or_default() += 1;
                if let Some((_, since)) = known {
                    counts.time_to_resume.entry(doing).or_default().add(at.since(since));
                }
                if self.resumed.len() < RUNS_MAX {
                    self.resumed.insert(run_id, doing);
                }
            }
            RunChange::Reattached => counts.reattached += 1,
            RunChange::Ended { run_id, outcome } => {
                if let Some(doing) = self.resumed.remove(&run_id) {
                    let name = match outcome {
                        Outcome::Completed => "completed",
                        Outcome::Failed => "failed",
                        Outcome::Cancelled => "cancelled",
                    };
                    *counts.resumed_ended.entry((name, doing)).or_default() += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_continue_are_counted_with_the_time_it_took_and_their_end() {
        let run_counter = RunCounter::default();
        let at = Timestamp::from_millis;
        let run: RunId = "run_1".parse().unwrap();
        let (doing, reason) = (RunActivity::Tool, Reason::ProcessExit);
        let interrupted =
            |millis| RunChange::Interrupted { run_id: run.clone(), doing, reason, at: at(millis) };
        let resumed = |millis| RunChange::Resumed { run_id: run.clone(), reason, at: at(millis) };
        let ended = || RunChange::Ended { run_id: run.clone(), outcome: Outcome::Completed };
        // An end that no resumption came before says nothing about resuming.
        run_counter.add([ended(), interrupted(1_000), resumed(1_400), interrupted(2_000)]);
        run_counter.add([resumed(4_000), ended(), ended(), resumed(9_000), RunChange::Reattached]);
        let counts = run_counter.counts();
        assert_eq!(counts.interruptions, BTreeMap::from([((doing, reason), 2)]));
        let expected = [((doing, reason), 2), ((RunActivity::Unknown, reason), 1)];
        assert_eq!(counts.resumes, BTreeMap::from(expected));
        let expected = [(("completed", doing), 1), (("interrupted", doing), 1)];
        assert_eq!(counts.resumed_ended, BTreeMap::from(expected));
        let latency = &counts.time_to_resume[&doing];
        assert_eq!((latency.count, latency.sum_us), (2, 2_400_000));
        assert_eq!(counts.time_to_resume.len(), 1, "one that this process did not see has no time");
        assert_eq!(counts.reattached, 1);
    }
}
