//! Commands that move sessions as files: export, import, archive, prune.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use insta::assert_snapshot;

use crate::cli::fixture::Fixture;
use crate::cli::home::Home;
use crate::tools;

const PASSPHRASE: &str = "correct horse battery";

/// A home with a bundle of `sess_done`, in the clear or encrypted with a passphrase in `$BUNDLE`.
fn with_bundle(options: &str) -> (Fixture, Vec<u8>) {
    let mut fixture = Fixture::new();
    fixture.home.set("BUNDLE", PASSPHRASE);
    let exported = fixture.run(&format!("sessions export sess_done --json {options}"));
    assert!(exported.ends_with("--- exit 0\n"), "{exported}");
    let bytes = fs::read(fixture.home.path().join("sess_done.piton")).unwrap();
    (fixture, bytes)
}

fn records(home: &Home, session: &str) -> String {
    let log = home.run(&format!("sessions log {session} --json"));
    log.lines().skip(1).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_session_is_exported() {
    let mut fixture = Fixture::new();
    fixture.home.set("BUNDLE", PASSPHRASE);
    assert_snapshot!("export", fixture.run("sessions export sess_do"));
    assert_snapshot!("export_exists", fixture.run("sessions export sess_done"));
    let line = "sessions export sess_done --force --passphrase-env BUNDLE --json";
    assert_snapshot!("export_encrypted", fixture.run(line));
    // One that is at work, too.
    assert_snapshot!("export_live", fixture.run("sessions export sess_live --to live.piton"));
    assert_snapshot!("export_unknown", fixture.run("sessions export sess_nobody"));
    assert_snapshot!("export_nowhere", fixture.run("sessions export sess_done --to no/where"));
    assert_snapshot!("export_stdout_json", fixture.run("sessions export sess_done --to - --json"));
    assert_snapshot!("export_no_terminal", fixture.run("sessions export sess_new --encrypt"));
    let mut piped = fixture.home.command(["sessions", "export", "sess_live", "--to", "-"]);
    let piped = piped.output().unwrap();
    assert_eq!(piped.stdout, fs::read(fixture.home.path().join("live.piton")).unwrap());
    // A reader that leaves is no error worth a word.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = fixture.home.command(["sessions", "export", "sess_live", "--to", "-"]);
    let output = command.stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(3), Vec::new()));
}

/// Into a new store of either kind, which is made; the records are the same.
#[test]
fn a_session_is_imported() {
    let (fixture, plain) = with_bundle("");
    let (encrypted, sealed) = with_bundle("--passphrase-env BUNDLE");
    let before = records(&fixture.home, "sess_done");
    for kind in ["sqlite", "files"] {
        let mut home = Home::new();
        home.set("PITON_STORE", kind).set("BUNDLE", PASSPHRASE);
        assert_snapshot!("import", home.run_with("sessions import -", &plain));
        assert_eq!(records(&home, "sess_done"), before);
        let is_plain = home.data().join("sessions").exists();
        assert_eq!(
            (is_plain, home.data().join("store.sqlite3").exists()),
            (kind == "files", !is_plain)
        );
        assert_snapshot!("import_note", home.run("sessions log _piton --json"));
        assert_snapshot!("import_exists", home.run_with("sessions import -", &plain));
        assert!(home.run("verify").ends_with("all good.\n--- exit 0\n"));

        let mut home = Home::new();
        home.set("PITON_STORE", kind);
        home.write("passphrase.txt", &format!("{PASSPHRASE}\n"));
        let bundle = encrypted.home.path().join("sess_done.piton");
        fs::copy(bundle, home.path().join("sealed.piton")).unwrap();
        let line = "sessions import sealed.piton --passphrase-file passphrase.txt --json";
        assert_snapshot!("import_sealed", home.run(line));
        assert_eq!(records(&home, "sess_done"), before);
    }
    assert!(!sealed.windows(9).any(|bytes| bytes == b"sess_done"));
}

