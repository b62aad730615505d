//! What is particular to this store: its files, keys, failures and neighbours.

mod failures;
mod format;
mod opening;
mod processes;
mod removal;
mod secrets;
mod taken;
mod tampering;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_core::id::BootId;

use super::*;
use crate::conformance::{Boots, Driver, Harness, run};

/// A store in a temporary folder, with boots that live until killed.
#[derive(Debug)]
struct InFolder {
    folder: tempfile::TempDir,
    boots: Arc<Boots>,
}

impl InFolder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), boots: Arc::default() }
    }

    fn options(&self) -> Options {
        Options { liveness: self.boots.clone(), ..Options::new(self.folder.path()) }
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(self.options()).unwrap()
    }

    fn refused(&self) -> Error {
        SqliteStore::open(self.options()).unwrap_err()
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join(schema::FILE)
    }

    /// Does something to the closed database behind the store's back.
    fn sql(&self, sql: &str) {
        sql_in(&self.database(), sql);
    }
}

fn sql_in(path: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.execute_batch(sql).unwrap();
}

impl Harness for InFolder {
    fn open(&self) -> BoxFuture<Arc<dyn Store>> {
        let store = self.store();
        Box::pin(async move { Arc::new(store) as Arc<dyn Store> })
    }

    fn kill(&self, boot: &BootId) {
        self.boots.kill(boot);
    }
}

/// The texts of a session's messages.
async fn texts(store: &dyn Store, driver: &Driver) -> Vec<String> {
    let records = store.read(&driver.session, 0, 10_000, Detail::Full).await.unwrap();
    let texts = records.iter().filter_map(|record| record.content_field("content"));
    texts.map(|text| text.as_str().unwrap().to_owned()).collect()
}

mod conformance {
    use super::InFolder;

    crate::conformance!(InFolder::new());
    crate::conformance_of_removal!(InFolder::new());
}
