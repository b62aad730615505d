//! Code in colours: words, strings, comments and numbers by the family of the language. Light on
//! purpose: no grammar is loaded, a line costs its length, and what is not known stays plain.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use super::rows::{QUIET, span};

const WORD: Style = Style::new().fg(Color::Magenta);
const TEXT: Style = Style::new().fg(Color::Green);
const NUMBER: Style = Style::new().fg(Color::Yellow);
const COMMENT: Style = QUIET.add_modifier(Modifier::ITALIC);

/// What a family of languages has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Family {
    line_comment: &'static [&'static str],
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static [char],
    words: &'static [&'static str],
}

const C_WORDS: &[&str] = &[
    "abstract",
    "as",
    "async",
    "await",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "continue",
    "crate",
    "default",
    "defer",
    "delete",
    "do",
    "dyn",
    "else",
    "enum",
    "export",
    "extends",
    "extern",
    "false",
    "finally",
    "float",
    "fn",
    "for",
    "from",
    "func",
    "function",
    "go",
    "if",
    "impl",
    "implements",
    "import",
    "in",
    "instanceof",
    "int",
    "interface",
    "let",
    "long",
    "loop",
    "match",
    "mod",
    "move",
    "mut",
    "namespace",
    "new",
    "nil",
    "null",
    "of",
    "package",
    "private",
    "protected",
    "pub",
    "public",
    "range",
    "ref",
    "return",
    "select",
    "self",
    "Self",
    "static",
    "struct",
    "super",
    "switch",
    "template",
    "this",
    "throw",
    "trait",
    "true",
    "try",
    "type",
    "typedef",
    "typeof",
    "undefined",
    "unsafe",
    "use",
    "using",
    "var",
    "virtual",
    "void",
    "where",
    "while",
    "yield",
];
const PYTHON_WORDS: &[&str] = &[
    "and", "as", "assert", "async", "await", "begin", "break", "case", "class", "continue", "def",
    "del", "do", "elif", "else", "elsif", "end", "ensure", "except", "False", "finally", "for",
    "from", "global", "if", "import", "in", "is", "lambda", "match", "module", "nil", "None",
    "nonlocal", "not", "or", "pass", "raise", "require", "rescue", "return", "self", "True", "try",
    "unless", "until", "while", "with", "yield",
];
const SHELL_WORDS: &[&str] = &[
    "case", "cd", "do", "done", "echo", "elif", "else", "esac", "exit", "export", "fi", "for",
    "function", "if", "in", "local", "return", "set", "source", "sudo", "then", "until", "while",
];
const SQL_WORDS: &[&str] = &[
    "and", "as", "by", "create", "delete", "desc", "distinct", "drop", "from", "group", "having",
    "in", "index", "insert", "into", "is", "join", "left", "limit", "not", "null", "on", "or",
    "order", "primary", "select", "set", "table", "update", "values", "where", "with",
];
const DATA_WORDS: &[&str] = &["true", "false", "null", "yes", "no"];

const C_LIKE: Family = Family {
    line_comment: &["//"],
    block_comment: Some(("/*", "*/")),
    quotes: &['"', '\'', '`'],
    words: C_WORDS,
};
/// In Rust a lone `'` is a lifetime.
const RUST: Family = Family { quotes: &['"'], ..C_LIKE };
const PYTHON: Family =
    Family { line_comment: &["#"], block_comment: None, quotes: &['"', '\''], words: PYTHON_WORDS };
const SHELL: Family = Family { words: SHELL_WORDS, ..PYTHON };
const DATA: Family = Family { words: DATA_WORDS, ..PYTHON };
const JSON: Family = Family { line_comment: &["//"], quotes: &['"'], ..DATA };
const SQL: Family = Family {
    line_comment: &["--"],
    block_comment: Some(("/*", "*/")),
    quotes: &['\'', '"'],
    words: SQL_WORDS,
};

fn family(language: &str) -> Option<Family> {
    let name = language.split(|c: char| c == ',' || c.is_whitespace()).next().unwrap_or_default();
    Some(match name.to_ascii_lowercase().as_str() {
        "rust" | "rs" => RUST,
        "c" | "h" | "cpp" | "c++" | "cc" | "cs" | "csharp" | "java" | "kotlin" | "kt" | "swift"
        | "go" | "js" | "jsx" | "javascript" | "mjs" | "ts" | "tsx" | "typescript" | "scala"
        | "zig" | "dart" | "php" | "css" | "scss" => C_LIKE,
        "python" | "py" | "ruby" | "rb" | "elixir" | "ex" => PYTHON,
        "sh" | "bash" | "zsh" | "shell" | "console" | "make" | "makefile" | "dockerfile" => SHELL,
        "json" | "jsonc" => JSON,
        "toml" | "yaml" | "yml" | "ini" => DATA,
        "sql" => SQL,
        _ => return None,
    })
}

