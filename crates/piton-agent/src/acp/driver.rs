//! Reads what the agent says, one message after the other, and sees that it is kept before the next
//! is read.

use std::io;
use std::sync::Arc;

use piton_core::Code;
use piton_core::spool::{Ended, Fact, OpenedAs};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, Semaphore, mpsc};

use super::link::{Answer, Failure, Link, Outgoing, Waiter, Waiting};
use super::recorder::{Ask, Recorder};
use super::refusal::RESOURCE_NOT_FOUND;
use super::serve::{Request, Serving};
use super::wire::{self, code, method};
use super::{Error, Limits};
use crate::envelope::Envelope;
use crate::lines::{Line, Lines};

pub(super) struct Driver<R, W> {
    pub(super) reader: R,
    pub(super) writer: W,
    pub(super) outgoing: mpsc::Receiver<Outgoing>,
    pub(super) link: Arc<Link>,
    pub(super) recorder: Arc<Mutex<Recorder>>,
    pub(super) serving: Arc<Serving>,
    pub(super) limits: Limits,
}

/// Ends the link however the driver ends, so that every waiting request fails.
struct EndLink(Arc<Link>);

impl Drop for EndLink {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send> Driver<R, W> {
    /// Runs until the agent's output ends. Writes to the agent and its own requests continue while
    /// the journal keeps something: otherwise agent and client could wait for each other for ever.
    pub(super) async fn run(self) -> Result<(), Error> {
        let end = EndLink(Arc::clone(&self.link));
        let requests_max = self.limits.host_requests_max.max(1);
        let (requests, incoming) = mpsc::channel(requests_max);
        let reading = Reading {
            link: self.link,
            recorder: Arc::clone(&self.recorder),
            serving: Arc::clone(&self.serving),
            requests,
            under_way: Arc::new(Semaphore::new(requests_max)),
            limits: self.limits,
        };
        let lines = Lines::new(self.reader, reading.limits.line_bytes_max);
        let serving = async {
            self.serving.run(incoming).await;
            std::future::pending::<()>().await;
        };
        let writing = async {
            if let Err(unsent) = write_all(self.writer, self.outgoing).await {
                for id in unsent {
                    reading.answer_of(id, Answer::Unsent).await?;
                }
                reading.link.not_reading();
            }
            std::future::pending().await
        };
        let read = tokio::select! {
            read = reading.run(lines) => read,
            () = serving => Ok(()),
            unwritten = writing => unwritten,
        };
        let kept = if matches!(read, Err(Error::Journal(_))) {
            Ok(())
        } else {
            let mut recorder = self.recorder.lock().await;
            recorder.gone();
            recorder.keep().await
        };
        drop(end);
        read.and(kept)
    }
}

/// Until nothing more will be sent, or the agent does not read any more; then gives the requests that
/// it never got.
async fn write_all<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut outgoing: mpsc::Receiver<Outgoing>,
) -> Result<(), Vec<i64>> {
    while let Some(Outgoing { line, id }) = outgoing.recv().await {
        let written: io::Result<()> = async {
            writer.write_all(&line).await?;
            writer.flush().await
        }
        .await;
        if let Err(error) = written {
            // It closed its input: its output is still read, but nothing can be sent to it.
            tracing::debug!(%error, "the agent no longer reads");
            let mut unsent: Vec<i64> = id.into_iter().collect();
            outgoing.close();
            while let Some(Outgoing { id, .. }) = outgoing.recv().await {
                unsent.extend(id);
            }
            return Err(unsent);
        }
    }
    let _ = writer.shutdown().await;
    Ok(())
}

struct Reading {
    link: Arc<Link>,
    recorder: Arc<Mutex<Recorder>>,
    serving: Arc<Serving>,
    requests: mpsc::Sender<Request>,
    under_way: Arc<Semaphore>,
    limits: Limits,
}

