//! What is typed: keys and pastes that become lines, and single keys while a question is open.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use rustix::io::Errno;
use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use tokio::sync::mpsc;
use tokio::time::Instant;
use unicode_segmentation::UnicodeSegmentation as _;

use crate::terminal::keys::{Decoder, Input};
use crate::text;

/// The terminal as it was, restored however this ends.
#[derive(Debug)]
pub(super) struct Keys {
    before: Option<Termios>,
    is_set: bool,
}

impl Keys {
    pub(super) fn new() -> Self {
        let stdin = io::stdin();
        let before = if stdin.is_terminal() { termios::tcgetattr(&stdin).ok() } else { None };
        Self { before, is_set: false }
    }

    /// A person types here.
    pub(super) fn are_typed(&self) -> bool {
        self.before.is_some()
    }

    /// Has each key come as it is pressed, and shows none of them: the terminal's own lines end at
    /// 4,095 bytes, and a paste of several lines would be several prompts.
    pub(super) fn begin(&mut self) {
        let Some(before) = self.before.as_ref().filter(|_| !self.is_set) else { return };
        let mut now = before.clone();
        now.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // A terminal that cannot be set still sends whole lines.
        self.is_set = termios::tcsetattr(io::stdin(), OptionalActions::Now, &now).is_ok();
        if self.is_set && has_pastes() {
            // A terminal that is gone is found out when it is read.
            let _ = io::stdout().write_all(b"\x1b[?2004h");
        }
    }

    /// Waits a moment until what was typed before is read: it is no answer to what is drawn next.
    pub(super) fn settle(&self) {
        const TRIES: u32 = 20;
        for _ in 0..TRIES {
            let is_read = |bytes| bytes == 0;
            if self.before.is_none() || rustix::io::ioctl_fionread(io::stdin()).is_ok_and(is_read) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = self.before.as_ref().filter(|_| self.is_set) {
            if has_pastes() {
                let _ = io::stdout().write_all(b"\x1b[?2004l");
            }
            let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// A terminal that says where a paste begins and ends, if it is asked to.
fn has_pastes() -> bool {
    std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb")
}

/// What typing comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typing {
    /// This is shown.
    Echo(String),
    /// So many columns before the cursor are cleared.
    Erase(usize),
    /// A line was ended.
    Line(String),
    /// Ctrl-D with nothing typed.
    End,
    /// So many bytes of a paste were too many.
    LeftOut(usize),
}

/// The line that is being typed. Of a terminal: keys and pastes; of a script: bytes up to a line end.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    decoder: Decoder,
}

impl Lines {
    /// What is typed so far.
    pub(super) fn draft(&self) -> String {
        String::from_utf8_lossy(&self.line).into_owned()
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.line)
    }

    /// Puts a line back that was taken.
    pub(super) fn put_back(&mut self, mut draft: Vec<u8>) {
        draft.append(&mut self.line);
        self.line = draft;
    }

    pub(super) fn push_script(&mut self, bytes: &[u8]) -> Vec<Typing> {
        self.line.extend_from_slice(bytes);
        let mut typing = Vec::new();
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            typing.push(Typing::Line(String::from_utf8_lossy(&line).trim().to_owned()));
        }
        typing
    }

    pub(super) fn push_keys(&mut self, bytes: &[u8]) -> Vec<Typing> {
        let mut inputs = self.decoder.push(bytes);
        if bytes == b"\x1b" {
            inputs.extend(self.decoder.settle());
        }
        inputs.into_iter().flat_map(|input| self.input(input)).collect()
    }

    fn input(&mut self, input: Input) -> Vec<Typing> {
        let key = match input {
            Input::Key(key) => key,
            Input::Paste { text, left_out } => {
                self.line.extend_from_slice(text.as_bytes());
                let mut typing = vec![Typing::Echo(text)];
                typing.extend((left_out > 0).then_some(Typing::LeftOut(left_out)));
                return typing;
            }
            Input::Wheel(_) => return Vec::new(),
        };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let draft = self.draft();
        let keep = match key.code {
            KeyCode::Enter => {
                self.line.clear();
                return vec![Typing::Echo("\n".to_owned()), Typing::Line(draft.trim().to_owned())];
            }
            KeyCode::Char('d') if is_control => {
                return if draft.is_empty() { vec![Typing::End] } else { Vec::new() };
            }
            KeyCode::Char('u') if is_control => 0,
            KeyCode::Char('w') if is_control => {
                let trimmed = draft.trim_end();
                trimmed
                    .rfind(char::is_whitespace)
                    .map_or(0, |at| at + trimmed[at..].chars().next().map_or(1, char::len_utf8))
            }
            KeyCode::Backspace => {
                draft.len() - draft.graphemes(true).next_back().map_or(0, str::len)
            }
            KeyCode::Char(c) if key.modifiers.difference(KeyModifiers::SHIFT).is_empty() => {
                self.line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return vec![Typing::Echo(c.to_string())];
            }
            _ => return Vec::new(),
        };
        self.line.truncate(keep);
        let gone = text::width(&draft[keep..]);
        vec![Typing::Erase(gone)]
    }
}

/// A piece of what was typed, and when it was read: it was typed before that.
#[derive(Debug)]
pub(super) struct Typed {
    pub(super) bytes: Vec<u8>,
    pub(super) read_at: Instant,
}

/// What is typed, in the pieces in which it comes. A thread of its own: reading a terminal cannot
/// be given up.
pub(super) fn typed() -> mpsc::Receiver<Typed> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            let read = match rustix::io::read(io::stdin(), &mut bytes) {
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let typed = Typed { bytes: bytes[..read].to_vec(), read_at: Instant::now() };
            if read == 0 || sender.blocking_send(typed).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(typing: Vec<Typing>) -> Vec<String> {
        typing
            .into_iter()
            .filter_map(|one| if let Typing::Line(line) = one { Some(line) } else { None })
            .collect()
    }

    #[test]
    fn a_paste_is_one_line_and_a_line_has_any_length() {
        let mut typed = Lines::default();
        let long = "x".repeat(9_000);
        let typing = typed.push_keys(format!("{long}\x1b[200~one\ntwo\x1b[201~\n").as_bytes());
        assert_eq!(lines(typing), [format!("{long}one\ntwo")]);
        assert_eq!(lines(typed.push_script(b"a\nb\nc")), ["a", "b"]);
        assert_eq!(typed.draft(), "c");
    }

    #[test]
    fn keys_edit_the_line() {
        let mut typed = Lines::default();
        typed.push_keys("say 日本x".as_bytes());
        assert_eq!(typed.push_keys(b"\x7f\x7f")[1], Typing::Erase(2));
        typed.push_keys("two \x1b[A\x17\x1b".as_bytes());
        assert_eq!(typed.draft(), "say ");
        typed.push_keys(b"\x15");
        assert_eq!((typed.draft().as_str(), typed.push_keys(b"\x04")), ("", vec![Typing::End]));
    }
}
