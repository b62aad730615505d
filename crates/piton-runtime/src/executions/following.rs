//! Following an execution: what agentctl says is imported, and acknowledged when it is durable. The
//! session's supervisor makes a lost connection again.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use piton_core::decide::{Command, Import};
use piton_core::event::ExecutorUnreachable;
use piton_core::limits::{DELTA_BYTES_MAX, IMPORT_BYTES_MAX, IMPORT_ENTRIES_MAX};
use piton_core::planted::{self, Bug};
use piton_core::spool::{Entry, Fact};
use piton_core::state::Run;
use piton_core::{Code, State};
use piton_exec::executor::{At, EntryStream, Fault};
use piton_exec::protocol::{Frame, Problem};
use tokio::time::Instant;

use super::{Executions, is_not_ours, observe};
use crate::error::Result;
use crate::service::Handle;

/// Text waits so long for more of it, so that it shares a record and a flush.
const WINDOW: Duration = Duration::from_millis(40);

/// Why a stream is not followed any more.
pub(crate) enum Over {
    /// The connection is lost, or the log is elsewhere: begin again at the cursor.
    Lost,
    /// The session is not this process's.
    NotOurs,
}

impl Executions {
    /// It lives and refuses to be followed: the log must not say that all is well. One of another
    /// version is ended as soon as it says that no turn is under way; what it kept is then read from
    /// its spool, also the end of a turn that was not followed.
    pub(crate) async fn refused(
        &self,
        handle: &Handle,
        at: &At,
        state: &State,
        problem: &Problem,
    ) -> Result<()> {
        let (session, execution) = (&at.session, &at.execution);
        tracing::warn!(%session, %execution, code = %problem.code, "the execution cannot be followed: {problem}");
        let (execution_id, code) = (execution.clone(), Some(problem.code.clone()));
        let unreachable = ExecutorUnreachable { execution_id, code };
        observe(handle, session, unreachable, Some(problem.to_string())).await?;
        if problem.code != Code::ProtocolUnsupported {
            return Ok(());
        }
        let at_work = match self.0.executor.is_working(at).await {
            Ok(at_work) => at_work,
            // Not even that is understood: what the log knows has to do.
            Err(Fault::Problem(_)) => state.facts.run.as_ref().is_some_and(Run::is_open),
            Err(Fault::Unreachable { .. }) => return Ok(()),
        };
        if !at_work {
            tracing::info!(%session, %execution, "agentctl is replaced by one of this version");
            self.0.executor.stop(&at.execution, at.epoch).await?;
        }
        Ok(())
    }
}

/// Imports what comes until the connection is lost.
pub(crate) async fn pump(
    executions: Executions,
    handle: Handle,
    at: At,
    mut stream: Box<dyn EntryStream>,
) -> Result<Over> {
    while let Some(mut frame) = stream.next().await {
        executions.note_seen(&at.session, handle.view().now());
        let gathered = gather(&mut frame, &mut *stream).await;
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
                rules: Arc::default(),
            };
            if let (Some(upto), true) = (upto, planted::is(Bug::AckBeforeDurable)) {
                stream.ack(upto).await;
            }
            match handle.execute_settled(&at.session, Command::Import(import)).await {
                Ok(_) => {}
                Err(error) if error.code() == Code::SpoolGap => return Ok(Over::Lost),
                Err(error) if is_not_ours(&error) => return Ok(Over::NotOurs),
                Err(error) => return Err(error),
            }
            if let Some(upto) = upto {
                stream.ack(upto).await;
            }
        }
        if matches!(gathered, Gathered::Gap) {
            return Ok(Over::Lost);
        }
    }
    Ok(Over::Lost)
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

/// Text can wait a little for more of it, and so can what agentctl has made durable already.
async fn gather(frame: &mut Frame, stream: &mut dyn EntryStream) -> Gathered {
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
        match &entry.fact {
            Fact::Text { text, .. } => bytes += text.len(),
            Fact::TurnStarted {} => {}
            fact if fact.is_urgent() => {}
            _ => return false,
        }
    }
    !entries.is_empty() && bytes < DELTA_BYTES_MAX && entries.len() < IMPORT_ENTRIES_MAX
}
