//! What the tests need: the program itself, and tools that may be missing on a developer's machine.

use std::io::Write as _;
use std::sync::LazyLock;

/// Names another `piton` to test than the one that was built with the tests: `make soak` tests the one
/// that ships.
const VARIABLE: &str = "TESTED_PITON";

/// The program whose stories these are.
pub(crate) fn piton() -> &'static str {
    static PITON: LazyLock<String> = LazyLock::new(|| {
        std::env::var(VARIABLE).unwrap_or_else(|_| env!("CARGO_BIN_EXE_piton").to_owned())
    });
    &PITON
}

/// Says past the test's captured output what is left out and why: `scripts/test.mjs` shows these lines
/// of programs that passed.
///
/// # Panics
/// In CI, where nothing may be left out.
pub(crate) fn left_out(what: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{what} cannot be tested: {why}");
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {what}: {why}");
}

/// In a process of its own, which has the variable: what is named is what runs.
#[test]
fn another_program_can_be_tested() {
    let own = std::env::current_exe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    let story = "cli::help::the_version_needs_nothing";
    let run = |piton: &std::path::Path| {
        let mut command = std::process::Command::new(&own);
        command.args(["--exact", story]).env(VARIABLE, piton).output().unwrap()
    };
    let absent = run(&other);
    assert!(!absent.status.success(), "{absent:?}");
    std::os::unix::fs::symlink(piton(), &other).unwrap();
    let there = run(&other);
    let said = String::from_utf8_lossy(&there.stdout);
    assert!(there.status.success() && said.contains("1 passed"), "{said}");
}
