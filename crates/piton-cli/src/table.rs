//! Tables that fit: ids are never cut, other columns give way, and when even that is too wide the
//! columns of a row stand below each other.

use crate::error::Result;
use crate::text::{one_line, padded, shortened, width};
use crate::ui::{Tone, Ui};

const GAP: usize = 2;
/// A column that may be cut keeps at least this much.
const CUT_MIN: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Shown whole: ids, numbers, states.
    Whole(&'static str),
    /// Cut to what is left: titles, texts.
    Cut(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Whole(title) | Self::Cut(title) => title,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<(Tone, String)>>,
}

impl Table {
    pub(crate) fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// What does not fit on one line, or would control the terminal, is replaced.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<(Tone, String)>>) {
        let cells = cells.into().into_iter().map(|(tone, text)| (tone, one_line(&text)));
        self.rows.push(cells.collect());
    }

    pub(crate) fn print(&self, ui: &mut Ui) -> Result<()> {
        let available = Ui::table_width();
        match self.widths(available) {
            Some(widths) => self.print_side_by_side(ui, &widths),
            None => self.print_stacked(ui, available),
        }
    }

    /// The columns' widths; `None` if they do not fit beside each other.
    fn widths(&self, available: usize) -> Option<Vec<usize>> {
        let wish = |i: usize, column: &Column| {
            let cells = self.rows.iter().filter_map(|row| row.get(i));
            let cells = cells.map(|(_, text)| width(text)).max().unwrap_or(0);
            cells.max(width(column.title()))
        };
        let mut widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(i, column)| wish(i, column)).collect();
        let gaps = GAP * (widths.len().saturating_sub(1));
        let mut over = (widths.iter().sum::<usize>() + gaps).saturating_sub(available);
        for (width, column) in widths.iter_mut().zip(&self.columns).rev() {
            if matches!(column, Column::Cut(_)) {
                let give = over.min(width.saturating_sub(CUT_MIN));
                *width -= give;
                over -= give;
            }
        }
        (over == 0).then_some(widths)
    }

    fn print_side_by_side(&self, ui: &mut Ui, widths: &[usize]) -> Result<()> {
        let titles =
            self.columns.iter().map(|column| (Tone::Title, column.title().to_owned())).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let mut line = String::new();
            for (i, ((tone, text), width)) in row.iter().zip(widths).enumerate() {
                let text = shortened(text, *width);
                let is_last = i + 1 == row.len();
                let filled = if is_last { text } else { padded(&text, width + GAP) };
                // Only the text is painted: a line that ends in blanks wraps badly.
                let (text, blanks) = filled.split_at(filled.trim_end().len());
                line.push_str(&ui.paint(*tone, text));
                line.push_str(blanks);
            }
            ui.line(line.trim_end())?;
        }
        Ok(())
    }

    /// The first column, below it the others that are shown whole, below them those that are cut.
    fn print_stacked(&self, ui: &mut Ui, available: usize) -> Result<()> {
        let indent = " ".repeat(GAP);
        for row in &self.rows {
            let mut cells = row.iter().zip(&self.columns);
            let Some(((tone, text), _)) = cells.next() else { continue };
            ui.line(ui.paint(*tone, text))?;
            let (mut line, mut used) = (String::new(), 0);
            for ((tone, text), column) in cells.filter(|((_, text), _)| !text.is_empty()) {
                let text = match column {
                    Column::Whole(_) => text.clone(),
                    Column::Cut(_) => shortened(text, available - GAP),
                };
                let is_full = used + GAP + width(&text) > available;
                if used > 0 && (is_full || matches!(column, Column::Cut(_))) {
                    ui.line(std::mem::take(&mut line))?;
                    used = 0;
                }
                line += &indent;
                line += &ui.paint(*tone, &text);
                used += GAP + width(&text);
            }
            if used > 0 {
                ui.line(line)?;
            }
        }
        Ok(())
    }
}
