//! Why a request was refused, as the client receives it.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use piton_core::{AnyCode, Code};
use piton_exec::protocol::Problem;

pub(crate) fn problem(code: Code, message: impl Into<String>) -> Problem {
    Problem::new(code, message)
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
fn status(code: &AnyCode) -> StatusCode {
    let Some(code) = code.known() else { return StatusCode::CONFLICT };
    match code {
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::RequestInvalid | Code::ProtocolUnsupported | Code::EpochRequired => {
            StatusCode::BAD_REQUEST
        }
        Code::PathOutside => StatusCode::FORBIDDEN,
        Code::NotFound | Code::ShellNotFound => StatusCode::NOT_FOUND,
        Code::FileTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::AgentctlClosing | Code::EpochNotSaved => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    }
}
