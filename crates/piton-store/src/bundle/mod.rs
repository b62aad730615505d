//! One session as one file. The format is in `docs/reference/bundle.md`; writing and reading stream,
//! with every length bounded before anything is allocated for it. An import verifies each link and
//! takes all or nothing.
//!
//! A bundle without a passphrase carries the session's chain key in the clear: an import detects
//! accidental damage, but not a forgery by a person who has the bundle.

mod convert;
mod error;
mod file;
mod format;
mod read;
mod seal;
#[cfg(test)]
mod tests;
mod write;

use std::io::{Read, Write};
use std::sync::Arc;

use piton_core::event::SessionImported;
use piton_core::id::SessionId;
use piton_core::{Content, Event, NewRecord, Seq, Timestamp, chain};

use crate::contract::{CopyHead, Entropy, LogCopy, Store};
use crate::error::Result;
use crate::keys::SecretText;

pub use convert::{Progress, convert};
pub use error::Error;
pub use file::{BundleFile, import_file, make_folder, write_file};
pub use seal::Cost;

use read::Reader;
use write::Writer;

/// Bytes at the beginning of a bundle that say whether a passphrase is needed.
pub const PREFIX_BYTES: usize = format::MAGIC.len() + 2 + 1;

/// Whether something that begins like this is a bundle that is encrypted.
pub fn is_encrypted(prefix: &[u8; PREFIX_BYTES]) -> bool {
    prefix.starts_with(&format::MAGIC) && prefix[PREFIX_BYTES - 1] == format::SEALED
}

/// Records that are asked for at a time; the store stops earlier when they are large.
const PAGE_RECORDS: usize = 256;

/// What a bundle holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    pub session: SessionId,
    pub last_seq: Seq,
    pub chain: chain::Hash,
    pub records: u64,
}

/// How a bundle is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Encrypted with it, or in the clear.
    pub passphrase: Option<SecretText>,
    /// How hard guessing the passphrase is made.
    pub cost: Cost,
    pub entropy: Arc<dyn Entropy>,
}

impl Settings {
    pub fn new(passphrase: Option<SecretText>) -> Self {
        Self { passphrase, cost: Cost::default(), entropy: Arc::new(crate::OsEntropy) }
    }
}

/// Writes a session as it is when the export begins; records appended meanwhile are not in the
/// bundle. A redaction meanwhile fails the export (`SeqConflict`), because the bundle would lack
/// the record that explains the missing content.
pub async fn export(
    store: &dyn Store,
    session: &SessionId,
    to: impl Write + Send,
    settings: &Settings,
) -> Result<Contents> {
    let unknown = || crate::Error::SessionNotFound { session: session.clone() };
    let head = store.copy_head(session).await?.ok_or_else(unknown)?;
    let mut writer = Writer::begin(to, settings, &head)?;
    let mut tombstones = std::collections::BTreeSet::new();
    let mut after = 0;
    while after < head.last_seq {
        let page = store.copy_records(session, after, PAGE_RECORDS).await?;
        let Some(last) = page.last() else {
            let session = session.clone();
            return Err(crate::Error::RecordDamaged { session, seq: after + 1, source: None });
        };
        after = last.record.seq;
        for copied in page.iter().take_while(|copied| copied.record.seq <= head.last_seq) {
            if copied.record.content == Content::Redacted {
                tombstones.insert(copied.record.seq);
            }
            if let Ok(Event::RecordRedacted(e)) = copied.record.event() {
                tombstones.remove(&e.target_seq);
            }
            writer.record(copied)?;
        }
    }
    if !tombstones.is_empty() {
        let now = store.copy_head(session).await?.ok_or_else(unknown)?;
        if now.last_seq != head.last_seq {
            let (session, expected) = (session.clone(), head.last_seq);
            return Err(crate::Error::SeqConflict { session, expected, actual: now.last_seq });
        }
    }
    let records = writer.finish()?;
    Ok(contents(head, records))
}

fn contents(head: CopyHead, records: u64) -> Contents {
    let CopyHead { session, last_seq, chain, .. } = head;
    Contents { session, last_seq, chain, records }
}

/// Makes a log from a bundle: all of it, with every link verified, or nothing. The metadata log
/// says so, at the given time.
pub async fn import(
    store: &dyn Store,
    from: impl Read + Send + 'static,
    passphrase: Option<&SecretText>,
    now: Timestamp,
) -> Result<Contents> {
    let reader = Reader::begin(from, passphrase)?;
    if reader.head().session.is_metadata_log() {
        return Err(Error::Damaged { at: 0, why: "it names the store's own log" }.into());
    }
    let (head, progress) = (reader.head().clone(), reader.progress());
    let imported = SessionImported {
        session_id: head.session.clone(),
        last_seq: head.last_seq,
        chain: blake3::Hash::from(head.chain).to_hex().to_string(),
    };
    let note = Some(NewRecord::new(now, imported));
    store.copy_in(LogCopy { head: head.clone(), records: Box::new(reader), note }).await?;
    Ok(contents(head, progress.records()))
}

/// Reads a bundle to its end, with every link, without keeping anything.
pub fn check(from: impl Read + 'static, passphrase: Option<&SecretText>) -> Result<Contents> {
    let mut reader = Reader::begin(from, passphrase)?;
    let head = reader.head().clone();
    let mut links = crate::append_rules::CopyCheck::new(head.clone());
    for copied in &mut reader {
        links.next(&copied?)?;
    }
    links.end()?;
    let records = reader.progress().records();
    Ok(contents(head, records))
}
