//! Reads a log's lines in order and checks that each follows from the one before. Never loads a
//! line that is longer than a line can be.

use std::borrow::Cow;
use std::io::{self, BufRead as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Scope;

use piton_core::record::may_follow;
use piton_core::{Seq, chain};

use super::disk::DiskFile;
use super::line::{self, FOREIGN_BYTES_MAX, Kept, LINE_BYTES_MAX, Line, Why};

const CHUNK_BYTES: usize = 64 * 1024;

/// Lines are handed over by so many bytes of them, at least.
const AHEAD_BYTES: u64 = 128 * 1024;
/// How often that may wait: reading is not to run far ahead.
const CHUNKS_WAITING: usize = 4;

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
    /// Elsewhere, in the first form of this layout: without chain and batches.
    Foreign,
}

/// Where a line begins; a scan can start there.
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

/// Where the first line break is. Not one byte at a time: each byte of a log comes by here.
fn line_break(mut bytes: &[u8]) -> Option<usize> {
    let all = bytes;
    let read = bytes.skip_until(b'\n').ok()?;
    all[..read].ends_with(b"\n").then(|| read - 1)
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
            if let Some(found) = line_break(&self.buffer[looked..]) {
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

    /// Moves past a line that is too long, without loading it.
    pub(crate) fn skip_line(&mut self) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK_BYTES];
        while self.at < self.end {
            let want = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let read = self.file.read_at(&mut chunk[..want], self.at)?;
            if read == 0 {
                break;
            }
            if let Some(found) = line_break(&chunk[..read]) {
                self.at += found as u64 + 1;
                return Ok(true);
            }
            self.at += read as u64;
        }
        Ok(false)
    }
}

/// A line by itself: what can be said about it without the one before it.
#[derive(Debug)]
struct Alone<'a> {
    /// Where it begins.
    at: u64,
    decoded: Result<Line<'a>, Why>,
    /// Whether a content that lies in it is what was written; true if none does.
    content_fits: bool,
}

/// Reads the next line; `None` at the end. It is whole, or nothing can be read behind it.
fn next_alone(
    raw: &mut RawLines,
    form: Form,
    key: &chain::Key,
) -> io::Result<Option<Alone<'static>>> {
    let at = raw.at;
    let decoded = match (raw.next()?, form) {
        (Raw::End, _) => return Ok(None),
        (Raw::TooLong, _) => Err(TOO_LONG),
        (Raw::Unended(_), Form::Native) => Err(NO_END),
        (Raw::Whole(text), Form::Native) => line::decode(text),
        // The program that wrote it may have left out the last line break.
        (Raw::Whole(text) | Raw::Unended(text), Form::Foreign) => {
            let length = text.len() as u64;
            let decoded = line::decode_foreign(text, key);
            raw.at = raw.at.max(at + length);
            decoded
        }
    };
    let content_fits = match decoded.as_ref().map(|line| (&line.content, line.payload_hash)) {
        Ok((Kept::Json(text), hash)) => hash == Some(key.payload_hash(text.as_bytes())),
        _ => true,
    };
    Ok(Some(Alone { at, decoded, content_fits }))
}

/// What the lines so far say about the next one.
#[derive(Debug)]
struct Order {
    key: chain::Key,
    form: Form,
    /// The last line's number.
    line: u64,
    last: Seq,
    chain: chain::Hash,
    /// How many of the last line's batch follow. Unknown at first, if reading begins in the middle.
    left: Option<u32>,
}

impl Order {
    /// The line, if it follows.
    fn take<'a>(&mut self, next: Alone<'a>) -> Result<Line<'a>, Fault> {
        let bad =
            |why, found| Err(Fault::Bad(Bad { line: self.line + 1, at: next.at, why, found }));
        let mut line = match next.decoded {
            Ok(line) => line,
            Err(why) => return bad(why, None),
        };
        let seq = line.seq;
        if !may_follow(self.last, seq, &line.kind) {
            return bad(WRONG_SEQ, Some(seq));
        }
        if self.left.is_some_and(|left| left > 0 && line.batch_left != left - 1) {
            return bad(WRONG_BATCH, Some(seq));
        }
        let made = line.link(&self.key, &self.chain);
        match self.form {
            Form::Native if made != line.chain => return bad(WRONG_CHAIN, Some(seq)),
            Form::Native => {}
            Form::Foreign => line.chain = made,
        }
        // A content may have been torn while everything around it is whole.
        if !next.content_fits {
            return bad(WRONG_CONTENT, Some(seq));
        }
        self.line += 1;
        (self.last, self.chain, self.left) = (seq, line.chain, Some(line.batch_left));
        Ok(line)
    }
}

