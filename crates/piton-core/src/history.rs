//! The history for an agent that was started without its conversation, made from the log. Its size, and
//! what it costs to make, do not depend on how long the session is: the newest is kept.

use std::collections::VecDeque;

use serde_json::Value;

use crate::event::{self, Event, Seq, ToolStatus};
use crate::limits::HistoryLimits;
use crate::record::{Content, Record};
use crate::spool::Channel;
use crate::transcript::{self, Item, Outcome, Text};

/// Records that are looked at for it, however little they say.
const RECORDS_MAX: usize = 20_000;
/// Beginnings of lines that have a meaning in the text: what was said must not be taken for them.
const MARKERS: [&str; 4] = ["===", "[USER]:", "[ASSISTANT]:", "[TOOL "];

/// Gathers records from the newest to the oldest, until there is enough.
#[derive(Debug, Default)]
pub struct HistoryBuilder {
    limits: HistoryLimits,
    records: VecDeque<Record>,
    seen: usize,
    items: usize,
    chars: usize,
    /// The oldest record that was looked at.
    from: Option<Seq>,
}

impl HistoryBuilder {
    pub fn new(limits: HistoryLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The next older page is of use.
    pub fn wants_more(&self) -> bool {
        self.seen < RECORDS_MAX
            && self.items <= self.limits.items
            && self.chars <= self.limits.total_chars
            && self.from != Some(1)
    }

    /// Takes a page in the log's order, all of it older than what was taken before.
    pub fn take(&mut self, page: Vec<Record>) -> Result<(), event::ParseError> {
        let HistoryLimits { message_chars, result_chars, .. } = self.limits;
        // As many bytes of a message have all the characters of it that are shown.
        let message_bytes = message_chars as u64 * 4;
        for record in page.into_iter().rev() {
            self.seen += 1;
            self.from = Some(record.seq);
            let bytes = match &record.content {
                Content::Json(json) => json.len(),
                Content::None | Content::Omitted | Content::Redacted => 0,
            };
            let (is_item, chars_max) = match record.event()? {
                Event::MessageUser(_) => (true, message_chars),
                // What it thought aloud is not part of the conversation, and of a long message only
                // the beginning is shown.
                Event::MessageDelta(e)
                    if e.channel == Channel::Answer && e.offset <= message_bytes =>
                {
                    (e.offset == 0, message_chars)
                }
                Event::MessageCompleted(_) => (false, 0),
                Event::ToolIntent(_) => (true, 0),
                Event::ToolOutcome(_) => (false, result_chars),
                _ => continue,
            };
            self.items += usize::from(is_item);
            self.chars += bytes.min(chars_max);
            self.records.push_front(record);
        }
        Ok(())
    }

    /// What an agent is given: the history, and what is asked of it now. `None` if there is none.
    pub fn text(&self, request: &str) -> Result<Option<String>, event::ParseError> {
        let items = transcript::build(&self.records, None)?;
        let mut entries: Vec<String> =
            items.iter().flat_map(|item| entries_of(item, self.limits)).collect();
        if entries.is_empty() {
            return Ok(None);
        }
        let mut is_cut = self.from.is_some_and(|from| from > 1);
        let mut left = self.limits.total_chars;
        let mut first = entries.len();
        while first > 0 && entries.len() - first < self.limits.items {
            let chars = entries[first - 1].chars().count();
            if chars > left {
                break;
            }
            left -= chars;
            first -= 1;
        }
        is_cut |= first > 0;
        let kept = entries.split_off(first).join("\n");
        let cut = if is_cut { "[Earlier history is left out.]\n" } else { "" };
        Ok(Some(format!(
            "RESUME CONTEXT FOR CONTINUING TASK\n\
             \n\
             === EXECUTION HISTORY ===\n\
             {cut}{kept}\n\
             \n\
             === CURRENT REQUEST ===\n\
             {request}\n\
             \n\
             === INSTRUCTIONS ===\n\
             You are continuing work on the above task. The history is what was said and done before; \
             you have no other memory of it.\n\
             Do not repeat work that was already completed."
        )))
    }
}

/// The lines of one item.
fn entries_of(item: &Item, limits: HistoryLimits) -> Vec<String> {
    let said = |text| said(text, limits.message_chars);
    match item {
        Item::User { text, .. } => vec![format!("[USER]: {}", said(text))],
        Item::Agent { text, complete, truncated, .. } => {
            let cut_off = match (*complete, *truncated) {
                (_, true) => " [a part is missing: it was too long]",
                (true, false) => "",
                (false, false) => " [cut off]",
            };
            vec![format!("[ASSISTANT]: {}{cut_off}", said(text))]
        }
        Item::Tool { name, outcome, .. } => {
            let name = name.as_deref().unwrap_or("unknown").replace(['\n', ']'], " ");
            let result = match outcome {
                Outcome::Known { status: ToolStatus::Unknown, .. }
                | Outcome::Unknown
                | Outcome::Pending => {
                    "(unknown: it may have happened, wholly or in part)".to_owned()
                }
                Outcome::Known { status, result } => {
                    let result = result.as_ref().map(plain).unwrap_or_default();
                    let failed = if *status == ToolStatus::Succeeded { "" } else { "(failed) " };
                    format!("{failed}{}", harmless(&cut(&result, limits.result_chars)))
                }
            };
            let call = format!("[TOOL CALL: {name}]");
            vec![call, format!("[TOOL RESULT: {name}] {result}")]
        }
    }
}

fn said(text: &Text, chars_max: usize) -> String {
    match text {
        Text::Whole(text) => harmless(&cut(text, chars_max)),
        Text::Redacted => "[taken out]".to_owned(),
    }
}

/// A result as an agent would read it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The beginning of a text, and that there is more of it.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{} [cut]", &text[..end]),
    }
}

/// Lines that look like parts of the text are marked as quoted.
pub(crate) fn harmless(text: &str) -> String {
    let quoted = |line: &str| MARKERS.iter().any(|marker| line.trim_start().starts_with(marker));
    let lines = text.split('\n').enumerate();
    let lines = lines.map(|(at, line)| match at {
        0 => line.to_owned(),
        _ if quoted(line) => format!("> {line}"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}
