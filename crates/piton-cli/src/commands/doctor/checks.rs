//! What the facts mean: one line each, and what to do. Pure.

use piton_core::{Code, Timestamp};

use super::facts::{
    AgentFact, Executions, Facts, FileSystem, Folder, KeyFact, ServerFact, StoreFact,
};
use super::system::Systemd;
use crate::findings::{Finding, ok, problem, warning};

/// The kernel takes 107 bytes, macOS 103, and a socket is made under a name that is four longer.
const SOCKET_BYTES_MAX: usize = 99;
const MIB: u64 = 1024 * 1024;
const FREE_BYTES_MIN: u64 = 100 * MIB;
const FREE_BYTES_LOW: u64 = 1024 * MIB;
const OPEN_FILES_MIN: u64 = 256;
const OPEN_FILES_LOW: u64 = 1024;
/// 2026-01-01: a clock that shows an earlier time was never set.
const CLOCK_MIN_MS: i64 = 1_767_225_600_000;
/// How far the store may be ahead of the clock.
const AHEAD_SECONDS_MAX: u64 = 60;
/// First processes that reap what others leave.
const REAPERS: &[&str] = &[
    "systemd",
    "init",
    "launchd",
    "tini",
    "dumb-init",
    "docker-init",
    "catatonit",
    "s6-svscan",
    "runit",
    "openrc-init",
    "busybox",
];

pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![
        folder(facts),
        filesystem(&facts.filesystem),
        space(facts.free_bytes),
        store(facts),
        key(facts),
        server(facts),
        sockets(facts.socket_bytes),
        git(facts.git.as_deref()),
    ];
    findings.extend(agents(facts));
    findings.extend([
        executions(facts.executions, facts.server != ServerFact::None),
        systemd(facts.systemd.as_ref()),
        container(facts.container.as_deref(), facts.first_process.as_deref()),
        clock(facts.now, facts.written_at),
        open_files(facts.open_files_max),
    ]);
    findings
}

fn folder(facts: &Facts) -> Finding {
    const CHECK: &str = "data folder";
    let data = facts.data.display();
    match &facts.folder {
        Folder::Missing => {
            ok(CHECK, format!("{data} does not exist yet; the first session creates it"))
        }
        Folder::Unreadable { why } => problem(
            CHECK,
            format!("{data} cannot be read: {why}"),
            "Give yourself permission to read it, or name another data folder with --data.",
        ),
        Folder::Other => problem(
            CHECK,
            format!("{data} is not a folder"),
            "Move it away, or name another data folder with --data.",
        ),
        Folder::There { own: false, .. } => problem(
            CHECK,
            format!("{data} belongs to another user"),
            "Run Piton as its owner, or name another data folder with --data.",
        ),
        Folder::There { mode, .. } if mode & 0o022 != 0 => problem(
            CHECK,
            format!("other users can write to {data} ({mode:03o})"),
            format!("chmod 700 {data}"),
        ),
        Folder::There { mode, .. } if mode & 0o077 != 0 => warning(
            CHECK,
            format!("other users can read {data} ({mode:03o})"),
            format!("chmod 700 {data}"),
        ),
        Folder::There { .. } => ok(CHECK, format!("{data}; only you can read it")),
    }
}

fn filesystem(found: &FileSystem) -> Finding {
    const CHECK: &str = "file system";
    if let Some(why) = &found.refused {
        return problem(CHECK, why, Code::NetworkFilesystem.hint());
    }
    match &found.kind {
        Some(kind) if kind == "tmpfs" || kind == "ramfs" => warning(
            CHECK,
            format!("{kind}: its files are lost when the machine restarts"),
            "Put the data folder on a disk with --data.",
        ),
        Some(kind) => ok(CHECK, format!("{kind}, on this machine")),
        None => ok(CHECK, "on this machine"),
    }
}

fn space(free: Option<u64>) -> Finding {
    const CHECK: &str = "free space";
    let hint =
        "Free some space. On a full disk Piton accepts no new work; what it has stored stays.";
    let Some(free) = free else {
        return warning(
            CHECK,
            "The system does not report the free space",
            "Check it with `df -h`.",
        );
    };
    let says = format!("{} MiB", free / MIB);
    match free {
        ..FREE_BYTES_MIN => problem(CHECK, says, hint),
        FREE_BYTES_MIN..FREE_BYTES_LOW => warning(CHECK, says, hint),
        _ => ok(CHECK, says),
    }
}

