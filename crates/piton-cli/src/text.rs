//! Text that others wrote, made fit to be shown: no control characters, no more than fits.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// On one line and harmless to a terminal: line ends and tabs become blanks, other control
/// characters and those that reorder text become `�`.
pub(crate) fn one_line(text: &str) -> String {
    let clean = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{2028}' | '\u{2029}' => ' ',
        c => c,
    };
    text.trim().chars().map(clean).collect()
}

/// Text of somebody else's, without what would steer the terminal.
pub(crate) fn visible(text: &str) -> String {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
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
        assert_eq!(one_line(" a\r\nb\tc\x1b[31m\u{9b}0m\u{202e}d\0 "), "a  b c�[31m�0m�d�");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abcde…");
        assert_eq!(shortened("日本語日本語", 6), "日本…");
        assert_eq!(padded("日", 4), "日  ");
        assert_eq!(wrapped("日本 語 a-long-word b", 6), ["日本", "語", "a-long-word", "b"]);
        assert_eq!(wrapped("", 6), [""]);
    }
}
