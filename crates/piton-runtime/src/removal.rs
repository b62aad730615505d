//! Sessions that leave the store, and those that come in as bundles.

use std::io::Read;
use std::path::{Path, PathBuf};

use piton_core::Seq;
use piton_core::decide::Removal;
use piton_core::id::SessionId;
use piton_store::{SecretText, bundle};

use crate::env::Env;
use crate::error::Result;
use crate::service::Handle;
use crate::session::{Archive, Remove, Work};

/// A session that is in a bundle now, and no longer in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    pub session: SessionId,
    pub last_seq: Seq,
    pub bundle: PathBuf,
}

/// A session that was made from a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub session: SessionId,
    pub last_seq: Seq,
    pub records: u64,
}

impl Handle {
    /// Deletes a session's log; the metadata log keeps a note. Refused while a run is open or an
    /// executor may live.
    pub async fn delete(&self, session: &SessionId, reason: Option<String>) -> Result<()> {
        let work = Work::Remove(Remove::Delete { how: Removal::Delete, reason });
        self.coordinator().ask(session, work).await.map(drop)
    }

    /// Like [`Self::delete`], whatever is at work in the session. Not if another process that lives
    /// owns it.
    pub async fn delete_forced(&self, session: &SessionId, reason: Option<String>) -> Result<()> {
        let work = Work::Remove(Remove::Delete { how: Removal::DeleteForced, reason });
        self.coordinator().ask(session, work).await.map(drop)
    }

    /// Moves a closed session into `<folder>/<session>.piton`: written, flushed and read back before
    /// the log is deleted.
    pub async fn archive(
        &self,
        session: &SessionId,
        folder: &Path,
        passphrase: Option<SecretText>,
    ) -> Result<Archived> {
        let bundle = folder.join(format!("{session}.piton"));
        bundle::make_folder(folder)?;
        let archive = Archive { path: bundle.clone(), passphrase };
        let work = Work::Remove(Remove::Archive(archive));
        let ack = self.coordinator().ask(session, work).await?;
        Ok(Archived { session: session.clone(), last_seq: ack.last_seq, bundle })
    }

    /// Makes a session from a bundle, with a note in the metadata log.
    pub async fn import(
        &self,
        from: impl Read + Send + 'static,
        passphrase: Option<&SecretText>,
    ) -> Result<Imported> {
        import(self.env(), from, passphrase).await
    }
}

pub(crate) async fn import(
    env: &Env,
    from: impl Read + Send + 'static,
    passphrase: Option<&SecretText>,
) -> Result<Imported> {
    let contents = bundle::import(&*env.store, from, passphrase, env.clock.now()).await?;
    let bundle::Contents { session, last_seq, records, .. } = contents;
    Ok(Imported { session, last_seq, records })
}
