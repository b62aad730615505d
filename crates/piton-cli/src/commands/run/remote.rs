//! A graph that the data folder's server runs: the same progress and the same end, from its events.

use std::path::Path;
use std::time::Duration;

use piton_api::client::Client;
use piton_api::graph::{GraphQuery, GraphView, ResumeGraphRequest, RunGraphRequest};
use piton_api::session::RunRequest;
use piton_api::wait::AnswerRequest;
use piton_core::event::Event;
use piton_core::graph::{CheckpointOptions, CheckpointType};
use piton_core::id::{CheckpointId, SessionId, WaitId};
use piton_core::{Code, Seq};
use piton_graph::checkpoints::Question;
use piton_graph::{Failure, Finished, Graph, OpenWait, Outcome, Progress};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::drive::{Asked, DRAW_EVERY, ask_person, can_ask};
use super::screen::Screen;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::graphs;
use crate::text::one_line;
use crate::ui::{Tone, Ui};

/// How long an interrupted run may take until the server continues it.
const CONTINUE_WAIT: Duration = Duration::from_secs(10);

pub(super) struct Remote<'a> {
    pub(super) cx: &'a Context,
    pub(super) client: Client,
    pub(super) graph: &'a Graph,
    pub(super) options: CheckpointOptions,
}

/// How a run stands, by the records that were seen.
#[derive(Debug, Default)]
struct Seen {
    /// The last event that says how the run stands.
    last: Option<Event>,
    /// The node of the last checkpoint before a wait.
    asking: String,
    /// The node that asked, by wait.
    waits: Vec<(WaitId, String)>,
}

/// An absolute path as text.
fn path_text(path: &Path) -> Result<String> {
    let path = std::path::absolute(path)?;
    let text = path.to_str().ok_or_else(|| Error::usage("The file's name is not UTF-8"))?;
    Ok(text.to_owned())
}

