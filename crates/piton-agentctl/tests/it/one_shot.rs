//! agentctl with an agent that speaks no protocol: each turn is a process, continued by its
//! arguments.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::ctl::{self, Run, World, entries_until};
use piton_core::Code;
use piton_core::decide::Probe;
use piton_core::id::RunId;
use piton_core::spool::{Entry, Fact, OpenedAs};
use piton_exec::client::{ClientError, Stream};
use piton_exec::executor::Executor;
use piton_exec::protocol::{
    Act, AgentStatus, Command, CommandLine, Output, PromptBy, Reply, Start,
};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The built-in agent, printing.
fn line(output: Output) -> CommandLine {
    let (name, new) = match output {
        Output::Text => ("text", "--session-id {agent_session_id}"),
        Output::StreamJson => ("stream-json", ""),
    };
    let with = |rest: &str| words(&format!("--print --output {name} {rest}"));
    CommandLine {
        new: with(new),
        resume: with("--resume {agent_session_id}"),
        resume_at: with("--resume {agent_session_id} --resume-session-at {agent_message_id}"),
        fork: with("--resume {agent_session_id} --fork-session"),
        output,
        ..CommandLine::default()
    }
}

fn echo(world: &World, output: Output) -> Start {
    let memory = world.workspace().join("memory.json").display().to_string();
    let command = vec![ctl::program().display().to_string(), "echo".to_owned()];
    let command = command.into_iter().chain(["--memory".to_owned(), memory]).collect();
    Start { command, command_line: Some(line(output)), ..Start::default() }
}

/// A shell script that is an agent; it receives prompts in `$@` and its input.
fn script(text: &str) -> Start {
    let command = ["sh", "-c", text, "agent"].map(str::to_owned).into();
    let line = CommandLine {
        new: words("new"),
        resume: words("resume {agent_session_id}"),
        output: Output::StreamJson,
        ..CommandLine::default()
    };
    Start { command, command_line: Some(line), ..Start::default() }
}

async fn act(run: &Run, id: &str, act: Act) -> Result<Reply, ClientError> {
    run.client(1).command(&Command { id: id.to_owned(), act }).await
}

fn turn(id: &str) -> RunId {
    format!("run_{id}").parse().unwrap()
}

async fn prompt(run: &Run, id: &str, text: &str) -> Result<Reply, ClientError> {
    act(run, id, Act::Prompt { run_id: turn(id), content: text.into() }).await
}

fn is_ready(fact: &Fact) -> bool {
    matches!(fact, Fact::AgentReady { .. })
}

fn is_over(fact: &Fact) -> bool {
    matches!(fact, Fact::TurnEnded { .. } | Fact::TurnFailed { .. })
}

