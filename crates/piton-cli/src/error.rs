//! Errors as the user sees them: `Error:`, `Caused by:`, `Hint:`, and the code with its page.

use std::error::Error as StdError;
use std::io::{self, Write};

use piton_api::{Problem, client};
use piton_core::{Code, id};
use serde_json::{Value, json};

use crate::call::Call;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Good,
    /// It could not be done, or what was checked is not good.
    Failed,
    Usage,
    BrokenPipe,
    /// The run stopped without anybody wanting it to, and can be resumed.
    Interrupted,
    /// The run waits for an answer that this command cannot give.
    Waiting,
    /// Another client cancelled the run.
    Cancelled,
    /// Another client paused the run.
    Paused,
    /// Ended by a signal, as the shell would report it.
    Signal(u8),
    Bug,
}

impl Exit {
    /// By SIGINT.
    pub(crate) const CTRL_C: Self = Self::Signal(2);

    /// Of `chat --print`: nothing is left for the run's agent to do.
    pub(crate) fn has_run_ended(self) -> bool {
        matches!(self, Self::Good | Self::Failed | Self::Interrupted | Self::Cancelled)
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::BrokenPipe => 3,
            Self::Interrupted => 4,
            Self::Waiting => 5,
            Self::Cancelled => 6,
            Self::Paused => 7,
            Self::Signal(number) => 128 + number,
            Self::Bug => 255,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) exit: Exit,
    code: Option<Code>,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl Error {
    /// An error of the command line's own, with its code's hint.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let hint = Some(hint_for(code).to_owned());
        Self {
            exit: Exit::Failed,
            code: Some(code),
            message: message.into(),
            causes: Vec::new(),
            hint,
        }
    }

    pub(crate) fn usage(message: &str) -> Self {
        let message = message.strip_prefix("error: ").unwrap_or(message).trim_end().to_owned();
        Self { exit: Exit::Usage, code: None, message, causes: Vec::new(), hint: None }
    }

    /// A run that did not complete, for the command that waits for it.
    pub(crate) fn of_run(exit: Exit, message: String, hint: String) -> Self {
        Self { exit, code: None, message, causes: Vec::new(), hint: Some(hint) }
    }

    fn from_error(code: Code, error: &dyn StdError) -> Self {
        Self { causes: causes(error), ..Self::new(code, error.to_string()) }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the file or session that it is about, if the message does not do so already.
    pub(crate) fn about(mut self, what: &str) -> Self {
        if !self.message.contains(what) {
            self.message = format!("{what}: {}", self.message);
        }
        self
    }

    pub(crate) fn because(mut self, cause: &dyn StdError) -> Self {
        self.causes.push(cause.to_string());
        self.causes.extend(causes(cause));
        self
    }

    pub(crate) fn code(&self) -> Option<Code> {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn to_json(&self, call: &Call) -> Value {
        json!({"error": {
            "code": self.code.map(Code::as_str),
            "message": call.spelled(&self.message),
            "causes": self.causes.iter().map(|cause| call.spelled(cause)).collect::<Vec<_>>(),
            "hint": self.hint.as_deref().map(|hint| call.spelled(hint)),
            "page": self.code.map(page),
        }})
    }

    /// The parts of the text: a label and what follows it.
    pub(crate) fn lines(&self, call: &Call) -> Vec<(&'static str, String)> {
        let mut lines = vec![("Error", call.spelled(&self.message))];
        lines.extend(self.causes.iter().map(|cause| ("Caused by", call.spelled(cause))));
        lines.extend(self.hint.iter().map(|hint| ("Hint", call.spelled(hint))));
        lines.extend(self.code.map(|code| ("Code", format!("{code} (piton explain {code})"))));
        lines
    }
}

/// The command that prints the code's page.
fn page(code: Code) -> String {
    format!("piton explain {code}")
}

/// Some hints can name the very command.
fn hint_for(code: Code) -> &'static str {
    match code {
        Code::SessionNotFound => {
            "Check the id; `piton sessions list` shows which sessions there are."
        }
        Code::WaitNotFound => {
            "`piton sessions waits SESSION` lists the open waits; this one was answered, cancelled, \
             or never asked."
        }
        Code::RecordDamaged | Code::ChainBroken => {
            "`piton verify SESSION` shows the first bad record and what is still good."
        }
        code => code.hint(),
    }
}

fn causes(error: &dyn StdError) -> Vec<String> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes
}

