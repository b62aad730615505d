//! Agents and the server's address from the config file.

use serde_json::{Value, json};

use crate::server::pty::Home;
use crate::server::world::World;
use crate::tools;

fn write_config(home: &Home, text: &str) {
    std::fs::write(home.folder.path().join("config.toml"), text).unwrap();
}

#[test]
fn an_agent_of_the_settings_can_be_talked_to() {
    let home = Home::new();
    let program = tools::piton();
    write_config(
        &home,
        &format!(
            "[agents.mine]\ncommand = [{program:?}, 'agent', 'echo']\nname = 'Mine'\n\n\
             [agents.lost]\ncommand = ['./nowhere/agent']\n"
        ),
    );
    let piton = |arguments: &[&str]| {
        let mut command = home.piton(&["--config", "config.toml"]);
        command.args(arguments).output().unwrap()
    };
    let output = piton(&["chat", "--agent", "mine", "--print", "say hello"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "hello\n");
    let output = piton(&["--json", "chat", "--agent", "none", "--print", "say hello"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("agent_not_found"));

    // The server in the background was started with the same settings.
    let place = std::fs::read(home.folder.path().join("data/run/server.json")).unwrap();
    let place: Value = serde_json::from_slice(&place).unwrap();
    let (address, token) = (place["address"].as_str().unwrap(), place["token"].as_str().unwrap());
    let bearer = format!("Bearer {token}");
    let answer = World::ask_at(address, "GET", "/api/v1/agents", &[("authorization", &bearer)]);
    let agents = answer.good()["agents"].as_array().unwrap().clone();
    let known = |id: &str| agents.iter().find(|agent| agent["agent_profile_id"] == id).cloned();
    let view = |id: &str, name: &str, origin: &str, is_installed: bool| {
        Some(json!({
            "agent_profile_id": id, "name": name, "origin": origin, "is_installed": is_installed,
            "install": null, "resume_strategy": "native",
        }))
    };
    assert_eq!(known("echo"), view("echo", "Echo (built in, without a model)", "built_in", true));
    assert_eq!(known("lost"), view("lost", "lost", "configured", false));
    assert_eq!(known("mine"), view("mine", "Mine", "configured", true));
    let auggie = known("auggie").unwrap();
    assert_eq!(
        (&auggie["origin"], &auggie["resume_strategy"]),
        (&json!("built_in"), &json!("history"))
    );
    assert!(auggie["install"].as_str().unwrap().contains("@augmentcode/auggie"), "{auggie}");
    assert_eq!(agents.len(), 3 + 11, "{agents:?}");
    let output = piton(&["doctor"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    let lost = home.folder.path().canonicalize().unwrap().join("nowhere/agent");
    let lost = format!("warning  agents       lost: {} was not found", lost.display());
    assert!(printed.contains(&lost), "{printed}");
    assert!(printed.starts_with("ok       data folder"), "{printed}");
    assert!(printed.contains(&format!("ok       agents       mine: {program}")), "{printed}");
}

#[test]
fn the_server_listens_where_the_settings_say() {
    let home = Home::new();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    write_config(
        &home,
        &format!("[server]\nlisten = 'localhost:{port}'\nhosts = ['piton.test']\n"),
    );
    let output = home.piton(&["--config", "config.toml", "open", "--print"]).output().unwrap();
    let address = format!("http://127.0.0.1:{port}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with(&format!("{address}/#link=")), "{printed}");
    let health = |host: &str| World::ask_at(&address, "GET", "/health", &[("host", host)]);
    assert_eq!(health("piton.test").status, 200);
    assert_eq!(health("other.test").code(), "host_refused");

    for (text, named) in [
        ("[server]\nlisten = '0.0.0.0:0'\n", "tls_required"),
        ("[server]\ntls_key = 'x'\n", "server.tls_cert"),
        ("[server]\nlisten = 'here'\n", "config.toml:2"),
        ("[server]\nlisten = 'piton.test:0'\n", "config.toml:2"),
    ] {
        let other = Home::new();
        write_config(&other, text);
        let output = other.piton(&["--config", "config.toml", "--json", "serve"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(named), "{text}: {said}");
    }
}
