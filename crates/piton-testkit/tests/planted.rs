//! Planted bugs: every one is caught by the test or the property that the table in
//! `piton_testkit::planted` names. In a build of its own (feature `planted`), run by `make soak`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use piton_core::planted::{Bug, VARIABLE};
use piton_testkit::planted::{CaughtBy, Program, Test, caught_by};
use piton_testkit::sim::{self, On, Property};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

/// How long a test may take; one that hangs because of a bug does not notice it.
const TEST_WAIT: Duration = Duration::from_mins(4);

/// On files, too: a flush that is left out and a batch that is not whole are noticed. The others
/// are planted outside of the store, or need two processes.
#[test]
fn planted_bugs_of_the_store_are_caught_on_files() {
    for (bug, property) in [
        (Bug::FlushLeftOut, Property::AcknowledgedIsDurable),
        (Bug::BatchSplit, Property::BatchesAreWhole),
    ] {
        let caught = (0..500).find(|seed| {
            let report = sim::simulate_on(On::Files, *seed, Some(bug), false);
            report.violations.iter().any(|violation| violation.property == property)
        });
        println!("{bug:?}: caught by {property:?}, first by seed {caught:?}");
        assert!(caught.is_some(), "{bug:?} was not caught");
    }
}

/// What a test of the decisions catches by name is noticed by the simulator's clients, too: they repeat
/// questions that were settled.
#[test]
fn a_settled_wait_that_is_asked_again_is_caught_by_clients() {
    let caught = (0..500).find(|seed| {
        let report = sim::simulate(*seed, Some(Bug::SettledWaitAsked), false);
        let property = Property::TokensSingleUse;
        report.violations.iter().any(|violation| violation.property == property)
    });
    println!("{:?}: first by seed {caught:?}", Bug::SettledWaitAsked);
    assert!(caught.is_some(), "no client noticed");
}

/// A simulator that finds nothing proves nothing: each bug that it is to notice is caught by the
/// property that is about it. The list is printed.
#[test]
fn the_simulator_catches_its_bugs() {
    for bug in Bug::ALL {
        let (on, properties) = match caught_by(*bug) {
            CaughtBy::Simulator(properties) => (On::Memory, properties),
            CaughtBy::SimulatorOnFiles(properties) => (On::Files, properties),
            CaughtBy::Test(_) => continue,
        };
        let mut missing: BTreeSet<Property> = properties.iter().copied().collect();
        let mut first = None;
        // Most are caught at once. Without its flushes a world ends early, nearly always by an error
        // without an excuse: it takes many to see the promises that are broken later.
        for seed in 0..20_000 {
            let report = sim::simulate_on(on, seed, Some(*bug), false);
            for violation in &report.violations {
                missing.remove(&violation.property);
                first.get_or_insert((seed, violation.property));
            }
            if missing.is_empty() {
                break;
            }
        }
        println!("{bug:?}: caught by {properties:?}, first {first:?}");
        assert!(missing.is_empty(), "{bug:?} was not caught by {missing:?}");
    }
}

/// A program of tests in this build.
#[derive(Debug)]
struct Built {
    path: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// Builds all tests as this one is built, with the bugs in, and says where they are.
fn build() -> BTreeMap<(String, String), Built> {
    let own = std::env::current_exe().expect("this program has a path");
    // TARGET/PROFILE/deps/planted-HASH
    let profile = own.ancestors().nth(2).expect("a profile's folder");
    let target = profile.parent().expect("a target folder");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--no-run", "--workspace", "--features", "piton-testkit/planted"]);
    command.args(["--message-format", "json", "--target-dir"]).arg(target);
    if profile.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = command.current_dir(workspace).stderr(Stdio::inherit()).output();
    let output = output.expect("cargo starts");
    assert!(output.status.success(), "the tests are built");
    let mut built = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if message["profile"]["test"] != true || message["executable"].is_null() {
            continue;
        }
        let manifest = PathBuf::from(text(&message["manifest_path"]));
        let folder = manifest.parent().expect("a manifest is in a folder").to_owned();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let program = match text(&message["target"]["kind"][0]).as_str() {
            "test" => text(&message["target"]["name"]),
            kind => kind.to_owned(),
        };
        let path = PathBuf::from(text(&message["executable"]));
        built.insert((package, program), Built { path, folder });
    }
    built
}