fn store(facts: &Facts) -> Finding {
    const CHECK: &str = "store";
    let served = facts.server != ServerFact::None;
    match &facts.store {
        StoreFact::None { next } => {
            ok(CHECK, format!("none yet; the first session creates one of the kind {next}"))
        }
        StoreFact::Opens { kind } => ok(CHECK, format!("{kind}; it can be opened")),
        // One process at a time writes to plain files.
        StoreFact::Fails { code: Some(Code::StoreInUse), .. } if served => {
            ok(CHECK, "files; the server has it open")
        }
        StoreFact::Fails { code, why } => {
            let hint = code.map_or("`piton verify` may say more.", Code::hint);
            problem(CHECK, why, hint)
        }
    }
}

fn key(facts: &Facts) -> Finding {
    const CHECK: &str = "key";
    let KeyFact { setting, file_mode, in_environment, is_needed } = facts.key;
    if !is_needed {
        return ok(CHECK, "not needed: a store of plain files is not encrypted");
    }
    if let Some(mode) = file_mode {
        if mode & 0o077 != 0 {
            return problem(
                CHECK,
                format!("other users can read the key file ({mode:03o})"),
                Code::KeyPermissions.hint(),
            );
        }
        return ok(CHECK, "in a file beside the store; keep a copy elsewhere");
    }
    match &facts.store {
        StoreFact::Fails { code: Some(Code::KeyMissing | Code::KeyWrong), why } => {
            problem(CHECK, why, Code::KeyMissing.hint())
        }
        StoreFact::Opens { .. } if in_environment => ok(CHECK, "in $PITON_KEY"),
        StoreFact::Opens { .. } => ok(CHECK, "in the keychain"),
        StoreFact::None { .. } | StoreFact::Fails { .. } if in_environment => {
            ok(CHECK, format!("for a new store from: {setting} ($PITON_KEY is set)"))
        }
        StoreFact::None { .. } | StoreFact::Fails { .. } => {
            ok(CHECK, format!("for a new store from: {setting}"))
        }
    }
}

fn server(facts: &Facts) -> Finding {
    const CHECK: &str = "server";
    match &facts.server {
        ServerFact::None => ok(CHECK, "not running; `piton chat` starts one"),
        ServerFact::Answers { address, pid, version } if *version != facts.own_version => warning(
            CHECK,
            format!(
                "the server at {address} (pid {pid}) has version {version}, this program {}",
                facts.own_version
            ),
            "Stop it with `piton stop`: agents keep running, and the next command starts the new version.",
        ),
        ServerFact::Answers { address, pid, version } => {
            ok(CHECK, format!("{version} at {address} (pid {pid})"))
        }
        ServerFact::Silent { address, pid, why } => problem(
            CHECK,
            format!("the server at {address} (pid {pid}) runs but does not answer: {why}"),
            "Read server.log in the data folder, then run `piton stop`: agents keep running.",
        ),
    }
}

fn sockets((beside, temp): (usize, usize)) -> Finding {
    const CHECK: &str = "sockets";
    if beside <= SOCKET_BYTES_MAX {
        return ok(CHECK, "in the data folder");
    }
    let says = format!("a socket's path in the data folder would be too long ({beside} bytes)");
    if temp <= SOCKET_BYTES_MAX {
        return ok(CHECK, format!("{says}; sockets are in the temp folder instead"));
    }
    let says = format!("{says}, and also in the temp folder ({temp} bytes)");
    problem(CHECK, says, "Use a data folder with a shorter path, or a shorter TMPDIR.")
}

fn git(version: Option<&str>) -> Finding {
    const CHECK: &str = "git";
    match version {
        Some(version) => ok(CHECK, version.trim_start_matches("git version ")),
        None => warning(
            CHECK,
            "not found",
            "Install git: Piton uses it for worktrees and to see what an agent changed.",
        ),
    }
}

fn agents(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "agents";
    let mut findings = vec![ok(CHECK, "echo is built in")];
    findings.extend(facts.agents.iter().map(|agent| match &agent.found {
        Some(path) => ok(CHECK, format!("{}: {}", agent.id, path.display())),
        None => warning(
            CHECK,
            format!("{}: {} was not found", agent.id, agent.program),
            how_to_install(agent),
        ),
    }));
    findings
}

