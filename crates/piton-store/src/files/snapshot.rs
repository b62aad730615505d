//! The snapshot beside a log, and the token index. Both are caches: what does not fit
//! the log, or is not whole, is passed over.

use std::collections::BTreeMap;

use piton_core::event::WaitKind;
use piton_core::id::{BootId, RunId, SessionId, TokenId};
use piton_core::state::{PROJECTOR_VERSION, Phase, Run};
use piton_core::{Reason, Seq, State, Timestamp, chain, token};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::line::Hex;
use super::log::{End, Folded, Log};
use super::scan::Mark;
use super::sealed;
use crate::contract::Snapshot;

/// Largest snapshot, token index or anchor that is read.
pub(crate) const CACHE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Marks that are kept for the next life, beside those that it needs.
const MARKS_KEPT: usize = 32;

/// `<id>.json`: the fields that other programs read, and ours in `_`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotFile {
    pub(crate) id: SessionId,
    #[serde(default)]
    pub(crate) title: Option<String>,
    #[serde(default)]
    pub(crate) working_dir: Option<String>,
    #[serde(default)]
    pub(crate) provider: Option<Value>,
    #[serde(default)]
    pub(crate) created_at: Option<Timestamp>,
    #[serde(default)]
    updated_at: Option<Timestamp>,
    pub(crate) last_seq: Seq,
    #[serde(default)]
    pub(crate) run: Option<RunBlock>,
    #[serde(default)]
    recovery: Recovery,
    #[serde(rename = "_", default, skip_serializing_if = "Option::is_none")]
    pub(crate) own: Option<Own>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunBlock {
    pub(crate) run_id: RunId,
    pub(crate) boot_id: BootId,
    pub(crate) started_at: Timestamp,
    #[serde(default)]
    pub(crate) ended_at: Option<Timestamp>,
    #[serde(default)]
    wait: Option<WaitBlock>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct WaitBlock {
    kind: WaitKind,
    since_seq: Seq,
    #[serde(default)]
    resume_token_id: Option<TokenId>,
    #[serde(default)]
    deadline_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Recovery {
    last_boot_seen: Option<BootId>,
    interruption: Option<Reason>,
}

/// What the next process needs to continue without reading the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Own {
    projector: u32,
    base: Seq,
    /// The log's end: its last line's place, the links before and of it, and where it ends.
    last_at: u64,
    previous: Hex,
    chain: Hex,
    bytes: u64,
    state: State,
    #[serde(default)]
    ended_at: Option<Timestamp>,
    /// The check of the token index that belongs to this snapshot.
    #[serde(default)]
    tokens: Option<String>,
    marks: Vec<(Seq, u64, Hex)>,
    #[serde(default)]
    saved: Option<Saved>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Saved {
    seq: Seq,
    projector: u32,
    chain: Hex,
    body: String,
}

/// `<id>.tokens.json`.
#[derive(Debug, Serialize, Deserialize)]
struct TokenFile {
    last_seq: Seq,
    tokens: BTreeMap<TokenId, token::Entry>,
}

/// `<id>.anchor`.
#[derive(Debug, Serialize, Deserialize)]
struct AnchorFile {
    last_seq: Seq,
    chain: Hex,
}

/// The files that are written behind the log, whole.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) snapshot: String,
    /// `None`: there are no tokens.
    pub(crate) tokens: Option<String>,
    pub(crate) anchor: String,
}

/// What a snapshot gives the next life.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) base: Seq,
    pub(crate) end: End,
    pub(crate) folded: Folded,
    pub(crate) marks: BTreeMap<Seq, Mark>,
    pub(crate) saved: Option<Snapshot>,
}

fn run_block(run: &Run, ended_at: Option<Timestamp>) -> RunBlock {
    let wait = run.earliest_wait().map(|(_, wait)| WaitBlock {
        kind: wait.kind,
        since_seq: wait.since_seq,
        resume_token_id: wait.token_id.clone(),
        deadline_at: wait.deadline_at,
    });
    RunBlock {
        run_id: run.run_id.clone(),
        boot_id: run.boot_id.clone(),
        started_at: run.started_at,
        ended_at,
        wait,
    }
}

