//! Notices what other processes commit, without looking for it while nothing happens: the kernel says
//! when a file of the data folder is written to, and a few looks follow. A notice comes before its
//! commit can be read (the flush is in between), it may be about our own commit, and it may be lost:
//! so the looks continue for a while after the last one, and there is one every [`LOST_NOTICE`]
//! without any. Where the kernel gives no notices, the looks continue, ever less often. Without
//! listeners there is no look at all.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::hub::Hub;

/// From a notice to the first look, and between looks while others write.
const FIRST_POLL_DELAY: Duration = Duration::from_millis(100);
/// After this pause without anything new, the next notice is waited for.
const IDLE_AFTER: Duration = Duration::from_secs(2);
/// How long a lost notice can hide a commit.
const LOST_NOTICE: Duration = Duration::from_mins(5);

/// How often is looked where there are no notices and nothing happens: by a reader, which was opened to
/// see what others write, and by a writer, beside which others are the exception.
pub(crate) const READER_PAUSE_MAX: Duration = Duration::from_secs(1);
pub(crate) const WRITER_PAUSE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Watch {
    closed: AtomicBool,
    bell: Bell,
}

/// Wakes the thread that waits.
#[derive(Debug)]
struct Bell {
    rung: AtomicBool,
    heard: PipeReader,
    ring: PipeWriter,
}

/// Why a wait ended.
#[derive(Debug, PartialEq, Eq)]
enum Woken {
    /// Closed, or a listener was added.
    Rung,
    Noticed,
    TimedOut,
}

impl Watch {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (heard, ring) = std::io::pipe()?;
        let bell = Bell { rung: AtomicBool::new(false), heard, ring };
        Ok(Self { closed: AtomicBool::new(false), bell })
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Wakes the thread: a listener was added.
    pub(crate) fn wake(&self) {
        self.bell.ring();
    }

    /// Until [`Watch::close`]. `look` says whether others wrote since the last time.
    pub(crate) fn run(
        &self,
        folder: &Path,
        hub: &Hub,
        pause_max: Duration,
        mut look: impl FnMut() -> bool,
    ) {
        let notices = notices::Notices::open(folder);
        let look_after = |pause: Duration| (pause, Some(Instant::now() + pause));
        // When the next look is; `None`: after the next notice.
        let (mut pause, mut next) = look_after(FIRST_POLL_DELAY);
        while !self.closed.load(Ordering::SeqCst) {
            if !hub.is_watched() {
                self.wait(None, None);
                (pause, next) = look_after(FIRST_POLL_DELAY);
                continue;
            }
            let woken = match next {
                None => self.wait(notices.as_ref(), Some(LOST_NOTICE)),
                Some(next) => self.wait(None, Some(next.saturating_duration_since(Instant::now()))),
            };
            if woken == Woken::Rung {
                // Another listener was added.
                continue;
            }
            let has_notice = notices.as_ref().is_some_and(notices::Notices::take);
            let others_wrote = woken == Woken::TimedOut && look();
            (pause, next) = if has_notice || others_wrote {
                look_after(FIRST_POLL_DELAY)
            } else if notices.is_none() {
                look_after((pause * 2).min(pause_max))
            } else if next.is_some() && pause < IDLE_AFTER {
                look_after(pause * 2)
            } else {
                (FIRST_POLL_DELAY, None)
            };
        }
    }

    fn wait(&self, notices: Option<&notices::Notices>, span: Option<Duration>) -> Woken {
        let mut fds = vec![PollFd::new(&self.bell.heard, PollFlags::IN)];
        let inbox: Option<BorrowedFd<'_>> = notices.map(AsFd::as_fd);
        fds.extend(inbox.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let span = span.and_then(|span| Timespec::try_from(span).ok());
        match poll(&mut fds, span.as_ref()) {
            Ok(0) => Woken::TimedOut,
            // A signal, or something that cannot be: looked at again, and not in a tight loop.
            Err(_) => {
                std::thread::sleep(FIRST_POLL_DELAY);
                Woken::TimedOut
            }
            Ok(_) if !fds[0].revents().is_empty() => {
                self.bell.hear();
                Woken::Rung
            }
            Ok(_) => Woken::Noticed,
        }
    }
}

impl Bell {
    fn ring(&self) {
        // At most one byte waits: the pipe never fills up.
        if !self.rung.swap(true, Ordering::SeqCst) {
            // Fails only if the reading end is closed.
            let _ = (&self.ring).write_all(&[1]);
        }
    }

    fn hear(&self) {
        let _ = (&self.heard).read(&mut [0]);
        // After the byte: what rings from now on writes another.
        self.rung.store(false, Ordering::SeqCst);
    }
}

#[cfg(target_os = "linux")]
mod notices {
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::path::Path;

    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    /// The kernel's notices of writes to the files of one folder.
    #[derive(Debug)]
    pub(super) struct Notices(OwnedFd);

    impl Notices {
        /// `None`: there are no more of them on this machine, or the file system has none.
        pub(super) fn open(folder: &Path) -> Option<Self> {
            let watch = || {
                let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
                inotify::add_watch(&fd, folder, WatchFlags::MODIFY | WatchFlags::CREATE)?;
                Ok::<_, rustix::io::Errno>(fd)
            };
            match watch() {
                Ok(fd) => Some(Self(fd)),
                Err(error) => {
                    tracing::info!(%error, "Changes of other processes are polled: no notifications");
                    None
                }
            }
        }

        /// Takes all that wait; false if there were none.
        pub(super) fn take(&self) -> bool {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&self.0, &mut buffer);
            let mut any = false;
            while reader.next().is_ok() {
                any = true;
            }
            any
        }
    }

    impl AsFd for Notices {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod notices {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::path::Path;

    /// Not made here: changes are looked for.
    #[derive(Debug)]
    pub(super) struct Notices(OwnedFd);

    impl Notices {
        pub(super) fn open(_: &Path) -> Option<Self> {
            None
        }

        pub(super) fn take(&self) -> bool {
            false
        }
    }

    impl AsFd for Notices {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

/// SQLite's number for what others wrote; `None` if it cannot be had just now.
pub(crate) fn version(conn: &Connection) -> Option<i64> {
    conn.prepare_cached("PRAGMA data_version").ok()?.query_row([], |row| row.get(0)).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Where the kernel gives no notices, the watch looks for changes, but only with listeners.
    #[test]
    fn without_notices_it_looks_while_a_user_listens() {
        let (watch, hub) = (Watch::new().unwrap(), Hub::default());
        let (looked, looks) = mpsc::channel();
        std::thread::scope(|scope| {
            let (watch, hub) = (&watch, &hub);
            scope.spawn(move || {
                watch
                    .run(Path::new("/nowhere"), hub, FIRST_POLL_DELAY, || looked.send(()).is_err());
            });
            assert!(looks.recv_timeout(3 * FIRST_POLL_DELAY).is_err(), "nobody listens");
            let hints = hub.subscribe(&"s".parse().unwrap());
            watch.wake();
            for _ in 0..3 {
                looks.recv_timeout(Duration::from_secs(30)).unwrap();
            }
            drop(hints);
            watch.close();
        });
    }
}
