//! From the state to the screen.

use std::time::Instant;

use piton_core::Timestamp;

use super::{Chat, Purpose};
use crate::error::Result;
use crate::terminal::conversation::{AgentState, Item};
use crate::terminal::display::{Picture, size, write};
use crate::terminal::markdown;
use crate::terminal::render::{self, Detail};
use crate::terminal::rows::Row;
use crate::terminal::view::{Activity, Queued, Step, StepStatus, View};

/// How much of an unfinished answer is laid out.
const LIVE_BYTES_MAX: usize = 32 * 1024;
const HINT: &str = "enter send · alt-enter newline · ctrl-t transcript · / commands · @ files";
const HINT_RUNNING: &str =
    "enter queues · esc interrupts · ctrl-t transcript · ctrl-c twice leaves";

/// The home folder as `~`.
pub(super) fn short_folder(folder: &str) -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    match folder.strip_prefix(&home).filter(|_| !home.is_empty()) {
        Some("") => "~".to_owned(),
        Some(rest) if rest.starts_with('/') => format!("~{rest}"),
        _ => folder.to_owned(),
    }
}

pub(super) fn short_id(id: &str) -> String {
    id.chars().take(13).collect()
}

impl Chat<'_> {
    pub(super) fn draw(&mut self) -> Result<()> {
        let (columns, rows) = size();
        self.drawn_at = Some(Instant::now());
        self.is_dirty = false;
        if let Some(mut transcript) = self.transcript.take() {
            let notice = self.asking.is_some().then_some("A request waits: q goes to it");
            let picture = transcript.picture(&self.conversation.items, notice, columns, rows);
            let wants_older = transcript.wants_older();
            self.transcript = Some(transcript);
            if wants_older {
                self.load_older();
            }
            let out = self.full.draw(&picture, (columns, rows), self.ui.paints());
            write(&out)?;
            return Ok(());
        }
        let above = self.finished_rows(columns.saturating_sub(1).max(12));
        let picture = self.picture(columns, rows);
        self.inline.draw(&above, &picture, (columns, rows), self.ui.paints());
        write(&self.inline.take())?;
        let now = Instant::now();
        if let Some(asking) = &mut self.asking {
            asking.drawn(now);
        }
        Ok(())
    }

    /// Rows that are final: they go into the terminal's scrollback, once.
    fn finished_rows(&mut self, width: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        while let Some(item) = self.conversation.items.get(self.printed_items) {
            if let Item::Agent { message_id, text, is_done } = item {
                let end = if *is_done { text.len() } else { markdown::stable_length(text) };
                if end > self.printed_bytes {
                    let part = Item::Agent {
                        message_id: message_id.clone(),
                        text: text[self.printed_bytes..end].to_owned(),
                        is_done: true,
                    };
                    rows.extend(render::item(&part, width, Detail::Short));
                    self.printed_bytes = end;
                }
            } else if item.is_final() {
                rows.extend(render::item(item, width, Detail::Short));
            }
            if !item.is_final() {
                break;
            }
            self.printed_items += 1;
            self.printed_bytes = 0;
        }
        rows
    }

    /// Everything that is left is printed, final or not.
    pub(super) fn print_rest(&mut self) -> Result<()> {
        let (columns, rows) = size();
        let width = columns.saturating_sub(1).max(12);
        for item in &mut self.conversation.items[self.printed_items..] {
            if let Item::Agent { is_done, .. } = item {
                *is_done = true;
            }
        }
        let mut above = self.finished_rows(width);
        above.extend(self.live_rows(width));
        self.inline.draw(&above, &Picture::default(), (columns, rows), self.ui.paints());
        write(&self.inline.take())?;
        Ok(())
    }

    /// What still changes.
    fn live_rows(&self, width: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for (at, item) in self.conversation.items.iter().enumerate().skip(self.printed_items) {
            match item {
                Item::Agent { message_id, text, .. } => {
                    let printed = if at == self.printed_items { self.printed_bytes } else { 0 };
                    let rest = text.get(printed..).unwrap_or_default();
                    // More than any screen shows: a long answer costs no more than a short one.
                    let from = rest.ceil_char_boundary(rest.len().saturating_sub(LIVE_BYTES_MAX));
                    let text = rest[from..].to_owned();
                    let part = Item::Agent { message_id: message_id.clone(), text, is_done: false };
                    rows.extend(render::item(&part, width, Detail::Short));
                }
                // It is asked below, with all of the change.
                Item::Asked { answer: None, .. } if self.asking.is_some() => {}
                Item::Tool(tool) if self.asking.is_some() && tool.outcome.is_none() => {
                    let bare = Item::Tool(Box::new(tool.without_diffs()));
                    rows.extend(render::item(&bare, width, Detail::Short));
                }
                item => rows.extend(render::item(item, width, Detail::Short)),
            }
        }
        rows
    }

    fn activity(&self) -> Option<Activity> {
        let activity = |words: &str, elapsed_s: u64, keys| Activity {
            words: words.to_owned(),
            elapsed_s,
            frame: self.frame,
            keys,
        };
        if let Some(since) = self.away_since {
            let words = "the server does not respond; the agent keeps running. Reconnecting";
            return Some(activity(words, since.elapsed().as_secs(), ""));
        }
        if !self.is_busy() {
            return None;
        }
        if self.awaits_agent || self.agent_state() == AgentState::Starting {
            let words = format!("starting {}", self.status.agent);
            return Some(activity(&words, self.started_at.elapsed().as_secs(), "ctrl-c leaves"));
        }
        if !self.conversation.is_running() {
            // There is no turn yet that a key could interrupt.
            return Some(activity("sending", 0, ""));
        }
        let since = self.conversation.run_since;
        let now: Timestamp = self.cx.now();
        let elapsed = since.map_or(0, |since| now.since(since).as_secs());
        if let Some(node) =
            self.conversation.node.as_ref().filter(|_| self.interrupted_at.is_none())
        {
            return Some(activity(&format!("running {node}"), elapsed, "esc cancels the run"));
        }
        let words = match self.conversation.items.last() {
            _ if self.interrupted_at.is_some() => "stopping",
            Some(Item::Thought { is_done: false, .. }) => "thinking",
            Some(Item::Tool(tool)) if tool.outcome.is_none() => "running a tool",
            Some(Item::Agent { is_done: false, .. }) => "answering",
            _ => "working",
        };
        Some(activity(words, elapsed, "esc interrupts"))
    }

    fn picture(&mut self, columns: usize, rows: usize) -> Picture {
        let width = columns.saturating_sub(1).max(12);
        let live = self.live_rows(width);
        let plan: Vec<Step> = self
            .agent
            .iter()
            .flat_map(|agent| &agent.plan)
            .map(|entry| Step {
                words: entry.content.clone(),
                status: match entry.status.as_deref() {
                    Some("completed") => StepStatus::Done,
                    Some("in_progress") => StepStatus::Active,
                    _ => StepStatus::Pending,
                },
            })
            .collect();
        let plan = if self.conversation.is_running() { plan } else { Vec::new() };
        let queued = self.queue.iter().map(|prompt| Queued {
            text: prompt.text.clone(),
            mark: if prompt.held { "held  " } else { "queued" },
        });
        let unsent =
            self.outbox.iter().map(|out| Queued { text: out.text.clone(), mark: "sending" });
        let queue: Vec<Queued> = unsent.chain(queued).collect();
        let activity = self.activity();
        self.status.queued = self.queue.len();
        self.status.held = self.queue.iter().any(|prompt| prompt.held);
        let found;
        let (label, placeholder, hint) = match (&self.search, &self.purpose) {
            (Some(search), _) => {
                let matches = self.history.matches(&search.query);
                found = format!("search {:?}: ", search.query);
                let hint = if matches.is_empty() {
                    "nothing found · esc cancels"
                } else {
                    "enter takes it · ctrl-r older · esc cancels"
                };
                (found.as_str(), "", hint)
            }
            (None, Purpose::Rejection { .. }) => {
                ("why? ", "say why you reject it", "enter rejects · esc goes back")
            }
            (None, Purpose::Answer { .. }) => {
                ("answer> ", "", "enter answers the question · esc goes back")
            }
            (None, Purpose::QueueEdit { has_attachments: true, .. }) => {
                let hint = "enter changes the text; the attachments stay · esc leaves it";
                ("queued> ", "no text", hint)
            }
            (None, Purpose::QueueEdit { .. }) => {
                ("queued> ", "empty removes it", "enter changes the queued prompt · esc leaves it")
            }
            (None, Purpose::Prompt) if self.asking.is_some() => ("> ", "", ""),
            (None, Purpose::Prompt) if self.conversation.is_running() => {
                ("> ", "Queue a prompt", HINT_RUNNING)
            }
            (None, Purpose::Prompt) if self.conversation.needs_resume => {
                ("> ", "/resume continues the run, or say something else", HINT)
            }
            (None, Purpose::Prompt) => ("> ", "Ask for something", HINT),
        };
        let view = View {
            live,
            plan: &plan,
            queue: &queue,
            asking: self.asking.as_mut().filter(|_| self.purpose == Purpose::Prompt),
            activity,
            editor: &self.editor,
            label,
            placeholder,
            popup: self.popup.as_ref(),
            status: &self.status,
            message: self.message.as_ref().map(|(tone, text)| (*tone, text.as_str())),
            hint,
        };
        view.picture(columns, rows)
    }
}
