//! Whether the server is there, ready, and how it does.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, http::HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::extract::Reader;
use crate::problem::{Document, Result};

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`: who cannot answer does not.
    status: &'static str,
}

/// Whether the server is there. Needs no token and tells nothing else.
#[utoipa::path(get, path = "/health", tag = "server", security(()),
    responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether the server takes work. Needs no token and tells nothing else.
#[utoipa::path(get, path = "/ready", tag = "server", security(()), responses(
    (status = 200, body = Health),
    (status = 503, body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn ready(State(app): State<App>) -> Result<Json<Health>> {
    if app.stop().is_cancelled() {
        return Err(piton_runtime::Error::ShuttingDown.into());
    }
    Ok(Json(Health { status: "ok" }))
}

/// Counters and gauges, in the format that Prometheus reads.
#[utoipa::path(get, path = "/metrics", tag = "server", responses(
    (status = 200, body = String, content_type = "application/openmetrics-text"),
    (status = "4XX", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn metrics(State(app): State<App>, _reader: Reader) -> Response {
    let Ok(text) = app.metrics().text() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}
