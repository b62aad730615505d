//! The terminal client through a PTY: from a key to the screen while an answer streams, the time until
//! the end of a long session is on the screen, and how often an idle client wakes up.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and fails at once")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

const KEYS: u32 = 150;
const MESSAGES: usize = 10_000;
const TIMEOUT: Duration = Duration::from_mins(2);

struct Terminal {
    keyboard: File,
    output: Receiver<Vec<u8>>,
    child: Child,
}

impl Terminal {
    fn run(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = rustix::termios::Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let as_stdio = |file: File| Stdio::from(OwnedFd::from(file));
        command.stdin(as_stdio(open())).stdout(as_stdio(open())).stderr(as_stdio(open()));
        let child = command.env("TERM", "xterm-256color").spawn().unwrap();
        let mut reader = File::from(master.try_clone().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = vec![0; 65_536];
            while let Ok(read) = reader.read(&mut bytes) {
                if read == 0 || sender.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { keyboard: File::from(master), output, child }
    }

    fn until(&self, text: &str) {
        let mut seen = Vec::new();
        let end = Instant::now() + TIMEOUT;
        while !String::from_utf8_lossy(&seen).contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            seen.extend(self.output.recv_timeout(left).unwrap());
        }
    }

    /// How often all of its threads gave up the processor by themselves.
    fn switches(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let count = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("voluntary")).unwrap();
            line.split_whitespace().next_back().unwrap().parse::<u64>().unwrap()
        };
        tasks.flatten().map(count).sum()
    }
}

impl Terminal {
    /// How often it wakes up in 30 seconds, once the start is over.
    fn idle_wakes(&self) -> u64 {
        std::thread::sleep(Duration::from_secs(3));
        let before = self.switches();
        std::thread::sleep(Duration::from_secs(30));
        self.switches() - before
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn piton(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_piton"));
    command.arg("--data").arg(folder.join("data")).args(arguments).current_dir(folder);
    command.env("PITON_CHAT_AGENT", "echo").env_remove("PITON_DATA").env_remove("PITON_CONFIG");
    command
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    keys(folder.path());
    opening(folder.path());
    dashboard(folder.path());
    assert!(piton(folder.path(), &["stop"]).status().unwrap().success());
}

/// 200 chunks a second, and a character that nothing else prints for each key.
fn keys(folder: &Path) {
    let mut terminal = Terminal::run(piton(folder, &["chat"]));
    terminal.until("Ask for something");
    terminal.keyboard.write_all(b"stream 4000 5").unwrap();
    terminal.keyboard.write_all(b"\r").unwrap();
    terminal.until("chunk 20 ");
    let mut times = Vec::new();
    for key in 0..KEYS {
        let typed = char::from_u32(0x4e00 + key).unwrap().to_string();
        let begin = Instant::now();
        terminal.keyboard.write_all(typed.as_bytes()).unwrap();
        terminal.until(&typed);
        times.push(begin.elapsed());
        std::thread::sleep(Duration::from_millis(53));
    }
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("key to screen under 200 events/s: p50 {:?}, p95 {:?} (goal 16 ms)", at(50), at(95));
}

fn opening(folder: &Path) {
    let prompt: Vec<String> = (1..=MESSAGES).map(|n| format!("say message {n}")).collect();
    let mut script = piton(folder, &["chat", "--keep", "--print", "-"]);
    script.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut script = script.spawn().unwrap();
    script.stdin.take().unwrap().write_all(prompt.join("\n").as_bytes()).unwrap();
    assert!(script.wait().unwrap().success());
    let last = format!("message {MESSAGES}");
    let mut times = Vec::new();
    for _ in 0..5 {
        let begin = Instant::now();
        Terminal::run(piton(folder, &["chat", "--continue"])).until(&last);
        times.push(begin.elapsed());
    }
    times.sort();
    println!("end of {MESSAGES} messages on the screen: {times:?} (goal 150 ms)");
    let terminal = Terminal::run(piton(folder, &["chat", "--continue"]));
    terminal.until(&last);
    println!("idle wake-ups in 30 s: {} (goal 6)", terminal.idle_wakes());
    drop(terminal);
    not_running(folder);
}

/// The same session when its agent has to be started first.
fn not_running(folder: &Path) {
    let sessions = piton(folder, &["--json", "sessions", "list", "-n", "1"]).output().unwrap();
    let listed = String::from_utf8(sessions.stdout).unwrap();
    let id = listed.split("sess_").nth(1).unwrap().get(..32).unwrap();
    let session = format!("sess_{id}");
    let mut times = Vec::new();
    for n in 0..5 {
        // Without --keep the agent ends with its turn.
        let last = format!("answer {n} of a stopped agent");
        let arguments = ["chat", "--print", &format!("say {last}"), "--session", &session];
        assert!(piton(folder, &arguments).stdout(Stdio::null()).status().unwrap().success());
        let begin = Instant::now();
        Terminal::run(piton(folder, &["chat", "--continue"])).until(&last);
        times.push(begin.elapsed());
    }
    times.sort();
    println!("the same, its agent not running: {times:?} (goal 150 ms)");
}

fn dashboard(folder: &Path) {
    let terminal = Terminal::run(piton(folder, &["top"]));
    // That of the keys and the long one.
    terminal.until("2 sessions");
    println!("idle wake-ups of the dashboard in 30 s: {} (goal 6)", terminal.idle_wakes());
}
