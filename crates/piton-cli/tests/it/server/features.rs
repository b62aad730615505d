//! An agent's own features and tasks from the command line: the real binary and the built-in agent.

use serde_json::{Value, json};

use crate::server::world::World;

/// Wants to show: what was chosen is given to the agent, shown, and still so after the agent came back.
#[test]
fn a_mode_and_a_model_are_chosen_and_kept() {
    let mut world = World::new();
    let session = &world.session();
    let view = |world: &World| world.json(&["sessions", "show", session])["agent_view"].clone();
    world.when(session, |status| status["is_agent_running"] == true);
    world.json(&["sessions", "prompt", session, "commands\nusage 10\nplan"]);
    world.when(session, |status| status["last_outcome"] == "completed");
    let shown = view(&world);
    assert_eq!(shown["modes"]["current"], "normal", "{shown}");
    assert_eq!(shown["models"]["current"], "small");
    assert_eq!(shown["usage"]["context_window_tokens"], 1_000);
    assert_eq!(shown["commands"][0]["name"], "recall");
    assert_eq!(shown["plan"].as_array().map(Vec::len), Some(2));
    let choice = ["--mode", "quiet", "--model", "large", "--option", "loud=true"];
    world.json(&[&["sessions", "set", session], choice.as_slice()].concat());
    let is_chosen = |shown: &Value| {
        shown["modes"]["current"] == "quiet"
            && shown["models"]["current"] == "large"
            && shown["config_options"][0]["current"] == true
    };
    let refused = world.refused(&["sessions", "set", session, "--mode", "loud"]);
    assert_eq!(refused, "choice_not_offered");
    world.json(&["sessions", "prompt", session, "crash"]);
    world.when(session, |status| status["status"] == "interrupted_startup");
    world.json(&["sessions", "prompt", session, "say hello"]);
    world.when(session, |status| status["last_outcome"] == "completed");
    let shown = view(&world);
    assert!(is_chosen(&shown), "{shown}");
    let text = world.command(&["sessions", "show", session]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("quiet (or normal)") && text.contains("10 of 1000 tokens"), "{text}");
}

#[test]
fn a_task_is_changed_from_the_command_line() {
    let world = World::new();
    let task = world.json(&["tasks", "new", "One"])["task_id"].as_str().unwrap().to_owned();
    let shown = |world: &World| world.json(&["tasks", "show", &task]);
    assert_eq!(shown(&world)["state"], "TODO");
    world.json(&["tasks", "edit", &task, "Two"]);
    assert_eq!(shown(&world)["title"], "Two");
    world.json(&["tasks", "close", &task, "--outcome", "cancelled"]);
    assert_eq!(shown(&world)["state"], "CANCELLED");
    world.json(&["tasks", "reopen", &task]);
    assert_eq!(shown(&world)["state"], "TODO");
    assert_eq!(world.json(&["tasks", "delete", &task]), json!({"task_id": task}));
    assert_eq!(world.refused(&["tasks", "show", &task]), "task_not_found");
}
