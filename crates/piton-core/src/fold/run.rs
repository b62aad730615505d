//! The life of a run, and what it demands.

use std::collections::{BTreeMap, VecDeque};

use super::Change;
use crate::event::{AgentUpdated, Event, Outcome, RunStarted, Seq};
use crate::id::{RunId, WaitId};
use crate::interruption::Activity;
use crate::limits::RUNS_KEPT;
use crate::reason::Reason;
use crate::state::{Effect, Phase, Run, State, Wait, WaitToken};
use crate::time::Timestamp;

impl State {
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of record")]
    pub(super) fn apply_run(&mut self, seq: Seq, ts: Timestamp, event: &Event) {
        match event {
            Event::RunStarted(e) => self.started(seq, ts, e),
            Event::RunWaiting(e) => {
                let by_token = || e.resume_token_id.as_ref().map(WaitId::from);
                let wait_id =
                    e.wait_id.clone().or_else(by_token).unwrap_or_else(|| WaitId::at(seq));
                let token = match &e.resume_token_id {
                    Some(id) if self.tokens.contains_key(id) => WaitToken::Active,
                    _ => WaitToken::Missing,
                };
                let Some(run) = self.run_named(&e.run_id).filter(|run| run.is_unfinished()) else {
                    return;
                };
                run.blocked = true;
                run.waits.entry(wait_id).or_insert_with(|| Wait {
                    kind: e.wait_kind,
                    since_seq: seq,
                    token_id: e.resume_token_id.clone(),
                    token,
                    deadline_at: e.deadline_at,
                    reject_options: e.reject_options.clone(),
                });
            }
            Event::RunResumed(e) => {
                let Some(run) = self.run_named(&e.run_id) else { return };
                if matches!(run.phase, Phase::Ended(_) | Phase::Dismissed) {
                    return;
                }
                run.boot_id = e.boot_id.clone();
                let was_interrupted = matches!(run.phase, Phase::Interrupted { .. });
                run.phase = Phase::Open;
                run.ended_at = None;
                run.blocked = false;
                run.wait_timed_out = false;
                let run_id = e.run_id.clone();
                self.turns.apply_resumed(e);
                self.rejected_run = e.rejected.then(|| run_id.clone());
                if was_interrupted {
                    self.release_queue();
                }
                self.reset_failed_starts();
                let Some(run) = self.run_named(&run_id) else { return };
                let Some(wait_id) = &e.wait_id else { return self.go_on(seq, run_id) };
                run.settle_wait(wait_id);
                self.pending.insert(seq, Effect::Answer { run_id, wait_id: wait_id.clone() });
            }
            Event::RunReattached(e) => {
                let Some(run) = self.run_named(&e.run_id) else { return };
                run.boot_id = e.boot_id.clone();
                for new in &e.deadlines {
                    if let Some(wait) = run.waits.get_mut(&new.wait_id) {
                        wait.deadline_at = Some(new.deadline_at);
                    }
                }
            }
            Event::RunPaused(e) => {
                let Some(run) = self.run_named(&e.run_id).filter(|run| run.is_open()) else {
                    return;
                };
                run.phase = Phase::Paused;
                self.pending.insert(seq, Effect::Stop { run_id: e.run_id.clone() });
            }
            Event::WaitCancelled(e) => {
                let Some(run) = self.run_named(&e.run_id) else { return };
                if run.settle_wait(&e.wait_id) {
                    run.blocked = false;
                    run.wait_timed_out = e.reason == Reason::WaitTimeout;
                    let (run_id, wait_id) = (e.run_id.clone(), e.wait_id.clone());
                    self.pending.insert(seq, Effect::CancelWait { run_id, wait_id });
                }
            }
            Event::RunCompleted(e) => {
                if self.streams(&e.run_id) {
                    self.mark_history_kept(e.stop_reason.as_deref());
                }
                self.end_run(seq, ts, &e.run_id, Phase::Ended(Outcome::Completed));
            }
            Event::RunFailed(e) => {
                if self.streams(&e.run_id) {
                    self.mark_history_lost();
                }
                self.end_run(seq, ts, &e.run_id, Phase::Ended(Outcome::Failed));
                self.hold_queue(&e.run_id, Phase::Ended(Outcome::Failed));
            }
            Event::RunCancelled(e) => {
                self.end_run(seq, ts, &e.run_id, Phase::Ended(Outcome::Cancelled));
                match e.reason {
                    // The prompt that took its place is one that a client wants; so are those behind it.
                    Some(Reason::Superseded) => {}
                    // Its turn is over: there is nothing to stop. What was said with the rejection
                    // is the next prompt.
                    Some(Reason::PermissionRejected) => drop(self.pending.remove(&seq)),
                    _ => self.hold_queue(&e.run_id, Phase::Ended(Outcome::Cancelled)),
                }
            }
            Event::RunInterrupted(e) => {
                // Its agent's exit shows that a turn's end was a part of that exit.
                let is_belied = |run: &Run| {
                    e.stop_reason.is_some() && run.phase == Phase::Ended(Outcome::Completed)
                };
                let run = self.run_named(&e.run_id);
                let Some(run) = run.filter(|run| run.is_unfinished() || is_belied(run)) else {
                    return;
                };
                if is_belied(run) {
                    run.phase = Phase::Open;
                }
                let was_waiting = e.reason == Reason::WaitTimeout || !run.waits.is_empty();
                let (reason, activity) = (e.reason, e.phase.or_else(|| Activity::of(self)));
                self.note_interrupted_work(seq, e, activity);
                let phase = Phase::Interrupted { reason, was_waiting, activity };
                self.end_run(seq, ts, &e.run_id, phase);
                self.hold_queue(&e.run_id, phase);
                if e.stop_reason.is_some() {
                    // Its turn is over: there is nothing to stop.
                    self.pending.remove(&seq);
                }
            }
            Event::RunDismissed(e) => self.end_run(seq, ts, &e.run_id, Phase::Dismissed),
            _ => {}
        }
    }

