//! What a command costs as a whole process, beside one that does nothing, and how it grows.
//! `cargo bench -p piton-cli --bench cli`

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

#[path = "server/many.rs"]
mod many;
#[expect(dead_code, reason = "the log's benchmarks need all of it")]
#[path = "../../piton-testkit/benches/log/table.rs"]
mod table;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use self::many::fill;
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
