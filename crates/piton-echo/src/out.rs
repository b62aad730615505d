//! What the agent says, and what it waits for from its client.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc, oneshot};

use super::print::Printer;

pub(super) enum Outgoing {
    Line(Vec<u8>),
    /// Answered when all before it is written.
    Flush(oneshot::Sender<()>),
}

/// In what words it speaks.
#[derive(Debug)]
pub(super) enum Voice {
    Acp,
    /// Plain output; no client can answer requests.
    Printed(Mutex<Printer>),
}

#[derive(Debug)]
pub(super) struct Out {
    voice: Voice,
    lines: mpsc::Sender<Outgoing>,
    waiting: Mutex<HashMap<i64, oneshot::Sender<Result<Value, Value>>>>,
    last_id: std::sync::atomic::AtomicI64,
    close_input: Notify,
    is_deaf: AtomicBool,
}

impl Out {
    pub(super) fn new(voice: Voice) -> (Self, mpsc::Receiver<Outgoing>) {
        let (lines, outgoing) = mpsc::channel(4);
        let out = Self {
            voice,
            lines,
            waiting: Mutex::default(),
            last_id: 0.into(),
            close_input: Notify::new(),
            is_deaf: AtomicBool::new(false),
        };
        (out, outgoing)
    }

    /// Writes the whole line or nothing, even if the caller is cancelled.
    pub(super) async fn line(&self, text: &str) {
        self.bytes(format!("{text}\n")).await;
    }

    async fn bytes(&self, text: String) {
        if !text.is_empty() {
            let _ = self.lines.send(Outgoing::Line(text.into_bytes())).await;
        }
    }

    pub(super) async fn message(&self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        self.line(&message.to_string()).await;
    }

    pub(super) async fn update(&self, session_id: &str, update: &Value) {
        if self.is_alone() {
            return self.print(|printer| printer.update(update)).await;
        }
        let params = json!({ "sessionId": session_id, "update": update });
        self.message(json!({ "method": "session/update", "params": params })).await;
    }

    /// Until all that was said is written.
    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.lines.send(Outgoing::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }

    /// Ends the current message. Over ACP the next update shows that it has ended.
    pub(super) async fn message_ended(&self) {
        self.print(Printer::message_ended).await;
    }

    /// Where it is printed what it says.
    pub(super) async fn print(&self, what: impl FnOnce(&mut Printer) -> String) {
        if let Voice::Printed(printer) = &self.voice {
            let printed = what(&mut lock(printer));
            self.bytes(printed).await;
        }
    }

    /// Whether it has no client that does things for it.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.voice, Voice::Printed(_))
    }

    /// Asks the client; the error is its own.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Result<Value, Value> {
        if self.is_alone() {
            return Err(json!({ "message": "No client can answer requests" }));
        }
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (done, answer) = oneshot::channel();
        lock(&self.waiting).insert(id, done);
        self.message(json!({ "id": id, "method": method, "params": params })).await;
        answer.await.unwrap_or_else(|_| Err(json!({ "message": "The client is gone" })))
    }

    /// An answer of the client's.
    pub(super) fn answered(&self, mut message: Value) {
        let Some(id) = message.get("id").and_then(Value::as_i64) else { return };
        let waiting = lock(&self.waiting).remove(&id);
        let Some(waiting) = waiting else { return };
        let _ = waiting.send(match message.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(message.get_mut("result").map(Value::take).unwrap_or_default()),
        });
    }

    pub(super) fn close_input(&self) {
        self.close_input.notify_one();
    }

    pub(super) async fn input_closed(&self) {
        self.close_input.notified().await;
    }

    pub(super) fn be_deaf(&self) {
        self.is_deaf.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) async fn write<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut outgoing: mpsc::Receiver<Outgoing>,
) -> io::Result<()> {
    while let Some(next) = outgoing.recv().await {
        match next {
            Outgoing::Line(line) => {
                writer.write_all(&line).await?;
                writer.flush().await?;
            }
            Outgoing::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
    Ok(())
}
