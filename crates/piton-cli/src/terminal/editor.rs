//! The line editor: text, cursor, undo, and pastes that are folded. Pure: keys in, text out. Positions
//! are bytes at the borders of grapheme clusters, so that nothing that is seen as one character is ever
//! cut in two.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// A paste with more lines or characters than this is folded.
const FOLDED_LINES_MIN: usize = 6;
const FOLDED_CHARS_MIN: usize = 1_000;
const UNDO_STEPS_MAX: usize = 200;
/// Stands for a folded paste in the text: private use, and never typed.
const FOLD_FIRST: u32 = 0xf0000;
const FOLDS_MAX: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Snapshot {
    text: String,
    cursor: usize,
}

/// A paste that is shown as one character.
#[derive(Debug)]
struct Fold {
    text: String,
    /// Counted once: a paste may be long.
    label: String,
}

impl Fold {
    fn new(text: &str) -> Self {
        let label = match text.lines().count() {
            0 | 1 => format!("[Pasted {} characters]", text.chars().count()),
            lines => format!("[Pasted {lines} lines]"),
        };
        Self { text: text.to_owned(), label }
    }
}

/// What the last change was: typing undoes as one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Change {
    #[default]
    Other,
    Typing,
    Kill,
}

#[derive(Debug, Default)]
pub(crate) struct Editor {
    text: String,
    cursor: usize,
    undo: Vec<Snapshot>,
    redo: Vec<Snapshot>,
    last: Change,
    /// What was cut last.
    killed: String,
    /// Folded pastes, by the character that stands for each.
    folds: Vec<Fold>,
    /// The column that vertical moves keep to.
    column: Option<usize>,
}

/// A row of the editor as it is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) text: String,
}

/// The rows, and where the cursor is in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) rows: Vec<Row>,
    pub(crate) cursor: (usize, usize),
}

