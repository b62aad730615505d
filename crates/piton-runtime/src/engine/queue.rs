//! Prompts, and the queue that they wait in while a run is open: given, listed, edited, moved, removed,
//! released. The records of the session are the queue; it is lost with no client and no process.

use piton_core::content::PromptCapabilities;
use piton_core::decide::{Command, IfBusy, Message, Prompt, QueuePosition, Refusal, Verdict};
use piton_core::id::{MessageId, RunId, SessionId};
use piton_core::resume::can_prompt;
use piton_core::state::{ExecutorStatus, QueuedPrompt};
use piton_core::{Code, PromptContent, Seq, State, Timestamp};
use piton_store::Detail;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::requests::{Request, value};
use super::snapshots::BeforeTurn;
use super::{Caller, Engine, Fulfilled, Writer};
use crate::error::{Error, Result};

/// A larger prompt is listed without its content, which its own operation has.
const LISTED_BYTES_MAX: usize = 16 * 1024;
/// Characters of a listed prompt's text.
const LISTED_CHARS_MAX: usize = 4_000;

/// What became of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompted {
    /// The run that it started, or will start.
    pub run_id: RunId,
    pub message_id: MessageId,
    /// The agent still starts: whether the prompt is delivered is not known yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
    /// It waits for the run to end.
    #[serde(default)]
    pub queued: bool,
    /// Its place in the queue; the first is 1.
    #[serde(default)]
    pub position: Option<u32>,
}

/// A prompt that waits for the run to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPromptReport {
    pub message_id: MessageId,
    pub run_id: RunId,
    /// The first is 1.
    pub position: u32,
    /// Another one after each edit.
    pub version: Seq,
    pub queued_at: Timestamp,
    pub held: bool,
    /// What it says, attachments named; the beginning, if it is long.
    pub text: String,
    /// `None` if it is large and all are listed.
    pub content: Option<PromptContent>,
}

/// The queue of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    pub session_id: SessionId,
    pub prompts: Vec<QueuedPromptReport>,
    pub max: usize,
}

/// The queue that a request changed, and the prompt that it was about, if it was about one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedQueue {
    pub session_id: SessionId,
    pub message_id: Option<MessageId>,
}

impl Engine {
    /// Starts a run with a prompt; while a run is open, as [`IfBusy::Default`] says.
    pub async fn prompt(
        &self,
        caller: &Caller,
        session: &SessionId,
        content: impl Into<PromptContent>,
    ) -> Result<Fulfilled<Prompted>> {
        self.prompt_if_busy(caller, session, content, IfBusy::Default).await
    }

    /// Starts a run with a prompt, or does as `if_busy` says while a run is open. The agent is started
    /// for it if the restart policy allows that.
    pub async fn prompt_if_busy(
        &self,
        caller: &Caller,
        session: &SessionId,
        content: impl Into<PromptContent>,
        if_busy: IfBusy,
    ) -> Result<Fulfilled<Prompted>> {
        self.running()?;
        let content = content.into();
        check(&content)?;
        let arguments = match if_busy {
            IfBusy::Default => json!({"content": value(&content)?}),
            if_busy => json!({"content": value(&content)?, "if_busy": if_busy}),
        };
        let request = Request::new(caller, "sessions.prompt", session, &arguments)?;
        let state = self.view().state(session).await?;
        if let Some(replayed) = self.find_replay(session, &state.requests, &request).await? {
            return self.replayed_prompt(session, replayed).await;
        }
        let executor = state.facts.executor.as_ref().filter(|_| state.facts.closed.is_none());
        let is_unreachable =
            executor.is_some_and(|executor| executor.status == ExecutorStatus::Unreachable);
        // What is queued needs no executor now.
        if is_unreachable && !will_queue(&state, if_busy) {
            return Err(self.view().start_failure(session, &state).await.into());
        }
        self.catalog().require_named(&state)?;
        let restart = self.policy().agent_restart;
        if state.facts.closed.is_none() && !can_prompt(&state.facts, restart) {
            return Err(Error::AgentNotRunning);
        }
        self.check_taken(&state, &content)?;
        let (run_id, message_id) = (self.ids().run()?, self.ids().message()?);
        let mut prompted = Prompted {
            run_id: run_id.clone(),
            message_id: message_id.clone(),
            pending: false,
            queued: false,
            position: None,
        };
        let started = run_id.clone();
        let message = Message { message_id, content };
        let (position, queue_max) = (QueuePosition::Last, self.settings().limits.queued_prompts);
        let command = Command::Prompt(Prompt { run_id, message, if_busy, position, queue_max });
        let command = self.at_turn_start(session, &state, if_busy, command).await;
        let kept = Some(value(&prompted)?);
        let ack = self.write(session, self.requested(&request, kept, command)).await?;
        match ack.verdict {
            Verdict::Repeated { seq } => {
                let replayed = self.replay(session, seq).await?;
                return self.replayed_prompt(session, replayed).await;
            }
            Verdict::Queued { position } => {
                (prompted.queued, prompted.position) = (true, Some(position));
            }
            _ if !state.facts.can_receive() => {
                prompted.pending = !self.await_delivery(session, &started).await?;
            }
            _ => {}
        }
        Ok(Fulfilled::new(prompted))
    }

