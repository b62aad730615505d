//! The simulator's seeds: some thousand here, a hundred thousand in `make soak`. A program of its own,
//! because it takes all cores: tests that wait for real processes are not run beside it.
#![expect(clippy::print_stdout, reason = "these are tests")]

use std::sync::atomic::{AtomicU64, Ordering};

use piton_testkit::sim::{self, On, Report};

/// Two of five have agents as the world plays them, two have agentctls, and in one of five the
/// runtime brings them back. As many as two cores run in two minutes: about 0.09 s of one core for a
/// seed that is run twice, 0.3 s on files.
const SEEDS: u64 = 1_400;
const FILES_SEEDS: u64 = 320;

/// Seeds that found something once. Each broke what its line says; none may break anything again.
const REGRESSIONS: &[(u64, &str)] = &[
    (
        768,
        "an agent was started beside an execution that was given up while it could not be reached",
    ),
    (35, "a writer that had lost its session saved a snapshot of records that were refused"),
    (196, "a wait that was answered was opened again by a late repetition of its question"),
    (1_569, "the books still had a batch that was lost and written over"),
    (1_220, "two clients heard of one answer in the other order than it happened"),
    (23, "an idle agent that outlived its server was followed by nobody"),
    (38, "a late message that was masked ended with the length that it had before"),
    (327, "a launch that was not answered left an agent beside the next one"),
    (7, "a prompt was never given: the agent became ready while it was being refused"),
    (107, "an agent was left at a run that was interrupted without it, and was busy for ever"),
    (848, "a masked message that an interruption cut ended with the hash it had before"),
    (738, "an execution that was gone was launched after all"),
    (33_033, "the cursor of a spool was forgotten because a clock that jumped gave it an old id"),
    (
        21,
        "an agent that had forgotten all was said to know it when it went on where it knew nothing",
    ),
    (3_081, "what an agent was told with a prompt that it refused counted as known"),
    (364, "the same, when somebody had cancelled the run before it was refused"),
    (1_067, "a paused run's prompt was given to an agent again after the first one was given up"),
    (1_241, "an agent whose start was not answered was said to have failed, and ran"),
    (1_567, "a queued prompt that was repeated after it had been removed was queued again"),
    (2_445, "the same"),
    (2_999, "the same"),
    (3_390, "the same"),
];

/// Every property holds in thousands of worlds that break, and each world breaks the same way
/// twice.
#[test]
fn thousands_of_seeds() {
    hold(On::Memory, SEEDS);
}

/// The same on plain files, with torn lines, lost names and spoiled caches.
#[test]
fn hundreds_of_seeds_on_files() {
    hold(On::Files, FILES_SEEDS);
}

fn hold(on: On, seeds: u64) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let worker = || {
        let mut failed: Vec<Report> = Vec::new();
        let mut sums = [0; 13];
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return (failed, sums);
            }
            let report = sim::simulate_twice_on(on, seed);
            let stats = report.stats;
            let happened = [
                stats.acknowledged,
                stats.delivered,
                stats.jobs,
                stats.interruptions,
                stats.answers,
                stats.replays,
                stats.visits,
                stats.idle_ends,
                stats.failed_starts,
                stats.abandoned,
                stats.queue_deliveries,
                stats.queue_holds,
                stats.rule_decisions,
            ];
            sums.iter_mut().zip(happened).for_each(|(sum, more)| *sum += more);
            if !report.violations.is_empty() {
                failed.push(report);
            }
        }
    };
    let (mut failed, mut sums) = (Vec::new(), [0; 13]);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            let (reports, happened) = worker.join().expect("a simulation does not panic");
            failed.extend(reports);
            sums.iter_mut().zip(happened).for_each(|(sum, more)| *sum += more);
        }
    });
    for report in &failed {
        println!("{report}");
    }
    assert!(failed.is_empty(), "{} of {seeds} seeds failed", failed.len());
    // Worlds in which nothing happens would pass too.
    let (visits, others) = (sums[6], &sums[..6]);
    assert!(others.iter().all(|sum| *sum > seeds / 4), "too little happened: {sums:?}");
    // Of these there are enough if each happens in some worlds.
    assert!(sums[7..].iter().all(|sum| *sum > seeds / 50), "too little happened: {sums:?}");
    // Plain files have room for one process: there are no offline writers.
    assert!(visits > seeds / 4 || on == On::Files, "too few visits: {visits}");
}

#[test]
fn seeds_that_once_failed() {
    for (seed, what) in REGRESSIONS {
        let report = sim::simulate_twice(*seed);
        assert!(report.violations.is_empty(), "{what}: {report}");
    }
}
