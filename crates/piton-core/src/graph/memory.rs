//! The shared memory's keys: where their values stand, and how two writers of one key are joined.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::Seq;

/// How a written value joins the old one. Without one the new value takes the old one's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reducer {
    /// Lists: the items of a list, or one item, are added at the end.
    Append,
    /// Objects: keys are added; of a key that both have the new value counts.
    Merge,
    /// Numbers: the sum.
    Add,
    Max,
    Min,
}

/// Values that a reducer cannot join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The reducer `{}` needs {needs}, not {found}", .reducer.as_str())]
pub struct ReduceError {
    pub reducer: Reducer,
    pub needs: &'static str,
    pub found: &'static str,
}

impl Reducer {
    pub const ALL: &'static [Self] = &[Self::Append, Self::Merge, Self::Add, Self::Max, Self::Min];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Merge => "merge",
            Self::Add => "add",
            Self::Max => "max",
            Self::Min => "min",
        }
    }

    /// Whether a written value can be joined into the old one.
    pub fn check(self, old: &Value, new: &Value) -> Result<(), ReduceError> {
        let fault = |needs, value: &Value| ReduceError { reducer: self, needs, found: kind(value) };
        match self {
            Self::Append if !old.is_null() && !old.is_array() => Err(fault("a list", old)),
            Self::Merge => match [old, new].into_iter().find(|v| !v.is_null() && !v.is_object()) {
                Some(other) => Err(fault("an object", other)),
                None => Ok(()),
            },
            Self::Add | Self::Max | Self::Min if !new.is_number() => Err(fault("a number", new)),
            Self::Add | Self::Max | Self::Min if !old.is_null() && !old.is_number() => {
                Err(fault("a number", old))
            }
            Self::Append | Self::Add | Self::Max | Self::Min => Ok(()),
        }
    }

    /// Joins a written value into the old one, in place; `null` is the absence of an old value. An
    /// error changes nothing.
    pub fn join(self, old: &mut Value, new: Value) -> Result<(), ReduceError> {
        self.check(old, &new)?;
        let fault = |needs, value: &Value| ReduceError { reducer: self, needs, found: kind(value) };
        match self {
            Self::Append => {
                if old.is_null() {
                    *old = Value::Array(Vec::new());
                }
                let Value::Array(items) = old else { return Err(fault("a list", old)) };
                match new {
                    Value::Array(more) => items.extend(more),
                    Value::Null => {}
                    one => items.push(one),
                }
                Ok(())
            }
            Self::Merge => {
                if old.is_null() {
                    *old = Value::Object(serde_json::Map::new());
                }
                let Value::Object(object) = old else { return Err(fault("an object", old)) };
                match new {
                    Value::Object(more) => object.extend(more),
                    Value::Null => {}
                    other => return Err(fault("an object", &other)),
                }
                Ok(())
            }
            Self::Add | Self::Max | Self::Min => {
                let Value::Number(new_number) = &new else {
                    return Err(fault("a number", &new));
                };
                if old.is_null() {
                    *old = new;
                    return Ok(());
                }
                let Value::Number(old_number) = &*old else {
                    return Err(fault("a number", old));
                };
                *old = self.number(old_number, new_number);
                Ok(())
            }
        }
    }

    fn number(self, old: &serde_json::Number, new: &serde_json::Number) -> Value {
        if let (Some(a), Some(b)) = (old.as_i64(), new.as_i64()) {
            let joined = match self {
                Self::Max => Some(a.max(b)),
                Self::Min => Some(a.min(b)),
                _ => a.checked_add(b),
            };
            if let Some(joined) = joined {
                return joined.into();
            }
        }
        let (a, b) = (old.as_f64().unwrap_or(0.0), new.as_f64().unwrap_or(0.0));
        match self {
            Self::Max => a.max(b),
            Self::Min => a.min(b),
            _ => a + b,
        }
        .into()
    }
}

/// What a JSON value is, for people.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Where a key's value stands: the record that set it, then those whose contents a reducer joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEntry {
    /// The records, oldest first, each with its reducer. The first may have one, too: then there was
    /// no value before it.
    pub parts: Vec<(Seq, Option<Reducer>)>,
    /// The value is not, or not as it was, in the log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excluded: bool,
}

impl MemoryEntry {
    /// The record that changed the key last.
    pub fn last_seq(&self) -> Seq {
        self.parts.last().map_or(0, |(seq, _)| *seq)
    }
}
