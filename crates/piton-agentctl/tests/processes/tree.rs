//! Processes that try to escape their agentctl, by the ways that real agents and their tools have.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::time::Duration;

use crate::common::{self, Alone, execution, start, until};
use piton_agentctl::tree::{ProcessRole, Scope, Tree, become_subreaper};
use piton_exec::leftovers::{self, cgroup, proc};

const TERM: Duration = Duration::from_millis(500);

fn alone() -> Alone {
    let alone = common::alone();
    become_subreaper().unwrap();
    alone
}

fn count(tree: &Tree, scope: &Scope) -> usize {
    tree.find(scope).unwrap().len()
}

/// A daemon: two forks, a session of its own, all descriptors closed.
const DAEMON: &str = "(setsid sh -c 'exec sleep 300 </dev/null >/dev/null 2>&1' &) ; ";

#[tokio::test]
async fn a_daemon_that_left_its_session_is_ended() {
    let _alone = alone();
    let tree = Tree::without_cgroup(&execution("daemon"));
    let mut agent = start(&tree, ProcessRole::Agent, &format!("{DAEMON} echo ready")).await;
    assert!(agent.wait().await.unwrap().success());
    until("only the daemon is left", || count(&tree, &Scope::Agent) == 1).await;
    let ended = tree.end(Scope::Agent, TERM).await.unwrap();
    assert_eq!((ended.processes.len(), ended.killed.len()), (1, 0));
    assert_eq!(count(&tree, &Scope::All), 0);
}

/// Without marker and without cgroup: the orphan comes to us, and is found by descent.
#[tokio::test]
async fn an_orphan_without_environment_is_found_by_descent() {
    let _alone = alone();
    let tree = Tree::without_cgroup(&execution("bare"));
    let script = "(env -i setsid sleep 300 </dev/null >/dev/null 2>&1 &) ; echo ready";
    let mut agent = start(&tree, ProcessRole::Agent, script).await;
    agent.wait().await.unwrap();
    until("it runs without the marker", || !leftovers::any(tree.mark()).unwrap()).await;
    assert_eq!(count(&tree, &Scope::Agent), 1);
    let ended = tree.end(Scope::Agent, TERM).await.unwrap();
    assert_eq!(ended.processes.len(), 1);
    assert_eq!(count(&tree, &Scope::All), 0);
}

/// With a cgroup it is found even by those who are not its ancestors.
#[tokio::test]
async fn an_orphan_without_environment_is_found_by_its_cgroup() {
    let _alone = alone();
    let tree = Tree::new(&execution("grouped"));
    if !tree.cgroup().starts_with("cgroup: piton-") {
        eprintln!("Not shown here: {}", tree.cgroup());
        return;
    }
    let script = "(env -i setsid sleep 300 </dev/null >/dev/null 2>&1 &) ; echo ready";
    let mut agent = start(&tree, ProcessRole::Agent, script).await;
    agent.wait().await.unwrap();
    let has_marker = |pid| proc::variable(pid, "PITON_EXECUTION").is_some();
    until("it runs without the marker", || {
        let found = leftovers::find(tree.mark()).unwrap();
        found.len() == 1 && !has_marker(found[0].pid)
    })
    .await;
    assert_eq!(cgroup::locate(tree.mark()).len(), 1);
    // We ourselves went back to where we were.
    assert!(!cgroup::locate(tree.mark())[0].pids().contains(&std::process::id()));
    let ended = leftovers::end(tree.mark(), TERM).await.unwrap();
    assert_eq!(ended.processes.len(), 1);
    assert_eq!(cgroup::locate(tree.mark()), []);
    // The next start makes the folder again.
    start(&tree, ProcessRole::Agent, "echo ready; exec sleep 300").await;
    assert_eq!(cgroup::locate(tree.mark()).len(), 1);
    tree.end(Scope::All, TERM).await.unwrap();
    assert_eq!(cgroup::locate(tree.mark()), []);
}

