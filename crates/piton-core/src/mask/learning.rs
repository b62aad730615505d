//! What becomes known of the values under excluded keys. Content is written by models and tools:
//! not everything under such a key is a secret, and what is taken for one is masked wherever its
//! session echoes it. So a value is learned only if it looks like one. What is not learned is masked
//! all the same where it stands under its key.

use std::collections::BTreeSet;

use serde_json::Value;

use super::REPLACEMENT;
use crate::limits::{MASK_NUMBER_BYTES_MIN, MASK_WORD_BYTES_MIN};

/// Shorter values are not learned.
const LEARNED_VALUE_BYTES_MIN: usize = 8;
/// Longer values are not learned.
pub(super) const LEARNED_VALUE_BYTES_MAX: usize = 4 * 1024;
/// All that one masker learns, in all spellings; beyond it the oldest are forgotten.
pub(super) const LEARNED_BYTES_MAX: usize = 64 * 1024;
/// A longer part between slashes is no name of a folder.
const PATH_PART_BYTES_MAX: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Nested {
    Direct,
    Inside,
}

/// The value as it is looked for, if it looks like a secret: of 8 bytes to 4 KB, with a letter or
/// digit in it, of more than one character, and neither a path nor one plain word.
pub(super) fn learnable(value: &str) -> Option<&str> {
    let value = value.trim();
    let fits = (LEARNED_VALUE_BYTES_MIN..=LEARNED_VALUE_BYTES_MAX).contains(&value.len());
    let says_something = value.chars().any(char::is_alphanumeric)
        && value.chars().any(|c| !value.starts_with(c))
        && value != REPLACEMENT;
    (fits && says_something && !is_path(value) && !is_word(value)).then_some(value)
}

/// `production`, `Anonymous`. What is longer than most words may be a secret.
fn is_word(value: &str) -> bool {
    let rest = value.get(1..).unwrap_or("");
    value.len() < MASK_WORD_BYTES_MIN
        && value.starts_with(|c: char| c.is_ascii_alphabetic())
        && rest.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// `/repo/alice`, `~/.ssh/id_rsa`, `../x`, `C:\Users\x`: only of what names are made of.
fn is_path(value: &str) -> bool {
    let drive = value.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
        && value.get(1..).is_some_and(|rest| rest.starts_with(":\\") || rest.starts_with(":/"));
    let rooted = ["/", "./", "../", "~/"].iter().any(|root| value.starts_with(root));
    let usual = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | ' ' | '~');
    let names = if drive { value.get(2..).unwrap_or("") } else { value };
    let is_name = |name: &str| name.len() <= PATH_PART_BYTES_MAX && name.chars().all(usual);
    (drive || rooted) && names.split(['/', '\\']).all(is_name)
}

/// What becomes known of a value under an excluded key. Inside an object that stands there, short
/// plain words are not: `{"token": {"type": "timestampTz"}}` is a schema. Nor are short numbers,
/// which are everywhere.
pub(super) fn collect(value: &Value, nested: Nested, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let text = text.trim();
            let is_word = text.len() < MASK_WORD_BYTES_MIN
                && text.bytes().all(|byte| byte.is_ascii_alphabetic());
            if !(nested == Nested::Inside && is_word) {
                found.extend(learnable(text).map(str::to_owned));
            }
        }
        Value::Number(number) => {
            let text = number.to_string();
            if text.len() >= MASK_NUMBER_BYTES_MIN {
                found.extend(learnable(&text).map(str::to_owned));
            }
        }
        Value::Array(items) => {
            for item in items {
                collect(item, Nested::Inside, found);
            }
        }
        Value::Object(object) => {
            for value in object.values() {
                collect(value, Nested::Inside, found);
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_learned_and_nothing_else() {
        for secret in [
            "sk-1234567",
            "hunter2x",
            "correct horse battery",
            "lettersonlybutlong",
            "PASSWORD",
            "/9j+4AAQSkZJRg==",
            "/AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
            "12345678",
        ] {
            assert_eq!(learnable(secret), Some(secret));
        }
        let long = "x1".repeat(LEARNED_VALUE_BYTES_MAX / 2 + 1);
        for plain in [
            "",
            "claude",
            "sk-1234",
            "------",
            "----------",
            "-=-=-=-=-=-=",
            "xxxxxxxxxx",
            "üüüüüüüüüü",
            "00000000",
            "production",
            "Anonymous",
            "/repo/alice",
            "~/.ssh/id_rsa",
            "./target/debug",
            "C:\\Users\\alice",
            REPLACEMENT,
            &long,
        ] {
            assert_eq!(learnable(plain), None, "{plain}");
        }
    }
}
