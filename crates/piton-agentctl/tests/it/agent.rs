//! agentctl with an agent: the built-in one, and programs that are none.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::ctl::{self, Run, World, entries_until};
use piton_core::Code;
use piton_core::decide::Probe;
use piton_core::id::{RunId, WaitId};
use piton_core::spool::{AgentSessions, Ended, Entry, Fact, OpenedAs};
use piton_exec::client::ClientError;
use piton_exec::executor::Executor;
use piton_exec::protocol::{Act, AgentStatus, Command, Reply, Start};
use serde_json::json;

async fn act(run: &Run, id: &str, act: Act) -> Result<Reply, ClientError> {
    run.client(1).command(&Command { id: id.to_owned(), act }).await
}

fn echo(args: &[&str]) -> Start {
    let mut command = vec![ctl::program().display().to_string(), "echo".to_owned()];
    command.extend(args.iter().map(ToString::to_string));
    Start { command, ..Start::default() }
}

fn program(command: &[&str]) -> Start {
    Start { command: command.iter().map(ToString::to_string).collect(), ..Start::default() }
}

fn turn(id: &str) -> RunId {
    id.parse().unwrap()
}

async fn prompt(run: &Run, id: &str, text: &str) -> Result<Reply, ClientError> {
    act(run, id, Act::Prompt { run_id: turn(&format!("run_{id}")), content: text.into() }).await
}

fn is_ready(fact: &Fact) -> bool {
    matches!(fact, Fact::AgentReady { .. })
}

fn turn_ended(fact: &Fact) -> bool {
    matches!(fact, Fact::TurnEnded { .. })
}

