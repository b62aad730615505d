//! The runs of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use piton_core::id::SessionId;
use piton_graph::{Run, RunHandle};
use tokio::task::JoinHandle;

/// How long runs may take to come to a safe point when the client has left.
const PAUSE_WAIT: Duration = Duration::from_secs(10);

/// Runs that tools started. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs(Arc<Mutex<RunsBySession>>);

type RunsBySession = HashMap<SessionId, (RunHandle, JoinHandle<()>)>;

impl Runs {
    /// Runs until it ends or waits; the log says what became of it.
    pub(super) fn spawn(&self, run: Run) {
        let (session, handle) = (run.session().clone(), run.handle());
        let ended = session.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = Box::pin(run.finish()).await {
                tracing::error!(session = %ended, code = %error.code(), %error, "a run stopped");
            }
        });
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|_, (_, task)| !task.is_finished());
        runs.insert(session, (handle, task));
    }

    /// The run of a session, if it runs here.
    pub(super) fn handle(&self, session: &SessionId) -> Option<RunHandle> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (handle, task) = runs.get(session)?;
        (!task.is_finished()).then(|| handle.clone())
    }

    /// Resolves when the session does not run here any more.
    pub(super) async fn ended(&self, session: &SessionId) {
        let run = {
            let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            runs.remove(session)
        };
        if let Some((_, task)) = run {
            // One that panicked has ended.
            let _ = task.await;
        }
    }

    /// Pauses what runs and waits for it, not for ever: what is cut off can be resumed, too.
    pub(super) async fn pause_all(&self) {
        let runs: Vec<_> = {
            let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            runs.drain().map(|(_, run)| run).collect()
        };
        for (handle, _) in &runs {
            handle.pause();
        }
        let ending = async {
            for (_, task) in runs {
                // One that panicked has ended.
                let _ = task.await;
            }
        };
        // Those that take longer end with the process.
        let _ = tokio::time::timeout(PAUSE_WAIT, ending).await;
    }
}
