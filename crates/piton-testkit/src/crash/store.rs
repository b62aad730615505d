//! Which store a writer writes to.

use std::path::Path;
use std::sync::Arc;

use piton_store::files::{self, FilesStore};
use piton_store::{Result, SqliteStore, Store, sqlite};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Files,
}

impl Kind {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "sqlite" => Some(Self::Sqlite),
            "files" => Some(Self::Files),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Files => "files",
        }
    }

    pub fn open(self, data: &Path) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Self::Sqlite => Arc::new(SqliteStore::open(sqlite::Options::new(data))?),
            Self::Files => Arc::new(FilesStore::open(files::Options::new(data))?),
        })
    }

    /// The store of a data folder, to be read; `None` if none was made yet. With SQLite, also while
    /// another process writes.
    ///
    /// # Panics
    /// If there is one and it cannot be opened.
    pub fn open_to_read(self, data: &Path) -> Option<Arc<dyn Store>> {
        let access = sqlite::Access::ReadOnly;
        let (opened, mark): (Result<Arc<dyn Store>>, _) = match self {
            Self::Sqlite => {
                let options = sqlite::Options { access, ..sqlite::Options::new(data) };
                (SqliteStore::open(options).map(|store| Arc::new(store) as _), "store.sqlite3")
            }
            Self::Files => {
                let options = files::Options { access, ..files::Options::new(data) };
                (FilesStore::open(options).map(|store| Arc::new(store) as _), "sessions")
            }
        };
        match opened {
            Ok(store) => Some(store),
            Err(piton_store::Error::Unreadable { .. }) if !data.join(mark).exists() => None,
            Err(e) => panic!("{}: {e}", e.code()),
        }
    }
}
