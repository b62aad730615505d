//! Which records have to be redacted so that something is no longer in a log. Only plans: a dry run
//! shows the plan, and the same plan is carried out. What lies in headers cannot be taken out; the
//! plan names it, so that the user learns that only deleting the session removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use crate::event::{Event, MessageDelta, Seq};
use crate::id::MessageId;
use crate::limits::MESSAGES_OPEN_MAX;
use crate::mask::{REPLACEMENT, spellings};
use crate::record::{Content, Record};

mod copies;

use copies::PromptCopies;

/// How much of a message is remembered, to find what is split over its pieces.
const TAIL_BYTES_MAX: usize = 64 * 1024;
/// What an excerpt shows before and after a match.
const AROUND_CHARS: usize = 24;

/// Finds what is looked for in one text: ranges in order, not overlapping, none empty.
pub trait Matcher: fmt::Debug + Send + Sync {
    fn find(&self, text: &str) -> Vec<Range<usize>>;
}

/// One value, in the spellings that JSON gives it.
#[derive(Clone)]
pub struct Literal(AhoCorasick);

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Literal(…)")
    }
}

impl Literal {
    /// `None` for a value that is empty, which is everywhere.
    pub fn new(value: &str) -> Option<Self> {
        let all: Vec<String> =
            spellings(value).into_iter().filter(|text| !text.is_empty()).collect();
        let mut builder = AhoCorasick::builder();
        let built = builder.match_kind(MatchKind::LeftmostLongest).build(&all).ok();
        built.filter(|_| !all.is_empty()).map(Self)
    }
}

impl Matcher for Literal {
    fn find(&self, text: &str) -> Vec<Range<usize>> {
        self.0.find_iter(text).map(|found| found.range()).collect()
    }
}

/// What is to be taken out.
#[derive(Debug)]
pub enum Selector {
    /// These records.
    Seqs(BTreeSet<Seq>),
    /// Every record in whose content something is found.
    Matching(Box<dyn Matcher>),
}

/// A record that is meant, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub seq: Seq,
    pub kind: Box<str>,
    pub matches: usize,
    /// Around the first match, with every match masked; empty if the record was named by its seq.
    pub excerpt: String,
}

impl Target {
    fn by_seq(record: &Record) -> Self {
        let (seq, kind) = (record.seq, record.kind.clone());
        Self { seq, kind, matches: 0, excerpt: String::new() }
    }
}

/// What redacting would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedactionPlan {
    /// To be taken out.
    pub targets: Vec<Target>,
    /// Found in a header, which stays: only deleting the session removes it.
    pub in_headers: Vec<Target>,
    /// Named by seq, and without content.
    pub empty: Vec<Seq>,
    /// Named by seq, and taken out before.
    pub gone: Vec<Seq>,
    /// Named by seq, and not in the log.
    pub missing: Vec<Seq>,
}

/// Looks at a log's records, with their contents, in order.
#[derive(Debug)]
pub struct Planner {
    selector: Selector,
    targets: BTreeMap<Seq, Target>,
    plan: RedactionPlan,
    tails: BTreeMap<MessageId, Tail>,
    copies: PromptCopies,
}

/// The end of a message that may go on.
#[derive(Debug, Default)]
struct Tail {
    text: String,
    /// Which record each part of the text is from, by where it begins.
    parts: Vec<(usize, Seq)>,
    /// The offset at which the message continues.
    next: u64,
}

impl Planner {
    pub fn new(selector: Selector) -> Self {
        let mut plan = RedactionPlan::default();
        if let Selector::Seqs(seqs) = &selector {
            plan.missing = seqs.iter().copied().collect();
        }
        Self {
            selector,
            targets: BTreeMap::new(),
            plan,
            tails: BTreeMap::new(),
            copies: PromptCopies::default(),
        }
    }

    pub fn look(&mut self, record: &Record) {
        match &self.selector {
            Selector::Seqs(seqs) => {
                let is_named = seqs.contains(&record.seq);
                if is_named {
                    self.named(record);
                }
                let copies = self.copies.look(record, is_named);
                self.targets.extend(copies.into_iter().map(|target| (target.seq, target)));
            }
            Selector::Matching(matcher) => {
                let in_header = look_into(&**matcher, record, &record.header);
                self.plan.in_headers.extend(in_header);
                let content = match &record.content {
                    Content::Json(json) => Some(json),
                    Content::None | Content::Omitted | Content::Redacted => None,
                };
                match record.event() {
                    Ok(Event::MessageDelta(delta)) => self.look_across(record, &delta),
                    Ok(Event::MessageCompleted(completed)) => {
                        self.tails.remove(&completed.message_id);
                    }
                    _ => {
                        let found = content.and_then(|json| look_into(&**matcher, record, json));
                        self.targets.extend(found.map(|target| (record.seq, target)));
                    }
                }
            }
        }
    }

    pub fn finish(mut self) -> RedactionPlan {
        self.plan.targets = self.targets.into_values().collect();
        self.plan
    }

