//! A moment, to the millisecond. The core gets the time as an argument; it never reads a clock.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::id::Parsed;

/// Milliseconds since 1970 in UTC, written as RFC 3339.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct Timestamp(i64);

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed(PhantomData))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a moment in RFC 3339 form")]
pub struct ParseError {
    text: String,
}

impl Timestamp {
    /// The range in which every moment has an RFC 3339 form (years 0 to 9999).
    const MILLIS_MIN: i64 = -62_167_219_200_000;
    const MILLIS_MAX: i64 = 253_402_207_200_000;

    /// Clamped to the years 0 to 9999, so that every value can be written and read again.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.clamp(Self::MILLIS_MIN, Self::MILLIS_MAX))
    }

    pub fn as_millis(self) -> i64 {
        self.0
    }

    pub fn after(self, span: Duration) -> Self {
        let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.0.saturating_add(millis))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => Err(fmt::Error),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Timestamp> for String {
    fn from(moment: Timestamp) -> Self {
        moment.to_string()
    }
}

impl FromStr for Timestamp {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let moment: jiff::Timestamp =
            text.parse().map_err(|_| ParseError { text: text.to_owned() })?;
        Ok(Self::from_millis(moment.as_millisecond()))
    }
}

impl TryFrom<String> for Timestamp {
    type Error = ParseError;
    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_seconds_and_writes_millis() {
        let moment: Timestamp = "2026-02-21T10:01:10Z".parse().unwrap();
        assert_eq!(moment.to_string(), "2026-02-21T10:01:10.000Z");
        assert_eq!(moment.after(Duration::from_millis(7)).to_string(), "2026-02-21T10:01:10.007Z");
    }

    #[test]
    fn extremes_can_be_written_and_read() {
        for millis in [i64::MIN, 0, i64::MAX] {
            let moment = Timestamp::from_millis(millis);
            assert_eq!(moment.to_string().parse::<Timestamp>().unwrap(), moment);
        }
        assert_eq!(Timestamp::from_millis(0).since(Timestamp::from_millis(5)), Duration::ZERO);
    }
}
