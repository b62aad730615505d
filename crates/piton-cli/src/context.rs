//! What a command works with: settings, the store, the time, and the way to become an offline writer.

use std::sync::Arc;

use piton_core::id::{BootId, SessionId};
use piton_core::{Code, Timestamp};
use piton_runtime::{Clock, Ids, OfflineWriter, Options, Service, SystemClock, View};
use piton_store::sqlite::Access;
use piton_store::{BootGuard, BootLocks, Holder, OsEntropy, Store};

use crate::config::Settings;
use crate::conversion;
use crate::echo_memory::EchoMemory;
use crate::error::{Error, Result};
use crate::lookup;
use crate::masking;
use crate::stores;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    clock: Arc<dyn Clock>,
}

/// An offline writer, and the lock that says that it lives.
#[derive(Debug)]
pub(crate) struct HeldWriter {
    pub(crate) writer: OfflineWriter,
    _alive: BootGuard,
}

impl Context {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, clock: clock() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn locks(&self) -> BootLocks {
        BootLocks::new(&self.settings.data.value)
    }

    /// For reading, beside whoever writes; `None` if there is no store.
    pub(crate) fn view(&self) -> Result<Option<View>> {
        let store = stores::open_store(&self.settings, Access::ReadOnly)?;
        Ok(store.map(|store| View::new(store, Arc::new(self.locks()), Arc::clone(&self.clock))))
    }

    /// For reading a store that must be there.
    pub(crate) fn existing_view(&self) -> Result<View> {
        self.view()?.ok_or_else(|| self.missing_store())
    }

    /// For changes that concern no session.
    pub(crate) fn writable_store(&self) -> Result<Arc<dyn Store>> {
        conversion::refuse(&self.settings.data.value)?;
        let store = stores::open_store(&self.settings, Access::ReadWrite)?;
        store.ok_or_else(|| self.missing_store())
    }

    pub(crate) fn missing_store(&self) -> Error {
        let message = format!("There is no store at {}", self.settings.data.value.display());
        Error::new(Code::StoreUnreadable, message)
            .with_hint("Name the data folder with --data; `piton config show` says which is used.")
    }

    /// For reading one session, which may be named by the beginning of its id.
    pub(crate) async fn view_of(&self, session: &str) -> Result<(View, SessionId)> {
        let id: SessionId = session.parse()?;
        let Some(view) = self.view()? else { return Err(self.no_store(&id)) };
        let id = lookup::session(&view, id).await?;
        Ok((view, id))
    }

    /// For changing one session that nobody runs.
    pub(crate) async fn writer_for(&self, session: &str) -> Result<(HeldWriter, SessionId)> {
        let id = SessionId::from_user(session)?;
        let Some(held) = self.offline_writer()? else { return Err(self.no_store(&id)) };
        let id = lookup::session(held.writer.view(), id).await?;
        Ok((held, id))
    }

    /// For changing several sessions that nobody runs. All of them must be there; one that is named
    /// twice is meant once.
    pub(crate) async fn writer_for_all(
        &self,
        sessions: &[String],
    ) -> Result<(HeldWriter, Vec<SessionId>)> {
        let Some(held) = self.offline_writer()? else { return Err(self.missing_store()) };
        let mut ids = Vec::new();
        for session in sessions {
            let id = lookup::session(held.writer.view(), SessionId::from_user(session)?).await?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok((held, ids))
    }

    /// For changes; `None` if there is no store.
    pub(crate) fn offline_writer(&self) -> Result<Option<HeldWriter>> {
        if stores::detect(&self.settings.data.value)?.is_none() {
            return Ok(None);
        }
        self.writer_or_new_store().map(Some)
    }

    /// For changes; makes a store if there is none.
    pub(crate) fn writer_or_new_store(&self) -> Result<HeldWriter> {
        let masker = Arc::new(masking::masker(&self.settings)?);
        let (locks, entropy) = (self.locks(), Arc::new(OsEntropy));
        let boot = Ids::new(Arc::clone(&self.clock), entropy.clone()).boot()?;
        // Alive first, then a look at who converts the store: a conversion looks the other way round,
        // so that one of the two sees the other.
        let alive = locks.hold(boot.clone())?;
        conversion::refuse(&self.settings.data.value)?;
        let store = stores::open_or_create_store(&self.settings)?;
        let options = Options {
            clock: Arc::clone(&self.clock),
            files: Arc::new(EchoMemory::new(&self.settings.data.value)),
            masker,
            ..Options::new(boot, store, Arc::new(locks), entropy)
        };
        Ok(HeldWriter { writer: Service::offline_writer(options), _alive: alive })
    }

    pub(crate) fn no_store(&self, session: &SessionId) -> Error {
        let hint = format!("There is no store at {}.", self.settings.data.value.display());
        Error::new(Code::SessionNotFound, format!("There is no session {session}")).with_hint(hint)
    }

    /// The process that holds a boot's lock, if it is known.
    pub(crate) fn holder(&self, boot: &BootId) -> Option<Holder> {
        self.locks().holder(boot)
    }

    /// Who it is that owns the session: a refusal that names nobody helps nobody.
    pub(crate) fn name_owner(&self, error: piton_runtime::Error) -> Error {
        let piton_runtime::Error::Store(piton_store::Error::SessionOwned { owner, .. }) = &error
        else {
            return error.into();
        };
        let hint = match self.holder(owner) {
            Some(Holder { pid, program }) => format!(
                "Ask {program} (pid {pid}), which owns the session, or stop it and try again."
            ),
            None => Code::SessionOwned.hint().to_owned(),
        };
        Error::from(error).with_hint(hint)
    }
}

#[cfg(not(debug_assertions))]
fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Tests of what is printed hold the time still.
#[cfg(debug_assertions)]
fn clock() -> Arc<dyn Clock> {
    let now = std::env::var("PITON_TEST_NOW").ok().and_then(|now| now.parse().ok());
    now.map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, |now| Arc::new(Still(now)))
}

#[cfg(debug_assertions)]
#[derive(Debug)]
struct Still(Timestamp);

#[cfg(debug_assertions)]
impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn sleep(&self, span: std::time::Duration) -> piton_store::BoxFuture<()> {
        SystemClock.sleep(span)
    }
}
