//! The bytes of a segment, version 2. All numbers are little-endian.
//!
//! ```text
//! header  "PITONSPL" | version u32 | length of the spool's id u16 | the id | check u32
//! frame   length u32 | check of it u32 | check of the rest u32
//!         | nonce [24] | XChaCha20-Poly1305 of the entry's JSON
//! ```
//!
//! `length` counts nonce and ciphertext. A check is the beginning of a BLAKE3. They tell a torn or
//! damaged frame from one under another key, and a frame that was cut off from one whose length
//! was damaged. The associated data is the spool's id and the entry's position: a frame counts
//! only in its place.

use std::cmp::Ordering;

use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use piton_core::id::ID_BYTES_MAX;
use piton_core::spool::Pos;

pub const MAGIC: &[u8; 8] = b"PITONSPL";
pub const VERSION: u32 = 2;
pub const SUFFIX: &str = "seg";
/// A frame that says to be longer is damaged. An entry is at most a message of an agent twice (in
/// Piton's words and its own), in JSON that escapes every byte.
pub const FRAME_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Length and two checks.
pub const FRAME_HEAD: usize = 12;
const NONCE: usize = 24;
const TAG: usize = 16;
/// Magic, version, length of the id.
const HEADER_HEAD: usize = 14;
/// No header is longer.
pub const HEADER_BYTES_MAX: usize = HEADER_HEAD + ID_BYTES_MAX + 4;

/// Beside the segments: up to where the writer has flushed. Written without a flush of its own, so it
/// may trail; a spool that ends before it has lost its end.
pub const FLUSHED_FILE: &str = "flushed";
const FLUSHED_BYTES_MAX: usize = 20 + 1 + ID_BYTES_MAX + 1;

/// What stands in [`FLUSHED_FILE`]. Of one spool it has always the same length.
pub fn flushed_line(spool_id: &str, pos: Pos) -> String {
    format!("{pos:020} {spool_id}\n")
}

/// The spool and the position in a [`FLUSHED_FILE`]; `None` if it is not whole.
pub fn parse_flushed(text: &[u8]) -> Option<(String, Pos)> {
    if text.len() > FLUSHED_BYTES_MAX {
        return None;
    }
    let line = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
    let (pos, spool_id) = line.split_once(' ')?;
    Some((spool_id.to_owned(), pos.parse().ok()?))
}

/// The name of the segment that begins with `first`. Sorted by name is sorted by position.
pub fn segment_name(first: Pos) -> String {
    format!("{first:020}.{SUFFIX}")
}

/// The first position of a segment with this name; `None` if no segment is named so.
pub fn segment_first(name: &str) -> Option<Pos> {
    let digits = name.strip_suffix(SUFFIX)?.strip_suffix('.')?;
    let is_plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { digits.parse().ok().filter(|first| *first > 0) } else { None }
}

fn check(parts: &[&[u8]]) -> [u8; 4] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
    [a, b, c, d]
}

/// The bytes that a segment begins with.
pub fn header(spool_id: &str) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    debug_assert!(spool_id.len() <= ID_BYTES_MAX, "{spool_id}");
    bytes.extend(u16::try_from(spool_id.len()).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend(spool_id.as_bytes());
    bytes.extend(check(&[&bytes]));
    bytes
}

/// What the beginning of a segment is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// `bytes` long.
    Whole {
        spool_id: String,
        bytes: usize,
    },
    /// Cut off while it was written.
    Torn,
    /// Of a version that is no longer read.
    TooOld(u32),
    Newer(u32),
    Foreign,
}

pub fn parse_header(bytes: &[u8]) -> Header {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        // A crash may leave room that was never written.
        return if bytes.iter().all(|byte| *byte == 0) { Header::Torn } else { Header::Foreign };
    }
    let (Some(version), Some(length)) = (u32_at(bytes, 8), bytes.get(12..HEADER_HEAD)) else {
        return Header::Torn;
    };
    match version.cmp(&VERSION) {
        Ordering::Less => return Header::TooOld(version),
        Ordering::Greater => return Header::Newer(version),
        Ordering::Equal => {}
    }
    let length = usize::from(length[0]) | usize::from(length[1]) << 8;
    if length > ID_BYTES_MAX {
        return Header::Foreign;
    }
    let end = HEADER_HEAD + length;
    let Some(found) = bytes.get(end..end + 4) else { return Header::Torn };
    let id = std::str::from_utf8(&bytes[HEADER_HEAD..end]);
    match id {
        Ok(id) if found == check(&[&bytes[..end]]) => {
            Header::Whole { spool_id: id.to_owned(), bytes: end + 4 }
        }
        _ => Header::Foreign,
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Seals entries of one spool, and opens them.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
    spool_id: String,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer({})", self.spool_id)
    }
}

/// The cipher takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("An entry of a spool cannot be sealed")]
pub struct Unsealable;

impl Sealer {
    pub fn new(key: &[u8; 32], spool_id: &str) -> Self {
        Self { cipher: XChaCha20Poly1305::new(key.into()), spool_id: spool_id.to_owned() }
    }

    pub fn spool_id(&self) -> &str {
        &self.spool_id
    }

    /// A frame. `nonce` must be new and random.
    pub fn seal(&self, pos: Pos, nonce: [u8; NONCE], json: &[u8]) -> Result<Vec<u8>, Unsealable> {
        let aad = self.aad(pos);
        let payload = Payload { msg: json, aad: &aad };
        let sealed = self.cipher.encrypt(&nonce.into(), payload).map_err(|_| Unsealable)?;
        let length = u32::try_from(NONCE + sealed.len()).map_err(|_| Unsealable)?.to_le_bytes();
        let mut frame = Vec::with_capacity(FRAME_HEAD + NONCE + sealed.len());
        frame.extend(length);
        frame.extend(check(&[&length]));
        frame.extend(check(&[&nonce, &sealed]));
        frame.extend(nonce);
        frame.extend(sealed);
        Ok(frame)
    }

    /// The JSON in a frame's body; `None` if the key is another, or the place.
    pub fn open(&self, pos: Pos, body: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = body.split_first_chunk::<NONCE>()?;
        let payload = Payload { msg: sealed, aad: &self.aad(pos) };
        self.cipher.decrypt(&(*nonce).into(), payload).ok()
    }

    fn aad(&self, pos: Pos) -> Vec<u8> {
        [self.spool_id.as_bytes(), &pos.to_le_bytes()].concat()
    }
}

/// The length of the body behind a frame's head, if that is one.
pub fn body_length(head: &[u8; FRAME_HEAD]) -> Option<usize> {
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let plausible = u64::from(length) <= FRAME_BYTES_MAX && head[4..8] == check(&[&head[..4]]);
    usize::try_from(length).ok().filter(|length| plausible && *length >= NONCE + TAG)
}

/// Whether this is the body that was written with this head.
pub fn is_whole(head: &[u8; FRAME_HEAD], body: &[u8]) -> bool {
    head[8..] == check(&[body])
}
