//! Where output goes, how wide and in which colours. Data is buffered and goes to stdout; what is
//! said about it goes to stderr. What others wrote is part of nearly every line, so nothing that is
//! written here controls the terminal but what was made by [`Ui::paint`] or [`control`].

use std::env;
use std::fmt::Display;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::LazyLock;

use anstyle::{AnsiColor, Style};
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;

use crate::call::Call;
use crate::error::{Error, Exit, Result};
use crate::text::{visible, visible_json};

/// The width if neither the terminal nor the environment gives one.
const WIDTH: usize = 80;
/// Narrower than this is not laid out for.
const WIDTH_MIN: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    pub(crate) const NAMES: &[(&str, Self)] =
        &[("auto", Self::Auto), ("always", Self::Always), ("never", Self::Never)];
}

/// What a piece of text is, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Title,
    Quiet,
    Good,
    Active,
    Attention,
    Bad,
}

impl Tone {
    fn style(self) -> Style {
        let color = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
        match self {
            Self::Plain => Style::new(),
            Self::Title => Style::new().bold(),
            Self::Quiet => Style::new().dimmed(),
            Self::Good => color(AnsiColor::Green),
            Self::Active => color(AnsiColor::Cyan),
            Self::Attention => color(AnsiColor::Yellow),
            Self::Bad => color(AnsiColor::Red).bold(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ui {
    pub(crate) json: bool,
    /// For hints that name a command.
    pub(crate) call: Call,
    out: BufWriter<Stdout>,
    color_out: bool,
    color_err: bool,
    asked_color: Option<ColorChoice>,
}

impl Ui {
    pub(crate) fn new(json: bool, color: Option<ColorChoice>) -> Self {
        let mut ui = Self {
            json,
            call: Call::default(),
            out: BufWriter::new(io::stdout()),
            color_out: false,
            color_err: false,
            asked_color: color,
        };
        ui.set_color(ColorChoice::Auto);
        ui
    }

    /// What the settings say counts if no option says otherwise.
    pub(crate) fn set_color(&mut self, setting: ColorChoice) {
        let choice = self.asked_color.unwrap_or(setting);
        self.color_out = colored(choice, io::stdout().is_terminal());
        self.color_err = colored(choice, io::stderr().is_terminal());
    }

    /// The width that output has to fit.
    pub(crate) fn width() -> usize {
        let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let terminal =
            || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col.into());
        columns.or_else(terminal).filter(|width| *width > 0).unwrap_or(WIDTH).max(WIDTH_MIN)
    }

    /// The width that tables have to fit: a pipe or a file takes rows of any length.
    pub(crate) fn table_width() -> usize {
        let is_set = env::var("COLUMNS").is_ok_and(|columns| columns.parse::<usize>().is_ok());
        if is_set || io::stdout().is_terminal() { Self::width() } else { usize::MAX / 2 }
    }

    /// Whether data is read by a person, who wants short ids; programs get whole ones.
    pub(crate) fn shows_short_ids() -> bool {
        io::stdout().is_terminal()
    }

    /// How many rows the screen has.
    pub(crate) fn height() -> usize {
        const ROWS: usize = 24;
        let rows = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_row.into());
        rows.filter(|rows| *rows > 0).unwrap_or(ROWS)
    }

    /// Whether what is printed goes to a screen on which a line can be taken back.
    pub(crate) fn is_screen() -> bool {
        let terminal = env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        terminal && io::stdout().is_terminal()
    }

    /// Whether what is printed has colours and other styles.
    pub(crate) fn paints(&self) -> bool {
        self.color_out
    }

    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        painted(self.color_out, tone, text)
    }

    /// One line of data.
    pub(crate) fn line(&mut self, line: impl Display) -> Result<()> {
        Ok(writeln!(self.out, "{}", for_terminal(&line.to_string()))?)
    }

    /// Text that has its own line ends.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        Ok(self.out.write_all(for_terminal(text).as_bytes())?)
    }

