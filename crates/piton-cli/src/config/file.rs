//! The config file: TOML, in which every key is known.

use std::fs;
use std::io;
use std::path::Path;

use piton_core::Code;
use piton_core::graph::CheckpointOptions;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::KEYS;
use super::{
    AgentSetting, Layer, Origin, PermissionSettings, Raw, agents, checkpoint, numbers, permissions,
};
use crate::error::{Error, Result};

/// A file longer than this is something else.
const BYTES_MAX: u64 = 1024 * 1024;

/// What a config file says.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) layer: Layer,
    pub(super) agents: Vec<AgentSetting>,
    pub(super) permissions: PermissionSettings,
    pub(super) checkpoint: CheckpointOptions,
    pub(super) exists: bool,
}

/// Reads the file. It must exist only if the user named it.
pub(super) fn read(path: &Path, must_exist: bool) -> Result<Read> {
    let unreadable = |e: io::Error| {
        let message = format!("The config file {} cannot be read", path.display());
        Error::new(Code::ConfigInvalid, message).because(&e)
    };
    match fs::metadata(path) {
        Ok(found) if found.len() > BYTES_MAX => {
            let message = format!("The config file {} is larger than 1 MiB", path.display());
            return Err(Error::new(Code::ConfigInvalid, message));
        }
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound && !must_exist => {
            return Ok(Read::default());
        }
        Err(e) => return Err(unreadable(e)),
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let reader = Reader { path, text: &text };
    let table = DeTable::parse(&text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        reader.wrong(at, &format!("this is not TOML: {}", e.message()))
    })?;
    let mut read = Read { exists: true, ..Read::default() };
    reader.table(table.get_ref(), "", &mut read)?;
    Ok(read)
}

pub(super) struct Reader<'a> {
    pub(super) path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    pub(super) fn wrong(&self, at: usize, why: &str) -> Error {
        let message = format!("{}:{}: {why}", self.path.display(), self.line(at));
        Error::new(Code::ConfigInvalid, message)
    }

    fn table(&self, table: &DeTable<'_>, prefix: &str, read: &mut Read) -> Result<()> {
        for (name, value) in table {
            let full = format!("{prefix}{}", name.get_ref());
            let at = name.span().start;
            if full == agents::TABLE {
                read.agents = agents::read(self, value, at)?;
                // Beside the agents there are settings for all of them.
                for (name, value) in value.get_ref().as_table().into_iter().flatten() {
                    let full = format!("{full}.{}", name.get_ref());
                    self.setting(&full, value, name.span().start, read)?;
                }
                continue;
            }
            if full == permissions::TABLE {
                read.permissions = permissions::read(self, value, at)?;
                continue;
            }
            if full == checkpoint::TABLE {
                read.checkpoint = checkpoint::read(self, value, at)?;
                continue;
            }
            if self.setting(&full, value, at, read)? {
                continue;
            }
            let below = format!("{full}.");
            match value.get_ref() {
                DeValue::Table(inner) if KEYS.iter().any(|key| key.name.starts_with(&below)) => {
                    self.table(inner, &below, read)?;
                }
                _ => return Err(self.unknown(at, &full)),
            }
        }
        Ok(())
    }

    /// False if there is no setting of this name.
    fn setting(
        &self,
        full: &str,
        value: &Spanned<DeValue<'_>>,
        at: usize,
        read: &mut Read,
    ) -> Result<bool> {
        let Some(key) = KEYS.iter().find(|key| key.name == full) else { return Ok(false) };
        let (raw, expected) = if key.is_list {
            (list(value), "a list of texts")
        } else if numbers::is_number(key.name) {
            (text(value).or_else(|| number(value)), "a number or a text")
        } else {
            (text(value), "a text")
        };
        let raw = raw.ok_or_else(|| {
            let found = value.get_ref().type_str();
            self.wrong(at, &format!("{full} must be {expected}, not {found}"))
        })?;
        let origin = Origin::File { path: self.path.into(), line: self.line(at) };
        read.layer.push((key, raw, origin));
        Ok(true)
    }

    fn unknown(&self, at: usize, name: &str) -> Error {
        let likeness = |known: &str| {
            let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
            let by_end = strsim::jaro_winkler(&last(name), &last(known));
            strsim::jaro_winkler(name, known).max(by_end - 0.05)
        };
        let nearest = KEYS.iter().max_by(|a, b| likeness(a.name).total_cmp(&likeness(b.name)));
        let error = self.wrong(at, &format!("there is no setting {name:?}"));
        match nearest.filter(|key| likeness(key.name) > 0.8) {
            Some(key) => error.with_hint(format!("Did you mean {:?}?", key.name)),
            None => error.with_hint("`piton config show` lists all settings."),
        }
    }
}

fn text(value: &Spanned<DeValue<'_>>) -> Option<Raw> {
    value.get_ref().as_str().map(|text| Raw::Text(text.to_owned()))
}

fn number(value: &Spanned<DeValue<'_>>) -> Option<Raw> {
    value.get_ref().as_integer().map(|number| Raw::Text(number.to_string()))
}

pub(super) fn texts(value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    let items = value.get_ref().as_array()?.iter();
    items.map(|item| item.get_ref().as_str().map(str::to_owned)).collect()
}

fn list(value: &Spanned<DeValue<'_>>) -> Option<Raw> {
    texts(value).map(Raw::List)
}
