//! The title of a session that was given none: a graph's name, else the beginning of the first prompt.
//! It is derived whenever the session is shown and is in no record: contents can be redacted, the
//! headers of records cannot.

use crate::content::PromptContent;
use crate::record::Record;
use crate::state::{Facts, Info};

/// A longer first line is cut.
const TITLE_CHARS_MAX: usize = 80;

const PROMPT: &str = "message.user";

/// The title that a session has without its prompts; none if only they can give it one.
pub fn given(info: &Info, facts: &Facts) -> Option<String> {
    info.title.clone().or_else(|| facts.graph.clone())
}

/// The title that the first prompt gives, by the records from the beginning of the log on. None if there
/// is no prompt yet, or its content was redacted.
pub fn of_records(records: &[Record]) -> Option<String> {
    let first = records.iter().find(|record| &*record.kind == PROMPT)?;
    of_prompt(&PromptContent::of(first, "content")?)
}

fn of_prompt(content: &PromptContent) -> Option<String> {
    let text = content.text();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    if line.chars().count() <= TITLE_CHARS_MAX {
        return Some(line.to_owned());
    }
    Some(line.chars().take(TITLE_CHARS_MAX - 1).chain(['…']).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn record(fields: &Value) -> Record {
        let mut flat: Map<String, Value> = fields.as_object().unwrap().clone();
        flat.insert("seq".into(), 1.into());
        flat.insert("ts".into(), "2026-02-21T10:01:10.000Z".into());
        Record::from_flat(flat).unwrap()
    }

    fn prompt(content: &Value) -> Record {
        record(&json!({"kind": "message.user", "message_id": "m", "content": content}))
    }

    #[test]
    fn the_first_line_of_the_first_prompt_is_the_title() {
        let created = record(&json!({"kind": "session.created", "session_id": "s"}));
        assert_eq!(of_records(std::slice::from_ref(&created)), None, "nothing was asked yet");
        let first = prompt(&json!("\n  Fix the clock test \nIt fails in winter."));
        let records = [created, first, prompt(&json!("Thanks"))];
        assert_eq!(of_records(&records).as_deref(), Some("Fix the clock test"));
    }

    #[test]
    fn a_long_line_is_cut_and_blocks_are_read() {
        let long = of_records(&[prompt(&json!("é".repeat(81)))]).unwrap();
        assert_eq!((long.chars().count(), long.chars().last()), (80, Some('…')));
        let whole = of_records(&[prompt(&json!("é".repeat(80)))]).unwrap();
        assert_eq!(whole, "é".repeat(80));
        let blocks = json!([{"type": "text", "text": "Look at this"},
                            {"type": "resource_link", "uri": "file:///a", "name": "a"}]);
        assert!(of_records(&[prompt(&blocks)]).unwrap().starts_with("Look at this"));
    }

    /// What was taken out is in no title, and the next prompt does not stand in for it.
    #[test]
    fn a_redacted_prompt_gives_none() {
        let redacted =
            record(&json!({"kind": "message.user", "message_id": "m", "redacted": true}));
        assert_eq!(of_records(&[redacted, prompt(&json!("later"))]), None);
        assert_eq!(of_records(&[prompt(&json!(" \n "))]), None);
    }
}
