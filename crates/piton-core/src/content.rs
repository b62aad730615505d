//! What a prompt is made of: content blocks, as the Agent Client Protocol has them. A prompt of
//! nothing but text is written and sent as a plain string, which is also how older records have it.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::record::{Content, Record};

/// One part of a prompt.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    Image {
        /// Base64.
        data: String,
        #[serde(rename = "mimeType")]
        mime_type: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uri: Option<String>,
    },
    Audio {
        /// Base64.
        data: String,
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    /// A file that the agent can read by itself.
    ResourceLink {
        uri: String,
        name: String,
        #[serde(default, rename = "mimeType", skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// A file that comes with the prompt.
    Resource {
        resource: Resource,
    },
}

/// The contents of an embedded file: `text`, or `blob` in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    pub uri: String,
    #[serde(default, rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// The kinds of blocks that an agent may be unable to take. Text and links every agent takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    Text,
    Image,
    Audio,
    ResourceLink,
    Resource,
}

impl BlockKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::ResourceLink => "resource_link",
            Self::Resource => "resource",
        }
    }
}

impl fmt::Display for BlockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which blocks an agent takes beside text and links (`promptCapabilities`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptCapabilities {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub image: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub audio: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub embedded_context: bool,
}

impl PromptCapabilities {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn takes(self, kind: BlockKind) -> bool {
        match kind {
            BlockKind::Text | BlockKind::ResourceLink => true,
            BlockKind::Image => self.image,
            BlockKind::Audio => self.audio,
            BlockKind::Resource => self.embedded_context,
        }
    }
}

impl Block {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    pub fn kind(&self) -> BlockKind {
        match self {
            Self::Text { .. } => BlockKind::Text,
            Self::Image { .. } => BlockKind::Image,
            Self::Audio { .. } => BlockKind::Audio,
            Self::ResourceLink { .. } => BlockKind::ResourceLink,
            Self::Resource { .. } => BlockKind::Resource,
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Text { text } if text.is_empty())
    }

    /// About as many bytes as it has on the wire.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::Image { data, .. } | Self::Audio { data, .. } => data.len(),
            Self::ResourceLink { uri, name, .. } => uri.len() + name.len(),
            Self::Resource { resource } => {
                let content = resource.text.as_ref().or(resource.blob.as_ref());
                resource.uri.len() + content.map_or(0, String::len)
            }
        }
    }

    /// What is wrong with it, if something is.
    fn fault(&self) -> Option<&'static str> {
        match self {
            Self::Text { .. } => None,
            Self::Image { data, mime_type, .. } | Self::Audio { data, mime_type } => {
                if data.is_empty() {
                    Some("data is empty")
                } else if !is_base64(data) {
                    Some("data is not base64")
                } else if mime_type.is_empty() {
                    Some("mimeType is empty")
                } else {
                    None
                }
            }
            Self::ResourceLink { uri, name, .. } => {
                (uri.is_empty() || name.is_empty()).then_some("uri and name must not be empty")
            }
            Self::Resource { resource } => match (&resource.text, &resource.blob) {
                _ if resource.uri.is_empty() => Some("uri is empty"),
                (None, None) | (Some(_), Some(_)) => Some("either text or blob is needed"),
                (None, Some(blob)) if !is_base64(blob) => Some("blob is not base64"),
                _ => None,
            },
        }
    }

    /// The block as a line of text: text as it is, everything else by its name.
    fn named(&self) -> String {
        match self {
            Self::Text { text } => text.clone(),
            Self::Image { data, mime_type, uri } => {
                attachment("image", uri.as_deref(), Some(mime_type), Some(bytes_of(data)))
            }
            Self::Audio { data, mime_type } => {
                attachment("audio", None, Some(mime_type), Some(bytes_of(data)))
            }
            Self::ResourceLink { uri, name, mime_type, .. } => {
                attachment("link", Some(&format!("{name} {uri}")), mime_type.as_deref(), None)
            }
            Self::Resource { resource } => {
                let text = resource.text.as_ref().map(String::len);
                let bytes = text.or_else(|| resource.blob.as_deref().map(bytes_of));
                attachment("file", Some(&resource.uri), resource.mime_type.as_deref(), bytes)
            }
        }
    }
}

