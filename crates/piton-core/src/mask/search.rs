//! Finding known values: all spellings of all of them in one pass over the text, the leftmost
//! first, and of those that begin together the longest.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::{REPLACEMENT, spelling};

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
    pub(super) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut spellings: BTreeSet<String> = values.flat_map(spelling::spellings).collect();
        if spellings.is_empty() {
            return None;
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
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns).ok()
        };
        // Building fails only for more patterns than the limits let through.
        let (automaton, in_json) = (build(&spellings)?, build(&in_json)?);
        Some(Self { automaton, spellings, first, in_json })
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

    /// The first position from which on the text may be the beginning of a spelling that goes on
    /// behind its end.
    pub(super) fn unfinished(&self, text: &str, from: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        (from..bytes.len())
            .find(|at| self.first[usize::from(bytes[*at])] && self.is_beginning(&bytes[*at..]))
    }

    fn is_beginning(&self, rest: &[u8]) -> bool {
        let at = self.spellings.partition_point(|spelling| spelling.as_bytes() <= rest);
        self.spellings.get(at).is_some_and(|spelling| spelling.as_bytes().starts_with(rest))
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