/// Makes a log's caches.
pub(crate) fn make(log: &Log) -> Option<Files> {
    let Folded { state, tokens, ended_at } = &log.folded;
    let tokens = if tokens.is_empty() {
        None
    } else {
        let file = TokenFile { last_seq: state.last_seq, tokens: tokens.clone() };
        Some(sealed::seal(&log.key, &file)?)
    };
    let info = state.info.as_ref();
    let run = state.facts.run.as_ref();
    let interruption = run.and_then(|run| match run.phase {
        Phase::Interrupted { reason, .. } => Some(reason),
        Phase::Open | Phase::Paused | Phase::Dismissed | Phase::Ended(_) => None,
    });
    let seen = state.lease.owner.as_ref().or(run.map(|run| &run.boot_id));
    let saved = log.saved.as_ref();
    let step = log.marks.len().div_ceil(MARKS_KEPT).max(1);
    let needed =
        saved.and_then(|saved| log.marks.range(..=saved.seq.saturating_add(1)).next_back());
    let needed = needed.map(|(seq, _)| *seq);
    let marks = log.marks.values().enumerate();
    let marks = marks.filter(|(i, mark)| i % step == 0 || Some(mark.seq) == needed);
    let own = Own {
        projector: PROJECTOR_VERSION,
        base: log.base,
        last_at: log.end.last_at,
        previous: Hex(log.end.previous),
        chain: Hex(log.end.chain),
        bytes: log.end.bytes,
        state: state.clone(),
        ended_at: *ended_at,
        tokens: tokens.as_ref().map(|(_, check)| check.clone()),
        marks: marks.map(|(_, mark)| (mark.seq, mark.at, Hex(mark.previous))).collect(),
        saved: saved.map(|saved| Saved {
            seq: saved.seq,
            projector: saved.projector,
            chain: Hex(saved.chain),
            body: saved.body.clone(),
        }),
    };
    let file = SnapshotFile {
        id: log.session.clone(),
        title: info.and_then(|info| info.title.clone()),
        working_dir: info.and_then(|info| info.working_dir.clone()),
        provider: info.and_then(|info| info.provider.clone()),
        created_at: info.map(|info| info.created_at),
        updated_at: state.updated_at,
        last_seq: log.end.seq,
        run: run.map(|run| run_block(run, *ended_at)),
        recovery: Recovery { last_boot_seen: seen.cloned(), interruption },
        own: Some(own),
    };
    let anchor = AnchorFile { last_seq: log.end.seq, chain: Hex(log.end.chain) };
    Some(Files {
        snapshot: sealed::seal(&log.key, &file)?.0,
        tokens: tokens.map(|(text, _)| text),
        anchor: sealed::seal(&log.key, &anchor)?.0,
    })
}

/// A log's anchor as it lies on the disk, for a log that was copied.
pub(crate) fn make_anchor(key: &chain::Key, seq: Seq, chain: chain::Hash) -> Option<String> {
    Some(sealed::seal(key, &AnchorFile { last_seq: seq, chain: Hex(chain) })?.0)
}

/// A snapshot of this store; `None` if it is not one, not whole, or not of this log.
pub(crate) fn read(session: &SessionId, key: &chain::Key, snapshot: &[u8]) -> Option<SnapshotFile> {
    let (file, _) = sealed::unseal::<SnapshotFile>(key, snapshot)?;
    (file.id == *session && file.own.is_some()).then_some(file)
}

/// What a snapshot is good for; `None` if another projector made it, or its tokens are others.
pub(crate) fn restore(
    key: &chain::Key,
    file: SnapshotFile,
    tokens: Option<&[u8]>,
) -> Option<Restored> {
    let SnapshotFile { last_seq, own, .. } = file;
    let own = own.filter(|own| own.projector == PROJECTOR_VERSION)?;
    let tokens = match (own.tokens, tokens) {
        (None, _) => BTreeMap::new(),
        (Some(check), Some(bytes)) => {
            let (file, found) = sealed::unseal::<TokenFile>(key, bytes)?;
            (found == check && file.last_seq == last_seq).then_some(file.tokens)?
        }
        (Some(_), None) => return None,
    };
    let end = End {
        seq: last_seq,
        chain: own.chain.0,
        bytes: own.bytes,
        last_at: own.last_at,
        previous: own.previous.0,
    };
    let marks = own.marks.into_iter();
    let marks = marks.map(|(seq, at, previous)| (seq, Mark { seq, at, previous: previous.0 }));
    let saved = own.saved.map(|saved| Snapshot {
        seq: saved.seq,
        projector: saved.projector,
        chain: saved.chain.0,
        body: saved.body,
    });
    let fits = own.state.last_seq == last_seq && own.last_at < own.bytes;
    fits.then_some(Restored {
        base: own.base,
        end,
        folded: Folded { state: own.state, tokens, ended_at: own.ended_at },
        marks: marks.collect(),
        saved,
    })
}

/// The entries of a token index; `None` if it is not whole.
pub(crate) fn read_tokens(
    key: &chain::Key,
    bytes: &[u8],
) -> Option<(Seq, BTreeMap<TokenId, token::Entry>)> {
    let (file, _) = sealed::unseal::<TokenFile>(key, bytes)?;
    Some((file.last_seq, file.tokens))
}

pub(crate) fn read_anchor(key: &chain::Key, bytes: &[u8]) -> Option<(Seq, chain::Hash)> {
    let (file, _) = sealed::unseal::<AnchorFile>(key, bytes)?;
    Some((file.last_seq, file.chain.0))
}

impl Own {
    pub(crate) fn projector(&self) -> u32 {
        self.projector
    }

    /// Whether a token index belongs to it.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    pub(crate) fn chain(&self) -> chain::Hash {
        self.chain.0
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn saved(&self) -> Option<(Seq, u32)> {
        self.saved.as_ref().map(|saved| (saved.seq, saved.projector))
    }
}
