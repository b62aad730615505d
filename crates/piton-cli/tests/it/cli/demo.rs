//! `piton demo`: a real worker, really killed. Its claims are checked by the demo itself; here, that
//! it makes them all, and that its exit code tells.

use insta::assert_snapshot;
use serde_json::Value;

use crate::cli::home::Home;

/// Numbers depend on the moment of the kill.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if plain.ends_with('N') => {}
            '0'..='9' => plain.push('N'),
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn every_claim_is_checked_and_true() {
    let home = Home::new();
    let output = home.command(["demo", "--json"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let claims: Vec<&Value> = lines.iter().filter(|line| line.get("claim").is_some()).collect();
    assert!(claims.iter().all(|claim| claim["true"] == true), "{printed}");
    let text: Vec<String> =
        claims.iter().map(|claim| without_numbers(claim["claim"].as_str().unwrap())).collect();
    assert_snapshot!("demo_claims", text.join("\n"));
    assert_eq!(lines.last().unwrap()["claims"], claims.len());
    assert_eq!(output.status.code(), Some(0));
    // It worked elsewhere and tidied up.
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

/// Kept, the folder is a data folder like any other; and it is not overwritten.
#[test]
fn the_folder_can_be_kept() {
    let home = Home::new();
    let kept = home.command(["demo", "--keep", "kept"]).output().unwrap();
    assert_eq!(kept.status.code(), Some(0));
    let verified = home.run("--data kept verify");
    assert!(verified.contains("2 logs with") && verified.ends_with("--- exit 0\n"), "{verified}");
    assert_snapshot!("demo_kept_twice", home.run("demo --keep kept"));
}
