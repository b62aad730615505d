//! Files that come with a prompt: which kind of content block each becomes.

use std::fs;
use std::path::Path;

use piton_core::content::{Block, PromptContent, Resource};

use crate::error::{Error, Result};

/// All attachments of one prompt together, in bytes. In base64 they are a third larger, and a request
/// with a prompt has at most 32 MiB.
const ATTACHED_BYTES_MAX: u64 = 23 * 1024 * 1024;

/// The beginnings of files by which their type is known.
const SIGNATURES: &[(&[u8], &str)] = &[
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
];

/// By the end of the name, where the beginning of the file does not say it.
const EXTENSIONS: &[(&str, &str)] = &[
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("m4a", "audio/mp4"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
    ("svg", "image/svg+xml"),
    ("toml", "application/toml"),
    ("ts", "text/x-typescript"),
    ("txt", "text/plain"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// A prompt: text, and the files that come with it.
pub(crate) fn prompt(text: String, files: &[impl AsRef<Path>]) -> Result<PromptContent> {
    if files.is_empty() {
        return Ok(text.into());
    }
    let mut blocks = Vec::with_capacity(files.len() + 1);
    if !text.is_empty() {
        blocks.push(Block::Text { text });
    }
    let mut left = ATTACHED_BYTES_MAX;
    for file in files {
        blocks.push(block(file.as_ref(), &mut left)?);
    }
    Ok(blocks.into())
}

fn block(path: &Path, left: &mut u64) -> Result<Block> {
    let shown = path.display();
    let unreadable =
        |error: std::io::Error| Error::usage(&format!("{shown} cannot be attached: {error}"));
    let absolute = path.canonicalize().map_err(unreadable)?;
    let metadata = fs::metadata(&absolute).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Error::usage(&format!("{shown} cannot be attached: it is not a file")));
    }
    if metadata.len() > *left {
        let message = format!("{shown} is too large: a prompt takes 23 MiB of attachments");
        return Err(Error::usage(&message));
    }
    let bytes = fs::read(&absolute).map_err(unreadable)?;
    *left = left.saturating_sub(bytes.len() as u64);
    let uri = format!("file://{}", absolute.display());
    let name = absolute.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(of_bytes(&bytes, &name, uri))
}

fn of_bytes(bytes: &[u8], name: &str, uri: String) -> Block {
    let mime_type = mime_type(bytes, name);
    match mime_type.split('/').next() {
        Some("image") if mime_type != "image/svg+xml" => {
            Block::Image { data: base64(bytes), mime_type: mime_type.to_owned(), uri: Some(uri) }
        }
        Some("audio") => Block::Audio { data: base64(bytes), mime_type: mime_type.to_owned() },
        _ => {
            let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
            let blob = text.is_none().then(|| base64(bytes));
            let mime_type = Some(mime_type.to_owned());
            Block::Resource { resource: Resource { uri, mime_type, text, blob } }
        }
    }
}

fn mime_type(bytes: &[u8], name: &str) -> &'static str {
    if let Some((_, mime)) = SIGNATURES.iter().find(|(begin, _)| bytes.starts_with(begin)) {
        return mime;
    }
    if bytes.starts_with(b"RIFF") && bytes.len() >= 12 {
        match &bytes[8..12] {
            b"WEBP" => return "image/webp",
            b"WAVE" => return "audio/wav",
            _ => {}
        }
    }
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    let known = EXTENSIONS.iter().find(|(known, _)| extension.as_deref() == Some(*known));
    match known {
        Some((_, mime)) => mime,
        None if std::str::from_utf8(bytes).is_ok() => "text/plain",
        None => "application/octet-stream",
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4_usize {
            let index = (bits >> (18 - 6 * digit)) & 63;
            let filler = digit > three.len();
            text.push(if filler { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_base64() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn the_content_counts_for_more_than_the_name() {
        let of = |bytes: &[u8], name: &str| of_bytes(bytes, name, "file:///x".into());
        let image = of(b"\x89PNG\r\n\x1a\n...", "notes.txt");
        assert!(matches!(image, Block::Image { mime_type, .. } if mime_type == "image/png"));
        let audio = of(b"RIFF\x24\0\0\0WAVEfmt ", "x");
        assert!(matches!(audio, Block::Audio { mime_type, .. } if mime_type == "audio/wav"));
        for (bytes, name, mime, is_text) in [
            (&b"fn main() {}"[..], "main.rs", "text/x-rust", true),
            (b"hello", "README", "text/plain", true),
            (b"\xff\xfe\0", "data", "application/octet-stream", false),
            (b"%PDF-1.7 \xff", "paper.PDF", "application/pdf", false),
        ] {
            let Block::Resource { resource } = of(bytes, name) else { panic!("{name}") };
            assert_eq!(resource.mime_type.as_deref(), Some(mime));
            assert_eq!((resource.text.is_some(), resource.blob.is_some()), (is_text, !is_text));
        }
    }

    #[test]
    fn what_cannot_be_attached_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| format!("{:?}", prompt(String::new(), &[path]).unwrap_err());
        assert!(refused(&folder.path().join("missing.png")).contains("missing.png"));
        assert!(refused(folder.path()).contains("not a file"));
        let large = folder.path().join("large.bin");
        fs::File::create(&large).unwrap().set_len(ATTACHED_BYTES_MAX + 1).unwrap();
        assert!(refused(&large).contains("too large"));
    }
}
