//! A data folder with a server that can be killed and started again, and a client that knows no
//! more than HTTP.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::json_names::assert_ids_are_named;

/// Something that takes longer than this hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    server: Option<Child>,
    pub(crate) address: String,
    pub(crate) token: String,
    sessions: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub(crate) fn good(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.body
    }
}

pub(crate) fn piton() -> Command {
    let mut command = Command::new(crate::tools::piton());
    command.env_remove("PITON_DATA").env_remove("PITON_CONFIG").env("NO_COLOR", "1");
    // Whatever agents this machine has.
    command.env("PITON_CHAT_AGENT", "echo");
    // A shell that reads no start-up files: those of the machine may take their time.
    command.env("SHELL", "/bin/sh").env_remove("ENV");
    command
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self::not_started();
        world.start();
        world
    }

    pub(crate) fn not_started() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (address, token) = (String::new(), String::new());
        Self { folder, server: None, address, token, sessions: Vec::new() }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        let workspace = self.folder.path().join("work");
        std::fs::create_dir_all(&workspace).unwrap();
        workspace.canonicalize().unwrap()
    }

    pub(crate) fn start(&mut self) {
        self.start_with(|_| {});
    }

    /// The same, in another environment.
    pub(crate) fn start_with(&mut self, change: impl FnOnce(&mut Command)) {
        let mut command = piton();
        change(&mut command);
        self.start_as(command);
    }

    /// The same under another umask.
    pub(crate) fn start_under_umask(&mut self, umask: &str) {
        let mut command = Command::new("sh");
        command.args(["-c", "umask \"$0\"; exec \"$@\"", umask]);
        self.start_within(command);
    }

    /// The same by another program, which is given the command.
    pub(crate) fn start_within(&mut self, mut command: Command) {
        let piton = piton();
        for (name, value) in piton.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.arg(piton.get_program());
        self.start_as(command);
    }

    fn start_as(&mut self, mut command: Command) {
        command.arg("--data").arg(self.data()).args(["--json", "serve", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        self.server = Some(child);
        self.look();
        assert_eq!(said["address"], self.address.as_str());
    }

    /// Where the server of the data folder says that it is.
    pub(crate) fn look(&mut self) {
        let place = std::fs::read(self.data().join("run/server.json")).unwrap();
        let place: Value = serde_json::from_slice(&place).unwrap();
        place["address"].as_str().unwrap().clone_into(&mut self.address);
        place["token"].as_str().unwrap().clone_into(&mut self.token);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Waits until the server has ended by itself.
    pub(crate) fn wait(&mut self) {
        self.server.take().unwrap().wait().unwrap();
    }

    /// SIGKILL for all agentctls; agents end with their input.
    pub(crate) fn kill_agentctls(&self) {
        end_leftovers(&self.data());
    }

    /// SIGTERM, as an upgrade does it.
    pub(crate) fn end(&mut self) {
        let mut server = self.server.take().unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(server.wait().unwrap().success());
    }

    /// The command line beside the server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = piton();
        command.arg("--data").arg(self.data()).args(arguments).stdin(Stdio::null());
        command
    }

    /// What a command prints with `--json`, which must work.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).arg("--json").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert_ids_are_named(&String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The code of the error that a command ends with.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).arg("--json").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        let error: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert!(error["error"]["hint"].is_string() && error["error"]["message"].is_string());
        error["error"]["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, None, &[])
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, Some(body), &[])
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        let body = body.map(ToString::to_string);
        self.raw(method, path, body.as_deref().map(str::as_bytes), &all)
    }

    /// Asks exactly this.
    pub(crate) fn raw(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        headers: &[(&str, &str)],
    ) -> Answer {
        answer(self.send(method, path, body, headers), &format!("{method} {path}"))
    }

    /// The same of any server.
    pub(crate) fn ask_at(
        address: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        answer(send(address, method, path, None, headers), &format!("{method} {path}"))
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        headers: &[(&str, &str)],
    ) -> TcpStream {
        send(&self.address, method, path, body, headers)
    }

    /// A token with these scopes, as a header has it.
    pub(crate) fn bearer(&self, scopes: &[&str]) -> String {
        let granted =
            self.post("/api/v1/access-tokens", &json!({"name": "x", "scopes": scopes})).good();
        format!("Bearer {}", granted["token"].as_str().unwrap())
    }

    /// Has a session closed and deleted when the test is over.
    pub(crate) fn adopt(&mut self, session: &str) {
        self.sessions.push(session.to_owned());
    }

    /// A session without anything that runs for it.
    pub(crate) fn quiet_session(&mut self, working_dir: Option<&Path>) -> String {
        let body = json!({"start": false, "working_dir": working_dir});
        let made = self.post("/api/v1/sessions", &body).good();
        let session = made["session_id"].as_str().unwrap().to_owned();
        self.adopt(&session);
        session
    }

    /// A session whose agent runs.
    pub(crate) fn session(&mut self) -> String {
        self.started(None)
    }

    /// The same, in a folder.
    pub(crate) fn session_in(&mut self, working_dir: &Path) -> String {
        self.started(Some(working_dir))
    }

    fn started(&mut self, working_dir: Option<&Path>) -> String {
        let session = self.quiet_session(working_dir);
        self.post(&format!("/api/v1/sessions/{session}/start"), &json!({})).good();
        self.when(&session, |status| status["status"] == "idle");
        session
    }

    pub(crate) fn prompt(&self, session: &str, content: &str) -> String {
        let path = format!("/api/v1/sessions/{session}/messages");
        let said = self.post(&path, &json!({"content": content})).good();
        said["run_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn status(&self, session: &str) -> Value {
        self.get(&format!("/api/v1/sessions/{session}/status")).good()
    }

    /// Asks until it is as wanted.
    pub(crate) fn when(&self, session: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let status = self.status(session);
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < until, "never as wanted: {status:#}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The processes of a session's built-in agent: its memory is named after it.
    pub(crate) fn agents(&self, session: &str) -> Vec<rustix::process::Pid> {
        let memory = self.data().join("echo").join(session);
        let memory = memory.to_str().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pid = |entry: std::fs::DirEntry| {
            // It may end while it is looked at.
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let runs = String::from_utf8_lossy(&line).contains(memory);
            let pid = entry.file_name().to_str()?.parse().ok().filter(|_| runs)?;
            rustix::process::Pid::from_raw(pid)
        };
        entries.filter_map(pid).collect()
    }

    /// All records of a session, page by page.
    pub(crate) fn records(&self, session: &str) -> Vec<Value> {
        let (mut records, mut after) = (Vec::new(), 0);
        loop {
            let path = format!("/api/v1/sessions/{session}/records?after={after}&limit=100");
            let page = self.get(&path).good();
            records.extend(page["records"].as_array().unwrap().iter().cloned());
            match page["next"].as_u64() {
                Some(next) => after = next,
                None => return records,
            }
        }
    }

    /// What the agent said in a run.
    pub(crate) fn said(&self, session: &str, run: &str) -> String {
        let records = self.records(session);
        let said = records.iter().filter(|r| r["kind"] == "message.delta" && r["run_id"] == run);
        said.map(|record| record["text"].as_str().unwrap()).collect()
    }
}

pub(crate) fn answer(mut stream: TcpStream, asked: &str) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer {
        status: status.unwrap_or_else(|| panic!("no answer to {asked}: {text:?}")),
        headers: head.to_ascii_lowercase(),
        body: serde_json::from_str(rest).unwrap_or(Value::Null),
        text: rest.to_owned(),
    }
}

pub(crate) fn send(
    address: &str,
    method: &str,
    path: &str,
    body: Option<&[u8]>,
    headers: &[(&str, &str)],
) -> TcpStream {
    let host = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    let named = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    if !named("host") {
        write!(head, "host: {host}\r\n").unwrap();
    }
    if let Some(body) = body {
        if !named("content-type") {
            head += "content-type: application/json\r\n";
        }
        write!(head, "content-length: {}\r\n", body.len()).unwrap();
    }
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    stream.write_all(body.unwrap_or_default()).unwrap();
    stream
}

impl Drop for World {
    fn drop(&mut self) {
        // Agents outlive their servers: these must not outlive their test.
        if self.server.is_some() {
            for session in &self.sessions {
                let path = format!("/api/v1/sessions/{session}?force=true");
                self.post(&format!("/api/v1/sessions/{session}/close"), &json!({}));
                self.ask("DELETE", &path, None, &[]);
            }
        }
        if let Some(mut server) = self.server.take() {
            // It may have been killed already.
            let _ = server.kill();
            let _ = server.wait();
        }
        end_leftovers(&self.data());
        // An agent in a turn may not notice that its agentctl is gone.
        for agent in self.agents("") {
            // It may end by itself meanwhile.
            let _ = rustix::process::kill_process(agent, rustix::process::Signal::KILL);
        }
    }
}

/// Ends what still runs from a data folder's own copies of the program.
pub(crate) fn end_leftovers(data: &Path) {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    let bin = data.join("bin");
    for entry in entries.flatten() {
        let runs =
            std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe.starts_with(&bin));
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let (true, Some(pid)) = (runs, pid.and_then(rustix::process::Pid::from_raw)) {
            // It may end by itself meanwhile.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
