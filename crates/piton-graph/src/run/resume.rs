//! How a run begins: in a new session, where a log ends, or behind an older checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use piton_core::decide::{Command, Create, Setup};
use piton_core::event::{
    CheckpointDamaged, GraphBound, GraphHosted, LineageStarted, RunReattached,
};
use piton_core::graph::{
    CheckpointConfig, CheckpointEntry, CheckpointOptions, GraphState, NodePhase, Topology,
};
use piton_core::id::{CheckpointId, RunId, SessionId};
use piton_core::mask::KeyPatterns;
use piton_core::state::Phase;
use piton_core::{NewRecord, Reason};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, watch};

use super::scheduler::{Beginning, Scheduler};
use super::waiting::redacted_answer;
use super::{Run, Runner, Stop, check_type, complete_inputs, idempotency_key};
use crate::error::{Error, Result, nearest};
use crate::graph::Graph;
use crate::kinds::leftovers;
use crate::log::{Log, Logged};
use crate::spec::{split, within};
use crate::store::{Claim, new_run, new_session, now};

pub(super) async fn start(runner: Runner, inputs: Map<String, Value>) -> Result<Run> {
    let config = runner.config(&CheckpointOptions::default())?;
    runner.graph.check_bodies()?;
    check_agents(&runner)?;
    let inputs = complete_inputs(&runner.graph, inputs)?;
    let id = match &runner.session {
        Some(id) => id.clone(),
        None => new_session()?,
    };
    let claim = runner.store.claim(&id)?;
    let mut log = Log::new(&runner.store, id.clone(), &config)?;
    log.take_lease()?;
    log.decide(Command::Create(Create {
        session_id: id,
        title: runner.graph.spec().goal.clone(),
        task_id: None,
        working_dir: runner.working_dir.clone(),
        provider: None,
        agent_profile_id: None,
        setup: Setup::default(),
    }))?;
    bind(&mut log, &runner.graph);
    let run_id = new_run()?;
    log.decide(Command::Start { run_id: run_id.clone(), message: None })?;
    let masked = Vec::new();
    let cut_off = Vec::new();
    let memory = BTreeMap::new();
    let at = Start { run_id, memory, set: inputs, resumed_from: None, masked, cut_off };
    begin(runner, log, config, claim, at).await
}

/// A graph with `agent` nodes needs a host that runs agents.
fn check_agents(runner: &Runner) -> Result<()> {
    let nodes: Vec<String> = runner.graph.agent_nodes().collect();
    if nodes.is_empty() || runner.agents.is_some() {
        return Ok(());
    }
    Err(Error::AgentHostMissing { nodes })
}

/// The session runs this graph from now on.
fn bind(log: &mut Log, graph: &Graph) {
    let (name, spec_hash) = (graph.name().to_owned(), graph.hash().to_owned());
    if log.folded.graph.spec_hash == spec_hash {
        return;
    }
    let file = graph.file().and_then(|file| Some(file.to_str()?.to_owned()));
    let event = GraphBound { name, spec_hash, file, critical: piton_core::event::Critical };
    log.push(NewRecord::with_content(now(), event, "spec", graph.spec().to_value()));
}

/// What a run begins with.
struct Start {
    run_id: RunId,
    memory: BTreeMap<String, Arc<Value>>,
    /// Keys that are set before the first node runs.
    set: Map<String, Value>,
    resumed_from: Option<CheckpointId>,
    masked: Vec<String>,
    /// Idempotency keys of attempts whose processes may be left.
    cut_off: Vec<String>,
}

