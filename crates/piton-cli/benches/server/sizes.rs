//! How the server's start and its lists grow with the number of sessions.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::Result;
use crate::many::fill;
use crate::rig;
use crate::table::{Seen, Table, Target, short};

const FEW: usize = 1_000;
const MANY: usize = 100_000;
const STARTS: usize = 10;
const LISTS: usize = 100;

pub(crate) struct Running {
    child: Child,
    address: String,
    token: String,
}

/// Starts the real program; how long until it says where it listens and answers there, in ms.
fn start(data: &Path) -> Result<(Running, f64)> {
    start_with(data, |_| {})
}

/// The same, in another environment.
pub(crate) fn start_with(data: &Path, change: impl FnOnce(&mut Command)) -> Result<(Running, f64)> {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_piton"));
    change(&mut command);
    command.arg("--data").arg(data).args(["--json", "serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let place: Value = serde_json::from_slice(&std::fs::read(data.join("run/server.json"))?)?;
    let text = |name: &str| place[name].as_str().unwrap_or_default().to_owned();
    let address = text("address").trim_start_matches("http://").to_owned();
    let running = Running { child, address, token: text("token") };
    running.get("/ready")?;
    Ok((running, begun.elapsed().as_secs_f64() * 1e3))
}

impl Running {
    fn get(&self, path: &str) -> Result<()> {
        self.ask("GET", path, None).map(drop)
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        self.ask_text(method, path, &body.map(ToString::to_string).unwrap_or_default())
    }

    pub(crate) fn ask_text(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let mut stream = TcpStream::connect(&self.address)?;
        let Self { address, token, .. } = self;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 2") => {
                Ok(serde_json::from_str(body).unwrap_or_default())
            }
            _ => Err(answer.into()),
        }
    }

    pub(crate) fn end(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

pub(crate) fn measure(table: &mut Table) -> Result<()> {
    let folder = rig::folder()?;
    let (few, many) = (folder.path().join("few"), folder.path().join("many"));
    fill(&few, FEW)?;
    fill(&many, MANY)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        for (data, times) in [(&many, &mut ours), (&few, &mut theirs)] {
            let (running, took) = start(data)?;
            times.push(took);
            running.end()?;
        }
    }
    let cell = |values: &[f64]| format!("{} ms", short(Seen::new(values.to_vec()).median()));
    table.ratio(
        format!("o. The server's start with {MANY} sessions"),
        (cell(&ours), cell(&theirs)),
        Seen::ratios(&ours, &theirs),
        Target::AtMost(3.0),
        format!("{STARTS} starts in turns after a SIGKILL, from before the process until /ready answers; against {FEW} sessions"),
    );
    let ((large, _), (small, _)) = (start(&many)?, start(&few)?);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..LISTS {
        for (running, times) in [(&large, &mut ours), (&small, &mut theirs)] {
            let begun = Instant::now();
            running.get("/api/v1/sessions?limit=50")?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    large.end()?;
    small.end()?;
    table.ratio(
        format!("o. A page of 50 sessions of {MANY}"),
        (cell(&ours), cell(&theirs)),
        Seen::ratios(&ours, &theirs),
        Target::AtMost(3.0),
        format!(
            "{LISTS} requests in turns, each with a connection of its own; against {FEW} sessions"
        ),
    );
    Ok(())
}