    /// A prompt that was accepted before, under the same key. Its record does not say what became of the
    /// start that it needed: that is answered as it is now, as the first time.
    async fn replayed_prompt(
        &self,
        session: &SessionId,
        mut replayed: Fulfilled<Prompted>,
    ) -> Result<Fulfilled<Prompted>> {
        let prompted = &mut replayed.response;
        if !prompted.queued {
            prompted.pending = !self.await_delivery(session, &prompted.run_id).await?;
        }
        Ok(replayed)
    }

    /// The command with the checkpoint that its turn begins with. What is queued gets its checkpoint when
    /// it is delivered.
    async fn at_turn_start(
        &self,
        session: &SessionId,
        state: &State,
        if_busy: IfBusy,
        command: Command,
    ) -> Command {
        let Writer::Running(running) = &self.0.writer else { return command };
        let Some(snapshots) = running.snapshots.as_ref().filter(|_| !will_queue(state, if_busy))
        else {
            return command;
        };
        match snapshots.before_turn(session, state, BeforeTurn::InRequest).await {
            Some(start) => {
                Command::AtTurnStart { start: Box::new(start), command: Box::new(command) }
            }
            None => command,
        }
    }

    /// Refuses what the session's agent is known not to take. What an agent takes that was never
    /// started is not known: it refuses the prompt itself, and the run fails with the same code.
    fn check_taken(&self, state: &State, content: &PromptContent) -> Result<()> {
        let is_one_shot = self.catalog().of(state).is_ok_and(|profile| !profile.is_acp());
        let said = state.facts.agent.as_ref().and_then(|agent| agent.capabilities);
        let known = match said {
            _ if is_one_shot => Some(PromptCapabilities::default()),
            said => said.map(|capabilities| capabilities.prompt),
        };
        match known.and_then(|known| content.first_unsupported(known)) {
            Some(kind) => Err(Error::ContentNotSupported { kind }),
            None => Ok(()),
        }
    }

    /// The prompts that wait, in the order of their delivery. Also of a closed session.
    pub async fn queue(&self, session: &SessionId) -> Result<QueueReport> {
        let state = self.view().state(session).await?;
        self.queue_of(session, &state).await
    }

    /// The same, as of a state.
    pub async fn queue_of(&self, session: &SessionId, state: &State) -> Result<QueueReport> {
        let mut prompts = Vec::with_capacity(state.queue.len());
        for (at, queued) in state.queue.iter().enumerate() {
            let (report, bytes) = self.report(session, at, queued).await?;
            let content = report.content.filter(|_| bytes <= LISTED_BYTES_MAX);
            let text = cut(report.text, LISTED_CHARS_MAX);
            prompts.push(QueuedPromptReport { text, content, ..report });
        }
        Ok(QueueReport {
            session_id: session.clone(),
            prompts,
            max: self.settings().limits.queued_prompts,
        })
    }

    /// One queued prompt, however large it is.
    pub async fn queued_prompt(
        &self,
        session: &SessionId,
        message_id: &MessageId,
    ) -> Result<QueuedPromptReport> {
        let state: State = self.view().state(session).await?;
        self.report_of(session, &state, message_id).await
    }

    async fn report_of(
        &self,
        session: &SessionId,
        state: &State,
        message_id: &MessageId,
    ) -> Result<QueuedPromptReport> {
        let at = state.queue.iter().position(|queued| queued.message_id == *message_id);
        let not_found = || Refusal::QueuedPromptNotFound { message: message_id.clone() };
        let at = at.ok_or_else(not_found)?;
        Ok(self.report(session, at, &state.queue[at]).await?.0)
    }

