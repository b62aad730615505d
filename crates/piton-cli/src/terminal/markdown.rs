//! Markdown as rows of a width: words wrapped, tables drawn, code in colours. Pure.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use super::highlight::Highlighter;
use super::rows::{ACCENT, QUIET, Row, STRONG, cut, plain, prefixed, span, width, wrap};

/// A column of a table is never narrower than this.
const COLUMN_WIDTH_MIN: usize = 4;

/// The rows of a text.
pub(crate) fn rows(text: &str, width_max: usize) -> Vec<Row> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer { width_max: width_max.max(10), ..Writer::default() };
    for event in Parser::new_ext(text, options) {
        writer.take(event);
    }
    writer.end_line();
    while writer.rows.last().is_some_and(|row| row.spans.is_empty()) {
        writer.rows.pop();
    }
    writer.rows
}

/// How much of a text that still grows will look the same whatever follows: up to its last blank line
/// that ends a block.
pub(crate) fn stable_length(text: &str) -> usize {
    let mut stable = 0;
    let mut fence: Option<(char, usize)> = None;
    let mut was_blank = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        // What is indented belongs to a list item before the blank line; a list continues behind one.
        let begins_block = !line.starts_with([' ', '\t']) && !is_list_item(bare);
        if was_blank && fence.is_none() && begins_block && !bare.is_empty() {
            stable = at;
        }
        let mark = bare.chars().next().filter(|c| matches!(c, '`' | '~'));
        let length = mark.map_or(0, |mark| bare.chars().take_while(|c| *c == mark).count());
        match (fence, mark) {
            (None, Some(mark)) if length >= 3 => fence = Some((mark, length)),
            (Some((open, opened)), Some(mark))
                if mark == open && length >= opened && bare.len() == length =>
            {
                fence = None;
            }
            _ => {}
        }
        was_blank = bare.is_empty() && line.ends_with('\n');
        at += line.len();
    }
    stable
}

fn is_list_item(line: &str) -> bool {
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ")
        || line.starts_with("* ")
        || line.starts_with("+ ")
        || (digits.len() < line.len() && (digits.starts_with(". ") || digits.starts_with(") ")))
}

#[derive(Debug, Default)]
struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Vec<Span<'static>>>>,
}

#[derive(Debug, Default)]
struct Writer {
    width_max: usize,
    rows: Vec<Row>,
    /// The paragraph, heading or cell that is being read.
    line: Vec<Span<'static>>,
    styles: Vec<Style>,
    /// Numbers of the open lists; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// What the next row of a list item begins with.
    marker: Option<String>,
    quotes: usize,
    code: Option<Highlighter>,
    link: Option<String>,
    table: Option<Table>,
}

