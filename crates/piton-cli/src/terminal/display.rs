//! The terminal itself: modes, and rows written to it. Two ways: below what was printed, with finished
//! rows going into the terminal's own scrollback; and the alternate screen for what fills it.
//!
//! Below what was printed only relative moves are used: where on the screen that is need not be known,
//! a terminal need not be asked, and what scrolls out is the terminal's as if it had been printed.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::style::{Color, Modifier, Style};
use rustix::termios::{self, OptionalActions, Termios};

use unicode_width::UnicodeWidthStr as _;

use super::rows::{Row, cut, plain};

/// A part of the screen below what was printed.
#[derive(Debug, Default)]
pub(crate) struct Inline {
    drawn: Vec<Row>,
    /// The cursor's row within what is drawn.
    cursor_row: usize,
    /// The cursor's column.
    cursor_column: usize,
    /// The terminal wraps its rows again when it gets narrower.
    wraps_again: bool,
    size: (usize, usize),
    out: String,
}

/// What a picture of the screen is: rows, and where the cursor is; hidden without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Picture {
    pub(crate) rows: Vec<Row>,
    pub(crate) cursor: Option<(usize, usize)>,
}

const SYNC_BEGIN: &str = "\x1b[?2026h";
const SYNC_END: &str = "\x1b[?2026l";

impl Inline {
    pub(crate) fn new(wraps_again: bool) -> Self {
        Self { wraps_again, ..Self::default() }
    }

    /// The cursor's row within what was drawn, when the terminal has wrapped it for fewer columns.
    fn wrapped_row(&self, columns: usize) -> usize {
        let columns = columns.max(1);
        let above = self.drawn.iter().take(self.cursor_row);
        let rows = above.map(|row| plain(row).trim_end().width().div_ceil(columns).max(1));
        rows.sum::<usize>() + self.cursor_column / columns
    }

    /// Prints rows above, for ever, and draws the picture below them. One write: no terminal shows a
    /// state in between.
    pub(crate) fn draw(
        &mut self,
        above: &[Row],
        picture: &Picture,
        size: (usize, usize),
        colors: bool,
    ) {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let narrower = size.0 < self.size.0;
        if narrower && self.wraps_again {
            self.cursor_row = self.wrapped_row(size.0);
        }
        let is_same_shape = above.is_empty()
            && self.size == size
            && self.drawn.len() == picture.rows.len()
            && !self.drawn.is_empty();
        if is_same_shape {
            self.update(&mut out, picture, colors);
        } else {
            self.redraw(&mut out, above, picture, colors);
        }
        self.size = size;
        self.drawn.clone_from(&picture.rows);
        if !out.is_empty() {
            self.out = format!("{SYNC_BEGIN}\x1b[?25l{out}");
            if picture.cursor.is_some() {
                self.out.push_str("\x1b[?25h");
            }
            self.out.push_str(SYNC_END);
        }
    }

    /// What is to be written to the terminal.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// To the first row of what is drawn, with nothing below it.
    fn erase(&mut self, out: &mut String) {
        out.push('\r');
        if self.cursor_row > 0 {
            let _ = write!(out, "\x1b[{}A", self.cursor_row);
        }
        out.push_str("\x1b[J");
        self.drawn.clear();
        self.cursor_row = 0;
    }

    fn redraw(&mut self, out: &mut String, above: &[Row], picture: &Picture, colors: bool) {
        self.erase(out);
        for row in above {
            push_row(out, row, colors);
            out.push_str("\r\n");
        }
        // A row that a terminal finds wider than we do is cut, and does not push the others down.
        out.push_str("\x1b[?7l");
        for (at, row) in picture.rows.iter().enumerate() {
            if at > 0 {
                out.push_str("\r\n");
            }
            push_row(out, row, colors);
        }
        out.push_str("\x1b[?7h");
        self.cursor_row = picture.rows.len().saturating_sub(1);
        self.place(out, picture);
    }

