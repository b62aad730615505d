//! `piton serve`: runs the server until a signal ends it. Agents keep running without it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_api::server::ServerInfo;
use piton_core::Code;
use piton_core::access::Bearer;
use piton_exec::standalone::Standalone;
use piton_runtime::{Clock, Engine, EngineOptions, Ids, Options, PermissionRules, SystemClock};
use piton_server::{Endpoint, Notify, NotifyEvent, Reload, ReloadError, Server, Tls};
use piton_store::OsEntropy;
use piton_store::SecretText;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::backend::SNAPSHOTS_FOLDER;
use crate::cli::Global;
use crate::config::NotifySettings;
use crate::context::Context;
use crate::echo_memory::EchoMemory;
use crate::error::{Error, Exit, Result};
use crate::examiner::Examiner;
use crate::reloader::{LogLevel, Reloader};
use crate::server::Held;
use crate::ui::{Tone, Ui};
use crate::{agents, config, conversion, masking, stores};

/// The default address to listen on.
pub(crate) const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7411);

const EXAMPLES: &str = "\
Examples:
  piton serve
  piton serve --listen 0.0.0.0:7411 --tls-cert cert.pem --tls-key key.pem --host piton.example

The options override the settings server.listen, server.hosts, server.origins,
server.tls_cert and server.tls_key. With TLS it also listens without it on a port that only this
machine reaches, for the command line.
JSON: one object: address, pid, local (where the command line finds it).";

/// Run the server for terminals, browsers and other programs
///
/// Agents run in processes of their own: they keep running when the server ends, is upgraded or killed,
/// and the next server takes them over.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The address to listen on; port 0 takes any free one [default: server.listen, 127.0.0.1:7411]
    #[arg(long, value_name = "ADDRESS", value_parser = config::address)]
    listen: Option<SocketAddr>,
    /// A certificate chain in PEM; needed to listen beyond this machine
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without TLS, because a proxy or VPN encrypts
    #[arg(long)]
    insecure: bool,
    /// Another host name of the server; may be repeated
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// A web origin that may use the server; may be repeated
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// Exit without an error if a server already runs
    #[arg(long, hide = true)]
    unless_running: bool,
    /// The log's format
    #[arg(long, value_name = "FORMAT", default_value = "pretty")]
    log: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    Pretty,
    Json,
}

