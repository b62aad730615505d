//! What Piton adds to the time in which an agent comes back, in a short and in a long session; and
//! what it costs to inject the history into an agent's prompt.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_core::event::{MessageUser, SessionCreated, SessionLeased};
use piton_core::history::HistoryBuilder;
use piton_core::id::{BootId, SessionId};
use piton_core::{NewRecord, Seq, Timestamp};
use piton_store::{Batch, Detail, Durability, Guard, SqliteStore, Store, WritableRecords, sqlite};
use serde_json::{Value, json};

use crate::Result;
use crate::rig;
use crate::sizes::{Running, start_with};
use crate::table::{Seen, Table, Target, short};

const SHORT: usize = 20;
const LONG: usize = 2_000;
const ROUNDS: usize = 25;
const FEW: usize = 100;
const MANY: usize = 10_000;
const TEXTS: usize = 200;
const BATCH: usize = 500;
/// As the runtime reads them.
const PAGE: u64 = 256;

/// A session with an agent that loads its conversation.
struct Long {
    session: String,
    memory: PathBuf,
}

fn piton() -> &'static str {
    env!("CARGO_BIN_EXE_piton")
}

fn agent_args(memory: &Path) -> Vec<String> {
    let args = ["agent", "echo", "--", "--no-resume", "--memory"];
    let memory = memory.to_string_lossy().into_owned();
    args.into_iter().map(str::to_owned).chain([memory]).collect()
}

