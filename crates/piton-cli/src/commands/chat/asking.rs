//! A question on the screen, and the keys that answer it. No key counts before the whole question was
//! shown and was there to be read for a moment: whatever was typed until then was meant for something
//! else.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::input::Typed;
use super::screen::{Question, Screen};
use crate::error::Result;
use crate::permission_text::{self, Line};
use crate::text;
use crate::ui::{Tone, Ui};

/// Rows that stay free for the options and the keys.
const ROWS_KEPT: usize = 4;
const PAGE_ROWS_MIN: usize = 4;

/// A question that is on the screen.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) question: Question,
    /// What was not shown yet, one row of the screen each.
    rows: VecDeque<Line>,
    drawn_at: Instant,
    /// Since when keys count.
    armed_at: Option<Instant>,
    /// A text is being typed: keys go there until Tab is pressed.
    is_typing: bool,
    /// A key that answers if nothing follows it, and when it was pressed.
    pending: Option<(u8, Instant)>,
}

/// How a question is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The request is to be rejected, and why is typed next.
    RejectAndSay,
    Option(usize),
}

/// What typing means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    /// It belongs to a line, behind the key that was not followed by quiet. The first of its kind is
    /// worth a word.
    Line { before: Option<u8>, is_first: bool },
    /// It means nothing yet.
    Nothing,
    /// The next part of the question is wanted.
    More,
    /// It means this.
    Meant(Meaning),
}

impl Asking {
    pub(super) fn new(question: Question) -> Self {
        let width = Ui::width();
        let lines = permission_text::lines(&question.request);
        let rows = lines.into_iter().flat_map(|(tone, line)| {
            text::rows(&line, width).into_iter().map(move |row| (tone, row))
        });
        Self {
            rows: rows.collect(),
            question,
            drawn_at: Instant::now(),
            armed_at: None,
            is_typing: false,
            pending: None,
        }
    }

    /// The same question, which asks for more now: all of it is shown again. Keys go where they went.
    pub(super) fn again(self) -> Self {
        let Self { question, is_typing, .. } = self;
        Self { is_typing, ..Self::new(question) }
    }

    /// Shows the next part, and the options if that was all. Keys do not count from here on.
    pub(super) fn draw(&mut self, screen: &mut Screen, ui: &mut Ui) -> Result<()> {
        let options = self.question.options.len();
        let page = Ui::height().saturating_sub(ROWS_KEPT + options).max(PAGE_ROWS_MIN);
        for (tone, row) in self.rows.drain(..page.min(self.rows.len())) {
            screen.line(ui, tone, &row)?;
        }
        if self.rows.is_empty() {
            for (at, (_, name)) in self.question.options.iter().enumerate() {
                let row = text::one_line(name);
                screen.line(ui, Tone::Plain, &format!("  {}  {row}", at + 1))?;
            }
        }
        ui.flush()?;
        self.drawn_at = Instant::now();
        self.armed_at = None;
        Ok(())
    }

    /// When the next moment of quiet is over.
    pub(super) fn due_at(&self, delay: Duration) -> Option<Instant> {
        if let Some((_, since)) = self.pending {
            return Some(since + delay);
        }
        (self.armed_at.is_none() && !self.is_typing).then_some(self.drawn_at + delay)
    }

    /// A moment of quiet is over: keys count from now on, and the one that was pressed before it is
    /// meant.
    pub(super) fn arm(&mut self) -> Option<Meaning> {
        self.armed_at = Some(Instant::now());
        self.pending.take().and_then(|(key, _)| self.meaning(key))
    }

    /// Whether everything was shown.
    fn is_whole(&self) -> bool {
        self.rows.is_empty()
    }

    /// What keys can be pressed now.
    pub(super) fn keys(&self, call: &crate::call::Call) -> String {
        match self.rows.len() {
            0 => self.question.keys(call),
            rows => format!("{rows} more lines: press space to review them before you answer"),
        }
    }

