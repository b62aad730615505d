//! What an agent is given with a prompt: what was said, and, once, what it does not know. Written to
//! the log before it is given.

use std::collections::BTreeSet;
use std::time::Duration;

use piton_core::content::{BLOCKS_MAX, Block, BlockKind};
use piton_core::decide::{Command, Prepare};
use piton_core::event::{Event, Seq, WaitKind};
use piton_core::graph::Segment;
use piton_core::history::HistoryBuilder;
use piton_core::id::{CallId, MessageId, SessionId};
use piton_core::interruption_summary::{self, Findings, Truth};
use piton_core::limits::PAYLOAD_BYTES_MAX;
use piton_core::spool::Channel;
use piton_core::state::{Effect, InterruptedWork, UndeliveredPrompt};
use piton_core::tool_text::{self, ToolText};
use piton_core::turns::is_live;
use piton_core::undelivered;
use piton_core::{Code, PromptContent, Record, State};
use piton_exec::executor::{At, Fault};
use piton_exec::protocol::workspace::{self, TRUTH_PATHS_MAX, TruthRequest};
use piton_exec::protocol::{Act, Withdrawn};
use piton_store::Detail;
use serde_json::Value;

use super::Executions;
use super::driving::CONTINUE_PROMPT;
use crate::error::{Error, Result};
use crate::interfaces::EffectJob;
use crate::service::Handle;

/// Records that are read at once.
const PAGE_RECORDS: u64 = 256;
/// Of an answer that was cut off, so many records.
const ANSWER_RECORDS_MAX: u64 = 64;
/// Behind a call, as many records are looked at for what it was made with.
const CALL_RECORDS_MAX: u64 = 256;
/// The workspace is asked for so long; without an answer the summary says so.
const TRUTH_TIMEOUT: Duration = Duration::from_secs(5);

impl Executions {
    /// What this execution's agent is given with a prompt. Asked again it is the same.
    pub(super) async fn prompt(
        &self,
        handle: &Handle,
        at: &At,
        state: &State,
        job: &EffectJob,
    ) -> Result<PromptContent> {
        let of_seq = job.cause.seq;
        let settled = self.settle_undelivered(handle, at, state, of_seq).await?;
        let state = settled.as_ref().unwrap_or(state);
        let prepared = state.prepared.as_ref().filter(|p| p.execution_id == at.execution);
        let executor = state.facts.executor.as_ref();
        let has_summary =
            executor.and_then(|executor| executor.promised).is_some_and(|promised| promised.note);
        let due: Vec<_> = undelivered::due(state, &at.execution, of_seq).collect();
        let undelivered = self.said(&at.session, &due).await?;
        // A run that is continued with the prompt that no agent was given needs no other request.
        let is_whole = !undelivered.is_empty()
            && job.message.is_none()
            && state.pending_context.is_undelivered(job.effect.run_id());
        let said = job.message.clone().unwrap_or_else(|| CONTINUE_PROMPT.into());
        let attached = attachments(state, &undelivered, &said);
        let prepared = prepared.filter(|p| p.of_seq == of_seq);
        if let Some(prepared) = prepared
            && let Some(text) = self.text_at(&at.session, prepared.seq, "prompt").await?
        {
            return Ok(said.with_text(text).with_attachments(attached));
        }
        let note = has_summary && (state.pending_context.note.is_some() || !undelivered.is_empty());
        let history = state.pending_context.history;
        if !note && !history && undelivered.is_empty() {
            return Ok(said);
        }
        // Attachments are named in it, and come behind it.
        let mut prompt = said.text();
        let texts = undelivered.iter().map(PromptContent::text);
        if note {
            let mut findings = match &state.pending_context.note {
                Some(lost) => self.findings(&at.session, lost).await?,
                None => Findings::default(),
            };
            findings.undelivered = texts.collect();
            findings.is_continued = job.message.is_none();
            match self.truth(at, &findings.calls).await {
                Ok(truth) => findings.truth = Some(truth),
                Err(why) => findings.truth_error = Some(why),
            }
            prompt = interruption_summary::text(&findings, &prompt);
        } else {
            // Without a summary they are delivered as they were said.
            let request = (!is_whole).then_some(prompt);
            prompt = texts.chain(request).collect::<Vec<_>>().join("\n\n");
        }
        if history {
            let before = match job.effect {
                Effect::Begin { message_seq: Some(seq), .. } => seq,
                _ => of_seq,
            };
            let segments = state.turns.live_segments(state.last_seq);
            let gathered = self.gathered(&at.session, before, segments.as_deref()).await?;
            if let Some(carried) = gathered.text(&prompt).map_err(unreadable(&at.session))? {
                prompt = carried;
            }
        }
        let execution_id = at.execution.clone();
        let prepare = Prepare { of_seq, execution_id, history, note, prompt: prompt.clone() };
        handle.execute(&at.session, Command::Prepare(prepare)).await?;
        Ok(said.with_text(prompt).with_attachments(attached))
    }