/// Makes what was decided durable, and has the run ready.
async fn begin(
    runner: Runner,
    log: Log,
    config: CheckpointConfig,
    claim: Claim,
    at: Start,
) -> Result<Run> {
    let Start { run_id, memory, set, resumed_from, masked, cut_off } = at;
    let (stop, stopped) = watch::channel(Stop::No);
    let (answers, given) = mpsc::unbounded_channel();
    let (commands, given_commands) = mpsc::unbounded_channel();
    let session = log.id.clone();
    let recorded = log.folded.index.options();
    let configured = config.to_record(recorded, &runner.options);
    let is_new = |key: &String| !recorded.exclude_memory_keys.contains(key);
    let is_configured = configured.options == recorded.given()
        && !configured.exclude_memory_keys.iter().any(is_new);
    let newest = log.folded.index.latest(log.lineage()).map(|entry| entry.checkpoint_id.clone());
    let mut scheduler = Scheduler::new(Beginning {
        graph: runner.graph,
        log,
        config,
        run_id,
        memory,
        progress: runner.progress,
        working_dir: runner.working_dir,
        stop: stopped,
        answers: given,
        commands: given_commands,
        agents: runner.agents,
        parent: resumed_from.clone().or(newest),
    });
    let by_server = runner.is_on_server;
    if scheduler.log.folded.session.facts.graph_on_server != by_server {
        scheduler.log.push_event(GraphHosted { by_server });
    }
    if !is_configured {
        scheduler.log.push_event(configured);
    }
    if resumed_from.is_some() || !scheduler.log.folded.graph.nodes.is_empty() {
        scheduler.set_keys = set.keys().cloned().collect();
    }
    scheduler.set_values(set)?;
    scheduler.restore_inputs()?;
    scheduler.redecide_edges()?;
    scheduler.log.commit().await?;
    // The session is this process's: what an earlier one's attempts left is not to run beside new ones.
    leftovers::end(cut_off).await;
    let stop = Arc::new(stop);
    Ok(Run { session, resumed_from, masked, scheduler, stop, answers, commands, _claim: claim })
}

/// Where a resume begins.
struct Point {
    checkpoint: Option<CheckpointEntry>,
    state: GraphState,
    memory: BTreeMap<String, Arc<Value>>,
    /// It is not where the log ends.
    is_older: bool,
}

pub(super) async fn resume(
    mut runner: Runner,
    session: &SessionId,
    checkpoint: Option<&CheckpointId>,
    modifications: Map<String, Value>,
) -> Result<Run> {
    let config = runner.config(&CheckpointOptions::default())?;
    runner.graph.check_bodies()?;
    check_agents(&runner)?;
    let claim = runner.store.claim(session)?;
    let (mut log, events) = Log::load(&runner.store, session.clone(), &config).await?;
    let config = runner.config(log.folded.index.options())?;
    log.configure(&config)?;
    let excluded = &config.exclude_memory_keys;
    let info = log.folded.session.info.as_ref();
    runner.working_dir = info.and_then(|info| info.working_dir.clone());
    let bound = &log.folded.graph.name;
    if bound != runner.graph.name() {
        let (found, expected) = (bound.clone(), runner.graph.name().to_owned());
        return Err(Error::OtherGraph { found, expected });
    }
    if log.folded.session.facts.closed.is_some() {
        return Err(piton_core::decide::Refusal::SessionClosed.into());
    }
    log.take_lease()?;
    let cut_off = attempts_cut_off(&log);
    check_modifications(&runner.graph, &modifications)?;
    let point = match find_point(&mut log, &events, checkpoint).await {
        Ok(point) => point,
        Err(error) => {
            // What was found to be damaged is known from now on.
            if log.has_damages() {
                log.release();
                log.commit().await?;
            }
            return Err(error);
        }
    };
    if let Err(why) = check_fit(&runner.graph, &point.state, &point.memory, &modifications) {
        return Err(incompatible(&runner.graph, &log, &events, &point, why, &modifications).await);
    }
    check_values(&runner.graph, &log, &point, &modifications, excluded)?;
    let run_id = continue_run(&mut log, point.is_older)?;
    let resumed_from = point.checkpoint.as_ref().map(|entry| entry.checkpoint_id.clone());
    if let (true, Some(entry)) = (point.is_older, &point.checkpoint) {
        let event = LineageStarted {
            lineage: log.folded.lineages.next(),
            from_lineage: entry.lineage,
            from_seq: entry.seq,
            from_checkpoint_id: entry.checkpoint_id.clone(),
        };
        log.push_event(event);
        log.folded.graph = point.state;
    }
    bind(&mut log, &runner.graph);
    let memory = point.memory;
    let masked = masked_parts(&log.folded.graph);
    let at = Start { run_id, memory, set: modifications, resumed_from, masked, cut_off };
    begin(runner, log, config, claim, at).await
}

