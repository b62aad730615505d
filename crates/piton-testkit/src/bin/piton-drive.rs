//! A server without an interface: runs sessions with real agents and does what its standard input
//! says, one JSON object per line. Also the agentctl and the agent that it starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("serve") => piton_testkit::drive::serve(arguments),
        Some("agentctl") => piton_testkit::drive::agentctl(),
        Some("echo") => piton_testkit::drive::echo(arguments),
        _ => ExitCode::from(2),
    }
}
