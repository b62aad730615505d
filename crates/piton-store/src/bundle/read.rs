//! Reading a bundle that may be anything: each length is checked before memory is taken for it, and
//! how far compressed bytes may refer back is limited.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use piton_core::planted::{self, Bug};
use piton_core::{Content, Record, Timestamp, chain};

use super::error::Error;
use super::format::{
    END, HEAD, HEADER_MAX, ID_BYTES_MAX, KIND_BYTES_MAX, MAGIC, NONE, PAYLOAD_MAX, PLAIN, RECORD,
    REDACTED, SEALED, SOME, VERSION, WINDOW_LOG_MAX,
};
use super::seal::{HEAD_BYTES, Opener, SealHead};
use crate::contract::{CopiedRecord, CopyHead};
use crate::error::Result;
use crate::keys::SecretText;

/// How far reading has come.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    bytes: Arc<AtomicU64>,
    records: Arc<AtomicU64>,
}

impl Progress {
    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

/// Counts what is read of the file.
struct Counted<R> {
    from: R,
    progress: Progress,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.progress.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

type Source<R> = BufReader<Counted<R>>;

enum Body<R: Read> {
    Plain(zstd::Decoder<'static, Source<R>>),
    Sealed(zstd::Decoder<'static, BufReader<Opener<Source<R>>>>),
}

impl<R: Read> Read for Body<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(from) => from.read(into),
            Self::Sealed(from) => from.read(into),
        }
    }
}

/// Gives a bundle's records; the end of it is checked before it says that there are no more.
pub(super) struct Reader<R: Read> {
    /// `None` after the end, or after an error.
    body: Option<Body<R>>,
    hasher: blake3::Hasher,
    head: CopyHead,
    progress: Progress,
}

impl<R: Read> Reader<R> {
    pub(super) fn begin(from: R, passphrase: Option<&SecretText>) -> Result<Self> {
        let progress = Progress::default();
        let mut source = BufReader::new(Counted { from, progress: progress.clone() });
        let fail = |error| failure(&progress, error);
        let mut front = [0; 11];
        match source.read_exact(&mut front) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                // Too short to say more than whether it began as one.
                let read = usize::try_from(progress.bytes.load(Ordering::Relaxed)).unwrap_or(0);
                let begun = read > 0 && front[..read.min(8)] == MAGIC[..read.min(8)];
                return Err(if begun { fail(e) } else { Error::Foreign }.into());
            }
            Err(e) => return Err(fail(e).into()),
        }
        if front[..8] != MAGIC {
            return Err(Error::Foreign.into());
        }
        let version = u16::from_le_bytes([front[8], front[9]]);
        if version > VERSION {
            return Err(Error::Newer { found: version, supported: VERSION }.into());
        }
        let damaged = |why| damage(&progress, why);
        if version == 0 {
            return Err(damaged("there is no such format").into());
        }
        if version < VERSION {
            return Err(Error::TooOld { found: version, supported: VERSION }.into());
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&front);
        let body = match front[10] {
            PLAIN => Body::Plain(decoder(source).map_err(fail)?),
            SEALED => {
                let mut seal = [0; HEAD_BYTES];
                source.read_exact(&mut seal).map_err(fail)?;
                hasher.update(&seal);
                let why = "how it is encrypted cannot be";
                let head = SealHead::from_bytes(&seal).ok_or_else(|| damaged(why))?;
                let key = head.open(passphrase.ok_or(Error::PassphraseRequired)?)?;
                let bound = [&front[..], &seal[..]].concat();
                let opener = Opener::new(source, &key, bound);
                Body::Sealed(decoder(BufReader::new(opener)).map_err(fail)?)
            }
            _ => return Err(damaged("it is neither plain nor encrypted").into()),
        };
        let mut parts = Parts { body, hasher, progress };
        let head = parts.head()?;
        let Parts { body, hasher, progress } = parts;
        Ok(Self { body: Some(body), hasher, head, progress })
    }

    pub(super) fn head(&self) -> &CopyHead {
        &self.head
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn next_record(&mut self) -> Result<Option<CopiedRecord>> {
        let Some(body) = self.body.take() else { return Ok(None) };
        let (hasher, progress) = (self.hasher.clone(), self.progress.clone());
        let mut parts = Parts { body, hasher, progress };
        let kind = parts.array::<1>()?[0];
        if kind == END {
            parts.end()?;
            return Ok(None);
        }
        if kind != RECORD {
            return Err(damage(&self.progress, "a part of it is of no known kind").into());
        }
        let copied = parts.record()?;
        self.progress.records.fetch_add(1, Ordering::Relaxed);
        self.body = Some(parts.body);
        self.hasher = parts.hasher;
        Ok(Some(copied))
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<CopiedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

fn decoder<B: BufRead>(from: B) -> io::Result<zstd::Decoder<'static, B>> {
    let mut decoder = zstd::Decoder::with_buffer(from)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    Ok(decoder)
}

fn damage(progress: &Progress, why: &'static str) -> Error {
    Error::Damaged { at: progress.bytes.load(Ordering::Relaxed), why }
}

/// What a failed read means: the file's end, bytes that decode to nothing, or a disk that fails.
fn failure(progress: &Progress, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::UnexpectedEof => damage(progress, "it ends too early"),
        io::ErrorKind::InvalidData => damage(progress, "it cannot be decrypted or decompressed"),
        // The decompressor reports what it cannot read under this kind, without an errno.
        io::ErrorKind::Other if source.raw_os_error().is_none() => {
            damage(progress, "it cannot be decompressed")
        }
        _ => Error::Io { doing: "read", source: Arc::new(source) },
    }
}

