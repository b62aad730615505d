//! Where graphs run: a store, and this process's life in it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use piton_core::Timestamp;
use piton_core::graph::{CheckpointOptions, StoreFeatures};
use piton_core::id::{BootId, CheckpointId, RunId, SessionId, TokenId};
use piton_core::limits::PAYLOAD_INLINE_BYTES_MAX;
use piton_core::mask::{KeyPatterns, Masker};
use piton_core::token::{ResumeToken, Secret};
use piton_store::{
    BootGuard, BootLocks, Entropy, KeySource, Liveness, OsEntropy, SqliteStore, Store, Writer,
    sqlite,
};

use crate::error::{Error, Result};

/// A store that graphs run in, with this process's boot in it. Cheap to clone; the boot ends with the
/// last clone.
#[derive(Clone, Debug)]
pub struct GraphStore {
    inner: Arc<Inner>,
    /// What every graph here is checkpointed by; wins over what a graph says.
    checkpoint: Arc<CheckpointOptions>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    boot: BootId,
    liveness: Arc<dyn Liveness>,
    features: StoreFeatures,
    masker: Arc<Masker>,
    /// Sessions that run in this process: the lease alone would not tell two runs of one boot apart.
    running: Mutex<BTreeSet<SessionId>>,
    /// Held for its lock.
    _guard: Option<BootGuard>,
}

/// What an embedding program knows of its store.
#[derive(Debug)]
pub struct StoreParts {
    pub store: Arc<dyn Store>,
    /// This process's boot; the caller keeps it alive.
    pub boot: BootId,
    pub liveness: Arc<dyn Liveness>,
    pub features: StoreFeatures,
    /// Masks what is written, beside the keys that a graph excludes.
    pub masker: Arc<Masker>,
}

/// Opens the SQLite store in a data folder, or makes one.
pub fn open(data: impl AsRef<Path>) -> Result<GraphStore> {
    let data = data.as_ref();
    let store = SqliteStore::open(sqlite::Options::new(data))?;
    let locks = BootLocks::new(data);
    let boot = BootId::new(unix_ms(), random()?);
    let guard = locks.hold(boot.clone())?;
    let features = sqlite_features(&store);
    let parts = StoreParts {
        store: Arc::new(store),
        boot,
        liveness: Arc::new(locks),
        features,
        masker: Arc::new(Masker::default()),
    };
    Ok(GraphStore::of(parts, Some(guard)))
}

/// What a SQLite store does to contents.
pub fn sqlite_features(store: &SqliteStore) -> StoreFeatures {
    StoreFeatures {
        is_encrypted: true,
        compresses_above: Some(SqliteStore::COMPRESSES_ABOVE),
        key_source: Some(match store.key_source() {
            KeySource::Keychain => "keychain",
            KeySource::Environment => "env_var",
            KeySource::File => "file",
        }),
    }
}

/// What a store of plain files does to contents.
pub fn files_features() -> StoreFeatures {
    let compresses_above = Some(PAYLOAD_INLINE_BYTES_MAX);
    StoreFeatures { is_encrypted: false, compresses_above, key_source: None }
}

impl GraphStore {
    /// Over a store that the caller has open.
    pub fn from_parts(parts: StoreParts) -> Self {
        Self::of(parts, None)
    }

    fn of(parts: StoreParts, guard: Option<BootGuard>) -> Self {
        let StoreParts { store, boot, liveness, features, masker } = parts;
        let running = Mutex::default();
        let inner = Inner { store, boot, liveness, features, masker, running, _guard: guard };
        Self { inner: Arc::new(inner), checkpoint: Arc::default() }
    }

    /// The options of the runtime's level: they win over a graph's.
    pub fn with_checkpoints(self, options: CheckpointOptions) -> Self {
        Self { checkpoint: Arc::new(options), ..self }
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub fn boot(&self) -> &BootId {
        &self.inner.boot
    }

    pub(crate) fn features(&self) -> StoreFeatures {
        self.inner.features
    }

    pub(crate) fn checkpoint_options(&self) -> &CheckpointOptions {
        &self.checkpoint
    }

    /// Declares that a session is run, or changed, here; refused if it is already.
    pub(crate) fn claim(&self, session: &SessionId) -> Result<Claim> {
        let mut running = self.inner.running.lock().unwrap_or_else(PoisonError::into_inner);
        if !running.insert(session.clone()) {
            let (session, owner) = (session.clone(), self.inner.boot.clone());
            return Err(piton_store::Error::SessionOwned { session, owner }.into());
        }
        Ok(Claim { store: self.clone(), session: session.clone() })
    }

    pub(crate) fn is_alive(&self, boot: &BootId) -> bool {
        *boot == self.inner.boot || self.inner.liveness.is_alive(boot)
    }

    /// A writer that masks by these globs.
    pub(crate) fn writer(&self, excluded: &[String]) -> Result<Writer> {
        let given = self.inner.masker.given();
        let keys: Vec<&str> = excluded.iter().chain(&given.keys).map(String::as_str).collect();
        let masker = Masker::new(KeyPatterns::new(&keys), &given.values)
            .map_err(|error| Error::Input { message: error.to_string(), hint: None })?;
        let store = Arc::clone(&self.inner.store);
        Ok(Writer::new(store, self.inner.boot.clone(), Arc::new(masker)))
    }
}

/// A session that runs in this process, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    store: GraphStore,
    session: SessionId,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let running = self.store.inner.running.lock();
        running.unwrap_or_else(PoisonError::into_inner).remove(&self.session);
    }
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(i64::try_from(unix_ms()).unwrap_or(i64::MAX))
}

fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    OsEntropy.fill(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn new_session() -> Result<SessionId> {
    Ok(SessionId::new(unix_ms(), random()?))
}

pub(crate) fn new_run() -> Result<RunId> {
    Ok(RunId::new(unix_ms(), random()?))
}

pub(crate) fn new_checkpoint() -> Result<CheckpointId> {
    Ok(CheckpointId::new(unix_ms(), random()?))
}

pub(crate) fn new_token() -> Result<ResumeToken> {
    let id = TokenId::new(unix_ms(), random()?);
    Ok(ResumeToken { id, secret: Secret::new(random()?) })
}