/// The idempotency keys of attempts that began and did not end.
fn attempts_cut_off(log: &Log) -> Vec<String> {
    let (session, lineage, state) = (&log.id, log.lineage(), &log.folded.graph);
    let nodes = state.nodes.iter().filter(|(_, node)| node.phase == NodePhase::Running);
    nodes.map(|(path, node)| idempotency_key(session, lineage, path, node.visit)).collect()
}

/// Only keys that the graph knows can be set, to values of their type.
fn check_modifications(graph: &Graph, modifications: &Map<String, Value>) -> Result<()> {
    let keys = graph.spec().all_keys();
    for (key, value) in modifications {
        if !keys.contains(key.as_str()) {
            let known = keys.iter().map(String::as_str);
            let hint = nearest(key, known).map(|name| format!("Did you mean `{name}`?"));
            return Err(Error::Input { message: format!("The graph has no key `{key}`"), hint });
        }
        check_type(graph, key, value)?;
    }
    Ok(())
}

/// The state to continue with. A checkpoint that cannot be restored is passed over for an earlier one,
/// with a record; one that was asked for by its id is not.
async fn find_point(
    log: &mut Log,
    events: &[Logged],
    checkpoint: Option<&CheckpointId>,
) -> Result<Point> {
    let lineage = log.lineage();
    if let Some(id) = checkpoint {
        let entry = log.folded.index.may_resume(id)?.clone();
        let is_older = entry.lineage != lineage || entry.seq < log.folded.graph.progress_seq;
        let state = if is_older {
            log.folded.fold_at(events, entry.lineage, entry.seq)
        } else {
            log.folded.graph.clone()
        };
        return match log.reader.everything(&state).await {
            Ok(memory) => Ok(Point { checkpoint: Some(entry), state, memory, is_older }),
            Err(error) if error.is_damage() => {
                push_damage(log, &entry, &error);
                Err(damaged(&entry, &error))
            }
            Err(error) => Err(error),
        };
    }
    // Where the log ends; that it cannot be restored is found out now.
    let failed = log.folded.graph.failed().map(|(path, _)| path.to_owned());
    let newest = log.folded.index.resume_point(lineage, failed.as_deref()).cloned();
    let state = log.folded.graph.clone();
    let first = match log.reader.everything(&state).await {
        Ok(memory) => {
            return Ok(Point { checkpoint: newest, state, memory, is_older: false });
        }
        Err(error) if error.is_damage() => error,
        Err(error) => return Err(error),
    };
    let mut damages = vec![format!("the end of the log: {first}")];
    let mut before = log.folded.session.last_seq + 1;
    let segments = log.folded.lineages.segments(lineage, before);
    while let Some(entry) = log.folded.index.before(before).cloned() {
        before = entry.seq;
        // Those of branches that were left do not count.
        if !segments.iter().any(|segment| segment.contains(&entry.seq)) {
            continue;
        }
        let state = log.folded.fold_at(events, entry.lineage, entry.seq);
        match log.reader.everything(&state).await {
            Ok(memory) => {
                return Ok(Point { checkpoint: Some(entry), state, memory, is_older: true });
            }
            Err(error) if error.is_damage() => {
                push_damage(log, &entry, &error);
                damages.push(format!("{}: {error}", entry.checkpoint_id));
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::NoneIntact { damages })
}

fn push_damage(log: &mut Log, entry: &CheckpointEntry, error: &Error) {
    let checkpoint_id = entry.checkpoint_id.clone();
    let event = CheckpointDamaged { checkpoint_id, code: Some(error.code().into()) };
    log.push(NewRecord::with_content(now(), event, "message", error.to_string().into()));
}

/// What a resume restores and masking changed.
fn masked_parts(state: &GraphState) -> Vec<String> {
    let mut parts = Vec::new();
    for (path, node) in &state.nodes {
        let iterations = node.iterations.masked.iter();
        parts.extend(iterations.map(|n| format!("iteration {} of `{path}`", n + 1)));
    }
    parts.extend(state.masked_outputs.iter().map(|key| format!("the output `{key}`")));
    let artifacts = state.artifacts.iter().filter(|(_, artifact)| artifact.excluded);
    parts.extend(artifacts.map(|(name, _)| format!("the artifact `{name}`")));
    parts
}

fn damaged(entry: &CheckpointEntry, error: &Error) -> Error {
    tracing::warn!(checkpoint = %entry.checkpoint_id, %error, "a checkpoint cannot be restored");
    let checkpoint = entry.checkpoint_id.clone();
    piton_core::graph::ResumeRefusal::Damaged { checkpoint }.into()
}

/// Whether a state fits the graph as it is now.
fn check_fit(
    graph: &Graph,
    state: &GraphState,
    memory: &BTreeMap<String, Arc<Value>>,
    modifications: &Map<String, Value>,
) -> Result<(), String> {
    for (path, node) in &state.nodes {
        let has_run = !matches!(node.phase, NodePhase::Pending | NodePhase::Skipped);
        if has_run && !graph.topology().has_node(path) {
            return Err(format!("the node `{path}` ran and is gone"));
        }
    }
    for (key, input) in &graph.spec().inputs {
        let value = modifications.get(key).or_else(|| memory.get(key).map(|value| &**value));
        if let (Some(value), Some(of_type)) = (value, input.of_type)
            && !of_type.fits(value)
        {
            return Err(format!("`{key}` is no {}", of_type.as_str()));
        }
        let is_known = state.memory.contains_key(key) || value.is_some();
        if input.required && !is_known && input.default.is_none() {
            return Err(format!("the input `{key}` is required and was not given"));
        }
    }
    // What is read by a node that is still to run was written, or will be.
    for path in unfinished(graph, state) {
        let before = graph.topology().ancestors(path);
        for key in &graph.reads(path) {
            let is_known = state.memory.contains_key(key)
                || modifications.contains_key(key)
                || graph.spec().input(key).is_some();
            let will_be = unfinished(graph, state).any(|other| graph.has_written(other, key));
            let could_be = before.iter().any(|other| graph.has_written(other, key));
            if !is_known && !will_be && !could_be {
                return Err(format!("the node `{path}` reads `{key}`, which nothing has written"));
            }
        }
    }
    Ok(())
}

/// The nodes that are still to run, as far as is known.
fn unfinished<'a>(graph: &'a Graph, state: &'a GraphState) -> impl Iterator<Item = &'a str> {
    graph.topology().nodes().filter(|path| !Topology::is_over(state, path))
}

/// The error for a state that does not fit, with the nearest earlier checkpoint that does.
async fn incompatible(
    graph: &Graph,
    log: &Log,
    events: &[Logged],
    point: &Point,
    why: String,
    modifications: &Map<String, Value>,
) -> Error {
    let mut before = point.checkpoint.as_ref().map_or(log.folded.session.last_seq, |e| e.seq);
    let mut nearest = None;
    while let Some(entry) = log.folded.index.before(before) {
        before = entry.seq;
        let state = log.folded.fold_at(events, entry.lineage, entry.seq);
        let Ok(memory) = log.reader.everything(&state).await else { continue };
        if check_fit(graph, &state, &memory, modifications).is_ok() {
            nearest = Some(entry.checkpoint_id.clone());
            break;
        }
    }
    let name = point.checkpoint.as_ref().map(|entry| entry.checkpoint_id.to_string());
    let checkpoint = name.unwrap_or_else(|| "at the log's end".to_owned());
    Error::Incompatible { checkpoint, why, nearest }
}

/// Values that are never saved and that a node will read have to be given again.
fn check_values(
    graph: &Graph,
    log: &Log,
    point: &Point,
    modifications: &Map<String, Value>,
    excluded: &[String],
) -> Result<()> {
    let patterns = KeyPatterns::new(excluded);
    // A subgraph that runs has its inputs: it reads nothing more.
    let has_begun = |path: &str| {
        graph.topology().is_subgraph(path) && point.state.phase(path) == NodePhase::Running
    };
    let mut read: BTreeSet<String> = unfinished(graph, &point.state)
        .filter(|path| !has_begun(path))
        .flat_map(|path| graph.reads(path))
        .collect();
    let nodes =
        || unfinished(graph, &point.state).filter_map(|path| Some((path, graph.node(path)?)));
    // What a condition reads, unless the node before it is to write it.
    for (path, node) in nodes() {
        let (scope, name) = split(path);
        let Some(checked) = graph.checked().scope(scope) else { continue };
        let edges = checked.spec.edges.iter().enumerate().filter(|(_, edge)| edge.from == name);
        let keys = edges.filter_map(|(number, _)| checked.conditions.get(&number)).flatten();
        read.extend(keys.filter(|key| !node.writes.contains(*key)).map(|key| within(scope, key)));
    }
    let is_lost = |key: &String| {
        let entry = point.state.memory.get(key);
        entry.is_some_and(|entry| entry.excluded || patterns.matches(split(key).1))
            && !modifications.contains_key(key)
    };
    // An input of a subgraph is set where it comes from.
    let lost = read.into_iter().filter(is_lost).map(|key| graph.spec().origin_of(key));
    let lost: BTreeSet<String> = lost.filter(|key| !modifications.contains_key(key)).collect();
    let mut keys: Vec<String> = lost.into_iter().collect();
    // What a node wrote before its safe point and does not write again, and what it was answered.
    let lineages = log.folded.lineages.ancestry(log.lineage());
    for (path, node) in nodes() {
        let safe_point = point.state.node(path).and_then(|state| state.safe_point.as_ref());
        // The outputs of a loop need not be keys of the memory; its body makes them again.
        let excluded = safe_point.into_iter().flat_map(|at| &at.excluded_keys);
        let excluded = excluded.filter(|key| node.writes.contains(*key));
        let redacted = safe_point.filter(|at| at.redacted).map(|_| &node.writes);
        let answered = redacted_answer(&log.id, &lineages, &point.state, (path, node));
        let kept_nowhere = excluded.chain(redacted.into_iter().flatten()).map(String::as_str);
        for key in kept_nowhere.chain(answered) {
            let key = within(split(path).0, key);
            if !modifications.contains_key(&key) && !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    if keys.is_empty() { Ok(()) } else { Err(Error::ValuesRequired { keys }) }
}

/// The run that the work continues in: the open one, or a new one.
fn continue_run(log: &mut Log, is_older: bool) -> Result<RunId> {
    let run = log.folded.session.facts.run.clone();
    let start = |log: &mut Log| {
        let run_id = new_run()?;
        log.decide(Command::Start { run_id: run_id.clone(), message: None })?;
        Ok(run_id)
    };
    let Some(run) = run else { return start(log) };
    let run_id = run.run_id.clone();
    match run.phase {
        Phase::Open if run.is_waiting() && !is_older => {
            // Its waits stay open; those whose time has passed end.
            let boot_id = log.store.boot().clone();
            let deadlines = Vec::new();
            log.push_event(RunReattached { run_id: run_id.clone(), boot_id, deadlines });
            log.decide(Command::Sweep { live: true })?;
            Ok(run_id)
        }
        Phase::Open if run.is_waiting() => start(log),
        // A wait was answered in this boot, and nothing ran since.
        Phase::Open if run.boot_id == *log.store.boot() && !is_older => Ok(run_id),
        Phase::Open => {
            // The process that ran it does not hold the lease any more: the run was cut off.
            let reason = Reason::ProcessRestart;
            log.decide(Command::Interrupt { run_id: run_id.clone(), reason })?;
            if is_older {
                return start(log);
            }
            log.decide(Command::Resume { run_id: run_id.clone() })?;
            Ok(run_id)
        }
        Phase::Paused | Phase::Interrupted { .. } if !is_older => {
            log.decide(Command::Resume { run_id: run_id.clone() })?;
            Ok(run_id)
        }
        Phase::Paused | Phase::Interrupted { .. } | Phase::Dismissed | Phase::Ended(_) => {
            start(log)
        }
    }
}
