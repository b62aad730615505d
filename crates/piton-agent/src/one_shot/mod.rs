//! What an agent prints that speaks no protocol: each of its turns is a process, which is given the
//! prompt, prints, and ends. Spawns nothing and executes nothing: the owner of the process gives
//! its output here, and it is kept in the same words, as masked and in the same order, as what an agent
//! says over the protocol ([`crate::acp`]).
//!
//! - `text`: bytes to text, however they are cut
//! - `stream_json`: a line of JSON to what it says
//! - `handle`: which conversation the next turn resumes
//!
//! In [`Fact::Update`] the field `what` is one of those that [`crate::acp`] has; unknown types are
//! `unknown:TYPE`, or `unknown:system/SUBTYPE`.

mod handle;
mod stream_json;
mod text;

use std::sync::Arc;

use piton_core::Code;
use piton_core::id::RunId;
use piton_core::mask::Masker;
use piton_core::spool::{Fact, OpenedAs};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Mutex;

use crate::Journal;
use crate::acp::recorder::Recorder;
use crate::acp::{Error, Limits, MakeIds, Refusal, refusal};
use crate::lines::{Line, Lines};
use stream_json::Word;

pub use handle::{Handle, ResumeSupport, Target, is_good};
pub use stream_json::Outcome;

const PIECE_BYTES: usize = 64 * 1024;
/// Of a text, so much is held to see whether it is nothing but a refusal.
const BEGINNING_BYTES_MAX: usize = 4 * 1024;
/// The code under which the words of a refusal count, whatever the agent's exit code was: they have
/// to name the conversation.
const REFUSAL_ERROR_CODE: i64 = -32603;

#[derive(Clone, Debug)]
pub struct Options {
    pub masker: Arc<Masker>,
    pub journal: Arc<dyn Journal>,
    pub ids: Arc<dyn MakeIds>,
    /// Those of them that are about what an agent says.
    pub limits: Limits,
    pub resumes: ResumeSupport,
}

/// What an agent prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Its answer.
    Text,
    /// A message on each line, in the manner of `claude -p --output-format stream-json`.
    StreamJson,
}

/// What there is to know of a turn when its output has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnOutput {
    /// Whether it said or did anything that belongs to an answer.
    pub is_something: bool,
    /// How a text began.
    pub beginning: String,
    /// What it said of its own end.
    pub outcome: Option<Outcome>,
    /// The agent's own id of the last message that it said.
    pub message_id: Option<String>,
}

/// A conversation whose turns are processes. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Conversation {
    inner: Arc<Mutex<Inner>>,
    limits: Limits,
    resumes: ResumeSupport,
}

#[derive(Debug)]
struct Inner {
    recorder: Recorder,
    handle: Handle,
    resumes: ResumeSupport,
}

impl Conversation {
    pub fn new(options: Options, handle: Handle) -> Self {
        let Options { masker, journal, ids, limits, resumes } = options;
        let recorder = Recorder::new(journal, ids, masker, &limits);
        Self { inner: Arc::new(Mutex::new(Inner { recorder, handle, resumes })), limits, resumes }
    }

    pub fn resumes(&self) -> ResumeSupport {
        self.resumes
    }