fn said(entries: &[Entry]) -> String {
    let text = entries.iter().filter_map(|entry| match &entry.fact {
        Fact::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    text.collect()
}

fn names(entries: &[Entry]) -> Vec<String> {
    let named = entries.iter().filter_map(|entry| match &entry.fact {
        Fact::AgentSessionAssigned { agent_session_id } => Some(agent_session_id.clone()),
        _ => None,
    });
    named.collect()
}

async fn begin(run: &Run, id: &str, start: Start) -> Stream {
    let mut stream = run.stream(1, 0).await;
    act(run, id, Act::Start(start)).await.unwrap();
    entries_until(&mut stream, is_ready).await;
    stream
}

/// A turn to its end.
async fn say(run: &Run, stream: &mut Stream, id: &str, text: &str) -> Vec<Entry> {
    prompt(run, id, text).await.unwrap();
    entries_until(stream, is_over).await
}

/// How the last turn ended: reason or code, and message.
fn end(entries: &[Entry]) -> (String, String) {
    match &entries.last().unwrap().fact {
        Fact::TurnEnded { stop_reason } => (stop_reason.clone(), String::new()),
        Fact::TurnFailed { code, message } => (code.to_string(), message.clone()),
        other => panic!("{other:?}"),
    }
}

/// Wants to show: the agent remembers in one turn what a previous turn, another process, said; and
/// another agentctl resumes the same conversation by its id.
#[tokio::test]
async fn a_conversation_continues_from_process_to_process() {
    for output in [Output::StreamJson, Output::Text] {
        let world = World::new();
        let run = world.launch().await;
        let mut stream = run.stream(1, 0).await;
        act(&run, "start", Act::Start(echo(&world, output))).await.unwrap();
        let ready = entries_until(&mut stream, is_ready).await;
        assert_eq!(ready[1].fact, Fact::AgentStarting {});
        let Fact::AgentReady { opened_as, agent_session_id, requested_session_id, .. } =
            &ready.last().unwrap().fact
        else {
            panic!()
        };
        assert_eq!(
            (*opened_as, agent_session_id, requested_session_id),
            (OpenedAs::New, &None, &None)
        );
        assert_eq!(run.processes().len(), 0, "it is ready without a process");

        let first = say(&run, &mut stream, "p1", "remember colour green").await;
        assert_eq!(end(&first).0, "end_turn", "{first:#?}");
        let id = names(&first).pop().unwrap();
        let started = first.iter().position(|entry| entry.fact == Fact::TurnStarted {}).unwrap();
        assert!(matches!(first[started - 1].fact, Fact::CommandAccepted { .. }));
        assert!(first[started..].iter().all(|entry| entry.run_id == Some(turn("p1"))));
        assert!(prompt(&run, "p1", "remember colour green").await.unwrap().replayed);

        let second = say(&run, &mut stream, "p2", "recall colour\nrecall").await;
        let expected = if output == Output::Text { "green\n1 prompts" } else { "green1 prompts" };
        assert_eq!((said(&second).as_str(), names(&second)), (expected, Vec::new()));
        let health = run.client(1).health().await.unwrap();
        assert_eq!(health.agent.agent_session_id.as_ref(), Some(&id));
        assert_eq!((health.agent.status, health.agent.pid), (Some(AgentStatus::Ready), None));
        act(&run, "close", Act::Close {}).await.unwrap();

        let run = world.launch().await;
        let start = Start { agent_session_id: Some(id.clone()), ..echo(&world, output) };
        let mut stream = run.stream(1, 0).await;
        act(&run, "start", Act::Start(start)).await.unwrap();
        let ready = entries_until(&mut stream, is_ready).await;
        let Fact::AgentReady { opened_as, agent_session_id, .. } = &ready.last().unwrap().fact
        else {
            panic!()
        };
        assert_eq!((*opened_as, agent_session_id), (OpenedAs::Resumed, &Some(id)));
        let third = say(&run, &mut stream, "p3", "recall colour").await;
        assert_eq!(said(&third), "green");
    }
}

/// Calls and their results are reported like those of any agent, in a process of the workspace.
#[tokio::test]
async fn tools_are_reported() {
    let world = World::new();
    let run = world.launch().await;
    let mut stream = begin(&run, "start", echo(&world, Output::StreamJson)).await;
    let entries =
        say(&run, &mut stream, "p1", "think hm\nrun pwd\nwrite new text\nask May I?").await;
    let outcomes: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.fact {
            Fact::ToolCall { name, .. } => Some(name.clone()),
            Fact::ToolResult { status, .. } => Some(format!("{status:?}")),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, ["run", "Succeeded", "write", "Succeeded", "ask", "Failed"]);
    assert_eq!(std::fs::read_to_string(world.workspace().join("new")).unwrap(), "text");
    assert_eq!(end(&entries).0, "end_turn");
    // What only a protocol has is refused.
    let listed = act(&run, "list", Act::ListSessions { cwd: None, cursor: None }).await;
    assert_eq!(listed.unwrap_err().code(), Code::AgentNotOffered);
}

/// Wants to show: a turn whose process is killed is interrupted, with its text, and the next turn
/// continues the conversation. The prompt is not given twice.
#[tokio::test]
async fn a_killed_turn_is_interrupted_and_the_next_continues() {
    let world = World::new();
    let run = world.launch().await;
    let mut stream = begin(&run, "start", echo(&world, Output::StreamJson)).await;
    say(&run, &mut stream, "p1", "remember colour green").await;
    prompt(&run, "p2", "stderr it hurts\nsay half\nescape sleep 1000\nhang").await.unwrap();
    let mut entries =
        entries_until(&mut stream, |fact| matches!(fact, Fact::ToolResult { .. })).await;
    let busy = prompt(&run, "p3", "say x").await.unwrap_err();
    assert_eq!(busy.code(), Code::AgentBusy);
    let health = run.client(1).health().await.unwrap();
    assert_eq!(health.run_id, Some(turn("p2")));
    assert!(run.processes().len() >= 2, "the agent, and what it hid");
    ctl::kill(health.agent.pid.unwrap());
    entries.extend(entries_until(&mut stream, is_over).await);
    let (code, message) = end(&entries);
    assert_eq!((code.as_str(), said(&entries).as_str()), ("agent_closed", "half"));
    assert!(message.contains("signal 9") && message.contains("it hurts"), "{message}");
    // It is unknown what the agent saved of that turn; the next turn opens the conversation again.
    let resumed = entries.iter().position(|entry| {
        matches!(
            &entry.fact,
            Fact::AgentReady { opened_as: OpenedAs::Resumed, agent_session_id: Some(_), .. }
        )
    });
    assert!(resumed.is_some_and(|at| at < entries.len() - 1), "before its end is told");
    let left = run.processes();
    assert!(left.is_empty(), "{left:?}");
    let next = say(&run, &mut stream, "p4", "recall colour").await;
    assert_eq!((said(&next).as_str(), end(&next).0.as_str()), ("green", "end_turn"));
}

/// An agent that cannot resume a conversation: each of its turns is a fresh start, and reported as
/// one.
#[tokio::test]
async fn one_that_cannot_continue_starts_fresh_with_each_turn() {
    let world = World::new();
    let run = world.launch().await;
    let mut start = echo(&world, Output::StreamJson);
    start.command_line.as_mut().unwrap().resume.clear();
    let mut stream = begin(&run, "start", start).await;
    let first = say(&run, &mut stream, "p1", "remember colour green").await;
    let is_new =
        |entry: &&Entry| matches!(entry.fact, Fact::AgentReady { opened_as: OpenedAs::New, .. });
    assert_eq!(first.iter().filter(is_new).count(), 1, "{first:?}");
    let next = say(&run, &mut stream, "p2", "recall colour").await;
    assert_eq!(end(&next).0, "end_turn");
    assert!(!said(&next).contains("green"), "{}", said(&next));
}

/// SIGKILL of agentctl in a turn: nothing is left running, and the spool has what was said.
#[tokio::test]
async fn nothing_outlives_a_killed_agentctl() {
    let world = World::new();
    let run = world.launch().await;
    let mut stream = begin(&run, "start", echo(&world, Output::Text)).await;
    prompt(&run, "p1", "escape sleep 1000\nsay hidden\nhang").await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
    let is_kept = || {
        let kept = ctl::facts_on_disk(&run.folder().join("spool"), &run.secret);
        kept.iter().any(|fact| matches!(fact, Fact::Text { text, .. } if text == "hidden"))
    };
    // An entry is streamed before it is written; no server acknowledges it, so it is written soon.
    ctl::until("the text is in the spool", async || is_kept()).await;
    assert!(run.processes().len() >= 2);
    ctl::kill(run.pid);
    let executor = world.executor();
    ctl::until("gone", async || executor.probe(&run.execution).await == Probe::Gone).await;
    let left = run.processes();
    assert!(left.is_empty(), "{left:?}");
    let kept = ctl::facts_on_disk(&run.folder().join("spool"), &run.secret);
    assert!(is_kept() && kept.contains(&Fact::TurnStarted {}));
    assert!(!kept.iter().any(is_over), "nobody ended the turn: {kept:#?}");
}

/// A turn that is cancelled ends with its process, however stubborn, and all that it started.
#[tokio::test]
async fn a_turn_is_cancelled_with_everything_it_started() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.term_ms = 200;
    let run = world.launch_with(spec).await;
    let mut stream = begin(&run, "start", echo(&world, Output::Text)).await;
    say(&run, &mut stream, "p0", "remember colour green").await;
    prompt(&run, "p1", "ignore-term\nescape sleep 1000\nsay begun\nhang").await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
    let other = act(&run, "c0", Act::Cancel { run_id: turn("other") }).await.unwrap_err();
    assert_eq!(other.code(), Code::TurnNotFound);
    act(&run, "c1", Act::Cancel { run_id: turn("p1") }).await.unwrap();
    let entries = entries_until(&mut stream, is_over).await;
    assert_eq!(end(&entries).0, "cancelled");
    let left = run.processes();
    assert!(left.is_empty(), "{left:?}");
    let next = say(&run, &mut stream, "p2", "recall colour").await;
    assert_eq!(said(&next), "green");
}

/// What a turn that ended well leaves behind does not meet the next, and does not hold up its own
/// end, though it holds the pipe.
#[tokio::test]
async fn what_a_turn_leaves_is_ended_before_the_next() {
    let world = World::new();
    let run = world.launch().await;
    let holds = "printf '%s\\n' '{\"type\":\"result\",\"is_error\":false,\"session_id\":\"s1\",\"result\":\"done\"}'; setsid sleep 1000 & exit 0";
    let mut stream = begin(&run, "start", script(holds)).await;
    for id in ["p1", "p2"] {
        let entries = say(&run, &mut stream, id, "x").await;
        assert_eq!((said(&entries).as_str(), end(&entries).0.as_str()), ("done", "end_turn"));
        let left = run.processes();
        assert!(left.is_empty(), "{left:?}");
    }
    act(&run, "stop", Act::Stop {}).await.unwrap();
    let entries = entries_until(&mut stream, |fact| matches!(fact, Fact::AgentExited { .. })).await;
    assert!(matches!(entries.last().unwrap().fact, Fact::AgentExited { requested: true, .. }));
    assert_eq!(prompt(&run, "p3", "x").await.unwrap_err().code(), Code::AgentNotRunning);
}

/// Stopped in a turn: the turn's end is not reported, and the agent's end is.
#[tokio::test]
async fn a_stop_in_a_turn_ends_the_process() {
    let world = World::new();
    let run = world.launch().await;
    let mut stream = begin(&run, "start", echo(&world, Output::Text)).await;
    prompt(&run, "p1", "say half\nhang").await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::Text { .. })).await;
    act(&run, "stop", Act::Stop {}).await.unwrap();
    let entries = entries_until(&mut stream, |fact| matches!(fact, Fact::AgentExited { .. })).await;
    assert!(!entries.iter().any(|entry| is_over(&entry.fact)), "{entries:#?}");
    assert!(run.processes().is_empty());
}

