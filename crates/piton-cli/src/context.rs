//! What a command works with: settings, the store, the time.

use std::sync::Arc;

use piton_core::id::{BootId, SessionId};
use piton_core::{Code, Timestamp};
use piton_runtime::{Clock, SystemClock, View};
use piton_store::sqlite::Access;
use piton_store::{BootLocks, Holder, Store};

use crate::config::Settings;
use crate::conversion;
use crate::error::{Error, Result};
use crate::lookup::{self, SessionName};
use crate::stores;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    clock: Arc<dyn Clock>,
}

impl Context {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, clock: clock() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    pub(crate) fn locks(&self) -> BootLocks {
        BootLocks::new(&self.settings.data.value)
    }

    /// A read-only view, also while another process writes; `None` if there is no store.
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

    /// For reading one session, which may be named by a part of its id.
    pub(crate) async fn view_of(&self, session: &str) -> Result<(View, SessionId)> {
        // The metadata log can be read as a session can; it cannot be changed.
        let name = if session == SessionId::METADATA_LOG {
            SessionName::Id(session.parse()?)
        } else {
            session.parse()?
        };
        let Some(view) = self.view()? else { return Err(self.no_store(&name)) };
        let id = lookup::session(&view, name).await?;
        Ok((view, id))
    }

    pub(crate) fn no_store(&self, session: &SessionName) -> Error {
        let hint = format!("There is no store at {}.", self.settings.data.value.display());
        Error::new(Code::SessionNotFound, format!("There is no session {session}")).with_hint(hint)
    }

    /// The process that holds a boot's lock, if it is known.
    pub(crate) fn holder(&self, boot: &BootId) -> Option<Holder> {
        self.locks().holder(boot)
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