    /// Notes that it can be given a turn.
    pub async fn begin(&self, opened_as: OpenedAs, asked_id: Option<String>) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        inner.recorder.set_opened(opened_as, asked_id, &Value::Null);
        inner.recorder.keep().await
    }

    /// Which conversation the next turn resumes.
    pub async fn handle(&self) -> Handle {
        self.inner.lock().await.handle.clone()
    }

    /// The agent will call its new conversation so. Noted when it has said something: before that
    /// there may be no such conversation.
    pub async fn choose(&self, id: String) {
        self.inner.lock().await.handle.choose(id);
    }

    /// Resolves when the beginning of a turn is kept: only then may a process be started for it.
    pub async fn turn_started(&self, run_id: RunId) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        inner.recorder.turn_started(run_id);
        inner.recorder.keep().await
    }

    /// Until the output ends. What was read is kept before more is.
    pub async fn read<R>(&self, format: Format, output: R) -> Result<TurnOutput, Error>
    where
        R: AsyncRead + Unpin,
    {
        match format {
            Format::Text => self.read_text(output).await,
            Format::StreamJson => self.read_lines(output).await,
        }
    }

    async fn read_text<R: AsyncRead + Unpin>(&self, mut output: R) -> Result<TurnOutput, Error> {
        let mut said = TurnOutput::default();
        let mut decoder = text::Decoder::default();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = match output.read(&mut piece).await {
                Ok(read) => read,
                // A pipe whose other end died may say so instead of ending.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => 0,
                Err(error) => return Err(Error::Io { kind: error.kind() }),
            };
            let text = if read > 0 { decoder.push(&piece[..read]) } else { decoder.finish() };
            if !text.is_empty() {
                let room = BEGINNING_BYTES_MAX.saturating_sub(said.beginning.len());
                said.beginning.push_str(&text[..text.floor_char_boundary(room)]);
                said.is_something = true;
                let mut inner = self.inner.lock().await;
                inner.note_chosen();
                inner.recorder.apply_update(answer(&text), None);
                inner.recorder.keep().await?;
            }
            if read == 0 {
                return Ok(said);
            }
        }
    }

    async fn read_lines<R: AsyncRead + Unpin>(&self, output: R) -> Result<TurnOutput, Error> {
        let mut said = TurnOutput::default();
        let mut lines = Lines::new(output, self.limits.line_bytes_max);
        loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(said),
                Err(error) => return Err(Error::Io { kind: error.kind() }),
            };
            let mut inner = self.inner.lock().await;
            match line {
                Line::TooLong { bytes, .. } => inner.recorder.dropped("line_too_long", bytes),
                Line::Whole(line) => match parse(&line) {
                    Some(event) if event.get("type").is_some_and(Value::is_string) => {
                        for word in stream_json::words(event) {
                            inner.hear(word, &mut said);
                        }
                    }
                    Some(_) => inner.recorder.dropped("not_a_message", line.len() as u64),
                    None => inner.recorder.dropped("not_json", line.len() as u64),
                },
            }
            inner.recorder.keep().await?;
        }
    }

    /// The turn is over, and its process has ended well.
    pub async fn ended(&self, said: TurnOutput, stop_reason: &str) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        inner.note_chosen();
        inner.handle.ended(said.message_id);
        inner.foretell(true);
        inner.recorder.turn_over(Fact::TurnEnded { stop_reason: stop_reason.to_owned() });
        inner.recorder.keep().await
    }

    /// The turn is over because the user cancelled it.
    pub async fn cancelled(&self) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        inner.handle.broken_off();
        inner.foretell(false);
        inner.recorder.turn_over(Fact::TurnEnded { stop_reason: "cancelled".to_owned() });
        inner.recorder.keep().await
    }

    /// The turn came to nothing. `message` ends with what the agent last wrote, masked.
    pub async fn failed(&self, code: Code, message: String) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        inner.handle.broken_off();
        inner.foretell(false);
        inner.recorder.turn_over(Fact::TurnFailed { code: code.into(), message });
        inner.recorder.keep().await
    }

    /// The process was ended in the middle of its turn by something else than us.
    pub async fn interrupted(&self, message: String) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        inner.handle.broken_off();
        inner.foretell(false);
        inner.recorder.cut_off(Fact::TurnFailed { code: Code::AgentClosed.into(), message });
        inner.recorder.keep().await
    }

    /// The agent does not know the conversation that it should resume: the id is dropped, the turn
    /// has failed, and it is not retried.
    pub async fn refused(&self, exit_code: i32, words: &str) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        let words = inner.recorder.mask_text(words);
        let agent_session_id = inner.handle.refuse();
        let (code, message) = (i64::from(exit_code), words.clone());
        inner.recorder.note(Fact::AgentSessionRefused { code, message, agent_session_id });
        if let Some(agent_session_id) = inner.handle.id().map(str::to_owned) {
            inner.recorder.note(Fact::AgentSessionAssigned { agent_session_id });
        }
        let message = format!("The agent does not know the conversation: {words}");
        inner.recorder.turn_over(Fact::TurnFailed { code: Code::SessionRefused.into(), message });
        inner.recorder.keep().await
    }

    /// The agent is ended in the middle of a turn, or between two.
    pub async fn gone(&self) -> Result<(), Error> {
        let mut inner = self.inner.lock().await;
        inner.recorder.gone();
        inner.recorder.keep().await
    }
}

