//! What can be asked under `/api/v1`.

pub(crate) mod access;
pub(crate) mod agent;
pub(crate) mod agent_sessions;
pub(crate) mod agents;
pub(crate) mod finishing;
pub(crate) mod graphs;
pub(crate) mod health;
pub(crate) mod queue;
pub(crate) mod records;
pub(crate) mod removal;
pub(crate) mod rewind;
pub(crate) mod sessions;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod tasks;
pub(crate) mod waits;
pub(crate) mod workspace;
pub(crate) mod worktrees;

use axum::Json;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use piton_runtime::Fulfilled;

/// An answer that says whether it was given before.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    status: StatusCode,
    fulfilled: Fulfilled<T>,
}

impl<T> Reply<T> {
    pub(crate) fn created(fulfilled: Fulfilled<T>) -> Self {
        Self { status: StatusCode::CREATED, fulfilled }
    }

    pub(crate) fn accepted(fulfilled: Fulfilled<T>) -> Self {
        Self { status: StatusCode::ACCEPTED, fulfilled }
    }

    pub(crate) fn ok(fulfilled: Fulfilled<T>) -> Self {
        Self { status: StatusCode::OK, fulfilled }
    }
}

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        let Fulfilled { response, replayed } = self.fulfilled;
        let mut response = (self.status, Json(response)).into_response();
        if replayed {
            let yes = HeaderValue::from_static("true");
            response.headers_mut().insert("idempotency-replayed", yes);
        }
        response
    }
}
