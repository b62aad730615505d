//! What the metadata log folds into, saved now and then: the log lists every session that ever was,
//! and a server must not read all of that to start. A cache like any other: what does not fit the log
//! is passed over. It says who may use the API, so it is sealed with a key that only the log's chain
//! key gives.

use std::sync::Arc;

use piton_core::chain;
use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use piton_core::registry::Registry;
use piton_core::state::PROJECTOR_VERSION;
use piton_store::{Snapshot, Store};

use crate::error::Result;

/// What folded it. Never a session's projector, which has its own numbers.
const PROJECTOR: u32 = 1_000_001;
const _: () = assert!(PROJECTOR > PROJECTOR_VERSION);
const CONTEXT: &str = "piton 2026-11-17 snapshot of the metadata log";

/// Keyed hash of the chain's hash and the registry, in hex.
fn seal(key: &chain::Key, at: &chain::Hash, registry: &str) -> String {
    let key = blake3::derive_key(CONTEXT, key.as_bytes());
    let mut hasher = blake3::Hasher::new_keyed(&key);
    hasher.update(at).update(registry.as_bytes());
    hasher.finalize().to_hex().to_string()
}

/// The last saved registry, if it is what the log says.
pub(crate) async fn load(store: &Arc<dyn Store>) -> Result<Option<Registry>> {
    let log = SessionId::metadata_log();
    let Some(saved) = store.snapshot(&log).await? else { return Ok(None) };
    if saved.projector != PROJECTOR || store.chain_at(&log, saved.seq).await? != Some(saved.chain) {
        return Ok(None);
    }
    let Some(head) = store.copy_head(&log).await? else { return Ok(None) };
    let Some((found, registry)) = saved.body.split_once('\n') else { return Ok(None) };
    let is_sealed = found == seal(&head.chain_key, &saved.chain, registry);
    if !is_sealed && !planted::is(Bug::RegistryForged) {
        tracing::warn!("The snapshot of the metadata log is not what was written: passed over");
        return Ok(None);
    }
    let registry = serde_json::from_str::<Registry>(registry).ok();
    Ok(registry.filter(|registry| registry.last_seq == saved.seq))
}

/// Saves a registry; without a flush of its own.
pub(crate) async fn save(store: &Arc<dyn Store>, registry: &Registry) -> Result<()> {
    let log = SessionId::metadata_log();
    let seq = registry.last_seq;
    let (Some(chain), Some(head)) =
        (store.chain_at(&log, seq).await?, store.copy_head(&log).await?)
    else {
        return Ok(());
    };
    let Ok(registry) = serde_json::to_string(registry) else { return Ok(()) };
    let body = format!("{}\n{registry}", seal(&head.chain_key, &chain, &registry));
    Ok(store.save_snapshot(&log, Snapshot { seq, projector: PROJECTOR, chain, body }).await?)
}
