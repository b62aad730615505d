//! Names that a reader would have to guess, as far as a machine can tell.

use super::tidy::{assert_none, extension, findings, texts};

/// Words of no standard and no other project; `CONTRIBUTING.md` names the words to use.
const REFUSED: &[&str] = &[
    "told",
    "owed",
    "owing",
    "unsaid",
    "unkept",
    "afresh",
    "anew",
    "vain",
    "misfit",
    "misfits",
    "obstacle",
    "obstacles",
    "recipe",
    "recipes",
    "occasion",
    "occasions",
    "deed",
    "deeds",
    "guest",
    "guests",
    "puppet",
    "puppets",
    "rooms",
    "stray",
    "strays",
    "stranger",
    "strangers",
    "asker",
    "patience",
    "breath",
    "goodbye",
];

/// `a_fooBar` is `a`, `foo`, `bar`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if c != '_' {
            words.last_mut().expect("never empty").extend(c.to_lowercase());
        }
    }
    words
}

/// A line without its strings and its comment.
fn code_of(line: &str) -> String {
    let (mut code, mut in_string, mut escaped) = (String::new(), false, false);
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' if in_string => escaped = !escaped,
            '"' if !escaped => in_string = !in_string,
            '/' if !in_string && rest.peek() == Some(&'/') => break,
            c if !in_string => code.push(c),
            _ => {}
        }
        escaped &= c == '\\';
    }
    code
}

/// Every name: of items, and of fields, parameters, variants and variables.
fn refused(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for line in text.lines() {
        let code = code_of(line);
        let names = code.split(|c| !is_part(c)).filter(|name| !name.is_empty());
        let is_refused =
            |name: &&str| words(name).iter().any(|word| REFUSED.contains(&word.as_str()));
        found.extend(names.filter(is_refused).map(str::to_owned));
    }
    found
}

/// Wants to show: no name needs a private vocabulary.
#[test]
fn names_use_the_words_of_the_field() {
    let planted = "fn is_told() {}\nstruct OwedWork { guest_id: u8 }\nlet mut anew = Step::Goodbye;\n\
                   fn followed(masker: u8) {}\n// fn told()\nconst NOT_ALLOWED: &str = \"told \\\" owed\";\n";
    assert_eq!(refused(planted), ["is_told", "OwedWork", "guest_id", "anew", "Goodbye"]);
    let sources: Vec<_> = texts()
        .into_iter()
        .filter(|(path, _)| path.starts_with("crates/") && extension(path) == "rs")
        .filter(|(path, _)| !path.ends_with("/it/names.rs"))
        .collect();
    assert!(sources.len() > 100, "the crates' sources are looked at");
    assert_none(&findings(&sources, refused), "Names with refused words");
}

/// Where the bracket that `text` begins with is closed, behind it.
fn closed(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close && !(c == '>' && before == '-') {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(at + c.len_utf8());
            }
        }
        before = c;
    }
    None
}

/// The arguments and the result of the function whose name stands before `rest`.
fn signature(rest: &str) -> Option<(String, String)> {
    let generics = if rest.starts_with('<') { closed(rest, '<', '>')? } else { 0 };
    let rest = &rest[generics..];
    let end = if rest.starts_with('(') { closed(rest, '(', ')')? } else { return None };
    let (arguments, rest) = (&rest[1..end - 1], &rest[end..]);
    let result = rest.split(['{', ';']).next()?.split(" where ").next()?;
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some((one_line(arguments), one_line(result)))
}

/// Predicates that change something, or say more than yes and no.
fn wrong_predicates(text: &str) -> Vec<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or("").to_owned() + "\n").collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &code[at + 3..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        if is_word || !["is_", "has_", "can_"].iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let Some((arguments, result)) = signature(rest) else { continue };
        // `impl Future<Output = bool>` and `Result<bool>` answer yes or no as well.
        if arguments.contains("&mut") || !result.contains("bool") {
            found.push(format!("{name}({arguments}) {result}").trim_end().to_owned());
        }
    }
    found
}

/// Wants to show: `is_`, `has_` and `can_` answer yes or no, and change nothing.
#[test]
fn predicates_return_bool_and_change_nothing() {
    let planted = "fn is_a(&mut self) -> bool {\nfn has_b(&self) -> Option<u8> {\n\
                   fn can_c(&self) -> bool {\nfn is_d() {\nfn is_e(\n    &self,\n    other: &mut u8,\n\
                   ) -> bool {\nfn is_f<F: Fn() -> u8>(f: F) -> Result<bool> {\nfn has_g(&self);\n";
    assert_eq!(
        wrong_predicates(planted),
        [
            "is_a(&mut self) -> bool",
            "has_b(&self) -> Option<u8>",
            "is_d()",
            "is_e(&self, other: &mut u8,) -> bool",
            "has_g(&self)",
        ]
    );
    let sources: Vec<_> = texts()
        .into_iter()
        .filter(|(path, _)| path.contains("/src/") && extension(path) == "rs")
        .collect();
    assert!(sources.len() > 100, "the crates' sources are looked at");
    assert_none(&findings(&sources, wrong_predicates), "Predicates that are none");
}

