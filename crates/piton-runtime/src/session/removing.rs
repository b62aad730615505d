//! The end of a log: deleted, or moved into a bundle. Done by the session's one writer, so that
//! nothing is appended between looking and removing; afterwards it leaves memory.

use std::path::PathBuf;

use futures_util::StreamExt;
use piton_core::decide::{self, Decision, Removal, Verdict};
use piton_core::event::{SessionArchived, SessionDeleted};
use piton_core::id::SessionId;
use piton_core::{Event, NewRecord, State};
use piton_store::{Durability, Position, SecretText, bundle};
use tokio::sync::oneshot;

use super::{Ack, Answer, Session};
use crate::env::Env;
use crate::error::Result;
use crate::messages::Cut;
use crate::supervisor::Wake;

/// How a log is to be removed.
#[derive(Clone, Debug)]
pub(crate) enum Remove {
    Delete { how: Removal, reason: Option<String> },
    Archive(Archive),
}

#[derive(Clone, Debug)]
pub(crate) struct Archive {
    pub path: PathBuf,
    pub passphrase: Option<SecretText>,
}

impl Remove {
    pub(crate) fn removal(&self) -> Removal {
        match self {
            Self::Delete { how, .. } => *how,
            Self::Archive(_) => Removal::Archive,
        }
    }
}

impl Session {
    pub(super) async fn remove(
        &mut self,
        remove: Remove,
        reply: oneshot::Sender<Answer>,
        is_settled: bool,
    ) {
        self.write_held(Cut::All);
        if !is_settled && !self.settle_orphan().await {
            let _ = reply.send(Answer::Unsettled);
            return;
        }
        let removed = self.try_remove(remove).await;
        self.removed = removed.is_ok();
        if self.removed {
            self.env.supervisors.wake(&self.id, Wake::Deleted);
        }
        // The caller may have gone; what was removed stays removed.
        let _ = reply.send(Answer::Settled(removed));
    }

    async fn try_remove(&mut self, remove: Remove) -> Result<Ack> {
        decide::may_remove(&self.state, remove.removal())?;
        if !self.holds_lease() {
            let claim = Decision { records: vec![self.claim()], outcome: Verdict::Done };
            self.append(claim, Durability::Synced, None);
        }
        self.drain().await;
        if let Some(error) = &self.broken {
            return Err(error.clone().into());
        }
        // A snapshot that came after the log would be of nothing.
        while self.saving.next().await.is_some() {}
        let note = removal_note(&self.env, &self.id, &self.state, remove).await?;
        let at = Position { expected: self.state.last_seq, epoch: self.state.lease.epoch };
        self.env.writer.delete(&self.id, at, note).await?;
        self.env.files.remove(&self.id);
        self.env.turns.remove(&self.id);
        Ok(Ack { verdict: Verdict::Done, last_seq: self.state.last_seq, held_bytes: 0 })
    }
}

/// What the metadata log will say. An archive is whole and flushed before it says so.
pub(crate) async fn removal_note(
    env: &Env,
    session: &SessionId,
    state: &State,
    remove: Remove,
) -> Result<NewRecord> {
    let (session_id, last_seq) = (session.clone(), state.last_seq);
    let event: Event = match remove {
        Remove::Delete { reason, .. } => {
            let head = env.store.head(session).await?;
            let chain = head.map(|head| blake3::Hash::from(head.chain).to_hex().to_string());
            SessionDeleted { session_id, last_seq, chain, reason }.into()
        }
        Remove::Archive(Archive { path, passphrase }) => {
            let settings = bundle::Settings::new(passphrase);
            let file = bundle::write_file(&*env.store, session, &path, &settings).await?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            SessionArchived {
                session_id,
                last_seq,
                chain: blake3::Hash::from(file.contents.chain).to_hex().to_string(),
                bundle: name,
                digest: file.digest.to_hex().to_string(),
            }
            .into()
        }
    };
    Ok(NewRecord::new(env.clock.now(), event))
}
