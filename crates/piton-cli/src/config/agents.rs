//! The agents that somebody configured: `[agents.NAME]` with a command and a name for people.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{Reader, texts};
use super::{Origin, place};
use crate::error::{Error, Result};

pub(super) const TABLE: &str = "agents";
/// Built in: a configured one of this name would be two agents.
const BUILT_IN: &str = "echo";
const ID_BYTES_MAX: usize = 128;
const AGENTS_MAX: usize = 100;

/// An agent that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentSetting {
    pub(crate) id: String,
    /// For people; the id if there is none.
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    pub(crate) origin: Origin,
}

const HINT: &str = "An agent is `[agents.NAME]` with `command = [\"program\", \"argument\"]` and perhaps \
                    `name = \"for people\"`.";

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
        agents.push(agent(reader, id, table, at)?);
    }
    agents.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(agents)
}

fn agent(reader: &Reader<'_>, id: String, table: &DeTable<'_>, at: usize) -> Result<AgentSetting> {
    let origin = Origin::File { path: reader.path.into(), line: reader.line(at) };
    let (mut command, mut name) = (None, None);
    for (key, value) in table {
        let (key, at) = (key.get_ref().as_ref(), key.span().start);
        let must_be = |what: &str| {
            let found = value.get_ref().type_str();
            wrong(reader, at, &format!("agents.{id}.{key} must be {what}, not {found}"))
        };
        match key {
            "command" => {
                let parts = texts(value).ok_or_else(|| must_be("a list of texts"))?;
                command = Some((parts, at));
            }
            "name" => {
                let text = value.get_ref().as_str().ok_or_else(|| must_be("a text"))?;
                name = Some(text.to_owned());
            }
            key => {
                let why = format!("there is no setting \"agents.{id}.{key}\"");
                return Err(wrong(reader, at, &why));
            }
        }
    }
    let Some((mut command, at)) = command else {
        return Err(wrong(reader, at, &format!("agents.{id}.command is missing")));
    };
    match command.first_mut() {
        Some(program) if !program.is_empty() => {
            // What is only a name is looked for where programs are.
            if program.contains('/') {
                let path = place(program, &origin)?;
                // The agent works elsewhere.
                let path = std::path::absolute(&path).unwrap_or(path);
                *program = path.to_string_lossy().into_owned();
            }
        }
        _ => return Err(wrong(reader, at, &format!("agents.{id}.command names no program"))),
    }
    let name = name.filter(|name| !name.trim().is_empty()).unwrap_or_else(|| id.clone());
    Ok(AgentSetting { id, name, command, origin })
}

fn wrong(reader: &Reader<'_>, at: usize, why: &str) -> Error {
    reader.wrong(at, why).with_hint(HINT)
}