    fn update(&mut self, out: &mut String, picture: &Picture, colors: bool) {
        let changed: Vec<usize> =
            (0..picture.rows.len()).filter(|at| self.drawn[*at] != picture.rows[*at]).collect();
        if !changed.is_empty() {
            out.push_str("\x1b[?7l");
        }
        for at in &changed {
            self.move_to(out, *at);
            push_row(out, &picture.rows[*at], colors);
            out.push_str("\x1b[K");
        }
        if !changed.is_empty() {
            out.push_str("\x1b[?7h");
        }
        self.place(out, picture);
    }

    fn move_to(&mut self, out: &mut String, row: usize) {
        out.push('\r');
        match row.cmp(&self.cursor_row) {
            std::cmp::Ordering::Less => {
                let _ = write!(out, "\x1b[{}A", self.cursor_row - row);
            }
            std::cmp::Ordering::Greater => {
                let _ = write!(out, "\x1b[{}B", row - self.cursor_row);
            }
            std::cmp::Ordering::Equal => {}
        }
        self.cursor_row = row;
    }

    fn place(&mut self, out: &mut String, picture: &Picture) {
        let Some((row, column)) = picture.cursor else { return };
        self.move_to(out, row);
        self.cursor_column = column;
        if column > 0 {
            let _ = write!(out, "\x1b[{column}C");
        }
    }

    /// Takes away what is drawn: the cursor is where the next program prints.
    pub(crate) fn leave(&mut self) -> String {
        let mut out = String::new();
        self.erase(&mut out);
        out.push_str("\x1b[?25h");
        out
    }
}

/// The alternate screen.
#[derive(Debug, Default)]
pub(crate) struct Full {
    drawn: Vec<Row>,
    size: (usize, usize),
}

impl Full {
    pub(crate) fn draw(&mut self, picture: &Picture, size: (usize, usize), colors: bool) -> String {
        let mut out = String::from(SYNC_BEGIN);
        out.push_str("\x1b[?25l\x1b[?7l");
        if self.size != size {
            out.push_str("\x1b[2J");
            self.drawn.clear();
            self.size = size;
        }
        for (at, row) in picture.rows.iter().take(size.1).enumerate() {
            if self.drawn.get(at) == Some(row) {
                continue;
            }
            let _ = write!(out, "\x1b[{};1H", at + 1);
            push_row(&mut out, &cut(row.clone(), size.0), colors);
            out.push_str("\x1b[K");
        }
        if picture.rows.len() < self.drawn.len() {
            let _ = write!(out, "\x1b[{};1H\x1b[J", picture.rows.len() + 1);
        }
        self.drawn.clone_from(&picture.rows);
        out.push_str("\x1b[?7h");
        if let Some((row, column)) = picture.cursor {
            let _ = write!(out, "\x1b[{};{}H\x1b[?25h", row + 1, column + 1);
        }
        out.push_str(SYNC_END);
        out
    }
}

fn push_row(out: &mut String, row: &Row, colors: bool) {
    let mut is_styled = false;
    // Blanks at the end are not seen, and would wrap when a terminal gets narrower.
    let shown = plain(row).trim_end().len();
    let mut used = 0;
    for span in &row.spans {
        let left = shown.saturating_sub(used);
        if left == 0 {
            break;
        }
        let text = &span.content[..span.content.len().min(left)];
        used += span.content.len();
        let codes = sgr(span.style.patch(Style::new()), colors);
        if codes.is_empty() {
            out.push_str(text);
        } else {
            let _ = write!(out, "\x1b[{codes}m{text}\x1b[0m");
            is_styled = true;
        }
    }
    if is_styled {
        out.push_str("\x1b[0m");
    }
}

