//! Logs that another program began, and the agent of a session.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde_json::json;

use crate::server::world::World;

fn write_private(path: &Path, text: &str) {
    use std::io::Write as _;
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Wants to show: a log that names no agent runs none by itself, over HTTP and from the command line;
/// given one it runs that one, and no other one can take over the conversation.
#[test]
fn an_adopted_log_asks_for_its_agent() {
    let mut world = World::not_started();
    let sessions = world.data().join("sessions");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&sessions).unwrap();
    let snapshot = json!({
        "id": "sess_old", "title": "Old", "working_dir": world.workspace(),
        "created_at": "2026-02-21T10:00:00Z", "updated_at": "2026-02-21T10:03:14Z", "last_seq": 146,
        "run": {"run_id": "run_1", "boot_id": "boot_1", "started_at": "2026-02-21T10:01:03Z",
            "ended_at": null, "wait": null},
        "recovery": {"last_boot_seen": "boot_1", "interruption": null},
    });
    write_private(&sessions.join("sess_old.json"), &snapshot.to_string());
    let log = concat!(
        r#"{"seq":145,"ts":"2026-02-21T10:01:10Z","kind":"message.user","message_id":"msg_1","content":"hi"}"#,
        "\n",
        r#"{"seq":146,"ts":"2026-02-21T10:02:02Z","kind":"run.interrupted","run_id":"run_1","reason":"process_exit"}"#,
        "\n",
    );
    write_private(&sessions.join("sess_old.messages.jsonl"), log);
    world.start_with(|command| {
        command.env("PITON_STORE", "files");
    });
    world.adopt("sess_old");
    let of = |rest: &str| format!("/api/v1/sessions/sess_old{rest}");
    assert_eq!(world.get(&of("")).good()["agent_profile_id"], json!(null));
    let prompt = json!({"content": "say hello"});
    for (path, body) in [("/messages", &prompt), ("/resume", &json!({})), ("/start", &json!({}))] {
        let refused = world.post(&of(path), body);
        assert_eq!((refused.status, refused.code()), (409, "agent_profile_required"), "{path}");
    }
    let piton = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("PITON_STORE", "files").output().unwrap()
    };
    let refused = piton(&["sessions", "resume", "sess_old"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("names no agent"), "{said}");
    assert!(said.contains("--agent NAME"), "{said}");

    let assign = |agent: &str| {
        world.ask("PUT", &of("/agent"), Some(&json!({"agent_profile_id": agent})), &[])
    };
    assert_eq!(assign("none").code(), "agent_not_found");
    let resumed = piton(&["sessions", "resume", "sess_old", "--agent", "echo"]);
    assert!(resumed.status.success(), "{resumed:?}");
    world.prompt("sess_old", "say hello");
    world.when("sess_old", |status| status["last_outcome"] == "completed");
    assign("echo").good();
    let refused = assign("gemini");
    assert_eq!((refused.status, refused.code()), (409, "agent_profile_conflict"));
    let refused = piton(&["sessions", "resume", "sess_old", "--agent", "gemini"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("agent_profile_conflict"), "{said}");
}
