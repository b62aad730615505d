//! MCP servers of a session: given with every conversation, and no secret in the log.

use piton_api::session::{NewSession, StartRequest};
use piton_core::Code;
use serde_json::json;

use crate::world::World;

/// Wants to show: what a session was made with is given to each of its agents; a secret that the log
/// would mask is refused instead of being lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_mcp_servers_are_given_to_every_agent() {
    let (world, fleet) = World::with_agents().await;
    let client = &world.client;
    let servers = json!([
        {"name": "git", "command": "mcp-git", "args": ["--here"], "env": {"A": "1"}, "env_from": ["PATH"]},
        {"name": "web", "url": "https://localhost/mcp", "transport": "sse"},
    ]);
    let new: NewSession =
        serde_json::from_value(json!({"start": false, "mcp_servers": servers})).unwrap();
    let session = client.create_session(&new).await.unwrap().session_id;
    client.start(&session, &StartRequest::default()).await.unwrap();
    world.kill_agents(&fleet, &session).await;
    client.start(&session, &StartRequest::default()).await.unwrap();
    let starts = fleet.starts();
    assert_eq!(starts.len(), 2);
    for start in starts {
        let [git, web] = start.mcp_servers.as_slice() else { panic!("{:?}", start.mcp_servers) };
        assert_eq!((&git["command"], &git["args"]), (&json!("mcp-git"), &json!(["--here"])));
        assert_eq!(git["env"][0], json!({"name": "A", "value": "1"}));
        assert_eq!(git["env"][1]["name"], "PATH");
        assert_eq!((&web["type"], &web["url"]), (&json!("sse"), &json!("https://localhost/mcp")));
    }
    let view = client.agent(&session).await.unwrap();
    assert_eq!(view.mcp_servers, ["git", "web"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_an_mcp_server_is_refused() {
    let (world, fleet) = World::with_agents().await;
    let client = &world.client;
    let many: Vec<_> = (0..33).map(|n| json!({"name": format!("s{n}"), "command": "x"})).collect();
    for wrong in [
        json!([{"name": "x"}]),
        json!([{"name": "x", "command": "a", "url": "b"}]),
        json!([{"name": "x", "command": "a"}, {"name": "x", "command": "b"}]),
        json!([{"name": "x", "command": "a", "cwd": "/"}]),
        json!([{"name": "x", "command": "a", "env": {"GITHUB_TOKEN": "ghp_0123456789abcdef"}}]),
        json!([{"name": "x", "url": "u", "headers": {"api_key": "0123456789abcdef"}}]),
        json!([{"name": "x", "url": "u", "headers": {"Authorization": "Bearer abc"}}]),
        json!(many),
    ] {
        let new = json!({"start": false, "mcp_servers": wrong}).to_string();
        let refused = client.raw("POST", "/api/v1/sessions", &new).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::RequestInvalid), "{wrong}");
    }
    // A variable that is not set is an error that names it.
    let servers = json!([{"name": "x", "command": "a", "env_from": ["PITON_TEST_NOT_SET"]}]);
    let new: NewSession =
        serde_json::from_value(json!({"start": false, "mcp_servers": servers})).unwrap();
    let session = client.create_session(&new).await.unwrap().session_id;
    let refused = client.start(&session, &StartRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::ConfigInvalid));
    assert_eq!(fleet.starts().len(), 0);
    let status = client.session(&session).await.unwrap();
    assert!(json!(status).to_string().contains("PITON_TEST_NOT_SET"), "{status:?}");
}
