//! The reserved log's writer and reader: tasks, and who may use the API. Others write to the same
//! log; what they wrote is read before anything is decided anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton_core::access::{Access, Bearer, Denied, Scope};
use piton_core::decide::Verdict;
use piton_core::event::Event;
use piton_core::id::{AccessTokenId, SessionId};
use piton_core::registry::{Command, Registry};
use piton_core::request::Request;
use piton_core::{Code, NewRecord, Seq};
use piton_store::{Batch, Detail, Durability, Guard, Store, Tail};
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::world::Clock;

/// How often something is decided anew after somebody else wrote to the reserved log.
const TRIES_MAX: usize = 32;
const READ_MAX: usize = 1_000;
const REVOKED: &str = "access_token.revoked";
/// How long somebody is believed to have time left without a look at the clock.
const LOOK_EVERY: Duration = Duration::from_mins(1);

/// What callers hold. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reserved {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    registry: Arc<Mutex<Registry>>,
    /// Something was taken back.
    revoked: Arc<watch::Sender<()>>,
}

/// What became of a command, and where the log stands.
#[derive(Clone, Copy, Debug)]
pub struct Noted {
    pub verdict: Verdict,
    pub last_seq: Seq,
}

impl Reserved {
    pub async fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Self> {
        let revoked = Arc::new(watch::Sender::new(()));
        let reserved = Self { store, clock, registry: Arc::default(), revoked };
        reserved.catch_up().await?;
        Ok(reserved)
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what the log says.
    pub fn read<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        look(&self.lock())
    }

    pub fn admit(&self, bearer: &Bearer, needed: Scope) -> Result<Access, Denied> {
        let now = self.clock.now();
        self.lock().admit(bearer, needed, now).cloned()
    }

    pub fn once(&self, bearer: &Bearer) -> Result<Access, Denied> {
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
                    Some(at) => tokio::time::sleep(at.since(now).min(LOOK_EVERY)).await,
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
            let id = SessionId::reserved();
            let records = self.store.read(&id, after, READ_MAX, Detail::Headers).await?;
            if records.is_empty() {
                return Ok(());
            }
            let mut registry = self.lock();
            // Somebody else may have read the same meanwhile.
            for record in records {
                if record.seq != registry.last_seq + 1 {
                    continue;
                }
                registry.apply_record(&record).map_err(|error| {
                    let source: piton_store::Cause = Arc::new(error);
                    let (session, seq) = (id.clone(), record.seq);
                    piton_store::Error::RecordDamaged { session, seq, source: Some(source) }
                })?;
                if &*record.kind == REVOKED {
                    self.revoked.send_replace(());
                }
            }
        }
    }

    /// What was appended here need not be read, unless somebody has read it already.
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
        let mut tail = Tail::new(Arc::clone(&self.store), SessionId::reserved(), after);
        loop {
            tail.next().await?;
            self.catch_up().await?;
        }
    }

    /// Decides, makes it durable, and answers.
    pub async fn execute(&self, request: Option<Request>, command: Command) -> Result<Noted> {
        let mut last = Error::ShuttingDown;
        for _ in 0..TRIES_MAX {
            let now = self.clock.now();
            let (decision, expected) = {
                let registry = self.lock();
                let decision = registry.decide(now, request.clone(), command.clone())?;
                (decision, registry.last_seq)
            };
            if decision.records.is_empty() {
                return Ok(Noted { verdict: decision.outcome, last_seq: expected });
            }
            let written = decision.records.clone();
            let batch = Batch {
                session: SessionId::reserved(),
                expected,
                guard: Guard::Shared,
                records: decision.records,
                durability: Durability::Synced,
                summary: None,
            };
            match self.store.append(batch).await {
                Ok(appended) => {
                    self.apply(expected, &written);
                    return Ok(Noted { verdict: decision.outcome, last_seq: appended.last });
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
