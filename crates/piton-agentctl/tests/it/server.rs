//! agentctl's server: who is heard, what is streamed, what is done once.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::time::Duration;

use crate::ctl::{self, Run, World, entries_until};
use piton_core::spool::{Fact, Pos};
use piton_core::{AnyCode, Code};
use piton_exec::client::{Client, ClientError};
use piton_exec::protocol::{Act, Command, Start, bearer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

fn stop(id: &str) -> Command {
    Command { id: id.to_owned(), act: Act::Stop {} }
}

fn commanded(id: &str) -> impl Fn(&Fact) -> bool {
    move |fact| matches!(fact, Fact::CommandAccepted { command_id, .. } if command_id == id)
}

fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> AnyCode {
    match result {
        Err(error) => error.code(),
        Ok(done) => panic!("{done:?}"),
    }
}

async fn say(run: &Run, count: usize) {
    for n in 1..=count {
        run.client(1).command(&stop(&format!("c{n}"))).await.unwrap();
    }
}

#[tokio::test]
async fn only_the_right_token_is_heard() {
    let world = World::new();
    let run = world.launch().await;
    let wrong = Client::new(run.socket(), &[9; 32], 1);
    assert_eq!(code(wrong.health().await), Code::Unauthenticated);
    assert_eq!(code(wrong.command(&stop("c1")).await), Code::Unauthenticated);
    // One of the right length that differs in the last letter.
    let mut token = bearer(&run.secret);
    let last = if token.pop() == Some('0') { '1' } else { '0' };
    token.push(last);
    let answer = raw(&run, "GET /health", &token, "1", "1").await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(run.client(1).health().await.is_ok());
    assert_eq!(run.client(1).health().await.unwrap().spool.last, 0, "a command was let in");
}

/// Word for word what goes over the socket.
async fn raw(run: &Run, line: &str, token: &str, epoch: &str, protocol: &str) -> String {
    let mut stream = UnixStream::connect(run.socket()).await.unwrap();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: agentctl\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         piton-epoch: {epoch}\r\npiton-protocol: {protocol}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_lower_epoch_is_refused_and_a_higher_one_takes_over() {
    let world = World::new();
    let run = world.launch().await;
    let mut old = run.stream(1, 0).await;
    assert_eq!(run.client(5).health().await.unwrap().epoch, 5);
    // A stream that is not ended would be waited for without an end.
    let ended = tokio::time::timeout(Duration::from_secs(30), old.next()).await;
    assert_eq!(code(ended.expect("the old stream ends")), Code::EpochStale);
    assert_eq!(code(run.client(4).health().await), Code::EpochStale);
    assert_eq!(code(run.client(4).command(&stop("c1")).await), Code::EpochStale);
    let kept = std::fs::read_to_string(run.folder().join("epoch")).unwrap();
    assert_eq!(kept.trim(), "5");
    assert!(run.client(5).command(&stop("c1")).await.is_ok());
}

#[tokio::test]
async fn a_command_is_done_once() {
    let world = World::new();
    let run = world.launch().await;
    let client = run.client(1);
    assert!(!client.command(&stop("c1")).await.unwrap().replayed);
    assert!(client.command(&stop("c1")).await.unwrap().replayed);
    let other = Command { id: "c1".into(), act: Act::Close {} };
    assert_eq!(code(client.command(&other).await), Code::CommandMismatch);
    let unknown = Command {
        id: "c2".into(),
        act: Act::Prompt { run_id: "run_1".parse().unwrap(), content: "x".into() },
    };
    assert_eq!(code(client.command(&unknown).await), Code::AgentNotRunning);
    assert_eq!(code(client.command(&unknown).await), Code::AgentNotRunning);
    // What is refused for now is not in the spool.
    assert_eq!(client.health().await.unwrap().spool.last, 1);
}

#[tokio::test]
async fn a_stream_begins_anywhere_and_continues() {
    let world = World::new();
    let run = world.launch().await;
    say(&run, 6).await;
    for after in 0..=6 {
        let mut stream = run.stream(1, after).await;
        let id = format!("more{after}");
        run.client(1).command(&stop(&id)).await.unwrap();
        let entries = entries_until(&mut stream, commanded(&id)).await;
        let positions: Vec<Pos> = entries.iter().map(|entry| entry.pos).collect();
        assert_eq!(positions, (after + 1..=7 + after).collect::<Vec<_>>());
    }
    let client = run.client(1);
    assert_eq!(code(client.stream(&run.spool_id, 100).await), Code::CursorInvalid);
    assert_eq!(code(client.stream("spool_other", 0).await), Code::SpoolNotFound);
}

#[tokio::test]
async fn a_second_stream_replaces_the_first() {
    let world = World::new();
    let run = world.launch().await;
    let mut first = run.stream(1, 0).await;
    let mut second = run.stream(1, 0).await;
    assert_eq!(code(first.next().await), Code::StreamReplaced);
    run.client(1).command(&stop("c1")).await.unwrap();
    entries_until(&mut second, commanded("c1")).await;
}

#[tokio::test]
async fn acknowledgements_are_counted_and_nonsense_ends_the_stream() {
    let world = World::new();
    let run = world.launch().await;
    say(&run, 3).await;
    let mut stream = run.stream(1, 0).await;
    stream.ack(2).await.unwrap();
    let client = run.client(1);
    ctl::until("acked", async || client.health().await.unwrap().spool.acked == 2).await;
    stream.ack(50).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            if let Err(error) = stream.next().await {
                return error;
            }
        }
    });
    assert_eq!(ended.await.unwrap().code(), Code::RequestInvalid);
    assert_eq!(client.health().await.unwrap().spool.acked, 2);
}

