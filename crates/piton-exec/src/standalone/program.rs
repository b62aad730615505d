//! agentctl runs from a copy of the program that nobody overwrites: an upgrade of Piton must not
//! pull the ground from under what runs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use tokio::sync::Mutex;

use crate::executor::{Error, Result};

/// One copy at a time: the others find it made.
static COPYING: Mutex<()> = Mutex::const_new(());

/// Like [`versioned`], which may take as long as a copy does.
pub(super) async fn prepare(data: &Path, program: &Path) -> Result<PathBuf> {
    let _copying = COPYING.lock().await;
    let (folder, source) = (data.to_owned(), program.to_owned());
    let made = tokio::task::spawn_blocking(move || versioned(&folder, &source)).await;
    let cut_off = |e| Error::Program { path: program.to_owned(), source: io::Error::other(e) };
    made.unwrap_or_else(|e| Err(cut_off(e)))
}

/// The copy to start; made if there is none of this very program.
fn versioned(data: &Path, program: &Path) -> Result<PathBuf> {
    let missing = |source| Error::Program { path: program.to_owned(), source };
    let found = fs::metadata(program).map_err(missing)?;
    let mut hasher = blake3::Hasher::new();
    for part in [found.len().cast_signed(), found.mtime(), found.mtime_nsec()] {
        hasher.update(&part.to_le_bytes());
    }
    let hash = hasher.finalize().to_hex();
    let folder = data.join("bin");
    let path = folder.join(format!("piton-{}-{}", env!("CARGO_PKG_VERSION"), &hash[..16]));
    if path.exists() {
        return Ok(path);
    }
    copy(program, &folder, &path).map_err(|source| Error::Io {
        what: "make",
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

fn copy(program: &Path, folder: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    // A link costs nothing and keeps the file when its other name goes. Not every file system and
    // not every owner allows it.
    match fs::hard_link(program, path) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(_) => {}
    }
    copy_whole(program, path)
}

fn copy_whole(program: &Path, path: &Path) -> io::Result<()> {
    // Under a name of its own until it is whole: two servers may do this at once.
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let new = path.with_extension(format!("{}.new", hex::encode(random)));
    let copied = fs::copy(program, &new)
        .and_then(|_| fs::File::open(&new)?.sync_all())
        .and_then(|()| fs::rename(&new, path));
    if copied.is_err() {
        let _ = fs::remove_file(&new);
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_may_copy_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let (program, path) = (temp.path().join("piton"), temp.path().join("piton-1-x"));
        fs::write(&program, vec![7; 1_000_000]).unwrap();
        std::thread::scope(|scope| {
            let copying: Vec<_> =
                (0..8).map(|_| scope.spawn(|| copy_whole(&program, &path))).collect();
            for one in copying {
                one.join().unwrap().unwrap();
            }
        });
        assert_eq!(fs::read(&path).unwrap(), fs::read(&program).unwrap());
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 2);
    }

    #[test]
    fn another_program_is_another_copy_and_the_same_one_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let program = temp.path().join("piton");
        fs::write(&program, "one").unwrap();
        let first = versioned(temp.path(), &program).unwrap();
        assert_eq!(versioned(temp.path(), &program).unwrap(), first);
        fs::remove_file(&program).unwrap();
        fs::write(&program, "the next").unwrap();
        let second = versioned(temp.path(), &program).unwrap();
        assert_ne!(first, second);
        assert_eq!(fs::read_to_string(first).unwrap(), "one");
        assert_eq!(fs::read_to_string(second).unwrap(), "the next");
        let gone = versioned(temp.path(), &temp.path().join("none")).unwrap_err();
        assert_eq!(gone.code(), "agentctl_missing");
    }
}
