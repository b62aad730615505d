//! The cgroup of an execution: `piton-<execution>-<folder>` below agentctl's own, with one folder for each
//! part (the agent, a shell). Where there is no cgroup v2, or it is not ours to write to, there is
//! none, and [`Absent`] has the reason.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Mark;

/// Most folders that are looked through for an execution's cgroup.
const FOLDERS_MAX: usize = 20_000;

/// A folder of the cgroup file system that holds processes of one execution only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    folder: PathBuf,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cgroup: none ({reason})")]
pub struct Absent {
    pub reason: String,
}

fn absent(reason: impl Into<String>) -> Absent {
    Absent { reason: reason.into() }
}

fn refused(error: &io::Error) -> Absent {
    absent(match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "read-only".to_owned(),
        io::ErrorKind::PermissionDenied => "not permitted".to_owned(),
        _ => error.to_string(),
    })
}

fn name_of(mark: &Mark) -> String {
    format!("piton-{}-{}", mark.execution(), mark.folder())
}

/// Where cgroup v2 is mounted; in a hybrid set-up not at the usual place.
fn mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        (after.split(' ').next() == Some("cgroup2")).then(|| PathBuf::from(point))
    })
}

/// The caller's own cgroup.
pub fn own() -> Result<Cgroup, Absent> {
    let root = mount().ok_or_else(|| absent("no cgroup v2"))?;
    let lines = fs::read_to_string("/proc/self/cgroup").map_err(|error| refused(&error))?;
    let path = lines.lines().find_map(|line| line.strip_prefix("0::"));
    let path = path.ok_or_else(|| absent("no cgroup v2"))?;
    if path.split('/').any(|part| part == "..") {
        return Err(absent("outside this namespace"));
    }
    let folder = root.join(path.trim_start_matches('/'));
    if folder.join("cgroup.procs").is_file() {
        Ok(Cgroup { folder })
    } else {
        Err(absent("not mounted"))
    }
}

/// The cgroups of an execution, wherever its agentctl was.
pub fn locate(mark: &Mark) -> Vec<Cgroup> {
    let Some(root) = mount() else { return Vec::new() };
    let name = name_of(mark);
    let mut found = Vec::new();
    let mut ahead = vec![root];
    let mut looked = 0;
    while let Some(folder) = ahead.pop() {
        looked += 1;
        if looked > FOLDERS_MAX {
            break;
        }
        for below in folders(&folder) {
            if below.file_name().is_some_and(|is| is == name.as_str()) {
                found.push(Cgroup { folder: below });
            } else {
                ahead.push(below);
            }
        }
    }
    found
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let folders =
        entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

impl Cgroup {
    /// Makes the execution's cgroup below `own`.
    pub fn make(own: &Cgroup, mark: &Mark) -> Result<Cgroup, Absent> {
        own.below(&name_of(mark))
    }

    /// Makes a folder for one part of the execution.
    pub fn below(&self, name: &str) -> Result<Cgroup, Absent> {
        let folder = self.folder.join(name);
        match fs::create_dir(&folder) {
            Ok(()) => Ok(Cgroup { folder }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Cgroup { folder }),
            Err(error) => Err(refused(&error)),
        }
    }

    pub fn name(&self) -> String {
        self.folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The folder of a part, whether or not it exists.
    pub fn part(&self, name: &str) -> Cgroup {
        Cgroup { folder: self.folder.join(name) }
    }

    /// The parts that have a folder.
    pub fn parts(&self) -> Vec<(String, Cgroup)> {
        let named = folders(&self.folder).into_iter().filter_map(|folder| {
            Some((folder.file_name()?.to_str()?.to_owned(), Cgroup { folder }))
        });
        named.collect()
    }

    /// Moves the caller, with all its threads, into this cgroup: what it starts is born inside.
    pub fn enter(&self) -> Result<(), Absent> {
        fs::write(self.folder.join("cgroup.procs"), "0").map_err(|error| refused(&error))
    }

    /// All processes inside, also in cgroups that they made themselves.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        let mut ahead = vec![self.folder.clone()];
        while let Some(folder) = ahead.pop() {
            let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            // What is in another pid namespace is listed as 0.
            pids.extend(
                listed.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid > 0),
            );
            ahead.extend(folders(&folder));
        }
        pids
    }

    /// Kills all inside at once, so that no fork escapes; not if the caller is inside.
    pub fn kill(&self) {
        if !self.pids().contains(&std::process::id()) {
            let _ = fs::write(self.folder.join("cgroup.kill"), "1");
        }
    }

    /// Removes the folder; one that still holds processes stays.
    pub fn remove(&self) {
        for below in folders(&self.folder) {
            Cgroup { folder: below }.remove();
        }
        let _ = fs::remove_dir(&self.folder);
    }

    pub fn exists(&self) -> bool {
        self.folder.is_dir()
    }
}
