//! Resume tokens: a public id and a secret that only its holder knows. The log keeps the secret's
//! hash. An entry of the token index is a pure function of the token's records.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical;
use crate::event::{Event, Seq, TokenPurpose, WaitKind};
use crate::id::{RunId, TokenId, WaitId};
use crate::reason::Reason;
use crate::time::Timestamp;

const ANSWER_CONTEXT: &str = "piton core 2026 answer digest";

/// 256 random bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// What the log keeps of it.
    pub fn hash(&self) -> String {
        blake3::hash(&self.0).to_hex().to_string()
    }

    pub fn answer_key(&self) -> AnswerKey {
        AnswerKey(blake3::derive_key(ANSWER_CONTEXT, &self.0))
    }

    /// The one text in which it is shown, once.
    pub(crate) fn reveal(&self) -> String {
        hex::encode(self.0)
    }

    /// Compares in constant time.
    pub fn matches(&self, hash: &str) -> bool {
        blake3::Hash::from_hex(hash).is_ok_and(|hash| blake3::hash(&self.0) == hash)
    }
}

impl FromStr for Secret {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseError)?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Makes the digest that the log keeps of an answer, so that a retry is recognised. Follows from the
/// token's secret, which is not in the log: a reader of the log cannot try out what a short answer
/// was, nor whether a masked one was what they think.
#[derive(Clone, PartialEq, Eq)]
pub struct AnswerKey([u8; 32]);

impl AnswerKey {
    pub fn digest(&self, answer: &Value) -> String {
        let text = canonical::to_string(answer);
        blake3::keyed_hash(&self.0, text.as_bytes()).to_hex().to_string()
    }
}

impl fmt::Debug for AnswerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerKey(…)")
    }
}

/// What a holder presents: `rt_….<64 hexadecimal digits>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeToken {
    pub id: TokenId,
    pub secret: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("This is not a resume token: it has the form ID.SECRET")]
pub struct ParseError;

impl ResumeToken {
    /// The one text in which the secret is shown, once.
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret.reveal())
    }
}

impl FromStr for ResumeToken {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (id, secret) = text.split_once('.').ok_or(ParseError)?;
        Ok(Self { id: id.parse().map_err(|_| ParseError)?, secret: secret.parse()? })
    }
}

/// A token that is to be minted: its id, its secret's hash, and what digests an answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    pub id: TokenId,
    pub hash: String,
    pub answer_key: AnswerKey,
}

impl From<&ResumeToken> for NewToken {
    fn from(token: &ResumeToken) -> Self {
        let ResumeToken { id, secret } = token;
        Self { id: id.clone(), hash: secret.hash(), answer_key: secret.answer_key() }
    }
}

/// What the records say about one token. Entries are a cache: replaying the log rebuilds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub token_id: TokenId,
    pub run_id: RunId,
    pub purpose: TokenPurpose,
    pub wait_id: Option<WaitId>,
    pub wait_kind: Option<WaitKind>,
    pub hash: String,
    pub expires_at: Option<Timestamp>,
    pub minted_seq: Seq,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Active,
    Consumed { answer_digest: String, result_seq: Seq },
    Revoked { reason: Reason },
    Expired,
}

/// The token an event is about.
pub fn subject(event: &Event) -> Option<&TokenId> {
    match event {
        Event::TokenMinted(e) => Some(&e.token_id),
        Event::TokenConsumed(e) => Some(&e.token_id),
        Event::TokenRevoked(e) => Some(&e.token_id),
        Event::TokenExpired(e) => Some(&e.token_id),
        _ => None,
    }
}

/// The entry after an event about its token. A token that is no longer active stays what it is:
/// the first end counts.
pub fn transition(entry: Option<Entry>, seq: Seq, event: &Event) -> Option<Entry> {
    if let Event::TokenMinted(e) = event {
        return entry.or_else(|| {
            Some(Entry {
                token_id: e.token_id.clone(),
                run_id: e.run_id.clone(),
                purpose: e.purpose,
                wait_id: e.wait_id.clone(),
                wait_kind: e.wait_kind,
                hash: e.hash.clone(),
                expires_at: e.expires_at,
                minted_seq: seq,
                state: State::Active,
            })
        });
    }
    let mut entry = entry?;
    if entry.state != State::Active {
        return Some(entry);
    }
    match event {
        Event::TokenConsumed(e) => {
            entry.state = State::Consumed {
                answer_digest: e.answer_digest.clone(),
                result_seq: e.result_seq,
            };
        }
        Event::TokenRevoked(e) => entry.state = State::Revoked { reason: e.reason },
        Event::TokenExpired(_) => entry.state = State::Expired,
        _ => {}
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_once_and_never_by_accident() {
        let token = ResumeToken { id: "rt_1".parse().unwrap(), secret: Secret::new([0xab; 32]) };
        let shown = token.reveal();
        assert_eq!(shown.parse::<ResumeToken>().unwrap(), token);
        assert!(!format!("{token:?}").contains("abab"));
        assert!(token.secret.matches(&token.secret.hash()));
        assert!(!Secret::new([0; 32]).matches(&token.secret.hash()));
        let answer = serde_json::json!("yes");
        let digest = token.secret.answer_key().digest(&answer);
        let other = Secret::new([0; 32]).answer_key().digest(&answer);
        assert_ne!(digest, other, "without the secret it can be guessed");
        assert_ne!(digest, token.secret.answer_key().digest(&serde_json::json!("no")));
        for bad in ["", "rt_1", "rt_1.zz", "a b.00", &shown[..shown.len() - 1]] {
            assert_eq!(bad.parse::<ResumeToken>(), Err(ParseError), "{bad}");
        }
    }
}
