//! agentctl runs from a copy of the program that nobody overwrites: an upgrade of Piton must not
//! pull the ground from under what runs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::executor::{Error, Result};

/// The copy to start; made if there is none of this very program.
pub(super) fn versioned(data: &Path, program: &Path) -> Result<PathBuf> {
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
    // Under a name of its own until it is whole: two may do this at once.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    fs::copy(program, &new)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

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
