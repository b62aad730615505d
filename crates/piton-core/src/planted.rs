//! Bugs planted on purpose, so that the simulator can show that it would find them. Without the
//! feature `planted` every question is answered `false` at compile time.

/// A bug and where it sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// Store: an append is acknowledged without its flush.
    FlushLeftOut,
    /// Store: the lease's epoch is not checked.
    EpochIgnored,
    /// Decisions: a consumed token is accepted again.
    TokenCheckSkipped,
    /// Store: the records of a batch survive one by one.
    BatchSplit,
    /// Tail: the hint's records are delivered without looking for a gap.
    WakeUpTrusted,
    /// Runtime: a snapshot is used though it does not fit the log.
    SnapshotStale,
    /// Decisions: a run of a dead boot is interrupted though it already was.
    InterruptedTwice,
    /// Runtime: an effect is carried out before its record is durable.
    ActBeforeCommit,
    /// Decisions: streamed text is imported without its cursor.
    CursorLeftOut,
    /// Runtime: a spool is acknowledged before what it said is durable.
    AckBeforeDurable,
    /// Decisions: an execution is started though the last one may live.
    LaunchedBeside,
    /// Runtime: a command's id is not that of its effect, but new with every try.
    CommandIdNew,
    /// Runtime: who does not answer is taken for dead.
    SilenceIsDeath,
    /// Runtime: an answer is noted and not handed over.
    AnswerKeptBack,
    /// Runtime: each wake makes a supervisor of its own, though the session has one.
    SupervisedTwice,
}

impl Bug {
    pub const ALL: &'static [Self] = &[
        Self::FlushLeftOut,
        Self::EpochIgnored,
        Self::TokenCheckSkipped,
        Self::BatchSplit,
        Self::WakeUpTrusted,
        Self::SnapshotStale,
        Self::InterruptedTwice,
        Self::ActBeforeCommit,
        Self::CursorLeftOut,
        Self::AckBeforeDurable,
        Self::LaunchedBeside,
        Self::CommandIdNew,
        Self::SilenceIsDeath,
        Self::AnswerKeptBack,
        Self::SupervisedTwice,
    ];
}

#[cfg(feature = "planted")]
mod switch {
    use std::cell::Cell;

    thread_local!(static PLANTED: Cell<Option<super::Bug>> = const { Cell::new(None) });

    /// Whether this bug is planted on this thread.
    pub fn is(bug: super::Bug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Plants one bug on this thread, or none.
    pub fn plant(bug: Option<super::Bug>) {
        PLANTED.set(bug);
    }
}

#[cfg(not(feature = "planted"))]
mod switch {
    /// Whether this bug is planted: never, in this build.
    #[inline]
    pub const fn is(_bug: super::Bug) -> bool {
        false
    }
}

pub use switch::*;
