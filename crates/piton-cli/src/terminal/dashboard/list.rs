//! Sessions on the whole screen: what needs the person first, a preview of the chosen one. Pure.

use std::collections::BTreeMap;

use piton_api::SessionSummary;
use piton_api::task::TaskSummary;
use piton_core::Timestamp;
use piton_core::id::{SessionId, TaskId};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::terminal::conversation::Item;
use crate::terminal::display::Picture;
use crate::terminal::render::{self, Detail};
use crate::terminal::rows::{
    ACCENT, BAD, CHOSEN, GOOD, QUIET, Row, STRONG, WAITING, cut, row, span, width, wrap,
};
use crate::text::one_line;
use crate::times;
use crate::ui::Tone;

/// Narrower than this, there is no preview beside the list.
const PREVIEW_COLUMNS_MIN: usize = 90;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    NeedsYou,
    Working,
    Idle,
    Ended,
}

impl Group {
    fn of(summary: &SessionSummary) -> Self {
        match summary.status.as_str() {
            "waiting" | "interrupted_startup" | "interrupted_waiting" | "paused" | "error" => {
                Self::NeedsYou
            }
            "running" | "starting" => Self::Working,
            "completed" | "failed" | "cancelled" => Self::Ended,
            _ => Self::Idle,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::NeedsYou => "Needs you",
            Self::Working => "Working",
            Self::Idle => "Idle",
            Self::Ended => "Ended",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    all: Vec<SessionSummary>,
    /// The folder whose sessions come first, if this is a choice for a folder.
    pub(crate) folder: Option<String>,
    pub(crate) query: String,
    pub(crate) is_searching: bool,
    chosen: Option<SessionId>,
    pub(crate) message: Option<(Tone, String)>,
    /// What is said while there is no server.
    pub(crate) away: Option<&'static str>,
    tasks: BTreeMap<TaskId, TaskSummary>,
    /// The graphs of sessions without an agent and a title; `None`: it runs none.
    graphs: BTreeMap<SessionId, Option<String>>,
    /// There are more sessions than are listed.
    pub(crate) is_truncated: bool,
}

/// What the preview shows of the chosen session.
#[derive(Debug, Default)]
pub(crate) struct Preview {
    pub(crate) session: Option<SessionId>,
    pub(crate) last_seq: u64,
    pub(crate) items: Vec<Item>,
}

impl Sessions {
    /// With a folder: a choice for it.
    pub(crate) fn new(folder: Option<String>) -> Self {
        Self { folder, ..Self::default() }
    }

    pub(crate) fn set(&mut self, all: Vec<SessionSummary>) {
        self.all = all;
        self.settle();
    }

    pub(crate) fn change(&mut self, summary: SessionSummary) {
        self.all.retain(|one| one.session_id != summary.session_id);
        self.all.push(summary);
        self.settle();
    }

    pub(crate) fn remove(&mut self, session: &SessionId) {
        self.all.retain(|one| one.session_id != *session);
        self.settle();
    }

    pub(crate) fn get(&self, session: &SessionId) -> Option<&SessionSummary> {
        self.all.iter().find(|one| one.session_id == *session)
    }

    pub(crate) fn set_graph(&mut self, session: SessionId, title: Option<String>) {
        self.graphs.insert(session, title);
    }

    /// A session that may run a graph whose name is not known yet.
    pub(crate) fn without_title(&self) -> Option<SessionId> {
        let mut all = self.shown().into_iter();
        let found = all.find(|one| {
            one.title.is_none()
                && one.agent_profile_id.is_none()
                && !self.graphs.contains_key(&one.session_id)
        });
        found.map(|one| one.session_id.clone())
    }

    /// What a session is called: its title, its graph's name, or its id.
    pub(crate) fn title(&self, summary: &SessionSummary) -> String {
        let graph = self.graphs.get(&summary.session_id).and_then(Option::as_deref);
        one_line(summary.title.as_deref().or(graph).unwrap_or(summary.session_id.as_str()))
    }

    /// Tasks that no session belongs to yet.
    fn bare_tasks(&self) -> Vec<&TaskSummary> {
        let has_session = |task: &TaskSummary| {
            self.all.iter().any(|one| one.task_id.as_ref() == Some(&task.task_id))
        };
        self.tasks.values().filter(|task| !task.is_closed && !has_session(task)).collect()
    }

    pub(crate) fn set_task(&mut self, task: TaskSummary) {
        self.tasks.insert(task.task_id.clone(), task);
    }

    pub(crate) fn remove_task(&mut self, task: &TaskId) {
        self.tasks.remove(task);
    }

    fn task_words(&self, summary: &SessionSummary) -> Option<String> {
        let task = self.tasks.get(summary.task_id.as_ref()?)?;
        Some(format!("task {} ({})", task.title, task.state))
    }

    /// The sessions that fit what is searched, in their order.
    fn shown(&self) -> Vec<&SessionSummary> {
        let query = self.query.to_lowercase();
        let fits = |summary: &&SessionSummary| {
            let texts = [
                summary.title.as_deref(),
                summary.working_dir.as_deref(),
                summary.agent_profile_id.as_deref(),
                summary.worktree_branch.as_deref(),
                Some(summary.session_id.as_str()),
                self.graphs.get(&summary.session_id).and_then(Option::as_deref),
            ];
            query.is_empty()
                || texts.iter().flatten().any(|text| text.to_lowercase().contains(&query))
        };
        let mut shown: Vec<&SessionSummary> = self.all.iter().filter(fits).collect();
        shown.sort_by_key(|summary| {
            let elsewhere = self.folder.is_some() && self.folder != summary.working_dir;
            (elsewhere, Group::of(summary), std::cmp::Reverse(summary.active_at))
        });
        shown
    }

    /// Another one is chosen if the chosen one is gone.
    fn settle(&mut self) {
        let shown = self.shown();
        let is_there = shown.iter().any(|one| Some(&one.session_id) == self.chosen.as_ref());
        if !is_there {
            self.chosen = shown.first().map(|one| one.session_id.clone());
        }
    }

    pub(crate) fn search(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.query);
        self.chosen = None;
        self.settle();
    }

    pub(crate) fn step(&mut self, by: isize) {
        let shown = self.shown();
        let at =
            shown.iter().position(|one| Some(&one.session_id) == self.chosen.as_ref()).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(shown.len().saturating_sub(1));
        self.chosen = shown.get(to).map(|one| one.session_id.clone());
    }

    pub(crate) fn chosen(&self) -> Option<&SessionSummary> {
        self.all.iter().find(|one| Some(&one.session_id) == self.chosen.as_ref())
    }

    fn heading(&self, summary: &SessionSummary) -> &'static str {
        match &self.folder {
            Some(folder) if summary.working_dir.as_ref() != Some(folder) => "Other folders",
            Some(_) => "This folder",
            None => Group::of(summary).title(),
        }
    }

