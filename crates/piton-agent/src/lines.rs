//! Lines of a byte stream, of which no more than a limit is ever held.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};

use crate::envelope::{Envelope, EnvelopeScanner};

const BUFFER_BYTES: usize = 64 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// It was skipped; `envelope` has what could be read of it on the way.
    TooLong { bytes: u64, envelope: Envelope },
}

#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    bytes_max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader: BufReader::with_capacity(BUFFER_BYTES, reader), bytes_max }
    }

    /// The next line that is not empty; `None` at the end. What follows the last line's end counts
    /// as a line.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let mut line = Vec::new();
            let mut ended = false;
            while !ended {
                let piece = fill(&mut self.reader).await?;
                if piece.is_empty() {
                    return Ok(if is_blank(&line) { None } else { Some(Line::Whole(line)) });
                }
                let (taken, ends) = up_to_end(piece);
                if line.len() + taken > self.bytes_max + 1 {
                    return self.skip(line).await.map(Some);
                }
                line.extend_from_slice(&piece[..taken]);
                ended = ends;
                self.reader.consume(taken);
            }
            while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                line.pop();
            }
            if !is_blank(&line) {
                return Ok(Some(Line::Whole(line)));
            }
        }
    }

    async fn skip(&mut self, begun: Vec<u8>) -> io::Result<Line> {
        let mut scanner = EnvelopeScanner::default();
        scanner.push(&begun);
        let mut bytes = begun.len() as u64;
        drop(begun);
        loop {
            let piece = fill(&mut self.reader).await?;
            let (taken, ends) = up_to_end(piece);
            scanner.push(&piece[..taken]);
            bytes += taken as u64;
            let is_over = ends || piece.is_empty();
            self.reader.consume(taken);
            if is_over {
                let bytes = bytes - u64::from(ends);
                return Ok(Line::TooLong { bytes, envelope: scanner.finish() });
            }
        }
    }
}

async fn fill<R: AsyncBufRead + Unpin>(reader: &mut R) -> io::Result<&[u8]> {
    // A pipe whose other end died may say so instead of ending.
    match reader.fill_buf().await {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(&[]),
        other => other,
    }
}

/// How much of it belongs to this line, and whether that ends it.
fn up_to_end(piece: &[u8]) -> (usize, bool) {
    match piece.iter().position(|byte| *byte == b'\n') {
        Some(at) => (at + 1, true),
        None => (piece.len(), false),
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &str, bytes_max: usize) -> Vec<Line> {
        let mut lines = Lines::new(text.as_bytes(), bytes_max);
        let mut out = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            out.push(line);
        }
        out
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_end_with_a_newline_or_with_the_stream() {
        assert_eq!(lines("a\r\n\n  \nb\nc", 10).await, [whole("a"), whole("b"), whole("c")]);
        assert_eq!(lines("", 10).await, []);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_skipped_to_its_end() {
        let text = format!("{}\n{}\nnext\n", "x".repeat(10), "y".repeat(11));
        let skipped = Line::TooLong { bytes: 11, envelope: Envelope::default() };
        assert_eq!(lines(&text, 10).await, [whole("xxxxxxxxxx"), skipped, whole("next")]);
        let long = format!("{{\"id\":7,\"result\":\"{}\"}}", "z".repeat(1_000_000));
        let Line::TooLong { bytes, envelope } = &lines(&long, 10).await[0] else { panic!() };
        assert_eq!(*bytes, long.len() as u64);
        assert_eq!(envelope.id, Some(7.into()));
        assert_eq!(envelope.method, None);
    }
}