/// Wants to show: an id that the agent does not know is dropped, the turn fails and is not repeated,
/// and the next one begins a conversation.
#[tokio::test]
async fn a_refused_id_is_dropped_and_the_next_prompt_starts_fresh() {
    for output in [Output::StreamJson, Output::Text] {
        let world = World::new();
        let run = world.launch().await;
        let start = Start { agent_session_id: Some("lost".to_owned()), ..echo(&world, output) };
        let mut stream = begin(&run, "start", start).await;
        let entries = say(&run, &mut stream, "p1", "run touch done").await;
        let (code, message) = end(&entries);
        assert_eq!(code, Code::SessionRefused.as_str(), "{entries:#?}");
        assert!(message.contains("No conversation found with session ID: lost"), "{message}");
        let refused = entries.iter().find_map(|entry| match &entry.fact {
            Fact::AgentSessionRefused { code, agent_session_id, .. } => {
                Some((*code, agent_session_id.clone()))
            }
            _ => None,
        });
        assert_eq!(refused, Some((1, Some("lost".to_owned()))));
        assert!(!world.workspace().join("done").exists(), "it is not done by itself");
        let next = say(&run, &mut stream, "p2", "recall\nid").await;
        let id = names(&next).pop().unwrap();
        assert!(said(&next).contains("0 prompts") && said(&next).contains(&id), "{next:#?}");
    }
}

