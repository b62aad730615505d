//! Processes of attempts that were cut off. A process that runs graphs and is killed with `SIGKILL` cannot
//! end what its command nodes had started; the resume does, before anything runs
//! beside it. They are known by the idempotency key in their environment.

use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, kill_process_group};

use super::command::IDEMPOTENCY_VARIABLE;

/// How long killed processes are waited for.
const GONE_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Ends the processes of these attempts, by their idempotency keys. The caller owns the session: no other
/// process may have begun such an attempt again.
pub(crate) async fn end(keys: Vec<String>) {
    if keys.is_empty() {
        return;
    }
    let ended = tokio::task::spawn_blocking(move || {
        let began = std::time::Instant::now();
        loop {
            let groups = groups(&keys);
            if groups.is_empty() || began.elapsed() > GONE_TIMEOUT {
                return groups;
            }
            for group in &groups {
                // Gone meanwhile.
                let _ = kill_process_group(*group, Signal::KILL);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    });
    match ended.await {
        Ok(left) if left.is_empty() => {}
        Ok(left) => tracing::warn!(groups = ?left, "processes of an earlier attempt did not end"),
        Err(error) => tracing::warn!(%error, "processes of an earlier attempt were not looked for"),
    }
}

/// The process groups that these attempts left. A process that began a session of its own is a service
/// that was meant to stay.
fn groups(keys: &[String]) -> Vec<Pid> {
    let own = getpgrp();
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|process| {
        let name = process.file_name();
        name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some(process.path())
    });
    let marked = pids.filter(|process| {
        // Others' processes cannot be looked into, and are not ours.
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| is_marked(entry, keys))
    });
    let found = marked.filter_map(|process| {
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        let (state, group, session) = place(&stat)?;
        let is_alive = !matches!(state, "Z" | "X");
        (is_alive && group != session).then(|| Pid::from_raw(group)).flatten()
    });
    found.filter(|group| *group != own).collect()
}

/// The state, the group and the session of a process. Its name, in parentheses, can have anything in it.
fn place(stat: &str) -> Option<(&str, i32, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let (state, _parent) = (fields.next()?, fields.next()?);
    Some((state, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The key itself, or that of an item or iteration of it.
fn is_marked(entry: &[u8], keys: &[String]) -> bool {
    let value = entry.strip_prefix(IDEMPOTENCY_VARIABLE.as_bytes());
    let Some(value) = value.and_then(|value| value.strip_prefix(b"=")) else { return false };
    keys.iter().any(|key| {
        let rest = value.strip_prefix(key.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_marks_its_items_and_no_other_key() {
        let keys = ["s/1/a/1".to_owned()];
        let entry = |key: &str| format!("{IDEMPOTENCY_VARIABLE}={key}").into_bytes();
        assert!(is_marked(&entry("s/1/a/1"), &keys));
        assert!(is_marked(&entry("s/1/a/1/7"), &keys));
        for other in ["s/1/a/12", "s/2/a/1", "t/1/a/1", ""] {
            assert!(!is_marked(&entry(other), &keys), "{other}");
        }
        assert!(!is_marked(b"OTHER=s/1/a/1", &keys));
    }

    #[test]
    fn a_name_with_parentheses_is_a_name() {
        assert_eq!(place("12 (a) S 9) S 1 34 56 0"), Some(("S", 34, 56)));
        assert_eq!(place("12"), None);
    }
}
