//! Carrying out what the log says is to go back: files, the conversation, or both. The record
//! `workspace.restore_started` comes first; from then on the restore is an effect of the log. It does
//! not end with the request that asked for it, and after a crash it is carried out again from that
//! record. The journal in the data folder only says how far the files have come.

use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_core::decide::{Command, FailRestore, RestoredFiles, Rewind};
use piton_core::id::SessionId;
use piton_core::resume::{self, StartTrigger};
use piton_core::state::Facts;
use piton_core::turns::OpenRestore;
use piton_core::{Code, State};
use piton_workspace::snapshot::tree::{ObjectId, Selection};
use piton_workspace::snapshot::{self, Force, Repository, Restored, Snapshot};

use super::snapshots::{Attached, Snapshots, named};
use crate::error::{Error, Result};

/// How long an agent that is started or ended may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_POLL: Duration = Duration::from_millis(20);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(500);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// Why files were not restored.
enum Fault {
    /// They are as they were: the restore ends.
    Ended { error: Error, rolled_back: bool },
    /// It is not known, or only some of them were: it is tried again.
    TryAgain(Error),
}

/// What is to be restored from which snapshot.
struct Order {
    workspace: PathBuf,
    target: ObjectId,
    safety: ObjectId,
    selection: Selection,
    forced: bool,
}

impl Snapshots {
    /// Carries out the session's restore, until the log has its end. At most one at a time.
    pub(super) fn restore_later(&self, session: &SessionId) {
        let slot = self.slot(session);
        {
            let mut known = slot.known();
            known.restore_again = true;
            if std::mem::replace(&mut known.restoring, true) {
                return;
            }
        }
        let (this, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            loop {
                slot.known().restore_again = false;
                this.restore_until_ended(&session).await;
                let mut known = slot.known();
                if !known.restore_again {
                    known.restoring = false;
                    return;
                }
            }
        });
    }

    async fn restore_until_ended(&self, session: &SessionId) {
        let Some(attached) = self.attached() else { return };
        let mut delay = RETRY_DELAY_MIN;
        loop {
            match self.try_restore(attached, session).await {
                Ok(()) | Err(Error::ShuttingDown) => return,
                // The session is gone, or another process owns it: it carries it out.
                Err(error)
                    if matches!(error.code(), Code::SessionNotFound | Code::SessionOwned) =>
                {
                    return;
                }
                Err(error) => {
                    tracing::warn!(%session, code = %error.code(), %error, "a restore is tried again");
                }
            }
            attached.handle.env().clock.sleep(delay).await;
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
    }

    async fn try_restore(&self, attached: &Attached, session: &SessionId) -> Result<()> {
        let handle = &attached.handle;
        let state = handle.state(session).await?;
        let Some(open) = state.facts.restore.clone() else { return Ok(()) };
        let has_begun = Repository::has_journal(&self.folder(session));
        if open.conversation.is_some()
            && let Err(error) = stop_agent(attached, session).await
        {
            if has_begun {
                return Err(error);
            }
            return self.end_failed(attached, session, &open, &error, false).await;
        }
        let files = match self.restore_files(session, &state, &open).await {
            Ok(files) => files,
            Err(Fault::TryAgain(error)) => return Err(error),
            Err(Fault::Ended { error, rolled_back }) => {
                return self.end_failed(attached, session, &open, &error, rolled_back).await;
            }
        };
        let (checkpoint_id, conversation) = (open.checkpoint_id.clone(), open.conversation);
        let restore_seq = Some(open.seq);
        let rewind = Rewind { restore_seq, checkpoint_id, files, conversation };
        handle.execute(session, Command::Rewind(rewind)).await?;
        self.after_restore(attached, session, &open).await
    }

    async fn end_failed(
        &self,
        attached: &Attached,
        session: &SessionId,
        open: &OpenRestore,
        error: &Error,
        rolled_back: bool,
    ) -> Result<()> {
        let failed = FailRestore {
            restore_seq: open.seq,
            code: error.code().into(),
            message: message_of(error),
            rolled_back,
        };
        attached.handle.execute(session, Command::FailRestore(failed)).await?;
        self.after_restore(attached, session, open).await
    }

    /// The end is in the log.
    async fn after_restore(
        &self,
        attached: &Attached,
        session: &SessionId,
        open: &OpenRestore,
    ) -> Result<()> {
        if open.restarts_agent {
            let supervisors = attached.handle.supervisors();
            supervisors.ensure_running_later(session, StartTrigger::Manual);
        }
        if Repository::has_journal(&self.folder(session)) {
            let held = self.hold(session).await;
            let settle = |repository: &mut Repository| repository.settle();
            self.with_open(held, session, settle).await.1?;
        }
        Ok(())
    }

    async fn restore_files(
        &self,
        session: &SessionId,
        state: &State,
        open: &OpenRestore,
    ) -> Result<Option<RestoredFiles>, Fault> {
        let (Some(target), Some(safety)) = (&open.snapshot, &open.safety_snapshot) else {
            return Ok(None);
        };
        let ended = |error| Fault::Ended { error, rolled_back: false };
        let invalid = |what: &str| ended(Error::Invalid(format!("{what} cannot be read")));
        let Some(workspace) = self.workspace(session, state) else {
            return Err(ended(Error::Invalid("The workspace is not there any more".to_owned())));
        };
        let order = Order {
            workspace,
            target: target.parse().map_err(|_| invalid("The snapshot's id"))?,
            safety: safety.parse().map_err(|_| invalid("The snapshot's id"))?,
            selection: self.selection(session, open).await?,
            forced: open.forced,
        };
        let forced = order.forced;
        let Some(attached) = self.attached() else {
            return Err(Fault::TryAgain(Error::ShuttingDown));
        };
        let kept_checkpoint = attached.handle.ids().checkpoint();
        let kept_checkpoint = kept_checkpoint.map_err(|error| Fault::TryAgain(error.into()))?;
        let held = self.hold(session).await;
        let work = move |repository: &mut Repository| {
            let done = restore(repository, &order);
            let journal = Repository::has_journal(repository.folder());
            let is_applied = repository.is_applied()?;
            Ok((done, journal, is_applied))
        };
        let (_held, worked) = self.with_open(held, session, work).await;
        let (done, has_journal, is_applied) = worked.map_err(Fault::TryAgain)?;
        match done {
            Ok((restored, ..)) if restored.rolled_back => {
                let error = Error::Invalid("A step failed before a crash".to_owned());
                Err(Fault::Ended { error, rolled_back: true })
            }
            Ok((restored, after)) => Ok(Some(RestoredFiles {
                snapshot: restored.target.to_string(),
                safety_snapshot: restored.safety.to_string(),
                snapshot_after: after.to_string(),
                recovered: restored.found.is_some(),
                kept_checkpoint: restored.is_edited.then_some(kept_checkpoint),
                kept_snapshot: restored.found.map(|found| found.to_string()),
                paths: named(restored.paths.iter().map(Vec::as_slice)),
                paths_count: restored.paths.len() as u64,
                forced,
            })),
            Err(error) => {
                let is_busy =
                    matches!(error, snapshot::Error::InUse | snapshot::Error::WorkspaceInUse);
                let error = Error::from(error);
                Err(match (has_journal, is_applied) {
                    (false, _) if !is_busy => Fault::Ended { error, rolled_back: false },
                    (true, true) => Fault::Ended { error, rolled_back: true },
                    _ => Fault::TryAgain(error),
                })
            }
        }
    }

    /// The paths to restore. A redaction may have removed them from the log; then they are unknown.
    async fn selection(&self, session: &SessionId, open: &OpenRestore) -> Result<Selection, Fault> {
        if open.paths_count == 0 {
            return Ok(Selection::all());
        }
        let Some(attached) = self.attached() else {
            return Err(Fault::TryAgain(Error::ShuttingDown));
        };
        let records = attached.handle.records(session, open.seq - 1, 1).await;
        let records = records.map_err(Fault::TryAgain)?;
        let paths = records.first().and_then(|record| record.content_field("paths"));
        let paths: Option<Vec<String>> = paths.and_then(|paths| serde_json::from_value(paths).ok());
        let Some(paths) = paths.filter(|paths| paths.len() as u64 == open.paths_count) else {
            let error = Error::Invalid("The paths to restore cannot be read".to_owned());
            return Err(Fault::Ended { error, rolled_back: false });
        };
        Ok(Selection { paths: paths.into_iter().map(String::into_bytes).collect() })
    }
}

