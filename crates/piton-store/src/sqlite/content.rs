//! Contents as they lie in the database: sealed beside their record, or as a blob.

use piton_core::limits::PAYLOAD_INLINE_BYTES_MAX;
use piton_core::{Content, chain};
use rusqlite::{Connection, OptionalExtension};

use super::schema::Form;
use crate::contract::Entropy;
use crate::crypto::{ContentBinding, Subkeys};
use crate::error::Error;
use crate::keys::Keys;

/// For what does not lie in its record; contents that do are not compressed. Fast; contents are text, which shrinks well at any level.
const COMPRESSION_LEVEL: i32 = 3;

/// Contents that are not larger lie in their records, whatever is asked for.
pub(crate) const COMPRESSED_BYTES_MIN: usize = 1_024;

const PLAIN: i64 = 0;
const ZSTD: i64 = 1;

/// What goes into a record's row.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) form: Form,
    pub(crate) hash: Option<chain::Hash>,
    pub(crate) bytes: Option<Vec<u8>>,
}

/// Why a content could not be had.
#[derive(Debug)]
pub(crate) enum Trouble {
    Damaged,
    BlobMissing,
    /// Not the content's fault.
    Store(Error),
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(e: rusqlite::Error) -> Self {
        match e {
            // A column of another type than ours: the row was edited.
            rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::Utf8Error(..) => Self::Damaged,
            other => Self::Sql(other),
        }
    }
}

/// Seals a content; a large one goes into `blobs`, in the same transaction.
pub(crate) fn keep(
    conn: &Connection,
    subkeys: &Subkeys,
    chain_key: &chain::Key,
    binding: ContentBinding<'_>,
    payload: Option<&str>,
    compress_above: Option<usize>,
    entropy: &dyn Entropy,
) -> Result<Kept, Trouble> {
    if let Some(kept) = keep_inline(subkeys, chain_key, binding, payload, compress_above, entropy)
        .map_err(Trouble::Store)?
    {
        return Ok(kept);
    }
    let payload = payload.unwrap_or_default().as_bytes();
    let hash = Some(chain_key.payload_hash(payload));
    let address = subkeys.address(payload);
    let is_compressed = payload.len() > compress_above.unwrap_or(0);
    keep_blob(conn, subkeys, &address, (payload, is_compressed), entropy)?;
    Ok(Kept { form: Form::Blob, hash, bytes: Some(address.to_vec()) })
}

/// Seals a content that is not large; `None` for one that is, or that is to be compressed.
pub(crate) fn keep_inline(
    subkeys: &Subkeys,
    chain_key: &chain::Key,
    binding: ContentBinding<'_>,
    payload: Option<&str>,
    compress_above: Option<usize>,
    entropy: &dyn Entropy,
) -> Result<Option<Kept>, Error> {
    let Some(payload) = payload.map(str::as_bytes) else {
        return Ok(Some(Kept { form: Form::None, hash: None, bytes: None }));
    };
    let max = compress_above.map_or(PAYLOAD_INLINE_BYTES_MAX, |above| {
        above.clamp(COMPRESSED_BYTES_MIN, PAYLOAD_INLINE_BYTES_MAX)
    });
    if payload.len() > max {
        return Ok(None);
    }
    let hash = Some(chain_key.payload_hash(payload));
    let sealed = subkeys.seal_payload(binding, payload, entropy)?;
    Ok(Some(Kept { form: Form::Inline, hash, bytes: Some(sealed) }))
}

fn keep_blob(
    conn: &Connection,
    subkeys: &Subkeys,
    address: &[u8; 32],
    (plaintext, is_compressed): (&[u8], bool),
    entropy: &dyn Entropy,
) -> Result<(), Trouble> {
    let mut known = conn.prepare_cached("SELECT 1 FROM blobs WHERE address = ?1")?;
    if known.exists([address.as_slice()])? {
        return Ok(());
    }
    let shrunk = is_compressed
        .then(|| zstd::bulk::compress(plaintext, COMPRESSION_LEVEL).ok())
        .flatten()
        .filter(|shrunk| shrunk.len() < plaintext.len());
    let (compression, bytes) = match &shrunk {
        Some(shrunk) => (ZSTD, shrunk.as_slice()),
        None => (PLAIN, plaintext),
    };
    let sealed = subkeys.seal_blob(address, bytes, entropy).map_err(Trouble::Store)?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO blobs(address, key_id, compression, bytes, data) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let length = i64::try_from(plaintext.len()).unwrap_or(i64::MAX);
    insert.execute((address.as_slice(), &**subkeys.id(), compression, length, sealed))?;
    Ok(())
}

