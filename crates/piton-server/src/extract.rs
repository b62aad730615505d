//! What handlers take: bodies, queries and callers, each with its own problem when it is wrong.

use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use percent_encoding::percent_decode_str;
use piton_core::Code;
use piton_core::access::{AccessDenied, Bearer, Scope};
use piton_exec::protocol::workspace::FILE_BYTES_MAX;
use piton_runtime::Caller;
use serde::de::DeserializeOwned;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::app::App;
use crate::connections::{Connection, Presented};
use crate::problem::{Problem, Result};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The largest body of a request, in bytes.
const BODY_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The largest body of a request with a prompt, attachments included.
const PROMPT_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// How long a body may take to come: from piece to piece, and altogether.
const PIECE_WAIT: Duration = Duration::from_secs(20);
const BODY_WAIT: Duration = Duration::from_mins(5);

/// A JSON body.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _app: &App) -> Result<Self> {
        json(request, BODY_BYTES_MAX).await.map(Self)
    }
}

/// A JSON body that may carry attachments. Like every body it is read after the caller was admitted.
#[derive(Debug)]
pub(crate) struct LargeBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for LargeBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _app: &App) -> Result<Self> {
        json(request, PROMPT_BYTES_MAX).await.map(Self)
    }
}

async fn json<T: DeserializeOwned>(request: Request, bytes_max: u64) -> Result<T> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(Problem::malformed("The body must be application/json"));
    }
    parse(&read(request, bytes_max).await?)
}

/// A JSON body that may be left out.
#[derive(Debug)]
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<App> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _app: &App) -> Result<Self> {
        let bytes = read(request, BODY_BYTES_MAX).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        parse(&bytes).map(Self)
    }
}

/// A body that is not looked into.
#[derive(Debug)]
pub(crate) struct Content(pub(crate) Bytes);

impl FromRequest<App> for Content {
    type Rejection = Problem;

    async fn from_request(request: Request, _app: &App) -> Result<Self> {
        read(request, FILE_BYTES_MAX).await.map(Self)
    }
}

/// The whole body. One that is announced to be too large, or does not come, is not waited for.
async fn read(request: Request, bytes_max: u64) -> Result<Bytes> {
    let mut body = request.into_body();
    let too_large = || Problem::new(Code::RequestTooLarge, "The request's body is too large");
    if body.size_hint().lower() > bytes_max {
        return Err(too_large());
    }
    let reading = async {
        let mut whole = BytesMut::new();
        while let Some(frame) = timeout(PIECE_WAIT, body.frame()).await? {
            let piece = frame.map(|frame| frame.into_data().unwrap_or_default());
            match piece {
                Err(error) => return Ok(Err(Problem::malformed(error.to_string()))),
                Ok(piece) if (whole.len() + piece.len()) as u64 > bytes_max => {
                    return Ok(Err(too_large()));
                }
                Ok(piece) => whole.extend_from_slice(&piece),
            }
        }
        Ok::<_, Elapsed>(Ok(whole.freeze()))
    };
    let late = |_| Problem::new(Code::RequestTimeout, "The request's body did not come in time");
    timeout(BODY_WAIT, reading).await.and_then(|read| read).map_err(late)?
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Problem::malformed(error.to_string()))
}

/// What stands behind the question mark.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        // What is no text would be taken for something else.
        let said = percent_decode_str(parts.uri.query().unwrap_or_default()).decode_utf8();
        said.map_err(|_| Problem::malformed("The query is not UTF-8"))?;
        let query = Query::from_request_parts(parts, app).await;
        let Query(params) =
            query.map_err(|rejection: QueryRejection| Problem::malformed(rejection.body_text()))?;
        Ok(Self(params))
    }
}

/// The names in an address.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let names = axum::extract::Path::from_request_parts(parts, app).await;
        let axum::extract::Path(names) =
            names.map_err(|rejection: PathRejection| Problem::malformed(rejection.body_text()))?;
        Ok(Self(names))
    }
}

/// Lets in who has the scope, before anything of the body is read.
async fn admit(parts: &mut Parts, app: &App, needed: Scope) -> Result<Caller> {
    let Ok(connection) = Connection::from_request_parts(parts, app).await;
    let bearer = presented(app, &connection, bearer(&parts.headers))?;
    let principal = app.admit(&connection, bearer.as_ref(), needed)?;
    app.limits().take(&principal)?;
    // One that is no text is as wrong as an empty one.
    let key = parts.headers.get(IDEMPOTENCY_KEY).map(|key| key.to_str().unwrap_or_default());
    Ok(Caller::new(principal).with_key(key)?)
}

/// The token that a request carries; what is none is counted like a wrong one.
pub(crate) fn presented(
    app: &App,
    connection: &Connection,
    found: Result<Option<Bearer>>,
) -> Result<Option<Bearer>> {
    if found.is_err() {
        app.admit_without_token(connection, Presented::WrongToken)?;
    }
    found
}

/// A client that needs no token. Counted before anything of the body is read.
#[derive(Debug)]
pub(crate) struct WithoutToken;

impl FromRequestParts<App> for WithoutToken {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let Ok(connection) = Connection::from_request_parts(parts, app).await;
        app.admit_without_token(&connection, Presented::Nothing)?;
        Ok(Self)
    }
}

/// The token in a request's headers.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<Bearer>> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let value = value.to_str().map_err(|_| Problem::from(AccessDenied::Unknown))?;
    let (scheme, token) = value.split_once(' ').ok_or(AccessDenied::Unknown)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(AccessDenied::Unknown.into());
    }
    Ok(Some(token.trim().parse().map_err(|_| AccessDenied::Unknown)?))
}

macro_rules! scoped {
    ($($(#[$doc:meta])* $name:ident = $scope:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name(pub(crate) Caller);

        impl FromRequestParts<App> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
                admit(parts, app, Scope::$scope).await.map(Self)
            }
        }
    )*};
}

/// A caller with the scope `read`.
#[derive(Clone, Debug)]
pub(crate) struct Reader(Credential);

impl Reader {
    /// For those who go on looking.
    pub(crate) fn pass(self) -> Credential {
        self.0
    }
}

impl FromRequestParts<App> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        admit(parts, app, Scope::Read).await?;
        Ok(Self(Credential(bearer(&parts.headers)?)))
    }
}

/// The credential of a long-lived request, such as a stream.
#[derive(Clone, Debug)]
pub(crate) struct Credential(Option<Bearer>);

impl Credential {
    /// Resolves when it was taken back, or has run out.
    pub(crate) async fn lost(self, app: App) {
        app.lost(self.0.as_ref()).await;
    }
}

scoped! {
    /// A caller with the scope `control`.
    Controller = Control;
    /// A caller with the scope `admin`.
    Administrator = Admin;
}
