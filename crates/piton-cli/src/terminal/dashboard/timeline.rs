//! A session's checkpoints and lineages on the whole screen: those of a graph with their memory, what
//! changed between two of them, and a resume from one with edited values; those of an agent's turns with
//! the way back to them. Pure: keys in, a picture and requests out.

use piton_api::graph::{CheckpointDiff, CheckpointSummary, CheckpointView, GraphView, KeyChanges};
use piton_api::rewind::{TurnCheckpoint, TurnCheckpointList};
use piton_core::id::SessionId;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::text::Line;
use serde_json::{Map, Value};

use super::inspection::Inspection;
use crate::terminal::display::Picture;
use crate::terminal::rows::{
    ACCENT, BAD, CHOSEN, GOOD, QUIET, Row, STRONG, WAITING, cut, row, span, style, wrap,
};
use crate::text::one_line;
use crate::ui::Tone;

/// What a key asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wanted {
    Nothing,
    Close,
    Inspect(String),
    Diff { from: String, to: String },
    Resume { checkpoint: String, set: Map<String, Value> },
    Rewind { checkpoint: String },
    Undo,
}

/// What there is to show of a session.
#[derive(Clone, Debug)]
pub(crate) enum Checkpoints {
    Graph(Box<GraphView>, Vec<CheckpointSummary>),
    Turns(TurnCheckpointList),
}

#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) session: SessionId,
    /// The last record that was there when it was read.
    pub(crate) last_seq: u64,
    title: String,
    is_graph: bool,
    lineage: u32,
    entries: Vec<Entry>,
    chosen: usize,
    /// The checkpoint that the chosen one is compared with.
    marked: Option<String>,
    page: Page,
    pub(crate) message: Option<(Tone, String)>,
    /// Rewinding waits for its confirmation.
    confirms: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    id: String,
    lineage: u32,
    /// It counts: no later lineage began before it.
    is_live: bool,
    can_resume: bool,
    at: String,
    words: String,
    error: Option<String>,
}

#[derive(Debug)]
enum Page {
    List,
    Inspect(Box<Inspection>),
    Diff(Vec<Row>, usize),
}

impl Entry {
    fn of_graph(one: CheckpointSummary, lineage: u32) -> Self {
        let is_clean = if one.is_clean { "" } else { " · after a failed attempt" };
        Self {
            id: one.checkpoint_id,
            lineage: one.lineage,
            is_live: one.lineage == lineage,
            can_resume: one.can_resume_from,
            at: one.created_at,
            words: format!("{}{is_clean}", one.description),
            error: one.error,
        }
    }

    fn of_turn(one: &TurnCheckpoint) -> Self {
        let words = match (one.checkpoint_type.as_str(), one.has_files) {
            ("turn_start", true) => "before a turn",
            ("turn_start", false) => "before a turn, without its files",
            (_, true) => "after a turn",
            (_, false) => "after a turn, without its files",
        };
        Self {
            id: one.checkpoint_id.to_string(),
            lineage: one.lineage,
            is_live: one.is_live,
            can_resume: true,
            at: one.created_at.to_string(),
            words: words.to_owned(),
            error: None,
        }
    }
}

impl Timeline {
    pub(crate) fn new(session: SessionId, last_seq: u64, checkpoints: Checkpoints) -> Self {
        let mut timeline = Self {
            session,
            last_seq,
            title: String::new(),
            is_graph: false,
            lineage: 1,
            entries: Vec::new(),
            chosen: 0,
            marked: None,
            page: Page::List,
            message: None,
            confirms: false,
        };
        timeline.set(last_seq, checkpoints);
        // Where a resume would begin is what most people look for.
        timeline.chosen = timeline.entries.iter().position(|one| one.error.is_some()).unwrap_or(0);
        timeline
    }

    /// Takes a newer reading; the choice stays where it is.
    pub(crate) fn set(&mut self, last_seq: u64, checkpoints: Checkpoints) {
        let chosen = self.entry().map(|entry| entry.id.clone());
        self.last_seq = last_seq;
        match checkpoints {
            Checkpoints::Graph(graph, all) => {
                self.is_graph = true;
                self.lineage = graph.lineage;
                let state = match (&graph.failed_at_node, graph.waits.is_empty()) {
                    (Some(node), _) => format!("failed at {node}"),
                    (None, false) => "waits for an answer".to_owned(),
                    (None, true) => format!("{} nodes completed", graph.execution_path.len()),
                };
                self.title = format!("graph {} · {state}", graph.graph);
                let lineage = self.lineage;
                self.entries = all.into_iter().map(|one| Entry::of_graph(one, lineage)).collect();
            }
            Checkpoints::Turns(list) => {
                "turns".clone_into(&mut self.title);
                self.lineage = list.lineage;
                self.entries = list.checkpoints.iter().map(Entry::of_turn).collect();
            }
        }
        // Newest lineage first, as within each.
        self.entries.sort_by_key(|entry| std::cmp::Reverse(entry.lineage));
        let again = chosen.and_then(|id| self.entries.iter().position(|one| one.id == id));
        self.chosen = again.unwrap_or(0);
    }

