//! Reading the settings of a server that runs again: what changed counts from then on, where it can.
//! What is invalid changes nothing.

use std::sync::{Mutex, PoisonError};

use piton_api::server::Reloaded;
use piton_core::Code;
use piton_runtime::{Engine, PermissionRules};
use piton_server::{Reload, ReloadError};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::reload;

use crate::cli::Global;
use crate::commands::config::changed_keys;
use crate::config::{KEYS, Settings};

/// The level of the server's own log, which can be changed.
pub(crate) type LogLevel = reload::Handle<LevelFilter, Registry>;

/// A running server's settings.
#[derive(Debug)]
pub(crate) struct Reloader {
    global: Global,
    engine: Engine,
    rules: PermissionRules,
    log_level: LogLevel,
    /// As they were when the server started.
    started: Settings,
    /// As they were last read.
    current: Mutex<Settings>,
}

impl Reloader {
    pub(crate) fn new(
        global: &Global,
        settings: &Settings,
        engine: Engine,
        rules: PermissionRules,
        log_level: LogLevel,
    ) -> Self {
        let (started, current) = (settings.clone(), Mutex::new(settings.clone()));
        Self { global: global.clone(), engine, rules, log_level, started, current }
    }
}

fn is_reloaded(key: &str) -> bool {
    KEYS.iter().any(|known| known.name == key && known.is_reloaded)
}

impl Reload for Reloader {
    fn reload(&self) -> Result<Reloaded, ReloadError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |code, message| ReloadError { code, message };
        let fresh = Settings::load(&self.global).map_err(|error| {
            failed(error.code().unwrap_or(Code::ConfigInvalid), error.message().to_owned())
        })?;
        let mut changed = changed_keys(&current, &fresh);
        changed.retain(|key| is_reloaded(key));
        let mut restart_required = changed_keys(&self.started, &fresh);
        restart_required.retain(|key| !is_reloaded(key));
        self.engine
            .reconfigure(fresh.runtime(), fresh.resume.policy())
            .map_err(|error| failed(error.code(), error.to_string()))?;
        if *self.rules.get() != fresh.permissions.rules {
            self.rules.set(fresh.permissions.rules.clone());
            changed.push("permissions.rules".to_owned());
        }
        // Fails only if there is no log any more.
        let _ = self.log_level.reload(LevelFilter::from_level(fresh.log_level.value));
        *current = fresh;
        tracing::info!(?changed, ?restart_required, "settings read again");
        Ok(Reloaded { changed, restart_required })
    }
}
