//! What it costs that agents outlive the server: the way of a message into the log and to a reader,
//! and two hundred sessions at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use piton_core::decide::Command;
use piton_core::event::Event;
use piton_core::id::SessionId;
use piton_core::mask::Masker;
use piton_core::state::AgentStatus;
use piton_exec::executor::LaunchOptions;
use piton_exec::protocol::Start;
use piton_exec::standalone::Standalone;
use piton_runtime::{Executions, Handle, Ids, NewSession, Options, Service, SystemClock};
use piton_store::{BootGuard, BootLocks, OsEntropy, SqliteStore, Store, sqlite};

use crate::rig::{Result, Rig, many_threads};
use crate::table::{Seen, Table, Target, short};

const PROGRAM: &str = env!("CARGO_BIN_EXE_piton-drive");
const MESSAGES: usize = 400;
/// What both the agent's message and the append come after.
const PAUSE: Duration = Duration::from_millis(2);
const SESSIONS: u16 = 200;
const CHUNKS: u16 = 2_000;
const CHUNK_PAUSE_MS: u64 = 5;
/// The time in which text is merged, and a synced append.
const MERGED_MS_MAX: f64 = 60.0;
const TEST_TIMEOUT: Duration = Duration::from_mins(3);

struct Server {
    service: Service,
    executions: Executions,
    handle: Handle,
    alive: BootGuard,
}

async fn serve(data: &Path) -> Result<Server> {
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(OsEntropy));
    let locks = BootLocks::new(data);
    let alive = locks.hold(ids.boot()?)?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(sqlite::Options::new(data))?);
    let standalone = Standalone::new(data, PathBuf::from(PROGRAM), vec!["agentctl".into()]);
    let options = LaunchOptions::new(&Masker::default());
    let executions = Executions::new(Arc::new(standalone), Arc::clone(&store), options);
    let options = Options {
        driver: Arc::new(executions.clone()),
        executors: Arc::new(executions.clone()),
        ..Options::new(alive.boot().clone(), store, Arc::new(locks), Arc::new(OsEntropy))
    };
    let service = Service::start(options, |_| {}).await?;
    let handle = service.handle();
    executions.attach(handle.clone()).await?;
    Ok(Server { service, executions, handle, alive })
}

impl Server {
    async fn session(&self, workspace: &Path) -> Result<SessionId> {
        let session = self.handle.create(NewSession::default()).await?;
        self.executions.launch(&session, workspace.to_owned()).await?;
        let command = vec![PROGRAM.to_owned(), "echo".to_owned()];
        let start = Start { command, ..Start::default() };
        self.executions.start_agent(&session, start).await?;
        self.ready(&session).await?;
        Ok(session)
    }

    async fn ready(&self, session: &SessionId) -> Result<()> {
        let until = Instant::now() + TEST_TIMEOUT;
        while Instant::now() < until {
            let agent = self.handle.state(session).await?.facts.agent;
            if agent.is_some_and(|agent| agent.status == AgentStatus::Ready) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err("the agent is never ready".into())
    }

    async fn end(self) {
        self.executions.detach();
        self.service.shut_down().await;
        drop(self.alive);
    }
}

fn now_us() -> Result<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())
}

