//! Which keys hold secrets: globs, blind to case, in which `_`, `-` and a change of case
//! (`apiKey`) are the same.

use std::fmt;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// The keys whose values are secrets when nobody says otherwise.
pub const EXCLUDED_KEYS: &[&str] =
    &["*api_key*", "*_token", "token", "*secret*", "*password*", "credentials*"];

#[derive(Clone)]
pub struct KeyPatterns {
    globs: Vec<Box<str>>,
    /// Finds a text in which a key could match. `None`: every text.
    hint: Option<AhoCorasick>,
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
        let hint = hint(&globs);
        Self { globs, hint }
    }

    pub fn matches(&self, key: &str) -> bool {
        let folded = fold(key);
        let snake = snake(key);
        let any = |key: &str| self.globs.iter().any(|glob| glob_matches(glob, key));
        any(&folded) || snake.is_some_and(|snake| any(&snake))
    }

    /// False: no key in this JSON text matches.
    pub(super) fn may_match(&self, text: &str) -> bool {
        !self.globs.is_empty() && self.hint.as_ref().is_none_or(|hint| hint.is_match(text))
    }
}

fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).map(|c| if c == '-' { '_' } else { c }).collect()
}

/// `accessToken` as `access_token`; `None` if the case does not change within.
fn snake(key: &str) -> Option<String> {
    let mut out = String::with_capacity(key.len() + 4);
    let mut last_lower = false;
    let mut changes = false;
    for c in key.chars() {
        if c.is_uppercase() && last_lower {
            out.push('_');
            changes = true;
        }
        last_lower = c.is_lowercase() || c.is_ascii_digit();
        out.push(c);
    }
    changes.then(|| fold(&out))
}

/// The longest literal piece of each glob, in its spellings; if a glob has none, every text hints.
fn hint(globs: &[Box<str>]) -> Option<AhoCorasick> {
    let mut pieces = Vec::new();
    for glob in globs {
        let piece = glob.split(['*', '?']).max_by_key(|piece| piece.len())?.trim_matches('_');
        // Beyond ASCII, case is folded otherwise than the search does it.
        if piece.is_empty() || !piece.is_ascii() {
            return None;
        }
        if piece.matches('_').count() > 1 {
            pieces.push(piece.split('_').max_by_key(|part| part.len())?.to_owned());
        } else {
            pieces.extend(["_", "-", ""].map(|joint| piece.replace('_', joint)));
        }
    }
    AhoCorasick::builder().ascii_case_insensitive(true).build(pieces).ok()
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
