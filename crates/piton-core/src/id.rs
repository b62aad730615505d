//! Typed ids. An id made by Piton is a prefix and a time-ordered suffix, so that listing by id is
//! listing by age; an id made elsewhere is accepted as it is, within one alphabet and length.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Code;

/// Longest id that is accepted, in bytes.
pub const ID_BYTES_MAX: usize = 128;

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("Empty {what} id")]
    Empty { what: &'static str },
    #[error("A {what} id of {bytes} bytes is longer than {ID_BYTES_MAX}")]
    TooLong { what: &'static str, bytes: usize },
    #[error("Character {found:?} is not allowed in a {what} id")]
    Character { what: &'static str, found: char },
    #[error("The id {name:?} is reserved")]
    Reserved { name: &'static str },
}

impl Error {
    pub fn code(&self) -> Code {
        Code::IdInvalid
    }
}

fn check(what: &'static str, text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::Empty { what });
    }
    if text.len() > ID_BYTES_MAX {
        return Err(Error::TooLong { what, bytes: text.len() });
    }
    // By bytes: every record that is read has ids. Outside of ASCII nothing is allowed, so the first
    // byte that is not begins a character.
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let Some(at) = text.bytes().position(|b| !allowed(b)) else { return Ok(()) };
    let found = text[at..].chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
    Err(Error::Character { what, found })
}

/// Parses a string where it lies: every record that is read has ids, and a copy of each before it is
/// looked at would be seen.
pub(crate) struct Parsed<T>(pub(crate) PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Parsed<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(into = "String")]
        pub struct $name(Arc<str>);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Parsed(PhantomData))
            }
        }

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// A new id: `unix_ms` orders it, `random` makes it unique.
            pub fn new(unix_ms: u64, random: [u8; 10]) -> Self {
                let suffix = uuid::Builder::from_unix_timestamp_millis(unix_ms, &random);
                Self(format!("{}{}", $prefix, suffix.into_uuid().simple()).into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                check($what, text)?;
                Ok(Self(text.into()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

ids! {
    /// One conversation with one agent in one workspace; one log.
    SessionId, "session", "sess_";
    /// Work that a user wants done.
    TaskId, "task", "task_";
    /// A stretch of work in a session.
    RunId, "run", "run_";
    /// A message of the user or the agent.
    MessageId, "message", "msg_";
    /// Something a run needs from outside.
    WaitId, "wait", "wait_";
    /// A resume token's public half; not to be confused with the agent's own session id.
    TokenId, "token", "rt_";
    /// A named log position.
    CheckpointId, "checkpoint", "cp_";
    /// One life of one process.
    BootId, "boot", "boot_";
    /// One tool call of an agent.
    CallId, "call", "call_";
    /// One agentctl's life for one session.
    ExecutionId, "execution", "exec_";
    /// A secret with which the API may be used.
    AccessTokenId, "access", "key_";
}

impl SessionId {
    /// The name of the log that holds what belongs to no session.
    pub const METADATA_LOG: &'static str = "_piton";

    pub fn metadata_log() -> Self {
        Self(Self::METADATA_LOG.into())
    }

    pub fn is_metadata_log(&self) -> bool {
        &*self.0 == Self::METADATA_LOG
    }

    /// Parses an id that a user chose for a session.
    pub fn from_user(text: &str) -> Result<Self, Error> {
        let id: Self = text.parse()?;
        if id.is_metadata_log() {
            Err(Error::Reserved { name: Self::METADATA_LOG })
        } else {
            Ok(id)
        }
    }
}

impl WaitId {
    /// The wait of a record that names neither a wait nor a token: it cannot be answered.
    pub fn at(seq: u64) -> Self {
        Self(format!("{}{seq}", Self::PREFIX).into())
    }
}

impl From<&TokenId> for WaitId {
    /// Logs that name no wait (adopted ones) know a wait by its token.
    fn from(token: &TokenId) -> Self {
        Self(token.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ids_sort_by_age() {
        let older = SessionId::new(1_000, [0xff; 10]);
        let newer = SessionId::new(1_001, [0; 10]);
        assert!(older < newer);
        assert!(older.as_str().starts_with("sess_"));
        assert_eq!(older, older.as_str().parse().unwrap());
    }

    #[test]
    fn malformed_ids_are_named() {
        assert_eq!("".parse::<RunId>(), Err(Error::Empty { what: "run" }));
        assert_eq!(
            "a/b".parse::<SessionId>(),
            Err(Error::Character { what: "session", found: '/' })
        );
        assert_eq!(
            "x".repeat(129).parse::<BootId>(),
            Err(Error::TooLong { what: "boot", bytes: 129 })
        );
        assert!("x".repeat(128).parse::<BootId>().is_ok());
        assert_eq!(SessionId::from_user("_piton"), Err(Error::Reserved { name: "_piton" }));
        assert!(serde_json::from_str::<TaskId>("\"über\"").is_err());
    }
}
