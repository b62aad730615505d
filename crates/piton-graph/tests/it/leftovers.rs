//! A command whose graph's process was killed does not run beside its next attempt.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use piton_core::id::SessionId;
use piton_graph::{Graph, command};
use serde_json::Map;

use crate::world::{World, completed};

const VARIABLE: &str = "PITON_TEST_LEFTOVERS_DATA";
const SESSION: &str = "sess_leftovers";

/// The first attempt notes its pid and stays. Others say whether it is there.
fn graph(data: &Path) -> Graph {
    let pid = data.join("pid");
    let (pid, service) = (pid.display(), data.join("service").display().to_string());
    let script = format!(
        "if [ ! -e {pid} ]; then setsid sleep 600 >&2 & echo $! > {service};
         echo $$ > {pid}.new && mv {pid}.new {pid}; sleep 600; fi;
         if grep -q '^State:.[^ZX]' /proc/$(cat {pid})/status 2>&-; then echo beside; else echo alone; fi"
    );
    Graph::builder("leftovers")
        .node("stays", command(["sh", "-c", &script]).writes(["first"]))
        .build()
        .unwrap()
}

/// The test below runs this one in a process of its own.
#[test]
fn leftovers_process() {
    let Some(data) = std::env::var_os(VARIABLE) else { return };
    let data = PathBuf::from(data);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = piton_graph::open(&data).unwrap();
        let session: SessionId = SESSION.parse().unwrap();
        let runner = graph(&data).runner(&store).session(session);
        runner.start(Map::new()).await.unwrap().finish().await.unwrap();
    });
}

/// Wants to show: the first attempt's processes are ended before the second begins. One that began a
/// session of its own stays.
#[tokio::test]
async fn a_command_of_a_killed_process_does_not_run_beside_the_next_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_owned();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["leftovers::leftovers_process", "--exact"])
        .env(VARIABLE, &data)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !data.join("pid").exists() {
        assert!(Instant::now() < end, "the command did not begin");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let store = piton_graph::open(&data).unwrap();
    let world = World { folder, store };
    let session: SessionId = SESSION.parse().unwrap();
    let memory = completed(world.resume(&graph(&data), &session, &[]).await);
    assert_eq!(memory["first"], "alone");
    let service: i32 =
        std::fs::read_to_string(data.join("service")).unwrap().trim().parse().unwrap();
    let service = rustix::process::Pid::from_raw(service).unwrap();
    rustix::process::kill_process(service, rustix::process::Signal::KILL)
        .expect("what began a session of its own stays");
}
