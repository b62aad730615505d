//! `piton config show`, and what is said about wrong settings.

use insta::assert_snapshot;
use serde_json::Value;

use crate::cli::home::Home;

const FILE: &str = ".config/piton/config.toml";

#[test]
fn defaults_are_shown() {
    let mut home = Home::new();
    assert_snapshot!("config_default", home.run("config show"));
    assert_snapshot!("config_default_json", home.run("config show --json"));
    home.set("COLUMNS", "40");
    assert_snapshot!("config_narrow", home.run("config show"));
}

/// Default, file, environment, option: the later counts more, and each value says where it is from.
/// Secrets are counted, not shown.
#[test]
fn every_value_says_where_it_comes_from() {
    let mut home = Home::new();
    home.write(
        FILE,
        "data = '/srv/from-file'\nstore = 'files'\n\n[mask]\nvalues = ['hunter2', 'swordfish']\n\
         env = ['GITHUB_TOKEN']\n\n[retention]\narchive_after = '30d'\ndelete_after = '52w'\n",
    );
    home.set("PITON_DATA", "/srv/from-environment");
    home.set("PITON_MASK_ENV", "A_TOKEN, B_TOKEN");
    home.set("PITON_KEY", "not shown");
    home.set("PITON_DTAA", "misspelt");
    assert_snapshot!("config_mixed", home.run("config show --color always"));
    let json = home.run("config show --data /srv/from-option --json");
    assert!(!json.contains("hunter2") && !json.contains("not shown"));
    assert_snapshot!("config_mixed_json", json);
    home.write("other.toml", "color = 'never'\n");
    assert_snapshot!("config_other_file", home.run("config show --config other.toml"));
    home.set("PITON_CONFIG", "other.toml").set("XDG_DATA_HOME", "/srv/xdg");
    assert_snapshot!("config_other_file_by_variable", home.run("config show"));
}

/// Each rule of the file is a row, with where it stands.
#[test]
fn permission_rules_are_shown() {
    let home = Home::new();
    home.write(
        FILE,
        "[permissions]\nkey_delay_ms = 500\n\n\
         [[permissions.rules]]\naction = 'allow'\ncommand = 'git status*'\n\n\
         [[permissions.rules]]\nname = 'env'\naction = 'deny'\npath = '.env'\nagent = 'codex'\n",
    );
    let shown = home.run("config show");
    let rows: Vec<&str> = shown.lines().filter(|line| line.starts_with("permissions.")).collect();
    assert_snapshot!("config_permissions", rows.join("\n"));
}

/// Agents and the server are set in the file; a program that is named by its path lies beside it.
#[test]
fn agents_are_shown() {
    let home = Home::new();
    home.write(
        FILE,
        "[server]\nlisten = '127.0.0.1:9'\nhosts = ['a.example']\ntls_cert = 'c.pem'\n\
         [agents.near]\ncommand = ['./bin/agent', '--acp']\n\
         [agents.claude]\nname = 'Claude'\ncommand = ['npx', 'acp']\n",
    );
    assert_snapshot!("config_agents", home.run("config show"));
    assert_snapshot!("config_agents_json", home.run("config show --json"));
}

/// One that Piton knows keeps what is not said about it, and `config show` prints no agent's
/// environment.
#[test]
fn agents_inherit_and_their_environment_is_not_shown() {
    let home = Home::new();
    home.write(
        FILE,
        "[agents.gemini]\ncommand = ['/opt/gemini', '--acp']\n\
         [agents.codex]\nenv_remove = ['DEBUG']\n[agents.codex.env]\nOPENAI_API_KEY = 'hunter2'\n\
         MODEL = 'swordfish'\n\
         [agents.mine]\ncommand = ['mine']\nname = 'Mine'\ninstall = 'Ask Ada.'\n\
         resume = 'command_line'\nhistory = true\ncontinue = ['--go-on={agent_session_id}']\n\
         [agents.plain]\ncommand = ['plain']\nresume = 'none'\n",
    );
    let json = home.run("config show --json");
    for shown in [&json, &home.run("config show"), &home.run("agents list --json")] {
        assert!(!shown.contains("hunter2") && !shown.contains("swordfish"), "{shown}");
    }
    let settings: Value = serde_json::from_str(json.lines().nth(2).unwrap()).unwrap();
    let settings = settings["settings"].as_array().unwrap();
    let agents = settings.iter().filter(|one| one["key"].as_str().unwrap().starts_with("agents."));
    let agents: Vec<_> = agents.map(|one| (&one["key"], &one["value"])).collect();
    let agents = serde_json::to_string_pretty(&agents).unwrap();
    assert_snapshot!("config_agents_inherit", agents);
}

