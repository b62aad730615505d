//! Which store a data folder has, and how to open it: the one place that knows.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use piton_core::Code;
use piton_store::sqlite::{self, Access};
use piton_store::{KeySettings, KeySource, SqliteStore, Store};

use crate::config::{KeyChoice, Settings};
use crate::error::{Error, Result};

/// Names the kind of the folder's store; counts more than what lies beside it.
const MARKER: &str = "store";
const SQLITE_FILE: &str = "store.sqlite3";
const FILES_FOLDER: &str = "sessions";
/// A marker longer than this names nothing.
const MARKER_BYTES_MAX: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    let data = &settings.data.value;
    match detect(data)? {
        None => Ok(None),
        Some(Kind::Sqlite) => {
            let keys = key_settings(settings);
            let options = sqlite::Options { access, keys, ..sqlite::Options::new(data) };
            Ok(Some(Arc::new(SqliteStore::open(options)?)))
        }
        Some(Kind::Files) => Err(Error::new(
            Code::StoreUnsupported,
            format!("The store of plain files at {} cannot be opened yet", data.display()),
        )),
    }
}

fn key_settings(settings: &Settings) -> KeySettings {
    let environment = std::env::var("PITON_KEY").ok().filter(|key| !key.is_empty());
    let auto = KeySettings::default();
    #[cfg(feature = "keychain")]
    let keychain = Some(Arc::new(piton_store::OsKeychain) as Arc<dyn piton_store::Keychain>);
    #[cfg(not(feature = "keychain"))]
    let keychain = None;
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
