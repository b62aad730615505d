//! Taking contents out of a log: first the plan, then, if somebody agrees, what it says.

use std::ops::Range;

use piton_core::decide::{Command, Redact, RedactTarget, Refusal};
use piton_core::id::SessionId;
use piton_core::limits::REDACT_RECORDS_MAX;
use piton_core::redact::{Matcher, Plan, Planner, Selector};
use piton_core::{Content, Seq};
use piton_store::Detail;

use crate::error::Result;
use crate::service::Handle;

/// Records read at a time.
const READ_MAX: usize = 256;

/// A regular expression to look for.
#[derive(Clone, Debug)]
pub struct Pattern(regex::Regex);

#[derive(Debug, thiserror::Error)]
#[error("The pattern is not a regular expression")]
pub struct PatternInvalid(#[source] regex::Error);

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self, PatternInvalid> {
        regex::Regex::new(pattern).map(Self).map_err(PatternInvalid)
    }
}

impl Matcher for Pattern {
    fn find(&self, text: &str) -> Vec<Range<usize>> {
        // What matches nothing matches everywhere, and is not meant.
        let found = self.0.find_iter(text).map(|found| found.range());
        found.filter(|range| !range.is_empty()).collect()
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redacted {
    /// Contents that are gone now and were there before.
    pub taken_out: usize,
    /// Those that were gone already.
    pub gone: usize,
}

impl Handle {
    /// What redacting would do. Changes nothing.
    pub async fn plan_redaction(&self, session: &SessionId, selector: Selector) -> Result<Plan> {
        piton_store::load(&*self.env().store, session).await?;
        let mut planner = Planner::new(selector);
        let mut after = 0;
        loop {
            let records = self.records(session, after, READ_MAX).await?;
            let Some(last) = records.last() else { return Ok(planner.finish()) };
            after = last.seq;
            for record in &records {
                planner.look(record);
            }
        }
    }

    /// Takes out the contents of a plan's targets. Repeating it changes nothing more.
    pub async fn redact(
        &self,
        session: &SessionId,
        plan: &Plan,
        reason: Option<&str>,
    ) -> Result<Redacted> {
        let mut redacted = Redacted { taken_out: 0, gone: 0 };
        for chunk in plan.targets.chunks(REDACT_RECORDS_MAX) {
            let mut targets = Vec::new();
            for target in chunk {
                targets.push(self.redact_target(session, target.seq).await?);
            }
            let gone = targets.iter().filter(|t| t.content == Content::Redacted).count();
            redacted.gone += gone;
            redacted.taken_out += targets.len() - gone;
            let reason = reason.map(str::to_owned);
            self.execute(session, Command::Redact(Redact { targets, reason })).await?;
        }
        Ok(redacted)
    }

    async fn redact_target(&self, session: &SessionId, seq: Seq) -> Result<RedactTarget> {
        let after = seq.saturating_sub(1);
        let read = self.env().store.read(session, after, 1, Detail::Headers).await?;
        let found = read.into_iter().next().filter(|record| record.seq == seq);
        let content = found.ok_or(Refusal::RecordUnknown { seq })?.content;
        Ok(RedactTarget { seq, content })
    }
}
