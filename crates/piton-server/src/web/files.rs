//! Where the app's files come from.

use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use rust_embed::RustEmbed;

/// Where the app's files are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WebFiles {
    /// In the program, as they were when it was built; in a program with debug assertions, in the source
    /// that it was built from.
    #[default]
    Embedded,
    /// In a folder.
    Folder(PathBuf),
    /// There are none: the API alone is served.
    None,
}

/// A file of the app.
#[derive(Debug)]
pub(super) struct File {
    pub(super) bytes: Bytes,
    /// The same, compressed, if that was made and is smaller.
    pub(super) gzip: Option<Bytes>,
    /// Of its contents, in hex.
    pub(super) hash: String,
}

// The folder exists once the app was built; without it the program is the API alone.
#[derive(RustEmbed)]
#[folder = "../../web/app/dist"]
#[allow_missing = true]
struct Embedded;

impl WebFiles {
    pub(super) async fn get(&self, name: &str) -> Option<File> {
        let bytes = self.read(name).await?;
        let gzip = self.read(&format!("{name}.gz")).await.filter(|gzip| gzip.len() < bytes.len());
        let hash = blake3::hash(&bytes).to_hex()[..32].to_owned();
        Some(File { bytes, gzip, hash })
    }

    async fn read(&self, name: &str) -> Option<Bytes> {
        match self {
            Self::None => None,
            Self::Embedded => Embedded::get(name).map(|file| match file.data {
                std::borrow::Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                std::borrow::Cow::Owned(bytes) => Bytes::from(bytes),
            }),
            Self::Folder(folder) => {
                let is_inside =
                    Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
                if !is_inside {
                    return None;
                }
                tokio::fs::read(folder.join(name)).await.ok().map(Bytes::from)
            }
        }
    }
}