    /// Learns from agentctl which prompts that count as undelivered its agent was given after all, and
    /// withdraws the others, so that they are given once. The state after it, if that is another.
    async fn settle_undelivered(
        &self,
        handle: &Handle,
        at: &At,
        state: &State,
        of_seq: Seq,
    ) -> Result<Option<State>> {
        let mut is_changed = false;
        for command_seq in undelivered::unsettled(state, &at.execution, of_seq) {
            let command_id = Effect::key(&at.session, command_seq);
            let id = format!("{}/withdraw/{command_seq}", at.execution);
            let accepted = match self.tell(at, id, Act::Withdraw { command_id }).await {
                // What is not understood counts as accepted: not given again is better than given twice.
                Ok(reply) => serde_json::from_value::<Withdrawn>(reply.result)
                    .map_or(true, |withdrawn| withdrawn.accepted),
                // So it does at an agentctl of an earlier version, which cannot withdraw.
                Err(Error::Agentctl(Fault::Problem(problem)))
                    if problem.code == Code::RequestInvalid =>
                {
                    true
                }
                Err(error) => return Err(error),
            };
            if accepted {
                handle.execute(&at.session, Command::Done { of_seq: command_seq }).await?;
                is_changed = true;
            }
        }
        if is_changed { Ok(Some(handle.state(&at.session).await?)) } else { Ok(None) }
    }

    /// What these prompts say, oldest first.
    async fn said(
        &self,
        session: &SessionId,
        prompts: &[&UndeliveredPrompt],
    ) -> Result<Vec<PromptContent>> {
        let mut found = Vec::new();
        for undelivered in prompts {
            let record = self.record_at(session, undelivered.said.seq).await?;
            found.extend(record.and_then(|record| PromptContent::of(&record, "content")));
        }
        Ok(found)
    }

    async fn record_at(&self, session: &SessionId, seq: Seq) -> Result<Option<Record>> {
        let records = self.0.store.read(session, seq - 1, 1, Detail::Full).await?;
        Ok(records.into_iter().next().filter(|record| record.seq == seq))
    }

    /// What a prompt in the log says; attachments are named.
    async fn prompt_text_at(&self, session: &SessionId, seq: Seq) -> Result<Option<String>> {
        let record = self.record_at(session, seq).await?;
        let content = record.and_then(|record| PromptContent::of(&record, "content"));
        Ok(content.map(|content| content.text()))
    }

    async fn text_at(&self, session: &SessionId, seq: Seq, field: &str) -> Result<Option<String>> {
        let found = self.record_at(session, seq).await?;
        let content = found.and_then(|record| record.content_field(field));
        Ok(content.as_ref().and_then(interruption_summary::content_text))
    }

    /// What the log has before a record, the newest of it, without what a rewind left behind.
    async fn gathered(
        &self,
        session: &SessionId,
        before: Seq,
        segments: Option<&[Segment]>,
    ) -> Result<HistoryBuilder> {
        let limits = self.handle().await?.settings().limits.history;
        let mut gathering = HistoryBuilder::new(limits);
        let mut end = before - 1;
        while gathering.wants_more() && end > 0 {
            let after = end.saturating_sub(PAGE_RECORDS);
            let mut page = self.read_up_to(session, after, end).await?;
            page.retain(|record| record.seq <= end && is_live(segments, record.seq));
            gathering.take(page).map_err(unreadable(session))?;
            end = after;
        }
        Ok(gathering)
    }

    /// The records behind `after`, up to and with `end`: a read may give fewer than it was asked for.
    async fn read_up_to(&self, session: &SessionId, after: Seq, end: Seq) -> Result<Vec<Record>> {
        let (mut records, mut after) = (Vec::new(), after);
        while after < end {
            let limit = usize::try_from(end - after).unwrap_or(usize::MAX);
            let page = self.0.store.read(session, after, limit, Detail::Full).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            records.extend(page);
        }
        Ok(records)
    }

    async fn findings(&self, session: &SessionId, lost: &InterruptedWork) -> Result<Findings> {
        let mut findings = Findings {
            interruption: Some(lost.reason),
            activity: lost.activity,
            calls_total: lost.calls_total,
            ..Findings::default()
        };
        if let Some(seq) = lost.prompt_seq {
            findings.prompt = self.prompt_text_at(session, seq).await?;
        }
        for seq in &lost.calls {
            let Some(record) = self.record_at(session, *seq).await? else { continue };
            if let Ok(Event::ToolIntent(e)) = record.event() {
                let call = ToolText::new(&e.name, record.content_field("arguments"));
                findings.calls.push(self.updated(session, call, &e.call_id, *seq, lost.seq).await?);
            }
        }
        for seq in &lost.questions {
            findings.questions.extend(self.question_line(session, *seq).await?);
        }
        if let Some(message) = &lost.message {
            findings.answer = self.answer(session, message, lost.seq).await?;
        }
        Ok(findings)
    }

