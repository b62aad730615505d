//! The whole status table: every combination of what the status depends on, against rules that
//! are written here a second time, in the blueprint's order of precedence.

#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use piton_core::event::{Outcome, WaitKind};
use piton_core::id::BootId;
use piton_core::interruption::Activity;
use piton_core::reason::Reason;
use piton_core::state::{
    Agent, AgentStatus, Executor, ExecutorStatus, Facts, Phase, Run, Wait, WaitToken,
};
use piton_core::status::{Name, Status, WaitView, derive};
use piton_core::time::Timestamp;

const NOW: i64 = 1_000_000;

const OUTCOMES: [Outcome; 3] = [Outcome::Completed, Outcome::Failed, Outcome::Cancelled];
const KINDS: [WaitKind; 4] =
    [WaitKind::Input, WaitKind::Permission, WaitKind::ToolResult, WaitKind::Human];
const TOKENS: [WaitToken; 4] =
    [WaitToken::Active, WaitToken::Expired, WaitToken::Revoked, WaitToken::Missing];
const DEADLINES: [Deadline; 3] = [Deadline::Past, Deadline::Future, Deadline::None];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deadline {
    /// At this very moment, which is late enough.
    Past,
    /// A millisecond away.
    Future,
    None,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: WaitKind,
    token: WaitToken,
    deadline: Deadline,
}

/// One combination, in the words of the table rather than of the code.
#[derive(Clone, Debug)]
struct Row {
    closed: Option<Outcome>,
    executor: Option<ExecutorStatus>,
    agent: Option<AgentStatus>,
    phase: Option<Phase>,
    waits: Vec<Asked>,
    blocked: bool,
    boot_dead: bool,
}

impl Row {
    fn open(&self) -> bool {
        self.phase == Some(Phase::Open)
    }

    fn live_executor(&self) -> bool {
        self.executor == Some(ExecutorStatus::Ready)
    }

    fn overdue(&self) -> bool {
        self.waits.iter().any(|wait| wait.deadline == Deadline::Past)
    }

    fn stuck(&self) -> bool {
        self.open() && self.blocked && !self.waits.is_empty()
    }

    fn some_token_good(&self) -> bool {
        self.waits.iter().any(|wait| wait.token == WaitToken::Active)
    }

    /// Past before future before none; the older one of two alike.
    fn earliest(&self) -> Option<(usize, Asked)> {
        self.waits.iter().copied().enumerate().min_by_key(|(index, wait)| (wait.deadline, *index))
    }

    fn interrupted(&self) -> Name {
        if self.waits.is_empty() { Name::InterruptedStartup } else { Name::InterruptedWaiting }
    }
}

