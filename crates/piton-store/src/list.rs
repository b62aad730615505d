//! A page of the session index, for stores that keep their rows in memory.

use piton_core::id::SessionId;
use piton_core::{State, Timestamp};

use crate::contract::{Cursor, Page, Query, Row, Select};

/// The page that a query asks for. Only the rows on it are made.
pub(crate) fn page<'a>(
    states: impl Iterator<Item = (&'a SessionId, &'a State)>,
    query: &Query,
) -> Page {
    let mut found: Vec<(i64, &SessionId, &State)> = Vec::new();
    for (session, state) in states.filter(|(session, _)| !session.is_metadata_log()) {
        let Some(info) = &state.info else { continue };
        if query.task_id.is_some() && info.task_id != query.task_id {
            continue;
        }
        let (facts, active_at) = (&state.facts, info.active_at.as_millis());
        let key = match query.select {
            Select::All => Some(active_at),
            Select::Unclosed => facts.closed.is_none().then_some(active_at),
            Select::NeedsRecovery => facts.needs_recovery().then_some(active_at),
            Select::DueBy(moment) => {
                facts.deadline_at().filter(|d| *d <= moment).map(Timestamp::as_millis)
            }
        };
        found.extend(key.map(|key| (key, session, state)));
    }
    let ascending = matches!(query.select, Select::DueBy(_));
    found.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    if !ascending {
        found.reverse();
    }
    if let Some(after) = &query.after {
        let cursor = (after.millis, &after.session);
        found.retain(|(key, session, _)| {
            let here = (*key, *session);
            if ascending { here > cursor } else { here < cursor }
        });
    }
    let more = found.len() > query.limit;
    found.truncate(query.limit);
    let next = found
        .last()
        .filter(|_| more)
        .map(|(millis, session, _)| Cursor { millis: *millis, session: (*session).clone() });
    let rows = found.into_iter().filter_map(|(_, session, state)| {
        let (last_seq, lease) = (state.last_seq, state.lease.clone());
        Some(Row { session: session.clone(), last_seq, lease, summary: state.summary()? })
    });
    Page { rows: rows.collect(), next }
}