/// The codes of a style; without colours, those that are none stay.
fn sgr(style: Style, colors: bool) -> String {
    let mut codes: Vec<String> = Vec::new();
    for (modifier, code) in [
        (Modifier::BOLD, "1"),
        (Modifier::DIM, "2"),
        (Modifier::ITALIC, "3"),
        (Modifier::UNDERLINED, "4"),
        (Modifier::REVERSED, "7"),
        (Modifier::CROSSED_OUT, "9"),
    ] {
        if style.add_modifier.contains(modifier) && !style.sub_modifier.contains(modifier) {
            codes.push(code.to_owned());
        }
    }
    let color = match style.fg {
        Some(Color::Red) => "31",
        Some(Color::Green) => "32",
        Some(Color::Yellow) => "33",
        Some(Color::Blue) => "34",
        Some(Color::Magenta) => "35",
        Some(Color::Cyan) => "36",
        _ => "",
    };
    if colors && !color.is_empty() {
        codes.push(color.to_owned());
    }
    codes.join(";")
}

/// The terminal's own settings, restored however this ends.
#[derive(Debug)]
pub(crate) struct Raw {
    before: Termios,
    is_raw: bool,
}

impl Raw {
    /// `None`: stdin is no terminal, or cannot be set.
    pub(crate) fn enter() -> Option<Self> {
        let before = termios::tcgetattr(io::stdin()).ok()?;
        let mut raw = Self { before, is_raw: false };
        raw.resume().ok()?;
        Some(raw)
    }

    /// Sets what this program needs: each key by itself, pastes in brackets, keys with their modifiers.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        let mut now = self.before.clone();
        now.make_raw();
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &now)?;
        self.is_raw = true;
        write("\x1b[?2004h\x1b[>4;1m\x1b[>1u")
    }

    /// As it was before: for another program, or at the end.
    pub(crate) fn suspend(&mut self) {
        // Also where nothing else could leave it: at an error, and in a panic.
        let _ = leave_full();
        if !self.is_raw {
            return;
        }
        self.is_raw = false;
        // A terminal that is gone cannot be set, and need not be.
        let _ = write("\x1b[<u\x1b[>4;0m\x1b[?2004l\x1b[?25h");
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.suspend();
    }
}

/// The alternate screen is shown. A terminal has one, for all that draw on it.
static IS_FULL: AtomicBool = AtomicBool::new(false);

/// Shows the alternate screen; with the wheel, the terminal's own selection needs Shift.
pub(crate) fn enter_full(has_wheel: bool) -> io::Result<()> {
    IS_FULL.store(true, Ordering::Relaxed);
    write(if has_wheel { "\x1b[?1049h\x1b[?1000h\x1b[?1006h" } else { "\x1b[?1049h" })
}

/// Back to what was printed, if the alternate screen is shown.
pub(crate) fn leave_full() -> io::Result<()> {
    if IS_FULL.swap(false, Ordering::Relaxed) {
        write("\x1b[?1006l\x1b[?1000l\x1b[?1049l\x1b[?25h")?;
    }
    Ok(())
}

/// All at once, so that no other output comes in between.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Whether the terminal wraps its rows again when it gets narrower: nearly all do. Where it is not known,
/// a piece of an old picture that stays is better than a row that is lost.
pub(crate) fn wraps_again() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let term = std::env::var("TERM").unwrap_or_default();
    let keeps_rows = ["linux", "rxvt", "vt"].iter().any(|name| term.starts_with(name));
    is_set("TMUX") || !(keeps_rows || is_set("XTERM_VERSION") || is_set("STY"))
}

/// Columns and rows.
pub(crate) fn size() -> (usize, usize) {
    let size = termios::tcgetwinsize(io::stdout()).ok();
    let some = |count: u16, otherwise: usize| if count == 0 { otherwise } else { count.into() };
    size.map_or((80, 24), |size| (some(size.ws_col, 80), some(size.ws_row, 24)))
}

