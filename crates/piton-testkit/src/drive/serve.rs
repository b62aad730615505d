//! The server's side.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use piton_core::Timestamp;
use piton_core::decide::Command;
use piton_core::event::Outcome;
use piton_core::id::SessionId;
use piton_core::mask::Masker;
use piton_core::reason::Reason;
use piton_exec::executor::LaunchOptions;
use piton_exec::protocol::Start;
use piton_exec::standalone::Standalone;
use piton_runtime::{
    Clock, Error, Executions, Handle, Ids, NewSession, Options, Service, SystemClock,
};
use piton_store::{BootLocks, BoxFuture, OsEntropy};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::crash::Kind;

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum Order {
    Create {
        session: SessionId,
    },
    Launch {
        session: SessionId,
        workspace: PathBuf,
    },
    Start {
        session: SessionId,
        start: Start,
    },
    Prompt {
        session: SessionId,
        text: String,
    },
    Answer {
        session: SessionId,
        wait_id: String,
        answer: Value,
    },
    Cancel {
        session: SessionId,
    },
    Abandon {
        session: SessionId,
    },
    Stop {
        session: SessionId,
    },
    Close {
        session: SessionId,
    },
    /// From now on the clock is so much ahead of the machine's.
    Clock {
        ahead_ms: i64,
    },
    Sweep,
    Status {
        session: SessionId,
    },
}

#[derive(Debug, Deserialize)]
struct Line {
    id: u64,
    #[serde(flatten)]
    order: Order,
}

/// The machine's clock, set forward or back.
#[derive(Debug, Default)]
struct SetClock {
    ahead_ms: AtomicI64,
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(SystemClock.now().as_millis() + ahead_ms)
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        SystemClock.sleep(span)
    }
}

/// How this server is unlike others.
#[derive(Debug, Default)]
struct Quirks {
    /// The newest protocol that its agentctls may speak.
    protocol_max: Option<u32>,
    clock: Arc<SetClock>,
    /// Where sockets go whose path would be too long.
    temp: Option<PathBuf>,
}

impl Quirks {
    fn parse(arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut quirks = Self::default();
        for argument in arguments {
            match argument.split_once('=')? {
                ("protocol-max", text) => quirks.protocol_max = Some(text.parse().ok()?),
                ("ahead-ms", text) => {
                    quirks.clock.ahead_ms.store(text.parse().ok()?, Ordering::Relaxed);
                }
                ("temp", path) => quirks.temp = Some(path.into()),
                _ => return None,
            }
        }
        Some(quirks)
    }
}

/// `serve STORE-KIND DATA-FOLDER [protocol-max=N] [ahead-ms=N] [temp=FOLDER]`, until the standard
/// input ends.
pub fn serve(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let kind = arguments.next().as_deref().and_then(Kind::parse);
    let (Some(kind), Some(data)) = (kind, arguments.next().map(PathBuf::from)) else {
        return ExitCode::from(2);
    };
    let Some(quirks) = Quirks::parse(arguments) else { return ExitCode::from(2) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let Ok(runtime) = runtime else { return ExitCode::from(3) };
    match runtime.block_on(run(kind, data, quirks)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&json!({"failed": error.code().as_str(), "message": error.to_string()}));
            ExitCode::FAILURE
        }
    }
}

