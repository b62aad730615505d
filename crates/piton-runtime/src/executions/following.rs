//! One follower per execution: what agentctl says is imported, and acknowledged when it is
//! durable. A lost connection is made again; an execution that is gone is settled.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::time::Duration;

use piton_core::decide::{Command, Import, Probe};
use piton_core::event::ExecutorUnreachable;
use piton_core::id::{ExecutionId, SessionId};
use piton_core::limits::{DELTA_BYTES_MAX, IMPORT_BYTES_MAX, IMPORT_ENTRIES_MAX};
use piton_core::planted::{self, Bug};
use piton_core::spool::{Entry, Fact};
use piton_core::state::{Executor, Run};
use piton_core::{Code, State};
use piton_exec::executor::{At, Fault, Following, Found};
use piton_exec::protocol::{Frame, Problem};
use tokio::time::Instant;

use super::{Executions, PROTOCOL_UNSUPPORTED, not_ours, observe, recover};
use crate::error::{Error, Result};
use crate::service::Handle;

/// Text waits so long for more of it, so that it shares a record and a flush.
const WINDOW: Duration = Duration::from_millis(40);
const AGAIN_MIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// Why a stream is not followed any more.
enum Over {
    /// The connection is lost, or the log is elsewhere: begin again at the cursor.
    Again,
    /// The session is not this process's.
    NotOurs,
}

impl Executions {
    /// Follows an execution, once.
    pub(super) fn follow(&self, session: &SessionId, execution: &ExecutionId) {
        let mut followed = self.followed();
        let known = followed.by_session.get(session) == Some(execution);
        if known || followed.closed {
            return;
        }
        while followed.tasks.try_join_next().is_some() {}
        followed.by_session.insert(session.clone(), execution.clone());
        let (executions, session, execution) = (self.clone(), session.clone(), execution.clone());
        followed.tasks.spawn(async move {
            loop {
                let kept = executions.keep_following(&session, &execution).await;
                executions.followed().is_dead(&session, &execution);
                let Err(error) = kept else { break };
                if not_ours(&error) {
                    break;
                }
                tracing::error!(%session, %execution, code = %error.code(), %error, "execution not followed");
                if !passes(&error) {
                    break;
                }
                tokio::time::sleep(AGAIN_MAX).await;
            }
            let mut followed = executions.followed();
            followed.refused.remove(&execution);
            if followed.by_session.get(&session) == Some(&execution) {
                followed.by_session.remove(&session);
            }
        });
    }

    async fn keep_following(&self, session: &SessionId, execution: &ExecutionId) -> Result<()> {
        let handle = self.handle().await?;
        let mut again = AGAIN_MIN;
        let mut has_recovered = false;
        loop {
            let state = handle.state(session).await?;
            let executor = state.facts.executor.as_ref().filter(|e| e.execution_id == *execution);
            if !executor.is_some_and(Executor::may_live) {
                return Ok(());
            }
            if state.lease.owner.as_ref() != Some(handle.boot()) {
                let owner = state.lease.owner.as_ref();
                if has_recovered || owner.is_some_and(|owner| handle.env().is_alive(owner)) {
                    return Ok(());
                }
                // The service began before this execution answered: its dead boot still owns it.
                has_recovered = true;
                handle.execute(session, recover()).await?;
                continue;
            }
            let at = self.at(session, execution, state.lease.epoch).await?;
            let after = state.spools.get(execution).cloned();
            match self.0.executor.follow(&at, after).await {
                Ok(mut stream) => {
                    again = AGAIN_MIN;
                    self.followed().refused.remove(execution);
                    // It answers: if the log says that it cannot be reached, it says so no more.
                    handle.execute(session, recover()).await?;
                    self.followed().live.insert(session.clone(), execution.clone());
                    let over = pump(&handle, &at, &mut *stream).await?;
                    self.followed().is_dead(session, execution);
                    if matches!(over, Over::NotOurs) {
                        return Ok(());
                    }
                }
                Err(Fault::Problem(problem)) => {
                    self.refused(&handle, &at, &state, &problem).await?;
                }
                Err(fault) => tracing::debug!(%session, %execution, %fault, "not connected"),
            }
            let probe = self.0.executor.probe(execution).await;
            if probe != Probe::Alive {
                // Gone: its spool is imported and its run interrupted. Unreachable: the log says so.
                handle.execute(session, recover()).await?;
            }
            if probe == Probe::Gone {
                // If the log says so, too; else it is asked again.
                let (session, execution) = (session.clone(), execution.clone());
                self.end_stranger(&handle, &Found { session, execution }).await?;
            }
            tokio::time::sleep(again).await;
            again = (again * 2).min(AGAIN_MAX);
        }
    }
}