/// The rows without styles, for tests.
#[cfg(test)]
pub(crate) fn text_of(picture: &Picture) -> String {
    let rows = picture.rows.iter().map(|row| plain(row).trim_end().to_owned());
    rows.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::rows::{ACCENT, row};

    fn picture(rows: &[&str], cursor: (usize, usize)) -> Picture {
        Picture { rows: rows.iter().map(|text| row(text, ACCENT)).collect(), cursor: Some(cursor) }
    }

    fn screen(parser: &vt100::Parser) -> Vec<String> {
        let (_, columns) = parser.screen().size();
        parser.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect()
    }

    #[test]
    fn finished_rows_scroll_out_and_the_picture_stays_below() {
        let mut parser = vt100::Parser::new(6, 20, 100);
        parser.process(b"$ piton chat\r\n");
        let mut inline = Inline::default();
        let draw = |inline: &mut Inline,
                    parser: &mut vt100::Parser,
                    above: &[&str],
                    rows: &[&str],
                    cursor| {
            let above: Vec<Row> = above.iter().map(|text| row(text, ACCENT)).collect();
            inline.draw(&above, &picture(rows, cursor), (20, 6), true);
            parser.process(inline.take().as_bytes());
        };
        draw(&mut inline, &mut parser, &[], &["> hi", "status"], (0, 4));
        assert_eq!(screen(&parser)[..3], ["$ piton chat", "> hi", "status"]);
        assert_eq!(parser.screen().cursor_position(), (1, 4));
        draw(&mut inline, &mut parser, &["said 1", "said 2"], &["> h", "status 2"], (0, 3));
        assert_eq!(screen(&parser)[..5], ["$ piton chat", "said 1", "said 2", "> h", "status 2"]);
        draw(&mut inline, &mut parser, &["said 3", "said 4"], &["a", "> h", "status"], (1, 3));
        assert_eq!(screen(&parser), ["said 2", "said 3", "said 4", "a", "> h", "status"]);
        assert_eq!(parser.screen().cursor_position(), (4, 3));
        draw(&mut inline, &mut parser, &[], &["> h", "status"], (0, 3));
        assert_eq!(screen(&parser), ["said 2", "said 3", "said 4", "> h", "status", ""]);
        parser.process(inline.leave().as_bytes());
        assert_eq!(screen(&parser), ["said 2", "said 3", "said 4", "", "", ""]);
        parser.screen_mut().set_scrollback(2);
        assert_eq!(screen(&parser)[..2], ["$ piton chat", "said 1"]);
    }

    /// As a terminal does that wraps its rows again: a wide row above the cursor is two rows now.
    #[test]
    fn rows_that_were_wrapped_again_are_erased_whole() {
        let mut inline = Inline::new(true);
        inline.draw(&[], &picture(&["12345678901234567890", "> x"], (1, 3)), (30, 6), false);
        inline.take();
        inline.draw(&[], &picture(&["1234567890", "> x"], (1, 3)), (15, 6), false);
        assert!(inline.take().contains("\r\x1b[2A\x1b[J"));
        let mut inline = Inline::new(false);
        inline.draw(&[], &picture(&["12345678901234567890", "> x"], (1, 3)), (30, 6), false);
        inline.take();
        inline.draw(&[], &picture(&["1234567890", "> x"], (1, 3)), (15, 6), false);
        assert!(inline.take().contains("\r\x1b[1A\x1b[J"));
    }

    #[test]
    fn only_what_changed_is_written() {
        let mut inline = Inline::default();
        inline.draw(&[], &picture(&["one", "two", "three"], (1, 0)), (20, 6), false);
        inline.take();
        inline.draw(&[], &picture(&["one", "2", "three"], (1, 1)), (20, 6), false);
        let written = inline.take();
        assert!(written.contains("\r2\x1b[K") && !written.contains("three"), "{written:?}");
        inline.draw(&[], &picture(&["one", "2", "three"], (1, 1)), (20, 6), false);
        assert!(!inline.take().contains("one"));
    }

    #[test]
    fn without_colours_there_are_none() {
        let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        assert_eq!((sgr(style, true), sgr(style, false)), ("1;31".to_owned(), "1".to_owned()));
    }
}
