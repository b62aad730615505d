//! The settings: what each one is, where its value comes from, and which value counts. Later ones
//! count more: default, config file, environment, option.

mod agents;
mod checkpoint;
mod file;
mod keys;
mod mcp;
mod numbers;
mod permissions;

use std::env;
use std::ffi::OsString;
use std::net::{AddrParseError, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_core::Code;
use piton_core::graph::CheckpointOptions;
use piton_core::resume::{AgentRestart, ContinueRun, Policy};
use piton_store::{KeySource, SecretText};

use crate::cli::Global;
use crate::error::{Error, Result};
use crate::stores::Kind;
use crate::times;
use crate::ui::ColorChoice;

pub(crate) use agents::AgentSetting;
pub(crate) use keys::{KEYS, Key};
pub(crate) use numbers::{Number, Numbers};
pub(crate) use permissions::PermissionSettings;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Environment { variable: &'static str },
    Option { name: &'static str },
}

/// A value as its source has it, before it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    Text(String),
    List(Vec<String>),
}

/// The settings of one source, by key.
pub(crate) type Layer = Vec<(&'static Key, Raw, Origin)>;

#[derive(Clone, Debug)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// The sources that a new store's key may come from, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyChoice {
    Auto,
    Only(KeySource),
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) file: PathBuf,
    pub(crate) file_exists: bool,
    /// By an option or the environment.
    pub(crate) file_is_named: bool,
    pub(crate) data: Sourced<PathBuf>,
    pub(crate) store: Sourced<Kind>,
    pub(crate) key_source: Sourced<KeyChoice>,
    pub(crate) color: Sourced<ColorChoice>,
    pub(crate) mask_values: Sourced<Vec<SecretText>>,
    pub(crate) mask_env: Sourced<Vec<String>>,
    pub(crate) mask_files: Sourced<Vec<PathBuf>>,
    pub(crate) mask_keys: Sourced<Vec<String>>,
    pub(crate) server: ServerSettings,
    pub(crate) notify: NotifySettings,
    /// From the config file alone, by name.
    pub(crate) agents: Vec<AgentSetting>,
    /// From the config file alone.
    pub(crate) permissions: PermissionSettings,
    /// From the config file alone: how graphs are checkpointed, whatever they say themselves.
    pub(crate) checkpoint: CheckpointOptions,
    /// The agent of new sessions that name none.
    pub(crate) chat_agent: Sourced<Option<String>>,
    pub(crate) resume: ResumeSettings,
    pub(crate) numbers: Numbers,
    /// Whether files are saved around turns.
    pub(crate) snapshots: Sourced<bool>,
    pub(crate) log_level: Sourced<tracing::Level>,
    pub(crate) archive_after: Sourced<Option<Duration>>,
    pub(crate) delete_after: Sourced<Option<Duration>>,
}

/// What `piton serve` does unless an option says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct ServerSettings {
    pub(crate) listen: Sourced<Option<SocketAddr>>,
    pub(crate) hosts: Sourced<Vec<String>>,
    pub(crate) origins: Sourced<Vec<String>>,
    pub(crate) tls_cert: Sourced<Option<PathBuf>>,
    pub(crate) tls_key: Sourced<Option<PathBuf>>,
}

/// Where the server posts a notification when a session waits or a run ends. What names a topic may be
/// in the address: both are secrets.
#[derive(Clone, Debug)]
pub(crate) struct NotifySettings {
    pub(crate) url: Sourced<Option<SecretText>>,
    pub(crate) topic: Sourced<Option<SecretText>>,
    pub(crate) events: Sourced<Vec<String>>,
    pub(crate) token: Sourced<Option<SecretText>>,
}

/// When agents are started again, and which context they get.
#[derive(Clone, Debug)]
pub(crate) struct ResumeSettings {
    pub(crate) agent_restart: Sourced<AgentRestart>,
    pub(crate) continue_run: Sourced<ContinueRun>,
    pub(crate) note: Sourced<bool>,
}

impl ResumeSettings {
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            agent_restart: self.agent_restart.value,
            continue_run: self.continue_run.value,
            note: self.note.value,
        }
    }
}

pub(crate) const AGENT_RESTARTS: &[(&str, AgentRestart)] = &[
    ("on_boot", AgentRestart::OnBoot),
    ("on_open", AgentRestart::OnOpen),
    ("on_prompt", AgentRestart::OnPrompt),
    ("manual", AgentRestart::Manual),
];
pub(crate) const CONTINUE_TURNS: &[(&str, ContinueRun)] =
    &[("ask", ContinueRun::Ask), ("auto", ContinueRun::Auto), ("never", ContinueRun::Never)];
