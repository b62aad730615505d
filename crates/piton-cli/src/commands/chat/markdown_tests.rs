use super::*;

/// Whole, with escapes that can be read.
fn shown(text: &str) -> String {
    let mut markdown = Markdown::default();
    let shown = markdown.push(text) + &markdown.finish();
    crate::ui::for_terminal(&shown)
        .replace("\x1b[0m", "</>")
        .replace("\x1b[1m", "<b>")
        .replace("\x1b[2m", "<dim>")
        .replace("\x1b[3m", "<i>")
        .replace("\x1b[4m", "<u>")
        .replace("\x1b[36m", "<code>")
}

#[test]
fn what_is_marked_is_shown_without_its_marks() {
    for (text, expected) in [
        ("plain", "plain"),
        ("# Title\nrest", "<b>Title</>\nrest"),
        ("###### six\n", "<b>six</>\n"),
        ("a **bold** b", "a <b>bold</> b"),
        ("an *italic* b", "an <i>italic</> b"),
        ("***both***", "<b><i>both</>"),
        ("run `cargo *x*` now", "run <code>cargo *x*</> now"),
        ("``a ` b``.", "<code>a ` b</>."),
        ("- one\n  * two\n+ three\n1. four", "• one\n  • two\n• three\n1. four"),
        ("> said\n", "<dim>│ said</>\n"),
        ("see [the page](https://x.y/z).", "see <u>the page</> <dim>(https://x.y/z)</>."),
        ("[https://x.y](https://x.y)", "<u>https://x.y</>"),
        ("a\n```rust\nfn x() {\n\n}\n```\nb", "a\n  <dim>fn x() {</>\n\n  <dim>}</>\nb"),
        ("~~~\n```\n~~~\n", "  <dim>```</>\n"),
        ("````\n```\n````\nx", "  <dim>```</>\nx"),
        ("# a `b` c", "<b>a </><code>b</><b> c</>"),
        ("```code``` text", "<code>code</> text"),
        ("```a `b` c\nd", "<code>a `b` c</>\nd"),
        ("\\*not\\* \\n", "*not* \\n"),
    ] {
        let shown = shown(text).replace("<b>\u{1b}[3m", "<b><i>");
        assert_eq!(shown, expected, "{text:?}");
    }
}

#[test]
fn what_only_looks_like_a_mark_stays() {
    for text in [
        "2 * 3 * 4",
        "a*b*c",
        "snake_case_name",
        "#hashtag",
        "####### seven",
        "-5 degrees",
        "--- x",
        "[1] and [x] y",
        "[a](b c)",
        "[a]\n(b)",
        "* ",
        "a ** b",
        "****",
        "x]",
        "``",
        "`",
        "\\",
        "*",
        "-",
        ">",
        "#",
    ] {
        let expected = match text {
            // A list of nothing is one.
            "* " => "• ",
            text => text,
        };
        assert_eq!(shown(text), expected);
    }
}

#[test]
fn what_is_not_closed_ends_with_its_line() {
    assert_eq!(shown("**open\nnext"), "<b>open</>\nnext");
    assert_eq!(shown("`open\nnext"), "<code>open</>\nnext");
    assert_eq!(shown("```\nopen"), "  <dim>open</>");
    let long = format!("[{}](u)", "x".repeat(HELD_CHARS_MAX));
    assert_eq!(shown(&long), long);
    let blanks = " ".repeat(2 * HELD_CHARS_MAX) + "x";
    assert_eq!(shown(&blanks), blanks);
}

const SAMPLE: &str = "# Head *line* `c`\n\nSome **bold**, *italic*, ***both*** and `co*de`, 2 * 3, \
    a [link](http://x/(y)) and [no] link\\* é日本.\n\n- item **x**\n  * inner `y\n+ [open](\n\n> quote\n\n\
    ```sh\necho \"**no**\" # x\n\n``\n```\n~~~~\n~~~\n~~~~\n1. end **un\n`` ` `` **";

/// Cut into two pieces anywhere, into single characters, or not at all: the same comes out.
#[test]
fn it_does_not_matter_in_which_pieces_it_comes() {
    let mut whole = Markdown::default();
    let expected = whole.push(SAMPLE) + &whole.finish();
    for (at, _) in SAMPLE.char_indices() {
        let mut cut = Markdown::default();
        let (first, rest) = SAMPLE.split_at(at);
        assert_eq!(cut.push(first) + &cut.push(rest) + &cut.finish(), expected, "cut at {at}");
    }
    let mut single = Markdown::default();
    let mut shown = String::new();
    for c in SAMPLE.chars() {
        shown += &single.push(&c.to_string());
    }
    assert_eq!(shown + &single.finish(), expected);
}

/// No letter that was said is lost: without its styles, what is shown has every word of the sample.
#[test]
fn every_word_is_shown() {
    let plain = crate::ui::plain(&crate::ui::for_terminal(&{
        let mut markdown = Markdown::default();
        markdown.push(SAMPLE) + &markdown.finish()
    }));
    for word in [
        "Head",
        "line",
        "bold",
        "italic",
        "both",
        "co*de",
        "2 * 3",
        "link (http://x/(y)",
        "[no]",
        "é日本",
        "item",
        "inner",
        "y",
        "[open](",
        "quote",
        "echo \"**no**\" # x",
        "``",
        "~~~",
        "end",
        "un",
    ] {
        assert!(plain.contains(word), "{word:?} is missing in {plain}");
    }
}