    /// A question as one line; of a permission what every client shows of it.
    async fn question_line(&self, session: &SessionId, seq: Seq) -> Result<Option<String>> {
        let Some(record) = self.record_at(session, seq).await? else { return Ok(None) };
        let Some(question) = record.content_field("question") else { return Ok(None) };
        let is_permission = matches!(
            record.event(),
            Ok(Event::RunWaiting(e)) if e.wait_kind == WaitKind::Permission
        );
        if !is_permission {
            return Ok(Some(tool_text::question_line(&question)));
        }
        let handle = self.handle().await?;
        let request = handle.view().permission_request(session, seq, &question).await;
        Ok(Some(tool_text::permission_line(&request)))
    }

    /// Some agents announce a call first, and say with what when they make it.
    async fn updated(
        &self,
        session: &SessionId,
        mut call: ToolText,
        call_id: &CallId,
        after: Seq,
        end: Seq,
    ) -> Result<ToolText> {
        let end = end.min(after + CALL_RECORDS_MAX);
        for record in self.read_up_to(session, after, end).await? {
            match record.event() {
                Ok(Event::ToolUpdated(e)) if e.call_id == *call_id => {
                    if let Some(update) = record.content_field("update") {
                        call.update(&update);
                    }
                }
                // Some say it only when they ask for permission.
                Ok(Event::RunWaiting(_)) => {
                    if let Some(question) = record.content_field("question")
                        && question["call_id"].as_str() == Some(call_id.as_str())
                        && let Some(asked) = question.get("toolCall")
                    {
                        call.update(asked);
                    }
                }
                _ => {}
            }
        }
        Ok(call)
    }

    /// The end of a message that was cut off.
    async fn answer(&self, session: &SessionId, message: &MessageId, end: Seq) -> Result<String> {
        let after = end.saturating_sub(ANSWER_RECORDS_MAX);
        let mut answer = String::new();
        for record in self.read_up_to(session, after, end).await? {
            match record.event() {
                Ok(Event::MessageDelta(e))
                    if e.message_id == *message && e.channel == Channel::Answer =>
                {
                    if let Some(Value::String(text)) = record.content_field("text") {
                        answer.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        Ok(answer)
    }

    /// What the workspace says, also of the paths that these calls name; or why it says nothing.
    async fn truth(&self, at: &At, calls: &[ToolText]) -> Result<Truth, String> {
        let handle = self.handle().await.map_err(|error| error.to_string())?;
        let paths: BTreeSet<String> = calls.iter().flat_map(ToolText::paths).collect();
        let request = TruthRequest {
            files_max: Some(handle.settings().limits.changed_files),
            paths: paths.into_iter().take(TRUTH_PATHS_MAX).collect(),
        };
        let asking = async {
            let client = self.0.executor.client(at).await.map_err(|error| error.to_string())?;
            client.truth(&request).await.map_err(|error| error.to_string())
        };
        let seconds = TRUTH_TIMEOUT.as_secs();
        let late = |_| format!("it did not answer within {seconds} seconds");
        let truth = tokio::time::timeout(TRUTH_TIMEOUT, asking).await.map_err(late)??;
        if !truth.repository {
            return Err("the folder is in no git repository".to_owned());
        }
        let workspace::Truth { branch, head, changed, more, stat, truncated, paths, .. } = truth;
        let changed = changed.into_iter().map(|change| (change.status, change.path)).collect();
        Ok(Truth { branch, head, changed, more, stat, truncated, paths })
    }
}

/// What came with undelivered prompts, as far as the agent takes it and one command can carry it. The
/// text names all of it.
fn attachments(state: &State, undelivered: &[PromptContent], said: &PromptContent) -> Vec<Block> {
    let capabilities = state.facts.agent.as_ref().and_then(|agent| agent.capabilities);
    let takes = capabilities.map(|capabilities| capabilities.prompt).unwrap_or_default();
    let own: usize = said.blocks().iter().map(Block::bytes).sum();
    let mut left = PAYLOAD_BYTES_MAX.saturating_sub(own);
    let blocks = undelivered.iter().flat_map(PromptContent::blocks);
    let attached = blocks.filter(|block| block.kind() != BlockKind::Text);
    attached
        .filter(|block| takes.takes(block.kind()))
        .take_while(|block| {
            let rest = left.checked_sub(block.bytes());
            left = rest.unwrap_or_default();
            rest.is_some()
        })
        .take(BLOCKS_MAX.saturating_sub(said.blocks().len()))
        .cloned()
        .collect()
}

fn unreadable(session: &SessionId) -> impl Fn(piton_core::event::ParseError) -> crate::Error {
    let session = session.clone();
    move |error| {
        let source: piton_store::Cause = std::sync::Arc::new(error);
        let (session, source) = (session.clone(), Some(source));
        piton_store::Error::RecordDamaged { session, seq: 0, source }.into()
    }
}
