//! A permission request on the screen, and the keys that answer it. No key counts before all of the
//! request was on the screen and nothing was typed for a moment: whatever is typed until then was meant
//! for the prompt, and goes there. Pure.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::{Line, Span};

use super::highlight::Highlighter;
use super::render::diff_row;
use super::rows::{ACCENT, QUIET, Row, STRONG, WAITING, cut, row, span, style, wrap};
use crate::commands::chat::screen::Question;
use crate::permission_text;
use crate::ui::Tone;

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
}

/// What a key means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// It was typed before keys counted: it belongs to the prompt.
    Early,
    /// It moved the request.
    Scrolled,
    /// It means nothing here.
    Other,
    RejectAndSay,
    /// A standing rule of Piton's own.
    Rule,
    Option(usize),
}

impl Asking {
    pub(crate) fn new(question: Question) -> Self {
        Self {
            question,
            first: 0,
            seen: 0,
            total: 0,
            page: 1,
            width: 0,
            quiet_since: None,
            is_armed: false,
        }
    }

    /// Everything was on the screen once.
    pub(crate) fn is_whole(&self) -> bool {
        self.quiet_since.is_some() && self.seen >= self.total
    }

    #[cfg(test)]
    fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// When keys are to count, if they do not yet.
    pub(crate) fn due_at(&self, delay: Duration) -> Option<Instant> {
        if self.is_armed || !self.is_whole() {
            return None;
        }
        self.quiet_since.map(|since| since + delay)
    }

    /// Keys count, if the time has come.
    pub(crate) fn arm(&mut self, now: Instant, delay: Duration) {
        if self.due_at(delay).is_some_and(|due| due <= now) {
            self.is_armed = true;
        }
    }

    /// It is on the screen as it was laid out last.
    pub(crate) fn drawn(&mut self, now: Instant) {
        self.seen = self.seen.max(self.first + self.page);
        self.quiet_since.get_or_insert(now);
    }

