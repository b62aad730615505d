//! A permission request on the screen, and the keys that answer it. A key answers only if all of the
//! request was on the screen, and nothing else was typed for a moment before it and a moment behind it.
//! Whatever else is typed goes to the prompt; from then on nothing answers until Tab gives the request
//! the keys again. Pure.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::{Line, Span};

use super::highlight::Highlighter;
use super::human;
use super::render::diff_row;
use super::rows::{ACCENT, CHOSEN, QUIET, Row, STRONG, WAITING, cut, row, span, style, wrap};
use crate::commands::chat::screen::Question;
use crate::permission_text;
use crate::ui::Tone;

/// The keys of the options, in their order; `m` and `r` have another meaning.
const OPTION_KEYS: &str = "123456789abcdefghijklnopqstuvwxyz";

#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) question: Question,
    /// The first row of the request that is shown.
    first: usize,
    /// The last row that was ever shown, and of how many.
    seen: usize,
    total: usize,
    page: usize,
    /// The width for which this was counted.
    width: usize,
    /// Since when nothing was typed and all that is shown is shown; `None` until it is drawn.
    quiet_since: Option<Instant>,
    is_armed: bool,
    /// A text is being typed: keys go there until Tab is pressed.
    is_typing: bool,
    /// A key that answers if nothing follows it.
    pending: Option<Pending>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    key: char,
    meaning: Meaning,
    since: Instant,
}

/// How a request is answered, or what else is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    RejectAndSay,
    /// A standing rule of Piton's own.
    Rule,
    Option(usize),
    /// A question without options is answered with a text.
    Text,
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// It belongs to the prompt, behind the key that was not followed by quiet.
    Typed { before: Option<char> },
    /// It moved the request, or gave it the keys.
    Taken,
    /// It means this if nothing follows it for a moment.
    Pending,
    /// It means this.
    Meant(Meaning),
}

impl Asking {
    /// With a draft, keys go to the draft first.
    pub(crate) fn new(question: Question, has_draft: bool) -> Self {
        Self {
            question,
            first: 0,
            seen: 0,
            total: 0,
            page: 1,
            width: 0,
            quiet_since: None,
            is_armed: false,
            is_typing: has_draft,
            pending: None,
        }
    }

    /// Everything was on the screen once.
    pub(crate) fn is_whole(&self) -> bool {
        self.quiet_since.is_some() && self.seen >= self.total
    }

    /// A text is being typed beside it.
    pub(crate) fn is_typing(&self) -> bool {
        self.is_typing
    }

    /// When the next moment of quiet is over.
    pub(crate) fn due_at(&self, delay: Duration) -> Option<Instant> {
        if let Some(pending) = self.pending {
            return Some(pending.since + delay);
        }
        if self.is_armed || self.is_typing || !self.is_whole() {
            return None;
        }
        self.quiet_since.map(|since| since + delay)
    }

    /// A moment of quiet may be over: keys count then, and the one that was pressed before it is meant.
    pub(crate) fn arm(&mut self, now: Instant, delay: Duration) -> Option<Meaning> {
        if self.due_at(delay).is_none_or(|due| due > now) {
            return None;
        }
        self.is_armed = true;
        self.pending.take().map(|pending| pending.meaning)
    }

    /// It is on the screen as it was laid out last.
    pub(crate) fn drawn(&mut self, now: Instant) {
        self.seen = self.seen.max(self.first + self.page);
        self.quiet_since.get_or_insert(now);
    }

    /// Something else is on the screen: keys count again when it was drawn again.
    pub(crate) fn hide(&mut self) {
        self.quiet_since = None;
        self.is_armed = false;
        self.pending = None;
    }

    /// A text is typed or pasted; answers the key that was not followed by quiet.
    pub(crate) fn begin_typing(&mut self, read_at: Instant) -> Option<char> {
        self.is_typing = true;
        self.disturb(read_at)
    }

    /// A moment of quiet begins again.
    pub(crate) fn disturb(&mut self, read_at: Instant) -> Option<char> {
        self.is_armed = false;
        if let Some(since) = &mut self.quiet_since {
            *since = (*since).max(read_at);
        }
        self.pending.take().map(|pending| pending.key)
    }

