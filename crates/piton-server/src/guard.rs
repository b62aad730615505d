//! Refuses requests from pages of other origins, and requests whose `Host` is not one of the
//! server's own names (DNS rebinding points another name at this machine).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use piton_core::Code;
use piton_core::planted::{self, Bug};

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
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE"),
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
    // With two `Host` headers, a proxy may have checked the other one.
    hosts.next().is_none().then_some(host)
}

/// The host that a `Host` header names, without its port; `None` if it is not exactly a name or an
/// address with perhaps a port. What a lenient reader would skip is how another host's name gets in.
fn host_name(host: &str) -> Option<HostName> {
    let (name, port) = if let Some(rest) = host.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        (HostName::Address(address.parse::<Ipv6Addr>().ok()?.into()), port)
    } else {
        let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
        let name = match name.parse::<Ipv4Addr>() {
            Ok(address) => HostName::Address(address.into()),
            Err(_) if is_dns_name(name) => HostName::Dns(name.to_ascii_lowercase()),
            Err(_) => return None,
        };
        (name, port)
    };
    let is_port =
        |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_good = planted::is(Bug::HostUnchecked)
        || port.is_empty()
        || port.strip_prefix(':').is_some_and(is_port);
    is_good.then_some(name)
}

#[derive(Debug, PartialEq, Eq)]
enum HostName {
    Address(IpAddr),
    /// In lower case.
    Dns(String),
}

fn is_dns_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.split('.').all(is_label)
}

fn host_allowed(host: &str, allowed: &[String]) -> bool {
    let Some(name) = host_name(host) else { return false };
    let is_loopback = match &name {
        HostName::Address(address) => address.is_loopback(),
        HostName::Dns(name) => name == "localhost",
    };
    is_loopback || allowed.iter().any(|known| host_name(known).as_ref() == Some(&name))
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
    fn a_host_is_a_name_or_an_address_with_perhaps_a_port() {
        let address = |text: &str| Some(HostName::Address(text.parse().unwrap()));
        let dns = |text: &str| Some(HostName::Dns(text.to_owned()));
        for (host, expected) in [
            ("127.0.0.1", address("127.0.0.1")),
            ("127.0.0.1:65535", address("127.0.0.1")),
            ("[::1]", address("::1")),
            ("[0:0:0:0:0:0:0:1]:80", address("::1")),
            ("LocalHost:80", dns("localhost")),
            ("a-b_c.example", dns("a-b_c.example")),
        ] {
            assert_eq!(host_name(host), expected, "{host}");
        }
        for host in [
            "127.0.0.1:80@evil",
            "127.0.0.1:80@evil:80",
            "user@127.0.0.1",
            "[localhost",
            "[localhost]",
            "[127.0.0.1]",
            "[127.0.0.1]evil.com",
            "[::1]evil.com",
            "[::1]:80@evil",
            "[::1]80",
            "[::1",
            "::1",
            "[]",
            "localhost:",
            "localhost:x",
            "localhost:+80",
            "localhost:65536",
            "localhost:80:80",
            "localhost.",
            ".localhost",
            "local host",
            "localhost/",
            "localhost#",
            "localhost\\evil",
            "localhost,evil",
            "localhost\0",
            ":80",
            "",
        ] {
            assert_eq!(host_name(host), None, "{host:?}");
            assert!(!host_allowed(host, &[host.to_owned(), "localhost".to_owned()]), "{host:?}");
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
