//! One line of a log: the record as one flat JSON object, which `jq` can read, and what the store
//! adds in the field `_`.
//!
//! The chain covers a header's and a content's bytes as they were first written, so a line gives
//! them back to the byte: their text lies in the line as it is, without its braces, and `_` says how
//! many bytes belong to which. A text that cannot lie flat (it has a line break, a field that the
//! line has already, or is no object at all) is kept in `_` as a string.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::io::Write as _;

use piton_core::limits::{HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX, SEQ_MAX};
use piton_core::{Event, Seq, Timestamp, chain, event};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The field that no record has.
const OWN: &str = "_";
/// Where the store's part begins; inside a JSON string its quotes would be escaped.
const OWN_START: &str = ",\"_\":{";
const TAKEN_OUT: &str = "redacted";
const TAKEN_OUT_FIELD: &str = ",\"redacted\":true";

/// Longest line that this program writes, and reads: header and content escaped, and our part.
pub(crate) const LINE_BYTES_MAX: usize = 1024 * 1024;
/// Longest line of a log that began elsewhere: there, contents lie in their lines.
pub(crate) const FOREIGN_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 2 * HEADER_BYTES_MAX;

/// A content as a line has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept<'a> {
    None,
    Json(Cow<'a, str>),
    /// In a file of its own.
    Blob {
        address: chain::Hash,
        bytes: u64,
    },
    Redacted,
}

/// One record and everything that its link covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) seq: Seq,
    pub(crate) ts: Timestamp,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) header: Cow<'a, str>,
    pub(crate) content: Kept<'a>,
    pub(crate) batch_left: u32,
    pub(crate) payload_hash: Option<chain::Hash>,
    pub(crate) chain: chain::Hash,
    /// The last seq that was durable when this line was written. A bad line before this one with a
    /// higher seq was never flushed: it was torn, not damaged. `None`: the whole file was durable.
    pub(crate) flushed: Option<Seq>,
}

impl Line<'_> {
    pub(crate) fn link(&self, key: &chain::Key, previous: &chain::Hash) -> chain::Hash {
        let link = chain::LinkInput {
            seq: self.seq,
            ts: self.ts,
            kind: &self.kind,
            header: &self.header,
            payload_hash: self.payload_hash,
            batch_left: self.batch_left,
        };
        key.link(previous, link)
    }

    pub(crate) fn event(&self) -> Result<Event, event::ParseError> {
        Event::parse(&self.kind, &self.header)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hex(pub(crate) chain::Hash);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = Hex;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a hash in hex")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Hex, E> {
                let mut hash = [0; 32];
                hex::decode_to_slice(text, &mut hash).map_err(E::custom)?;
                Ok(Hex(hash))
            }
        }
        deserializer.deserialize_str(Digits)
    }
}

/// Where a text is.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TextLocation<'a> {
    /// In the line, so many bytes.
    Flat(usize),
    Raw(Cow<'a, str>),
    Blob {
        blob: Hex,
        bytes: u64,
    },
    Redacted {
        redacted: bool,
    },
}

/// By hand: every line has two, and to try one variant after the other would copy each.
impl<'de> Deserialize<'de> for TextLocation<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Apart {
            blob: Option<Hex>,
            bytes: Option<u64>,
            redacted: Option<bool>,
        }
        struct OneOf;
        impl<'de> Visitor<'de> for OneOf {
            type Value = TextLocation<'static>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, a text, or where it is")
            }
            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Self::Value, E> {
                usize::try_from(bytes).map(TextLocation::Flat).map_err(E::custom)
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextLocation::Raw(Cow::Owned(text.to_owned())))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let apart = Apart::deserialize(MapAccessDeserializer::new(map))?;
                match (apart.blob, apart.bytes, apart.redacted) {
                    (Some(blob), Some(bytes), _) => Ok(TextLocation::Blob { blob, bytes }),
                    (_, _, Some(redacted)) => Ok(TextLocation::Redacted { redacted }),
                    _ => Err(serde::de::Error::custom("it says nowhere")),
                }
            }
        }
        deserializer.deserialize_any(OneOf)
    }
}

/// What the field `_` says.
#[derive(Debug, Serialize, Deserialize)]
struct Own<'a> {
    #[serde(rename = "left")]
    batch_left: u32,
    header: TextLocation<'a>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<TextLocation<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<Hex>,
    chain: Hex,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flushed: Option<Seq>,
}

/// An object's fields in their order, each value as it is written.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    fields.push((Cow::Owned(name), value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// The part between the braces, if the text can lie in a line; its fields' names go to `names`.
fn flat<'a>(text: &'a str, names: &mut HashSet<String>) -> Option<&'a str> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    // A line break would end the line; the others have no business between fields.
    if text.bytes().any(|byte| byte < b' ') {
        return None;
    }
    let fields: Fields<'_> = serde_json::from_str(text).ok()?;
    if fields.0.is_empty() && !inner.is_empty() {
        return None;
    }
    let mut all = names.clone();
    for (name, _) in fields.0 {
        if !all.insert(name.into_owned()) {
            return None;
        }
    }
    *names = all;
    Some(inner)
}

