//! The hand that starts a server, speaks to it, and kills it.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Something that takes longer than this hangs.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// A server that is alive; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Value>,
    next: u64,
}

/// What a server answered: what it is, or a code and a message.
pub type Answered = Result<Value, (String, String)>;

impl Server {
    /// Starts a server and waits until it has recovered.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(program: &str, kind: &str, data: &Path, arguments: &[&str]) -> Self {
        let mut server = Self::begin(program, kind, data, arguments);
        let first = server.read();
        assert!(first.get("ready").is_some(), "the server says {first}");
        server
    }

    /// Starts a server and does not wait.
    ///
    /// # Panics
    /// If there is no such program.
    pub fn begin(program: &str, kind: &str, data: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.arg("serve").arg(kind).arg(data).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                let Ok(value) = serde_json::from_str(&line) else { return };
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines, next: 0 }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn read(&mut self) -> Value {
        match self.lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("the server hangs"),
            Err(RecvTimeoutError::Disconnected) => panic!("the server ended"),
        }
    }

    /// Sends an order without waiting for its answer.
    ///
    /// # Panics
    /// If the server is gone.
    pub fn order(&mut self, mut order: Value) -> u64 {
        self.next += 1;
        order["id"] = json!(self.next);
        writeln!(self.stdin, "{order}").expect("the server reads");
        self.next
    }

    /// What it answers to an order.
    ///
    /// # Panics
    /// If it hangs or ends.
    pub fn ask(&mut self, order: Value) -> Answered {
        let id = self.order(order);
        loop {
            let line = self.read();
            if line["id"] != json!(id) {
                continue;
            }
            if let Some(code) = line["error"].as_str() {
                return Err((code.to_owned(), line["message"].to_string()));
            }
            return Ok(line["ok"].clone());
        }
    }

    /// What it answers to an order that must succeed.
    ///
    /// # Panics
    /// If it does not.
    pub fn must(&mut self, order: Value) -> Value {
        let asked = order.to_string();
        self.ask(order).unwrap_or_else(|(code, message)| panic!("{asked}: {code}: {message}"))
    }

    pub fn status(&mut self, session: &str) -> Value {
        self.must(json!({"do": "status", "session": session}))
    }

    /// Asks for the status until it is as wanted.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn status_when(&mut self, session: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = wait_until(SILENCE_MAX, || {
            last = self.status(session);
            wanted(&last)
        });
        assert!(found, "never as wanted: {last:#}");
        last
    }

    /// SIGKILL, and nothing else.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tries until it is so; false if it never was.
pub fn wait_until(at_most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + at_most;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Living processes that have a text in their environment, with their command lines.
pub fn processes_of(mark: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir("/proc") else { return found };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if !environ.split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes()) {
            continue;
        }
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        found.push((pid, String::from_utf8_lossy(&command).replace('\0', " ")));
    }
    found
}