    pub(crate) fn inspected(&mut self, view: CheckpointView) {
        self.page = Page::Inspect(Box::new(Inspection::new(view)));
    }

    pub(crate) fn compared(&mut self, diff: &CheckpointDiff) {
        self.page = Page::Diff(diff_rows(diff), 0);
    }

    /// Back to the list: what was asked for is done.
    pub(crate) fn show_list(&mut self) {
        self.page = Page::List;
    }

    fn entry(&self) -> Option<&Entry> {
        self.entries.get(self.chosen)
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> Wanted {
        self.message = None;
        let confirms = std::mem::take(&mut self.confirms);
        match &mut self.page {
            Page::List => self.list_key(key, confirms),
            Page::Inspect(inspection) => match inspection.key(key) {
                Some(Wanted::Close) => {
                    self.page = Page::List;
                    Wanted::Nothing
                }
                wanted => wanted.unwrap_or(Wanted::Nothing),
            },
            Page::Diff(rows, first) => {
                match key.code {
                    KeyCode::Up | KeyCode::Char('k') => *first = first.saturating_sub(1),
                    KeyCode::Down | KeyCode::Char('j') => {
                        *first = (*first + 1).min(rows.len().saturating_sub(1));
                    }
                    _ => self.page = Page::List,
                }
                Wanted::Nothing
            }
        }
    }

    /// Into the value that is edited; false if none is.
    pub(crate) fn paste(&mut self, text: &str) -> bool {
        self.message = None;
        self.confirms = false;
        match &mut self.page {
            Page::Inspect(inspection) => inspection.paste(text),
            Page::List | Page::Diff(..) => false,
        }
    }

    fn list_key(&mut self, key: KeyEvent, confirms: bool) -> Wanted {
        let last = self.entries.len().saturating_sub(1);
        let mut say = |text: &str| {
            self.message = Some((Tone::Attention, text.to_owned()));
            Wanted::Nothing
        };
        match key.code {
            KeyCode::Esc | KeyCode::Char('q' | 't') => return Wanted::Close,
            KeyCode::Char('u') if !self.is_graph => return Wanted::Undo,
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            KeyCode::PageUp => self.chosen = self.chosen.saturating_sub(10),
            KeyCode::PageDown => self.chosen = (self.chosen + 10).min(last),
            KeyCode::Home => self.chosen = 0,
            KeyCode::End => self.chosen = last,
            _ => {}
        }
        let Some(entry) = self.entries.get(self.chosen) else { return Wanted::Nothing };
        let id = entry.id.clone();
        match key.code {
            KeyCode::Enter | KeyCode::Char('e') if self.is_graph => Wanted::Inspect(id),
            KeyCode::Char(' ') => {
                self.marked = if self.marked.as_ref() == Some(&id) { None } else { Some(id) };
                Wanted::Nothing
            }
            KeyCode::Char('d') if self.is_graph => {
                // Without a mark: what the step to this checkpoint changed.
                let before = self.entries.get(self.chosen + 1).map(|one| one.id.clone());
                match self.marked.clone().filter(|marked| *marked != id).or(before) {
                    Some(from) => Wanted::Diff { from, to: id },
                    None => say("There is no checkpoint before this one. Space marks another."),
                }
            }
            KeyCode::Char('r') if !entry.can_resume => {
                say("The graph cannot be resumed from this checkpoint.")
            }
            KeyCode::Char('r') if self.is_graph => {
                Wanted::Resume { checkpoint: id, set: Map::new() }
            }
            KeyCode::Char('r') => {
                self.confirms = true;
                say("y rewinds files and conversation to here; u undoes it. Any other key: not.");
                Wanted::Nothing
            }
            KeyCode::Char('y') if confirms => Wanted::Rewind { checkpoint: id },
            _ => Wanted::Nothing,
        }
    }

    pub(crate) fn picture(&self, columns: usize, rows_max: usize) -> Picture {
        let columns = columns.max(12);
        let height = rows_max.saturating_sub(3).max(1);
        let head = vec![
            span("Timeline", STRONG.patch(ACCENT)),
            span(format!("  {}", one_line(&self.title)), QUIET),
        ];
        let mut cursor = None;
        let (body, chosen_row, keys) = match &self.page {
            Page::List => {
                let (rows, chosen) = self.list(columns);
                let keys = if self.is_graph {
                    "enter inspect, edit · d what changed · space mark · r resume from here · esc back"
                } else {
                    "r rewind to here · u undo the last rewind · ↑ ↓ choose · esc back"
                };
                (rows, chosen, keys)
            }
            Page::Inspect(inspection) => {
                let (rows, chosen, editing) = inspection.rows(columns);
                cursor = editing;
                let keys = if editing.is_some() {
                    "enter sets the value (JSON, else a text) · esc leaves it"
                } else {
                    "↑ ↓ choose · e edit the value · r resume from here · esc back"
                };
                (rows, chosen, keys)
            }
            Page::Diff(rows, first) => {
                (rows.iter().skip(*first).cloned().collect(), 0, "↑ ↓ scroll · any other key: back")
            }
        };
        let first = (chosen_row + 2).saturating_sub(height).min(body.len().saturating_sub(height));
        let mut rows = vec![cut(Line::from(head), columns)];
        rows.extend(body.into_iter().skip(first).take(height).map(|one| cut(one, columns)));
        rows.resize(height + 1, Line::default());
        rows.push(match &self.message {
            Some((tone, text)) => cut(row(one_line(text), style(*tone)), columns),
            None => Line::default(),
        });
        rows.push(cut(row(keys, QUIET), columns));
        let cursor = cursor.map(|(row, column)| (row + 1 - first, column.min(columns - 1)));
        Picture { rows, cursor }
    }

    fn list(&self, columns: usize) -> (Vec<Row>, usize) {
        let mut rows = Vec::new();
        let mut chosen_row = 0;
        let mut lineage = None;
        for (at, entry) in self.entries.iter().enumerate() {
            if lineage.replace(entry.lineage) != Some(entry.lineage) {
                let state = if entry.lineage == self.lineage { "current" } else { "left behind" };
                rows.push(row(format!("Lineage {} ({state})", entry.lineage), STRONG));
            }
            if at == self.chosen {
                chosen_row = rows.len();
            }
            let is_marked = self.marked.as_ref() == Some(&entry.id);
            let sign = match (&entry.error, entry.can_resume) {
                (Some(_), _) => span("✗ ", BAD),
                (None, true) => span("● ", if entry.is_live { GOOD } else { QUIET }),
                (None, false) => span("○ ", QUIET),
            };
            let words_style = if at == self.chosen { CHOSEN } else { ratatui::style::Style::new() };
            // The hour, not the day: the day is the session's.
            let time = entry.at.get(11..19).unwrap_or(&entry.at);
            rows.push(Line::from(vec![
                span(if is_marked { "* " } else { "  " }, WAITING),
                sign,
                span(one_line(&entry.words), words_style),
                span(format!("  {time}  {}", tail(&entry.id)), QUIET),
            ]));
            if let Some(error) = &entry.error {
                rows.extend(wrap(row(format!("      {}", one_line(error)), BAD), columns, 6));
            }
        }
        if rows.is_empty() {
            rows.push(row("There are no checkpoints yet.", QUIET));
        }
        (rows, chosen_row)
    }
}

/// Ids begin alike: their ends tell them apart.
fn tail(id: &str) -> &str {
    id.get(id.len().saturating_sub(6)..).unwrap_or(id)
}

fn diff_rows(diff: &CheckpointDiff) -> Vec<Row> {
    let title = format!("{} → {}", tail(&diff.from_checkpoint_id), tail(&diff.to_checkpoint_id));
    let mut rows = vec![row(title, STRONG)];
    let node =
        |sign: &str, name: &String, style| row(format!("{sign} node {}", one_line(name)), style);
    rows.extend(diff.nodes_undone.iter().map(|name| node("-", name, BAD)));
    rows.extend(diff.nodes_completed.iter().map(|name| node("+", name, GOOD)));
    change_rows("memory", &diff.memory, &mut rows);
    change_rows("output", &diff.outputs, &mut rows);
    let excluded = diff.excluded_keys.iter();
    rows.extend(
        excluded.map(|key| row(format!("~ memory {} (never saved)", one_line(key)), WAITING)),
    );
    if rows.len() == 1 {
        rows.push(row("Nothing changed.", QUIET));
    }
    rows
}

fn change_rows(what: &str, changes: &KeyChanges, rows: &mut Vec<Row>) {
    let line = |sign: &str, key: &String, text: String| {
        format!("{sign} {what} {} = {}", one_line(key), one_line(&text))
    };
    for (key, value) in &changes.removed {
        rows.push(row(line("-", key, value.to_string()), BAD));
    }
    for (key, value) in &changes.added {
        rows.push(row(line("+", key, value.to_string()), GOOD));
    }
    for (key, value) in &changes.changed {
        let text = format!("{} → {}", value["from"], value["to"]);
        rows.push(row(line("~", key, text), WAITING));
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
