//! The settings that are numbers: spans of time and counts. Each has a default, and limits within which
//! it makes sense.

use std::collections::BTreeMap;
use std::time::Duration;

use piton_core::limits::{HistoryLimits, Limits};
use piton_runtime::{Settings as RuntimeSettings, SnapshotSettings};

use super::{Origin, Pick, Sourced};
use crate::error::Result;
use crate::times;

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Span(Duration),
    /// May be `never`, or `0`, which means the same.
    SpanOrNever(Option<Duration>),
    Count {
        default: usize,
        max: usize,
    },
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);
/// A longer span is a mistake.
const SPAN_MAX: Duration = Duration::from_hours(24 * 366 * 10);

const NUMBERS: &[(&str, Kind)] = &[
    ("wait.tool_result", Kind::Span(Duration::from_mins(10))),
    ("wait.permission", Kind::Span(Duration::from_hours(7 * 24))),
    ("wait.input", Kind::Span(Duration::from_hours(7 * 24))),
    ("wait.human", Kind::Span(Duration::from_hours(7 * 24))),
    ("agents.start_timeout", Kind::Span(Duration::from_secs(90))),
    ("agents.idle_timeout", Kind::SpanOrNever(Some(Duration::from_mins(30)))),
    ("executor.ready_timeout", Kind::Span(MINUTE)),
    ("executor.unreachable_after", Kind::Span(MINUTE)),
    ("executor.abandon_after", Kind::SpanOrNever(None)),
    ("executor.agentctl_idle_timeout", Kind::Span(DAY)),
    ("resume.boot_parallel", Kind::Count { default: 4, max: 1_000 }),
    ("resume.boot_active_within", Kind::Span(DAY)),
    ("history.message_chars", Kind::Count { default: 2_000, max: 1_000_000 }),
    ("history.result_chars", Kind::Count { default: 500, max: 1_000_000 }),
    ("history.total_chars", Kind::Count { default: 60_000, max: 1_000_000 }),
    ("history.items", Kind::Count { default: 200, max: 10_000 }),
    ("workspace.changed_files", Kind::Count { default: 50, max: 1_000 }),
    ("workspace.snapshot_timeout", Kind::Span(Duration::from_secs(2))),
    ("workspace.snapshot_files", Kind::Count { default: 500_000, max: 100_000_000 }),
    ("workspace.snapshot_file_mb", Kind::Count { default: 64, max: 1_000_000 }),
    ("workspace.snapshot_total_mb", Kind::Count { default: 8_192, max: 1_000_000_000 }),
    ("workspace.checkpoints", Kind::Count { default: 100, max: 10_000 }),
    ("requests.kept_for", Kind::Span(DAY)),
    ("queue.prompts", Kind::Count { default: 64, max: 10_000 }),
];

pub(super) fn is_number(key: &str) -> bool {
    NUMBERS.iter().any(|(known, _)| *known == key)
}

/// A number's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Span(Duration),
    Never,
    Count(usize),
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Span(span) => f.write_str(&times::span_text(*span)),
            Self::Never => f.write_str("never"),
            Self::Count(count) => write!(f, "{count}"),
        }
    }
}

/// All of them, by key.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(BTreeMap<&'static str, Sourced<Number>>);

impl Numbers {
    pub(super) fn pick(pick: &Pick) -> Result<Self> {
        let mut numbers = BTreeMap::new();
        for (key, kind) in NUMBERS {
            let set = pick.text(key, |text| parse(*kind, text))?;
            let default = Sourced { value: default(*kind), origin: Origin::Default };
            numbers.insert(*key, set.unwrap_or(default));
        }
        Ok(Self(numbers))
    }

