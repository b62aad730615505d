//! What a graph's records come to, and what follows from it.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::decide::{Command, Context, decide};
use crate::event::{
    CheckpointCreated, CheckpointDeleted, CheckpointPruned, EdgeTaken, Event, LineageStarted,
    LoopIterated, MapItemCompleted, MapListed, MemoryChanged, NodeCompleted, NodeFailed,
    NodeSkipped, NodeStarted, Seq,
};
use crate::event::{
    Critical, GraphBound, RunResumed, RunStarted, RunWaiting, SessionCreated, WaitKind,
};
use crate::id::{BootId, CheckpointId, RunId};
use crate::limits::Limits;
use crate::time::Timestamp;
use crate::{State, status, supervise};

fn edge(from: &str, to: &str) -> Edge {
    Edge { from: from.into(), to: to.into(), max: None }
}

fn limited(from: &str, to: &str, max: u32) -> Edge {
    Edge { from: from.into(), to: to.into(), max: Some(max) }
}

fn topology(nodes: &[&str], edges: &[Edge]) -> Result<Topology, TopologyError> {
    Topology::new(nodes.iter().map(|node| (*node).to_owned()), edges, None)
}

fn started(path: &str, visit: u32, attempt: u32) -> Event {
    NodeStarted { path: path.into(), visit, attempt }.into()
}

fn completed(path: &str, visit: u32) -> Event {
    NodeCompleted { path: path.into(), visit, attempt: 1, latency_ms: 5 }.into()
}

fn taken(from: &str, to: &str) -> Event {
    EdgeTaken { from: from.into(), to: to.into(), resets: Vec::new() }.into()
}

fn checkpoint(id: u32, of: CheckpointType, node: &str) -> CheckpointCreated {
    CheckpointCreated {
        checkpoint_id: format!("cp_{id}").parse().unwrap(),
        checkpoint_type: of,
        lineage: 1,
        parent: None,
        current_node: Some(node.into()),
        next_node: None,
        is_clean: true,
        can_resume_from: true,
        without_memory: false,
        without_conversations: false,
        turn: None,
    }
}

fn fold(events: &[Event]) -> GraphState {
    let mut state = GraphState::default();
    for (seq, event) in (1..).zip(events) {
        state.apply(seq, event);
    }
    state
}

fn index(events: &[Event]) -> CheckpointIndex {
    let mut index = CheckpointIndex::default();
    for (seq, event) in (1..).zip(events) {
        index.apply(seq, Timestamp::from_millis(0), event);
    }
    index
}

fn ids(ids: &[&str]) -> Vec<CheckpointId> {
    ids.iter().map(|id| id.parse().unwrap()).collect()
}