/// Reads the parts of a body, hashing them.
struct Parts<R: Read> {
    body: Body<R>,
    hasher: blake3::Hasher,
    progress: Progress,
}

impl<R: Read> Parts<R> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.body.read_exact(bytes).map_err(|e| failure(&self.progress, e))?;
        self.hasher.update(bytes);
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn damaged(&self, why: &'static str) -> Error {
        damage(&self.progress, why)
    }

    /// Takes memory as the text comes, not as its length promises.
    fn text(&mut self, length: usize, max: usize) -> Result<String, Error> {
        if length > max {
            return Err(self.damaged("a text is longer than any that is written"));
        }
        let mut bytes = Vec::new();
        let mut piece = [0; 8 * 1024];
        while bytes.len() < length {
            let wanted = piece.len().min(length - bytes.len());
            self.fill(&mut piece[..wanted])?;
            bytes.extend_from_slice(&piece[..wanted]);
        }
        String::from_utf8(bytes).map_err(|_| self.damaged("a text is not UTF-8"))
    }

    fn long_text(&mut self, max: usize) -> Result<String, Error> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        self.text(length, max)
    }

    fn flag(&mut self) -> Result<bool, Error> {
        match self.array::<1>()?[0] {
            NONE => Ok(false),
            SOME => Ok(true),
            _ => Err(self.damaged("a mark has no known meaning")),
        }
    }

    fn head(&mut self) -> Result<CopyHead, Error> {
        if self.array::<1>()?[0] != HEAD {
            return Err(self.damaged("it does not begin with its head"));
        }
        let length = usize::from(self.array::<1>()?[0]);
        let session = self.text(length, ID_BYTES_MAX)?;
        let session = session.parse().map_err(|_| self.damaged("its session has no valid id"))?;
        let chain_key = chain::Key::new(self.array()?);
        let last_seq = u64::from_le_bytes(self.array()?);
        let chain = self.array()?;
        let anchor = if self.flag()? {
            Some((u64::from_le_bytes(self.array()?), self.array()?))
        } else {
            None
        };
        Ok(CopyHead { session, chain_key, last_seq, chain, anchor })
    }

    fn record(&mut self) -> Result<CopiedRecord, Error> {
        let seq = u64::from_le_bytes(self.array()?);
        let ts = Timestamp::from_millis(i64::from_le_bytes(self.array()?));
        let batch_left = u32::from_le_bytes(self.array()?);
        let kind = self.long_text(KIND_BYTES_MAX)?.into();
        let header = self.long_text(HEADER_MAX)?.into();
        let content = match self.array::<1>()?[0] {
            NONE => Content::None,
            SOME => Content::Json(self.long_text(PAYLOAD_MAX)?.into()),
            REDACTED => Content::Redacted,
            _ => return Err(self.damaged("a mark has no known meaning")),
        };
        let payload_hash = if self.flag()? { Some(self.array()?) } else { None };
        let chain = self.array()?;
        let record = Record { seq, ts, kind, header, content };
        Ok(CopiedRecord { record, batch_left, payload_hash, chain })
    }

    /// The count and the hash fit, and nothing follows.
    fn end(mut self) -> Result<(), Error> {
        let count = u64::from_le_bytes(self.array()?);
        let expected = self.hasher.finalize();
        let hash: [u8; 32] = self.array()?;
        if expected != hash && !planted::is(Bug::BundleUnchecked) {
            return Err(self.damaged("it is not what was written"));
        }
        if count != self.progress.records() {
            return Err(self.damaged("records are missing"));
        }
        let mut more = [0];
        let read = self.body.read(&mut more).map_err(|e| failure(&self.progress, e))?;
        let left = match self.body {
            Body::Plain(decoder) => is_left(decoder.finish()),
            Body::Sealed(decoder) => is_left(decoder.finish()),
        };
        if read > 0 || left.map_err(|e| failure(&self.progress, e))? {
            return Err(damage(&self.progress, "something follows its end"));
        }
        Ok(())
    }
}

fn is_left(mut from: impl BufRead) -> io::Result<bool> {
    Ok(!from.fill_buf()?.is_empty())
}
