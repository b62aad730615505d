//! Commands that take something out for good: redact, delete; and masking, which keeps it out.

use insta::assert_snapshot;
use piton_core::decide::Command;
use piton_core::event::Outcome;
use serde_json::json;

use crate::cli::fixture::{Fixture, Writer, run_of};
use crate::cli::home::Home;

const SECRET: &str = "swordfish-42";

/// A closed session that has a secret in a message, split over two pieces of another one, in a tool's
/// arguments, and in its title.
async fn leak(to: Writer) {
    let leak = to.create("sess_leak", &format!("Use {SECRET}")).await;
    to.start(&leak, &format!("The password is {SECRET}, twice: {SECRET}")).await;
    to.say(&leak, "msg_agent", "I will use sword").await;
    to.say(&leak, "msg_agent", "fish-42 for this").await;
    to.call(&leak, "call_1", json!({"command": "login", "stdin": [SECRET]})).await;
    to.execute(
        &leak,
        Command::Cancel { run_id: run_of(&leak), reason: piton_core::Reason::UserRequest },
    )
    .await;
    to.execute(&leak, Command::Close { outcome: Outcome::Cancelled }).await;
}

#[test]
fn a_value_is_taken_out_wherever_it_is() {
    let mut home = Fixture::past(leak);
    let before = home.run("sessions log sess_leak --json");
    let line = "sessions redact sess_leak --value-stdin";
    let stdin = format!("{SECRET}\n");
    assert_snapshot!("redact_plan", home.run_with(line, stdin.as_bytes()));
    let json = home.run_with(&format!("{line} --json"), stdin.as_bytes());
    assert_snapshot!("redact_plan_json", json);
    let color = home.run_with(&format!("{line} --color always"), stdin.as_bytes());
    assert_snapshot!("redact_plan_color", color);
    home.set("COLUMNS", "40");
    assert_snapshot!("redact_plan_narrow", home.run_with(line, stdin.as_bytes()));
    home.set("COLUMNS", "100");
    assert_eq!(home.run("sessions log sess_leak --json"), before, "a dry run changed something");

    home.set("THE_SECRET", SECRET);
    let line = "sessions redact sess_leak --value-env THE_SECRET --reason leaked --yes";
    assert_snapshot!("redact", home.run(line));
    let log = home.run("sessions log sess_leak --json");
    assert!(before.matches(SECRET).count() > 3, "{before}");
    // What is left is the title, as the warning says.
    assert_eq!(log.matches(SECRET).count(), 1, "{log}");
    assert!(!log.contains("I will use sword") && !log.contains("fish-42 for this"), "{log}");
    assert_snapshot!("redact_log", home.run("sessions log sess_leak"));
    assert_snapshot!("redact_again", home.run(line));
    assert!(home.run("verify").ends_with("all good.\n--- exit 0\n"));
}

#[test]
fn records_are_taken_out_by_number_and_by_pattern() {
    let home = Fixture::past(leak);
    home.write("secret.txt", &format!("{SECRET}\n"));
    let by_file = home.run("sessions redact sess_leak --value-file secret.txt --json");
    let by_pattern = home.run(r"sessions redact sess_leak --pattern sword\w+-\d+ --json");
    assert_eq!(by_file.lines().nth(2), by_pattern.lines().nth(2));
    let line = "sessions redact sess_leak --seq 1,4-5,90-92";
    assert_snapshot!("redact_seqs", home.run(line));
    assert_snapshot!("redact_seqs_done", home.run(&format!("{line} --yes --json")));
    assert_snapshot!("redact_seqs_again", home.run(&format!("{line} --yes")));
    assert_snapshot!("redact_nothing", home.run("sessions redact sess_leak --pattern zebra"));
    assert_snapshot!(
        "redact_nothing_done",
        home.run("sessions redact sess_leak --pattern zebra --yes")
    );
}

#[test]
fn what_cannot_be_redacted_is_said() {
    let mut fixture = Fixture::new();
    fixture.home.set("EMPTY", "");
    for (name, line) in [
        ("regex", "sessions redact sess_done --pattern ("),
        ("range", "sessions redact sess_done --seq 3-x"),
        ("backwards", "sessions redact sess_done --seq 5-3"),
        ("what", "sessions redact sess_done"),
        ("both", "sessions redact sess_done --seq 3 --value-stdin"),
        ("empty", "sessions redact sess_done --value-env EMPTY"),
        ("no_variable", "sessions redact sess_done --value-env NOT_SET"),
        ("no_file", "sessions redact sess_done --value-file nowhere.txt"),
        ("reason", "sessions redact sess_done --pattern git --reason git --yes"),
        ("unknown", "sessions redact sess_nobody --seq 3"),
        ("unknown_yes", "sessions redact sess_nobody --seq 3 --yes --json"),
        ("owned", "sessions redact sess_live --pattern Review --yes"),
    ] {
        assert_snapshot!(format!("redact_wrong_{name}"), fixture.run(line));
    }
}

