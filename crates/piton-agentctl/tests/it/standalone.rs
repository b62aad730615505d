//! The standalone executor with real agentctl processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use crate::ctl::{self, World};
use piton_core::Code;
use piton_core::decide::Probe;
use piton_core::spool::Fact;
use piton_exec::conformance;
use piton_exec::executor::Executor;
use piton_exec::protocol::{Act, Command};

fn stop(id: &str) -> Command {
    Command { id: id.to_owned(), act: Act::Stop {} }
}

#[tokio::test]
async fn it_conforms() {
    let world = World::new();
    conformance::all(|| Arc::new(world.executor()), &world.workspace()).await;
}

#[tokio::test]
async fn its_folder_and_socket_are_closed_to_others() {
    let world = World::new();
    let run = world.launch().await;
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&run.folder()), 0o700);
    assert_eq!(mode(&world.data().join("run")), 0o700);
    assert_eq!(mode(&run.socket()), 0o600);
    assert_eq!(mode(&run.folder().join("spool")), 0o700);
    for file in ["lock", "epoch", "agentctl.log"] {
        assert_eq!(mode(&run.folder().join(file)), 0o600, "{file}");
    }
    for file in fs::read_dir(run.folder().join("spool")).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{path:?}");
    }
}

#[tokio::test]
async fn a_deleted_socket_comes_back_when_it_is_probed() {
    let world = World::new();
    let run = world.launch().await;
    fs::remove_file(run.socket()).unwrap();
    assert!(run.client(1).health().await.is_err());
    assert_eq!(world.executor().probe(&run.execution).await, Probe::Alive);
    assert_eq!(run.client(1).health().await.unwrap().pid, run.pid);
}

/// The folder is renamed under a living agentctl: an executor over the new place finds it, and
/// what it keeps from then on is there.
#[tokio::test]
async fn the_data_folder_may_be_moved() {
    let mut world = World::new();
    let run = world.launch().await;
    world.rename_data();
    let executor = world.executor();
    assert_eq!(executor.probe(&run.execution).await, Probe::Alive);
    let located = executor.find(&run.execution).await.unwrap().unwrap();
    let client = located.client(&run.secret, 1);
    client.command(&stop("moved")).await.unwrap();
    let ctl::Socket(socket) = ctl::Socket::of(&located);
    fs::remove_file(socket).unwrap();
    assert_eq!(executor.probe(&run.execution).await, Probe::Alive, "rebound in the new place");
    client.command(&Command { id: "end".into(), act: Act::Close {} }).await.unwrap();
    ctl::until("gone", async || executor.probe(&run.execution).await == Probe::Gone).await;
    let kept = ctl::facts_on_disk(&executor.spool(&run.execution).await.unwrap(), &run.secret);
    let commanded = |id: &str, command: &str| Fact::CommandAccepted {
        command_id: id.to_owned(),
        command: command.to_owned(),
    };
    assert_eq!(kept, [commanded("moved", "stop"), commanded("end", "close")]);
}

/// A copy of the folder says where the original's socket is: a server of the copy must not speak to
/// the original through it, or remove it.
#[tokio::test]
async fn a_copy_is_not_led_to_the_originals_socket() {
    for mut world in [World::new(), World::deep()] {
        let run = world.launch().await;
        let original = world.executor();
        world.copy_data();
        let copy = world.executor();
        let ctl::Socket(socket) =
            ctl::Socket::of(&copy.find(&run.execution).await.unwrap().unwrap());
        assert_ne!(socket, run.socket());
        let connected = std::os::unix::net::UnixStream::connect(&socket);
        assert!(connected.is_err(), "nobody listens to a copy");
        assert_eq!(copy.probe(&run.execution).await, Probe::Gone);
        copy.stop(&run.execution, 1).await.unwrap();
        copy.forget(&run.execution).await.unwrap();
        assert_eq!(original.probe(&run.execution).await, Probe::Alive);
        assert_eq!(run.client(1).health().await.unwrap().pid, run.pid);
    }
}

/// In a private folder, too, the socket is found from wherever the data folder was moved to.
#[tokio::test]
async fn a_deep_data_folder_may_be_moved() {
    let mut world = World::deep();
    let run = world.launch().await;
    world.rename_data();
    let located = world.executor().find(&run.execution).await.unwrap().unwrap();
    assert_eq!(located, run.located);
    assert_eq!(world.executor().probe(&run.execution).await, Probe::Alive);
}

#[tokio::test]
async fn a_path_that_is_too_long_goes_elsewhere() {
    let world = World::deep();
    let run = world.launch().await;
    assert!(!run.socket().starts_with(world.data()), "{:?}", run.socket());
    assert_eq!(world.executor().probe(&run.execution).await, Probe::Alive);
    world.executor().stop(&run.execution, 1).await.unwrap();
    assert!(!run.socket().exists());
}

