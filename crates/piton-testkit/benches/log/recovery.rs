//! What it costs to begin again after the process was killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_core::Event;
use piton_core::id::BootId;
use piton_runtime::{Options, Outcome, Service};
use piton_store::{BootLocks, Durability, OsEntropy, SqliteStore, Store};
use rusqlite::Connection;

use crate::rig::{Result, Rig, Session, many_threads, open, text};
use crate::table::{Seen, Table, Target, short};

const RUNS: usize = 1_000;
const RECORDS: usize = 100;
const BATCH: usize = 10;
const CONTENT: usize = 200;

/// In a process of its own: makes open runs under its own lock, says so, and waits to be killed.
#[expect(clippy::print_stdout, reason = "tells the parent that everything is durable")]
pub(crate) fn build_and_wait(folder: &Path) -> Result<()> {
    let boot: BootId = "boot_killed".parse()?;
    let _guard = BootLocks::new(folder).hold(boot.clone())?;
    let store = open(folder)?;
    let mut appends = Vec::new();
    let mut sessions =
        (0..RUNS).map(|number| Session::new(number, &boot)).collect::<Result<Vec<_>>>()?;
    let content = text(CONTENT);
    // All sessions grow at the same time, so that no log lies in one piece.
    for upto in (BATCH..=RECORDS).step_by(BATCH) {
        for (number, session) in sessions.iter_mut().enumerate() {
            let mut records = Vec::new();
            if upto == BATCH {
                records = session.created();
                records.push(session.run_started(number)?);
            }
            while records.len() < BATCH {
                records.push(session.piece(&content)?);
            }
            appends.push(store.append(session.batch(records, Durability::Buffered)));
        }
    }
    many_threads()?.block_on(async {
        for append in appends {
            append.await?;
        }
        Ok::<_, piton_store::Error>(())
    })?;
    println!("durable");
    loop {
        std::thread::park();
    }
}

/// A folder as a killed process left it.
fn killed(folder: &Path) -> Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--child", "crash"])
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()?;
    let said = child.stdout.take().map(BufReader::new).map(|mut out| {
        let mut line = String::new();
        out.read_line(&mut line).map(|_| line)
    });
    child.kill()?;
    child.wait()?;
    match said {
        Some(Ok(line)) if line.trim() == "durable" => Ok(()),
        other => Err(format!("the child did not get there: {other:?}").into()),
    }
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else if !entry.file_name().to_string_lossy().ends_with("-shm") {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) opened: Duration,
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    pub(crate) total: Duration,
}

/// Opens a store and recovers what is open in it.
pub(crate) fn recover(folder: &Path, expected: usize) -> Result<Times> {
    let boot: BootId = format!("boot_{}", text(16)).parse()?;
    let locks = BootLocks::new(folder);
    let begin = Instant::now();
    let _guard = locks.hold(boot.clone())?;
    let store = open(folder)?;
    let opened = begin.elapsed();
    let runtime = many_threads()?;
    let mut settled = Vec::new();
    let mut others = 0;
    let options = Options::new(boot, store, Arc::new(locks), Arc::new(OsEntropy));
    let service = runtime.block_on(Service::start(options, |recovered| {
        if recovered.outcome == Outcome::Settled {
            settled.push(begin.elapsed());
        } else {
            others += 1;
        }
    }))?;
    let total = begin.elapsed();
    runtime.block_on(service.shut_down());
    match (settled.first(), settled.last()) {
        (Some(&first), Some(&last)) if settled.len() == expected && others == 0 => {
            Ok(Times { opened, first, last, total })
        }
        _ => Err(format!("{} sessions settled, {others} not", settled.len()).into()),
    }
}

/// Opens the database and looks at every record's header once.
fn scan(folder: &Path) -> Result<Duration> {
    let begin = Instant::now();
    let conn = Connection::open(folder.join("store.sqlite3"))?;
    let mut select = conn.prepare("SELECT rid, ts, kind, header FROM records")?;
    let mut rows = select.query([])?;
    let mut parsed = 0;
    while let Some(row) = rows.next()? {
        let event = Event::parse(row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_str()?)?;
        std::hint::black_box((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, event));
        parsed += 1;
    }
    let took = begin.elapsed();
    if parsed == RUNS * RECORDS { Ok(took) } else { Err(format!("{parsed} records").into()) }
}

pub(crate) fn after_a_kill(rig: &Rig, table: &mut Table) -> Result<()> {
    const ROUNDS: usize = 9;
    let folder = rig.folder()?;
    killed(folder.path())?;
    let (mut ours, mut theirs, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        for turn in 0..2 {
            let copied = rig.folder()?;
            copy(folder.path(), copied.path())?;
            // What was copied is still on its way to the disk, and would be in the way.
            settle(copied.path())?;
            if (turn + round) % 2 == 0 {
                let one = recover(copied.path(), RUNS)?;
                ours.push(one.total.as_secs_f64());
                firsts.push(one.first.as_secs_f64() / one.last.as_secs_f64());
                times.push(one);
            } else {
                theirs.push(scan(copied.path())?.as_secs_f64());
            }
        }
    }
    let of = |pick: fn(&Times) -> Duration| {
        short(Seen::millis(&times.iter().map(pick).collect::<Vec<_>>()).median())
    };
    let scans = Seen::new(theirs.iter().map(|seconds| seconds * 1e3).collect());
    table.ratio(
        "c. 1,000 open runs, 100,000 records, after SIGKILL: open + recover",
        (format!("{} ms", of(|t| t.total)), format!("{} ms", short(scans.median()))),
        Seen::ratios(&ours, &theirs),
        Target::AtMost(3.0),
        format!(
            "{ROUNDS} rounds in turns, each on its own copy of what a killed process left, in the \
             page cache; from before the store is opened until Service::start returns; against \
             opening the database, reading all headers in the order of the table and Event::parse. Medians: opened \
             after {} ms, first settled after {} ms, last after {} ms.",
            of(|t| t.opened),
            of(|t| t.first),
            of(|t| t.last)
        ),
    );
    let firsts = Seen::new(firsts);
    table.ratio(
        "c. First session settled, as a part of the last",
        (format!("{} ms", of(|t| t.first)), format!("{} ms", of(|t| t.last))),
        firsts,
        Target::AtMost(0.25),
        "the same rounds.",
    );
    Ok(())
}

/// Flushes every file of a folder.
pub(crate) fn settle(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            fs::File::open(path)?.sync_all()?;
        }
    }
    Ok(())
}

/// Opens runs again under a boot that is dead as soon as this returns.
pub(crate) fn open_runs(folder: &Path, runs: usize, round: usize) -> Result<()> {
    let boot: BootId = format!("boot_dead_{}", text(16)).parse()?;
    let guard = BootLocks::new(folder).hold(boot.clone())?;
    let store: Arc<SqliteStore> = open(folder)?;
    many_threads()?.block_on(async {
        for number in 0..runs {
            let mut session = Session::load(&*store, number, &boot).await?;
            let records = vec![session.leased(), session.run_started(round * runs + number)?];
            // Under the lease that the batch itself takes.
            store.append(session.batch(records, Durability::Synced)).await?;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    store.close();
    drop(guard);
    Ok(())
}