fn program_name(program: Program) -> &'static str {
    match program {
        Program::Lib => "lib",
        Program::Bin => "bin",
        Program::Integration(name) => name,
    }
}

/// How a program of tests ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Passed(usize),
    Failed(String),
    Hung,
}

/// Runs tests by their names, with a bug in it and in all that it starts.
fn run(built: &Built, names: &[&str], bug: Option<Bug>) -> Ended {
    let said = tempfile::NamedTempFile::new().expect("a temporary file");
    let out = || Stdio::from(said.reopen().expect("it can be opened again"));
    let mut command = Command::new(&built.path);
    command.arg("--exact").args(names).current_dir(&built.folder);
    // What is left out without a tool would pass.
    command.env("CI", "1").stdin(Stdio::null()).stdout(out()).stderr(out());
    match bug {
        Some(bug) => command.env(VARIABLE, format!("{bug:?}")),
        None => command.env_remove(VARIABLE),
    };
    let mut child = command.process_group(0).spawn().expect("the tests start");
    let ended = wait(&mut child);
    // A test that fails may leave processes behind.
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
    let _ = kill_process_group(group, Signal::KILL);
    let Some(success) = ended else { return Ended::Hung };
    let said = std::fs::read_to_string(said.path()).unwrap_or_default();
    if !success {
        return Ended::Failed(said);
    }
    let passed = said.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next());
    Ended::Passed(passed.and_then(|count| count.parse().ok()).unwrap_or(0))
}

fn wait(child: &mut Child) -> Option<bool> {
    let until = Instant::now() + TEST_WAIT;
    loop {
        if let Some(status) = child.try_wait().expect("its end can be asked for") {
            return Some(status.success());
        }
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Does each piece of work on one of a few threads; what came of them in any order.
fn each<T: Sync, R: Send>(work: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, came) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(one) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = act(one);
                    came.lock().expect("nobody panicked").push(result);
                }
            });
        }
    });
    came.into_inner().expect("nobody panicked")
}

/// Every bug that a named test is to notice makes that test fail, and without a bug all of these tests
/// pass. `PLANTED_ONLY=NAME` runs one.
#[test]
fn named_tests_catch_their_bugs() {
    let only = std::env::var("PLANTED_ONLY").ok();
    let is_wanted = |bug: Bug| only.as_ref().is_none_or(|only| *only == format!("{bug:?}"));
    let mut planted: Vec<(Bug, Test)> = Vec::new();
    for bug in Bug::ALL.iter().copied().filter(|bug| is_wanted(*bug)) {
        if let CaughtBy::Test(test) = caught_by(bug) {
            planted.push((bug, test));
        }
    }
    let built = build();
    let find = |test: &Test| {
        let key = (test.package.to_owned(), program_name(test.program).to_owned());
        built.get(&key).unwrap_or_else(|| panic!("{key:?} is not among {:?}", built.keys()))
    };

    let mut by_program: BTreeMap<(&str, Program), BTreeSet<Test>> = BTreeMap::new();
    for (_, test) in &planted {
        by_program.entry((test.package, test.program)).or_default().insert(*test);
    }
    let programs: Vec<BTreeSet<Test>> = by_program.into_values().collect();
    let without = each(&programs, |tests| {
        let names: Vec<&str> = tests.iter().map(|test| test.name).collect();
        let first = tests.first().expect("a program has tests");
        let ended = run(find(first), &names, None);
        let good = ended == Ended::Passed(names.len());
        (!good).then(|| format!("{} {:?} without a bug: {ended:?}", first.package, first.program))
    });
    let mut wrong: Vec<String> = without.into_iter().flatten().collect();

    let caught = each(&planted, |(bug, test)| {
        let began = Instant::now();
        let ended = run(find(test), &[test.name], Some(*bug));
        let is_caught = matches!(&ended, Ended::Failed(said)
            if said.contains(&format!("test {} ... FAILED", test.name)));
        let took = began.elapsed().as_secs_f64();
        println!("{bug:?}: {} {} ({took:.1} s)", test.package, test.name);
        (!is_caught).then(|| format!("{bug:?} was not caught by {}: {ended:?}", test.name))
    });
    wrong.extend(caught.into_iter().flatten());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
