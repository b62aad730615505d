//! A checkpoint of a graph: its memory, and the values that a resume from it sets. Pure.

use piton_api::graph::CheckpointView;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Line;
use serde_json::{Map, Value};

use super::timeline::Wanted;
use crate::terminal::editor::Editor;
use crate::terminal::rows::{
    ACCENT, BAD, CHOSEN, QUIET, Row, STRONG, WAITING, row, span, width, wrap,
};
use crate::text::one_line;

/// A checkpoint's memory, and the values that are set when the graph is resumed from it.
#[derive(Debug)]
pub(super) struct Inspection {
    view: CheckpointView,
    keys: Vec<String>,
    chosen: usize,
    set: Map<String, Value>,
    editing: Option<Editor>,
}

impl Inspection {
    pub(super) fn new(view: CheckpointView) -> Self {
        let memory = view.shared_memory.iter().flatten();
        let mut keys: Vec<String> = memory.map(|(key, _)| key.clone()).collect();
        // The value of an excluded key is not saved: it has to be given again.
        let excluded: Vec<String> =
            view.excluded_keys.iter().filter(|key| !keys.contains(key)).cloned().collect();
        keys.extend(excluded);
        Self { view, keys, chosen: 0, set: Map::new(), editing: None }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Wanted> {
        if let Some(editor) = &mut self.editing {
            match key.code {
                KeyCode::Esc => self.editing = None,
                KeyCode::Enter => {
                    let text = editor.text();
                    self.editing = None;
                    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
                    self.set.insert(self.keys.get(self.chosen)?.clone(), value);
                }
                _ => edit(editor, key),
            }
            return None;
        }
        let last = self.keys.len().saturating_sub(1);
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return Some(Wanted::Close),
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            KeyCode::Char('e') | KeyCode::Enter => {
                let mut editor = Editor::default();
                let key = self.keys.get(self.chosen)?;
                editor.set(&self.value(key).map_or_else(String::new, Value::to_string));
                self.editing = Some(editor);
            }
            KeyCode::Char('r') if self.view.can_resume_from => {
                let (checkpoint, set) = (self.view.checkpoint_id.clone(), self.set.clone());
                return Some(Wanted::Resume { checkpoint, set });
            }
            _ => {}
        }
        None
    }

    /// Into the value that is edited; false if none is.
    pub(super) fn paste(&mut self, text: &str) -> bool {
        let Some(editor) = &mut self.editing else { return false };
        editor.paste(text);
        true
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.set.get(key).or_else(|| self.view.shared_memory.as_ref()?.get(key))
    }

    /// The rows, the chosen one, and the cursor while a value is edited.
    pub(super) fn rows(&self, columns: usize) -> (Vec<Row>, usize, Option<(usize, usize)>) {
        let view = &self.view;
        let mut rows = vec![row(one_line(&view.description), STRONG)];
        let path = if view.execution_path.is_empty() {
            "nothing completed".to_owned()
        } else {
            view.execution_path.join(" → ")
        };
        rows.extend(wrap(row(one_line(&path), QUIET), columns, 2));
        rows.extend(
            view.error.iter().flat_map(|error| wrap(row(one_line(error), BAD), columns, 2)),
        );
        rows.push(Line::default());
        rows.push(row("Memory", STRONG));
        let (mut chosen_row, mut cursor) = (0, None);
        for (at, key) in self.keys.iter().enumerate() {
            let is_chosen = at == self.chosen;
            if is_chosen {
                chosen_row = rows.len();
            }
            let name = format!("  {} = ", one_line(key));
            if let (true, Some(editor)) = (is_chosen, &self.editing) {
                let layout =
                    editor.layout(columns.saturating_sub(width(&row(&name, QUIET)) + 1).max(8));
                let indent = width(&row(&name, QUIET));
                cursor = Some((rows.len() + layout.cursor.0, indent + layout.cursor.1));
                for (at, line) in layout.rows.iter().enumerate() {
                    let before = if at == 0 { name.clone() } else { " ".repeat(indent) };
                    rows.push(Line::from(vec![span(before, ACCENT), span(&line.text, STRONG)]));
                }
                continue;
            }
            let (text, tone) = match self.value(key) {
                Some(value) => (value.to_string(), ratatui::style::Style::new()),
                None => ("(never saved)".to_owned(), QUIET),
            };
            let tone = if self.set.contains_key(key) { WAITING } else { tone };
            let name = span(name, if is_chosen { CHOSEN } else { QUIET });
            rows.extend(wrap(Line::from(vec![name, span(one_line(&text), tone)]), columns, 4));
        }
        if self.keys.is_empty() {
            rows.push(row("  empty", QUIET));
        }
        if !self.set.is_empty() {
            let names: Vec<String> = self.set.keys().map(|key| one_line(key)).collect();
            rows.push(row(format!("  set by a resume from here: {}", names.join(", ")), WAITING));
        }
        (rows, chosen_row, cursor)
    }
}

/// A key in a line of the dashboard.
pub(super) fn edit(editor: &mut Editor, key: KeyEvent) {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('a') if is_control => editor.move_line_start(),
        KeyCode::Char('e') if is_control => editor.move_line_end(),
        KeyCode::Char('u') if is_control => editor.kill_line_left(),
        KeyCode::Char('k') if is_control => editor.kill_line_right(),
        KeyCode::Char('w') if is_control => editor.kill_blank_left(),
        KeyCode::Char(_) if is_control => {}
        KeyCode::Char(c) => editor.insert(c),
        KeyCode::Backspace => editor.backspace(),
        KeyCode::Delete => editor.delete(),
        KeyCode::Left => editor.left(),
        KeyCode::Right => editor.right(),
        KeyCode::Home => editor.move_line_start(),
        KeyCode::End => editor.move_line_end(),
        _ => {}
    }
}
