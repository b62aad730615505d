//! The sessions of a data folder on the whole screen, live: a dashboard, and the choice of a session to
//! resume.

mod answering;
mod checkpoints;
mod inspection;
mod list;
mod timeline;

use std::time::{Duration, Instant};

use piton_api::agent_view::ForkRequest;
use piton_api::client::{Client, Error as ClientError, IndexUpdate};
use piton_api::graph::{CheckpointDiff, CheckpointView};
use piton_api::record::RecordQuery;
use piton_api::session::{ResumeRequest, RunRequest, SessionQuery};
use piton_core::id::SessionId;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::asking::Asking;
use super::conversation::Conversation;
use super::display::{Full, Raw, enter_full, leave_full, size, write};
use super::input::Reader;
use super::keys::{Decoder, Input};
use crate::background;
use crate::commands::chat::screen::Question;
use crate::context::Context;
use crate::error::Result;
use crate::server;
use crate::ui::{Tone, Ui};
use list::{Preview, Sessions};
use timeline::{Checkpoints, Timeline};

/// Records of the chosen session that its preview reads.
const PREVIEW_RECORDS: u64 = 120;
const SESSIONS_MAX: usize = 200;
const ESCAPE_DELAY: Duration = Duration::from_millis(30);
/// How often it is looked whether a server lives, while the one that was there does not answer.
const SERVER_EVERY: Duration = Duration::from_secs(2);

/// What the person wants next.
#[derive(Debug)]
pub(crate) enum Chosen {
    Attach(SessionId),
    New,
    Leave,
}

enum Done {
    Preview(SessionId, u64, Vec<piton_api::record::FlatRecord>),
    Acted(String, Result<(), ClientError>),
    Forked(Result<SessionId, ClientError>),
    /// The oldest open question of a session, if it has one.
    Question(Result<Option<Box<Question>>, ClientError>),
    /// A server runs again, or could not be started.
    Server(Result<()>),
    /// The title of the graph that a session runs, if it runs one.
    Graph(SessionId, Option<String>),
    Timeline(SessionId, u64, Result<Checkpoints, ClientError>),
    Inspected(Result<Box<CheckpointView>, ClientError>),
    Compared(Result<Box<CheckpointDiff>, ClientError>),
    /// A session was resumed from a checkpoint, or rewound to one.
    Travelled(Result<String, ClientError>),
    /// A rule was written.
    Rule(Result<String>),
}

/// Shows the sessions until one is chosen. With a folder: the choice of a session to resume there.
pub(crate) async fn run(
    ui: &mut Ui,
    cx: &Context,
    client: &Client,
    folder: Option<String>,
) -> Result<Chosen> {
    let query = SessionQuery { limit: Some(SESSIONS_MAX), ..SessionQuery::default() };
    let mut sessions = Sessions::new(folder);
    sessions.set(client.sessions(&query).await?.sessions);
    let (done, mut results) = mpsc::unbounded_channel();
    let raw = Raw::enter();
    enter_full(false)?;
    let screen = Screen {
        ui,
        cx,
        client,
        sessions,
        preview: Preview::default(),
        done,
        loading: Loading::default(),
        asking: None,
        line: None,
        timeline: None,
        is_away: false,
        is_helping: false,
    };
    let chosen = screen.run(&mut results).await;
    leave_full()?;
    drop(raw);
    chosen
}

/// What is being read.
#[derive(Debug, Default)]
struct Loading {
    preview: bool,
    timeline: bool,
    graph: bool,
}

struct Screen<'a> {
    ui: &'a mut Ui,
    cx: &'a Context,
    client: &'a Client,
    sessions: Sessions,
    preview: Preview,
    done: mpsc::UnboundedSender<Done>,
    loading: Loading,
    /// The request that is being answered.
    asking: Option<Asking>,
    /// What is typed or confirmed about it.
    line: Option<answering::Line>,
    timeline: Option<Timeline>,
    is_away: bool,
    is_helping: bool,
}

