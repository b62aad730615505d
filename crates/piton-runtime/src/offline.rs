//! The writer of a process that runs no sessions, such as the command line. It changes a session
//! that no process runs. It recovers nothing, sweeps nothing, and never becomes a run's boot,
//! because it exits in a moment: it has only the commands that start and continue nothing.
//!
//! Each change is one batch that takes the lease, writes the records and releases the lease. An
//! offline writer that is killed at any moment leaves the session without an owner.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use piton_core::decide::{self, Command, Context, Removal};
use piton_core::event::{SessionLeased, SessionReleased};
use piton_core::id::{BootId, SessionId};
use piton_core::{Code, NewRecord, Seq, State, supervise};
use piton_store::{Durability, Position, SecretText, WritableRecords, bundle};

use crate::env::Env;
use crate::error::Result;
use crate::metadata::MetadataLog;
use crate::redaction;
use crate::removal::{self, Archived, Imported};
use crate::session::{Ack, Archive, Remove, removal_note};
use crate::view::View;

/// How often a change is decided again after another process wrote in between.
const TRIES_MAX: usize = 8;

/// Made by [`crate::Service::offline_writer`].
#[derive(Debug)]
pub struct OfflineWriter {
    env: Arc<Env>,
    view: View,
}

impl OfflineWriter {
    pub(crate) fn new(env: Env) -> Self {
        let view = View::of(&env);
        Self { env: Arc::new(env), view }
    }

    pub fn view(&self) -> &View {
        &self.view
    }

    /// The metadata log, written through the same writer.
    pub(crate) async fn metadata(&self) -> Result<MetadataLog> {
        let env = &self.env;
        let settings = Arc::clone(&env.settings);
        MetadataLog::of(Arc::clone(&env.writer), Arc::clone(&env.clock), settings).await
    }

