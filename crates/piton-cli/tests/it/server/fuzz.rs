//! Whatever the description allows, and much that it does not, is sent to the server: no answer says
//! that the server broke, and none is outside the description.

use std::path::Path;
use std::process::Command;

use crate::server::world::World;
use crate::tools;

/// Streams do not end by themselves; sockets are not HTTP for long.
const LEFT_OUT: &str = "/events$|/ws$|/socket$";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

#[test]
fn the_description_tells_the_truth() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/tools/schemathesis/bin/schemathesis");
    if !program.exists() {
        tools::left_out("the description", "schemathesis is not installed; `make setup` does that");
        return;
    }
    let world = World::new();
    let seed = std::env::var("PITON_SEED").unwrap_or_else(|_| "7411".to_owned());
    let run = Command::new(program)
        .args(["run", &format!("{}/api/v1/openapi.json", world.address)])
        .args(["--header", &format!("Authorization: Bearer {}", world.token)])
        .args(["--checks", CHECKS, "--exclude-path-regex", LEFT_OUT])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", "15"])
        .args(["--seed", &seed, "--no-shrink", "--request-timeout", "30", "--workers", "1"])
        .args(["--suppress-health-check", "all", "--no-color", "--continue-on-failure"])
        .current_dir(world.folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "seed {seed}\n{said}\n{}", String::from_utf8_lossy(&run.stderr));
    // It still answers.
    world.get("/api/v1/sessions?limit=1").good();
}