/// Where to listen and whom to hear: what the options say, else the settings.
#[derive(Debug)]
struct ListenPlan {
    listen: SocketAddr,
    tls: Option<Tls>,
    /// The first name that was given.
    name: Option<String>,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl ListenPlan {
    fn of(args: &Args, cx: &Context) -> Result<Self> {
        let set = &cx.settings.server;
        let or = |given: &[String], set: &[String]| {
            if given.is_empty() { set.to_vec() } else { given.to_vec() }
        };
        let listen = args.listen.or(set.listen.value).unwrap_or(LISTEN);
        let (certificate, key) = match (&args.tls_cert, &args.tls_key) {
            (None, None) => (set.tls_cert.value.as_deref(), set.tls_key.value.as_deref()),
            (certificate, key) => (certificate.as_deref(), key.as_deref()),
        };
        let tls = tls(certificate, key)?;
        if tls.is_none() && !listen.ip().is_loopback() && !args.insecure {
            let message = format!("{listen} is reachable from other machines");
            return Err(Error::new(Code::TlsRequired, message));
        }
        let (mut hosts, origins) =
            (or(&args.hosts, &set.hosts.value), or(&args.origins, &set.origins.value));
        let name = hosts.first().cloned();
        // Its own address is a name of its own.
        match listen.ip() {
            ip if ip.is_unspecified() => match crate::server::network_address() {
                Some(IpAddr::V4(ip)) => hosts.push(ip.to_string()),
                Some(IpAddr::V6(ip)) => hosts.push(format!("[{ip}]")),
                None => {}
            },
            IpAddr::V4(ip) => hosts.push(ip.to_string()),
            IpAddr::V6(ip) => hosts.push(format!("[{ip}]")),
        }
        Ok(Self { listen, tls, name, hosts, origins })
    }

    /// Where others find it.
    fn public(&self, bound: SocketAddr) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match &self.name {
            // A certificate is for a name.
            Some(name) if self.tls.is_some() && name.contains(':') => format!("{scheme}://{name}"),
            Some(name) if self.tls.is_some() => format!("{scheme}://{name}:{}", bound.port()),
            _ => format!("{scheme}://{bound}"),
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        Error::new(Code::AddressInUse, format!("{address} cannot be listened on")).because(&error)
    })
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, global: &Global, args: Args) -> Result<Exit> {
    let log_level = start_logging(args.log, cx.settings.log_level.value);
    let plan = ListenPlan::of(&args, cx)?;
    let data = cx.settings.data.value.clone();
    let held = match Held::take(&data) {
        Err(error) if args.unless_running && error.code() == Some(Code::ServerRunning) => {
            return Ok(Exit::Good);
        }
        held => held?,
    };
    let listener = bind(plan.listen).await?;
    // The command line speaks no TLS: it has a door of its own, which only this machine reaches.
    let own = match plan.tls {
        Some(_) => Some(bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?),
        None => None,
    };

    let masker = Arc::new(masking::masker(&cx.settings)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ids = Ids::new(Arc::clone(&clock), Arc::new(OsEntropy));
    let locks = cx.locks();
    // Alive first, then a look at who converts the store, as offline writers do.
    let alive = locks.hold(ids.boot()?)?;
    conversion::refuse(&data)?;
    let (store, store_features) = stores::open_or_create_with_features(&cx.settings)?;
    let program = std::env::current_exe()?;
    let rules = PermissionRules::new(cx.settings.permissions.rules.clone());
    let standalone = Standalone::new(&data, program.clone(), vec!["agentctl".into()]);
    let memory = EchoMemory::new(&data);
    memory.prepare()?;
    memory.sweep(&*store).await?;
    let options = Options {
        clock: Arc::clone(&clock),
        files: Arc::new(memory),
        masker,
        rules: rules.clone(),
        settings: cx.settings.runtime(),
        ..Options::new(alive.boot().clone(), store, Arc::new(locks), Arc::new(OsEntropy))
    };
    let options = EngineOptions {
        profiles: agents::all(&cx.settings)?,
        default_agent: cx.settings.chat_agent.value.clone(),
        policy: cx.settings.resume.policy(),
        store_features,
        checkpoint: cx.settings.checkpoint.clone(),
        snapshots: Some(data.join(SNAPSHOTS_FOLDER)),
        ..EngineOptions::new(options, &data)
    };
    // Served at once: executors are found again meanwhile, all at the same time.
    let running = Engine::start(options, Arc::new(standalone)).await?;

    let reloader: Arc<dyn Reload> =
        Arc::new(Reloader::new(global, &cx.settings, running.engine(), rules, log_level));
    let local = Bearer { id: ids.access()?, secret: ids.token()?.secret };
    let options = piton_server::Options {
        engine: running.engine(),
        local: Some(local.clone()),
        hosts: plan.hosts.clone(),
        origins: plan.origins.clone(),
        rate: piton_server::Rate::default(),
        connections: piton_server::ConnectionLimits::default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        doctor: Some(Arc::new(Examiner::new(program, data.clone()))),
        web: piton_server::WebFiles::Embedded,
        reload: Some(Arc::clone(&reloader)),
    };
    let notify = notify(&cx.settings.notify)?;
    let mut server = Server::start(listener, plan.tls.clone(), options)?;
    if let Some(notify) = notify {
        server.notify(notify);
    }
    let public = plan.public(server.address());
    let place = match own.map(|own| server.serve_on_loopback(own)).transpose()? {
        Some(own) => (format!("http://{own}"), Some(public.clone())),
        None => match loopback_of(server.address()) {
            Some(own) => (format!("http://{own}"), Some(public.clone())),
            None => (public.clone(), None),
        },
    };
    let place = ServerInfo {
        address: place.0,
        public: place.1,
        pid: std::process::id(),
        boot: alive.boot().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        token: local.reveal(),
        background: args.unless_running,
    };
    held.announce(&place)?;
    announce(ui, &public, &place)?;
    let exit = ended(&*reloader).await?;
    tracing::info!("ending: agents keep running without the server");
    server.shut_down().await;
    running.shut_down().await;
    drop(held);
    Ok(exit)
}

/// What listens on all addresses is reached by this machine's own programs over loopback, which is a
/// host that the server always accepts. `None`: it listens on one address.
fn loopback_of(bound: SocketAddr) -> Option<SocketAddr> {
    let ip = match bound.ip() {
        ip if !ip.is_unspecified() => return None,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    Some(SocketAddr::new(ip, bound.port()))
}

/// Where notifications go; `None`: nowhere.
fn notify(settings: &NotifySettings) -> Result<Option<Notify>> {
    let Some(url) = &settings.url.value else { return Ok(None) };
    let reveal = |secret: &Option<SecretText>| secret.as_ref().map(|s| s.reveal().to_owned());
    let endpoint = Endpoint::new(url.reveal(), reveal(&settings.token.value)).map_err(|error| {
        Error::new(Code::ConfigInvalid, "The setting notify.url cannot be used").because(&error)
    })?;
    let mut events = Vec::new();
    for name in &settings.events.value {
        let known = NotifyEvent::NAMES.iter().find(|(known, _)| known == name);
        let (_, event) = known.ok_or_else(|| {
            let message = format!("notify.events is of waiting and ended, not {name:?}");
            Error::new(Code::ConfigInvalid, message)
        })?;
        events.push(*event);
    }
    Ok(Some(Notify { endpoint, events, topic: reveal(&settings.topic.value) }))
}

fn announce(ui: &mut Ui, public: &str, place: &ServerInfo) -> Result<()> {
    if ui.json {
        ui.json_line(&json!({"address": public, "pid": place.pid, "local": place.address}))?;
    } else {
        let address = ui.paint(Tone::Title, public);
        ui.line(format!("Piton listens on {address}"))?;
        ui.line(format!("Try in another terminal: {} sessions list", ui.call))?;
    }
    ui.flush()
}

fn tls(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<Tls>> {
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return Ok(None),
        (certificate, _) => {
            let (has, lacks) = match certificate {
                Some(_) => ("server.tls_cert", "server.tls_key"),
                None => ("server.tls_key", "server.tls_cert"),
            };
            let message = format!("The setting {has} needs {lacks} beside it");
            return Err(Error::new(Code::ConfigInvalid, message));
        }
    };
    let invalid = |error| Error::new(Code::TlsInvalid, "TLS cannot be spoken").because(&error);
    Tls::from_files(certificate, key).map(Some).map_err(invalid)
}

/// Waits for a signal that ends the server; SIGHUP has it read its settings again.
async fn ended(reloader: &dyn Reload) -> Result<Exit> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(Exit::Good),
            _ = interrupt.recv() => return Ok(Exit::Good),
            _ = hangup.recv() => {
                if let Err(error) = reloader.reload() {
                    let ReloadError { code, message } = error;
                    tracing::error!(%code, %message, "the settings were not reloaded");
                }
            }
        }
    }
}

fn start_logging(format: LogFormat, level: tracing::Level) -> LogLevel {
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;
    let (filter, log_level) =
        tracing_subscriber::reload::Layer::new(LevelFilter::from_level(level));
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    match format {
        LogFormat::Pretty => registry.with(layer.compact()).init(),
        LogFormat::Json => registry.with(layer.json()).init(),
    }
    log_level
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_are_reached_over_loopback() {
        let own = |bound: &str| loopback_of(bound.parse().unwrap()).map(|own| own.to_string());
        assert_eq!(own("0.0.0.0:7411").as_deref(), Some("127.0.0.1:7411"));
        assert_eq!(own("[::]:7411").as_deref(), Some("[::1]:7411"));
        assert_eq!(own("127.0.0.1:7411"), None);
        assert_eq!(own("192.0.2.7:7411"), None);
    }
}
