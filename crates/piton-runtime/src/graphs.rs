//! Graphs that run in this process. A graph's run is the one writer of its session while it runs: whatever
//! the coordinator would write there is decided by the run instead.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_core::Code;
use piton_core::id::SessionId;
use piton_graph::RunHandle;
use tokio::sync::{Notify, watch};

use crate::error::{Error, Result};
use crate::session::{Ack, Work};

/// The runs of this process, by session; and the sessions whose graphs are to continue.
#[derive(Debug, Default)]
pub(crate) struct HostedGraphs {
    runs: Mutex<HashMap<SessionId, Started>>,
    due: Mutex<VecDeque<SessionId>>,
    has_due: Notify,
}

/// The run's handle; `None` while it begins. Its sender is gone when the run has ended.
type Started = watch::Receiver<Option<RunHandle>>;

impl HostedGraphs {
    fn by_session(&self) -> MutexGuard<'_, HashMap<SessionId, Started>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A wait of a graph that a server runs has expired: the graph continues with what its node makes of
    /// that.
    pub(crate) fn note_due(&self, session: SessionId) {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).push_back(session);
        self.has_due.notify_one();
    }

    /// The next session whose graph is to continue.
    pub(crate) async fn next_due(&self) -> SessionId {
        loop {
            let next = self.due.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match next {
                Some(session) => return session,
                None => self.has_due.notified().await,
            }
        }
    }

    pub(crate) fn is_hosted(&self, session: &SessionId) -> bool {
        self.by_session().contains_key(session)
    }

    fn started(&self, session: &SessionId) -> Option<Started> {
        self.by_session().get(session).cloned()
    }

    /// The run of a session; waits while it begins. `None`: no graph runs there.
    pub(crate) async fn run(&self, session: &SessionId) -> Option<RunHandle> {
        loop {
            let mut started = self.started(session)?;
            // An error: it has ended before it began, and its entry is gone.
            if let Ok(handle) = started.wait_for(Option::is_some).await {
                return handle.clone();
            }
        }
    }

    /// Resolves when no graph runs in the session.
    pub(crate) async fn ended(&self, session: &SessionId) {
        while let Some(mut started) = self.started(session) {
            while started.changed().await.is_ok() {}
        }
    }

    /// Declares that a graph is about to run in a session; `None`: one runs there already.
    pub(crate) fn reserve(self: &Arc<Self>, session: &SessionId) -> Option<Reservation> {
        let mut by_session = self.by_session();
        if by_session.contains_key(session) {
            return None;
        }
        let (sender, started) = watch::channel(None);
        by_session.insert(session.clone(), started);
        Some(Reservation { graphs: Arc::clone(self), session: session.clone(), sender })
    }

    /// Has the session's run decide what a client asks for. `None`: no graph runs there.
    pub(crate) async fn forward(&self, session: &SessionId, work: &Work) -> Option<Result<Ack>> {
        loop {
            if !self.is_hosted(session) {
                return None;
            }
            let handle = self.run(session).await?;
            let Work::Execute(command, _) = work else {
                return Some(Err(Error::GraphRunning { session: session.clone() }));
            };
            match handle.execute((**command).clone()).await {
                Ok(Some(decided)) => {
                    let (verdict, last_seq) = (decided.verdict, decided.last_seq);
                    return Some(Ok(Ack { verdict, last_seq, held_bytes: 0 }));
                }
                // It has ended meanwhile.
                Ok(None) => self.ended(session).await,
                Err(error) if error.code() == Code::RunInProgress => {
                    return Some(Err(Error::GraphRunning { session: session.clone() }));
                }
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

/// A session that a graph runs in, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    graphs: Arc<HostedGraphs>,
    session: SessionId,
    sender: watch::Sender<Option<RunHandle>>,
}

impl Reservation {
    /// The run has begun.
    pub(crate) fn begin(&self, handle: RunHandle) {
        self.sender.send_replace(Some(handle));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Before the sender goes: who waits for the end must not find it again.
        self.graphs.by_session().remove(&self.session);
    }
}
