//! `piton demo`: a worker is killed in the middle of its work, and nothing that was acknowledged is
//! lost or done twice. Everything it prints as true was checked, mostly by another process than the
//! one that claims it; if anything is not so, it says so and fails.

mod stage;
mod wire;
pub(crate) mod worker;

use std::collections::BTreeSet;
use std::fs;
use std::io::IsTerminal as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_core::event::{self, Event, ToolStatus};
use piton_core::id::{RunId, SessionId};
use piton_core::state::Phase;
use piton_core::transcript::{Item, Outcome};
use piton_core::{Code, Record, Seq, status};
use piton_runtime::{SystemClock, View};
use piton_store::sqlite::{self, Access};
use piton_store::{BootLocks, Problem, SqliteStore, Verification};

use self::stage::{Stage, Worker};
use self::wire::{Order, Said};
use crate::error::{Error, Exit, Result};
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton demo                  Watch it
  piton demo --keep ./demo    Keep the data folder, to look at it with `piton --data ./demo`
  piton demo --json           The claims and whether they were true

Exit code: 0 only if every claim it printed was checked and true.";

/// Between two beats, for people who look on.
const PACE_MS: u64 = 55;
/// Pieces of text that are still acknowledged after the question, before the kill.
const PIECES_BEFORE_KILL: usize = 14;

/// Kill an agent in a demonstration and watch its session resume; no API key, no network
///
/// A worker streams work into a session and asks a question. The demo kills it with SIGKILL, starts
/// it again, shows what is known and what is not, resumes the run with a token, and at the end
/// tampers with one byte of the log to see whether `verify` finds it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Keep the data folder here; it must not exist yet [default: a temporary one, removed]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Milliseconds per beat [default: 55 on a terminal, else 0]
    #[arg(long, value_name = "MS")]
    pace: Option<u64>,
}

/// More than the demo's log ever has.
const RECORDS_MAX: usize = 10_000;

/// The state of a running demo.
struct Demo<'a> {
    stage: Stage<'a>,
    folder: PathBuf,
    session: SessionId,
    run: RunId,
    /// As read back before the kill.
    seen: Vec<Record>,
    acked: BTreeSet<Seq>,
    /// The token of the question that ends with the worker that asked it.
    lost_token: String,
}

pub(crate) async fn run(ui: &mut Ui, args: Args) -> Result<Exit> {
    let default = if std::io::stdout().is_terminal() { PACE_MS } else { 0 };
    let pace = Duration::from_millis(args.pace.unwrap_or(default));
    let failed = |e: std::io::Error| {
        Error::new(Code::DemoFailed, "The demo has no folder to work in").because(&e)
    };
    // Removed when it is dropped, unless it was asked for.
    let (folder, _temporary) = if let Some(folder) = &args.keep {
        fs::create_dir(folder).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Error::new(Code::FileExists, format!("{} exists already", folder.display()))
                    .with_hint("Name a folder that does not exist yet with `--keep`.")
            }
            _ => failed(e),
        })?;
        (folder.clone(), None)
    } else {
        let temporary = tempfile::Builder::new().prefix("piton-demo-").tempdir();
        let temporary = temporary.map_err(failed)?;
        (temporary.path().to_owned(), Some(temporary))
    };
    let mut stage = Stage::new(ui, pace);
    stage.step("A worker begins: what you see is read back from its log by another process")?;
    let (worker, _) = Worker::start(&folder, pace)?;
    let (mut demo, worker) = Demo::begin(stage, folder, worker).await?;
    demo.kill(worker).await?;
    let worker = demo.start_again().await?;
    let worker = demo.resume(worker).await?;
    demo.finish(worker).await?;
    demo.tamper().await?;
    demo.end(args.keep.as_deref())
}

/// A read-only view of the folder, while another process writes.
fn look(folder: &Path) -> Result<View> {
    let options = sqlite::Options { access: Access::ReadOnly, ..sqlite::Options::new(folder) };
    let store = Arc::new(SqliteStore::open(options)?);
    Ok(View::new(store, Arc::new(BootLocks::new(folder)), Arc::new(SystemClock)))
}

