//! `piton config …`

use std::collections::BTreeMap;
use std::path::Path;

use clap::Subcommand;
use piton_agent::profiles;
use piton_core::permission::Rule;
use piton_store::SecretText;
use serde_json::{Value, json};

use crate::agents;
use crate::commands::serve;
use crate::config::{self, AgentSetting, Number, Origin, PermissionSettings, Settings, Sourced};
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::stores;
use crate::table::{Column, Table};
use crate::times;
use crate::ui::{ColorChoice, Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton config show
  PITON_DATA=/srv/piton piton config show --json | jq .settings

JSON: one object: config_file, config_file_exists, settings: a list of {key, value, origin, path,
line, variable, option}. Secret values are counted or left out, never shown.

A config file with everything that can be set:
  data = \"/srv/piton\"        # the data folder
  store = \"sqlite\"           # or \"files\"; for a new data folder
  color = \"auto\"             # or \"always\", \"never\"
  [key]
  source = \"auto\"            # for a new store: keychain, environment ($PITON_KEY), file
  [mask]
  values = [\"hunter2\"]       # secrets that must never be stored
  env = [\"GITHUB_TOKEN\"]     # variables that hold such secrets
  files = [\"/etc/token\"]     # files that hold such secrets
  keys = [\"*api_key*\"]       # keys whose values are secrets
  [server]
  listen = \"127.0.0.1:7411\"  # beyond this machine only with a certificate
  hosts = [\"piton.example\"]  # names by which the server may be called
  origins = [\"https://a.b\"]  # sites whose pages may use it
  tls_cert = \"/etc/cert.pem\"
  tls_key = \"/etc/key.pem\"
  [notify]
  url = \"https://ntfy.sh\"    # gets a POST when a session waits or a run ends
  topic = \"a-long-name\"     # of ntfy
  events = [\"waiting\", \"ended\"]
  token = \"tk_secret\"       # sent as a bearer token
  [agents.mine]              # for `piton chat --agent mine`: any agent that speaks ACP
  command = [\"mine\", \"--acp\"]  # {session} is the session's id
  name = \"My agent\"          # for people
  install = \"Ask Ada.\"       # what to tell those who do not have it
  env = { MODEL = \"large\" }  # added to its environment; values are never shown
  env_remove = [\"DEBUG\"]     # removed from it; HOME stays as it is
  resume = \"native\"          # or \"history\", \"command_line\", \"none\"
  history = false            # whether a prompt carries the history where nothing else works
  [agents.gemini]            # one that Piton knows: what is not said stays as it was
  command = [\"/opt/gemini\", \"--acp\"]
  [chat]
  agent = \"gemini\"           # of new sessions [default: the first that is installed]
  [resume]
  agent_restart = \"on_open\" # or \"on_boot\", \"on_prompt\", \"manual\"
  continue_run = \"ask\"     # an interrupted turn; or \"auto\", \"never\"
  interruption_summary = \"on\"  # what an agent lost goes with its next prompt; or \"off\"
  [permissions]
  key_delay_ms = 300         # keys count so long after a request is shown
  [[permissions.rules]]      # `piton permissions --help` has more
  action = \"allow\"          # or \"ask\", \"deny\"
  command = \"git status*\"
  [checkpoint]               # of graphs; docs/reference/checkpoint-config.md has all options
  max_checkpoints_per_session = 100
  [retention]
  archive_after = \"30d\"      # closed sessions; or \"never\"
  delete_after = \"never\"";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show every setting and where its value comes from
    ///
    /// The order, the later wins: default, config file, environment, option.
    #[command(after_help = EXAMPLES)]
    Show,
}

/// A setting as it is shown.
struct Shown {
    key: String,
    text: String,
    value: Value,
    origin: Origin,
}

pub(crate) fn run(ui: &mut Ui, cx: &Context, command: &Command) -> Result<Exit> {
    let Command::Show = command;
    let settings = &cx.settings;
    let shown = shown(settings);
    if ui.json {
        let list: Vec<Value> = shown.iter().map(to_json).collect();
        ui.json_line(&json!({
            "config_file": settings.file,
            "config_file_exists": settings.file_exists,
            "settings": list,
        }))?;
    } else {
        let mut table =
            Table::new([Column::Whole("SETTING"), Column::Cut("VALUE"), Column::Whole("FROM")]);
        for one in shown {
            let is_default = one.origin == Origin::Default;
            let tone = if is_default { Tone::Quiet } else { Tone::Plain };
            table.row([
                (Tone::Plain, one.key),
                (tone, one.text),
                (Tone::Quiet, origin(&one.origin)),
            ]);
        }
        table.print(ui)?;
        let there = if settings.file_exists { "" } else { " (there is none)" };
        ui.note(&format!("Config file: {}{there}", settings.file.display()))?;
    }
    for name in config::unknown_variables() {
        ui.warn(&format!("${name} is no setting and does nothing."))?;
    }
    Ok(Exit::Good)
}

/// The name and line only: the config file's path is printed once, below the table.
fn origin(origin: &Origin) -> String {
    match origin {
        Origin::File { path, line } => {
            format!("{}:{line}", path.file_name().unwrap_or_default().to_string_lossy())
        }
        origin => origin.to_string(),
    }
}

/// The settings that differ, by their values: also those that are hidden, or not shown one by one.
pub(crate) fn changed_keys(old: &Settings, new: &Settings) -> Vec<String> {
    let (old, new) = (compared(old), compared(new));
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter().filter(|key| old.get(*key) != new.get(*key)).cloned().collect()
}

/// The values themselves, secrets too: for comparison, never for output.
fn compared(settings: &Settings) -> BTreeMap<String, Value> {
    // Rules are compared by those who read them again; the delay of keys is the terminal's own.
    let shown = shown(settings).into_iter().filter(|one| !one.key.starts_with("permissions."));
    let mut values: BTreeMap<String, Value> = shown.map(|one| (one.key, one.value)).collect();
    let mut put = |key: &str, value: Value| drop(values.insert(key.to_owned(), value));
    let secrets = settings.mask_values.value.iter().map(SecretText::reveal);
    put("mask.values", json!(secrets.collect::<Vec<_>>()));
    let notify = &settings.notify;
    for (key, secret) in [
        ("notify.url", &notify.url),
        ("notify.topic", &notify.topic),
        ("notify.token", &notify.token),
    ] {
        put(key, json!(secret.value.as_ref().map(SecretText::reveal)));
    }
    for AgentSetting { profile, .. } in &settings.agents {
        let key = format!("agents.{}", profile.id);
        let of_profile = json!({
            "command": profile.command,
            "name": profile.name,
            "install": profile.install,
            "env": profile.env,
            "env_remove": profile.env_remove,
            "resume": agents::strategy_name(profiles::strategy(profile.abilities)),
            "history": profile.abilities.history,
            "continue": profile.continuation.as_ref().map(|how| &how.line),
            "auth_method": profile.auth_method,
            "mcp": profile.mcp_servers,
        });
        put(&key, of_profile);
    }
    if let Ok(Value::Object(options)) = serde_json::to_value(&settings.checkpoint) {
        let options = options.into_iter();
        values.extend(options.map(|(name, value)| (format!("checkpoint.{name}"), value)));
    }
    values
}

fn shown(settings: &Settings) -> Vec<Shown> {
    fn one<T>(key: &'static str, from: &Sourced<T>, text: String, value: Value) -> Shown {
        Shown { key: key.to_owned(), text, value, origin: from.origin.clone() }
    }
    fn text<T>(key: &'static str, from: &Sourced<T>, text: impl Into<String>) -> Shown {
        let text = text.into();
        one(key, from, text.clone(), text.into())
    }
    fn list<T>(key: &'static str, from: &Sourced<Vec<T>>, name: fn(&T) -> String) -> Shown {
        let names: Vec<String> = from.value.iter().map(name).collect();
        one(key, from, names.join(", "), names.into())
    }
    let span = |key, from: &Sourced<Option<std::time::Duration>>| {
        text(key, from, from.value.map_or_else(|| "never".to_owned(), times::span_text))
    };
    let place = |key, from: &Sourced<Option<std::path::PathBuf>>| {
        let text = from.value.as_deref().map(config::from_home).unwrap_or_default();
        one(key, from, text, json!(from.value))
    };
    let secret = |key, from: &Sourced<Option<SecretText>>| {
        let hidden = usize::from(from.value.is_some());
        let text = if hidden == 0 { "" } else { "(hidden)" };
        one(key, from, text.to_owned(), json!({"hidden": hidden}))
    };
    let (server, resume) = (&settings.server, &settings.resume);
    let listen = server.listen.value.unwrap_or(serve::LISTEN).to_string();
    let color = ColorChoice::NAMES.iter().find(|(_, choice)| *choice == settings.color.value);
    let secrets = settings.mask_values.value.len();
    let hidden = if secrets == 0 { String::new() } else { format!("({secrets} hidden)") };
    let mut shown = vec![
        one(
            "data",
            &settings.data,
            config::from_home(&settings.data.value),
            json!(settings.data.value),
        ),
        text("store", &settings.store, settings.store.value.as_str()),
        text("color", &settings.color, color.map_or("auto", |(name, _)| *name)),
        text(
            "key.source",
            &settings.key_source,
            stores::key_source_name(&settings.key_source.value),
        ),
        one("mask.values", &settings.mask_values, hidden, json!({"hidden": secrets})),
        list("mask.env", &settings.mask_env, String::clone),
        list("mask.files", &settings.mask_files, |path| path.to_string_lossy().into_owned()),
        list("mask.keys", &settings.mask_keys, String::clone),
        text("server.listen", &server.listen, listen),
        list("server.hosts", &server.hosts, String::clone),
        list("server.origins", &server.origins, String::clone),
        place("server.tls_cert", &server.tls_cert),
        place("server.tls_key", &server.tls_key),
        secret("notify.url", &settings.notify.url),
        secret("notify.topic", &settings.notify.topic),
        list("notify.events", &settings.notify.events, String::clone),
        secret("notify.token", &settings.notify.token),
        one(
            "chat.agent",
            &settings.chat_agent,
            settings.chat_agent.value.clone().unwrap_or_default(),
            json!(settings.chat_agent.value),
        ),
        text(
            "resume.agent_restart",
            &resume.agent_restart,
            name_of(config::AGENT_RESTARTS, resume.agent_restart.value),
        ),
        text(
            "resume.continue_run",
            &resume.continue_run,
            name_of(config::CONTINUE_TURNS, resume.continue_run.value),
        ),
        text(
            "resume.interruption_summary",
            &resume.note,
            name_of(config::ON_OFF, resume.note.value),
        ),
        text(
            "workspace.snapshots",
            &settings.snapshots,
            name_of(config::ON_OFF, settings.snapshots.value),
        ),
        text(
            "log.level",
            &settings.log_level,
            name_of(config::LOG_LEVELS, settings.log_level.value),
        ),
    ];
    shown.extend(settings.numbers.all().map(|(key, number)| shown_number(key, number)));
    shown.extend([
        span("retention.archive_after", &settings.archive_after),
        span("retention.delete_after", &settings.delete_after),
    ]);
    shown.extend(shown_permissions(&settings.permissions));
    shown.extend(settings.agents.iter().map(shown_agent));
    shown
}

fn shown_permissions(permissions: &PermissionSettings) -> Vec<Shown> {
    let delay_ms = u64::try_from(permissions.key_delay.as_millis()).unwrap_or(u64::MAX);
    let delay = Shown {
        key: "permissions.key_delay_ms".to_owned(),
        text: delay_ms.to_string(),
        value: delay_ms.into(),
        origin: permissions.key_delay_origin.clone(),
    };
    let rules = (1..).zip(permissions.rules.iter()).zip(&permissions.origins);
    let rules = rules.map(|((number, rule), origin)| Shown {
        key: format!("permissions.rules.{number}"),
        text: rule_text(rule),
        value: json!(rule),
        origin: origin.clone(),
    });
    std::iter::once(delay).chain(rules).collect()
}

/// A rule as one line: `allow command git status*`.
fn rule_text(rule: &Rule) -> String {
    let mut text = rule.action.as_str().to_owned();
    let conditions = [
        ("tool", &rule.tool),
        ("command", &rule.command),
        ("path", &rule.path),
        ("agent", &rule.agent),
        ("folder", &rule.folder),
    ];
    for (name, pattern) in conditions {
        if let Some(pattern) = pattern {
            text.extend([" ", name, " ", pattern]);
        }
    }
    text
}

fn shown_number(key: &str, number: &Sourced<Number>) -> Shown {
    let text = number.value.to_string();
    let value = match number.value {
        Number::Count(count) => json!(count),
        Number::Span(_) | Number::Never => json!(text),
    };
    Shown { key: key.to_owned(), text, value, origin: number.origin.clone() }
}

/// How a choice is spelled.
fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

/// Of its environment the names: the values may be secret.
fn shown_agent(AgentSetting { profile, origin }: &AgentSetting) -> Shown {
    let names: Vec<&str> = profile.env.iter().map(|(name, _)| name.as_str()).collect();
    let continuation = profile.continuation.as_ref().filter(|_| profile.abilities.command_line);
    Shown {
        key: format!("agents.{}", profile.id),
        text: command_text(&profile.command),
        value: json!({
            "command": profile.command,
            "name": profile.name,
            "install": profile.install,
            "env": names,
            "env_remove": profile.env_remove,
            "resume": agents::strategy_name(profiles::strategy(profile.abilities)),
            "history": profile.abilities.history,
            "continue": continuation.map(|continuation| &continuation.line.resume),
        }),
        origin: origin.clone(),
    }
}

/// A command as people write it.
fn command_text(command: &[String]) -> String {
    let mut parts = command.to_vec();
    if let Some(program) = parts.first_mut().filter(|program| program.starts_with('/')) {
        *program = config::from_home(Path::new(program.as_str()));
    }
    parts.join(" ")
}

fn to_json(shown: &Shown) -> Value {
    let mut json = json!({"key": shown.key, "value": shown.value});
    match &shown.origin {
        Origin::Default => json["origin"] = "default".into(),
        Origin::File { path, line } => {
            json["origin"] = "file".into();
            json["path"] = path.to_string_lossy().into();
            json["line"] = (*line).into();
        }
        Origin::Environment { variable } => {
            json["origin"] = "environment".into();
            json["variable"] = (*variable).into();
        }
        Origin::Option { name } => {
            json["origin"] = "option".into();
            json["option"] = (*name).into();
        }
    }
    json
}
