//! A real terminal: what is typed, and what its screen shows.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::server::world::{TEST_TIMEOUT, piton};

pub(crate) const ROWS: u16 = 60;
pub(crate) const COLUMNS: u16 = 100;

/// What the thread does that reads what is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    On,
    /// What is printed stays where it is, as in a terminal that is slow.
    Paused,
    Ended,
}

type Control = Arc<(Mutex<Reading>, Condvar)>;

pub(crate) struct Terminal {
    keyboard: std::fs::File,
    control: Control,
    reader: JoinHandle<()>,
    output: Receiver<Vec<u8>>,
    /// Everything that was ever printed.
    screen: String,
    /// What is seen now.
    seen: vt100::Parser,
    columns: u16,
    child: Child,
}

impl Terminal {
    pub(crate) fn run(command: Command) -> Self {
        Self::run_sized(command, ROWS, COLUMNS)
    }

    pub(crate) fn run_sized(mut command: Command, rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        // No program that is started has it: a terminal that is closed is closed for all.
        rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size =
            rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || {
            let path = Path::new(name.to_str().unwrap());
            std::fs::File::options().read(true).write(true).open(path).unwrap()
        };
        let as_stdio = |file: std::fs::File| Stdio::from(OwnedFd::from(file));
        command.stdin(as_stdio(open())).stdout(as_stdio(open())).stderr(as_stdio(open()));
        let child = command.spawn().unwrap();
        let printed = std::fs::File::from(master.try_clone().unwrap());
        let (sender, output) = channel();
        let control = Control::new((Mutex::new(Reading::On), Condvar::new()));
        let shared = Arc::clone(&control);
        let reader = std::thread::spawn(move || read_all(printed, &shared, &sender));
        let seen = vt100::Parser::new(rows, columns, 10_000);
        let keyboard = std::fs::File::from(master);
        Self { keyboard, control, reader, output, screen: String::new(), seen, columns, child }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    fn read(&mut self, wait: Duration) -> bool {
        let Ok(bytes) = self.output.recv_timeout(wait) else { return false };
        self.screen.push_str(&String::from_utf8_lossy(&bytes));
        self.seen.process(&bytes);
        true
    }

    /// Waits until it was printed.
    pub(crate) fn shows(&mut self, text: &str) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !self.screen.contains(text) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(self.read(left), "never shown: {text:?}; but\n{}", self.screen);
        }
    }

    /// Waits until a line that is seen is this one.
    pub(crate) fn shows_line(&mut self, line: &str) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !self.seen.screen().rows(0, self.columns).any(|row| row.trim_end() == line) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(self.read(left), "no line {line:?}:\n{}", screen_of(&self.seen));
        }
    }

    /// Waits for the prompt: the cursor is behind it, below a line that ends like this.
    pub(crate) fn await_prompt_below(&mut self, line: &str) {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let screen = self.seen.screen();
            let (row, column) = screen.cursor_position();
            let rows: Vec<String> = screen.rows(0, self.columns).collect();
            let above = rows.get(usize::from(row).wrapping_sub(1)).map(|row| row.trim_end());
            let is_prompt = column == 2 && rows[usize::from(row)].trim_end() == ">";
            if is_prompt && above.is_some_and(|above| above.ends_with(line)) {
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(self.read(left), "not ready below {line:?}:\n{}", screen_of(&self.seen));
        }
    }

    /// Makes the terminal another size; the program gets the signal for it.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        let size =
            rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.keyboard, size).unwrap();
        self.seen.screen_mut().set_size(rows, columns);
        self.columns = columns;
        // It has no controlling terminal that would do it.
        self.signal(rustix::process::Signal::WINCH);
    }

    /// Waits until what is seen is so.
    pub(crate) fn sees(&mut self, what: &str, is_so: impl Fn(&str) -> bool) {
        let until = Instant::now() + TEST_TIMEOUT;
        while self.is_within_update() || !is_so(&screen_of(&self.seen)) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(self.read(left), "not seen: {what}\n{}", screen_of(&self.seen));
        }
    }

    /// A drawn client has begun to write a picture, and has not ended it.
    fn is_within_update(&self) -> bool {
        self.screen.rfind("\x1b[?2026h") > self.screen.rfind("\x1b[?2026l")
    }

    /// Waits until a text is seen.
    pub(crate) fn sees_text(&mut self, text: &str) {
        self.sees(text, |screen| screen.contains(text));
    }

    /// Everything that scrolled by, and the screen.
    pub(crate) fn scrollback(&mut self) -> String {
        let mut all = Vec::new();
        self.seen.screen_mut().set_scrollback(usize::MAX);
        let mut left = self.seen.screen().scrollback();
        while left > 0 {
            self.seen.screen_mut().set_scrollback(left);
            all.extend(self.seen.screen().rows(0, self.columns).next());
            left -= 1;
        }
        self.seen.screen_mut().set_scrollback(0);
        all.extend(self.seen.screen().rows(0, self.columns));
        all.iter().map(|row| row.trim_end()).collect::<Vec<_>>().join("\n")
    }

    fn control(&self, reading: Reading) {
        *self.control.0.lock().unwrap() = reading;
        self.control.1.notify_all();
    }

    /// Nothing that is printed is read any more, until [`Terminal::resume_reading`].
    pub(crate) fn pause_reading(&self) {
        self.control(Reading::Paused);
    }

    pub(crate) fn resume_reading(&self) {
        self.control(Reading::On);
    }

    /// The terminal is closed: its other end is gone. How the program ends then.
    pub(crate) fn close(self) -> ExitStatus {
        self.control(Reading::Ended);
        let Self { keyboard, reader, mut child, .. } = self;
        reader.join().unwrap();
        drop(keyboard);
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it outlives its terminal");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// How often its threads gave up the processor of their own accord.
    pub(crate) fn wake_ups(&self) -> u64 {
        crate::server::idle::wake_ups(self.child.id())
    }

    /// Whether the alternate screen is shown.
    pub(crate) fn is_full(&self) -> bool {
        self.seen.screen().alternate_screen()
    }

    /// SIGKILL: it can do nothing about it.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// What is seen now, without what differs from run to run.
    pub(crate) fn screen(&self) -> String {
        screen_of(&self.seen)
    }

    /// How a text that is seen looks.
    pub(crate) fn looks(&self, text: &str) -> vt100::Cell {
        let rows: Vec<String> = self.seen.screen().rows(0, self.columns).collect();
        let found = rows.iter().enumerate().find_map(|(row, line)| Some((row, line.find(text)?)));
        let (row, column) =
            found.unwrap_or_else(|| panic!("{text:?} is not on\n{}", self.screen()));
        let (row, column) = (u16::try_from(row).unwrap(), u16::try_from(column).unwrap());
        self.seen.screen().cell(row, column).unwrap().clone()
    }

    pub(crate) fn interrupt(&self) {
        self.signal(rustix::process::Signal::INT);
    }

    pub(crate) fn ends(mut self) -> (bool, String) {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                while self.read(Duration::from_millis(200)) {}
                return (status.success(), self.screen);
            }
            assert!(Instant::now() < until, "it does not end: {}", self.screen);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn read_all(mut printed: std::fs::File, control: &Control, sender: &Sender<Vec<u8>>) {
    let mut bytes = [0; 4096];
    let (reading, changed) = &**control;
    loop {
        let now = reading.lock().unwrap();
        let now = changed.wait_while(now, |now| *now == Reading::Paused).unwrap();
        if *now == Reading::Ended {
            return;
        }
        drop(now);
        // Looked at again soon: what it does may change while nothing is printed.
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let mut files = [PollFd::new(&printed, PollFlags::IN)];
        if poll(&mut files, Some(&wait)).unwrap_or(0) == 0 {
            continue;
        }
        match printed.read(&mut bytes) {
            Ok(read) if read > 0 && sender.send(bytes[..read].to_vec()).is_ok() => {}
            _ => return,
        }
    }
}

fn screen_of(seen: &vt100::Parser) -> String {
    let (_, columns) = seen.screen().size();
    let rows: Vec<String> = seen.screen().rows(0, columns).collect();
    let text = rows.iter().map(|row| row.trim_end()).collect::<Vec<_>>().join("\n");
    let mut shown = String::new();
    for part in text.trim_end().split_inclusive("sess_") {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
        let is_id = shown.ends_with("sess_") && digits == 32;
        shown.push_str(if is_id { "[ID]" } else { "" });
        shown.push_str(&part[if is_id { digits } else { 0 }..]);
    }
    shown
}

/// A data folder whose background server is ended with the test.
pub(crate) struct Home {
    pub(crate) folder: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn piton(&self, arguments: &[&str]) -> Command {
        let mut command = piton();
        command.arg("--data").arg(self.folder.path().join("data")).args(arguments);
        command.current_dir(self.folder.path());
        command
    }

    /// The session that was active last, as it is listed.
    pub(crate) fn last_session(&self) -> serde_json::Value {
        let output = self.piton(&["--json", "sessions", "list", "-n", "1"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Its id.
    pub(crate) fn last_id(&self) -> String {
        self.last_session()["session_id"].as_str().unwrap().to_owned()
    }

    /// Waits until the server runs the turn of the session that was active last.
    pub(crate) fn until_running(&self) {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let output = self.piton(&["--json", "sessions", "list", "-n", "1"]).output().unwrap();
            let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            if listed["status"] == "running" {
                return;
            }
            assert!(Instant::now() < until, "it does not run: {listed}");
        }
    }

    pub(crate) fn server_pid(&self) -> rustix::process::Pid {
        let place = std::fs::read(self.folder.path().join("data/run/server.json")).unwrap();
        let place: serde_json::Value = serde_json::from_slice(&place).unwrap();
        let pid = i32::try_from(place["pid"].as_i64().unwrap()).unwrap();
        rustix::process::Pid::from_raw(pid).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let bin = self.folder.path().join("data/bin");
        // It may not run any more.
        let _ = self.piton(&["stop"]).output();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let exe = std::fs::read_link(entry.path().join("exe"));
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let pid = pid.and_then(rustix::process::Pid::from_raw);
            if let (true, Some(pid)) = (exe.is_ok_and(|exe| exe.starts_with(&bin)), pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}
