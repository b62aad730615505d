use super::*;

fn editor(text: &str) -> Editor {
    let mut editor = Editor::default();
    editor.set(text);
    editor
}

/// The text with a bar where the cursor is.
fn seen(editor: &Editor) -> String {
    let mut text = editor.text.clone();
    text.insert(editor.cursor, '|');
    text
}

#[test]
fn moves_and_cuts_go_by_what_is_seen_as_one_character() {
    // A family, a flag, an accent of its own, a wide character.
    let mut editor = editor("a👨‍👩‍👧🇩🇪e\u{301}日");
    for wanted in ["a👨‍👩‍👧🇩🇪e\u{301}|日", "a👨‍👩‍👧🇩🇪|e\u{301}日", "a👨‍👩‍👧|🇩🇪e\u{301}日", "a|👨‍👩‍👧🇩🇪e\u{301}日"]
    {
        editor.left();
        assert_eq!(seen(&editor), wanted);
    }
    editor.delete();
    assert_eq!(seen(&editor), "a|🇩🇪e\u{301}日");
    editor.move_end();
    editor.backspace();
    editor.backspace();
    assert_eq!(seen(&editor), "a🇩🇪|");
}

#[test]
fn typing_that_joins_a_character_keeps_the_cursor_behind_it() {
    let mut editor = editor("e");
    editor.insert('\u{301}');
    assert_eq!(seen(&editor), "e\u{301}|");
    editor.left();
    assert_eq!(seen(&editor), "|e\u{301}");
}

#[test]
fn words_and_lines_have_their_keys() {
    let mut editor = editor("let x_1 = foo(bar);\nsecond line");
    editor.move_word_left();
    assert_eq!(seen(&editor), "let x_1 = foo(bar);\nsecond |line");
    editor.move_line_start();
    assert_eq!(seen(&editor), "let x_1 = foo(bar);\n|second line");
    editor.left();
    editor.kill_word_left();
    assert_eq!(seen(&editor), "let x_1 = foo(|\nsecond line");
    editor.kill_blank_left();
    assert_eq!(seen(&editor), "let x_1 = |\nsecond line");
    // Cuts one after the other come back as one.
    editor.yank();
    assert_eq!(seen(&editor), "let x_1 = foo(bar);|\nsecond line");
    editor.move_start();
    editor.move_word_right();
    editor.kill_line_right();
    assert_eq!(seen(&editor), "let|\nsecond line");
    editor.kill_line_right();
    assert_eq!(seen(&editor), "let|second line");
    editor.kill_line_left();
    assert_eq!(seen(&editor), "|second line");
    editor.move_word_right();
    editor.transpose();
    assert_eq!(seen(&editor), "secon d|line");
}

#[test]
fn undo_goes_back_by_words_and_redo_returns() {
    let mut editor = Editor::default();
    "one two".chars().for_each(|c| editor.insert(c));
    editor.undo();
    assert_eq!(seen(&editor), "one |");
    editor.undo();
    editor.undo();
    assert_eq!(seen(&editor), "|");
    editor.redo();
    assert_eq!(seen(&editor), "one|");
    editor.insert('!');
    editor.redo();
    assert_eq!(seen(&editor), "one!|");
}

#[test]
fn a_long_paste_is_folded_and_sent_whole() {
    let mut editor = editor("look: ");
    let long = "line\n".repeat(120);
    editor.paste(&long);
    editor.insert('!');
    assert_eq!(editor.layout(60).rows, [Row { text: "look: [Pasted 120 lines]!".to_owned() }]);
    assert_eq!(editor.text(), format!("look: {long}!"));
    editor.backspace();
    editor.backspace();
    assert_eq!(editor.text(), "look: ");
    editor.undo();
    assert_eq!(editor.take(), format!("look: {long}"));
    assert!(editor.is_empty());
    // What stands for a paste cannot be pasted.
    editor.paste("a\u{f0000}b\r");
    assert_eq!(editor.text(), "ab");
}

#[test]
fn rows_break_at_blanks_and_moves_keep_their_column() {
    let mut editor = editor("the quick brown fox\njumps");
    let rows = |editor: &Editor, width| -> Vec<String> {
        editor.layout(width).rows.into_iter().map(|row| row.text).collect()
    };
    assert_eq!(rows(&editor, 10), ["the quick ", "brown fox", "jumps"]);
    assert_eq!(editor.layout(10).cursor, (2, 5));
    assert!(editor.up(10));
    assert_eq!(editor.layout(10).cursor, (1, 5));
    assert!(editor.up(10));
    assert_eq!(editor.layout(10).cursor, (0, 5));
    assert!(!editor.up(10));
    assert!(editor.down(10) && editor.down(10) && !editor.down(10));
    assert_eq!(editor.layout(10).cursor, (2, 5));
    // A word that fits nowhere is cut; wide characters are not.
    editor.set("日本語日本語");
    assert_eq!(rows(&editor, 5), ["日本", "語日", "本語"]);
    editor.set("\x1b[31m");
    assert_eq!(rows(&editor, 20), ["^[[31m"]);
}

#[test]
fn a_paste_of_a_megabyte_is_quick() {
    let mut editor = Editor::default();
    editor.paste(&"0123456789abcde\n".repeat(65_536));
    for _ in 0..1_000 {
        editor.insert('x');
        assert_eq!(editor.layout(80).rows.len(), editor.layout(80).cursor.0 + 1);
    }
    assert_eq!(editor.text().len(), 65_536 * 16 + 1_000);
}
