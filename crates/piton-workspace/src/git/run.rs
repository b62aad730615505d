//! One process of git.

use std::ffi::OsString;
use std::fs::File;
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::{Error, Git, Output, Result};

const COMPLAINT_BYTES_MAX: usize = 4 * 1024;
/// What is read at a time of an answer in records.
const CHUNK_BYTES: usize = 64 * 1024;
/// A record is a line of a listing with a path or two.
const RECORD_BYTES_MAX: usize = 64 * 1024;

/// What no file may say otherwise.
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

const ENVIRONMENT: &[(&str, &str)] = &[
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    // None: not even a path, behind which a program could be named.
    ("GIT_ALLOW_PROTOCOL", ""),
    ("LC_ALL", "C"),
];

/// How git ended.
pub(super) struct Ended {
    success: bool,
    output: Output,
    complaint: String,
}

impl Ended {
    /// As a question is answered to which there is nothing to say.
    pub(super) fn is_silent_failure(&self) -> bool {
        !self.success && self.complaint.is_empty() && self.output == Output::default()
    }

    pub(super) fn good(self) -> Result<Output> {
        if self.success || self.output.truncated {
            return Ok(self.output);
        }
        let first = self.complaint.lines().find(|line| !line.trim().is_empty());
        let message = first.unwrap_or("it did not say why").to_owned();
        Err(Error::Failed { message })
    }
}

impl Git {
    pub(super) async fn run(
        &self,
        args: &[&str],
        env: &[(OsString, OsString)],
        bytes_max: usize,
        held: Option<File>,
    ) -> Result<Ended> {
        let (mut child, group) = self.spawn(args, env, held)?;
        let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
        let output = async {
            let output = beginning(stdout.as_mut(), bytes_max).await?;
            if output.truncated {
                group.kill();
            }
            std::io::Result::Ok(output)
        };
        let (output, complaint) = tokio::join!(output, complaint(stderr.as_mut()));
        let status = child.wait().await?;
        // Waited for, its pid may become another's.
        group.ended();
        let complaint = complaint?.text();
        Ok(Ended { success: status.success(), output: output?, complaint })
    }

    /// Gives every record of an answer, without the NUL that it ends in, to `each`; none is kept.
    pub(super) async fn run_records(
        &self,
        args: &[&str],
        env: &[(OsString, OsString)],
        each: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<()> {
        let (mut child, group) = self.spawn(args, env, None)?;
        let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
        let reading = async {
            let read = records(stdout.as_mut(), each).await;
            if read.is_err() {
                group.kill();
            }
            read
        };
        let (read, complaint) = tokio::join!(reading, complaint(stderr.as_mut()));
        let status = child.wait().await?;
        group.ended();
        read?;
        let (success, complaint) = (status.success(), complaint?.text());
        Ended { success, output: Output::default(), complaint }.good().map(drop)
    }

    fn spawn(
        &self,
        args: &[&str],
        env: &[(OsString, OsString)],
        held: Option<File>,
    ) -> Result<(Child, Group)> {
        let mut command = Command::new(&self.runner.program);
        command.args(["--no-optional-locks", "--no-pager", "--literal-pathspecs"]);
        command.args(SETTINGS.iter().flat_map(|set| ["-c", set]));
        command.args(args).current_dir(&self.folder).process_group(0).kill_on_drop(true);
        for (name, _) in std::env::vars_os() {
            // The one would point git at another repository, or give it programs to run; the other
            // is meant for the server.
            let name_text = name.to_string_lossy();
            if name_text.starts_with("GIT_") || name_text.starts_with("PITON_") {
                command.env_remove(name);
            }
        }
        command
            .envs(ENVIRONMENT.iter().copied())
            .envs(env.iter().map(|(name, value)| (name, value)));
        // Never read: an open file is what holds a lock.
        command.stdin(held.map_or_else(Stdio::null, Stdio::from));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.runner.spawner.spawn(command).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound if self.folder.is_dir() => Error::Missing,
            _ => Error::Io(error),
        })?;
        let group = Group(child.id());
        Ok((child, group))
    }
}

/// The beginning of what git complains of.
async fn complaint(mut from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Output> {
    let complaint = beginning(from.as_mut(), COMPLAINT_BYTES_MAX).await?;
    if let Some(rest) = from.as_mut() {
        // A process that cannot get rid of what it says stops.
        tokio::io::copy(rest, &mut tokio::io::sink()).await?;
    }
    Ok(complaint)
}

async fn records(
    from: Option<impl AsyncRead + Unpin>,
    each: &mut (dyn FnMut(&[u8]) + Send),
) -> std::io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let (mut chunk, mut begun) = (vec![0; CHUNK_BYTES], Vec::new());
    loop {
        let count = from.read(&mut chunk).await?;
        if count == 0 {
            return Ok(());
        }
        let mut parts = chunk[..count].split(|byte| *byte == 0);
        // What is behind the last NUL has not ended.
        let rest = parts.next_back().unwrap_or_default();
        for part in parts {
            if begun.is_empty() {
                each(part);
            } else {
                begun.extend_from_slice(part);
                each(&begun);
                begun.clear();
            }
        }
        begun.extend_from_slice(rest);
        if begun.len() > RECORD_BYTES_MAX {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
    }
}

/// git's process group: it may have helpers.
struct Group(Option<u32>);

impl Group {
    fn kill(&self) {
        let pid = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let _ = pid.map(|pid| rustix::process::kill_process_group(pid, Signal::KILL));
    }

    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The beginning of a stream.
async fn beginning(
    from: Option<impl AsyncRead + Unpin>,
    bytes_max: usize,
) -> std::io::Result<Output> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(bytes_max as u64 + 1).read_to_end(&mut bytes).await?;
    }
    let truncated = bytes.len() > bytes_max;
    bytes.truncate(bytes_max);
    Ok(Output { bytes, truncated })
}
