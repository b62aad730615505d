//! A process that writes until it is killed; see `piton_testkit::crash`.
#![expect(clippy::print_stdout, reason = "says how it is used")]

use std::process::ExitCode;

use piton_testkit::crash::Kind;
use piton_testkit::crash::writer::{self, Mode, Plan};

const USAGE: &str = "piton-crash-writer DATA [--serial | --serve] [--sessions N] [--prefix NAME] \
                     [--seed N] [--steps N] [--bytes N] [--store sqlite | files]";

fn main() -> ExitCode {
    if let Some(plan) = plan(std::env::args().skip(1)) {
        return writer::run(&plan);
    }
    println!("{USAGE}");
    ExitCode::from(2)
}

fn plan(mut arguments: impl Iterator<Item = String>) -> Option<Plan> {
    let mut plan = Plan {
        data: arguments.next()?.into(),
        store: Kind::Sqlite,
        mode: Mode::Concurrent,
        sessions: 4,
        prefix: "s".into(),
        seed: 0,
        steps: None,
        bytes: None,
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--serial" => plan.mode = Mode::Serial,
            "--serve" => plan.mode = Mode::Serve,
            "--store" => plan.store = Kind::parse(&arguments.next()?)?,
            "--sessions" => plan.sessions = arguments.next()?.parse().ok()?,
            "--prefix" => plan.prefix = arguments.next()?,
            "--seed" => plan.seed = arguments.next()?.parse().ok()?,
            "--steps" => plan.steps = Some(arguments.next()?.parse().ok()?),
            "--bytes" => plan.bytes = Some(arguments.next()?.parse().ok()?),
            _ => return None,
        }
    }
    Some(plan)
}