fn said(entries: &[Entry]) -> String {
    let text = entries.iter().filter_map(|entry| match &entry.fact {
        Fact::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    text.collect()
}

/// With an agent that is ready, and a stream behind that.
async fn ready(world: &World, args: &[&str]) -> (Run, piton_exec::client::Stream) {
    let run = world.launch().await;
    let mut stream = run.stream(1, 0).await;
    act(&run, "start", Act::Start(echo(args))).await.unwrap();
    entries_until(&mut stream, is_ready).await;
    (run, stream)
}

/// Wants to show: agentctl says what its agent advertised, and that the workspace needs no agent.
#[tokio::test]
async fn the_capabilities_are_those_that_the_agent_advertised() {
    for (options, resumes) in [(&[] as &[&str], true), (&["--no-load", "--no-resume"], false)] {
        let world = World::new();
        let run = world.launch().await;
        let before = run.client(1).capabilities().await.unwrap();
        assert_eq!((before.supports_session_resume, before.supports_workspace_only), (false, true));
        let mut stream = run.stream(1, 0).await;
        act(&run, "start", Act::Start(echo(options))).await.unwrap();
        entries_until(&mut stream, is_ready).await;
        let offered = run.client(1).capabilities().await.unwrap();
        assert_eq!(offered.supports_session_resume, resumes, "{options:?}: {offered:?}");
    }
}

#[tokio::test]
async fn a_prompt_is_answered_and_a_second_agent_refused() {
    let world = World::new();
    let (run, mut stream) = ready(&world, &[]).await;
    let client = run.client(1);
    ctl::until("ready", async || {
        client.health().await.unwrap().agent.status == Some(AgentStatus::Ready)
    })
    .await;
    let health = client.health().await.unwrap();
    assert!(health.agent.pid.is_some() && health.agent.agent_session_id.is_some());
    let again = act(&run, "again", Act::Start(echo(&[]))).await.unwrap_err();
    assert_eq!(again.code(), Code::AgentRunning);
    prompt(&run, "p1", "say hello there").await.unwrap();
    // A repeat is no second turn.
    assert!(prompt(&run, "p1", "say hello there").await.unwrap().replayed);
    let entries = entries_until(&mut stream, turn_ended).await;
    assert_eq!(said(&entries), "hello there");
    let started = entries.iter().position(|entry| entry.fact == Fact::TurnStarted {}).unwrap();
    let commanded = entries.iter().position(
        |entry| matches!(&entry.fact, Fact::CommandAccepted { command_id, .. } if command_id == "p1"),
    );
    assert!(commanded.unwrap() < started, "{entries:#?}");
    assert!(entries[started..].iter().all(|entry| entry.run_id == Some(turn("run_p1"))));
    act(&run, "stop", Act::Stop {}).await.unwrap();
    let entries = entries_until(&mut stream, |fact| matches!(fact, Fact::AgentExited { .. })).await;
    let asked = matches!(entries.last().unwrap().fact, Fact::AgentExited { requested: true, .. });
    assert!(asked, "{entries:#?}");
    assert_eq!(run.client(1).health().await.unwrap().agent.status, Some(AgentStatus::Exited));
    assert_eq!(prompt(&run, "p2", "x").await.unwrap_err().code(), Code::AgentNotRunning);
}

/// The server goes away while a question is open; the next one finds it, answers, and the turn
/// ends.
#[tokio::test]
async fn a_permission_is_answered_after_the_client_came_back() {
    let world = World::new();
    let (run, mut stream) = ready(&world, &[]).await;
    let pid = run.client(1).health().await.unwrap().agent.pid;
    prompt(&run, "p1", "say before\nask May I?\nsay after").await.unwrap();
    let asked = entries_until(&mut stream, |fact| matches!(fact, Fact::WaitOpened { .. })).await;
    drop(stream);
    let Fact::WaitOpened { wait_id, question, .. } = &asked.last().unwrap().fact else { panic!() };
    let client = run.client(2);
    let health = client.health().await.unwrap();
    assert_eq!(health.asking.iter().collect::<Vec<_>>(), [wait_id]);
    assert_eq!(health.run_id, Some(turn("run_p1")));
    assert_eq!(health.agent.pid, pid);
    let mut stream = client.stream(&run.spool_id, asked.last().unwrap().pos).await.unwrap();
    let option = question["options"][0]["option_id"].as_str();
    let option = option.or_else(|| question["options"][0]["option_id"].as_str()).unwrap();
    let answer = |wait_id: &WaitId, option: &str| Act::Answer {
        wait_id: wait_id.clone(),
        answer: Some(json!({ "option_id": option })),
    };
    let give = |id: &str, act: Act| Command { id: id.to_owned(), act };
    let wrong = client.command(&give("a0", answer(wait_id, "nonsense"))).await.unwrap_err();
    assert_eq!(wrong.code(), Code::AnswerInvalid);
    client.command(&give("a1", answer(wait_id, option))).await.unwrap();
    let entries = entries_until(&mut stream, turn_ended).await;
    let ended = Fact::WaitEnded { wait_id: wait_id.clone(), why: Ended::Answered };
    assert!(entries.iter().any(|entry| entry.fact == ended), "{entries:#?}");
    assert!(said(&entries).contains("after"));
}

#[tokio::test]
async fn a_turn_is_cancelled() {
    let world = World::new();
    let (run, mut stream) = ready(&world, &[]).await;
    prompt(&run, "p1", "stream 100000 5").await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
    let busy = prompt(&run, "p2", "say x").await.unwrap_err();
    assert_eq!(busy.code(), Code::AgentBusy);
    let other = act(&run, "c0", Act::Cancel { run_id: turn("run_other") }).await.unwrap_err();
    assert_eq!(other.code(), Code::TurnNotFound);
    act(&run, "c1", Act::Cancel { run_id: turn("run_p1") }).await.unwrap();
    let entries = entries_until(&mut stream, turn_ended).await;
    let cancelled = Fact::TurnEnded { stop_reason: "cancelled".to_owned() };
    assert_eq!(entries.last().unwrap().fact, cancelled);
}

#[tokio::test]
async fn a_crash_is_reported_with_its_last_words_and_the_next_one_starts() {
    let world = World::new();
    let memory = world.workspace().join("memory.json").display().to_string();
    let (run, mut stream) = ready(&world, &["--memory", &memory]).await;
    prompt(&run, "p0", "remember colour green").await.unwrap();
    entries_until(&mut stream, turn_ended).await;
    let session = run.client(1).health().await.unwrap().agent.agent_session_id;
    prompt(&run, "p1", "stderr it hurts\nsay half\nescape sleep 1000\ncrash").await.unwrap();
    let exited = |fact: &Fact| matches!(fact, Fact::AgentExited { .. });
    let entries = entries_until(&mut stream, exited).await;
    assert_eq!(said(&entries), "half");
    let Fact::AgentExited { signal, requested: asked, stderr, .. } = &entries.last().unwrap().fact
    else {
        panic!()
    };
    assert!(signal.is_some() && !asked && stderr.contains("it hurts"), "{entries:#?}");
    let left = run.processes();
    assert!(left.is_empty(), "{left:?}");
    // The workspace is usable without an agent, and another agent resumes the conversation.
    run.client(1).list("").await.unwrap();
    let start = Start { agent_session_id: session, ..echo(&["--memory", &memory]) };
    act(&run, "start2", Act::Start(start)).await.unwrap();
    let entries = entries_until(&mut stream, is_ready).await;
    let resumed = matches!(
        entries.last().unwrap().fact,
        Fact::AgentReady { opened_as: OpenedAs::Resumed | OpenedAs::Loaded, .. }
    );
    assert!(resumed, "{entries:#?}");
    prompt(&run, "p2", "recall colour").await.unwrap();
    let entries = entries_until(&mut stream, turn_ended).await;
    assert!(said(&entries).contains("green"), "{entries:#?}");
}

/// Each is an error with a code and a sentence, and leaves nothing behind.
#[tokio::test]
async fn what_is_no_agent_is_named() {
    let world = World::new();
    let plain = world.workspace().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").unwrap();
    let binary = world.workspace().join("binary");
    std::fs::write(&binary, [0, 1, 2, 3]).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut spec = world.spec();
    spec.limits.start_ms_max = 1_000;
    let run = world.launch_with(spec).await;
    let mut stream = run.stream(1, 0).await;
    let missing = Start {
        install_hint: Some("npm install -g no-such-agent".to_owned()),
        ..program(&["no-such-agent-anywhere"])
    };
    let nowhere = Start { cwd: Some("/nonexistent".into()), ..echo(&[]) };
    let cases = [
        (missing, Code::AgentMissing, "npm install -g no-such-agent"),
        (nowhere, Code::WorkspaceMissing, "/nonexistent"),
        (program(&[plain.to_str().unwrap()]), Code::AgentNotExecutable, "plain"),
        (program(&[binary.to_str().unwrap()]), Code::AgentNotExecutable, "binary"),
        (program(&["sh", "-c", "echo no licence >&2; exit 7"]), Code::AgentExited, "no licence"),
        (program(&["sh", "-c", "echo waiting >&2; sleep 1000"]), Code::AgentTimeout, "waiting"),
        (echo(&["--no-answer"]), Code::AgentTimeout, "initialize"),
        (echo(&["--protocol", "7"]), Code::AgentVersion, "version 7"),
        (echo(&["--crash-at", "new"]), Code::AgentExited, "before it was ready"),
    ];
    for (n, (start, code, words)) in cases.into_iter().enumerate() {
        act(&run, &format!("start{n}"), Act::Start(start)).await.unwrap();
        let failed = |fact: &Fact| matches!(fact, Fact::AgentError { .. });
        let entries = entries_until(&mut stream, failed).await;
        let Fact::AgentError { code: found, message, .. } = &entries.last().unwrap().fact else {
            panic!()
        };
        assert_eq!(*found, code, "{message}");
        assert!(message.contains(words), "{message}");
    }
    let client = run.client(1);
    ctl::until("error", async || {
        client.health().await.unwrap().agent.status == Some(AgentStatus::Error)
    })
    .await;
    let left = run.processes();
    assert!(left.is_empty(), "{left:?}");
}

/// An agent that ignores everything is stopped all the same, with what hid from it.
#[tokio::test]
async fn a_stubborn_agent_is_ended_with_everything_it_started() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.term_ms = 200;
    let run = world.launch_with(spec).await;
    let mut stream = run.stream(1, 0).await;
    act(&run, "start", Act::Start(echo(&[]))).await.unwrap();
    entries_until(&mut stream, is_ready).await;
    prompt(&run, "p1", "ignore-term\nescape sleep 1000\nsay hidden\nhang").await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
    assert!(run.processes().len() >= 2);
    act(&run, "close", Act::Close {}).await.unwrap();
    let executor = world.executor();
    ctl::until("gone", async || executor.probe(&run.execution).await == Probe::Gone).await;
    let kept = ctl::facts_on_disk(&run.folder().join("spool"), &run.secret);
    assert!(matches!(kept.last(), Some(Fact::AgentExited { requested: true, .. })), "{kept:#?}");
}

/// SIGKILL of agentctl: the agent and what it hid are ended before it is called gone.
#[tokio::test]
async fn nothing_outlives_a_killed_agentctl() {
    let world = World::new();
    let (run, mut stream) = ready(&world, &[]).await;
    prompt(&run, "p1", "escape sleep 1000\nsay hidden\nhang").await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
    // An entry is streamed before it is written; no server acknowledges it, so it is written soon.
    let is_kept = || {
        let kept = ctl::facts_on_disk(&run.folder().join("spool"), &run.secret);
        kept.iter().any(|fact| matches!(fact, Fact::Text { .. }))
    };
    ctl::until("the text is in the spool", async || is_kept()).await;
    ctl::kill(run.pid);
    let executor = world.executor();
    ctl::until("gone", async || executor.probe(&run.execution).await == Probe::Gone).await;
    let left = run.processes();
    assert!(left.is_empty(), "{left:?}");
    assert!(is_kept(), "what was kept is still there");
}

/// What the agent says in a turn keeps agentctl alive, even without a client.
#[tokio::test]
async fn a_turn_is_not_idleness() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.idle_s_max = 1;
    let run = world.launch_with(spec).await;
    let mut stream = run.stream(1, 0).await;
    act(&run, "start", Act::Start(echo(&[]))).await.unwrap();
    entries_until(&mut stream, is_ready).await;
    prompt(&run, "p1", "ask May I?").await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::WaitOpened { .. })).await;
    drop(stream);
    // There is no condition to wait for: nothing must happen.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let health = run.client(1).health().await.unwrap();
    assert_eq!(health.asking.len(), 1);
}