/// A rule: when it applies, and what it says.
type Rule = (&'static str, fn(&Row) -> Option<(Name, Reason)>);

/// The first rule that says something decides.
const RULES: &[Rule] = &[
    ("closed", |row| {
        row.closed.map(|outcome| match outcome {
            Outcome::Completed => (Name::Completed, Reason::SessionCompleted),
            Outcome::Failed => (Name::Failed, Reason::SessionFailed),
            Outcome::Cancelled => (Name::Cancelled, Reason::SessionCancelled),
        })
    }),
    ("error: the executor failed", |row| {
        let failed = row.executor == Some(ExecutorStatus::Error);
        failed.then_some((Name::Error, Reason::ExecutorError))
    }),
    ("error: the executor is unreachable", |row| {
        let lost = row.executor == Some(ExecutorStatus::Unreachable);
        lost.then_some((Name::Error, Reason::ExecutorUnreachable))
    }),
    ("error: the agent failed", |row| {
        let failed = row.agent == Some(AgentStatus::Error);
        failed.then_some((Name::Error, Reason::AgentError))
    }),
    ("starting: the executor", |row| {
        let starting = row.executor == Some(ExecutorStatus::Starting);
        starting.then_some((Name::Starting, Reason::ExecutorStarting))
    }),
    ("starting: the agent", |row| {
        let starting = row.agent == Some(AgentStatus::Starting);
        starting.then_some((Name::Starting, Reason::AgentStarting))
    }),
    ("interrupted: recorded", |row| match row.phase {
        Some(Phase::Interrupted { reason, was_waiting: true, .. }) => {
            Some((Name::InterruptedWaiting, reason))
        }
        Some(Phase::Interrupted { reason, was_waiting: false, .. }) => {
            Some((Name::InterruptedStartup, reason))
        }
        _ => None,
    }),
    ("interrupted: its boot is dead and no executor could have kept it", |row| {
        (row.open() && row.boot_dead && !row.live_executor())
            .then(|| (row.interrupted(), Reason::ProcessRestart))
    }),
    ("interrupted: a deadline passed and no executor could be told", |row| {
        (row.open() && row.overdue() && !row.live_executor())
            .then_some((Name::InterruptedWaiting, Reason::WaitTimeout))
    }),
    ("interrupted: it waits and no token could answer", |row| {
        let (_, earliest) = row.earliest()?;
        let reason = match earliest.token {
            WaitToken::Expired => Reason::TokenExpired,
            WaitToken::Revoked => Reason::TokenRevoked,
            WaitToken::Missing | WaitToken::Active => Reason::TokenMissing,
        };
        (row.stuck() && !row.some_token_good()).then_some((Name::InterruptedWaiting, reason))
    }),
    ("paused", |row| (row.phase == Some(Phase::Paused)).then_some((Name::Paused, Reason::Paused))),
    ("waiting, and its sweep is due", |row| {
        (row.stuck() && row.overdue()).then_some((Name::Waiting, Reason::WaitTimeout))
    }),
    ("waiting", |row| {
        let (_, earliest) = row.earliest().filter(|_| row.stuck())?;
        let reason = match earliest.kind {
            WaitKind::Input => Reason::Input,
            WaitKind::Permission => Reason::Permission,
            WaitKind::ToolResult => Reason::ToolResult,
            WaitKind::Human => Reason::Human,
            WaitKind::Other => Reason::Unrecognised,
        };
        Some((Name::Waiting, reason))
    }),
    ("running", |row| row.open().then_some((Name::Running, Reason::RunOpen))),
    ("idle", |row| {
        let reason = match row.phase {
            Some(Phase::Ended(Outcome::Completed)) => Reason::RunCompleted,
            Some(Phase::Ended(Outcome::Failed)) => Reason::RunFailed,
            Some(Phase::Ended(Outcome::Cancelled)) => Reason::RunCancelled,
            Some(Phase::Dismissed) => Reason::RunDismissed,
            _ => Reason::NeverRun,
        };
        Some((Name::Idle, reason))
    }),
];

/// What the rules say, and which of them.
fn oracle(row: &Row) -> (Status, usize) {
    let applies = |(index, (_, rule)): (usize, &Rule)| rule(row).map(|said| (index, said));
    let (index, (name, mut reason)) = RULES.iter().enumerate().find_map(applies).unwrap();
    // An open run of a dead boot keeps its status until its executor was asked.
    let settled = ["closed", "error", "starting"];
    if row.open()
        && row.boot_dead
        && row.live_executor()
        && !settled.iter().any(|start| RULES[index].0.starts_with(start))
    {
        reason = Reason::ExecutorProbing;
    }
    let unfinished = matches!(row.phase, Some(Phase::Open | Phase::Paused));
    let shown = row.earliest().filter(|_| unfinished && row.closed.is_none());
    let wait = shown.map(|(index, wait)| WaitView {
        wait_id: wait_id(index),
        kind: wait.kind,
        since_seq: since(index),
        deadline_at: moment(wait.deadline),
    });
    let last_outcome = match (row.closed, row.phase) {
        (Some(outcome), _) | (None, Some(Phase::Ended(outcome))) => Some(outcome),
        _ => None,
    };
    // What no record says yet is known by its waits alone.
    let is_recorded = matches!(row.phase, Some(Phase::Interrupted { .. }));
    let is_waiting = name == Name::InterruptedWaiting && !is_recorded;
    let activity = is_waiting.then_some(Activity::Waiting);
    (Status { name, reason, activity, wait, last_outcome, read_only: false }, index)
}

fn wait_id(index: usize) -> piton_core::id::WaitId {
    // The ids' order is not the order in which they were asked.
    ["wait_b", "wait_a"][index].parse().unwrap()
}

fn since(index: usize) -> u64 {
    5 + index as u64
}

fn moment(deadline: Deadline) -> Option<Timestamp> {
    match deadline {
        Deadline::Past => Some(Timestamp::from_millis(NOW)),
        Deadline::Future => Some(Timestamp::from_millis(NOW + 1)),
        Deadline::None => None,
    }
}

fn facts(row: &Row) -> Facts {
    let waits = row.waits.iter().enumerate().map(|(index, wait)| {
        let expected = Wait {
            kind: wait.kind,
            since_seq: since(index),
            token_id: None,
            token: wait.token,
            deadline_at: moment(wait.deadline),
            reject_options: Vec::new(),
        };
        (wait_id(index), expected)
    });
    let run = row.phase.map(|phase| Run {
        run_id: "run_1".parse().unwrap(),
        boot_id: "boot_1".parse().unwrap(),
        started_at: Timestamp::from_millis(0),
        started_seq: 2,
        ended_at: None,
        phase,
        blocked: row.blocked,
        waits: waits.collect(),
        truncated: false,
        message_seq: None,
        wait_timed_out: false,
        settled_waits: std::collections::VecDeque::new(),
    });
    let executor = row.executor.map(|status| Executor {
        execution_id: "exec_1".parse().unwrap(),
        runtime: String::new(),
        status,
        code: None,
        reason: None,
        error_seq: None,
        promised: None,
        expects_agent: false,
    });
    let agent = row.agent.map(Agent::new);
    Facts {
        closed: row.closed,
        unknown_critical: None,
        token_deadline_at: None,
        executor,
        agent,
        agent_waits: None,
        run,
        worktree: None,
        queue: piton_core::state::QueueCounts::default(),
        graph: None,
        restore: None,
        graph_on_server: false,
    }
}

fn dead(row: &Row) -> BTreeSet<BootId> {
    BTreeSet::from([if row.boot_dead { "boot_1" } else { "boot_0" }.parse().unwrap()])
}

fn phases() -> Vec<Option<Phase>> {
    let mut phases = vec![None, Some(Phase::Open), Some(Phase::Paused), Some(Phase::Dismissed)];
    phases.extend(OUTCOMES.map(|outcome| Some(Phase::Ended(outcome))));
    for reason in [
        Reason::ProcessRestart,
        Reason::ProcessExit,
        Reason::WaitTimeout,
        Reason::Abandoned,
        Reason::AgentGaveUp,
        Reason::AgentStartFailed,
    ] {
        for was_waiting in [false, true] {
            phases.push(Some(Phase::Interrupted { reason, was_waiting, activity: None }));
        }
    }
    phases
}

/// No wait, one of each sort, and two of each sort.
fn waits() -> Vec<Vec<Asked>> {
    let mut sorts = Vec::new();
    for token in TOKENS {
        sorts.extend(DEADLINES.map(|deadline| (token, deadline)));
    }
    let asked = |kind, (token, deadline)| Asked { kind, token, deadline };
    let mut waits = vec![Vec::new()];
    for sort in &sorts {
        waits.extend(KINDS.map(|kind| vec![asked(kind, *sort)]));
        let older = asked(WaitKind::Permission, *sort);
        waits.extend(sorts.iter().map(|sort| vec![older, asked(WaitKind::Input, *sort)]));
    }
    waits
}

fn executors() -> [Option<ExecutorStatus>; 6] {
    [
        None,
        Some(ExecutorStatus::Starting),
        Some(ExecutorStatus::Ready),
        Some(ExecutorStatus::Unreachable),
        Some(ExecutorStatus::Error),
        Some(ExecutorStatus::Stopped),
    ]
}

fn agents() -> [Option<AgentStatus>; 5] {
    [
        None,
        Some(AgentStatus::Starting),
        Some(AgentStatus::Ready),
        Some(AgentStatus::Error),
        Some(AgentStatus::Exited),
    ]
}

/// Calls `visit` with every combination and its facts.
fn every_row(mut visit: impl FnMut(&Row, &Facts, &BTreeSet<BootId>)) {
    for phase in phases() {
        for waits in waits() {
            for (blocked, boot_dead) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let mut row = Row {
                    closed: None,
                    executor: None,
                    agent: None,
                    phase,
                    waits: waits.clone(),
                    blocked,
                    boot_dead,
                };
                let (run, dead) = (facts(&row).run, dead(&row));
                for executor in executors() {
                    for agent in agents() {
                        row.executor = executor;
                        row.agent = agent;
                        row.closed = None;
                        let mut facts = Facts { run: run.clone(), ..rest(&row) };
                        visit(&row, &facts, &dead);
                        for outcome in OUTCOMES {
                            row.closed = Some(outcome);
                            facts.closed = row.closed;
                            visit(&row, &facts, &dead);
                        }
                    }
                }
            }
        }
    }
}

