//! Files, git and shells, with or without an agent.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::Method;
use hyper::body::Bytes;
use piton_core::interruption_summary::{PathState, Stat};
use piton_core::limits::CHANGED_FILES_MAX;
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::stream::broken;
use super::{ASK_WAIT, Client, ClientError, within};
use crate::protocol::PROTOCOL_TRUTH;
use crate::protocol::workspace::{
    GitCommit, GitDiff, GitStatus, ListedShell, Listing, NewShell, Shell, ShellControl, ShellEnded,
    Truth, TruthRequest,
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

    /// What the workspace says of itself, in one round trip. An agentctl of an earlier version is asked
    /// for status and patches instead, which say less.
    pub async fn truth(&self, request: &TruthRequest) -> Result<Truth, ClientError> {
        let protocol = self.version().await?;
        if protocol >= PROTOCOL_TRUTH {
            let body =
                serde_json::to_vec(request).map_err(|e| ClientError::Protocol(e.to_string()))?;
            let post = self.request(Method::POST, "/git/truth", protocol);
            return self.json(post, body.into(), WORK_WAIT).await;
        }
        let status = self.git_status().await?;
        if !status.repository {
            return Ok(Truth::default());
        }
        let (staged, unstaged) =
            (self.git_diff(true, None).await?, self.git_diff(false, None).await?);
        Ok(earlier_truth(request, status, &staged, &unstaged))
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

/// What status and patches say. A patch that was cut gives no count, and paths are known only if they
/// have changed.
fn earlier_truth(
    request: &TruthRequest,
    status: GitStatus,
    staged: &GitDiff,
    unstaged: &GitDiff,
) -> Truth {
    let is_whole = !staged.truncated && !unstaged.truncated;
    let stat = is_whole.then(|| count(&[&staged.diff, &unstaged.diff]));
    let is_changed = |path: &str| status.changed.iter().any(|change| change.path == path);
    let state = |path: &String| {
        let is_changed = is_changed(path.strip_prefix("./").unwrap_or(path));
        (path.clone(), if is_changed { PathState::Changed } else { PathState::Unknown })
    };
    let paths = request.paths.iter().map(state).collect();
    let files_max = request.files_max.unwrap_or(CHANGED_FILES_MAX);
    let more = status.changed.len().saturating_sub(files_max) as u64;
    Truth {
        repository: true,
        branch: status.branch,
        head: status.head,
        changed: status.changed.into_iter().take(files_max).collect(),
        more,
        stat,
        truncated: status.truncated || !is_whole,
        paths,
    }
}

/// Counts in patches; a file that is in both is one file.
fn count(diffs: &[&str]) -> Stat {
    let (mut stat, mut files) = (Stat::default(), BTreeSet::new());
    for line in diffs.iter().flat_map(|diff| {
        diff.lines().scan(false, |in_hunk, line| {
            *in_hunk = !line.starts_with("diff --git ") && (*in_hunk || line.starts_with("@@"));
            Some((*in_hunk, line))
        })
    }) {
        match line {
            (false, header) => {
                files.extend(header.strip_prefix("diff --git "));
            }
            (true, line) if line.starts_with('+') => stat.added += 1,
            (true, line) if line.starts_with('-') => stat.removed += 1,
            _ => {}
        }
    }
    stat.files = files.len() as u64;
    stat
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::workspace::GitChange;

    #[test]
    fn a_file_that_is_staged_and_edited_again_is_one_file() {
        let staged =
            "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-one\n+two\n+++ three\n x\n";
        let unstaged = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-two\n+four\n\
            diff --git a/b b/b\nnew file\n--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+y\n";
        assert_eq!(count(&[staged, unstaged]), Stat { files: 2, added: 4, removed: 2 });
        assert_eq!(count(&[]), Stat::default());
    }

    #[test]
    fn an_earlier_agentctl_says_what_it_knows() {
        let change = |path: &str| GitChange { status: " M".to_owned(), path: path.to_owned() };
        let status = GitStatus {
            repository: true,
            branch: Some("main".to_owned()),
            head: None,
            changed: vec![change("a"), change("b"), change("c")],
            truncated: false,
        };
        let request = TruthRequest { files_max: Some(2), paths: vec!["./c".into(), "d".into()] };
        let cut = GitDiff { diff: String::new(), truncated: true };
        let truth = earlier_truth(&request, status.clone(), &GitDiff::default(), &cut);
        assert_eq!((truth.changed.len(), truth.more, truth.stat), (2, 1, None));
        assert!(truth.truncated, "a patch was cut");
        let expected =
            [("./c".to_owned(), PathState::Changed), ("d".to_owned(), PathState::Unknown)];
        assert_eq!(truth.paths, expected);
        let whole = earlier_truth(&request, status, &GitDiff::default(), &GitDiff::default());
        assert_eq!((whole.truncated, whole.stat), (false, Some(Stat::default())));
    }
}