/// Lines of one piece of code; what is open at the end of a line counts on the next one.
#[derive(Debug)]
pub(crate) struct Highlighter {
    family: Option<Family>,
    in_comment: bool,
}

impl Highlighter {
    pub(crate) fn new(language: &str) -> Self {
        Self { family: family(language), in_comment: false }
    }

    /// By the name of a file.
    pub(crate) fn for_path(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or_default();
        Self::new(name.rsplit_once('.').map_or(name, |(_, extension)| extension))
    }

    pub(crate) fn line(&mut self, line: &str) -> Vec<Span<'static>> {
        let Some(family) = self.family else { return vec![span(line, Style::new())] };
        let mut spans = Vec::new();
        let mut rest = line;
        let mut plain = String::new();
        while !rest.is_empty() {
            let (taken, style) = self.token(&family, rest);
            let (piece, behind) = rest.split_at(taken);
            if style == Style::new() {
                plain.push_str(piece);
            } else {
                if !plain.is_empty() {
                    spans.push(span(std::mem::take(&mut plain), Style::new()));
                }
                spans.push(span(piece, style));
            }
            rest = behind;
        }
        if !plain.is_empty() || spans.is_empty() {
            spans.push(span(plain, Style::new()));
        }
        spans
    }

    /// How many bytes are one token, and its style.
    fn token(&mut self, family: &Family, rest: &str) -> (usize, Style) {
        if let Some((open, close)) = family.block_comment {
            let from = if self.in_comment { 0 } else { open.len() };
            if self.in_comment || rest.starts_with(open) {
                let end = rest[from..].find(close);
                self.in_comment = end.is_none();
                return (end.map_or(rest.len(), |end| from + end + close.len()), COMMENT);
            }
        }
        if family.line_comment.iter().any(|mark| rest.starts_with(mark)) {
            return (rest.len(), COMMENT);
        }
        let Some(first) = rest.chars().next() else { return (0, Style::new()) };
        if family.quotes.contains(&first) {
            return (quoted(rest, first), TEXT);
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if is_word(first) {
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let word = &rest[..end];
            let is_known = family.words.contains(&word)
                || (family.words == SQL_WORDS
                    && SQL_WORDS.contains(&word.to_ascii_lowercase().as_str()));
            let style = match first {
                '0'..='9' => NUMBER,
                _ if is_known => WORD,
                _ => Style::new(),
            };
            return (end, style);
        }
        (first.len_utf8(), Style::new())
    }
}

/// The length of a string with its quotes; without an end, the rest of the line.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(language: &str, line: &str) -> Vec<(String, Style)> {
        let spans = Highlighter::new(language).line(line);
        spans.into_iter().map(|span| (span.content.into_owned(), span.style)).collect()
    }

    #[test]
    fn words_strings_numbers_and_comments_have_colours() {
        let plain = Style::new();
        assert_eq!(
            pieces("rust", "let x: &'a str = \"a\\\"b\"; // 1"),
            [
                ("let".to_owned(), WORD),
                (" x: &'a str = ".to_owned(), plain),
                ("\"a\\\"b\"".to_owned(), TEXT),
                ("; ".to_owned(), plain),
                ("// 1".to_owned(), COMMENT),
            ]
        );
        assert_eq!(pieces("unheard-of", "let x"), [("let x".to_owned(), plain)]);
        assert_eq!(pieces("py", "x = 4.5")[1], ("4".to_owned(), NUMBER));
    }

    #[test]
    fn a_comment_goes_on_over_lines_and_nothing_is_lost() {
        let mut code = Highlighter::for_path("src/a.c");
        for (line, style) in [("/* a", COMMENT), ("b */", COMMENT), ("c", Style::new())] {
            let spans = code.line(line);
            assert_eq!((spans[0].content.as_ref(), spans[0].style), (line, style));
        }
        assert_eq!(code.line("")[0].content, "");
        let hostile: String = code.line("\x1b[2J'").iter().map(|span| &*span.content).collect();
        assert_eq!(hostile, "^[[2J'");
    }
}
