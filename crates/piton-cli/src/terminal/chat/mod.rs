//! One conversation on the screen: records and keys in, rows and requests out.

mod answers;
mod drafts;
mod drawing;
mod lifecycle;
mod lines;
mod outside;
mod paging;
mod requests;
pub(super) mod rules;
mod shell;
mod typing;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use piton_api::SessionStatus;
use piton_api::agent_view::AgentView;
use piton_api::client::{Client, Records};
use piton_api::queue::QueuedPrompt;
use piton_core::id::SessionId;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::asking::Asking;
use super::conversation::{AgentState, Conversation};
use super::display::{Full, Inline, Raw, wraps_again};
use super::editor::Editor;
use super::human;
use super::input::{Reader, Typed};
use super::keys::Decoder;
use super::memory::{Draft, History};
use super::popup::Popup;
use super::transcript::Transcript;
use super::view::Status;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::{Tone, Ui};
use requests::Done;
pub(crate) use typing::first_line;

/// Records at the end of a log that are shown when a session is opened. The rest is read when the
/// transcript is scrolled to it.
const TAIL_RECORDS: u64 = 400;
/// A moment after which a lone escape is the key itself.
const ESCAPE_DELAY: Duration = Duration::from_millis(30);
const FRAME_EVERY: Duration = Duration::from_millis(120);
/// The screen is drawn at most this often, whatever happens.
const DRAW_EVERY: Duration = Duration::from_millis(16);
const RECONNECT_EVERY: Duration = Duration::from_millis(200);

/// How the conversation ended.
#[derive(Debug)]
pub(crate) enum Left {
    Quit,
    /// On to another session.
    To(SessionId),
    /// On to a new one in the same folder.
    New,
}

/// A prompt that the server has not accepted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outgoing {
    text: String,
    key: String,
    /// The images that it names go with it: the agent is not known to take none.
    has_images: bool,
}

/// What the next line is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Purpose {
    #[default]
    Prompt,
    /// Why a request is rejected: its wait and the option that rejects.
    Rejection { wait_id: String, option_id: String },
    /// The answer of a question without options.
    Answer { wait_id: String },
    /// Another text for a queued prompt.
    QueueEdit { message_id: String, version: u64, has_attachments: bool },
}

/// The files of the workspace, for the choice behind `@`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Files {
    #[default]
    Unknown,
    /// They are being looked for.
    Wanted {
        /// Tab was pressed since: the first that fits is taken.
        is_tab: bool,
    },
    Known(Vec<String>),
}

/// Ctrl-R.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Search {
    /// What was typed before; it comes back when the search is given up.
    typed: String,
    query: String,
    at: usize,
}

#[derive(Debug)]
pub(crate) struct Chat<'a> {
    ui: &'a mut Ui,
    cx: &'a Context,
    client: Client,
    session: SessionId,
    folder: Option<PathBuf>,
    title: Option<String>,
    /// The kind of executor, if the agent does not run on this machine.
    runtime: Option<String>,
    conversation: Conversation,
    /// Items whose rows are in the terminal's scrollback, and how much of the next one.
    printed_items: usize,
    printed_bytes: usize,
    editor: Editor,
    purpose: Purpose,
    /// What was being typed before the purpose changed.
    stashed: String,
    history: History,
    search: Option<Search>,
    /// Ends the shell line that runs.
    shell_stop: Option<tokio::sync::oneshot::Sender<()>>,
    /// The rule that was shown for the request, and is written if that is confirmed next.
    rule_shown: Option<String>,
    popup: Option<Popup>,
    /// The choices were closed for this text.
    popup_closed_for: Option<String>,
    files: Files,
    draft: Option<Draft>,
    asking: Option<Asking>,
    key_delay: Duration,
    queue: Vec<QueuedPrompt>,
    outbox: VecDeque<Outgoing>,
    is_sending: bool,
    /// Reasons, answers and changes of the queue that the server has not accepted yet.
    unaccepted: Vec<String>,
    agent: Option<AgentView>,
    status: Status,
    message: Option<(Tone, String)>,
    transcript: Option<Transcript>,
    full: Full,
    first_seq: u64,
    inline: Inline,
    raw: Option<Raw>,
    reader: Option<Reader>,
    decoder: Decoder,
    undecided_since: Option<Instant>,
    done: mpsc::UnboundedSender<Done>,
    frame: usize,
    interrupted_at: Option<Instant>,
    /// When Ctrl-C was pressed without a turn, if nothing was since.
    cleared_at: Option<Instant>,
    /// The agent starts: nothing is sent before it is ready.
    awaits_agent: bool,
    /// What records up to here say of it is past.
    awaits_since: u64,
    away_since: Option<Instant>,
    retry_at: Option<Instant>,
    is_loading: (bool, bool, bool),
    drawn_at: Option<Instant>,
    is_dirty: bool,
    started_at: Instant,
    next_key: u64,
    left: Option<Left>,
}

