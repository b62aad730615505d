//! Whether the server is there, ready, and how it does.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, http::HeaderValue};
use piton_api::enums::ClosedList as _;
use piton_api::problem::Problem as Document;
use piton_api::server::Health;
use piton_store::{Query, Select};

use crate::app::App;
use crate::extract::Reader;
use crate::metrics::Open;
use crate::problem::Result;

/// Sessions that are looked at at a time.
const PAGE: usize = 256;

/// Whether the server is there. Needs no token and tells nothing else.
#[utoipa::path(get, path = "/health", tag = "server", security(()),
    responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Json<Health> {
    Json(Health::ok())
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
    Ok(Json(Health::ok()))
}

/// Counters and gauges, in the format that Prometheus reads.
#[utoipa::path(get, path = "/metrics", tag = "server", responses(
    (status = 200, body = String, content_type = "application/openmetrics-text"),
    (status = "4XX", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn metrics(State(app): State<App>, _reader: Reader) -> Result<Response> {
    let Ok(text) = app.metrics().text(open(&app).await?) else {
        return Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response());
    };
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response())
}

/// What is open now. Its cost follows what is open.
async fn open(app: &App) -> Result<Open> {
    let mut open = Open::default();
    let mut after = None;
    loop {
        let query = Query { task_id: None, select: Select::NeedsRecovery, after, limit: PAGE };
        let page = app.handle().view().store().list(query).await?;
        for row in &page.rows {
            let facts = &row.summary.facts;
            if let Some(run) = facts.run.as_ref().filter(|run| run.is_open()) {
                open.runs += 1;
                open.waits += run.waits.len() as u64;
            }
            if let Some(executor) = facts.executor.as_ref().filter(|e| e.may_live()) {
                let status = executor.status.spelling();
                *open.executions.entry(status).or_default() += 1;
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(open),
        }
    }
}