/// What a config file names lies beside it, or in the home folder, wherever the command is given.
#[test]
fn places_in_a_file_do_not_depend_on_where_one_stands() {
    let home = Home::new();
    home.write("here/config.toml", "data = 'sessions'\nmask.files = ['~/token', '/etc/token']\n");
    assert_snapshot!("config_places", home.run("config show --config here/config.toml --json"));
    home.write("here/config.toml", "data = '~/sessions'\n");
    assert_snapshot!("config_home", home.run("config show --config here/config.toml"));
}

#[test]
fn wrong_settings_are_named() {
    for (name, text) in [
        ("misspelt", "data = '/x'\n[retention]\narchive_afer = '30d'\n"),
        ("misplaced", "archive_after = '30d'\n"),
        ("unlike_any", "zzz = 1\n"),
        ("no_list", "mask.keys = 'token'\n"),
        ("no_text", "data = 5\n"),
        ("no_unit", "[retention]\ndelete_after = '30'\n"),
        ("no_kind", "store = 'postgres'\n"),
        ("no_toml", "data = '/x'\nstore = \n"),
        ("no_address", "[server]\nlisten = 'localhost'\n"),
        ("agent_no_table", "agents = 'claude'\n"),
        ("agent_no_command", "[agents.claude]\nname = 'Claude'\n"),
        ("agent_command_text", "[agents.claude]\ncommand = 'claude --acp'\n"),
        ("agent_command_empty", "[agents.claude]\ncommand = []\n"),
        ("agent_unknown_key", "[agents.claude]\ncommand = ['x']\ncwd = 'y'\n"),
        ("agent_env_list", "[agents.claude]\ncommand = ['x']\nenv = ['Y']\n"),
        ("agent_env_number", "[agents.claude]\ncommand = ['x']\nenv = { A_TOKEN = 5 }\n"),
        ("agent_env_home", "[agents.codex]\nenv = { HOME = '/elsewhere' }\n"),
        ("agent_env_remove_home", "[agents.codex]\nenv_remove = ['HOME']\n"),
        ("agent_env_name", "[agents.codex]\nenv = { 'A=B' = 'c' }\n"),
        ("agent_resume_unknown", "[agents.claude]\ncommand = ['x']\nresume = 'magic'\n"),
        ("agent_history_text", "[agents.claude]\ncommand = ['x']\nhistory = 'yes'\n"),
        ("agent_no_continue", "[agents.claude]\ncommand = ['x']\nresume = 'command_line'\n"),
        ("agent_continue_alone", "[agents.claude]\ncommand = ['x']\ncontinue = ['--resume']\n"),
        (
            "agent_continue_nothing",
            "[agents.claude]\ncommand = ['x']\nresume = 'command_line'\ncontinue = ['-c']\n",
        ),
        ("agent_bad_name", "[agents.'a b']\ncommand = ['x']\n"),
        ("agent_built_in", "[agents.echo]\ncommand = ['x']\n"),
    ] {
        let home = Home::new();
        home.write(FILE, text);
        assert_snapshot!(format!("config_{name}"), home.run("config show"));
    }
    let mut home = Home::new();
    assert_snapshot!("config_no_file", home.run("config show --config nowhere.toml --json"));
    home.set("PITON_COLOR", "pink");
    assert_snapshot!("config_no_color", home.run("sessions list"));
    let mut homeless = home.command(["sessions", "list"]);
    let output = homeless.env_remove("HOME").env_remove("PITON_COLOR").output().unwrap();
    assert_snapshot!("config_homeless", home.transcript("sessions list", &output));
}