enum Event {
    Typed(Option<Typed>),
    Settle,
    Record(piton_api::client::Result<piton_api::record::FlatRecord>),
    Done(Option<Done>),
    Resize,
    Interrupt,
    Hangup,
    Frame,
    KeysDue,
    Draw,
    Retry,
}

/// Talks in the terminal until the person leaves.
pub(crate) async fn run(
    ui: &mut Ui,
    cx: &Context,
    client: Client,
    session: SessionId,
    first_prompt: Option<String>,
    is_new: bool,
) -> Result<(Left, Exit)> {
    let (done, results) = mpsc::unbounded_channel();
    let status = client.session(&session).await?;
    let mut chat = Chat::new(ui, cx, client, session, done, &status)?;
    chat.awaits_agent = is_new;
    if !is_new && status.is_resumable && !status.is_agent_running {
        chat.start_agent(status.summary.last_seq);
    }
    if let Some(text) = first_prompt {
        chat.send(text);
    }
    chat.run(results, status.summary.agent_profile_id.is_some()).await
}

impl<'a> Chat<'a> {
    fn new(
        ui: &'a mut Ui,
        cx: &'a Context,
        client: Client,
        session: SessionId,
        done: mpsc::UnboundedSender<Done>,
        status: &SessionStatus,
    ) -> Result<Self> {
        let data = &cx.settings.data.value;
        let summary = &status.summary;
        let folder = summary.working_dir.clone().unwrap_or_default();
        let mut conversation = Conversation::default();
        let first_seq = summary.last_seq.saturating_sub(TAIL_RECORDS);
        conversation.position = first_seq;
        if first_seq > 0 {
            conversation.set_past();
        }
        if let Some(run) = status.run.as_ref().filter(|run| run.ended_at.is_none()) {
            conversation.begin_run(run.run_id.as_str(), run.started_at);
        }
        // A new session whose agent still starts has nothing to resume.
        conversation.needs_resume = status.needs_resume && status.run.is_some();
        // What was asked before the records that are read now.
        for wait in status.waits.iter().filter(|wait| wait.since_seq <= first_seq) {
            let record = serde_json::json!({"kind": "run.waiting", "wait_id": wait.wait_id,
                "wait_kind": wait.kind, "question": wait.question});
            conversation.questions.extend(human::question(&record));
        }
        let (draft, typed) = Draft::open(data, session.as_str())?;
        let mut editor = Editor::default();
        let mut message = None;
        if let Some(text) = typed {
            editor.set(&text);
            message =
                Some((Tone::Quiet, "This is what you typed before the terminal ended.".to_owned()));
        }
        let shown_status = Status {
            agent: summary.agent_profile_id.clone().unwrap_or_else(|| "no agent".to_owned()),
            folder: drawing::short_folder(&folder),
            branch: summary.worktree_branch.clone(),
            session: drawing::short_id(session.as_str()),
            ..Status::default()
        };
        Ok(Self {
            client,
            title: summary.title.clone(),
            runtime: summary.runtime.clone().filter(|runtime| runtime != "standalone"),
            folder: Some(PathBuf::from(&folder)).filter(|folder| folder.is_dir()),
            conversation,
            printed_items: 0,
            printed_bytes: 0,
            editor,
            purpose: Purpose::Prompt,
            stashed: String::new(),
            history: History::open(data, &folder)?,
            search: None,
            shell_stop: None,
            rule_shown: None,
            popup: None,
            popup_closed_for: None,
            files: Files::Unknown,
            draft: Some(draft),
            asking: None,
            key_delay: cx.settings.permissions.key_delay,
            queue: Vec::new(),
            outbox: VecDeque::new(),
            is_sending: false,
            unaccepted: Vec::new(),
            agent: None,
            status: shown_status,
            message,
            transcript: None,
            full: Full::default(),
            first_seq,
            inline: Inline::new(wraps_again()),
            raw: None,
            reader: None,
            decoder: Decoder::default(),
            undecided_since: None,
            done,
            frame: 0,
            interrupted_at: None,
            cleared_at: None,
            awaits_agent: false,
            awaits_since: 0,
            away_since: None,
            retry_at: None,
            is_loading: (false, false, false),
            drawn_at: None,
            is_dirty: true,
            started_at: Instant::now(),
            next_key: 0,
            left: None,
            ui,
            cx,
            session,
        })
    }

    async fn run(
        mut self,
        results: mpsc::UnboundedReceiver<Done>,
        has_agent: bool,
    ) -> Result<(Left, Exit)> {
        let left = match self.converse(results, has_agent).await {
            Ok(left) => left,
            Err(error) => {
                if self.purpose == Purpose::Prompt && self.search.is_none() {
                    let typed = self.editor.text();
                    self.remember(&typed);
                }
                // The error is what is said: the terminal may be what is gone.
                let _ = self.restore_terminal();
                return Err(error);
            }
        };
        self.leave(&left)?;
        Ok((left, Exit::Good))
    }