pub(crate) const LOG_LEVELS: &[(&str, tracing::Level)] = &[
    ("error", tracing::Level::ERROR),
    ("warn", tracing::Level::WARN),
    ("info", tracing::Level::INFO),
    ("debug", tracing::Level::DEBUG),
    ("trace", tracing::Level::TRACE),
];
pub(crate) const ON_OFF: &[(&str, bool)] = &[("on", true), ("off", false)];

/// The values of these keys are masked wherever they appear.
const MASK_KEYS: &[&str] =
    &["*api_key*", "*_token", "token", "*secret*", "*password*", "credentials*"];

/// Appends a table to the config file. What would make the file invalid is not written; a reader sees
/// the old file or the new one.
pub(crate) fn append(path: &Path, table: &str) -> Result<()> {
    use std::io::Write as _;
    // A link to the file stays one.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let failed = |error: std::io::Error| {
        let message = format!("The config file {} cannot be written", path.display());
        Error::new(Code::ConfigInvalid, message).because(&error)
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    let blank = if before.is_empty() { "" } else { "\n" };
    let end = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let mut new = tempfile::Builder::new().prefix(".piton-").tempfile_in(folder).map_err(failed)?;
    writeln!(new, "{before}{end}{blank}{table}").map_err(failed)?;
    if let Ok(found) = std::fs::metadata(&path) {
        new.as_file().set_permissions(found.permissions()).map_err(failed)?;
    }
    new.as_file().sync_all().map_err(failed)?;
    file::read(new.path(), true)?;
    new.persist(&path).map_err(|error| failed(error.error))?;
    Ok(())
}

impl Settings {
    pub(crate) fn load(global: &Global) -> Result<Self> {
        let (file, file_is_named) = config_file(global)?;
        let read = file::read(&file, file_is_named)?;
        let (mut layer, agents, file_exists) = (read.layer, read.agents, read.exists);
        let (permissions, checkpoint) = (read.permissions, read.checkpoint);
        layer.extend(environment()?);
        if let Some(data) = &global.data {
            let origin = Origin::Option { name: "--data" };
            layer.push((&keys::DATA, Raw::Text(utf8("--data", data.as_os_str())?), origin));
        }
        if let Some(color) = global.color {
            let named = ColorChoice::NAMES.iter().find(|(_, choice)| *choice == color);
            let name = named.map_or("auto", |(name, _)| name).to_owned();
            layer.push((&keys::COLOR, Raw::Text(name), Origin::Option { name: "--color" }));
        }
        let pick = Pick { layer };
        let default_data = || user_folder("XDG_DATA_HOME", ".local/share");
        Ok(Self {
            data: match pick.text("data", |text| Ok(text.to_owned()))? {
                Some(Sourced { value, origin }) => {
                    // Servers and agents work elsewhere, and must find it.
                    let value = place(&value, &origin)?;
                    Sourced { value: std::path::absolute(&value).unwrap_or(value), origin }
                }
                None => Sourced { value: default_data()?.join("piton"), origin: Origin::Default },
            },
            store: pick.one_of("store", Kind::NAMES, Kind::Sqlite)?,
            key_source: pick.one_of("key.source", KEY_SOURCES, KeyChoice::Auto)?,
            color: pick.one_of("color", ColorChoice::NAMES, ColorChoice::Auto)?,
            mask_values: pick.list("mask.values", &[], Into::into),
            mask_env: pick.list("mask.env", &[], |name| name),
            mask_files: {
                let Sourced { value, origin } = pick.list("mask.files", &[], |path| path);
                let places = value.iter().map(|path| place(path, &origin));
                Sourced { value: places.collect::<Result<_>>()?, origin }
            },
            mask_keys: pick.list("mask.keys", MASK_KEYS, |pattern| pattern),
            server: ServerSettings {
                listen: pick.maybe("server.listen", |text, _| {
                    let wrong = |_| format!("{text:?} is not an address such as 127.0.0.1:7411");
                    address(text).map_err(wrong)
                })?,
                hosts: pick.list("server.hosts", &[], |host| host),
                origins: pick.list("server.origins", &[], |origin| origin),
                tls_cert: pick.place("server.tls_cert")?,
                tls_key: pick.place("server.tls_key")?,
            },
            agents,
            permissions,
            checkpoint,
            chat_agent: pick.maybe("chat.agent", |text, _| Ok(text.to_owned()))?,
            resume: ResumeSettings {
                agent_restart: pick.one_of(
                    "resume.agent_restart",
                    AGENT_RESTARTS,
                    AgentRestart::default(),
                )?,
                continue_run: pick.one_of(
                    "resume.continue_run",
                    CONTINUE_TURNS,
                    ContinueRun::default(),
                )?,
                note: pick.one_of("resume.interruption_summary", ON_OFF, true)?,
            },
            numbers: Numbers::pick(&pick)?,
            snapshots: pick.one_of("workspace.snapshots", ON_OFF, true)?,
            log_level: pick.one_of("log.level", LOG_LEVELS, tracing::Level::INFO)?,
            notify: NotifySettings {
                url: pick.maybe("notify.url", |text, _| Ok(text.to_owned().into()))?,
                topic: pick.maybe("notify.topic", |text, _| Ok(text.to_owned().into()))?,
                events: pick.list("notify.events", &["waiting", "ended"], |name| name),
                token: pick.maybe("notify.token", |text, _| Ok(text.to_owned().into()))?,
            },
            archive_after: pick.span("retention.archive_after")?,
            delete_after: pick.span("retention.delete_after")?,
            file,
            file_exists,
            file_is_named,
        })
    }
}

