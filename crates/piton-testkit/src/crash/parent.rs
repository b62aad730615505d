//! The side that kills: starts a writer, reads what it says, and ends it when it likes.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::lines::{Ack, Line};

/// A writer that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// A writer that is alive; killed when dropped.
#[derive(Debug)]
pub struct Writer {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    reader: Option<JoinHandle<bool>>,
    errors: Option<JoinHandle<String>>,
    life: Life,
}

/// What a writer said in its life.
#[derive(Clone, Debug, Default)]
pub struct Life {
    pub boot: Option<String>,
    /// Its recovery was over.
    pub ready: bool,
    pub recovered: Vec<(String, String)>,
    pub acks: Vec<Ack>,
    pub refused: Vec<(String, String)>,
    /// How many acknowledgements came before the first refusal.
    pub acks_before_refusal: Option<usize>,
    pub batches: u64,
    pub flushes: u64,
    pub errors: String,
}

impl Writer {
    /// Starts a command that is a writer or runs one.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (sender, lines) = channel();
        let stdout = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let Some(stdout) = stdout else { return true };
            let mut stdout = BufReader::new(stdout);
            loop {
                let mut line = String::new();
                match stdout.read_line(&mut line) {
                    Ok(0) => return true,
                    // A kill falls between two lines, never into one: each was one write.
                    Ok(_) if !line.ends_with('\n') => return false,
                    Ok(_) if sender.send(line.trim_end().to_owned()).is_ok() => {}
                    _ => return true,
                }
            }
        });
        let stderr = child.stderr.take();
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut stderr) = stderr {
                // Only for messages.
                let _ = stderr.read_to_string(&mut text);
            }
            text
        });
        let stdin = child.stdin.take();
        let life = Life::default();
        Self { child, stdin, lines, reader: Some(reader), errors: Some(errors), life }
    }

    /// Starts the writer program on a data folder.
    pub fn on(program: &str, data: &OsStr, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.arg(data).args(arguments);
        Self::start(command)
    }

    pub fn life(&self) -> &Life {
        &self.life
    }

    /// The next line; `None` at the end.
    ///
    /// # Panics
    /// If the writer hangs or says something that no writer says.
    pub fn read(&mut self) -> Option<Line> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => {
                let line = Line::parse(&line).unwrap_or_else(|| panic!("what is {line:?}?"));
                self.life.take(&line);
                Some(line)
            }
            Err(Disconnected) => None,
            Err(Timeout) => panic!("the writer hangs after {:?}", self.life.acks.last()),
        }
    }

    /// Reads until a line is as wanted; `false` if the writer ended before.
    pub fn read_until(&mut self, wanted: impl Fn(&Line) -> bool) -> bool {
        while let Some(line) = self.read() {
            if wanted(&line) {
                return true;
            }
        }
        false
    }

    /// Reads so many acknowledgements; `false` if the writer ended before.
    pub fn read_acks(&mut self, count: usize) -> bool {
        (0..count).all(|_| self.read_until(|line| matches!(line, Line::Ack(_))))
    }

    /// Waits until the writer begins to work.
    ///
    /// # Panics
    /// If it does not.
    pub fn until_ready(&mut self) {
        assert!(self.read_until(|line| *line == Line::Ready), "the writer did not start");
    }

    /// Tells a serving writer to do something; gives its answer.
    ///
    /// # Panics
    /// If it ended.
    pub fn ask(&mut self, command: &str) -> Line {
        let stdin = self.stdin.as_mut().unwrap_or_else(|| panic!("no standard input"));
        writeln!(stdin, "{command}").unwrap_or_else(|e| panic!("{command}: {e}"));
        self.read().unwrap_or_else(|| panic!("no answer to {command}"))
    }

    /// SIGKILL, at this moment. Gives what was said until then, all of it.
    ///
    /// # Panics
    /// If the writer had ended by itself, or a line was cut.
    pub fn kill(mut self) -> Life {
        let ended = self.child.try_wait().ok().flatten();
        // A process that is gone cannot be killed; then the assertion below says so.
        let _ = self.child.kill();
        let (_, life) = self.finish();
        assert!(ended.is_none(), "the writer ended by itself: {ended:?}\n{}", life.errors);
        life
    }

    /// Waits for the writer's own end.
    pub fn wait(mut self) -> (ExitStatus, Life) {
        self.finish()
    }

    fn finish(&mut self) -> (ExitStatus, Life) {
        self.stdin = None;
        while self.read().is_some() {}
        let status = self.child.wait().unwrap_or_else(|e| panic!("the writer: {e}"));
        let whole = self.reader.take().is_none_or(|reader| reader.join().unwrap_or(false));
        assert!(whole, "the last line was cut");
        let errors = self.errors.take().map(JoinHandle::join);
        let mut life = std::mem::take(&mut self.life);
        life.errors = errors.and_then(Result::ok).unwrap_or_default();
        (status, life)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Gone already, most of the time.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Life {
    fn take(&mut self, line: &Line) {
        match line {
            Line::Boot(boot) => self.boot = Some(boot.clone()),
            Line::Recovered(session, outcome) => {
                self.recovered.push((session.clone(), outcome.clone()));
            }
            Line::Ready => self.ready = true,
            Line::Ack(ack) => self.acks.push(ack.clone()),
            Line::Refused(session, code) => {
                self.acks_before_refusal.get_or_insert(self.acks.len());
                self.refused.push((session.clone(), code.clone()));
            }
            Line::Stats { batches, flushes } => {
                (self.batches, self.flushes) = (*batches, *flushes);
            }
            Line::Asked(..) | Line::Answered { .. } => {}
        }
    }
}

/// Lets a moment pass without giving the processor away: shorter and less regular than a sleep.
pub fn spin(span: Duration) {
    let started = Instant::now();
    while started.elapsed() < span {
        std::hint::spin_loop();
    }
}
