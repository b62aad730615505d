//! Whether the server is there, ready, and how it does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, http::HeaderValue};
use piton_api::enums::ClosedList as _;
use piton_api::problem::Problem as Document;
use piton_api::server::{Examination, Health, Reloaded};
use piton_core::{Code, resume};
use piton_store::{Query, Select, Store};
use tokio::sync::Mutex;

use crate::app::{App, ReloadError};
use crate::extract::{Administrator, Reader};
use crate::metrics::Open;
use crate::problem::{Problem, Result};

/// How old the last answer of the store may be.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Sessions that are looked at at a time.
const PAGE_SESSIONS: usize = 256;

/// Report that the server runs. Needs no token and returns nothing else.
#[utoipa::path(get, path = "/health", tag = "server", security(()),
    responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Json<Health> {
    Json(Health::ok())
}

/// Report whether the server accepts work. Needs no token and returns nothing else.
#[utoipa::path(get, path = "/ready", tag = "server", security(()), responses(
    (status = 200, body = Health),
    (status = 503, body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn ready(State(app): State<App>) -> Response {
    let ready = if app.stop().is_cancelled() {
        Err(piton_runtime::Error::ShuttingDown.into())
    } else {
        app.readiness().check(app.handle().view().store()).await
    };
    match ready {
        Ok(()) => Json(Health::ok()).into_response(),
        Err(problem) => problem.with_status(StatusCode::SERVICE_UNAVAILABLE).into_response(),
    }
}

/// Caches whether the store accepts writes: a health request needs no token, and a check costs a
/// flush.
#[derive(Debug, Default)]
pub(crate) struct Readiness(Mutex<Option<Checked>>);

/// When the store was asked, and why it refuses.
type Checked = (Instant, Option<(Code, String)>);

impl Readiness {
    async fn check(&self, store: &Arc<dyn Store>) -> Result<()> {
        // Held meanwhile: of many that ask at once, one checks.
        let mut last = self.0.lock().await;
        let refusal = match &*last {
            Some((at, refusal)) if at.elapsed() < CHECK_EVERY => refusal.clone(),
            _ => {
                let refusal = store.check_writable().await.err();
                let refusal = refusal.map(|error| (error.code(), error.to_string()));
                last.insert((Instant::now(), refusal)).1.clone()
            }
        };
        refusal.map_or(Ok(()), |(code, title)| Err(Problem::new(code, title)))
    }
}

/// Reload the server's settings. The response names the settings that need a restart; if one is
/// invalid, no setting changes.
#[utoipa::path(post, path = "/reload", tag = "server", responses(
    (status = 200, body = Reloaded),
    (status = "4XX", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn reload(
    State(app): State<App>,
    Administrator(_caller): Administrator,
) -> Result<Json<Reloaded>> {
    let Some(reload) = app.options().reload.clone() else {
        return Err(Problem::new(Code::NotFound, "This server has no settings to read again"));
    };
    let failed = |error: ReloadError| {
        Problem::new(error.code, error.message).with_status(StatusCode::UNPROCESSABLE_ENTITY)
    };
    reload.reload().map(Json).map_err(failed)
}

/// Check the installation: data folder, store, key, agents, and what could end running agents.
/// Changes nothing.
#[utoipa::path(get, path = "/doctor", operation_id = "examine", tag = "server", responses(
    (status = 200, body = Examination),
    (status = "4XX", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn examine(State(app): State<App>, _reader: Reader) -> Result<Json<Examination>> {
    let Some(doctor) = app.options().doctor.clone() else {
        return Err(Problem::new(Code::NotFound, "This server has nothing to look at"));
    };
    let failed = |message: String| {
        let problem = Problem::new(Code::OperationInterrupted, "The examination did not end");
        problem.with_detail(message)
    };
    doctor.examine().await.map(Json).map_err(failed)
}

/// Get counters and gauges in the format that Prometheus reads.
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
    let mut open = Open { memory_bytes: app.engine().memory().await, ..Open::default() };
    let mut after = None;
    loop {
        let query =
            Query { task_id: None, select: Select::NeedsRecovery, after, limit: PAGE_SESSIONS };
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
                open.agents += u64::from(resume::is_running(facts));
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(open),
        }
    }
}
