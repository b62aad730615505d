//! What others could change is neither executed nor believed, and what Piton makes is its owner's
//! alone, whatever the umask is.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::server::world::World;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// The data folder, its folder of programs, its folder of executions and its store are refused by
/// every command when others can write to them, before a planted server is asked or a planted
/// program executed.
#[test]
pub(crate) fn a_data_folder_that_others_can_write_to_is_refused() {
    let mut world = World::new();
    world.session();
    world.end();
    world.kill_agentctls();
    let data = world.data();
    for name in ["", "bin", "run", "boots", "store.sqlite3"] {
        let path = if name.is_empty() { data.clone() } else { data.join(name) };
        let before = mode(&path);
        for exposed in [before | 0o020, before | 0o002] {
            set_mode(&path, exposed);
            for command in [
                &["status"] as &[&str],
                &["chat", "--print", "hello"],
                &["sessions", "list"],
                &["tasks", "list"],
                &["verify"],
                // The last: it would not end if it were not refused.
                &["serve", "--listen", "127.0.0.1:0"],
            ] {
                assert_eq!(
                    world.refused(command),
                    "file_permissions",
                    "{name} {exposed:o} {command:?}"
                );
            }
        }
        set_mode(&path, before);
    }
    world.start();
}

/// Everything in a data folder, links not followed.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            walk(&path, found);
        }
        found.push(path);
    }
}

fn git(folder: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]).args(args);
    assert!(command.current_dir(folder).stdout(Stdio::null()).status().unwrap().success());
}

/// A server, an agent, a shell and a worktree under a umask that forbids nothing: files are 0600
/// and folders 0700. Two exceptions: what lies in a workspace is the user's, and a program is 0700,
/// or the mode of the installed file that it is a link to.
#[test]
pub(crate) fn files_are_their_owners_alone_whatever_the_umask_is() {
    let mut world = World::not_started();
    let repo = world.folder.path().join("repo");
    fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "--quiet", "--initial-branch=main"]);
    git(&repo, &["commit", "--quiet", "--allow-empty", "-m", "Begin"]);
    world.start_under_umask("000");
    let session = world.session();
    world.prompt(&session, "write note.txt hello");
    world.when(&session, |status| status["last_outcome"] == "completed");
    world.post(&format!("/api/v1/sessions/{session}/shells"), &json!({})).good();
    let made = world.post("/api/v1/sessions", &json!({"repo": repo})).good();
    let in_worktree = made["session_id"].as_str().unwrap().to_owned();
    world.adopt(&in_worktree);
    world.when(&in_worktree, |status| status["status"] == "idle");
    let data = world.data();
    let mut found = Vec::new();
    let look = |found: &mut Vec<PathBuf>| {
        found.clear();
        walk(&data, found);
        let wrong = found.iter().filter_map(|path| wrong(&data, path));
        assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
    };
    look(&mut found);
    // While all this was there.
    for name in ["anchors.sqlite3", "anchors.sqlite3-wal", "store.sqlite3-wal", "run/server.json"] {
        assert!(found.contains(&data.join(name)), "{name}: {found:?}");
    }
    for ending in ["/socket", "/session", "/lock", "/agentctl.log", ".sock", ".seg"] {
        let is_there = found.iter().any(|path| path.to_str().unwrap().ends_with(ending));
        assert!(is_there, "{ending}: {found:?}");
    }
    assert!(found.iter().any(|path| path.parent() == Some(&data.join("bin"))), "{found:?}");
    world.kill();
    world.kill_agentctls();
    look(&mut found);
    world.start_under_umask("000");
    world.status(&session);
    look(&mut found);
}

/// What is wrong with a file's mode.
fn wrong(data: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(data).unwrap();
    let parts: Vec<_> = below.iter().map(|part| part.to_str().unwrap()).collect();
    let kind = fs::symlink_metadata(path).unwrap().file_type();
    let wanted: &[u32] = match parts.as_slice() {
        // Git creates a worktree, in a folder that no other user can enter.
        ["worktrees", _, ..] | ["workspaces", _, _, ..] => return None,
        ["bin", _] => &[0o700, 0o755],
        _ if kind.is_dir() => &[0o700],
        _ if kind.is_file() || kind.is_socket() => &[0o600],
        _ => return Some(format!("{} is neither file nor folder", below.display())),
    };
    let mode = mode(path);
    (!wanted.contains(&mode)).then(|| format!("{mode:03o} {}", below.display()))
}