/// The facts that are not about the run.
fn rest(row: &Row) -> Facts {
    facts(&Row { phase: None, waits: Vec::new(), ..row.clone() })
}

/// Every combination, against the rules; each name and each reason occurs, and each rule decides
/// something. The snapshot holds what there is to see, once each.
#[test]
fn every_combination_is_as_the_rules_say() {
    let now = Timestamp::from_millis(NOW);
    let mut rows = 0_u32;
    let mut seen: BTreeMap<(Name, Reason, bool, Option<Outcome>), u32> = BTreeMap::new();
    let mut decided = vec![0_u32; RULES.len()];
    every_row(|row, facts, dead| {
        let status = derive(facts, dead, now);
        let (expected, rule) = oracle(row);
        assert!(status == expected, "{row:?}\n is   {status:?}\n not  {expected:?}");
        rows += 1;
        decided[rule] += 1;
        let key = (status.name, status.reason, status.wait.is_some(), status.last_outcome);
        *seen.entry(key).or_default() += 1;
    });
    assert_eq!(rows, 19 * (1 + 12 * 4 + 12 * 12) * 4 * 6 * 5 * 4);

    let names: BTreeSet<Name> = seen.keys().map(|(name, ..)| *name).collect();
    assert_eq!(names, Name::ALL.iter().copied().collect());
    let reasons: BTreeSet<Reason> = seen.keys().map(|(_, reason, ..)| *reason).collect();
    let never_derived = BTreeSet::from([
        // About resuming an agent, ending a run, or ending a token.
        Reason::AgentNotRunning,
        Reason::AgentNotRunningFreshStart,
        Reason::NotResumable,
        Reason::MissingResumeToken,
        Reason::Superseded,
        Reason::PermissionRejected,
        Reason::UserRequest,
        Reason::Rotated,
        Reason::RunEnded,
        Reason::SessionRefused,
        Reason::Withdrawn,
        // Said by the record that tells of the failure or the interruption, and passed on.
        Reason::WorkspaceMissing,
        Reason::WorktreeMissing,
        Reason::BranchMissing,
        Reason::BaseMissing,
        Reason::RepositoryMissing,
        Reason::AgentMissing,
        Reason::LoginNeeded,
        Reason::AgentWaitingToLoad,
        // What to know before a resume, beside the status.
        Reason::WorkspaceRecreated,
        Reason::RepositoryChanged,
        Reason::BranchChanged,
        Reason::InterruptedLongAgo,
        // Why an agent is ended, which is no status: a session whose agent was ended is idle.
        Reason::IdleTimeout,
        // Of prompts that are queued, which this table has none of: `queue.rs` shows them.
        Reason::PromptDue,
        Reason::QueueHeld,
        // Read-only is a mark beside the status; a newer program's reason is in the log only.
        Reason::NewerVersion,
        Reason::Unrecognised,
    ]);
    let all: BTreeSet<Reason> = Reason::ALL.iter().copied().collect();
    assert_eq!(reasons, &all - &never_derived);

    let mut table = String::from("rows by the rule that decides them\n");
    for ((name, _), count) in RULES.iter().zip(&decided) {
        assert!(*count > 0, "the rule {name:?} never decides");
        writeln!(table, "{count:>8}  {name}").unwrap();
    }
    table.push_str("\nwhat there is to see\n");
    for ((name, reason, wait, outcome), count) in &seen {
        let wire = serde_json::to_value(name.wire()).unwrap();
        let wire = wire.as_str().unwrap();
        let name = name.as_str();
        let wait = if *wait { "wait" } else { "-" };
        let outcome = outcome.map_or_else(|| "-".to_owned(), |o| format!("{o:?}").to_lowercase());
        let sentence = reason.sentence();
        writeln!(
            table,
            "{name:<20} {wire:<18} {:<21} {wait:<5} {outcome:<10} {count:>7}  {sentence}",
            reason.as_str()
        )
        .unwrap();
    }
    insta::assert_snapshot!("every_combination", table);
}

