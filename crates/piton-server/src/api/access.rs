//! Who may use the API: tokens, and links that sign a browser in once.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use piton_api::access::{
    AccessToken, AccessTokenIssued, AccessTokenList, NewAccessToken, SignInRequest,
};
use piton_api::enums::AccessScope;
use piton_api::problem::Problem as Document;
use piton_core::access::{Access, Bearer, Scope, ScopeUnknown};
use piton_runtime::{Fulfilled, IssuedToken};

use super::Reply;
use crate::app::App;
use crate::extract::{Administrator, Body, Path, WithoutToken};
use crate::problem::{Problem, Result};

fn shown(issued: IssuedToken) -> AccessTokenIssued {
    let IssuedToken { access_token_id, token, expires_at } = issued;
    AccessTokenIssued { access_token_id, token, expires_at }
}

/// What a request asks for, in known scopes.
fn wanted(new: NewAccessToken) -> Result<piton_runtime::NewAccessToken> {
    let known = |scope: &AccessScope| scope.known().ok_or(ScopeUnknown);
    let scopes: Result<BTreeSet<Scope>, _> = new.scopes.iter().map(known).collect();
    let scopes = scopes.map_err(|error| Problem::malformed(error.to_string()))?;
    let NewAccessToken { name, expires_in_s, .. } = new;
    Ok(piton_runtime::NewAccessToken { name, scopes, expires_in_s })
}

/// Create an access token for the API.
#[utoipa::path(post, path = "/access-tokens", operation_id = "create_access", tag = "access", request_body = NewAccessToken,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request creates nothing and does not return the secret again")),
    responses((status = 201, body = AccessTokenIssued),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    Administrator(caller): Administrator,
    Body(new): Body<NewAccessToken>,
) -> Result<Reply<AccessTokenIssued>> {
    let issued = app.engine().create_access_token(&caller, wanted(new)?).await?;
    Ok(Reply::created(issued.map(shown)))
}

/// Create a link that signs a browser in once, within ten minutes.
#[utoipa::path(post, path = "/links", tag = "access", request_body = NewAccessToken,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request creates nothing and does not return the secret again")),
    responses((status = 201, body = AccessTokenIssued),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn link(
    State(app): State<App>,
    Administrator(caller): Administrator,
    Body(new): Body<NewAccessToken>,
) -> Result<Reply<AccessTokenIssued>> {
    let issued = app.engine().create_sign_in_link(&caller, wanted(new)?).await?;
    Ok(Reply::created(issued.map(shown)))
}

/// Exchange the secret of a sign-in link for an access token, once.
#[utoipa::path(post, path = "/sign-in", tag = "access", request_body = SignInRequest, security(()),
    responses((status = 201, body = AccessTokenIssued),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn sign_in(
    State(app): State<App>,
    _admitted: WithoutToken,
    Body(signing_in): Body<SignInRequest>,
) -> Result<Reply<AccessTokenIssued>> {
    let invalid = |_| piton_runtime::Error::LinkInvalid;
    let link: Bearer = signing_in.link.parse().map_err(invalid)?;
    let response = shown(app.engine().sign_in(&link).await?);
    Ok(Reply::created(Fulfilled { response, replayed: false }))
}

/// List the valid access tokens and sign-in links.
#[utoipa::path(get, path = "/access-tokens", operation_id = "list_access", tag = "access",
    responses((status = 200, body = AccessTokenList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    _administrator: Administrator,
) -> Result<Json<AccessTokenList>> {
    let view = |access: &Access| AccessToken {
        access_token_id: access.access_token_id.clone(),
        name: access.name.clone(),
        scopes: access.scopes.iter().copied().map(Into::into).collect(),
        created_at: access.created_at,
        expires_at: access.expires_at,
        single_use: access.single_use,
    };
    let access = app.engine().access_tokens().await?.iter().map(view).collect();
    Ok(Json(AccessTokenList { access }))
}

/// Revoke an access token.
#[utoipa::path(delete, path = "/access-tokens/{access_token_id}", tag = "access",
    params(("access_token_id" = String, Path, description = "The token's public id")),
    responses((status = 204),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn revoke(
    State(app): State<App>,
    Administrator(caller): Administrator,
    Path(access): Path<String>,
) -> Result<StatusCode> {
    app.engine().revoke_access_token(&caller, access.parse()?).await?;
    Ok(StatusCode::NO_CONTENT)
}
