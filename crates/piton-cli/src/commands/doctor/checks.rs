//! What the facts mean: one line each, and what to do. Pure.

use piton_core::{Code, Timestamp};

use super::around::Systemd;
use super::facts::{
    AgentFact, Executions, Facts, FileSystem, Folder, KeyFact, ServerFact, StoreFact,
};
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
        Folder::Missing => ok(CHECK, format!("{data} is not there yet; it is made when needed")),
        Folder::Unreadable { why } => problem(
            CHECK,
            format!("{data} cannot be looked at: {why}"),
            "Give yourself the right to it, or name another one with --data.",
        ),
        Folder::Other => problem(
            CHECK,
            format!("{data} is not a folder"),
            "Move it away, or name another data folder with --data.",
        ),
        Folder::There { own: false, .. } => problem(
            CHECK,
            format!("{data} belongs to another user"),
            "Use Piton as its owner, or name another data folder with --data.",
        ),
        Folder::There { mode, .. } if mode & 0o022 != 0 => problem(
            CHECK,
            format!("others can write to {data} ({mode:03o})"),
            format!("chmod 700 {data}"),
        ),
        Folder::There { mode, .. } if mode & 0o077 != 0 => warning(
            CHECK,
            format!("others can look into {data} ({mode:03o})"),
            format!("chmod 700 {data}"),
        ),
        Folder::There { .. } => ok(CHECK, format!("{data}, its owner's alone")),
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
            format!("{kind}: what is on it is gone when the machine restarts"),
            "Put the data folder on a disk with --data.",
        ),
        Some(kind) => ok(CHECK, format!("{kind}, on this machine")),
        None => ok(CHECK, "on this machine"),
    }
}

fn space(free: Option<u64>) -> Finding {
    const CHECK: &str = "free space";
    let hint = "Free some space: without it nothing new is taken, and nothing old is lost.";
    let Some(free) = free else {
        return warning(CHECK, "The system does not say how much there is", "Look with `df -h`.");
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
        StoreFact::None { next } => ok(CHECK, format!("none yet; a new one will be {next}")),
        StoreFact::Opens { kind } => ok(CHECK, format!("{kind}; it opens")),
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
        return ok(CHECK, "none: a store of plain files is not encrypted");
    }
    if let Some(mode) = file_mode {
        if mode & 0o077 != 0 {
            return problem(
                CHECK,
                format!("others can read the key file ({mode:03o})"),
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
            ok(CHECK, format!("a new store's comes from: {setting} ($PITON_KEY is set)"))
        }
        StoreFact::None { .. } | StoreFact::Fails { .. } => {
            ok(CHECK, format!("a new store's comes from: {setting}"))
        }
    }
}

fn server(facts: &Facts) -> Finding {
    const CHECK: &str = "server";
    match &facts.server {
        ServerFact::None => ok(CHECK, "none runs; `piton chat` starts one when it is needed"),
        ServerFact::Answers { address, pid, version } if *version != facts.own_version => warning(
            CHECK,
            format!("{address} (pid {pid}) is {version}, and this is {}", facts.own_version),
            "`piton stop` ends it and not its agents; the next command starts the new one.",
        ),
        ServerFact::Answers { address, pid, version } => {
            ok(CHECK, format!("{version} at {address} (pid {pid})"))
        }
        ServerFact::Silent { address, pid, why } => problem(
            CHECK,
            format!("{address} (pid {pid}) lives and does not answer: {why}"),
            "Look at server.log in the data folder; `piton stop` ends it and not its agents.",
        ),
    }
}

fn sockets((beside, temp): (usize, usize)) -> Finding {
    const CHECK: &str = "sockets";
    if beside <= SOCKET_BYTES_MAX {
        return ok(CHECK, "in the data folder");
    }
    let says = format!("{beside} bytes are too long for a socket's path in the data folder");
    if temp <= SOCKET_BYTES_MAX {
        return ok(CHECK, format!("{says}: they go to the temp folder"));
    }
    let says = format!("{says}, and {temp} in the temp folder, too");
    problem(CHECK, says, "Use a data folder with a shorter path, or a shorter TMPDIR.")
}

fn git(version: Option<&str>) -> Finding {
    const CHECK: &str = "git";
    match version {
        Some(version) => ok(CHECK, version.trim_start_matches("git version ")),
        None => warning(
            CHECK,
            "not found",
            "Install git: worktrees, and what an agent changed, are seen through it.",
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
            format!("{}: {} is not found", agent.id, agent.program),
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
        let says = format!("{with_leftovers} ended and left processes behind ({alive} alive)");
        return warning(
            CHECK,
            says,
            "The next look of a server ends them; `piton attach` starts one.",
        );
    }
    let rest = if gone > 0 { format!("; {gone} ended") } else { String::new() };
    match (alive, served) {
        (0, _) => ok(CHECK, format!("none alive{rest}")),
        (alive, true) => ok(CHECK, format!("{alive} alive{rest}")),
        (alive, false) => ok(CHECK, format!("{alive} running without a server{rest}")),
    }
}

fn systemd(found: Option<&Systemd>) -> Finding {
    const CHECK: &str = "systemd";
    let Some(found) = found else { return ok(CHECK, "none: nothing of it ends agents") };
    let kills = matches!(found.kill_mode.as_deref(), Some("control-group" | "mixed"));
    if let (Some(unit), true) = (&found.unit, kills) {
        let mode = found.kill_mode.as_deref().unwrap_or_default();
        let says = if found.has_scopes {
            format!("{unit} has KillMode={mode}: agents that get no scope of their own end with it")
        } else {
            format!("{unit} has KillMode={mode}, and there is no systemd-run: agents end with it")
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
            "agents end when you log out everywhere: you do not linger",
            "loginctl enable-linger",
        ),
        _ => ok(CHECK, "nothing of it ends agents"),
    }
}

fn container(container: Option<&str>, first: Option<&str>) -> Finding {
    const CHECK: &str = "container";
    let Some(sign) = container else { return ok(CHECK, "none") };
    match first {
        Some(first) if !REAPERS.contains(&first) => warning(
            CHECK,
            format!("this is one ({sign}): agents end with it, and {first} may not reap them"),
            "Keep the data folder in a volume, and start the container with an init: `docker run --init`.",
        ),
        _ => warning(
            CHECK,
            format!("this is one ({sign}): agents end with it"),
            "Keep the data folder in a volume: what was acknowledged is there.",
        ),
    }
}

fn clock(now: Timestamp, written_at: Option<Timestamp>) -> Finding {
    const CHECK: &str = "clock";
    let hint = "Set the clock, or let it be set (`timedatectl set-ntp true`): deadlines follow it.";
    if now.as_millis() < CLOCK_MIN_MS {
        return problem(CHECK, format!("it shows {now}: it was never set"), hint);
    }
    match written_at {
        Some(at) if at > now && at.since(now).as_secs() > AHEAD_SECONDS_MAX => {
            warning(CHECK, format!("it shows {now}, and the store was written at {at}"), hint)
        }
        _ => ok(CHECK, now.to_string()),
    }
}

fn open_files(most: Option<u64>) -> Finding {
    const CHECK: &str = "open files";
    let hint = format!("`ulimit -n {OPEN_FILES_LOW}`, or LimitNOFILE= in the service's unit");
    match most {
        None => ok(CHECK, "as many as you like"),
        Some(most @ ..OPEN_FILES_MIN) => problem(CHECK, format!("{most} at most"), hint),
        Some(most @ ..OPEN_FILES_LOW) => warning(CHECK, format!("{most} at most"), hint),
        Some(most) => ok(CHECK, format!("{most} at most")),
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
