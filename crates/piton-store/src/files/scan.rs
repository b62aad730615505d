//! Reads a log's lines in order and checks that each follows from the one before. Never loads a
//! line that is longer than a line can be.

use std::io;
use std::sync::Arc;

use piton_core::record::may_follow;
use piton_core::{Seq, chain};

use super::disk::DiskFile;
use super::line::{self, FOREIGN_BYTES_MAX, Kept, LINE_BYTES_MAX, Line, Why};

const CHUNK_BYTES: usize = 64 * 1024;

pub(crate) const TOO_LONG: Why = "it is longer than a line can be";
pub(crate) const NO_END: Why = "it has no end";
pub(crate) const WRONG_SEQ: Why = "its seq does not follow";
pub(crate) const WRONG_BATCH: Why = "its batch does not count down";
pub(crate) const WRONG_CHAIN: Why = "its chain does not follow";
pub(crate) const WRONG_CONTENT: Why = "its content is not what was written";

/// How a log's lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By this store.
    Native,
    /// Elsewhere, in S4's first form: without chain and batches.
    Foreign,
}

/// A line's beginning: whoever knows one can read on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) seq: Seq,
    pub(crate) at: u64,
    /// The link before it.
    pub(crate) previous: chain::Hash,
}

/// A line that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    /// Counted from 1.
    pub(crate) line: u64,
    /// Where it begins.
    pub(crate) at: u64,
    pub(crate) why: Why,
    /// The seq that it says it has.
    pub(crate) found: Option<Seq>,
}

#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Bad(Bad),
}

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Raw lines of a file.
#[derive(Debug)]
pub(crate) struct RawLines {
    file: Arc<dyn DiskFile>,
    /// Nothing is read beyond it.
    end: u64,
    /// Where the next line begins.
    pub(crate) at: u64,
    line_bytes_max: usize,
    buffer: Vec<u8>,
    buffer_at: u64,
}

/// One raw line, without its line break.
#[derive(Debug)]
pub(crate) enum Raw<'a> {
    Whole(&'a [u8]),
    /// The file ends before the line does.
    Unended(&'a [u8]),
    TooLong,
    End,
}

impl RawLines {
    pub(crate) fn new(file: Arc<dyn DiskFile>, at: u64, end: u64, form: Form) -> Self {
        let line_bytes_max = match form {
            Form::Native => LINE_BYTES_MAX,
            Form::Foreign => FOREIGN_BYTES_MAX,
        };
        Self { file, end, at, line_bytes_max, buffer: Vec::new(), buffer_at: at }
    }

    fn fill(&mut self) -> io::Result<bool> {
        let from = self.buffer_at + self.buffer.len() as u64;
        let more = usize::try_from(self.end.saturating_sub(from)).unwrap_or(usize::MAX);
        let old = self.buffer.len();
        // A long line is read in ever larger pieces, so that it is not looked through again and
        // again for its end.
        self.buffer.resize(old + more.min(CHUNK_BYTES.max(old)), 0);
        let read = self.file.read_at(&mut self.buffer[old..], from)?;
        self.buffer.truncate(old + read);
        Ok(read > 0)
    }

    pub(crate) fn next(&mut self) -> io::Result<Raw<'_>> {
        let skip = usize::try_from(self.at - self.buffer_at).unwrap_or(usize::MAX);
        if skip >= self.buffer.len() {
            self.buffer.clear();
            self.buffer_at = self.at;
        } else if skip > CHUNK_BYTES {
            self.buffer.drain(..skip);
            self.buffer_at = self.at;
        }
        let start = usize::try_from(self.at - self.buffer_at).unwrap_or(usize::MAX);
        let mut looked = start;
        let length = loop {
            if let Some(found) = self.buffer[looked..].iter().position(|byte| *byte == b'\n') {
                break looked + found - start;
            }
            looked = self.buffer.len();
            if looked - start > self.line_bytes_max {
                return Ok(Raw::TooLong);
            }
            if !self.fill()? {
                return Ok(match &self.buffer[start..] {
                    [] => Raw::End,
                    rest => Raw::Unended(rest),
                });
            }
        };
        if length > self.line_bytes_max {
            return Ok(Raw::TooLong);
        }
        self.at += length as u64 + 1;
        Ok(Raw::Whole(&self.buffer[start..start + length]))
    }

    /// Goes on behind a line that is too long, without loading it.
    pub(crate) fn skip_line(&mut self) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK_BYTES];
        while self.at < self.end {
            let want = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let read = self.file.read_at(&mut chunk[..want], self.at)?;
            if read == 0 {
                break;
            }
            if let Some(found) = chunk[..read].iter().position(|byte| *byte == b'\n') {
                self.at += found as u64 + 1;
                return Ok(true);
            }
            self.at += read as u64;
        }
        Ok(false)
    }
}

