//! How a run ended that a script began: as an exit code, in words, and in JSON.

use piton_core::interruption;
use piton_core::reason::Reason;
use serde_json::{Value, json};

use super::screen::{Question, question};
use crate::error::{Error, Exit};
use crate::text::one_line;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Completed,
    /// Also: there was no agent that could have begun.
    Failed,
    Interrupted,
    Waiting,
    /// By another client.
    Cancelled,
    /// By another client.
    Paused,
    /// By Ctrl-C.
    Stopped,
}

impl Outcome {
    /// What a record means for a caller that waits for this run; `None` if the run continues.
    pub(super) fn of(record: &Value, run: Option<&str>) -> Option<Self> {
        let kind = record["kind"].as_str()?;
        if matches!(kind, "agent.error" | "executor.error") {
            return Some(Self::Failed);
        }
        if record["run_id"] != run? {
            return None;
        }
        match kind {
            "run.completed" => Some(Self::Completed),
            "run.failed" => Some(Self::Failed),
            "run.interrupted" => Some(Self::Interrupted),
            "run.waiting" => Some(Self::Waiting),
            "run.cancelled" => Some(Self::Cancelled),
            "run.paused" => Some(Self::Paused),
            _ => None,
        }
    }

    pub(super) fn exit(self) -> Exit {
        match self {
            Self::Completed => Exit::Good,
            Self::Failed => Exit::Failed,
            Self::Interrupted => Exit::Interrupted,
            Self::Waiting => Exit::Waiting,
            Self::Cancelled => Exit::Cancelled,
            Self::Paused => Exit::Paused,
            Self::Stopped => Exit::CTRL_C,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Waiting => "waiting",
            Self::Cancelled | Self::Stopped => "cancelled",
            Self::Paused => "paused",
        }
    }

    pub(super) fn to_json(self, session: &str, run: Option<&str>, record: &Value) -> Value {
        json!({
            "outcome": self.as_str(),
            "exit_code": self.exit().code(),
            "session_id": session,
            "run_id": run,
            "wait_id": record["wait_id"],
        })
    }

    /// What happened and what to do next, from the record that ended the run; `None` if completed.
    pub(super) fn explained(self, session: &str, record: &Value) -> Option<Error> {
        let attach = format!("`piton attach {session}` continues the conversation.");
        let resume = format!("`piton sessions resume {session}`");
        let (message, hint) = match self {
            Self::Completed => return None,
            Self::Failed => (failure(record), failed_hint(record, &resume, attach)),
            Self::Interrupted => (
                format!("The run was interrupted{}", sentence(record)),
                format!("What it had done is in the log; {} continues it.", continued(session)),
            ),
            Self::Waiting => return Some(waiting(session, question(record).as_ref())),
            Self::Cancelled => (format!("The run was cancelled{}", sentence(record)), attach),
            Self::Paused => ("The run was paused".to_owned(), format!("{resume} continues it.")),
            Self::Stopped => ("The run was stopped".to_owned(), attach),
        };
        Some(Error::of_run(self.exit(), message, hint))
    }
}

/// The command that continues an interrupted run.
fn continued(session: &str) -> String {
    format!("`piton sessions resume {session} --continue`")
}

/// The run continues as soon as any client answers.
pub(super) fn waiting(session: &str, question: Option<&Question>) -> Error {
    let Some(question) = question else {
        let hint = format!("`piton sessions waits {session}` shows for what.");
        return Error::of_run(Exit::Waiting, "The run waits".to_owned(), hint);
    };
    let ids: Vec<String> = question.options.iter().map(|(id, _)| one_line(id)).collect();
    let (offered, what) = match ids.as_slice() {
        [] => (String::new(), "TEXT"),
        ids => (format!(" ({})", ids.join(", ")), "OPTION"),
    };
    let message =
        format!("The run waits for an answer: {}{offered}", one_line(&question.request.title));
    let hint = format!(
        "Answer with `piton sessions answer {} {what}`; `piton attach {session}` shows what follows.",
        question.wait_id
    );
    Error::of_run(Exit::Waiting, message, hint)
}

