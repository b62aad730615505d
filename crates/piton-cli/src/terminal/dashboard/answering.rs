//! A permission request on the whole screen of the dashboard: all of it is shown before a key counts, as in
//! a conversation. Also the dashboard's other pictures, and a server that went away.

use std::time::Instant;

use piton_api::client::{Client, Error as ClientError};
use piton_api::record::RecordQuery;
use piton_api::wait::AnswerRequest;
use piton_core::id::{SessionId, WaitId};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::{Done, Screen, background, inspection, server};
use crate::commands::chat::screen::Question;
use crate::error::Result;
use crate::terminal::asking::{Asking, Meaning, Pressed};
use crate::terminal::chat::{first_line, rules};
use crate::terminal::display::Picture;
use crate::terminal::editor::Editor;
use crate::terminal::human;
use crate::terminal::rows::{ACCENT, QUIET, Row, STRONG, cut, row, span, style};
use crate::text::one_line;
use crate::ui::Tone;

const KEYS: &[(&str, &str)] = &[
    ("↑ ↓  j k", "choose a session"),
    ("enter", "attach to it; leaving it returns here"),
    ("a", "answer its permission request, shown whole"),
    ("r", "resume it: start its agent and continue its run"),
    ("d", "dismiss an interruption without resuming"),
    ("f", "fork it: continue in a copy"),
    ("t", "its timeline: checkpoints, memory, resume or rewind to one"),
    ("n", "begin a new session in this folder"),
    ("/", "search titles, folders, agents, branches and ids"),
    ("?", "show these keys"),
    ("q  esc", "leave; agents keep running"),
];

/// What stands below a request until it is done or left.
#[derive(Debug)]
pub(super) enum Line {
    /// Why it is rejected, by which option.
    Why(Editor, String),
    /// The answer of a question without options.
    Text(Editor),
    /// A rule that is written if that is confirmed.
    Rule(String),
}

impl Line {
    /// Its rows; answers where the cursor is.
    fn rows(&self, columns: usize, all: &mut Vec<Row>) -> Option<(usize, usize)> {
        let (label, editor, keys) = match self {
            Self::Why(editor, _) => ("why? ", editor, "enter rejects · esc goes back"),
            Self::Text(editor) => ("answer> ", editor, "enter answers · esc goes back"),
            Self::Rule(rule) => {
                all.extend(rule.lines().map(|line| cut(row(line, QUIET), columns)));
                all.push(cut(row(rules::CONFIRM, ACCENT), columns));
                return None;
            }
        };
        let layout = editor.layout(columns.saturating_sub(label.len() + 1).max(8));
        let cursor = (all.len() + layout.cursor.0, label.len() + layout.cursor.1);
        for (at, line) in layout.rows.iter().enumerate() {
            let before = if at == 0 { label.to_owned() } else { " ".repeat(label.len()) };
            all.push(ratatui::text::Line::from(vec![
                span(before, ACCENT),
                span(&line.text, ratatui::style::Style::new()),
            ]));
        }
        all.push(cut(row(keys, QUIET), columns));
        Some(cursor)
    }
}