/// Finishes what a crash cut off, or begins. Says what the files are then, too.
fn restore(
    repository: &mut Repository,
    order: &Order,
) -> Result<(Restored, ObjectId), snapshot::Error> {
    let workspace: &Path = &order.workspace;
    let restored = if let Some(recovered) = repository.recover(workspace)? {
        recovered
    } else {
        // What may be overwritten was decided before the record: what changed since was not.
        let safety = repository.load(order.safety)?;
        let is_foreign =
            |path: &[u8], now: &Snapshot| now.tree.nodes.get(path) != safety.tree.nodes.get(path);
        let force = if order.forced { Force::Overwrite } else { Force::Refuse };
        repository.restore(workspace, order.target, &order.selection, force, is_foreign)?
    };
    let after = match repository.take(workspace, &std::collections::BTreeSet::new()) {
        Ok(taken) => taken.id,
        Err(error) => {
            tracing::warn!(%error, "no snapshot after a restore");
            restored.target
        }
    };
    Ok((restored, after))
}

/// With the paths that it is about.
fn message_of(error: &Error) -> String {
    if let Error::Snapshot(fault) = error
        && let snapshot::Error::ForeignChanges { paths } | snapshot::Error::NotSaved { paths } =
            &**fault
    {
        let names = named(paths.iter().map(Vec::as_slice));
        return format!("{error}: {}", names.join(", "));
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// An agent must not keep the conversation that is taken back. One that is being started would go on
/// with what the start was planned with: its start is waited for.
async fn stop_agent(attached: &Attached, session: &SessionId) -> Result<()> {
    let starting = until(attached, session, |facts| !resume::is_starting(facts)).await;
    if !matches!(starting, Ok(()) | Err(Error::AgentLate)) {
        return starting;
    }
    if !resume::is_running(&attached.handle.state(session).await?.facts) {
        return Ok(());
    }
    match attached.executions.stop_agent(session).await {
        // It ended by itself; the log will say so.
        Err(error) if error.code() == Code::AgentNotRunning => {}
        stopped => stopped?,
    }
    until(attached, session, |facts| !resume::is_running(facts)).await
}

async fn until(
    attached: &Attached,
    session: &SessionId,
    is_so: impl Fn(&Facts) -> bool,
) -> Result<()> {
    let waiting = async {
        while !is_so(&attached.handle.state(session).await?.facts) {
            attached.handle.env().clock.sleep(STOP_POLL).await;
        }
        Ok(())
    };
    tokio::time::timeout(STOP_TIMEOUT, waiting).await.unwrap_or(Err(Error::AgentLate))
}