/// In doubt the id is kept; and a message that the agent does not know is not asked for again.
#[tokio::test]
async fn any_other_failure_keeps_the_id() {
    let world = World::new();
    let run = world.launch().await;
    let memory = world.workspace().join("memory.json").display().to_string();
    let mut stream = begin(&run, "start", echo(&world, Output::StreamJson)).await;
    let first = say(&run, &mut stream, "p1", "remember colour green").await;
    let failed = say(&run, &mut stream, "p2", "stderr no licence\nexit 7").await;
    let (code, message) = end(&failed);
    assert_eq!(code, Code::AgentExited.as_str());
    assert!(message.contains("exit code 7") && message.ends_with("no licence"), "{message}");
    let next = say(&run, &mut stream, "p3", "recall colour").await;
    assert_eq!(said(&next), "green");
    act(&run, "stop", Act::Stop {}).await.unwrap();
    entries_until(&mut stream, |fact| matches!(fact, Fact::AgentExited { .. })).await;

    let mut start = echo(&world, Output::StreamJson);
    assert!(start.command.contains(&memory));
    start.agent_session_id = names(&first).pop();
    start.command_line.as_mut().unwrap().agent_message_id = Some("gone".to_owned());
    act(&run, "start2", Act::Start(start)).await.unwrap();
    entries_until(&mut stream, is_ready).await;
    let failed = say(&run, &mut stream, "p4", "recall colour").await;
    let (code, message) = end(&failed);
    assert_eq!(code, Code::AgentError.as_str());
    assert!(message.contains("No message found with message.uuid of: gone"), "{message}");
    let next = say(&run, &mut stream, "p5", "recall colour").await;
    assert_eq!(said(&next), "green");
}

