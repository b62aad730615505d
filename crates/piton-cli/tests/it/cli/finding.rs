//! Sessions found by a text, exported to read; the service's file.

use insta::assert_snapshot;

use crate::cli::fixture::Fixture;
use crate::cli::home::Home;

#[test]
fn the_service_is_shown_and_nothing_is_written() {
    let home = Home::new();
    let shown = home.run("service install --dry-run");
    for line in ["KillMode=process", "Delegate=yes", "WantedBy=default.target", "--- exit 0"] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
    let plist = home.run("service install --dry-run --manager launchd");
    assert!(plist.contains("<key>AbandonProcessGroup</key>"), "{plist}");
    assert!(!home.path().join(".config/systemd").exists() && !home.path().join("Library").exists());
    assert!(home.run("service status").contains("The service is not installed."));
    assert!(home.run("service uninstall").contains("The service is not installed."));
}

#[test]
fn a_kind_that_does_not_exist_is_an_error_with_suggestions() {
    let shown = Home::new().run("sessions log sess_1 --kind mesage.user");
    assert!(shown.contains("near: message.user") && shown.contains("--- exit 2"), "{shown}");
}

#[test]
fn config_errors_name_no_command_that_fails_the_same_way() {
    let home = Home::new();
    home.write(".config/piton/config.toml", "this is not TOML");
    let shown = home.run("sessions list");
    assert!(shown.contains("config.toml:1") && !shown.contains("config show"), "{shown}");
}

/// Titles and messages are searched; the conversation is exported for people, never over a file.
#[test]
fn a_session_is_found_by_its_words_and_exported_to_read() {
    let fixture = Fixture::new();
    assert_snapshot!("search", fixture.run("sessions search TEST"));
    assert_snapshot!("search_json", fixture.run("sessions search test --limit 1 --json"));
    assert_snapshot!("search_none", fixture.run("sessions search zzzzzz"));
    let empty = fixture.home.command(["sessions", "search", ""]).output().unwrap();
    assert_eq!(empty.status.code(), Some(2));
    assert_snapshot!("export_markdown", fixture.run("sessions export sess_done --markdown --to -"));
    let written = fixture.run("sessions export sess_done --html");
    assert!(written.contains("sess_done.html") && written.contains("--- exit 0"), "{written}");
    let again = fixture.run("sessions export sess_done --html");
    assert!(again.contains("file_exists") && again.contains("--- exit 1"), "{again}");
    assert!(fixture.run("sessions export sess_done --html --encrypt").contains("--- exit 2"));
}

/// Wants to show: a session that cannot be read is named, and the others are searched all the same.
#[test]
fn a_damaged_session_does_not_end_a_search() {
    let fixture = Fixture::new();
    let good = fixture.run("sessions search test");
    fixture.sql(
        "UPDATE records SET payload = zeroblob(length(payload))
                 WHERE rid >> 32 = (SELECT no FROM logs WHERE id = 'sess_done')",
    );
    let searched = fixture.run("sessions search test");
    assert!(searched.contains("Warning: sess_done cannot be searched"), "{searched}");
    assert!(
        searched.contains("`piton verify`") && searched.ends_with("--- exit 1\n"),
        "{searched}"
    );
    let hits =
        |text: &str| text.lines().filter(|line| line.starts_with("sess_cut_working")).count();
    assert!(hits(&good) > 0, "{good}");
    assert_eq!(hits(&searched), hits(&good));
}

/// Wants to show: a server of another version is named before anything else is done.
#[test]
fn a_server_of_another_version_is_named() {
    let fixture = Fixture::new();
    let info = serde_json::json!({
        "address": "http://127.0.0.1:9", "pid": 1, "boot": "boot_live", "version": "9.9.9", "token": "x",
    });
    fixture.home.write(".local/share/piton/run/server.json", &info.to_string());
    let listed = fixture.run("sessions list");
    assert!(listed.contains("Warning: The server is Piton 9.9.9, this program is "), "{listed}");
    assert!(listed.contains("Restart the server: `piton stop`"), "{listed}");
    let own = serde_json::json!({
        "address": "http://127.0.0.1:9", "pid": 1, "boot": "boot_live",
        "version": env!("CARGO_PKG_VERSION"), "token": "x",
    });
    fixture.home.write(".local/share/piton/run/server.json", &own.to_string());
    assert!(!fixture.run("sessions list").contains("The server is Piton"));
}

/// A pipe takes rows of any length: nothing is cut, and ids are whole.
#[test]
fn tables_are_not_cut_in_pipes() {
    let fixture = Fixture::new();
    let output = fixture.home.command(["sessions", "list"]).env_remove("COLUMNS").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('…') && text.contains("sess_done"), "{text}");
    assert!(text.starts_with("SESSION") && text.contains("FOLDER/BRANCH"), "{text}");
}
