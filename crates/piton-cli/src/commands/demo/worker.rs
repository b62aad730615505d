//! The process that does the work and gets killed: a session service, with a script in place of an
//! agent. It executes the orders on its standard input and ends when that is closed.

use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use piton_core::decide::Command;
use piton_core::event::{ToolStatus, WaitKind};
use piton_core::id::{MessageId, RunId, SessionId};
use piton_core::token::ResumeToken;
use piton_core::{Code, Seq};
use piton_runtime::{
    Ack, Driver, EffectJob, Handle, Ids, NewSession, Options, Outcome, Question, Service,
    SystemClock,
};
use piton_store::{BootLocks, BoxFuture, OsEntropy, SqliteStore, sqlite};
use serde_json::json;
use tokio::sync::mpsc;

use super::wire::{Order, Said};
use crate::error::{Error, Exit, Result};

/// What it is saying when it is killed.
const UNFINISHED: &str = "While the tests run, this is what I changed: the test took the date of \
    the local clock and compared it with one that was made from UTC, which is right for most of the \
    day and wrong for the last hours of it, depending on where the machine stands. Both sides are \
    UTC now, and the time is handed in instead of being asked for in the middle of the test, so that";

/// The demo's worker
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its data folder
    folder: PathBuf,
    /// Milliseconds between two pieces of text
    #[arg(long, default_value_t = 0)]
    pace: u64,
}

/// Does nothing: the script takes the place of an agent.
#[derive(Debug)]
struct Scripted;

impl Driver for Scripted {
    fn perform(&self, _job: EffectJob) -> BoxFuture<bool> {
        Box::pin(std::future::ready(true))
    }

    fn is_live(&self, _session: &SessionId) -> bool {
        true
    }
}

struct Worker {
    handle: Handle,
    pace: Duration,
}

pub(crate) async fn run(args: Args) -> Result<Exit> {
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(OsEntropy));
    let locks = BootLocks::new(&args.folder);
    let alive = locks.hold(ids.boot()?)?;
    let store = Arc::new(SqliteStore::open(sqlite::Options::new(&args.folder))?);
    let options = Options {
        driver: Arc::new(Scripted),
        ..Options::new(alive.boot().clone(), store, Arc::new(locks), Arc::new(OsEntropy))
    };
    let mut recovered = 0;
    let service = Service::start(options, |one| {
        recovered += usize::from(one.outcome == Outcome::Settled);
    })
    .await?;
    say(&Said::Ready { recovered })?;
    let worker = Worker { handle: service.handle(), pace: Duration::from_millis(args.pace) };
    let mut orders = orders();
    let mut next = orders.recv().await;
    while let Some(order) = next {
        let order = order?;
        // Stop the current order when standard input is closed.
        let done = tokio::select! {
            done = worker.obey(order) => done,
            order = orders.recv() => {
                next = order;
                continue;
            }
        };
        match done {
            Ok(()) => {}
            Err(error) => match error.code() {
                Some(code) => say(&Said::Refused { code: code.as_str().to_owned() })?,
                None => return Err(error),
            },
        }
        next = orders.recv().await;
    }
    service.shut_down().await;
    Ok(Exit::Good)
}

/// One write: a line is read whole or not at all.
fn say(said: &Said) -> Result<()> {
    let mut line = serde_json::to_string(said).map_err(io::Error::from)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

/// Standard input, read on a thread of its own: a read blocks.
fn orders() -> mpsc::Receiver<Result<Order>> {
    let (send, orders) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let order = line.and_then(|line| serde_json::from_str(&line).map_err(io::Error::from));
            if send.blocking_send(order.map_err(Error::from)).is_err() {
                return;
            }
        }
    });
    orders
}

impl Worker {
    async fn obey(&self, order: Order) -> Result<()> {
        match order {
            Order::Work => self.work().await,
            Order::MintToken { session } => {
                let token = self.handle.interruption_token(&session, None).await?;
                say(&Said::Token { token: token.reveal() })
            }
            Order::Present { session, token, answer } => {
                let token: ResumeToken = token
                    .parse()
                    .map_err(|_| Error::new(Code::ResumeTokenNotFound, "That is not a token"))?;
                let handle = &self.handle;
                let done = handle.answer_with_token(Some(&session), token, json!(answer)).await?;
                say(&Said::Resumed { seq: done.result_seq, replayed: done.replayed })
            }
            Order::GoOn { session, run } => self.go_on(&session, &run).await,
            Order::Finish { session, run } => self.finish(&session, &run).await,
        }
    }

