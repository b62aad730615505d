//! Small JSON files that are caches. The last field is a keyed hash of everything before it, so
//! that the reader knows that the file is whole and was made for this log.

use piton_core::chain;
use serde::Serialize;
use serde::de::DeserializeOwned;

const START: &str = ",\"check\":\"";
const END: &str = "\"}\n";
const DIGITS: usize = 64;

fn hash(key: &chain::Key, text: &str) -> String {
    hex::encode(key.payload_hash(format!("cache\0{text}").as_bytes()))
}

/// An object as JSON, with its check; and the check. `None` if it is not an object with fields.
pub(crate) fn seal(key: &chain::Key, object: &impl Serialize) -> Option<(String, String)> {
    let mut text = serde_json::to_string(object).ok()?;
    if text.len() < 3 || text.pop() != Some('}') {
        return None;
    }
    let check = hash(key, &text);
    text.extend([START, &check, END]);
    Some((text, check))
}

/// What was sealed, with its check; `None` if it is not what was written.
pub(crate) fn unseal<T: DeserializeOwned>(key: &chain::Key, bytes: &[u8]) -> Option<(T, String)> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix(END)?;
    let (text, check) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
    let text = text.strip_suffix(START)?;
    if hash(key, text) != check {
        return None;
    }
    let object = serde_json::from_str(&format!("{text}}}")).ok()?;
    Some((object, check.to_owned()))
}

/// Whether the text was sealed at some time, even if it was damaged since.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.windows(START.len()).any(|part| part == START.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Every changed byte, and every cut, is noticed.
    #[test]
    fn what_was_changed_is_not_read() {
        let key = chain::Key::new([5; 32]);
        let object = json!({"last_seq": 148, "title": "Ü"});
        let (text, check) = seal(&key, &object).unwrap();
        assert_eq!(unseal::<Value>(&key, text.as_bytes()), Some((object, check)));
        assert_eq!(unseal::<Value>(&chain::Key::new([6; 32]), text.as_bytes()), None);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(unseal::<Value>(&key, &bytes), None, "byte {at}");
            assert_eq!(unseal::<Value>(&key, &text.as_bytes()[..at]), None, "cut at {at}");
        }
        assert_eq!(seal(&key, &json!({})), None);
    }
}
