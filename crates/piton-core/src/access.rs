//! Who may use the API: a public id, a secret that only its holder knows, and what it is good for.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::AccessTokenId;
use crate::planted::{self, Bug};
use crate::time::Timestamp;
use crate::token::Secret;

/// What a holder may do. Each is asked for by name: none includes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// To look at sessions and their workspaces.
    Read,
    /// To prompt, answer, stop, resume; to write files and use shells.
    Control,
    /// To delete, to verify everything, to let others in.
    Admin,
    /// Written by a newer program: good for nothing here.
    #[serde(other)]
    Unrecognised,
}

impl Scope {
    pub const ALL: &'static [Self] = &[Self::Read, Self::Control, Self::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Control => "control",
            Self::Admin => "admin",
            Self::Unrecognised => "unrecognised",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A scope is read, control or admin")]
pub struct ScopeUnknown;

impl FromStr for Scope {
    type Err = ScopeUnknown;
    fn from_str(text: &str) -> Result<Self, ScopeUnknown> {
        Self::ALL.iter().copied().find(|scope| scope.as_str() == text).ok_or(ScopeUnknown)
    }
}

/// What a holder presents: `key_….<64 hexadecimal digits>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    pub id: AccessTokenId,
    pub secret: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("This is not an API token: it has the form ID.SECRET")]
pub struct ParseError;

impl Bearer {
    /// The one text in which the secret is shown, once.
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret.reveal())
    }
}

impl FromStr for Bearer {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (id, secret) = text.split_once('.').ok_or(ParseError)?;
        let secret = secret.parse().map_err(|_| ParseError)?;
        Ok(Self { id: id.parse().map_err(|_| ParseError)?, secret })
    }
}

/// What the metadata log says about one secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    pub access_token_id: AccessTokenId,
    pub name: String,
    pub scopes: BTreeSet<Scope>,
    pub hash: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub single_use: bool,
}

/// Why a secret opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessDenied {
    #[error("The token is not known, or was revoked")]
    Unknown,
    #[error("The token has expired")]
    Expired,
    #[error("The token does not have the scope {needed}")]
    Scope { needed: Scope },
}

impl Access {
    /// Whether the secret opens what needs a scope, now.
    pub fn check(
        &self,
        secret: &Secret,
        needed: Scope,
        now: Timestamp,
    ) -> Result<(), AccessDenied> {
        // The secret first: who does not know it learns nothing about the token.
        if !secret.matches(&self.hash) {
            return Err(AccessDenied::Unknown);
        }
        if self.expires_at.is_some_and(|at| at <= now) && !planted::is(Bug::AccessExpired) {
            return Err(AccessDenied::Expired);
        }
        if !self.scopes.contains(&needed) {
            return Err(AccessDenied::Scope { needed });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_what_it_was_made_for_while_its_time_lasts() {
        let bearer: Bearer = format!("key_1.{}", "ab".repeat(32)).parse().unwrap();
        assert_eq!(bearer.reveal().parse(), Ok(bearer.clone()));
        let access = Access {
            access_token_id: bearer.id.clone(),
            name: "phone".into(),
            scopes: [Scope::Read].into(),
            hash: bearer.secret.hash(),
            created_at: Timestamp::from_millis(0),
            expires_at: Some(Timestamp::from_millis(10)),
            single_use: false,
        };
        let at = Timestamp::from_millis;
        assert_eq!(access.check(&bearer.secret, Scope::Read, at(9)), Ok(()));
        assert_eq!(access.check(&bearer.secret, Scope::Read, at(10)), Err(AccessDenied::Expired));
        let needed = Scope::Control;
        assert_eq!(
            access.check(&bearer.secret, needed, at(9)),
            Err(AccessDenied::Scope { needed })
        );
        let other = Secret::new([1; 32]);
        assert_eq!(access.check(&other, Scope::Read, at(99)), Err(AccessDenied::Unknown));
        for text in ["", "key_1", "key_1.", "key_1.zz", "k y.00"] {
            assert_eq!(text.parse::<Bearer>(), Err(ParseError), "{text:?}");
        }
    }

    #[test]
    fn scopes_of_tomorrow_open_nothing() {
        let scope: Scope = serde_json::from_str("\"root\"").unwrap();
        assert_eq!(scope, Scope::Unrecognised);
        assert!("root".parse::<Scope>().is_err());
        assert!("unrecognised".parse::<Scope>().is_err());
    }
}
