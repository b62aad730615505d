//! The traits of store and runtime, owned by the world. Every one of them is a place where the
//! process can die: a dead boot's futures never resolve.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use piton_core::decide::Probe;
use piton_core::id::{BootId, ExecutionId, SessionId};
use piton_core::{Code, Timestamp};
use piton_runtime::{Clock, Driver, EffectJob, Executors};
use piton_store::memory::{Hooks, Point};
use piton_store::{Batch, BoxFuture, Entropy, Liveness, Result};

use super::world::{Boot, World};

/// A part of the world as one boot sees it.
struct Part {
    world: Arc<World>,
    boot: Arc<Boot>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({})", self.boot.id)
    }
}

#[derive(Debug)]
struct Outside(Arc<World>);

fn part(world: &Arc<World>, boot: &Arc<Boot>) -> Arc<Part> {
    Arc::new(Part { world: Arc::clone(world), boot: Arc::clone(boot) })
}

pub(super) fn hooks(world: &Arc<World>, boot: &Arc<Boot>) -> Arc<dyn Hooks> {
    part(world, boot)
}

pub(super) fn clock(world: &Arc<World>, boot: &Arc<Boot>) -> Arc<dyn Clock> {
    part(world, boot)
}

pub(super) fn driver(world: &Arc<World>, boot: &Arc<Boot>) -> Arc<dyn Driver> {
    part(world, boot)
}

pub(super) fn executors(world: &Arc<World>, boot: &Arc<Boot>) -> Arc<dyn Executors> {
    part(world, boot)
}

pub(super) fn liveness(world: &Arc<World>) -> Arc<dyn Liveness> {
    Arc::new(Outside(Arc::clone(world)))
}

pub(super) fn entropy(world: &Arc<World>) -> Arc<dyn Entropy> {
    Arc::new(Outside(Arc::clone(world)))
}

/// One step, taking as long as the dice say; never ends if the boot is dead.
pub(super) async fn step(world: &World, boot: &Boot) {
    if !world.step(boot) {
        return std::future::pending().await;
    }
    match world.range(0, 5) {
        0 => tokio::time::sleep(Duration::from_millis(world.range(1, 30))).await,
        1 | 2 => tokio::task::yield_now().await,
        _ => {}
    }
    if !boot.is_running() {
        std::future::pending::<()>().await;
    }
}

impl Hooks for Part {
    fn step(&self, _point: Point) -> BoxFuture<()> {
        let (world, boot) = (Arc::clone(&self.world), Arc::clone(&self.boot));
        Box::pin(async move { step(&world, &boot).await })
    }

    fn flush_fails(&self) -> bool {
        let fails = self.world.flush_fails();
        if fails {
            // A poisoned process is of no more use; the world restarts it.
            self.world.note(format_args!("a flush of {} fails", self.boot.id));
            self.world.inner().injected.insert(Code::StorePoisoned);
            self.world.died.notify_one();
        }
        fails
    }

    fn disk_full(&self) -> bool {
        let full = self.world.disk_full();
        if full {
            self.world.inner().injected.insert(Code::DiskFull);
        }
        full
    }

    fn hint_lost(&self) -> bool {
        self.world.hint_lost()
    }

    fn wrote(&self, batch: &Batch) {
        self.world.wrote(&self.boot, batch);
    }
}

impl Clock for Part {
    fn now(&self) -> Timestamp {
        self.world.now()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(span))
    }
}

impl Driver for Part {
    fn perform(&self, job: EffectJob) -> BoxFuture<bool> {
        let (world, boot) = (Arc::clone(&self.world), Arc::clone(&self.boot));
        Box::pin(async move {
            step(&world, &boot).await;
            if world.agent_refuses() {
                return false;
            }
            world.performed(&job);
            // It was done; whether anybody hears of it is another matter.
            step(&world, &boot).await;
            true
        })
    }

    fn is_live(&self, session: &SessionId) -> bool {
        self.world.agent_is_live(session)
    }
}

impl Executors for Part {
    fn probe(&self, _session: &SessionId, execution: &ExecutionId) -> BoxFuture<Probe> {
        let probe = self.world.inner().executions.get(execution).copied();
        let (world, boot) = (Arc::clone(&self.world), Arc::clone(&self.boot));
        Box::pin(async move {
            step(&world, &boot).await;
            probe.unwrap_or(Probe::Gone)
        })
    }
}

impl Liveness for Outside {
    fn is_alive(&self, boot: &BootId) -> bool {
        self.0.inner().locked.contains(boot)
    }
}

impl Entropy for Outside {
    fn fill(&self, bytes: &mut [u8]) -> Result<()> {
        self.0.fill(bytes);
        Ok(())
    }
}
