//! The simulator's seeds: some thousand here, a hundred thousand in `make soak`.
#![expect(clippy::print_stdout, reason = "these are tests")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use piton_core::planted::Bug;
use piton_testkit::sim::{self, On, Property, Report};

/// Two of five have agents as the world plays them, two have agentctls, and in one of five the
/// runtime brings them back.
const SEEDS: u64 = 3_400;
const FILES_SEEDS: u64 = 850;

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
        let mut sums = [0; 7];
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
                stats.deeds,
                stats.interruptions,
                stats.answers,
                stats.replays,
                stats.visits,
            ];
            sums.iter_mut().zip(happened).for_each(|(sum, more)| *sum += more);
            if !report.violations.is_empty() {
                failed.push(report);
            }
        }
    };
    let (mut failed, mut sums) = (Vec::new(), [0; 7]);
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
    // Plain files have room for one process: nobody visits there.
    assert!(visits > seeds / 4 || on == On::Files, "too few visits: {visits}");
}

#[test]
fn seeds_that_once_failed() {
    for (seed, what) in REGRESSIONS {
        let report = sim::simulate_twice(*seed);
        assert!(report.violations.is_empty(), "{what}: {report}");
    }
}

/// The properties that must notice a bug. Others may notice it too.
fn caught_by(bug: Bug) -> &'static [Property] {
    match bug {
        Bug::FlushLeftOut => &[Property::AcknowledgedIsDurable, Property::CommitThenAct],
        Bug::EpochIgnored => &[Property::OneWriter],
        Bug::TokenCheckSkipped => &[Property::TokensSingleUse, Property::NothingTwice],
        Bug::BatchSplit => &[Property::BatchesAreWhole],
        Bug::WakeUpTrusted => &[Property::DeliveredInOrder],
        Bug::SnapshotStale => &[Property::SnapshotIsReplay],
        Bug::InterruptedTwice => &[Property::OneInterruption],
        Bug::ActBeforeCommit => &[Property::CommitThenAct],
        Bug::CursorLeftOut | Bug::AckBeforeDurable => &[Property::SaidOnce],
        Bug::LaunchedBeside => &[Property::OneAgent],
        Bug::CommandIdNew => &[Property::DeliveredOnce],
        Bug::SilenceIsDeath => &[Property::GoneIsInterrupted],
        Bug::AnswerKeptBack => &[Property::QuestionKept],
    }
}

/// On files, too: a flush that is left out and a batch that is not whole are noticed. The others
/// are planted outside of the store, or need two processes.
#[test]
fn planted_bugs_of_the_store_are_caught_on_files() {
    for (bug, property) in [
        (Bug::FlushLeftOut, Property::AcknowledgedIsDurable),
        (Bug::BatchSplit, Property::BatchesAreWhole),
    ] {
        let caught = (0..500).find(|seed| {
            let report = sim::simulate_on(On::Files, *seed, Some(bug), false);
            report.violations.iter().any(|violation| violation.property == property)
        });
        println!("{bug:?}: caught by {property:?}, first by seed {caught:?}");
        assert!(caught.is_some(), "{bug:?} was not caught");
    }
}

/// A simulator that finds nothing proves nothing: each planted bug is caught, by the property that
/// is about it. The list is printed.
#[test]
fn every_planted_bug_is_caught() {
    for bug in Bug::ALL {
        let mut missing: BTreeSet<Property> = caught_by(*bug).iter().copied().collect();
        let mut first = None;
        // Most are caught at once. Without its flushes a world ends early, nearly always by an error
        // without an excuse: it takes many to see the promises that are broken later.
        for seed in 0..20_000 {
            let report = sim::simulate(seed, Some(*bug), false);
            for violation in &report.violations {
                missing.remove(&violation.property);
                first.get_or_insert((seed, violation.property));
            }
            if missing.is_empty() {
                break;
            }
        }
        println!("{bug:?}: caught by {:?}, first {first:?}", caught_by(*bug));
        assert!(missing.is_empty(), "{bug:?} was not caught by {missing:?}");
    }
}
