//! Which processes belong to an execution, and to which of its parts.

use std::collections::HashMap;
use std::io;

use piton_core::id::ExecutionId;
use piton_exec::leftovers::{Cgroup, Process, proc};
use piton_exec::protocol::MARKER;

use super::{PART, Scope};

/// What a process itself says about where it belongs.
#[derive(Clone)]
enum Says {
    /// It is of this execution, and of this part if known.
    Ours(Option<String>),
    /// Another execution's marker: it and its descendants are not ours.
    Anothers,
    /// No marker: what its parent is.
    Nothing,
}

/// Descent from the caller, marker and cgroup. An execution started from within this one is left
/// alone by descent, since it has processes that may outlive ours; a cgroup holds all.
pub(super) fn find(
    execution: &ExecutionId,
    group: Option<&Cgroup>,
    scope: &Scope,
) -> io::Result<Vec<Process>> {
    let own = std::process::id();
    let processes = proc::all()?;
    let by_pid: HashMap<u32, &Process> =
        processes.iter().map(|process| (process.pid, process)).collect();
    let in_cgroup = parts_by_cgroup(group);
    let mut said: HashMap<u32, Says> = HashMap::new();
    let mut found = Vec::new();
    for process in &processes {
        if process.pid == own || process.pid == 1 {
            continue;
        }
        let says = match in_cgroup.get(&process.pid) {
            Some(part) => Says::Ours(part.clone()),
            None => belongs(process, execution, own, &by_pid, &mut said),
        };
        if let Says::Ours(part) = says
            && scope.holds(part.as_deref())
        {
            found.push(process.clone());
        }
    }
    Ok(found)
}

fn parts_by_cgroup(group: Option<&Cgroup>) -> HashMap<u32, Option<String>> {
    let Some(group) = group else { return HashMap::new() };
    let mut parts: HashMap<u32, Option<String>> =
        group.pids().into_iter().map(|pid| (pid, None)).collect();
    for (name, part) in group.parts() {
        parts.extend(part.pids().into_iter().map(|pid| (pid, Some(name.clone()))));
    }
    parts
}

/// What it says itself, or the nearest of its ancestors that says something.
fn belongs(
    process: &Process,
    execution: &ExecutionId,
    own: u32,
    by_pid: &HashMap<u32, &Process>,
    said: &mut HashMap<u32, Says>,
) -> Says {
    let mut at = process;
    // A chain of parents cannot be longer than the list; the bound is for a list torn by changes.
    for _ in 0..=by_pid.len() {
        let says = said.entry(at.pid).or_insert_with(|| ask(at.pid, execution));
        match says {
            Says::Nothing if at.parent == own => return Says::Ours(None),
            Says::Nothing => {}
            Says::Ours(_) | Says::Anothers => return says.clone(),
        }
        at = match by_pid.get(&at.parent) {
            Some(parent) if parent.pid > 1 => parent,
            Some(_) => break,
            // Its parent ended while we read the list, and it may have come to us since.
            None => match proc::one(at.pid) {
                Some(now) if now.parent == own => return Says::Ours(None),
                _ => break,
            },
        };
    }
    Says::Nothing
}

fn ask(pid: u32, execution: &ExecutionId) -> Says {
    match proc::variable(pid, MARKER) {
        Some(marker) if marker == execution.as_str() => Says::Ours(proc::variable(pid, PART)),
        Some(_) => Says::Anothers,
        None => Says::Nothing,
    }
}