#[test]
fn a_join_waits_for_both_branches_and_is_skipped_with_both() {
    let edges = [edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d")];
    let graph = topology(&["a", "b", "c", "d"], &edges).unwrap();
    assert_eq!(graph.ready(&GraphState::default()), ["a"]);
    let mut events = vec![started("a", 1, 1), completed("a", 1), taken("a", "b"), taken("a", "c")];
    assert_eq!(graph.ready(&fold(&events)), ["b", "c"]);
    events.extend([completed("b", 1), taken("b", "d")]);
    assert_eq!(graph.ready(&fold(&events)), ["c"], "the join waits");
    events.push(completed("c", 1));
    assert_eq!(graph.ready(&fold(&events)), ["d"], "one taken edge is enough");

    let only_b = [completed("a", 1), taken("a", "b"), completed("b", 1)];
    let mut state = fold(&only_b);
    assert_eq!(graph.skipped(&state), ["c"]);
    state.apply(9, &NodeSkipped { path: "c".into(), visit: 1 }.into());
    assert_eq!(graph.skipped(&state), ["d"], "no edge leads to it any more");
    state.apply(10, &NodeSkipped { path: "d".into(), visit: 1 }.into());
    assert!(graph.is_complete(&state));
}

#[test]
fn a_cycle_resets_what_is_behind_it_and_counts() {
    let edges = [edge("draft", "review"), edge("review", "send"), limited("review", "draft", 2)];
    let graph = topology(&["draft", "review", "send"], &edges).unwrap();
    let resets = graph.resets("draft");
    assert_eq!(resets, ["draft", "review", "send"]);
    let mut events = vec![
        completed("draft", 1),
        taken("draft", "review"),
        completed("review", 1),
        EdgeTaken { from: "review".into(), to: "draft".into(), resets }.into(),
    ];
    let state = fold(&events);
    assert_eq!(graph.ready(&state), ["draft"]);
    assert_eq!(graph.skipped(&state), [""; 0], "what is behind the cycle waits for it");
    assert_eq!((state.visit("draft"), state.cycles_taken("review", "draft")), (2, 1));
    events.push(completed("draft", 1));
    assert_eq!(fold(&events), state, "a late record of the first visit changes nothing");
    events.extend([completed("draft", 2), taken("draft", "review")]);
    assert_eq!(graph.ready(&fold(&events)), ["review"]);
}

#[test]
fn what_is_no_graph_is_named() {
    let nodes = ["a", "b", "c"];
    let unlimited = topology(&nodes, &[edge("a", "b"), edge("b", "c"), edge("c", "b")]);
    let path = ["b", "c", "b"].map(str::to_owned).to_vec();
    let other = ["c", "b", "c"].map(str::to_owned).to_vec();
    let found = unlimited.unwrap_err();
    assert!(
        found == TopologyError::CycleUnlimited { path }
            || found == TopologyError::CycleUnlimited { path: other },
        "{found}"
    );
    let unknown = topology(&nodes, &[edge("a", "x")]).unwrap_err();
    assert!(matches!(unknown, TopologyError::EdgeUnknown { unknown, .. } if unknown == "x"));
    let repeated = topology(&nodes, &[edge("a", "b"), edge("a", "b")]).unwrap_err();
    assert!(matches!(repeated, TopologyError::EdgeRepeated { .. }));
    let unused = topology(&nodes, &[edge("a", "b"), limited("a", "c", 3)]).unwrap_err();
    assert!(matches!(unused, TopologyError::LimitUnused { .. }));
    let open = [edge("a", "b"), edge("a", "c"), limited("b", "a", 2)];
    let open = topology(&nodes, &open).unwrap_err();
    assert!(matches!(open, TopologyError::CycleOpen { branch, .. } if branch == "c"));
    assert_eq!(topology(&[], &[]), Err(TopologyError::Empty));
    let names = nodes.map(str::to_owned);
    let lost = Topology::new(names, &[edge("a", "b")], Some("a")).unwrap_err();
    assert_eq!(lost, TopologyError::Unreachable { node: "c".into() });
}

#[test]
fn a_repeated_completion_changes_nothing_and_an_attempt_is_no_progress() {
    let once = fold(&[started("a", 1, 1), completed("a", 1)]);
    assert_eq!(once.execution_path, ["a"]);
    let mut twice = once.clone();
    twice.apply(3, &completed("a", 1));
    twice.apply(4, &started("a", 1, 2));
    assert_eq!(twice, once);
    let mut state = once.clone();
    let failed = NodeFailed {
        path: "b".into(),
        visit: 1,
        attempt: 1,
        code: None,
        retry_at: None,
        handled: false,
    };
    state.apply(3, &started("b", 1, 1));
    state.apply(4, &failed.into());
    assert_eq!((state.progress_seq, state.failed()), (once.progress_seq, Some(("b", 4))));
    assert!(once.is_clean() && !state.is_clean());
}

#[test]
fn memory_keeps_where_values_stand() {
    let change = |reducer| {
        let (key, path) = ("k".to_owned(), None);
        Event::from(MemoryChanged { key, path, reducer, excluded: false })
    };
    let append = Some(Reducer::Append);
    let state = fold(&[change(append), change(append), change(None), change(append)]);
    assert_eq!(state.memory["k"].parts, [(3, None), (4, append)], "what was replaced is forgotten");
}

#[test]
fn reducers_join() {
    for (reducer, old, new, joined) in [
        (Reducer::Append, json!(null), json!("x"), json!(["x"])),
        (Reducer::Append, json!([1]), json!([2, 3]), json!([1, 2, 3])),
        (Reducer::Merge, json!({"a": 1}), json!({"b": 2, "a": 3}), json!({"a": 3, "b": 2})),
        (Reducer::Add, json!(null), json!(2), json!(2)),
        (Reducer::Add, json!(i64::MAX), json!(1), json!(9_223_372_036_854_775_808.0)),
        (Reducer::Add, json!(0.5), json!(1), json!(1.5)),
        (Reducer::Max, json!(3), json!(2), json!(3)),
        (Reducer::Min, json!(3), json!(2), json!(2)),
    ] {
        let mut value = old.clone();
        reducer.join(&mut value, new).unwrap();
        assert_eq!(value, joined, "{reducer:?} {old}");
    }
    let fault = Reducer::Add.join(&mut json!(1), json!("x")).unwrap_err();
    assert_eq!(fault.to_string(), "The reducer `add` needs a number, not a string");
    assert!(Reducer::Merge.join(&mut json!([]), json!({})).is_err());
}

#[test]
fn maps_and_loops_are_counted_once() {
    let (path, visit) = ("m".to_owned(), 1);
    let item =
        |index| Event::from(MapItemCompleted { path: path.clone(), visit, index, excluded: false });
    let step = |iteration| {
        let (path, messages) = (path.clone(), 2);
        Event::from(LoopIterated { path, visit, iteration, messages, done: false, excluded: false })
    };
    let listed = MapListed { path: path.clone(), visit, count: 3, excluded: false };
    let events = [listed.into(), item(2), item(0), item(2), step(0), step(1), step(1), step(3)];
    let state = fold(&events);
    let node = state.node("m").unwrap();
    let map = node.map.as_ref().unwrap();
    assert_eq!(map.items.clone().into_iter().collect::<Vec<_>>(), [(0, 3), (2, 2)]);
    assert_eq!((node.iterations.seqs.clone(), node.iterations.messages), (vec![5, 6], 4));
}

#[test]
fn a_lineage_leaves_out_what_came_after_its_checkpoint() {
    let mut lineages = Lineages::default();
    assert_eq!((lineages.current(), lineages.segments(1, 80)), (1, vec![1..=80]));
    for (at, lineage, from_lineage, from_seq) in
        [(100, 2, 1, 50), (200, 3, 1, 40), (300, 4, 2, 120)]
    {
        let from_checkpoint_id = "cp_1".parse().unwrap();
        let event = LineageStarted { lineage, from_lineage, from_seq, from_checkpoint_id };
        lineages.apply(at, &event.into());
    }
    assert_eq!(lineages.segments(1, 500), [1..=99]);
    assert_eq!(lineages.segments(2, 500), [1..=50, 100..=199]);
    assert_eq!(lineages.segments(3, 210), [1..=40, 200..=210]);
    assert_eq!(lineages.segments(4, 310), [1..=50, 100..=120, 300..=310]);
    assert_eq!((lineages.current(), lineages.next()), (4, 5));
}

#[test]
fn the_start_of_the_failed_node_is_the_resume_point() {
    let failed = NodeFailed {
        path: "b".into(),
        visit: 1,
        attempt: 1,
        code: None,
        retry_at: None,
        handled: false,
    };
    let events = [
        checkpoint(1, CheckpointType::NodeStart, "a").into(),
        checkpoint(2, CheckpointType::NodeStart, "b").into(),
        checkpoint(3, CheckpointType::NodeComplete, "a").into(),
        failed.into(),
    ];
    let index = index(&events);
    let id = |entry: Option<&CheckpointEntry>| entry.map(|entry| entry.checkpoint_id.to_string());
    assert_eq!(id(index.resume_point(1, Some("b"))).as_deref(), Some("cp_2"));
    assert_eq!(id(index.resume_point(1, None)).as_deref(), Some("cp_3"));
    assert_eq!(id(index.latest(1)).as_deref(), Some("cp_3"));
    assert_eq!(index.start_of("b").unwrap().failed_seq, Some(4));
    assert_eq!(id(index.before(3)).as_deref(), Some("cp_2"));
    assert_eq!(index.resume_point(2, None), None, "another lineage's do not count");
}

#[test]
fn what_cannot_be_resumed_from_is_refused() {
    let stuck = CheckpointCreated {
        can_resume_from: false,
        ..checkpoint(1, CheckpointType::SafePoint, "a")
    };
    let damaged =
        crate::event::CheckpointDamaged { checkpoint_id: "cp_2".parse().unwrap(), code: None };
    let events =
        [stuck.into(), checkpoint(2, CheckpointType::NodeStart, "a").into(), damaged.into()];
    let index = index(&events);
    let refusal = |id: &str| index.may_resume(&id.parse().unwrap()).unwrap_err();
    assert!(matches!(refusal("cp_1"), ResumeRefusal::NotResumable { .. }));
    assert!(matches!(refusal("cp_2"), ResumeRefusal::Damaged { .. }));
    assert!(matches!(refusal("cp_9"), ResumeRefusal::NotFound { .. }));
}

#[test]
fn pruning_keeps_what_is_needed() {
    let kind =
        |id| if id == 2 { CheckpointType::UserCheckpoint } else { CheckpointType::NodeComplete };
    let mut events: Vec<Event> = (1..=6).map(|id| checkpoint(id, kind(id), "a").into()).collect();
    // The wait that the second checkpoint stands before, which is open.
    let waiting = RunWaiting {
        run_id: "run_1".parse().unwrap(),
        wait_id: Some("wait_1".parse().unwrap()),
        wait_kind: WaitKind::Human,
        resume_token_id: None,
        deadline_at: None,
        reject_options: Vec::new(),
    };
    events.insert(2, waiting.into());
    let unclean =
        CheckpointCreated { is_clean: false, ..checkpoint(7, CheckpointType::NodeStart, "b") };
    events.push(unclean.into());
    let from = |id: &str| LineageStarted {
        lineage: 2,
        from_lineage: 1,
        from_seq: 1,
        from_checkpoint_id: id.parse().unwrap(),
    };
    events.push(from("cp_1").into());
    let pruned = index(&events);
    assert_eq!(pruned.prune_plan(4, false), ids(&["cp_3", "cp_4", "cp_5"]));
    assert_eq!(pruned.prune_plan(9, true), [], "the newest intact one stays, clean or not");
    let mut ended = events.clone();
    let (run_id, boot_id) = ("run_1".parse().unwrap(), "boot_1".parse().unwrap());
    let wait_id = Some("wait_1".parse().unwrap());
    let resume_token_id = None;
    ended.push(RunResumed { run_id, boot_id, wait_id, resume_token_id, rejected: false }.into());
    assert_eq!(
        index(&ended).prune_plan(0, false),
        ids(&["cp_2", "cp_3", "cp_4", "cp_5", "cp_6"]),
        "a wait that was answered needs none"
    );
    let config = CheckpointConfig { max_checkpoints_per_session: 5, ..CheckpointConfig::default() };
    assert_eq!(pruned.due_for_pruning(&config, 9), []);
    assert_eq!(pruned.due_for_pruning(&config, 20), ids(&["cp_3", "cp_4"]));
    assert_eq!(pruned.over_maximum(&config), ids(&["cp_3", "cp_4"]));
    let config = CheckpointConfig { prune_after_node_count: 0, ..config };
    assert_eq!(pruned.over_maximum(&config), []);
    let gone = CheckpointPruned { checkpoint_ids: ids(&["cp_3", "cp_4"]) };
    events.push(gone.into());
    events.push(CheckpointDeleted { checkpoint_id: "cp_5".parse().unwrap() }.into());
    let left = index(&events);
    let all = CheckpointFilter::default();
    let left: Vec<_> = left.list(&all).map(|entry| entry.checkpoint_id.as_str()).collect();
    assert_eq!(left, ["cp_7", "cp_6", "cp_2", "cp_1"]);
}

#[test]
fn filters_let_through_what_they_name() {
    let other = CheckpointCreated {
        is_clean: false,
        lineage: 2,
        ..checkpoint(2, CheckpointType::SafePoint, "b")
    };
    let index = index(&[checkpoint(1, CheckpointType::NodeStart, "a").into(), other.into()]);
    let count = |filter: CheckpointFilter| index.list(&filter).count();
    let filter = CheckpointFilter::default;
    assert_eq!(count(filter()), 2);
    assert_eq!(
        count(CheckpointFilter { checkpoint_type: Some(CheckpointType::SafePoint), ..filter() }),
        1
    );
    assert_eq!(count(CheckpointFilter { is_clean: Some(true), ..filter() }), 1);
    assert_eq!(count(CheckpointFilter { node: Some("b".into()), ..filter() }), 1);
    assert_eq!(count(CheckpointFilter { lineage: Some(3), ..filter() }), 0);
}

#[test]
fn later_levels_win_and_excluded_keys_add_up() {
    let level = |json: Value| serde_json::from_value::<CheckpointOptions>(json).unwrap();
    let graph = level(json!({"checkpoint_on_edge": true, "exclude_memory_keys": ["ssn"]}));
    let run = level(
        json!({"checkpoint_on_edge": false, "max_checkpoints_per_session": 7, "exclude_memory_keys": []}),
    );
    let config = CheckpointConfig::of([&graph, &run]);
    let defaults = CheckpointConfig::default();
    assert_eq!((config.checkpoint_on_edge, config.max_checkpoints_per_session), (false, 7));
    assert!(config.exclude_memory_keys.contains(&"ssn".to_owned()));
    assert!(config.exclude_memory_keys.contains(&"*secret*".to_owned()));
    assert_eq!(config.prune_after_node_count, defaults.prune_after_node_count);
    assert!(
        serde_json::from_value::<CheckpointOptions>(json!({"checkpoint_on_egde": true})).is_err()
    );
    let all = serde_json::to_value(CheckpointOptions::default()).unwrap();
    let names: BTreeSet<&str> = all.as_object().unwrap().keys().map(String::as_str).collect();
    let options = CheckpointOptions::NAMES.iter().copied();
    assert_eq!(names, options.filter(|name| *name != "checkpoints_enabled").collect());
    let off: CheckpointOptions =
        serde_json::from_value(json!({"checkpoints_enabled": false})).unwrap();
    assert!(!CheckpointConfig::of([&off]).enabled, "the other name of `enabled`");
}

#[test]
fn options_that_contradict_the_store_are_refused() {
    let store = StoreFeatures {
        is_encrypted: true,
        compresses_above: Some(1_024),
        key_source: Some("file"),
    };
    let check = |json: Value| {
        let level: CheckpointOptions = serde_json::from_value(json).unwrap();
        CheckpointConfig::check([&level], store)
    };
    assert_eq!(check(json!({})), Ok(()));
    assert_eq!(check(json!({"encrypt_checkpoints": true, "compress": true})), Ok(()));
    let encryption = check(json!({"encrypt_checkpoints": false})).unwrap_err();
    assert_eq!(encryption, ConfigConflict::Encryption { asked: false });
    let backend = check(json!({"storage_backend": "s3"})).unwrap_err();
    assert!(matches!(backend, ConfigConflict::Backend { .. }));
    assert!(check(json!({"compress": false})).is_err());
    assert!(check(json!({"compression_threshold_bytes": 10})).is_err());
    assert_eq!(check(json!({"compression_threshold_bytes": 4_096})), Ok(()));
    assert_eq!(check(json!({"encryption_key_source": "file"})), Ok(()));
    let source = check(json!({"encryption_key_source": "keychain"})).unwrap_err();
    assert!(matches!(source, ConfigConflict::KeySource { .. }));
    let unknown = check(json!({"encryption_key_source": "paper"})).unwrap_err();
    assert!(matches!(unknown, ConfigConflict::KeySourceUnknown { .. }));
    assert_eq!(check(json!({"storage_url": "s3://bucket/"})), Err(ConfigConflict::Url));
}

#[test]
fn boundaries_follow_the_options() {
    let defaults = CheckpointConfig::default();
    let wants = |config: &CheckpointConfig| {
        let all = CheckpointType::ALL.iter().copied();
        all.filter(|boundary| config.wants(*boundary, 3))
            .map(CheckpointType::as_str)
            .collect::<Vec<_>>()
    };
    assert_eq!(wants(&defaults), ["node_start", "node_complete", "safe_point", "user_checkpoint"]);
    let off = CheckpointConfig { enabled: false, ..defaults.clone() };
    assert_eq!(wants(&off), [""; 0]);
    let every = CheckpointConfig { checkpoint_every_n_iterations: 2, ..defaults };
    assert!(every.wants(CheckpointType::LoopIteration, 3));
    assert!(!every.wants(CheckpointType::LoopIteration, 4));
    let took = std::time::Duration::from_millis(SMART_LATENCY_MS);
    let worth = |name: &str, done| CheckpointConfig::is_worth(std::iter::once(name), done);
    assert!(worth("api_call", None) && !worth("plain", None));
    assert!(!worth("plain", Some((took, 10))));
    assert!(worth("plain", Some((took, 11))) && worth("plain", Some((took * 2, 0))));
}

/// Wants to show: a graph that only waits needs no process, and a deadline that passes is not the run's
/// end.
#[test]
fn a_wait_of_a_graph_outlives_its_process() {
    let now = Timestamp::from_millis(1_000);
    let deadline_at = now.after(std::time::Duration::from_secs(1));
    let (boot, run_id): (BootId, RunId) = ("boot_1".parse().unwrap(), "run_1".parse().unwrap());
    let created = SessionCreated {
        session_id: "sess_1".parse().unwrap(),
        title: None,
        task_id: None,
        working_dir: None,
        provider: None,
        agent_profile_id: None,
    };
    let waiting = RunWaiting {
        run_id: run_id.clone(),
        wait_id: Some("wait_1".parse().unwrap()),
        wait_kind: WaitKind::Human,
        resume_token_id: None,
        deadline_at: Some(deadline_at),
        reject_options: Vec::new(),
    };
    let bound =
        GraphBound { name: "g".into(), spec_hash: String::new(), file: None, critical: Critical };
    let (boot_id, message_id) = (boot.clone(), None);
    let started = RunStarted { run_id: run_id.clone(), boot_id, message_id };
    let fold = |is_graph: bool| {
        let mut state = State::default();
        let bound = is_graph.then(|| Event::from(bound.clone()));
        let events = [created.clone().into()].into_iter().chain(bound);
        for event in events.chain([started.clone().into(), waiting.clone().into()]) {
            state.apply(state.last_seq + 1, now, &event);
        }
        state
    };
    let dead = BTreeSet::from([boot]);
    assert!(supervise::orphaned_run(&fold(false).facts, &dead).is_some());
    let state = fold(true);
    assert!(supervise::orphaned_run(&state.facts, &dead).is_none());
    assert_eq!(
        status::derive(&fold(false).facts, &dead, now).name,
        status::Name::InterruptedWaiting
    );
    let cx = |now| Context { now, boot: "boot_2".parse().unwrap(), limits: Limits::default() };
    let recover = Command::Recover { dead, probe: None, takes_over: false };
    assert_eq!(decide(&state, &cx(now), recover).unwrap().records, []);
    let swept = decide(&state, &cx(deadline_at), Command::Sweep { live: false }).unwrap();
    assert!(matches!(swept.records[0].event, Event::WaitCancelled(_)), "{swept:?}");
}

/// A random acyclic graph: each edge leads from a lower to a higher number.
fn graphs() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
    (2_usize..9).prop_flat_map(|nodes| {
        let pair = (0..nodes - 1).prop_flat_map(move |from| (Just(from), from + 1..nodes));
        (Just(nodes), proptest::collection::vec(pair, 0..20))
    })
}