impl Screen<'_> {
    pub(super) fn picture(&mut self, columns: usize, rows: usize) -> Picture {
        if self.is_helping {
            return help(columns);
        }
        if let Some(timeline) = &self.timeline {
            return timeline.picture(columns, rows);
        }
        if let Some(asking) = &mut self.asking {
            let title = self.sessions.chosen().and_then(|one| one.title.clone());
            let mut all: Vec<Row> = vec![
                cut(row(one_line(title.as_deref().unwrap_or("Permission")), STRONG), columns),
                Row::default(),
            ];
            all.extend(asking.rows(columns, rows.saturating_sub(4).max(3)));
            match &self.line {
                Some(line) => {
                    let cursor = line.rows(columns, &mut all);
                    return Picture { rows: all, cursor };
                }
                None => all.push(match &self.sessions.message {
                    Some((tone, text)) => cut(row(one_line(text), style(*tone)), columns),
                    None => cut(row("esc back, without an answer", QUIET), columns),
                }),
            }
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
            Ok(Some(question)) => {
                self.asking = Some(Asking::new(*question, false));
                self.line = None;
            }
            Ok(None) => {
                let text = "The session asks for no permission; enter attaches to it.".to_owned();
                self.sessions.message = Some((Tone::Quiet, text));
            }
            Err(error) => self.say_error(&error.into()),
        }
    }

    pub(super) fn answering_key(&mut self, key: KeyEvent, read_at: Instant) {
        if self.line.is_some() {
            self.line_key(key);
            return;
        }
        if key.code == KeyCode::Esc {
            self.asking = None;
            return;
        }
        self.keys_due(read_at);
        let Some(asking) = &mut self.asking else { return };
        match asking.press(key, read_at) {
            Pressed::Meant(meaning) => self.request_key(meaning),
            Pressed::Taken | Pressed::Pending => {}
            Pressed::Typed { .. } if !asking.is_typing() => {}
            Pressed::Typed { .. } => {
                let text = "Tab, then the key of an answer. Esc goes back without an answer.";
                self.sessions.message = Some((Tone::Quiet, text.to_owned()));
            }
        }
    }

    /// A moment of quiet may be over, and a key that was pressed before it meant.
    pub(super) fn keys_due(&mut self, now: Instant) {
        let Some(asking) = &mut self.asking else { return };
        if let Some(meaning) = asking.arm(now, self.cx.settings.permissions.key_delay) {
            self.request_key(meaning);
        }
    }

    fn request_key(&mut self, meaning: Meaning) {
        let Some(asking) = &self.asking else { return };
        match meaning {
            Meaning::Option(at) => {
                let Some((option, words)) = asking.question.options.get(at).cloned() else {
                    return;
                };
                let answer = asking.answer_of(&option);
                self.answer(answer, None, &words);
            }
            Meaning::RejectAndSay => {
                let option = asking.question.rejection().unwrap_or_default().to_owned();
                self.line = Some(Line::Why(Editor::default(), option));
            }
            Meaning::Text => self.line = Some(Line::Text(Editor::default())),
            Meaning::Rule => {
                let session = self.sessions.chosen().and_then(|one| one.working_dir.clone());
                let folder = session.map(std::path::PathBuf::from);
                match rules::rule_for(&asking.question.request, folder.as_deref()) {
                    Some(rule) => self.line = Some(Line::Rule(rule)),
                    None => {
                        self.sessions.message = Some((Tone::Attention, rules::NO_RULE.to_owned()));
                    }
                }
            }
        }
    }

    fn answer(&mut self, answer: Value, message: Option<String>, words: &str) {
        let Some(asking) = self.asking.take() else { return };
        self.line = None;
        let client = self.client.clone();
        let Ok(wait) = asking.question.wait_id.parse::<WaitId>() else { return };
        let words = format!("Answered: {}", one_line(words));
        self.spawn(async move {
            let answer = AnswerRequest { answer, message };
            Done::Acted(words, client.answer(&wait, &answer).await.map(drop))
        });
    }

    /// A key in the line below a request.
    fn line_key(&mut self, key: KeyEvent) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match self.line.take() {
            Some(Line::Rule(rule)) if is_control && key.code == KeyCode::Char('s') => {
                let (file, client) = (self.cx.settings.file.clone(), self.client.clone());
                self.spawn(
                    async move { Done::Rule(rules::write_rule(&file, &rule, &client).await) },
                );
            }
            // Any other key takes the rule back; Esc leaves a line.
            Some(Line::Rule(_)) | None => {}
            Some(Line::Why(..) | Line::Text(_)) if key.code == KeyCode::Esc => {}
            Some(Line::Why(editor, option)) if key.code == KeyCode::Enter => {
                let why = Some(editor.text()).filter(|why| !why.trim().is_empty());
                self.answer(json!({"option_id": option}), why, "rejected");
            }
            Some(Line::Text(editor)) if key.code == KeyCode::Enter => {
                let text = editor.text();
                self.answer(json!(text), None, &text);
            }
            Some(mut line) => {
                if let Line::Why(editor, _) | Line::Text(editor) = &mut line {
                    inspection::edit(editor, key);
                }
                self.line = Some(line);
            }
        }
        if self.line.is_none()
            && let Some(asking) = &mut self.asking
        {
            asking.disturb(Instant::now());
        }
    }

    /// A paste goes into the line that is being typed: a reason, an answer, a value, a search.
    pub(super) fn paste(&mut self, text: &str, left_out: usize, read_at: Instant) {
        self.is_helping = false;
        let message = if left_out > 0 {
            Some(format!("The paste was too long: its last {left_out} bytes are left out."))
        } else {
            None
        };
        self.sessions.message = message.map(|text| (Tone::Attention, text));
        let line = match &mut self.line {
            Some(Line::Why(editor, _) | Line::Text(editor)) => Some(editor),
            Some(Line::Rule(_)) | None => None,
        };
        let no_line = match (line, &mut self.asking, &mut self.timeline) {
            (Some(editor), ..) => {
                editor.paste(text);
                None
            }
            (None, Some(asking), _) => {
                // As a key would: a rule that is shown is taken back, and keys count a moment later.
                self.line = None;
                asking.disturb(read_at);
                Some("m or t begins a line that a paste can go into.")
            }
            (None, None, Some(timeline)) => {
                (!timeline.paste(text)).then_some("e edits a value that a paste can go into.")
            }
            (None, None, None) if self.sessions.is_searching => {
                self.sessions.search(|query| query.push_str(&first_line(text)));
                None
            }
            (None, None, None) => Some("/ begins a search that a paste can go into."),
        };
        if let Some(why) = no_line {
            let message = Some((Tone::Attention, format!("Nothing was pasted: {why}")));
            match &mut self.timeline {
                Some(timeline) => timeline.message = message,
                None => self.sessions.message = message,
            }
        }
    }

    /// The connection is lost. Says when the server is gone; one that ran in the background and was killed
    /// is started again. Answers whether there is a server.
    pub(super) async fn look_for_server(&mut self) -> bool {
        let data = &self.cx.settings.data.value;
        if server::find(data).is_some() {
            return true;
        }
        self.is_away = true;
        let was_killed = server::was_background_killed(data);
        self.sessions.away = Some(if was_killed {
            "The server was killed. Agents keep running; a new server is started."
        } else {
            "No server runs. Agents keep running; the list is updated when a server is back."
        });
        if was_killed {
            let started = background::ensure(self.cx).await.map(drop);
            let is_started = started.is_ok();
            // The dashboard is there as long as this runs.
            let _ = self.done.send(Done::Server(started));
            return is_started;
        }
        false
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
    let Some(wait) = waits
        .into_iter()
        .find(|wait| wait.permission.is_some() || wait.kind.as_str() == human::KIND)
    else {
        return Ok(None);
    };
    let query = RecordQuery { after: Some(wait.since_seq.saturating_sub(1)), limit: Some(1) };
    let page = client.records(session, &query).await?;
    let mut question = page.records.first().and_then(|record| human::question(record));
    if let Some(question) = &mut question
        && let Some(request) = client.wait(&wait.wait_id).await?.permission
    {
        // With what the agent said of the call since.
        question.request = request.into();
    }
    Ok(question)
}

fn help(columns: usize) -> Picture {
    // Where a short screen shows it, too.
    let head = vec![span("Keys", STRONG.patch(ACCENT)), span("  any key closes this", QUIET)];
    let mut rows: Vec<Row> = vec![cut(head.into(), columns), Row::default()];
    rows.extend(KEYS.iter().map(|(key, what)| {
        let pad = " ".repeat(12_usize.saturating_sub(crate::text::width(key)));
        cut(row(format!("  {key}{pad}{what}"), ratatui::style::Style::new()), columns)
    }));
    Picture { rows, cursor: None }
}