/// Large contents are named by their size.
impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { text } => f.debug_tuple("Text").field(text).finish(),
            other => f.write_str(&other.named()),
        }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource").field("uri", &self.uri).finish_non_exhaustive()
    }
}

fn attachment(
    what: &str,
    name: Option<&str>,
    mime_type: Option<&str>,
    bytes: Option<usize>,
) -> String {
    let name = name.map(|name| format!(": {}", name.replace(['\n', '\r'], " ")));
    let bytes = bytes.map(|bytes| format!("{bytes} bytes"));
    let details: Vec<_> = mime_type.map(str::to_owned).into_iter().chain(bytes).collect();
    let details =
        if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
    format!("[Attached {what}{}{details}]", name.unwrap_or_default())
}

/// How many bytes a base64 text stands for.
fn bytes_of(base64: &str) -> usize {
    let padding = base64.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}

fn is_base64(text: &str) -> bool {
    let end = text.trim_end_matches('=').len();
    text.len().is_multiple_of(4)
        && text.len() - end <= 2
        && text.as_bytes()[..end]
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// The content of one prompt. Cheap to clone, however large it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptContent(Arc<[Block]>);

/// Why something is no prompt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("content is empty")]
    Empty,
    #[error("content has more than {max} blocks")]
    TooMany { max: usize },
    #[error("content block {at} ({kind}): {fault}")]
    Block { at: usize, kind: BlockKind, fault: &'static str },
}

/// Most blocks in one prompt.
pub const BLOCKS_MAX: usize = 256;

impl PromptContent {
    pub fn new(blocks: Vec<Block>) -> Self {
        Self(blocks.into())
    }

    pub fn blocks(&self) -> &[Block] {
        &self.0
    }

    /// Refuses what no agent could make anything of.
    pub fn check(&self) -> Result<(), ContentError> {
        if self.0.iter().all(Block::is_empty) {
            return Err(ContentError::Empty);
        }
        if self.0.len() > BLOCKS_MAX {
            return Err(ContentError::TooMany { max: BLOCKS_MAX });
        }
        for (at, block) in self.0.iter().enumerate() {
            if let Some(fault) = block.fault() {
                return Err(ContentError::Block { at: at + 1, kind: block.kind(), fault });
            }
        }
        Ok(())
    }

    /// The first kind of block in it that an agent does not take.
    pub fn first_unsupported(&self, capabilities: PromptCapabilities) -> Option<BlockKind> {
        self.0.iter().map(Block::kind).find(|kind| !capabilities.takes(*kind))
    }

    /// All of it as text; attachments are named, not included.
    pub fn text(&self) -> String {
        match &*self.0 {
            [Block::Text { text }] => text.clone(),
            blocks => blocks.iter().map(Block::named).collect::<Vec<_>>().join("\n"),
        }
    }

    /// What was written: its text alone, without the names of attachments.
    pub fn written(&self) -> String {
        let texts = self.0.iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    pub fn attachments(&self) -> impl Iterator<Item = &Block> {
        self.0.iter().filter(|block| block.kind() != BlockKind::Text)
    }

    /// The attachments behind a text, which takes the place of all text. Attachments need none.
    pub fn with_text(&self, text: String) -> Self {
        let has_text = !text.is_empty() || self.attachments().next().is_none();
        let text = has_text.then_some(Block::Text { text });
        Self(text.into_iter().chain(self.attachments().cloned()).collect())
    }

    /// The same with further blocks behind it.
    #[must_use]
    pub fn with_attachments(self, attachments: Vec<Block>) -> Self {
        if attachments.is_empty() {
            return self;
        }
        Self(self.0.iter().cloned().chain(attachments).collect())
    }

    /// What a record's content field has; `None` if it has none that is a prompt.
    pub fn of(record: &Record, field: &str) -> Option<Self> {
        let Content::Json(json) = &record.content else { return None };
        let mut fields: std::collections::BTreeMap<String, &serde_json::value::RawValue> =
            serde_json::from_str(json).ok()?;
        serde_json::from_str(fields.remove(field)?.get()).ok()
    }
}

impl From<&str> for PromptContent {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<&String> for PromptContent {
    fn from(text: &String) -> Self {
        Self::from(text.clone())
    }
}

impl From<String> for PromptContent {
    fn from(text: String) -> Self {
        Self(Arc::new([Block::Text { text }]))
    }
}

impl From<Vec<Block>> for PromptContent {
    fn from(blocks: Vec<Block>) -> Self {
        Self::new(blocks)
    }
}

impl Serialize for PromptContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &*self.0 {
            [Block::Text { text }] => serializer.serialize_str(text),
            blocks => blocks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PromptContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrBlocks;

        impl<'de> Visitor<'de> for StringOrBlocks {
            type Value = PromptContent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of content blocks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(text.into())
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(text.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(block) = blocks.next_element()? {
                    all.push(block);
                }
                Ok(PromptContent::new(all))
            }
        }

        deserializer.deserialize_any(StringOrBlocks)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: serde_json::Value) -> PromptContent {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn text_alone_is_a_string_and_everything_else_is_a_list() {
        let text = parse(json!("hello"));
        assert_eq!(text, parse(json!([{"type": "text", "text": "hello"}])));
        assert_eq!(serde_json::to_value(&text).unwrap(), json!("hello"));
        let blocks = json!([
            {"type": "text", "text": "look"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "b"}},
        ]);
        assert_eq!(serde_json::to_value(parse(blocks.clone())).unwrap(), blocks);
    }

    #[test]
    fn attachments_are_named_in_the_text() {
        let content = parse(json!([
            {"type": "text", "text": "look"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png", "uri": "shot.png"},
            {"type": "audio", "data": "AAA=", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "text/plain", "text": "bb"}},
        ]));
        assert_eq!(
            content.text(),
            "look\n\
             [Attached image: shot.png (image/png, 3 bytes)]\n\
             [Attached audio (audio/wav, 2 bytes)]\n\
             [Attached link: a file:///a]\n\
             [Attached file: file:///b (text/plain, 2 bytes)]"
        );
        let replaced = content.with_text("history, look".into());
        assert_eq!(replaced.blocks().len(), content.blocks().len());
        assert_eq!(replaced.blocks()[0], Block::text("history, look"));
        assert_eq!(content.written(), "look", "the names of attachments were not written");
        assert_eq!(content.with_text(String::new()).blocks(), &content.blocks()[1..]);
        assert_eq!(parse(json!("a")).with_text(String::new()), parse(json!("")));
    }

    #[test]
    fn what_is_no_prompt_is_refused() {
        let refused = |value| parse(value).check().unwrap_err().to_string();
        assert_eq!(refused(json!("")), "content is empty");
        assert_eq!(refused(json!([])), "content is empty");
        assert_eq!(
            refused(json!([{"type": "image", "data": "A-==", "mimeType": "image/png"}])),
            "content block 1 (image): data is not base64"
        );
        assert_eq!(
            refused(json!([{"type": "resource", "resource": {"uri": "a"}}])),
            "content block 1 (resource): either text or blob is needed"
        );
        let many = vec![Block::text("x"); BLOCKS_MAX + 1];
        assert!(PromptContent::new(many).check().is_err());
        assert!(serde_json::from_value::<PromptContent>(json!([{"type": "video"}])).is_err());
        assert!(serde_json::from_value::<PromptContent>(json!(7)).is_err());
    }

    #[test]
    fn what_an_agent_does_not_take_is_named() {
        let content = parse(json!([
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        ]));
        let mut capabilities = PromptCapabilities { image: true, ..PromptCapabilities::default() };
        assert_eq!(content.first_unsupported(capabilities), Some(BlockKind::Audio));
        capabilities.audio = true;
        assert_eq!(content.first_unsupported(capabilities), None);
    }
}
