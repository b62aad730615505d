//! Which processes belong to an execution, and to which of its parts.

use std::collections::HashMap;
use std::io;

use piton_exec::leftovers::{Cgroup, Mark, Process, proc};
use piton_exec::protocol::{MARKER, MARKER_FOLDER};

use super::{Children, PART, Scope};

/// What a process itself says about where it belongs.
#[derive(Clone)]
enum Says {
    /// It is of this execution, and of this part if known.
    Ours(Option<String>),
    /// Another execution's mark: it and its descendants are not ours.
    Anothers,
    /// No mark, or half of one: what its parent is.
    Nothing,
}

/// Descent from the caller, mark and cgroup. An execution started from within this one is left
/// alone by descent, since it has processes that may outlive ours; a cgroup holds all.
pub(super) fn find(
    mark: &Mark,
    children: &Children,
    group: Option<&Cgroup>,
    scope: &Scope,
) -> io::Result<Vec<Process>> {
    let own = std::process::id();
    let processes = proc::all()?;
    let by_pid: HashMap<u32, &Process> =
        processes.iter().map(|process| (process.pid, process)).collect();
    let in_cgroup = parts_by_cgroup(group);
    let mut asked = Asked { mark, children, said: HashMap::new() };
    let mut found = Vec::new();
    for process in &processes {
        if process.pid == own || process.pid == 1 {
            continue;
        }
        let says = match in_cgroup.get(&process.pid) {
            Some(part) => Says::Ours(part.clone()),
            None => belongs(process, own, &by_pid, &mut |at| asked.of(at)),
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
    own: u32,
    by_pid: &HashMap<u32, &Process>,
    ask: &mut impl FnMut(&Process) -> Says,
) -> Says {
    let mut at = process;
    // A chain of parents cannot be longer than the list; the bound is for a list torn by changes.
    for _ in 0..=by_pid.len() {
        match ask(at) {
            Says::Nothing if at.parent == own => return Says::Ours(None),
            Says::Nothing => {}
            says => return says,
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

/// What was asked already.
struct Asked<'a> {
    mark: &'a Mark,
    children: &'a Children,
    said: HashMap<u32, Says>,
}

impl Asked<'_> {
    fn of(&mut self, process: &Process) -> Says {
        if let Some(says) = self.said.get(&process.pid) {
            return says.clone();
        }
        let says = self.ask(process);
        self.said.insert(process.pid, says.clone());
        says
    }

    fn ask(&self, process: &Process) -> Says {
        // We know our own children even in the moment in which their program is being loaded and
        // they have no environment.
        if let Some(child) = self.children.get(&process.identity()) {
            let ours = child.mark == *self.mark;
            return if ours { Says::Ours(Some(child.part.clone())) } else { Says::Anothers };
        }
        let said = |name| proc::variable(process.pid, name);
        match (said(MARKER), said(MARKER_FOLDER)) {
            (Some(execution), _) if execution != self.mark.execution().as_str() => Says::Anothers,
            (Some(_), Some(folder)) if folder == self.mark.folder() => Says::Ours(said(PART)),
            // The execution of a folder that is a copy of ours, or ours of it.
            (Some(_), Some(_)) => Says::Anothers,
            _ => Says::Nothing,
        }
    }
}
