//! The steps of a conversion on disk. Each is durable when its function returns, and each may be the
//! last that happens.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_core::Code;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::stores::{self, Kind};

/// Says that a conversion was begun, and what to do with what it left.
const NOTE: &str = "convert.json";
/// A file that gets its own name when it is whole.
const NEW: &str = "convert.new";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) from: Kind,
    pub(super) to: Kind,
    /// The folder for the old store's files.
    pub(super) old: String,
}

/// The data folder.
#[derive(Debug)]
pub(super) struct Folder<'a> {
    data: &'a Path,
}

impl<'a> Folder<'a> {
    pub(super) fn new(data: &'a Path) -> Self {
        Self { data }
    }

    /// Says which store is in charge.
    pub(super) fn name(&self, kind: Kind) -> Result<()> {
        self.replace(stores::MARKER, &format!("{}\n", kind.as_str()))
    }

    pub(super) fn note(&self) -> Result<Option<Note>> {
        let path = self.data.join(NOTE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(&path, e)),
        };
        let note = serde_json::from_str(&text).map_err(|e| failed(&path, e.into()))?;
        Ok(Some(note))
    }

    pub(super) fn write_note(&self, note: &Note) -> Result<()> {
        let text = serde_json::to_string(note).map_err(|e| failed(self.data, e.into()))?;
        self.replace(NOTE, &text)
    }

    pub(super) fn forget_note(&self) -> Result<()> {
        let path = self.data.join(NOTE);
        fs::remove_file(&path).map_err(|e| failed(&path, e))?;
        sync(self.data)
    }

    /// Written beside, flushed, renamed, and the name flushed: the old text or the new one, never less.
    fn replace(&self, name: &str, text: &str) -> Result<()> {
        let (new, path) = (self.data.join(NEW), self.data.join(name));
        let write = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|e| failed(&path, e))?;
        sync(self.data)
    }

    /// The names of a store's files in the folder.
    fn all_of(&self, kind: Kind) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.data).map_err(|e| failed(self.data, e))? {
            let name = entry.map_err(|e| failed(self.data, e))?.file_name();
            names.extend(name.into_string().ok().filter(|name| kind.owns(name)));
        }
        names.sort();
        Ok(names)
    }

    /// Refuses if the folder has files of this kind of store: no note says that a conversion left
    /// them, so they may be the user's.
    pub(super) fn refuse_all_of(&self, kind: Kind) -> Result<()> {
        let names = self.all_of(kind)?;
        if names.is_empty() {
            return Ok(());
        }
        let message = format!(
            "The data folder {} has files of a {} store already: {}",
            self.data.display(),
            kind.as_str(),
            names.join(", ")
        );
        Err(Error::new(Code::StoreNotEmpty, message).with_hint("Move them away, and try again."))
    }

    /// Removes a store that was never in charge.
    pub(super) fn remove_all_of(&self, kind: Kind) -> Result<()> {
        for name in self.all_of(kind)? {
            let path = self.data.join(name);
            let is_folder = fs::symlink_metadata(&path).map_err(|e| failed(&path, e))?.is_dir();
            let removed =
                if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|e| failed(&path, e))?;
        }
        sync(self.data)
    }

    /// A name that nothing in the folder has.
    pub(super) fn free_name(&self, wish: &str) -> Result<String> {
        let mut name = wish.to_owned();
        for number in 2_u32.. {
            let path = self.data.join(&name);
            match fs::symlink_metadata(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => break,
                Err(e) => return Err(failed(&path, e)),
                Ok(_) => name = format!("{wish}-{number}"),
            }
        }
        Ok(name)
    }

    /// Moves the files of the store that is no longer in charge into a folder of their own. What an
    /// earlier attempt moved is there already.
    pub(super) fn move_old(&self, kind: Kind, to: &str) -> Result<()> {
        let folder: PathBuf = self.data.join(to);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&folder, e)),
            _ => sync(self.data)?,
        }
        for name in self.all_of(kind)? {
            let path = self.data.join(&name);
            fs::rename(&path, folder.join(&name)).map_err(|e| failed(&path, e))?;
            failpoint("moving");
        }
        // There before gone: the new names are durable before the old ones are lost.
        sync(&folder)?;
        sync(self.data)
    }
}

fn sync(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| failed(folder, e))
}

fn failed(path: &Path, e: io::Error) -> Error {
    let source: piton_store::Cause = Arc::new(e);
    piton_store::Error::Unreadable { path: path.to_owned(), source: Some(source) }.into()
}

/// Ends the process here, as a crash would, if a test asks for it.
pub(super) fn failpoint(name: &str) {
    #[cfg(debug_assertions)]
    if std::env::var("PITON_TEST_ABORT_AT").is_ok_and(|asked| asked == name) {
        std::process::abort();
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}
