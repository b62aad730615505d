//! A process as a node: the declared keys come as a JSON object on standard input, the result is what
//! it prints. It runs in a process group of its own, which ends with the attempt.

use std::process::Stdio;

use piton_core::Code;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::artifacts::{self, Folder};
use crate::error::NodeError;
use crate::expression::{self, Variables};
use crate::node::{Attempt, Reads, Request, artifact_of, ask};
use crate::spec::{CommandSpec, OutputFormat};

/// Most that a command may print.
const STDOUT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Of what it prints to standard error, the end is in the error's message.
const STDERR_BYTES_KEPT: usize = 4 * 1024;

/// The variables of the attempt, for commands that want to recognise a repetition.
pub(super) const IDEMPOTENCY_VARIABLE: &str = "PITON_IDEMPOTENCY_KEY";
const ATTEMPT_VARIABLE: &str = "PITON_ATTEMPT";
/// What Piton's own variables begin with.
const VARIABLE_PREFIX: &str = "PITON_";

pub(super) fn fill(spec: &CommandSpec, given: &Variables<'_>) -> Result<Vec<String>, NodeError> {
    spec.argv.iter().map(|argument| expression::render(argument, given)).collect()
}

pub(super) fn stdin(reads: &Reads) -> Value {
    let entries = reads.iter().map(|(key, value)| (key.clone(), (**value).clone()));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Ends what an attempt that is dropped has started.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        end(self.0);
    }
}

fn end(group: Option<Pid>) {
    if let Some(group) = group {
        // Gone already, most of the time.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Runs a command, and keeps the files that it leaves, if it has a folder for them.
pub(super) async fn run(
    spec: &CommandSpec,
    argv: &[String],
    stdin: Value,
    of: &Attempt,
    requests: &mpsc::Sender<Request>,
) -> Result<Vec<u8>, NodeError> {
    let folder = if spec.artifacts { Some(Folder::new()?) } else { None };
    let printed = start(argv, stdin, of, folder.as_ref()).await?;
    for (name, path) in folder.as_ref().map(Folder::files).transpose()?.into_iter().flatten() {
        let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
        let bytes = read.map_err(|error| NodeError::new(error.to_string()))??;
        ask(requests, of, artifact_of(&name, bytes)?).await?;
    }
    Ok(printed)
}

async fn start(
    argv: &[String],
    stdin: Value,
    of: &Attempt,
    artifacts: Option<&Folder>,
) -> Result<Vec<u8>, NodeError> {
    let [program, arguments @ ..] = argv else {
        return Err(NodeError::new("The command is empty").permanent());
    };
    let mut command = Command::new(program);
    if let Some(folder) = &of.working_dir {
        command.current_dir(folder);
    }
    // Piton's own variables are not the command's: one of them is the store's key.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(VARIABLE_PREFIX.as_bytes()) {
            command.env_remove(name);
        }
    }
    if let Some(artifacts) = artifacts {
        command.env(artifacts::VARIABLE, artifacts.path());
    }
    let mut child = command
        .args(arguments)
        .env(IDEMPOTENCY_VARIABLE, &of.idempotency_key)
        .env(ATTEMPT_VARIABLE, of.attempt.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| cannot_start(program, of, &error))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let _group = Group(group);
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feeding = async {
        if let Some(mut input) = input {
            // A command that does not read its input ends before all of it is written.
            let _ = input.write_all(stdin.to_string().as_bytes()).await;
        }
    };
    let mut printed = Vec::new();
    let reading = async {
        let Some(output) = output else { return Ok(()) };
        let read = output.take(STDOUT_BYTES_MAX as u64 + 1).read_to_end(&mut printed).await;
        if printed.len() > STDOUT_BYTES_MAX {
            // The rest is not read.
            end(group);
        }
        read.map(drop)
    };
    let mut said = Vec::new();
    let listening = async {
        let Some(mut errors) = errors else { return };
        let mut chunk = [0; 1024];
        while let Ok(count @ 1..) = errors.read(&mut chunk).await {
            said.extend_from_slice(&chunk[..count]);
            let over = said.len().saturating_sub(STDERR_BYTES_KEPT);
            said.drain(..over);
        }
    };
    let ((), read, ()) = tokio::join!(feeding, reading, listening);
    read?;
    if printed.len() > STDOUT_BYTES_MAX {
        let message = format!("`{program}` printed more than {STDOUT_BYTES_MAX} bytes");
        return Err(NodeError::new(message).with_code(Code::NodeOutputInvalid).permanent());
    }
    let status = child.wait().await?;
    if status.success() {
        return Ok(printed);
    }
    let said = String::from_utf8_lossy(&said);
    let said = said.trim();
    let why = if said.is_empty() { String::new() } else { format!(": {said}") };
    Err(NodeError::new(format!("`{program}` ended with {status}{why}")))
}

/// A folder that is gone looks like a program that is missing.
fn cannot_start(program: &str, of: &Attempt, error: &std::io::Error) -> NodeError {
    let folder = of.working_dir.as_deref().filter(|folder| !std::path::Path::new(folder).is_dir());
    NodeError::new(match folder {
        Some(folder) => format!("`{program}` cannot be started: the folder {folder} is not there"),
        None => format!("`{program}` cannot be started: {error}"),
    })
}

pub(super) fn value(format: OutputFormat, printed: Vec<u8>) -> Result<Value, NodeError> {
    let invalid =
        |message: String| NodeError::new(message).with_code(Code::NodeOutputInvalid).permanent();
    let text = String::from_utf8(printed)
        .map_err(|_| invalid("What the command printed is not UTF-8".to_owned()))?;
    match format {
        OutputFormat::Text => Ok(text.trim_end().into()),
        OutputFormat::Lines => Ok(text.lines().map(Value::from).collect()),
        OutputFormat::Json => serde_json::from_str(&text)
            .map_err(|error| invalid(format!("What the command printed is no JSON: {error}"))),
    }
}
