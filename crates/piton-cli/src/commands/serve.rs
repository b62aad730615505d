//! `piton serve`: the server, until it is told to end. Agents go on without it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_core::Code;
use piton_core::access::Bearer;
use piton_exec::standalone::Standalone;
use piton_runtime::{Clock, Executions, Ids, OnExecutor, Options, Reserved, Service, SystemClock};
use piton_server::{Agent, Server, Tls};
use piton_store::OsEntropy;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::server::{Held, Place};
use crate::ui::{Tone, Ui};
use crate::{conversion, masking, stores};

const LISTEN: &str = "127.0.0.1:7411";

/// Run the server: HTTP and events for terminals, browsers and other programs
///
/// Agents belong to processes of their own: when the server ends, is upgraded or killed, they go on,
/// and the next server picks them up where they are.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    listen: SocketAddr,
    /// A certificate chain in PEM; needed to listen beyond this machine
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without TLS, because something else encrypts
    #[arg(long)]
    insecure: bool,
    /// A name by which the server may be called, beside its address
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// An origin whose pages may use the server
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// How the log looks
    #[arg(long, value_name = "FORMAT", default_value = "pretty")]
    log: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    Pretty,
    Json,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    start_logging(args.log);
    let tls = tls(&args)?;
    let data = cx.settings.data.value.clone();
    let held = Held::take(&data)?;
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        Error::new(Code::AddressInUse, format!("{} cannot be listened on", args.listen))
            .because(&error)
    })?;
    let scheme = if tls.is_some() { "https" } else { "http" };

    let masker = Arc::new(masking::masker(&cx.settings)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ids = Ids::new(Arc::clone(&clock), Arc::new(OsEntropy));
    let locks = cx.locks();
    // Alive first, then a look at who converts the store, as guests do.
    let alive = locks.hold(ids.boot()?)?;
    conversion::refuse(&data)?;
    let store = stores::open_or_create_store(&cx.settings)?;
    let program = std::env::current_exe()?;
    let standalone = Standalone::new(&data, program.clone(), vec!["agentctl".into()]);
    let executions =
        Executions::new(Arc::new(OnExecutor::new(Arc::new(standalone))), Arc::clone(&store));
    let options = Options {
        clock: Arc::clone(&clock),
        masker,
        driver: Arc::new(executions.clone()),
        executors: Arc::new(executions.clone()),
        ..Options::new(
            alive.boot().clone(),
            Arc::clone(&store),
            Arc::new(locks),
            Arc::new(OsEntropy),
        )
    };
    // Served at once: executors are found again meanwhile, all at the same time.
    let service = Service::begin(options);
    executions.attach(service.handle()).await?;
    let reserved = Reserved::open(store, clock).await?;

    let local = Bearer { id: ids.access()?, secret: ids.token()?.secret };
    let options = piton_server::Options {
        handle: service.handle(),
        executions: executions.clone(),
        reserved,
        agents: vec![echo(&program, &data)?],
        local: Some(local.clone()),
        hosts: args.hosts,
        origins: args.origins,
        scratch: data.join("workspaces"),
        rate: piton_server::Rate::default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let server = Server::start(listener, tls, options)?;
    let address = format!("{scheme}://{}", server.address());
    held.announce(&Place {
        address: address.clone(),
        pid: std::process::id(),
        boot: alive.boot().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        token: local.reveal(),
    })?;
    announce(ui, &address)?;
    let exit = ended().await?;
    tracing::info!("ending: agents go on without the server");
    server.shut_down().await;
    executions.detach();
    service.shut_down().await;
    drop(held);
    Ok(exit)
}

/// The built-in agent. It remembers beside the logs, so that it can be resumed.
fn echo(program: &Path, data: &Path) -> Result<Agent> {
    let memory = data.join("echo");
    std::fs::create_dir_all(&memory)?;
    let memory = memory.join(format!("{}.json", piton_server::SESSION));
    let parts = [program.as_os_str(), "agent".as_ref(), "echo".as_ref()];
    let rest = ["--".as_ref(), "--memory".as_ref(), memory.as_os_str()];
    let command = parts.into_iter().chain(rest).map(|part| part.to_string_lossy().into_owned());
    Ok(Agent {
        id: "echo".to_owned(),
        name: "Echo (built in, without a model)".to_owned(),
        command: command.collect(),
    })
}

fn announce(ui: &mut Ui, address: &str) -> Result<()> {
    if ui.json {
        ui.json_line(&json!({"address": address, "pid": std::process::id()}))?;
    } else {
        let address = ui.paint(Tone::Title, address);
        ui.line(format!("Piton listens on {address}"))?;
        ui.line("Try in another terminal: piton sessions list")?;
    }
    ui.flush()
}

fn tls(args: &Args) -> Result<Option<Tls>> {
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        let tls = Tls::from_files(certificate, key);
        let invalid = |error| Error::new(Code::TlsInvalid, "TLS cannot be spoken").because(&error);
        return tls.map(Some).map_err(invalid);
    }
    if !args.listen.ip().is_loopback() && !args.insecure {
        let message = format!("{} is reachable from other machines", args.listen);
        return Err(Error::new(Code::TlsNeeded, message));
    }
    Ok(None)
}

/// Waits for a signal that ends the server.
async fn ended() -> Result<Exit> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(Exit::Good)
}

fn start_logging(format: LogFormat) {
    use tracing_subscriber::filter::LevelFilter;
    let builder = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    match format {
        LogFormat::Pretty => builder.compact().init(),
        LogFormat::Json => builder.json().init(),
    }
}