/// The part of the table that people argue about, in full: an open run with one wait, by what its
/// executor and its boot are.
#[test]
fn open_runs_in_full() {
    let now = Timestamp::from_millis(NOW);
    let mut table = String::new();
    for executor in [None, Some(ExecutorStatus::Ready), Some(ExecutorStatus::Stopped)] {
        for boot_dead in [false, true] {
            let boot = if boot_dead { "dead" } else { "alive" };
            writeln!(table, "executor {executor:?}, boot {boot}").unwrap();
            for blocked in [false, true] {
                let single = |waits: &Vec<Asked>| {
                    waits.len() < 2 && waits.iter().all(|wait| wait.kind == WaitKind::Permission)
                };
                for waits in waits().into_iter().filter(single) {
                    let row = Row {
                        closed: None,
                        executor,
                        agent: None,
                        phase: Some(Phase::Open),
                        waits,
                        blocked,
                        boot_dead,
                    };
                    let status = derive(&facts(&row), &dead(&row), now);
                    let wait = row.waits.first().map_or_else(
                        || "no wait".to_owned(),
                        |wait| {
                            format!("token {:?}, deadline {:?}", wait.token, wait.deadline)
                                .to_lowercase()
                        },
                    );
                    let blocked = if blocked { "blocked" } else { "at work" };
                    let (name, reason) = (status.name.as_str(), status.reason);
                    writeln!(table, "  {blocked}, {wait:<33} {name:<20} {reason}").unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!("open_runs", table);
}

/// A session that a newer program wrote to says so beside its status, which stays what it is.
#[test]
fn an_unknown_critical_kind_is_a_mark_beside_the_status() {
    let now = Timestamp::from_millis(NOW);
    let facts = Facts { unknown_critical: Some("graph.node".into()), ..Facts::default() };
    let expected = Status {
        name: Name::Idle,
        reason: Reason::NeverRun,
        activity: None,
        wait: None,
        last_outcome: None,
        read_only: true,
    };
    assert_eq!(derive(&facts, &BTreeSet::new(), now), expected);
}

/// Why an executor or an agent failed is passed on, where it is known.
#[test]
fn a_failure_that_is_known_is_named() {
    let row = Row {
        closed: None,
        executor: Some(ExecutorStatus::Error),
        agent: None,
        phase: None,
        waits: Vec::new(),
        blocked: false,
        boot_dead: false,
    };
    let now = Timestamp::from_millis(NOW);
    let expected = |facts: &Facts| derive(facts, &BTreeSet::new(), now);
    for reason in [
        Reason::WorkspaceMissing,
        Reason::WorktreeMissing,
        Reason::BranchMissing,
        Reason::BaseMissing,
        Reason::RepositoryMissing,
    ] {
        let mut failed = facts(&row);
        failed.executor.as_mut().unwrap().reason = Some(reason);
        assert_eq!((expected(&failed).name, expected(&failed).reason), (Name::Error, reason));
    }

    let row = Row { executor: None, agent: Some(AgentStatus::Error), ..row };
    for reason in [Reason::AgentMissing, Reason::LoginNeeded, Reason::WorkspaceMissing] {
        let mut failed = facts(&row);
        failed.agent.as_mut().unwrap().error = Some(reason);
        assert_eq!((expected(&failed).name, expected(&failed).reason), (Name::Error, reason));
    }
}
