//! The workspace: files and git ([`piton_workspace`]), and shells, whether or not there is an agent.

pub mod shells;

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use piton_workspace::git::{Runner, Spawner};
use tokio::process::{Child, Command};

use crate::tree::{ProcessRole, Tree};

pub use piton_workspace::{Content, Error, Range, Staged};
pub use shells::{ShellEvent, Shells, Writer as ShellWriter};

/// A workspace, and the processes that work in it. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Workspace {
    files: piton_workspace::Workspace,
    tree: Tree,
}

/// Files and git.
impl Deref for Workspace {
    type Target = piton_workspace::Workspace;

    fn deref(&self) -> &Self::Target {
        &self.files
    }
}

impl Workspace {
    /// `root` must be an absolute path of a folder. `private` is a folder of agentctl's own, for
    /// git's private configurations.
    pub fn open(root: &Path, private: &Path, tree: &Tree) -> Result<Self, Error> {
        let runner = Runner::new(private).with_spawner(Arc::new(tree.clone()));
        let files = piton_workspace::Workspace::open(root, runner)?;
        Ok(Self { files, tree: tree.clone() })
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// git's processes are the execution's, and short.
impl Spawner for Tree {
    fn spawn(&self, mut command: Command) -> io::Result<Child> {
        command.envs(self.markers(&ProcessRole::Own));
        self.started(&ProcessRole::Own, || command.spawn())
    }
}
