//! Configured secrets do not reach the disk, whichever way they arrive.

use std::path::Path;

use serde_json::{Value, json};

use crate::server::world::World;

const SECRET: &str = "SuperSecretValue-ABC123xyz";
/// The same, as an agent may stream it.
const PIECES: [&str; 2] = ["SuperSecretVa", "lue-ABC123xyz"];

fn world() -> World {
    let mut world = World::not_started();
    world.start_with(|command| {
        // Plain lines: whatever is written can be looked for.
        command.env("PITON_STORE", "files").env("PITON_MASK_VALUES", SECRET);
    });
    world
}

/// The text of every file below a folder.
fn texts(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            texts(&path, found);
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            found.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

fn written(world: &World) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(world.data()).unwrap().flatten() {
        // Not the program.
        let skipped = entry.file_name() == "bin";
        if entry.file_type().unwrap().is_dir() && !skipped {
            texts(&entry.path(), &mut found);
        }
    }
    assert!(!found.is_empty());
    found
}

/// Wants to show: a configured secret that an agent streams in pieces is masked before it is written,
/// by agentctl into its spool and so in the log.
#[test]
pub(crate) fn a_secret_in_pieces_is_masked() {
    let mut world = world();
    let session = world.session();
    let prompt = PIECES.join("|");
    let run = world.prompt(&session, &format!("pieces {prompt}"));
    world.when(&session, |status| {
        status["status"] == "idle" && status["last_outcome"] != Value::Null
    });
    assert_eq!(world.said(&session, &run), "[masked]");
    for (path, text) in written(&world) {
        // What the user wrote is not the secret, and is written as it is.
        let text = text.replace(&prompt, "");
        for piece in PIECES {
            assert!(!text.contains(piece), "{piece} in {path}");
        }
    }
}

/// Wants to show: what belongs to no session is masked as well: titles of tasks, names of access
/// tokens, and the paths of refused requests, which need no token.
#[test]
pub(crate) fn the_metadata_log_is_masked() {
    let world = world();
    world.post("/api/v1/tasks", &json!({"title": format!("use {SECRET}")})).good();
    let name = format!("for {SECRET}");
    world.post("/api/v1/access-tokens", &json!({"name": name, "scopes": ["read"]})).good();
    let refused = world.raw("GET", &format!("/api/v1/sessions/{SECRET}"), None, &[]);
    assert_eq!(refused.code(), "unauthenticated");
    let titles = world.get("/api/v1/tasks").good();
    assert_eq!(titles["tasks"][0]["title"], "use [masked]");
    let written = written(&world);
    for (path, text) in &written {
        assert!(!text.contains(SECRET), "in {path}");
    }
    let masked = written.iter().map(|(_, text)| text.matches("[masked]").count()).max();
    assert_eq!(masked, Some(3), "a title, a name, a path");
}

/// Wants to show: the built-in agent's memory has no configured secret in it, is its owner's alone, and
/// goes with its session, whether the server deletes it or the command line.
#[test]
pub(crate) fn the_memory_of_echo_is_masked_private_and_deleted() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut world = world();
    let idle = |status: &Value| status["status"] == "idle" && status["last_outcome"] != Value::Null;
    let sessions: Vec<String> = (0..2).map(|_| world.session()).collect();
    let folder = world.data().join("echo");
    let file = |session: &str| folder.join(format!("{session}.json"));
    for session in &sessions {
        world.prompt(session, &format!("say I know {SECRET}"));
        world.when(session, idle);
        let text = std::fs::read_to_string(file(session)).unwrap();
        assert!(text.contains("I know [masked]") && !text.contains(SECRET), "{text}");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&file(session))), (0o700, 0o600));
    }
    let path = format!("/api/v1/sessions/{}?force=true", sessions[0]);
    assert_eq!(world.ask("DELETE", &path, None, &[]).status, 204);
    let left = || std::fs::read_dir(&folder).unwrap().count();
    assert!(!file(&sessions[0]).exists() && file(&sessions[1]).exists(), "{}", left());

    world.kill();
    world.kill_agentctls();
    let delete = ["sessions", "delete", &sessions[1], "--force", "--yes"];
    let deleted = world.command(&delete).env("PITON_STORE", "files").output().unwrap();
    assert!(deleted.status.success(), "{deleted:?}");
    assert_eq!(left(), 0);
}

/// Wants to show: a delivered prompt that was queued and edited before is named by one seq, and none of
/// its copies is left: not over the API, and not in a byte of the data folder.
#[test]
pub(crate) fn every_copy_of_a_redacted_prompt_is_gone() {
    let mut world = World::not_started();
    world.start_with(|command| {
        command.env("PITON_STORE", "files");
    });
    let session = world.session();
    let of = |rest: &str| format!("/api/v1/sessions/{session}{rest}");
    let content = |name: &str| {
        let link = json!({"type": "resource_link", "uri": "file:///x", "name": name});
        json!({"content": [{"type": "text", "text": "say done"}, link]})
    };
    world.prompt(&session, "wait 1500");
    let queued = world.post(&of("/queue"), &content("leaked-at-first")).good();
    let message = queued["message_id"].as_str().unwrap();
    let path = of(&format!("/queue/{message}"));
    world.ask("PATCH", &path, Some(&content("leaked-again")), &[]).good();
    let run = queued["run_id"].as_str().unwrap();
    world.when(&session, |status| status["run_id"] == run && status["status"] == "idle");
    let holds = |world: &World| {
        let records = world.records(&session);
        let of_prompt = records.into_iter().filter(|record| record.to_string().contains("leaked"));
        of_prompt.map(|record| record["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(holds(&world), ["prompt.queued", "prompt.edited", "message.user"]);
    let records = world.records(&session);
    let delivered = records.iter().rfind(|record| record["kind"] == "message.user").unwrap();
    let redact = json!({"seqs": [delivered["seq"]]});
    let redaction = world.post(&of("/redact"), &redact).good();
    assert_eq!(redaction["taken_out"], 3, "{redaction:#}");
    assert_eq!(holds(&world), [""; 0]);
    let messages = world.get(&of("/messages")).good();
    assert!(!messages.to_string().contains("leaked"), "{messages:#}");
    assert_eq!(world.get(&of("/verify")).good()["problem"], Value::Null);
    world.end();
    for (path, text) in written(&world) {
        assert!(!text.contains("leaked"), "{path}");
    }
}