fn heard(said: &Said) -> Error {
    Error::new(Code::DemoFailed, format!("The worker reported something unexpected: {said:?}"))
}

impl<'a> Demo<'a> {
    /// Work is streamed in until the question is asked and some more was said.
    async fn begin(
        stage: Stage<'a>,
        folder: PathBuf,
        mut worker: Worker,
    ) -> Result<(Self, Worker)> {
        worker.order(&Order::Work)?;
        let (session, run) = match worker.hear()? {
            Said::Started { session, run } => (session, run),
            other => return Err(heard(&other)),
        };
        let view = look(&folder)?;
        let (seen, acked, lost_token) = (Vec::new(), BTreeSet::new(), String::new());
        let mut demo = Self { stage, folder, session, run, seen, acked, lost_token };
        let title = format!("worker {} works on session {}", worker.pid(), demo.session);
        demo.stage.show(Tone::Active, &title)?;
        demo.follow(&view).await?;
        let mut left = PIECES_BEFORE_KILL;
        let mut has_asked = false;
        while left > 0 {
            match worker.hear()? {
                Said::Acked { seq } => {
                    demo.acked.insert(seq);
                    left -= usize::from(has_asked);
                }
                Said::Asked { token, .. } => {
                    has_asked = true;
                    demo.lost_token = token.unwrap_or_default();
                }
                other => return Err(heard(&other)),
            }
            demo.follow(&view).await?;
        }
        Ok((demo, worker))
    }

    /// Shows what the log has more than before.
    async fn follow(&mut self, view: &View) -> Result<()> {
        let after = self.seen.last().map_or(0, |record| record.seq);
        for record in view.records(&self.session, after, 1_000).await? {
            self.show(&record)?;
            self.seen.push(record);
        }
        Ok(())
    }

    fn show(&mut self, record: &Record) -> Result<()> {
        let text = |field| match record.content_field(field) {
            Some(serde_json::Value::String(text)) => text,
            other => other.map(|value| value.to_string()).unwrap_or_default(),
        };
        let line = |what: String| format!("{:>4}  {what}", record.seq);
        match record.event().ok() {
            Some(Event::MessageUser(_)) => {
                let said = line(format!("you: {}", text("content")));
                self.stage.show(Tone::Plain, &said)
            }
            Some(Event::MessageDelta(e)) => {
                let start = if e.offset == 0 { line("agent: ".to_owned()) } else { String::new() };
                let indent = if e.offset == 0 { "   " } else { "" };
                self.stage.stream(&format!("{indent}{start}{}", text("text")))
            }
            Some(Event::MessageCompleted(_)) => self.stage.stream("\n"),
            Some(Event::ToolIntent(e)) => {
                let begins = line(format!("tool {} begins", e.name));
                self.stage.show(Tone::Active, &begins)
            }
            Some(Event::ToolOutcome(e)) => {
                let ended = line(format!("tool ended: {}", status_name(e.status)));
                self.stage.show(Tone::Active, &ended)
            }
            Some(Event::RunWaiting(_)) => {
                let asks = line(format!("agent asks: {}", text("question")));
                self.stage.show(Tone::Attention, &asks)
            }
            _ => Ok(()),
        }
    }

    async fn kill(&mut self, worker: Worker) -> Result<()> {
        let pid = worker.pid();
        for said in worker.kill()? {
            if let Said::Acked { seq } = said {
                self.acked.insert(seq);
            }
        }
        self.stage.stream("\n")?;
        self.stage.step("kill -9, in the middle of a sentence")?;
        self.stage.show(Tone::Bad, &format!("worker {pid} was killed: it could not clean up"))?;
        let view = look(&self.folder)?;
        let state = view.state(&self.session).await?;
        let before = view.records(&self.session, 0, RECORDS_MAX).await?;
        let status = view.status(&state.facts);
        let text =
            format!("without a server, the log alone gives the right status: {}", status.name);
        let unwritten = view.records(&self.session, 0, RECORDS_MAX).await? == before
            && !before.iter().any(|record| &*record.kind == "run.interrupted");
        self.stage.claim(&text, is_interrupted(status.name) && unwritten)?;
        self.check_acked(&view, "every acknowledged record is there").await
    }

