//! The metadata log's writer and reader: tasks, and who may use the API. Others write to the same
//! log; the writer reads their records before it makes another decision.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton_core::access::{Access, AccessDenied, Bearer, Scope};
use piton_core::decide::Verdict;
use piton_core::event::Event;
use piton_core::id::{AccessTokenId, SessionId};
use piton_core::planted::{self, Bug};
use piton_core::registry::{Command, Registry};
use piton_core::request::Request;
use piton_core::{Code, NewRecord, Seq};
use piton_store::{Detail, Tail, Writer};
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::interfaces::Clock;
use crate::metadata_snapshot;
use crate::service::Handle;
use crate::settings::LiveSettings;

/// Attempts at a decision while other processes write to the metadata log.
const TRIES_MAX: usize = 32;
const READ_MAX: usize = 1_000;
/// Records after which a start saves what it has read for the next one.
const SAVED_AFTER: Seq = 1_000;
const REVOKED: &str = "access_token.revoked";
/// The longest sleep before the clock is checked against an expiry again.
const POLL_INTERVAL: Duration = Duration::from_mins(1);

/// What callers hold. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MetadataLog {
    writer: Arc<Writer>,
    clock: Arc<dyn Clock>,
    settings: Arc<LiveSettings>,
    registry: Arc<Mutex<Registry>>,
    /// Something was taken back.
    revoked: Arc<watch::Sender<()>>,
}

/// What became of a command, and where the log stands.
#[derive(Clone, Copy, Debug)]
pub struct MetadataAck {
    pub verdict: Verdict,
    pub last_seq: Seq,
}

impl MetadataLog {
    /// Of a service's store: written through the service's writer.
    pub async fn open(handle: &Handle) -> Result<Self> {
        let env = handle.env();
        Self::of(Arc::clone(&env.writer), Arc::clone(&env.clock), Arc::clone(&env.settings)).await
    }

    pub(crate) async fn of(
        writer: Arc<Writer>,
        clock: Arc<dyn Clock>,
        settings: Arc<LiveSettings>,
    ) -> Result<Self> {
        let revoked = Arc::new(watch::Sender::new(()));
        let saved = metadata_snapshot::load(writer.store()).await?.unwrap_or_default();
        let from = saved.last_seq;
        let registry = Arc::new(Mutex::new(saved));
        let metadata = Self { writer, clock, settings, registry, revoked };
        metadata.catch_up().await?;
        let registry = metadata.read(Clone::clone);
        if registry.last_seq >= from + SAVED_AFTER {
            // A cache: the next start reads more if it cannot be saved.
            if let Err(error) = metadata_snapshot::save(metadata.writer.store(), &registry).await {
                tracing::warn!(%error, "The snapshot of the metadata log is not saved");
            }
        }
        Ok(metadata)
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what the log says.
    pub fn read<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        look(&self.lock())
    }

    pub fn admit(&self, bearer: &Bearer, needed: Scope) -> Result<Access, AccessDenied> {
        let now = self.clock.now();
        self.lock().admit(bearer, needed, now).cloned()
    }

    pub fn once(&self, bearer: &Bearer) -> Result<Access, AccessDenied> {
        let now = self.clock.now();
        self.lock().once(bearer, now).cloned()
    }