/// Words of the requirements that this was built from; nothing in the tree needs them to be read.
fn seeds(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let named = |line: &&str| {
        let mut words = line.split(|c: char| !is_part(c));
        words.any(|word| matches!(word, "S0" | "S1" | "S2" | "S3" | "S4"))
    };
    text.lines().filter(named).map(|line| line.trim().to_owned()).collect()
}

/// Wants to show: a reader needs no document that is not in the tree.
#[test]
fn no_document_from_outside_is_named() {
    assert_eq!(seeds("as S2 asks\nS20 MS1 S3a\n"), ["as S2 asks"]);
    let own = ["/it/names.rs", "scripts/docs/check.mjs", "scripts/docs/check.test.mjs"];
    let texts: Vec<_> = texts()
        .into_iter()
        .filter(|(path, _)| {
            !own.iter().any(|name| path.ends_with(name)) && extension(path) != "svg"
        })
        .collect();
    assert_none(&findings(&texts, seeds), "Name the requirement, not where it came from");
}

/// Phrases of a comment that sound translated, or that only its writer understands.
const REFUSED_IN_COMMENTS: &[&str] = &[
    "nobody",
    "somebody",
    "whoever",
    "afresh",
    "anew",
    "asker",
    "owed",
    "owing",
    "deed",
    "deeds",
    "goes on",
    "gone on with",
    "go on with",
    "in vain",
    "at hand",
];

/// What begins a comment, by the ending of a file's name.
fn comment_marks(extension: &str) -> &'static [&'static str] {
    match extension {
        "rs" | "ts" | "tsx" | "js" | "mjs" | "css" => &["//", "/*", " * "],
        "sh" | "py" | "toml" | "yml" => &["#"],
        "sql" => &["--"],
        _ => &[],
    }
}

/// What follows the first of these marks in a line; addresses (`https://`) begin no comment.
fn comment<'a>(line: &'a str, marks: &[&str]) -> Option<&'a str> {
    let starts = marks.iter().flat_map(|mark| line.match_indices(mark));
    let starts = starts.filter(|(at, mark)| match *mark {
        "//" => !line[..*at].ends_with(':'),
        // The lines between `/*` and `*/`; in code it multiplies.
        " * " => line[..*at].trim().is_empty(),
        _ => true,
    });
    starts.min().map(|(at, mark)| &line[at + mark.len()..])
}

fn private_comments(text: &str, marks: &[&str]) -> Vec<String> {
    let comments = text.lines().filter_map(|line| comment(line, marks)).map(str::to_lowercase);
    let is_word_end = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
    let says = |comment: &String, phrase: &str| {
        comment.match_indices(phrase).any(|(at, _)| {
            let (before, after) = (&comment[..at], &comment[at + phrase.len()..]);
            is_word_end(before.chars().next_back()) && is_word_end(after.chars().next())
        })
    };
    let private =
        comments.filter(|comment| REFUSED_IN_COMMENTS.iter().any(|phrase| says(comment, phrase)));
    private.map(|comment| comment.trim().to_owned()).collect()
}

/// Wants to show: comments use plain words, too.
#[test]
fn comments_use_plain_words() {
    let planted = "//! A question: whoever may read\nlet a = \"b\"; // it goes on with it\n\
                   /** Nobody knows. */\n * in vain\nf(\"http://anew\") * deed\n// followed, allowed\n";
    assert_eq!(
        private_comments(planted, comment_marks("rs")),
        ["! a question: whoever may read", "it goes on with it", "* nobody knows. */", "in vain"]
    );
    assert_eq!(private_comments("a = 1 # at hand\n", comment_marks("toml")), ["at hand"]);
    let (mut looked_at, mut found) = (0, Vec::new());
    for (path, text) in texts() {
        let marks = comment_marks(extension(&path));
        if !marks.is_empty() && !path.ends_with("/it/names.rs") {
            looked_at += 1;
            found.extend(findings(&[(path, text)], |text| private_comments(text, marks)));
        }
    }
    assert!(looked_at > 500, "the sources are looked at");
    assert_none(&found, "Comments with private phrases");
}