#[tokio::test]
async fn shells_stay_when_the_agent_ends() {
    let _alone = alone();
    for tree in [Tree::new(&execution("parts")), Tree::without_cgroup(&execution("parts2"))] {
        let script = format!("{DAEMON} echo ready; exec sleep 300");
        let shell = ProcessRole::Shell("1".to_owned());
        let terminal = ProcessRole::Terminal("1".to_owned());
        let mut children = Vec::new();
        for part in [ProcessRole::Agent, shell.clone(), terminal.clone()] {
            children.push(start(&tree, part.clone(), &script).await);
            until("the daemon runs", || count(&tree, &Scope::Role(part.clone())) == 2).await;
        }
        assert_eq!(count(&tree, &Scope::All), 6);
        assert_eq!(tree.end(Scope::Agent, TERM).await.unwrap().processes.len(), 4);
        assert_eq!(count(&tree, &Scope::Role(shell.clone())), 2);
        assert_eq!(tree.end(Scope::Role(shell), TERM).await.unwrap().processes.len(), 2);
        assert_eq!(count(&tree, &Scope::All), 0);
        tree.end(Scope::All, TERM).await.unwrap();
    }
}

#[tokio::test]
async fn what_ignores_sigterm_and_respawns_is_killed() {
    let _alone = alone();
    let tree = Tree::without_cgroup(&execution("stubborn"));
    let script = "trap '' TERM; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        (trap 'setsid sleep 300 & setsid sleep 300 &' TERM; sleep 300; sleep 300) & done
        echo ready; while :; do sleep 300; done";
    start(&tree, ProcessRole::Agent, script).await;
    let ended = tree.end(Scope::All, Duration::from_millis(100)).await.unwrap();
    assert!(ended.processes.len() >= 21 && !ended.killed.is_empty(), "{}", ended.processes.len());
    assert_eq!(count(&tree, &Scope::All), 0);
}

/// Orphans that end as our children are reaped; what a task waits for keeps its exit code.
#[tokio::test]
async fn orphans_are_reaped_and_exit_codes_are_kept() {
    let _alone = alone();
    let tree = Tree::without_cgroup(&execution("zombie"));
    let mut agent = start(&tree, ProcessRole::Agent, "(sleep 0.1 &) ; echo ready; exit 7").await;
    let own = std::process::id();
    let zombies = || {
        let all = proc::all().unwrap();
        all.into_iter().filter(|process| process.zombie && process.parent == own).count()
    };
    until("agent and orphan have ended", || zombies() == 2).await;
    tree.reap();
    assert_eq!(zombies(), 1);
    assert_eq!(agent.wait().await.unwrap().code(), Some(7));
    assert_eq!(zombies(), 0);
    let reaping = tokio::spawn(tree.clone().reap_always());
    let mut agent =
        start(&tree, ProcessRole::Agent, "(sleep 0.1 &) ; (sleep 0.2 &) ; echo ready").await;
    agent.wait().await.unwrap();
    until("nothing is left", || zombies() == 0 && count(&tree, &Scope::All) == 0).await;
    reaping.abort();
}

/// An execution that was started within this one has processes of its own.
#[tokio::test]
async fn another_execution_below_us_is_left_alone() {
    let _alone = alone();
    let tree = Tree::without_cgroup(&execution("outer"));
    let inner = Tree::without_cgroup(&execution("inner"));
    let mut child = start(&inner, ProcessRole::Agent, "echo ready; exec sleep 300").await;
    assert_eq!(tree.end(Scope::All, TERM).await.unwrap(), leftovers::Ended::default());
    assert!(child.try_wait().unwrap().is_none());
    inner.end(Scope::All, TERM).await.unwrap();
}

#[tokio::test]
async fn a_program_that_is_not_there_leaves_nothing() {
    let _alone = alone();
    let tree = Tree::new(&execution("absent"));
    let program = piton_agentctl::tree::Program {
        command: vec!["no-such-program-of-piton".to_owned()],
        cwd: std::env::temp_dir(),
        env: Vec::new(),
        env_remove: Vec::new(),
        part: ProcessRole::Agent,
        streams: piton_agentctl::tree::Streams::Piped,
    };
    assert_eq!(tree.spawn(program).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    tree.end(Scope::All, TERM).await.unwrap();
    assert_eq!(cgroup::locate(tree.mark()), []);
}