/// A flood meets a small spool without a server that acknowledges: the agent is held back, and the
/// health says so; when a server connects, everything is there, once and in order.
#[tokio::test]
async fn a_flood_is_held_back_and_nothing_is_lost() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.spool_bytes_max = 200_000;
    let run = world.launch_with(spec).await;
    let client = run.client(1);
    act(&run, "start", Act::Start(echo(&[]))).await.unwrap();
    ctl::until("ready", async || {
        client.health().await.unwrap().agent.status == Some(AgentStatus::Ready)
    })
    .await;
    prompt(&run, "p1", "flood 1000000").await.unwrap();
    ctl::until("full", async || client.health().await.unwrap().spool.blocked.is_some()).await;
    let mut stream = run.stream(1, 0).await;
    let mut bytes = 0;
    let mut next = 1;
    'reading: loop {
        let frame = stream.next().await.unwrap().unwrap();
        for entry in frame.entries {
            assert_eq!(entry.pos, next);
            next += 1;
            match entry.fact {
                Fact::Text { offset, text, .. } => {
                    assert_eq!(offset, bytes);
                    bytes += text.len() as u64;
                }
                Fact::TurnEnded { .. } => break 'reading,
                _ => {}
            }
        }
        stream.ack(next - 1).await.unwrap();
    }
    assert!(bytes >= 1_000_000, "{bytes}");
}