/// One step of a random run: which ready node ends, how, and which of its edges are taken.
type Step = (prop::sample::Index, bool, u16);

fn run(nodes: usize, pairs: &[(usize, usize)], steps: &[Step]) -> (Topology, Vec<Event>) {
    let name = |n: usize| format!("n{n}");
    let pairs: BTreeSet<_> = pairs.iter().copied().collect();
    let edges: Vec<Edge> = pairs.iter().map(|(from, to)| edge(&name(*from), &name(*to))).collect();
    let graph = Topology::new((0..nodes).map(name), &edges, None).unwrap();
    let (mut state, mut events) = (GraphState::default(), Vec::new());
    let mut push = |state: &mut GraphState, event: Event| {
        events.push(event);
        state.apply(events.len() as Seq, events.last().unwrap());
    };
    for (pick, fails, edges_taken) in steps {
        let ready: Vec<String> = graph.ready(&state).into_iter().map(str::to_owned).collect();
        if ready.is_empty() {
            break;
        }
        let path = pick.get(&ready).clone();
        push(&mut state, started(&path, 1, 1));
        if *fails {
            let code = None;
            let retry_at = Some(Timestamp::from_millis(1));
            let failed = NodeFailed {
                path: path.clone(),
                visit: 1,
                attempt: 1,
                code,
                retry_at,
                handled: false,
            };
            push(&mut state, failed.into());
        }
        push(&mut state, completed(&path, 1));
        let out = edges.iter().filter(|edge| edge.from == path).enumerate();
        for (_, edge) in out.filter(|(n, _)| edges_taken & (1 << n) != 0) {
            push(&mut state, taken(&edge.from, &edge.to));
        }
        loop {
            let skipped: Vec<String> =
                graph.skipped(&state).into_iter().map(str::to_owned).collect();
            if skipped.is_empty() {
                break;
            }
            for path in skipped {
                push(&mut state, NodeSkipped { path, visit: 1 }.into());
            }
        }
    }
    (graph, events)
}

