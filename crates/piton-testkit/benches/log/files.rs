//! What an append costs in the store of plain files, beside the same bytes written to a file that
//! grows.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use piton_core::id::BootId;
use piton_store::files::{self, FilesStore};
use piton_store::{Durability, Store};

use crate::rig::{Result, Rig, Session, one_thread, text};
use crate::table::{Seen, Table, Target, short};

const CONTENT: usize = 1_024;
/// A line with that content: its header, its hashes and the punctuation.
const LINE: usize = CONTENT + 420;
const BLOCK: usize = 10;
const ROUNDS: usize = 150;

/// A file that grows with every write.
struct Growing {
    file: File,
    at: u64,
}

impl Growing {
    fn new(folder: &Path) -> Result<Self> {
        Ok(Self { file: File::create_new(folder.join("growing"))?, at: 0 })
    }

    fn write(&mut self) -> Result<Duration> {
        let bytes = text(LINE);
        let begin = Instant::now();
        self.file.write_all_at(bytes.as_bytes(), self.at)?;
        self.file.sync_data()?;
        let took = begin.elapsed();
        self.at += LINE as u64;
        Ok(took)
    }
}

pub(crate) fn one_writer(rig: &Rig, table: &mut Table) -> Result<()> {
    let folder = rig.folder()?;
    let mut growing = Growing::new(folder.path())?;
    let store = FilesStore::open(files::Options::new(folder.path().join("data")))?;
    let runtime = one_thread()?;
    let boot: BootId = "boot_bench".parse()?;
    let mut session = Session::new(1, &boot)?;
    let batch = session.batch(session.created(), Durability::Synced);
    runtime.block_on(store.append(batch))?;
    let mut one = || -> Result<Duration> {
        let record = session.piece(&text(CONTENT))?;
        let batch = session.batch(vec![record], Durability::Synced);
        let begin = Instant::now();
        runtime.block_on(store.append(batch))?;
        Ok(begin.elapsed())
    };
    let before = store.stats();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // In turns, and who begins alternates.
        for turn in 0..2 {
            let mine = (turn + round) % 2 == 0;
            let times: Vec<Duration> = (0..BLOCK)
                .map(|_| if mine { one() } else { growing.write() })
                .collect::<Result<_>>()?;
            let median = Seen::micros(&times).median();
            if mine { ours.push(median) } else { theirs.push(median) }
        }
    }
    let after = store.stats();
    let (batches, flushes) = (after.batches - before.batches, after.flushes - before.flushes);
    let show = |values: &[f64]| format!("{} µs", short(Seen::new(values.to_vec()).median()));
    table.ratio(
        "f. files: synced append of 1 KB, p50",
        (show(&ours), show(&theirs)),
        Seen::ratios(&ours, &theirs),
        Target::AtMost(1.5),
        format!(
            "medians of {ROUNDS} rounds of {BLOCK}, in turns with write+fdatasync of {LINE} bytes \
             to a file that grows; {batches} batches, {flushes} flushes"
        ),
    );
    Ok(())
}
