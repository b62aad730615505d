//! What the session's records mean for the conversation: what is shown, asked, and how it ends.

use piton_core::id::WaitId;
use serde_json::Value;

use super::{LOOK_EVERY, Rejecting, Talk, Until};
use crate::commands::chat::outcome::Outcome;
use crate::commands::chat::screen::{Question, question};
use crate::error::{Exit, Result};
use crate::ui::Tone;

/// How often the server is asked whether a question is open while it does not respond.
const OPEN_TRIES: u32 = 10;

impl Talk<'_> {
    /// Shows a record; says how it ends if that was the last one.
    pub(super) async fn record(&mut self, record: &Value) -> Result<Option<Exit>> {
        self.after = record["seq"].as_u64().unwrap_or(self.after).max(self.after);
        let kind = record["kind"].as_str().unwrap_or_default();
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
        self.follow_run(kind, record);
        self.queue_changed(record)?;
        if let Some(question) = question {
            if self.after < self.history && !self.ui.json {
                let title = format!("? {}", question.request.title);
                self.screen.line(self.ui, Tone::Attention, &title)?;
            }
            self.questions.push_back(question);
        }
        let runs = !self.open_runs.is_empty();
        if !runs {
            // A second Ctrl-C leaves in the same turn only.
            self.interrupted_at = None;
        }
        if matches!(kind, "run.resumed" | "wait.cancelled") || !runs {
            let is_over =
                |question: &Question| !runs || record["wait_id"] == question.wait_id.as_str();
            self.questions.retain(|question| !is_over(question));
            let is_rejected =
                |rejecting: &mut Rejecting| !runs || record["wait_id"] == rejecting.wait.as_str();
            self.rejecting.take_if(is_rejected);
            if self.asking.as_ref().is_some_and(|asking| is_over(&asking.question)) {
                self.asking = None;
                self.keys.single(false);
            }
        }
        self.ask_next()?;
        Ok(None)
    }

    /// What a record asks, unless it is answered already: a permission rule answers in the batch of the
    /// request, and another client may have been faster.
    async fn open_question(&self, record: &Value) -> Option<Question> {
        let question = question(record)?;
        // Answers to what was asked long ago stand in the records that follow.
        if self.after < self.history && self.until == Until::Left {
            return Some(question);
        }
        let wait: WaitId = question.wait_id.parse().ok()?;
        for _ in 0..OPEN_TRIES {
            match self.client.wait(&wait).await {
                Ok(_) => break,
                Err(error) if error.is_transient() => tokio::time::sleep(LOOK_EVERY).await,
                Err(_) => return None,
            }
        }
        Some(question)
    }

    /// Which runs are open, and how the latest ended.
    fn follow_run(&mut self, kind: &str, record: &Value) {
        let run = record["run_id"].as_str();
        match kind {
            "run.started" | "run.resumed" | "run.reattached" => {
                self.open_runs.extend(run.map(str::to_owned));
                self.last_end = None;
            }
            "run.completed" | "run.failed" | "run.cancelled" | "run.interrupted" | "run.paused" => {
                self.open_runs.remove(run.unwrap_or_default());
                self.last_end = Outcome::of(record, run).map(|outcome| (outcome, record.clone()));
            }
            "agent.error" | "executor.error" => {
                self.last_end = Some((Outcome::Failed, record.clone()));
            }
            "run.dismissed" => self.last_end = None,
            "session.closed" => self.open_runs.clear(),
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
    fn queue_changed(&mut self, record: &Value) -> Result<()> {
        let message = record["message_id"].as_str().unwrap_or_default();
        match record["kind"].as_str().unwrap_or_default() {
            // Its run begins with the next record.
            "message.user" if self.queued.remove(message) => {
                self.open_runs.extend(record["run_id"].as_str().map(str::to_owned));
            }
            "prompt.removed" => {
                self.queued.remove(message);
            }
            "queue.released" | "run.resumed" => self.is_held = false,
            "run.failed" | "run.interrupted" => self.hold_queue()?,
            "run.cancelled" => match record["reason"].as_str() {
                Some("superseded" | "permission_rejected") => {}
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
    fn ended(&mut self, record: &Value) -> Result<Option<Exit>> {
        let run = self.own_run.as_deref();
        let outcome = match Outcome::of(record, run) {
            None => return Ok(None),
            Some(Outcome::Cancelled) if self.interrupted_at.is_some() => Outcome::Stopped,
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
    fn take_on_screen(&mut self, record: &Value) -> bool {
        let message = record["message_id"].as_str().unwrap_or_default();
        if record["kind"] == "prompt.queued" && self.queued.contains(message) {
            return true;
        }
        record["kind"] == "message.user" && self.typed_messages.remove(message)
    }
}

/// What the agent says, and not what it thinks on the way.
fn is_answer(record: &Value) -> bool {
    match record["kind"].as_str() {
        Some("message.delta") => record["channel"] != "thought",
        kind => kind == Some("message.completed"),
    }
}
