//! The web app: files that are served as they were built. A program that was built without them serves
//! the API alone and says how to build the app.

mod files;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use piton_core::Code;

use crate::app::App;
use crate::problem::Problem;
use files::File;
pub use files::WebFiles;

/// The page that every address of the app begins with.
const INDEX: &str = "index.html";
/// Names below it contain a hash of their contents.
const HASHED: &str = "assets/";
/// Nothing inline, nothing from elsewhere, no frame around it. Images may come with a prompt or a file.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self'; connect-src 'self'; \
     manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";
const PERMISSIONS_POLICY: &str = "camera=(), geolocation=(), microphone=(), payment=(), usb=()";

/// Whatever is no route of the API: a file of the app, or an address inside of it.
pub(crate) async fn serve(State(app): State<App>, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches('/');
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return nothing();
    }
    // What looks like the API is never answered with a page.
    if path == "api" || path.starts_with("api/") {
        return nothing();
    }
    let files = app.options().web.clone();
    let Some(index) = files.get(INDEX).await else {
        return if path.is_empty() { without_app(&app) } else { nothing() };
    };
    let name = percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned();
    if !name.is_empty()
        && let Some(file) = files.get(&name).await
    {
        return respond(request.headers(), &name, file);
    }
    // A missing file is missing; an address of the app has no ending.
    let last = name.rsplit('/').next().unwrap_or_default();
    if last.contains('.') { nothing() } else { respond(request.headers(), INDEX, index) }
}

fn nothing() -> Response {
    Problem::new(Code::NotFound, "There is nothing here").into_response()
}

fn respond(asked: &HeaderMap, name: &str, file: File) -> Response {
    let is_page = std::path::Path::new(name).extension().is_some_and(|is| is == "html");
    let etag = format!("\"{}\"", file.hash);
    let is_known = asked
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|one| one.trim().trim_start_matches("W/") == etag));
    let takes_gzip = asked
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(accepts_gzip));
    let (bytes, is_gzip) = match file.gzip.filter(|_| takes_gzip) {
        Some(gzip) => (gzip, true),
        None => (file.bytes, false),
    };
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Bytes::into_response(bytes)
    };
    let headers = response.headers_mut();
    let cache =
        if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut set = |name: header::HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_TYPE, media_type(name));
    set(header::CACHE_CONTROL, cache);
    set(header::VARY, "accept-encoding");
    set(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    set(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if is_page {
        set(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
        set(header::HeaderName::from_static("permissions-policy"), PERMISSIONS_POLICY);
    }
    if is_gzip && !is_known {
        set(header::CONTENT_ENCODING, "gzip");
    }
    // Hex digits and quotes.
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

fn accepts_gzip(offer: &str) -> bool {
    let (coding, weight) = offer.split_once(';').unwrap_or((offer, ""));
    let is_refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
    matches!(coding.trim(), "gzip" | "*") && !is_refused
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// What this is, where the program has no app.
fn without_app(app: &App) -> Response {
    let version = &app.options().version;
    let text = format!(
        "Piton {version}: durable, resumable sessions with AI agents.\n\n\
         This program was built without the web app; it serves the API alone.\n\
         To build it with the app: install Node.js 20 or newer, then run `make run` in Piton's source\n\
         (or `make web`, and build the program again).\n\n\
         The API is described at /api/v1/openapi.json.\n\
         In a terminal: piton chat, piton sessions list.\n"
    );
    let mut response = text.into_response();
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_nothing_inline_and_no_frame() {
        for forbidden in ["unsafe-inline", "unsafe-eval", "*", "http:", "https:"] {
            assert!(!CONTENT_SECURITY_POLICY.contains(forbidden), "{forbidden}");
        }
        for needed in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
            assert!(CONTENT_SECURITY_POLICY.contains(needed), "{needed}");
        }
    }

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        for (offer, takes) in
            [("gzip", true), (" gzip;q=0.5", true), ("*", true), ("gzip;q=0", false), ("br", false)]
        {
            assert_eq!(accepts_gzip(offer), takes, "{offer}");
        }
    }
}
