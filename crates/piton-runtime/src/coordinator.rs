//! Which sessions are in memory, and how a command reaches its session. Owns the tasks: dropping
//! the coordinator ends them, wherever they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_core::Code;
use piton_core::decide::Command;
use piton_core::id::SessionId;
use piton_store::Durability;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::session::{Ack, Answer, Request, Session, Work};
use crate::supervisor::Wake;

/// Commands that may wait for one session.
const INBOX_MAX: usize = 256;
/// How often a command is sent again to a session that left memory under it.
const TRIES_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Coordinator {
    env: Arc<Env>,
    inner: Mutex<Inner>,
}

/// The decision was made on a state that is no longer the session's.
fn outdated(error: &Error) -> bool {
    matches!(error.code(), Code::SeqConflict | Code::EpochStale)
}

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<SessionId, mpsc::Sender<Request>>,
    tasks: JoinSet<()>,
    closed: bool,
}

impl Coordinator {
    pub(crate) fn new(env: Arc<Env>) -> Self {
        Self { env, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides, makes durable, and answers.
    pub(crate) async fn execute(
        &self,
        session: &SessionId,
        command: Command,
        durability: Durability,
    ) -> Result<Ack> {
        self.ask(session, Work::Execute(Box::new(command), durability)).await
    }

    /// Like [`Self::execute`], for the session's supervisor: it knows what became of the execution.
    pub(crate) async fn execute_settled(
        &self,
        session: &SessionId,
        command: Command,
    ) -> Result<Ack> {
        let work = Work::Execute(Box::new(command), Durability::Synced);
        self.ask_when(session, work, true).await
    }

    /// Brings work to its session. One that removes the session ends its task, too.
    pub(crate) async fn ask(&self, session: &SessionId, work: Work) -> Result<Ack> {
        self.ask_when(session, work, false).await
    }

    async fn ask_when(&self, session: &SessionId, work: Work, mut is_settled: bool) -> Result<Ack> {
        let mut last = Error::ShuttingDown;
        for _ in 0..TRIES_MAX {
            // A graph that runs here writes its session's log itself.
            if let Some(forwarded) = self.env.graphs.forward(session, &work).await {
                return forwarded;
            }
            let sender = self.sender(session)?;
            let (reply, answer) = oneshot::channel();
            let request = Request { work: work.clone(), is_settled, reply };
            if sender.send(request).await.is_err() {
                self.forget(session, &sender);
                continue;
            }
            match answer.await {
                // Another process wrote in between, and this command wrote nothing: decide it
                // again.
                Ok(Answer::Settled(Err(error))) if outdated(&error) => {
                    last = error;
                    self.forget(session, &sender);
                }
                Ok(Answer::Settled(result)) => return result,
                Ok(Answer::AskAgain) => self.forget(session, &sender),
                Ok(Answer::Unsettled) => {
                    // If that cannot be found out either, the session's own rules decide.
                    if let Err(error) = self.env.supervisors.settle(session, Wake::Command).await {
                        if matches!(error, Error::ShuttingDown) {
                            return Err(error);
                        }
                        tracing::warn!(%session, code = %error.code(), %error, "the session could not be recovered");
                    }
                    is_settled = true;
                }
                Err(_) => return Err(Error::ShuttingDown),
            }
        }
        Err(last)
    }

    fn sender(&self, session: &SessionId) -> Result<mpsc::Sender<Request>> {
        let mut inner = self.inner();
        if inner.closed {
            return Err(Error::ShuttingDown);
        }
        if let Some(sender) = inner.sessions.get(session).filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        while inner.tasks.try_join_next().is_some() {}
        let (sender, inbox) = mpsc::channel(INBOX_MAX);
        inner.tasks.spawn(Session::run(Arc::clone(&self.env), session.clone(), inbox));
        inner.sessions.insert(session.clone(), sender.clone());
        // Sessions that left memory by themselves leave their names behind.
        if inner.sessions.len() > 2 * inner.tasks.len() + 16 {
            inner.sessions.retain(|_, sender| !sender.is_closed());
        }
        Ok(sender)
    }

    fn forget(&self, session: &SessionId, gone: &mpsc::Sender<Request>) {
        let mut inner = self.inner();
        if inner.sessions.get(session).is_some_and(|sender| sender.same_channel(gone)) {
            inner.sessions.remove(session);
        }
    }

    /// Ends every session's task wherever it is.
    pub(crate) fn abort(&self) {
        let mut inner = self.inner();
        inner.closed = true;
        inner.sessions.clear();
        inner.tasks.abort_all();
    }

    /// Takes no further commands and waits until the accepted ones are durable.
    pub(crate) async fn shut_down(&self) {
        let mut tasks = {
            let mut inner = self.inner();
            inner.closed = true;
            inner.sessions.clear();
            std::mem::take(&mut inner.tasks)
        };
        while tasks.join_next().await.is_some() {}
    }
}