    pub(super) fn press(&mut self, typed: &Typed) -> Pressed {
        if typed.read_at < self.drawn_at {
            return Pressed::Line { before: None, is_first: false };
        }
        let key = if let [key] = typed.bytes[..] { Some(key) } else { None };
        let counts = !self.is_typing
            && self.pending.is_none()
            && self.armed_at.is_some_and(|armed| armed <= typed.read_at);
        match (key, self.pending) {
            // Arrows and their like are no text.
            (_, None) if typed.bytes.first() == Some(&0x1b) && !typed.bytes.starts_with(PASTE) => {
                Pressed::Nothing
            }
            (Some(b'\t'), None) => {
                self.is_typing = false;
                self.disturb(typed.read_at);
                Pressed::Nothing
            }
            (Some(b'\n' | b'\r'), Some((pending, _))) => {
                self.pending = None;
                self.meaning(pending).map_or(Pressed::Nothing, Pressed::Meant)
            }
            (Some(b' '), None) if counts && !self.is_whole() => Pressed::More,
            (Some(key), None) if counts && self.is_whole() && self.meaning(key).is_some() => {
                self.pending = Some((key, typed.read_at));
                Pressed::Nothing
            }
            _ => {
                let before = self.pending.take().map(|(key, _)| key);
                let is_first = !std::mem::replace(&mut self.is_typing, true);
                self.disturb(typed.read_at);
                Pressed::Line { before, is_first }
            }
        }
    }

    /// A moment of quiet begins again.
    fn disturb(&mut self, read_at: Instant) {
        self.armed_at = None;
        self.drawn_at = self.drawn_at.max(read_at);
    }

    fn meaning(&self, key: u8) -> Option<Meaning> {
        if key == b'm' && self.question.rejection().is_some() {
            return Some(Meaning::RejectAndSay);
        }
        self.question.option(key)?;
        Some(Meaning::Option(usize::from(key - b'1')))
    }
}

/// How a terminal begins a paste.
const PASTE: &[u8] = b"\x1b[200~";

#[cfg(test)]
mod tests {
    use piton_core::permission::PermissionRequest;

    use super::super::screen::Asked;
    use super::*;

    fn asking() -> Asking {
        let options = vec![("y".to_owned(), "Yes".to_owned()), ("n".to_owned(), "No".to_owned())];
        let request = PermissionRequest::default();
        let asked = Asked::default();
        let question = Question { wait_id: "wait_1".to_owned(), request, options, asked };
        Asking {
            question,
            rows: VecDeque::new(),
            drawn_at: Instant::now(),
            armed_at: None,
            is_typing: false,
            pending: None,
        }
    }

    fn typed(bytes: &[u8], read_at: Instant) -> Typed {
        Typed { bytes: bytes.to_vec(), read_at }
    }

    #[test]
    fn a_key_answers_between_two_moments_of_quiet() {
        let mut asking = asking();
        let (drawn, ms) = (asking.drawn_at, Duration::from_millis(1));
        let line = |before, is_first| Pressed::Line { before, is_first };
        assert_eq!(asking.press(&typed(b"1", drawn - ms)), line(None, false));
        asking.armed_at = Some(drawn + 300 * ms);
        assert_eq!(asking.press(&typed(b"1", drawn + 400 * ms)), Pressed::Nothing);
        assert_eq!(asking.due_at(300 * ms), Some(drawn + 700 * ms));
        assert_eq!(asking.arm(), Some(Meaning::Option(0)));
        // A key that is followed by another one is typed, and so is all behind it.
        asking.armed_at = Some(drawn);
        assert_eq!(asking.press(&typed(b"2", drawn + 800 * ms)), Pressed::Nothing);
        assert_eq!(asking.press(&typed(b" ", drawn + 900 * ms)), line(Some(b'2'), true));
        assert_eq!(asking.due_at(300 * ms), None);
        assert_eq!(asking.press(&typed(b"1", drawn + 9_000 * ms)), line(None, false));
        // Until Tab is pressed, and it was quiet.
        assert_eq!(asking.press(&typed(b"\t", drawn + 9_100 * ms)), Pressed::Nothing);
        assert_eq!(asking.due_at(300 * ms), Some(drawn + 9_400 * ms));
        asking.armed_at = Some(drawn + 9_400 * ms);
        assert_eq!(asking.press(&typed(b"add 2 tests", drawn + 9_500 * ms)), line(None, true));
    }

    #[test]
    fn a_long_question_is_answered_after_its_end_was_shown() {
        let mut asking = asking();
        let at = asking.drawn_at + Duration::from_millis(1);
        asking.armed_at = Some(asking.drawn_at);
        asking.rows.push_back((Tone::Plain, "more".to_owned()));
        assert_eq!(asking.press(&typed(b"\x1b[B", at)), Pressed::Nothing);
        assert_eq!(asking.press(&typed(b" ", at)), Pressed::More);
        assert_eq!(asking.press(&typed(b"1", at)), Pressed::Line { before: None, is_first: true });
    }
}