    /// In the order of the table.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &Sourced<Number>)> {
        NUMBERS.iter().filter_map(|(key, _)| self.0.get(key).map(|number| (*key, number)))
    }

    fn get(&self, key: &str) -> Option<Number> {
        self.0.get(key).map(|number| number.value)
    }

    /// `None`: never.
    fn span_or_never(&self, key: &str) -> Option<Duration> {
        match self.get(key) {
            Some(Number::Span(span)) => Some(span),
            Some(Number::Never | Number::Count(_)) | None => None,
        }
    }

    pub(crate) fn span(&self, key: &str) -> Duration {
        self.span_or_never(key).unwrap_or(SPAN_MAX)
    }

    fn count(&self, key: &str) -> usize {
        match self.get(key) {
            Some(Number::Count(count)) => count,
            Some(Number::Span(_) | Number::Never) | None => 0,
        }
    }

    /// Those that count for a running engine from when they are set.
    pub(crate) fn runtime(&self) -> RuntimeSettings {
        RuntimeSettings {
            agent_start_timeout: self.span("agents.start_timeout"),
            agent_idle_timeout: self.span_or_never("agents.idle_timeout"),
            executor_ready_timeout: self.span("executor.ready_timeout"),
            agentctl_idle_timeout: self.span("executor.agentctl_idle_timeout"),
            unreachable_after: self.span("executor.unreachable_after"),
            abandon_after: self.span_or_never("executor.abandon_after"),
            boot_parallel: self.count("resume.boot_parallel"),
            boot_active_within: self.span("resume.boot_active_within"),
            snapshots: SnapshotSettings {
                timeout: self.span("workspace.snapshot_timeout"),
                files_max: self.count("workspace.snapshot_files"),
                file_mb_max: self.count("workspace.snapshot_file_mb"),
                tree_mb_max: self.count("workspace.snapshot_total_mb"),
                ..SnapshotSettings::default()
            },
            limits: Limits {
                wait_tool_result: self.span("wait.tool_result"),
                wait_permission: self.span("wait.permission"),
                wait_input: self.span("wait.input"),
                wait_human: self.span("wait.human"),
                request_kept_for: self.span("requests.kept_for"),
                history: HistoryLimits {
                    message_chars: self.count("history.message_chars"),
                    result_chars: self.count("history.result_chars"),
                    total_chars: self.count("history.total_chars"),
                    items: self.count("history.items"),
                },
                changed_files: self.count("workspace.changed_files"),
                queued_prompts: self.count("queue.prompts"),
                turn_checkpoints: self.count("workspace.checkpoints"),
            },
        }
    }
}

fn default(kind: Kind) -> Number {
    match kind {
        Kind::Span(span) | Kind::SpanOrNever(Some(span)) => Number::Span(span),
        Kind::SpanOrNever(None) => Number::Never,
        Kind::Count { default, .. } => Number::Count(default),
    }
}

fn parse(kind: Kind, text: &str) -> Result<Number, String> {
    match kind {
        Kind::SpanOrNever(_) if matches!(text, "never" | "0") => Ok(Number::Never),
        Kind::Span(_) | Kind::SpanOrNever(_) => {
            let span = times::parse_span(text)?;
            if !(SECOND..=SPAN_MAX).contains(&span) {
                return Err(format!("{text:?} is more than ten years"));
            }
            Ok(Number::Span(span))
        }
        Kind::Count { max, .. } => match text.parse() {
            Ok(count) if (1..=max).contains(&count) => Ok(Number::Count(count)),
            _ => Err(format!("{text:?} is not a number from 1 to {max}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::KEYS;
    use super::*;

    /// A number that is not in the table of settings could never be set.
    #[test]
    fn every_number_is_a_setting_and_its_default_is_the_runtimes() {
        for (key, _) in NUMBERS {
            assert!(KEYS.iter().any(|known| known.name == *key), "{key}");
        }
        let numbers = Numbers::pick(&Pick { layer: Vec::new() }).unwrap();
        assert_eq!(numbers.runtime(), RuntimeSettings::default());
    }

    /// Each number by itself changes what a running engine does.
    #[test]
    fn every_number_reaches_the_engine_and_is_reloaded() {
        for (key, kind) in NUMBERS {
            let other = match kind {
                Kind::Span(_) | Kind::SpanOrNever(_) => "17s",
                Kind::Count { .. } => "17",
            };
            let mut numbers = Numbers::pick(&Pick { layer: Vec::new() }).unwrap();
            let value = parse(*kind, other).unwrap();
            numbers.0.insert(key, Sourced { value, origin: Origin::Default });
            assert_ne!(numbers.runtime(), RuntimeSettings::default(), "{key}");
            let known = KEYS.iter().find(|known| known.name == *key);
            assert!(known.is_some_and(|known| known.is_reloaded), "{key}");
        }
    }

    #[test]
    fn numbers_are_read_within_their_limits() {
        let of = |key: &str| NUMBERS.iter().find(|(known, _)| *known == key).unwrap().1;
        let idle = of("agents.idle_timeout");
        assert_eq!(parse(idle, "0"), Ok(Number::Never));
        assert_eq!(parse(idle, "never"), Ok(Number::Never));
        assert_eq!(parse(idle, "45m"), Ok(Number::Span(Duration::from_mins(45))));
        assert!(parse(of("wait.input"), "never").is_err());
        assert!(parse(of("wait.input"), "600w").is_err());
        assert_eq!(parse(of("resume.boot_parallel"), "8"), Ok(Number::Count(8)));
        for wrong in ["0", "-1", "1001", "x", ""] {
            assert!(parse(of("resume.boot_parallel"), wrong).is_err(), "{wrong}");
        }
    }
}
