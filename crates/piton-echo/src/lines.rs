//! Lines of its input, of which no more than a limit is held.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    bytes_max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader: BufReader::new(reader), bytes_max }
    }

    /// The next line that is neither empty nor too long, without its end; `None` at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut is_too_long = false;
        loop {
            let mut line = Vec::new();
            let mut part = (&mut self.reader).take(self.bytes_max as u64);
            if part.read_until(b'\n', &mut line).await? == 0 {
                return Ok(None);
            }
            let is_whole = line.ends_with(b"\n") || line.len() < self.bytes_max;
            let is_skipped = std::mem::replace(&mut is_too_long, !is_whole);
            let line = line.trim_ascii_end();
            if is_whole && !is_skipped && !line.is_empty() {
                return Ok(Some(line.to_vec()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_that_are_too_long_are_skipped() {
        let mut lines = Lines::new(&b"one\n\n0123456789abcdef\ntwo\r\nthree"[..], 8);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(read, ["one", "two", "three"]);
    }
}
