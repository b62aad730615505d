//! Queued prompts become runs when the run before them has ended. What is due follows from the log:
//! a crash before the delivery leaves the prompt queued, a crash after it leaves a run to be begun.

use std::sync::Arc;

use piton_core::decide::{Command, Decision, Verdict};
use piton_core::{Code, PromptContent};
use piton_store::{Detail, Durability};
use tokio::sync::oneshot;

use super::{Answer, Session};
use crate::error::Result;

impl Session {
    /// Whether a prompt is due that this boot is to deliver. What it says has to be durable before it
    /// can be read.
    pub(super) fn may_deliver(&self) -> bool {
        self.state.facts.has_due_prompt()
            && self.holds_lease()
            && self.inflight.is_empty()
            && self.undelivered_at != Some(self.state.last_seq)
    }

    /// For who found the session with a prompt that is due: a dead boot left it.
    pub(super) async fn deliver_settled(
        &mut self,
        reply: oneshot::Sender<Answer>,
        is_settled: bool,
    ) {
        if !is_settled && !self.settle_orphan().await {
            let _ = reply.send(Answer::Unsettled);
            return;
        }
        self.drain().await;
        self.deliver(Some(reply)).await;
    }

    /// Starts the run of the prompt that is due.
    pub(super) async fn deliver(&mut self, reply: Option<oneshot::Sender<Answer>>) {
        match self.delivery().await {
            Ok(decision) => {
                if decision.records.is_empty() {
                    self.undelivered_at = Some(self.state.last_seq);
                }
                self.append(decision, Durability::Synced, reply);
            }
            Err(error) => {
                self.undelivered_at = Some(self.state.last_seq);
                tracing::error!(session = %self.id, code = %error.code(), %error, "queued prompt not delivered");
                self.refuse(reply, error);
            }
        }
    }

    async fn delivery(&mut self) -> Result<Decision> {
        if let Some(error) = &self.broken {
            return Err(error.clone().into());
        }
        let Some(due) = self.state.due_prompt().map(|prompt| prompt.seq) else {
            return Ok(Decision { records: Vec::new(), outcome: Verdict::Already });
        };
        let records = self.env.store.read(&self.id, due - 1, 1, Detail::Full).await?;
        let record = records.first().filter(|record| record.seq == due);
        let Some(content) = record.and_then(|record| PromptContent::of(record, "content")) else {
            tracing::error!(session = %self.id, seq = due, code = %Code::RecordDamaged, "queued prompt is unreadable");
            return Ok(Decision { records: Vec::new(), outcome: Verdict::Already });
        };
        let command = Command::Deliver { seq: due, content };
        let turns = Arc::clone(&self.env.turns);
        match turns.before_queued_turn(&self.id, &self.state).await {
            Some(start) => {
                let (start, command) = (Box::new(start), Box::new(command));
                self.decide(Command::AtTurnStart { start, command })
            }
            None => self.decide(command),
        }
    }
}
