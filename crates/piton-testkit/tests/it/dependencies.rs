//! What `make run` builds is built as `make test` builds it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Every package with its features, one in a line. Needs no network: the tests were built from it.
fn packages(arguments: &[&str]) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p} [{f}]"])
        .args(arguments)
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo prints text");
    let lines = text.lines().map(|line| line.trim_end_matches(" (*)").to_owned());
    lines.filter(|line| line.contains(" v") && !line.starts_with("piton-")).collect()
}

/// Wants to show: a newcomer who runs `make run` and then `make test` does not wait twice for the
/// same dependency. A new feature of a test's dependency belongs into `test-deps` of `piton-cli`.
#[test]
fn no_dependency_is_built_twice() {
    let run = packages(&["-p", "piton-cli", "--features", "test-deps", "-e", "normal,build"]);
    let test = packages(&["--workspace", "-e", "all"]);
    assert!(run.len() > 50 && test.len() > run.len(), "{} and {}", run.len(), test.len());
    let twice: Vec<&String> = run.difference(&test).collect();
    assert!(twice.is_empty(), "built once more by `make test`, with other features: {twice:#?}");
    let without = packages(&["-p", "piton-cli", "-e", "normal,build"]);
    assert!(without.difference(&test).count() > 0, "`test-deps` is not needed any more");
}

/// Wants to show: the system's keychain can be the source of a key in the program as it ships.
#[test]
fn the_keychain_is_in_what_ships() {
    let ships = packages(&["-p", "piton-cli", "-e", "normal"]);
    assert!(ships.iter().any(|package| package.starts_with("keyring v")), "{ships:#?}");
}
