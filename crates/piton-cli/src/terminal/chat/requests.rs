//! Requests to the server, each in a task of its own: the screen never waits for one.

use piton_api::SessionStatus;
use piton_api::agent_view::AgentView;
use piton_api::client::{Client, Error as ClientError};
use piton_api::graph::GraphQuery;
use piton_api::queue::{PromptAccepted, PromptRequest, Queue, QueuedPrompt};
use piton_api::record::RecordQuery;
use piton_api::rewind::{RewindResult, TurnCheckpointList};
use piton_api::session::{RenameRequest, RunRequest};
use piton_core::graph::CheckpointType;
use piton_core::id::SessionId;
use piton_core::{Code, PromptContent};

use super::{Chat, Left, RECONNECT_EVERY};
use crate::attachment;
use crate::commands::chat::screen::Question;
use crate::commands::sessions::rewind;
use crate::error::{Error, Result};
use crate::terminal::conversation::{Conversation, Item, graph_title};
use crate::terminal::images;
use crate::text::one_line;
use crate::ui::Tone;

/// Records of one page of older messages.
const OLDER_RECORDS: u64 = 500;
const PAGE_RECORDS: usize = 250;
const CHECKPOINTS_SHOWN: usize = 20;
/// Files that a rewind would restore.
const CHANGES_SHOWN: usize = 20;

/// What came of a request.
#[derive(Debug)]
pub(super) enum Done {
    Sent(Result<PromptAccepted, ClientError>),
    /// With the reason that was typed for a rejection.
    Answered(Box<Question>, Option<String>, Result<()>),
    /// A queued prompt was read to be edited.
    ReadQueued(Result<Box<QueuedPrompt>, ClientError>),
    /// A queued prompt has another text, or could not be given this one; without a text it was removed.
    QueueChanged {
        text: Option<String>,
        result: Result<(), ClientError>,
    },
    Acted {
        words: String,
        result: Result<(), ClientError>,
    },
    Rewound(Result<Box<RewindResult>, ClientError>),
    Checkpoints(Result<TurnCheckpointList, ClientError>),
    Queue(Result<Queue, ClientError>),
    Agent(Result<Box<AgentView>, ClientError>),
    Branch(Option<String>),
    Status(Result<Box<SessionStatus>, ClientError>),
    Older {
        items: Vec<Item>,
        from_seq: u64,
    },
    OlderFailed(ClientError),
    Shell {
        command: String,
        output: String,
        code: Option<i32>,
    },
    Rule(Result<String>),
    /// The agent of a session that was returned to is started.
    Opened(Result<(), ClientError>),
    /// The files of the workspace.
    Files(Vec<String>),
    GoTo(Result<SessionId>),
    /// The graph that the session runs: its name, and what it is for.
    Graph(String, String),
}

