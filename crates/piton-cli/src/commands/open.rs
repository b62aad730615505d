//! `piton open`: signs a browser in, once.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use piton_api::access::NewAccessToken;
use piton_api::server::ServerInfo;
use piton_core::Code;
use piton_core::access::Scope;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};
use serde_json::json;
use tokio::time::Instant;

use crate::background;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::server;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton open                        Open this machine's browser, signed in
  piton open --print                Print the link instead of opening a browser
  piton open --print --scope read   For a person who only looks
  piton open --qr                   Show a QR code for a phone

The link signs one browser in, once, within ten minutes. Its secret is the part after #, which
browsers do not send: no log and no proxy sees it.
A phone reaches the server only if it listens beyond this machine, for example:
  piton serve --listen 0.0.0.0:7411 --insecure
(--insecure sends everything unencrypted; use it in a network that you trust, or give a
certificate.)
JSON: one object: url, expires_at, opened, why_not.";

/// How long an opener may take to fail; one that is still at work then has a browser to wait for.
const OPENER_FAILS_WITHIN: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Open the web app, signed in by a single-use link
///
/// Starts a server in the background if none runs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print the link instead of opening a browser
    #[arg(long)]
    print: bool,
    /// Show the link as a QR code, for a phone in the same network
    #[arg(long, conflicts_with = "print")]
    qr: bool,
    /// What the browser may do: read, control, admin [default: read and control]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = str::parse::<Scope>)]
    scopes: Vec<Scope>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let client = background::ensure(cx).await?;
    let scopes =
        if args.scopes.is_empty() { vec![Scope::Read, Scope::Control] } else { args.scopes };
    let new = NewAccessToken {
        name: "browser".to_owned(),
        scopes: scopes.into_iter().map(Into::into).collect(),
        expires_in_s: None,
    };
    let link = client.create_link(&new).await?;
    let data = &cx.settings.data.value;
    let place = server::find(data).ok_or(piton_api::client::Error::NotRunning)?;
    let url = if args.qr {
        format!("{}/#link={}", phone_address(&place)?, link.token)
    } else {
        url(&place, &link.token)
    };
    let why_not = if args.print || args.qr {
        Some(if args.qr { "--qr was given" } else { "--print was given" }.to_owned())
    } else {
        match opener(&Surroundings::of_this_process()) {
            Ok(program) => {
                let page = write_page(data, &url)?;
                open(&program, &page).await.err()
            }
            Err(why) => Some(why),
        }
    };
    if ui.json {
        ui.json_line(&json!({
            "url": url, "expires_at": link.expires_at,
            "opened": why_not.is_none(), "why_not": why_not,
        }))?;
        return Ok(Exit::Good);
    }
    if args.qr {
        ui.line(qr_code(&url)?)?;
        ui.line(&url)?;
        ui.warn("The link signs in one browser, once. It expires in ten minutes.")?;
        return Ok(Exit::Good);
    }
    match &why_not {
        None => {
            ui.note(&format!(
                "The browser is opened. If it shows no page: {} open --print",
                ui.call
            ))?;
        }
        Some(why) => {
            ui.line(&url)?;
            if !args.print {
                ui.note(&format!("No browser was opened: {why}."))?;
            }
            ui.warn("The link signs in one browser, once. It expires in ten minutes.")?;
        }
    }
    Ok(Exit::Good)
}

/// Behind the # nothing is sent, logged or passed on.
fn url(place: &ServerInfo, secret: &str) -> String {
    let address = place.public.as_ref().unwrap_or(&place.address);
    format!("{address}/#link={secret}")
}

/// Where a phone in the same network reaches the server.
fn phone_address(place: &ServerInfo) -> Result<String> {
    let address = place.public.as_ref().unwrap_or(&place.address);
    let host = address.split_once("://").map_or(address.as_str(), |(_, rest)| rest);
    let socket: Option<SocketAddr> = host.parse().ok();
    let (scheme, _) = address.split_once("://").unwrap_or(("http", ""));
    match socket {
        Some(socket) if socket.ip().is_loopback() => {
            let message = "The server listens on this machine alone: no phone can reach it";
            Err(Error::new(Code::ServerUnreachable, message).with_hint(
                "Stop it with `piton stop` and start it with `piton serve --listen 0.0.0.0:7411 \
                 --insecure`, or with a certificate instead of --insecure.",
            ))
        }
        Some(socket) if socket.ip().is_unspecified() => {
            let ip = crate::server::network_address().ok_or_else(|| {
                let message = "This machine has no address in a network";
                Error::new(Code::ServerUnreachable, message)
            })?;
            Ok(format!("{scheme}://{}", SocketAddr::new(ip, socket.port())))
        }
        // A name, or an address of a network.
        _ => Ok(address.clone()),
    }
}

/// Light on dark, as terminals mostly are; two modules in the height of a character.
fn qr_code(text: &str) -> Result<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).map_err(|error| {
        let message = format!("The link does not fit into a QR code: {error}");
        Error::new(Code::LimitReached, message)
    })?;
    let mut drawing = code.render::<Dense1x2>();
    Ok(drawing.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build())
}