impl Editor {
    /// The whole text, pastes unfolded.
    pub(crate) fn text(&self) -> String {
        let mut text = String::with_capacity(self.text.len());
        for c in self.text.chars() {
            match self.fold(c) {
                Some(fold) => text.push_str(&fold.text),
                None => text.push(c),
            }
        }
        text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The text up to the cursor, as it is shown.
    pub(crate) fn before_cursor(&self) -> &str {
        &self.text[..self.cursor]
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.cursor == self.text.len()
    }

    pub(crate) fn set(&mut self, text: &str) {
        self.remember(Change::Other);
        self.text.clear();
        self.cursor = 0;
        self.put(text);
    }

    /// Empties it and answers what it said.
    pub(crate) fn take(&mut self) -> String {
        let text = self.text();
        *self = Self { killed: std::mem::take(&mut self.killed), ..Self::default() };
        text
    }

    fn fold(&self, c: char) -> Option<&Fold> {
        let at = u32::from(c).checked_sub(FOLD_FIRST)?;
        self.folds.get(usize::try_from(at).ok()?)
    }

    fn remember(&mut self, change: Change) {
        if !(change == Change::Typing && self.last == Change::Typing) {
            self.undo.push(Snapshot { text: self.text.clone(), cursor: self.cursor });
            if self.undo.len() > UNDO_STEPS_MAX {
                self.undo.remove(0);
            }
        }
        self.redo.clear();
        self.last = change;
        self.column = None;
    }

    /// Puts text at the cursor; characters that stand for pastes are no text.
    fn put(&mut self, text: &str) {
        let is_fold = |c: char| u32::from(c) >= FOLD_FIRST;
        let text: String = text.chars().filter(|c| !is_fold(*c) && *c != '\r').collect();
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
        self.settle();
    }

    /// What was typed may have joined the cluster before it.
    fn settle(&mut self) {
        while !self.is_border(self.cursor) && self.cursor < self.text.len() {
            self.cursor += 1;
        }
    }

    fn is_border(&self, at: usize) -> bool {
        at == 0
            || at == self.text.len()
            || (self.text.is_char_boundary(at) && {
                let mut cursor =
                    unicode_segmentation::GraphemeCursor::new(at, self.text.len(), true);
                cursor.is_boundary(&self.text, 0).unwrap_or(true)
            })
    }

    pub(crate) fn insert(&mut self, c: char) {
        self.remember(if c == '\n' || c == ' ' { Change::Other } else { Change::Typing });
        self.put(c.encode_utf8(&mut [0; 4]));
    }

    /// A paste; a long one is folded to one character that stands for it.
    pub(crate) fn paste(&mut self, text: &str) {
        self.remember(Change::Other);
        let is_long =
            text.lines().count() >= FOLDED_LINES_MIN || text.chars().count() >= FOLDED_CHARS_MIN;
        let next =
            u32::try_from(self.folds.len()).ok().and_then(|at| char::from_u32(FOLD_FIRST + at));
        match next.filter(|_| is_long && self.folds.len() < FOLDS_MAX) {
            Some(fold) => {
                self.folds.push(Fold::new(text));
                self.text.insert(self.cursor, fold);
                self.cursor += fold.len_utf8();
            }
            None => self.put(text),
        }
    }

    fn previous(&self) -> usize {
        let before = self.text[..self.cursor].graphemes(true).next_back();
        self.cursor - before.map_or(0, str::len)
    }

    fn next(&self) -> usize {
        let behind = self.text[self.cursor..].graphemes(true).next();
        self.cursor + behind.map_or(0, str::len)
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    fn word_left(&self) -> usize {
        let before = &self.text[..self.cursor];
        let trimmed = before.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_');
        let word = trimmed.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
        // Signs alone are a word, too.
        if trimmed.is_empty() && !before.is_empty() { 0 } else { word.len() }
    }

    fn word_right(&self) -> usize {
        let behind = &self.text[self.cursor..];
        let trimmed = behind.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '_');
        let word = trimmed.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        self.text.len() - word.len()
    }

    /// The beginning of the word before the cursor as a shell sees words: up to a blank.
    fn blank_left(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8))
    }

    fn move_to(&mut self, at: usize) {
        self.cursor = at;
        self.last = Change::Other;
        self.column = None;
    }

    pub(crate) fn left(&mut self) {
        self.move_to(self.previous());
    }

    pub(crate) fn right(&mut self) {
        self.move_to(self.next());
    }

    pub(crate) fn move_word_left(&mut self) {
        self.move_to(self.word_left());
    }

    pub(crate) fn move_word_right(&mut self) {
        self.move_to(self.word_right());
    }

    pub(crate) fn move_line_start(&mut self) {
        self.move_to(self.line_start());
    }

    pub(crate) fn move_line_end(&mut self) {
        self.move_to(self.line_end());
    }

    pub(crate) fn move_start(&mut self) {
        self.move_to(0);
    }

    pub(crate) fn move_end(&mut self) {
        self.move_to(self.text.len());
    }

    fn cut(&mut self, from: usize, to: usize, change: Change) {
        if from >= to {
            return;
        }
        let is_same = change == Change::Kill && self.last == Change::Kill;
        let is_before = to == self.cursor;
        self.remember(change);
        let taken: String = self.text.drain(from..to).collect();
        self.cursor = from;
        if change == Change::Kill {
            self.killed = match (is_same, is_before) {
                (true, true) => taken + &self.killed,
                (true, false) => std::mem::take(&mut self.killed) + &taken,
                (false, _) => taken,
            };
        }
    }

    pub(crate) fn backspace(&mut self) {
        self.cut(self.previous(), self.cursor, Change::Other);
    }

    pub(crate) fn delete(&mut self) {
        self.cut(self.cursor, self.next(), Change::Other);
    }

    pub(crate) fn kill_word_left(&mut self) {
        self.cut(self.word_left(), self.cursor, Change::Kill);
    }

    pub(crate) fn kill_blank_left(&mut self) {
        self.cut(self.blank_left(), self.cursor, Change::Kill);
    }

    pub(crate) fn kill_word_right(&mut self) {
        self.cut(self.cursor, self.word_right(), Change::Kill);
    }

    /// To the end of the line; at its end, the line end itself.
    pub(crate) fn kill_line_right(&mut self) {
        let end = self.line_end();
        let end = if end == self.cursor { self.next() } else { end };
        self.cut(self.cursor, end, Change::Kill);
    }

    pub(crate) fn kill_line_left(&mut self) {
        let start = self.line_start();
        let start = if start == self.cursor { self.previous() } else { start };
        self.cut(start, self.cursor, Change::Kill);
    }

    pub(crate) fn yank(&mut self) {
        let killed = self.killed.clone();
        self.remember(Change::Other);
        self.text.insert_str(self.cursor, &killed);
        self.cursor += killed.len();
    }

    pub(crate) fn transpose(&mut self) {
        let at = if self.is_at_end() { self.previous() } else { self.cursor };
        let Some(before) = self.text[..at].graphemes(true).next_back().map(str::len) else {
            return;
        };
        let Some(behind) = self.text[at..].graphemes(true).next().map(str::len) else { return };
        self.remember(Change::Other);
        let second: String = self.text.drain(at..at + behind).collect();
        self.text.insert_str(at - before, &second);
        self.cursor = at + behind;
    }

    pub(crate) fn undo(&mut self) {
        let Some(snapshot) = self.undo.pop() else { return };
        self.redo.push(Snapshot { text: self.text.clone(), cursor: self.cursor });
        self.restore(snapshot);
    }

    pub(crate) fn redo(&mut self) {
        let Some(snapshot) = self.redo.pop() else { return };
        self.undo.push(Snapshot { text: self.text.clone(), cursor: self.cursor });
        self.restore(snapshot);
    }

    fn restore(&mut self, Snapshot { text, cursor }: Snapshot) {
        self.text = text;
        self.cursor = cursor;
        self.last = Change::Other;
        self.column = None;
    }

    /// Replaces what is between a byte position and the cursor.
    pub(crate) fn replace_before(&mut self, from: usize, with: &str) {
        self.remember(Change::Other);
        self.text.drain(from..self.cursor);
        self.cursor = from;
        self.put(with);
    }

    /// Up by a row of the screen; false at the first one.
    pub(crate) fn up(&mut self, width: usize) -> bool {
        self.vertical(width, |row| row.checked_sub(1))
    }

    /// Down by a row of the screen; false at the last one.
    pub(crate) fn down(&mut self, width: usize) -> bool {
        self.vertical(width, |row| Some(row + 1))
    }

    fn vertical(&mut self, width: usize, to: impl Fn(usize) -> Option<usize>) -> bool {
        let spans = self.spans(width);
        let (row, column) = self.place(&spans);
        let wanted = self.column.unwrap_or(column);
        let Some((start, end)) = to(row).and_then(|row| spans.get(row).copied()) else {
            return false;
        };
        let mut at = start;
        let mut used = 0;
        for cluster in self.text[start..end].graphemes(true) {
            let wide = self.shown(cluster).width();
            if used + wide > wanted {
                break;
            }
            used += wide;
            at += cluster.len();
        }
        // The end of a row that is continued is the beginning of the next one.
        if at == end && end < self.text.len() && !self.text[end..].starts_with('\n') {
            at = start
                + self.text[start..end].grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
        }
        self.move_to(at);
        self.column = Some(wanted);
        true
    }

    /// A cluster as it is shown: folded pastes by what they are.
    fn shown(&self, cluster: &str) -> String {
        let mut chars = cluster.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => match self.fold(c) {
                Some(fold) => fold.label.clone(),
                None if c == '\t' => "    ".to_owned(),
                None => crate::text::visible(cluster),
            },
            _ => crate::text::visible(cluster),
        }
    }

    /// The byte ranges of the rows on a screen of this width.
    fn spans(&self, width: usize) -> Vec<(usize, usize)> {
        let width = width.max(2);
        let mut spans = Vec::new();
        let (mut start, mut used) = (0, 0);
        // Where the row may be broken: behind the last blank.
        let mut blank: Option<(usize, usize)> = None;
        for (at, cluster) in self.text.grapheme_indices(true) {
            if cluster == "\n" {
                spans.push((start, at));
                (start, used, blank) = (at + 1, 0, None);
                continue;
            }
            let wide = self.shown(cluster).width();
            if used + wide > width && at > start {
                let (cut, kept) = blank.filter(|(cut, _)| *cut > start).unwrap_or((at, used));
                spans.push((start, cut));
                (start, used, blank) = (cut, used - kept, None);
            }
            used += wide;
            if cluster == " " {
                blank = Some((at + 1, used));
            }
        }
        spans.push((start, self.text.len()));
        spans
    }

    /// The row and column of the cursor.
    fn place(&self, spans: &[(usize, usize)]) -> (usize, usize) {
        let row = spans.iter().rposition(|(start, _)| *start <= self.cursor).unwrap_or_default();
        let start = spans.get(row).map_or(0, |(start, _)| *start);
        let before = self.text[start..self.cursor].graphemes(true);
        (row, before.map(|cluster| self.shown(cluster).width()).sum())
    }

    /// As it is drawn at a width.
    pub(crate) fn layout(&self, width: usize) -> Layout {
        let spans = self.spans(width);
        let cursor = self.place(&spans);
        let row = |(start, end): &(usize, usize)| {
            let clusters = self.text[*start..*end].graphemes(true);
            Row { text: clusters.map(|cluster| self.shown(cluster)).collect() }
        };
        Layout { rows: spans.iter().map(row).collect(), cursor }
    }
}

#[cfg(test)]
#[path = "editor_tests.rs"]
mod tests;
