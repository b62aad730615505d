//! Creates a session, prompts its agent, prints what it says as it comes, and answers what it asks with the
//! first option. Usage: `session ADDRESS TOKEN PROMPT`, with the address and token of `run/server.json`.

use std::io::Write as _;

use piton_api::client::{Client, Result};
use piton_api::session::{NewSession, PromptRequest};
use piton_api::wait::AnswerRequest;
use piton_core::event::{Event, RunCancelled, RunCompleted, RunFailed, RunInterrupted};
use piton_core::spool::Channel;
use serde_json::{Value, json};

/// What the agent said, and how its run ended.
pub async fn converse(client: &Client, prompt: &str) -> Result<(String, String)> {
    let session = client.create_session(&NewSession::default()).await?.session_id;
    let request = PromptRequest::new(prompt);
    let run = client.prompt(&session, &request).await?.run_id;
    let (mut records, mut said) = (client.records_from(&session, 0), String::new());
    loop {
        let record = records.next().await?;
        // Of a newer server some records may be new, too.
        let Ok(event) = record.event() else { continue };
        match event {
            // A content is beside the event: it may have been redacted.
            Event::MessageDelta(piece) if piece.channel == Channel::Answer => {
                said.push_str(record["text"].as_str().unwrap_or_default());
            }
            Event::RunWaiting(_) => answer(client, &session).await?,
            Event::RunCompleted(RunCompleted { run_id, .. })
            | Event::RunFailed(RunFailed { run_id, .. })
            | Event::RunCancelled(RunCancelled { run_id, .. })
            | Event::RunInterrupted(RunInterrupted { run_id, .. })
                if run_id.as_str() == run =>
            {
                return Ok((said, record.kind().to_owned()));
            }
            _ => {}
        }
    }
}

/// Answers the session's waits with their first option.
async fn answer(client: &Client, session: &piton_core::id::SessionId) -> Result<()> {
    for wait in client.session(session).await?.waits {
        let question = wait.question.unwrap_or_default();
        let option = ["optionId", "option_id"].iter().map(|name| &question["options"][0][name]);
        let option = option.into_iter().find(|option| option.is_string()).unwrap_or(&Value::Null);
        let answer = json!({"option_id": option});
        client.answer(&wait.wait_id, &AnswerRequest { answer, message: None }).await?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |name: &str| arguments.next().ok_or_else(|| format!("{name} is missing"));
    let client = Client::new(next("ADDRESS")?, next("TOKEN")?);
    let (said, ended) = converse(&client, &next("PROMPT")?).await?;
    writeln!(std::io::stdout(), "{said}\n{ended}")?;
    Ok(())
}