/// A page that leads to the link. Everybody can see the arguments of an opener, but only the owner can
/// read this file; the link in it is good for ten minutes, and once.
fn write_page(data: &Path, url: &str) -> Result<PathBuf> {
    let path = std::path::absolute(data)?.join("run/open.html");
    let unwritable = |error: io::Error| {
        let message = format!("{} cannot be written", path.display());
        Error::new(Code::StoreReadOnly, message).because(&error)
    };
    // Create a new file, so that an old one's permissions do not decide who may read it.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unwritable(error)),
        _ => {}
    }
    let mut file =
        File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(unwritable)?;
    file.write_all(page(url).as_bytes()).map_err(unwritable)?;
    Ok(path)
}

fn page(url: &str) -> String {
    let url = url.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>Piton</title>\
         <a href=\"{url}\">Piton</a>\n"
    )
}

/// What decides whether there is a browser to open.
#[derive(Debug, Default)]
struct Surroundings {
    macos: bool,
    /// A screen that programs can show windows on.
    display: bool,
    /// From `$BROWSER`.
    browser: Option<OsString>,
    path: Option<OsString>,
}

impl Surroundings {
    fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            macos: cfg!(target_os = "macos"),
            display: variable("DISPLAY").or_else(|| variable("WAYLAND_DISPLAY")).is_some(),
            browser: variable("BROWSER"),
            path: variable("PATH"),
        }
    }
}

/// The program that opens a page, or why there is none.
fn opener(around: &Surroundings) -> Result<PathBuf, String> {
    let find = |name: &OsStr| {
        let path = around.path.as_ref()?;
        std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    let missing = |name: &OsStr| format!("there is no {}", name.display());
    if let Some(browser) = &around.browser {
        let named = PathBuf::from(browser);
        let found = if named.is_absolute() { Some(named) } else { find(browser) };
        return found.filter(|file| file.is_file()).ok_or_else(|| missing(browser));
    }
    if !around.macos && !around.display {
        return Err("there is no display".to_owned());
    }
    let name = OsStr::new(if around.macos { "open" } else { "xdg-open" });
    find(name).ok_or_else(|| missing(name))
}

/// Starts the opener; the reason if it fails at once.
async fn open(program: &Path, page: &Path) -> Result<(), String> {
    let name = program.display();
    let mut command = Command::new(program);
    // What it has to say is about its own troubles.
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("{name} does not start: {error}"))?;
    let until = Instant::now() + OPENER_FAILS_WITHIN;
    while Instant::now() < until {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{name} failed ({status})")),
            Ok(None) => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) => return Err(format!("{name} cannot be waited for: {error}")),
        }
    }
    // Some openers are the browser, and end with it.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(public: Option<&str>) -> ServerInfo {
        ServerInfo {
            address: "http://127.0.0.1:7411".to_owned(),
            public: public.map(str::to_owned),
            pid: 1,
            boot: String::new(),
            version: String::new(),
            token: String::new(),
            background: false,
        }
    }

    #[test]
    fn the_secret_stands_where_it_is_not_sent() {
        assert_eq!(url(&place(None), "key_1.ab"), "http://127.0.0.1:7411/#link=key_1.ab");
        let public = Some("https://piton.example:7411");
        assert_eq!(url(&place(public), "k.s"), "https://piton.example:7411/#link=k.s");
    }

    #[test]
    fn a_phone_gets_an_address_that_it_can_reach() {
        let refused = phone_address(&place(None)).unwrap_err();
        assert!(refused.message().contains("no phone"), "{}", refused.message());
        for public in ["http://192.168.1.5:7411", "https://piton.example:7411"] {
            assert_eq!(phone_address(&place(Some(public))).unwrap(), public);
        }
    }

    #[test]
    fn a_qr_code_is_square_and_has_a_quiet_zone() {
        let code = qr_code("http://192.168.1.5:7411/#link=key_1.abcdef").unwrap();
        let widths: Vec<usize> = code.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{code}");
        assert!((widths[0] / 2..=widths[0] / 2 + 1).contains(&widths.len()), "{code}");
        assert!(code.lines().next().unwrap().chars().all(|c| c == '█'), "{code}");
    }

    #[test]
    fn a_page_leads_to_the_link_and_to_nothing_else() {
        let page = page("https://x\"><script>/#link=k.s&t");
        assert!(page.contains("url=https://x&quot;>&lt;script>/#link=k.s&amp;t\""), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn an_opener_needs_a_display_and_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().as_os_str().to_owned());
        let around = || Surroundings { path: path.clone(), ..Surroundings::default() };
        assert_eq!(opener(&around()), Err("there is no display".to_owned()));
        let shown = || Surroundings { display: true, ..around() };
        assert_eq!(opener(&shown()), Err("there is no xdg-open".to_owned()));
        assert_eq!(
            opener(&Surroundings { macos: true, ..around() }),
            Err("there is no open".to_owned())
        );
        let program = folder.path().join("xdg-open");
        std::fs::write(&program, "").unwrap();
        assert_eq!(opener(&shown()), Ok(program.clone()));
        // A browser that was named counts, also without a display: it may be a text browser.
        let named = |name: &OsStr| Surroundings { browser: Some(name.to_owned()), ..around() };
        assert_eq!(opener(&named(program.as_os_str())), Ok(program));
        assert_eq!(opener(&named(OsStr::new("lynx"))), Err("there is no lynx".to_owned()));
    }
}