    /// Every acknowledged record is there, once and in order, as it was first read.
    async fn check_acked(&mut self, view: &View, what: &str) -> Result<()> {
        let now = view.records(&self.session, 0, RECORDS_MAX).await?;
        let in_order = now.iter().zip(1..).all(|(record, seq)| record.seq == seq);
        let same = now.get(..self.seen.len()) == Some(&self.seen[..]);
        let last = now.last().map_or(0, |record| record.seq);
        let there = self.acked.iter().all(|seq| *seq <= last);
        let text = format!("{what}, once and in order ({} of them)", self.acked.len());
        self.stage.claim(&text, in_order && same && there && !self.acked.is_empty())
    }

    async fn start_again(&mut self) -> Result<Worker> {
        self.stage.step("A new worker starts and recovers the session")?;
        let (mut worker, recovered) = Worker::start(&self.folder, self.stage.pace)?;
        self.stage.claim("it finds one interrupted run", recovered == 1)?;
        let view = look(&self.folder)?;
        self.check_acked(&view, "it still has every acknowledged record").await?;
        let interruptions = self.interruptions(&view).await?;
        self.stage.claim("the log has exactly one run.interrupted", interruptions == 1)?;
        let items = view.transcript(&self.session).await?;
        for item in &items {
            match item {
                Item::Tool { name: Some(name), outcome: Outcome::Known { .. }, .. } => {
                    self.stage.show(Tone::Good, &format!("known:   {name} has ended"))?;
                }
                Item::Tool { name: Some(name), outcome: Outcome::Unknown, .. } => {
                    let text = format!("unknown: {name} had begun; the log has no result");
                    self.stage.show(Tone::Attention, &text)?;
                }
                _ => {}
            }
        }
        let unknown = |item: &&Item| {
            matches!(item, Item::Tool { name, outcome: Outcome::Unknown, .. }
                if name.as_deref() == Some("run_tests"))
        };
        let unknowns = items.iter().filter(unknown).count();
        self.stage.claim("the test run is unknown and was not silently repeated", unknowns == 1)?;
        let partial = |item: &&Item| matches!(item, Item::Agent { complete: false, .. });
        let partials = items.iter().filter(partial).count();
        self.stage.claim("the partial answer is kept and marked as partial", partials == 1)?;
        let state = view.state(&self.session).await?;
        let waits = state.facts.run.as_ref().map_or(0, |run| run.waits.len());
        worker.order(&self.present(&self.lost_token, "yes"))?;
        let revoked = match worker.hear()? {
            Said::Refused { code } => code == Code::ResumeTokenRevoked.as_str(),
            _ => false,
        };
        let text = "the dead worker's question is closed and its token revoked";
        self.stage.claim(text, waits == 0 && revoked)?;
        Ok(worker)
    }

    async fn interruptions(&self, view: &View) -> Result<usize> {
        let records = view.records(&self.session, 0, RECORDS_MAX).await?;
        let of_run = |record: &&Record| matches!(record.event(), Ok(Event::RunInterrupted(e)) if e.run_id == self.run);
        Ok(records.iter().filter(of_run).count())
    }

    fn present(&self, token: &str, answer: &str) -> Order {
        let (session, token) = (self.session.clone(), token.to_owned());
        Order::Present { session, token, answer: answer.to_owned() }
    }

