//! The web app's files: as a browser gets them, and what is said where there are none.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::World;

struct Page {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

/// A request as a browser sends it.
async fn get(world: &World, method: &str, path: &str, headers: &str) -> Page {
    let host = world.address.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_ascii_lowercase(), value.to_owned()))
    };
    Page { status, headers: lines.filter_map(header).collect(), body: body.to_owned() }
}

fn build_app(world: &World) {
    let folder = world.web_folder();
    std::fs::create_dir_all(folder.join("assets")).unwrap();
    std::fs::write(folder.join("index.html"), "<title>Piton</title>").unwrap();
    std::fs::write(folder.join("assets/main-abc.js"), "export const a = 1;".repeat(9)).unwrap();
    std::fs::write(folder.join("assets/main-abc.js.gz"), "gzip").unwrap();
    std::fs::write(folder.join("manifest.webmanifest"), "{}").unwrap();
}

/// Wants to show: addresses of the app lead to its page, files have their types and ages, a page of
/// another site cannot frame it, and nothing inline is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn the_app_is_served_under_a_strict_policy() {
    let world = World::start().await;
    build_app(&world);
    for path in ["/", "/sessions/sess_1", "/tasks/a/compare?x=1", "/index.html"] {
        let page = get(&world, "GET", path, "").await;
        assert_eq!((page.status, page.body.as_str()), (200, "<title>Piton</title>"), "{path}");
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        assert_eq!(page.headers["cache-control"], "no-cache");
        assert_eq!(page.headers["x-frame-options"], "DENY");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        assert_eq!(page.headers["referrer-policy"], "no-referrer");
        let policy = &page.headers["content-security-policy"];
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    let page = get(&world, "GET", "/", "").await;
    let known = format!("If-None-Match: {}\r\n", page.headers["etag"]);
    let page = get(&world, "GET", "/sessions/x", &known).await;
    assert_eq!((page.status, page.body.as_str()), (304, ""));
    let page = get(&world, "HEAD", "/", "").await;
    assert_eq!((page.status, page.body.as_str()), (200, ""));

    let page = get(&world, "GET", "/assets/main-abc.js", "").await;
    assert_eq!(page.headers["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(page.headers["cache-control"], "public, max-age=31536000, immutable");
    assert!(page.body.starts_with("export"), "{}", page.body);
    let page = get(&world, "GET", "/assets/main-abc.js", "Accept-Encoding: br, gzip\r\n").await;
    assert_eq!((page.headers["content-encoding"].as_str(), page.body.as_str()), ("gzip", "gzip"));
    let page = get(&world, "GET", "/manifest.webmanifest", "").await;
    assert_eq!(page.headers["content-type"], "application/manifest+json");
}

/// Wants to show: what is missing is missing, the API is never answered with a page, and no path leads
/// out of the app's folder.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_of_the_app_is_not_its_page() {
    let world = World::start().await;
    build_app(&world);
    std::fs::write(world.web_folder().join("../secret.txt"), "secret").unwrap();
    for path in [
        "/assets/missing.js",
        "/favicon.ico",
        "/api/v1/nothing",
        "/api",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/assets/../../secret.txt",
    ] {
        let page = get(&world, "GET", path, "").await;
        assert_eq!(page.status, 404, "{path}");
        assert!(page.body.contains("not_found"), "{path}: {}", page.body);
    }
    let page = get(&world, "POST", "/sessions/x", "Content-Length: 0\r\n").await;
    assert_eq!(page.status, 404);
}

/// Wants to show: without the app the API is there, and the first page says how to build the app.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_app_the_first_page_says_how_to_build_it() {
    let world = World::start().await;
    let page = get(&world, "GET", "/", "").await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("make run") && page.body.contains("Node.js 20"), "{}", page.body);
    assert_eq!(get(&world, "GET", "/sessions/x", "").await.status, 404);
    assert_eq!(get(&world, "GET", "/health", "").await.status, 200);
}
