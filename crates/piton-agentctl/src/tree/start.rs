//! Starting a program as part of the execution.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use piton_exec::environment;
use piton_exec::leftovers::{Cgroup, proc};
use tokio::process::{Child, Command};

use super::{PART, ProcessRole, Tree, one_at_a_time};

/// What is started, and how.
#[derive(Debug)]
pub struct Program {
    /// Program and arguments.
    pub command: Vec<String>,
    pub cwd: PathBuf,
    /// Added to our own environment, of which what is meant for Piton is not inherited.
    pub env: Vec<(String, String)>,
    /// Removed from it.
    pub env_remove: Vec<String>,
    pub part: ProcessRole,
    pub streams: Streams,
}

#[derive(Debug, Default)]
pub enum Streams {
    /// stdin, stdout and stderr through pipes of their own.
    #[default]
    Piped,
    /// No input; stdout and stderr into one pipe, so that their order is kept.
    Merged(io::PipeWriter),
}

impl Tree {
    /// The variables by which a process of this part is found.
    pub fn markers(&self, part: &ProcessRole) -> [(&'static str, String); 3] {
        let [execution, folder] = self.inner.mark.variables();
        [execution, folder, (PART, part.name())]
    }

    /// Starts a program in a process group of its own, marked, and born in the part's cgroup.
    pub fn spawn(&self, program: Program) -> io::Result<Child> {
        let Some((name, args)) = program.command.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "No program is named"));
        };
        let mut command = Command::new(name);
        command.args(args).current_dir(&program.cwd);
        for variable in environment::private_variables() {
            command.env_remove(variable);
        }
        for variable in &program.env_remove {
            command.env_remove(variable);
        }
        command.envs(program.env).envs(self.markers(&program.part)).process_group(0);
        // Kill the program of a request that is dropped: no caller waits for it any more.
        command.kill_on_drop(program.part == ProcessRole::Own);
        match program.streams {
            Streams::Piped => {
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            }
            Streams::Merged(writer) => {
                command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
            }
        }
        self.started(&program.part, || command.spawn())
    }

    /// Runs `start` as the only start of this process, inside the part's cgroup where there is one,
    /// and leaves the child to its owner when it ends.
    pub fn started(
        &self,
        part: &ProcessRole,
        start: impl FnOnce() -> io::Result<Child>,
    ) -> io::Result<Child> {
        let mut children = one_at_a_time();
        let moved = self.enter(part);
        let child = start();
        if moved {
            self.leave();
        }
        let child = child?;
        self.inner.groups.add(part, child.id());
        // Not yet waited for, so the pid cannot be another's, even if it has ended already.
        if let Some(process) = child.id().and_then(proc::one) {
            let (mark, part) = (self.inner.mark.clone(), part.name());
            children.insert(process.identity(), super::Child { mark, part });
        }
        Ok(child)
    }

    fn enter(&self, part: &ProcessRole) -> bool {
        // Our own short commands are not worth it.
        let (Ok((own, _)), false) = (&self.inner.cgroup, *part == ProcessRole::Own) else {
            return false;
        };
        // The execution's folder goes when all has ended, and comes back with the next start.
        let group = Cgroup::make(own, &self.inner.mark);
        match group.and_then(|group| group.below(&part.name())).and_then(|part| part.enter()) {
            Ok(()) => true,
            Err(absent) => {
                tracing::debug!(part = part.name(), "{absent}");
                false
            }
        }
    }

    fn leave(&self) {
        if let Ok((own, _)) = &self.inner.cgroup
            && let Err(absent) = own.enter()
        {
            // Then the cgroup is never killed as a whole: it would be us too.
            tracing::warn!("agentctl stays in its agent's cgroup: {absent}");
        }
    }
}