    async fn resume(&mut self, mut worker: Worker) -> Result<Worker> {
        self.stage.step("A single-use token resumes the run")?;
        worker.order(&Order::MintToken { session: self.session.clone() })?;
        let token = match worker.hear()? {
            Said::Token { token } => token,
            other => return Err(heard(&other)),
        };
        let shown: String = token.chars().take(20).collect();
        self.stage.show(Tone::Active, &format!("{shown}…"))?;
        let secret = token.split('.').next_back().unwrap_or(&token).as_bytes();
        self.stage.claim("the store's files do not contain its secret", !self.holds(secret)?)?;
        let forged = format!("{}{}", &token[..token.len() - 1], other_digit(&token));
        worker.order(&self.present(&forged, "continue"))?;
        let refused = matches!(worker.hear()?, Said::Refused { .. });
        self.stage.claim("a token with one changed digit is refused", refused)?;
        worker.order(&self.present(&token, "continue"))?;
        let first = match worker.hear()? {
            Said::Resumed { seq, replayed: false } => seq,
            other => return Err(heard(&other)),
        };
        self.stage.claim("the run continues under its old id", self.is_running().await?)?;
        let before = self.last_seq().await?;
        worker.order(&self.present(&token, "continue"))?;
        let again = matches!(worker.hear()?, Said::Resumed { seq, replayed: true } if seq == first)
            && self.last_seq().await? == before;
        self.stage.claim(
            "used again with the same answer, it returns the first result and changes nothing",
            again,
        )?;
        worker.order(&self.present(&token, "something else"))?;
        let consumed = match worker.hear()? {
            Said::Refused { code } => code == Code::ResumeTokenConsumed.as_str(),
            _ => false,
        };
        self.stage
            .claim("used with another answer, it is refused: resume_token_consumed", consumed)?;
        let view = look(&self.folder)?;
        let resumed = view.records(&self.session, 0, RECORDS_MAX).await?;
        let resumed = resumed.iter().filter(|r| &*r.kind == "run.resumed").count();
        self.stage.claim("the log has one run.resumed", resumed == 1)?;
        Ok(worker)
    }

    async fn last_seq(&self) -> Result<Seq> {
        Ok(look(&self.folder)?.state(&self.session).await?.last_seq)
    }

