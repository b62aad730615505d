//! Why something is not done, as it is told to a client.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use piton_exec::protocol::Problem;

pub(crate) fn problem(code: &str, message: impl Into<String>) -> Problem {
    Problem { code: code.to_owned(), message: message.into(), hint: None }
}

/// A [`Problem`] on its way out.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Problem);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (status(&self.0.code), Json(self.0)).into_response()
    }
}

/// Clients go by the code; the status is for those who only see that.
fn status(code: &str) -> StatusCode {
    match code {
        "unauthorized" => StatusCode::UNAUTHORIZED,
        "request_invalid" | "protocol_unsupported" | "epoch_required" => StatusCode::BAD_REQUEST,
        "path_outside" => StatusCode::FORBIDDEN,
        "not_found" | "file_missing" | "shell_not_found" => StatusCode::NOT_FOUND,
        "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "closing" | "epoch_unkept" => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    }
}
