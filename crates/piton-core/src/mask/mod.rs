//! Known secrets never reach the disk (law 11): every record passes a [`Masker`] before it is
//! appended. Pure: a masker is a value, and one that knows more is another value.
//!
//! Two things are masked:
//!
//! - **By value**: a known secret, in every string of a record's content (keys too) and in the free
//!   fields of its header, also in the spellings that JSON gives it inside another text.
//! - **By key**: whatever stands under an excluded key of a JSON object, at any depth of a content
//!   or of `provider`, also when the object is written as text inside a string. If such a value
//!   looks like a secret it is learned, and from then on is masked by value in every content and
//!   `provider`. Not in the other fields of headers: content comes from anywhere, and must not be
//!   able to change what we ourselves say (a working folder, an agent's profile). There only those
//!   values are masked that were configured.
//!
//! What the fold needs is left alone: ids, seqs, moments, hashes, enumerations and the agent's own
//! session id. A record parses after masking as it did before.
//!
//! Not found: secrets in other encodings (base64, percent signs), secrets shorter than
//! [`MASK_VALUE_BYTES_MIN`](crate::limits::MASK_VALUE_BYTES_MIN), and those that are not configured; for
//! these there is redaction.

mod keys;
mod learning;
mod search;
mod spelling;
mod stream;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

pub use keys::{EXCLUDED_KEYS, KeyPatterns};
pub use stream::StreamMasker;

use crate::event::{self, Event};
use crate::limits::{MASK_LEARNED_MAX, MASK_VALUE_BYTES_MIN};
use crate::record::NewRecord;
use learning::{LEARNED_BYTES_MAX, Nested, learnable};
use search::Search;
pub(crate) use spelling::spellings;

/// What stands in place of a secret.
pub const REPLACEMENT: &str = "[masked]";

/// Where in `_meta` of ACP's `initialize` the built-in agent is handed what it must not write: an
/// object with `values` and `keys`, as in [`MaskRules`]. Other agents get nothing of it.
pub const META: &str = "piton.mask";

/// Objects written as text inside strings inside objects: how far they are followed.
const TEXT_DEPTH_MAX: usize = 4;

/// Secrets and excluded keys.
#[derive(Clone)]
pub struct Masker {
    keys: Arc<KeyPatterns>,
    given: Arc<[Box<str>]>,
    /// Values of excluded keys, oldest first.
    learned: VecDeque<Arc<str>>,
    /// For all values. `None`: no value is known.
    search: Option<Arc<Search>>,
    /// For the given ones alone.
    given_search: Option<Arc<Search>>,
}

/// Nothing of a secret may reach a log line.
impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masker({} given, {} learned)", self.given.len(), self.learned.len())
    }
}

impl Default for Masker {
    /// The default excluded keys, and no values.
    fn default() -> Self {
        Self::with(KeyPatterns::default(), Arc::new([]), None)
    }
}

/// The rules that a masker was made with.
#[derive(Clone, PartialEq, Eq)]
pub struct MaskRules {
    pub values: Vec<String>,
    pub keys: Vec<String>,
}

/// Nothing of a secret may reach a log line.
impl fmt::Debug for MaskRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MaskRules({} values, {} keys)", self.values.len(), self.keys.len())
    }
}

/// What a masker with more secrets came to.
#[derive(Clone, Debug)]
pub struct MaskerUpdate {
    pub masker: Masker,
    /// How many of the oldest learned values had to be forgotten.
    pub forgotten: usize,
}

