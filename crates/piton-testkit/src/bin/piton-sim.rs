//! The simulator at work. `--fresh` draws new seeds, `--seed N [--trace]` replays one, `--seeds N
//! [--from M]` runs many twice each and compares, `--planted` shows what catches each planted bug.
#![expect(clippy::print_stdout, reason = "a program that talks to people")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use piton_core::planted::Bug;
use piton_testkit::planted::{CaughtBy, caught_by};
use piton_testkit::sim::{self, On, Report, Stats};

const FRESH_FOR: Duration = Duration::from_secs(20);
const USAGE: &str =
    "piton-sim [--fresh | --seed N [--trace] | --seeds N [--from M] | --planted] [--store memory | files]

  --fresh      new seeds for twenty seconds (the default)
  --seed N     one seed; with --trace every step of it
  --seeds N    seeds 0 to N-1, or M to N-1, each twice, compared
  --planted    plants each known bug and says what catches it
  --store      which store the worlds have (memory by default)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut on = On::Memory;
    if let Some(at) = words.iter().position(|word| *word == "--store") {
        on = match words.get(at + 1) {
            Some(&"memory") => On::Memory,
            Some(&"files") => On::Files,
            _ => return usage(),
        };
        words.drain(at..at + 2);
    }
    match words.as_slice() {
        [] | ["--fresh"] => fresh(on),
        ["--seed", seed] => number(seed, |seed| one(on, seed, false)),
        ["--seed", seed, "--trace"] => number(seed, |seed| one(on, seed, true)),
        ["--seeds", count] => number(count, |count| many(on, 0, count)),
        ["--seeds", count, "--from", from] => {
            number(count, |count| number(from, |from| many(on, from.min(count), count)))
        }
        ["--planted"] if cfg!(feature = "planted") => planted(on),
        ["--planted"] => {
            println!("piton-sim was built without the feature `planted`");
            ExitCode::FAILURE
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    println!("{USAGE}");
    ExitCode::from(2)
}

fn number(text: &str, run: impl FnOnce(u64) -> ExitCode) -> ExitCode {
    text.parse().map_or_else(|_| usage(), run)
}

fn one(on: On, seed: u64, tracing: bool) -> ExitCode {
    let report = sim::simulate_on(on, seed, None, tracing);
    for line in &report.trace {
        println!("{line}");
    }
    println!("{report}\n{:?}", report.stats);
    verdict(&report)
}

fn verdict(report: &Report) -> ExitCode {
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fresh(on: On) -> ExitCode {
    let base = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let base = u64::try_from(base.as_nanos() & 0xffff_ffff_ffff).unwrap_or_default();
    println!("The simulator breaks the log on purpose for {} seconds.", FRESH_FOR.as_secs());
    println!("First seed: {base}");
    let started = Instant::now();
    let mut total = Stats::default();
    let mut seeds = 0_u64;
    while started.elapsed() < FRESH_FOR {
        let report = sim::simulate_twice_on(on, base + seeds);
        if !report.violations.is_empty() {
            println!("{report}");
            return ExitCode::FAILURE;
        }
        seeds += 1;
        add(&mut total, &report.stats);
        if seeds.is_multiple_of(200) {
            println!("{seeds} seeds, no violation");
        }
    }
    println!("{seeds} seeds, each twice: every property held.");
    summary(&total);
    ExitCode::SUCCESS
}

/// Seeds are shared out to the processors; each simulation is single-threaded and its own world.
fn many(on: On, from: u64, count: u64) -> ExitCode {
    let next = AtomicU64::new(from);
    let failed = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let started = Instant::now();
    let totals = std::thread::scope(|scope| {
        let worker = || {
            let mut total = Stats::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= count {
                    return total;
                }
                let report = sim::simulate_twice_on(on, seed);
                if !report.violations.is_empty() {
                    failed.fetch_add(1, Ordering::Relaxed);
                    println!("{report}");
                }
                add(&mut total, &report.stats);
                if (seed + 1).is_multiple_of(5_000) {
                    println!("{} of {count} seeds, {:.0?}", seed + 1, started.elapsed());
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let mut total = Stats::default();
        for worker in workers {
            if let Ok(stats) = worker.join() {
                add(&mut total, &stats);
            }
        }
        total
    });
    summary(&totals);
    let failed = failed.load(Ordering::Relaxed);
    println!("{} passed, {failed} failed", count - from - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn planted(on: On) -> ExitCode {
    let mut missed = false;
    for bug in Bug::ALL {
        // The others are for tests to notice: `tests/planted.rs`.
        let is_ours = match caught_by(*bug) {
            CaughtBy::Simulator(_) => true,
            CaughtBy::SimulatorOnFiles(_) => on == On::Files,
            CaughtBy::Test(_) => false,
        };
        if !is_ours {
            continue;
        }
        let caught = (0..5_000).find_map(|seed| {
            let report = sim::simulate_on(on, seed, Some(*bug), false);
            report.violations.first().map(|first| (seed, first.clone()))
        });
        if let Some((seed, violation)) = caught {
            println!("{bug:?}: seed {seed}, {violation}");
        } else {
            missed = true;
            println!("{bug:?}: NOT caught");
        }
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn add(total: &mut Stats, one: &Stats) {
    total.lives += one.lives;
    total.steps += one.steps;
    total.operations += one.operations;
    total.acknowledged += one.acknowledged;
    total.delivered += one.delivered;
    total.jobs += one.jobs;
    total.records += one.records;
    total.interruptions += one.interruptions;
    total.answers += one.answers;
    total.replays += one.replays;
    total.idle_ends += one.idle_ends;
    total.failed_starts += one.failed_starts;
    total.abandoned += one.abandoned;
    total.queue_deliveries += one.queue_deliveries;
    total.queue_holds += one.queue_holds;
    total.rule_decisions += one.rule_decisions;
}

fn summary(total: &Stats) {
    println!(
        "{} boots, {} steps, {} records, {} acknowledged, {} delivered, {} effects, {} answers, {} replays, {} idle ends, {} failed starts, {} abandoned, {} queue deliveries, {} queue holds, {} rule decisions",
        total.lives,
        total.steps,
        total.records,
        total.acknowledged,
        total.delivered,
        total.jobs,
        total.answers,
        total.replays,
        total.idle_ends,
        total.failed_starts,
        total.abandoned,
        total.queue_deliveries,
        total.queue_holds,
        total.rule_decisions
    );
}
