//! Light markdown for a terminal, as it streams: every character is taken once and nothing is printed
//! again, so that it does not matter in which pieces the text comes. What cannot be decided yet is
//! held back, never more than [`HELD_CHARS_MAX`] characters; what is not closed ends with its line.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use crate::ui::control;

/// A link that is longer than this is shown as it was written.
const HELD_CHARS_MAX: usize = 500;
const CODE: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Cyan)));

/// Where in a line the text stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum At {
    /// At its beginning; nothing is decided about it.
    #[default]
    Start,
    Text,
    /// Behind so many stars.
    Stars(usize),
    /// Behind so many backticks that open a code span.
    Ticks(usize),
    /// In a code span that so many backticks opened, behind so many that may close it.
    Code {
        opened: usize,
        seen: usize,
    },
    /// In what may be a link.
    Link,
    Backslash,
    /// In the line that opens a fence.
    FenceOpens,
    /// At the beginning of a line in a fence.
    FenceStart,
    FenceText,
}

/// What a whole line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Plain,
    Heading,
    Quote,
}

/// A fence that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fence {
    mark: char,
    length: usize,
}

#[derive(Debug, Default)]
pub(super) struct Markdown {
    at: At,
    /// Not decided yet.
    held: String,
    before: Option<char>,
    line: Line,
    bold: bool,
    italic: bool,
    fence: Option<Fence>,
    /// The style that the terminal has.
    shown: Style,
    out: String,
}

/// What the beginning of a line is.
#[derive(Debug, PartialEq, Eq)]
enum Begins {
    Undecided,
    Text,
    Heading,
    Bullet,
    Quote,
    Fence,
}

fn begins(held: &str) -> Begins {
    let line = held.trim_start_matches(' ');
    let Some(first) = line.chars().next() else { return Begins::Undecided };
    let marks = line.chars().take_while(|c| *c == first).count();
    let behind = line.chars().nth(marks);
    match (first, marks, behind) {
        ('#', 1..=6, Some(' ')) => Begins::Heading,
        ('#', 1..=6, None) | ('`' | '~', 1..=2, None) | ('-' | '+' | '*' | '>', 1, None) => {
            Begins::Undecided
        }
        ('`' | '~', 3.., _) => Begins::Fence,
        ('-' | '+' | '*', 1, Some(' ')) => Begins::Bullet,
        ('>', 1, Some(_)) => Begins::Quote,
        _ => Begins::Text,
    }
}

impl Markdown {
    /// Takes a piece of text; answers what is to be printed.
    pub(super) fn push(&mut self, text: &str) -> String {
        for c in text.chars() {
            self.take(c);
        }
        std::mem::take(&mut self.out)
    }

    /// The text has ended: what was held back, and the terminal's own style again.
    pub(super) fn finish(&mut self) -> String {
        self.settle();
        self.style(Style::new());
        let out = std::mem::take(&mut self.out);
        *self = Self::default();
        out
    }

    fn take(&mut self, c: char) {
        match self.at.clone() {
            At::Start => self.start(c),
            At::FenceOpens if c == '\n' => self.end_line(),
            At::FenceOpens => self.fence_opens(c),
            At::FenceStart => self.fence_start(c),
            At::FenceText => self.fence_text(c),
            _ if c == '\n' => self.end_line(),
            At::Text => self.text(c),
            At::Stars(count) if c == '*' => self.at = At::Stars(count + 1),
            At::Stars(count) => {
                self.stars(count, Some(c));
                self.text(c);
            }
            At::Ticks(count) if c == '`' => self.at = At::Ticks(count + 1),
            At::Ticks(opened) => {
                self.at = At::Code { opened, seen: 0 };
                self.take(c);
            }
            At::Code { opened, seen } if c == '`' => self.at = At::Code { opened, seen: seen + 1 },
            At::Code { opened, seen } if seen == opened => {
                self.at = At::Text;
                self.before = Some('`');
                self.text(c);
            }
            At::Code { opened, seen } => {
                self.style(CODE);
                self.out.extend(std::iter::repeat_n('`', seen));
                self.out.push(c);
                self.at = At::Code { opened, seen: 0 };
            }
            At::Link => self.link(c),
            At::Backslash => {
                self.at = At::Text;
                if !c.is_ascii_punctuation() {
                    self.print('\\');
                }
                self.print(c);
            }
        }
    }