    /// Bytes that are written unescaped: never text from an agent or a log.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.out.write_all(bytes)?)
    }

    /// One JSON value on a line of its own.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> Result<()> {
        let value = serde_json::to_value(value).map_err(std::io::Error::from)?;
        Ok(writeln!(self.out, "{}", visible_json(&value.to_string()))?)
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(self.out.flush()?)
    }

    /// Fails if the reader of the output is gone, even when there is nothing to write yet.
    pub(crate) fn reader_is_there() -> Result<()> {
        let stdout = io::stdout();
        let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut asked, Some(&at_once)).map_err(io::Error::from)?;
        let is_gone = asked[0].revents().contains(PollFlags::ERR);
        if is_gone { Err(io::Error::from(io::ErrorKind::BrokenPipe).into()) } else { Ok(()) }
    }

    /// Something about the data; after what was printed so far.
    pub(crate) fn note(&mut self, text: &str) -> Result<()> {
        self.say(Tone::Quiet, "Note", text)
    }

    pub(crate) fn warn(&mut self, text: &str) -> Result<()> {
        self.say(Tone::Attention, "Warning", text)
    }

    fn say(&mut self, tone: Tone, label: &str, text: &str) -> Result<()> {
        self.flush()?;
        let label = painted(self.color_err, tone, &format!("{label}:"));
        write_stderr(&format!("{label} {}\n", self.call.spelled(text)));
        Ok(())
    }

    /// How far long work has come; only for people who look on.
    pub(crate) fn progress(text: &str) {
        if io::stderr().is_terminal() {
            write_stderr(&format!("{}{text}", control("\r\x1b[K")));
        }
    }

    /// Says what went wrong, and how the process ends because of it.
    pub(crate) fn report(&mut self, error: &Error) -> Exit {
        if error.exit == Exit::BrokenPipe {
            // The reader left; it does not want to hear about it.
            return error.exit;
        }
        // What was printed before the error stays before it.
        if let Err(error) = self.flush()
            && error.exit == Exit::BrokenPipe
        {
            return error.exit;
        }
        if self.json {
            let json = visible_json(&error.to_json(&self.call).to_string());
            let _ = io::stderr().write_all(format!("{json}\n").as_bytes());
            return error.exit;
        }
        for (label, text) in error.lines(&self.call) {
            let tone = if label == "Error" { Tone::Bad } else { Tone::Quiet };
            let label = painted(self.color_err, tone, &format!("{label}:"));
            write_stderr(&format!("{label} {text}\n"));
        }
        error.exit
    }
}

/// Ignores failures: without stderr there is no other place to report to.
fn write_stderr(text: &str) {
    let _ = io::stderr().write_all(for_terminal(text).as_bytes());
}

/// Marks a control sequence as our own. Its number is random, so that no text can contain it.
static OURS: LazyLock<String> =
    LazyLock::new(|| format!("\u{fdd0}{:016x}\u{fdd1}", RandomState::new().hash_one(0)));
const OURS_END: char = '\u{fdd2}';

/// A control sequence of our own, which reaches the terminal as it is.
pub(crate) fn control(sequence: impl Display) -> String {
    format!("{}{sequence}{OURS_END}", *OURS)
}

/// Text as it is written: our own control sequences, and of everything else what can be read.
pub(crate) fn for_terminal(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OURS.as_str()) {
        written.push_str(&visible(before));
        let (sequence, after) = after.split_once(OURS_END).unwrap_or((after, ""));
        written.push_str(sequence);
        rest = after;
    }
    written + &visible(rest)
}

fn painted(color: bool, tone: Tone, text: &str) -> String {
    let style = tone.style();
    if !color || style == Style::new() {
        return text.to_owned();
    }
    format!("{}{text}{}", control(style), control(style.render_reset()))
}

/// <https://no-color.org> and <https://bixense.com/clicolors>.
fn colored(choice: ColorChoice, terminal: bool) -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_on = |name: &str| is_set(name) && env::var_os(name).is_some_and(|value| value != "0");
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set("NO_COLOR") => false,
        ColorChoice::Auto if is_on("CLICOLOR_FORCE") => true,
        ColorChoice::Auto => {
            terminal
                && env::var_os("CLICOLOR").is_none_or(|value| value != "0")
                && env::var_os("TERM").is_some_and(|term| term != "dumb")
        }
    }
}

/// A text without the escapes that colour it.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_sequences_reach_the_terminal() {
        let forged = "\u{fdd0}0000000000000000\u{fdd1}\x1b[2J\u{fdd2}";
        let text = format!("{}bad\x1b]0;x\x07{} {forged}", control("\x1b[31m"), control("\x1b[0m"));
        let written = for_terminal(&text);
        assert!(written.starts_with("\x1b[31mbad^[]0;x^G\x1b[0m "), "{written:?}");
        assert_eq!(written.matches('\x1b').count(), 2, "{written:?}");
        assert_eq!(painted(true, Tone::Plain, "\x1b[2J"), "\x1b[2J");
        let title = for_terminal(&painted(true, Tone::Title, "\x1b[2J"));
        assert_eq!(title, "\x1b[1m^[[2J\x1b[0m");
    }
}
