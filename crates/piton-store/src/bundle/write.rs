//! Writing a bundle.

use std::io::{self, Write};

use piton_core::Content;

use super::Settings;
use super::error::Error;
use super::format::{
    END, HEAD, LEVEL, MAGIC, NONE, PLAIN, RECORD, REDACTED, SEALED, SOME, VERSION,
};
use super::seal::{SealHead, Sealer};
use crate::contract::{CopiedRecord, CopyHead};
use crate::error::Result;

/// Where compressed bytes go.
enum Sink<W: Write> {
    Plain(W),
    Sealed(Sealer<W>),
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(to) => to.write(bytes),
            Self::Sealed(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            Self::Sealed(to) => to.flush(),
        }
    }
}

pub(super) struct Writer<W: Write> {
    body: zstd::Encoder<'static, Sink<W>>,
    hasher: blake3::Hasher,
    records: u64,
    /// One part, before it is hashed and compressed.
    part: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub(super) fn begin(mut to: W, settings: &Settings, head: &CopyHead) -> Result<Self> {
        let mut front = MAGIC.to_vec();
        front.extend_from_slice(&VERSION.to_le_bytes());
        let key = match &settings.passphrase {
            None => {
                front.push(PLAIN);
                None
            }
            Some(passphrase) => {
                let mut salt = [0; 16];
                settings.entropy.fill(&mut salt)?;
                let cost = "the cost of the passphrase is beyond what readers accept";
                let (seal, key) = SealHead::make(passphrase, settings.cost, salt)
                    .ok_or_else(|| Error::writing(io::Error::other(cost)))?;
                front.push(SEALED);
                front.extend_from_slice(&seal.to_bytes());
                Some(key)
            }
        };
        to.write_all(&front).map_err(Error::writing)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&front);
        let sink = match key {
            None => Sink::Plain(to),
            Some(key) => Sink::Sealed(Sealer::new(to, &key, front)),
        };
        let body = zstd::Encoder::new(sink, LEVEL).map_err(Error::writing)?;
        let mut writer = Self { body, hasher, records: 0, part: Vec::new() };
        writer.head(head)?;
        Ok(writer)
    }

    fn head(&mut self, head: &CopyHead) -> Result<()> {
        let session = head.session.as_str().as_bytes();
        self.part.push(HEAD);
        self.part
            .push(u8::try_from(session.len()).map_err(|e| Error::writing(io::Error::other(e)))?);
        self.part.extend_from_slice(session);
        self.part.extend_from_slice(head.chain_key.as_bytes());
        self.part.extend_from_slice(&head.last_seq.to_le_bytes());
        self.part.extend_from_slice(&head.chain);
        match &head.anchor {
            None => self.part.push(NONE),
            Some((seq, hash)) => {
                self.part.push(SOME);
                self.part.extend_from_slice(&seq.to_le_bytes());
                self.part.extend_from_slice(hash);
            }
        }
        self.write_part()
    }

    pub(super) fn record(&mut self, copied: &CopiedRecord) -> Result<()> {
        let CopiedRecord { record, batch_left, payload_hash, chain } = copied;
        self.part.push(RECORD);
        self.part.extend_from_slice(&record.seq.to_le_bytes());
        self.part.extend_from_slice(&record.ts.as_millis().to_le_bytes());
        self.part.extend_from_slice(&batch_left.to_le_bytes());
        self.text(&record.kind)?;
        self.text(&record.header)?;
        match &record.content {
            Content::None => self.part.push(NONE),
            Content::Json(json) => {
                self.part.push(SOME);
                self.text(json)?;
            }
            Content::Redacted => self.part.push(REDACTED),
            Content::Omitted => {
                let why = "a record came without its content";
                return Err(Error::writing(io::Error::other(why)).into());
            }
        }
        match payload_hash {
            None => self.part.push(NONE),
            Some(hash) => {
                self.part.push(SOME);
                self.part.extend_from_slice(hash);
            }
        }
        self.part.extend_from_slice(chain);
        self.records += 1;
        self.write_part()
    }

    fn text(&mut self, text: &str) -> Result<()> {
        let length = u32::try_from(text.len()).map_err(|e| Error::writing(io::Error::other(e)))?;
        self.part.extend_from_slice(&length.to_le_bytes());
        self.part.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn write_part(&mut self) -> Result<()> {
        self.hasher.update(&self.part);
        self.body.write_all(&self.part).map_err(Error::writing)?;
        self.part.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<u64> {
        self.part.push(END);
        self.part.extend_from_slice(&self.records.to_le_bytes());
        self.hasher.update(&self.part);
        let hash = self.hasher.finalize();
        self.part.extend_from_slice(hash.as_bytes());
        self.body.write_all(&self.part).map_err(Error::writing)?;
        let sink = self.body.finish().map_err(Error::writing)?;
        let mut to = match sink {
            Sink::Plain(to) => to,
            Sink::Sealed(sealer) => sealer.finish().map_err(Error::writing)?,
        };
        to.flush().map_err(Error::writing)?;
        Ok(self.records)
    }
}
