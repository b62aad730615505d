//! The session index: pages by sort key and id, each served by one index.

use std::sync::Arc;

use piton_core::id::SessionId;
use rusqlite::types::Value;

use super::logs;
use super::read::Reader;
use super::schema::{self, seq_of};
use crate::contract::{Cursor, Page, Query, Row, Select};
use crate::error::{Cause, Error, Result};

/// Most rows in one page.
const PAGE_ROWS_MAX: usize = 1_000;

impl Reader {
    pub(crate) fn list(&self, query: &Query) -> Result<Page> {
        let limit = query.limit.min(PAGE_ROWS_MAX);
        if limit == 0 {
            return Ok(Page { rows: Vec::new(), next: query.after.clone() });
        }
        let (sql, values) = statement(query, limit);
        let mut select = self.conn.prepare_cached(&sql).map_err(|e| self.failed(e))?;
        let mut found =
            select.query(rusqlite::params_from_iter(values)).map_err(|e| self.failed(e))?;
        let mut rows = Vec::new();
        let mut next = None;
        let mut last = None;
        let mut seen = 0;
        while let Some(row) = found.next().map_err(|e| self.failed(e))? {
            if seen == limit {
                next = last;
                break;
            }
            seen += 1;
            let (cursor, row) = self.row(row)?;
            last = Some(cursor);
            rows.extend(row);
        }
        Ok(Page { rows, next })
    }

    pub(crate) fn logs(&self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>> {
        let limit = i64::try_from(limit.min(PAGE_ROWS_MAX)).unwrap_or(i64::MAX);
        let after = after.map_or("", SessionId::as_str);
        let ids = || {
            let mut select = self
                .conn
                .prepare_cached("SELECT id FROM logs WHERE id > ?1 ORDER BY id LIMIT ?2")?;
            let rows = select.query_map((after, limit), |row| row.get::<_, String>(0))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let mut ids = ids().map_err(|e| self.failed(e))?;
        // A log that is missing without a deletion is listed, too, so that its loss is noticed.
        ids.extend(self.anchors.names(after, limit));
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let parsed = ids.iter().map(|id| {
            id.parse().map_err(|e| Error::Damaged {
                path: self.path.clone(),
                source: Some(Arc::new(e) as Cause),
            })
        });
        parsed.collect()
    }

    /// A row of the index and its place; `None` if neither it nor its log can be read.
    fn row(&self, row: &rusqlite::Row<'_>) -> Result<(Cursor, Option<Row>)> {
        let damaged =
            |source: Cause| Error::Damaged { path: self.path.clone(), source: Some(source) };
        let columns = || {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, String>(3)?,
                row.get::<_, Option<i64>>(4)?,
                logs::lease(row, 5)?,
            ))
        };
        let (millis, no, id, summary, end, lease) = columns().map_err(|e| self.failed(e))?;
        let session: SessionId = id.parse().map_err(|e| damaged(Arc::new(e)))?;
        let cursor = Cursor { millis, session: session.clone() };
        let summary = match serde_json::from_str(&summary) {
            Ok(summary) => Some(summary),
            // A cache: the log says it, too.
            Err(_) => match self.load_now(&session) {
                Ok(loaded) => loaded.and_then(|loaded| loaded.state.summary()),
                Err(e) => {
                    tracing::warn!(%session, error = %e, "A session that cannot be read is not listed");
                    None
                }
            },
        };
        let Some(summary) = summary else { return Ok((cursor, None)) };
        let lease = match lease {
            Some(lease) => lease,
            None => logs::lease_from_records(&self.conn, &self.path, &session, no)?,
        };
        let row = Row { session, last_seq: end.map_or(0, seq_of), lease, summary };
        Ok((cursor, Some(row)))
    }
}

/// The statement for a query and its values, in order.
fn statement(query: &Query, limit: usize) -> (String, Vec<Value>) {
    let mut values = Vec::new();
    let mut conditions = Vec::new();
    let mut value = |v: Value| {
        values.push(v);
        format!("?{}", values.len())
    };
    let (key, order, beyond) = match query.select {
        Select::DueBy(_) => ("deadline_at", "ASC", ">"),
        Select::All | Select::Unclosed | Select::NeedsRecovery => ("active_at", "DESC", "<"),
    };
    match query.select {
        Select::All => {}
        Select::Unclosed => conditions.push("s.closed = 0".to_owned()),
        Select::NeedsRecovery => conditions.push("s.needs_recovery = 1".to_owned()),
        Select::DueBy(moment) => {
            let moment = value(moment.as_millis().into());
            conditions.push(format!("s.deadline_at IS NOT NULL AND s.deadline_at <= {moment}"));
        }
    }
    if let Some(task_id) = &query.task_id {
        conditions.push(format!("s.task_id = {}", value(task_id.as_str().to_owned().into())));
    }
    if let Some(after) = &query.after {
        let millis = value(after.millis.into());
        let id = value(after.session.as_str().to_owned().into());
        conditions.push(format!("(s.{key}, s.id) {beyond} ({millis}, {id})"));
    }
    if conditions.is_empty() {
        conditions.push("TRUE".to_owned());
    }
    // One more than asked for: whether there is a next page.
    let limit = value(i64::try_from(limit + 1).unwrap_or(i64::MAX).into());
    let conditions = conditions.join(" AND ");
    let sql = format!(
        "SELECT s.{key}, s.no, s.id, s.summary, {}, h.epoch, h.owner
         FROM sessions s LEFT JOIN heads h ON h.no = s.no
         WHERE {conditions} ORDER BY s.{key} {order}, s.id {order} LIMIT {limit}",
        schema::last_place("rid", "s.no")
    );
    (sql, values)
}
