//! What a test needs beside the program, and may be missing on a developer's machine.

use std::io::Write as _;

/// Says past the test's captured output what is left out and why.
///
/// # Panics
/// In CI, where nothing may be left out.
pub fn left_out(what: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{what} cannot be tested: {why}");
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {what}: {why}");
}
