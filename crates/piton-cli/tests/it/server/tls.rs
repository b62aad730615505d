//! TLS for others, and a door of its own for this machine's command line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

use crate::server::pty::Home;
use crate::server::world::TEST_TIMEOUT;

const NAME: &str = "piton.test";

/// A certificate for [`NAME`], and its key.
struct Certificate {
    der: CertificateDer<'static>,
    chain: PathBuf,
    key: PathBuf,
}

fn certificate(folder: &Path, name: &str) -> Certificate {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let (chain, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    std::fs::write(&chain, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    Certificate { der: made.cert.der().clone(), chain, key }
}

/// Ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(home: &Home, chain: &Path, key: &Path) -> std::process::Command {
    let mut command = home.piton(&["--json", "serve", "--listen", "127.0.0.1:0", "--host", NAME]);
    command.arg("--tls-cert").arg(chain).arg("--tls-key").arg(key);
    command
}

/// Asks over TLS, believing this certificate and no other.
fn ask(port: u16, trusted: &CertificateDer<'static>, head: &str) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(NAME).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(TEST_TIMEOUT))?;
    let mut stream = StreamOwned::new(connection, socket);
    stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // It need not say goodbye.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        read => drop(read?),
    }
    Ok(String::from_utf8(answer).unwrap())
}

#[test]
fn others_speak_tls_and_the_command_line_needs_none() {
    let home = Home::new();
    let good = certificate(home.folder.path(), "good");
    let other = certificate(home.folder.path(), "other");
    let mut command = serve(&home, &good.chain, &good.key);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _serving = Serving(child);
    let said: Value = serde_json::from_str(&line).unwrap();
    let address = said["address"].as_str().unwrap();
    let port: u16 = address.strip_prefix("https://piton.test:").unwrap().parse().unwrap();

    let health = format!("GET /health HTTP/1.1\r\nhost: {NAME}:{port}");
    let answer = ask(port, &good.der, &health).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A client that trusts another certificate gets no answer, nor does one without TLS.
    assert!(ask(port, &other.der, &health).is_err());
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    plain.write_all(format!("{health}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    // It may be cut off as well.
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1"), "{answer:?}");

    // The same server, the same rules, another door.
    let place = std::fs::read(home.folder.path().join("data/run/server.json")).unwrap();
    let place: Value = serde_json::from_slice(&place).unwrap();
    assert_eq!(place["public"], address);
    assert!(place["address"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let bearer = format!("authorization: Bearer {}", place["token"].as_str().unwrap());
    let sessions = format!("GET /api/v1/sessions HTTP/1.1\r\nhost: {NAME}\r\n");
    assert!(ask(port, &good.der, sessions.trim_end()).unwrap().contains("unauthenticated"));
    let answer = ask(port, &good.der, &format!("{sessions}{bearer}")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let output = home.piton(&["chat", "--print", "say over the back door"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "over the back door\n");
    let status = home.piton(&["status"]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains(&format!("Others find it at {address}")), "{status}");
    let opened = home.piton(&["open", "--print"]).output().unwrap();
    assert!(String::from_utf8(opened.stdout).unwrap().starts_with(&format!("{address}/#link=")));
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let home = Home::new();
    let good = certificate(home.folder.path(), "good");
    let other = certificate(home.folder.path(), "other");
    let (missing, empty) = (home.folder.path().join("missing"), home.folder.path().join("empty"));
    std::fs::write(&empty, "nothing").unwrap();
    for (chain, key, named) in [
        (&missing, &good.key, "missing"),
        (&good.chain, &missing, "missing"),
        (&good.chain, &empty, "empty"),
        (&good.chain, &good.chain, "good.pem"),
        (&good.chain, &other.key, "The certificate and the key cannot be used"),
    ] {
        let output = serve(&home, chain, key).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("tls_invalid"), "{said}");
        assert!(said.contains(named), "{named}: {said}");
    }
}
