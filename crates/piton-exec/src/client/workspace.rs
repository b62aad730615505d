//! Files, git and shells, with or without an agent.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::Method;
use hyper::body::Bytes;
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::stream::broken;
use super::{ASK_WAIT, Client, ClientError, within};
use crate::protocol::workspace::{
    GitCommit, GitDiff, GitStatus, ListedShell, Listing, NewShell, Shell, ShellControl, ShellEnded,
};

/// For what reads a disk, or runs git.
const WORK_WAIT: Duration = Duration::from_mins(1);
const TYPE_WAIT: Duration = Duration::from_secs(10);

/// What a query may hold without being escaped.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte)
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if is_plain(byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

impl Client {
    pub async fn read_file(&self, path: &str) -> Result<Bytes, ClientError> {
        let path = format!("/files?path={}", escape(path));
        let request = self.request(Method::GET, &path, self.version().await?);
        self.bytes(request, Bytes::new(), WORK_WAIT).await
    }

    pub async fn write_file(&self, path: &str, content: Bytes) -> Result<(), ClientError> {
        let path = format!("/files?path={}", escape(path));
        let request = self.request(Method::PUT, &path, self.version().await?);
        self.bytes(request, content, WORK_WAIT).await.map(drop)
    }

    pub async fn list(&self, path: &str) -> Result<Listing, ClientError> {
        self.get(&format!("/list?path={}", escape(path)), WORK_WAIT).await
    }

    pub async fn git_status(&self) -> Result<GitStatus, ClientError> {
        self.get("/git/status", WORK_WAIT).await
    }

    /// Of what is staged, or of what is not; of one path, or of all.
    pub async fn git_diff(&self, staged: bool, path: Option<&str>) -> Result<GitDiff, ClientError> {
        let path = path.map(|path| format!("&path={}", escape(path))).unwrap_or_default();
        self.get(&format!("/git/diff?staged={staged}{path}"), WORK_WAIT).await
    }

    pub async fn git_log(&self, limit: usize) -> Result<Vec<GitCommit>, ClientError> {
        self.get(&format!("/git/log?limit={limit}"), WORK_WAIT).await
    }

    pub async fn new_shell(&self, shell: &NewShell) -> Result<Shell, ClientError> {
        let body = serde_json::to_vec(shell).map_err(|e| ClientError::Protocol(e.to_string()))?;
        let request = self.request(Method::POST, "/shells", self.version().await?);
        self.json(request, body.into(), ASK_WAIT).await
    }

    pub async fn shells(&self) -> Result<Vec<ListedShell>, ClientError> {
        self.get("/shells", ASK_WAIT).await
    }

    pub async fn end_shell(&self, shell_id: &str) -> Result<(), ClientError> {
        let path = format!("/shells/{}", escape(shell_id));
        let request = self.request(Method::DELETE, &path, self.version().await?);
        self.bytes(request, Bytes::new(), WORK_WAIT).await.map(drop)
    }

    pub async fn attach_shell(&self, shell_id: &str) -> Result<ShellSocket, ClientError> {
        let path = format!("/shells/{}", escape(shell_id));
        let protocol = self.version().await?;
        let (sink, source) = self.web_socket(&path, protocol).await?.split();
        let screen = ShellScreen { source, ended: None };
        Ok(ShellSocket { screen, keyboard: ShellKeyboard { sink } })
    }
}

/// A shell's screen and keyboard.
#[derive(Debug)]
pub struct ShellSocket {
    screen: ShellScreen,
    keyboard: ShellKeyboard,
}

/// What a shell shows.
#[derive(Debug)]
pub struct ShellScreen {
    source: SplitStream<WebSocketStream<UnixStream>>,
    ended: Option<ShellEnded>,
}

/// What is typed into a shell.
#[derive(Debug)]
pub struct ShellKeyboard {
    sink: SplitSink<WebSocketStream<UnixStream>, Message>,
}

impl ShellSocket {
    /// For who must not stop reading while the shell does not.
    pub fn split(self) -> (ShellScreen, ShellKeyboard) {
        (self.screen, self.keyboard)
    }

    /// See [`ShellScreen::read`].
    pub async fn read(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.screen.read().await
    }

    /// How the shell ended, once it has.
    pub fn ended(&self) -> Option<&ShellEnded> {
        self.screen.ended()
    }

    pub async fn type_bytes(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.keyboard.type_bytes(bytes).await
    }

    pub async fn resize(&mut self, cols: u16, rows: u16) -> Result<(), ClientError> {
        self.keyboard.resize(cols, rows).await
    }
}

impl ShellScreen {
    /// What the shell writes; `None` when it has ended or the connection has
    /// ([`Self::ended`] knows which). May be dropped while it waits.
    pub async fn read(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.source.next().await {
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes)),
                Some(Ok(Message::Text(text))) => {
                    let ended = serde_json::from_str(&text);
                    self.ended = Some(ended.map_err(|e| ClientError::Protocol(e.to_string()))?);
                }
                Some(Ok(Message::Close(_))) | None => return Ok(None),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error)),
            }
        }
    }

    /// How the shell ended, once it has.
    pub fn ended(&self) -> Option<&ShellEnded> {
        self.ended.as_ref()
    }
}

impl ShellKeyboard {
    pub async fn type_bytes(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.send(Message::Binary(bytes)).await
    }

    pub async fn resize(&mut self, cols: u16, rows: u16) -> Result<(), ClientError> {
        let text = serde_json::to_string(&ShellControl::Resize { cols, rows });
        self.send(Message::text(text.map_err(|e| ClientError::Protocol(e.to_string()))?)).await
    }

    async fn send(&mut self, message: Message) -> Result<(), ClientError> {
        within(TYPE_WAIT, async { self.sink.send(message).await.map_err(broken) }).await
    }
}