    pub(crate) fn picture(
        &self,
        preview: &Preview,
        now: Timestamp,
        columns: usize,
        rows_max: usize,
    ) -> Picture {
        let columns = columns.max(12);
        let has_preview = columns >= PREVIEW_COLUMNS_MIN;
        let list_width = if has_preview { columns * 2 / 5 } else { columns };
        let height = rows_max.saturating_sub(3).max(1);
        let (list, chosen_row) = self.list(now, list_width.saturating_sub(1));
        let first = (chosen_row + 3).saturating_sub(height).min(list.len().saturating_sub(height));
        let mut body: Vec<Row> = list.into_iter().skip(first).take(height).collect();
        body.resize(height, Line::default());
        if has_preview {
            let right = self.preview(preview, now, columns - list_width - 3, height);
            body = body
                .into_iter()
                .zip(right)
                .map(|(left, right)| beside(left, right, list_width))
                .collect();
        }
        let needs = self.all.iter().filter(|one| Group::of(one) == Group::NeedsYou).count();
        let title = if self.folder.is_some() { "Resume a session" } else { "Piton" };
        let mut head = vec![
            span(title, STRONG.patch(ACCENT)),
            span(format!("  {}", counted(self.all.len())), QUIET),
        ];
        if self.is_truncated {
            head.push(span(", the latest: `piton sessions list` has all", QUIET));
        }
        if needs > 0 {
            head.push(span(format!("  {needs} need you"), WAITING));
        }
        let mut rows = vec![cut(Line::from(head), columns)];
        rows.extend(body);
        let away = self.away.map(|text| (Tone::Attention, text.to_owned()));
        rows.push(match (away.as_ref().or(self.message.as_ref()), self.is_searching) {
            (_, true) => row(format!("/{}", self.query), ACCENT),
            (Some((tone, text)), false) => {
                cut(row(one_line(text), crate::terminal::rows::style(*tone)), columns)
            }
            (None, false) if !self.query.is_empty() => {
                row(format!("search: {}", self.query), QUIET)
            }
            (None, false) => Line::default(),
        });
        let keys = if self.folder.is_some() {
            "enter resume · n new · ↑ ↓ choose · / search · esc leave"
        } else {
            "enter attach · a answer · r resume · t timeline · n new · / search · ? keys · q leave"
        };
        rows.push(cut(row(keys, QUIET), columns));
        let cursor = self.is_searching.then(|| {
            (rows.len() - 2, 1 + unicode_width::UnicodeWidthStr::width(self.query.as_str()))
        });
        Picture { rows, cursor }
    }

