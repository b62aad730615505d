//! What the session's records mean for the conversation: what is shown, asked, and how it ends.

use piton_api::record::FlatRecord;
use piton_core::event::Event;
use piton_core::id::WaitId;
use piton_core::reason::Reason;
use piton_core::spool::Channel;

use std::borrow::Borrow as _;

use super::{CtrlC, POLL_INTERVAL, Rejecting, Talk, Until};
use crate::commands::chat::asking::Asking;
use crate::commands::chat::outcome::Outcome;
use crate::commands::chat::screen::{Question, question};
use crate::error::{Exit, Result};
use crate::ui::Tone;

/// How often the server is asked whether a question is open while it does not respond.
const OPEN_TRIES: u32 = 10;

impl Talk<'_> {
    /// Shows a record; says how it ends if that was the last one.
    pub(super) async fn record(&mut self, record: &FlatRecord) -> Result<Option<Exit>> {
        self.after = record.seq().max(self.after);
        let kind = record.kind();
        if let Some(collected) = &mut self.collected {
            if kind == "message.delta" && is_answer(record) {
                collected.push_str(record["text"].as_str().unwrap_or_default());
            }
        } else if self.ui.json {
            self.ui.json_line(record)?;
        } else if (self.until == Until::Left && !self.take_on_screen(record)) || is_answer(record) {
            self.screen.show(self.ui, record)?;
        }
        if kind == "agent.ready" {
            self.awaits_agent = false;
        }
        let question = self.open_question(record).await;
        if self.until == Until::TurnEnds {
            let is_answered = kind == "run.waiting" && question.is_none();
            return if is_answered { Ok(None) } else { self.ended(record) };
        }
        if self.awaits_agent && matches!(kind, "agent.error" | "executor.error") {
            // There is no agent to talk to.
            let failed = Outcome::Failed.explained(self.session.as_str(), record);
            return failed.map_or(Ok(Some(Exit::Failed)), Err);
        }
        if self.after >= self.history && !self.ui.json {
            self.screen.go_live(self.ui)?;
        }
        // A record that cannot be read changes nothing.
        if let Ok(event) = record.event() {
            self.follow_run(&event, record);
            self.queue_changed(&event)?;
        }
        if let Some(question) = question {
            if self.after < self.history && !self.ui.json {
                let title = format!("? {}", question.request.title);
                self.screen.line(self.ui, Tone::Attention, &title)?;
            }
            self.questions.push_back(question);
        }
        for question in &mut self.questions {
            question.hear(record.borrow());
        }
        let asks_for_more = |asking: &mut Asking| asking.question.hear(record.borrow());
        if let Some(asking) = self.asking.take_if(asks_for_more) {
            self.remark("the request says more now:")?;
            self.ask_again(asking)?;
        }
        let runs = !self.open_runs.is_empty();
        if !runs {
            // A second Ctrl-C leaves in the same turn only.
            if self.last_ctrl_c == CtrlC::Stopped {
                self.last_ctrl_c = CtrlC::None;
            }
        }
        if matches!(kind, "run.resumed" | "wait.cancelled") || !runs {
            let is_over =
                |question: &Question| !runs || record["wait_id"] == question.wait_id.as_str();
            self.questions.retain(|question| !is_over(question));
            let is_rejected =
                |rejecting: &mut Rejecting| !runs || record["wait_id"] == rejecting.wait.as_str();
            if let Some(rejecting) = self.rejecting.take_if(is_rejected) {
                // The reason that was being typed is not lost.
                let reason = self.lines.take();
                self.lines.put_back(reason);
                self.lines.put_back(rejecting.draft);
            }
            if self.asking.as_ref().is_some_and(|asking| is_over(&asking.question)) {
                self.asking = None;
            }
        }
        self.ask_next()?;
        Ok(None)
    }

    /// What a record asks, unless it is answered already: a permission rule answers in the batch of the
    /// request, and another client may have been faster.
    async fn open_question(&self, record: &FlatRecord) -> Option<Question> {
        let question = question(record)?;
        // Answers to what was asked long ago stand in the records that follow.
        if self.after < self.history && self.until == Until::Left {
            return Some(question);
        }
        let wait: WaitId = question.wait_id.parse().ok()?;
        for _ in 0..OPEN_TRIES {
            match self.client.wait(&wait).await {
                Ok(_) => break,
                Err(error) if error.is_transient() => tokio::time::sleep(POLL_INTERVAL).await,
                Err(_) => return None,
            }
        }
        Some(question)
    }

    /// Which runs are open, and how the latest ended.
    fn follow_run(&mut self, event: &Event, record: &FlatRecord) {
        let run = record["run_id"].as_str();
        match event {
            Event::RunStarted(_) | Event::RunResumed(_) | Event::RunReattached(_) => {
                self.open_runs.extend(run.map(str::to_owned));
                self.last_end = None;
            }
            Event::RunCompleted(_)
            | Event::RunFailed(_)
            | Event::RunCancelled(_)
            | Event::RunInterrupted(_)
            | Event::RunPaused(_) => {
                self.open_runs.remove(run.unwrap_or_default());
                self.last_end = Outcome::of(record, run).map(|outcome| (outcome, record.clone()));
            }
            Event::AgentError(_) | Event::ExecutorError(_) => {
                self.last_end = Some((Outcome::Failed, record.clone()));
            }
            Event::RunDismissed(_) => self.last_end = None,
            Event::SessionClosed(_) => self.open_runs.clear(),
            _ => {}
        }
    }

    /// A script was read to its end, and nothing is left to hear: says how the latest run ended.
    pub(super) fn end_script(&mut self) -> Result<Exit> {
        let Some((outcome, record)) = self.last_end.take() else { return self.leave() };
        self.screen.end_line(self.ui)?;
        if let Some(error) = outcome.explained(self.session.as_str(), &record) {
            self.ui.report(&error);
        }
        Ok(outcome.exit())
    }

    /// What a record means for the prompts that were queued from here.
    fn queue_changed(&mut self, event: &Event) -> Result<()> {
        match event {
            // Its run begins with the next record.
            Event::MessageUser(said) if self.queued.remove(said.message_id.as_str()) => {
                self.open_runs.extend(said.run_id.as_ref().map(ToString::to_string));
            }
            Event::PromptRemoved(removed) => {
                self.queued.remove(removed.message_id.as_str());
            }
            Event::QueueReleased(_) | Event::RunResumed(_) => self.is_held = false,
            Event::RunFailed(_) | Event::RunInterrupted(_) => self.hold_queue()?,
            Event::RunCancelled(cancelled) => match cancelled.reason {
                Some(Reason::Superseded | Reason::PermissionRejected) => {}
                _ => self.hold_queue()?,
            },
            _ => {}
        }
        Ok(())
    }

    fn hold_queue(&mut self) -> Result<()> {
        if self.queued.is_empty() {
            return Ok(());
        }
        self.is_held = true;
        let call = &self.ui.call;
        let text = format!(
            "{} queued and held: /release delivers, {call} sessions queue list {} shows",
            self.queued.len(),
            self.session
        );
        self.remark(&text)
    }

    /// Tells a script how its run ended, if this record ends it.
    fn ended(&mut self, record: &FlatRecord) -> Result<Option<Exit>> {
        let run = self.own_run.as_deref();
        let outcome = match Outcome::of(record, run) {
            None => return Ok(None),
            Some(Outcome::Cancelled) if self.last_ctrl_c == CtrlC::Stopped => Outcome::Stopped,
            Some(outcome) => outcome,
        };
        self.screen.end_line(self.ui)?;
        if self.ui.json {
            let mut line = outcome.to_json(self.session.as_str(), run, record);
            if let Some(collected) = self.collected.take() {
                line["text"] = collected.into();
            }
            self.ui.json_line(&line)?;
        }
        if let Some(error) = outcome.explained(self.session.as_str(), record) {
            self.ui.report(&error);
        }
        Ok(Some(outcome.exit()))
    }

    /// Whether it was typed here, and is seen as it was typed. Asked once for each record.
    fn take_on_screen(&mut self, record: &FlatRecord) -> bool {
        match record.event() {
            Ok(Event::PromptQueued(queued)) => self.queued.contains(queued.message_id.as_str()),
            Ok(Event::MessageUser(said)) => self.typed_messages.remove(said.message_id.as_str()),
            _ => false,
        }
    }
}

/// What the agent says, and not what it thinks on the way.
fn is_answer(record: &FlatRecord) -> bool {
    match record.event() {
        Ok(Event::MessageDelta(delta)) => delta.channel == Channel::Answer,
        Ok(Event::MessageCompleted(_)) => true,
        _ => false,
    }
}
