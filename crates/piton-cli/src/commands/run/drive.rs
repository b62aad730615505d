//! A run from its start to its end: progress, signals, questions to the person at the terminal.

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use piton_core::id::{CheckpointId, SessionId};
use piton_graph::checkpoints::Question;
use piton_graph::{CheckpointOptions, Graph, GraphStore, OpenWait, Outcome, Run, Runner};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::screen::Screen;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::graphs;
use crate::text::one_line;
use crate::ui::{Tone, Ui};

/// How often what runs is drawn again.
pub(super) const DRAW_EVERY: Duration = Duration::from_millis(120);

/// A graph that this process runs.
pub(super) struct Drive<'a> {
    pub(super) cx: &'a Context,
    pub(super) store: &'a GraphStore,
    pub(super) graph: &'a Graph,
    pub(super) options: CheckpointOptions,
}

impl Drive<'_> {
    fn runner(&self) -> (Runner, mpsc::UnboundedReceiver<piton_graph::Progress>) {
        let (sender, progress) = mpsc::unbounded_channel();
        let runner = self.graph.runner(self.store).checkpoints(self.options.clone());
        (runner.progress(sender), progress)
    }

    pub(super) async fn start(
        &self,
        ui: &mut Ui,
        inputs: Map<String, Value>,
        folder: &str,
    ) -> Result<Exit> {
        let (runner, progress) = self.runner();
        let run = runner.working_dir(folder).start(inputs).await?;
        Box::pin(self.follow(ui, run, progress)).await
    }

    pub(super) async fn resume(
        &self,
        ui: &mut Ui,
        session: &SessionId,
        checkpoint: Option<&CheckpointId>,
        set: Map<String, Value>,
    ) -> Result<Exit> {
        let (runner, progress) = self.runner();
        let run = runner.resume(session, checkpoint, set).await;
        let run = run.map_err(|error| graphs::owned(self.cx, error))?;
        Box::pin(self.follow(ui, run, progress)).await
    }

    /// Until it ends, or waits for an answer that cannot be given here.
    async fn follow(
        &self,
        ui: &mut Ui,
        mut run: Run,
        mut progress: mpsc::UnboundedReceiver<piton_graph::Progress>,
    ) -> Result<Exit> {
        let session = run.session().clone();
        if ui.json {
            ui.json_line(&json!({
                "event": "run_started", "session_id": session, "graph": self.graph.name(),
                "resumed_from": run.resumed_from(),
            }))?;
        } else {
            let name = ui.paint(Tone::Title, &one_line(self.graph.name()));
            ui.line(format_args!("{name}  {}", ui.paint(Tone::Quiet, session.as_str())))?;
        }
        ui.flush()?;
        loop {
            let outcome = Box::pin(self.run_once(ui, run, &mut progress)).await?;
            let can_ask = can_ask(ui);
            match &outcome {
                Outcome::Waiting { waits } if can_ask && self.ask(ui, &session, waits).await? => {}
                outcome => {
                    let view = piton_graph::checkpoints::view(self.store.store(), &session).await?;
                    let recorded = &view.checkpoint_options;
                    let options = [&self.cx.settings.checkpoint, recorded, &self.options];
                    let resume = graphs::resume_command(
                        &ui.call,
                        &session,
                        self.graph,
                        options,
                        &view.execution_path,
                    );
                    return super::report(ui, self.graph, &session, outcome, resume);
                }
            }
            let (runner, next) = self.runner();
            run = runner.resume(&session, None, Map::new()).await?;
            progress = next;
        }
    }

    async fn run_once(
        &self,
        ui: &mut Ui,
        run: Run,
        progress: &mut mpsc::UnboundedReceiver<piton_graph::Progress>,
    ) -> Result<Outcome> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut screen = Screen::new(ui);
        let handle = run.handle();
        let mut is_pausing = false;
        let mut ending = std::pin::pin!(run.finish());
        let mut draw = tokio::time::interval(DRAW_EVERY);
        let outcome = loop {
            tokio::select! {
                biased;
                Some(event) = progress.recv() => screen.show(ui, event)?,
                outcome = &mut ending => break outcome?,
                _ = interrupt.recv() => {
                    if is_pausing {
                        handle.cancel();
                    } else {
                        is_pausing = true;
                        handle.pause();
                        screen.say(ui, "Pausing at the next safe point. Press Ctrl-C again to stop now.")?;
                    }
                }
                _ = terminate.recv() => handle.pause(),
                _ = draw.tick(), if screen.is_live() => screen.draw(ui)?,
            }
        };
        while let Ok(event) = progress.try_recv() {
            screen.show(ui, event)?;
        }
        screen.end(ui)?;
        Ok(outcome)
    }

    /// Asks the person at the terminal. False: no answer was given.
    async fn ask(&self, ui: &mut Ui, session: &SessionId, waits: &[OpenWait]) -> Result<bool> {
        let Some(wait) = waits.first() else { return Ok(false) };
        let question =
            piton_graph::checkpoints::question(self.store.store(), session, &wait.wait_id);
        let first = waits.iter().filter_map(|wait| wait.deadline_at).min();
        let left = first.map(|at| at.since(self.cx.now()));
        match ask_person(ui, &question.await?, left).await? {
            Asked::Nothing => Ok(false),
            // The resume that follows has the node fail.
            Asked::Expired => Ok(true),
            Asked::Answer(answer) => {
                piton_graph::answer(self.store, session, &wait.wait_id, answer.into()).await?;
                Ok(true)
            }
        }
    }
}

/// Whether questions can be asked at this terminal.
pub(super) fn can_ask(ui: &Ui) -> bool {
    !ui.json && Ui::is_screen() && std::io::stdin().is_terminal()
}

/// What became of a question at the terminal.
#[derive(Debug)]
pub(super) enum Asked {
    Answer(String),
    /// The input has ended, or Ctrl-C was pressed.
    Nothing,
    /// No answer came in time.
    Expired,
}

/// Asks the person at the terminal, for so long if there is a deadline.
pub(super) async fn ask_person(
    ui: &mut Ui,
    question: &Question,
    left: Option<Duration>,
) -> Result<Asked> {
    let mut expired = std::pin::pin!(async {
        match left {
            Some(left) => tokio::time::sleep(left).await,
            None => std::future::pending().await,
        }
    });
    for line in question.text.lines() {
        ui.line(format_args!("  {}", ui.paint(Tone::Attention, line)))?;
    }
    for (at, option) in question.options.iter().enumerate() {
        ui.line(format_args!("    {}  {}", at + 1, one_line(option)))?;
    }
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        ui.text("  > ")?;
        ui.flush()?;
        let line = tokio::select! {
            line = read_line() => line,
            _ = interrupt.recv() => None,
            () = &mut expired => {
                ui.line("")?;
                return Ok(Asked::Expired);
            }
        };
        let Some(line) = line else {
            ui.line("")?;
            return Ok(Asked::Nothing);
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let answer = match question.options.as_slice() {
            [] => line.to_owned(),
            options => {
                let by_number = || options.get(line.parse::<usize>().ok()?.checked_sub(1)?);
                let named = options.iter().find(|option| *option == line);
                let Some(option) = named.or_else(by_number) else {
                    ui.line("  Answer with a number or one of the options.")?;
                    continue;
                };
                option.clone()
            }
        };
        return Ok(Asked::Answer(answer));
    }
}

/// `None`: the input has ended. Read by a thread that does not keep the process from ending.
async fn read_line() -> Option<String> {
    let (sender, line) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.is_ok_and(|count| count > 0) {
            // The run may not wait for it any more.
            let _ = sender.send(line);
        }
    });
    line.await.ok()
}