    /// Whether any file of the store holds these bytes.
    fn holds(&self, needle: &[u8]) -> Result<bool> {
        let failed = |e: std::io::Error| {
            Error::new(Code::DemoFailed, "The store's files cannot be read").because(&e)
        };
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_file() {
                let bytes = fs::read(path).map_err(failed)?;
                if bytes.windows(needle.len()).any(|window| window == needle) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    async fn is_running(&self) -> Result<bool> {
        let view = look(&self.folder)?;
        let state = view.state(&self.session).await?;
        let same = state.facts.run.as_ref().is_some_and(|run| run.run_id == self.run);
        Ok(same && view.status(&state.facts).name == status::Name::Running)
    }

    async fn finish(&mut self, mut worker: Worker) -> Result<()> {
        self.stage
            .step("The worker checks the unknown tool call, asks again, and gets an answer")?;
        let view = look(&self.folder)?;
        self.seen = view.records(&self.session, 0, RECORDS_MAX).await?;
        let (session, run) = (self.session.clone(), self.run.clone());
        worker.order(&Order::GoOn { session: session.clone(), run: run.clone() })?;
        let token = loop {
            match worker.hear()? {
                Said::Acked { seq } => drop(self.acked.insert(seq)),
                Said::Asked { token: Some(token), .. } => break token,
                other => return Err(heard(&other)),
            }
            self.follow(&view).await?;
        };
        self.follow(&view).await?;
        worker.order(&self.present(&token, "yes"))?;
        let answered = matches!(worker.hear()?, Said::Resumed { replayed: false, .. });
        self.stage.show(Tone::Plain, "      you: yes")?;
        self.stage.claim("the answer is accepted with the token of the question", answered)?;
        worker.order(&Order::Finish { session, run })?;
        loop {
            match worker.hear()? {
                Said::Acked { seq } => drop(self.acked.insert(seq)),
                Said::Finished => break,
                other => return Err(heard(&other)),
            }
            self.follow(&view).await?;
        }
        // The last process to close the store leaves it in one file, which the next step needs.
        drop(view);
        let ended = worker.dismiss()?;
        let view = look(&self.folder)?;
        self.stage.claim("the worker exits with its work done", ended)?;
        self.check_acked(&view, "every acknowledged record is there").await?;
        let once = self.interruptions(&view).await? == 1;
        let state = view.state(&self.session).await?;
        let completed = Phase::Ended(event::Outcome::Completed);
        let done = view.status(&state.facts).name == status::Name::Idle
            && state.facts.run.as_ref().is_some_and(|run| run.phase == completed);
        let text = "the log has one interruption, and the run is completed";
        self.stage.claim(text, once && done)
    }

    async fn tamper(&mut self) -> Result<()> {
        self.stage.step("One byte of the log is edited")?;
        let sound = self.verify().await?;
        let text = format!("before: verify finds {} good records", sound.good_to);
        self.stage.claim(&text, sound.problem.is_none())?;
        let records = look(&self.folder)?.records(&self.session, 0, RECORDS_MAX).await?;
        let edited = |record: &&Record| record.header.contains("edit_file");
        let edited = records.iter().find(edited).map(|record| record.seq);
        let seq = edited
            .ok_or_else(|| Error::new(Code::DemoFailed, "The log lacks the record to edit"))?;
        let byte = Byte::find(&self.folder.join("store.sqlite3"), b"\"edit_file\"")?;
        byte.write(b'E')?;
        self.stage.show(Tone::Bad, "edit_file → Edit_file")?;
        let found = self.verify().await?;
        let caught =
            found.problem == Some(Problem::ChainBroken { seq }) && found.good_to == seq - 1;
        let text = format!(
            "verify names record {seq} as the first bad one; the {} before it are good",
            seq - 1
        );
        self.stage.claim(&text, caught)?;
        byte.write(b'e')?;
        let mended = self.verify().await?;
        self.stage.claim("with the byte restored, all records are good again", mended == sound)
    }

    async fn verify(&self) -> Result<Verification> {
        Ok(look(&self.folder)?.store().verify(&self.session).await?)
    }

    fn end(mut self, kept: Option<&Path>) -> Result<Exit> {
        let (claims, untrue) = (self.stage.claims, self.stage.untrue);
        let text = match untrue {
            0 => format!("{claims} claims, all checked and true."),
            _ => format!("{untrue} of {claims} claims were NOT true."),
        };
        self.stage.close(&text, untrue == 0, kept)?;
        Ok(if untrue == 0 { Exit::Good } else { Exit::Failed })
    }
}

fn is_interrupted(name: status::Name) -> bool {
    matches!(name, status::Name::InterruptedStartup | status::Name::InterruptedWaiting)
}

fn status_name(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Succeeded => "succeeded",
        ToolStatus::Failed => "failed",
        ToolStatus::Cancelled => "cancelled",
        ToolStatus::Unknown => "unknown",
    }
}

/// Another last digit than a token's own.
fn other_digit(token: &str) -> char {
    if token.ends_with('0') { '1' } else { '0' }
}

/// One byte of a file.
struct Byte {
    file: fs::File,
    at: u64,
}

impl Byte {
    /// The first letter of the only occurrence of a quoted word.
    fn find(path: &Path, word: &[u8]) -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::new(Code::DemoFailed, "The store's file cannot be edited").because(&e)
        };
        let bytes = fs::read(path).map_err(failed)?;
        let mut places =
            bytes.windows(word.len()).enumerate().filter(|(_, window)| *window == word);
        let (Some((at, _)), None) = (places.next(), places.next()) else {
            let message = "The store's file does not hold the record's header exactly once";
            return Err(Error::new(Code::DemoFailed, message));
        };
        let file = fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
        Ok(Self { file, at: at as u64 + 1 })
    }

    fn write(&self, byte: u8) -> Result<()> {
        let written = self.file.write_all_at(&[byte], self.at).and_then(|()| self.file.sync_all());
        written.map_err(|e| {
            Error::new(Code::DemoFailed, "The store's file cannot be edited").because(&e)
        })
    }
}