/// Writes a line, with its line break.
pub(crate) fn encode(line: &Line<'_>, out: &mut Vec<u8>) {
    let mut names: HashSet<String> = ["seq", "ts", "kind", OWN].map(str::to_owned).into();
    let put = |out: &mut Vec<u8>, inner: &str| {
        if !inner.is_empty() {
            out.push(b',');
            out.extend_from_slice(inner.as_bytes());
        }
    };
    // Writing to memory does not fail, and neither do strings and numbers as JSON.
    drop(write!(out, "{{\"seq\":{},\"ts\":\"{}\",\"kind\":", line.seq, line.ts));
    drop(serde_json::to_writer(&mut *out, &*line.kind));
    let header = match flat(&line.header, &mut names) {
        Some(inner) => {
            put(out, inner);
            TextLocation::Flat(inner.len())
        }
        None => TextLocation::Raw(Cow::Borrowed(&*line.header)),
    };
    let content = match &line.content {
        Kept::None => None,
        Kept::Json(text) => Some(match flat(text, &mut names) {
            Some(inner) => {
                put(out, inner);
                TextLocation::Flat(inner.len())
            }
            None => TextLocation::Raw(Cow::Borrowed(&**text)),
        }),
        Kept::Blob { address, bytes } => {
            Some(TextLocation::Blob { blob: Hex(*address), bytes: *bytes })
        }
        Kept::Redacted => {
            if !names.contains(TAKEN_OUT) {
                out.extend_from_slice(TAKEN_OUT_FIELD.as_bytes());
            }
            Some(TextLocation::Redacted { redacted: true })
        }
    };
    let own = Own {
        batch_left: line.batch_left,
        header,
        content,
        hash: line.payload_hash.map(Hex),
        chain: Hex(line.chain),
        flushed: line.flushed,
    };
    out.extend_from_slice(b",\"_\":");
    drop(serde_json::to_writer(&mut *out, &own));
    out.extend_from_slice(b"}\n");
}

/// Why a line is not a record.
pub(crate) type Why = &'static str;

pub(crate) const NOT_TEXT: Why = "it is not UTF-8 text";
pub(crate) const NOT_A_LINE: Why = "it is not a record as this store writes them";
pub(crate) const HEADER_UNREADABLE: Why = "its header is not readable";

/// Whether a line was written by this store, rather than elsewhere.
pub(crate) fn is_native(line: &[u8]) -> bool {
    let pattern = OWN_START.as_bytes();
    line.windows(pattern.len()).any(|window| window == pattern)
}

/// Whether a line has a field that each line of this store has, beside the one that tells it.
pub(crate) fn has_chain(line: &[u8]) -> bool {
    let pattern = b",\"chain\":\"";
    line.windows(pattern.len()).any(|window| window == pattern)
}

/// Takes what a text begins with.
fn take<'a>(text: &'a str, start: &str) -> Result<&'a str, Why> {
    text.strip_prefix(start).ok_or(NOT_A_LINE)
}

/// Takes what was put flat into the line.
fn take_flat(text: &str, bytes: usize) -> Result<(Cow<'static, str>, &str), Why> {
    if bytes == 0 {
        return Ok((Cow::Borrowed("{}"), text));
    }
    let text = take(text, ",")?;
    if !text.is_char_boundary(bytes) || bytes > text.len() {
        return Err(NOT_A_LINE);
    }
    let (inner, rest) = text.split_at(bytes);
    Ok((Cow::Owned(["{", inner, "}"].concat()), rest))
}

/// Where the store's part begins. Its last byte is rare behind there, and one byte is found much
/// faster than many.
fn own_at(text: &str) -> Option<usize> {
    let mut end = text.len();
    loop {
        let brace = text[..end].rfind('{')?;
        if text[..=brace].ends_with(OWN_START) {
            return Some(brace + 1 - OWN_START.len());
        }
        end = brace;
    }
}

/// Takes a JSON string.
fn take_string(text: &str) -> Result<(String, &str), Why> {
    if let Some(rest) = text.strip_prefix('"')
        && let Some(end) = rest.find(['"', '\\'])
        && let (plain, Some(rest)) = (&rest[..end], rest[end..].strip_prefix('"'))
        && !plain.bytes().any(|byte| byte < b' ')
    {
        return Ok((plain.to_owned(), rest));
    }
    let mut strings = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let string = strings.next().and_then(Result::ok).ok_or(NOT_A_LINE)?;
    let rest = text.get(strings.byte_offset()..).ok_or(NOT_A_LINE)?;
    Ok((string, rest))
}

