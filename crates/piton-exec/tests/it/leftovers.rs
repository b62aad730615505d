//! What a successor does after an agentctl was killed: its processes are found by marker and ended,
//! and nothing else is.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use piton_exec::leftovers::{self, Mark};

const TERM: Duration = Duration::from_millis(500);

/// An execution of this test; any folder will do for its own.
fn mark(name: &str) -> Mark {
    let id = format!("exe_{name}-{}", std::process::id()).parse().unwrap();
    Mark::of(&id, &std::env::temp_dir()).unwrap()
}

/// A shell with the whole mark in its environment.
fn marked(script: &str, mark: &Mark) -> Child {
    let variables = mark.variables();
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    shell(script, &variables)
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
    let mark = mark("killed");
    let script = format!(
        "export PITON_EXECUTION={} PITON_EXECUTION_FOLDER={}
         setsid sleep 300 & (setsid sleep 300 &) ; sleep 300 & echo ready; wait",
        mark.execution(),
        mark.folder()
    );
    let mut agentctl = shell(&script, &[]);
    until("three processes are marked", || leftovers::find(&mark).unwrap().len() == 3);
    agentctl.kill().unwrap();
    agentctl.wait().unwrap();
    assert!(leftovers::any(&mark).unwrap());
    let ended = leftovers::end(&mark, TERM).await.unwrap();
    assert_eq!((ended.processes.len(), ended.killed.len()), (3, 0));
    assert!(!leftovers::any(&mark).unwrap());
    assert_eq!(leftovers::end(&mark, TERM).await.unwrap(), leftovers::Ended::default());
}

/// One that ignores SIGTERM is killed after the time it was given, not before.
#[tokio::test]
async fn what_ignores_sigterm_is_killed() {
    let mark = mark("deaf");
    let script = "trap '' TERM; echo ready; while :; do sleep 300; done";
    let mut child = marked(script, &mark);
    let began = Instant::now();
    let ended = leftovers::end(&mark, TERM).await.unwrap();
    assert!(began.elapsed() >= TERM);
    assert!(ended.killed.iter().any(|process| process.pid == child.id()), "{ended:?}");
    assert!(!leftovers::any(&mark).unwrap());
    child.wait().unwrap();
}

/// A process that is stopped cannot handle SIGTERM unless it is continued.
#[tokio::test]
async fn what_is_stopped_is_continued_and_ends() {
    let mark = mark("stopped");
    let mut child = marked("echo ready; kill -STOP $$", &mark);
    let ended = leftovers::end(&mark, Duration::from_secs(20)).await.unwrap();
    assert_eq!(ended.killed, []);
    child.wait().unwrap();
}

/// Another execution's mark, the same execution's in a copy of its folder, half a mark, the marker as
/// part of a longer value or name, or as an argument.
#[tokio::test]
async fn what_only_looks_alike_is_left_alone() {
    let mark = mark("alike");
    let (execution, here) = (mark.execution().as_str(), mark.folder());
    let longer = format!("{execution}0");
    let inside = format!("x PITON_EXECUTION={execution}");
    let copy = tempfile::tempdir().unwrap();
    let copied = Mark::of(mark.execution(), copy.path()).unwrap();
    let script = "echo ready; exec sleep 300";
    let folder = ("PITON_EXECUTION_FOLDER", here);
    let mut others = [
        marked(script, &copied),
        shell(script, &[("PITON_EXECUTION", execution)]),
        shell(script, &[("PITON_EXECUTION", "exe_another"), folder]),
        shell(script, &[("PITON_EXECUTION", &longer), folder]),
        shell(script, &[("MY_PITON_EXECUTION", execution), folder]),
        shell(script, &[("NOTE", &inside), folder]),
        shell(&format!("echo ready; : PITON_EXECUTION={execution}; sleep 300"), &[folder]),
    ];
    let ended = leftovers::end(&mark, TERM).await.unwrap();
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
    let mark = mark("zombie");
    let mut child = marked("echo ready", &mark);
    until("it has ended", || {
        leftovers::proc::one(child.id()).is_some_and(|process| process.zombie)
    });
    assert!(!leftovers::any(&mark).unwrap());
    child.wait().unwrap();
}

/// Each ends and starts two others when it is asked to: only SIGKILL in rounds ends them all.
#[tokio::test]
async fn what_respawns_is_ended_too() {
    let mark = mark("respawns");
    let script = "one() { trap 'one & one &' TERM; sleep 1 & wait; sleep 1 & wait; }
        for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do one & done; echo ready; wait";
    let mut child = marked(script, &mark);
    let ended = leftovers::end(&mark, Duration::from_millis(200)).await.unwrap();
    assert!(ended.processes.len() > 20, "{}", ended.processes.len());
    assert!(!leftovers::any(&mark).unwrap());
    child.wait().unwrap();
}

/// What begins while others are being killed was never asked to end; it is found and killed as well.
#[tokio::test]
async fn what_appears_while_others_are_killed_is_killed_too() {
    use std::sync::{Arc, Mutex};
    let stubborn = || shell("trap '' TERM; echo ready; while :; do sleep 1; done", &[]);
    let children = Arc::new(Mutex::new(vec![stubborn()]));
    let (found, starting) = (Arc::clone(&children), Arc::clone(&children));
    let target = leftovers::Target {
        find: Arc::new(move || {
            let pids: Vec<u32> = found.lock().unwrap().iter().map(Child::id).collect();
            let all = leftovers::proc::all()?.into_iter();
            Ok(all.filter(|one| pids.contains(&one.pid) && !one.zombie).collect())
        }),
        // Called in every round of kills: the first two bring something new.
        kill: Arc::new(move || {
            let mut children = starting.lock().unwrap();
            if children.len() < 3 {
                children.push(stubborn());
            }
        }),
    };
    let ended = leftovers::end_target(target, Duration::from_millis(50)).await.unwrap();
    assert_eq!((ended.processes.len(), ended.killed.len()), (3, 3));
    for mut child in children.lock().unwrap().drain(..) {
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
