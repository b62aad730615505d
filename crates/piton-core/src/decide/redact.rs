//! Taking contents out. The store puts the tombstone; here is decided whether it may.

use std::collections::BTreeSet;

use super::{Context, Decision, Redact, Refusal};
use crate::event::{RecordRedacted, Seq};
use crate::limits::REDACT_RECORDS_MAX;
use crate::record::{Content, NewRecord};
use crate::state::State;

/// What was taken out before stays out, and nothing is written about it twice.
pub(super) fn redact(state: &State, cx: &Context, redact: Redact) -> Result<Decision, Refusal> {
    if redact.targets.len() > REDACT_RECORDS_MAX {
        return Err(Refusal::LimitReached { what: "redactions", max: REDACT_RECORDS_MAX });
    }
    let mut targets: BTreeSet<Seq> = BTreeSet::new();
    for target in redact.targets {
        let seq = target.seq;
        if seq == 0 || seq > state.last_seq {
            return Err(Refusal::RecordNotFound { seq });
        }
        match target.content {
            Content::None => return Err(Refusal::RecordEmpty { seq }),
            Content::Redacted => {}
            Content::Json(_) | Content::Omitted => drop(targets.insert(seq)),
        }
    }
    if targets.is_empty() {
        return Ok(Decision::already());
    }
    let records = targets.into_iter().map(|target_seq| {
        NewRecord::new(cx.now, RecordRedacted { target_seq, reason: redact.reason.clone() })
    });
    Ok(Decision::done(records.collect()))
}