/// The end of the stream is not the end of its connection: everything is sent before.
#[tokio::test]
async fn a_stream_ends_with_agentctl() {
    let world = World::new();
    let run = world.launch().await;
    let mut stream = run.stream(1, 0).await;
    let close = Command { id: "close".into(), act: Act::Close {} };
    run.client(1).command(&close).await.unwrap();
    entries_until(&mut stream, commanded("close")).await;
    let end = tokio::time::timeout(Duration::from_secs(10), stream.next()).await.unwrap();
    assert!(matches!(end, Ok(None)), "{end:?}");
}

/// An agentctl of a version before the first release under a client of this one, and the other way
/// round: each says what it speaks, and nothing is half understood.
#[tokio::test]
async fn an_older_protocol_is_refused() {
    let world = World::new();
    let mut spec = world.spec();
    spec.protocol_max = Some(4);
    let run = world.launch_with(spec).await;
    let client = run.client(1);
    assert_eq!(client.health_of_any().await.unwrap().protocol, (4, 4));
    assert_eq!(code(client.health().await), Code::ProtocolUnsupported);
    assert_eq!(code(client.stream(&run.spool_id, 0).await), Code::ProtocolUnsupported);
    let stop = Command { id: "stop".into(), act: Act::Stop {} };
    assert_eq!(code(client.command(&stop).await), Code::ProtocolUnsupported);

    let run = world.launch().await;
    let older = raw(&run, "GET /capabilities", &bearer(&run.secret), "1", "4").await;
    assert!(older.contains("protocol_unsupported") && older.contains("6 to 8"), "{older}");
    say(&run, 3).await;
    let mut stream = run.client(1).stream(&run.spool_id, 0).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().entries.len(), 3);
}

/// The handshake as the first version had it is a promise: these bytes must always be answered.
#[tokio::test]
async fn the_handshakes_of_the_fixtures_are_answered() {
    let world = World::new();
    let run = world.launch().await;
    let token = bearer(&run.secret);
    for (fixture, expected) in [
        (include_str!("../../fixtures/handshake-health-v1.txt"), "HTTP/1.1 200 OK"),
        (include_str!("../../fixtures/handshake-stream-v4.txt"), "HTTP/1.1 400 Bad Request"),
        (include_str!("../../fixtures/handshake-stream-v5.txt"), "HTTP/1.1 400 Bad Request"),
        (
            include_str!("../../fixtures/handshake-stream-v6.txt"),
            "HTTP/1.1 101 Switching Protocols",
        ),
        (include_str!("../../fixtures/handshake-start-v6.txt"), "HTTP/1.1 200 OK"),
        (include_str!("../../fixtures/handshake-stream-v9.txt"), "HTTP/1.1 400 Bad Request"),
    ] {
        let request = fixture.replace("{token}", &token).replace("{spool_id}", &run.spool_id);
        let mut stream = UnixStream::connect(run.socket()).await.unwrap();
        stream.write_all(request.replace('\n', "\r\n").as_bytes()).await.unwrap();
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), expected, "{fixture}");
    }
}

#[tokio::test]
async fn the_workspace_is_served_without_an_agent() {
    let world = World::new();
    let run = world.launch().await;
    let client = run.client(1);
    client.write_file("a folder/größe.txt", "content".into()).await.unwrap();
    assert_eq!(client.read_file("a folder/größe.txt").await.unwrap(), "content");
    assert_eq!(client.list("a folder").await.unwrap().entries[0].name, "größe.txt");
    assert_eq!(code(client.read_file("../outside").await), Code::PathOutside);
    assert_eq!(code(client.read_file("none").await), Code::NotFound);
    assert!(!client.git_status().await.unwrap().repository);
    let new = piton_exec::protocol::workspace::NewShell {
        command: vec!["sh".into()],
        cols: Some(80),
        rows: Some(24),
    };
    let shell = client.new_shell(&new).await.unwrap();
    let mut socket = client.attach_shell(&shell.shell_id).await.unwrap();
    socket.resize(100, 30).await.unwrap();
    socket.type_bytes("stty size; exit 3\n".into()).await.unwrap();
    let mut shown = Vec::new();
    while let Some(bytes) = socket.read().await.unwrap() {
        shown.extend_from_slice(&bytes);
    }
    assert!(String::from_utf8_lossy(&shown).contains("30 100"), "{shown:?}");
    assert_eq!(socket.ended().unwrap().exit_code, Some(3));
    client.end_shell(&shell.shell_id).await.unwrap();
    assert_eq!(code(client.end_shell(&shell.shell_id).await), Code::ShellNotFound);
}

#[tokio::test]
async fn what_is_malformed_is_named() {
    let world = World::new();
    let run = world.launch().await;
    let token = bearer(&run.secret);
    let answer = raw(&run, "GET /health", &token, "one", "1").await;
    assert!(answer.contains("epoch_required"), "{answer}");
    let answer = raw(&run, "GET /nothing", &token, "1", "6").await;
    assert!(answer.contains("not_found"), "{answer}");
    let answer = raw(&run, "POST /commands", &token, "1", "6").await;
    assert!(answer.contains("request_invalid"), "{answer}");
    let empty = Command { id: String::new(), act: Act::Stop {} };
    assert_eq!(code(run.client(1).command(&empty).await), Code::RequestInvalid);
    let start = Command { id: "s".into(), act: Act::Start(Start::default()) };
    assert_eq!(code(run.client(1).command(&start).await), Code::RequestInvalid);
}
