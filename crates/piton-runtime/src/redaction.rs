//! Redaction of contents in a log: first a plan, then, if the user confirms it, its execution.

use std::ops::Range;

use piton_core::decide::{Command, Redact, RedactTarget, Refusal, Verdict};
use piton_core::id::SessionId;
use piton_core::limits::REDACT_RECORDS_MAX;
use piton_core::redact::{Matcher, Planner, RedactionPlan, Selector};
use piton_core::{Content, Seq};
use piton_store::{Detail, Store};

use crate::error::Result;
use crate::service::Handle;
use crate::session::Ack;
use crate::view::View;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redacted {
    /// Contents that are gone now and were there before.
    pub taken_out: usize,
    /// Those that were gone already.
    pub gone: usize,
}

impl Redacted {
    pub(crate) fn count(&mut self, redact: &Redact, ack: &Ack) {
        // Another client may have redacted them first.
        let already = ack.verdict == Verdict::Already;
        let is_gone = |target: &&RedactTarget| already || target.content == Content::Redacted;
        let gone = redact.targets.iter().filter(is_gone).count();
        self.gone += gone;
        self.taken_out += redact.targets.len() - gone;
    }
}

impl View {
    /// What redacting would do. Changes nothing.
    pub async fn plan_redaction(
        &self,
        session: &SessionId,
        selector: Selector,
    ) -> Result<RedactionPlan> {
        piton_store::load(&**self.store(), session).await?;
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
}

impl Handle {
    /// See [`View::plan_redaction`].
    pub async fn plan_redaction(
        &self,
        session: &SessionId,
        selector: Selector,
    ) -> Result<RedactionPlan> {
        self.view().plan_redaction(session, selector).await
    }

    /// Takes out the contents of a plan's targets. Repeating it changes nothing more.
    pub async fn redact(
        &self,
        session: &SessionId,
        plan: &RedactionPlan,
        reason: Option<&str>,
    ) -> Result<Redacted> {
        let mut redacted = Redacted::default();
        for redact in commands(self.view(), session, plan, reason).await? {
            let ack = self.execute(session, Command::Redact(redact.clone())).await?;
            redacted.count(&redact, &ack);
        }
        Ok(redacted)
    }
}

/// What a plan comes to, in pieces that a session takes in one go.
pub(crate) async fn commands(
    view: &View,
    session: &SessionId,
    plan: &RedactionPlan,
    reason: Option<&str>,
) -> Result<Vec<Redact>> {
    let mut commands = Vec::new();
    for chunk in plan.targets.chunks(REDACT_RECORDS_MAX) {
        let mut targets = Vec::new();
        for target in chunk {
            targets.push(redact_target(&**view.store(), session, target.seq).await?);
        }
        commands.push(Redact { targets, reason: reason.map(str::to_owned) });
    }
    Ok(commands)
}

/// The same about the targets as they are now. Decided by a session's one writer, nothing is written
/// about a content that was taken out meanwhile.
pub(crate) async fn fresh(
    store: &dyn Store,
    session: &SessionId,
    mut redact: Redact,
) -> Result<Redact> {
    for target in &mut redact.targets {
        *target = redact_target(store, session, target.seq).await?;
    }
    Ok(redact)
}

async fn redact_target(store: &dyn Store, session: &SessionId, seq: Seq) -> Result<RedactTarget> {
    let read = store.read(session, seq.saturating_sub(1), 1, Detail::Headers).await?;
    let found = read.into_iter().next().filter(|record| record.seq == seq);
    let content = found.ok_or(Refusal::RecordNotFound { seq })?.content;
    Ok(RedactTarget { seq, content })
}