    async fn converse(
        &mut self,
        mut results: mpsc::UnboundedReceiver<Done>,
        has_agent: bool,
    ) -> Result<Left> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut resize = signal(SignalKind::window_change())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut records = self.client.records_from(&self.session, self.conversation.position);
        self.raw = Raw::enter();
        let (reader, mut typed) = Reader::start()?;
        self.reader = Some(reader);
        self.greet(has_agent);
        self.conversation.stale.queue = true;
        self.conversation.stale.agent = true;
        self.conversation.stale.branch = true;
        self.look_for_graph(has_agent);
        loop {
            self.refresh();
            let now = Instant::now();
            let draw_at = self.is_dirty.then(|| self.drawn_at.map_or(now, |at| at + DRAW_EVERY));
            let settle_at = self.undecided_since.map(|since| since + ESCAPE_DELAY);
            let frame_at = (self.is_busy() && self.transcript.is_none()).then(|| now + FRAME_EVERY);
            let keys_due = self.asking.as_ref().and_then(|asking| asking.due_at(self.key_delay));
            let is_connected = self.retry_at.is_none();
            let event = tokio::select! {
                biased;
                typed = typed.recv() => Event::Typed(typed),
                _ = interrupt.recv() => Event::Interrupt,
                _ = hangup.recv() => Event::Hangup,
                _ = terminate.recv() => Event::Hangup,
                _ = resize.recv() => Event::Resize,
                () = at(draw_at) => Event::Draw,
                () = at(keys_due) => Event::KeysDue,
                () = at(settle_at) => Event::Settle,
                done = results.recv() => Event::Done(done),
                record = records.try_next(), if is_connected => Event::Record(record),
                () = at(self.retry_at) => Event::Retry,
                () = at(frame_at) => Event::Frame,
            };
            self.handle(event, &mut records).await?;
            if let Some(left) = self.left.take() {
                return Ok(left);
            }
        }
    }

    async fn handle(&mut self, event: Event, records: &mut Records) -> Result<()> {
        match event {
            Event::Typed(None) | Event::Hangup => self.left = Some(Left::Quit),
            Event::Typed(Some(typed)) => {
                self.undecided_since = None;
                let inputs = self.decoder.push(&typed.bytes);
                for input in inputs {
                    self.input(input, typed.read_at)?;
                }
                if self.decoder.is_undecided() {
                    self.undecided_since = Some(typed.read_at);
                }
                self.typed()?;
            }
            Event::Settle => {
                self.undecided_since = None;
                for input in self.decoder.settle() {
                    self.input(input, Instant::now())?;
                }
                self.typed()?;
            }
            Event::Interrupt => {
                self.ctrl_c();
                self.typed()?;
            }
            Event::Record(Ok(record)) => self.record(&record),
            Event::Record(Err(error)) if error.is_transient() => {
                let now = Instant::now();
                self.away_since.get_or_insert(now);
                self.retry_at = Some(now + RECONNECT_EVERY);
                self.is_dirty = true;
            }
            Event::Record(Err(error)) => return Err(error.into()),
            Event::Retry => self.reconnect(records).await?,
            Event::Done(Some(done)) => self.finished(done),
            Event::Done(None) => {}
            Event::Resize => self.is_dirty = true,
            Event::Frame => {
                self.frame += 1;
                self.is_dirty = true;
            }
            Event::KeysDue => {
                self.keys_due(Instant::now());
                self.is_dirty = true;
            }
            Event::Draw => self.draw()?,
        }
        Ok(())
    }

    /// Something was typed: it is seen at once, and kept.
    fn typed(&mut self) -> Result<()> {
        self.save_draft();
        if self.left.is_none() {
            self.draw()?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        let waits_for_person = self.asking.is_some() || !self.conversation.questions.is_empty();
        let runs = self.conversation.is_running() && !waits_for_person;
        runs || self.away_since.is_some() || self.awaits_agent || self.is_sending
    }

    fn record(&mut self, record: &Value) {
        self.conversation.apply(record);
        self.is_dirty = true;
        self.away_since = None;
        if !self.conversation.is_running() {
            self.interrupted_at = None;
        }
        let is_past = record["seq"].as_u64().is_some_and(|seq| seq <= self.awaits_since);
        match record["kind"].as_str() {
            Some("agent.ready" | "agent.error" | "executor.error") if is_past => {}
            Some("agent.ready") => {
                self.awaits_agent = false;
                self.send_next();
            }
            Some("agent.error" | "executor.error") => self.awaits_agent = false,
            Some("session.renamed") => self.title = record["title"].as_str().map(str::to_owned),
            _ => {}
        }
        self.ask_next();
    }

    fn agent_state(&self) -> AgentState {
        self.conversation.agent
    }
}

async fn at(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
