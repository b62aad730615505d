//! agentctl as a program of its own, for tests: the launch comes through stdin. With the argument
//! `echo` it is the built-in agent instead.

use std::io::Read;
use std::process::ExitCode;

use piton_echo as echo;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("echo") {
        return echo(args);
    }
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

fn echo(args: impl Iterator<Item = String>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(options), Ok(runtime)) = (echo::Options::parse(args), runtime) else {
        return ExitCode::from(2);
    };
    match runtime.block_on(echo::stdio(options)) {
        Ok(end) => end.exit(),
        Err(_) => ExitCode::FAILURE,
    }
}
