//! What is checkpointed, and when. Three levels (graph, runtime, execution) give options; what they
//! come to is a [`CheckpointConfig`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::checkpoint::CheckpointType;
use crate::event::GraphConfigured;
use crate::mask::EXCLUDED_KEYS;

/// How many checkpoints a prune by hand keeps by default.
pub const KEEP_COUNT_DEFAULT: usize = 10;
/// The smart strategy: a node that took longer is worth a checkpoint.
pub const SMART_LATENCY_MS: u64 = 30_000;
/// The smart strategy: ids and tags of nodes that are worth one before and after they run.
pub const SMART_TAGS: &[&str] = &["api_call", "external_tool"];
/// The smart strategy: a node that changed more keys is worth one.
pub const SMART_CHANGED_KEYS: usize = 10;

/// The keys that are excluded whatever the levels say.
const EXCLUDED_ALWAYS: &[&str] = &["api_key", "credentials", "access_token"];

/// Where a store's key can come from.
const KEY_SOURCES: &[&str] = &["keychain", "env_var", "file"];

/// Options of one level; what is `None` is left to the level before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointOptions {
    #[serde(alias = "checkpoints_enabled")]
    pub enabled: Option<bool>,
    pub checkpoint_on_node_start: Option<bool>,
    pub checkpoint_on_node_complete: Option<bool>,
    pub checkpoint_on_edge: Option<bool>,
    pub checkpoint_on_loop_iteration: Option<bool>,
    pub checkpoint_every_n_iterations: Option<u32>,
    pub smart: Option<bool>,
    pub max_checkpoints_per_session: Option<usize>,
    pub prune_after_node_count: Option<u64>,
    pub keep_clean_checkpoints_only: Option<bool>,
    pub async_checkpoint: Option<bool>,
    pub required: Option<bool>,
    pub include_conversation_snapshots: Option<bool>,
    pub include_full_memory: Option<bool>,
    pub exclude_memory_keys: Vec<String>,
    pub compress: Option<bool>,
    pub compression_threshold_bytes: Option<usize>,
    pub encrypt_checkpoints: Option<bool>,
    /// Where the key comes from: `keychain`, `env_var` or `file`.
    pub encryption_key_source: Option<String>,
    pub storage_backend: Option<String>,
    pub storage_url: Option<String>,
}

impl CheckpointOptions {
    /// The names of all options, for suggestions.
    pub const NAMES: &'static [&'static str] = &[
        "enabled",
        "checkpoints_enabled",
        "checkpoint_on_node_start",
        "checkpoint_on_node_complete",
        "checkpoint_on_edge",
        "checkpoint_on_loop_iteration",
        "checkpoint_every_n_iterations",
        "smart",
        "max_checkpoints_per_session",
        "prune_after_node_count",
        "keep_clean_checkpoints_only",
        "async_checkpoint",
        "required",
        "include_conversation_snapshots",
        "include_full_memory",
        "exclude_memory_keys",
        "compress",
        "compression_threshold_bytes",
        "encrypt_checkpoints",
        "encryption_key_source",
        "storage_backend",
        "storage_url",
    ];

    /// The options that are given, by name, but for the excluded keys.
    pub fn given(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut given)) = serde_json::to_value(self) else { return Map::new() };
        given.retain(|name, value| !value.is_null() && name != "exclude_memory_keys");
        given
    }

    /// The options of these names; those that this program does not know are left out.
    pub fn from_given(given: &Map<String, Value>) -> Self {
        let is_known = |name: &str| Self::NAMES.contains(&name);
        let known = given.iter().filter(|(name, _)| is_known(name));
        let known = known.map(|(name, value)| (name.clone(), value.clone())).collect();
        serde_json::from_value(Value::Object(known)).unwrap_or_default()
    }
}