/// From the agent's writing of a message to a reader of the log, in turns with a synced append.
pub(crate) fn messages(rig: &Rig, table: &mut Table) -> Result<()> {
    let folder = rig.folder()?;
    let (data, workspace) = (folder.path().join("data"), folder.path().join("workspace"));
    std::fs::create_dir_all(&workspace)?;
    many_threads()?.block_on(async {
        let server = serve(&data).await?;
        let session = server.session(&workspace).await?;
        let plain = server.handle.create(NewSession::default()).await?;
        let run_id = server.handle.ids().run()?;
        let start = Command::Start { run_id: run_id.clone(), message: None };
        server.handle.execute(&plain, start).await?;
        let mut tail = server.handle.tail(&session, 0);
        let (mut came, mut appends) = (Vec::new(), Vec::new());
        for round in 0..MESSAGES {
            let pause = PAUSE.as_millis();
            // What the agent has to do for itself when its turn ends comes later.
            let prompt = format!("wait {pause}\ntool-now\nwait {pause}");
            server.handle.prompt(&session, &prompt).await?;
            let mut over = false;
            while !over {
                let records = tail.next().await?;
                let now = now_us()?;
                for record in records {
                    match record.event()? {
                        Event::ToolIntent(e) => {
                            let took = now.saturating_sub(e.name.parse()?);
                            came.push(Duration::from_micros(u64::try_from(took)?));
                        }
                        Event::RunCompleted(_) => over = true,
                        _ => {}
                    }
                }
            }
            let call_id = server.handle.ids().call()?;
            let (run_id, name) = (run_id.clone(), format!("call {round}"));
            let arguments = serde_json::json!({"command": "ls"});
            let intend = Command::Intend { run_id, call_id, name, arguments };
            // Pause as the agent did, so that no cache is warm.
            tokio::time::sleep(PAUSE).await;
            let begun = Instant::now();
            server.handle.execute(&plain, intend).await?;
            appends.push(begun.elapsed());
        }
        server.executions.stop(&session).await?;
        server.end().await;
        let (ours, baseline) = (Seen::micros(&came), Seen::micros(&appends));
        let ratio = ours.median() / baseline.median();
        table.ratio(
            "j: agent's message, durable, at a reader",
            (format!("{} µs", short(ours.median())), format!("{} µs", short(baseline.median()))),
            Seen::new(vec![ratio]),
            Target::AtMost(3.0),
            format!(
                "a tool call named by the moment at which the agent wrote it, {MESSAGES} times, in turns with one synced append through the same service, both after a pause of 2 ms; ours {}, baseline {}",
                ours.spread(),
                baseline.spread()
            ),
        );
        Ok(())
    })
}

/// Text that streams: from the agent's writing of a chunk to a reader of the log, and how many
/// flushes that takes. Chunks come faster than anybody flushes, as a model's do.
pub(crate) fn text(rig: &Rig, table: &mut Table) -> Result<()> {
    let folder = rig.folder()?;
    let (data, workspace) = (folder.path().join("data"), folder.path().join("workspace"));
    std::fs::create_dir_all(&workspace)?;
    many_threads()?.block_on(async {
        let server = serve(&data).await?;
        let session = server.session(&workspace).await?;
        let mut tail = server.handle.tail(&session, 0);
        server.handle.prompt(&session, &format!("stream-now {CHUNKS} {CHUNK_PAUSE_MS}")).await?;
        let (mut came, mut imports, mut rest) = (Vec::new(), 0_u32, String::new());
        let mut over = false;
        while !over {
            let records = tail.next().await?;
            let now = now_us()?;
            for record in records {
                match record.event()? {
                    Event::MessageDelta(_) => {
                        let text = record.content_field("text").unwrap_or_default();
                        rest.push_str(text.as_str().unwrap_or_default());
                        while let Some((moment, more)) = rest.split_once(' ') {
                            let took = now.saturating_sub(moment.parse()?);
                            came.push(Duration::from_micros(u64::try_from(took)?));
                            rest = more.to_owned();
                        }
                    }
                    Event::SpoolImported(_) => imports += 1,
                    Event::RunCompleted(_) => over = true,
                    _ => {}
                }
            }
        }
        server.executions.stop(&session).await?;
        server.end().await;
        if came.len() != usize::from(CHUNKS) {
            return Err(format!("{} of {CHUNKS} chunks came", came.len()).into());
        }
        let seen = Seen::millis(&came);
        let method = format!(
            "{CHUNKS} chunks, {CHUNK_PAUSE_MS} ms apart, each the moment at which the agent wrote it, until a reader of the log has it; median {} ms, quartiles {} ms",
            short(seen.median()),
            seen.spread()
        );
        let (p50, p95) = ("j: streamed text at a reader, p50", "j: streamed text at a reader, p95");
        table.value(p50, seen.median(), "ms", Target::AtMost(MERGED_MS_MAX), method);
        table.value(p95, seen.p95(), "ms", Target::AtMost(MERGED_MS_MAX), "the same chunks");
        table.value(
            "j: flushes for a chunk of streamed text",
            f64::from(imports) / f64::from(CHUNKS),
            "",
            Target::AtMost(0.5),
            "batches of the whole turn that were committed, of which each waits for at most one flush, divided by the chunks",
        );
        Ok(())
    })
}

