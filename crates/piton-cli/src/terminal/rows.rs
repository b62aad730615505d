//! Styled text in rows of a width. Everything that others wrote comes in through [`span`], which makes
//! it harmless: nothing on a row controls the terminal.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::text;
use crate::ui::Tone;

/// A row of the screen.
pub(crate) type Row = Line<'static>;

pub(crate) const ACCENT: Style = Style::new().fg(Color::Cyan);
pub(crate) const QUIET: Style = Style::new().add_modifier(Modifier::DIM);
pub(crate) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
pub(crate) const GOOD: Style = Style::new().fg(Color::Green);
pub(crate) const BAD: Style = Style::new().fg(Color::Red);
pub(crate) const WAITING: Style = Style::new().fg(Color::Yellow);
pub(crate) const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

pub(crate) fn style(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Title => STRONG,
        Tone::Quiet => QUIET,
        Tone::Good => GOOD,
        Tone::Active => ACCENT,
        Tone::Attention => WAITING,
        Tone::Bad => BAD.add_modifier(Modifier::BOLD),
    }
}

/// A piece of text on one row: what could control the terminal is replaced.
pub(crate) fn span(text: impl AsRef<str>, style: Style) -> Span<'static> {
    let text = text.as_ref().replace('\t', "    ").replace("\r\n", " ").replace('\n', " ");
    Span::styled(text::visible(&text), style)
}

pub(crate) fn row(text: impl AsRef<str>, style: Style) -> Row {
    Line::from(span(text, style))
}

pub(crate) fn width(row: &Row) -> usize {
    row.spans.iter().map(|span| span.content.width()).sum()
}

/// The row's text without styles.
pub(crate) fn plain(row: &Row) -> String {
    row.spans.iter().map(|span| span.content.as_ref()).collect()
}

/// Cut to a width, with `…` in place of what is missing.
pub(crate) fn cut(row: Row, width_max: usize) -> Row {
    if width(&row) <= width_max {
        return row;
    }
    let mut used = 0;
    let mut spans = Vec::new();
    for span in row.spans {
        let left = width_max.saturating_sub(used);
        let wide = span.content.width();
        if wide < left {
            used += wide;
            spans.push(span);
            continue;
        }
        let mut kept = String::new();
        let mut wide = 0;
        for cluster in span.content.graphemes(true) {
            if wide + cluster.width() + 1 > left {
                break;
            }
            wide += cluster.width();
            kept.push_str(cluster);
        }
        if left > 0 {
            kept.push('…');
        }
        spans.push(Span::styled(kept, span.style));
        break;
    }
    Line::from(spans)
}

/// Broken into rows of a width, at blanks where there are any. The rows behind the first begin with
/// `indent` blanks.
pub(crate) fn wrap(row: Row, width_max: usize, indent: usize) -> Vec<Row> {
    let width_max = width_max.max(4);
    let indent = indent.min(width_max / 2);
    if width(&row) <= width_max {
        return vec![row];
    }
    let mut rows: Vec<Vec<Span<'static>>> = vec![Vec::new()];
    let mut used = 0;
    for (word, is_blank) in words(row) {
        let wide: usize = word.iter().map(|span| span.content.width()).sum();
        if used + wide <= width_max {
            used += wide;
            if let Some(row) = rows.last_mut() {
                row.extend(word);
            }
            continue;
        }
        // A blank at the end of a row is not seen.
        if is_blank {
            used = width_max;
            continue;
        }
        let begin = |rows: &mut Vec<Vec<Span<'static>>>| {
            rows.push(if indent > 0 { vec![Span::raw(" ".repeat(indent))] } else { Vec::new() });
            indent
        };
        if used > if rows.len() > 1 { indent } else { 0 } {
            used = begin(&mut rows);
        }
        if wide <= width_max - used {
            used += wide;
            if let Some(row) = rows.last_mut() {
                row.extend(word);
            }
            continue;
        }
        for span in word {
            let mut piece = String::new();
            for cluster in span.content.graphemes(true) {
                if used + cluster.width() > width_max {
                    let taken = std::mem::take(&mut piece);
                    if let Some(row) = rows.last_mut() {
                        row.push(Span::styled(taken, span.style));
                    }
                    used = begin(&mut rows);
                }
                used += cluster.width();
                piece.push_str(cluster);
            }
            if let Some(row) = rows.last_mut() {
                row.push(Span::styled(piece, span.style));
            }
        }
    }
    rows.into_iter().map(Line::from).collect()
}

/// Words and the blanks between them, each with its styles.
fn words(row: Row) -> Vec<(Vec<Span<'static>>, bool)> {
    let mut words: Vec<(Vec<Span<'static>>, bool)> = Vec::new();
    for span in row.spans {
        let mut piece = String::new();
        let mut blank = None;
        for c in span.content.chars() {
            let is_blank = c == ' ';
            if blank.is_some_and(|blank: bool| blank != is_blank) {
                push_word(
                    &mut words,
                    Span::styled(std::mem::take(&mut piece), span.style),
                    !is_blank,
                );
            }
            blank = Some(is_blank);
            piece.push(c);
        }
        if let Some(is_blank) = blank {
            push_word(&mut words, Span::styled(piece, span.style), is_blank);
        }
    }
    words
}

fn push_word(words: &mut Vec<(Vec<Span<'static>>, bool)>, span: Span<'static>, is_blank: bool) {
    match words.last_mut() {
        Some((spans, last)) if *last == is_blank => spans.push(span),
        _ => words.push((vec![span], is_blank)),
    }
}

/// Each row behind a prefix: the first behind `first`, the others behind `rest`.
pub(crate) fn prefixed(rows: Vec<Row>, first: &Span<'static>, rest: &Span<'static>) -> Vec<Row> {
    let prefix = |(at, row): (usize, Row)| {
        let mut spans = vec![if at == 0 { first.clone() } else { rest.clone() }];
        spans.extend(row.spans);
        Line::from(spans)
    };
    rows.into_iter().enumerate().map(prefix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, width_max: usize, indent: usize) -> Vec<String> {
        wrap(row(text, QUIET), width_max, indent).iter().map(plain).collect()
    }

    #[test]
    fn rows_break_at_blanks_and_long_words_are_cut() {
        assert_eq!(wrapped("one two three", 8, 0), ["one two ", "three"]);
        assert_eq!(wrapped("one two three", 7, 2), ["one two", "  three"]);
        assert_eq!(wrapped("a abcdefghijk b", 5, 0), ["a ", "abcde", "fghij", "k b"]);
        assert_eq!(wrapped("日本語 日本語", 7, 0), ["日本語 ", "日本語"]);
        assert_eq!(wrapped("日本語日本", 5, 0), ["日本", "語日", "本"]);
        assert_eq!(wrapped("", 5, 0), [""]);
    }

    #[test]
    fn styles_stay_over_a_break() {
        let row = Line::from(vec![span("one ", QUIET), span("two three", STRONG)]);
        let rows = wrap(row, 8, 0);
        assert_eq!(rows[1].spans.last().map(|span| span.style), Some(STRONG));
    }

    #[test]
    fn nothing_on_a_row_controls_the_terminal() {
        let row = row("a\x1b[2J\u{9b}1m\u{202e}\r\nb\tc", QUIET);
        assert_eq!(plain(&row), "a^[[2J<U+009B>1m<U+202E> b    c");
        assert_eq!(plain(&cut(self::row("日本語", QUIET), 5)), "日本…");
        assert_eq!(plain(&cut(self::row("日本語", QUIET), 4)), "日…");
        assert_eq!(plain(&cut(self::row("abc", QUIET), 3)), "abc");
    }
}
