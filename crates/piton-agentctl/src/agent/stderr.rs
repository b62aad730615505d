//! What the agent last wrote to stderr, masked. Shown when it fails; bounded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use piton_core::mask::{Masker, StreamMasker};
use tokio::io::{AsyncRead, AsyncReadExt};

const BYTES_MAX: usize = 64 * 1024;
/// What a message shows of it.
const SHOWN_MAX: usize = 4 * 1024;

/// The end of it. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Stderr(Arc<Mutex<Kept>>);

#[derive(Debug)]
struct Kept {
    masker: StreamMasker,
    /// The beginning of a character.
    rest: Vec<u8>,
    text: VecDeque<u8>,
}

impl Stderr {
    pub(crate) fn new(masker: Arc<Masker>) -> Self {
        let masker = StreamMasker::new(masker);
        Self(Arc::new(Mutex::new(Kept { masker, rest: Vec::new(), text: VecDeque::new() })))
    }

    /// Reads until the end of the stream, so that an agent never blocks on a full stderr pipe.
    pub(crate) async fn read(self, mut from: impl AsyncRead + Unpin) {
        let mut piece = vec![0; 8 * 1024];
        while let Ok(read) = from.read(&mut piece).await
            && read > 0
        {
            self.push(&piece[..read]);
        }
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = std::mem::take(&mut kept.rest);
        all.extend_from_slice(bytes);
        let cut = match std::str::from_utf8(&all) {
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            _ => all.len(),
        };
        kept.rest = all.split_off(cut);
        let masked = kept.masker.push(&String::from_utf8_lossy(&all));
        kept.keep(&masked);
    }

    /// The end of it, so far.
    pub(crate) fn tail(&self) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = kept.masker.cut();
        kept.keep(&held);
        let skip = kept.text.len().saturating_sub(SHOWN_MAX);
        let bytes: Vec<u8> = kept.text.iter().skip(skip).copied().collect();
        String::from_utf8_lossy(&bytes).trim_start_matches('\u{fffd}').trim_end().to_owned()
    }
}

impl Kept {
    fn keep(&mut self, text: &str) {
        self.text.extend(text.as_bytes());
        let over = self.text.len().saturating_sub(BYTES_MAX);
        self.text.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use piton_core::mask::KeyPatterns;

    #[tokio::test]
    async fn the_end_is_kept_and_secrets_are_not() {
        let masker = Masker::new(KeyPatterns::default(), ["hunter2hunter2"]).unwrap();
        let stderr = Stderr::new(Arc::new(masker));
        for _ in 0..20_000 {
            stderr.push("a line – of many\n".as_bytes());
        }
        stderr.push(b"the secret is hunter2h");
        stderr.push("unter2, größ".as_bytes());
        let last = "ße".as_bytes();
        stderr.push(&last[..1]);
        stderr.push(&last[1..]);
        let tail = stderr.tail();
        assert!(tail.len() <= SHOWN_MAX && tail.ends_with("größße"), "{tail}");
        assert!(!tail.contains("hunter2"), "{tail}");
        assert!(stderr.0.lock().unwrap().text.len() <= BYTES_MAX);
    }
}