    pub(crate) fn press(&mut self, key: KeyEvent, read_at: Instant) -> Pressed {
        let is_text = matches!(key.code, KeyCode::Char(_))
            && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        let is_space = key.code == KeyCode::Char(' ') && !self.is_typing;
        let is_scroll =
            matches!(key.code, KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown);
        if (is_scroll || is_space) && self.total > self.page && self.pending.is_none() {
            self.scroll(
                match key.code {
                    KeyCode::Up => -1,
                    KeyCode::Down => 1,
                    KeyCode::PageUp => -(isize::try_from(self.page).unwrap_or(1)),
                    _ => isize::try_from(self.page).unwrap_or(1),
                },
                read_at,
            );
            return Pressed::Taken;
        }
        if key.code == KeyCode::Tab && self.pending.is_none() {
            self.is_typing = false;
            self.disturb(read_at);
            return Pressed::Taken;
        }
        if let Some(pending) = self.pending
            && key.code == KeyCode::Enter
        {
            self.pending = None;
            return Pressed::Meant(pending.meaning);
        }
        let was_read_before = self.quiet_since.is_none_or(|since| read_at < since);
        let counts = self.is_armed && !self.is_typing && self.pending.is_none() && !was_read_before;
        if let (KeyCode::Char(c), true, true) = (key.code, is_text, counts)
            && let Some(meaning) = self.meaning(c)
        {
            self.pending = Some(Pending { key: c, meaning, since: read_at });
            return Pressed::Pending;
        }
        let before = if is_text { self.begin_typing(read_at) } else { self.disturb(read_at) };
        self.is_typing |= before.is_some();
        Pressed::Typed { before }
    }

    /// What the choice of an option is on the wire.
    pub(crate) fn answer_of(&self, option_id: &str) -> serde_json::Value {
        human::answer_of(&self.question, option_id)
    }

    fn meaning(&self, c: char) -> Option<Meaning> {
        let is_human = human::is_human(&self.question);
        match c {
            't' if is_human && self.question.options.is_empty() => Some(Meaning::Text),
            'm' | 'r' if is_human => None,
            'm' => self.question.rejection().map(|_| Meaning::RejectAndSay),
            'r' => Some(Meaning::Rule),
            c => {
                let at = OPTION_KEYS.chars().position(|key| key == c)?;
                (at < self.question.options.len()).then_some(Meaning::Option(at))
            }
        }
    }

    /// Moves the request on the screen.
    pub(crate) fn scroll(&mut self, rows: isize, now: Instant) {
        let last = self.total.saturating_sub(self.page);
        self.first = self.first.saturating_add_signed(rows).min(last);
        if !self.is_armed {
            self.quiet_since = Some(now);
        }
    }

    /// The card: at most so many rows, of which the options are always a part.
    pub(crate) fn rows(&mut self, width_max: usize, height_max: usize) -> Vec<Row> {
        let inner = width_max.saturating_sub(2).max(8);
        let mut request = self.request_rows(inner);
        let mut foot = self.keys_rows(inner, Options::Below);
        // Options that leave no room for the request are a part of what is scrolled.
        if foot.len() > height_max / 2 && !self.question.options.is_empty() {
            request.push(Line::default());
            request.extend(self.option_rows(inner));
            foot = self.keys_rows(inner, Options::InRequest);
        }
        if let Some(hint) = self.more_hint() {
            foot = vec![hint];
        }
        let was_at_end = self.total > 0 && self.first + self.page >= self.total;
        let page = height_max.saturating_sub(foot.len() + 1).max(1);
        if self.width != width_max || self.total != request.len() {
            // At another width, what was not seen yet is another part of it.
            if !self.is_armed {
                self.seen = 0;
            }
            self.width = width_max;
        }
        self.total = request.len();
        self.page = page.min(self.total);
        if was_at_end {
            // The keys take more rows than the hint before them: the end stays on the screen.
            self.first = self.total;
        }
        self.first = self.first.min(self.total.saturating_sub(self.page));
        let is_long = self.total > self.page;
        let heading = match self.question.request.kind.as_deref() {
            Some(human::KIND) => "The graph asks",
            Some("execute") => "Run this command?",
            Some("edit") => "Make this change?",
            Some("delete") => "Delete this?",
            Some("read") => "Read this?",
            Some("fetch") => "Fetch this?",
            _ => "Allow this?",
        };
        let mut title = vec![span(heading, WAITING.patch(STRONG))];
        if is_long {
            let to = self.first + self.page;
            title
                .push(span(format!("  lines {} to {to} of {}", self.first + 1, self.total), QUIET));
        }
        let mut rows = vec![Line::from(title)];
        rows.extend(request.into_iter().skip(self.first).take(self.page));
        rows.append(&mut foot);
        let bar = span("│ ", WAITING);
        let barred = rows.into_iter().map(|row| {
            let mut spans = vec![bar.clone()];
            spans.extend(cut(row, inner).spans);
            Line::from(spans)
        });
        barred.collect()
    }

    fn request_rows(&self, width_max: usize) -> Vec<Row> {
        let request = &self.question.request;
        let path = request.diffs.first().map(|diff| diff.path.as_str()).unwrap_or_default();
        let mut code = Highlighter::for_path(path);
        let lines = permission_text::lines(request);
        lines
            .into_iter()
            .flat_map(|(tone, line)| match tone {
                Tone::Good | Tone::Bad | Tone::Title if !request.diffs.is_empty() => {
                    diff_row(tone, line.strip_prefix("  ").unwrap_or(&line), &mut code, width_max)
                }
                Tone::Attention => wrap(row(line.trim_start_matches("? "), STRONG), width_max, 0),
                _ => wrap(row(&line, style(tone)), width_max, 4),
            })
            .collect()
    }

