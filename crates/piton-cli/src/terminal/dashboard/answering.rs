//! A permission request on the whole screen of the dashboard: all of it is shown before a key counts, as in
//! a conversation. Also the dashboard's other pictures, and a server that went away.

use std::time::Instant;

use piton_api::client::{Client, Error as ClientError};
use piton_api::record::RecordQuery;
use piton_api::wait::AnswerRequest;
use piton_core::id::{SessionId, WaitId};
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::text::Line;
use serde_json::json;

use super::{Done, Screen, background, server};
use crate::commands::chat::screen::{Question, question};
use crate::error::{Error, Result};
use crate::terminal::asking::{Asking, Pressed};
use crate::terminal::display::Picture;
use crate::terminal::rows::{ACCENT, QUIET, Row, STRONG, cut, row, style};
use crate::text::one_line;
use crate::ui::Tone;

const KEYS: &[(&str, &str)] = &[
    ("↑ ↓  j k", "choose a session"),
    ("enter", "attach to it; leaving it returns here"),
    ("a", "answer its permission request, shown whole"),
    ("r", "resume it: start its agent and continue its run"),
    ("d", "dismiss an interruption without resuming"),
    ("f", "fork it: continue in a copy"),
    ("n", "begin a new session in this folder"),
    ("/", "search titles, folders, agents, branches and ids"),
    ("?", "show these keys"),
    ("q  esc", "leave; agents keep running"),
];

impl Screen<'_> {
    pub(super) fn picture(&mut self, columns: usize, rows: usize) -> Picture {
        if self.is_helping {
            return help(columns);
        }
        if let Some(asking) = &mut self.asking {
            let title = self.sessions.chosen().and_then(|one| one.title.clone());
            let mut all: Vec<Row> = vec![
                cut(row(one_line(title.as_deref().unwrap_or("Permission")), STRONG), columns),
                Line::default(),
            ];
            all.extend(asking.rows(columns, rows.saturating_sub(4).max(3)));
            all.push(match &self.sessions.message {
                Some((tone, text)) => cut(row(one_line(text), style(*tone)), columns),
                None => cut(row("esc back, without an answer", QUIET), columns),
            });
            return Picture { rows: all, cursor: None };
        }
        self.sessions.picture(&self.preview, self.cx.now(), columns, rows)
    }

    /// Reads the request of the chosen session.
    pub(super) fn ask(&mut self) {
        let Some(chosen) = self.sessions.chosen() else { return };
        let (client, session) = (self.client.clone(), chosen.session_id.clone());
        let done = self.done.clone();
        tokio::spawn(async move {
            let found = open_question(&client, &session).await;
            let _ = done.send(Done::Question(found.map(|found| found.map(Box::new))));
        });
    }

    pub(super) fn asked(&mut self, found: Result<Option<Box<Question>>, ClientError>) {
        match found {
            Ok(Some(question)) => self.asking = Some(Asking::new(*question)),
            Ok(None) => {
                let text = "The session asks for no permission; enter attaches to it.".to_owned();
                self.sessions.message = Some((Tone::Quiet, text));
            }
            Err(error) => {
                let text = Error::from(error).message().to_owned();
                self.sessions.message = Some((Tone::Bad, text));
            }
        }
    }

    pub(super) fn answering_key(&mut self, key: KeyEvent, read_at: Instant) {
        let Some(asking) = &mut self.asking else { return };
        if matches!(key.code, KeyCode::Esc | KeyCode::Char('q')) {
            self.asking = None;
            return;
        }
        let pressed = asking.press(key, read_at);
        let (option, words) = match pressed {
            Pressed::Option(at) => match asking.question.options.get(at) {
                Some((id, name)) => (id.clone(), name.clone()),
                None => return,
            },
            Pressed::Early | Pressed::Scrolled => return,
            Pressed::RejectAndSay | Pressed::Rule | Pressed::Other => {
                let text =
                    "Press the number of an answer; attach (enter) to say why or add a rule.";
                self.sessions.message = Some((Tone::Quiet, text.to_owned()));
                return;
            }
        };
        let wait = asking.question.wait_id.clone();
        self.asking = None;
        let (client, done) = (self.client.clone(), self.done.clone());
        let Ok(wait) = wait.parse::<WaitId>() else { return };
        tokio::spawn(async move {
            let answer = AnswerRequest { answer: json!({"option_id": option}), message: None };
            let answered = client.answer(&wait, &answer).await.map(drop);
            let _ = done.send(Done::Acted(format!("Answered: {}", one_line(&words)), answered));
        });
    }

    /// Says when the server is gone; one that ran in the background and was killed is started again.
    pub(super) fn look_for_server(&mut self) {
        let data = &self.cx.settings.data.value;
        if self.is_away || server::find(data).is_some() {
            return;
        }
        self.is_away = true;
        let text = if server::was_background_killed(data) {
            "The server was killed. Agents keep running; a new server is started."
        } else {
            "No server runs. Agents keep running; the list is updated when a server is back."
        };
        self.sessions.away = Some(text);
    }

    /// Starts the server again, if that is for this program to do.
    pub(super) async fn start_server(&mut self) {
        if self.is_away && server::was_background_killed(&self.cx.settings.data.value) {
            let started = background::ensure(self.cx).await.map(drop);
            let _ = self.done.send(Done::Server(started));
        }
    }

    pub(super) fn server_started(&mut self, started: Result<()>) {
        if let Err(error) = started {
            self.sessions.message = Some((Tone::Bad, error.message().to_owned()));
        }
    }

    /// A listing came: there is a server.
    pub(super) fn connected(&mut self) {
        if std::mem::take(&mut self.is_away) {
            self.sessions.away = None;
            let text = "A new server took over. Nothing was lost.".to_owned();
            self.sessions.message = Some((Tone::Quiet, text));
        }
    }
}

/// The oldest open permission request, with all that it asks.
async fn open_question(
    client: &Client,
    session: &SessionId,
) -> Result<Option<Question>, ClientError> {
    let waits = client.session(session).await?.waits;
    let Some(wait) = waits.into_iter().find(|wait| wait.permission.is_some()) else {
        return Ok(None);
    };
    let query = RecordQuery { after: Some(wait.since_seq.saturating_sub(1)), limit: Some(1) };
    let page = client.records(session, &query).await?;
    Ok(page.records.first().and_then(question))
}

fn help(columns: usize) -> Picture {
    let mut rows: Vec<Row> = vec![row("Keys", STRONG.patch(ACCENT)), Line::default()];
    rows.extend(KEYS.iter().map(|(key, what)| {
        let pad = " ".repeat(12_usize.saturating_sub(crate::text::width(key)));
        cut(row(format!("  {key}{pad}{what}"), ratatui::style::Style::new()), columns)
    }));
    rows.push(Line::default());
    rows.push(row("any key closes this", QUIET));
    Picture { rows, cursor: None }
}
