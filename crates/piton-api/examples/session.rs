//! Creates a session, prompts its agent, prints what it says as it comes, and answers what it asks with the
//! first option. Usage: `session ADDRESS TOKEN PROMPT`, with the address and token of `run/server.json`.

use std::io::Write as _;

use piton_api::client::{Client, Result};
use piton_api::session::{NewSession, PromptRequest};
use piton_api::wait::AnswerRequest;
use serde_json::{Value, json};

/// What the agent said, and how its run ended.
pub async fn converse(client: &Client, prompt: &str) -> Result<(String, String)> {
    let session = client.create_session(&NewSession::default()).await?.session_id;
    let request = PromptRequest::new(prompt);
    let run = client.prompt(&session, &request).await?.run_id;
    let (mut records, mut said) = (client.records_from(&session, 0), String::new());
    loop {
        let record = records.next().await?;
        match record["kind"].as_str().unwrap_or_default() {
            "message.delta" if record["channel"] != "thought" => {
                said.push_str(record["text"].as_str().unwrap_or_default());
            }
            "run.waiting" => answer(client, &session).await?,
            kind @ ("run.completed" | "run.failed" | "run.cancelled" | "run.interrupted")
                if record["run_id"] == run.as_str() =>
            {
                return Ok((said, kind.to_owned()));
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
