//! The part of the screen that stays: what the run does now, the queue, the prompt, the status line.
//! Pure: a state in, a picture out.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use super::asking::Asking;
use super::display::Picture;
use super::editor::Editor;
use super::popup::Popup;
use super::rows::{
    ACCENT, BAD, CHOSEN, GOOD, QUIET, Row, STRONG, WAITING, cut, row, span, style, wrap,
};
use crate::ui::Tone;

/// Rows of the prompt that are shown at once.
const EDITOR_ROWS_MAX: usize = 12;
const QUEUE_ROWS_MAX: usize = 4;
const POPUP_ROWS_MAX: usize = 8;
const FRAMES: [&str; 8] = ["⣾", "⣽", "⣻", "⢿", "⡿", "⣟", "⣯", "⣷"];

/// What the run does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    pub(crate) words: String,
    pub(crate) elapsed_s: u64,
    pub(crate) frame: usize,
    /// What can be done about it.
    pub(crate) keys: &'static str,
}

/// An entry of the agent's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) words: String,
    pub(crate) status: StepStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepStatus {
    Pending,
    Active,
    Done,
}

/// A prompt that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) text: String,
    pub(crate) mark: &'static str,
}

/// The line below the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) agent: String,
    pub(crate) model: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) folder: String,
    pub(crate) branch: Option<String>,
    pub(crate) session: String,
    /// How full the agent's context is, in percent.
    pub(crate) context: Option<u64>,
    pub(crate) cost: Option<String>,
    pub(crate) queued: usize,
    pub(crate) held: bool,
}

#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) live: Vec<Row>,
    pub(crate) plan: &'a [Step],
    pub(crate) queue: &'a [Queued],
    pub(crate) asking: Option<&'a mut Asking>,
    pub(crate) activity: Option<Activity>,
    pub(crate) editor: &'a Editor,
    /// What stands before the prompt.
    pub(crate) label: &'a str,
    pub(crate) placeholder: &'a str,
    pub(crate) popup: Option<&'a Popup>,
    pub(crate) status: &'a Status,
    pub(crate) message: Option<(Tone, &'a str)>,
    pub(crate) hint: &'a str,
}

/// The width that a prompt has on a screen.
pub(crate) fn editor_width(columns: usize, label: &str) -> usize {
    columns.saturating_sub(label.width() + 1).max(4)
}

impl View<'_> {
    pub(crate) fn picture(self, columns: usize, rows_max: usize) -> Picture {
        let columns = columns.saturating_sub(1).max(12);
        let height = rows_max.saturating_sub(1).max(3);
        let layout = self.editor.layout(editor_width(columns, self.label));
        let editor_max = EDITOR_ROWS_MAX.min(height / 2).max(1);
        let first = (layout.cursor.0 + 1).saturating_sub(editor_max);
        let shown = layout.rows.len().min(editor_max);

        let below = self.below(columns, height.saturating_sub(shown + 1));
        let mut middle: Vec<Row> = Vec::new();
        let left = |used: usize| height.saturating_sub(used + shown + below.len());
        if let Some(asking) = self.asking {
            middle.push(Line::default());
            middle.extend(asking.rows(columns, left(1).max(4)));
        } else {
            middle.extend(plan_rows(self.plan, columns));
        }
        middle.extend(queue_rows(self.queue, columns));
        middle.extend(self.activity.iter().map(|activity| activity_row(activity, columns)));
        if let Some((tone, text)) = self.message {
            middle.extend(wrap(row(text, style(tone)), columns, 2));
        }
        // What matters least goes first: the beginning of what is being said.
        let room = left(0);
        if middle.len() > room {
            middle.drain(..middle.len() - room);
        }
        let live_room = left(middle.len() + 1);
        let skipped = self.live.len().saturating_sub(live_room);
        let mut rows: Vec<Row> = self.live.into_iter().skip(skipped).collect();
        rows.extend(middle);
        if rows.len() + shown + below.len() < height {
            rows.push(Line::default());
        }
        let editor_row = rows.len();
        rows.extend(editor_rows(
            &layout,
            first,
            shown,
            self.label,
            self.placeholder,
            self.editor.is_empty(),
            columns,
        ));
        let cursor = (editor_row + layout.cursor.0 - first, self.label.width() + layout.cursor.1);
        rows.extend(below);
        Picture { rows, cursor: Some(cursor) }
    }

    /// What is below the prompt: choices, or the status and the keys.
    fn below(&self, columns: usize, rows_max: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        if let Some(popup) = self.popup {
            rows.extend(popup_rows(popup, columns, POPUP_ROWS_MAX.min(rows_max)));
            return rows;
        }
        rows.push(status_row(self.status, columns));
        rows.push(cut(row(format!("  {}", self.hint), QUIET), columns));
        rows.truncate(rows_max);
        rows
    }
}