/// Where a damage is noticed depends on the salt and the keys.
fn without_place(said: &str) -> String {
    let line = |line: &str| match line.split_once(" near byte ") {
        Some((before, _)) => format!("{before} near byte [PLACE]\n"),
        None => format!("{line}\n"),
    };
    said.lines().map(line).collect()
}

/// Cut, changed, of another passphrase, of none, no bundle at all, not there: each has its own
/// error, and nothing is imported.
#[test]
fn a_bad_bundle_changes_nothing() {
    let (_, plain) = with_bundle("");
    let (_, sealed) = with_bundle("--passphrase-env BUNDLE");
    let cut = plain[..plain.len() - 40].to_vec();
    let changed = |bundle: &[u8]| {
        let mut changed = bundle.to_vec();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        changed
    };
    let mut newer = plain.clone();
    newer[8] = 9;
    let mut home = Home::new();
    home.set("BUNDLE", PASSPHRASE).set("OTHER", "wrong horse").set("EMPTY", "");
    for (name, options, bytes) in [
        ("cut", "", cut),
        ("changed", "", changed(&plain)),
        ("newer", "", newer),
        ("foreign", "", b"PK\x03\x04 this is something else".to_vec()),
        ("empty", "", Vec::new()),
        ("sealed_changed", "--passphrase-env BUNDLE", changed(&sealed)),
        ("sealed_cut", "--passphrase-env BUNDLE", sealed[..sealed.len() - 1].to_vec()),
        ("other_passphrase", "--passphrase-env OTHER", sealed.clone()),
        ("empty_passphrase", "--passphrase-env EMPTY", sealed.clone()),
        ("no_passphrase", "", sealed.clone()),
    ] {
        home.write("bad.piton", "");
        fs::write(home.path().join("bad.piton"), bytes).unwrap();
        let said = home.run(&format!("sessions import bad.piton {options}"));
        assert_snapshot!(format!("import_{name}"), without_place(&said));
        let listed = home.run("sessions list --json");
        assert!(!listed.contains("sess_done"), "{name}: {listed}");
    }
    assert_snapshot!("import_no_file", home.run("sessions import nowhere.piton --json"));
    assert!(home.run_with("sessions import -", &plain).ends_with("--- exit 0\n"));
}