impl Inner {
    fn hear(&mut self, word: Word, said: &mut TurnOutput) {
        match word {
            Word::Update { update, raw } => {
                said.is_something = true;
                self.recorder.apply_update(update, raw);
            }
            Word::Other { what, update } => {
                let what = self.recorder.mask_text(&what);
                self.recorder.other(&what, update);
            }
            Word::Named { id, when } => {
                if self.handle.named(&id, when) {
                    self.recorder.note(Fact::AgentSessionAssigned { agent_session_id: id });
                }
            }
            Word::Message { id } => said.message_id = Some(id),
            Word::Ended { outcome, mut event } => {
                // Some say nothing else, as when a command of their own answers.
                if !outcome.is_error && !said.is_something && !outcome.words.is_empty() {
                    said.is_something = true;
                    self.recorder.apply_update(answer(&outcome.words), None);
                }
                if let (false, Some(event)) = (outcome.is_error, event.as_object_mut()) {
                    // The answer again.
                    event.remove("result");
                }
                self.recorder.other("usage", event);
                said.outcome = Some(outcome);
            }
        }
    }

    /// A turn is over, and its process gone: notes how the next one opens, if it may know less than
    /// this one did. `is_kept` if the turn ended well. Comes before the note of the turn's end: a
    /// reader of that note may send the next prompt at once.
    fn foretell(&mut self, is_kept: bool) {
        let (opened_as, id) = match self.handle.target(self.resumes) {
            Target::New => (OpenedAs::New, None),
            Target::Resume { id, .. } if !is_kept => (OpenedAs::Resumed, id.map(str::to_owned)),
            // A copy is still to be made.
            Target::Resume { .. } | Target::Fork { .. } => return,
        };
        self.recorder.set_opened(opened_as, id, &Value::Null);
    }

    fn note_chosen(&mut self) {
        if let Some(agent_session_id) = self.handle.take_chosen() {
            self.recorder.note(Fact::AgentSessionAssigned { agent_session_id });
        }
    }
}

/// The line by which an agent says that it does not know the conversation `id`, which it was given.
/// In doubt there is none: what it has said or done speaks against it, and only what it wrote as an
/// error counts, or what names the id.
pub fn refusing_line<'a>(said: &'a TurnOutput, errors: &'a str, id: &str) -> Option<&'a str> {
    let is_refusal = |line: &str| {
        // The id itself may hold any word.
        refusal(REFUSAL_ERROR_CODE, &line.replace(id, " ")) == Refusal::Refused
    };
    let outcome = said.outcome.as_ref().filter(|outcome| outcome.is_error);
    let of_outcome = outcome.map(|outcome| outcome.words.as_str()).unwrap_or_default();
    let errors = errors.lines().chain(of_outcome.lines()).filter(|_| !said.is_something);
    let names_it = |line: &&str| !id.is_empty() && line.contains(id);
    let mut lines = errors.chain(said.beginning.lines().filter(names_it));
    lines.find(|line| is_refusal(line)).map(str::trim)
}

fn answer(text: &str) -> Value {
    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } })
}

/// A character that is none must not cost the whole line.
fn parse(line: &[u8]) -> Option<Value> {
    serde_json::from_slice(line).ok().or_else(|| {
        let is_text = std::str::from_utf8(line).is_ok();
        if is_text { None } else { serde_json::from_str(&String::from_utf8_lossy(line)).ok() }
    })
}
