//! git, run so that it does what it is asked and nothing else: no program that a repository's
//! configuration names (hooks, monitors, filters, credential helpers, transports), no question to
//! anybody, an end in time. What it may not know (the store's key) it does not inherit.
//!
//! Filters are known by the names that the configuration has for them, and all are emptied: a file
//! that one of them would change is written, and compared, as it lies in the repository.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// How long looking may take.
const LOOK_TIME_MAX: Duration = Duration::from_secs(10);
/// How long it may take to write or remove a work tree.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(100);
const OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
const COMPLAINT_BYTES_MAX: usize = 4 * 1024;

const SETTINGS: &[&str] = &[
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "log.showSignature=false",
    "credential.helper=",
    "status.submoduleSummary=false",
    "submodule.recurse=false",
    "protocol.allow=never",
    "advice.detachedHead=false",
];

/// Why git did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("git is not installed")]
    Missing,
    #[error("git took longer than {seconds} seconds")]
    Timeout { seconds: u64 },
    #[error("git failed: {message}")]
    Failed { message: String },
    #[error("git cannot be run")]
    Io(#[from] std::io::Error),
}

type Result<T> = std::result::Result<T, Error>;

/// git in one folder.
#[derive(Debug)]
pub(super) struct Git {
    folder: PathBuf,
}

struct Said {
    good: bool,
    output: Vec<u8>,
    complaint: String,
}

impl Said {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    fn failed(&self) -> Error {
        let first = self.complaint.lines().find(|line| !line.trim().is_empty());
        let message = first.unwrap_or("it did not say why").to_owned();
        Error::Failed { message }
    }
}

impl Git {
    pub(super) fn at(folder: impl AsRef<Path>) -> Self {
        Self { folder: folder.as_ref().to_owned() }
    }

    /// What it answers.
    pub(super) async fn ask(&self, args: &[&str]) -> Result<String> {
        let said = self.run(args, &BTreeSet::new(), LOOK_TIME_MAX, None).await?;
        if said.good { Ok(said.text()) } else { Err(said.failed()) }
    }

    /// The same, of what may not be there: it is not, if git says nothing.
    pub(super) async fn find(&self, args: &[&str]) -> Result<Option<String>> {
        let said = self.run(args, &BTreeSet::new(), LOOK_TIME_MAX, None).await?;
        match said.good {
            true => Ok(Some(said.text().trim_end_matches('\n').to_owned())),
            false if said.complaint.is_empty() && said.output.is_empty() => Ok(None),
            false => Err(said.failed()),
        }
    }

    /// The same, of what reads the files of the work tree.
    pub(super) async fn ask_unfiltered(&self, args: &[&str]) -> Result<String> {
        let filters = self.filters().await?;
        let said = self.run(args, &filters, CHANGE_TIME_MAX, None).await?;
        if said.good { Ok(said.text()) } else { Err(said.failed()) }
    }

    /// Has something changed. Whatever becomes of this process, the lock is held until git is
    /// done.
    pub(super) async fn change(&self, args: &[&str], lock: &File) -> Result<()> {
        let filters = self.filters().await?;
        let said = self.run(args, &filters, CHANGE_TIME_MAX, Some(lock.try_clone()?)).await?;
        if said.good { Ok(()) } else { Err(said.failed()) }
    }

    /// The names of all filters that are configured anywhere. Reading a configuration runs nothing.
    async fn filters(&self) -> Result<BTreeSet<String>> {
        let args = ["config", "--null", "--name-only", "--get-regexp", r"^filter\."];
        let said = self.run(&args, &BTreeSet::new(), LOOK_TIME_MAX, None).await?;
        if !said.good && !said.complaint.is_empty() {
            return Err(said.failed());
        }
        // A name that is no text cannot be handed on, and would be left in force.
        let text = String::from_utf8(said.output).map_err(|_| Error::Failed {
            message: "A filter in git's configuration has a name that is not UTF-8".to_owned(),
        })?;
        let names = text.split('\0').filter_map(|key| {
            let (name, _) = key.strip_prefix("filter.")?.rsplit_once('.')?;
            Some(name.to_owned())
        });
        Ok(names.collect())
    }

    async fn run(
        &self,
        args: &[&str],
        filters: &BTreeSet<String>,
        within: Duration,
        held: Option<File>,
    ) -> Result<Said> {
        match tokio::time::timeout(within, self.run_unbounded(args, filters, held)).await {
            Ok(said) => said,
            // Dropped with its future, git and its helpers are killed.
            Err(_) => Err(Error::Timeout { seconds: within.as_secs() }),
        }
    }

    async fn run_unbounded(
        &self,
        args: &[&str],
        filters: &BTreeSet<String>,
        held: Option<File>,
    ) -> Result<Said> {
        let mut command = Command::new("git");
        command.args(["--no-optional-locks", "--no-pager", "--literal-pathspecs"]);
        command.args(SETTINGS.iter().flat_map(|set| ["-c", set]));
        command.args(args).current_dir(&self.folder).process_group(0);
        for (name, _) in std::env::vars_os() {
            // The one would point git at another repository, or give it programs to run; the other
            // is meant for the server.
            let name_text = name.to_string_lossy();
            if name_text.starts_with("GIT_") || name_text.starts_with("PITON_") {
                command.env_remove(name);
            }
        }
        command.envs([
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            // None: not even a path, behind which a program could be named.
            ("GIT_ALLOW_PROTOCOL", ""),
            ("LC_ALL", "C"),
        ]);
        command.envs(without(filters));
        // Never read: an open file is what holds a lock.
        command.stdin(held.map_or_else(Stdio::null, Stdio::from));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound if self.folder.is_dir() => Error::Missing,
            _ => Error::Io(error),
        })?;
        let group = Group(child.id());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (output, complaint) =
            tokio::join!(bounded(stdout, OUTPUT_BYTES_MAX), bounded(stderr, COMPLAINT_BYTES_MAX));
        let status = child.wait().await?;
        // Waited for, its pid may become another's.
        group.ended();
        let complaint = String::from_utf8_lossy(&complaint?).into_owned();
        Ok(Said { good: status.success(), output: output?, complaint })
    }
}

/// Settings that empty these filters; as variables, since a name may have any character in it.
fn without(filters: &BTreeSet<String>) -> Vec<(String, String)> {
    let settings = filters.iter().flat_map(|name| {
        [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")]
            .map(|(key, value)| (format!("filter.{name}.{key}"), value))
    });
    let mut env = Vec::new();
    let mut count = 0;
    for (key, value) in settings {
        env.push((format!("GIT_CONFIG_KEY_{count}"), key));
        env.push((format!("GIT_CONFIG_VALUE_{count}"), value.to_owned()));
        count += 1;
    }
    env.push(("GIT_CONFIG_COUNT".to_owned(), count.to_string()));
    env
}

/// git's process group: it may have helpers.
struct Group(Option<u32>);

impl Group {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let _ = pid.map(|pid| rustix::process::kill_process_group(pid, Signal::KILL));
    }
}

/// The beginning of what is said. The rest is read, too: who cannot get rid of it stops.
async fn bounded(
    from: Option<impl AsyncRead + Unpin>,
    bytes_max: usize,
) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(mut from) = from else { return Ok(bytes) };
    (&mut from).take(bytes_max as u64).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(bytes)
}
