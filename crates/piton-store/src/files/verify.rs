//! Walks one log from its first line to its end and beyond it, to the anchor; then looks whether
//! the caches beside it say the same.

use std::collections::BTreeSet;

use piton_core::id::SessionId;
use piton_core::state::PROJECTOR_VERSION;
use piton_core::{Event, Seq, State, chain};

use super::Access;
use super::folder::Folder;
use super::line::{HEADER_UNREADABLE, Kept, Line};
use super::log::{Folded, Log};
use super::open::Cache;
use super::read::View;
use super::scan::{
    Ahead, Bad, Fault, Form, Scanner, WRONG_BATCH, WRONG_CHAIN, WRONG_CONTENT, WRONG_SEQ,
};
use super::{sealed, snapshot};
use crate::contract::{IndexEntry, Problem, Verification};
use crate::error::{Error, Result};

/// A log of so many bytes is read ahead by another thread; for less it is not worth one.
const AHEAD_FROM_BYTES: u64 = 1024 * 1024;

/// A log's lines.
enum Lines {
    Here(Scanner),
    Ahead(Ahead),
}

impl Lines {
    fn next(&mut self) -> Result<Option<Line<'_>>, Fault> {
        match self {
            Self::Here(scanner) => scanner.next(),
            Self::Ahead(ahead) => ahead.next(),
        }
    }
}

/// What the walk has seen so far.
struct Walk {
    good_to: Seq,
    left: u32,
    chain: chain::Hash,
    at_anchor: Option<chain::Hash>,
    /// Chain and state at the saved snapshot's position.
    at_saved: Option<(chain::Hash, State)>,
    tombstones: BTreeSet<Seq>,
    folded: Folded,
}

impl Folder {
    pub fn verify(&self, session: &SessionId) -> Result<Verification> {
        let broken = self.logs().by_id.get(session).and_then(Log::broken).cloned();
        match self.view(session, 1) {
            Ok(Some(view)) => self.verify_view(&view, broken.as_ref()),
            Ok(None) => self.verify_missing(session),
            Err(e) => Err(broken.unwrap_or(e)),
        }
    }

    /// Verifies a log as it was when the view was taken; others may have appended since.
    pub(super) fn verify_view(&self, view: &View, broken: Option<&Error>) -> Result<Verification> {
        let anchored_to = view.anchor.map(|(seq, _)| seq);
        let answer = |good_to, problem| Ok(Verification { good_to, problem, anchored_to });
        match broken {
            None | Some(Error::LineDamaged { .. }) => {}
            // Without its key, or if it is another program's file, it cannot be verified.
            Some(e) => return Err(e.clone()),
        }
        let bytes = view.file.bytes().map_err(|e| Self::io(view, e))?;
        // While others append, what is durable; of a broken log, all there is.
        let end = if broken.is_some() { bytes } else { view.end.bytes };
        let (last, chain) = match (&view.adopted, view.form) {
            (Some((record, chain)), _) => (record.seq, *chain),
            (None, Form::Foreign) => (view.base, chain::GENESIS),
            (None, Form::Native) => (0, chain::GENESIS),
        };
        let mut walk = Walk {
            good_to: last,
            left: 0,
            chain,
            at_anchor: None,
            at_saved: None,
            tombstones: BTreeSet::new(),
            folded: Folded::default(),
        };
        if let Some((record, _)) = &view.adopted
            && let Ok(event) = record.event()
        {
            walk.folded.apply(record.seq, record.ts, &event);
        }
        let (file, key) = (view.file.clone(), view.key.clone());
        let scanner = Scanner::from_start(file, end, key, view.form, last, chain);
        let problem = if end < AHEAD_FROM_BYTES {
            self.walk(view, Lines::Here(scanner), &mut walk)?
        } else {
            std::thread::scope(|scope| {
                self.walk(view, Lines::Ahead(scanner.ahead(scope)), &mut walk)
            })?
        };
        let problem = match problem {
            None => walk.end(view),
            found => found,
        };
        let problem = match problem {
            None => self.verify_caches(view, &walk),
            found => found,
        };
        let good_to = match &problem {
            Some(Problem::TombstoneUnjustified { seq } | Problem::AnchorMismatch { seq }) => {
                seq - 1
            }
            _ => walk.good_to,
        };
        answer(good_to, problem)
    }

