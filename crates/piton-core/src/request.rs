//! Requests that may be repeated: the first one is fulfilled, the others get its answer.
//! What is remembered is in the log, so that a repetition after a crash is recognised, too.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical;
use crate::decide::Refusal;
use crate::event::{RequestAccepted, Seq};
use crate::limits::REQUESTS_KEPT;
use crate::planted::{self, Bug};
use crate::record::NewRecord;
use crate::time::Timestamp;

/// Who asks for something.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub principal: String,
    /// What is asked, as the API names it.
    pub action: String,
    /// What makes a repetition recognisable, and what it must be a repetition of.
    pub key: Option<Key>,
    /// What a repetition is answered; `None` if that must not be kept.
    pub response: Option<Value>,
}

/// An idempotency key in its place, and the digest of what was asked under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub key: String,
    pub digest: String,
}

impl Key {
    /// The same key means something else to another principal and in another place.
    pub fn new(principal: &str, path: &str, key: &str, body: &Value) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [principal, path, key] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let digest = blake3::hash(canonical::to_string(body).as_bytes());
        Self { key: hasher.finalize().to_hex().to_string(), digest: digest.to_hex().to_string() }
    }
}

impl Request {
    pub(crate) fn record(self, now: Timestamp) -> NewRecord {
        let (key, digest) = self.key.map(|key| (key.key, key.digest)).unzip();
        let Self { principal, action, response, .. } = self;
        let event = RequestAccepted { principal, action, key, digest };
        match response {
            Some(response) => NewRecord::with_content(now, event, "response", response),
            None => NewRecord::new(now, event),
        }
    }
}

/// What a log remembers of the requests that were taken, by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Requests(BTreeMap<String, Taken>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Taken {
    seq: Seq,
    at: Timestamp,
    digest: String,
}

impl Requests {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn taken(&mut self, seq: Seq, at: Timestamp, e: &RequestAccepted) {
        let (Some(key), Some(digest)) = (&e.key, &e.digest) else { return };
        // For how long one counts, the reader says: settings do not change what a log comes to.
        if self.0.len() >= REQUESTS_KEPT
            && let Some((oldest, _)) = self.0.iter().min_by_key(|(_, taken)| taken.seq)
        {
            let oldest = oldest.clone();
            self.0.remove(&oldest);
        }
        self.0.insert(key.clone(), Taken { seq, at, digest: digest.clone() });
    }

    /// The record of the same request, if it was taken before.
    pub fn find(
        &self,
        request: &Request,
        now: Timestamp,
        kept_for: Duration,
    ) -> Result<Option<Seq>, Refusal> {
        let Some(Key { key, digest }) = &request.key else { return Ok(None) };
        match self.0.get(key).filter(|taken| taken.at.after(kept_for) > now) {
            Some(taken) if taken.digest == *digest || planted::is(Bug::KeyReused) => {
                Ok(Some(taken.seq))
            }
            Some(_) => Err(Refusal::IdempotencyKeyReused),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::limits::REQUEST_KEPT_FOR;

    fn request(key: &str, body: &Value) -> Request {
        let key = Some(Key::new("key_1", "/tasks", key, body));
        Request { principal: "key_1".into(), action: "tasks.create".into(), key, response: None }
    }

    fn taken(requests: &mut Requests, seq: Seq, at: i64, request: Request) {
        let record = request.record(Timestamp::from_millis(at));
        let crate::Event::RequestAccepted(event) = &record.event else { unreachable!() };
        requests.taken(seq, record.ts, event);
    }

    #[test]
    fn a_repetition_is_recognised_for_a_day_and_a_reuse_is_refused() {
        let mut requests = Requests::default();
        let body = json!({"b": 1, "a": 2});
        taken(&mut requests, 7, 1_000, request("k", &body));
        let day = i64::try_from(REQUEST_KEPT_FOR.as_millis()).unwrap();
        let at = Timestamp::from_millis;
        let reordered = json!({"a": 2, "b": 1});
        assert_eq!(
            requests.find(&request("k", &reordered), at(999 + day), REQUEST_KEPT_FOR),
            Ok(Some(7))
        );
        let other = request("k", &json!({}));
        assert_eq!(
            requests.find(&other, at(2_000), REQUEST_KEPT_FOR),
            Err(Refusal::IdempotencyKeyReused)
        );
        assert_eq!(requests.find(&request("l", &body), at(2_000), REQUEST_KEPT_FOR), Ok(None));
        assert_eq!(
            requests.find(&request("k", &body), at(1_000 + day), REQUEST_KEPT_FOR),
            Ok(None)
        );
        assert_ne!(Key::new("a", "bc", "", &body), Key::new("ab", "c", "", &body));
    }

    #[test]
    fn a_key_counts_for_as_long_as_the_settings_say_however_many_there_are() {
        let mut requests = Requests::default();
        let day = i64::try_from(REQUEST_KEPT_FOR.as_millis()).unwrap();
        let week = 7 * REQUEST_KEPT_FOR;
        for seq in 1..REQUESTS_KEPT as u64 {
            taken(&mut requests, seq, 0, request(&seq.to_string(), &Value::Null));
        }
        // Two days later.
        for seq in [600, 601] {
            taken(&mut requests, seq, 2 * day, request(&seq.to_string(), &Value::Null));
        }
        let now = Timestamp::from_millis(2 * day);
        let find = |key: &str, for_span| requests.find(&request(key, &Value::Null), now, for_span);
        assert_eq!(find("2", week), Ok(Some(2)));
        assert_eq!(find("2", REQUEST_KEPT_FOR), Ok(None));
        assert_eq!(find("1", week), Ok(None), "it had to make room");
    }

    #[test]
    fn the_oldest_are_forgotten_when_there_are_too_many() {
        let mut requests = Requests::default();
        for seq in 1..=REQUESTS_KEPT as u64 + 1 {
            taken(&mut requests, seq, 0, request(&seq.to_string(), &Value::Null));
        }
        let find = |key: &str| {
            requests.find(&request(key, &Value::Null), Timestamp::from_millis(1), REQUEST_KEPT_FOR)
        };
        assert_eq!(find("1"), Ok(None));
        assert_eq!(find("2"), Ok(Some(2)));
        assert_eq!(requests.0.len(), REQUESTS_KEPT);
    }
}
