//! Finding known values: all spellings of all of them in one pass over the text, the leftmost
//! first, and of those that begin together the longest.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, Input, MatchKind};

use super::stream::More;
use super::{REPLACEMENT, spelling};

/// Beyond this much to look for, memory counts for more than speed.
const FAST_BYTES_MAX: usize = 8 * 1024;
/// Of a secret, one part in this many may be shown.
const SHOWN_PART: usize = 4;

/// Whether a text continues as a secret does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    None,
    /// It may, if more comes.
    AskReason,
    Until(usize),
}

pub(super) struct Search {
    automaton: AhoCorasick,
    /// What the automaton looks for, sorted.
    spellings: Vec<String>,
    /// Which bytes a spelling can begin with.
    first: [bool; 256],
    /// The spellings as they stand in JSON.
    in_json: AhoCorasick,
}

impl Search {
    /// `None` if there is nothing to look for.
    pub(super) fn new<'a>(
        values: impl Iterator<Item = &'a str>,
    ) -> Result<Option<Self>, BuildError> {
        let mut spellings: BTreeSet<String> = values.flat_map(spelling::spellings).collect();
        if spellings.is_empty() {
            return Ok(None);
        }
        let in_json: Vec<String> = spellings.iter().map(|text| spelling::in_json(text)).collect();
        // A secret that could touch what stands for one must not be found in it, or masking twice
        // would mask the mask.
        if spellings.iter().any(|text| touches_replacement(text)) {
            spellings.insert(REPLACEMENT.to_owned());
        }
        let spellings: Vec<String> = spellings.into_iter().collect();
        let mut first = [false; 256];
        for byte in spellings.iter().filter_map(|text| text.bytes().next()) {
            first[usize::from(byte)] = true;
        }
        let build = |patterns: &[String]| {
            let bytes: usize = patterns.iter().map(String::len).sum();
            // The fastest kind takes up to a kilobyte for each byte that is looked for.
            let kind = (bytes > FAST_BYTES_MAX).then_some(AhoCorasickKind::ContiguousNFA);
            let mut builder = AhoCorasick::builder();
            builder.match_kind(MatchKind::LeftmostLongest).kind(kind).build(patterns)
        };
        let (automaton, in_json) = (build(&spellings)?, build(&in_json)?);
        Ok(Some(Self { automaton, spellings, first, in_json }))
    }

    /// How much is looked for: what the memory that it takes is proportional to.
    pub(super) fn bytes(&self) -> usize {
        self.spellings.iter().map(String::len).sum()
    }

    /// False: no string in this JSON text holds a known value.
    pub(super) fn may_be_in_json(&self, json: &str) -> bool {
        self.in_json.is_match(json)
    }

    /// Masks in the text that JSON was written as, without reading it.
    pub(super) fn replace_in_json(&self, json: &str) -> String {
        let mut out = String::with_capacity(json.len());
        self.in_json.replace_all_with(json, &mut out, |_, _, out| {
            out.push_str(REPLACEMENT);
            true
        });
        out
    }

    pub(super) fn replace<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(mut found) = self.find(text, 0) else { return Cow::Borrowed(text) };
        let mut out = String::with_capacity(text.len());
        let mut position = 0;
        loop {
            out.push_str(&text[position..found.start]);
            out.push_str(REPLACEMENT);
            position = found.end;
            match self.find(text, position) {
                Some(next) => found = next,
                None => break,
            }
        }
        out.push_str(&text[position..]);
        if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
    }

    pub(super) fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
        self.automaton.find(Input::new(text).span(from..text.len())).map(|found| found.range())
    }

    /// The first position from which on the text may be the beginning of a spelling that continues
    /// behind its end.
    pub(super) fn unfinished(&self, text: &str, from: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        (from..bytes.len())
            .find(|at| self.first[usize::from(bytes[*at])] && self.is_beginning(&bytes[*at..]))
    }

    fn is_beginning(&self, rest: &[u8]) -> bool {
        self.begun(rest).next().is_some()
    }

    /// The spellings that begin so and go on.
    fn begun<'a>(&'a self, rest: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let at = self.spellings.partition_point(|spelling| spelling.as_bytes() <= rest);
        let behind = self.spellings[at..].iter().map(String::as_bytes);
        behind.take_while(move |spelling| spelling.starts_with(rest))
    }

    /// Whether a text has in it neither a known value nor, at its end, too much of one's beginning.
    pub(super) fn may_show(&self, text: &str) -> bool {
        let bytes = text.as_bytes();
        let little = |rest: &[u8]| self.begun(rest).all(|s| rest.len() * SHOWN_PART <= s.len());
        self.find(text, 0).is_none() && (0..bytes.len()).all(|at| little(&bytes[at..]))
    }

    /// Whether a text is not too much of any spelling that it may be of the middle of.
    pub(super) fn may_show_of_middle(&self, text: &str) -> bool {
        let is_in = |spelling: &str| spelling.contains(text);
        let much = |spelling: &&String| text.len() * SHOWN_PART > spelling.len();
        !self.spellings.iter().filter(much).any(|spelling| is_in(spelling))
    }

    /// Whether a text, from its first byte on, is the rest of a spelling whose beginning is not
    /// here; no less than may not be shown of it.
    pub(super) fn rest_of_one(&self, text: &str, more: More) -> Rest {
        let text = text.as_bytes();
        let mut end = 0;
        for spelling in self.spellings.iter().filter(|s| *s != REPLACEMENT) {
            let spelling = spelling.as_bytes();
            for rest in (1..spelling.len()).map(|at| &spelling[at..]) {
                let same = rest.iter().zip(text).take_while(|(a, b)| a == b).count();
                let unfinished = same == text.len() && same < rest.len();
                if unfinished && more == More::MayCome {
                    return Rest::AskReason;
                }
                if (unfinished || same == rest.len()) && same * SHOWN_PART > spelling.len() {
                    end = end.max(same);
                }
            }
        }
        if end == 0 { Rest::None } else { Rest::Until(end) }
    }
}

fn touches_replacement(text: &str) -> bool {
    let shorter = text.len().min(REPLACEMENT.len());
    let ends_meet = (1..=shorter).any(|n| {
        let (t, r) = (text.as_bytes(), REPLACEMENT.as_bytes());
        t[..n] == r[r.len() - n..] || t[t.len() - n..] == r[..n]
    });
    ends_meet || REPLACEMENT.contains(text) || text.contains(REPLACEMENT)
}