    async fn work(&self) -> Result<()> {
        let title = Some("Fix the flaky clock test".to_owned());
        let session = self.handle.create(NewSession { title, ..NewSession::default() }).await?;
        let prompt = "tests/clock.rs fails every night between eleven and midnight. Fix it.";
        let run = self.handle.prompt(&session, prompt).await?;
        say(&Said::Started { session: session.clone(), run: run.clone() })?;
        let first = self.handle.ids().message()?;
        let text = "The test compares a local date with a UTC one. I will look at it first.";
        self.stream(&session, &first, text).await?;
        self.said(&session, &first, text).await?;
        self.tool(&session, &run, "read_file", "tests/clock.rs").await?;
        self.tool(&session, &run, "edit_file", "tests/clock.rs").await?;
        // Its outcome never comes.
        self.intend(&session, &run, "run_tests", "cargo test clock").await?;
        self.ask(&session, &run).await?;
        let second = self.handle.ids().message()?;
        self.stream(&session, &second, UNFINISHED).await?;
        // The demo kills it long before; if not, it waits for that.
        std::future::pending().await
    }

    /// What the run had left: its unknown call is looked into, not repeated blindly.
    async fn go_on(&self, session: &SessionId, run: &RunId) -> Result<()> {
        self.tool(session, run, "git_status", ".").await?;
        self.tool(session, run, "run_tests", "cargo test clock").await?;
        self.ask(session, run).await
    }

    async fn finish(&self, session: &SessionId, run: &RunId) -> Result<()> {
        let last = self.handle.ids().message()?;
        let text = "Pushed. Both sides are UTC now, and the test passed.";
        self.stream(session, &last, text).await?;
        self.said(session, &last, text).await?;
        self.tell(session, Command::Complete { run_id: run.clone() }).await?;
        say(&Said::Finished)
    }

    async fn tell(&self, session: &SessionId, command: Command) -> Result<Ack> {
        let ack = self.handle.execute(session, command).await?;
        acked(ack.last_seq)?;
        Ok(ack)
    }

    async fn stream(&self, session: &SessionId, message: &MessageId, text: &str) -> Result<()> {
        for piece in text.split_inclusive(' ') {
            tokio::time::sleep(self.pace).await;
            let (message_id, text) = (message.clone(), piece.to_owned());
            self.tell(session, Command::Say { message_id, offset: None, text }).await?;
        }
        Ok(())
    }

    async fn said(&self, session: &SessionId, message: &MessageId, text: &str) -> Result<()> {
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        let command = Command::EndMessage { message_id: message.clone(), hash };
        self.tell(session, command).await.map(drop)
    }

    async fn intend(
        &self,
        session: &SessionId,
        run: &RunId,
        name: &str,
        of: &str,
    ) -> Result<piton_core::id::CallId> {
        let call_id = self.handle.ids().call()?;
        tokio::time::sleep(self.pace).await;
        let command = Command::Intend {
            run_id: run.clone(),
            call_id: call_id.clone(),
            name: name.to_owned(),
            arguments: json!({"of": of}),
        };
        self.tell(session, command).await?;
        Ok(call_id)
    }

    async fn tool(&self, session: &SessionId, run: &RunId, name: &str, of: &str) -> Result<()> {
        let call_id = self.intend(session, run, name, of).await?;
        tokio::time::sleep(self.pace * 2).await;
        let (run_id, status) = (run.clone(), ToolStatus::Succeeded);
        let result = json!("done");
        self.tell(session, Command::Conclude { run_id, call_id, status, result }).await?;
        Ok(())
    }

    async fn ask(&self, session: &SessionId, run: &RunId) -> Result<()> {
        let question = Question {
            run_id: run.clone(),
            wait_id: None,
            kind: WaitKind::Permission,
            timeout: None,
            question: json!("May I push if the tests pass?"),
        };
        let asked = self.handle.ask(session, question).await?;
        say(&Said::Asked { wait: asked.wait_id, token: asked.token.map(|token| token.reveal()) })
    }
}

fn acked(seq: Seq) -> Result<()> {
    say(&Said::Acked { seq })
}