impl Screen<'_> {
    async fn run(mut self, results: &mut mpsc::UnboundedReceiver<Done>) -> Result<Chosen> {
        let (reader, mut typed) = Reader::start()?;
        let mut resize = signal(SignalKind::window_change())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut updates = self.client.index_events();
        let mut full = Full::default();
        let mut decoder = Decoder::default();
        let mut undecided: Option<Instant> = None;
        // Nothing is looked at while the server answers: a dashboard that rests costs nothing.
        let mut look_at: Option<Instant> = None;
        loop {
            self.load_preview();
            self.load_graph_title();
            self.refresh_timeline();
            let (columns, rows) = size();
            let picture = self.picture(columns, rows);
            write(&full.draw(&picture, (columns, rows), self.ui.paints()))?;
            if let Some(asking) = &mut self.asking {
                asking.drawn(Instant::now());
            }
            let key_delay = self.cx.settings.permissions.key_delay;
            let keys_due = self.asking.as_ref().and_then(|asking| asking.due_at(key_delay));
            let settle_at = undecided.map(|since| since + ESCAPE_DELAY);
            let (mut inputs, mut read_at) = (Vec::new(), Instant::now());
            tokio::select! {
                typed = typed.recv() => match typed {
                    None => return Ok(Chosen::Leave),
                    Some(typed) => {
                        inputs = decoder.push(&typed.bytes);
                        read_at = typed.read_at;
                        undecided = decoder.is_undecided().then_some(typed.read_at);
                    }
                },
                () = at(settle_at) => {
                    undecided = None;
                    inputs = decoder.settle();
                }
                () = at(keys_due) => {
                    self.keys_due(Instant::now());
                }
                () = at(look_at) => {
                    look_at = Some(Instant::now() + SERVER_EVERY);
                    if self.look_for_server().await {
                        // At once, not when the connection that was lost would be tried again.
                        updates = self.client.index_events();
                    }
                }
                update = updates.next_or_lost() => match update {
                    Ok(Some(update)) => {
                        look_at = None;
                        self.update(update);
                    }
                    Ok(None) => look_at = Some(look_at.unwrap_or_else(Instant::now)),
                    Err(error) => return Err(error.into()),
                },
                done = results.recv() => {
                    if let Some(chosen) = done.and_then(|done| self.finished(done)) {
                        return Ok(chosen);
                    }
                }
                _ = resize.recv() => {}
                _ = interrupt.recv() => return Ok(Chosen::Leave),
                _ = hangup.recv() => return Ok(Chosen::Leave),
                _ = terminate.recv() => return Ok(Chosen::Leave),
            }
            for input in inputs {
                if let Some(chosen) = self.input(&input, read_at) {
                    drop(reader);
                    return Ok(chosen);
                }
            }
        }
    }

    fn update(&mut self, update: IndexUpdate) {
        match update {
            IndexUpdate::Changed(summary) => self.sessions.change(*summary),
            IndexUpdate::Gone(gone) => self.sessions.remove(&gone.session_id),
            IndexUpdate::Task(task) => self.sessions.set_task(*task),
            IndexUpdate::TaskStateChanged(change) => self.sessions.set_task(change.task),
            IndexUpdate::TaskGone(gone) => self.sessions.remove_task(&gone.task_id),
            // A listing replaces what is known, entry by entry.
            IndexUpdate::Listing(listing) => {
                self.sessions.is_truncated = listing.truncated;
                self.connected();
            }
        }
    }

    fn finished(&mut self, done: Done) -> Option<Chosen> {
        match done {
            Done::Preview(session, last_seq, records) => {
                self.loading.preview = false;
                let mut conversation = Conversation::default();
                for record in &records {
                    conversation.apply(record);
                }
                self.preview =
                    Preview { session: Some(session), last_seq, items: conversation.items };
            }
            Done::Question(found) => self.asked(found),
            Done::Server(started) => self.server_started(started),
            Done::Acted(words, Ok(())) | Done::Rule(Ok(words)) => {
                self.sessions.message = Some((Tone::Quiet, words));
            }
            Done::Forked(Ok(session)) => return Some(Chosen::Attach(session)),
            Done::Acted(_, Err(error)) | Done::Forked(Err(error)) => self.say_error(&error.into()),
            Done::Graph(session, title) => {
                self.loading.graph = false;
                self.sessions.set_graph(session, title);
            }
            Done::Timeline(session, last_seq, found) => {
                self.timeline_loaded(session, last_seq, found);
            }
            Done::Inspected(found) => self.inspected(found),
            Done::Compared(found) => self.compared(found),
            Done::Travelled(done) => self.travelled(done),
            Done::Rule(Err(error)) => self.say_error(&error),
        }
        None
    }

    /// Reads the end of the chosen session, if it is not what is shown.
    fn load_preview(&mut self) {
        let Some(chosen) = self.sessions.chosen() else { return };
        let (session, last_seq) = (chosen.session_id.clone(), chosen.last_seq);
        let is_shown =
            self.preview.session.as_ref() == Some(&session) && self.preview.last_seq == last_seq;
        if is_shown || self.loading.preview {
            return;
        }
        self.loading.preview = true;
        let (client, done) = (self.client.clone(), self.done.clone());
        tokio::spawn(async move {
            let after = last_seq.saturating_sub(PREVIEW_RECORDS);
            let query = RecordQuery { after: Some(after), limit: Some(250) };
            // Without its records a session has an empty preview.
            let records =
                client.records(&session, &query).await.map(|page| page.records).unwrap_or_default();
            let _ = done.send(Done::Preview(session, last_seq, records));
        });
    }

    fn act<F>(&self, words: &str, task: impl FnOnce(Client, SessionId) -> F)
    where
        F: Future<Output = Result<(), ClientError>> + Send + 'static,
    {
        let Some(chosen) = self.sessions.chosen() else { return };
        let words = words.to_owned();
        let task = task(self.client.clone(), chosen.session_id.clone());
        self.spawn(async move { Done::Acted(words, task.await) });
    }

    fn spawn(&self, task: impl Future<Output = Done> + Send + 'static) {
        let done = self.done.clone();
        tokio::spawn(async move {
            // The dashboard may have been left meanwhile.
            let _ = done.send(task.await);
        });
    }

    fn input(&mut self, input: &Input, read_at: Instant) -> Option<Chosen> {
        if let (Input::Wheel(rows), Some(asking)) = (input, &mut self.asking) {
            asking.scroll((*rows).into(), read_at);
        }
        if let Input::Paste { text, left_out } = input {
            self.paste(text, *left_out, read_at);
        }
        let Input::Key(key) = input else { return None };
        self.sessions.message = None;
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return Some(Chosen::Leave);
        }
        if self.asking.is_some() {
            self.answering_key(*key, read_at);
            return None;
        }
        if self.timeline.is_some() {
            self.timeline_key(*key);
            return None;
        }
        if std::mem::take(&mut self.is_helping) {
            return None;
        }
        if self.sessions.is_searching {
            match key.code {
                KeyCode::Enter => self.sessions.is_searching = false,
                KeyCode::Esc => {
                    self.sessions.is_searching = false;
                    self.sessions.search(String::clear);
                }
                KeyCode::Backspace => self.sessions.search(|query| {
                    query.pop();
                }),
                KeyCode::Char(c) if !is_control => self.sessions.search(|query| query.push(c)),
                KeyCode::Up => self.sessions.step(-1),
                KeyCode::Down => self.sessions.step(1),
                _ => {}
            }
            return None;
        }
        let is_picker = self.sessions.folder.is_some();
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => self.sessions.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.sessions.step(1),
            KeyCode::PageUp => self.sessions.step(-5),
            KeyCode::PageDown => self.sessions.step(5),
            KeyCode::Char('/') => self.sessions.is_searching = true,
            KeyCode::Esc | KeyCode::Char('q') => return Some(Chosen::Leave),
            KeyCode::Enter => {
                return self.sessions.chosen().map(|one| Chosen::Attach(one.session_id.clone()));
            }
            KeyCode::Char('?') => self.is_helping = true,
            KeyCode::Char('n') => return Some(Chosen::New),
            _ if is_picker => {}
            KeyCode::Char('a') => self.ask(),
            KeyCode::Char('t') => self.open_timeline(),
            KeyCode::Char('r') => {
                self.act("The session is resumed.", |client, session| async move {
                    let how = ResumeRequest { continue_run: Some(true), context: None };
                    client.resume_with(&session, &how).await.map(drop)
                });
            }
            KeyCode::Char('d') => {
                self.act("The interruption is dismissed.", |client, session| async move {
                    client.dismiss(&session, &RunRequest::default()).await.map(drop)
                });
            }
            KeyCode::Char('f') => {
                let session = self.sessions.chosen()?.session_id.clone();
                let (client, done) = (self.client.clone(), self.done.clone());
                tokio::spawn(async move {
                    let forked = client.fork(&session, &ForkRequest::default()).await;
                    let _ = done.send(Done::Forked(forked.map(|created| created.session_id)));
                });
            }
            _ => {}
        }
        None
    }
}

async fn at(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