fn plan_rows(plan: &[Step], columns: usize) -> Vec<Row> {
    if plan.is_empty() || plan.iter().all(|step| step.status == StepStatus::Done) {
        return Vec::new();
    }
    let done = plan.iter().filter(|step| step.status == StepStatus::Done).count();
    let mut spans = vec![span(format!("  Plan {done}/{}  ", plan.len()), QUIET)];
    for step in plan {
        let (sign, style) = match step.status {
            StepStatus::Done => ("✓ ", GOOD),
            StepStatus::Active => ("● ", ACCENT),
            StepStatus::Pending => ("○ ", QUIET),
        };
        spans.push(span(sign, style));
        let words = if step.status == StepStatus::Active { STRONG } else { QUIET };
        spans.push(span(crate::text::one_line(&step.words), words));
        spans.push(Span::raw("  "));
    }
    wrap(Line::from(spans), columns, 7).into_iter().take(3).collect()
}

fn queue_rows(queue: &[Queued], columns: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = queue
        .iter()
        .take(QUEUE_ROWS_MAX)
        .map(|queued| {
            let mark = span(format!("  {} ", queued.mark), WAITING);
            cut(Line::from(vec![mark, span(crate::text::one_line(&queued.text), QUIET)]), columns)
        })
        .collect();
    if queue.len() > QUEUE_ROWS_MAX {
        rows.push(row(
            format!("    and {} more · /queue lists them", queue.len() - QUEUE_ROWS_MAX),
            QUIET,
        ));
    }
    rows
}

/// `0:42`, `1:02:03`.
pub(crate) fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

fn activity_row(activity: &Activity, columns: usize) -> Row {
    let frame = FRAMES[activity.frame % FRAMES.len()];
    let mut spans = vec![
        span(format!("{frame} "), ACCENT),
        span(&activity.words, Style::new()),
        span(format!(" {}", clock(activity.elapsed_s)), QUIET),
    ];
    if !activity.keys.is_empty() {
        spans.push(span(format!(" · {}", activity.keys), QUIET));
    }
    cut(Line::from(spans), columns)
}

fn editor_rows(
    layout: &super::editor::Layout,
    first: usize,
    shown: usize,
    label: &str,
    placeholder: &str,
    is_empty: bool,
    columns: usize,
) -> Vec<Row> {
    let indent = " ".repeat(label.width());
    let rows = layout.rows.iter().enumerate().skip(first).take(shown);
    rows.map(|(at, text)| {
        let begin =
            if at == 0 { span(label, ACCENT.patch(STRONG)) } else { Span::raw(indent.clone()) };
        let mut spans = vec![begin, Span::raw(text.text.clone())];
        if is_empty {
            spans.push(span(placeholder, QUIET));
        }
        cut(Line::from(spans), columns)
    })
    .collect()
}

fn popup_rows(popup: &Popup, columns: usize, rows_max: usize) -> Vec<Row> {
    let first = (popup.chosen + 1).saturating_sub(rows_max);
    let entries = popup.entries.iter().enumerate().skip(first).take(rows_max);
    let name_width =
        popup.entries.iter().map(|entry| entry.name.width()).max().unwrap_or(0).min(columns / 2);
    entries
        .map(|(at, entry)| {
            let name = crate::text::padded(&crate::text::one_line(&entry.name), name_width);
            let style = if at == popup.chosen { CHOSEN } else { ACCENT };
            let mut spans = vec![Span::raw("  "), span(name, style)];
            if !entry.what.is_empty() {
                spans.push(span(format!("  {}", crate::text::one_line(&entry.what)), QUIET));
            }
            cut(Line::from(spans), columns)
        })
        .collect()
}

/// What matters most first; what does not fit is left out whole.
fn status_row(status: &Status, columns: usize) -> Row {
    let mut parts: Vec<(String, Style)> = vec![(status.agent.clone(), ACCENT)];
    parts.extend(status.model.clone().map(|model| (model, Style::new())));
    parts.extend(status.mode.clone().map(|mode| (mode, Style::new())));
    if status.queued > 0 {
        let held = if status.held { " and held" } else { "" };
        parts.push((format!("{} queued{held}", status.queued), WAITING));
    }
    if let Some(context) = status.context {
        let style = if context >= 80 { BAD } else { QUIET };
        parts.push((format!("context {context} %"), style));
    }
    let folder = match &status.branch {
        Some(branch) => format!("{} ⎇ {branch}", status.folder),
        None => status.folder.clone(),
    };
    parts.push((folder, QUIET));
    parts.extend(status.cost.clone().map(|cost| (cost, QUIET)));
    parts.push((status.session.clone(), QUIET));
    let mut spans = vec![Span::raw("  ")];
    let mut used = 2;
    for (at, (text, style)) in parts.into_iter().enumerate() {
        let text = crate::text::one_line(&text);
        let wide = text.width() + if at > 0 { 3 } else { 0 };
        if used + wide > columns && at > 0 {
            continue;
        }
        if at > 0 {
            spans.push(span(" · ", QUIET));
        }
        used += wide;
        spans.push(span(text, style));
    }
    cut(Line::from(spans), columns)
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
