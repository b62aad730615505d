//! Reading the settings of a server that runs again: what changed counts from then on, where it can.
//! What is invalid changes nothing.

use std::sync::{Mutex, PoisonError};

use piton_api::server::Reloaded;
use piton_core::Code;
use piton_runtime::Engine;
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
    log_level: LogLevel,
    /// As the server has them: those that need a restart stay as they were when it started.
    current: Mutex<Settings>,
}

impl Reloader {
    pub(crate) fn new(
        global: Global,
        settings: Settings,
        engine: Engine,
        log_level: LogLevel,
    ) -> Self {
        Self { global, engine, log_level, current: Mutex::new(settings) }
    }
}

impl Reload for Reloader {
    fn reload(&self) -> Result<Reloaded, ReloadError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |code, message| ReloadError { code, message };
        let fresh = Settings::load(&self.global).map_err(|error| {
            failed(error.code().unwrap_or(Code::ConfigInvalid), error.message().to_owned())
        })?;
        let is_reloaded = |key: &String| KEYS.iter().any(|k| k.name == key && k.is_reloaded);
        let (changed, restart_required): (Vec<String>, Vec<String>) =
            changed_keys(&current, &fresh).into_iter().partition(is_reloaded);
        self.engine
            .reconfigure(fresh.numbers.runtime(), fresh.resume.policy())
            .map_err(|error| failed(error.code(), error.to_string()))?;
        // Fails only if there is no log any more.
        let _ = self.log_level.reload(LevelFilter::from_level(fresh.log_level.value));
        current.numbers = fresh.numbers;
        current.resume = fresh.resume;
        current.log_level = fresh.log_level;
        tracing::info!(?changed, ?restart_required, "settings read again");
        Ok(Reloaded { changed, restart_required })
    }
}