/// There is more to look for than can be.
#[derive(Debug, thiserror::Error)]
#[error("The values to mask are too many or too long")]
pub struct MaskerTooLarge(#[source] aho_corasick::BuildError);

impl Masker {
    /// Values are trimmed; those that are too short to be looked for are left out. There is no
    /// masker for more than can be looked for, which takes gigabytes: to go on would be to mask none
    /// of them.
    pub fn new(
        keys: KeyPatterns,
        values: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, MaskerTooLarge> {
        let values = values.into_iter();
        let given: BTreeSet<Box<str>> = values.filter_map(|v| worth(v.as_ref())).collect();
        let given: Arc<[Box<str>]> = given.into_iter().collect();
        let search = Search::new(given.iter().map(|value| &**value)).map_err(MaskerTooLarge)?;
        Ok(Self::with(keys, given, search))
    }

    fn with(keys: KeyPatterns, given: Arc<[Box<str>]>, search: Option<Search>) -> Self {
        let search = search.map(Arc::new);
        let given_search = search.clone();
        Self { keys: Arc::new(keys), given, learned: VecDeque::new(), search, given_search }
    }

    /// Only what was given: for what content must not change.
    fn given_only(&self) -> Self {
        Self { learned: VecDeque::new(), search: self.given_search.clone(), ..self.clone() }
    }

    /// What was given, for another process that is to mask by the same rules. Secrets: they travel by
    /// descriptor or pipe only.
    pub fn given(&self) -> MaskRules {
        MaskRules {
            values: self.given.iter().map(|value| (**value).to_owned()).collect(),
            keys: self.keys.globs(),
        }
    }

    /// How many bytes are looked for, in all spellings.
    pub fn bytes(&self) -> usize {
        self.search.as_ref().map_or(0, |search| search.bytes())
    }

    /// No value is known: text passes as it is.
    pub fn knows_nothing(&self) -> bool {
        self.search.is_none()
    }

    fn knows(&self, value: &str) -> bool {
        self.given.iter().any(|known| **known == *value)
            || self.learned.iter().any(|known| **known == *value)
    }

    /// A masker that also knows those of these that look like secrets. The oldest learned values
    /// make room; given ones stay.
    pub fn learn(
        &self,
        values: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<MaskerUpdate, MaskerTooLarge> {
        let mut masker = self.clone();
        for value in values {
            if let Some(value) = learnable(value.as_ref()).filter(|value| !masker.knows(value)) {
                masker.learned.push_back(value.into());
            }
        }
        // From the newest back, as far as the limits go.
        let mut bytes = 0;
        let fits = |value: &&Arc<str>| {
            bytes += spellings(value).iter().map(String::len).sum::<usize>();
            bytes <= LEARNED_BYTES_MAX
        };
        let kept = masker.learned.iter().rev().take(MASK_LEARNED_MAX).take_while(fits).count();
        let forgotten = masker.learned.len() - kept;
        masker.learned.drain(..forgotten);
        let given = masker.given.iter().map(|value| &**value);
        let values = given.chain(masker.learned.iter().map(|value| &**value));
        masker.search = Search::new(values).map_err(MaskerTooLarge)?.map(Arc::new);
        Ok(MaskerUpdate { masker, forgotten })
    }

    /// The values of excluded keys in a record that are not known yet.
    pub fn unknown_values(&self, record: &NewRecord) -> Vec<String> {
        let mut found = BTreeSet::new();
        for text in std::iter::once(&record.header).chain(&record.payload) {
            if !self.keys.may_match(text) {
                continue;
            }
            let Ok(object) = serde_json::from_str::<Map<String, Value>>(text) else { continue };
            // A record's own fields are no free JSON; what is in them may be.
            for value in object.values() {
                self.collect(value, 0, &mut found);
            }
        }
        found.into_iter().filter(|value| !self.knows(value)).collect()
    }

    fn collect(&self, value: &Value, text_depth: usize, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    if self.keys.matches(key) {
                        learning::collect(value, Nested::Direct, found);
                    } else {
                        self.collect(value, text_depth, found);
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.collect(item, text_depth, found);
                }
            }
            Value::String(text) if text_depth < TEXT_DEPTH_MAX => {
                if let Some(inner) = self.object_in(text) {
                    self.collect(&inner, text_depth + 1, found);
                }
            }
            Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }

    /// The JSON that a string is the text of, if an excluded key may be in it.
    fn object_in(&self, text: &str) -> Option<Value> {
        let looks = text.trim_start().starts_with(['{', '[']) && self.keys.may_match(text);
        if looks { serde_json::from_str(text).ok() } else { None }
    }

    /// A text with every known value masked.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.search {
            Some(search) => search.replace(text),
            None => Cow::Borrowed(text),
        }
    }

    /// Free JSON as it may be written: masked in place, by value and by key.
    pub fn json(&self, value: &mut Value) {
        self.value(value, 0);
    }

    /// The values of excluded keys in free JSON that are not known yet.
    pub fn unknown_in(&self, value: &Value) -> Vec<String> {
        let mut found = BTreeSet::new();
        self.collect(value, 0, &mut found);
        found.into_iter().filter(|value| !self.knows(value)).collect()
    }

    /// False: the record passes as it is. True for a few that do, too.
    pub fn may_change(&self, record: &NewRecord) -> bool {
        (!free_fields(&record.event).is_empty() && self.may_hold(&record.header))
            || record.payload.as_ref().is_some_and(|payload| self.may_hold(payload))
    }

    /// The record as it may be written. Its header parses as it did before.
    pub fn record(&self, mut record: NewRecord) -> Result<NewRecord, event::ParseError> {
        let free = free_fields(&record.event);
        if !free.is_empty() && self.may_hold(&record.header) {
            self.header(&mut record, free)?;
        }
        if let Some(payload) = record.payload.take_if(|payload| self.may_hold(payload)) {
            let masked = self.payload(&payload);
            if masked != payload
                && let Event::MessageDelta(delta) = &mut record.event
            {
                // The sender counts what it sent; without `sent` that is what was to be written.
                delta.sent = delta.sent.or(Some(delta.offset.saturating_add(delta.length)));
                delta.length = text_length(&masked).unwrap_or(delta.length);
                let header = record.event.header_json();
                record.header = header.map_or(record.header, Into::into);
            }
            record.payload = Some(masked);
        }
        Ok(record)
    }

    /// Whether a text that JSON was written as needs a closer look. Most do not.
    fn may_hold(&self, json: &str) -> bool {
        self.keys.may_match(json) || self.search.as_ref().is_some_and(|s| s.may_be_in_json(json))
    }

    fn header(&self, record: &mut NewRecord, free: Free) -> Result<(), event::ParseError> {
        let broken = |source| event::ParseError { kind: record.kind.to_string(), source };
        let mut header: Map<String, Value> =
            serde_json::from_str(&record.header).map_err(broken)?;
        let mut changed = false;
        let given = self.given_only();
        for (field, value) in &mut header {
            changed |= match free {
                // The one field that is free JSON.
                Free::Fields(fields) if field == "provider" && fields.contains(&"provider") => {
                    self.value(value, 0)
                }
                Free::Fields(fields) => fields.contains(&field.as_str()) && given.value(value, 0),
                // Whose fields are ids is not known here; a key's name is no reason to break them.
                Free::Unknown => match value {
                    Value::String(text) => replace(text, given.text(text).into_owned()),
                    _ => false,
                },
                Free::None => false,
            };
        }
        if changed {
            let header = Value::Object(header).to_string();
            record.event = Event::parse(&record.kind, &header)?;
            record.header = header.into();
        }
        Ok(())
    }

    fn payload(&self, payload: &str) -> Box<str> {
        let Ok(mut content) = serde_json::from_str::<Map<String, Value>>(payload) else {
            // Nested too deeply to be looked into: what cannot be checked is not written.
            let safe = !self.keys.may_match(payload);
            let masked = self.search.as_ref().map(|search| search.replace_in_json(payload));
            return match masked {
                Some(masked) if safe => masked.into(),
                None if safe => payload.into(),
                _ => Value::Object(Map::from_iter([(REPLACEMENT.to_owned(), REPLACEMENT.into())]))
                    .to_string()
                    .into(),
            };
        };
        let mut changed = false;
        for value in content.values_mut() {
            changed |= self.value(value, 0);
        }
        if changed { Value::Object(content).to_string().into() } else { payload.into() }
    }

    /// Masks in place; whether anything changed.
    fn value(&self, value: &mut Value, text_depth: usize) -> bool {
        match value {
            Value::String(text) => {
                if text_depth < TEXT_DEPTH_MAX
                    && let Some(mut inner) = self.object_in(text)
                    && self.has_excluded(&inner)
                    && self.value(&mut inner, text_depth + 1)
                {
                    return replace(text, inner.to_string());
                }
                replace(text, self.text(text).into_owned())
            }
            Value::Number(number) => {
                let text = number.to_string();
                let known = matches!(self.text(&text), Cow::Owned(_));
                if known {
                    *value = REPLACEMENT.into();
                }
                known
            }
            Value::Array(items) => {
                items.iter_mut().fold(false, |changed, item| self.value(item, text_depth) | changed)
            }
            Value::Object(object) => self.object(object, text_depth),
            Value::Bool(_) | Value::Null => false,
        }
    }

    fn object(&self, object: &mut Map<String, Value>, text_depth: usize) -> bool {
        let mut changed = false;
        for (key, value) in object.iter_mut() {
            if !self.keys.matches(key) {
                changed |= self.value(value, text_depth);
            } else if is_secret(value) {
                *value = REPLACEMENT.into();
                changed = true;
            }
        }
        let is_known = |key: &String| matches!(self.text(key), Cow::Owned(_));
        if object.keys().any(is_known) {
            for (key, value) in std::mem::take(object) {
                let mut name = self.text(&key).into_owned();
                // Two secrets may become the same name; neither value is lost.
                while object.contains_key(&name) {
                    name.push('_');
                }
                object.insert(name, value);
            }
            changed = true;
        }
        changed
    }

    /// Whether something in it is masked by its key.
    fn has_excluded(&self, value: &Value) -> bool {
        match value {
            Value::Object(object) => object.iter().any(|(key, value)| {
                if self.keys.matches(key) { is_secret(value) } else { self.has_excluded(value) }
            }),
            Value::Array(items) => items.iter().any(|item| self.has_excluded(item)),
            Value::String(text) => self.object_in(text).is_some_and(|i| self.has_excluded(&i)),
            Value::Number(_) | Value::Bool(_) | Value::Null => false,
        }
    }
}