    /// A log that is not there, though something says that it was.
    fn verify_missing(&self, session: &SessionId) -> Result<Verification> {
        if !self.logs().lost.contains(session) {
            return Err(Error::SessionNotFound { session: session.clone() });
        }
        let Ok(Some(key)) = self.read_key(session) else {
            let problem = Some(Problem::SessionMissing);
            return Ok(Verification { good_to: 0, problem, anchored_to: None });
        };
        let snapshot = self.cache(&self.paths.snapshot(session));
        let known = match (self.anchor_file(session, &key), snapshot) {
            (Cache::Read((anchored @ 1.., _)), _) => Some(anchored),
            (_, Cache::Read(text)) => {
                snapshot::read(session, &key, &text).map(|file| file.last_seq)
            }
            _ => None,
        };
        let problem = match known {
            Some(anchored) => Problem::CutBehindAnchor { anchored, found: 0 },
            None => Problem::SessionMissing,
        };
        Ok(Verification { good_to: 0, problem: Some(problem), anchored_to: known })
    }

    fn walk(&self, view: &View, mut lines: Lines, walk: &mut Walk) -> Result<Option<Problem>> {
        let saved = self.snapshot(&view.session).map(|saved| saved.seq);
        loop {
            let line = match lines.next() {
                Ok(None) => return Ok(None),
                Ok(Some(line)) => line,
                Err(Fault::Io(e)) => return Err(Self::io(view, e)),
                Err(Fault::Bad(bad)) => return Ok(Some(problem(&bad, walk.good_to))),
            };
            let seq = line.seq;
            match &line.content {
                // Checked when its line was read.
                Kept::None | Kept::Json(_) => {}
                Kept::Redacted => {
                    walk.tombstones.insert(seq);
                }
                Kept::Blob { .. } => match self.content(view, &line) {
                    Ok(_) => {}
                    Err(Error::LineDamaged { .. }) => {
                        return Ok(Some(Problem::PayloadDamaged { seq }));
                    }
                    Err(Error::BlobMissing { .. }) => {
                        return Ok(Some(Problem::BlobMissing { seq }));
                    }
                    Err(e) => return Err(e),
                },
            }
            let Ok(event) = line.event() else {
                let (line, why) = (view.line_of(seq), HEADER_UNREADABLE);
                return Ok(Some(Problem::LineDamaged { line, why }));
            };
            if let Event::RecordRedacted(e) = &event {
                walk.tombstones.remove(&e.target_seq);
            }
            walk.folded.apply(seq, line.ts, &event);
            (walk.good_to, walk.left, walk.chain) = (seq, line.batch_left, line.chain);
            if view.anchor.is_some_and(|(anchored, _)| anchored == seq) {
                walk.at_anchor = Some(line.chain);
            }
            if saved == Some(seq) {
                walk.at_saved = Some((line.chain, walk.folded.state.clone()));
            }
        }
    }

    /// Whether snapshot, token index and what is in memory say what the log says.
    fn verify_caches(&self, view: &View, walk: &Walk) -> Option<Problem> {
        let session = &view.session;
        // First the files, then what is known: a file that is read now is not younger than that.
        let snapshot = self.cache(&self.paths.snapshot(session));
        let tokens = self.cache(&self.paths.tokens(session));
        let anchor = self.anchor_file(session, &view.key);
        let (is_remade, needs_anchor) = {
            let logs = self.logs();
            let log = logs.by_id.get(session)?;
            // Another thread appended meanwhile, and may have written newer caches.
            if log.end != view.end || !view.is_of(log) {
                return None;
            }
            if let Some(found) = walk.differs(log) {
                return Some(found);
            }
            let is_remade = self.access == Access::ReadWrite && logs.dirty.contains(session);
            (is_remade, self.needs_anchor(&logs.roster, log))
        };
        if view.form == Form::Foreign {
            return None;
        }
        // One that was torn in a crash is about to be made again.
        let unreadable = |problem| (!is_remade).then_some(problem);
        let is_gone = needs_anchor && matches!(anchor, Cache::Missing);
        if is_gone || matches!(anchor, Cache::Unreadable) {
            // First of all: whatever a cache says, the log may have been cut.
            return unreadable(Problem::AnchorMissing);
        }
        let file = match snapshot {
            // Written by another program before this store took over the log.
            Cache::Read(text) if !sealed::is_sealed(&text) && self.voucher(session).is_some() => {
                Cache::Missing
            }
            read => read.and_then(|text| snapshot::read(session, &view.key, &text)),
        };
        match file {
            Cache::Missing => {}
            Cache::Unreadable => {
                return unreadable(Problem::SnapshotDisagrees { seq: walk.good_to });
            }
            Cache::Read(file) => {
                let own = file.own.as_ref()?;
                let seq = file.last_seq;
                if seq > walk.good_to {
                    // Unless a writer beside this reader has appended, and written it, since.
                    let cut = !self.has_grown(session, view.end.bytes);
                    let found = walk.good_to;
                    return cut.then_some(Problem::CutBehindCache { known: seq, found });
                }
                let newer = own.projector() > PROJECTOR_VERSION;
                let same_end = seq == walk.good_to && own.projector() == PROJECTOR_VERSION;
                let differs =
                    same_end && (own.chain() != walk.chain || *own.state() != walk.folded.state);
                let saved = own.saved().filter(|_| !session.is_metadata_log());
                if newer || differs || saved.is_some_and(|(_, p)| p > PROJECTOR_VERSION) {
                    return Some(Problem::SnapshotDisagrees { seq });
                }
            }
        }
        match tokens.and_then(|text| snapshot::read_tokens(&view.key, &text)) {
            Cache::Missing => None,
            Cache::Unreadable => unreadable(Problem::IndexDisagrees { what: IndexEntry::Session }),
            Cache::Read((seq, tokens)) => {
                let compared = seq == walk.good_to;
                let token = compared.then(|| differing(&tokens, &walk.folded.tokens))??;
                Some(Problem::IndexDisagrees { what: IndexEntry::Token(token) })
            }
        }
    }
}