/// An agent that is killed while the spool is full and no server is connected: what it had said is
/// kept, and its end is noted at once.
#[tokio::test]
async fn the_last_words_of_an_agent_do_not_wait_for_room() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.spool_bytes_max = 100_000;
    let run = world.launch_with(spec).await;
    let client = run.client(1);
    act(&run, "start", Act::Start(echo(&[]))).await.unwrap();
    prompt(&run, "p1", "flood 1000000").await.unwrap();
    ctl::until("full", async || client.health().await.unwrap().spool.blocked.is_some()).await;
    let pid = client.health().await.unwrap().agent.pid.unwrap();
    ctl::kill(pid);
    ctl::until("exited", async || {
        client.health().await.unwrap().agent.status == Some(AgentStatus::Exited)
    })
    .await;
    let mut stream = run.stream(1, 0).await;
    let exited = |fact: &Fact| matches!(fact, Fact::AgentExited { .. });
    let entries = entries_until(&mut stream, exited).await;
    assert!(said(&entries).len() > 10_000);
}

/// Secrets in the agent's environment do not reach the spool from any source.
#[tokio::test]
async fn secrets_of_the_environment_are_masked() {
    let world = World::new();
    let run = world.launch().await;
    let mut stream = run.stream(1, 0).await;
    let env = vec![("SOME_API_KEY".to_owned(), "sk-4711-very-secret".to_owned())];
    act(&run, "start", Act::Start(Start { env, ..echo(&[]) })).await.unwrap();
    let script = "say it is sk-4711-very-secret, really\nstderr sk-4711-very-secret\nexit 3";
    prompt(&run, "p1", script).await.unwrap();
    let exited = |fact: &Fact| matches!(fact, Fact::AgentExited { .. });
    let entries = entries_until(&mut stream, exited).await;
    let kept = format!("{entries:?}");
    assert!(said(&entries).ends_with("really"), "{kept}");
    assert!(!kept.contains("very-secret"), "{kept}");
}

