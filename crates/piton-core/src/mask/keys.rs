//! Which keys hold secrets: globs, blind to case, in which `_`, `-`, a change of case (`apiKey`,
//! `APIKey`) and nothing at all (`apikey`) are the same.

use std::fmt;
use std::sync::{Arc, LazyLock};

use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::DFA;

/// The keys whose values are secrets by default.
pub const EXCLUDED_KEYS: &[&str] =
    &["*api_key*", "*_token", "token", "*secret*", "*password*", "credentials*"];

#[derive(Clone)]
pub struct KeyPatterns {
    globs: Vec<Box<str>>,
    /// The same without `_`.
    joined: Vec<Box<str>>,
    /// Finds a text in which a key could match, `_` and `-` aside. `None`: every text.
    hint: Option<Arc<DFA>>,
}

impl fmt::Debug for KeyPatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyPatterns").field(&self.globs).finish()
    }
}

/// Made once: building the search costs more than most uses of it.
static EXCLUDED: LazyLock<KeyPatterns> = LazyLock::new(|| KeyPatterns::new(EXCLUDED_KEYS));

impl Default for KeyPatterns {
    fn default() -> Self {
        EXCLUDED.clone()
    }
}

impl KeyPatterns {
    /// `*` stands for any number of characters, `?` for one; empty patterns match nothing.
    pub fn new(globs: &[impl AsRef<str>]) -> Self {
        let folded = globs.iter().map(|glob| fold(glob.as_ref()).into_boxed_str());
        let globs: Vec<Box<str>> = folded.filter(|glob| !glob.is_empty()).collect();
        let joined: Vec<Box<str>> = globs.iter().map(|glob| glob.replace('_', "").into()).collect();
        let hint = hint(&joined).map(Arc::new);
        Self { globs, joined, hint }
    }

    /// Patterns that match the same.
    pub(super) fn globs(&self) -> Vec<String> {
        self.globs.iter().map(|glob| (**glob).to_owned()).collect()
    }

    pub fn matches(&self, key: &str) -> bool {
        let folded = fold(key);
        let snake = snake(key);
        let any = |globs: &[Box<str>], key: &str| globs.iter().any(|glob| glob_matches(glob, key));
        any(&self.globs, &folded)
            || snake.is_some_and(|snake| any(&self.globs, &snake))
            || any(&self.joined, &folded.replace('_', ""))
    }

    /// False: no key in this JSON text matches.
    pub(super) fn may_match(&self, text: &str) -> bool {
        !self.globs.is_empty() && self.hint.as_deref().is_none_or(|hint| is_hinted(hint, text))
    }
}

fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).map(|c| if c == '-' { '_' } else { c }).collect()
}

/// `accessToken` as `access_token`, `APIToken` as `api_token`; `None` if the case does not change
/// within.
fn snake(key: &str) -> Option<String> {
    let mut out = String::with_capacity(key.len() + 4);
    let (mut last_lower, mut last_upper) = (false, false);
    let mut changes = false;
    let mut chars = key.chars().peekable();
    while let Some(c) = chars.next() {
        let ends_run = last_upper && chars.peek().is_some_and(|next| next.is_lowercase());
        if c.is_uppercase() && (last_lower || ends_run) {
            out.push('_');
            changes = true;
        }
        last_lower = c.is_lowercase() || c.is_ascii_digit();
        last_upper = c.is_uppercase();
        out.push(c);
    }
    changes.then(|| fold(&out))
}

/// The longest literal piece of each glob; if a glob has none, every text hints.
fn hint(joined: &[Box<str>]) -> Option<DFA> {
    let mut pieces = Vec::new();
    for glob in joined {
        let piece = glob.split(['*', '?']).max_by_key(|piece| piece.len())?;
        // Beyond ASCII, case is folded otherwise than the search does it.
        if piece.is_empty() || !piece.is_ascii() {
            return None;
        }
        pieces.push(piece);
    }
    DFA::builder().ascii_case_insensitive(true).build(pieces).ok()
}

fn is_hinted(hint: &DFA, text: &str) -> bool {
    let Ok(mut state) = hint.start_state(Anchored::No) else { return true };
    for byte in text.bytes().filter(|byte| !matches!(byte, b'_' | b'-')) {
        state = hint.next_state(Anchored::No, state, byte);
        if hint.is_special(state) && hint.is_match(state) {
            return true;
        }
    }
    false
}

/// Linear in the key for each `*`.
fn glob_matches(glob: &str, key: &str) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let key: Vec<char> = key.chars().collect();
    let (mut g, mut k) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while k < key.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g + 1, k));
                g += 1;
            }
            Some(c) if *c == '?' || *c == key[k] => (g, k) = (g + 1, k + 1),
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (g, k) = (after, from + 1);
            }
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excluded_keys_and_what_is_close_to_them() {
        let keys = KeyPatterns::default();
        for key in [
            "api_key",
            "API-KEY",
            "openai_api_key_2",
            "apiKey",
            "token",
            "Token",
            "access_token",
            "accessToken",
            "GITHUB_TOKEN",
            "x-auth-token",
            "client_secret",
            "secrets",
            "db_password",
            "PASSWORD",
            "credentials",
            "credentials_file",
            "APIKey",
            "openaiAPIKey",
            "APIToken",
            "OPENAI_APIKEY",
            "apikey",
            "X-ApiKey",
            "accesstoken",
            "pass_word",
        ] {
            assert!(keys.matches(key), "{key}");
            assert!(keys.may_match(&format!("{{\"{key}\":1}}")), "{key}");
        }
        for key in
            ["", "max_tokens", "tokens", "tokenizer", "key", "user", "my_credentials", "pass"]
        {
            assert!(!keys.matches(key), "{key}");
        }
        assert!(!keys.may_match(r#"{"path":"src/main.rs","text":"fn main"}"#));
    }

    #[test]
    fn globs() {
        for (glob, key, expected) in [
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("*", "", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b", "xaxaxb", true),
            ("a**", "a", true),
            ("ü*", "Über", true),
        ] {
            assert_eq!(KeyPatterns::new(&[glob]).matches(key), expected, "{glob} {key}");
        }
        assert!(!KeyPatterns::new(&[""]).matches(""));
        assert!(!KeyPatterns::new(&[] as &[&str]).may_match("token"));
        assert!(KeyPatterns::new(&["*"]).may_match("{}"));
    }
}