impl Remote<'_> {
    fn checkpoint(&self) -> Result<Option<Value>> {
        let options = serde_json::to_value(&self.options)
            .map_err(|error| Error::new(Code::ConfigInvalid, error.to_string()))?;
        Ok(Some(options).filter(|_| self.options != CheckpointOptions::default()))
    }

    pub(super) async fn start(
        &self,
        ui: &mut Ui,
        inputs: Map<String, Value>,
        folder: &str,
    ) -> Result<Exit> {
        let file = self.graph.file().map(path_text).transpose()?;
        let request = RunGraphRequest {
            graph: None,
            file,
            inputs,
            working_dir: Some(folder.to_owned()),
            checkpoint: self.checkpoint()?,
        };
        let session = self.client.run_graph(&request).await?.session_id;
        Box::pin(self.follow(ui, &session, 0, None)).await
    }

    pub(super) fn resume_request(
        &self,
        file: Option<&Path>,
        checkpoint: Option<&CheckpointId>,
        set: Map<String, Value>,
    ) -> Result<ResumeGraphRequest> {
        Ok(ResumeGraphRequest {
            checkpoint_id: checkpoint.map(ToString::to_string),
            set,
            graph: None,
            file: file.map(path_text).transpose()?,
            // That the file is as it was, or does not matter, was found out here.
            recorded_graph: file.is_none(),
            checkpoint: self.checkpoint()?,
        })
    }

    pub(super) async fn resume(
        &self,
        ui: &mut Ui,
        session: &SessionId,
        request: ResumeGraphRequest,
    ) -> Result<Exit> {
        let after = self.client.session(session).await?.summary.last_seq;
        let resumed = self.client.resume_graph(session, &request).await?;
        Box::pin(self.follow(ui, session, after, resumed.resumed_from)).await
    }

    /// Until it ends, or waits for an answer that cannot be given here.
    async fn follow(
        &self,
        ui: &mut Ui,
        session: &SessionId,
        mut after: Seq,
        resumed_from: Option<String>,
    ) -> Result<Exit> {
        if ui.json {
            ui.json_line(&json!({
                "event": "run_started", "session_id": session, "graph": self.graph.name(),
                "resumed_from": resumed_from,
            }))?;
        } else {
            let name = ui.paint(Tone::Title, &one_line(self.graph.name()));
            ui.line(format_args!("{name}  {}", ui.paint(Tone::Quiet, session.as_str())))?;
        }
        ui.flush()?;
        loop {
            let seen = Box::pin(self.watch(ui, session, &mut after)).await?;
            let query = GraphQuery { include_memory: Some(true) };
            let view = self.client.graph(session, &query).await?;
            let done = view.execution_path.clone();
            let outcome = outcome(&seen, view);
            if let Outcome::Waiting { waits } = &outcome
                && can_ask(ui)
                && self.ask(ui, waits).await?
            {
                continue;
            }
            // The server's log has what earlier executions were given.
            let recorded = self.recorded_options(session).await?;
            let options = [&self.cx.settings.checkpoint, &recorded, &self.options];
            let resume = graphs::resume_command(&ui.call, session, self.graph, options, &done);
            return super::report(ui, self.graph, session, &outcome, resume);
        }
    }

    /// Shows what happens until the server lets go of the session.
    async fn watch(&self, ui: &mut Ui, session: &SessionId, after: &mut Seq) -> Result<Seen> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut screen = Screen::new(ui);
        let mut draw = tokio::time::interval(DRAW_EVERY);
        let mut records = self.client.records_from(session, *after);
        let mut seen = Seen::default();
        let (mut is_pausing, mut continue_until) = (false, None);
        let stop = |is_cancelled: bool| {
            let (client, session) = (self.client.clone(), session.clone());
            tokio::spawn(async move {
                let run = RunRequest::default();
                let stopped = if is_cancelled {
                    client.cancel(&session, &run).await
                } else {
                    client.pause(&session, &run).await
                };
                if let Err(error) = stopped {
                    tracing::warn!(%error, "the run was not stopped");
                }
            });
        };
        loop {
            if !seen.is_interrupted() {
                continue_until = None;
            } else if continue_until.is_none() {
                continue_until = Some(Instant::now() + CONTINUE_WAIT);
            }
            let until = continue_until.unwrap_or_else(Instant::now);
            tokio::select! {
                record = records.next() => {
                    let record = record?;
                    // What a newer server says in another way is not shown.
                    let Ok(event) = record.event() else { continue };
                    let is_released = matches!(event, Event::SessionReleased(_));
                    if let Some(progress) = seen.take(event, record["error"].as_str()) {
                        screen.show(ui, progress)?;
                    }
                    if is_released && seen.last.is_some() {
                        break;
                    }
                }
                () = tokio::time::sleep_until(until), if continue_until.is_some() => break,
                _ = interrupt.recv() => {
                    if !is_pausing {
                        screen.say(ui, "Pausing at the next safe point. Press Ctrl-C again to stop now.")?;
                    }
                    stop(is_pausing);
                    is_pausing = true;
                }
                _ = terminate.recv() => stop(false),
                _ = draw.tick(), if screen.is_live() => screen.draw(ui)?,
            }
        }
        *after = records.position();
        screen.end(ui)?;
        Ok(seen)
    }

    async fn recorded_options(&self, session: &SessionId) -> Result<CheckpointOptions> {
        let view = self.cx.existing_view()?;
        let view = piton_graph::checkpoints::view(view.store(), session).await?;
        Ok(view.checkpoint_options)
    }

    /// Asks the person at the terminal. False: no answer was given. When the wait's time has passed the
    /// server continues.
    async fn ask(&self, ui: &mut Ui, waits: &[OpenWait]) -> Result<bool> {
        let Some(wait) = waits.first() else { return Ok(false) };
        let open = self.client.wait(&wait.wait_id).await?;
        let asked = open.question.unwrap_or_default();
        let left = open.deadline_at.map(|at| at.since(self.cx.now()));
        match ask_person(ui, &question(&asked), left).await? {
            Asked::Nothing => Ok(false),
            Asked::Expired => Ok(true),
            Asked::Answer(answer) => {
                let answer = AnswerRequest { answer: answer.into(), message: None };
                self.client.answer(&wait.wait_id, &answer).await?;
                Ok(true)
            }
        }
    }
}