/// The reason, as it follows a sentence.
fn sentence(record: &Value) -> String {
    let reason = serde_json::from_value::<Reason>(record["reason"].clone());
    let activity = serde_json::from_value(record["phase"].clone()).ok();
    let sentence = |reason| format!(". {}", interruption::sentence(reason, activity));
    reason.map_or_else(|_| String::new(), sentence)
}

fn failure(record: &Value) -> String {
    let text = |name: &str| record[name].as_str().map(one_line).filter(|text| !text.is_empty());
    match (text("message"), text("error")) {
        (Some(message), _) => message,
        (None, Some(error)) => format!("The run failed: {error}"),
        (None, None) => "The run failed".to_owned(),
    }
}

fn failed_hint(record: &Value, resume: &str, attach: String) -> String {
    if record["kind"] == "run.failed" {
        return attach;
    }
    format!("`piton agents doctor` looks at agents; {resume} tries again.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;

    fn lines(outcome: Outcome, record: &Value) -> Vec<String> {
        let error = outcome.explained("sess_1", record).unwrap();
        assert_eq!(error.exit, outcome.exit());
        let lines = error.lines(&Call::default());
        lines.into_iter().map(|(label, text)| format!("{label}: {text}")).collect()
    }

    #[test]
    fn every_outcome_has_an_exit_code_of_its_own() {
        let of = |record: Value| Outcome::of(&record, Some("run_1")).map(|o| o.exit().code());
        let ended = |kind: &str| of(json!({"kind": kind, "run_id": "run_1"}));
        assert_eq!(ended("run.completed"), Some(0));
        assert_eq!(ended("run.failed"), Some(1));
        assert_eq!(ended("run.interrupted"), Some(4));
        assert_eq!(ended("run.waiting"), Some(5));
        assert_eq!(ended("run.cancelled"), Some(6));
        assert_eq!(ended("run.paused"), Some(7));
        assert_eq!(Outcome::Stopped.exit().code(), 130);
        assert_eq!(of(json!({"kind": "agent.error"})), Some(1), "it belongs to no run");
        for goes_on in ["run.started", "run.resumed", "message.delta"] {
            assert_eq!(ended(goes_on), None);
        }
        assert_eq!(of(json!({"kind": "run.failed", "run_id": "run_2"})), None, "another run");
    }

    #[test]
    fn an_interruption_says_why_and_how_to_continue() {
        let record = json!({"kind": "run.interrupted", "reason": "process_exit"});
        assert_eq!(
            lines(Outcome::Interrupted, &record),
            [
                "Error: The run was interrupted. The process that ran it ended.",
                "Hint: What it had done is in the log; `piton sessions resume sess_1 --continue` continues it.",
            ]
        );
    }

    #[test]
    fn a_question_names_its_options_and_the_command_that_answers() {
        let record = json!({
            "kind": "run.waiting", "wait_id": "wait_1",
            "question": {"toolCall": {"title": "May I?"},
                         "options": [{"optionId": "y", "name": "Yes"}, {"optionId": "n"}]},
        });
        assert_eq!(
            lines(Outcome::Waiting, &record),
            [
                "Error: The run waits for an answer: May I? (y, n)",
                "Hint: Answer with `piton sessions answer wait_1 OPTION`; `piton attach sess_1` shows \
                 what follows.",
            ]
        );
    }

    #[test]
    fn a_failure_is_reported_in_the_words_of_its_source() {
        let record = json!({"kind": "agent.error", "message": "It ended\noops"});
        assert_eq!(lines(Outcome::Failed, &record)[0], "Error: It ended oops");
        let record = json!({"kind": "run.failed", "error": "no credit"});
        assert_eq!(lines(Outcome::Failed, &record)[0], "Error: The run failed: no credit");
        assert_eq!(
            lines(Outcome::Failed, &json!({"kind": "run.failed"}))[0],
            "Error: The run failed"
        );
    }
}
