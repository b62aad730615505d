//! What is particular to this store: its lines, its files, and what crashes and other people do to
//! them.

mod adoption;
mod ahead;
mod beside;
mod crashes;
mod damage;
mod lines;
mod opening;
mod taken;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use piton_core::id::BootId;
use piton_core::{NewRecord, State, event};

use super::*;
use crate::conformance::{Boots, Driver, Harness, boot, leased, of, session};

/// A store in a temporary folder, with boots that live until killed.
#[derive(Debug)]
struct InFolder {
    folder: tempfile::TempDir,
    boots: Arc<Boots>,
}

impl InFolder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), boots: Arc::default() }
    }

    fn options(&self) -> Options {
        Options { liveness: self.boots.clone(), ..Options::new(self.folder.path()) }
    }

    fn store(&self) -> FilesStore {
        FilesStore::open(self.options()).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("sessions").join(name)
    }
}

impl Harness for InFolder {
    fn open(&self) -> BoxFuture<Arc<dyn Store>> {
        let store = self.store();
        Box::pin(async move { Arc::new(store) as Arc<dyn Store> })
    }

    fn kill(&self, boot: &BootId) {
        self.boots.kill(boot);
    }
}

mod conformance {
    use super::InFolder;

    crate::conformance!(InFolder::new());
    crate::conformance_of_removal!(InFolder::new());
}

/// Small, fast and the same everywhere: what a seed decides must not depend on anything else.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// With a seed that is printed, and can be given again.
    fn new() -> Self {
        let given = std::env::var("PITON_FILES_SEED").ok().and_then(|seed| seed.parse().ok());
        let clock = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
        let seed = given.unwrap_or_else(|| u64::from(clock));
        println!("PITON_FILES_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, limit: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit.max(1) as u64).unwrap()
    }
}

/// Keys that differ, and are the same in every run.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) -> Result<()> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        bytes.fill(u8::try_from(number % 251).unwrap());
        Ok(())
    }
}

const DATA: &str = "/data";

fn at_path(name: &str) -> PathBuf {
    Path::new(DATA).join("sessions").join(name)
}

/// A disk with an empty store.
fn model() -> ModelDisk {
    let disk = ModelDisk::default();
    disk.make_folder(&Path::new(DATA).join("sessions")).unwrap();
    disk.make_folder(Path::new(DATA)).unwrap();
    disk
}

fn open(disk: &ModelDisk) -> Folder {
    try_open(disk).unwrap()
}

fn try_open(disk: &ModelDisk) -> Result<Folder> {
    let (boots, entropy) = (Arc::new(Boots::default()), Arc::new(Counting::default()));
    Folder::open(Arc::new(disk.clone()), Path::new(DATA), Access::ReadWrite, boots, entropy)
}

/// A writer without a store of its own.
fn driver(name: &str) -> Driver {
    let (session, boot) = (session(name), boot("boot_1"));
    Driver { store: None, session, boot, state: State::default() }
}

/// The batch that makes a session and takes its lease.
fn created(driver: &mut Driver) -> Batch {
    let created = event::SessionCreated {
        session_id: driver.session.clone(),
        title: Some("A session".into()),
        task_id: None,
        working_dir: Some("/repo".into()),
        provider: None,
        agent_profile_id: None,
    };
    let lease = leased(&driver.boot, 1);
    driver.batch(vec![of(0, created), lease])
}

fn append(folder: &Folder, driver: &mut Driver, records: Vec<NewRecord>) -> Result<Appended> {
    let batch = driver.batch(records);
    folder.append(&batch)
}

fn all(folder: &Folder, session: &SessionId) -> Result<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map_or(0, |record| record.seq);
        let page = folder.read(session, after, 1_000, Detail::Full)?;
        if page.is_empty() {
            return Ok(records);
        }
        records.extend(page);
    }
}

fn assert_sound(folder: &Folder) {
    for (session, last_seq) in folder.sessions() {
        let found = folder.verify(&session).unwrap();
        assert_eq!((found.good_to, &found.problem), (last_seq, &None), "{session}: {found:?}");
    }
}
