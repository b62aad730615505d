//! What an agent asks of its client.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::path::PathBuf;
use std::time::Duration;

use crate::common::{Marked, execution, marked, until};
use piton_agent::{TerminalExit, TerminalOutput, TerminalSpec, ToolHost};
use piton_agentctl::host::Host;
use piton_agentctl::terminals::TERMINALS_MAX;
use piton_agentctl::tree::{ProcessRole, Scope, Tree};
use piton_agentctl::workspace::Workspace;
use piton_core::Code;
use tempfile::TempDir;

struct World {
    host: Host,
    tree: Tree,
    folder: TempDir,
    _marked: Marked,
}

fn world(name: &str) -> World {
    let marked = marked();
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(&execution(name));
    let workspace = Workspace::open(folder.path(), &std::env::temp_dir(), &tree).unwrap();
    World { host: Host::new(&workspace), tree, folder, _marked: marked }
}

fn line(command: &str) -> TerminalSpec {
    TerminalSpec { command: command.to_owned(), ..TerminalSpec::default() }
}

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn run(&self, spec: TerminalSpec) -> (TerminalExit, TerminalOutput) {
        let id = self.host.create_terminal(spec).await.unwrap();
        let exit = self.host.wait_for_exit(id.clone()).await.unwrap();
        let output = self.host.terminal_output(id.clone()).await.unwrap();
        assert_eq!(output.exit, Some(exit));
        self.host.release_terminal(id).await.unwrap();
        (exit, output)
    }

    fn count(&self, id: &str) -> usize {
        self.tree.find(&Scope::Role(ProcessRole::Terminal(id.to_owned()))).unwrap().len()
    }

    async fn tidy(self) {
        self.host.release_all().await.unwrap();
        assert_eq!(self.tree.end(Scope::All, Duration::ZERO).await.unwrap().processes, []);
    }
}

#[tokio::test]
async fn files_are_read_by_lines_and_written() {
    let world = world("lines");
    let path = world.path("folder/file");
    world.host.write_text_file(path.clone(), "1\n2\n3\n4".to_owned()).await.unwrap();
    let read = |line, limit| world.host.read_text_file(path.clone(), line, limit);
    assert_eq!(read(None, None).await.unwrap(), "1\n2\n3\n4");
    assert_eq!(read(Some(2), Some(2)).await.unwrap(), "2\n3\n");
    assert_eq!(read(Some(4), None).await.unwrap(), "4");
    assert_eq!(read(None, Some(1)).await.unwrap(), "1\n");
    assert_eq!(read(Some(9), Some(1)).await.unwrap(), "");
    assert_eq!(read(Some(0), Some(1)).await.unwrap(), "1\n");
    let outside = world.host.read_text_file("/etc/passwd".into(), None, None).await;
    assert_eq!(outside.unwrap_err().code, Code::PathOutside);
    let outside = world.host.write_text_file("/etc/x".into(), String::new()).await;
    assert_eq!(outside.unwrap_err().code, Code::PathOutside);
    world.tidy().await;
}

#[tokio::test]
async fn a_terminal_has_output_exit_code_environment_and_folder() {
    let world = world("output");
    std::fs::create_dir(world.path("sub")).unwrap();
    let spec = TerminalSpec {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), "echo $A; echo err >&2; basename $(pwd); exit 3".to_owned()],
        env: vec![("A".to_owned(), "value".to_owned())],
        cwd: Some(world.path("sub")),
        output_bytes_max: None,
    };
    let (exit, output) = world.run(spec.clone()).await;
    assert_eq!(exit, TerminalExit { exit_code: Some(3), signal: None });
    assert_eq!((output.output.as_str(), output.truncated), ("value\nerr\nsub\n", false));
    let (_, output) = world.run(line("echo a | tr a b")).await;
    assert_eq!(output.output, "b\n");
    let absent = world.host.create_terminal(line("no-such-program")).await;
    let absent = absent.unwrap_err();
    assert_eq!(absent.code, Code::TerminalStartFailed);
    assert!(absent.message.contains("does not start: No such file"), "{}", absent.message);
    let outside = TerminalSpec { cwd: Some("/".into()), ..spec };
    assert_eq!(world.host.create_terminal(outside).await.unwrap_err().code, Code::PathOutside);
    let unknown = world.host.terminal_output("9".to_owned()).await;
    assert_eq!(unknown.unwrap_err().code, Code::TerminalNotFound);
    world.tidy().await;
}

#[tokio::test]
async fn of_long_output_the_end_is_kept() {
    let world = world("long");
    let spec = TerminalSpec { output_bytes_max: Some(8), ..line("printf 'abcdefgh€€end'") };
    let (_, output) = world.run(spec).await;
    assert_eq!((output.output.as_str(), output.truncated), ("€end", true));
    let (_, output) = world.run(line("yes | head -c 3000000; echo over")).await;
    assert!(output.truncated && output.output.ends_with("over\n"));
    assert_eq!(output.output.len(), 1024 * 1024);
    world.tidy().await;
}

#[tokio::test]
async fn killed_it_is_still_readable_released_it_is_gone() {
    let world = world("kill");
    let id = world.host.create_terminal(line("echo begun; (setsid sleep 300 &) ; sleep 300")).await;
    let id = id.unwrap();
    until("both run", || world.count(&id) >= 3).await;
    world.host.kill_terminal(id.clone()).await.unwrap();
    assert_eq!(world.count(&id), 0);
    let output = world.host.terminal_output(id.clone()).await.unwrap();
    assert_eq!(output.output, "begun\n");
    assert_eq!(output.exit, Some(TerminalExit { exit_code: None, signal: Some(15) }));
    world.host.kill_terminal(id.clone()).await.unwrap();
    world.host.release_terminal(id.clone()).await.unwrap();
    assert_eq!(world.host.terminal_output(id).await.unwrap_err().code, Code::TerminalNotFound);
    let id = world.host.create_terminal(line("trap '' TERM; while :; do sleep 300; done")).await;
    let id = id.unwrap();
    until("it runs", || world.count(&id) == 2).await;
    let waiting = world.host.wait_for_exit(id.clone());
    let (exit, released) = tokio::join!(waiting, world.host.release_terminal(id.clone()));
    released.unwrap();
    assert_eq!(exit.unwrap(), TerminalExit { exit_code: None, signal: Some(9) });
    assert_eq!(world.count(&id), 0);
    world.tidy().await;
}

/// What runs on in the background does not keep the command from having ended.
#[tokio::test]
async fn the_exit_does_not_wait_for_the_background() {
    let world = world("background");
    let (exit, output) = world.run(line("sleep 300 & echo x; exit 2")).await;
    assert_eq!(exit, TerminalExit { exit_code: Some(2), signal: None });
    assert_eq!(output.output, "x\n");
    world.tidy().await;
}

#[tokio::test]
async fn there_are_only_so_many() {
    let world = world("many");
    for _ in 0..TERMINALS_MAX {
        world.host.create_terminal(line("true")).await.unwrap();
    }
    let more = world.host.create_terminal(line("true")).await;
    assert_eq!(more.unwrap_err().code, Code::LimitReached);
    world.host.release_all().await.unwrap();
    world.host.create_terminal(line("true")).await.unwrap();
    world.tidy().await;
}