#[test]
fn sessions_are_deleted() {
    let mut fixture = Fixture::new();
    let line = "sessions delete sess_done sess_cut_w sess_detached sess_live sess_done";
    let before = fixture.run("sessions list --json");
    assert_snapshot!("delete_plan", fixture.run(line));
    assert_snapshot!("delete_plan_json", fixture.run(&format!("{line} --json")));
    assert_snapshot!("delete_plan_none", fixture.run("sessions delete sess_live"));
    fixture.home.set("COLUMNS", "40");
    assert_snapshot!("delete_plan_narrow", fixture.run(line));
    fixture.home.set("COLUMNS", "100");
    assert_eq!(fixture.run("sessions list --json"), before, "a dry run changed something");
    assert_snapshot!("delete_unknown", fixture.run("sessions delete sess_done sess_nobody --yes"));
    assert_eq!(fixture.run("sessions list --json"), before, "not all of them are there");

    assert_snapshot!("delete", fixture.run(&format!("{line} --reason tidy --yes")));
    assert_snapshot!("delete_json", fixture.run("sessions delete sess_new --yes --json"));
    assert_snapshot!("delete_forced", fixture.run("sessions delete sess_detached --force --yes"));
    assert_snapshot!("delete_again", fixture.run("sessions delete sess_done --yes"));
    assert_snapshot!("delete_list", fixture.run("sessions list"));
    assert_snapshot!("delete_note", fixture.run("sessions log _piton --json"));
    assert!(fixture.run("verify").ends_with("all good.\n--- exit 0\n"));
}

/// Neither title nor text is anywhere in the folder afterwards; on both stores, of which one is plain.
#[test]
fn nothing_of_a_deleted_session_is_left() {
    for (kind, plain) in [("sqlite", false), ("files", true)] {
        let source = Fixture::past(leak);
        source.run("sessions export sess_leak");
        let mut home = Home::new();
        home.set("PITON_STORE", kind);
        let bundle = source.path().join("sess_leak.piton");
        let imported = home.run(&format!("sessions import {}", bundle.display()));
        assert!(imported.ends_with("--- exit 0\n"), "{imported}");
        assert!(!home.files_with("Use swordfish-42").is_empty(), "{kind}: nothing to look for");
        assert_eq!(!home.files_with("The password is").is_empty(), plain, "{kind}");
        let deleted = home.run("sessions delete sess_leak --reason asked --yes");
        assert!(deleted.ends_with("--- exit 0\n"), "{deleted}");
        for text in ["Use swordfish-42", "The password is", SECRET, "fish-42 for"] {
            assert_eq!(home.files_with(text), Vec::<std::path::PathBuf>::new(), "{kind}: {text}");
        }
        let log = home.run("sessions log _piton --json");
        assert!(log.contains("session.deleted") && log.contains("sess_leak"), "{kind}: {log}");
    }
}

/// What the settings name never reaches the disk, wherever it comes from; and what they name and
/// cannot be masked is an error.
#[test]
fn what_offline_writers_write_is_masked() {
    let mut home = Fixture::past(leak);
    home.write("token.txt", "from-a-file\n");
    home.write(
        ".config/piton/config.toml",
        "[mask]\nvalues = ['from-settings']\nenv = ['PLAIN_NAME', 'NOT_SET']\n\
         files = ['~/token.txt']\n[agents.codex.env]\nOPENAI_API_KEY = 'from-an-agent'\n",
    );
    home.set("PLAIN_NAME", "from-named-variable").set("SOME_API_KEY", "from-api-key-variable");
    let data_key = "ab".repeat(32);
    home.set("PITON_KEY", &data_key);
    let secrets = [
        "from-settings",
        "from-a-file",
        "from-named-variable",
        "from-api-key-variable",
        "from-an-agent",
        &data_key,
    ];
    let reason = format!("{}-and-not-secret", secrets.join("-"));
    let line = format!("sessions redact sess_leak --seq 3 --yes --reason {reason}");
    assert!(home.run(&line).ends_with("--- exit 0\n"));
    let log = home.run("sessions log sess_leak --kind record.redacted --json");
    let masked = format!("{}and-not-secret", "[masked]-".repeat(secrets.len()));
    assert!(log.contains(&masked), "{log}");

    home.write(".config/piton/config.toml", "[mask]\nvalues = ['long enough', 'short']\n");
    assert_snapshot!("mask_short", home.run("sessions delete sess_leak --yes"));
    home.write(".config/piton/config.toml", "[mask]\nfiles = ['~/nowhere.txt']\n");
    assert_snapshot!("mask_no_file", home.run("sessions delete sess_leak --yes"));
    assert!(home.run("sessions show sess_leak").ends_with("--- exit 0\n"));
}
