//! The table `[checkpoint]`: how graphs are checkpointed. Its options are those of a graph file.

use piton_core::graph::CheckpointOptions;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::DeValue;

use super::file::Reader;
use crate::error::Result;

pub(super) const TABLE: &str = "checkpoint";

pub(super) fn read(
    reader: &Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    at: usize,
) -> Result<CheckpointOptions> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(reader.wrong(at, "checkpoint must be a table"));
    };
    let mut options = Map::new();
    for (name, value) in table {
        let (name, at) = (name.get_ref().to_string(), name.span().start);
        if !CheckpointOptions::NAMES.contains(&name.as_str()) {
            let likeness = |known: &&&str| strsim::jaro_winkler(&name, known);
            let nearest = CheckpointOptions::NAMES
                .iter()
                .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
                .filter(|known| likeness(known) > 0.8);
            let error = reader.wrong(at, &format!("there is no option {name:?} of checkpoints"));
            return Err(match nearest {
                Some(known) => error.with_hint(format!("Did you mean {known:?}?")),
                None => error.with_hint("docs/reference/checkpoint-config.md lists all options."),
            });
        }
        let value = json(value.get_ref());
        let one = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
        if let Err(error) = serde_json::from_value::<CheckpointOptions>(one) {
            return Err(reader.wrong(at, &format!("checkpoint.{name}: {error}")));
        }
        options.insert(name, value);
    }
    serde_json::from_value(Value::Object(options))
        .map_err(|error| reader.wrong(at, &error.to_string()))
}

fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.to_string()),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Integer(number) => {
            number.to_string().parse::<i64>().map_or(Value::Null, Value::from)
        }
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => Value::Null,
    }
}