    fn named(&mut self, record: &Record) {
        let seq = record.seq;
        self.plan.missing.retain(|missing| *missing != seq);
        match record.content {
            Content::None => self.plan.empty.push(seq),
            Content::Redacted => self.plan.gone.push(seq),
            Content::Json(_) | Content::Omitted => {
                self.targets.insert(seq, Target::by_seq(record));
            }
        }
    }

    /// A piece of a message, together with what came before it: a match may be split over both.
    fn look_across(&mut self, record: &Record, delta: &MessageDelta) {
        let Selector::Matching(matcher) = &self.selector else { return };
        let Some(Value::String(text)) = record.content_field("text") else {
            // Taken out: what is on either side of it no longer meets.
            self.tails.remove(&delta.message_id);
            return;
        };
        if self.tails.len() > MESSAGES_OPEN_MAX {
            self.tails.pop_first();
        }
        let tail = self.tails.entry(delta.message_id.clone()).or_default();
        if tail.next != delta.offset {
            *tail = Tail::default();
        }
        tail.next = delta.offset.saturating_add(delta.length);
        let before = tail.text.len();
        tail.parts.push((before, record.seq));
        tail.text.push_str(&text);
        let found = matcher.find(&tail.text);
        for (i, range) in found.iter().enumerate().filter(|(_, range)| range.end > before) {
            let excerpt = excerpt(&tail.text, &found, i);
            for (part, (begins, seq)) in tail.parts.iter().enumerate() {
                let ends = tail.parts.get(part + 1).map_or(tail.text.len(), |(next, _)| *next);
                if range.start >= ends || range.end <= *begins {
                    continue;
                }
                let kind = record.kind.clone();
                let new = Target { seq: *seq, kind, matches: 0, excerpt: String::new() };
                let target = self.targets.entry(*seq).or_insert(new);
                target.matches += 1;
                // The later excerpt knows that what ended the earlier one was part of a match.
                target.excerpt.clone_from(&excerpt);
            }
        }
        tail.trim();
    }
}

impl Tail {
    /// Whole parts go first: what is left begins where a record does.
    fn trim(&mut self) {
        while self.text.len() > TAIL_BYTES_MAX && self.parts.len() > 1 {
            let (cut, _) = self.parts[1];
            self.text.drain(..cut);
            self.parts.remove(0);
            self.parts.iter_mut().for_each(|(begins, _)| *begins -= cut);
        }
    }
}

/// What is found in the strings of a JSON text; in the text itself if it is none.
fn look_into(finder: &dyn Matcher, record: &Record, json: &str) -> Option<Target> {
    let mut texts = Vec::new();
    match serde_json::from_str::<Value>(json) {
        Ok(value) => strings(value, &mut texts),
        Err(_) => texts.push(json.to_owned()),
    }
    let mut matches = 0;
    let mut first = None;
    for text in &texts {
        let found = finder.find(text);
        matches += found.len();
        if first.is_none() && !found.is_empty() {
            first = Some(excerpt(text, &found, 0));
        }
    }
    first.map(|excerpt| Target { seq: record.seq, kind: record.kind.clone(), matches, excerpt })
}