    /// Carries a command out, if no living process owns the session. Only for commands that start
    /// and continue nothing.
    pub async fn execute(&self, session: &SessionId, command: Command) -> Result<Ack> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.execute_once(session, command.clone()).await {
                Err(error)
                    if matches!(error.code(), Code::SeqConflict | Code::EpochStale)
                        && tries < TRIES_MAX => {}
                settled => return settled,
            }
        }
    }

    async fn execute_once(&self, session: &SessionId, command: Command) -> Result<Ack> {
        let mut state = self.unowned(session).await?;
        let expected = state.last_seq;
        let cx = self.env.context();
        let now = cx.now;
        let (boot, epoch) = (self.env.boot.clone(), state.lease.epoch + 1);
        let claim = SessionLeased { boot_id: boot.clone(), epoch };
        let mut records = WritableRecords::default();
        self.take(session, &mut state, &mut records, vec![NewRecord::new(now, claim)])?;
        let interruption = self.interruption(&state, &cx)?;
        self.take(session, &mut state, &mut records, interruption)?;
        let command = match command {
            // Read the contents as they are now: a concurrent write makes the append fail.
            Command::Redact(redact) => {
                Command::Redact(redaction::fresh(&*self.env.store, session, redact).await?)
            }
            command => command,
        };
        let decision = decide::decide(&state, &cx, command)?;
        if decision.records.is_empty() {
            return Ok(Ack { verdict: decision.outcome, last_seq: expected, held_bytes: 0 });
        }
        self.take(session, &mut state, &mut records, decision.records)?;
        let release = SessionReleased { boot_id: boot, epoch };
        self.take(session, &mut state, &mut records, vec![NewRecord::new(now, release)])?;
        let (at, summary) = (Position { expected, epoch }, state.summary());
        self.env.writer.append(session, at, records, Durability::Synced, summary).await?;
        Ok(Ack { verdict: decision.outcome, last_seq: state.last_seq, held_bytes: 0 })
    }

    /// The state of a session that no living boot but this one owns.
    async fn unowned(&self, session: &SessionId) -> Result<State> {
        let state = self.view.state(session).await?;
        let others = |owner: &&BootId| **owner != self.env.boot && self.env.is_alive(owner);
        match state.lease.owner.as_ref().filter(others) {
            Some(owner) => {
                let (session, owner) = (session.clone(), owner.clone());
                Err(piton_store::Error::SessionOwned { session, owner }.into())
            }
            None => Ok(state),
        }
    }

    /// Removes the snapshots of a session's files.
    pub(crate) fn remove_snapshots(&self, session: &SessionId) {
        self.env.turns.remove(session);
    }

    /// Deletes a session's log; the metadata log keeps a note.
    pub async fn delete(
        &self,
        session: &SessionId,
        how: Removal,
        reason: Option<String>,
    ) -> Result<()> {
        self.remove(session, Remove::Delete { how, reason }).await.map(drop)
    }

    /// Moves a closed session into `<folder>/<session>.piton`.
    pub async fn archive(
        &self,
        session: &SessionId,
        folder: &Path,
        passphrase: Option<SecretText>,
    ) -> Result<Archived> {
        let bundle = folder.join(format!("{session}.piton"));
        bundle::make_folder(folder)?;
        let archive = Archive { path: bundle.clone(), passphrase };
        let last_seq = self.remove(session, Remove::Archive(archive)).await?;
        Ok(Archived { session: session.clone(), last_seq, bundle })
    }

    /// Makes a session from a bundle, with a note in the metadata log.
    pub async fn import(
        &self,
        from: impl Read + Send + 'static,
        passphrase: Option<&SecretText>,
    ) -> Result<Imported> {
        removal::import(&self.env, from, passphrase).await
    }

    /// Whether a session may be removed in this way. Changes nothing.
    pub async fn may_remove(&self, session: &SessionId, how: Removal) -> Result<()> {
        let mut state = self.unowned(session).await?;
        self.claim(session, &mut state, how).map(drop)
    }

    /// What takes the lease of a session that is to be removed, if nothing is in the way.
    fn claim(
        &self,
        session: &SessionId,
        state: &mut State,
        how: Removal,
    ) -> Result<WritableRecords> {
        let cx = self.env.context();
        let (now, boot) = (cx.now, cx.boot.clone());
        let epoch = state.lease.epoch + 1;
        let mut records = WritableRecords::default();
        let claim = SessionLeased { boot_id: boot, epoch };
        self.take(session, state, &mut records, vec![NewRecord::new(now, claim)])?;
        let interruption = self.interruption(state, &cx)?;
        self.take(session, state, &mut records, interruption)?;
        decide::may_remove(state, how)?;
        Ok(records)
    }

    /// Removes a log as its writer; answers its last seq. What is in the way is found out before
    /// the lease is taken, and the lease given back if something comes in the way later.
    async fn remove(&self, session: &SessionId, remove: Remove) -> Result<Seq> {
        let mut state = self.unowned(session).await?;
        let expected = state.last_seq;
        let records = self.claim(session, &mut state, remove.removal())?;
        let (writer, epoch) = (&self.env.writer, state.lease.epoch);
        let (at, summary) = (Position { expected, epoch }, state.summary());
        writer.append(session, at, records, Durability::Synced, summary).await?;
        let last_seq = state.last_seq;
        let at = Position { expected: last_seq, epoch };
        let removed = match removal_note(&self.env, session, &state, remove).await {
            Ok(note) => writer.delete(session, at, note).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            let boot_id = self.env.boot.clone();
            let release = NewRecord::new(self.env.clock.now(), SessionReleased { boot_id, epoch });
            let records = writer.mask(session, last_seq, vec![release])?.records;
            let released = writer.append(session, at, records, Durability::Synced, None).await;
            if let Err(error) = released {
                tracing::warn!(%session, %error, "the lease was not given back");
            }
            return Err(error);
        }
        self.env.files.remove(session);
        self.env.turns.remove(session);
        Ok(last_seq)
    }

    /// Masks and applies records, so that what follows is decided behind them.
    fn take(
        &self,
        session: &SessionId,
        state: &mut State,
        records: &mut WritableRecords,
        new: Vec<NewRecord>,
    ) -> Result<()> {
        let new = self.env.writer.mask(session, state.last_seq, new)?.records;
        for record in &new {
            state.apply(state.last_seq + 1, record.ts, &record.event);
        }
        records.extend(new);
        Ok(())
    }

    /// The interruption of a run that a dead boot left, which precedes any decision about the run.
    /// Empty if the run's executor may live: only a process that runs sessions can find that out.
    fn interruption(&self, state: &State, cx: &Context) -> Result<Vec<NewRecord>> {
        let run = self.view.stranded(&state.facts);
        let dead: BTreeSet<_> = run.map(|run| run.boot_id.clone()).into_iter().collect();
        match supervise::orphaned_run(&state.facts, &dead) {
            Some(command) => Ok(decide::decide(state, cx, command)?.records),
            None => Ok(Vec::new()),
        }
    }
}