/// What the agent makes has the mode that it has without agentctl, and so has what agentctl writes
/// for it.
#[tokio::test]
async fn files_of_the_agent_have_the_usual_mode() {
    let world = World::new();
    let (run, mut stream) = ready(&world, &[]).await;
    prompt(&run, "p1", "run echo x > made\nwrite written text\nwrite new/inside text")
        .await
        .unwrap();
    entries_until(&mut stream, turn_ended).await;
    let mode = |name: &str| {
        let path = world.workspace().join(name);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    std::fs::write(world.workspace().join("usual"), "").unwrap();
    std::fs::create_dir(world.workspace().join("folder")).unwrap();
    assert_eq!([mode("made"), mode("written"), mode("new/inside")], [mode("usual"); 3]);
    assert_eq!(mode("new"), mode("folder"));
}

/// The agent cannot receive anything any more: it is ended, and the next one starts.
#[tokio::test]
async fn an_agent_that_closes_its_input_is_ended_with_the_next_prompt() {
    let world = World::new();
    let (run, mut stream) = ready(&world, &[]).await;
    prompt(&run, "p1", "close-stdin\nsay still here").await.unwrap();
    let entries = entries_until(&mut stream, turn_ended).await;
    assert_eq!(said(&entries), "still here");
    let _ = prompt(&run, "p2", "say x").await;
    let exited = |fact: &Fact| matches!(fact, Fact::AgentExited { requested: false, .. });
    let entries = entries_until(&mut stream, exited).await;
    let failed = |entry: &Entry| matches!(&entry.fact, Fact::TurnFailed { code, .. } if *code == Code::AgentClosed);
    assert!(entries.iter().any(failed), "{entries:#?}");
    let named = |entry: &Entry| matches!(&entry.fact, Fact::AgentError { code, .. } if *code == Code::AgentClosed);
    assert_eq!(entries.iter().filter(|entry| named(entry)).count(), 1, "{entries:#?}");
    act(&run, "start2", Act::Start(echo(&[]))).await.unwrap();
    entries_until(&mut stream, is_ready).await;
}

/// Wants to show: from the order to end until its process is gone, which takes its time, an agent is given
/// no prompt, and none is accepted for it.
#[tokio::test]
async fn an_agent_that_is_ending_takes_no_prompt() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.term_ms = 5_000;
    let run = world.launch_with(spec).await;
    let mut stream = run.stream(1, 0).await;
    act(&run, "start", Act::Start(echo(&[]))).await.unwrap();
    entries_until(&mut stream, is_ready).await;
    let agent_pid = run.client(1).health().await.unwrap().agent.pid.unwrap();
    // In its turn it hears neither a closed input nor SIGTERM.
    prompt(&run, "p1", "ignore-term\nsay deaf\nhang").await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
    let client = run.client(1);
    let stopping = tokio::spawn(async move {
        client.command(&Command { id: "stop".to_owned(), act: Act::Stop {} }).await
    });
    let is_stop = |fact: &Fact| matches!(fact, Fact::CommandAccepted { command_id, .. } if command_id == "stop");
    entries_until(&mut stream, is_stop).await;
    // The order is accepted; a moment later it is known to all of agentctl.
    let mut refused = Vec::new();
    ctl::until("a prompt is refused", async || {
        let id = format!("p{}", refused.len() + 2);
        refused.push(prompt(&run, &id, "say late").await.err().map(|error| error.code()));
        refused.last().is_some_and(|code| *code == Some(Code::AgentNotRunning.into()))
    })
    .await;
    let last = format!("p{}", refused.len() + 1);
    assert!(
        run.processes().iter().any(|process| process.pid == agent_pid),
        "it was refused while the agent still ran"
    );
    stopping.await.unwrap().unwrap();
    let exited = |fact: &Fact| matches!(fact, Fact::AgentExited { requested: true, .. });
    let entries = entries_until(&mut stream, exited).await;
    let accepts = |entry: &Entry| matches!(&entry.fact, Fact::CommandAccepted { command_id, .. } if *command_id == last);
    assert!(!entries.iter().any(accepts), "{entries:#?}");
}

