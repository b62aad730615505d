//! Text that others wrote, made fit to be shown: no control characters, no more than fits.

use std::fmt::Write as _;

use piton_core::planted::{self, Bug};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// On one line and harmless to a terminal: line ends and tabs become blanks, and what [`visible`]
/// replaces is replaced.
pub(crate) fn one_line(text: &str) -> String {
    let blank = |c: char| match c {
        '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
        c => c,
    };
    visible(&text.trim().chars().map(blank).collect::<String>())
}

/// Text that others wrote, with every character that would control the terminal or reorder the text
/// replaced by a name that can be read: `^[` for escape, `<U+009B>` for what has no such name. Line
/// ends and tabs stay.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if planted::is(Bug::EscapesPrinted) => shown.push(c),
            // The end of a line as some systems write it.
            '\r' if chars.peek() == Some(&'\n') => {}
            // As terminals echo them: ^@ to ^_.
            '\0'..='\x1f' => {
                shown.push('^');
                shown.push(char::from(c as u8 + b'@'));
            }
            '\x7f' => shown.push_str("^?"),
            c if steers(c) => {
                // Writing to a string does not fail.
                let _ = write!(shown, "<U+{:04X}>", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    shown
}

/// JSON, with what could control the terminal escaped as JSON escapes it: it reads as the same value.
pub(crate) fn visible_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) || c == '\x7f' {
            // Only within a string, and none of them is outside of the first plane.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character beyond ASCII controls the terminal (C1), or reorders what is around it (Unicode's
/// `Bidi_Control`).
fn steers(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cut to a width, with `…` in place of what is missing.
pub(crate) fn shortened(text: &str, width_max: usize) -> String {
    if width(text) <= width_max {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > width_max {
            break;
        }
        used += wide;
        short.push(c);
    }
    format!("{}…", short.trim_end())
}

/// A line as rows of at most this width: control characters made visible, tabs as blanks.
pub(crate) fn rows(line: &str, width_max: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut used = 0;
    for c in visible(&line.replace('\t', "    ")).chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > width_max {
            rows.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(row) = rows.last_mut() {
            row.push(c);
        }
    }
    rows
}

/// Broken at blanks into lines of a width; a word that is longer stays whole.
pub(crate) fn wrapped(text: &str, width_max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if width(line) + 1 + width(word) <= width_max {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Filled up to a width.
pub(crate) fn padded(text: &str, width_min: usize) -> String {
    format!("{text}{}", " ".repeat(width_min.saturating_sub(width(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_harm_a_terminal_is_replaced() {
        assert_eq!(
            one_line(" a\r\nb\tc\x1b[31m\u{9b}0m\u{202e}d\0 "),
            "a  b c^[[31m<U+009B>0m<U+202E>d^@"
        );
        assert_eq!(visible("a\r\nb\tc\rd\x7f"), "a\nb\tc^Md^?");
    }

    /// All that Unicode has with the property `Bidi_Control`, in text and in JSON.
    #[test]
    fn no_character_that_reorders_is_printed() {
        let reordering = [0x61c, 0x200e, 0x200f]
            .into_iter()
            .chain(0x202a..=0x202e)
            .chain(0x2066..=0x2069)
            .map(|code| char::from_u32(code).unwrap());
        for c in reordering {
            let name = format!("<U+{:04X}>", u32::from(c));
            assert_eq!(visible(&c.to_string()), name);
            assert_eq!(visible_json(&c.to_string()), format!("\\u{:04x}", u32::from(c)));
        }
        // Their neighbours are letters, blanks and marks of their own.
        for c in ['\u{61b}', '\u{61d}', '\u{200d}', '\u{2010}', '\u{202f}', '\u{206a}'] {
            assert_eq!(visible(&c.to_string()), c.to_string());
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a\u{9b}": "\x1b]0;\x07 \u{9d}\x7f\u{202e} ü 日"});
        let shown = visible_json(&value.to_string());
        assert!(!shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abcde…");
        assert_eq!(shortened("日本語日本語", 6), "日本…");
        assert_eq!(padded("日", 4), "日  ");
        assert_eq!(wrapped("日本 語 a-long-word b", 6), ["日本", "語", "a-long-word", "b"]);
        assert_eq!(wrapped("", 6), [""]);
        assert_eq!(rows("日本語a", 4), ["日本", "語a"]);
        assert_eq!(rows("a\tb\x1b", 6), ["a    b", "^["]);
        assert_eq!(rows("", 6), [""]);
    }
}
