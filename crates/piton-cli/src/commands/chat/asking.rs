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
}

/// What typing means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pressed<'a> {
    /// It was typed before the question was there: it belongs to a line.
    Line,
    /// It was typed before keys counted.
    Nothing,
    /// The next part of the question is wanted.
    More,
    /// It means nothing here.
    Other,
    /// The request is to be rejected, and why is typed next.
    RejectAndSay,
    /// An option was chosen; what follows the key belongs to a line.
    Option { at: usize, rest: &'a [u8] },
}

impl Asking {
    pub(super) fn new(question: Question) -> Self {
        let width = Ui::width();
        let lines = permission_text::lines(&question.request);
        let rows = lines.into_iter().flat_map(|(tone, line)| {
            text::rows(&line, width).into_iter().map(move |row| (tone, row))
        });
        Self { rows: rows.collect(), question, drawn_at: Instant::now(), armed_at: None }
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

    /// When keys are to count, if they do not yet.
    pub(super) fn due_at(&self, delay: Duration) -> Option<Instant> {
        self.armed_at.is_none().then_some(self.drawn_at + delay)
    }

    /// Keys count from now on; the caller has dropped input that was typed and not read.
    pub(super) fn arm(&mut self) {
        self.armed_at = Some(Instant::now());
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

    pub(super) fn press<'a>(&self, typed: &'a Typed) -> Pressed<'a> {
        if typed.read_at < self.drawn_at {
            return Pressed::Line;
        }
        if self.armed_at.is_none_or(|armed| typed.read_at < armed) {
            return Pressed::Nothing;
        }
        if !self.is_whole() {
            let is_more = typed.bytes.iter().any(|key| matches!(key, b' ' | b'r' | b'R'));
            return if is_more { Pressed::More } else { Pressed::Other };
        }
        let chosen = |key: &u8| self.question.option(*key).is_some();
        if typed.bytes.first() == Some(&b'm') && self.question.rejection().is_some() {
            return Pressed::RejectAndSay;
        }
        match typed.bytes.iter().position(chosen) {
            Some(found) => {
                let at = usize::from(typed.bytes[found] - b'1');
                Pressed::Option { at, rest: &typed.bytes[found + 1..] }
            }
            None => Pressed::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use piton_core::permission::PermissionRequest;

    use super::*;

    fn asking() -> Asking {
        let options = vec![("y".to_owned(), "Yes".to_owned()), ("n".to_owned(), "No".to_owned())];
        let request = PermissionRequest::default();
        let question = Question { wait_id: "wait_1".to_owned(), request, options };
        Asking { question, rows: VecDeque::new(), drawn_at: Instant::now(), armed_at: None }
    }

    fn typed(bytes: &[u8], read_at: Instant) -> Typed {
        Typed { bytes: bytes.to_vec(), read_at }
    }

    #[test]
    fn keys_count_once_the_whole_question_was_there_for_a_moment() {
        let mut asking = asking();
        let (drawn, ms) = (asking.drawn_at, Duration::from_millis(1));
        assert_eq!(asking.press(&typed(b"1", drawn - ms)), Pressed::Line);
        assert_eq!(asking.press(&typed(b"1", drawn + ms)), Pressed::Nothing);
        asking.armed_at = Some(drawn + 300 * ms);
        assert_eq!(asking.press(&typed(b"1", drawn + 299 * ms)), Pressed::Nothing);
        assert_eq!(asking.press(&typed(b"x", drawn + 301 * ms)), Pressed::Other);
        let chosen = asking.press(&typed(b"x2hi", drawn + 301 * ms)).is_option(1, b"hi");
        assert!(chosen);
        asking.rows.push_back((Tone::Plain, "more".to_owned()));
        assert_eq!(asking.press(&typed(b"1", drawn + 301 * ms)), Pressed::Other);
        assert_eq!(asking.press(&typed(b" ", drawn + 301 * ms)), Pressed::More);
        assert_eq!(asking.press(&typed(b"r", drawn + 301 * ms)), Pressed::More);
    }

    impl Pressed<'_> {
        fn is_option(&self, wanted: usize, behind: &[u8]) -> bool {
            matches!(self, Self::Option { at, rest } if *at == wanted && *rest == behind)
        }
    }
}