/// It is deaf to cancellation: it is ended, and the next one starts.
#[tokio::test]
async fn an_agent_that_ignores_a_cancel_is_ended() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.cancel_ms_max = 300;
    let run = world.launch_with(spec).await;
    let mut stream = run.stream(1, 0).await;
    act(&run, "start", Act::Start(echo(&[]))).await.unwrap();
    entries_until(&mut stream, is_ready).await;
    prompt(&run, "p1", "say begun\nhang").await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
    act(&run, "c1", Act::Cancel { run_id: turn("run_p1") }).await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::AgentExited { requested: false, .. }))
        .await;
    act(&run, "start2", Act::Start(echo(&[]))).await.unwrap();
    entries_until(&mut stream, is_ready).await;
}

/// Wants to show: an agent that is not logged in is an error that says how to, and a start that
/// names one of the ways opens a conversation.
#[tokio::test]
async fn an_agent_is_logged_in_at_its_start() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.start_ms_max = 1_000;
    let run = world.launch_with(spec).await;
    let mut stream = run.stream(1, 0).await;
    let by =
        |method: &str, args: &[&str]| Start { auth_method: Some(method.to_owned()), ..echo(args) };
    let resumed = Start { agent_session_id: Some("before".to_owned()), ..echo(&["--auth", "key"]) };
    let cases = [
        (echo(&["--auth", "key"]), Code::AgentAuthRequired, "session/new", 1),
        (resumed, Code::AgentAuthRequired, "session/resume", 1),
        (by("other", &["--auth", "key"]), Code::AgentAuthNotFound, "\"other\"", 1),
        (by("key", &[]), Code::AgentAuthNotFound, "it names none", 0),
        (by("key", &["--auth=key", "--auth-answer=refuse"]), Code::AgentAuthFailed, "not good", 1),
        (by("key", &["--auth=key", "--auth-answer=never"]), Code::AgentAuthTimeout, "1000 ms", 1),
    ];
    for (n, (start, code, words, ways)) in cases.into_iter().enumerate() {
        act(&run, &format!("start{n}"), Act::Start(start)).await.unwrap();
        let failed = |fact: &Fact| matches!(fact, Fact::AgentError { .. });
        let mut entries = entries_until(&mut stream, failed).await;
        let refused = |fact: &Fact| matches!(fact, Fact::AgentSessionRefused { .. });
        assert!(!entries.iter().any(|entry| refused(&entry.fact)), "the handle stays good");
        let Some(Fact::AgentError { code: found, message, auth_methods }) =
            entries.pop().map(|entry| entry.fact)
        else {
            panic!()
        };
        assert_eq!((found.known(), auth_methods.len()), (Some(code), ways), "{message}");
        assert!(message.contains(words) && message.contains("Log in with"), "{message}");
        assert_eq!(message.contains("- key: Log in by key (Nothing is checked)"), ways > 0);
    }
    act(&run, "good", Act::Start(by("key", &["--auth", "key"]))).await.unwrap();
    entries_until(&mut stream, is_ready).await;
    prompt(&run, "p1", "say in").await.unwrap();
    assert_eq!(said(&entries_until(&mut stream, turn_ended).await), "in");
}

