//! Runs the real binary with a private home and nothing else from outside, and writes down what it
//! answered.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::json_names::assert_ids_are_named;

/// The time that every command believes it is.
pub(crate) const NOW: &str = "2026-02-21T12:00:00.000Z";

/// A home folder, with a data folder at the usual place in it.
#[derive(Debug)]
pub(crate) struct Home {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join(".local/share/piton")
    }

    /// Writes a file, making its folders.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// For all commands from here on.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(crate::tools::piton());
        command
            // As people call it; hints name it like that.
            .arg0("piton")
            .args(arguments)
            .env_clear()
            .env("HOME", self.path())
            .env("COLUMNS", "100")
            .env("PITON_TEST_NOW", NOW)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command line, split at blanks, and writes down everything about it.
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.command(line.split_whitespace()).output().unwrap();
        self.transcript(line, &output)
    }

    /// Like [`Self::run`], with something to read on stdin.
    pub(crate) fn run_with(&self, line: &str, stdin: &[u8]) -> String {
        let mut command = self.command(line.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // One that does not want to read it all closes it early.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        self.transcript(line, &child.wait_with_output().unwrap())
    }

    /// The files of the data folder in which these bytes stand.
    pub(crate) fn files_with(&self, needle: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.data()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(&path).unwrap();
                    let mut windows = bytes.windows(needle.len());
                    if windows.any(|window| window == needle.as_bytes()) {
                        found.push(path.strip_prefix(self.data()).unwrap().to_owned());
                    }
                }
            }
        }
        found.sort();
        found
    }

    pub(crate) fn spawn(&self, line: &str) -> Child {
        let mut command = self.command(line.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn transcript(&self, line: &str, output: &Output) -> String {
        if line.contains("json") {
            assert_ids_are_named(&String::from_utf8_lossy(&output.stdout));
        }
        let mut text = format!("$ piton {line}\n");
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if !bytes.is_empty() {
                let printed = String::from_utf8(bytes.clone()).unwrap();
                // Escapes are made visible, so that colours are part of what is compared.
                let printed = printed.replace('\x1b', "␛");
                write!(text, "--- {name}\n{printed}").unwrap();
            }
        }
        writeln!(text, "--- exit {}", output.status.code().unwrap()).unwrap();
        self.normalised(&text)
    }

    /// What differs from run to run is named instead.
    fn normalised(&self, text: &str) -> String {
        let own = std::env::current_exe().unwrap();
        let own = own.file_name().unwrap().to_str().unwrap();
        let pid = std::process::id();
        let text = text
            .replace(self.path().to_str().unwrap(), "[HOME]")
            .replace(own, "[PROGRAM]")
            .replace(&format!("pid {pid}"), "pid [PID]")
            .replace(&format!("\"pid\":{pid}"), "\"pid\":[PID]")
            .replace(&format!("{} {}", std::env::consts::OS, std::env::consts::ARCH), "[SYSTEM]")
            .replace(env!("CARGO_PKG_VERSION"), "[VERSION]");
        let text = hidden(&text, "\"hash\":\"", 64, "\"hash\":\"[HASH]");
        let text = hidden(&text, "\"chain\":\"", 64, "\"chain\":\"[HASH]");
        let text = hidden(&text, "\"digest\":\"", 64, "\"digest\":\"[HASH]");
        let text = hidden(&text, "rt_", 32, "[TOKEN]");
        let text = hidden(&text, "boot_", 32, "[BOOT]");
        hidden(&text, "[TOKEN].", 64, "[TOKEN].[SECRET]")
    }
}

/// Replaces each `start` that is followed by this many hexadecimal digits.
fn hidden(text: &str, start: &str, digits: usize, name: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(start) {
        let (before, found) = rest.split_at(at);
        let after = &found[start.len()..];
        let next = after.as_bytes().get(..digits);
        let is_random = next.is_some_and(|next| next.iter().all(u8::is_ascii_hexdigit));
        result += before;
        if is_random {
            result += name;
            rest = &after[digits..];
        } else {
            result += start;
            rest = after;
        }
    }
    result + rest
}
