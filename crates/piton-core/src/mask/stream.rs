//! Masking a text that comes in pieces: the possible beginning of a secret waits for the next
//! piece.

use std::sync::Arc;

use super::search::{Rest, Search};
use super::{Masker, REPLACEMENT};
use crate::planted::{self, Bug};

/// One text on its way. However it is cut into pieces, what comes out is what masking the whole
/// would give, as long as no reader needs the rest in between ([`Self::cut`]).
#[derive(Debug)]
pub struct StreamMasker {
    masker: Arc<Masker>,
    /// What may be the beginning of a secret, from its first byte on. Never longer than the longest
    /// spelling.
    held: String,
    /// How much of `held` was given out because a reader could not wait.
    given_out: usize,
    /// It was given out masked.
    given_masked: bool,
    before: Before,
    changed: bool,
}

/// What came before `held`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing that matters.
    Seen,
    /// What another writer wrote: it may end in the middle of a secret.
    Unseen,
    /// Nothing, as far as is known, though another writer may have written something.
    Perhaps,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    MayCome,
    Never,
}

impl StreamMasker {
    pub fn new(masker: Arc<Masker>) -> Self {
        Self {
            masker,
            held: String::new(),
            given_out: 0,
            given_masked: false,
            before: Before::Seen,
            changed: false,
        }
    }

    /// For a text whose beginning another writer wrote. A secret may be cut there, and what is
    /// written of it may be masked: if the text continues as a secret ends, with more than may be
    /// shown of it, this is masked as the rest of it.
    pub fn resumed(masker: Arc<Masker>) -> Self {
        Self { before: Before::Unseen, ..Self::new(masker) }
    }

    /// For a text that seems to begin, where it is not known any more what was written before it. The
    /// same, but a little that may be of a secret's middle may be shown, as a little of its beginning
    /// may: nearly always it is not.
    pub fn perhaps_resumed(masker: Arc<Masker>) -> Self {
        Self { before: Before::Perhaps, ..Self::new(masker) }
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

    /// Whether some of what may be a secret was given out before it was known what it is.
    pub fn has_released(&self) -> bool {
        self.given_out > 0
    }

    /// Whether something waits of which so little is known that it may be shown as it is.
    pub fn may_show(&self) -> bool {
        let may = |search: &Search| {
            search.may_show(&self.held)
                && match self.before {
                    Before::Seen => true,
                    Before::Unseen => false,
                    Before::Perhaps => search.may_show_of_middle(&self.held),
                }
        };
        self.held() > 0 && self.masker.search.as_deref().is_none_or(may)
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
    /// waits is given out: as it is if it is at most a quarter of every secret that it may begin,
    /// masked otherwise. If it does turn out to be a secret, its rest is masked.
    pub fn cut(&mut self) -> String {
        let shows = self.may_show();
        let rest = self.held[self.given_out..].to_owned();
        if rest.is_empty() {
            return rest;
        }
        self.given_out = self.held.len();
        if shows {
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
        if self.before != Before::Seen && !self.held.is_empty() {
            match search.as_deref().map_or(Rest::None, |s| s.rest_of_one(&self.held, more)) {
                Rest::None => {}
                Rest::AskReason => return out,
                Rest::Until(end) => {
                    if !(self.given_masked && self.given_out > 0) {
                        out.push_str(REPLACEMENT);
                    }
                    self.changed = true;
                    position = end;
                }
            }
            self.before = Before::Seen;
        }
        loop {
            let search = search.as_deref();
            let found = search.and_then(|search| search.find(&self.held, position));
            let unfinished = match more {
                More::MayCome if planted::is(Bug::SecretInPieces) => None,
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
