//! Who may speak to the server at all: pages of other origins may not, and nobody may call it by a
//! name that is not its own (a page whose name was pointed at this machine would).

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use piton_core::Code;

use crate::app::App;
use crate::problem::Problem;

pub(crate) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(host) = host_of(&request) else {
        return refuse_host("The request names no host");
    };
    if !host_allowed(&host, &app.options().hosts) {
        return refuse_host("The request is for another host");
    }
    let origin = request.headers().get(header::ORIGIN).cloned();
    if let Some(origin) = &origin {
        let origin = origin.to_str().unwrap_or_default();
        if !origin_allowed(origin, &host, &app.options().origins) {
            let title = "The request comes from a page of another origin";
            return Problem::new(Code::OriginRefused, title).into_response();
        }
    }
    let asks_before = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response =
        if asks_before && origin.is_some() { may_ask() } else { next.run(request).await };
    let headers = response.headers_mut();
    if let Some(origin) = origin {
        // Its browser would keep the answer from the page without this.
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        let shown = HeaderValue::from_static("idempotency-replayed, retry-after");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, shown);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// What a page of an allowed origin may ask for.
fn may_ask() -> Response {
    let taken = "authorization, content-type, idempotency-key, last-event-id";
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, taken),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

fn refuse_host(title: &str) -> Response {
    Problem::new(Code::HostRefused, title).into_response()
}

fn host_of(request: &Request) -> Option<String> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.as_str().to_owned());
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next()?.to_str().ok()?.to_owned();
    // Two of them: whoever stands between may have looked at the other one.
    hosts.next().is_none().then_some(host)
}

/// The name alone, in lower case, without its port.
fn name_of(host: &str) -> String {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.to_ascii_lowercase()
}

fn host_allowed(host: &str, allowed: &[String]) -> bool {
    let name = name_of(host);
    let loopback = match name.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name == "localhost",
    };
    loopback || allowed.iter().any(|known| name_of(known) == name)
}

/// A page of the server itself, or one that was named.
fn origin_allowed(origin: &str, host: &str, allowed: &[String]) -> bool {
    let own = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
    own.is_some_and(|own| own.eq_ignore_ascii_case(host))
        || allowed.iter().any(|known| known.eq_ignore_ascii_case(origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_its_own() {
        let named = ["piton.example".to_owned()];
        for host in ["127.0.0.1:1", "localhost", "LocalHost:80", "[::1]:80", "Piton.Example:443"] {
            assert!(host_allowed(host, &named), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", ""] {
            assert!(!host_allowed(host, &named), "{host}");
        }
    }

    #[test]
    fn pages_that_are_its_own() {
        let named = ["https://app.example".to_owned()];
        let host = "127.0.0.1:4";
        for origin in ["http://127.0.0.1:4", "https://127.0.0.1:4", "https://app.example"] {
            assert!(origin_allowed(origin, host, &named), "{origin}");
        }
        for origin in ["null", "http://127.0.0.1:5", "http://localhost:4", "https://evil", ""] {
            assert!(!origin_allowed(origin, host, &named), "{origin}");
        }
    }
}
