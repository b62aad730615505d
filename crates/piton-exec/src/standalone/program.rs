//! agentctl runs from a copy of the program that is never overwritten: an upgrade of Piton must not
//! change the program of a running agentctl. Copies that nothing runs from are removed.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_core::file_permissions::Exposure;
use tokio::sync::Mutex;

use super::paths::ExecutionFolder;
use crate::executor::{Error, Result};
use crate::leftovers::proc;
use crate::private;

/// One copy at a time: the others find it made.
static COPYING: Mutex<()> = Mutex::const_new(());
const PREFIX: &str = "piton-";
/// A copy that is being made.
const SUFFIX_NEW: &str = ".new";
/// One that is still being made after so long was left behind.
const NEW_MAX: Duration = Duration::from_hours(1);

/// Like [`versioned`], which may take as long as a copy does.
pub(super) async fn prepare(data: &Path, program: &Path) -> Result<PathBuf> {
    let _copying = COPYING.lock().await;
    let (folder, source) = (data.to_owned(), program.to_owned());
    let made = tokio::task::spawn_blocking(move || versioned(&folder, &source)).await;
    let cut_off = |e| Error::Program { path: program.to_owned(), source: io::Error::other(e) };
    made.unwrap_or_else(|e| Err(cut_off(e)))
}

/// Removes the copies that nothing runs from, but for that of `program`.
pub(super) async fn tidy(data: &Path, program: &Path) -> Result<()> {
    let _copying = COPYING.lock().await;
    let (folder, source) = (data.to_owned(), program.to_owned());
    let done = tokio::task::spawn_blocking(move || tidy_now(&folder, &source)).await;
    let cut_off = |e| Error::Program { path: program.to_owned(), source: io::Error::other(e) };
    done.unwrap_or_else(|e| Err(cut_off(e)))
}

fn tidy_now(data: &Path, program: &Path) -> Result<()> {
    let folder = data.join("bin");
    let names = match fs::read_dir(&folder) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(Error::Io { what: "read", path: folder, source }),
    };
    let next = path_of(data, program)?;
    // Listed before the look at what is used: a copy that is made meanwhile stays.
    let copies: Vec<_> = names.flatten().map(|name| name.path()).collect();
    let Some(used) = used(data)? else { return Ok(()) };
    for path in copies.into_iter().filter(|path| *path != next) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let is_ours = name.starts_with(PREFIX) && found.is_file();
        let is_being_made = name.ends_with(SUFFIX_NEW) && !is_old(&found);
        if is_ours && !is_being_made && !used.contains(&identity(&found)) {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Io { what: "remove", path, source: e });
                }
                _ => tracing::info!("{name} is removed: nothing runs from it"),
            }
        }
    }
    Ok(())
}

/// The files that processes run from, whatever they are called now. `None`: the
/// file of a living agentctl is unknown, so it could be any of them.
fn used(data: &Path) -> Result<Option<HashSet<(u64, u64)>>> {
    let run_from = |pid: u32| {
        let found = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
        Some(identity(&found))
    };
    let listed = proc::all();
    let listed =
        listed.map_err(|source| Error::Io { what: "read", path: "/proc".into(), source })?;
    let mut used: HashSet<_> = listed.iter().filter_map(|process| run_from(process.pid)).collect();
    for (_, execution) in ExecutionFolder::all(data)? {
        let place = ExecutionFolder::new(data, &execution);
        if !place.is_locked() {
            continue;
        }
        let pid = place.holder().and_then(|pid| u32::try_from(pid).ok());
        match pid.and_then(run_from) {
            Some(file) => used.insert(file),
            // It may have ended since.
            None if !place.is_locked() => continue,
            None => return Ok(None),
        };
    }
    Ok(Some(used))
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn is_old(file: &Metadata) -> bool {
    file.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > NEW_MAX))
}

/// The copy to start; made if there is none of this very program.
fn versioned(data: &Path, program: &Path) -> Result<PathBuf> {
    let path = path_of(data, program)?;
    let folder = data.join("bin");
    // A program that others could have put there, or can change, is never executed.
    refuse_exposed(data)?;
    refuse_exposed(&folder)?;
    if !is_there(&path)? {
        let failed = |source| Error::Io { what: "make", path: path.clone(), source };
        copy(program, &folder, &path).map_err(failed)?;
        is_there(&path)?;
    }
    Ok(path)
}

/// Refuses a folder that others own or can write to; one that does not exist is made private.
fn refuse_exposed(folder: &Path) -> Result<()> {
    match fs::metadata(folder) {
        Ok(found) if private::exposure(&found) == Exposure::Writable => {
            Err(Error::Exposed { path: folder.to_owned() })
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::Io { what: "read", path: folder.to_owned(), source: e })
        }
        _ => Ok(()),
    }
}

/// Whether the copy exists; refuses one that others own or can write to.
fn is_there(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found)
            if found.is_file()
                && private::permissions(&found).is_safe_program(private::our_uid()) =>
        {
            Ok(true)
        }
        Ok(_) => Err(Error::Exposed { path: path.to_owned() }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::Io { what: "read", path: path.to_owned(), source }),
    }
}

/// Where the copy of this very program is, or would be.
fn path_of(data: &Path, program: &Path) -> Result<PathBuf> {
    let missing = |source| Error::Program { path: program.to_owned(), source };
    let found = fs::metadata(program).map_err(missing)?;
    let mut hasher = blake3::Hasher::new();
    for part in [found.len().cast_signed(), found.mtime(), found.mtime_nsec()] {
        hasher.update(&part.to_le_bytes());
    }
    let hash = hasher.finalize().to_hex();
    let name = format!("{PREFIX}{}-{}", env!("CARGO_PKG_VERSION"), &hash[..16]);
    Ok(data.join("bin").join(name))
}

fn copy(program: &Path, folder: &Path, path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
    // A link costs nothing and keeps the file when its other name goes. Not every file system and
    // not every owner allows it, and a program that others can change would stay theirs to change.
    if private::permissions(&fs::metadata(program)?).is_safe_program(private::our_uid()) {
        match fs::hard_link(program, path) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(_) => {}
        }
    }
    copy_whole(program, path)
}

fn copy_whole(program: &Path, path: &Path) -> io::Result<()> {
    // Under a name of its own until it is whole: two servers may do this at once.
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let new = path.with_extension(format!("{}{SUFFIX_NEW}", hex::encode(random)));
    let write = || {
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).mode(0o700).open(&new)?;
        io::copy(&mut File::open(program)?, &mut file)?;
        file.sync_all()?;
        // Closed first: a program that is open for writing cannot be started.
        drop(file);
        fs::rename(&new, path)
    };
    let copied = write();
    if copied.is_err() {
        let _ = fs::remove_file(&new);
    }
    copied
}

#[cfg(test)]
mod tests {
    use piton_core::Code;

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
        assert_eq!(gone.code(), Code::AgentctlMissing);
    }
}