    fn styles(&self) -> (ratatui::style::Style, ratatui::style::Style) {
        let plain = ratatui::style::Style::new();
        if self.is_armed { (ACCENT.patch(STRONG), plain) } else { (QUIET, QUIET) }
    }

    /// The options with their keys, each on rows of its own.
    fn option_rows(&self, width_max: usize) -> Vec<Row> {
        let (key_style, text_style) = self.styles();
        let mut keys = OPTION_KEYS.chars();
        let mut rows = Vec::new();
        for (at, (id, name)) in self.question.options.iter().enumerate() {
            let is_pending =
                self.pending.is_some_and(|pending| pending.meaning == Meaning::Option(at));
            let text_style = if is_pending { CHOSEN } else { text_style };
            let line = match keys.next() {
                Some(key) => Line::from(vec![
                    span(key.to_string(), key_style),
                    Span::raw(" "),
                    span(crate::text::one_line(name), text_style),
                ]),
                // More options than keys: the command line takes them all.
                None => row(
                    format!(
                        "  {}: piton sessions answer {} {id}",
                        crate::text::one_line(name),
                        self.question.wait_id
                    ),
                    QUIET,
                ),
            };
            rows.extend(wrap(line, width_max, 2));
        }
        rows
    }

    /// While a part was not on the screen yet: how it gets there.
    fn more_hint(&self) -> Option<Row> {
        if self.is_whole() || self.seen >= self.total || self.total <= self.page {
            return None;
        }
        let more = self.total.saturating_sub(self.seen.max(self.first + self.page));
        let key = if self.is_typing { "↓" } else { "space or ↓" };
        (more > 0).then(|| {
            row(format!("{more} more lines: {key} shows them, then you can answer"), ACCENT)
        })
    }

    fn keys_rows(&self, width_max: usize, options: Options) -> Vec<Row> {
        let (key_style, text_style) = self.styles();
        let count = self.question.options.len();
        let names = || self.question.options.iter().map(|(_, name)| crate::text::one_line(name));
        let is_wide =
            |name: &String| unicode_width::UnicodeWidthStr::width(name.as_str()) + 5 > width_max;
        let mut rows: Vec<Row> = Vec::new();
        let mut entries: Vec<(String, String, Option<Meaning>)> = Vec::new();
        match options {
            Options::InRequest => {
                let last = OPTION_KEYS.chars().nth(count.min(OPTION_KEYS.len()) - 1).unwrap_or('1');
                entries.push((format!("1 to {last}"), "choose an option".to_owned(), None));
            }
            Options::Below if count > OPTION_KEYS.len() || names().any(|name| is_wide(&name)) => {
                rows = self.option_rows(width_max);
            }
            Options::Below => {
                entries.extend(
                    OPTION_KEYS.chars().zip(names()).enumerate().map(|(at, (key, name))| {
                        (key.to_string(), name, Some(Meaning::Option(at)))
                    }),
                );
            }
        }
        if self.question.rejection().is_some() {
            let meaning = Some(Meaning::RejectAndSay);
            entries.push(("m".to_owned(), "reject and say why".to_owned(), meaning));
        }
        let is_human = human::is_human(&self.question);
        if is_human && count == 0 {
            let meaning = Some(Meaning::Text);
            entries.push(("t".to_owned(), "answer with a text".to_owned(), meaning));
        }
        if !is_human {
            entries.push(("r".to_owned(), "add a rule of Piton".to_owned(), Some(Meaning::Rule)));
        }
        let stop = if is_human { "cancel the run" } else { "stop the turn" };
        entries.push(("esc".to_owned(), stop.to_owned(), None));
        let pending = self.pending.map(|pending| pending.meaning);
        let mut line: Vec<Span<'static>> = Vec::new();
        let mut used = 0;
        for (key, name, meaning) in entries {
            let is_pending = meaning.is_some() && meaning == pending;
            let text_style = if is_pending { CHOSEN } else { text_style };
            let pieces =
                [span(key, key_style), Span::raw(" "), span(name, text_style), Span::raw("   ")];
            let wide: usize = pieces.iter().map(Span::width).sum();
            if used + wide > width_max + 3 && !line.is_empty() {
                rows.push(Line::from(std::mem::take(&mut line)));
                used = 0;
            }
            used += wide;
            line.extend(pieces);
        }
        rows.push(Line::from(line));
        if self.is_typing {
            rows.push(row("tab, then a key answers; what you type goes to the prompt", ACCENT));
        }
        rows
    }
}

/// Where the options stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Options {
    /// Under the request, always on the screen.
    Below,
    /// In the request, and scrolled with it.
    InRequest,
}

#[cfg(test)]
#[path = "asking_tests.rs"]
mod tests;