impl Reading {
    async fn run<R: AsyncRead + Unpin>(&self, mut lines: Lines<R>) -> Result<(), Error> {
        loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(error) => return Err(Error::Io { kind: error.kind() }),
            };
            match line {
                Line::TooLong { bytes, envelope } => self.too_long(bytes, envelope).await?,
                Line::Whole(line) => match serde_json::from_slice(&line) {
                    Ok(Value::Array(batch)) => {
                        for message in batch {
                            self.message(message).await?;
                        }
                    }
                    Ok(message) => self.message(message).await?,
                    Err(_) => self.dropped("not_json", line.len() as u64).await?,
                },
            }
        }
    }

    async fn dropped(&self, why: &'static str, bytes: u64) -> Result<(), Error> {
        let mut recorder = self.recorder.lock().await;
        recorder.dropped(why, bytes);
        recorder.keep().await
    }

    /// Fails the request whose answer was skipped, or refuses the agent's skipped request.
    async fn too_long(&self, bytes: u64, envelope: Envelope) -> Result<(), Error> {
        self.dropped("line_too_long", bytes).await?;
        match envelope {
            Envelope { id: Some(id), method: Some(_) } => {
                self.refuse(&id, code::INVALID_REQUEST, "The message is too long").await
            }
            Envelope { id: Some(id), method: None } => match id.as_i64() {
                Some(id) => self.answer_of(id, Answer::TooLong).await,
                None => Ok(()),
            },
            Envelope { id: None, .. } => Ok(()),
        }
    }

    async fn message(&self, mut message: Value) -> Result<(), Error> {
        let bytes = |message: &Value| message.to_string().len() as u64;
        let name = wire::text_at(&message, "method");
        let id = message.get("id").filter(|id| !id.is_null()).cloned();
        let mut take = |key: &str| message.get_mut(key).map(Value::take).unwrap_or_default();
        match (name, id) {
            (Some(name), Some(id)) => self.request(&name, id, take("params")).await,
            (Some(name), None) => self.notification(&name, take("params")).await,
            (None, Some(id)) => {
                let Some(waiting) = id.as_i64().and_then(|id| self.link.take(id)) else {
                    return self.dropped("answer_unasked", bytes(&message)).await;
                };
                let answer = match failure(&take("error")) {
                    Some(failure) => Answer::Failed(failure),
                    None => Answer::Result(take("result")),
                };
                self.answered(waiting, answer).await
            }
            // An agent that could not read us says so without an id.
            (None, None) => self.dropped("not_a_message", bytes(&message)).await,
        }
    }

    async fn answer_of(&self, id: i64, answer: Answer) -> Result<(), Error> {
        match self.link.take(id) {
            Some(waiting) => self.answered(waiting, answer).await,
            None => Ok(()),
        }
    }

    async fn answered(&self, waiting: Waiting, answer: Answer) -> Result<(), Error> {
        let method = waiting.method;
        match waiting.waiter {
            Waiter::Plain(done) => {
                let _ = done.send(answer);
            }
            Waiter::Begin { opened_as, asked_id, done } => {
                let mut recorder = self.recorder.lock().await;
                let named = |answer: &Value| wire::text_at(answer, "sessionId");
                // Whatever is new has a name of its own.
                let known = asked_id
                    .clone()
                    .filter(|_| matches!(opened_as, OpenedAs::Loaded | OpenedAs::Resumed));
                let is_good = |id: &String| !id.is_empty() && id.len() <= SESSION_ID_BYTES_MAX;
                let opened = match answer.into_result(method, &recorder) {
                    Ok(answer)
                        if !named(&answer).as_ref().or(known.as_ref()).is_some_and(is_good) =>
                    {
                        let why = "It names no session".to_owned();
                        Err(Error::Protocol { method: method.to_owned(), why })
                    }
                    Ok(_) if opened_as == OpenedAs::Loaded && recorder.has_lost_conversation() => {
                        recorder.replay.live();
                        Err(Error::Agent {
                            method: method.to_owned(),
                            code: RESOURCE_NOT_FOUND,
                            message: "Session lost: the agent loaded it and replayed nothing"
                                .into(),
                        })
                    }
                    Ok(answer) => {
                        recorder.set_opened(opened_as, asked_id, &answer);
                        recorder.keep().await?;
                        Ok(())
                    }
                    Err(error) => {
                        recorder.replay.live();
                        Err(error)
                    }
                };
                let _ = done.send(opened);
            }
            Waiter::Prompt { done } => {
                let mut recorder = self.recorder.lock().await;
                if let Answer::Result(answer) = &answer
                    && let Some(usage) = answer.get("usage").filter(|usage| usage.is_object())
                {
                    recorder.other("turn_usage", usage.clone());
                }
                let ended = answer.into_result(method, &recorder).and_then(|answer| {
                    wire::text_at(&answer, "stopReason").ok_or_else(|| Error::Protocol {
                        method: method.to_owned(),
                        why: "It names no reason to stop".to_owned(),
                    })
                });
                let is_asked = recorder.turn.as_ref().is_some_and(|turn| turn.is_cancelled);
                if let (Ok(reason), true, false) = (&ended, self.link.is_ending(), is_asked) {
                    let reason = recorder.mask_text(reason);
                    let message = format!("The agent ended its turn ({reason}) as it was ended");
                    recorder.cut_off(Fact::TurnFailed { code: Code::AgentClosed.into(), message });
                    recorder.keep().await?;
                    drop(recorder);
                    let _ = done.send(ended);
                    return Ok(());
                }
                let fact = match &ended {
                    Ok(reason) => Fact::TurnEnded { stop_reason: recorder.mask_text(reason) },
                    Err(error) => {
                        Fact::TurnFailed { code: error.code().into(), message: error.to_string() }
                    }
                };
                let is_disowned = ended.as_ref().is_err_and(|error| recorder.disowned(error));
                let asks = recorder.turn_over(fact);
                recorder.keep().await?;
                drop(recorder);
                self.cancel_asks(asks);
                if is_disowned {
                    // It has no conversation any more, and another agent begins one.
                    self.link.not_reading();
                }
                let _ = done.send(ended);
            }
        }
        Ok(())
    }

    /// Answers `cancelled`, in case the agent waits for the answers although its turn is over.
    fn cancel_asks(&self, asks: Vec<Ask>) {
        for ask in asks {
            self.link.try_send(wire::answer_line(&ask.rpc_id, &wire::permission(None)));
        }
    }

    async fn notification(&self, name: &str, mut params: Value) -> Result<(), Error> {
        let mut recorder = self.recorder.lock().await;
        match name {
            method::UPDATE => {
                let session = wire::text_at(&params, "sessionId");
                let is_ours =
                    session.is_none() || recorder.session.is_none() || session == recorder.session;
                if is_ours {
                    let update = params.get_mut("update").map(Value::take).unwrap_or_default();
                    let terminals = recorder.terminals_of(&update);
                    let outputs = if terminals.is_empty() {
                        Map::new()
                    } else {
                        self.serving.outputs(terminals).await
                    };
                    recorder.update(update, outputs);
                } else {
                    recorder.other("other_session", params);
                }
            }
            method::CANCEL_REQUEST => {
                let id = params.get("requestId").cloned().unwrap_or_default();
                let wait = recorder.asks.iter().find(|(_, ask)| ask.rpc_id == id);
                if let Some(wait_id) = wait.map(|(wait_id, _)| wait_id.clone()) {
                    recorder.ask_ended(&wait_id, Ended::Withdrawn);
                    recorder.keep().await?;
                    let line = wire::error_line(&id, code::REQUEST_CANCELLED, "Request cancelled");
                    self.link.try_send(line);
                }
            }
            // By JSON-RPC's custom these may be ignored.
            _ if name.starts_with("$/") => {}
            _ => {
                let what = recorder.mask_text(&format!("notification:{name}"));
                recorder.other(&what, params);
            }
        }
        recorder.keep().await
    }

    async fn request(&self, name: &str, id: Value, params: Value) -> Result<(), Error> {
        if name == method::PERMISSION {
            return self.permission(id, params).await;
        }
        let call = match wire::host_call(name, params) {
            Some(Ok(call)) => call,
            Some(Err(why)) => return self.refuse(&id, code::INVALID_PARAMS, &why).await,
            None => return self.refuse(&id, code::METHOD_NOT_FOUND, "Method not found").await,
        };
        let Ok(permit) = Arc::clone(&self.under_way).try_acquire_owned() else {
            return self.refuse(&id, code::INTERNAL, "Too many requests at once").await;
        };
        // There is as much room as there are permits.
        let _ = self.requests.try_send(Request { id, call, permit });
        Ok(())
    }

    async fn permission(&self, id: Value, params: Value) -> Result<(), Error> {
        let mut recorder = self.recorder.lock().await;
        if recorder.asks.len() >= self.limits.asks_max {
            drop(recorder);
            return self.refuse(&id, code::INTERNAL, "Too many questions at once").await;
        }
        if recorder.turn.is_none() {
            // There is no run that could wait for the user's answer.
            recorder.other("asked_outside_turn", params);
            recorder.keep().await?;
            drop(recorder);
            self.link.try_send(wire::answer_line(&id, &wire::permission(None)));
            return Ok(());
        }
        let wait_id = recorder.asked(id, params);
        let is_cancelled = recorder.turn.as_ref().is_some_and(|turn| turn.is_cancelled);
        let ask = if is_cancelled { recorder.ask_ended(&wait_id, Ended::Cancelled) } else { None };
        recorder.keep().await?;
        drop(recorder);
        self.cancel_asks(ask.into_iter().collect());
        Ok(())
    }

    /// Not waited for: an agent that asks without reading our answers must not keep us from reading.
    async fn refuse(&self, id: &Value, code: i64, message: &str) -> Result<(), Error> {
        let line = wire::error_line(id, code, message);
        let bytes = line.len() as u64;
        if self.link.try_send(line) { Ok(()) } else { self.dropped("answer_unsent", bytes).await }
    }
}

impl Answer {
    /// What the agent says of an error is masked.
    pub(super) fn into_result(self, method: &str, recorder: &Recorder) -> Result<Value, Error> {
        let method = method.to_owned();
        match self {
            Self::Result(value) => Ok(value),
            Self::Failed(failure) => {
                let message = recorder.mask_text(&failure.message);
                Err(Error::Agent { method, code: failure.code, message })
            }
            Self::TooLong => Err(Error::TooLong { method }),
            Self::Unsent => Err(Error::Closed),
        }
    }
}

/// Code, message and what text came with it.
fn failure(error: &Value) -> Option<Failure> {
    if error.is_null() {
        return None;
    }
    let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
    let mut message = wire::text_at(error, "message").unwrap_or_else(|| "Unknown error".to_owned());
    if let Some(data) = error.get("data").filter(|data| !data.is_null()) {
        let data = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        let cut = data.floor_char_boundary(DATA_BYTES_MAX);
        message = format!("{message} {}", &data[..cut]);
    }
    Some(Failure { code, message })
}

/// Longer ones would not fit where they are kept.
const SESSION_ID_BYTES_MAX: usize = 1_024;
/// Of what comes with an error.
const DATA_BYTES_MAX: usize = 2_000;
