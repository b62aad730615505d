//! Masking a text that comes in pieces: the possible beginning of a secret waits for the next
//! piece.

use std::sync::Arc;

use super::{Masker, REPLACEMENT};
use crate::limits::MASK_VALUE_BYTES_MIN;

/// One text on its way. However it is cut into pieces, what comes out is what masking the whole
/// would give, as long as nobody needs the rest in between ([`Self::cut`]).
#[derive(Debug)]
pub struct StreamMasker {
    masker: Arc<Masker>,
    /// What may be the beginning of a secret, from its first byte on. Never longer than the longest
    /// spelling.
    held: String,
    /// How much of `held` was given out because somebody could not wait.
    given_out: usize,
    /// It was given out masked.
    given_masked: bool,
    changed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    MayCome,
    Never,
}

impl StreamMasker {
    pub fn new(masker: Arc<Masker>) -> Self {
        Self { masker, held: String::new(), given_out: 0, given_masked: false, changed: false }
    }

    /// From now on with a masker that knows other values.
    pub fn set_masker(&mut self, masker: &Arc<Masker>) {
        if !Arc::ptr_eq(&self.masker, masker) {
            self.masker = Arc::clone(masker);
        }
    }

    /// How many bytes wait.
    pub fn held(&self) -> usize {
        self.held.len() - self.given_out
    }

    /// Whether anything was masked so far: what came out is not what went in.
    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// The next piece; gives what is safe to write.
    pub fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        self.take(More::MayCome)
    }

    /// The text ends here; gives the rest.
    pub fn finish(&mut self) -> String {
        self.take(More::Never)
    }

    /// Something must be written behind the text as it is now, though the text may go on. What
    /// waits is given out: as it is while it is too short to say much, masked otherwise. If it does
    /// turn out to be a secret, its rest is masked.
    pub fn cut(&mut self) -> String {
        let rest = self.held[self.given_out..].to_owned();
        if rest.is_empty() {
            return rest;
        }
        self.given_out = self.held.len();
        if self.held.len() < MASK_VALUE_BYTES_MIN {
            return rest;
        }
        let masked = if self.given_masked { "" } else { REPLACEMENT };
        self.given_masked = true;
        self.changed = true;
        masked.to_owned()
    }

    fn take(&mut self, more: More) -> String {
        let mut out = String::new();
        let mut position = 0;
        let search = self.masker.search.clone();
        loop {
            let search = search.as_deref();
            let found = search.and_then(|search| search.find(&self.held, position));
            let unfinished = match more {
                More::MayCome => search.and_then(|search| search.unfinished(&self.held, position)),
                More::Never => None,
            };
            match (found, unfinished) {
                (Some(found), at) if at.is_none_or(|at| found.start < at) => {
                    self.literal(position, found.start, &mut out);
                    let partly_out = found.start < self.given_out;
                    let is_out = found.end <= self.given_out || (partly_out && self.given_masked);
                    if !is_out {
                        out.push_str(REPLACEMENT);
                    }
                    self.changed = true;
                    position = found.end;
                }
                (_, Some(at)) => {
                    self.literal(position, at, &mut out);
                    position = at;
                    break;
                }
                (_, None) => {
                    self.literal(position, self.held.len(), &mut out);
                    position = self.held.len();
                    break;
                }
            }
        }
        self.held.drain(..position);
        self.given_out = self.given_out.saturating_sub(position);
        self.given_masked &= self.given_out > 0;
        out
    }

    fn literal(&self, from: usize, to: usize, out: &mut String) {
        out.push_str(self.held.get(from.max(self.given_out)..to).unwrap_or(""));
    }
}
