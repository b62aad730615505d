//! Access tokens for the API, and links that sign a browser in once.

use std::collections::BTreeSet;
use std::time::Duration;

use piton_core::Timestamp;
use piton_core::access::{Access, Bearer, Scope};
use piton_core::event::AccessTokenCreated;
use piton_core::id::AccessTokenId;
use piton_core::registry::Command;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::requests::Request;
use super::{Caller, Engine, Fulfilled};
use crate::error::{Error, Result};

const NAME_BYTES_MAX: usize = 256;
/// How long a link can be used.
const LINK_LIFETIME: Duration = Duration::from_mins(10);
/// How long a browser stays signed in.
const SIGN_IN_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// What a new access token is to be.
#[derive(Clone, Debug, Serialize)]
pub struct NewAccessToken {
    /// For people: whose it is.
    pub name: String,
    pub scopes: BTreeSet<Scope>,
    /// `None`: it does not expire.
    pub expires_in_s: Option<u64>,
}

/// An access token, with the secret that is shown once.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct IssuedToken {
    pub access_token_id: AccessTokenId,
    pub token: String,
    pub expires_at: Option<Timestamp>,
}

impl std::fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IssuedToken({})", self.access_token_id)
    }
}

impl Engine {
    pub async fn create_access_token(
        &self,
        caller: &Caller,
        new: NewAccessToken,
    ) -> Result<Fulfilled<IssuedToken>> {
        let valid_for = new.expires_in_s.map(Duration::from_secs);
        self.issue(caller, "access.create", new, valid_for, false).await
    }

    /// A link that signs a browser in once, within ten minutes.
    pub async fn create_sign_in_link(
        &self,
        caller: &Caller,
        new: NewAccessToken,
    ) -> Result<Fulfilled<IssuedToken>> {
        self.issue(caller, "links.create", new, Some(LINK_LIFETIME), true).await
    }

    async fn issue(
        &self,
        caller: &Caller,
        action: &'static str,
        new: NewAccessToken,
        valid_for: Option<Duration>,
        once: bool,
    ) -> Result<Fulfilled<IssuedToken>> {
        if new.name.trim().is_empty() || new.name.len() > NAME_BYTES_MAX {
            return Err(Error::Invalid(format!("A name has 1 to {NAME_BYTES_MAX} bytes")));
        }
        if new.scopes.is_empty() {
            let detail = "A token needs a scope: read, control, admin";
            return Err(Error::Invalid(detail.to_owned()));
        }
        if new.expires_in_s == Some(0) {
            return Err(Error::Invalid("expires_in_s is at least 1".to_owned()));
        }
        let request = Request::new(caller, action, "", &new)?;
        let (issued, granted) = self.new_token(new.name, &new.scopes, valid_for, once)?;
        // The secret must not reach the log: a repetition is refused.
        self.register_keeping(&request, None, issued, Command::Grant(granted)).await
    }

    /// Exchanges what a link carried for an access token. Works once; that is all that is said of
    /// a link that does not work.
    pub async fn sign_in(&self, link: &Bearer) -> Result<IssuedToken> {
        let metadata = self.metadata().await?;
        let access = metadata.once(link).map_err(|_| Error::LinkInvalid)?;
        let (issued, granted) =
            self.new_token(access.name, &access.scopes, Some(SIGN_IN_LIFETIME), false)?;
        let command = Command::Exchange { used: link.id.clone(), granted };
        metadata.execute(None, command).await.map_err(|error| match error {
            Error::Refused(_) => Error::LinkInvalid,
            error => error,
        })?;
        Ok(issued)
    }

    /// The access tokens and links that can be used.
    pub async fn access_tokens(&self) -> Result<Vec<Access>> {
        Ok(self.metadata().await?.read(|known| known.access.values().cloned().collect()))
    }

    pub async fn revoke_access_token(
        &self,
        caller: &Caller,
        access_token_id: AccessTokenId,
    ) -> Result<()> {
        let request = Request::new(caller, "access.revoke", &access_token_id, &Value::Null)?;
        let command = Command::Revoke { access_token_id };
        self.metadata().await?.execute(Some(request.logged(None)), command).await.map(drop)
    }

    fn new_token(
        &self,
        name: String,
        scopes: &BTreeSet<Scope>,
        valid_for: Option<Duration>,
        once: bool,
    ) -> Result<(IssuedToken, AccessTokenCreated)> {
        let secret = self.ids().token()?.secret;
        let bearer = Bearer { id: self.ids().access()?, secret };
        let expires_at = valid_for.map(|span| self.view().now().after(span));
        let granted = AccessTokenCreated {
            access_token_id: bearer.id.clone(),
            name,
            scopes: scopes.iter().copied().collect(),
            hash: bearer.secret.hash(),
            expires_at,
            single_use: once,
        };
        let token = bearer.reveal();
        Ok((IssuedToken { access_token_id: bearer.id, token, expires_at }, granted))
    }
}
