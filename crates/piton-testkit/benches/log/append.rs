//! What an append costs: one writer against the bare disk, 64 against bare SQLite.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_core::NewRecord;
use piton_core::id::BootId;
use piton_store::{Durability, SqliteStore, Store};
use rusqlite::Connection;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::rig::{Result, Rig, Session, many_threads, one_thread, open, text};
use crate::table::{Seen, Table, Target, short};

const PAGE: usize = 4_096;
const CONTENT: usize = 1_024;

/// A file whose space is written already: overwriting it changes no metadata.
struct Bare {
    file: File,
    page: u64,
}

impl Bare {
    const PAGES: u64 = 8_192;

    fn new(folder: &Path) -> Result<Self> {
        let file = File::create_new(folder.join("bare"))?;
        for page in 0..Self::PAGES {
            file.write_all_at(&[1; PAGE], page * PAGE as u64)?;
        }
        file.sync_all()?;
        Ok(Self { file, page: 0 })
    }

    fn write(&mut self) -> Result<Duration> {
        let bytes = [u8::try_from(self.page % 251)?; PAGE];
        let begin = Instant::now();
        self.file.write_all_at(&bytes, self.page * PAGE as u64)?;
        self.file.sync_data()?;
        let took = begin.elapsed();
        self.page = (self.page + 1) % Self::PAGES;
        Ok(took)
    }
}

type Make = fn(&mut Session, &str) -> Result<NewRecord>;

const BLOCK: usize = 10;
const CORES_MAX: usize = 2;

/// What one writer's rounds came to.
#[derive(Default)]
struct Single {
    ours: Vec<f64>,
    theirs: Vec<f64>,
    all: Vec<Duration>,
    all_bare: Vec<Duration>,
    batches: u64,
    flushes: u64,
}

impl Single {
    fn measure(&mut self, rig: &Rig, make: Make, rounds: usize) -> Result<()> {
        let folder = rig.folder()?;
        let mut bare = Bare::new(folder.path())?;
        let store = open(folder.path())?;
        let runtime = one_thread()?;
        let mut session = Session::new(1, &boot()?)?;
        let batch = session.batch(session.created(), Durability::Synced);
        runtime.block_on(store.append(batch))?;
        let mut one = || -> Result<Duration> {
            let record = make(&mut session, &text(CONTENT))?;
            let batch = session.batch(vec![record], Durability::Synced);
            let begin = Instant::now();
            runtime.block_on(store.append(batch))?;
            Ok(begin.elapsed())
        };
        let before = store.stats();
        for round in 0..rounds {
            // In turns, and who begins alternates.
            for turn in 0..2 {
                let mine = (turn + round) % 2 == 0;
                let times: Vec<Duration> = (0..BLOCK)
                    .map(|_| if mine { one() } else { bare.write() })
                    .collect::<Result<_>>()?;
                let median = Seen::micros(&times).median();
                if mine {
                    self.ours.push(median);
                    self.all.extend(times);
                } else {
                    self.theirs.push(median);
                    self.all_bare.extend(times);
                }
            }
        }
        let after = store.stats();
        self.batches += after.batches - before.batches;
        self.flushes += after.flushes - before.flushes;
        Ok(())
    }
}

pub(crate) fn one_writer(rig: &Rig, table: &mut Table) -> Result<()> {
    const ROUNDS: usize = 150;
    let kinds: [(&str, Make); 2] = [
        ("a. One writer, synced append of 1 KB, p50", Session::piece),
        ("a. The same, moving its index row too, p50", |_, text| Session::message(text)),
    ];
    let cores = sched_getaffinity(None)?;
    for (what, make) in kinds {
        let mut seen = Single::default();
        // The disk's interrupts reach one core sooner than the others: both sides run on the same.
        for core in (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)).take(CORES_MAX) {
            let mut one = CpuSet::new();
            one.set(core);
            sched_setaffinity(None, &one)?;
            seen.measure(rig, make, ROUNDS)?;
        }
        sched_setaffinity(None, &cores)?;
        let Single { ours, theirs, all, all_bare, batches, flushes } = seen;
        let cells = (
            format!("{} µs", short(Seen::micros(&all).median())),
            format!("{} µs", short(Seen::micros(&all_bare).median())),
        );
        let (all, all_bare) = (Seen::micros(&all), Seen::micros(&all_bare));
        table.ratio(
            what,
            cells,
            Seen::ratios(&ours, &theirs),
            Target::AtMost(2.0),
            format!(
                "{ROUNDS} rounds of {BLOCK} appends and {BLOCK} bare writes in turns on each core, \
                 with all threads on that core; awaited on a current-thread runtime, from the call \
                 to the answer; against pwrite of 4 KiB + fdatasync over written space in the same \
                 folder. Single appends: {} µs; single \
                 bare writes: {} µs.",
                all.spread(),
                all_bare.spread()
            ),
        );
        table.value("a. Flushes per append", per(flushes, batches), "", Target::AtMost(1.0), "");
    }
    Ok(())
}

fn boot() -> Result<BootId> {
    Ok("boot_bench".parse()?)
}

fn per(some: u64, all: u64) -> f64 {
    Duration::from_micros(some).as_secs_f64() / Duration::from_micros(all).as_secs_f64()
}

const SESSIONS: usize = 64;
const APPENDS: usize = 100;

