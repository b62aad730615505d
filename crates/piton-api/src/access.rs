//! Access tokens for the API, and links that sign a browser in once.

use piton_core::Timestamp;
use piton_core::id::AccessTokenId;
use serde::{Deserialize, Serialize};

use crate::enums::AccessScope;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewAccessToken {
    /// A label for people.
    pub name: String,
    pub scopes: Vec<AccessScope>,
    /// After how many seconds the token expires; without it, it does not expire.
    pub expires_in_s: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessTokenIssued {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub access_token_id: AccessTokenId,
    /// The secret; it is returned only here.
    pub token: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessToken {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub access_token_id: AccessTokenId,
    pub name: String,
    pub scopes: Vec<AccessScope>,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub created_at: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub expires_at: Option<Timestamp>,
    /// A sign-in link that was not used yet.
    pub single_use: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessTokenList {
    pub access: Vec<AccessToken>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignInRequest {
    /// The secret of the sign-in link.
    pub link: String,
}
