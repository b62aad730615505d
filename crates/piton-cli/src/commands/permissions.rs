//! `piton permissions …`: the standing rules that answer permission requests.

use clap::Subcommand;
use piton_core::permission::{Action, PermissionRequest, Rule, RuleDecision, Subject};
use serde_json::{Value, json};

use crate::config::PermissionSettings;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::ui::{Tone, Ui};

pub(super) const EXAMPLES: &str = "\
Examples:
  piton permissions list
  piton permissions test --tool execute --command 'git status'
  piton permissions test --tool edit --path src/main.rs --agent codex

Rules are in the config file. `deny` overrides `ask`, and `ask` overrides `allow`, in any order. A
request that no rule matches is asked:
  [[permissions.rules]]
  action = \"allow\"
  tool = \"read\"               # a tool's name or kind: read, edit, delete, execute, fetch, …
  path = \"src/**\"             # from the session's folder; or /absolute/**, ~/home/**
  [[permissions.rules]]
  action = \"allow\"
  command = \"git status*\"     # `*` never matches ; & | < > ( ) $ ` or a line end
  agent = \"codex\"
  folder = \"~/projects/**\"
  [[permissions.rules]]
  action = \"deny\"
  name = \"no pushing\"         # how records name the rule
  command = \"git push*\"

Rules see what the agent reports. They are not a security boundary against the agent itself.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the permission rules of the settings
    ///
    /// JSON: one object per rule and line: number, name, action, tool, command, path, agent, folder,
    /// origin.
    List,
    Test(TestArgs),
}

/// Show how the rules would decide about a permission request
///
/// Reads the settings as the next `piton serve` would; asks no agent and no server.
///
/// JSON: one object: action (allow, ask or deny), rule {number, name, origin} or null, reason.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    /// The tool's name or kind, such as execute, edit, read
    #[arg(long)]
    tool: Option<String>,
    /// The whole command that the tool would run
    #[arg(long)]
    command: Option<String>,
    /// A path that the tool would touch; may be repeated
    #[arg(long, value_name = "PATH")]
    path: Vec<String>,
    /// The agent's profile
    #[arg(long)]
    agent: Option<String>,
    /// The session's folder [default: this one]
    #[arg(long, value_name = "DIR")]
    folder: Option<std::path::PathBuf>,
}

pub(crate) fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    let settings = &cx.settings.permissions;
    match command {
        Command::List => list(ui, settings),
        Command::Test(args) => test(ui, settings, args),
    }
}

fn list(ui: &mut Ui, settings: &PermissionSettings) -> Result<Exit> {
    if ui.json {
        for (at, rule) in settings.rules.iter().enumerate() {
            let mut shown = serde_json::to_value(rule).unwrap_or_default();
            shown["number"] = (at + 1).into();
            shown["name"] = settings.rules.name(at + 1).into();
            shown["origin"] = settings.origins.get(at).map(ToString::to_string).into();
            ui.json_line(&shown)?;
        }
        return Ok(Exit::Good);
    }
    if settings.rules.is_empty() {
        ui.note("There are no permission rules: every request is asked.")?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new([
        Column::Whole("NO"),
        Column::Whole("ACTION"),
        Column::Cut("RULE"),
        Column::Whole("FROM"),
    ]);
    for (at, rule) in settings.rules.iter().enumerate() {
        let origin = settings.origins.get(at).map(ToString::to_string).unwrap_or_default();
        table.row([
            (Tone::Plain, (at + 1).to_string()),
            (tone(rule.action), rule.action.as_str().to_owned()),
            (Tone::Plain, one_line(&words(rule))),
            (Tone::Quiet, origin),
        ]);
    }
    table.print(ui)?;
    Ok(Exit::Good)
}

fn tone(action: Action) -> Tone {
    match action {
        Action::Allow => Tone::Good,
        Action::Ask => Tone::Attention,
        Action::Deny => Tone::Bad,
    }
}

fn words(rule: &Rule) -> String {
    let fields = [
        ("name", &rule.name),
        ("tool", &rule.tool),
        ("command", &rule.command),
        ("path", &rule.path),
        ("agent", &rule.agent),
        ("folder", &rule.folder),
    ];
    let said = fields.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?)));
    said.collect::<Vec<_>>().join(" ")
}

fn test(ui: &mut Ui, settings: &PermissionSettings, args: TestArgs) -> Result<Exit> {
    let request = PermissionRequest::new(&question(&args), []);
    let folder = match args.folder {
        Some(folder) => std::path::absolute(folder)?,
        None => std::env::current_dir()?,
    };
    let folder = folder.to_string_lossy();
    let subject =
        Subject { request: &request, agent: args.agent.as_deref(), folder: Some(&folder) };
    let ruling = settings.rules.decide(&subject);
    let reason = reason(settings, &ruling);
    if ui.json {
        let rule = ruling.number.map(|number| {
            let origin = settings.origins.get(number - 1).map(ToString::to_string);
            json!({"number": number, "name": settings.rules.name(number), "origin": origin})
        });
        ui.json_line(&json!({"action": ruling.action, "rule": rule, "reason": reason}))?;
        return Ok(Exit::Good);
    }
    let action = ui.paint(tone(ruling.action), ruling.action.as_str());
    ui.line(format_args!("{action}: {reason}"))?;
    Ok(Exit::Good)
}

/// A request as an agent would make it.
fn question(args: &TestArgs) -> Value {
    let kind = match (&args.tool, &args.command) {
        (Some(tool), _) => tool.as_str(),
        (None, Some(_)) => "execute",
        (None, None) => "other",
    };
    let arguments = args.command.as_ref().map(|command| json!({"command": command}));
    let locations: Vec<Value> = args.path.iter().map(|path| json!({"path": path})).collect();
    let option = |kind: &str| json!({"option_id": kind, "kind": kind});
    json!({
        "toolCall": {"kind": kind, "rawInput": arguments, "locations": locations},
        "options": [option("allow_once"), option("reject_once")],
    })
}

fn reason(settings: &PermissionSettings, ruling: &RuleDecision) -> String {
    let Some(number) = ruling.number else { return "no rule matches".to_owned() };
    let name = settings.rules.name(number);
    let origin = settings.origins.get(number - 1).map(ToString::to_string).unwrap_or_default();
    let name =
        if name == format!("rule {number}") { name } else { format!("rule {number} {name:?}") };
    match ruling.unsure {
        Some(unsure) => format!("{name} ({origin}) would allow it, but {}", unsure.sentence()),
        None => format!("{name} ({origin})"),
    }
}
