//! Bundles as files: whole and flushed under their name, or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use piton_core::Timestamp;
use piton_core::id::SessionId;

use super::{Contents, Error, Settings, check, export, import};
use crate::contract::Store;
use crate::error::Result;
use crate::folder;
use crate::keys::SecretText;

/// A bundle that was written and read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFile {
    pub path: PathBuf,
    pub contents: Contents,
    /// BLAKE3 of the file.
    pub digest: blake3::Hash,
}

/// Makes a folder for bundles, readable by its owner only.
pub fn make_folder(path: &Path) -> Result<()> {
    folder::create(path)
}

/// Writes a session into a file, readable by its owner only, and reads it back before it gets its
/// name. An older file of that name is replaced only then.
pub async fn write_file(
    store: &dyn Store,
    session: &SessionId,
    path: &Path,
    settings: &Settings,
) -> Result<BundleFile> {
    let beside = beside(path);
    let written = write_beside(store, session, &beside, settings).await;
    let named = written.and_then(|(contents, digest)| {
        fs::rename(&beside, path).map_err(Error::writing)?;
        folder::sync(parent(path))?;
        Ok(BundleFile { path: path.to_owned(), contents, digest })
    });
    if named.is_err() {
        // What could not be finished is of no use; that it is left behind would be worse to report
        // than why it failed.
        let _ = fs::remove_file(&beside);
    }
    named
}

async fn write_beside(
    store: &dyn Store,
    session: &SessionId,
    beside: &Path,
    settings: &Settings,
) -> Result<(Contents, blake3::Hash)> {
    match fs::remove_file(beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::writing(e).into()),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(beside);
    let mut to = BufWriter::new(file.map_err(Error::writing)?);
    let contents = export(store, session, &mut to, settings).await?;
    to.flush().map_err(Error::writing)?;
    to.get_ref().sync_all().map_err(Error::writing)?;
    let read = check(open(beside)?, settings.passphrase.as_ref())?;
    if read != contents {
        return Err(Error::Damaged { at: 0, why: "it does not read back as written" }.into());
    }
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut open(beside)?, &mut hasher).map_err(reading)?;
    Ok((contents, hasher.finalize()))
}

pub async fn import_file(
    store: &dyn Store,
    path: &Path,
    passphrase: Option<&SecretText>,
    now: Timestamp,
) -> Result<Contents> {
    import(store, open(path)?, passphrase, now).await
}

fn open(path: &Path) -> Result<BufReader<File>> {
    Ok(BufReader::new(File::open(path).map_err(reading)?))
}

fn reading(source: io::Error) -> Error {
    Error::Io { doing: "read", source: std::sync::Arc::new(source) }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}
