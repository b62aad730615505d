//! What no single log shows: sessions that were taken away, anchors that are gone, an index that
//! does not fit together; and how anchors that are gone are made again.

use std::collections::HashMap;
use std::sync::LazyLock;

use piton_core::event::AnchorsRecreated;
use piton_core::expected_sessions::ExpectedSessions;
use piton_core::id::SessionId;
use piton_core::limits::SEQ_MAX;
use piton_core::{Event, NewRecord};
use rusqlite::Connection;

use super::anchor::Anchor;
use super::append::{Inserts, Trouble};
use super::logs;
use super::read::Reader;
use super::schema::{self, rid};
use super::writer::Writer;
use crate::contract::{Finding, Problem};
use crate::error::{Error, Result};
use crate::writer::WritableRecords;

/// The tables by which sessions are found and listed.
const INDEXED: [&str; 2] = ["logs", "sessions"];
/// Complaints of SQLite about one table that are passed on.
const COMPLAINTS_MAX: usize = 3;

static LISTINGS: LazyLock<String> = LazyLock::new(|| {
    let filter = "r.kind IN ('session.registered', 'session.imported', 'session.deleted',
                             'session.archived')";
    schema::records_of_log("r.kind, r.header", filter)
});

impl Reader {
    pub(crate) fn verify_store(&self) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let whole = |problem| Finding { session: None, problem };
        let problem = self.anchors.verify();
        // As of one moment: a session and its registration come and go in one transaction.
        self.together(|| {
            let has_logs = self.has("SELECT 1 FROM logs")?;
            found.extend(problem.filter(|_| has_logs).map(whole));
            found.extend(self.index_damaged()?.map(whole));
            let metadata = SessionId::metadata_log();
            match self.no_of(&metadata)? {
                Some(no) => found.extend(self.missing(no)?),
                None if has_logs && self.anchors.of(&metadata).is_none() => {
                    let problem = Problem::MetadataMissing;
                    found.push(Finding { session: Some(metadata), problem });
                }
                // Named among the logs, with its anchor.
                None => {}
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn has(&self, sql: &str) -> Result<bool> {
        let mut find = self.conn.prepare_cached(sql).map_err(|e| self.failed(e))?;
        find.exists([]).map_err(|e| self.failed(e))
    }

    /// Sessions that the metadata log lists and that are gone. Those that have an anchor are named
    /// among the logs.
    fn missing(&self, metadata: i64) -> Result<Vec<Finding>> {
        let mut roster = ExpectedSessions::default();
        let mut select = self.conn.prepare_cached(&LISTINGS).map_err(|e| self.failed(e))?;
        let range = (rid(metadata, 0), rid(metadata, SEQ_MAX + 1));
        let mut rows = select.query(range).map_err(|e| self.failed(e))?;
        while let Some(row) = rows.next().map_err(|e| self.failed(e))? {
            let text = |at| row.get_ref(at).ok().and_then(|text| text.as_str().ok());
            // One that makes no sense is found when the metadata log itself is walked.
            if let (Some(kind), Some(header)) = (text(0), text(1))
                && let Ok(event) = Event::parse(kind, header)
            {
                roster.apply(&event);
            }
        }
        let mut found = Vec::new();
        for session in roster.iter() {
            if self.no_of(session)?.is_none() && self.anchors.of(session).is_none() {
                let problem = Problem::SessionMissing;
                found.push(Finding { session: Some(session.clone()), problem });
            }
        }
        Ok(found)
    }

    /// Whether tables and their indexes say the same, and list the same sessions.
    fn index_damaged(&self) -> Result<Option<Problem>> {
        let mut why = Vec::new();
        for table in INDEXED {
            let sql = format!("PRAGMA integrity_check({table})");
            let mut check = self.conn.prepare(&sql).map_err(|e| self.failed(e))?;
            let rows = check.query_map([], |row| row.get::<_, String>(0));
            let rows = rows.map_err(|e| self.failed(e))?;
            let said = rows.take(COMPLAINTS_MAX).collect::<rusqlite::Result<Vec<_>>>();
            match said {
                Ok(said) => why.extend(said.into_iter().filter(|line| line != "ok")),
                Err(e) => why.push(e.to_string()),
            }
        }
        let unknown = "SELECT 1 FROM sessions s LEFT JOIN logs l ON l.no = s.no
                       WHERE l.id IS NULL OR l.id <> s.id";
        if why.is_empty() && self.has(unknown)? {
            why.push("it lists a session that has no log".to_owned());
        }
        Ok((!why.is_empty()).then(|| Problem::IndexDamaged { why: why.join("; ") }))
    }
}

impl Writer {
    /// Opens the file of anchors. If it is gone or damaged though there are logs, the metadata log
    /// says so first; then every log is anchored where it stands now.
    pub(super) fn open_anchors(&mut self) -> Option<Connection> {
        let lost = self.anchors.examine();
        let logs = match lost {
            None => Vec::new(),
            Some(_) => self.all_logs().unwrap_or_default(),
        };
        if let Some(problem) = lost.filter(|_| !logs.is_empty()) {
            tracing::error!(%problem, logs = logs.len(), "The logs are anchored again");
            let (logs, reason) = (logs.len() as u64, problem.to_string());
            if let Err(error) = self.note_recreated(AnchorsRecreated { logs, reason }) {
                tracing::error!(%error, "The loss of the anchors could not be recorded");
            }
        }
        let conn = self.anchors.open()?;
        if let Err(error) = self.anchor_again(&conn, &logs) {
            tracing::error!(%error, "The logs could not be anchored again");
        }
        Some(conn)
    }

    fn all_logs(&self) -> rusqlite::Result<Vec<SessionId>> {
        let mut select = self.conn.prepare("SELECT id FROM logs")?;
        let ids = select.query_map([], |row| row.get::<_, String>(0))?;
        let ids = ids.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }

    fn note_recreated(&mut self, event: AnchorsRecreated) -> Result<()> {
        let record = NewRecord::new(crate::folder::now(), event);
        self.alone(|conn, appender| {
            let mut inserts = Inserts::new(conn).map_err(|e| appender.failed(e).into_error())?;
            appender
                .note(&mut inserts, WritableRecords::verbatim(vec![record]))
                .map_err(Trouble::into_error)
        })?;
        self.appender.noted.clear();
        Ok(())
    }

    fn anchor_again(&self, conn: &Connection, sessions: &[SessionId]) -> Result<()> {
        let path = &self.appender.path;
        let mut ends = HashMap::new();
        for session in sessions {
            // A log that cannot be read is left without: `verify` says why.
            if let Ok(Some(log)) = logs::find(&self.conn, path, session) {
                ends.insert(session.clone(), Anchor { seq: log.last_seq, chain: log.chain });
            }
        }
        let written = self.anchors.write_now(conn, &ends);
        written.map_err(|e| Error::Damaged {
            path: path.clone(),
            source: Some(std::sync::Arc::new(e)),
        })
    }
}