/// A content as it was kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) form: Form,
    pub(crate) key_id: Option<&'a str>,
    pub(crate) hash: Option<chain::Hash>,
    pub(crate) bytes: Option<&'a [u8]>,
}

/// Opens a content and checks that it is what was written.
pub(crate) fn fetch(
    conn: &Connection,
    keys: &Keys,
    chain_key: &chain::Key,
    binding: ContentBinding<'_>,
    stored: Stored<'_>,
) -> Result<Content, Trouble> {
    match (stored.form, stored.bytes) {
        // The link says whether there was a content, so the form cannot be bent unseen.
        (Form::None, _) if stored.hash.is_none() => Ok(Content::None),
        (Form::Tombstone, _) if stored.hash.is_some() => Ok(Content::Redacted),
        (Form::Inline, _) => fetch_inline(keys, chain_key, binding, stored),
        (Form::Blob, Some(address)) => {
            checked(chain_key, stored.hash, fetch_blob(conn, keys, address)?)
        }
        _ => Err(Trouble::Damaged),
    }
}

/// The same for a content that lies in its record.
pub(crate) fn fetch_inline(
    keys: &Keys,
    chain_key: &chain::Key,
    binding: ContentBinding<'_>,
    stored: Stored<'_>,
) -> Result<Content, Trouble> {
    let bytes = stored.bytes.ok_or(Trouble::Damaged)?;
    let subkeys = subkeys(keys, stored.key_id)?;
    let plaintext = subkeys.open_payload(binding, bytes).map_err(|_| Trouble::Damaged)?;
    checked(chain_key, stored.hash, plaintext)
}

/// Whether a content that lies in its record is what was written; it is opened where it is.
pub(crate) fn check_inline(
    keys: &Keys,
    chain_key: &chain::Key,
    binding: ContentBinding<'_>,
    key_id: Option<&str>,
    hash: Option<chain::Hash>,
    bytes: &mut [u8],
) -> Result<(), Trouble> {
    let subkeys = subkeys(keys, key_id)?;
    let text = subkeys.open_payload_in_place(binding, bytes).map_err(|_| Trouble::Damaged)?;
    let fits = hash == Some(chain_key.payload_hash(text)) && std::str::from_utf8(text).is_ok();
    if fits { Ok(()) } else { Err(Trouble::Damaged) }
}

fn checked(
    chain_key: &chain::Key,
    hash: Option<chain::Hash>,
    plaintext: Vec<u8>,
) -> Result<Content, Trouble> {
    if hash != Some(chain_key.payload_hash(&plaintext)) {
        return Err(Trouble::Damaged);
    }
    let text = String::from_utf8(plaintext).map_err(|_| Trouble::Damaged)?;
    Ok(Content::Json(text.into()))
}

fn subkeys(keys: &Keys, key_id: Option<&str>) -> Result<std::sync::Arc<Subkeys>, Trouble> {
    keys.get(key_id.ok_or(Trouble::Damaged)?).map_err(Trouble::Store)
}

fn fetch_blob(conn: &Connection, keys: &Keys, address: &[u8]) -> Result<Vec<u8>, Trouble> {
    let mut select = conn
        .prepare_cached("SELECT key_id, compression, bytes, data FROM blobs WHERE address = ?1")?;
    let row = select
        .query_row([address], |row| {
            let key_id: String = row.get(0)?;
            let compression: i64 = row.get(1)?;
            let bytes: i64 = row.get(2)?;
            Ok((key_id, compression, bytes, row.get_ref(3)?.as_blob()?.to_vec()))
        })
        .optional()?;
    let (key_id, compression, bytes, data) = row.ok_or(Trouble::BlobMissing)?;
    let opened =
        subkeys(keys, Some(&key_id))?.open_blob(address, &data).map_err(|_| Trouble::Damaged)?;
    match compression {
        PLAIN => Ok(opened),
        ZSTD => {
            let bytes = usize::try_from(bytes).map_err(|_| Trouble::Damaged)?;
            if bytes > piton_core::limits::PAYLOAD_BYTES_MAX {
                return Err(Trouble::Damaged);
            }
            zstd::bulk::decompress(&opened, bytes).map_err(|_| Trouble::Damaged)
        }
        _ => Err(Trouble::Damaged),
    }
}
