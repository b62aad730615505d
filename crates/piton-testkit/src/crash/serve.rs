//! A writer that carries out commands: one command per line, one line in return.

use std::sync::Arc;

use piton_core::decide::Command;
use piton_core::event::WaitKind;
use piton_core::id::{BootId, SessionId};
use piton_core::token::ResumeToken;
use piton_core::{Code, NewRecord, event};
use piton_runtime::{Clock as _, Error, Handle, NewSession, Question, SystemClock};
use piton_store::{Batch, Durability, Guard, Store, WritableRecords};
use serde_json::Value;

use super::lines::{Ack, Line, filler, mark};
use super::writer::{EXIT_REFUSED, Out};

/// Until the standard input ends. The commands are:
/// - `prompt SESSION`: begins a run; makes the session if there is none
/// - `say SESSION`: a piece of text
/// - `ask SESSION`: a question of the session's run
/// - `answer TOKEN TEXT`
/// - `append SESSION BOOT EPOCH`: straight to the store, behind the last record, as this writer
/// - `recover`
pub(crate) async fn serve(handle: &Handle, store: &Arc<dyn Store>, out: &Out) -> u8 {
    loop {
        let read = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).map(|_| line)
        });
        let Ok(Ok(line)) = read.await else { return EXIT_REFUSED };
        let words: Vec<&str> = line.split_whitespace().collect();
        let session = words.get(1).copied().unwrap_or("-").to_owned();
        let said = match words.as_slice() {
            [] => return 0,
            ["prompt", session] => prompt(handle, session).await,
            ["say", session] => say(handle, session).await,
            ["ask", session] => ask(handle, session).await,
            ["answer", token, text] => answer(handle, token, text).await,
            ["append", session, boot, epoch] => append(store, session, boot, epoch).await,
            ["recover"] => recover(handle, out).await,
            _ => return EXIT_REFUSED,
        };
        match said {
            Ok(line) => out.say(&line),
            Err(error) => out.say(&Line::Refused(session, error.code().to_string())),
        }
    }
}

/// The parent writes ids that it has read before.
fn parsed<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not an id"))
}

async fn acked(
    handle: &Handle,
    session: &SessionId,
    command: Command,
    mark: String,
    bytes: usize,
) -> Result<Line, Error> {
    let last_seq = handle.execute(session, command).await?.last_seq;
    Ok(Line::Ack(Ack { session: session.to_string(), last_seq, bytes, mark }))
}

async fn prompt(handle: &Handle, session: &str) -> Result<Line, Error> {
    let session: SessionId = parsed(session);
    match handle.state(&session).await {
        Ok(_) => {}
        Err(error) if error.code() == Code::SessionNotFound => {
            handle
                .create(NewSession { id: Some(session.clone()), ..NewSession::default() })
                .await?;
        }
        Err(error) => return Err(error),
    }
    let (run_id, message_id) = (handle.ids().run()?, handle.ids().message()?);
    let mark = mark("message.user", &[("message_id", message_id.as_str())]);
    let content = filler(message_id.as_str(), 80);
    let message = Some(piton_core::decide::Message { message_id, content: content.into() });
    acked(handle, &session, Command::Start { run_id, message }, mark, 80).await
}

async fn say(handle: &Handle, session: &str) -> Result<Line, Error> {
    let message_id = handle.ids().message()?;
    let mark = mark("message.delta", &[("message_id", message_id.as_str())]);
    let text = filler(message_id.as_str(), 80);
    let command = Command::Say { message_id, offset: None, text };
    acked(handle, &parsed(session), command, mark, 80).await
}

async fn ask(handle: &Handle, session: &str) -> Result<Line, Error> {
    let session: SessionId = parsed(session);
    let run = handle.state(&session).await?.facts.run;
    let run_id = run.map(|run| run.run_id).ok_or(piton_core::decide::Refusal::NeverRun)?;
    let wait_id = handle.ids().wait()?;
    let question = Question {
        run_id,
        question: Value::String(filler(wait_id.as_str(), 60)),
        wait_id: Some(wait_id),
        kind: WaitKind::Permission,
        timeout: None,
    };
    let asked = handle.ask(&session, question).await?;
    let token = asked.token.map_or_else(String::new, |token| token.reveal());
    Ok(Line::Asked(asked.wait_id.to_string(), token))
}

async fn answer(handle: &Handle, token: &str, text: &str) -> Result<Line, Error> {
    let token: ResumeToken = parsed(token);
    let answered = handle.answer_with_token(None, token, Value::String(text.to_owned())).await?;
    let (result_seq, replayed) = (answered.result_seq, answered.replayed);
    Ok(Line::Answered { session: answered.session.to_string(), result_seq, replayed })
}

async fn append(
    store: &Arc<dyn Store>,
    session: &str,
    boot: &str,
    epoch: &str,
) -> Result<Line, Error> {
    let session: SessionId = parsed(session);
    let (boot, epoch): (BootId, u64) = (parsed(boot), parsed(epoch));
    let expected = store.head(&session).await?.map_or(0, |head| head.last_seq);
    let message_id: piton_core::id::MessageId = parsed("msg_stale");
    let record = event::MessageCompleted { message_id, length: 0, hash: String::new() };
    let appended = store.append(Batch {
        session: session.clone(),
        expected,
        guard: Guard::Lease { boot, epoch },
        records: WritableRecords::verbatim(vec![NewRecord::new(SystemClock.now(), record)]),
        durability: Durability::Synced,
        summary: None,
    });
    let last_seq = appended.await?.last;
    let mark = mark("message.completed", &[("message_id", "msg_stale")]);
    Ok(Line::Ack(Ack { session: session.to_string(), last_seq, bytes: 0, mark }))
}

async fn recover(handle: &Handle, out: &Out) -> Result<Line, Error> {
    handle
        .recover(|recovered| {
            let outcome = format!("{:?}", recovered.outcome);
            out.say(&Line::Recovered(recovered.session.to_string(), outcome));
        })
        .await?;
    Ok(Line::Ready)
}