/// What the server says is wrong, with its own hint if that is about more than the code.
impl From<&Problem> for Error {
    fn from(problem: &Problem) -> Self {
        let code = problem.code.known();
        let error = Self::new(code.unwrap_or(Code::ServerUnreachable), problem.to_string());
        let is_codes_own = code.is_some_and(|code| code.hint() == problem.hint);
        if is_codes_own || problem.hint.is_empty() {
            return error;
        }
        error.with_hint(&problem.hint)
    }
}

impl From<client::Error> for Error {
    fn from(error: client::Error) -> Self {
        match &error {
            client::Error::Problem(problem) => Self::from(&**problem),
            _ => Self::from_error(error.code().unwrap_or(Code::ServerUnreachable), &error),
        }
    }
}

impl From<piton_runtime::Error> for Error {
    fn from(error: piton_runtime::Error) -> Self {
        Self::from_error(error.code(), &error)
    }
}

impl From<piton_graph::Error> for Error {
    fn from(error: piton_graph::Error) -> Self {
        Self::from_error(error.code(), &error).with_hint(error.hint())
    }
}

impl From<piton_store::Error> for Error {
    fn from(error: piton_store::Error) -> Self {
        Self::from_error(error.code(), &error)
    }
}

impl From<id::Error> for Error {
    fn from(error: id::Error) -> Self {
        Self::from_error(error.code(), &error)
    }
}

impl From<piton_core::record::Error> for Error {
    fn from(error: piton_core::record::Error) -> Self {
        Self::from_error(error.code(), &error)
    }
}

/// Output is all that the command line itself does to files.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::BrokenPipe => Exit::BrokenPipe,
            _ => Exit::Failed,
        };
        let message = "The output could not be written".to_owned();
        Self { exit, code: None, message, causes: vec![error.to_string()], hint: None }
    }
}

/// A panic is a bug: says what to report instead of what Rust thinks of it.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let what = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let place = panic.location().map_or_else(String::new, ToString::to_string);
        let version = env!("CARGO_PKG_VERSION");
        let text = format!(
            "Error: Piton has a bug: {what}\n\
             Hint: Nothing that was acknowledged is lost. Please report this text, what you did, \
             and these lines:\n  piton {version}, {} {}\n  {place}\n",
            std::env::consts::OS,
            std::env::consts::ARCH,
        );
        // The terminal client ends with the main thread: what it drew would hide the report.
        if std::thread::current().name() == Some("main") {
            let _ = crate::terminal::leave_full();
        }
        // Without stderr there is no other place to report to.
        let _ = io::stderr().write_all(text.as_bytes());
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(fields: &Value) -> Error {
        let mut whole = json!({"type": "", "status": 404, "title": "There is no wait w"});
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Error::from(&serde_json::from_value::<Problem>(whole).unwrap())
    }

    fn hint(error: &Error) -> String {
        let lines = error.lines(&Call::default());
        lines.into_iter().find(|(label, _)| *label == "Hint").unwrap().1
    }

    #[test]
    fn a_problem_is_shown_with_code_sentence_and_hint() {
        let known = problem(&json!({
            "code": "wait_not_found", "detail": "really", "hint": Code::WaitNotFound.hint(),
        }));
        assert_eq!(known.code(), Some(Code::WaitNotFound));
        assert_eq!(known.message(), "There is no wait w: really");
        assert_eq!(hint(&known), hint_for(Code::WaitNotFound), "the command line's own words");
        let elsewhere = Call::on(std::path::Path::new("/elsewhere"));
        let choice = problem(
            &json!({"code": "wait_not_found", "detail": "Retry: `piton sessions resume s`"}),
        );
        let message = &choice.lines(&elsewhere)[0].1;
        assert!(message.contains(" --data /elsewhere sessions resume s`"), "{message}");
        let special = problem(&json!({"code": "wait_not_found", "hint": "Do that."}));
        assert_eq!(hint(&special), "Do that.");
        // A newer server's code is not known here; its hint is.
        let newer = problem(&json!({"code": "newer", "hint": "Do this."}));
        assert_eq!(
            (newer.code(), hint(&newer).as_str()),
            (Some(Code::ServerUnreachable), "Do this.")
        );
    }
}