impl Settings {
    /// Those that count for a running engine from when they are set.
    pub(crate) fn runtime(&self) -> piton_runtime::Settings {
        let mut settings = self.numbers.runtime();
        settings.snapshots.enabled = self.snapshots.value;
        settings
    }
}

const KEY_SOURCES: &[(&str, KeyChoice)] = &[
    ("auto", KeyChoice::Auto),
    ("keychain", KeyChoice::Only(KeySource::Keychain)),
    ("environment", KeyChoice::Only(KeySource::Environment)),
    ("file", KeyChoice::Only(KeySource::File)),
];

/// What was set; the last one counts.
struct Pick {
    layer: Layer,
}

impl Pick {
    fn raw(&self, name: &str) -> Option<(&Raw, &Origin)> {
        let set = self.layer.iter().rev().find(|(key, ..)| key.name == name);
        set.map(|(_, raw, origin)| (raw, origin))
    }

    fn text<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<Sourced<T>>> {
        let Some((Raw::Text(text), origin)) = self.raw(name) else { return Ok(None) };
        let value = parse(text).map_err(|why| invalid(name, origin, &why))?;
        Ok(Some(Sourced { value, origin: origin.clone() }))
    }

    fn one_of<T: Clone>(
        &self,
        name: &'static str,
        names: &[(&str, T)],
        default: T,
    ) -> Result<Sourced<T>> {
        let parsed = self.text(name, |text| {
            let found = names.iter().find(|(known, _)| *known == text);
            let known: Vec<_> = names.iter().map(|(known, _)| *known).collect();
            let wrong = || format!("{text:?} is not one of {}", known.join(", "));
            found.map(|(_, value)| value.clone()).ok_or_else(wrong)
        })?;
        Ok(parsed.unwrap_or(Sourced { value: default, origin: Origin::Default }))
    }

    /// One that may be left out.
    fn maybe<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str, &Origin) -> Result<T, String>,
    ) -> Result<Sourced<Option<T>>> {
        let Some((Raw::Text(text), origin)) = self.raw(name) else {
            return Ok(Sourced { value: None, origin: Origin::Default });
        };
        let value = parse(text, origin).map_err(|why| invalid(name, origin, &why))?;
        Ok(Sourced { value: Some(value), origin: origin.clone() })
    }

    fn place(&self, name: &'static str) -> Result<Sourced<Option<PathBuf>>> {
        let Sourced { value, origin } = self.maybe(name, |text, _| Ok(text.to_owned()))?;
        let value = value.map(|path| place(&path, &origin)).transpose()?;
        Ok(Sourced { value, origin })
    }

    fn span(&self, name: &'static str) -> Result<Sourced<Option<Duration>>> {
        let parsed = self.text(name, |text| match text {
            "never" => Ok(None),
            text => times::parse_span(text).map(Some),
        })?;
        Ok(parsed.unwrap_or(Sourced { value: None, origin: Origin::Default }))
    }

    fn list<T>(&self, name: &str, default: &[&str], make: impl Fn(String) -> T) -> Sourced<Vec<T>> {
        let (list, origin) = match self.raw(name) {
            Some((Raw::List(list), origin)) => (list.clone(), origin.clone()),
            _ => (default.iter().map(|&text| text.to_owned()).collect(), Origin::Default),
        };
        Sourced { value: list.into_iter().map(make).collect(), origin }
    }
}

