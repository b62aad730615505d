//! What is typed: lines, and single keys while a question is open.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use rustix::io::Errno;
use rustix::termios::{self, LocalModes, OptionalActions, QueueSelector, Termios};
use tokio::sync::mpsc;
use tokio::time::Instant;

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

    /// Whether each key counts by itself. What was typed before stays to be read: the beginning of a
    /// line is not lost, and [`Keys::discard`] keeps it from being an answer.
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

    /// Drops what was typed and not read. What is read from now on was typed after this.
    pub(super) fn discard(&self) {
        if self.before.is_some() {
            let _ = termios::tcflush(io::stdin(), QueueSelector::IFlush);
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.single(false);
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
            // Not through a buffer: what is not read yet can be discarded.
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
