//! Walks one log from its first record to its end and beyond it, to the anchor.

use std::collections::BTreeSet;

use piton_core::id::SessionId;
use piton_core::limits::SEQ_MAX;
use piton_core::record::may_follow;
use piton_core::{Content, Event, Seq, chain};

use super::anchor::Anchor;
use super::caches::Caches;
use super::content;
use super::parallel_checks::{Beside, With};
use super::read::{Raw, Reader, WALK};
use super::schema::{rid, seq_of};
use crate::contract::{IndexEntry, Problem, Verification};
use crate::error::{Error, Result};

/// What the walk has seen so far.
struct Walk {
    last: Seq,
    link: chain::Hash,
    left: u32,
    anchor: Option<Anchor>,
    /// The log's hash at the anchor's position.
    at_anchor: Option<chain::Hash>,
    /// Contents that are gone and not yet justified.
    tombstones: BTreeSet<Seq>,
    caches: Caches,
}

impl Reader {
    pub(crate) fn verify(&self, session: &SessionId) -> Result<Verification> {
        // As of one moment: the caches must not be of a later one than the records.
        self.together(|| self.verify_now(session))
    }

    fn verify_now(&self, session: &SessionId) -> Result<Verification> {
        let mut found = self.walk_all(session)?;
        let missing = match found.problem {
            Some(Problem::Gap { expected, .. }) => Some(expected),
            Some(Problem::CutBehindAnchor { found, .. }) => Some(found + 1),
            _ => None,
        };
        // Missing, or only not found: that takes a look at everything, and makes a difference.
        if let (Some(seq), Some(no)) = (missing, self.no_of(session)?)
            && self
                .conn
                .prepare("SELECT 1 FROM records WHERE rid = ?1")
                .and_then(|mut find| find.exists([rid(no, seq)]))
                .map_err(|e| self.failed(e))?
        {
            found.problem = Some(Problem::IndexDisagrees { what: IndexEntry::Record(seq) });
        }
        Ok(found)
    }

    fn walk_all(&self, session: &SessionId) -> Result<Verification> {
        let anchor = self.anchors.of(session);
        let anchored_to = anchor.map(|anchor| anchor.seq);
        let answer = |good_to, problem| Ok(Verification { good_to, problem, anchored_to });
        let (no, key) = match self.log(session) {
            Ok(Some(log)) => log,
            Ok(None) => match anchored_to {
                Some(anchored) => {
                    return answer(0, Some(Problem::CutBehindAnchor { anchored, found: 0 }));
                }
                None => return Err(Error::SessionNotFound { session: session.clone() }),
            },
            Err(Error::ChainBroken { seq, .. }) => {
                return answer(0, Some(Problem::ChainBroken { seq }));
            }
            Err(e) => return Err(e),
        };
        let mut walk = Walk {
            last: 0,
            link: chain::GENESIS,
            left: 0,
            anchor,
            at_anchor: None,
            tombstones: BTreeSet::new(),
            caches: Caches::new(self.snapshot_of(no)?),
        };
        let with = With { session, keys: &self.keys, chain_key: &key };
        let (mut good_to, mut problem) = std::thread::scope(|scope| {
            let mut beside = Beside::new(scope, with);
            let walked = self.walk_rows(session, no, &key, &mut walk, &mut beside);
            // Heard in any case: a thread that ended badly must not go unnoticed. What it found is
            // before whatever ended the walk.
            match (beside.finish()?, walked) {
                (Some(Problem::ChainBroken { seq }), _) => {
                    Ok((seq - 1, Some(Problem::ChainBroken { seq })))
                }
                (Some(Problem::PayloadDamaged { seq }), walked)
                    if walked.as_ref().map_or(true, |(good_to, _)| seq <= *good_to) =>
                {
                    Ok((seq - 1, Some(Problem::PayloadDamaged { seq })))
                }
                (_, walked) => walked,
            }
        })?;
        if problem.is_none() {
            problem = self.compare(session, no, walk.caches)?;
        }
        if let Some(Problem::SnapshotDisagrees { .. } | Problem::IndexDisagrees { .. }) = &problem {
            good_to = walk.last;
        }
        answer(good_to, problem)
    }