type Entries = std::collections::BTreeMap<piton_core::id::TokenId, piton_core::token::Entry>;

/// The first token about which two indexes disagree.
fn differing(one: &Entries, other: &Entries) -> Option<piton_core::id::TokenId> {
    let mut ids = one.keys().chain(other.keys());
    ids.find(|id| one.get(*id) != other.get(*id)).cloned()
}

/// What a bad line is in everybody's words.
fn problem(bad: &Bad, good_to: Seq) -> Problem {
    let expected = good_to + 1;
    match (bad.why, bad.found) {
        (why, Some(found)) if why == WRONG_SEQ && found > expected => {
            Problem::Gap { expected, found }
        }
        (why, Some(seq)) if why == WRONG_CHAIN => Problem::ChainBroken { seq },
        (why, Some(seq)) if why == WRONG_CONTENT => Problem::PayloadDamaged { seq },
        (why, Some(_)) if why == WRONG_BATCH => Problem::BatchCut { seq: good_to },
        _ => Problem::LineDamaged { line: bad.line, why: bad.why },
    }
}

impl Walk {
    /// Whether what is in memory is what the log says.
    fn differs(&self, log: &Log) -> Option<Problem> {
        let (known, found) = (&log.folded, &self.folded);
        if log.end.seq == self.good_to && log.broken().is_none() {
            if known.state.lease != found.state.lease {
                return Some(Problem::IndexDisagrees { what: IndexEntry::Lease });
            }
            if known.state != found.state {
                return Some(Problem::IndexDisagrees { what: IndexEntry::Session });
            }
            if let Some(token) = differing(&known.tokens, &found.tokens) {
                return Some(Problem::IndexDisagrees { what: IndexEntry::Token(token) });
            }
        }
        let saved = log.saved.as_ref()?;
        let seq = saved.seq;
        if seq > self.good_to {
            return Some(Problem::CutBehindCache { known: seq, found: self.good_to });
        }
        let newer = saved.projector > PROJECTOR_VERSION && !log.session.is_metadata_log();
        let differs = self.at_saved.as_ref().is_some_and(|(chain, state)| {
            let fits = *chain == saved.chain && saved.projector == PROJECTOR_VERSION;
            fits && serde_json::from_str::<State>(&saved.body).ok().as_ref() != Some(state)
        });
        (newer || differs).then_some(Problem::SnapshotDisagrees { seq })
    }

    /// What the end of the log says.
    fn end(&self, view: &View) -> Option<Problem> {
        if let Some(seq) = self.tombstones.first() {
            return Some(Problem::TombstoneUnjustified { seq: *seq });
        }
        if let Some((anchored, chain)) = view.anchor {
            match self.at_anchor {
                Some(found) if found != chain => {
                    return Some(Problem::AnchorMismatch { seq: anchored });
                }
                None if anchored > self.good_to => {
                    let found = self.good_to;
                    return Some(Problem::CutBehindAnchor { anchored, found });
                }
                _ => {}
            }
        }
        if self.left > 0 {
            return Some(Problem::BatchCut { seq: self.good_to });
        }
        None
    }
}
