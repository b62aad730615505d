//! All of the conversation on the whole screen: nothing folded, older messages read when they are
//! reached. Pure.

use std::borrow::Cow;

use ratatui::text::Line;

use super::conversation::Item;
use super::display::Picture;
use super::render::{self, Detail};
use super::rows::{QUIET, Row, STRONG, WAITING, cut, row, span};

#[derive(Debug, Default)]
pub(crate) struct Transcript {
    /// Items that are older than those of the conversation.
    older: Vec<Item>,
    /// The first record that is shown; none before it if it is the first of the log.
    pub(crate) from_seq: u64,
    pub(crate) is_loading: bool,
    /// Rows between the last one and the bottom of the screen.
    from_end: usize,
    height: usize,
    total: usize,
    cache: Cache,
}

/// The rows of items at a width; of those that may still change, none.
#[derive(Debug, Default)]
struct Cache {
    width: usize,
    items: Vec<Option<Vec<Row>>>,
    /// Items that were laid out, for tests.
    #[cfg(test)]
    laid_out: usize,
}

impl Cache {
    /// The rows of each item. Only what may still change is laid out again.
    fn rows<'i>(
        &mut self,
        items: impl Iterator<Item = &'i Item>,
        width: usize,
    ) -> Vec<Cow<'_, [Row]>> {
        if self.width != width {
            self.items.clear();
            self.width = width;
        }
        let mut live = Vec::new();
        let mut count = 0;
        for (at, item) in items.enumerate() {
            count = at + 1;
            if self.items.len() < count {
                self.items.push(None);
            }
            if self.items[at].is_some() {
                continue;
            }
            let rows = render::item(item, width, Detail::Whole);
            #[cfg(test)]
            {
                self.laid_out += 1;
            }
            if item.is_final() {
                self.items[at] = Some(rows);
            } else {
                live.push((at, rows));
            }
        }
        self.items.truncate(count);
        let mut live = live.into_iter().peekable();
        let rows = self.items.iter().enumerate().map(|(at, known)| match known {
            Some(rows) => Cow::Borrowed(rows.as_slice()),
            None => Cow::Owned(
                live.next_if(|(of, _)| *of == at).map_or_else(Vec::new, |(_, rows)| rows),
            ),
        });
        rows.collect()
    }
}

impl Transcript {
    pub(crate) fn new(from_seq: u64) -> Self {
        Self { from_seq, ..Self::default() }
    }

    pub(crate) fn scroll(&mut self, rows: isize) {
        let last = self.total.saturating_sub(self.height);
        self.from_end = self.from_end.saturating_add_signed(-rows).min(last);
    }

    pub(crate) fn page(&self) -> isize {
        isize::try_from(self.height.saturating_sub(1).max(1)).unwrap_or(1)
    }

    pub(crate) fn move_start(&mut self) {
        self.from_end = self.total.saturating_sub(self.height);
    }

    pub(crate) fn move_end(&mut self) {
        self.from_end = 0;
    }

    /// Whether older records are wanted: the beginning is on the screen, and is not the log's.
    pub(crate) fn wants_older(&self) -> bool {
        !self.is_loading
            && self.from_seq > 1
            && self.total.saturating_sub(self.height + self.from_end) == 0
    }

    pub(crate) fn add_older(&mut self, mut items: Vec<Item>, from_seq: u64) {
        items.append(&mut self.older);
        self.older = items;
        self.from_seq = from_seq;
        self.is_loading = false;
        // They come before what was laid out.
        self.cache.items.clear();
    }

    /// With a notice of what happens elsewhere meanwhile.
    pub(crate) fn picture(
        &mut self,
        items: &[Item],
        notice: Option<&str>,
        columns: usize,
        rows_max: usize,
    ) -> Picture {
        let width = columns.saturating_sub(1).max(12);
        let parts = self.cache.rows(self.older.iter().chain(items), width);
        self.total = parts.iter().map(|part| part.len()).sum();
        self.height = rows_max.saturating_sub(2).max(1);
        self.from_end = self.from_end.min(self.total.saturating_sub(self.height));
        let end = self.total - self.from_end;
        let start = end.saturating_sub(self.height);
        let state = match (self.is_loading, self.from_seq > 1) {
            (true, _) => "loading older messages",
            (false, true) => "older messages follow at the top",
            (false, false) => "from the beginning",
        };
        let mut head = vec![span("Transcript", STRONG)];
        head.extend(notice.map(|notice| span(format!("  {notice}"), WAITING.patch(STRONG))));
        head.push(span(format!("  {state}"), QUIET));
        let head = Line::from(head);
        let mut rows = vec![cut(head, width)];
        rows.extend(
            parts.iter().flat_map(|part| part.iter()).skip(start).take(end - start).cloned(),
        );
        rows.resize(self.height + 1, Line::default());
        let place = format!(
            "{} to {end} of {} lines · ↑ ↓ page home end · q closes",
            start + 1,
            self.total
        );
        rows.push(cut(row(place, QUIET), width));
        Picture { rows, cursor: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::display::text_of;

    fn items(from: usize, to: usize) -> Vec<Item> {
        (from..=to).map(|n| Item::User { text: format!("prompt {n}") }).collect()
    }

    #[test]
    fn it_begins_at_the_end_and_older_messages_are_asked_for_at_the_top() {
        let mut transcript = Transcript::new(40);
        let now = items(10, 20);
        let text = text_of(&transcript.picture(&now, None, 40, 8));
        assert!(text.contains("> prompt 20") && !text.contains("prompt 15"), "{text}");
        assert!(!transcript.wants_older());
        transcript.move_start();
        let text = text_of(&transcript.picture(&now, None, 40, 8));
        assert!(text.contains("> prompt 10") && transcript.wants_older(), "{text}");
        transcript.add_older(items(1, 9), 1);
        // What was on the screen stays there.
        let text = text_of(&transcript.picture(&now, None, 40, 8));
        assert!(text.contains("> prompt 10") && !transcript.wants_older(), "{text}");
        transcript.scroll(-1_000);
        let text = text_of(&transcript.picture(&now, None, 40, 8));
        assert!(text.contains("> prompt 1\n") && text.contains("from the beginning"), "{text}");
        let text = text_of(&transcript.picture(&now, Some("A request waits"), 40, 8));
        assert!(text.starts_with("Transcript  A request waits"), "{text}");
    }
    /// While a turn is open, each draw lays out what still changes, not all that was said before.
    #[test]
    fn only_what_still_changes_is_laid_out_again() {
        let mut transcript = Transcript::new(1);
        let agent = |text: &str, is_done| Item::Agent {
            message_id: "m".to_owned(),
            text: text.to_owned(),
            is_done,
        };
        let mut now = items(1, 500);
        now.push(agent("begun", false));
        transcript.picture(&now, None, 40, 8);
        assert_eq!(transcript.cache.laid_out, 501);
        now[500] = agent("begun and continued", false);
        let text = text_of(&transcript.picture(&now, None, 40, 8));
        assert_eq!(transcript.cache.laid_out, 502);
        assert!(text.contains("begun and continued"), "{text}");
        now[500] = agent("done", true);
        transcript.picture(&now, None, 40, 8);
        let text = text_of(&transcript.picture(&now, None, 40, 8));
        assert_eq!(transcript.cache.laid_out, 503);
        assert!(text.contains("  done") && !text.contains("continued"), "{text}");
        // At another width, all of them.
        transcript.picture(&now, None, 60, 8);
        assert_eq!(transcript.cache.laid_out, 503 + 501);
    }
}
