//! What the tests share: a store in a folder of its own, and nodes that note that they ran.

use std::path::Path;
use std::sync::{Arc, Mutex};

use piton_core::id::{BootId, SessionId};
use piton_core::mask::Masker;
use piton_core::{Event, Record};
use piton_graph::{
    Graph, GraphStore, Node, NodeContext, NodeError, Outcome, StoreFeatures, StoreParts,
    async_trait, inputs,
};
use piton_store::{BootLocks, Detail, Liveness, Store};
use serde_json::{Map, Value};

pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: GraphStore,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = piton_graph::open(folder.path()).unwrap();
        Self { folder, store }
    }

    /// On a store of plain files.
    pub(crate) fn files() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open_files(folder.path());
        Self { folder, store }
    }

    /// The same, over a folder that is there.
    pub(crate) fn files_at(folder: tempfile::TempDir) -> Self {
        let store = open_files(folder.path());
        Self { folder, store }
    }

    /// Another process's view: the first one has died.
    pub(crate) fn reopened(self) -> Self {
        let Self { folder, store } = self;
        drop(store);
        let store = piton_graph::open(folder.path()).unwrap();
        Self { folder, store }
    }

    pub(crate) async fn start(
        &self,
        graph: &Graph,
        given: &[(&str, Value)],
    ) -> (SessionId, Outcome) {
        let given = inputs(given.iter().cloned());
        let run = graph.runner(&self.store).start(given).await.unwrap();
        let session = run.session().clone();
        (session, run.finish().await.unwrap())
    }

    pub(crate) async fn resume(
        &self,
        graph: &Graph,
        session: &SessionId,
        set: &[(&str, Value)],
    ) -> Outcome {
        let set = inputs(set.iter().cloned());
        let run = graph.runner(&self.store).resume(session, None, set).await.unwrap();
        run.finish().await.unwrap()
    }

    pub(crate) async fn records(&self, session: &SessionId) -> Vec<Record> {
        let store = self.store.store();
        let mut records = Vec::new();
        loop {
            let after = records.last().map_or(0, |record: &Record| record.seq);
            let more = store.read(session, after, 1_000, Detail::Full).await.unwrap();
            if more.is_empty() {
                return records;
            }
            records.extend(more);
        }
    }

    /// Newest first.
    pub(crate) async fn checkpoints(
        &self,
        session: &SessionId,
    ) -> Vec<piton_graph::checkpoints::CheckpointSummary> {
        let all = piton_graph::CheckpointFilter::default();
        let listed = piton_graph::checkpoints::list(self.store.store(), session, &all, 1_000);
        listed.await.unwrap().checkpoints
    }

    pub(crate) async fn events(&self, session: &SessionId) -> Vec<Event> {
        let records = self.records(session).await;
        records.iter().map(|record| record.event().unwrap()).collect()
    }
}

fn open_files(folder: &Path) -> GraphStore {
    let locks = BootLocks::new(folder);
    let boot: BootId = "boot_files".parse().unwrap();
    let options = piton_store::files::Options::new(folder);
    let store: Arc<dyn Store> = Arc::new(piton_store::FilesStore::open(options).unwrap());
    over(store, boot, Arc::new(locks), piton_graph::files_features())
}

/// A store that the test has open.
pub(crate) fn over(
    store: Arc<dyn Store>,
    boot: BootId,
    liveness: Arc<dyn Liveness>,
    features: StoreFeatures,
) -> GraphStore {
    let masker = Arc::new(Masker::default());
    GraphStore::from_parts(StoreParts { store, boot, liveness, features, masker })
}

impl World {
    /// The events of a log whose contents may be damaged.
    pub(crate) async fn events_readable(&self, session: &SessionId) -> Vec<Event> {
        let store = self.store.store();
        let records = store.read(session, 0, 100_000, Detail::Headers).await.unwrap();
        records.iter().map(|record| record.event().unwrap()).collect()
    }
}

/// Which nodes ran, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran(Arc<Mutex<Vec<String>>>);

impl Ran {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// A node that notes itself and writes its name to the key `out`.
    pub(crate) fn node(&self) -> Noting {
        Noting { ran: self.clone(), fails: None }
    }

    /// A node that fails while the key is not set.
    pub(crate) fn needing(&self, key: &'static str) -> Noting {
        Noting { ran: self.clone(), fails: Some(key) }
    }
}

pub(crate) struct Noting {
    ran: Ran,
    fails: Option<&'static str>,
}

#[async_trait]
impl Node for Noting {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        self.ran.note(ctx.node());
        if let Some(key) = self.fails
            && ctx.value(key)?.is_null()
        {
            return Err(NodeError::new(format!("{key} is not set")));
        }
        Ok(())
    }
}

/// Every byte of every file below a folder.
pub(crate) fn bytes_below(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(bytes_below(&path));
        } else {
            bytes.extend(std::fs::read(&path).unwrap());
        }
    }
    bytes
}

pub(crate) fn completed(outcome: Outcome) -> Map<String, Value> {
    match outcome {
        Outcome::Completed(finished) => {
            let memory = finished.memory.into_iter();
            memory.map(|(key, value)| (key, (*value).clone())).collect()
        }
        other => panic!("not completed: {other:?}"),
    }
}
