//! Where things lie in the data folder.

use std::path::{Path, PathBuf};

use piton_core::chain;
use piton_core::id::SessionId;

const LOG: &str = "messages.jsonl";

/// The names of one store's files.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) data: PathBuf,
    pub(crate) sessions: PathBuf,
    pub(crate) blobs: PathBuf,
}

/// What a file in the folder of sessions is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Log,
    /// Cut off from a log.
    Torn(u64),
    /// A log that is to be removed.
    Deleting,
    /// Made under another name, and never got its own.
    Unfinished,
    /// Says how far a log had come.
    Anchor,
    Snapshot,
    Key,
    Other,
}

impl Paths {
    pub(crate) fn new(data: &Path) -> Self {
        Self { data: data.to_owned(), sessions: data.join("sessions"), blobs: data.join("blobs") }
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.data.join("files.lock")
    }

    pub(crate) fn format(&self) -> PathBuf {
        self.data.join("files.json")
    }

    pub(crate) fn readme(&self) -> PathBuf {
        self.data.join("README")
    }

    /// Blobs that may have no references any more.
    pub(crate) fn sweep(&self) -> PathBuf {
        self.data.join("sweep.json")
    }

    fn of(&self, session: &SessionId, suffix: &str) -> PathBuf {
        // An id's alphabet has no dot and no slash.
        self.sessions.join(format!("{session}.{suffix}"))
    }

    pub(crate) fn log(&self, session: &SessionId) -> PathBuf {
        self.of(session, LOG)
    }

    pub(crate) fn key(&self, session: &SessionId) -> PathBuf {
        self.of(session, "key")
    }

    pub(crate) fn snapshot(&self, session: &SessionId) -> PathBuf {
        self.of(session, "json")
    }

    pub(crate) fn tokens(&self, session: &SessionId) -> PathBuf {
        self.of(session, "tokens.json")
    }

    pub(crate) fn anchor(&self, session: &SessionId) -> PathBuf {
        self.of(session, "anchor")
    }

    pub(crate) fn deleting(&self, session: &SessionId) -> PathBuf {
        self.of(session, "deleting")
    }

    pub(crate) fn torn(&self, session: &SessionId, number: u64) -> PathBuf {
        self.of(session, &format!("{LOG}.torn-{number}"))
    }

    pub(crate) fn blob(&self, address: &chain::Hash) -> (PathBuf, [PathBuf; 2]) {
        let name = hex::encode(address);
        let folder = self.blobs.join(&name[..2]);
        let files = [folder.join(format!("{name}.json")), folder.join(format!("{name}.json.zst"))];
        (folder, files)
    }
}

const UNFINISHED: &str = ".new";

/// A file is made under this name before it gets its own.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

pub(crate) fn is_unfinished(name: &str) -> bool {
    name.ends_with(UNFINISHED)
}

/// Whose file it is, and which.
pub(crate) fn kind(name: &str) -> Option<(SessionId, Kind)> {
    let (id, suffix) = name.split_once('.')?;
    let kind = match suffix {
        LOG => Kind::Log,
        "deleting" => Kind::Deleting,
        "anchor" => Kind::Anchor,
        "json" => Kind::Snapshot,
        "key" => Kind::Key,
        _ if is_unfinished(suffix) => Kind::Unfinished,
        _ => match suffix.strip_prefix(LOG).and_then(|rest| rest.strip_prefix(".torn-")) {
            Some(number) => Kind::Torn(number.parse().ok()?),
            None => Kind::Other,
        },
    };
    Some((id.parse().ok()?, kind))
}
