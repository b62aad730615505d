//! `[permissions]`: the standing rules of the config file, and when keys count.

use std::time::Duration;

use piton_core::permission::{Action, Rule, Rules};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::Reader;
use super::{Origin, place};
use crate::error::{Error, Result};

pub(super) const TABLE: &str = "permissions";

/// How long a permission request is on the screen before keys count.
const KEY_DELAY: Duration = Duration::from_millis(300);
const KEY_DELAY_MS_MAX: i64 = 10_000;

const HINT: &str = "A rule is `[[permissions.rules]]` with `action = \"allow\"`, \"ask\" or \"deny\", at \
                    least one of `tool`, `command` and `path`, and perhaps `agent`, `folder` and \
                    `name`; `piton permissions --help` has examples.";

/// What `[permissions]` says.
#[derive(Clone, Debug)]
pub(crate) struct PermissionSettings {
    pub(crate) rules: Rules,
    /// Where each rule stands.
    pub(crate) origins: Vec<Origin>,
    pub(crate) key_delay: Duration,
    pub(crate) key_delay_origin: Origin,
}

impl Default for PermissionSettings {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            origins: Vec::new(),
            key_delay: KEY_DELAY,
            key_delay_origin: Origin::Default,
        }
    }
}

pub(super) fn read(
    reader: &Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    at: usize,
) -> Result<PermissionSettings> {
    let Some(table) = value.get_ref().as_table() else {
        return Err(wrong(reader, at, "permissions must be a table"));
    };
    let mut settings = PermissionSettings::default();
    for (key, value) in table {
        let (key, at) = (key.get_ref().as_ref(), key.span().start);
        match key {
            "rules" => {
                let Some(list) = value.get_ref().as_array() else {
                    return Err(wrong(reader, at, "permissions.rules must be a list of rules"));
                };
                let mut rules = Vec::new();
                for value in list {
                    let at = value.span().start;
                    let Some(table) = value.get_ref().as_table() else {
                        return Err(wrong(reader, at, "a permission rule must be a table"));
                    };
                    let origin = Origin::File { path: reader.path.into(), line: reader.line(at) };
                    rules.push(rule(reader, table, at, &origin)?);
                    settings.origins.push(origin);
                }
                settings.rules =
                    Rules::new(rules).map_err(|error| wrong(reader, at, &error.to_string()))?;
            }
            "key_delay_ms" => {
                let number = value.get_ref().as_integer();
                let number = number.and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
                let number = number.filter(|ms| (0..=KEY_DELAY_MS_MAX).contains(ms));
                let Some(ms) = number.and_then(|ms| u64::try_from(ms).ok()) else {
                    let why = format!(
                        "permissions.key_delay_ms must be a number, 0 to {KEY_DELAY_MS_MAX}"
                    );
                    return Err(wrong(reader, at, &why));
                };
                settings.key_delay = Duration::from_millis(ms);
                settings.key_delay_origin =
                    Origin::File { path: reader.path.into(), line: reader.line(at) };
            }
            key => {
                let why = format!("there is no setting \"permissions.{key}\"");
                return Err(wrong(reader, at, &why));
            }
        }
    }
    Ok(settings)
}

fn rule(reader: &Reader<'_>, table: &DeTable<'_>, at: usize, origin: &Origin) -> Result<Rule> {
    let mut action = None;
    let [mut name, mut tool, mut command, mut path, mut agent, mut folder] =
        [const { None::<String> }; 6];
    for (key, value) in table {
        let (key, at) = (key.get_ref().as_ref(), key.span().start);
        let Some(text) = value.get_ref().as_str().map(str::to_owned) else {
            let found = value.get_ref().type_str();
            let why = format!("{key} of a permission rule must be a text, not {found}");
            return Err(wrong(reader, at, &why));
        };
        match key {
            "action" => {
                let found = Action::ALL.into_iter().find(|action| action.as_str() == text);
                let why = || format!("{text:?} is none of allow, ask, deny");
                action = Some(found.ok_or_else(|| wrong(reader, at, &why()))?);
            }
            "name" => name = Some(text),
            "tool" => tool = Some(text),
            "command" => command = Some(text),
            // A relative path counts from the session's folder, not from the config file's.
            "path" if text.starts_with("~/") => {
                path = Some(place(&text, origin)?.to_string_lossy().into_owned());
            }
            "path" => path = Some(text),
            "agent" => agent = Some(text),
            "folder" => {
                let text = place(&text, origin)?;
                let text = std::path::absolute(&text).unwrap_or(text);
                folder = Some(text.to_string_lossy().into_owned());
            }
            key => {
                let why = format!("a permission rule has no {key:?}");
                return Err(wrong(reader, at, &why));
            }
        }
    }
    let action = action.ok_or_else(|| wrong(reader, at, "a permission rule needs an action"))?;
    Ok(Rule { name, action, tool, command, path, agent, folder })
}

fn wrong(reader: &Reader<'_>, at: usize, why: &str) -> Error {
    reader.wrong(at, why).with_hint(HINT)
}