    fn list(&self, now: Timestamp, width_max: usize) -> (Vec<Row>, usize) {
        let mut rows = Vec::new();
        let mut chosen_row = 0;
        let mut heading = "";
        for summary in self.shown() {
            let next = self.heading(summary);
            if next != heading {
                heading = next;
                rows.push(row(heading, STRONG));
            }
            let is_chosen = Some(&summary.session_id) == self.chosen.as_ref();
            if is_chosen {
                chosen_row = rows.len();
            }
            rows.extend(entry(summary, &self.title(summary), now, width_max, is_chosen));
        }
        let bare = self.bare_tasks();
        if self.folder.is_none() && self.query.is_empty() && !bare.is_empty() {
            rows.push(row("Tasks without a session", STRONG));
            rows.extend(bare.into_iter().map(|task| {
                let words = format!("○ {} ({})", one_line(&task.title), task.state);
                cut(row(words, QUIET), width_max)
            }));
        }
        if rows.is_empty() {
            let text = if self.query.is_empty() {
                "There are no sessions. `piton chat` begins one."
            } else {
                "Nothing fits."
            };
            rows.extend(wrap(row(text, QUIET), width_max, 0));
        }
        (rows, chosen_row)
    }

    fn preview(
        &self,
        preview: &Preview,
        now: Timestamp,
        width_max: usize,
        height: usize,
    ) -> Vec<Row> {
        let Some(summary) = self.chosen() else { return vec![Line::default(); height] };
        let mut head = vec![row(self.title(summary), STRONG)];
        let details = [
            summary.agent_profile_id.clone(),
            summary.working_dir.clone(),
            summary.worktree_branch.as_ref().map(|branch| format!("⎇ {branch}")),
            self.task_words(summary).as_deref().map(one_line),
            Some(times::relative(summary.active_at, now)),
        ];
        let details: Vec<String> = details.into_iter().flatten().collect();
        head.extend(wrap(row(details.join(" · "), QUIET), width_max, 0));
        head.extend(wrap(row(one_line(&summary.sentence), sign(summary).1), width_max, 0));
        head.push(Line::default());
        let mut rows: Vec<Row> = Vec::new();
        if preview.session.as_ref() == Some(&summary.session_id) {
            rows = preview
                .items
                .iter()
                .flat_map(|item| render::item(item, width_max, Detail::Short))
                .collect();
        }
        let room = height.saturating_sub(head.len());
        let skipped = rows.len().saturating_sub(room);
        head.extend(rows.into_iter().skip(skipped));
        head.resize(height, Line::default());
        head.into_iter().map(|row| cut(row, width_max)).collect()
    }
}

fn counted(sessions: usize) -> String {
    match sessions {
        1 => "1 session".to_owned(),
        count => format!("{count} sessions"),
    }
}

/// What it does, as a sign and its colour.
fn sign(summary: &SessionSummary) -> (&'static str, Style) {
    match summary.status.as_str() {
        "waiting" => ("●", WAITING),
        "interrupted_startup" | "interrupted_waiting" | "paused" => ("◐", WAITING),
        "error" | "failed" => ("✗", BAD),
        "running" | "starting" => ("⣾", ACCENT),
        "completed" => ("✓", GOOD),
        "cancelled" => ("–", QUIET),
        _ if is_failed(summary) => ("✗", BAD),
        _ => ("○", QUIET),
    }
}

/// It is idle, and its last run failed.
fn is_failed(summary: &SessionSummary) -> bool {
    summary.last_outcome.as_ref().is_some_and(|outcome| outcome.as_str() == "failed")
}

fn entry(
    summary: &SessionSummary,
    title: &str,
    now: Timestamp,
    width_max: usize,
    is_chosen: bool,
) -> Vec<Row> {
    let (mark, color) = sign(summary);
    let age = times::relative(summary.active_at, now);
    let room = width_max.saturating_sub(age.len() + 4);
    let style = if is_chosen { CHOSEN } else { Style::new() };
    let title = cut(row(title, style), room);
    let gap = room.saturating_sub(width(&title)) + 1;
    let mut spans = vec![span(format!("{mark} "), color)];
    spans.extend(title.spans);
    spans.push(Span::raw(" ".repeat(gap)));
    spans.push(span(age, QUIET));
    let folder = summary
        .working_dir
        .as_deref()
        .and_then(|folder| folder.rsplit('/').next())
        .unwrap_or_default();
    let queued = Some(summary.queue.length)
        .filter(|length| *length > 0)
        .map(|length| format!("{length} queued"));
    let details = [
        summary.agent_profile_id.clone(),
        Some(folder.to_owned()).filter(|folder| !folder.is_empty()),
        summary.worktree_branch.as_ref().map(|branch| format!("⎇ {branch}")),
        queued,
        Some(summary.sentence.clone())
            .filter(|_| Group::of(summary) != Group::Idle || is_failed(summary)),
    ];
    let details: Vec<String> = details.into_iter().flatten().collect();
    let below = cut(row(format!("  {}", one_line(&details.join(" · "))), QUIET), width_max);
    vec![cut(Line::from(spans), width_max), below]
}

fn beside(left: Row, right: Row, left_width: usize) -> Row {
    let left = cut(left, left_width);
    let gap = left_width.saturating_sub(width(&left));
    let mut spans = left.spans;
    spans.push(Span::raw(" ".repeat(gap)));
    spans.push(span("│ ", QUIET));
    spans.extend(right.spans);
    Line::from(spans)
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
