//! The agent's requests to its client: handed to the [`ToolHost`], side by side, and answered in
//! whatever order they finish.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::link::Link;
use super::wire::{self, HostCall, code};
use crate::{HostError, TerminalOutput, ToolHost};
use piton_core::Code;

/// Released terminals whose output is remembered for the results that show them.
const RELEASED_KEPT: usize = 32;
/// How much of each; of more, the beginning is forgotten.
const RELEASED_BYTES_MAX: usize = 256 * 1024;
/// The host answers from memory; if it does not, a result says less.
const OUTPUT_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: Value,
    pub(super) call: HostCall,
    /// One of those that may be under way.
    pub(super) permit: OwnedSemaphorePermit,
}

#[derive(Debug, Default)]
struct Terminals {
    /// Being made, or made and not released.
    open: usize,
    released: BTreeMap<String, TerminalOutput>,
    order: VecDeque<String>,
}

#[derive(Debug)]
pub(super) struct Serving {
    host: Arc<dyn ToolHost>,
    link: Arc<Link>,
    terminals: Mutex<Terminals>,
    terminals_max: usize,
}

impl Serving {
    pub(super) fn new(host: Arc<dyn ToolHost>, link: Arc<Link>, terminals_max: usize) -> Self {
        Self { host, link, terminals: Mutex::default(), terminals_max }
    }

    fn terminals(&self) -> MutexGuard<'_, Terminals> {
        self.terminals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves until no more requests can come.
    pub(super) async fn run(&self, mut requests: mpsc::Receiver<Request>) {
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => under_way.push(self.serve(request)),
                    None => break,
                },
                Some(()) = under_way.next(), if !under_way.is_empty() => {}
            }
        }
        while under_way.next().await.is_some() {}
    }

    async fn serve(&self, request: Request) {
        let answer = match self.call(request.call).await {
            Ok(result) => wire::answer_line(&request.id, &result),
            Err(error) => {
                let code = match error.code {
                    Code::RequestInvalid => code::INVALID_PARAMS,
                    Code::NotFound => code::RESOURCE_NOT_FOUND,
                    _ => code::INTERNAL,
                };
                wire::error_line(&request.id, code, &error.message)
            }
        };
        // If the agent is gone, nothing waits for the answer.
        let _ = self.link.send(answer).await;
        drop(request.permit);
    }

    async fn call(&self, call: HostCall) -> Result<Value, HostError> {
        let host = &self.host;
        match call {
            HostCall::Read { path, line, limit } => {
                host.read_text_file(path, line, limit).await.map(wire::read_answer)
            }
            HostCall::Write { path, content } => {
                host.write_text_file(path, content).await.map(|()| json!({}))
            }
            HostCall::Create(spec) => {
                self.make_room()?;
                let made = host.create_terminal(spec).await;
                if made.is_err() {
                    self.terminals().open -= 1;
                }
                made.map(wire::created_answer)
            }
            HostCall::Output { id } => host.terminal_output(id).await.map(wire::output_answer),
            HostCall::Wait { id } => host.wait_for_exit(id).await.map(wire::exit_answer),
            HostCall::Kill { id } => host.kill_terminal(id).await.map(|()| json!({})),
            HostCall::Release { id } => self.release(id).await.map(|()| json!({})),
        }
    }

    fn make_room(&self) -> Result<(), HostError> {
        let mut terminals = self.terminals();
        if terminals.open >= self.terminals_max {
            let message = format!("More than {} terminals are open", self.terminals_max);
            return Err(HostError { code: Code::LimitReached, message });
        }
        terminals.open += 1;
        Ok(())
    }

    /// What it wrote is still shown by the call that started it.
    async fn release(&self, id: String) -> Result<(), HostError> {
        let output = self.host.terminal_output(id.clone()).await.ok();
        self.host.release_terminal(id.clone()).await?;
        let mut terminals = self.terminals();
        terminals.open = terminals.open.saturating_sub(1);
        if let Some(mut output) = output {
            let cut = output.output.len().saturating_sub(RELEASED_BYTES_MAX);
            if cut > 0 {
                let from = output.output.ceil_char_boundary(cut);
                output.output.drain(..from);
                output.truncated = true;
            }
            terminals.order.push_back(id.clone());
            terminals.released.insert(id, output);
            if terminals.order.len() > RELEASED_KEPT
                && let Some(oldest) = terminals.order.pop_front()
            {
                terminals.released.remove(&oldest);
            }
        }
        Ok(())
    }

    /// What these terminals wrote, as far as it is known.
    pub(super) async fn outputs(&self, ids: Vec<String>) -> Map<String, Value> {
        let mut outputs = Map::new();
        for id in ids {
            let released = self.terminals().released.get(&id).cloned();
            let output = if released.is_some() {
                released
            } else {
                let asked = self.host.terminal_output(id.clone());
                tokio::time::timeout(OUTPUT_WAIT, asked).await.ok().and_then(Result::ok)
            };
            if let Some(output) = output {
                let exit = output.exit.unwrap_or_default();
                let said = json!({
                    "output": output.output,
                    "truncated": output.truncated,
                    "exit_code": exit.exit_code,
                    "signal": exit.signal,
                });
                outputs.insert(id, said);
            }
        }
        outputs
    }
}
