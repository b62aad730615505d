//! A prompt stands in a log more than once: as it was queued, as it was edited, as it was delivered, and
//! in the texts that were prepared for agents. Naming one of them by its seq names all.

use std::collections::BTreeMap;

use super::Target;
use crate::content::PromptContent;
use crate::event::Event;
use crate::id::MessageId;
use crate::record::{Content, Record};

/// By so many letters and digits a prompt is recognised in a prepared text, which quotes and cuts it.
const RECOGNISED_CHARS: usize = 64;

/// Collects the copies of prompts while a log is read in order.
#[derive(Debug, Default)]
pub(super) struct PromptCopies {
    /// Prompts that were queued, and not delivered or removed yet.
    queued: BTreeMap<MessageId, Copies>,
    /// What is taken out, as prepared texts have it.
    taken_out: Vec<String>,
}

#[derive(Debug, Default)]
struct Copies {
    targets: Vec<Target>,
    texts: Vec<String>,
    is_named: bool,
}

impl PromptCopies {
    /// The records that have to be taken out because of this one.
    pub(super) fn look(&mut self, record: &Record, is_named: bool) -> Vec<Target> {
        match record.event() {
            Ok(Event::PromptQueued(e)) => self.add(record, e.message_id, is_named),
            Ok(Event::PromptEdited(e)) => self.add(record, e.message_id, is_named),
            Ok(Event::MessageUser(e)) => {
                let mut copies = self.queued.remove(&e.message_id).unwrap_or_default();
                copies.add(record, is_named);
                if !copies.is_named {
                    return Vec::new();
                }
                self.taken_out.append(&mut copies.texts);
                copies.targets
            }
            Ok(Event::PromptRemoved(e)) => {
                self.queued.remove(&e.message_id);
                Vec::new()
            }
            Ok(Event::PromptPrepared(_)) if self.is_quoted(record) => {
                vec![Target::by_seq(record)]
            }
            _ => Vec::new(),
        }
    }

    fn add(&mut self, record: &Record, message: MessageId, is_named: bool) -> Vec<Target> {
        let copies = self.queued.entry(message).or_default();
        copies.add(record, is_named);
        // It may be removed, or still wait: there is nothing to wait for.
        if copies.is_named { std::mem::take(&mut copies.targets) } else { Vec::new() }
    }

    /// Whether a prepared text has something of what is taken out. One that cannot be read may have.
    fn is_quoted(&self, record: &Record) -> bool {
        if self.taken_out.is_empty() || has_no_content(record) {
            return false;
        }
        let prepared = record.content_field("prompt");
        let Some(prepared) = prepared.as_ref().and_then(crate::interruption_summary::content_text)
        else {
            return true;
        };
        let prepared = recognised(&prepared, usize::MAX);
        self.taken_out.iter().any(|text| prepared.contains(text.as_str()))
    }
}

impl Copies {
    fn add(&mut self, record: &Record, is_named: bool) {
        self.is_named |= is_named;
        if !has_no_content(record) {
            self.targets.push(Target::by_seq(record));
        }
        let text = PromptContent::of(record, "content").map(|content| content.text());
        self.texts.push(recognised(&text.unwrap_or_default(), RECOGNISED_CHARS));
    }
}

fn has_no_content(record: &Record) -> bool {
    matches!(record.content, Content::None | Content::Redacted)
}

/// The beginning of a text, without what quoting changes. Of a text that is gone nothing is left, and
/// that is in every text.
fn recognised(text: &str, chars: usize) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).take(chars).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Planner, Selector};
    use crate::event::{
        Critical, MessageUser, PromptEdited, PromptPrepared, PromptQueued, PromptRemoved, Seq,
    };
    use crate::record::NewRecord;
    use crate::time::Timestamp;

    fn now() -> Timestamp {
        Timestamp::from_millis(0)
    }

    fn queued(id: &str, text: &str) -> NewRecord {
        let (message_id, run_id) = (id.parse().unwrap(), "run_1".parse().unwrap());
        let event = PromptQueued { message_id, run_id, first: false, critical: Critical };
        NewRecord::with_content(now(), event, "content", text.into())
    }

    fn edited(id: &str, text: &str) -> NewRecord {
        let event = PromptEdited { message_id: id.parse().unwrap(), critical: Critical };
        NewRecord::with_content(now(), event, "content", text.into())
    }

    fn removed(id: &str) -> NewRecord {
        let event = PromptRemoved { message_id: id.parse().unwrap(), critical: Critical };
        NewRecord::new(now(), event)
    }

    fn delivered(id: &str, text: &str) -> NewRecord {
        let event = MessageUser { message_id: id.parse().unwrap(), run_id: None };
        NewRecord::with_content(now(), event, "content", text.into())
    }

    fn prepared(text: &str) -> NewRecord {
        let event = PromptPrepared {
            of_seq: 1,
            run_id: "run_1".parse().unwrap(),
            execution_id: "exec_1".parse().unwrap(),
            history: true,
            interruption_summary: false,
        };
        NewRecord::with_content(now(), event, "prompt", text.into())
    }

    fn targets(records: &[NewRecord], named: &[Seq]) -> Vec<Seq> {
        let selector = Selector::Seqs(named.iter().copied().collect::<BTreeSet<_>>());
        let mut planner = Planner::new(selector);
        for (seq, record) in (1..).zip(records) {
            planner.look(&record.at(seq));
        }
        planner.finish().targets.into_iter().map(|target| target.seq).collect()
    }

    #[test]
    fn one_copy_of_a_prompt_stands_for_all() {
        let log = [
            queued("msg_a", "my\npassword"),
            queued("msg_b", "another"),
            edited("msg_a", "my\nother password"),
            delivered("msg_a", "my\nother password"),
            delivered("msg_b", "another"),
            prepared("> my\n> other password\nnow"),
            prepared("something else"),
            prepared("> my\n> password\nnow"),
        ];
        for named in [1, 3, 4] {
            assert_eq!(targets(&log, &[named]), [1, 3, 4, 6, 8], "{named}");
        }
        assert_eq!(targets(&log, &[2]), [2, 5]);
        assert_eq!(targets(&log, &[6]), [6], "a prepared text is no prompt");
    }

    #[test]
    fn a_prompt_that_was_not_delivered_has_copies_too() {
        let log = [queued("msg_a", "one"), edited("msg_a", "two"), removed("msg_a")];
        assert_eq!(targets(&log, &[2]), [1, 2]);
        assert_eq!(targets(&log, &[1]), [1, 2]);
        assert_eq!(targets(&log[..2], &[2]), [1, 2]);
    }
}
