//! The system around Piton: other programs, systemd, containers, mounts.

use std::fs;
use std::path::Path;

use crate::programs::{program, said};

/// What systemd would do to agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Systemd {
    /// The service that the server, or else this process, belongs to.
    pub(super) unit: Option<String>,
    /// Of that service: `control-group`, `mixed`, `process`, `none`.
    pub(super) kill_mode: Option<String>,
    /// Agents can be put into a scope of their own.
    pub(super) has_scopes: bool,
    /// The user's own systemd keeps running after the last logout; `None` if that is unknown.
    pub(super) lingers: Option<bool>,
    pub(super) is_root: bool,
}

/// `None` where there is no systemd.
pub(super) fn systemd(server: Option<u32>) -> Option<Systemd> {
    if !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let process = server.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let cgroup = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let unit = unit_of(&cgroup);
    let kill_mode = unit.as_ref().and_then(|unit| {
        let mut arguments = vec!["show", "--value", "-p", "KillMode", unit.name.as_str()];
        if unit.is_users {
            arguments.insert(0, "--user");
        }
        said("systemctl", &arguments)
    });
    let uid = rustix::process::geteuid();
    let user = uid.as_raw().to_string();
    let lingers = said("loginctl", &["show-user", &user, "--value", "-p", "Linger"])
        .map(|answer| answer == "yes")
        .or_else(lingers_by_file);
    Some(Systemd {
        unit: unit.map(|unit| unit.name),
        kill_mode,
        has_scopes: program("systemd-run").is_some(),
        lingers,
        is_root: uid.is_root(),
    })
}

/// systemd keeps a file for everybody who lingers.
fn lingers_by_file() -> Option<bool> {
    let folder = Path::new("/var/lib/systemd/linger");
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok()?;
    folder.is_dir().then(|| folder.join(user).exists())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) name: String,
    /// It belongs to the user's own systemd.
    pub(super) is_users: bool,
}

/// The service that a process belongs to, of what `/proc/PID/cgroup` says. The user's systemd itself
/// is none: it is what services of the user are in.
pub(super) fn unit_of(cgroup: &str) -> Option<Unit> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
    let path = path.filter(|path| *path != "/").or_else(|| {
        cgroup.lines().find_map(|line| line.split_once(":name=systemd:").map(|(_, path)| path))
    })?;
    let parts: Vec<&str> = path.split('/').collect();
    let is_manager = |part: &str| part.starts_with("user@");
    let is_users = parts.iter().any(|part| is_manager(part));
    let unit = parts.iter().rev().find(|part| part.ends_with(".service") && !is_manager(part))?;
    Some(Unit { name: (*unit).to_owned(), is_users })
}

/// What says that this is a container.
pub(super) fn container() -> Option<String> {
    for file in ["/.dockerenv", "/run/.containerenv"] {
        if Path::new(file).exists() {
            return Some(file.to_owned());
        }
    }
    let cgroup = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    container_in(&cgroup).map(|word| format!("the control group of process 1 ({word})"))
}

pub(super) fn container_in(cgroup: &str) -> Option<&'static str> {
    let words = ["docker", "kubepods", "containerd", "libpod", "lxc"];
    words.into_iter().find(|word| cgroup.contains(word))
}

/// The kind of the file system that a path is on, of what `/proc/self/mountinfo` says: that of the
/// longest mount point above it, and of the last that was mounted there.
pub(super) fn kind_of_mount(mounts: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let (Some(point), Some(kind)) = (before.split(' ').nth(4), after.split(' ').next()) else {
            continue;
        };
        let point = unescaped(point);
        let is_longest = best.as_ref().is_none_or(|(length, _)| point.len() >= *length);
        if path.starts_with(&point) && is_longest {
            best = Some((point.len(), kind.to_owned()));
        }
    }
    best.map(|(_, kind)| kind)
}

/// Blanks, tabs, line ends and backslashes are written as octal numbers.
fn unescaped(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_the_innermost_service() {
        let unit = |cgroup: &str| unit_of(cgroup).map(|unit| (unit.name, unit.is_users));
        let named = |name: &str, users| Some((name.to_owned(), users));
        assert_eq!(unit("0::/system.slice/piton.service\n"), named("piton.service", false));
        let users = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/piton.service\n";
        assert_eq!(unit(users), named("piton.service", true));
        // The user's own systemd is not a service that one would stop.
        let scope = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-u3.scope\n";
        assert_eq!(unit(scope), None);
        assert_eq!(unit("0::/user.slice/user-1000.slice/session-2.scope\n"), None);
        let older = "4:memory:/x\n1:name=systemd:/system.slice/a.service\n0::/\n";
        assert_eq!(unit(older), named("a.service", false));
        assert_eq!(unit(""), None);
    }

    #[test]
    fn a_container_is_known_by_its_control_group() {
        assert_eq!(container_in("0::/docker/0123\n"), Some("docker"));
        assert_eq!(container_in("1:cpu:/kubepods/besteffort/x\n"), Some("kubepods"));
        assert_eq!(container_in("0::/init.scope\n"), None);
    }

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "\
            22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            23 22 0:20 / /data rw shared:1 - nfs4 host:/data rw\n\
            24 23 0:21 / /data/a\\040b rw - xfs /dev/sdb rw\n\
            25 22 0:22 / /datas rw - btrfs /dev/sdc rw\n\
            26 23 0:23 / /data rw - zfs pool rw\n";
        let kind = |path: &str| kind_of_mount(mounts, Path::new(path));
        assert_eq!(kind("/srv/piton").as_deref(), Some("ext4"));
        assert_eq!(kind("/data/x").as_deref(), Some("zfs"), "what was mounted last hides the rest");
        assert_eq!(kind("/data/a b/c").as_deref(), Some("xfs"));
        assert_eq!(kind("/datas").as_deref(), Some("btrfs"));
        assert_eq!(kind_of_mount("nonsense\n", Path::new("/")), None);
    }
}
