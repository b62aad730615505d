//! Where and with what is measured: folders on a real disk, stores in them, sessions that write as
//! the runtime does.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use piton_core::fold::Change;
use piton_core::id::{BootId, RunId, SessionId};
use piton_core::{Event, NewRecord, State, Timestamp, event};
use piton_store::{Batch, Durability, Guard, SqliteStore, Store, WritableRecords, sqlite};
use tempfile::TempDir;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Debug)]
pub(crate) struct Rig {
    folder: TempDir,
}

impl Rig {
    pub(crate) fn new() -> Result<Self> {
        // Beside the build, because the usual place for temporary files is often only memory.
        let folder = TempDir::with_prefix_in("bench-log-", env!("CARGO_TARGET_TMPDIR"))?;
        Ok(Self { folder })
    }

    /// A fresh folder, removed when dropped.
    pub(crate) fn folder(&self) -> Result<TempDir> {
        Ok(TempDir::new_in(self.folder.path())?)
    }

    pub(crate) fn machine(&self) -> Result<String> {
        let cores = std::thread::available_parallelism()?;
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kind = rustix::fs::statfs(self.folder.path())?.f_type;
        let file_system = match kind {
            0xef53 => "ext4",
            0x5846_5342 => "xfs",
            0x9123_683e => "btrfs",
            0x0102_1994 => "tmpfs (NOT A DISK: flushes cost nothing here)",
            _ => "another file system",
        };
        Ok(format!("{cores} cores, kernel {}, {file_system}", kernel.trim()))
    }
}

pub(crate) fn open(folder: &Path) -> Result<Arc<SqliteStore>> {
    Ok(Arc::new(SqliteStore::open(sqlite::Options::new(folder))?))
}

pub(crate) fn one_thread() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_time().build()?)
}

/// As many threads as cores.
pub(crate) fn many_threads() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Text that does not repeat soon.
pub(crate) fn text(bytes: usize) -> String {
    std::iter::repeat_with(fastrand::alphanumeric).take(bytes).collect()
}

/// One session's writer.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    boot: BootId,
    pub(crate) state: State,
    said: u64,
}

impl Session {
    pub(crate) fn new(number: usize, boot: &BootId) -> Result<Self> {
        let id = format!("sess_{number:032x}").parse()?;
        Ok(Self { id, boot: boot.clone(), state: State::default(), said: 0 })
    }

    /// The session as its log says it, for a boot that does not hold it yet.
    pub(crate) async fn load(store: &dyn Store, number: usize, boot: &BootId) -> Result<Self> {
        let mut session = Self::new(number, boot)?;
        session.state = piton_store::load(store, &session.id).await?.state;
        Ok(session)
    }

    /// The next batch, which is taken for appended.
    pub(crate) fn batch(&mut self, records: Vec<NewRecord>, durability: Durability) -> Batch {
        let expected = self.state.last_seq;
        let mut changed = false;
        for (seq, record) in (expected + 1..).zip(&records) {
            changed |= self.state.apply(seq, record.ts, &record.event) == Change::Summary;
        }
        Batch {
            session: self.id.clone(),
            expected,
            guard: Guard::Lease { boot: self.boot.clone(), epoch: self.state.lease.epoch },
            records: WritableRecords::verbatim(records),
            durability,
            summary: if changed { self.state.summary() } else { None },
        }
    }

    pub(crate) fn created(&self) -> Vec<NewRecord> {
        let created = event::SessionCreated {
            session_id: self.id.clone(),
            title: Some("To be measured".to_owned()),
            task_id: None,
            working_dir: None,
            provider: None,
            agent_profile_id: None,
        };
        vec![NewRecord::new(now(), created), self.leased()]
    }

    pub(crate) fn leased(&self) -> NewRecord {
        let epoch = self.state.lease.epoch + 1;
        NewRecord::new(now(), event::SessionLeased { boot_id: self.boot.clone(), epoch })
    }

    pub(crate) fn run_started(&self, number: usize) -> Result<NewRecord> {
        let run_id: RunId = format!("run_{number:032x}").parse()?;
        let boot_id = self.boot.clone();
        Ok(NewRecord::new(now(), event::RunStarted { run_id, boot_id, message_id: None }))
    }

    /// What an agent says: the ordinary record.
    pub(crate) fn piece(&mut self, text: &str) -> Result<NewRecord> {
        let length = text.len() as u64;
        let offset = self.said;
        self.said += length;
        let message_id = "msg_0000000000000000000000000000000a".parse()?;
        let said = event::MessageDelta {
            message_id,
            run_id: None,
            offset,
            length,
            channel: piton_core::spool::Channel::Answer,
            sent: None,
        };
        Ok(NewRecord::with_content(now(), said, "text", text.into()))
    }

    /// What a user says: it also moves the session's row in the index.
    pub(crate) fn message(text: &str) -> Result<NewRecord> {
        let message_id = "msg_0000000000000000000000000000000b".parse()?;
        let said: Event = event::MessageUser { message_id, run_id: None }.into();
        Ok(NewRecord::with_content(now(), said, "content", text.into()))
    }
}
