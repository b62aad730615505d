//! Which store a data folder has, and how to open it: the one place that knows.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use piton_core::Code;
use piton_graph::StoreFeatures;
use piton_store::sqlite::{self, Access};
use piton_store::{FilesStore, KEY_FILE, KeySettings, KeySource, SqliteStore, Store, files};
use serde::{Deserialize, Serialize};

use crate::config::{KeyChoice, Settings};
use crate::error::{Error, Result};

/// Names the kind of the folder's store; counts more than what lies beside it.
pub(crate) const MARKER: &str = "store";
const SQLITE_FILE: &str = "store.sqlite3";
const FILES_FOLDER: &str = "sessions";
/// A marker longer than this names nothing.
const MARKER_BYTES_MAX: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Sqlite,
    Files,
}

impl Kind {
    pub(crate) const NAMES: &[(&str, Self)] = &[("sqlite", Self::Sqlite), ("files", Self::Files)];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Files => "files",
        }
    }

    /// Whether a file of the data folder is a store's of this kind. No name is both's.
    pub(crate) fn owns(self, name: &str) -> bool {
        match self {
            Self::Sqlite => {
                let begins = ["store.", "anchors.sqlite3", "key."];
                name == KEY_FILE || begins.iter().any(|begin| name.starts_with(begin))
            }
            Self::Files => {
                let name = name.strip_suffix(".new").unwrap_or(name);
                let names =
                    [FILES_FOLDER, "blobs", "files.json", "files.lock", "README", "sweep.json"];
                names.contains(&name)
            }
        }
    }
}

/// The kind of the store that a data folder has; `None` if it has none, or is not there.
pub(crate) fn detect(data: &Path) -> Result<Option<Kind>> {
    if let Some(named) = marker(data)? {
        return Ok(Some(named));
    }
    let sqlite = is_there(&data.join(SQLITE_FILE))?;
    let files = is_there(&data.join(FILES_FOLDER))?;
    match (sqlite, files) {
        (true, false) => Ok(Some(Kind::Sqlite)),
        (false, true) => Ok(Some(Kind::Files)),
        (false, false) => Ok(None),
        (true, true) => Err(Error::new(
            Code::StoreAmbiguous,
            format!("The data folder {} holds two stores, sqlite and files", data.display()),
        )),
    }
}

fn marker(data: &Path) -> Result<Option<Kind>> {
    let path = data.join(MARKER);
    let length = match fs::metadata(&path) {
        Ok(found) => found.len(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(&path, e)),
    };
    let text = if length <= MARKER_BYTES_MAX {
        fs::read_to_string(&path).map_err(|e| unreadable(&path, e))?
    } else {
        String::new()
    };
    let named = Kind::NAMES.iter().find(|(name, _)| *name == text.trim());
    let message = || format!("{} names no kind of store that is known here", path.display());
    let named = named.ok_or_else(|| Error::new(Code::StoreUnsupported, message()))?;
    Ok(Some(named.1))
}

fn is_there(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(unreadable(path, e)),
    }
}

fn unreadable(path: &Path, e: io::Error) -> Error {
    let source: piton_store::Cause = Arc::new(e);
    piton_store::Error::Unreadable { path: path.to_owned(), source: Some(source) }.into()
}

/// Opens the store of the data folder; `None` if there is none. Makes none.
pub(crate) fn open_store(settings: &Settings, access: Access) -> Result<Option<Arc<dyn Store>>> {
    let kind = detect(&settings.data.value)?;
    kind.map(|kind| open_kind(settings, kind, access)).transpose()
}

/// Opens the store of the data folder for writing, or makes one of the kind that the settings say.
pub(crate) fn open_or_create_store(settings: &Settings) -> Result<Arc<dyn Store>> {
    let kind = detect(&settings.data.value)?.unwrap_or(settings.store.value);
    open_kind(settings, kind, Access::ReadWrite)
}

/// The same, with what the store does to contents.
pub(crate) fn open_or_create_with_features(
    settings: &Settings,
) -> Result<(Arc<dyn Store>, StoreFeatures)> {
    let kind = detect(&settings.data.value)?.unwrap_or(settings.store.value);
    open_with_features(settings, kind, Access::ReadWrite)
}

/// Opens the folder's store of a kind; for writing it is made if it is not there.
pub(crate) fn open_kind(settings: &Settings, kind: Kind, access: Access) -> Result<Arc<dyn Store>> {
    Ok(open_with_features(settings, kind, access)?.0)
}

fn open_with_features(
    settings: &Settings,
    kind: Kind,
    access: Access,
) -> Result<(Arc<dyn Store>, StoreFeatures)> {
    let data = &settings.data.value;
    Ok(match kind {
        Kind::Sqlite => {
            let keys = key_settings(settings);
            let options = sqlite::Options { access, keys, ..sqlite::Options::new(data) };
            let store = SqliteStore::open(options)?;
            let features = piton_graph::sqlite_features(&store);
            (Arc::new(store), features)
        }
        Kind::Files => {
            let options = files::Options { access, ..files::Options::new(data) };
            (Arc::new(FilesStore::open(options)?), piton_graph::files_features())
        }
    })
}

fn key_settings(settings: &Settings) -> KeySettings {
    let environment = std::env::var("PITON_KEY").ok().filter(|key| !key.is_empty());
    let auto = KeySettings::default();
    let keychain = Some(Arc::new(piton_store::OsKeychain) as Arc<dyn piton_store::Keychain>);
    KeySettings {
        order: match &settings.key_source.value {
            KeyChoice::Auto => auto.order,
            KeyChoice::Only(source) => vec![*source],
        },
        environment: environment.map(Into::into),
        keychain,
    }
}

/// How a key's source is called in the settings.
pub(crate) fn key_source_name(choice: &KeyChoice) -> &'static str {
    match choice {
        KeyChoice::Auto => "auto",
        KeyChoice::Only(source) => KeySource::as_str(*source),
    }
}