    /// Of an update that says so: a part of what the agent said in the run was left out.
    pub(super) fn mark_truncated(&mut self, e: &AgentUpdated) -> Change {
        let run_id = e.run_id.as_ref().filter(|_| e.truncated);
        let run = run_id.and_then(|run_id| self.run_named(run_id));
        let Some(run) = run else { return Change::Inner };
        run.truncated = true;
        Change::Summary
    }

    fn started(&mut self, seq: Seq, ts: Timestamp, e: &RunStarted) {
        self.calls.clear();
        self.forget_messages();
        self.last_answer = None;
        let said = self.last_said.as_ref();
        let said = said.filter(|said| Some(&said.message_id) == e.message_id.as_ref());
        let message_seq = said.map(|said| said.seq);
        self.recent_runs.push_back(e.run_id.clone());
        if self.recent_runs.len() > RUNS_KEPT {
            self.recent_runs.pop_front();
        }
        let follows_failure = self.facts.run.as_ref().is_some_and(|run| {
            matches!(run.phase, Phase::Interrupted { reason: Reason::AgentStartFailed, .. })
        });
        self.facts.run = Some(Run {
            run_id: e.run_id.clone(),
            boot_id: e.boot_id.clone(),
            started_at: ts,
            started_seq: seq,
            ended_at: None,
            phase: Phase::Open,
            blocked: false,
            waits: BTreeMap::new(),
            settled_waits: VecDeque::new(),
            truncated: false,
            message_seq,
            wait_timed_out: false,
        });
        let (run_id, message_id) = (e.run_id.clone(), e.message_id.clone());
        self.pending.insert(seq, Effect::Begin { run_id, message_id, message_seq });
        self.mark_prompted(follows_failure);
    }

    /// The run is to go on: with the prompt that it was paused before, if no agent can have been
    /// given that, else with one that says so. What a Stop that was not heard came after is not
    /// known yet; the spool's order will tell ([`crate::decide::Import`]).
    fn go_on(&mut self, seq: Seq, run_id: RunId) {
        let stop = Effect::Stop { run_id: run_id.clone() };
        let unheard = self.pending.values().any(|effect| *effect == stop);
        let may_know = unheard && self.facts.can_receive();
        if self.prompts(&run_id).next().is_some() && !may_know {
            self.pending.retain(|_, effect| *effect != stop);
        } else {
            self.pending.insert(seq, Effect::Continue { run_id });
        }
    }

    /// A run that is not the current one, or has ended, stays as it is.
    fn end_run(&mut self, seq: Seq, ts: Timestamp, run_id: &RunId, phase: Phase) {
        let Some(run) = self.run_named(run_id) else { return };
        if matches!(run.phase, Phase::Ended(_)) {
            return;
        }
        run.phase = phase;
        run.ended_at.get_or_insert(ts);
        run.blocked = false;
        run.waits.clear();
        self.forget_messages();
        // A prompt that no client wants delivered any more needs no report.
        if matches!(phase, Phase::Dismissed | Phase::Ended(_)) {
            self.pending_context.undelivered.retain(|prompt| prompt.run_id != *run_id);
        }
        // Dismissing it does not stop an agent that still works on it.
        let stays =
            |effect: &Effect| phase == Phase::Dismissed && matches!(effect, Effect::Stop { .. });
        self.pending.retain(|_, effect| effect.run_id() != run_id || stays(effect));
        // An agent that still works on it must be stopped.
        let unasked = matches!(phase, Phase::Interrupted { .. } | Phase::Ended(Outcome::Failed));
        if phase == Phase::Ended(Outcome::Cancelled) || self.facts.can_receive() && unasked {
            self.pending.insert(seq, Effect::Stop { run_id: run_id.clone() });
        }
    }
}
