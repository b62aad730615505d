//! The configured agents: `[agents.NAME]`. A table with the name of a built-in agent replaces the
//! fields that it sets, and inherits the rest.
//!
//! There is no setting for an agent's home: in another home the agent would not find its
//! conversations.

use piton_agent::profiles::{
    self, AGENT_SESSION_ID, CommandLine, Continuation, Origin as Who, Output, Profile,
};
use piton_core::mcp::McpServer;
use piton_core::resume::Abilities;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{Reader, texts};
use super::{KEYS, Origin, mcp, place};
use crate::error::{Error, Result};

pub(super) const TABLE: &str = "agents";
/// Built in: a configured one of this name would be two agents.
const BUILT_IN: &str = "echo";
const ID_BYTES_MAX: usize = 128;
const AGENTS_MAX: usize = 100;
const VARIABLES_MAX: usize = 100;
/// What must stay as it is.
const HOME: &str = "HOME";

/// An agent that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentSetting {
    pub(crate) profile: Profile,
    pub(crate) origin: Origin,
}

const HINT: &str = "An agent is `[agents.NAME]` with `command = [\"program\", \"argument\"]` and perhaps \
                    `name`, `install`, `env`, `env_remove`, `resume`, `history`, `continue`, `auth_method` and `mcp`; \
                    `piton config show --help` has an example.";

/// The names of the ways to resume, and what each can do.
const RESUME: &[(&str, Abilities)] = &[
    ("native", Abilities { native: true, command_line: false, history: true }),
    ("history", Abilities { native: false, command_line: false, history: true }),
    ("command_line", Abilities { native: false, command_line: true, history: true }),
    ("none", Abilities { native: false, command_line: false, history: false }),
];

pub(super) fn read(
    reader: &Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    at: usize,
) -> Result<Vec<AgentSetting>> {
    let Some(table) = value.get_ref().as_table() else {
        return Err(wrong(reader, at, "agents must be a table of agents"));
    };
    if table.len() > AGENTS_MAX {
        return Err(wrong(reader, at, &format!("there are more than {AGENTS_MAX} agents")));
    }
    let mut agents = Vec::new();
    for (id, value) in table {
        let (id, at) = (id.get_ref().to_string(), id.span().start);
        if KEYS.iter().any(|key| key.name.strip_prefix("agents.") == Some(id.as_str())) {
            continue;
        }
        let is_id = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if id.is_empty() || id.len() > ID_BYTES_MAX || !id.chars().all(is_id) {
            let why = format!("{id:?} is no name for an agent: use letters, digits, _ and -");
            return Err(wrong(reader, at, &why));
        }
        if id == BUILT_IN {
            let why = "agents.echo is built in, and cannot be another agent: choose another name";
            return Err(wrong(reader, at, why));
        }
        let Some(table) = value.get_ref().as_table() else {
            return Err(wrong(reader, at, &format!("agents.{id} must be a table")));
        };
        agents.push(Entry { reader, id: &id, at }.agent(table)?);
    }
    agents.sort_by(|a, b| a.profile.id.cmp(&b.profile.id));
    Ok(agents)
}

fn wrong(reader: &Reader<'_>, at: usize, why: &str) -> Error {
    reader.wrong(at, why).with_hint(HINT)
}

/// The fields that an agent's table sets, and where.
#[derive(Default)]
struct Said {
    command: Option<(Vec<String>, usize)>,
    name: Option<String>,
    install: Option<String>,
    env: Option<Vec<(String, String)>>,
    env_remove: Option<Vec<String>>,
    resume: Option<Abilities>,
    history: Option<bool>,
    continuing: Option<(Vec<String>, usize)>,
    mcp: Option<Vec<McpServer>>,
    auth_method: Option<String>,
}

/// One agent's table.
struct Entry<'a> {
    reader: &'a Reader<'a>,
    id: &'a str,
    at: usize,
}