/// A fork has a name of its own, and leaves the original as it was.
#[tokio::test]
async fn a_conversation_is_forked() {
    let world = World::new();
    let run = world.launch().await;
    let mut stream = begin(&run, "start", echo(&world, Output::StreamJson)).await;
    let first = say(&run, &mut stream, "p1", "remember colour green").await;
    let original = names(&first).pop().unwrap();
    act(&run, "stop", Act::Stop {}).await.unwrap();
    let fork = |output| Start {
        agent_session_id: Some(original.clone()),
        fork: true,
        ..echo(&world, output)
    };
    act(&run, "text", Act::Start(fork(Output::Text))).await.unwrap();
    let failed = |fact: &Fact| matches!(fact, Fact::AgentError { code, .. } if *code == Code::AgentNotOffered);
    entries_until(&mut stream, failed).await;
    act(&run, "fork", Act::Start(fork(Output::StreamJson))).await.unwrap();
    let entries = entries_until(&mut stream, is_ready).await;
    let Fact::AgentReady { opened_as, agent_session_id, .. } = &entries.last().unwrap().fact else {
        panic!()
    };
    assert_eq!((*opened_as, agent_session_id), (OpenedAs::Forked, &None));
    let forked = say(&run, &mut stream, "p2", "recall colour\nremember colour red").await;
    assert_eq!(said(&forked), "greenremembered colour");
    let copy = names(&forked).pop().unwrap();
    assert_ne!(copy, original);
    let again = say(&run, &mut stream, "p3", "recall colour\nid").await;
    assert_eq!(said(&again), format!("red{copy}"));
}

/// A prompt that is an argument is one argument, whatever it holds; one that cannot be is refused.
#[tokio::test]
async fn a_prompt_may_be_an_argument() {
    let world = World::new();
    let run = world.launch().await;
    let command = ["sh", "-c", "printf '%s|' \"$@\"; cat", "agent"].map(str::to_owned).into();
    let line = CommandLine {
        new: words("{prompt}"),
        prompt: PromptBy::Argument,
        ..CommandLine::default()
    };
    let start = Start { command, command_line: Some(line), ..Start::default() };
    let mut stream = begin(&run, "start", start).await;
    let entries = say(&run, &mut stream, "p1", "--yes; touch $HOME `x`\n{prompt}").await;
    assert_eq!(said(&entries), " --yes; touch $HOME `x`\n{prompt}|");
    let long = say(&run, &mut stream, "p2", &"x".repeat(200_000)).await;
    assert_eq!(end(&long).0, Code::PromptTooLong.as_str());
    let last = say(&run, &mut stream, "p3", "still there").await;
    assert_eq!(said(&last), "still there|");
}