/// A fork at the start, and what can be done with conversations that are not open.
#[tokio::test]
async fn an_agent_forks_lists_closes_and_deletes() {
    let world = World::new();
    let memory = world.workspace().join("memory.json").display().to_string();
    let (run, mut stream) = ready(&world, &["--memory", &memory]).await;
    prompt(&run, "p1", "remember colour green").await.unwrap();
    entries_until(&mut stream, turn_ended).await;
    let handle = || async { run.client(1).health().await.unwrap().agent.agent_session_id.unwrap() };
    let original = handle().await;
    act(&run, "stop", Act::Stop {}).await.unwrap();

    let nothing = Start { fork: true, ..echo(&[]) };
    let refused = act(&run, "nothing", Act::Start(nothing)).await.unwrap_err();
    assert_eq!(refused.code(), Code::RequestInvalid);
    let fork = |args: &[&str]| Start {
        agent_session_id: Some(original.clone()),
        fork: true,
        ..echo(args)
    };
    act(&run, "none", Act::Start(fork(&["--no-fork"]))).await.unwrap();
    let failed = |fact: &Fact| matches!(fact, Fact::AgentError { code, .. } if *code == Code::AgentNotOffered);
    entries_until(&mut stream, failed).await;
    act(&run, "fork", Act::Start(fork(&["--memory", &memory]))).await.unwrap();
    let entries = entries_until(&mut stream, is_ready).await;
    let forked = matches!(
        entries.last().unwrap().fact,
        Fact::AgentReady { opened_as: OpenedAs::Forked, .. }
    );
    assert!(forked, "{entries:#?}");
    prompt(&run, "p2", "recall colour").await.unwrap();
    assert_eq!(said(&entries_until(&mut stream, turn_ended).await), "green");

    let own = handle().await;
    assert_ne!(own, original);
    let list = async |id: &str| {
        let listed = act(&run, id, Act::ListSessions { cwd: None, cursor: None }).await.unwrap();
        let listed: AgentSessions = serde_json::from_value(listed.result).unwrap();
        listed.sessions.into_iter().map(|s| s.agent_session_id).collect::<BTreeSet<_>>()
    };
    assert_eq!(list("list1").await, BTreeSet::from([own.clone(), original.clone()]));
    let refused = act(&run, "own", Act::DeleteSession { agent_session_id: own.clone() }).await;
    assert_eq!(refused.unwrap_err().code(), Code::AgentSessionInUse);
    let close = Act::CloseSession { agent_session_id: original.clone() };
    act(&run, "close1", close).await.unwrap();
    act(&run, "delete", Act::DeleteSession { agent_session_id: original }).await.unwrap();
    assert_eq!(list("list2").await, BTreeSet::from([own]));
}

/// What agents say to a turn when they get SIGTERM is written as they say it, with the exit behind it:
/// what it means is decided where both are known.
#[tokio::test]
async fn a_turn_that_its_agent_ends_on_a_signal_is_written_before_its_exit() {
    for (reason, delay) in [("cancelled", 64), ("end_turn", 280)] {
        let world = World::new();
        let (run, mut stream) = ready(&world, &[]).await;
        let pid = run.client(1).health().await.unwrap().agent.pid.unwrap();
        let script = format!("on-term {reason} {delay}\nstream 100000 5");
        prompt(&run, "p1", &script).await.unwrap();
        entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
        ctl::signal(pid, rustix::process::Signal::TERM);
        let is_exit = |fact: &Fact| matches!(fact, Fact::AgentExited { .. });
        let entries = entries_until(&mut stream, is_exit).await;
        let ended = Fact::TurnEnded { stop_reason: reason.to_owned() };
        let ended = entries.iter().find(|entry| entry.fact == ended).expect("it says so");
        let exited = entries.last().unwrap();
        let Fact::AgentExited { exit_code, requested, .. } = &exited.fact else { panic!() };
        assert_eq!((*exit_code, *requested), (Some(143), false), "{entries:#?}");
        let apart = exited.at.as_millis() - ended.at.as_millis();
        assert!((0..=500).contains(&apart), "{apart} ms");
    }
}

/// Wants to show: an agent that is ended by agentctl has not ended its turn, whatever it says.
#[tokio::test]
async fn the_end_of_a_turn_is_not_believed_while_its_agent_is_ended() {
    for reason in ["cancelled", "end_turn"] {
        let world = World::new();
        let (run, mut stream) = ready(&world, &[]).await;
        prompt(&run, "p1", &format!("on-term {reason} 50\nstream 100000 5")).await.unwrap();
        entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
        act(&run, "stop", Act::Stop {}).await.unwrap();
        let is_exit = |fact: &Fact| matches!(fact, Fact::AgentExited { .. });
        let entries = entries_until(&mut stream, is_exit).await;
        assert!(!entries.iter().any(|entry| turn_ended(&entry.fact)), "{entries:#?}");
        let is_cut = |entry: &Entry| matches!(&entry.fact, Fact::TurnFailed { code, .. } if *code == piton_core::Code::AgentClosed);
        assert!(entries.iter().any(is_cut), "{entries:#?}");
        let whole = entries.iter().any(|entry| matches!(entry.fact, Fact::TextEnd { .. }));
        assert!(!whole, "its message is not said to be complete");
    }
}
