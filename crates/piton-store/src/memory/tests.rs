use std::sync::{Arc, Mutex};

use super::*;
use crate::conformance::{Boots, Harness};
use crate::contract::OsEntropy;
use piton_core::id::BootId;

/// A modelled disk; reopening it is what a power loss leaves.
#[derive(Debug, Default)]
struct OnDisk {
    disk: Arc<Mutex<Disk>>,
    boots: Arc<Boots>,
}

impl Harness for OnDisk {
    fn open(&self) -> BoxFuture<Arc<dyn Store>> {
        self.disk.lock().unwrap().power_loss(&mut |_| 0);
        let (disk, boots) = (Arc::clone(&self.disk), Arc::clone(&self.boots));
        let store = MemoryStore::open(disk, boots, Arc::new(OsEntropy), Arc::new(Reliable));
        Box::pin(std::future::ready(Arc::new(store) as Arc<dyn Store>))
    }

    fn kill(&self, boot: &BootId) {
        self.boots.kill(boot);
    }
}

mod conformance {
    use super::OnDisk;

    crate::conformance!(OnDisk::default());
    crate::conformance_of_removal!(OnDisk::default());
}
