//! What a command costs as a whole process, beside one that does nothing, and how it grows.
//! `cargo bench -p piton-cli --bench cli`

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

#[expect(dead_code, reason = "the log's benchmarks need all of it")]
#[path = "../../piton-testkit/benches/log/table.rs"]
mod table;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_core::event::{SessionCreated, SessionLeased};
use piton_core::id::{BootId, SessionId};
use piton_core::{NewRecord, State, Timestamp};
use piton_store::{Batch, Durability, Guard, SqliteStore, Store, sqlite};

use self::table::{Seen, Table, Target, short};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const FEW: usize = 100;
const MANY: usize = 100_000;
const ROUNDS: usize = 60;

fn main() -> Result<()> {
    let mut table = Table::default();
    version(&mut table)?;
    list(&mut table)?;
    println!("{table}");
    Ok(())
}

/// A process from its start to its end.
fn time(program: &Path, arguments: &[&str]) -> Result<Duration> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("HOME", "/nowhere");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let status = command.status()?;
    let took = begin.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{arguments:?}: {status}").into()) }
}

fn in_turns(
    mut ours: impl FnMut() -> Result<Duration>,
    mut theirs: impl FnMut() -> Result<Duration>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for turn in 0..2 {
            if (turn + round) % 2 == 0 {
                a.push(ours()?.as_secs_f64() * 1e3);
            } else {
                b.push(theirs()?.as_secs_f64() * 1e3);
            }
        }
    }
    Ok((a, b))
}

fn row(table: &mut Table, what: &str, (ours, theirs): (Vec<f64>, Vec<f64>), method: &str) {
    let cell = |values: &[f64]| format!("{} ms", short(Seen::new(values.to_vec()).median()));
    let cells = (cell(&ours), cell(&theirs));
    let ratios = Seen::ratios(&ours, &theirs);
    table.ratio(
        what,
        cells,
        ratios,
        Target::AtMost(3.0),
        format!("{ROUNDS} rounds in turns; {method}"),
    );
}

fn version(table: &mut Table) -> Result<()> {
    let piton = Path::new(env!("CARGO_BIN_EXE_piton"));
    let nothing = Path::new("/bin/true");
    let seen = in_turns(|| time(piton, &["--version"]), || time(nothing, &[]))?;
    row(table, "h. piton --version", seen, "whole processes; against /bin/true.");
    Ok(())
}

fn list(table: &mut Table) -> Result<()> {
    let base = tempfile::TempDir::with_prefix_in("bench-cli-", env!("CARGO_TARGET_TMPDIR"))?;
    let (few, many) = (base.path().join("few"), base.path().join("many"));
    fill(&few, FEW)?;
    fill(&many, MANY)?;
    let piton = Path::new(env!("CARGO_BIN_EXE_piton"));
    let one = |data: &Path| -> Result<Duration> {
        let data = data.to_str().ok_or("the path is not UTF-8")?;
        time(piton, &["--data", data, "sessions", "list"])
    };
    let seen = in_turns(|| one(&many), || one(&few))?;
    let what = format!("i. piton sessions list, {MANY} sessions (sqlite)");
    row(table, &what, seen, &format!("whole processes; against {FEW} sessions."));
    Ok(())
}

/// A store with many sessions, each as it is when it was just made.
fn fill(folder: &Path, sessions: usize) -> Result<()> {
    const AT_ONCE: usize = 1_000;
    let store = Arc::new(SqliteStore::open(sqlite::Options::new(folder))?);
    let boot: BootId = "boot_bench".parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    for from in (0..sessions).step_by(AT_ONCE) {
        let appends: Vec<_> = (from..sessions.min(from + AT_ONCE))
            .map(|number| Ok(store.append(created(number, &boot)?)))
            .collect::<Result<_>>()?;
        runtime.block_on(async {
            for append in appends {
                append.await?;
            }
            Ok::<_, piton_store::Error>(())
        })?;
    }
    store.close();
    Ok(())
}

fn created(number: usize, boot: &BootId) -> Result<Batch> {
    let session: SessionId = format!("sess_{number:032x}").parse()?;
    let ts = Timestamp::from_millis(1_771_668_000_000 + i64::try_from(number)?);
    let created = SessionCreated {
        session_id: session.clone(),
        title: Some(format!("Session number {number}")),
        task_id: None,
        working_dir: None,
        provider: None,
        agent_profile_id: None,
    };
    let leased = SessionLeased { boot_id: boot.clone(), epoch: 1 };
    let records = vec![NewRecord::new(ts, created), NewRecord::new(ts, leased)];
    let mut state = State::default();
    for (seq, record) in (1..).zip(&records) {
        state.apply(seq, record.ts, &record.event);
    }
    let guard = Guard::Lease { boot: boot.clone(), epoch: 1 };
    let (summary, durability) = (state.summary(), Durability::Buffered);
    Ok(Batch { session, expected: 0, guard, records, durability, summary })
}