fn question(asked: &Value) -> Question {
    let text = asked.get("question").and_then(Value::as_str).unwrap_or_default().to_owned();
    let listed = asked.get("options").and_then(Value::as_array).into_iter().flatten();
    let options = listed.filter_map(|option| Some(option.get("option_id")?.as_str()?.to_owned()));
    Question { text, options: options.collect() }
}

impl Seen {
    fn is_interrupted(&self) -> bool {
        matches!(self.last, Some(Event::RunInterrupted(_)))
    }

    /// What an event says about the run, for the screen; `error` is the content of a failure.
    fn take(&mut self, event: Event, error: Option<&str>) -> Option<Progress> {
        match event {
            Event::RunWaiting(ref waiting) => {
                let wait_id = waiting.wait_id.clone();
                self.last = Some(event);
                let wait_id = wait_id?;
                if self.waits.iter().any(|(known, _)| *known == wait_id) {
                    return None;
                }
                let node = self.asking.clone();
                self.waits.push((wait_id.clone(), node.clone()));
                Some(Progress::NodeWaiting { node, wait_id })
            }
            Event::RunStarted(_)
            | Event::RunResumed(_)
            | Event::RunReattached(_)
            | Event::RunPaused(_)
            | Event::RunCompleted(_)
            | Event::RunFailed(_)
            | Event::RunCancelled(_)
            | Event::RunInterrupted(_) => {
                self.last = Some(event);
                None
            }
            Event::CheckpointCreated(made) => {
                if made.checkpoint_type == CheckpointType::UserCheckpoint {
                    self.asking = made.current_node.unwrap_or_default();
                }
                None
            }
            Event::NodeStarted(node) => {
                Some(Progress::NodeStarted { node: node.path, attempt: node.attempt })
            }
            Event::NodeCompleted(node) => {
                Some(Progress::NodeCompleted { node: node.path, latency_ms: node.latency_ms })
            }
            Event::NodeFailed(node) => Some(Progress::NodeFailed {
                node: node.path,
                error: error.unwrap_or_default().to_owned(),
                retry_at: node.retry_at,
            }),
            Event::NodeSkipped(node) => Some(Progress::NodeSkipped { node: node.path }),
            Event::LoopIterated(node) => Some(Progress::NodeAdvanced {
                node: node.path,
                done: node.iteration + 1,
                count: None,
            }),
            _ => None,
        }
    }
}

/// How the run ended, or what it waits for.
fn outcome(seen: &Seen, view: GraphView) -> Outcome {
    match &seen.last {
        Some(Event::RunCompleted(_)) => {
            let memory = view.memory.unwrap_or_default().into_iter();
            Outcome::Completed(Finished {
                memory: memory.map(|(key, value)| (key, value.into())).collect(),
                outputs: view.outputs.unwrap_or_default(),
            })
        }
        Some(Event::RunFailed(failed)) => {
            let checkpoint = view.resume_from_checkpoint_id.and_then(|id| id.parse().ok());
            Outcome::Failed(Failure {
                node: view.failed_at_node.unwrap_or_default(),
                code: failed.code.clone().unwrap_or_else(|| Code::NodeFailed.into()),
                error: view.error.unwrap_or_default(),
                checkpoint,
            })
        }
        Some(Event::RunCancelled(_)) => Outcome::Cancelled,
        Some(Event::RunPaused(_) | Event::RunInterrupted(_)) => Outcome::Paused,
        _ => {
            let open = |id: &String| {
                let node = seen.waits.iter().find(|(known, _)| known.as_str() == id);
                let wait_id: WaitId = id.parse().ok()?;
                let node = node.map(|(_, node)| node.clone()).unwrap_or_default();
                Some(OpenWait { wait_id, node, deadline_at: None })
            };
            Outcome::Waiting { waits: view.waits.iter().filter_map(open).collect() }
        }
    }
}
