//! What a run was doing when it was interrupted, and the sentence that says so.

use serde::{Deserialize, Serialize};

use crate::reason::Reason;
use crate::spool::Fact;
use crate::state::State;

/// The longest time between a turn's end and its agent's exit by a signal in which the end is taken
/// for a part of the exit, in milliseconds: agents answer a running turn when they are asked to end.
pub const EXIT_WINDOW_MS: i64 = 500;

/// Signals that a process can answer before it ends: HUP, INT, QUIT, TERM.
const ANSWERED_SIGNALS: [i32; 4] = [1, 2, 3, 15];
/// After a KILL a process says nothing, so what it said before that counts. What is said after it comes
/// from a process that it had started.
const KILL: i32 = 9;

/// What a run was doing when it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// No agent was given the prompt.
    Starting,
    Answering,
    RunningTool,
    Waiting,
    /// Written by a newer program; its spelling stays in the record.
    #[serde(other)]
    Unrecognised,
}

impl Activity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Answering => "answering",
            Self::RunningTool => "running_tool",
            Self::Waiting => "waiting",
            Self::Unrecognised => "unrecognised",
        }
    }

    /// What the session's run is doing now, as far as its records say.
    pub fn of(state: &State) -> Option<Self> {
        let run = state.facts.run.as_ref()?;
        Some(if !run.waits.is_empty() {
            Self::Waiting
        } else if state.prompts(&run.run_id).next().is_some() {
            Self::Starting
        } else if state.calls.values().any(|call| call.run_id == run.run_id) {
            Self::RunningTool
        } else {
            Self::Answering
        })
    }

    /// For a short line: `while answering `.
    pub fn during(self) -> &'static str {
        match self {
            Self::Starting => "before it started ",
            Self::Answering => "while answering ",
            Self::RunningTool => "while running a tool ",
            Self::Waiting => "while waiting ",
            Self::Unrecognised => "",
        }
    }

    fn clause(self) -> &'static str {
        match self {
            Self::Starting => " before the agent was given the prompt",
            Self::Answering => " while the agent was answering",
            Self::RunningTool => " while the agent was running a tool",
            Self::Waiting => " while the agent was waiting for an answer",
            Self::Unrecognised => "",
        }
    }
}

/// One sentence for people: what interrupted a run, and what the run was doing.
pub fn sentence(reason: Reason, activity: Option<Activity>) -> String {
    let clause = activity.map_or("", Activity::clause);
    match reason {
        Reason::ProcessExit | Reason::ProcessRestart if !clause.is_empty() => {
            format!("The process that ran it ended{clause}.")
        }
        Reason::Abandoned if !clause.is_empty() => {
            format!("A user abandoned its executor{clause}.")
        }
        other => other.sentence().to_owned(),
    }
}

/// How long before this exit of an agent the end of its turn is taken for a part of the exit, in
/// milliseconds; `None`: the exit says nothing about the turn, or Piton was asked to end the agent.
/// Programs with a handler of their own exit with 128 and the signal, or with 0; an agent has no other
/// reason to exit with 0.
pub fn exit_window_ms(fact: &Fact) -> Option<i64> {
    let Fact::AgentExited { exit_code, signal, requested: false, .. } = fact else { return None };
    if *exit_code == Some(0) {
        return Some(EXIT_WINDOW_MS);
    }
    let of_code = exit_code.and_then(|code| code.checked_sub(128));
    match signal.or(of_code)? {
        KILL => Some(0),
        signal => ANSWERED_SIGNALS.contains(&signal).then_some(EXIT_WINDOW_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(exit_code: Option<i32>, signal: Option<i32>, requested: bool) -> Fact {
        Fact::AgentExited { exit_code, signal, requested, stderr: String::new() }
    }

    #[test]
    fn an_agent_can_answer_some_signals_before_it_ends() {
        let table = [
            (exited(None, Some(15), false), Some(500)),
            (exited(None, Some(2), false), Some(500)),
            (exited(Some(143), None, false), Some(500)),
            (exited(Some(130), None, false), Some(500)),
            (exited(None, Some(9), false), Some(0)),
            (exited(Some(137), None, false), Some(0)),
            (exited(None, Some(11), false), None),
            (exited(Some(0), None, false), Some(500)),
            (exited(Some(0), None, true), None),
            (exited(Some(1), None, false), None),
            (exited(None, Some(15), true), None),
            (exited(None, Some(9), true), None),
        ];
        for (fact, window) in table {
            assert_eq!(exit_window_ms(&fact), window, "{fact:?}");
        }
    }

    #[test]
    fn a_sentence_names_the_activity() {
        let of = |activity| sentence(Reason::ProcessExit, Some(activity));
        assert_eq!(
            of(Activity::Answering),
            "The process that ran it ended while the agent was answering."
        );
        assert_eq!(
            of(Activity::RunningTool),
            "The process that ran it ended while the agent was running a tool."
        );
        assert_eq!(
            of(Activity::Starting),
            "The process that ran it ended before the agent was given the prompt."
        );
        assert_eq!(sentence(Reason::ProcessExit, None), "The process that ran it ended.");
        let timeout = sentence(Reason::WaitTimeout, Some(Activity::Waiting));
        assert_eq!(timeout, Reason::WaitTimeout.sentence());
    }
}
