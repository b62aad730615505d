//! agentctl as a program of its own, for tests: the launch comes through stdin.

use std::io::Read;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut text = String::new();
    if std::io::stdin().read_to_string(&mut text).is_err() {
        return ExitCode::from(2);
    }
    match serde_json::from_str(&text).map(piton_agentctl::run) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(_) => ExitCode::from(2),
    }
}