impl Running {
    pub(crate) fn when(&self, session: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        let until = Instant::now() + Duration::from_mins(1);
        let path = format!("/api/v1/sessions/{session}/status");
        while !wanted(&self.ask("GET", &path, None)?) {
            if Instant::now() > until {
                return Err("never as wanted".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn talk(server: &Running, folder: &Path, messages: usize) -> Result<Long> {
    let body = json!({"agent_profile_id": "loads"});
    let made = server.ask("POST", "/api/v1/sessions", Some(&body))?;
    let session = made["session_id"].as_str().ok_or("no session")?.to_owned();
    for _ in 0..messages / 2 {
        let path = format!("/api/v1/sessions/{session}/messages");
        let said = server.ask("POST", &path, Some(&json!({"content": "say so"})))?;
        let done =
            |status: &Value| status["status"] == "idle" && status["run_id"] == said["run_id"];
        server.when(&session, done)?;
    }
    let memory = folder.join(format!("{session}.json"));
    Ok(Long { session, memory })
}

/// The agent alone: from its start until it has loaded the conversation, in ms.
fn alone(long: &Long) -> Result<f64> {
    let remembered: Value = serde_json::from_slice(&std::fs::read(&long.memory)?)?;
    let sessions = remembered.as_object().ok_or("it remembers no sessions")?;
    let id = sessions.keys().next().ok_or("it remembers none")?;
    let begun = Instant::now();
    let mut command = Command::new(piton());
    command.args(agent_args(&long.memory)).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn()?;
    let mut input = child.stdin.take().ok_or("no input")?;
    let output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let asked = [
        ("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})),
        ("session/load", json!({"sessionId": id, "cwd": "/", "mcpServers": []})),
    ];
    for (at, (method, params)) in asked.iter().enumerate() {
        writeln!(
            input,
            "{}",
            json!({"jsonrpc": "2.0", "id": at, "method": method, "params": params})
        )?;
    }
    for line in output.lines() {
        let line: Value = serde_json::from_str(&line?)?;
        if line["id"] == 1 {
            if line["result"].is_null() {
                return Err(line.to_string().into());
            }
            break;
        }
    }
    let took = begun.elapsed().as_secs_f64() * 1e3;
    child.kill()?;
    child.wait()?;
    Ok(took)
}

fn kill_agent(memory: &Path) -> Result<()> {
    for entry in std::fs::read_dir("/proc")?.flatten() {
        // It may end while it is looked at.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        if String::from_utf8_lossy(&line).contains(&*memory.to_string_lossy()) {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let pid = pid.and_then(rustix::process::Pid::from_raw).ok_or("no pid")?;
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        }
    }
    Ok(())
}

/// From the request until its agent is ready, in ms.
fn resumed(server: &Running, long: &Long) -> Result<f64> {
    kill_agent(&long.memory)?;
    server.when(&long.session, |status| status["is_agent_running"] == false)?;
    let begun = Instant::now();
    server.ask("POST", &format!("/api/v1/sessions/{}/start", long.session), Some(&json!({})))?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

pub(crate) fn measure(table: &mut Table) -> Result<()> {
    let folder = rig::folder()?;
    let folder_path = folder.path().canonicalize()?;
    let config = folder_path.join("piton.toml");
    let mut command = vec![piton().to_owned()];
    command.extend(agent_args(&folder_path.join("{session}.json")));
    std::fs::write(&config, format!("[agents.loads]\ncommand = {}\n", json!(command)))?;
    let (server, _) = start_with(&folder_path.join("data"), |command| {
        command.env("PITON_CONFIG", &config);
    })?;
    let sessions = [talk(&server, &folder_path, SHORT)?, talk(&server, &folder_path, LONG)?];
    let mut shares: [Vec<f64>; 2] = Default::default();
    let (mut totals, mut agents): ([Vec<f64>; 2], [Vec<f64>; 2]) = Default::default();
    for _ in 0..ROUNDS {
        for (at, long) in sessions.iter().enumerate() {
            let (total, agent) = (resumed(&server, long)?, alone(long)?);
            shares[at].push(total - agent);
            totals[at].push(total);
            agents[at].push(agent);
        }
    }
    for long in &sessions {
        server.ask(
            "POST",
            &format!("/api/v1/sessions/{}/close", long.session),
            Some(&json!({})),
        )?;
    }
    server.end()?;
    let seen = |values: &[f64]| Seen::new(values.to_vec());
    let ms = |values: &[f64]| format!("{} ms", short(seen(values).median()));
    table.value(
        format!("p. Piton's share of a resume by session/load, {LONG} messages, p50"),
        seen(&shares[1]).median(),
        "ms",
        Target::AtMost(100.0),
        format!(
            "{ROUNDS} rounds; the agent is killed and started again by a request: from the request to its answer, when the log has the agent as ready ({} ms), less what the same agent takes by itself from its start to the answer to session/load ({} ms); the share's quartiles {} ms",
            seen(&totals[1]).spread(), seen(&agents[1]).spread(), seen(&shares[1]).spread()
        ),
    );
    table.ratio(
        format!("p. The share with {LONG} messages against {SHORT}"),
        (ms(&shares[1]), ms(&shares[0])),
        Seen::ratios(&shares[1], &shares[0]),
        Target::AtMost(1.5),
        format!(
            "the same rounds, in turns; with {SHORT} messages the agent takes {} ms by itself",
            seen(&agents[0]).spread()
        ),
    );
    injected_history(table, &folder_path)
}

/// The history of a session with so many messages, as the runtime reads it.
async fn text(store: &SqliteStore, session: &SessionId, last: Seq) -> Result<usize> {
    let mut gathering = HistoryBuilder::default();
    let mut end = last;
    while gathering.wants_more() && end > 0 {
        let after = end.saturating_sub(PAGE);
        let limit = usize::try_from(end - after)?;
        gathering.take(store.read(session, after, limit, Detail::Full).await?)?;
        end = after;
    }
    Ok(gathering.text("go on")?.ok_or("no history")?.len())
}

fn injected_history(table: &mut Table, folder: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = Arc::new(SqliteStore::open(sqlite::Options::new(folder.join("told")))?);
    let boot: BootId = "boot_bench".parse()?;
    let mut sessions = Vec::new();
    for messages in [FEW, MANY] {
        let session: SessionId = format!("sess_{messages}").parse()?;
        let records = conversation(&session, &boot, messages)?;
        let mut last: Seq = 0;
        for records in records.chunks(BATCH) {
            let (session, records) = (session.clone(), records.to_vec());
            let guard = Guard::Lease { boot: boot.clone(), epoch: 1 };
            let (durability, summary, expected) = (Durability::Synced, None, last);
            last += records.len() as Seq;
            let records = WritableRecords::verbatim(records);
            let batch = Batch { session, expected, guard, records, durability, summary };
            runtime.block_on(store.append(batch))?;
        }
        sessions.push((session, last));
    }
    let mut times: [Vec<f64>; 2] = Default::default();
    for _ in 0..TEXTS {
        for (at, (session, last)) in sessions.iter().enumerate() {
            let begun = Instant::now();
            runtime.block_on(text(&store, session, *last))?;
            times[at].push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    store.close();
    let us = |values: &[f64]| format!("{} µs", short(Seen::new(values.to_vec()).median()));
    table.ratio(
        format!("p. The history that an agent receives, {MANY} messages against {FEW}"),
        (us(&times[1]), us(&times[0])),
        Seen::ratios(&times[1], &times[0]),
        Target::AtMost(3.0),
        format!("{TEXTS} rounds in turns; read from the store in pages of {PAGE} and made into text, messages of 200 characters"),
    );
    Ok(())
}

fn conversation(session: &SessionId, boot: &BootId, messages: usize) -> Result<Vec<NewRecord>> {
    let now = Timestamp::from_millis(1_771_668_000_000);
    let created = SessionCreated {
        session_id: session.clone(),
        title: None,
        task_id: None,
        working_dir: None,
        provider: None,
        agent_profile_id: None,
    };
    let leased = SessionLeased { boot_id: boot.clone(), epoch: 1 };
    let mut records = vec![NewRecord::new(now, created), NewRecord::new(now, leased)];
    for number in 0..messages {
        let message_id = format!("msg_{number:032x}").parse()?;
        let text = json!("about so much ".repeat(14));
        let said = MessageUser { message_id, run_id: None };
        records.push(NewRecord::with_content(now, said, "content", text));
    }
    Ok(records)
}
