//! What is typed: lines, and single keys while a question is open.

use std::io::{self, IsTerminal as _, Read as _};

use rustix::termios::{self, LocalModes, OptionalActions, Termios};
use tokio::sync::mpsc;

/// The terminal as it was, restored however this ends.
#[derive(Debug)]
pub(super) struct Keys {
    before: Option<Termios>,
    single: bool,
}

impl Keys {
    pub(super) fn new() -> Self {
        let stdin = io::stdin();
        let before = if stdin.is_terminal() { termios::tcgetattr(&stdin).ok() } else { None };
        Self { before, single: false }
    }

    /// A person types here.
    pub(super) fn are_typed(&self) -> bool {
        self.before.is_some()
    }

    /// Whether each key counts by itself.
    pub(super) fn single(&mut self, single: bool) {
        if self.single == single {
            return;
        }
        self.single = single;
        let Some(before) = &self.before else { return };
        let mut now = before.clone();
        if single {
            now.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        }
        // A terminal that cannot be set asks for Enter, too.
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &now);
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.single(false);
    }
}

/// What is typed, in the pieces in which it comes. A thread of its own: reading a terminal cannot
/// be given up.
pub(super) fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read) = io::stdin().lock().read(&mut bytes) {
            if read == 0 || sender.blocking_send(bytes[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}