impl Executions {
    /// It lives and does not let itself be followed: the log must not say that all is well. One of
    /// another version is ended as soon as it says that no turn is under way; what it kept is then
    /// read from its spool, also the end of a turn that nobody could follow.
    async fn refused(
        &self,
        handle: &Handle,
        at: &At,
        state: &State,
        problem: &Problem,
    ) -> Result<()> {
        let (session, execution) = (&at.session, &at.execution);
        tracing::warn!(%session, %execution, code = problem.code, "cannot be followed: {problem}");
        self.followed().refused.insert(execution.clone());
        let (execution_id, code) = (execution.clone(), Some(problem.code.clone()));
        let unreachable = ExecutorUnreachable { execution_id, code };
        observe(handle, session, unreachable, Some(problem.to_string())).await?;
        if problem.code != PROTOCOL_UNSUPPORTED {
            return Ok(());
        }
        let at_work = match self.0.executor.is_working(at).await {
            Ok(at_work) => at_work,
            // Not even that is understood: what the log knows has to do.
            Err(Fault::Problem(_)) => state.facts.run.as_ref().is_some_and(Run::is_open),
            Err(Fault::Unreachable { .. }) => return Ok(()),
        };
        if !at_work {
            tracing::info!(%session, %execution, "ended: a new one will speak our version");
            self.0.executor.stop(&at.execution, at.epoch).await?;
        }
        Ok(())
    }
}

/// What is in the way of the log goes by itself; the spool keeps everything until then.
fn passes(error: &Error) -> bool {
    matches!(error.code(), Code::DiskFull | Code::StoreBusy | Code::StoreOverloaded)
}

/// Imports what comes until the connection is lost.
async fn pump(handle: &Handle, at: &At, stream: &mut dyn Following) -> Result<Over> {
    while let Some(mut frame) = stream.next().await {
        let gathered = gather(&mut frame, stream).await;
        let spool_id = stream.spool_id().to_owned();
        let mut lost = frame.lost;
        let mut entries = frame.entries.into_iter().peekable();
        while entries.peek().is_some() || lost.is_some() {
            let entries = next_batch(&mut entries);
            let upto = entries.last().map(|entry| entry.pos).or(lost.map(|(_, to)| to));
            let import = Import {
                execution_id: at.execution.clone(),
                spool_id: spool_id.clone(),
                entries,
                lost: lost.take(),
                damage: None,
                masked: BTreeMap::new(),
                fresh: Vec::new(),
            };
            if let (Some(upto), true) = (upto, planted::is(Bug::AckBeforeDurable)) {
                stream.ack(upto).await;
            }
            match handle.execute(&at.session, Command::Import(import)).await {
                Ok(_) => {}
                Err(error) if error.code() == Code::SpoolGap => return Ok(Over::Again),
                Err(error) if not_ours(&error) => return Ok(Over::NotOurs),
                Err(error) => return Err(error),
            }
            if let Some(upto) = upto {
                stream.ack(upto).await;
            }
        }
        if matches!(gathered, Gathered::Gap) {
            return Ok(Over::Again);
        }
    }
    Ok(Over::Again)
}

enum Gathered {
    All,
    /// What came next does not follow: the cursor leads back to it.
    Gap,
}

/// As many as make one batch.
pub(super) fn next_batch(entries: &mut Peekable<impl Iterator<Item = Entry>>) -> Vec<Entry> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(entry) = entries.peek() {
        bytes += entry.weight();
        if batch.len() == IMPORT_ENTRIES_MAX || (bytes > IMPORT_BYTES_MAX && !batch.is_empty()) {
            break;
        }
        batch.extend(entries.next());
    }
    batch
}

/// Text alone can wait a little for more of it.
async fn gather(frame: &mut Frame, stream: &mut dyn Following) -> Gathered {
    let until = Instant::now() + WINDOW;
    while can_wait(&frame.entries) {
        match tokio::time::timeout_at(until, stream.next()).await {
            Ok(Some(more)) if more.lost.is_none() => frame.entries.extend(more.entries),
            Ok(Some(_)) => return Gathered::Gap,
            Ok(None) | Err(_) => return Gathered::All,
        }
    }
    Gathered::All
}

fn can_wait(entries: &[Entry]) -> bool {
    let mut bytes = 0;
    for entry in entries {
        let Fact::Text { text, .. } = &entry.fact else { return false };
        bytes += text.len();
    }
    !entries.is_empty() && bytes < DELTA_BYTES_MAX && entries.len() < IMPORT_ENTRIES_MAX
}