impl Writer {
    fn style(&self) -> Style {
        self.styles.iter().fold(Style::new(), |all, style| all.patch(*style))
    }

    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.code.is_some() => self.code_lines(&text),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                let style = self.style();
                self.line.push(span(&*text, style));
            }
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                let style = self.style().patch(ACCENT);
                self.line.push(span(&*text, style));
            }
            Event::SoftBreak => self.line.push(Span::raw(" ")),
            Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.separate();
                let width = self.width_max.min(24);
                self.push(vec![span("─".repeat(width), QUIET)]);
            }
            Event::TaskListMarker(done) => {
                self.line.push(span(if done { "[x] " } else { "[ ] " }, ACCENT));
            }
            Event::FootnoteReference(name) => self.line.push(span(format!("[{name}]"), QUIET)),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.separate(),
            Tag::Heading { level, .. } => {
                self.separate();
                let underlined = if level == HeadingLevel::H1 {
                    Modifier::UNDERLINED
                } else {
                    Modifier::empty()
                };
                self.styles.push(STRONG.add_modifier(underlined));
            }
            Tag::BlockQuote(_) => {
                self.separate();
                self.quotes += 1;
                self.styles.push(QUIET);
            }
            Tag::CodeBlock(kind) => {
                self.separate();
                let language = match &kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some(Highlighter::new(&language));
            }
            Tag::List(first) => {
                if self.lists.is_empty() {
                    self.separate();
                } else {
                    self.end_line();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.end_line();
                let depth = self.lists.len();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                };
                self.marker = Some(format!("{}{marker}", "  ".repeat(depth.saturating_sub(1))));
            }
            Tag::Emphasis => self.styles.push(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(STRONG),
            Tag::Strikethrough => {
                self.styles.push(Style::new().add_modifier(Modifier::CROSSED_OUT));
            }
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some(dest_url.to_string());
                self.styles.push(Style::new().add_modifier(Modifier::UNDERLINED));
            }
            Tag::Table(alignments) => {
                self.separate();
                self.table = Some(Table { alignments, rows: Vec::new() });
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.end_line(),
            TagEnd::Heading(_) => {
                self.end_line();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_line();
                self.quotes = self.quotes.saturating_sub(1);
                self.styles.pop();
            }
            TagEnd::CodeBlock => self.code = None,
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
            }
            TagEnd::Item => {
                self.end_line();
                // An item that says nothing has its mark.
                if let Some(marker) = self.marker.take() {
                    self.push(vec![span(marker.trim_end(), ACCENT)]);
                }
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                let said: String =
                    self.line.last().map(|span| span.content.to_string()).unwrap_or_default();
                if let Some(link) =
                    self.link.take().filter(|link| *link != said && !link.is_empty())
                {
                    self.line.push(span(format!(" ({link})"), QUIET));
                }
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.line);
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.end_table(),
            _ => {}
        }
    }

    /// A blank row between blocks; list items stay together.
    fn separate(&mut self) {
        self.end_line();
        let is_in_list = !self.lists.is_empty();
        if !is_in_list && self.rows.last().is_some_and(|row| !row.spans.is_empty()) {
            self.rows.push(Line::default());
        }
    }

    fn end_line(&mut self) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.push(line);
        }
    }

    /// What a row begins with: marks of quotes, and the list item's mark or its indent.
    fn prefix(&mut self) -> (Span<'static>, Span<'static>) {
        let quote = "│ ".repeat(self.quotes);
        let indent = match self.lists.len() {
            0 => 0,
            depth => {
                let number = self.lists.last().copied().flatten();
                2 * (depth - 1)
                    + number.map_or(2, |number| number.saturating_sub(1).to_string().len() + 2)
            }
        };
        let rest = format!("{quote}{}", " ".repeat(indent));
        match self.marker.take() {
            Some(marker) => (span(format!("{quote}{marker}"), ACCENT), span(rest, QUIET)),
            None => (span(&rest, QUIET), span(&rest, QUIET)),
        }
    }

    fn push(&mut self, line: Vec<Span<'static>>) {
        let (first, rest) = self.prefix();
        let taken = first.content.width().max(rest.content.width());
        let left = self.width_max.saturating_sub(taken).max(8);
        let wrapped = wrap(Line::from(line), left, 0);
        let is_bare = taken == 0;
        self.rows.extend(if is_bare { wrapped } else { prefixed(wrapped, &first, &rest) });
    }

    fn code_lines(&mut self, text: &str) {
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            let Some(code) = &mut self.code else { return };
            let mut spans = vec![Span::raw("  ")];
            spans.extend(code.line(line));
            let (first, rest) = self.prefix();
            let left = self.width_max.saturating_sub(rest.content.width()).max(8);
            // Code keeps its blanks: a row that is too long is cut where the screen ends.
            let wrapped = wrap(Line::from(spans), left, 4);
            self.rows.extend(if rest.content.is_empty() {
                wrapped
            } else {
                prefixed(wrapped, &first, &rest)
            });
        }
    }

    fn end_table(&mut self) {
        let Some(Table { alignments, rows }) = self.table.take() else { return };
        let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
        if columns == 0 {
            return;
        }
        let wide =
            |cell: &Vec<Span<'static>>| cell.iter().map(|span| span.content.width()).sum::<usize>();
        let mut widths: Vec<usize> = (0..columns)
            .map(|at| rows.iter().filter_map(|row| row.get(at)).map(wide).max().unwrap_or(0).max(1))
            .collect();
        let room = self.width_max.saturating_sub(3 * (columns - 1)).max(columns);
        while widths.iter().sum::<usize>() > room {
            let Some(widest) = widths.iter_mut().max() else { break };
            if *widest <= COLUMN_WIDTH_MIN {
                break;
            }
            *widest -= 1;
        }
        for (at, row) in rows.into_iter().enumerate() {
            let cells: Vec<Vec<Row>> = (0..columns)
                .map(|column| {
                    let cell = row.get(column).cloned().unwrap_or_default();
                    let cell = if at == 0 { bold(cell) } else { cell };
                    wrap(Line::from(cell), widths[column], 0)
                })
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(1);
            for line in 0..height {
                let mut spans = Vec::new();
                for (column, cell) in cells.iter().enumerate() {
                    if column > 0 {
                        spans.push(span(" │ ", QUIET));
                    }
                    let part = cell.get(line).cloned().unwrap_or_default();
                    let alignment = alignments.get(column).copied().unwrap_or(Alignment::None);
                    spans.extend(padded(part, widths[column], alignment));
                }
                let row = cut(Line::from(spans), self.width_max);
                self.rows.push(row);
            }
            if at == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                self.rows.push(cut(Line::from(span(rule.join("─┼─"), QUIET)), self.width_max));
            }
        }
    }
}

