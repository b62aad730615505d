//! Finds programs. The caller names the folders to search: an agent's `PATH` may differ from ours.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The file that is run for a program, named by its path or found in the folders of `path`.
pub fn find(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|file| is_program(file));
    }
    // Without a name it would be the folder itself.
    let path = path.filter(|_| !name.is_empty())?;
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Path, mode: u32) {
        fs::write(file, "").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_that_can_be_run_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir_all(first.join("tool")).unwrap();
        fs::create_dir_all(&second).unwrap();
        write(&second.join("tool"), 0o755);
        write(&first.join("text"), 0o644);
        let path = std::env::join_paths([&first, &second]).unwrap();
        let found = |name: &str| find(name, Some(&path));
        assert_eq!(found("tool"), Some(second.join("tool")), "a folder is no program");
        assert_eq!(found("text"), None, "nor is what cannot be run");
        assert_eq!((found("other"), found(""), find("tool", None)), (None, None, None));
        let named = second.join("tool");
        assert_eq!(find(named.to_str().unwrap(), None), Some(named));
        assert_eq!(find(first.join("text").to_str().unwrap(), Some(&path)), None);
    }
}