proptest! {
    /// Wants to show: whatever edges are taken, a run ends, with each node completed or skipped once,
    /// and none before the nodes whose edge to it was taken.
    #[test]
    fn every_run_ends(
        (nodes, pairs) in graphs(),
        steps in proptest::collection::vec(any::<Step>(), 12),
    ) {
        let (graph, events) = run(nodes, &pairs, &steps);
        let state = fold(&events);
        prop_assert!(graph.is_complete(&state), "{state:?}");
        prop_assert!(graph.ready(&state).is_empty() && graph.skipped(&state).is_empty());
        let path = &state.execution_path;
        let unique: BTreeSet<_> = path.iter().collect();
        prop_assert_eq!(unique.len(), path.len());
        for event in &events {
            if let Event::EdgeTaken(e) = event {
                let at = |name: &String| path.iter().position(|done| done == name);
                prop_assert!(at(&e.from) < at(&e.to), "{} before {}", e.to, e.from);
            }
        }
    }

    /// Wants to show: a state that was saved at any point and read again folds on as the one that never
    /// left memory.
    #[test]
    fn folding_is_incremental(
        (nodes, pairs) in graphs(),
        steps in proptest::collection::vec(any::<Step>(), 12),
        cut in any::<prop::sample::Index>(),
    ) {
        let (_, events) = run(nodes, &pairs, &steps);
        let cut = cut.index(events.len());
        let saved = serde_json::to_string(&fold(&events[..cut])).unwrap();
        let mut state: GraphState = serde_json::from_str(&saved).unwrap();
        for (seq, event) in (cut as Seq + 1..).zip(&events[cut..]) {
            state.apply(seq, event);
        }
        prop_assert_eq!(state, fold(&events));
    }

    /// Wants to show: pruning leaves no more than was asked for but for what must stay, and always a
    /// checkpoint to resume from.
    #[test]
    fn pruning_leaves_a_way_back(
        made in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..30),
        keep in 0_usize..12,
        clean_only in any::<bool>(),
    ) {
        let events: Vec<Event> = (1..).zip(&made).map(|(id, (is_clean, can_resume_from))| {
            let (is_clean, can_resume_from) = (*is_clean, *can_resume_from);
            let of = checkpoint(id, CheckpointType::NodeComplete, "a");
            CheckpointCreated { is_clean, can_resume_from, ..of }.into()
        }).collect();
        let mut all = index(&events);
        let before = all.resume_point(1, None).map(|entry| entry.checkpoint_id.clone());
        let plan = all.prune_plan(keep, clean_only);
        let pruned = CheckpointPruned { checkpoint_ids: plan };
        all.apply(100, Timestamp::from_millis(0), &pruned.into());
        prop_assert!(all.len() <= keep.max(1));
        let after = all.resume_point(1, None).map(|entry| entry.checkpoint_id.clone());
        prop_assert_eq!(before, after);
    }
}