/// Lines that follow from each other.
#[derive(Debug)]
pub(crate) struct Scanner {
    raw: RawLines,
    order: Order,
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
        Self { raw, order: Order { key, form, line: 0, last, chain, left: Some(0) } }
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
        let (line, last) = (mark.seq - 1 - base, mark.seq - 1);
        Self { raw, order: Order { key, form, line, last, chain: mark.previous, left: None } }
    }

    /// The first line begins a batch.
    pub(crate) fn at_batch_start(self) -> Self {
        Self { order: Order { left: Some(0), ..self.order }, ..self }
    }

    /// Where the next line begins.
    pub(crate) fn mark(&self) -> Mark {
        Mark { seq: self.order.last + 1, at: self.raw.at, previous: self.order.chain }
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'static>>, Fault> {
        let next = next_alone(&mut self.raw, self.order.form, &self.order.key)?;
        next.map(|next| self.order.take(next)).transpose()
    }

    /// The lines, read and decoded ahead of who takes them by a thread of `scope`.
    pub(crate) fn ahead<'scope>(self, scope: &'scope Scope<'scope, '_>) -> Ahead {
        let Self { mut raw, order } = self;
        let (form, key) = (order.form, order.key.clone());
        let (send, chunks) = sync_channel(CHUNKS_WAITING);
        scope.spawn(move || {
            let mut chunk = Chunk::default();
            let mut begin = raw.at;
            loop {
                let next = next_alone(&mut raw, form, &key);
                let is_good = matches!(&next, Ok(Some(Alone { decoded: Ok(_), .. })));
                if let Some(next) = next.transpose() {
                    chunk.push(next);
                }
                if !is_good || raw.at - begin >= AHEAD_BYTES {
                    // The receiver stops listening once it has found a fault.
                    if send.send(std::mem::take(&mut chunk)).is_err() || !is_good {
                        return;
                    }
                    begin = raw.at;
                }
            }
        });
        Ahead { order, chunks, lines: Vec::new().into_iter(), texts: String::new(), text_at: 0 }
    }
}

/// Lines whose texts lie one after the other. None has memory of its own: what one thread allocates
/// and another frees costs both of them more than the texts are worth.
#[derive(Debug, Default)]
struct Chunk {
    lines: Vec<io::Result<Packed>>,
    texts: String,
}

/// A line whose kind and header lie elsewhere, and whose content is left out.
#[derive(Debug)]
struct Packed {
    line: Alone<'static>,
    kind_bytes: usize,
    header_bytes: usize,
}

impl Chunk {
    fn push(&mut self, next: io::Result<Alone<'static>>) {
        let texts = &mut self.texts;
        self.lines.push(next.map(|mut alone| {
            let (mut kind_bytes, mut header_bytes) = (0, 0);
            if let Ok(line) = &mut alone.decoded {
                (kind_bytes, header_bytes) = (line.kind.len(), line.header.len());
                for text in [&mut line.kind, &mut line.header] {
                    texts.push_str(text);
                    *text = Cow::Borrowed("");
                }
                if let Kept::Json(content) = &mut line.content {
                    *content = Cow::Borrowed("");
                }
            }
            Packed { line: alone, kind_bytes, header_bytes }
        }));
    }
}

/// Lines that follow from each other, of which another thread has done what it takes no order for.
/// Contents that lie in their lines are checked, and left out.
#[derive(Debug)]
pub(crate) struct Ahead {
    order: Order,
    chunks: Receiver<Chunk>,
    lines: std::vec::IntoIter<io::Result<Packed>>,
    texts: String,
    text_at: usize,
}

impl Ahead {
    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, Fault> {
        let packed = loop {
            if let Some(next) = self.lines.next() {
                break next?;
            }
            // Without a sender all is read.
            let Ok(chunk) = self.chunks.recv() else { return Ok(None) };
            (self.lines, self.texts, self.text_at) = (chunk.lines.into_iter(), chunk.texts, 0);
        };
        let Packed { line: mut alone, kind_bytes, header_bytes } = packed;
        if let Ok(line) = &mut alone.decoded {
            let (kind, rest) = self.texts[self.text_at..].split_at(kind_bytes);
            (line.kind, line.header) = (kind.into(), rest[..header_bytes].into());
            self.text_at += kind_bytes + header_bytes;
        }
        self.order.take(alone).map(Some)
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
