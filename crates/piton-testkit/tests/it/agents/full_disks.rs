//! Disks that are really full, under the spool alone and under everything.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use piton_testkit::crash::Kind;
use piton_testkit::drive::wait_until;
use serde_json::json;

use super::at::At;
use super::fixture::{
    Fixture, SESSION, TEST_TIMEOUT, assert_nothing_left, check_offsets, chunks, count, idle,
    prompt, said,
};

/// A small file system of its own; gone with this.
struct Mount(PathBuf);

impl Mount {
    /// `None`: none can be made here, which is said past the test's captured output.
    fn new(folder: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(folder).expect("writable");
        let options = format!("size={size},mode=700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder)
            .output();
        let why = match mounted {
            Ok(done) if done.status.success() => return Some(Self(folder.to_owned())),
            Ok(done) => String::from_utf8_lossy(&done.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        piton_testkit::tools::left_out("a full disk under a live agent", &why);
        None
    }

    /// Takes all the room there is.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut ballast = std::fs::File::create(&path).expect("writable");
        while ballast.write_all(&[1; 512]).is_ok() {}
        path
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Whatever still runs in it keeps it until it ends.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

const CHUNKS: usize = 1500;
/// What waits for room looks again every 5 s.
const SOON: Duration = Duration::from_secs(15);

/// Who sees that there is room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    ByTheSame,
    ByTheNext,
}

/// The disk is full in the middle of a turn; when there is room again the turn ends by itself.
fn is_held_back_and_goes_on(bench: &Fixture, mount: &Mount, seen: Seen) {
    let (mut server, execution) = bench.start();
    let (agent, agentctl) = (Fixture::agent(&execution), bench.agentctl(&execution));
    let run = prompt(&mut server, &format!("stream {CHUNKS} 1"));
    let begun = |log: &[piton_core::Record]| count(log, "message.delta") > 0;
    assert!(wait_until(TEST_TIMEOUT, || begun(&bench.log())), "it streams");
    let at = At::of(bench, &execution);
    let ballast = mount.fill();
    assert!(wait_until(TEST_TIMEOUT, || at.health().spool.blocked.is_some()), "{:?}", at.health());
    let status = server.status(SESSION);
    assert_eq!(status["status"], "running", "{status:#}");
    // The session is read as ever, and neither agent nor agentctl are given up.
    assert_eq!((Fixture::agent(&execution), bench.agentctl(&execution)), (agent, agentctl));
    if seen == Seen::ByTheNext {
        server.kill();
        std::fs::remove_file(ballast).expect("it is there");
        server = bench.serve();
    } else {
        std::fs::remove_file(ballast).expect("it is there");
    }
    let room = Instant::now();
    let status = idle(&mut server);
    assert!(room.elapsed() < SOON, "it took {:?} from room to the end", room.elapsed());
    assert_eq!(status["reason"], "run_completed", "{status:#}");
    let again = prompt(&mut server, "say again");
    idle(&mut server);
    assert_eq!(Fixture::agent(&execution), agent);
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, Some(agentctl));
    let log = bench.log();
    assert_eq!(said(&log, &run), chunks(CHUNKS));
    assert_eq!(said(&log, &again), "again");
    check_offsets(&log);
    let kinds = ["run.interrupted", "run.completed", "executor.starting"];
    assert_eq!(kinds.map(|kind| count(&log, kind)), [0, 2, 1]);
}

/// Wants to show: with no room under the spool the agent waits, and nothing is lost or said twice.
#[test]
fn no_room_under_the_spool() {
    let bench = Fixture::new(Kind::Sqlite);
    let Some(mount) = Mount::new(&bench.data().join("run"), "512k") else { return };
    is_held_back_and_goes_on(&bench, &mount, Seen::ByTheSame);
}

/// Wants to show: the same with no room for the log either, and a server that dies meanwhile.
#[test]
fn no_room_under_spool_and_log() {
    let bench = Fixture::new(Kind::Sqlite);
    let Some(mount) = Mount::new(&bench.data(), "16m") else { return };
    elsewhere(&bench, "bin");
    is_held_back_and_goes_on(&bench, &mount, Seen::ByTheNext);
}

/// Wants to show: with no room under the log alone the agent's turn continues into the spool; the
/// session says nothing that is not kept, and has all of it soon after there is room.
#[test]
fn no_room_under_the_log() {
    let bench = Fixture::new(Kind::Sqlite);
    let Some(mount) = Mount::new(&bench.data(), "64m") else { return };
    elsewhere(&bench, "bin");
    elsewhere(&bench, "run");
    let (mut server, execution) = bench.start();
    // More than the pages that the log has already.
    let run = prompt(&mut server, "stream 200 2\nflood 8388608\nstream 50 1");
    let begun = |log: &[piton_core::Record]| count(log, "message.delta") > 0;
    assert!(wait_until(TEST_TIMEOUT, || begun(&bench.log())), "it streams");
    let at = At::of(&bench, &execution);
    let ballast = mount.fill();
    assert!(wait_until(TEST_TIMEOUT, || at.health().run_id.is_none()), "{:?}", at.health());
    // The log has some room of its own: it is used up.
    let mut created = 0;
    let refused = wait_until(TEST_TIMEOUT, || {
        created += 1;
        let create = json!({"do": "create", "session": format!("sess_{created}")});
        server.ask(create).is_err_and(|(code, _)| code == "disk_full")
    });
    assert!(refused, "{created} sessions are no end");
    let health = at.health();
    assert!(health.spool.acked < health.spool.last, "{health:?}");
    assert_eq!(server.status(SESSION)["status"], "running", "the log does not know yet");
    std::fs::remove_file(ballast).expect("it is there");
    let room = Instant::now();
    let status = idle(&mut server);
    assert!(room.elapsed() < SOON, "it took {:?} from room to the end", room.elapsed());
    assert_eq!(status["reason"], "run_completed", "{status:#}");
    let again = prompt(&mut server, "say again");
    idle(&mut server);
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
    let log = bench.log();
    let flood = "x".repeat(8 << 20);
    assert!(said(&log, &run) == format!("{}{flood}{}", chunks(200), chunks(50)), "not the same");
    assert_eq!(said(&log, &again), "again");
    check_offsets(&log);
    let kinds = ["run.interrupted", "run.completed", "executor.starting"];
    assert_eq!(kinds.map(|kind| count(&log, kind)), [0, 2, 1]);
}

/// Takes a part of the data folder out of the small file system.
fn elsewhere(bench: &Fixture, name: &str) {
    let folder = bench.folder.path().join(name);
    std::fs::create_dir(&folder).expect("writable");
    std::os::unix::fs::symlink(&folder, bench.data().join(name)).expect("writable");
}