fn strings(value: Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(items) => items.into_iter().for_each(|item| strings(item, texts)),
        Value::Object(object) => {
            for (key, value) in object {
                texts.push(key);
                strings(value, texts);
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
}

/// The text around one match, on one line, with all matches masked.
fn excerpt(text: &str, found: &[Range<usize>], at: usize) -> String {
    let mut masked = String::new();
    let mut position = 0;
    let mut place = 0..0;
    for (i, range) in found.iter().enumerate() {
        masked.push_str(&text[position..range.start]);
        let begins = masked.len();
        masked.push_str(REPLACEMENT);
        if i == at {
            place = begins..masked.len();
        }
        position = range.end;
    }
    masked.push_str(&text[position..]);
    let before: Vec<char> = masked[..place.start].chars().rev().take(AROUND_CHARS).collect();
    let after = masked[place.end..].chars().take(AROUND_CHARS);
    let around = before.into_iter().rev().chain(REPLACEMENT.chars()).chain(after);
    around.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::{MessageCompleted, RecordRedacted, RunStarted, ToolIntent};
    use crate::record::NewRecord;
    use crate::time::Timestamp;

    const VALUE: &str = "pa\"ss";

    fn delta(message: &str, offset: u64, text: &str) -> NewRecord {
        let event = MessageDelta {
            message_id: message.parse().unwrap(),
            run_id: None,
            offset,
            length: text.len() as u64,
            channel: crate::spool::Channel::Answer,
            sent: None,
        };
        NewRecord::with_content(Timestamp::from_millis(0), event, "text", text.into())
    }

    fn completed(message: &str) -> NewRecord {
        let event = MessageCompleted {
            message_id: message.parse().unwrap(),
            length: 0,
            hash: String::new(),
        };
        NewRecord::new(Timestamp::from_millis(0), event)
    }

    fn intent(name: &str, arguments: Value) -> NewRecord {
        let (call_id, run_id) = ("c".parse().unwrap(), "r".parse().unwrap());
        let event = ToolIntent { call_id, run_id, name: name.into() };
        NewRecord::with_content(Timestamp::from_millis(0), event, "arguments", arguments)
    }

    fn plan(selector: Selector, records: &[Record]) -> RedactionPlan {
        let mut planner = Planner::new(selector);
        for record in records {
            planner.look(record);
        }
        planner.finish()
    }

    fn by_value(records: &[NewRecord]) -> RedactionPlan {
        let records: Vec<_> = (1..).zip(records).map(|(seq, record)| record.at(seq)).collect();
        plan(Selector::Matching(Box::new(Literal::new(VALUE).unwrap())), &records)
    }

    fn seqs(targets: &[Target]) -> Vec<(Seq, usize)> {
        targets.iter().map(|target| (target.seq, target.matches)).collect()
    }

    #[test]
    fn contents_are_planned_and_headers_are_named() {
        let nested = json!({ "k": VALUE, VALUE: [VALUE, 5] });
        let text = json!({ "in_text": json!({ "v": VALUE }).to_string() });
        let records = [
            intent("read", json!("nothing")),
            intent("read", nested),
            intent(VALUE, json!({})),
            intent("read", text),
        ];
        let plan = by_value(&records);
        assert_eq!(seqs(&plan.targets), [(2, 3), (4, 1)]);
        assert_eq!(plan.targets[1].excerpt, r#"{"v":"[masked]"}"#);
        assert_eq!(
            plan.in_headers,
            [Target { seq: 3, kind: "tool.intent".into(), matches: 1, excerpt: "[masked]".into() }]
        );
    }

    #[test]
    fn a_value_split_over_pieces_of_one_message_is_found_in_all_of_them() {
        let plan = by_value(&[
            delta("m", 0, "long before it, the pa"),
            delta("other", 0, "pa"),
            delta("m", 22, "\"s"),
            completed("other"),
            delta("m", 24, "s and after"),
            delta("other", 0, "\"ss"),
            delta("m", 35, " nothing"),
        ]);
        assert_eq!(seqs(&plan.targets), [(1, 1), (3, 1), (5, 1)]);
        for target in &plan.targets {
            assert_eq!(target.excerpt, "long before it, the [masked] and after");
        }
    }

    /// What was taken out, or does not continue the message, joins nothing.
    #[test]
    fn pieces_that_do_not_meet_are_not_joined() {
        let mut records: Vec<_> =
            [delta("m", 0, "pa"), delta("m", 2, "x"), delta("m", 3, "\"ss"), delta("m", 9, "\"ss")]
                .iter()
                .zip(1..)
                .map(|(record, seq)| record.at(seq))
                .collect();
        records[1].content = Content::Redacted;
        let literal = || Selector::Matching(Box::new(Literal::new(VALUE).unwrap()));
        assert_eq!(plan(literal(), &records), RedactionPlan::default());
    }

    #[test]
    fn a_long_message_is_followed_in_bounded_memory() {
        let piece = "x".repeat(40_000);
        let mut records: Vec<_> = (0..5).map(|i| delta("m", i * 40_000, &piece)).collect();
        records.push(delta("m", 200_000, "pa"));
        records.push(delta("m", 200_002, "\"ss"));
        let mut planner = Planner::new(Selector::Matching(Box::new(Literal::new(VALUE).unwrap())));
        for (seq, record) in (1..).zip(&records) {
            planner.look(&record.at(seq));
            let held: usize = planner.tails.values().map(|tail| tail.text.len()).sum();
            assert!(held <= TAIL_BYTES_MAX + 40_000, "{held}");
        }
        assert_eq!(seqs(&planner.finish().targets), [(6, 1), (7, 1)]);
    }

    #[test]
    fn by_seq_everything_named_is_accounted_for() {
        let ts = Timestamp::from_millis(0);
        let started = RunStarted {
            run_id: "r".parse().unwrap(),
            boot_id: "b".parse().unwrap(),
            message_id: None,
        };
        let redacted = RecordRedacted { target_seq: 2, reason: None };
        let mut records = vec![
            delta("m", 0, "a").at(1),
            delta("m", 1, "b").at(2),
            NewRecord::new(ts, started).at(3),
            NewRecord::new(ts, redacted).at(4),
        ];
        records[1].content = Content::Redacted;
        let selector = Selector::Seqs(BTreeSet::from([1, 2, 3, 9]));
        let found = plan(selector, &records);
        assert_eq!(seqs(&found.targets), [(1, 0)]);
        assert_eq!((found.gone, found.empty, found.missing), (vec![2], vec![3], vec![9]));
    }

    #[test]
    fn nothing_is_everywhere_and_is_refused() {
        assert!(Literal::new("").is_none());
    }
}
