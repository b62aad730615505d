//! Shells in real terminals.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::time::Duration;

use crate::common::{Marked, execution, marked, until};
use piton_agentctl::tree::{ProcessRole, Scope, Tree};
use piton_agentctl::workspace::Workspace;
use piton_agentctl::workspace::shells::{SCROLLBACK_BYTES, ShellEvent, Shells};
use piton_core::Code;
use piton_exec::protocol::workspace::{NewShell, SHELLS_MAX, ShellEnded};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

struct World {
    shells: Shells,
    tree: Tree,
    folder: TempDir,
    _marked: Marked,
}

fn world(name: &str) -> World {
    let marked = marked();
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(&execution(name));
    let workspace = Workspace::open(folder.path(), &std::env::temp_dir(), &tree).unwrap();
    World { shells: Shells::new(&workspace), tree, folder, _marked: marked }
}

impl World {
    async fn open(&self, command: &[&str]) -> String {
        let command = command.iter().map(ToString::to_string).collect();
        let new = NewShell { command, cols: Some(100), rows: Some(40) };
        self.shells.open(new).await.unwrap().shell_id
    }

    fn count(&self, shell_id: &str) -> usize {
        self.tree.find(&Scope::Role(ProcessRole::Shell(shell_id.to_owned()))).unwrap().len()
    }

    async fn tidy(self) {
        self.shells.close_all().await.unwrap();
        assert_eq!(self.tree.end(Scope::All, Duration::ZERO).await.unwrap().processes, []);
    }
}

async fn next(events: &mut Receiver<ShellEvent>) -> ShellEvent {
    let event = tokio::time::timeout(Duration::from_secs(20), events.recv()).await;
    event.expect("An event in time").expect("An event before the end")
}

/// Reads until the output has `text`.
async fn expect(events: &mut Receiver<ShellEvent>, text: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(text) {
        match next(events).await {
            ShellEvent::Output(bytes) => seen.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} after {seen:?}"),
        }
    }
    seen
}

async fn ended(events: &mut Receiver<ShellEvent>) -> ShellEnded {
    loop {
        match next(events).await {
            ShellEvent::Output(_) => {}
            ShellEvent::Ended(ended) => return ended,
            ShellEvent::CutOff => panic!("cut off"),
        }
    }
}

#[tokio::test]
async fn what_is_typed_is_answered_in_the_workspace() {
    let world = world("typed");
    let shell = world.open(&["sh"]).await;
    let (mut events, writer) = world.shells.attach(&shell).unwrap();
    writer.write(b"echo at-$(pwd)-$PITON_EXECUTION\n").await.unwrap();
    let folder = world.folder.path().canonicalize().unwrap();
    let wanted = format!("at-{}-{}", folder.display(), world.tree.mark().execution());
    expect(&mut events, &wanted).await;
    writer.write(b"stty size\n").await.unwrap();
    expect(&mut events, "40 100").await;
    world.shells.resize(&shell, 123, 45).unwrap();
    writer.write(b"stty size\n").await.unwrap();
    expect(&mut events, "45 123").await;
    // It has a terminal of its own to control.
    writer.write(b"echo x >/dev/tty && echo had-a-$((1 + 1))-tty\n").await.unwrap();
    expect(&mut events, "had-a-2-tty").await;
    writer.write(b"exit 3\n").await.unwrap();
    assert_eq!(ended(&mut events).await, ShellEnded { exit_code: Some(3), signal: None });
    assert!(events.recv().await.is_none());
    world.tidy().await;
}

