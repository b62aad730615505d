//! Who was refused, in the metadata log. Refusals are cheap to make: of those that are alike only
//! the first in a while is written at once, the others are counted.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use piton_core::Code;
use piton_core::event::AuditRecorded;
use piton_core::registry::Command;

use crate::app::App;
use crate::extract::bearer;

const REPORT_INTERVAL: Duration = Duration::from_mins(1);
/// Kinds of refusals that are counted at a time; further kinds are not recorded until one expires.
const KINDS_MAX: usize = 1_024;
const TARGET_BYTES_MAX: usize = 256;

/// Refusals that are alike.
type Alike = (Option<String>, Code);

#[derive(Debug, Default)]
pub(crate) struct Audit(Mutex<HashMap<Alike, Seen>>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// How often since it was last written.
    times: u64,
    since: Instant,
}

impl Audit {
    /// How often a refusal is to be written to have happened; `None`: later.
    fn count(&self, alike: &Alike, now: Instant) -> Option<u64> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = seen.get_mut(alike) {
            known.times += 1;
            if now.saturating_duration_since(known.since) < REPORT_INTERVAL {
                return None;
            }
            return Some(std::mem::replace(known, Seen { times: 0, since: now }).times);
        }
        if seen.len() >= KINDS_MAX {
            seen.retain(|_, seen| now.saturating_duration_since(seen.since) < REPORT_INTERVAL);
        }
        if seen.len() >= KINDS_MAX {
            return None;
        }
        seen.insert(alike.clone(), Seen { times: 0, since: now });
        Some(1)
    }
}

/// Notes what was refused because of who asked, or from where.
pub(crate) async fn note(State(app): State<App>, request: Request, next: Next) -> Response {
    let token_id = bearer(request.headers()).ok().flatten().map(|bearer| bearer.id.to_string());
    let method = request.method().clone();
    let target: String = request.uri().path().chars().take(TARGET_BYTES_MAX).collect();
    let response = next.run(request).await;
    let Some(code) = response.extensions().get::<Code>().copied() else { return response };
    let principal = match code {
        // The token that the request names.
        Code::InsufficientScope | Code::AccessTokenExpired => token_id,
        Code::Unauthenticated | Code::HostRefused | Code::OriginRefused => None,
        _ => return response,
    };
    if let Some(times) = app.audit().count(&(principal.clone(), code), Instant::now()) {
        let note = AuditRecorded {
            principal,
            action: format!("{method} refused"),
            target: Some(target),
            outcome: code.to_string(),
            count: (times > 1).then_some(times),
        };
        if let Err(error) = app.metadata().execute(None, Command::Note(note)).await {
            tracing::error!(code = %error.code(), "a refusal was not recorded in the audit log");
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_are_alike_are_written_once_in_a_while() {
        let audit = Audit::default();
        let begin = Instant::now();
        let one = (Some("key_1".to_owned()), Code::InsufficientScope);
        assert_eq!(audit.count(&one, begin), Some(1));
        for _ in 0..5 {
            assert_eq!(audit.count(&one, begin + REPORT_INTERVAL / 2), None);
        }
        assert_eq!(
            audit.count(&(None, Code::Unauthenticated), begin + REPORT_INTERVAL / 2),
            Some(1)
        );
        assert_eq!(audit.count(&one, begin + REPORT_INTERVAL), Some(6));
        assert_eq!(audit.count(&one, begin + REPORT_INTERVAL), None);
        for n in 0..2 * KINDS_MAX {
            audit.count(&(Some(n.to_string()), Code::InsufficientScope), begin + REPORT_INTERVAL);
        }
        assert!(audit.0.lock().unwrap().len() <= KINDS_MAX);
    }
}