    /// From the first row to the last, or to the first problem: what is good, and what is not.
    fn walk_rows(
        &self,
        session: &SessionId,
        no: i64,
        key: &chain::Key,
        walk: &mut Walk,
        beside: &mut Beside<'_, '_>,
    ) -> Result<(Seq, Option<Problem>)> {
        let answer = |good_to, problem| Ok((good_to, problem));
        let mut select = self.conn.prepare_cached(&WALK).map_err(|e| self.failed(e))?;
        let range = (rid(no, 0), rid(no, SEQ_MAX + 1));
        let mut rows = select.query(range).map_err(|e| self.failed(e))?;
        while let Some(row) = rows.next().map_err(|e| self.failed(e))? {
            let found = row.get(0).map(seq_of).map_err(|e| self.failed(e))?;
            let kind = row.get_ref(3).ok().and_then(|kind| kind.as_str().ok()).unwrap_or_default();
            if !may_follow(walk.last, found, kind) {
                let expected = walk.last + 1;
                return answer(walk.last, Some(Problem::Gap { expected, found }));
            }
            let problem = match Raw::from_row(row) {
                Some(raw) => self.step(session, key, &raw, walk, beside)?,
                None => Some(Problem::ChainBroken { seq: found }),
            };
            if problem.is_some() {
                return answer(walk.last, problem);
            }
        }
        let problem = walk.end();
        let good_to = match &problem {
            Some(Problem::TombstoneUnjustified { seq } | Problem::AnchorMismatch { seq }) => {
                seq - 1
            }
            _ => walk.last,
        };
        answer(good_to, problem)
    }

    fn step(
        &self,
        session: &SessionId,
        key: &chain::Key,
        raw: &Raw<'_>,
        walk: &mut Walk,
        beside: &mut Beside<'_, '_>,
    ) -> Result<Option<Problem>> {
        let seq = raw.seq;
        if !beside.take(&walk.link, raw) {
            if !raw.follows(key, &walk.link) {
                return Ok(Some(Problem::ChainBroken { seq }));
            }
            match self.content(session, key, raw) {
                Ok(Content::Redacted) => {
                    walk.tombstones.insert(seq);
                }
                Ok(_) => {}
                Err(content::Trouble::Damaged) => return Ok(Some(Problem::PayloadDamaged { seq })),
                Err(content::Trouble::BlobMissing) => {
                    return Ok(Some(Problem::BlobMissing { seq }));
                }
                Err(content::Trouble::Store(e)) => return Err(e),
                Err(content::Trouble::Sql(e)) => return Err(self.failed(e)),
            }
        }
        match Event::parse(raw.kind, raw.header) {
            Ok(event) => {
                if let Event::RecordRedacted(e) = &event {
                    walk.tombstones.remove(&e.target_seq);
                }
                walk.caches.apply(raw, &event);
            }
            // The chain covers it, so it was written like this; reading it returns an error.
            Err(_) => walk.caches.unreadable = true,
        }
        walk.last = seq;
        walk.link = raw.chain;
        walk.left = raw.left;
        if walk.anchor.is_some_and(|anchor| anchor.seq == seq) {
            walk.at_anchor = Some(raw.chain);
        }
        Ok(None)
    }
}

impl Walk {
    /// What the end of the log says.
    fn end(&self) -> Option<Problem> {
        if let Some(seq) = self.tombstones.first() {
            return Some(Problem::TombstoneUnjustified { seq: *seq });
        }
        if let Some(anchor) = self.anchor {
            match self.at_anchor {
                Some(chain) if chain != anchor.chain => {
                    return Some(Problem::AnchorMismatch { seq: anchor.seq });
                }
                None if anchor.seq > self.last => {
                    return Some(Problem::CutBehindAnchor {
                        anchored: anchor.seq,
                        found: self.last,
                    });
                }
                _ => {}
            }
        }
        (self.left > 0).then_some(Problem::BatchCut { seq: self.last })
    }
}