    /// A prompt, and how many bytes its content has in the log.
    async fn report(
        &self,
        session: &SessionId,
        at: usize,
        queued: &QueuedPrompt,
    ) -> Result<(QueuedPromptReport, usize)> {
        let records = self.0.store.read(session, queued.seq - 1, 1, Detail::Full).await?;
        let record = records.first().filter(|record| record.seq == queued.seq);
        let bytes = record.map_or(0, |record| match &record.content {
            piton_core::Content::Json(json) => json.len(),
            _ => 0,
        });
        let content = record.and_then(|record| PromptContent::of(record, "content"));
        let report = QueuedPromptReport {
            message_id: queued.message_id.clone(),
            run_id: queued.run_id.clone(),
            position: u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1),
            version: queued.seq,
            queued_at: queued.queued_at,
            held: queued.held,
            text: content.as_ref().map(PromptContent::text).unwrap_or_default(),
            content,
        };
        Ok((report, bytes))
    }

    /// Changes what a queued prompt says. `version`: refused if another edit came first.
    pub async fn edit_queued(
        &self,
        caller: &Caller,
        session: &SessionId,
        message_id: MessageId,
        version: Option<Seq>,
        content: impl Into<PromptContent>,
    ) -> Result<Fulfilled<AffectedQueue>> {
        let content = content.into();
        check(&content)?;
        self.check_taken(&self.view().state(session).await?, &content)?;
        let arguments =
            json!({"message_id": message_id, "version": version, "content": value(&content)?});
        let command = Command::EditQueued { message_id: message_id.clone(), version, content };
        self.change_queue(caller, session, "queue.edit", &arguments, Some(message_id), command)
            .await
    }

    /// Changes the text of a queued prompt; its attachments stay.
    pub async fn edit_queued_text(
        &self,
        caller: &Caller,
        session: &SessionId,
        message_id: MessageId,
        version: Option<Seq>,
        text: String,
    ) -> Result<Fulfilled<AffectedQueue>> {
        let arguments = json!({"message_id": message_id, "version": version, "text": text});
        let request = Request::new(caller, "queue.edit", session, &arguments)?;
        let changed =
            AffectedQueue { session_id: session.clone(), message_id: Some(message_id.clone()) };
        loop {
            let state = self.view().state(session).await?;
            if let Some(replayed) = self.find_replay(session, &state.requests, &request).await? {
                return Ok(replayed);
            }
            let queued = self.report_of(session, &state, &message_id).await?;
            let content = queued.content.ok_or_else(|| unreadable(session, queued.version))?;
            let content = content.with_text(text.clone());
            check(&content)?;
            self.check_taken(&state, &content)?;
            // What another edit attached meanwhile is not undone.
            let expected = Some(version.unwrap_or(queued.version));
            let message_id = message_id.clone();
            let command = Command::EditQueued { message_id, version: expected, content };
            match self.execute(session, &request, changed.clone(), command).await {
                Err(error) if version.is_none() && error.code() == Code::QueuedPromptConflict => {}
                edited => return edited,
            }
        }
    }

    /// Gives a queued prompt another place; the first is 1, and what is behind the end is the last.
    pub async fn move_queued(
        &self,
        caller: &Caller,
        session: &SessionId,
        message_id: MessageId,
        position: u32,
    ) -> Result<Fulfilled<AffectedQueue>> {
        if position == 0 {
            return Err(Error::Invalid("position begins with 1".to_owned()));
        }
        let arguments = json!({"message_id": message_id, "position": position});
        let command = Command::MoveQueued { message_id: message_id.clone(), position };
        self.change_queue(caller, session, "queue.move", &arguments, Some(message_id), command)
            .await
    }

    /// Takes a queued prompt out: it is not delivered.
    pub async fn remove_queued(
        &self,
        caller: &Caller,
        session: &SessionId,
        message_id: MessageId,
        version: Option<Seq>,
    ) -> Result<Fulfilled<AffectedQueue>> {
        let arguments = json!({"message_id": message_id, "version": version});
        let command = Command::RemoveQueued { message_id: message_id.clone(), version };
        self.change_queue(caller, session, "queue.remove", &arguments, Some(message_id), command)
            .await
    }

    /// Has the prompts delivered that an interruption, a failure or a cancellation held.
    pub async fn release_queue(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<Fulfilled<AffectedQueue>> {
        let command = Command::ReleaseQueue;
        self.change_queue(caller, session, "queue.release", &json!({}), None, command).await
    }

    async fn change_queue(
        &self,
        caller: &Caller,
        session: &SessionId,
        action: &'static str,
        arguments: &serde_json::Value,
        message_id: Option<MessageId>,
        command: Command,
    ) -> Result<Fulfilled<AffectedQueue>> {
        let request = Request::new(caller, action, session, arguments)?;
        let changed = AffectedQueue { session_id: session.clone(), message_id };
        self.execute(session, &request, changed, command).await
    }
}

/// Whether a prompt would wait for the run or the rewind that is open, or be refused because of it.
fn will_queue(state: &State, if_busy: IfBusy) -> bool {
    let run = state.facts.run.as_ref().filter(|run| run.is_unfinished());
    if state.facts.restore.is_some() {
        return true;
    }
    match if_busy {
        IfBusy::Queue => run.is_some(),
        IfBusy::Default => run.is_some_and(|run| run.is_open() && !run.is_waiting()),
        IfBusy::Reject | IfBusy::Supersede => false,
    }
}

fn unreadable(session: &SessionId, seq: Seq) -> Error {
    piton_store::Error::RecordDamaged { session: session.clone(), seq, source: None }.into()
}

pub(super) fn check(content: &PromptContent) -> Result<()> {
    content.check().map_err(|error| Error::Invalid(error.to_string()))
}

fn cut(mut text: String, chars_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
        text.push('…');
    }
    text
}