impl Entry<'_> {
    fn agent(&self, table: &DeTable<'_>) -> Result<AgentSetting> {
        let path = self.reader.path.into();
        let origin = Origin::File { path, line: self.reader.line(self.at) };
        let said = self.read(table)?;
        let known = profiles::find(self.id);
        let mut profile = match (&said.command, known) {
            (_, Some(known)) => known,
            (Some(_), None) => Profile::configured(self.id, Vec::new()),
            (None, None) => {
                return Err(self.wrong(self.at, &format!("agents.{}.command is missing", self.id)));
            }
        };
        profile.origin = Who::Configured;
        let is_other_program = said.command.is_some();
        if let Some((command, at)) = said.command {
            profile.command = self.command(command, at, &origin)?;
        }
        if let Some(name) = said.name.filter(|name| !name.trim().is_empty()) {
            profile.name = name;
        }
        profile.install = said.install.unwrap_or(profile.install);
        profile.env = said.env.unwrap_or(profile.env);
        profile.env_remove = said.env_remove.unwrap_or(profile.env_remove);
        profile.auth_method = said.auth_method.or(profile.auth_method);
        profile.mcp_servers = said.mcp.unwrap_or(profile.mcp_servers);
        profile.abilities = said.resume.unwrap_or(profile.abilities);
        profile.abilities.history = said.history.unwrap_or(profile.abilities.history);
        if let Some((template, at)) = said.continuing {
            self.check_template(&template, profile.abilities, at)?;
            // Plain text would not say which conversation it was.
            let stated = CommandLine { output: Output::StreamJson, ..CommandLine::default() };
            let mut inherited = profile
                .continuation
                .unwrap_or_else(|| Continuation { command: Vec::new(), line: stated });
            inherited.line.resume = template;
            // What was known would go before it where a message is named.
            inherited.line.resume_at = Vec::new();
            profile.continuation = Some(inherited);
        }
        if let (true, true, Some(continuation)) =
            (profile.abilities.command_line, is_other_program, &mut profile.continuation)
        {
            // The program that was named is the one that is continued.
            continuation.command = Vec::new();
        }
        if profile.abilities.command_line && profile.continuation.is_none() {
            let why = format!(
                "agents.{0}.resume is command_line, and agents.{0}.continue does not say how",
                self.id
            );
            return Err(self.wrong(self.at, &why));
        }
        Ok(AgentSetting { profile, origin })
    }

    fn read(&self, table: &DeTable<'_>) -> Result<Said> {
        let mut said = Said::default();
        for (key, value) in table {
            let (key, at) = (key.get_ref().as_ref(), key.span().start);
            let list =
                || texts(value).ok_or_else(|| self.must_be(key, "a list of texts", value, at));
            let text = || self.text(key, value, at);
            match key {
                "command" => said.command = Some((list()?, at)),
                "name" => said.name = Some(text()?),
                "install" => said.install = Some(text()?),
                "env" => said.env = Some(self.variables(value, at)?),
                "env_remove" => {
                    let names = list()?;
                    names.iter().try_for_each(|name| self.check_variable(key, name, at))?;
                    said.env_remove = Some(names);
                }
                "resume" => said.resume = Some(self.abilities(&text()?, at)?),
                "history" => {
                    let given = value.get_ref().as_bool();
                    let must_be = || self.must_be(key, "true or false", value, at);
                    said.history = Some(given.ok_or_else(must_be)?);
                }
                "continue" => said.continuing = Some((list()?, at)),
                "auth_method" => said.auth_method = Some(text()?),
                "mcp" => {
                    let read = mcp::read(self.id, value, at);
                    said.mcp = Some(read.map_err(|(at, why)| self.wrong(at, &why))?);
                }
                key => {
                    let why = format!("there is no setting \"agents.{}.{key}\"", self.id);
                    return Err(self.wrong(at, &why));
                }
            }
        }
        Ok(said)
    }

    fn text(&self, key: &str, value: &Spanned<DeValue<'_>>, at: usize) -> Result<String> {
        let text = value.get_ref().as_str();
        Ok(text.ok_or_else(|| self.must_be(key, "a text", value, at))?.to_owned())
    }

    /// Errors name the variable and never its value.
    fn variables(&self, value: &Spanned<DeValue<'_>>, at: usize) -> Result<Vec<(String, String)>> {
        let must_be = || self.must_be("env", "a table of texts", value, at);
        let table = value.get_ref().as_table().ok_or_else(must_be)?;
        if table.len() > VARIABLES_MAX {
            let why = format!("agents.{}.env has more than {VARIABLES_MAX} variables", self.id);
            return Err(self.wrong(at, &why));
        }
        let mut variables = Vec::new();
        for (name, value) in table {
            let (name, at) = (name.get_ref().to_string(), name.span().start);
            self.check_variable("env", &name, at)?;
            let text = self.text(&format!("env.{name}"), value, at)?;
            if text.contains('\0') {
                let why = format!("agents.{}.env.{name} has a NUL, which no variable may", self.id);
                return Err(self.wrong(at, &why));
            }
            variables.push((name, text));
        }
        Ok(variables)
    }

    fn check_variable(&self, key: &str, name: &str, at: usize) -> Result<()> {
        let at_key = format!("agents.{}.{key}", self.id);
        if name == HOME {
            let why = format!("{at_key}.HOME cannot be set or removed");
            return Err(self.reader.wrong(at, &why).with_hint(
                "An agent keeps its conversations and logins in its home folder: elsewhere it would \
                 have forgotten them. Most agents have a variable of their own for that.",
            ));
        }
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(self.wrong(at, &format!("{name:?} in {at_key} is no name for a variable")));
        }
        Ok(())
    }

    fn abilities(&self, text: &str, at: usize) -> Result<Abilities> {
        let found = RESUME.iter().find(|(name, _)| *name == text);
        let known: Vec<&str> = RESUME.iter().map(|(name, _)| *name).collect();
        let why = || format!("agents.{}.resume must be one of {}", self.id, known.join(", "));
        found.map(|(_, abilities)| *abilities).ok_or_else(|| self.wrong(at, &why()))
    }

    fn command(&self, mut command: Vec<String>, at: usize, origin: &Origin) -> Result<Vec<String>> {
        match command.first_mut() {
            Some(program) if !program.is_empty() => {
                // What is only a name is looked for where programs are.
                if program.contains('/') {
                    let path = place(program, origin)?;
                    // The agent works elsewhere.
                    let path = std::path::absolute(&path).unwrap_or(path);
                    *program = path.to_string_lossy().into_owned();
                }
                Ok(command)
            }
            _ => Err(self.wrong(at, &format!("agents.{}.command names no program", self.id))),
        }
    }

    fn check_template(&self, template: &[String], can: Abilities, at: usize) -> Result<()> {
        if !can.command_line {
            let why =
                format!("agents.{0}.continue needs agents.{0}.resume = \"command_line\"", self.id);
            return Err(self.wrong(at, &why));
        }
        if !template.iter().any(|part| part.contains(AGENT_SESSION_ID)) {
            let why =
                format!("agents.{}.continue does not say where {AGENT_SESSION_ID} is", self.id);
            return Err(self.wrong(at, &why));
        }
        Ok(())
    }

    fn must_be(&self, key: &str, what: &str, value: &Spanned<DeValue<'_>>, at: usize) -> Error {
        let found = value.get_ref().type_str();
        self.wrong(at, &format!("agents.{}.{key} must be {what}, not {found}", self.id))
    }

    fn wrong(&self, at: usize, why: &str) -> Error {
        wrong(self.reader, at, why)
    }
}