    fn start(&mut self, c: char) {
        if c == '\n' {
            return self.end_line();
        }
        self.held.push(c);
        if self.held.chars().count() > HELD_CHARS_MAX {
            self.fence = None;
            return self.literally();
        }
        match begins(&self.held) {
            Begins::Undecided => {}
            Begins::Text => self.literally(),
            Begins::Heading => {
                self.held.clear();
                (self.line, self.at) = (Line::Heading, At::Text);
            }
            Begins::Bullet => {
                let indent = self.held.len() - self.held.trim_start().len();
                self.held.clear();
                self.out.extend(std::iter::repeat_n(' ', indent));
                self.out.push_str("• ");
                self.at = At::Text;
            }
            Begins::Quote => {
                self.held.clear();
                (self.line, self.at) = (Line::Quote, At::Text);
                self.print('│');
                self.print(' ');
                if c != ' ' {
                    self.text(c);
                }
            }
            Begins::Fence => {
                let marks = self.held.trim_start_matches(' ');
                let mark = marks.chars().next().unwrap_or('`');
                if c == mark {
                    // There may be more of them.
                    self.fence = Some(Fence { mark, length: marks.len() });
                } else {
                    // Behind them only the language may stand.
                    self.at = At::FenceOpens;
                }
            }
        }
    }

    /// A line that begins like a fence and has a backtick in it is code in the middle of a line.
    fn fence_opens(&mut self, c: char) {
        self.held.push(c);
        let is_code = c == '`' && self.fence.is_some_and(|fence| fence.mark == '`');
        if is_code || self.held.chars().count() > HELD_CHARS_MAX {
            self.fence = None;
            self.literally();
        }
    }

    /// What was held back at the beginning of a line is text.
    fn literally(&mut self) {
        self.at = At::Text;
        for c in std::mem::take(&mut self.held).chars() {
            self.take(c);
        }
    }

    fn fence_start(&mut self, c: char) {
        let Some(fence) = self.fence else { return self.at = At::Start };
        let is_closing = |held: &str| {
            let marks = held.trim_start_matches(' ').trim_end_matches(' ');
            marks.chars().count() >= fence.length && marks.chars().all(|c| c == fence.mark)
        };
        if c == '\n' {
            let held = std::mem::take(&mut self.held);
            if is_closing(&held) {
                (self.fence, self.at) = (None, At::Start);
            } else if held.trim().is_empty() {
                self.out.push('\n');
            } else {
                self.fence_line(&held);
                self.fence_text('\n');
            }
            return;
        }
        self.held.push(c);
        let marks = self.held.trim_start_matches(' ').trim_end_matches(' ');
        let may_close = marks.chars().all(|c| c == fence.mark);
        if !may_close || self.held.chars().count() > HELD_CHARS_MAX {
            let held = std::mem::take(&mut self.held);
            self.fence_line(&held);
            self.at = At::FenceText;
        }
    }

    fn fence_line(&mut self, text: &str) {
        self.style(Style::new());
        self.out.push_str("  ");
        self.style(Style::new().dimmed());
        self.out.push_str(text);
    }

    fn fence_text(&mut self, c: char) {
        if c == '\n' {
            self.style(Style::new());
            self.at = At::FenceStart;
        }
        self.out.push(c);
    }

    fn text(&mut self, c: char) {
        self.at = match c {
            '\n' => return self.end_line(),
            '*' => At::Stars(1),
            '`' => At::Ticks(1),
            '\\' => At::Backslash,
            '[' => {
                self.held.push(c);
                At::Link
            }
            c => {
                self.print(c);
                At::Text
            }
        }
    }

