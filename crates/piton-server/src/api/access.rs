//! Who may use the API: tokens, and links that sign a browser in once.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use piton_api::access::{
    AccessToken, AccessTokenIssued, AccessTokenList, NewAccessToken, SignInRequest,
};
use piton_api::enums::AccessScope;
use piton_api::problem::Problem as Document;
use piton_core::Code;
use piton_core::access::{Access, Bearer, Scope, ScopeUnknown};
use piton_core::event::AccessTokenCreated;
use piton_core::id::AccessTokenId;
use piton_core::registry::Command;

use super::Reply;
use crate::app::{App, Asked, to_value};
use crate::extract::{Administrator, Asker, Body, Path, WithoutToken};
use crate::problem::{Problem, Result};

const NAME_BYTES_MAX: usize = 256;
/// How long a link signs somebody in.
const LINK_FOR: Duration = Duration::from_mins(10);
/// How long a browser stays signed in.
const SIGNED_IN_FOR: Duration = Duration::from_hours(30 * 24);

/// A secret that nobody has seen yet.
fn fresh(
    app: &App,
    name: String,
    scopes: &BTreeSet<Scope>,
    valid_for: Option<Duration>,
    single_use: bool,
) -> Result<(Bearer, AccessTokenCreated)> {
    let ids = app.handle().ids();
    let secret = ids.token()?.secret;
    let bearer = Bearer { id: ids.access()?, secret };
    let expires_at = valid_for.map(|span| app.handle().view().now().after(span));
    let granted = AccessTokenCreated {
        access_token_id: bearer.id.clone(),
        name,
        scopes: scopes.iter().copied().collect(),
        hash: bearer.secret.hash(),
        expires_at,
        single_use,
    };
    Ok((bearer, granted))
}

fn shown(bearer: &Bearer, granted: &AccessTokenCreated) -> AccessTokenIssued {
    AccessTokenIssued {
        access_token_id: bearer.id.clone(),
        token: bearer.reveal(),
        expires_at: granted.expires_at,
    }
}

/// What a request asks for, checked.
fn wanted(new: &NewAccessToken) -> Result<BTreeSet<Scope>> {
    if new.name.trim().is_empty() || new.name.len() > NAME_BYTES_MAX {
        return Err(Problem::malformed(format!("A name has 1 to {NAME_BYTES_MAX} bytes")));
    }
    let known = |scope: &AccessScope| scope.known().ok_or(ScopeUnknown);
    let scopes: Result<BTreeSet<Scope>, _> = new.scopes.iter().map(known).collect();
    let scopes = scopes.map_err(|error| Problem::malformed(error.to_string()))?;
    if scopes.is_empty() {
        return Err(Problem::malformed("A token needs a scope: read, control, admin"));
    }
    Ok(scopes)
}

async fn grant(
    app: &App,
    asker: &Asker,
    action: &'static str,
    new: NewAccessToken,
    single_use: bool,
) -> Result<Reply<AccessTokenIssued>> {
    let scopes = wanted(&new)?;
    let request = Asked { asker, action, body: to_value(&new)? };
    if new.expires_in_s == Some(0) {
        return Err(Problem::malformed("expires_in_s is at least 1"));
    }
    let valid_for = match (new.expires_in_s, single_use) {
        (Some(seconds), false) => Some(Duration::from_secs(seconds)),
        (None, false) => None,
        (_, true) => Some(LINK_FOR),
    };
    let (bearer, granted) = fresh(app, new.name, &scopes, valid_for, single_use)?;
    let response = shown(&bearer, &granted);
    // The secret must not reach the log: a repetition is told that it was shown.
    let fulfilled = app.register(&request, false, response, Command::Grant(granted)).await?;
    Ok(Reply::created(fulfilled))
}

/// Makes a token for the API.
#[utoipa::path(post, path = "/access-tokens", operation_id = "create_access", tag = "access", request_body = NewAccessToken,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is made once and not shown again")),
    responses((status = 201, body = AccessTokenIssued),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    Administrator(asker): Administrator,
    Body(new): Body<NewAccessToken>,
) -> Result<Reply<AccessTokenIssued>> {
    grant(&app, &asker, "access.create", new, false).await
}

/// Makes a link that signs a browser in once, within ten minutes.
#[utoipa::path(post, path = "/links", tag = "access", request_body = NewAccessToken,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is made once and not shown again")),
    responses((status = 201, body = AccessTokenIssued),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn link(
    State(app): State<App>,
    Administrator(asker): Administrator,
    Body(new): Body<NewAccessToken>,
) -> Result<Reply<AccessTokenIssued>> {
    grant(&app, &asker, "links.create", new, true).await
}

/// Exchanges what a link carried for a token. Works once.
#[utoipa::path(post, path = "/sign-in", tag = "access", request_body = SignInRequest, security(()),
    responses((status = 201, body = AccessTokenIssued),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn sign_in(
    State(app): State<App>,
    _admitted: WithoutToken,
    Body(signing_in): Body<SignInRequest>,
) -> Result<Reply<AccessTokenIssued>> {
    // Nobody learns more than that about a link.
    let used_up = || {
        let title = "The link is not known, has run out, or was used before";
        Problem::new(Code::Unauthenticated, title).with_detail("`piton open` makes a new one")
    };
    let link: Bearer = signing_in.link.parse().map_err(|_| used_up())?;
    let access = app.metadata().once(&link).map_err(|_| used_up())?;
    let (bearer, granted) = fresh(&app, access.name, &access.scopes, Some(SIGNED_IN_FOR), false)?;
    let response = shown(&bearer, &granted);
    let command = Command::Exchange { used: link.id, granted };
    app.metadata().execute(None, command).await.map_err(|error| match error {
        piton_runtime::Error::Refused(_) => used_up(),
        error => error.into(),
    })?;
    Ok(Reply::created(crate::app::Fulfilled { response, replayed: false }))
}

/// The tokens and links that are good.
#[utoipa::path(get, path = "/access-tokens", operation_id = "list_access", tag = "access",
    responses((status = 200, body = AccessTokenList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    _administrator: Administrator,
) -> Json<AccessTokenList> {
    let view = |access: &Access| AccessToken {
        access_token_id: access.access_token_id.clone(),
        name: access.name.clone(),
        scopes: access.scopes.iter().copied().map(Into::into).collect(),
        created_at: access.created_at,
        expires_at: access.expires_at,
        single_use: access.single_use,
    };
    let access = app.metadata().read(|registry| registry.access.values().map(view).collect());
    Json(AccessTokenList { access })
}

/// Takes a token back.
#[utoipa::path(delete, path = "/access-tokens/{access_token_id}", tag = "access",
    params(("access_token_id" = String, Path, description = "The token's public id")),
    responses((status = 204),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn revoke(
    State(app): State<App>,
    Administrator(asker): Administrator,
    Path(access): Path<String>,
) -> Result<StatusCode> {
    let access_token_id: AccessTokenId = access.parse()?;
    let request = asker.request("access.revoke", &serde_json::Value::Null, None);
    app.metadata().execute(Some(request), Command::Revoke { access_token_id }).await?;
    Ok(StatusCode::NO_CONTENT)
}
