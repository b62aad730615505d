//! What is typed, with the time at which it was read. A thread reads it, since reading a terminal cannot
//! be given up; it rests while another program has the terminal.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::mpsc;

/// Bytes, and when they were read: they were typed before that.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) read_at: Instant,
}

/// The thread that reads.
#[derive(Debug)]
pub(crate) struct Reader {
    state: Arc<(Mutex<State>, Condvar)>,
    wake: PipeWriter,
}

#[derive(Debug, Default)]
struct State {
    is_paused: bool,
    /// The thread rests: it reads nothing until it is resumed.
    rests: bool,
}

impl Reader {
    pub(crate) fn start() -> io::Result<(Self, mpsc::UnboundedReceiver<Typed>)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (woken, wake) = io::pipe()?;
        let state = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || read_all(&shared, woken, &sender));
        Ok((Self { state, wake }, receiver))
    }

    /// Another program has the terminal: nothing is read until [`Reader::resume`].
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        let (state, changed) = &*self.state;
        let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
        now.is_paused = true;
        self.wake.write_all(b"x")?;
        while !now.rests {
            now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    pub(crate) fn resume(&self) {
        let (state, changed) = &*self.state;
        state.lock().unwrap_or_else(PoisonError::into_inner).is_paused = false;
        changed.notify_all();
    }
}

fn read_all(
    shared: &(Mutex<State>, Condvar),
    mut woken: PipeReader,
    sender: &mpsc::UnboundedSender<Typed>,
) {
    let mut bytes = [0; 8_192];
    let (state, changed) = shared;
    loop {
        let stdin = io::stdin();
        let mut files = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&woken, PollFlags::IN)];
        match poll(&mut files, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
        let [typed, woke] = [files[0].revents(), files[1].revents()];
        if !woke.is_empty() {
            let mut signal = [0; 1];
            if woken.read(&mut signal).unwrap_or(0) == 0 {
                break;
            }
            let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
            now.rests = true;
            changed.notify_all();
            while now.is_paused {
                now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
            }
            now.rests = false;
            continue;
        }
        if typed.is_empty() {
            continue;
        }
        let read = match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(0) => break,
            Ok(read) => read,
            Err(Errno::INTR | Errno::AGAIN) => continue,
            // The terminal is gone.
            Err(_) => break,
        };
        let typed = Typed { bytes: bytes[..read].to_vec(), read_at: Instant::now() };
        if sender.send(typed).is_err() {
            return;
        }
    }
    // A thread that has ended is not waited for.
    state.lock().unwrap_or_else(PoisonError::into_inner).rests = true;
    changed.notify_all();
}