/// Wants to show: of the program copies that executions of several versions were started from,
/// those stay that a process runs from, and the one that the next launch takes.
#[tokio::test]
async fn a_program_that_nothing_runs_from_is_removed() {
    let world = World::new();
    // Written by another process: a file that this process has open while it forks cannot be
    // executed.
    let make = r#"cp "$1" "$2" && printf %s "$3" >> "$2""#;
    let version = |name: &str| {
        let path = world.workspace().join(name);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", make, "sh"]).arg(ctl::program()).arg(&path).arg(name);
        assert!(command.status().unwrap().success());
        world.executor_of(path)
    };
    let kept = || fs::read_dir(world.data().join("bin")).unwrap().count();
    let (first, second, third) = (version("1"), version("22"), version("333"));
    let old = world.launch_on(&first, world.spec()).await;
    let ended = world.launch_on(&second, world.spec()).await;
    second.stop(&ended.execution, 1).await.unwrap();
    let new = world.launch_on(&third, world.spec()).await;
    fs::write(world.data().join("bin/notes"), "not ours").unwrap();
    assert_eq!(kept(), 4);
    third.tidy().await.unwrap();
    assert_eq!(kept(), 3, "the second is removed");
    for run in [&old, &new] {
        assert_eq!(third.probe(&run.execution).await, Probe::Alive);
        let from = fs::read_link(format!("/proc/{}/exe", run.pid)).unwrap();
        assert!(from.exists(), "{from:?}");
    }
    old.client(1).command(&stop("still")).await.unwrap();
    third.stop(&old.execution, 1).await.unwrap();
    third.stop(&new.execution, 1).await.unwrap();
    third.tidy().await.unwrap();
    assert_eq!(kept(), 2, "the third's is for the next launch");
    world.launch_on(&first, world.spec()).await;
}

/// SIGKILL of agentctl: what it kept is readable, and it is gone.
#[tokio::test]
async fn a_killed_agentctl_is_gone_and_its_spool_is_read() {
    let world = World::new();
    let run = world.launch().await;
    run.client(1).command(&stop("before")).await.unwrap();
    ctl::kill(run.pid);
    ctl::until("gone", async || world.executor().probe(&run.execution).await == Probe::Gone).await;
    let folder = world.executor().spool(&run.execution).await.unwrap();
    let kept = ctl::facts_on_disk(&folder, &run.secret);
    let fact = Fact::CommandAccepted { command_id: "before".into(), command: "stop".into() };
    assert_eq!(kept, [fact]);
}

/// A stopped process holds its lock and does not respond: it must not be taken for dead.
#[tokio::test]
async fn a_silent_agentctl_is_unreachable_and_can_be_stopped() {
    let world = World::new();
    let run = world.launch().await;
    ctl::signal(run.pid, rustix::process::Signal::STOP);
    assert_eq!(world.executor().probe(&run.execution).await, Probe::Unreachable);
    world.executor().stop(&run.execution, 1).await.unwrap();
    assert_eq!(world.executor().probe(&run.execution).await, Probe::Gone);
}

#[tokio::test]
async fn one_that_is_alone_for_too_long_ends() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.idle_s_max = 1;
    let run = world.launch_with(spec).await;
    ctl::until("gone", async || world.executor().probe(&run.execution).await == Probe::Gone).await;
    assert!(!run.socket().exists());
}

#[tokio::test]
async fn one_that_is_watched_does_not_end() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.idle_s_max = 1;
    let run = world.launch_with(spec).await;
    let client = run.client(1);
    let spool_id = client.health().await.unwrap().spool.spool_id;
    let mut stream = client.stream(&spool_id, 0).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_millis(2_500), stream.next()).await;
    assert!(ended.is_err(), "{ended:?}");
}

#[tokio::test]
async fn a_program_that_ends_at_once_is_a_failure_with_a_reason() {
    let world = World::new();
    let executor = world.executor_of("/bin/false".into());
    let error = executor.launch(world.spec()).await.unwrap_err();
    assert_eq!(error.code(), Code::AgentctlEnded);
    let executor = world.executor_of("/nonexistent/piton".into());
    let error = executor.launch(world.spec()).await.unwrap_err();
    assert_eq!(error.code(), Code::AgentctlMissing);
}

/// Where there is a systemd, agentctl is started through it; where it refuses, without it.
#[tokio::test]
async fn a_scope_is_asked_for_and_done_without() {
    let world = World::new();
    let script = world.data().join("systemd-run");
    let write = |text: &str| {
        fs::create_dir_all(world.data()).unwrap();
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    };
    write(
        "#!/bin/sh\necho \"$@\" >> \"$0.said\"\nwhile [ \"$1\" != -- ]; do shift; done; shift\nexec \"$@\"\n",
    );
    let executor = world.executor().with_scope_program(Some(script.clone()));
    let run = world.launch_on(&executor, world.spec()).await;
    let said = fs::read_to_string(script.with_extension("said")).unwrap();
    assert!(said.contains("--scope --quiet --collect -- "), "{said}");
    executor.stop(&run.execution, 1).await.unwrap();
    write("#!/bin/sh\necho refused >> \"$0.said\"\nexit 1\n");
    world.launch_on(&executor, world.spec()).await;
    assert!(fs::read_to_string(script.with_extension("said")).unwrap().contains("refused"));
}

/// A probe while it ends finds it alive or gone, and nothing else.
#[tokio::test]
async fn one_that_ends_is_never_unreachable() {
    let world = World::new();
    let executor = world.executor();
    for _ in 0..5 {
        let run = world.launch().await;
        ctl::signal(run.pid, rustix::process::Signal::TERM);
        ctl::until("gone", async || match executor.probe(&run.execution).await {
            Probe::Gone => true,
            liveness => {
                assert_eq!(liveness, Probe::Alive);
                false
            }
        })
        .await;
    }
}

/// A start that meets the end is refused, or ended with everything else.
#[tokio::test]
async fn a_start_at_the_end_leaves_nothing_behind() {
    let world = World::new();
    let run = world.launch().await;
    let program = ctl::program().display().to_string();
    let start = piton_exec::protocol::Start {
        command: vec![program, "echo".to_owned()],
        ..Default::default()
    };
    let client = run.client(1);
    let close = Command { id: "close".into(), act: Act::Close {} };
    let start = Command { id: "start".into(), act: Act::Start(start) };
    let (closed, _) = tokio::join!(client.command(&close), client.command(&start));
    closed.unwrap();
    ctl::until("gone", async || !run.socket().exists()).await;
    let left = run.processes();
    assert!(left.is_empty(), "{left:?}");
}
