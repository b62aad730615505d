//! Server-sent events, read as they come. Each byte is looked at once.

use piton_core::planted::{self, Bug};

/// The longest event that is read.
const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub id: Option<String>,
    /// The event's name; empty if it has none.
    pub event: String,
    /// Its lines, joined by a line feed.
    pub data: String,
}

/// Takes bytes as they arrive and gives events when they are whole.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    bytes: usize,
    /// A line feed after a carriage return ends no second line.
    after_return: bool,
    ready: std::collections::VecDeque<SseEvent>,
}

/// An event is longer than is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "An event is longer than {EVENT_BYTES_MAX} bytes")
    }
}

impl std::error::Error for TooLong {}

impl Parser {
    /// Takes what has arrived.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            let is_after_return = std::mem::take(&mut self.after_return);
            if is_after_return && !planted::is(Bug::LineEndTwice) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                return self.extend(bytes);
            };
            self.extend(&bytes[..end])?;
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line();
        }
        Ok(())
    }

    /// The next whole event.
    pub fn next_event(&mut self) -> Option<SseEvent> {
        self.ready.pop_front()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.bytes += bytes.len();
        if self.bytes > EVENT_BYTES_MAX {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            self.bytes = 0;
            if std::mem::take(&mut self.has_data) {
                self.ready.push_back(event);
            }
            return;
        }
        let line = String::from_utf8_lossy(&line);
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.event),
            "id" => self.event.id = Some(value.to_owned()),
            // Comments keep the connection open; `retry` is for browsers.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": piton\nretry: 1000\n\nid: 3\nevent: run.started\ndata: {\"seq\":3}\n\n: here\n\nevent: x\r\ndata: a\r\ndata:b\r\n\r\nid: 9\n\n";

    fn events(pieces: impl IntoIterator<Item = Vec<u8>>) -> Vec<SseEvent> {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        for piece in pieces {
            parser.push(&piece).unwrap();
            events.extend(std::iter::from_fn(|| parser.next_event()));
        }
        events
    }

    /// Wants to show: wherever the bytes are cut, the events are the same.
    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let expected = [
            SseEvent {
                id: Some("3".into()),
                event: "run.started".into(),
                data: "{\"seq\":3}".into(),
            },
            SseEvent { id: None, event: "x".into(), data: "a\nb".into() },
        ];
        assert_eq!(events([STREAM.as_bytes().to_vec()]), expected);
        assert_eq!(events(STREAM.bytes().map(|byte| vec![byte])), expected);
        for at in 0..STREAM.len() {
            let (one, two) = STREAM.as_bytes().split_at(at);
            assert_eq!(events([one.to_vec(), two.to_vec()]), expected, "cut at {at}");
        }
    }

    #[test]
    fn what_never_ends_is_refused() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1024 * 1024];
        let refused = (0..100).find(|_| parser.push(&piece).is_err());
        assert_eq!(refused, Some(EVENT_BYTES_MAX / piece.len()));
    }
}