/// What is checkpointed, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct CheckpointConfig {
    /// False: no checkpoints are created. Completions stay durable.
    pub enabled: bool,
    pub checkpoint_on_node_start: bool,
    pub checkpoint_on_node_complete: bool,
    pub checkpoint_on_edge: bool,
    pub checkpoint_on_loop_iteration: bool,
    /// 0: not by count.
    pub checkpoint_every_n_iterations: u32,
    /// Node checkpoints only where they are worth it: [`SMART_LATENCY_MS`], [`SMART_TAGS`],
    /// [`SMART_CHANGED_KEYS`].
    pub smart: bool,
    pub max_checkpoints_per_session: usize,
    /// Checkpoints are pruned each time so many nodes completed; 0: never.
    pub prune_after_node_count: u64,
    pub keep_clean_checkpoints_only: bool,
    /// A checkpoint is a record in the batch of what it is about: it costs no flush of its own, so
    /// there is nothing to wait for either way.
    pub async_checkpoint: bool,
    /// As above: a checkpoint that cannot be saved is a batch that cannot.
    pub required: bool,
    pub include_conversation_snapshots: bool,
    pub include_full_memory: bool,
    /// Globs; their values never reach the disk.
    pub exclude_memory_keys: Vec<String>,
    pub compress: bool,
    pub compression_threshold_bytes: usize,
    pub encrypt_checkpoints: bool,
    pub storage_backend: String,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        let excluded = EXCLUDED_ALWAYS.iter().chain(EXCLUDED_KEYS);
        Self {
            enabled: true,
            checkpoint_on_node_start: true,
            checkpoint_on_node_complete: true,
            checkpoint_on_edge: false,
            checkpoint_on_loop_iteration: false,
            checkpoint_every_n_iterations: 0,
            smart: false,
            max_checkpoints_per_session: 100,
            prune_after_node_count: 10,
            keep_clean_checkpoints_only: false,
            async_checkpoint: true,
            required: false,
            include_conversation_snapshots: true,
            include_full_memory: true,
            exclude_memory_keys: excluded.map(|key| (*key).to_owned()).collect(),
            compress: true,
            compression_threshold_bytes: 100_000,
            encrypt_checkpoints: true,
            storage_backend: "local".to_owned(),
        }
    }
}

/// What the store does, whatever a checkpoint's options say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFeatures {
    pub is_encrypted: bool,
    /// Contents above so many bytes can be compressed, smaller ones cannot.
    pub compresses_above: Option<usize>,
    /// Where its key comes from, if that is known.
    pub key_source: Option<&'static str>,
}

/// An option that the store contradicts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigConflict {
    #[error("`encrypt_checkpoints: {asked}` contradicts the store, which is {}encrypted", if *asked { "not " } else { "" })]
    Encryption { asked: bool },
    #[error("`compress: {asked}` contradicts the store, which does {}compress contents", if *asked { "not " } else { "" })]
    Compression { asked: bool },
    #[error(
        "`compression_threshold_bytes: {asked}` contradicts the store, which compresses contents above {above} bytes and no smaller ones"
    )]
    Threshold { asked: usize, above: usize },
    #[error(
        "`encryption_key_source: {asked}` contradicts the store, whose key comes from `{found}`"
    )]
    KeySource { asked: String, found: &'static str },
    #[error(
        "There is no encryption_key_source `{asked}`; there are `keychain`, `env_var` and `file`"
    )]
    KeySourceUnknown { asked: String },
    #[error("`storage_url` is for storage backends other than `local`, and none is supported")]
    Url,
    #[error("The storage backend `{backend}` is not supported; `local` is")]
    Backend { backend: String },
}