/// An address to listen on. No name is looked up: `localhost` is this machine, whatever else is said
/// of it elsewhere.
pub(crate) fn address(text: &str) -> Result<SocketAddr, AddrParseError> {
    match text.rsplit_once(':') {
        Some((host, port)) if host.eq_ignore_ascii_case("localhost") => {
            format!("{}:{port}", Ipv4Addr::LOCALHOST).parse()
        }
        _ => text.parse(),
    }
}

fn invalid(key: &str, origin: &Origin, why: &str) -> Error {
    Error::new(Code::ConfigInvalid, format!("The setting {key} in {origin} is wrong: {why}"))
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment { variable } => write!(f, "${variable}"),
            Self::Option { name } => f.write_str(name),
        }
    }
}

fn utf8(what: &str, text: &std::ffi::OsStr) -> Result<String> {
    let wrong = || Error::new(Code::ConfigInvalid, format!("The value of {what} is not UTF-8"));
    Ok(text.to_str().ok_or_else(wrong)?.to_owned())
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn environment() -> Result<Layer> {
    let mut layer = Layer::new();
    for key in KEYS {
        let Some(value) = variable(key.variable) else { continue };
        let text = utf8(key.variable, &value)?;
        let raw = if key.is_list {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Raw::List(parts.map(str::to_owned).collect())
        } else {
            Raw::Text(text)
        };
        layer.push((key, raw, Origin::Environment { variable: key.variable }));
    }
    Ok(layer)
}

/// Variables that look like settings and are none.
pub(crate) fn unknown_variables() -> Vec<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_known = |name: &str| {
        KEYS.iter().any(|key| key.variable == name)
            || keys::OTHER_VARIABLES.contains(&name)
            || name.starts_with("PITON_TEST_")
    };
    let mut unknown: Vec<_> =
        names.filter(|name| name.starts_with("PITON_") && !is_known(name)).collect();
    unknown.sort();
    unknown
}

/// The config file, and whether the user named it.
fn config_file(global: &Global) -> Result<(PathBuf, bool)> {
    let named = global.config.clone().or_else(|| variable(keys::CONFIG_VARIABLE).map(Into::into));
    match named {
        Some(file) => Ok((file, true)),
        None => Ok((user_folder("XDG_CONFIG_HOME", ".config")?.join("piton/config.toml"), false)),
    }
}

/// Resolves a path of a setting: `~/` is the home folder, and a path in a config file is relative
/// to that file, not to the current folder.
fn place(path: &str, origin: &Origin) -> Result<PathBuf> {
    if let Some(rest) = path.strip_prefix("~/") {
        return Ok(home()?.join(rest));
    }
    Ok(match origin {
        Origin::File { path: file, .. } => file.parent().unwrap_or(Path::new("")).join(path),
        Origin::Default | Origin::Environment { .. } | Origin::Option { .. } => path.into(),
    })
}

fn home() -> Result<PathBuf> {
    variable("HOME").map(PathBuf::from).ok_or_else(|| {
        let message = "There is no home folder: HOME is not set";
        Error::new(Code::ConfigInvalid, message)
            .with_hint("Set HOME, or name the places yourself: --data DIR and --config FILE.")
    })
}

/// A path as people write it: what is in the home folder begins with `~`.
pub(crate) fn from_home(path: &Path) -> String {
    let home = variable("HOME").and_then(|home| path.strip_prefix(home).ok());
    home.map_or_else(|| path.display().to_string(), |rest| format!("~/{}", rest.display()))
}

/// The user's folder of a kind, after the XDG base directory specification.
fn user_folder(variable_name: &str, below_home: &str) -> Result<PathBuf> {
    // Relative paths in these variables are to be ignored.
    let given = variable(variable_name).map(PathBuf::from).filter(|path| path.is_absolute());
    given.map_or_else(|| Ok(home()?.join(below_home)), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_this_machine_and_other_names_are_refused() {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 7411));
        for text in ["localhost:7411", "LocalHost:7411", "127.0.0.1:7411"] {
            assert_eq!(address(text), Ok(here), "{text}");
        }
        assert!(address("[::1]:0").is_ok());
        for text in
            ["localhost", "localhost:", "localhost:x", "localhost:70000", "piton.test:1", ""]
        {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