/// Each is named, when the agent is started or in its turn, and the next prompt is taken.
#[tokio::test]
async fn what_is_no_agent_is_named() {
    let world = World::new();
    let plain = world.workspace().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").unwrap();
    let binary = world.workspace().join("binary");
    std::fs::write(&binary, [0, 1, 2, 3]).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = |name: &str| Start { command: vec![name.to_owned()], ..script("") };
    let of = |path: &Path| program(path.to_str().unwrap());
    let mut spec = world.spec();
    spec.limits.message_bytes_max = 1_000_000;
    let run = world.launch_with(spec).await;
    let mut stream = run.stream(1, 0).await;
    let hint = Some("npm install -g no-such-agent".to_owned());
    let missing = Start { install_hint: hint, ..program("no-such-agent-anywhere") };
    let nowhere = Start { cwd: Some("/nonexistent".into()), ..script("") };
    let log_in = Start { auth_method: Some("key".to_owned()), ..script("") };
    for (n, (start, code, about)) in [
        (missing, Code::AgentMissing, "npm install -g no-such-agent"),
        (of(&plain), Code::AgentNotExecutable, "plain"),
        (nowhere, Code::WorkspaceMissing, "/nonexistent"),
        (log_in, Code::AgentAuthNotFound, "\"key\""),
    ]
    .into_iter()
    .enumerate()
    {
        act(&run, &format!("start{n}"), Act::Start(start)).await.unwrap();
        let failed = |fact: &Fact| matches!(fact, Fact::AgentError { .. });
        let entries = entries_until(&mut stream, failed).await;
        let Fact::AgentError { code: found, message, .. } = &entries.last().unwrap().fact else {
            panic!()
        };
        assert!(*found == code && message.contains(about), "{found}: {message}");
    }
    let odd = Start { agent_session_id: Some("--yes".to_owned()), ..script("") };
    let refused = act(&run, "odd", Act::Start(odd)).await.unwrap_err();
    assert_eq!(refused.code(), Code::RequestInvalid);

    let result = r#"{"type":"result","is_error":true,"subtype":"error_during_execution","errors":["out of money"]}"#;
    let long = "head -c 50000000 /dev/zero | tr '\\0' x; echo; printf '%s\\n' '{\"type\":\"assistant\",\"message\":{\"content\":\"behind it\"}}'";
    let erring = format!("cat >/dev/null; echo '{result}'");
    for (n, (start, code, about)) in [
        (of(&binary), Code::AgentNotExecutable.as_str(), "binary"),
        (script("exec sleep 1000 >&-"), Code::AgentClosed.as_str(), "closed its output"),
        (script(&erring), Code::AgentError.as_str(), "out of money"),
        (script("exec true"), "end_turn", ""),
        (script(long), "end_turn", ""),
    ]
    .into_iter()
    .enumerate()
    {
        act(&run, &format!("turn{n}"), Act::Start(start)).await.unwrap();
        entries_until(&mut stream, is_ready).await;
        // Longer than a pipe: the agent does not have to read it.
        let entries = say(&run, &mut stream, &format!("q{n}"), &"x".repeat(300_000)).await;
        let (found, message) = end(&entries);
        assert!(found == code && message.contains(about), "{n} {found}: {message}");
        if n == 4 {
            assert_eq!(said(&entries), "behind it");
            let dropped = Fact::Dropped { why: "line_too_long".to_owned(), bytes: 50_000_000 };
            assert!(entries.iter().any(|entry| entry.fact == dropped));
        }
        act(&run, &format!("stop{n}"), Act::Stop {}).await.unwrap();
        let exited = |fact: &Fact| matches!(fact, Fact::AgentExited { .. });
        entries_until(&mut stream, exited).await;
    }
    assert!(run.processes().is_empty());
}
