//! Names that a reader would have to guess, as far as a machine can tell.

use super::tidy::{assert_none, extension, findings, texts};

/// What declares a name.
const DECLARES: &[&str] =
    &["fn", "struct", "enum", "mod", "const", "static", "type", "trait", "let", "mut"];

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

/// The declared names of a line, with what stands behind each.
fn declared(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let code = line.split("//").next().unwrap_or("");
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut before = "";
    let mut rest = code;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(is_part)?;
            let gap = &rest[..start];
            let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |end| start + end);
            let word = &rest[start..end];
            rest = &rest[end..];
            let declares = DECLARES.contains(&before) && gap.trim().is_empty();
            before = word;
            if declares && !DECLARES.contains(&word) {
                return Some((word, rest));
            }
        }
    })
}

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

fn refused(text: &str) -> Vec<String> {
    let names = text.lines().flat_map(declared).map(|(name, _)| name);
    let is_refused = |name: &&str| words(name).iter().any(|word| REFUSED.contains(&word.as_str()));
    names.filter(is_refused).map(str::to_owned).collect()
}

/// Wants to show: no name needs a private vocabulary.
#[test]
fn names_use_the_words_of_the_field() {
    let planted = "fn is_told() {}\nstruct OwedWork;\nlet mut anew = 1;\nfn followed(masker: u8) {}\n\
                   // fn told()\nconst NOT_ALLOWED: u8 = 1;\n";
    assert_eq!(refused(planted), ["is_told", "OwedWork", "anew"]);
    let sources: Vec<_> = texts()
        .into_iter()
        .filter(|(path, _)| path.starts_with("crates/") && extension(path) == "rs")
        .filter(|(path, _)| !path.ends_with("/it/names.rs"))
        .collect();
    assert!(sources.len() > 100, "the crates' sources are looked at");
    assert_none(&findings(&sources, refused), "Names with refused words");
}

/// Predicates that change something, or say more than yes and no.
fn wrong_predicates(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, rest) in text.lines().flat_map(declared) {
        let is_predicate = ["is_", "has_", "can_"].iter().any(|prefix| name.starts_with(prefix));
        // On one line: a signature that is longer is looked at by people.
        let Some((arguments, result)) =
            rest.strip_prefix('(').and_then(|rest| rest.rsplit_once(')'))
        else {
            continue;
        };
        let result = result.trim().trim_end_matches('{').trim();
        let answers = result.strip_prefix("->").is_none_or(|result| result.contains("bool"));
        let is_wrong = arguments.starts_with("&mut self") || !answers;
        if is_predicate && is_wrong {
            found.push(format!("{name}({arguments}) {result}"));
        }
    }
    found
}

/// Wants to show: `is_`, `has_` and `can_` answer yes or no, and change nothing.
#[test]
fn predicates_return_bool_and_change_nothing() {
    let planted = "fn is_a(&mut self) -> bool {\nfn has_b(&self) -> Option<u8> {\nfn can_c(&self) -> bool {\n\
                   fn is_d() {\n";
    assert_eq!(
        wrong_predicates(planted),
        ["is_a(&mut self) -> bool", "has_b(&self) -> Option<u8>"]
    );
    let sources: Vec<_> = texts()
        .into_iter()
        .filter(|(path, _)| path.contains("/src/") && extension(path) == "rs")
        .collect();
    assert!(sources.len() > 100, "the crates' sources are looked at");
    assert_none(&findings(&sources, wrong_predicates), "Predicates that are none");
}