    /// Decides about stars by what stands before and behind them.
    fn stars(&mut self, count: usize, behind: Option<char>) {
        self.at = At::Text;
        let is_blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
        let opens = !is_blank(behind) && !self.before.is_some_and(char::is_alphanumeric);
        let closes = !is_blank(self.before);
        let turns = |on: bool| if on { closes } else { opens };
        let (bold, italic) = (count >= 2, count % 2 == 1);
        let fits = count <= 3 && (!bold || turns(self.bold)) && (!italic || turns(self.italic));
        if fits {
            self.bold ^= bold;
            self.italic ^= italic;
        } else {
            for _ in 0..count {
                self.print('*');
            }
        }
    }

    fn link(&mut self, c: char) {
        self.held.push(c);
        let text = self.held.split_once("](");
        if let (Some((text, url)), ')') = (text, c) {
            let text = text.trim_start_matches('[').to_owned();
            let url = url.trim_end_matches(')').to_owned();
            self.held.clear();
            self.at = At::Text;
            if text != url && !text.is_empty() {
                self.style(self.wanted().underline());
                self.out.push_str(&text);
                self.style(self.wanted());
                self.out.push(' ');
                self.style(self.wanted().dimmed());
                // Writing to a string does not fail.
                let _ = write!(self.out, "({url})");
            } else {
                self.style(self.wanted().underline());
                self.out.push_str(&url);
            }
            self.before = Some(')');
            return;
        }
        // Behind the text only an address makes it a link.
        let is_none = self.held.split_once(']').is_some_and(|(_, rest)| {
            !rest.is_empty() && !rest.starts_with('(') || rest.contains(char::is_whitespace)
        });
        if is_none || self.held.chars().count() > HELD_CHARS_MAX {
            self.no_link();
        }
    }

    /// What was held back is no link: its bracket is one, and the rest may be anything.
    fn no_link(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.at = At::Text;
        self.print('[');
        for c in held.chars().skip(1) {
            self.take(c);
        }
    }

    /// Decides about what is not decided, since nothing more comes.
    fn settle(&mut self) {
        match self.at.clone() {
            At::Start if self.fence.is_some() => {
                self.held.clear();
            }
            At::Start => {
                self.literally();
                // What a line begins with may be undecided in its middle, too.
                if self.at != At::Text && self.at != At::Start {
                    self.settle();
                }
            }
            At::Stars(count) => self.stars(count, None),
            At::Ticks(count) => {
                self.at = At::Text;
                for _ in 0..count {
                    self.print('`');
                }
            }
            At::Code { opened, seen } => {
                self.at = At::Text;
                if seen != opened {
                    self.style(CODE);
                    self.out.extend(std::iter::repeat_n('`', seen));
                }
            }
            At::Link => {
                self.no_link();
                self.settle();
            }
            At::Backslash => {
                self.at = At::Text;
                self.print('\\');
            }
            At::FenceStart if !self.held.is_empty() => {
                let held = std::mem::take(&mut self.held);
                let fence = self.fence.map_or('`', |fence| fence.mark);
                if !held.trim().chars().all(|c| c == fence) {
                    self.fence_line(&held);
                }
            }
            At::FenceOpens => self.held.clear(),
            At::Text | At::FenceStart | At::FenceText => {}
        }
    }

    fn end_line(&mut self) {
        if matches!(self.at, At::Start | At::FenceOpens) && self.fence.is_some() {
            // The line that opened a fence says nothing but that.
            self.held.clear();
            return self.at = At::FenceStart;
        }
        self.settle();
        (self.bold, self.italic, self.line) = (false, false, Line::Plain);
        self.style(Style::new());
        self.out.push('\n');
        (self.at, self.before) = (At::Start, None);
    }

    fn wanted(&self) -> Style {
        let mut style = Style::new();
        if self.bold || self.line == Line::Heading {
            style = style.bold();
        }
        if self.italic {
            style = style.italic();
        }
        if self.line == Line::Quote {
            style = style.dimmed();
        }
        style
    }

    fn print(&mut self, c: char) {
        self.style(self.wanted());
        self.out.push(c);
        self.before = Some(c);
    }

    fn style(&mut self, style: Style) {
        if style != self.shown {
            if self.shown != Style::new() {
                self.out.push_str(&control("\x1b[0m"));
            }
            if style != Style::new() {
                self.out.push_str(&control(style));
            }
            self.shown = style;
        }
    }
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