#[tokio::test]
async fn one_who_comes_later_sees_what_was_kept() {
    let world = world("later");
    let shell = world.open(&["sh", "-c", "seq 1 40000; echo done-now; read line; exit 4"]).await;
    let (mut events, writer) = world.shells.attach(&shell).unwrap();
    expect(&mut events, "done-now").await;
    let (mut later, _) = world.shells.attach(&shell).unwrap();
    let ShellEvent::Output(kept) = next(&mut later).await else { panic!("no output") };
    assert_eq!(kept.len(), SCROLLBACK_BYTES);
    assert!(String::from_utf8(kept).unwrap().contains("done-now"));
    writer.write(b"\n").await.unwrap();
    let end = ShellEnded { exit_code: Some(4), signal: None };
    assert_eq!(ended(&mut events).await, end);
    assert_eq!(ended(&mut later).await, end);
    // Even one who comes after the end.
    let (mut last, _) = world.shells.attach(&shell).unwrap();
    assert!(matches!(next(&mut last).await, ShellEvent::Output(_)));
    assert_eq!(next(&mut last).await, ShellEvent::Ended(end));
    world.tidy().await;
}

#[tokio::test]
async fn one_who_is_too_slow_is_cut_off() {
    let world = world("slow");
    let shell =
        world.open(&["sh", "-c", "echo go; read line; yes | head -c 8000000; echo over"]).await;
    let (mut slow, writer) = world.shells.attach(&shell).unwrap();
    let (mut quick, _) = world.shells.attach(&shell).unwrap();
    writer.write(b"\n").await.unwrap();
    ended(&mut quick).await;
    let mut bytes = 0;
    loop {
        match next(&mut slow).await {
            ShellEvent::Output(output) => bytes += output.len(),
            ShellEvent::CutOff => break,
            ShellEvent::Ended(_) => panic!("kept up"),
        }
    }
    assert!(bytes < 8_000_000);
    assert!(slow.recv().await.is_none());
    world.tidy().await;
}

#[tokio::test]
async fn a_closed_shell_leaves_no_process() {
    let world = world("closed");
    let script = "(setsid sleep 300 &) ; nohup sleep 300 >/dev/null 2>&1 & sleep 300 & cat";
    for command in [vec!["sh", "-c", script], vec!["sh", "-c", "trap '' HUP TERM; cat; cat"]] {
        let wanted = if command[2] == script { 5 } else { 2 };
        let shell = world.open(&command).await;
        let (mut events, _) = world.shells.attach(&shell).unwrap();
        until("all run", || world.count(&shell) >= wanted - 1).await;
        world.shells.close(&shell).await.unwrap();
        assert_eq!(world.count(&shell), 0);
        ended(&mut events).await;
        assert_eq!(world.shells.close(&shell).await.unwrap_err().code(), Code::ShellNotFound);
    }
    world.tidy().await;
}

/// A process in the background holds the terminal open, and the shell's end is reported
/// nevertheless.
#[tokio::test]
async fn the_end_does_not_wait_for_the_background() {
    let world = world("background");
    let shell = world.open(&["sh", "-c", "trap '' HUP; sleep 300 & echo x; exit 5"]).await;
    let (mut events, _) = world.shells.attach(&shell).unwrap();
    assert_eq!(ended(&mut events).await, ShellEnded { exit_code: Some(5), signal: None });
    assert_eq!(world.count(&shell), 1);
    world.tidy().await;
}

#[tokio::test]
async fn there_are_only_so_many() {
    let world = world("many");
    let mut opened = Vec::new();
    for _ in 0..SHELLS_MAX {
        opened.push(world.open(&["cat"]).await);
    }
    let more = NewShell { command: vec!["cat".to_owned()], ..NewShell::default() };
    assert_eq!(world.shells.open(more.clone()).await.unwrap_err().code(), Code::LimitReached);
    let (mut events, writer) = world.shells.attach(&opened[0]).unwrap();
    writer.write(&[4]).await.unwrap();
    ended(&mut events).await;
    // The one that has ended makes room.
    world.shells.open(more).await.unwrap();
    assert_eq!(world.shells.attach(&opened[0]).unwrap_err().code(), Code::ShellNotFound);
    let absent = NewShell { command: vec!["no-such-program".to_owned()], ..NewShell::default() };
    world.shells.close(&opened[1]).await.unwrap();
    assert_eq!(world.shells.open(absent).await.unwrap_err().code(), Code::ShellStartFailed);
    world.tidy().await;
}