/// Lines that follow from each other.
#[derive(Debug)]
pub(crate) struct Scanner {
    raw: RawLines,
    key: chain::Key,
    form: Form,
    /// The last line's number.
    line: u64,
    pub(crate) last: Seq,
    pub(crate) chain: chain::Hash,
    /// How many of the last line's batch follow. Unknown at first, if reading begins in the middle.
    pub(crate) left: Option<u32>,
}

impl Scanner {
    /// From the first line on. A log that began elsewhere says where.
    pub(crate) fn from_start(
        file: Arc<dyn DiskFile>,
        end: u64,
        key: chain::Key,
        form: Form,
        last: Seq,
        chain: chain::Hash,
    ) -> Self {
        let raw = RawLines::new(file, 0, end, form);
        Self { raw, key, form, line: 0, last, chain, left: Some(0) }
    }

    /// From a mark on; `base` is the seq before the first line's.
    pub(crate) fn from_mark(
        file: Arc<dyn DiskFile>,
        end: u64,
        key: chain::Key,
        form: Form,
        base: Seq,
        mark: Mark,
    ) -> Self {
        let raw = RawLines::new(file, mark.at, end, form);
        let line = mark.seq - 1 - base;
        Self { raw, key, form, line, last: mark.seq - 1, chain: mark.previous, left: None }
    }

    /// Where the next line begins.
    pub(crate) fn mark(&self) -> Mark {
        Mark { seq: self.last + 1, at: self.raw.at, previous: self.chain }
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'static>>, Fault> {
        let at = self.raw.at;
        let bad = |why, found| Fault::Bad(Bad { line: self.line + 1, at, why, found });
        let decoded = match (self.raw.next()?, self.form) {
            (Raw::End, _) => return Ok(None),
            (Raw::TooLong, _) => return Err(bad(TOO_LONG, None)),
            (Raw::Unended(_), Form::Native) => return Err(bad(NO_END, None)),
            (Raw::Whole(raw), Form::Native) => line::decode(raw),
            // Whoever wrote it may have left out the last line break.
            (Raw::Whole(raw) | Raw::Unended(raw), Form::Foreign) => {
                let length = raw.len() as u64;
                let decoded = line::decode_foreign(raw, &self.key);
                self.raw.at = self.raw.at.max(at + length);
                decoded
            }
        };
        let mut line = decoded.map_err(|why| bad(why, None))?;
        let seq = line.seq;
        if !may_follow(self.last, seq, &line.kind) {
            return Err(bad(WRONG_SEQ, Some(seq)));
        }
        if self.left.is_some_and(|left| left > 0 && line.batch_left != left - 1) {
            return Err(bad(WRONG_BATCH, Some(seq)));
        }
        let made = line.link(&self.key, &self.chain);
        match self.form {
            Form::Native if made != line.chain => return Err(bad(WRONG_CHAIN, Some(seq))),
            Form::Native => {}
            Form::Foreign => line.chain = made,
        }
        // A content may have been torn while everything around it is whole.
        if let Kept::Json(text) = &line.content
            && line.payload_hash != Some(self.key.payload_hash(text.as_bytes()))
        {
            return Err(bad(WRONG_CONTENT, Some(seq)));
        }
        self.line += 1;
        (self.last, self.chain, self.left) = (seq, line.chain, Some(line.batch_left));
        Ok(Some(line))
    }
}

/// Whether anything behind a bad line was written after that line was durable: then the line was
/// not torn by a crash, but damaged later.
pub(crate) fn was_durable(
    file: &Arc<dyn DiskFile>,
    bad: &Bad,
    seq: Seq,
    end: u64,
) -> io::Result<bool> {
    let mut raw = RawLines::new(file.clone(), bad.at, end, Form::Native);
    loop {
        let too_long = match raw.next()? {
            Raw::End | Raw::Unended(_) => return Ok(false),
            Raw::TooLong => true,
            Raw::Whole(text) => {
                if let Ok(line) = line::decode(text)
                    && line.flushed.is_none_or(|flushed| flushed >= seq)
                {
                    return Ok(true);
                }
                false
            }
        };
        if too_long && !raw.skip_line()? {
            return Ok(false);
        }
    }
}