pub(crate) fn many_writers(rig: &Rig, table: &mut Table) -> Result<()> {
    const ROUNDS: usize = 16;
    let folder = rig.folder()?;
    let store = open(folder.path())?;
    let raws = [Raw::new(folder.path(), Rows::Plain)?, Raw::new(folder.path(), Rows::Logs)?];
    let runtime = many_threads()?;
    let boot = boot()?;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let mut session = Session::new(number, &boot)?;
        let batch = session.batch(session.created(), Durability::Synced);
        runtime.block_on(store.append(batch))?;
        sessions.push(session);
    }
    let before = store.stats();
    let (mut ours, mut theirs) = (Vec::new(), [Vec::new(), Vec::new()]);
    let rate = |took: Duration| {
        let appends = Duration::from_millis((SESSIONS * APPENDS) as u64).as_secs_f64() * 1e3;
        appends / took.as_secs_f64()
    };
    for round in 0..ROUNDS {
        for turn in 0..3 {
            match (turn + round) % 3 {
                0 => {
                    let (took, back) = runtime.block_on(all_append(&store, sessions))?;
                    sessions = back;
                    ours.push(rate(took));
                }
                which => theirs[which - 1].push(rate(raws[which - 1].write(round)?)),
            }
        }
    }
    let after = store.stats();
    let method = format!(
        "{ROUNDS} rounds in turns; 64 tasks on a runtime with as many threads as cores, each \
         awaiting {APPENDS} appends one after the other; against SQLite with the same pragmas, one \
         thread, 64 rows of 1 KB per commit, neither encrypted nor chained"
    );
    for (theirs, name, rows) in [
        (&theirs[0], "b. 64 concurrent sessions, synced appends of 1 KB", "with growing keys"),
        (
            &theirs[1],
            "b. The same, against rows that can be found by session and seq",
            "one for each of 64 sessions, with PRIMARY KEY(session, seq)",
        ),
    ] {
        let cells = (
            format!("{} /s", short(Seen::new(ours.clone()).median())),
            format!("{} /s", short(Seen::new(theirs.clone()).median())),
        );
        let ratios = Seen::ratios(&ours, theirs);
        table.ratio(name, cells, ratios, Target::AtLeast(0.5), format!("{method}, {rows}."));
    }
    let flushes = per(after.flushes - before.flushes, after.batches - before.batches);
    table.value("b. Flushes per append", flushes, "", Target::AtMost(0.1), "");
    Ok(())
}

async fn all_append(
    store: &Arc<SqliteStore>,
    sessions: Vec<Session>,
) -> Result<(Duration, Vec<Session>)> {
    let contents: Arc<Vec<String>> = Arc::new((0..APPENDS).map(|_| text(CONTENT)).collect());
    let begin = Instant::now();
    let tasks: Vec<_> = sessions
        .into_iter()
        .map(|mut session| {
            let (store, contents) = (store.clone(), contents.clone());
            tokio::spawn(async move {
                for content in contents.iter() {
                    let records = vec![session.piece(content)?];
                    store.append(session.batch(records, Durability::Synced)).await?;
                }
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(session)
            })
        })
        .collect();
    let mut back = Vec::new();
    for task in tasks {
        back.push(task.await??);
    }
    Ok((begin.elapsed(), back))
}

/// Bare SQLite: the simplest program that only appends rows.
struct Raw {
    conn: Connection,
    rows: Rows,
}

/// What the rows can be found by.
#[derive(Clone, Copy)]
enum Rows {
    /// Nothing: one after the other.
    Plain,
    /// Their session and their place in it, as records must be.
    Logs,
}

impl Raw {
    fn new(folder: &Path, rows: Rows) -> Result<Self> {
        let (file, table) = match rows {
            Rows::Plain => ("raw.sqlite3", "rows(no INTEGER PRIMARY KEY, content BLOB NOT NULL)"),
            Rows::Logs => (
                "raw-logs.sqlite3",
                "rows(session INTEGER NOT NULL, seq INTEGER NOT NULL, content BLOB NOT NULL,
                      PRIMARY KEY(session, seq))",
            ),
        };
        let conn = Connection::open(folder.join(file))?;
        conn.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             PRAGMA journal_size_limit = -1; PRAGMA wal_autocheckpoint = 2000;
             CREATE TABLE {table};"
        ))?;
        Ok(Self { conn, rows })
    }

    fn write(&self, round: usize) -> Result<Duration> {
        let content = text(CONTENT);
        let begin = Instant::now();
        for append in 0..APPENDS {
            self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            match self.rows {
                Rows::Plain => {
                    let insert = "INSERT INTO rows(content) VALUES (?1)";
                    let mut insert = self.conn.prepare_cached(insert)?;
                    for _ in 0..SESSIONS {
                        insert.execute([content.as_bytes()])?;
                    }
                }
                Rows::Logs => {
                    let insert = "INSERT INTO rows(session, seq, content) VALUES (?1, ?2, ?3)";
                    let mut insert = self.conn.prepare_cached(insert)?;
                    for session in 0..SESSIONS {
                        let seq = i64::try_from(round * APPENDS + append)?;
                        insert.execute((i64::try_from(session)?, seq, content.as_bytes()))?;
                    }
                }
            }
            self.conn.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(begin.elapsed())
    }
}