impl Chat<'_> {
    pub(super) fn spawn(&self, task: impl Future<Output = Done> + Send + 'static) {
        let done = self.done.clone();
        tokio::spawn(async move {
            // The conversation may have ended meanwhile.
            let _ = done.send(task.await);
        });
    }

    /// Does something to the session; says so, or why not.
    pub(super) fn act<F>(&self, words: &str, task: impl FnOnce(Client, SessionId) -> F)
    where
        F: Future<Output = Result<(), ClientError>> + Send + 'static,
    {
        let (words, task) = (words.to_owned(), task(self.client.clone(), self.session.clone()));
        self.spawn(async move { Done::Acted { words, result: task.await } });
    }

    pub(super) fn interrupt_turn(&mut self) {
        self.interrupted_at = Some(std::time::Instant::now());
        self.act("", |client, session| async move {
            client.cancel(&session, &RunRequest::default()).await.map(drop)
        });
    }

    /// A session without an agent runs a graph: its name is shown in the agent's place.
    pub(super) fn look_for_graph(&self, has_agent: bool) {
        if has_agent {
            return;
        }
        let (client, session, done) =
            (self.client.clone(), self.session.clone(), self.done.clone());
        tokio::spawn(async move {
            // It may run none; then there is nothing to show.
            if let Ok(graph) = client.graph(&session, &GraphQuery::default()).await {
                let title = graph_title(&graph.graph, graph.goal.as_deref());
                let _ = done.send(Done::Graph(graph.graph, title));
            }
        });
    }

    /// Sends what was typed first, if nothing is on its way. The same key each time: it arrives once.
    pub(super) fn send_next(&mut self) {
        if self.is_sending || self.awaits_agent {
            return;
        }
        let Some(next) = self.outbox.front().cloned() else { return };
        let content =
            if next.has_images { self.content(&next.text) } else { Ok(next.text.clone().into()) };
        let content = match content {
            Ok(content) => content,
            Err(error) => {
                self.outbox.pop_front();
                self.bring_back(&next.text);
                self.report(&error);
                return;
            }
        };
        self.is_sending = true;
        let (client, session) = (self.client.with_idempotency_key(next.key), self.session.clone());
        self.spawn(async move {
            Done::Sent(client.prompt(&session, &PromptRequest::queued(content)).await)
        });
    }

    /// A prompt with the images that it names.
    fn content(&self, text: &str) -> Result<PromptContent> {
        let home = std::env::home_dir();
        let files = images::named(text, self.folder.as_deref(), home.as_deref());
        attachment::prompt(text.to_owned(), &files)
    }

    /// Asks for what the records say has changed.
    pub(super) fn refresh(&mut self) {
        let stale = self.conversation.stale;
        let (client, session) = (self.client.clone(), self.session.clone());
        if stale.queue && !self.is_loading.0 {
            (self.is_loading.0, self.conversation.stale.queue) = (true, false);
            let (client, session) = (client.clone(), session.clone());
            self.spawn(async move { Done::Queue(client.queue(&session).await) });
        }
        if stale.agent && !self.is_loading.1 {
            (self.is_loading.1, self.conversation.stale.agent) = (true, false);
            let (client, session) = (client.clone(), session.clone());
            self.spawn(async move { Done::Agent(client.agent(&session).await.map(Box::new)) });
        }
        if stale.branch && !self.is_loading.2 {
            (self.is_loading.2, self.conversation.stale.branch) = (true, false);
            self.spawn(async move {
                // A folder that is no repository has no branch to show.
                Done::Branch(client.git_status(&session).await.ok().and_then(|git| git.branch))
            });
        }
    }

    pub(super) fn load_older(&mut self) {
        let Some(transcript) = &mut self.transcript else { return };
        transcript.is_loading = true;
        let before = transcript.from_seq - 1;
        let from = before.saturating_sub(OLDER_RECORDS);
        let (client, session) = (self.client.clone(), self.session.clone());
        self.spawn(async move {
            let mut conversation = Conversation::default();
            let mut after = from;
            while after < before {
                let limit =
                    usize::try_from(before - after).unwrap_or(PAGE_RECORDS).min(PAGE_RECORDS);
                let query = RecordQuery { after: Some(after), limit: Some(limit) };
                match client.records(&session, &query).await {
                    Ok(page) => {
                        page.records.iter().for_each(|record| conversation.apply(record));
                        after = page.next.unwrap_or(before);
                    }
                    Err(error) => return Done::OlderFailed(error),
                }
            }
            Done::Older { items: conversation.items, from_seq: from + 1 }
        });
    }

    pub(super) fn report(&mut self, error: &Error) {
        let lines = error.lines(&self.ui.call);
        let lines: Vec<String> =
            lines.into_iter().map(|(label, text)| format!("{label}: {text}")).collect();
        self.conversation.note(Tone::Bad, lines.join("\n"));
    }

    pub(super) fn finished(&mut self, done: Done) {
        self.is_dirty = true;
        self.take_in(done);
        self.save_draft();
    }

    fn take_in(&mut self, done: Done) {
        match done {
            Done::Sent(result) => self.sent(result),
            Done::Answered(_, reason, Ok(())) => self.release(&reason.unwrap_or_default()),
            Done::Answered(question, reason, Err(error)) => {
                self.report(&error);
                let reason = reason.unwrap_or_default();
                self.release(&reason);
                self.bring_back(&reason);
                // It is asked again, unless the records say that it was answered.
                let is_open = self.conversation.is_asked(&question.wait_id);
                if is_open {
                    self.conversation.questions.insert(0, *question);
                    self.ask_next();
                }
            }
            Done::Acted { result: Err(error), .. } => {
                self.interrupted_at = None;
                self.report(&error.into());
                // What was taken for answered is not.
                self.conversation.stale.queue = true;
            }
            Done::QueueChanged { text, result: Ok(()) } => {
                self.release(text.as_deref().unwrap_or_default());
                let words = match text {
                    None => "The prompt is not queued any more.",
                    Some(_) => "The queued prompt is changed.",
                };
                self.message = Some((Tone::Quiet, words.to_owned()));
            }
            Done::QueueChanged { text, result: Err(error) } => {
                self.report(&error.into());
                self.release(text.as_deref().unwrap_or_default());
                if let Some(text) = text {
                    self.bring_back(&text);
                }
                self.conversation.stale.queue = true;
            }
            Done::ReadQueued(Ok(prompt)) => self.edit_prompt(&prompt),
            Done::ReadQueued(Err(error)) => self.report(&error.into()),
            Done::Rewound(Ok(done)) => self.show_rewound(&done),
            Done::Acted { words, result: Ok(()) } => {
                if !words.is_empty() {
                    self.message = Some((Tone::Quiet, words));
                }
            }
            Done::Queue(result) => {
                self.is_loading.0 = false;
                if let Ok(queue) = result {
                    self.queue = queue.prompts;
                }
            }
            Done::Agent(result) => {
                self.is_loading.1 = false;
                if let Ok(agent) = result {
                    self.agent_known(*agent);
                }
            }
            Done::Branch(branch) => {
                self.is_loading.2 = false;
                self.status.branch = branch.or(self.status.branch.take());
            }
            Done::Status(Ok(status)) => self.show(&status),
            Done::Checkpoints(Ok(list)) => self.show_checkpoints(&list),
            Done::Status(Err(error))
            | Done::Rewound(Err(error))
            | Done::Checkpoints(Err(error)) => {
                self.report(&error.into());
            }
            Done::Older { items, from_seq } => {
                if let Some(transcript) = &mut self.transcript {
                    transcript.add_older(items, from_seq);
                }
            }
            Done::OlderFailed(error) => {
                if let Some(transcript) = &mut self.transcript {
                    transcript.is_loading = false;
                }
                self.report(&error.into());
            }
            Done::Shell { command, output, code } => {
                (self.message, self.shell_stop) = (None, None);
                self.conversation.items.push(Item::Shell { command, output, code });
            }
            Done::Graph(name, title) => {
                self.title.get_or_insert(title);
                self.status.agent = format!("graph {name}");
            }
            Done::Opened(result) => self.agent_started(result),
            Done::Files(files) => self.files_found(files),
            Done::Rule(Ok(words)) => self.conversation.note(Tone::Quiet, words),
            Done::GoTo(Ok(session)) => self.left = Some(Left::To(session)),
            Done::Rule(Err(error)) | Done::GoTo(Err(error)) => self.report(&error),
        }
    }

    /// What a rewind came to, or would come to.
    fn show_rewound(&mut self, done: &RewindResult) {
        let files = done.files.iter().filter(|_| done.dry_run);
        let changes = files.flat_map(|files| &files.changes).take(CHANGES_SHOWN);
        let mut lines: Vec<String> = changes
            .map(|one| {
                let (_, mark) = rewind::mark(one.change.as_str());
                format!("{mark} {}", one_line(&one.path))
            })
            .collect();
        lines.push(rewind::summary(done));
        self.conversation.note(Tone::Plain, lines.join("\n"));
    }

    fn sent(&mut self, result: Result<PromptAccepted, ClientError>) {
        self.is_sending = false;
        match result {
            Ok(accepted) => {
                let Some(sent) = self.outbox.pop_front() else { return };
                if accepted.queued {
                    self.conversation.stale.queue = true;
                } else {
                    self.name_session(&sent.text);
                    self.conversation.accepted(accepted.message_id, sent.text);
                    self.conversation.run_accepted(accepted.run_id, self.cx.now());
                    self.interrupted_at = None;
                }
            }
            // Sent again when there is a server.
            Err(error) if error.is_transient() => {
                self.away_since.get_or_insert_with(std::time::Instant::now);
                let again = std::time::Instant::now() + RECONNECT_EVERY;
                self.retry_at.get_or_insert(again);
                return;
            }
            // The agent takes no images; it may read the files that the text names.
            Err(error)
                if error.code() == Some(Code::ContentNotSupported)
                    && self.outbox.front().is_some_and(|sent| sent.has_images) =>
            {
                if let Some(sent) = self.outbox.front_mut() {
                    sent.has_images = false;
                    sent.key.push_str("-text");
                }
                let text = "The agent takes no images: the prompt is sent with their names alone.";
                self.conversation.note(Tone::Attention, text);
            }
            Err(error) => {
                if let Some(refused) = self.outbox.pop_front() {
                    self.bring_back(&refused.text);
                }
                self.report(&error.into());
            }
        }
        self.save_draft();
        self.send_next();
    }

    /// A session without a title is called after its first prompt.
    fn name_session(&mut self, prompt: &str) {
        if self.title.is_some() {
            return;
        }
        let title: String =
            prompt.trim().lines().next().unwrap_or_default().chars().take(80).collect();
        self.title = Some(title.clone());
        let request = RenameRequest { title: Some(title) };
        self.act("", |client, session| async move {
            client.rename_session(&session, &request).await.map(drop)
        });
    }

    fn agent_known(&mut self, agent: AgentView) {
        let current = |list: &Option<piton_api::agent_view::ChoiceList>| {
            let list = list.as_ref()?;
            let id = list.current.as_ref()?;
            let name = list.available.iter().find(|one| one.id == *id).map(|one| one.name.clone());
            Some(name.unwrap_or_else(|| id.clone()))
        };
        self.status.model = current(&agent.models);
        self.status.mode = current(&agent.modes);
        if let Some(usage) = &agent.usage {
            let full = usage.context_tokens.zip(usage.context_window_tokens);
            self.status.context = full.and_then(|(used, all)| (used * 100).checked_div(all));
            let cost = usage.cost.as_ref();
            self.status.cost = cost.map(|cost| format!("{:.2} {}", cost.amount, cost.currency));
        }
        self.agent = Some(agent);
    }

    /// The newest of them; `/rewind` and `piton sessions checkpoints` take all.
    fn show_checkpoints(&mut self, list: &TurnCheckpointList) {
        let live = list.checkpoints.iter().filter(|one| one.is_live);
        let mut lines: Vec<String> = live
            .take(CHECKPOINTS_SHOWN)
            .map(|one| {
                let id = one.checkpoint_id.as_str();
                // Ids begin alike.
                let end = id.get(id.len().saturating_sub(8)..).unwrap_or(id);
                let is_start = one.checkpoint_type == CheckpointType::TurnStart;
                let place = if is_start { "before" } else { "after" };
                let files = if one.has_files { "" } else { ", without files" };
                let at = one.created_at.to_string();
                format!("{end}  {place} a turn{files}  {}", at.get(11..19).unwrap_or(&at))
            })
            .collect();
        lines.push(if lines.is_empty() {
            "There are no checkpoints yet: one is made before and after each turn.".to_owned()
        } else {
            "/rewind ID goes back to one. One is made before and after each turn.".to_owned()
        });
        self.conversation.note(Tone::Plain, lines.join("\n"));
    }

    fn show(&mut self, status: &SessionStatus) {
        let summary = &status.summary;
        let mut lines = vec![
            format!("session  {}", summary.session_id),
            format!("status   {}: {}", summary.status.as_str(), summary.sentence),
        ];
        lines.extend(summary.title.as_ref().map(|title| format!("title    {title}")));
        lines.extend(summary.working_dir.as_ref().map(|folder| format!("folder   {folder}")));
        lines.extend(
            status.context_sentence.as_ref().map(|sentence| format!("context  {sentence}")),
        );
        if let Some(usage) = self.agent.as_ref().and_then(|agent| agent.usage.as_ref()) {
            let count =
                |count: Option<u64>| count.map_or("?".to_owned(), |count| count.to_string());
            lines.push(format!(
                "tokens   {} in, {} out in the last turn",
                count(usage.input_tokens),
                count(usage.output_tokens)
            ));
        }
        lines.extend(status.error_message.as_ref().map(|error| format!("error    {error}")));
        self.conversation.note(Tone::Plain, lines.join("\n"));
    }
}