/// What its profile says; else for those that start other agents; else the settings say what is
/// looked for.
fn how_to_install(agent: &AgentFact) -> String {
    let program = agent.program.rsplit('/').next().unwrap_or_default();
    let known = match (agent.install.as_deref(), program) {
        (Some(install), _) => install.trim_end_matches('.'),
        (None, "npx" | "node" | "npm") => "Install Node.js, which brings npx",
        (None, "uvx" | "uv") => "Install uv: https://docs.astral.sh/uv",
        (None, _) => "Install it",
    };
    format!("{known}; or correct the setting agents.{}.command.", agent.id)
}

fn executions(found: Executions, served: bool) -> Finding {
    const CHECK: &str = "executions";
    let Executions { alive, with_leftovers, gone } = found;
    if with_leftovers > 0 {
        let says = format!("{with_leftovers} ended and left processes behind ({alive} running)");
        return warning(
            CHECK,
            says,
            "A server ends them at its next check; `piton attach` starts one.",
        );
    }
    let rest = if gone > 0 { format!("; {gone} ended") } else { String::new() };
    match (alive, served) {
        (0, _) => ok(CHECK, format!("none running{rest}")),
        (alive, true) => ok(CHECK, format!("{alive} running{rest}")),
        (alive, false) => ok(CHECK, format!("{alive} running without a server{rest}")),
    }
}

fn systemd(found: Option<&Systemd>) -> Finding {
    const CHECK: &str = "systemd";
    let Some(found) = found else { return ok(CHECK, "not used: agents are not ended by it") };
    let kills = matches!(found.kill_mode.as_deref(), Some("control-group" | "mixed"));
    if let (Some(unit), true) = (&found.unit, kills) {
        let mode = found.kill_mode.as_deref().unwrap_or_default();
        let says = if found.has_scopes {
            format!(
                "{unit} has KillMode={mode}: stopping it also ends agents without a scope of their own"
            )
        } else {
            format!(
                "{unit} has KillMode={mode}, and systemd-run was not found: stopping it also ends agents"
            )
        };
        let hint = format!("`systemctl edit {unit}`: [Service] KillMode=process, Delegate=yes");
        return if found.has_scopes {
            warning(CHECK, says, hint)
        } else {
            problem(CHECK, says, hint)
        };
    }
    match found.lingers {
        Some(false) if !found.is_root => warning(
            CHECK,
            "systemd ends agents when your last login ends",
            "loginctl enable-linger",
        ),
        _ => ok(CHECK, "it does not end agents"),
    }
}

fn container(container: Option<&str>, first: Option<&str>) -> Finding {
    const CHECK: &str = "container";
    let Some(sign) = container else { return ok(CHECK, "this is not one") };
    match first {
        Some(first) if !REAPERS.contains(&first) => warning(
            CHECK,
            format!(
                "this is a container ({sign}): agents end with it, and its first process {first} may leave zombies"
            ),
            "Keep the data folder in a volume, and start the container with an init: `docker run --init`.",
        ),
        _ => warning(
            CHECK,
            format!("this is a container ({sign}): agents end with it"),
            "Keep the data folder in a volume: it has everything that sessions need.",
        ),
    }
}

fn clock(now: Timestamp, written_at: Option<Timestamp>) -> Finding {
    const CHECK: &str = "clock";
    let hint =
        "Set the clock, for example with `timedatectl set-ntp true`: deadlines depend on it.";
    if now.as_millis() < CLOCK_MIN_MS {
        return problem(CHECK, format!("it shows {now}, which cannot be right"), hint);
    }
    match written_at {
        Some(at) if at > now && at.since(now).as_secs() > AHEAD_SECONDS_MAX => {
            warning(CHECK, format!("it shows {now}, but the store was last written at {at}"), hint)
        }
        _ => ok(CHECK, now.to_string()),
    }
}

fn open_files(most: Option<u64>) -> Finding {
    const CHECK: &str = "open files";
    let hint = format!("`ulimit -n {OPEN_FILES_LOW}`, or LimitNOFILE= in the service's unit");
    match most {
        None => ok(CHECK, "no limit"),
        Some(most @ ..OPEN_FILES_MIN) => problem(CHECK, format!("{most} at most"), hint),
        Some(most @ ..OPEN_FILES_LOW) => warning(CHECK, format!("{most} at most"), hint),
        Some(most) => ok(CHECK, format!("{most} at most")),
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
