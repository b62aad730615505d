//! What a successor does after an agentctl was killed: its processes are found by marker and ended,
//! and nothing else is.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use piton_core::id::ExecutionId;
use piton_exec::leftovers;

const TERM: Duration = Duration::from_millis(500);

fn execution(name: &str) -> ExecutionId {
    format!("exe_{name}-{}", std::process::id()).parse().unwrap()
}

/// A shell whose first line of output says that it is ready.
fn shell(script: &str, env: &[(&str, &str)]) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script]).envs(env.iter().copied()).process_group(0);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An agentctl that started three marked processes, two of them in sessions of their own, is killed.
#[tokio::test]
async fn a_successor_ends_what_a_killed_agentctl_left() {
    let execution = execution("killed");
    let script = format!(
        "export PITON_EXECUTION={execution}
         setsid sleep 300 & (setsid sleep 300 &) ; sleep 300 & echo ready; wait"
    );
    let mut agentctl = shell(&script, &[]);
    until("three processes are marked", || leftovers::find(&execution).unwrap().len() == 3);
    agentctl.kill().unwrap();
    agentctl.wait().unwrap();
    assert!(leftovers::any(&execution).unwrap());
    let ended = leftovers::end(&execution, TERM).await.unwrap();
    assert_eq!((ended.processes.len(), ended.killed.len()), (3, 0));
    assert!(!leftovers::any(&execution).unwrap());
    assert_eq!(leftovers::end(&execution, TERM).await.unwrap(), leftovers::Ended::default());
}

/// One that ignores SIGTERM is killed after the time it was given, not before.
#[tokio::test]
async fn what_ignores_sigterm_is_killed() {
    let execution = execution("deaf");
    let script = "trap '' TERM; echo ready; while :; do sleep 300; done";
    let mut child = shell(script, &[("PITON_EXECUTION", execution.as_str())]);
    let began = Instant::now();
    let ended = leftovers::end(&execution, TERM).await.unwrap();
    assert!(began.elapsed() >= TERM);
    assert!(ended.killed.iter().any(|process| process.pid == child.id()), "{ended:?}");
    assert!(!leftovers::any(&execution).unwrap());
    child.wait().unwrap();
}

/// A process that is stopped cannot handle SIGTERM unless it is continued.
#[tokio::test]
async fn what_is_stopped_is_continued_and_ends() {
    let execution = execution("stopped");
    let mut child = shell("echo ready; kill -STOP $$", &[("PITON_EXECUTION", execution.as_str())]);
    let ended = leftovers::end(&execution, Duration::from_secs(20)).await.unwrap();
    assert_eq!(ended.killed, []);
    child.wait().unwrap();
}

/// Another execution's marker, the marker as part of a longer value or name, or as an argument.
#[tokio::test]
async fn what_only_looks_alike_is_left_alone() {
    let execution = execution("alike");
    let longer = format!("{execution}0");
    let inside = format!("x PITON_EXECUTION={execution}");
    let script = "echo ready; exec sleep 300";
    let mut others = [
        shell(script, &[("PITON_EXECUTION", "exe_another")]),
        shell(script, &[("PITON_EXECUTION", &longer)]),
        shell(script, &[("MY_PITON_EXECUTION", execution.as_str())]),
        shell(script, &[("NOTE", &inside)]),
        shell(&format!("echo ready; : PITON_EXECUTION={execution}; sleep 300"), &[]),
    ];
    let ended = leftovers::end(&execution, TERM).await.unwrap();
    assert_eq!(ended, leftovers::Ended::default());
    for other in &mut others {
        assert!(other.try_wait().unwrap().is_none());
        rustix::process::kill_process_group(
            rustix::process::Pid::from_child(other),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        other.wait().unwrap();
    }
}

/// A zombie is not alive: nothing is left that could write.
#[tokio::test]
async fn a_zombie_does_not_count() {
    let execution = execution("zombie");
    let mut child = shell("echo ready", &[("PITON_EXECUTION", execution.as_str())]);
    until("it has ended", || {
        leftovers::proc::one(child.id()).is_some_and(|process| process.zombie)
    });
    assert!(!leftovers::any(&execution).unwrap());
    child.wait().unwrap();
}

/// Each ends and starts two others when it is asked to: only SIGKILL in rounds ends them all.
#[tokio::test]
async fn what_respawns_is_ended_too() {
    let execution = execution("respawns");
    let script = "one() { trap 'one & one &' TERM; sleep 1 & wait; sleep 1 & wait; }
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do one & done; echo ready; wait";
    let mut child = shell(script, &[("PITON_EXECUTION", execution.as_str())]);
    let ended = leftovers::end(&execution, Duration::from_millis(200)).await.unwrap();
    assert!(ended.processes.len() > 20, "{}", ended.processes.len());
    assert!(!leftovers::any(&execution).unwrap());
    child.wait().unwrap();
}
