//! A store with many sessions.

use std::path::Path;
use std::sync::Arc;

use piton_core::event::{SessionCreated, SessionLeased};
use piton_core::id::{BootId, SessionId};
use piton_core::{NewRecord, State, Timestamp};
use piton_store::{Batch, Durability, Guard, SqliteStore, Store, WritableRecords, sqlite};

use crate::Result;

/// A store with many sessions, each as it is when it was just made.
pub(crate) fn fill(folder: &Path, sessions: usize) -> Result<()> {
    const AT_ONCE: usize = 1_000;
    let store = Arc::new(SqliteStore::open(sqlite::Options::new(folder))?);
    let boot: BootId = "boot_bench".parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    for from in (0..sessions).step_by(AT_ONCE) {
        let appends: Vec<_> = (from..sessions.min(from + AT_ONCE))
            .map(|number| Ok(store.append(created(number, &boot)?)))
            .collect::<Result<_>>()?;
        runtime.block_on(async {
            for append in appends {
                append.await?;
            }
            Ok::<_, piton_store::Error>(())
        })?;
    }
    store.close();
    Ok(())
}

fn created(number: usize, boot: &BootId) -> Result<Batch> {
    let session: SessionId = format!("sess_{number:032x}").parse()?;
    let ts = Timestamp::from_millis(1_771_668_000_000 + i64::try_from(number)?);
    let created = SessionCreated {
        session_id: session.clone(),
        title: Some(format!("Session number {number}")),
        task_id: None,
        working_dir: None,
        provider: None,
        agent_profile_id: None,
    };
    let leased = SessionLeased { boot_id: boot.clone(), epoch: 1 };
    let records = vec![NewRecord::new(ts, created), NewRecord::new(ts, leased)];
    let mut state = State::default();
    for (seq, record) in (1..).zip(&records) {
        state.apply(seq, record.ts, &record.event);
    }
    let guard = Guard::Lease { boot: boot.clone(), epoch: 1 };
    let (summary, durability) = (state.summary(), Durability::Buffered);
    let records = WritableRecords::verbatim(records);
    Ok(Batch { session, expected: 0, guard, records, durability, summary })
}
