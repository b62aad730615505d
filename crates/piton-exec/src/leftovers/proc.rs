//! Processes as the kernel lists them. What belongs to other users and cannot be read is as if it
//! were not there.

use std::io;

/// A process. Its pid may be used again; together with `start_time` it is one process only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: u32,
    /// In the kernel's ticks since boot.
    pub start_time: u64,
    pub parent: u32,
    pub name: String,
    /// It has ended, and its parent has not yet asked how.
    pub zombie: bool,
}

impl Process {
    pub fn identity(&self) -> (u32, u64) {
        (self.pid, self.start_time)
    }

    /// Whether this very process still runs.
    pub fn is_alive(&self) -> bool {
        one(self.pid).is_some_and(|now| now.start_time == self.start_time && !now.zombie)
    }
}

/// All processes, zombies too.
#[cfg(target_os = "linux")]
pub fn all() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        // An entry that goes away while we look is a process that ended.
        let Ok(entry) = entry else { continue };
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        processes.extend(pid.and_then(one));
    }
    Ok(processes)
}

#[cfg(target_os = "linux")]
pub fn one(pid: u32) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(&String::from_utf8_lossy(&stat))
}

/// Whether the environment that the process was started with has exactly this variable.
#[cfg(target_os = "linux")]
pub fn has_variable(pid: u32, name: &str, value: &str) -> bool {
    variable(pid, name).as_deref() == Some(value)
}

/// A variable of the environment that the process was started with.
#[cfg(target_os = "linux")]
pub fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = environment.split(|byte| *byte == 0).find_map(|entry| {
        entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
    });
    value.and_then(|value| String::from_utf8(value.to_vec()).ok())
}

/// What a process has in memory.
#[cfg(target_os = "linux")]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1_024)
}

#[cfg(not(target_os = "linux"))]
pub fn resident_bytes(_pid: u32) -> Option<u64> {
    None
}

/// Without `/proc` there is no list; only process groups that we made are ended there.
#[cfg(not(target_os = "linux"))]
pub fn all() -> io::Result<Vec<Process>> {
    Ok(Vec::new())
}

#[cfg(not(target_os = "linux"))]
pub fn one(_pid: u32) -> Option<Process> {
    None
}

#[cfg(not(target_os = "linux"))]
pub fn has_variable(_pid: u32, _name: &str, _value: &str) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub fn variable(_pid: u32, _name: &str) -> Option<String> {
    None
}

/// `pid (name) state parent … start_time …`; the name may hold blanks and parentheses.
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only Linux has processes to read it of")
)]
fn parse(stat: &str) -> Option<Process> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (pid, name) = head.split_once('(')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // One whose first thread has ended while others run looks like a zombie, and is none.
    let threads: u32 = fields.get(17)?.parse().ok()?;
    Some(Process {
        pid: pid.trim().parse().ok()?,
        // Field 22 of the line; `rest` begins with field 3.
        start_time: fields.get(19)?.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        name: name.to_owned(),
        zombie: matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_parentheses_and_blanks() {
        let rest = "S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1000 2";
        let process = parse(&format!("12 (a) Z 9 (b)) {rest}")).unwrap();
        let expected = Process {
            pid: 12,
            start_time: 4711,
            parent: 7,
            name: "a) Z 9 (b)".to_owned(),
            zombie: false,
        };
        assert_eq!(process, expected);
        assert_eq!(parse("12 (cut off"), None);
        let zombie = |threads: u32| {
            let rest = format!("Z 7 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 {threads} 0 4711 0 0");
            parse(&format!("12 (a) {rest}")).unwrap().zombie
        };
        assert!(zombie(1) && !zombie(2));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_caller_is_listed_and_alive() {
        let own = one(std::process::id()).unwrap();
        assert!(own.is_alive());
        assert!(all().unwrap().iter().any(|process| process.identity() == own.identity()));
        let another = Process { start_time: own.start_time + 1, ..own };
        assert!(!another.is_alive());
    }
}