/// Answers questions at a terminal; gives everything that the terminal showed.
fn at_terminal(home: &Home, line: &str, answers: &[(&str, &str)]) -> Option<String> {
    let program = tools::piton();
    let command = home.command([""; 0]);
    let mut typing = Command::new("script");
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    typing
        .args(["-qec", &format!("{program} {line}"), "/dev/null"])
        .env_clear()
        .envs(variables)
        .current_dir(home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = typing.spawn().ok()?;
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut shown = Vec::new();
    for (question, answer) in answers {
        // Typed when it is asked: what comes earlier is thrown away, as it might have been shown.
        while !shown.ends_with(question.as_bytes()) {
            let mut byte = [0];
            let count = screen.read(&mut byte).unwrap();
            assert_ne!(count, 0, "not asked {question:?}: {}", String::from_utf8_lossy(&shown));
            shown.extend(byte);
        }
        keys.write_all(format!("{answer}\n").as_bytes()).unwrap();
    }
    screen.read_to_end(&mut shown).unwrap();
    child.wait().unwrap();
    Some(String::from_utf8(shown).unwrap().replace('\r', ""))
}

/// A passphrase is asked for where it is needed, and not shown.
#[test]
fn a_passphrase_is_typed_at_a_terminal() {
    let (fixture, _) = with_bundle("--passphrase-env BUNDLE");
    let home = Home::new();
    let bundle = fixture.home.path().join("sess_done.piton");
    let line = format!("sessions import {}", bundle.display());
    let Some(shown) = at_terminal(&home, &line, &[("Passphrase: ", PASSPHRASE)]) else {
        tools::left_out("a typed passphrase", "`script` does not start; scripts/setup installs it");
        return;
    };
    assert_eq!(
        shown,
        "Passphrase: \nSession sess_done is imported, with 10 records, copied verbatim.\n"
    );

    let line = "sessions export sess_done --to typed.piton --encrypt";
    let answers = [("New passphrase: ", "one thing"), ("The same again: ", "another")];
    let shown = at_terminal(&home, line, &answers).unwrap();
    assert_snapshot!("export_typed_differently", shown);
    let answers = [("New passphrase: ", PASSPHRASE), ("The same again: ", PASSPHRASE)];
    let shown = at_terminal(&home, line, &answers).unwrap();
    assert_snapshot!("export_typed", shown);
    let mut other = Home::new();
    other.set("BUNDLE", PASSPHRASE);
    let bundle = home.path().join("typed.piton");
    let line = format!("sessions import {} --passphrase-env BUNDLE", bundle.display());
    assert!(other.run(&line).ends_with("--- exit 0\n"));
    let line = "sessions export sess_done --to -";
    assert_snapshot!("export_terminal", at_terminal(&home, line, &[]).unwrap());
}

#[test]
fn closed_sessions_are_archived() {
    let mut fixture = Fixture::new();
    fixture.home.set("BUNDLE", PASSPHRASE);
    let before = records(&fixture.home, "sess_done");
    assert_snapshot!("archive", fixture.run("sessions archive sess_new sess_done sess_live"));
    assert_snapshot!("archive_list", fixture.run("sessions list"));
    assert_snapshot!("archive_note", fixture.run("sessions log _piton --json"));
    let bundle = ".local/share/piton/archive/sess_done.piton";
    assert!(fixture.run(&format!("sessions import {bundle}")).ends_with("--- exit 0\n"));
    assert_eq!(records(&fixture.home, "sess_done").lines().count(), before.lines().count() + 1);
    assert_snapshot!("archive_exists", fixture.run("sessions archive sess_done"));
    let line = "sessions archive sess_done --to elsewhere --passphrase-env BUNDLE --json";
    assert_snapshot!("archive_elsewhere", fixture.run(line));
    assert!(fixture.run("verify").ends_with("all good.\n--- exit 0\n"));
}

/// The clock stands: `sess_done`, the only closed one, was last active 1 h 58 min ago.
#[test]
fn what_is_due_is_pruned() {
    let mut fixture = Fixture::new();
    assert_snapshot!("prune_unset", fixture.run("sessions prune"));
    fixture.home.set("PITON_RETENTION_ARCHIVE_AFTER", "2h");
    assert_snapshot!("prune_nothing", fixture.run("sessions prune"));
    assert_snapshot!("prune_nothing_yes", fixture.run("sessions prune --yes"));
    fixture.home.set("PITON_RETENTION_ARCHIVE_AFTER", "1h");
    assert_snapshot!("prune_archive", fixture.run("sessions prune"));
    assert_snapshot!("prune_archive_json", fixture.run("sessions prune --json"));
    fixture.home.set("PITON_RETENTION_DELETE_AFTER", "90m");
    assert_snapshot!("prune_delete", fixture.run("sessions prune"));
    fixture.home.set("PITON_RETENTION_DELETE_AFTER", "never");
    assert_snapshot!("prune_archived", fixture.run("sessions prune --yes"));
    let bundle = ".local/share/piton/archive/sess_done.piton";
    fixture.run(&format!("sessions import {bundle}"));
    fixture.home.set("PITON_RETENTION_DELETE_AFTER", "90m");
    assert_snapshot!("prune_deleted", fixture.run("sessions prune --yes"));
    assert!(!fixture.run("sessions list").contains("sess_done"));
    assert_snapshot!("prune_no_store", fixture.run("sessions prune --data nowhere"));
}
