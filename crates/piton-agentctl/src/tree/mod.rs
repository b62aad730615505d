//! The processes of an execution: starting them, finding them however they hide, ending them.
//!
//! A process belongs to the execution by descent (agentctl is a child subreaper, so that orphans
//! come to it), by the mark in its environment, or by its cgroup. Within the execution it
//! belongs to a [`ProcessRole`], so that ending the agent leaves people's shells alone.

mod groups;
mod scan;
mod start;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton_core::planted::{self, Bug};
use piton_exec::leftovers::{self, Cgroup, Ended, Error, Mark, Process, Target, cgroup, proc};

pub use start::{Program, Streams};

/// In the environment of every process, beside the execution's mark: the part it belongs to.
pub const PART: &str = "PITON_PART";

/// What a process was started for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProcessRole {
    Agent,
    /// A terminal that the agent asked for; ends with the agent.
    Terminal(String),
    /// A shell of a person.
    Shell(String),
    /// A short command of agentctl itself, such as git.
    Own,
}

impl ProcessRole {
    pub fn name(&self) -> String {
        match self {
            Self::Agent => "agent".to_owned(),
            Self::Terminal(id) => format!("terminal-{id}"),
            Self::Shell(id) => format!("shell-{id}"),
            Self::Own => "own".to_owned(),
        }
    }
}

/// What is to be found or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of the execution.
    All,
    /// The agent, its terminals, and every process that is not known to be another part.
    Agent,
    /// One part.
    Role(ProcessRole),
}

impl Scope {
    /// `None`: the part is not known, as for an orphan without an environment.
    fn holds(&self, part: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Agent => {
                let is_ours = planted::is(Bug::ShellsEndWithAgent);
                part.is_none_or(|part| {
                    is_ours || !part.starts_with("shell-") && part != ProcessRole::Own.name()
                })
            }
            Self::Role(wanted) => part == Some(wanted.name().as_str()),
        }
    }
}

/// The children of this process that were started through a tree, and what for.
type Children = BTreeMap<(u32, u64), Child>;

#[derive(Debug)]
struct Child {
    mark: Mark,
    part: String,
}

/// One start at a time, for the whole process: while agentctl is in a cgroup to bear a child there,
/// nothing else may be started, and no child may be looked at before it is registered.
static CHILDREN: Mutex<Children> = Mutex::new(BTreeMap::new());

fn one_at_a_time() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes orphans of our descendants our children. Where that is unknown, the reason.
#[cfg(target_os = "linux")]
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

#[cfg(not(target_os = "linux"))]
pub fn become_subreaper() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The processes of one execution; one for each agentctl. Clones are the same tree.
#[derive(Clone, Debug)]
pub struct Tree {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    mark: Mark,
    /// Our own cgroup and the execution's below it.
    cgroup: Result<(Cgroup, Cgroup), cgroup::Absent>,
    /// Only where processes cannot be listed.
    groups: groups::Groups,
}

impl Tree {
    /// Tries to make the execution's cgroup; see [`Tree::cgroup`] for what came of it.
    pub fn new(mark: &Mark) -> Self {
        // Our own cgroup is not where we are for the moment of a start.
        let _started = one_at_a_time();
        let cgroup = cgroup::own().and_then(|own| {
            let made = Cgroup::make(&own, mark)?;
            Ok((own, made))
        });
        Self::with(mark, cgroup)
    }

    /// A tree without a cgroup, as where none is permitted.
    pub fn without_cgroup(mark: &Mark) -> Self {
        let cgroup = Err(cgroup::Absent { reason: "not wanted".to_owned() });
        Self::with(mark, cgroup)
    }

    fn with(mark: &Mark, cgroup: Result<(Cgroup, Cgroup), cgroup::Absent>) -> Self {
        let (mark, groups) = (mark.clone(), groups::Groups::default());
        Self { inner: Arc::new(Inner { mark, cgroup, groups }) }
    }

    pub fn mark(&self) -> &Mark {
        &self.inner.mark
    }

    /// Whether there is a cgroup, or why not; for people.
    pub fn cgroup(&self) -> String {
        match &self.inner.cgroup {
            Ok((_, group)) => format!("cgroup: {}", group.name()),
            Err(absent) => absent.to_string(),
        }
    }

    /// The living processes in `scope`; never agentctl itself.
    pub fn find(&self, scope: &Scope) -> io::Result<Vec<Process>> {
        let children = one_at_a_time();
        let group = self.inner.cgroup.as_ref().ok().map(|(_, group)| group);
        let mut found = scan::find(&self.inner.mark, &children, group, scope)?;
        found.retain(|process| !process.zombie);
        Ok(found)
    }

    /// Ends all in `scope`: asks, waits for `term`, kills until none is found.
    pub async fn end(&self, scope: Scope, term: Duration) -> Result<Ended, Error> {
        if groups::NEEDED {
            self.inner.groups.end(&scope, term).await;
            return Ok(Ended::default());
        }
        let (finding, killing) = (self.clone(), self.clone());
        let (wanted, meant) = (scope.clone(), scope.clone());
        let target = Target {
            find: Arc::new(move || {
                let found = finding.find(&wanted);
                finding.reap();
                found
            }),
            kill: Arc::new(move || killing.kill_cgroups(&meant)),
        };
        let ended = leftovers::end_target(target, term).await?;
        let tree = self.clone();
        let tidied = tokio::task::spawn_blocking(move || {
            tree.reap();
            tree.remove_cgroups(&scope);
        });
        tidied.await.map_err(|_| Error::Interrupted)?;
        Ok(ended)
    }

    fn cgroups(&self, scope: &Scope) -> Vec<Cgroup> {
        let Ok((_, group)) = &self.inner.cgroup else { return Vec::new() };
        match scope {
            Scope::All => vec![group.clone()],
            Scope::Role(part) => vec![group.part(&part.name())],
            Scope::Agent => {
                let meant = group.parts().into_iter().filter(|(name, _)| scope.holds(Some(name)));
                meant.map(|(_, part)| part).collect()
            }
        }
    }

    fn kill_cgroups(&self, scope: &Scope) {
        // We ourselves are inside for the moment of a start.
        let _started = one_at_a_time();
        self.cgroups(scope).iter().filter(|group| group.exists()).for_each(Cgroup::kill);
    }

    fn remove_cgroups(&self, scope: &Scope) {
        let _started = one_at_a_time();
        self.cgroups(scope).iter().for_each(Cgroup::remove);
    }

    /// Asks how orphans that came to us have ended, so that they do not stay as zombies. Children
    /// that were started through a tree are left to those who wait for them.
    pub fn reap(&self) {
        let mut owned = one_at_a_time();
        let Ok(processes) = proc::all() else { return };
        let present: HashSet<_> = processes.iter().map(Process::identity).collect();
        owned.retain(|identity, _| present.contains(identity));
        let own = std::process::id();
        for process in processes {
            if process.zombie && process.parent == own && !owned.contains_key(&process.identity()) {
                let pid = i32::try_from(process.pid).ok().and_then(rustix::process::Pid::from_raw);
                let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::NOHANG);
            }
        }
    }

    /// Reaps whenever a child ends; runs until it is dropped.
    pub async fn reap_always(self) -> io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut ended = signal(SignalKind::child())?;
        while ended.recv().await.is_some() {
            let tree = self.clone();
            let _ = tokio::task::spawn_blocking(move || tree.reap()).await;
        }
        Ok(())
    }
}
