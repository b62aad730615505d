//! Whether a large store costs more to open than a small one.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;

use piton_core::id::BootId;
use piton_store::{BootLocks, Durability, Store};

use crate::recovery::{open_runs, recover, settle};
use crate::rig::{Result, Rig, Session, many_threads, open, text};
use crate::table::{Seen, Table, Target, short};

const OPEN_RUNS: usize = 100;
const RECORDS: usize = 50;
const SMALL: usize = 1_000;
const LARGE: usize = 20_000;
const FULL: usize = 100_000;
const CONTENT: usize = 64;
/// Batches on their way to the store while it is built.
const INFLIGHT: usize = 2_048;

/// A store of so many sessions, none of them open.
fn build(folder: &Path, sessions: usize) -> Result<()> {
    let boot: BootId = "boot_builder".parse()?;
    let _guard = BootLocks::new(folder).hold(boot.clone())?;
    let store = open(folder)?;
    let content = text(CONTENT);
    many_threads()?.block_on(async {
        let mut inflight = VecDeque::new();
        for number in 0..sessions {
            let mut session = Session::new(number, &boot)?;
            let mut records = session.created();
            while records.len() < RECORDS {
                records.push(session.piece(&content)?);
            }
            inflight.push_back(store.append(session.batch(records, Durability::Buffered)));
            if inflight.len() >= INFLIGHT
                && let Some(first) = inflight.pop_front()
            {
                first.await?;
            }
        }
        for append in inflight {
            append.await?;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    store.close();
    settle(folder)
}

/// In a process of its own: opens, recovers, and says how long and how much.
#[expect(clippy::print_stdout, reason = "read by the parent")]
pub(crate) fn open_and_report(folder: &Path) -> Result<()> {
    let times = recover(folder, OPEN_RUNS)?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .ok_or("the kernel does not say the peak")?;
    println!("{} {} {peak}", times.opened.as_micros(), times.total.as_micros());
    Ok(())
}

#[derive(Debug, Default)]
struct Reports {
    opened: Vec<f64>,
    millis: Vec<f64>,
    mib: Vec<f64>,
}

impl Reports {
    fn ask(&mut self, folder: &Path) -> Result<()> {
        let child = Command::new(std::env::current_exe()?)
            .args(["--child", "open"])
            .arg(folder)
            .stderr(std::process::Stdio::inherit())
            .output()?;
        let said = String::from_utf8(child.stdout)?;
        let figures: Vec<f64> =
            said.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
        let [opened, total, peak] = figures.as_slice() else {
            return Err(format!("the child said {said:?}").into());
        };
        self.opened.push(opened / 1e3);
        self.millis.push(total / 1e3);
        self.mib.push(peak / 1024.0);
        Ok(())
    }
}

pub(crate) fn measure(rig: &Rig, full: bool, table: &mut Table) -> Result<()> {
    const ROUNDS: usize = 11;
    let sessions = if full { FULL } else { LARGE };
    let (large, small) = (rig.folder()?, rig.folder()?);
    build(large.path(), sessions)?;
    build(small.path(), SMALL)?;
    let (mut of_large, mut of_small) = (Reports::default(), Reports::default());
    for round in 0..ROUNDS {
        for turn in 0..2 {
            let (folder, reports) = if (turn + round) % 2 == 0 {
                (large.path(), &mut of_large)
            } else {
                (small.path(), &mut of_small)
            };
            open_runs(folder, OPEN_RUNS, round)?;
            settle(folder)?;
            reports.ask(folder)?;
        }
    }
    let name = format!(
        "{} sessions, {} records, 100 open runs{}",
        sessions,
        sessions * RECORDS,
        if full { "" } else { " (REDUCED; --full for 100,000 and 5 million)" }
    );
    let median = |values: &[f64]| Seen::new(values.to_vec()).median();
    let cells = |a: &[f64], b: &[f64], unit: &str| {
        (format!("{} {unit}", short(median(a))), format!("{} {unit}", short(median(b))))
    };
    table.ratio(
        format!("d. {name}: time to open + recover"),
        cells(&of_large.millis, &of_small.millis, "ms"),
        Seen::ratios(&of_large.millis, &of_small.millis),
        Target::AtMost(3.0),
        format!(
            "{ROUNDS} rounds in turns, each in a process of its own, files in the page cache; \
             against a store of {SMALL} sessions and {} records with the same 100 runs, left open \
             by a dead boot before each round. Opened alone: {} and {} ms.",
            SMALL * RECORDS,
            short(median(&of_large.opened)),
            short(median(&of_small.opened)),
        ),
    );
    table.ratio(
        "d. The same: peak memory",
        cells(&of_large.mib, &of_small.mib, "MiB"),
        Seen::ratios(&of_large.mib, &of_small.mib),
        Target::AtMost(3.0),
        "VmHWM of those processes.",
    );
    Ok(())
}
