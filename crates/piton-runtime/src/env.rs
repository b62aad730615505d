//! What every part of the service works with.

use std::sync::Arc;

use piton_core::decide::Context;
use piton_core::id::BootId;
use piton_store::{Liveness, Store, Writer};

use crate::counts::RunCounter;
use crate::graphs::HostedGraphs;
use crate::interfaces::{Clock, Driver, Ids, SessionFiles, TurnSnapshots};
use crate::permission_rules::PermissionRules;
use crate::service::Options;
use crate::settings::LiveSettings;
use crate::supervisor::Supervisors;
use crate::sweeper::Deadlines;

#[derive(Debug)]
pub(crate) struct Env {
    pub boot: BootId,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub liveness: Arc<dyn Liveness>,
    pub driver: Arc<dyn Driver>,
    pub supervisors: Supervisors,
    pub files: Arc<dyn SessionFiles>,
    pub turns: Arc<dyn TurnSnapshots>,
    pub writer: Arc<Writer>,
    pub snapshot_every: u64,
    pub rules: PermissionRules,
    pub settings: Arc<LiveSettings>,
    pub ids: Ids,
    pub run_counter: RunCounter,
    pub deadlines: Deadlines,
    /// Graphs that run in this process: each is the one writer of its session.
    pub graphs: Arc<HostedGraphs>,
}

impl Env {
    pub(crate) fn new(options: Options) -> Self {
        let (executors, entropy) = (options.executors, Arc::clone(&options.entropy));
        let settings = Arc::new(LiveSettings::new(options.settings));
        let supervisors = Supervisors::new(executors, Arc::clone(&settings), entropy);
        Self {
            ids: Ids::new(Arc::clone(&options.clock), options.entropy),
            writer: Arc::new(Writer::new(
                Arc::clone(&options.store),
                options.boot.clone(),
                options.masker,
            )),
            boot: options.boot,
            store: options.store,
            clock: options.clock,
            liveness: options.liveness,
            driver: options.driver,
            supervisors,
            files: options.files,
            turns: options.turns,
            snapshot_every: options.snapshot_every,
            rules: options.rules,
            settings,
            run_counter: RunCounter::default(),
            deadlines: Deadlines::default(),
            graphs: Arc::default(),
        }
    }

    /// The inputs of a decision besides the session's state.
    pub(crate) fn context(&self) -> Context {
        let (now, boot) = (self.clock.now(), self.boot.clone());
        Context { now, boot, limits: self.settings.get().limits }
    }

    pub(crate) fn is_alive(&self, boot: &BootId) -> bool {
        *boot == self.boot || self.liveness.is_alive(boot)
    }
}