    pub(crate) fn press(&mut self, key: KeyEvent, read_at: Instant) -> Pressed {
        let is_scroll =
            matches!(key.code, KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown)
                || (key.code == KeyCode::Char(' ') && !self.is_whole() && self.total > self.page);
        if is_scroll && self.total > self.page {
            self.scroll(
                match key.code {
                    KeyCode::Up => -1,
                    KeyCode::Down => 1,
                    KeyCode::PageUp => -(isize::try_from(self.page).unwrap_or(1)),
                    _ => isize::try_from(self.page).unwrap_or(1),
                },
                read_at,
            );
            return Pressed::Scrolled;
        }
        let was_read_before = self.quiet_since.is_none_or(|since| read_at < since);
        if !self.is_armed || was_read_before {
            // A moment of quiet begins again.
            if let Some(since) = &mut self.quiet_since {
                *since = (*since).max(read_at);
            }
            return Pressed::Early;
        }
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return Pressed::Other;
        }
        match key.code {
            KeyCode::Char(c @ '1'..='9') => {
                let at = usize::from(u8::try_from(c).unwrap_or(b'1') - b'1');
                if at < self.question.options.len() { Pressed::Option(at) } else { Pressed::Other }
            }
            KeyCode::Char('m') if self.question.rejection().is_some() => Pressed::RejectAndSay,
            KeyCode::Char('r') => Pressed::Rule,
            _ => Pressed::Other,
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
        let request = self.request_rows(inner);
        let mut foot = self.foot(inner);
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
        self.first = self.first.min(self.total.saturating_sub(self.page));
        let is_long = self.total > self.page;
        let heading = match self.question.request.kind.as_deref() {
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

    fn foot(&self, width_max: usize) -> Vec<Row> {
        if self.total > 0 && !self.is_whole() && self.seen < self.total && self.total > self.page {
            let more = self.total.saturating_sub(self.seen.max(self.first + self.page));
            if more > 0 {
                let words =
                    format!("{more} more lines: space or ↓ shows them, then you can answer");
                return vec![row(words, ACCENT)];
            }
        }
        let key_style = if self.is_armed { ACCENT.patch(STRONG) } else { QUIET };
        let text_style = if self.is_armed { ratatui::style::Style::new() } else { QUIET };
        let mut entries: Vec<(String, String)> = Vec::new();
        for (at, (_, name)) in self.question.options.iter().enumerate().take(9) {
            entries.push(((at + 1).to_string(), name.clone()));
        }
        if self.question.rejection().is_some() {
            entries.push(("m".to_owned(), "reject and say why".to_owned()));
        }
        entries.push(("r".to_owned(), "add a rule of Piton".to_owned()));
        entries.push(("esc".to_owned(), "stop the turn".to_owned()));
        let mut rows: Vec<Row> = Vec::new();
        let mut line: Vec<Span<'static>> = Vec::new();
        let mut used = 0;
        for (key, name) in entries {
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
        rows
    }
}

#[cfg(test)]
mod tests {
    use piton_core::permission::PermissionRequest;
    use serde_json::json;

    use super::*;
    use crate::terminal::rows::plain;

    const DELAY: Duration = Duration::from_millis(300);

    fn asking(command: &str) -> Asking {
        let question = json!({"toolCall": {"title": "Push", "kind": "execute", "rawInput": {"command": command}},
            "options": [{"optionId": "y", "name": "Allow", "kind": "allow_once"},
                {"optionId": "a", "name": "Always allow", "kind": "allow_always"},
                {"optionId": "n", "name": "Reject", "kind": "reject_once"}]});
        let request = PermissionRequest::new(&question, []);
        let options =
            request.options.iter().map(|o| (o.option_id.clone(), o.name.clone())).collect();
        Asking::new(Question { wait_id: "wait_1".to_owned(), request, options })
    }

    fn text(rows: &[Row]) -> String {
        rows.iter().map(|row| plain(row).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    fn key(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)
    }

    #[test]
    fn keys_count_after_a_moment_of_quiet_and_what_comes_before_is_typed() {
        let start = Instant::now();
        let ms = |ms: u64| start + Duration::from_millis(ms);
        let mut asking = asking("git push");
        asking.rows(60, 20);
        assert_eq!(asking.press(key('1'), ms(0)), Pressed::Early);
        asking.drawn(ms(10));
        assert_eq!(asking.press(key('1'), ms(200)), Pressed::Early);
        asking.arm(ms(320), DELAY);
        assert!(!asking.is_armed(), "something was typed 120 ms ago");
        assert_eq!(asking.due_at(DELAY), Some(ms(500)));
        asking.arm(ms(500), DELAY);
        assert_eq!(asking.press(key('1'), ms(501)), Pressed::Option(0));
        assert_eq!(asking.press(key('9'), ms(501)), Pressed::Other);
        assert_eq!(asking.press(key('m'), ms(501)), Pressed::RejectAndSay);
        assert_eq!(asking.press(key('1'), ms(5)), Pressed::Early, "read before it was drawn");
    }

    #[test]
    fn a_long_command_is_answered_only_after_its_end_was_shown() {
        let start = Instant::now();
        let command: Vec<String> = (1..=30).map(|n| format!("step {n}")).collect();
        let mut asking = asking(&command.join("\n"));
        insta::assert_snapshot!(text(&asking.rows(40, 10)));
        asking.drawn(start);
        assert!(!asking.is_whole() && asking.due_at(DELAY).is_none());
        asking.arm(start + DELAY * 9, DELAY);
        assert_eq!(asking.press(key('1'), start + DELAY * 9), Pressed::Early);
        for _ in 0..10 {
            asking.press(key(' '), start);
            asking.rows(40, 10);
            asking.drawn(start);
        }
        assert!(asking.is_whole());
        assert!(text(&asking.rows(40, 10)).contains("step 30"));
        asking.arm(start + DELAY, DELAY);
        insta::assert_snapshot!(text(&asking.rows(40, 10)));
        assert_eq!(asking.press(key('2'), start + DELAY), Pressed::Option(1));
    }
}
