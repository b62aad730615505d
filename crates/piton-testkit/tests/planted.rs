//! Planted bugs: what the simulator would notice. In a build of its own (feature `planted`), run by
//! `make soak`.

use std::collections::BTreeSet;

use piton_core::planted::Bug;
use piton_testkit::sim::{self, On, Property};

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
        Bug::SupervisedTwice => &[Property::OneSupervisor],
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
