//! The demo's hands: a worker process to order about and to kill, and claims that are checked
//! before they are printed as true.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use piton_core::Code;
use serde_json::json;

use super::wire::{Order, Said};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ui::{Tone, Ui};

/// A worker process. Killed when dropped: nothing of the demo outlives it.
pub(super) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    said: mpsc::Receiver<io::Result<String>>,
}

/// Longer than anything takes that the worker does between two lines.
const SILENCE_MAX: Duration = Duration::from_secs(10);

fn broken(message: impl Into<String>) -> Error {
    Error::new(Code::DemoFailed, message)
}

impl Worker {
    /// Starts one; answers how many sessions it found interrupted.
    pub(super) fn start(folder: &Path, pace: Duration) -> Result<(Self, usize)> {
        let spawn = || {
            Command::new(std::env::current_exe()?)
                .arg("demo-worker")
                .arg("--pace")
                .arg(pace.as_millis().to_string())
                .arg(folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        };
        let mut child =
            spawn().map_err(|e| broken("The worker could not be started").because(&e))?;
        let (Some(orders), Some(said)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(broken("The worker has no pipes"));
        };
        let mut worker = Self { child, orders: Some(orders), said: listen(said) };
        match worker.hear()? {
            Said::Ready { recovered } => Ok((worker, recovered)),
            other => Err(broken(format!("The worker said {other:?} before it was ready"))),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn order(&mut self, order: &Order) -> Result<()> {
        let Some(orders) = &mut self.orders else {
            return Err(broken("The worker takes no more orders"));
        };
        let mut line = serde_json::to_string(order).map_err(io::Error::from)?;
        line.push('\n');
        let ordered = orders.write_all(line.as_bytes());
        ordered.map_err(|e| broken("The worker does not listen").because(&e))
    }

    /// The next thing that the worker says.
    pub(super) fn hear(&mut self) -> Result<Said> {
        let line = match self.said.recv_timeout(SILENCE_MAX) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Err(broken("The worker says nothing")),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(broken("The worker ended by itself"));
            }
        };
        let line = line.map_err(|e| broken("The worker cannot be heard").because(&e))?;
        serde_json::from_str(&line).map_err(|e| broken("The worker spoke nonsense").because(&e))
    }

    /// SIGKILL: it has no chance to tidy up. What it had said by then is heard to the end.
    pub(super) fn kill(mut self) -> Result<Vec<Said>> {
        self.child.kill().map_err(|e| broken("The worker could not be killed").because(&e))?;
        self.child.wait().map_err(|e| broken("The worker does not end").because(&e))?;
        let mut last = Vec::new();
        while let Ok(Ok(line)) = self.said.recv() {
            // The kill may have cut its last line off.
            last.extend(serde_json::from_str::<Said>(&line).ok());
        }
        Ok(last)
    }

    /// Lets it end by itself.
    pub(super) fn dismiss(mut self) -> Result<bool> {
        drop(self.orders.take());
        let ended = self.child.wait().map_err(|e| broken("The worker does not end").because(&e))?;
        Ok(ended.success())
    }
}

/// Reads on a thread of its own, so that silence can be noticed.
fn listen(said: ChildStdout) -> mpsc::Receiver<io::Result<String>> {
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(said).lines() {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail if it has ended already, which is just as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is printed, and what was found to be true.
pub(super) struct Stage<'a> {
    ui: &'a mut Ui,
    pub(super) pace: Duration,
    step: usize,
    pub(super) claims: usize,
    pub(super) untrue: usize,
}

impl<'a> Stage<'a> {
    pub(super) fn new(ui: &'a mut Ui, pace: Duration) -> Self {
        Self { ui, pace, step: 0, claims: 0, untrue: 0 }
    }

    /// Time to read what was printed.
    pub(super) fn pause(&self, beats: u32) {
        std::thread::sleep(self.pace * beats);
    }

    pub(super) fn step(&mut self, title: &str) -> Result<()> {
        self.step += 1;
        if self.ui.json {
            return self.ui.json_line(&json!({"step": self.step, "title": title}));
        }
        if self.step > 1 {
            self.ui.line("")?;
        }
        let title = self.ui.paint(Tone::Title, title);
        self.ui.line(format_args!("{}. {title}", self.step))?;
        self.ui.flush()?;
        self.pause(8);
        Ok(())
    }

    /// What is seen while it happens.
    pub(super) fn show(&mut self, tone: Tone, text: &str) -> Result<()> {
        if self.ui.json {
            return Ok(());
        }
        let text = self.ui.paint(tone, text);
        self.ui.line(format_args!("   {text}"))?;
        self.ui.flush()?;
        self.pause(1);
        Ok(())
    }

    /// A part of a line.
    pub(super) fn stream(&mut self, text: &str) -> Result<()> {
        if self.ui.json {
            return Ok(());
        }
        let text = self.ui.paint(Tone::Quiet, text);
        self.ui.text(&text)?;
        self.ui.flush()
    }

    pub(super) fn close(&mut self, text: &str, is_good: bool, kept: Option<&Path>) -> Result<()> {
        if self.ui.json {
            let (claims, untrue) = (self.claims, self.untrue);
            return self.ui.json_line(&json!({"claims": claims, "untrue": untrue}));
        }
        let tone = if is_good { Tone::Good } else { Tone::Bad };
        let text = self.ui.paint(tone, text);
        self.ui.line(format_args!("\n{text}"))?;
        if let Some(kept) = kept {
            let call = Call::on(kept);
            self.ui.line(format_args!("Look at it: {call} sessions list"))?;
        }
        Ok(())
    }

    /// Something that the demo says is so. Printed with what the check came to.
    pub(super) fn claim(&mut self, text: &str, is_true: bool) -> Result<()> {
        self.claims += 1;
        self.untrue += usize::from(!is_true);
        if self.ui.json {
            let claim = json!({"step": self.step, "claim": text, "true": is_true});
            return self.ui.json_line(&claim);
        }
        let (tone, mark) = if is_true { (Tone::Good, "✓") } else { (Tone::Bad, "✗ NOT SO:") };
        let mark = self.ui.paint(tone, mark);
        self.ui.line(format_args!("   {mark} {text}"))?;
        self.ui.flush()?;
        self.pause(4);
        Ok(())
    }
}