async fn run(kind: Kind, data: PathBuf, quirks: Quirks) -> Result<(), Error> {
    let Quirks { protocol_max, clock, temp } = quirks;
    let ids = Ids::new(Arc::clone(&clock) as Arc<dyn Clock>, Arc::new(OsEntropy));
    let locks = BootLocks::new(&data);
    let alive = locks.hold(ids.boot()?)?;
    let store = kind.open(&data)?;
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("piton-drive"));
    let mut standalone = Standalone::new(&data, program, vec!["agentctl".into()]);
    if let Some(temp) = temp {
        standalone = standalone.with_temp_folder(temp);
    }
    let standalone = Arc::new(standalone.with_protocol_max(protocol_max));
    let launch_options = LaunchOptions::new(&Masker::default());
    let executions = Executions::new(standalone, Arc::clone(&store), launch_options);
    let options = Options {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        driver: Arc::new(executions.clone()),
        executors: Arc::new(executions.clone()),
        ..Options::new(alive.boot().clone(), store, Arc::new(locks), Arc::new(OsEntropy))
    };
    let service = Service::start(options, |_| {}).await?;
    executions.attach(service.handle()).await?;
    say(&json!({"ready": alive.boot().as_str()}));
    let (lines, mut orders) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { return };
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = orders.recv().await {
        let Ok(Line { id, order }) = serde_json::from_str::<Line>(&line) else {
            say(&json!({"failed": "order", "message": line}));
            continue;
        };
        let (handle, executions, clock) =
            (service.handle(), executions.clone(), Arc::clone(&clock));
        tokio::spawn(async move {
            match obey(&handle, &executions, &clock, order).await {
                Ok(answer) => say(&json!({"id": id, "ok": answer})),
                Err(error) => {
                    let (code, message) = (error.code().as_str(), error.to_string());
                    say(&json!({"id": id, "error": code, "message": message}));
                }
            }
        });
    }
    executions.detach();
    service.shut_down().await;
    Ok(())
}

async fn obey(
    handle: &Handle,
    executions: &Executions,
    clock: &SetClock,
    order: Order,
) -> Result<Value, Error> {
    match order {
        Order::Create { session } => {
            let new = NewSession { id: Some(session), ..NewSession::default() };
            Ok(json!(handle.create(new).await?))
        }
        Order::Launch { session, workspace } => {
            Ok(json!(executions.launch(&session, workspace).await?))
        }
        Order::Start { session, start } => {
            executions.start_agent(&session, start).await?;
            Ok(Value::Null)
        }
        Order::Prompt { session, text } => Ok(json!(handle.prompt(&session, &text).await?)),
        Order::Answer { session, wait_id, answer } => {
            let wait_id = wait_id.parse().map_err(|_| Error::ShuttingDown)?;
            Ok(json!(handle.answer_wait(&session, wait_id, answer).await?.last_seq))
        }
        Order::Cancel { session } => {
            let run = handle.state(&session).await?.facts.run;
            let run_id = run.map(|run| run.run_id);
            let run_id = run_id.ok_or(piton_core::decide::Refusal::NeverRun)?;
            let reason = Reason::UserRequest;
            Ok(json!(handle.execute(&session, Command::Cancel { run_id, reason }).await?.last_seq))
        }
        Order::Abandon { session } => {
            let executor = handle.state(&session).await?.facts.executor;
            let execution_id = executor.map(|executor| executor.execution_id);
            let execution_id = execution_id.ok_or(piton_core::decide::Refusal::ExecutorNotFound)?;
            Ok(json!(handle.execute(&session, Command::Abandon { execution_id }).await?.last_seq))
        }
        Order::Stop { session } => {
            executions.stop(&session).await?;
            Ok(Value::Null)
        }
        Order::Clock { ahead_ms } => {
            clock.ahead_ms.store(ahead_ms, Ordering::Relaxed);
            Ok(json!(clock.now()))
        }
        Order::Sweep => Ok(json!(handle.sweep().await?)),
        Order::Close { session } => {
            let close = Command::Close { outcome: Outcome::Completed };
            Ok(json!(handle.execute(&session, close).await?.last_seq))
        }
        Order::Status { session } => {
            let state = handle.state(&session).await?;
            let status = handle.status(&session).await?;
            let waits: Vec<String> = state
                .facts
                .run
                .iter()
                .flat_map(|run| run.waits.keys().map(ToString::to_string))
                .collect();
            Ok(json!({
                "status": status.name.as_str(),
                "reason": status.reason.as_str(),
                "waits": waits,
                "facts": state.facts,
                "last_seq": state.last_seq,
            }))
        }
    }
}

/// One write: a line is read whole or not at all.
fn say(line: &Value) {
    let text = format!("{line}\n");
    // Who does not listen any more is about to kill this process.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