fn replace(text: &mut String, masked: String) -> bool {
    let changed = *text != masked;
    *text = masked;
    changed
}

/// The length of a piece of a message, as its header says it.
fn text_length(payload: &str) -> Option<u64> {
    let content: Map<String, Value> = serde_json::from_str(payload).ok()?;
    content.get("text")?.as_str().map(|text| text.len() as u64)
}

/// Yes and no, and nothing, are no secrets; neither is what was masked before.
fn is_secret(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty() && text != REPLACEMENT,
        Value::Number(_) => true,
        Value::Array(items) => !items.is_empty(),
        Value::Object(object) => !object.is_empty(),
        Value::Bool(_) | Value::Null => false,
    }
}

/// A value that can be looked for without shredding ordinary text.
fn worth(value: &str) -> Option<Box<str>> {
    let value = value.trim();
    (value.len() >= MASK_VALUE_BYTES_MIN && value != REPLACEMENT).then(|| value.into())
}

/// Which fields of a header are masked.
#[derive(Clone, Copy)]
enum Free {
    Fields(&'static [&'static str]),
    None,
    /// A kind of a newer program.
    Unknown,
}

impl Free {
    fn is_empty(self) -> bool {
        matches!(self, Self::None)
    }
}

/// The header fields that hold what people and agents write; all others are the fold's.
fn free_fields(event: &Event) -> Free {
    match event {
        Event::SessionCreated(_) | Event::SessionAdopted(_) => {
            Free::Fields(&["title", "working_dir", "provider", "agent_profile_id"])
        }
        Event::ToolIntent(_) | Event::AccessTokenCreated(_) => Free::Fields(&["name"]),
        Event::RunFailed(_) => Free::Fields(&["code"]),
        Event::RunCompleted(_) | Event::RunInterrupted(_) => Free::Fields(&["stop_reason"]),
        Event::SessionAgentAssigned(_) => Free::Fields(&["agent_profile_id"]),
        Event::AgentUpdated(_) => Free::Fields(&["what"]),
        Event::AgentConfigured(_) => Free::Fields(&["mode", "model", "options"]),
        Event::AgentInitialized(_) => Free::Fields(&["agent"]),
        Event::AgentError(_) => Free::Fields(&["code", "auth_methods"]),
        Event::ExecutorStarting(_) => Free::Fields(&["runtime"]),
        Event::RecordRedacted(_) | Event::SessionDeleted(_) => Free::Fields(&["reason"]),
        Event::TaskCreated(_) | Event::TaskUpdated(_) | Event::SessionRenamed(_) => {
            Free::Fields(&["title"])
        }
        Event::RunWaiting(_) => Free::Fields(&["reject_options"]),
        Event::PermissionDecided(_) => Free::Fields(&["rule", "option_id"]),
        Event::PermissionAsked(_) => Free::Fields(&["rule"]),
        Event::AuditRecorded(_) => Free::Fields(&["action", "target"]),
        Event::WorkspacePlanned(_) | Event::WorkspacePrepared(_) => {
            Free::Fields(&["path", "repository", "base"])
        }
        Event::WorkspaceRemoved(_) => Free::Fields(&["path"]),
        Event::Unknown(_) => Free::Unknown,
        _ => Free::None,
    }
}

/// The values of an environment whose names match the patterns, for a masker to know.
pub fn environment_values(
    environment: impl IntoIterator<Item = (String, String)>,
    keys: &KeyPatterns,
) -> Vec<String> {
    let named = environment.into_iter().filter(|(name, _)| keys.matches(name));
    named.filter_map(|(_, value)| worth(&value)).map(String::from).collect()
}