impl CheckpointConfig {
    /// What the levels come to: later ones win, but for the excluded keys, which add up.
    pub fn of<'a>(levels: impl IntoIterator<Item = &'a CheckpointOptions>) -> Self {
        let mut config = Self::default();
        for level in levels {
            config.apply(level);
        }
        config
    }

    fn apply(&mut self, level: &CheckpointOptions) {
        fn set<T: Clone>(option: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                option.clone_from(value);
            }
        }
        let CheckpointOptions {
            enabled,
            checkpoint_on_node_start,
            checkpoint_on_node_complete,
            checkpoint_on_edge,
            checkpoint_on_loop_iteration,
            checkpoint_every_n_iterations,
            smart,
            max_checkpoints_per_session,
            prune_after_node_count,
            keep_clean_checkpoints_only,
            async_checkpoint,
            required,
            include_conversation_snapshots,
            include_full_memory,
            exclude_memory_keys,
            compress,
            compression_threshold_bytes,
            encrypt_checkpoints,
            // These say what the store has to be, and change nothing.
            encryption_key_source: _,
            storage_backend,
            storage_url: _,
        } = level;
        set(&mut self.enabled, enabled.as_ref());
        set(&mut self.checkpoint_on_node_start, checkpoint_on_node_start.as_ref());
        set(&mut self.checkpoint_on_node_complete, checkpoint_on_node_complete.as_ref());
        set(&mut self.checkpoint_on_edge, checkpoint_on_edge.as_ref());
        set(&mut self.checkpoint_on_loop_iteration, checkpoint_on_loop_iteration.as_ref());
        set(&mut self.checkpoint_every_n_iterations, checkpoint_every_n_iterations.as_ref());
        set(&mut self.smart, smart.as_ref());
        set(&mut self.max_checkpoints_per_session, max_checkpoints_per_session.as_ref());
        set(&mut self.prune_after_node_count, prune_after_node_count.as_ref());
        set(&mut self.keep_clean_checkpoints_only, keep_clean_checkpoints_only.as_ref());
        set(&mut self.async_checkpoint, async_checkpoint.as_ref());
        set(&mut self.required, required.as_ref());
        set(&mut self.include_conversation_snapshots, include_conversation_snapshots.as_ref());
        set(&mut self.include_full_memory, include_full_memory.as_ref());
        set(&mut self.compress, compress.as_ref());
        set(&mut self.compression_threshold_bytes, compression_threshold_bytes.as_ref());
        set(&mut self.encrypt_checkpoints, encrypt_checkpoints.as_ref());
        set(&mut self.storage_backend, storage_backend.as_ref());
        for key in exclude_memory_keys {
            if !self.exclude_memory_keys.contains(key) {
                self.exclude_memory_keys.push(key.clone());
            }
        }
    }

    /// What the levels come to for a session with a log: the execution's options follow those of earlier
    /// executions, which win over the graph's and the runtime's.
    pub fn of_execution(
        [graph, runtime]: [&CheckpointOptions; 2],
        recorded: &CheckpointOptions,
        execution: &CheckpointOptions,
    ) -> Self {
        Self::of([graph, runtime, recorded, execution])
    }

    /// What the log is to say about an execution.
    pub fn to_record(
        &self,
        recorded: &CheckpointOptions,
        execution: &CheckpointOptions,
    ) -> GraphConfigured {
        let mut options = recorded.given();
        options.extend(execution.given());
        let always = Self::default().exclude_memory_keys;
        let keys = self.exclude_memory_keys.iter().filter(|key| !always.contains(key));
        GraphConfigured { exclude_memory_keys: keys.cloned().collect(), options }
    }

    /// Whether the store can do what was asked for. An option that no level gives is the store's own
    /// choice.
    pub fn check<'a>(
        levels: impl IntoIterator<Item = &'a CheckpointOptions>,
        store: StoreFeatures,
    ) -> Result<(), ConfigConflict> {
        for level in levels {
            if let Some(asked) = level.encrypt_checkpoints
                && asked != store.is_encrypted
            {
                return Err(ConfigConflict::Encryption { asked });
            }
            if let Some(asked) = level.compress
                && asked != store.compresses_above.is_some()
            {
                return Err(ConfigConflict::Compression { asked });
            }
            if let (Some(asked), Some(above)) =
                (level.compression_threshold_bytes, store.compresses_above)
                && asked < above
            {
                return Err(ConfigConflict::Threshold { asked, above });
            }
            if let Some(asked) = &level.encryption_key_source {
                if !KEY_SOURCES.contains(&asked.as_str()) {
                    return Err(ConfigConflict::KeySourceUnknown { asked: asked.clone() });
                }
                let found = if store.is_encrypted { store.key_source } else { Some("nowhere") };
                if let Some(found) = found.filter(|found| found != asked) {
                    return Err(ConfigConflict::KeySource { asked: asked.clone(), found });
                }
            }
            if let Some(backend) = level.storage_backend.as_ref().filter(|name| *name != "local") {
                return Err(ConfigConflict::Backend { backend: backend.clone() });
            }
            if level.storage_url.is_some() {
                return Err(ConfigConflict::Url);
            }
        }
        Ok(())
    }

    /// Whether a boundary gets a checkpoint. `iteration` counts from 0.
    pub fn wants(&self, boundary: CheckpointType, iteration: u32) -> bool {
        self.enabled
            && match boundary {
                CheckpointType::NodeStart => self.checkpoint_on_node_start,
                CheckpointType::NodeComplete => self.checkpoint_on_node_complete,
                CheckpointType::EdgeTransition => self.checkpoint_on_edge,
                CheckpointType::LoopIteration => {
                    let every = self.checkpoint_every_n_iterations;
                    self.checkpoint_on_loop_iteration
                        || (every > 0 && (iteration + 1).is_multiple_of(every))
                }
                CheckpointType::SafePoint | CheckpointType::UserCheckpoint => true,
                // Of agents' sessions.
                CheckpointType::TurnStart | CheckpointType::TurnComplete => false,
            }
    }

    /// The smart strategy's answer for a node: before it runs (`done: None`), or after it took so long
    /// and changed so many keys.
    pub fn is_worth<'a>(
        mut names: impl Iterator<Item = &'a str>,
        done: Option<(Duration, usize)>,
    ) -> bool {
        if names.any(|name| SMART_TAGS.contains(&name)) {
            return true;
        }
        done.is_some_and(|(took, changed_keys)| {
            took > Duration::from_millis(SMART_LATENCY_MS) || changed_keys > SMART_CHANGED_KEYS
        })
    }
}
