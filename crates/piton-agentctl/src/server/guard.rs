//! What every request must carry.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use piton_core::planted::{self, Bug};
use piton_exec::protocol::{EPOCH, PROTOCOL_HEADER, Problem};

use crate::agentctl::Agentctl;
use crate::problem::{Refused, problem};
use piton_core::Code;

/// Who asks, once it was let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) epoch: u64,
}

pub(crate) async fn admit(
    State(agentctl): State<Arc<Agentctl>>,
    mut request: Request,
    next: Next,
) -> Response {
    let _present = agentctl.activity.enter();
    match check(&agentctl, request.headers(), request.uri().path()).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => Refused(problem).into_response(),
    }
}

async fn check(agentctl: &Agentctl, headers: &HeaderMap, path: &str) -> Result<Caller, Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let token = text(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    // Hashes are compared in constant time.
    let is_right = blake3::hash(token.unwrap_or_default().as_bytes()) == agentctl.bearer;
    if !is_right && !planted::is(Bug::SocketUnguarded) {
        return Err(problem(Code::Unauthenticated, "The bearer token is missing or wrong"));
    }
    let (oldest, newest) = agentctl.protocol;
    match text(PROTOCOL_HEADER).map(str::parse::<u32>) {
        Some(Ok(protocol)) if (oldest..=newest).contains(&protocol) => {}
        _ if path == "/health" => {}
        Some(Ok(protocol)) => {
            let message = format!(
                "Protocol {protocol} was asked for; this agentctl speaks {oldest} to {newest}"
            );
            return Err(problem(Code::ProtocolUnsupported, message));
        }
        _ => {
            let message = format!("The header {PROTOCOL_HEADER} is missing or not a number");
            return Err(problem(Code::RequestInvalid, message));
        }
    }
    let Some(Ok(epoch)) = text(EPOCH).map(str::parse::<u64>) else {
        let message = format!("The header {EPOCH} is missing or not a number");
        return Err(problem(Code::EpochRequired, message));
    };
    agentctl.epochs.admit(epoch).await?;
    Ok(Caller { epoch })
}