    /// Resolves when a secret opens nothing any more: it was taken back, or its time is over.
    pub async fn lost(&self, access: &AccessTokenId) {
        let mut revoked = self.revoked.subscribe();
        loop {
            let found = self.read(|registry| registry.access.get(access).map(|a| a.expires_at));
            let Some(expires_at) = found else { return };
            let now = self.clock.now();
            if expires_at.is_some_and(|at| at <= now) {
                return;
            }
            let expires = async {
                match expires_at {
                    // Clocks jump: it is looked at again.
                    Some(at) => tokio::time::sleep(at.since(now).min(POLL_INTERVAL)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = revoked.changed() => {}
                () = expires => {}
            }
        }
    }

    /// Reads what was appended since.
    pub async fn catch_up(&self) -> Result<()> {
        loop {
            let after = self.lock().last_seq;
            let id = SessionId::metadata_log();
            let records = self.writer.store().read(&id, after, READ_MAX, Detail::Headers).await?;
            if records.is_empty() {
                return Ok(());
            }
            let mut registry = self.lock();
            // Another task may have applied the same records meanwhile.
            for record in records {
                if record.seq != registry.last_seq + 1 {
                    continue;
                }
                registry.apply_record(&record).map_err(|error| {
                    let source: piton_store::Cause = Arc::new(error);
                    let (session, seq) = (id.clone(), record.seq);
                    piton_store::Error::RecordDamaged { session, seq, source: Some(source) }
                })?;
                if &*record.kind == REVOKED && !planted::is(Bug::RevocationMissed) {
                    self.revoked.send_replace(());
                }
            }
        }
    }

    /// Applies appended records without reading them back, unless `catch_up` has already read them.
    fn apply(&self, expected: Seq, written: &[NewRecord]) {
        let mut registry = self.lock();
        for (seq, record) in (expected + 1..).zip(written) {
            if seq == registry.last_seq + 1 {
                registry.apply(seq, record.ts, &record.event);
                if matches!(record.event, Event::AccessTokenRevoked(_)) {
                    self.revoked.send_replace(());
                }
            }
        }
    }

    /// Keeps up with what others write, for ever.
    pub async fn follow(&self) -> Result<()> {
        let after = self.lock().last_seq;
        let mut tail = Tail::new(Arc::clone(self.writer.store()), SessionId::metadata_log(), after);
        loop {
            tail.next().await?;
            self.catch_up().await?;
        }
    }

    /// Decides, makes it durable, and answers.
    pub async fn execute(&self, request: Option<Request>, command: Command) -> Result<MetadataAck> {
        let mut last = Error::ShuttingDown;
        for _ in 0..TRIES_MAX {
            let now = self.clock.now();
            let kept_for = self.settings.get().limits.request_kept_for;
            let (decision, expected) = {
                let registry = self.lock();
                let decision = registry.decide(now, request.clone(), command.clone(), kept_for)?;
                (decision, registry.last_seq)
            };
            if decision.records.is_empty() {
                return Ok(MetadataAck { verdict: decision.outcome, last_seq: expected });
            }
            match self.writer.append_metadata(expected, decision.records).await {
                Ok((appended, written)) => {
                    self.apply(expected, &written);
                    return Ok(MetadataAck { verdict: decision.outcome, last_seq: appended.last });
                }
                Err(error) if error.code() == Code::SeqConflict => {
                    last = error.into();
                    self.catch_up().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use piton_core::event::AccessTokenCreated;
    use piton_store::{SqliteStore, Store, sqlite};

    use super::*;
    use crate::interfaces::SystemClock;

    fn granted(id: &AccessTokenId) -> Command {
        Command::Grant(AccessTokenCreated {
            access_token_id: id.clone(),
            name: "phone".into(),
            scopes: vec![Scope::Read],
            hash: "00".repeat(32),
            expires_at: None,
            single_use: false,
        })
    }

    async fn open(store: &Arc<dyn Store>) -> MetadataLog {
        let boot = "boot_1".parse().unwrap();
        let writer = Writer::new(Arc::clone(store), boot, Arc::default());
        MetadataLog::of(Arc::new(writer), Arc::new(SystemClock), Arc::default()).await.unwrap()
    }

    /// Resolves only by a wake-up: nothing else is waited for.
    async fn ends(lost: impl Future<Output = ()>) -> bool {
        tokio::time::timeout(Duration::from_secs(10), lost).await.is_ok()
    }

    /// The first reader of a revocation (its writer or the follower) ends the streams of the access
    /// token.
    #[tokio::test]
    async fn a_revocation_ends_streams_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(sqlite::Options::new(folder.path())).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let (log, other) = (open(&store).await, open(&store).await);
        let ids: Vec<AccessTokenId> = ["key_1", "key_2"].map(|id| id.parse().unwrap()).into();
        for id in &ids {
            log.execute(None, granted(id)).await.unwrap();
        }
        // Written here, and read by the follower before it is applied.
        let mut lost = std::pin::pin!(log.lost(&ids[0]));
        assert!(futures_util::poll!(&mut lost).is_pending());
        other.catch_up().await.unwrap();
        let expected = other.lock().last_seq;
        let revoked = piton_core::event::AccessTokenRevoked { access_token_id: ids[0].clone() };
        let record = NewRecord::new(log.clock.now(), revoked);
        let (_, written) = log.writer.append_metadata(expected, vec![record]).await.unwrap();
        log.catch_up().await.unwrap();
        log.apply(expected, &written);
        assert!(ends(lost).await, "read before it was applied");
        // Written by another process.
        let mut lost = std::pin::pin!(log.lost(&ids[1]));
        assert!(futures_util::poll!(&mut lost).is_pending());
        other.catch_up().await.unwrap();
        let revoke = Command::Revoke { access_token_id: ids[1].clone() };
        other.execute(None, revoke).await.unwrap();
        log.catch_up().await.unwrap();
        assert!(ends(lost).await, "written by another process");
    }

    /// Wants to show: a start does not read the whole log again, and a forged snapshot grants no
    /// access.
    #[tokio::test]
    async fn a_start_reads_on_from_a_sealed_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(sqlite::Options::new(folder.path())).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let log = open(&store).await;
        let key: AccessTokenId = "key_1".parse().unwrap();
        log.execute(None, granted(&key)).await.unwrap();
        for expected in [1, 501, 1_001] {
            let task = |n: u64| piton_core::event::TaskCreated {
                task_id: format!("task_{}", expected + n).parse().unwrap(),
                title: "t".into(),
            };
            let records = (0..500).map(|n| NewRecord::new(log.clock.now(), task(n))).collect();
            log.writer.append_metadata(expected, records).await.unwrap();
        }
        let id = SessionId::metadata_log();
        assert_eq!(store.snapshot(&id).await.unwrap(), None);
        let whole = open(&store).await.read(Clone::clone);
        assert_eq!((whole.last_seq, whole.tasks.len()), (1_501, 1_500));
        let saved = store.snapshot(&id).await.unwrap().unwrap();
        assert_eq!(saved.seq, 1_501);
        assert_eq!(metadata_snapshot::load(&store).await.unwrap(), Some(whole.clone()));
        assert_eq!(store.verify(&id).await.unwrap().problem, None, "it is no session's snapshot");
        log.catch_up().await.unwrap();
        let revoke = Command::Revoke { access_token_id: key };
        log.execute(None, revoke).await.unwrap();
        let next = open(&store).await.read(Clone::clone);
        assert_eq!((next.last_seq, next.access.len()), (1_502, 0), "read on from the snapshot");
        let forged = piton_store::Snapshot { body: saved.body.replace("phone", "thief"), ..saved };
        assert!(forged.body.contains("thief"), "something was forged");
        store.save_snapshot(&id, forged).await.unwrap();
        assert_eq!(metadata_snapshot::load(&store).await.unwrap(), None);
        assert_eq!(open(&store).await.read(Clone::clone), next);
    }
}