fn bold(cell: Vec<Span<'static>>) -> Vec<Span<'static>> {
    cell.into_iter().map(|span| Span::styled(span.content, span.style.patch(STRONG))).collect()
}

fn padded(row: Row, width_min: usize, alignment: Alignment) -> Vec<Span<'static>> {
    // A blank where the row was broken is not seen.
    let text = plain(&row);
    let blanks = text.len() - text.trim_end().len();
    let missing = width_min.saturating_sub(width(&row) - blanks.min(width(&row)));
    let left = match alignment {
        Alignment::Right => missing,
        Alignment::Center => missing / 2,
        Alignment::Left | Alignment::None => 0,
    };
    let mut spans = vec![Span::raw(" ".repeat(left))];
    spans.extend(row.spans);
    spans.push(Span::raw(" ".repeat((missing - left).saturating_sub(blanks))));
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(markdown: &str, width_max: usize) -> Vec<String> {
        rows(markdown, width_max).iter().map(|row| plain(row).trim_end().to_owned()).collect()
    }

    #[test]
    fn blocks_are_separated_and_words_wrapped() {
        let markdown = "# Title\nSome **bold** words that wrap here.\n\n- one\n- two `x`\n  more\n\n1. a\n2. b\n\n> said";
        assert_eq!(
            text(markdown, 20),
            [
                "Title",
                "",
                "Some bold words that",
                "wrap here.",
                "",
                "• one",
                "• two x more",
                "",
                "1. a",
                "2. b",
                "",
                "│ said"
            ]
        );
    }

    #[test]
    fn lists_within_lists_are_indented() {
        assert_eq!(
            text("- one\n  - two words of it\n- three", 14),
            ["• one", "  • two words", "    of it", "• three"]
        );
    }

    #[test]
    fn tables_fit_their_width() {
        let table = "| name | value |\n|---|--:|\n| a | 1 |\n| 日本 | a long text in here |";
        assert_eq!(
            text(table, 60),
            [
                "name │               value",
                "─────┼────────────────────",
                "a    │                   1",
                "日本 │ a long text in here"
            ]
        );
        assert_eq!(
            text(table, 18),
            [
                "name │       value",
                "─────┼────────────",
                "a    │           1",
                "日本 │ a long text",
                "     │     in here"
            ]
        );
        for width_max in 10..40 {
            assert!(rows(table, width_max).iter().all(|row| width(row) <= width_max));
        }
    }

    #[test]
    fn code_keeps_its_lines_and_hostile_text_is_harmless() {
        assert_eq!(
            text("```rust\nfn x() {\n    1\n}\n```\nend", 40),
            ["  fn x() {", "      1", "  }", "", "end"]
        );
        assert_eq!(text("a \x1b[2Jb <b>html</b>", 40), ["a ^[[2Jb <b>html</b>"]);
        assert_eq!(text("[look](http://x.y) <http://x.y>", 60), ["look (http://x.y) http://x.y"]);
        assert_eq!(text("", 40), [""; 0]);
    }

    #[test]
    fn a_growing_text_is_stable_behind_a_block() {
        for (text, stable) in [
            ("one", ""),
            ("one\n\ntwo", "one\n\n"),
            ("one\n\n", ""),
            ("```\na\n\nb", ""),
            ("```\na\n```\n\nb", "```\na\n```\n\n"),
            ("- a\n\n- b\n\n  c", ""),
            ("- a\n\nb\n\nc", "- a\n\nb\n\n"),
        ] {
            assert_eq!(&text[..stable_length(text)], stable, "{text:?}");
        }
        // Drawn in two parts it looks as drawn at once.
        let whole = "# A\n\ntext **b**\n\n- x\n- y\n\n```\ncode\n\nmore\n```\n\nend";
        let at = stable_length(whole);
        let mut parts = text(&whole[..at], 30);
        parts.push(String::new());
        parts.extend(text(&whole[at..], 30));
        assert_eq!(parts, text(whole, 30));
    }
}
