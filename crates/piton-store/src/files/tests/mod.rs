//! What is particular to this store: its lines, its files, and what crashes and other people do to
//! them.

use std::sync::Arc;

use piton_core::id::BootId;

use super::*;
use crate::conformance::{Boots, Harness};

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

    fn store(&self) -> FilesStore {
        FilesStore::open(self.options()).unwrap()
    }
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

mod conformance {
    use super::InFolder;

    crate::conformance!(InFolder::new());
}
