//! The ways in which one secret can be written: as it is, with other line ends, and as JSON writes
//! it inside a string, once or twice. Programs differ in what they escape beyond what they must.

use std::collections::BTreeSet;

use crate::limits::{MASK_VALUE_BYTES_MAX, MASK_VALUE_BYTES_MIN};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Only what has to be escaped.
    Plain,
    /// `/` too.
    Slash,
    /// Everything beyond ASCII too, in either case of the digits.
    Ascii,
    AsciiUpper,
    /// `<`, `>` and `&` too.
    Html,
}

const STYLES: [Style; 5] =
    [Style::Plain, Style::Slash, Style::Ascii, Style::AsciiUpper, Style::Html];

/// Every spelling that is looked for. A value beyond the longest is looked for in pieces.
pub(crate) fn spellings(value: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for piece in pieces(value) {
        let unix = piece.replace("\r\n", "\n");
        let dos = unix.replace('\n', "\r\n");
        for text in [piece.to_owned(), unix, dos] {
            for style in STYLES {
                let once = escape(&text, style);
                all.insert(escape(&once, style));
                all.insert(escape(&once, Style::Plain));
                all.insert(once);
            }
            all.insert(text);
        }
    }
    all
}

fn pieces(value: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = value;
    // The last piece must not be too short to be looked for.
    while rest.len() > MASK_VALUE_BYTES_MAX + MASK_VALUE_BYTES_MIN {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(MASK_VALUE_BYTES_MAX));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// A text as it is inside a JSON string that was written the plain way.
pub(super) fn in_json(text: &str) -> String {
    escape(text, Style::Plain)
}

fn escape(text: &str, style: Style) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '/' if style == Style::Slash => out.push_str("\\/"),
            '<' | '>' | '&' if style == Style::Html => code_units(c, style, &mut out),
            c if c < ' ' => code_units(c, style, &mut out),
            c if !c.is_ascii() && matches!(style, Style::Ascii | Style::AsciiUpper) => {
                code_units(c, style, &mut out);
            }
            c => out.push(c),
        }
    }
    out
}

fn code_units(c: char, style: Style, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        let digits = match style {
            Style::AsciiUpper => format!("\\u{unit:04X}"),
            Style::Plain | Style::Slash | Style::Ascii | Style::Html => format!("\\u{unit:04x}"),
        };
        out.push_str(&digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain style is what our own records are written in: the hint depends on it.
    #[test]
    fn the_plain_style_is_serde_jsons() {
        let all: String = (0..0x250).filter_map(char::from_u32).chain(['𝄞', '\u{2028}']).collect();
        assert_eq!(format!("\"{}\"", in_json(&all)), serde_json::Value::from(all).to_string());
    }

    #[test]
    fn spellings_of_lines_quotes_and_signs() {
        let all = spellings("a\"b/ü\n<c>");
        for expected in [
            "a\"b/ü\n<c>",
            "a\"b/ü\r\n<c>",
            r#"a\"b/ü\n<c>"#,
            r#"a\"b\/ü\n<c>"#,
            r#"a\"b/\u00fc\n<c>"#,
            r#"a\"b/\u00FC\n<c>"#,
            r#"a\"b/ü\n\u003cc\u003e"#,
            r#"a\\\"b/ü\\n<c>"#,
        ] {
            assert!(all.contains(expected), "{expected}");
        }
        assert_eq!(spellings("sk-plain-1234").len(), 1, "most secrets have one spelling");
    }

    #[test]
    fn long_values_are_looked_for_in_pieces_of_which_none_is_short() {
        for extra in [0, 1, 6, 7, MASK_VALUE_BYTES_MAX + 3] {
            let value = "é".repeat(MASK_VALUE_BYTES_MAX / 2 + extra);
            let pieces = pieces(&value);
            assert_eq!(pieces.concat(), value);
            for piece in pieces {
                assert!(piece.len() >= MASK_VALUE_BYTES_MIN, "{}", piece.len());
                assert!(piece.len() <= MASK_VALUE_BYTES_MAX + MASK_VALUE_BYTES_MIN);
            }
        }
    }
}
