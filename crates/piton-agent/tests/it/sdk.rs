//! The built-in agent with the protocol's official SDK as its client: what it says is understood by
//! others, and not only by our own client.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, ContentBlock, FileSystemCapabilities, ForkSessionRequest,
    InitializeRequest, ListSessionsRequest, LoadSessionRequest, NewSessionRequest, PromptRequest,
    ReadTextFileRequest, ReadTextFileResponse, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ResumeSessionRequest, SelectedPermissionOutcome,
    SessionNotification, SessionUpdate, StopReason, TextContent, ToolCallStatus,
};
use agent_client_protocol::{Agent, Client, Lines};
use futures_util::{sink, stream};
use piton_echo as echo;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

type Updates = Arc<Mutex<Vec<SessionUpdate>>>;

fn texts(updates: &Updates) -> Vec<String> {
    let text = |update: &SessionUpdate| match update {
        SessionUpdate::AgentMessageChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => Some(text.text.clone()),
            _ => None,
        },
        _ => None,
    };
    updates.lock().unwrap().iter().filter_map(text).collect()
}

#[tokio::test]
async fn the_official_client_understands_the_built_in_agent() {
    let (client_out, agent_in) = tokio::io::duplex(64 * 1024);
    let (agent_out, client_in) = tokio::io::duplex(64 * 1024);
    tokio::spawn(echo::serve(agent_in, agent_out, echo::Options::default()));
    let outgoing = sink::unfold(client_out, |mut out, line: String| async move {
        out.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(out)
    });
    let incoming = stream::unfold(BufReader::new(client_in).lines(), |mut lines| async move {
        let line = lines.next_line().await.transpose()?;
        Some((line, lines))
    });
    let updates = Updates::default();
    let seen = Arc::clone(&updates);
    let all = Arc::clone(&updates);
    let client = Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _cx| {
                seen.lock().unwrap().push(notification.update);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _cx| {
                let first = request.options[0].option_id.clone();
                let selected = SelectedPermissionOutcome::new(first);
                let outcome = RequestPermissionOutcome::Selected(selected);
                responder.respond(RequestPermissionResponse::new(outcome))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ReadTextFileRequest, responder, _cx| {
                let content = format!("content of {}", request.path.display());
                responder.respond(ReadTextFileResponse::new(content))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(Lines::new(outgoing, incoming), |cx: ConnectionTo<Agent>| async move {
            let fs = FileSystemCapabilities::new().read_text_file(true);
            let initialize = InitializeRequest::new(ProtocolVersion::V1)
                .client_capabilities(ClientCapabilities::new().fs(fs));
            let hello = cx.send_request(initialize).block_task().await?;
            assert_eq!(hello.agent_info.unwrap().name, "echo");
            assert!(hello.agent_capabilities.load_session);
            assert!(hello.agent_capabilities.session_capabilities.resume.is_some());

            // One that is there: commands run in it.
            let cwd = std::env::temp_dir();
            let session = cx.send_request(NewSessionRequest::new(&*cwd)).block_task().await?;
            assert!(session.modes.is_some());
            let id = session.session_id;
            let say = |text: &str| {
                let text = ContentBlock::Text(TextContent::new(text));
                cx.send_request(PromptRequest::new(id.clone(), vec![text])).block_task()
            };
            let prompt = "think hm\nsay hello\nask\nread file\ntool t\nrun true\nplan\nmode quiet";
            let turn = say(prompt).await?;
            assert_eq!(turn.stop_reason, StopReason::EndTurn);
            let content = format!("content of {}", cwd.join("file").display());
            assert_eq!(texts(&all), ["hello", "chosen: allow_once", &content]);
            let is_done = |update: &SessionUpdate| {
                let status = |s: Option<ToolCallStatus>| s == Some(ToolCallStatus::Completed);
                matches!(update, SessionUpdate::ToolCallUpdate(u) if status(u.fields.status))
            };
            let said = std::mem::take(&mut *all.lock().unwrap());
            assert_eq!(said.iter().filter(|update| is_done(update)).count(), 4);
            let has = |is: fn(&SessionUpdate) -> bool| said.iter().any(is);
            assert!(has(|update| matches!(update, SessionUpdate::AgentThoughtChunk(_))));
            assert!(has(|update| matches!(update, SessionUpdate::Plan(_))));
            assert!(has(|update| matches!(update, SessionUpdate::CurrentModeUpdate(_))));

            cx.send_request(LoadSessionRequest::new(id.clone(), &*cwd)).block_task().await?;
            let again = std::mem::take(&mut *all.lock().unwrap());
            let user = |update: &SessionUpdate| match update {
                SessionUpdate::UserMessageChunk(chunk) => chunk.message_id.is_some(),
                _ => false,
            };
            assert_eq!(again.iter().filter(|update| user(update)).count(), 1);
            assert_eq!(again.iter().filter(|update| is_done(update)).count(), 4);

            cx.send_request(ResumeSessionRequest::new(id.clone(), &*cwd)).block_task().await?;
            assert!(all.lock().unwrap().is_empty());
            let fork = ForkSessionRequest::new(id.clone(), &*cwd);
            let fork = cx.send_request(fork).block_task().await?;
            assert_ne!(fork.session_id, id);
            let listed = cx.send_request(ListSessionsRequest::new()).block_task().await?;
            assert_eq!(listed.sessions.len(), 2);
            let unknown = LoadSessionRequest::new("nobody-knows", &*cwd);
            let refused = cx.send_request(unknown).block_task().await.unwrap_err();
            assert_eq!(i32::from(refused.code), -32002);
            Ok(())
        });
    tokio::time::timeout(Duration::from_secs(20), Box::pin(client)).await.unwrap().unwrap();
}