/// Reads a line, without its line break. The link is the caller's to check.
pub(crate) fn decode(line: &[u8]) -> Result<Line<'static>, Why> {
    let text = std::str::from_utf8(line).map_err(|_| NOT_TEXT)?;
    let (flat, own) = text.split_at(own_at(text).ok_or(NOT_A_LINE)?);
    let own = own.strip_prefix(",\"_\":").and_then(|own| own.strip_suffix('}'));
    let own: Own<'_> = serde_json::from_str(own.ok_or(NOT_A_LINE)?).map_err(|_| NOT_A_LINE)?;

    let rest = take(flat, "{\"seq\":")?;
    let digits = rest.find(',').ok_or(NOT_A_LINE)?;
    let seq: Seq = rest[..digits].parse().map_err(|_| NOT_A_LINE)?;
    let rest = take(&rest[digits..], ",\"ts\":\"")?;
    let moment = rest.find('"').ok_or(NOT_A_LINE)?;
    let ts = rest[..moment].parse().map_err(|_| NOT_A_LINE)?;
    let rest = take(&rest[moment..], "\",\"kind\":")?;
    let (kind, rest) = take_string(rest)?;

    let (header, rest) = match own.header {
        TextLocation::Flat(bytes) => take_flat(rest, bytes)?,
        TextLocation::Raw(text) => (Cow::Owned(text.into_owned()), rest),
        TextLocation::Blob { .. } | TextLocation::Redacted { .. } => return Err(NOT_A_LINE),
    };
    let (content, rest) = match own.content {
        None => (Kept::None, rest),
        Some(TextLocation::Flat(bytes)) => {
            let (content, rest) = take_flat(rest, bytes)?;
            (Kept::Json(content), rest)
        }
        Some(TextLocation::Raw(text)) => (Kept::Json(Cow::Owned(text.into_owned())), rest),
        Some(TextLocation::Blob { blob, bytes }) => (Kept::Blob { address: blob.0, bytes }, rest),
        Some(TextLocation::Redacted { .. }) => {
            (Kept::Redacted, rest.strip_prefix(TAKEN_OUT_FIELD).unwrap_or(rest))
        }
    };
    let hash = own.hash.map(|hash| hash.0);
    let hash_fits = hash.is_some() != matches!(content, Kept::None);
    if !rest.is_empty() || !hash_fits || !(1..=SEQ_MAX).contains(&seq) {
        return Err(NOT_A_LINE);
    }
    Ok(Line {
        seq,
        ts,
        kind: Cow::Owned(kind),
        header,
        content,
        batch_left: own.batch_left,
        payload_hash: hash,
        chain: own.chain.0,
        flushed: own.flushed,
    })
}

/// Reads a line of a log that began elsewhere: a kind's content fields are content, everything else
/// is header, in the order and the spelling of the line. Links are made as `key` would make them.
pub(crate) fn decode_foreign(line: &[u8], key: &chain::Key) -> Result<Line<'static>, Why> {
    const NOT_AN_OBJECT: Why = "it is not a JSON object";
    let text = std::str::from_utf8(line).map_err(|_| NOT_TEXT)?;
    let fields: Fields<'_> = serde_json::from_str(text).map_err(|_| NOT_AN_OBJECT)?;
    let (mut seq, mut ts, mut kind): (Option<Seq>, Option<Timestamp>, Option<String>) =
        (None, None, None);
    let mut names = HashSet::new();
    let mut rest = Vec::new();
    for (name, value) in fields.0 {
        if !names.insert(name.clone()) {
            return Err("it has a field twice");
        }
        match &*name {
            "seq" => seq = serde_json::from_str(value.get()).ok(),
            "ts" => ts = serde_json::from_str(value.get()).ok(),
            "kind" => kind = serde_json::from_str(value.get()).ok(),
            _ => rest.push((name, value)),
        }
    }
    let (Some(seq), Some(ts), Some(kind)) = (seq, ts, kind) else {
        return Err("its seq, ts or kind is missing or of the wrong type");
    };
    if !(1..=SEQ_MAX).contains(&seq) {
        return Err("its seq is out of range");
    }
    let contents = event::content_fields(&kind);
    let (content, header): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|(name, _)| contents.contains(&&**name));
    let object = |fields: Vec<(Cow<'_, str>, &RawValue)>| {
        let mut text = String::from("{");
        for (name, value) in fields {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&serde_json::Value::String(name.into_owned()).to_string());
            text.push(':');
            text.push_str(value.get());
        }
        text.push('}');
        text
    };
    let header = object(header);
    Event::parse(&kind, &header).map_err(|_| HEADER_UNREADABLE)?;
    let content =
        if content.is_empty() { Kept::None } else { Kept::Json(Cow::Owned(object(content))) };
    let payload_hash = match &content {
        Kept::Json(text) => Some(key.payload_hash(text.as_bytes())),
        _ => None,
    };
    Ok(Line {
        seq,
        ts,
        kind: Cow::Owned(kind),
        header: Cow::Owned(header),
        content,
        batch_left: 0,
        payload_hash,
        chain: chain::GENESIS,
        flushed: None,
    })
}