/// Two hundred agents at once: what each agentctl takes, and what it costs to find them again.
pub(crate) fn many(rig: &Rig, table: &mut Table) -> Result<()> {
    let folder = rig.folder()?;
    let (data, workspace) = (folder.path().join("data"), folder.path().join("workspace"));
    std::fs::create_dir_all(&workspace)?;
    let runtime = many_threads()?;
    let sessions = runtime.block_on(async {
        let server = serve(&data).await?;
        let mut sessions = Vec::new();
        let begun = Instant::now();
        for _ in 0..SESSIONS {
            sessions.push(server.session(&workspace).await?);
        }
        let each = begun.elapsed().as_secs_f64() * 1e3 / f64::from(SESSIONS);
        table.value(
            "k: launch of a session's agent",
            each,
            "ms",
            Target::None,
            "agentctl and echo, one after the other, until the log says that the agent is ready",
        );
        server.end().await;
        Result::Ok(sessions)
    })?;
    let pids = agentctls(&data)?;
    if pids.len() != usize::from(SESSIONS) {
        return Err(format!("{} agentctls are alive", pids.len()).into());
    }
    let own: Vec<f64> = pids.iter().map(|pid| own_mib(*pid)).collect::<Result<_>>()?;
    let own = Seen::new(own);
    table.value(
        "k: memory of an agentctl's own",
        own.median(),
        "MiB",
        Target::AtMost(8.0),
        format!(
            "private pages of /proc/PID/smaps_rollup over {SESSIONS} that are idle; {}",
            own.spread()
        ),
    );
    let before: Vec<u64> = pids.iter().map(|pid| switches(*pid)).collect::<Result<_>>()?;
    std::thread::sleep(Duration::from_secs(20));
    let after: Vec<u64> = pids.iter().map(|pid| switches(*pid)).collect::<Result<_>>()?;
    let woken: u64 =
        after.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before)).sum();
    table.value(
        "k: wake-ups of an idle agentctl per second",
        f64::from(u32::try_from(woken)?) / 20.0 / f64::from(SESSIONS),
        "",
        Target::AtMost(0.1),
        "voluntary context switches of all its threads over 20 s",
    );
    let took = runtime.block_on(async {
        let begun = Instant::now();
        let server = serve(&data).await?;
        let live = |session: &SessionId| {
            use piton_runtime::Driver as _;
            server.executions.is_live(session)
        };
        while !sessions.iter().all(live) {
            if begun.elapsed() > TEST_TIMEOUT {
                return Err("not all were found again".into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let took = begun.elapsed();
        for session in &sessions {
            server.executions.stop(session).await?;
        }
        server.end().await;
        Result::Ok(took)
    })?;
    table.value(
        "k: a server's start with 200 live agents, per session",
        took.as_secs_f64() * 1e3 / f64::from(SESSIONS),
        "ms",
        Target::None,
        format!("from the start until all are followed again: {} s", short(took.as_secs_f64())),
    );
    Ok(())
}

fn agentctls(data: &Path) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    for execution in std::fs::read_dir(data.join("run"))? {
        let lock = execution?.path().join("lock");
        if lock.exists() {
            pids.push(std::fs::read_to_string(lock)?.trim().parse()?);
        }
    }
    Ok(pids)
}

fn own_mib(pid: u32) -> Result<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    let kib = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    Ok(kib.sum::<f64>() / 1024.0)
}

fn switches(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        sum += count.unwrap_or(0);
    }
    Ok(sum)
}
