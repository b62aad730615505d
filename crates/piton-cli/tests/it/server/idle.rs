//! A server that has nothing to do sleeps: nothing polls. What wakes it is counted by the kernel, for
//! all of its threads.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::server::world::{TEST_TIMEOUT, World};

/// How often the threads of a process gave up the processor of their own accord: once per wake-up.
pub(crate) fn wake_ups(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).unwrap();
    let switches = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(switches).sum()
}

/// How often a server with this many stored sessions wakes up in a stretch of time, once it has done
/// what there is to do after a start.
fn wakes(sessions: usize, span: Duration) -> u64 {
    let mut world = World::new();
    for n in 0..sessions {
        let body = json!({"start": false, "title": format!("Session {n}")});
        world.post("/api/v1/sessions", &body).good();
    }
    // Its successor has none of them in memory.
    world.end();
    world.start();
    let until = Instant::now() + TEST_TIMEOUT;
    while world.get("/ready").status != 200 {
        assert!(Instant::now() < until, "never ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Calm: nothing for two seconds.
    let pid = world.pid();
    let mut before = wake_ups(pid);
    loop {
        std::thread::sleep(Duration::from_secs(2));
        let now = wake_ups(pid);
        if std::mem::replace(&mut before, now) == now {
            break;
        }
        assert!(Instant::now() < until, "it never sleeps");
    }
    std::thread::sleep(span);
    let woken = wake_ups(pid) - before;
    eprintln!("{sessions} idle sessions: {woken} wake-ups in {span:?}");
    woken
}

/// Wants to show: a server with nothing but idle sessions polls nothing. A look at the lock files of
/// other boots may fall into the time: it comes every 30 seconds.
#[test]
fn an_idle_server_sleeps() {
    let woken = wakes(20, Duration::from_secs(10));
    // The first look after a start asks the store as well.
    assert!(woken <= 20, "{woken} wake-ups in 10 seconds");
}

/// The same over minutes and with many sessions: at most one wake-up in five seconds.
#[test]
#[ignore = "takes five minutes; part of make soak"]
fn a_thousand_idle_sessions_cost_one_wake_up_in_five_seconds() {
    let woken = wakes(1_000, Duration::from_mins(4));
    assert!(woken <= 48, "{woken} wake-ups in 4 minutes");
}
