//! What `make run` builds is built as `make test` builds it, and what is tested is what ships.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Features that `make test` builds beside those that ship, because the tests of all crates are built
/// together: crate, feature, and why what is tested is what ships all the same.
const TESTED_ONLY: &[(&str, &str, &str)] = &[
    (
        "piton-store",
        "testing",
        "adds modules with stores in memory; no module of the product looks at it",
    ),
    ("piton-store", "conformance", "adds a module of tests for stores"),
    ("piton-exec", "conformance", "adds a module of tests for executors"),
];

/// Every package with its features, one in a line. Needs no network: the tests were built from it.
fn tree(arguments: &[&str]) -> BTreeSet<String> {
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
    lines.filter(|line| line.contains(" v")).collect()
}

/// Those of others.
fn packages(arguments: &[&str]) -> BTreeSet<String> {
    let lines = tree(arguments).into_iter();
    lines.filter(|line| !line.starts_with("piton-")).collect()
}

/// Our own crates with the features that each is built with.
fn features(arguments: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut features = BTreeMap::new();
    for line in tree(arguments).iter().filter(|line| line.starts_with("piton-")) {
        let (name, _) = line.split_once(' ').expect("a version after the name");
        let (_, list) = line.rsplit_once('[').expect("a list of features");
        let list = list.trim_end_matches(']').split(',').filter(|feature| !feature.is_empty());
        features.insert(name.to_owned(), list.map(str::to_owned).collect());
    }
    features
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

/// Wants to show: the `piton` that the tests run is the one that ships. A test by itself builds it with
/// exactly its features, `make test` with those of the table besides, and with none that is not used.
#[test]
fn the_tested_piton_is_the_one_that_ships() {
    let ships = features(&["-p", "piton-cli", "-e", "normal,build"]);
    assert!(ships.len() > 8 && !ships.contains_key("piton-testkit"), "{ships:#?}");
    assert_eq!(features(&["-p", "piton-cli", "-e", "all"]), ships, "as `make soak` tests it");
    let tested = features(&["--workspace", "-e", "all"]);
    let mut more: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (name, shipped) in &ships {
        assert_eq!(shipped.difference(&tested[name]).next(), None, "{name} is not tested with it");
        let extra = tested[name].difference(shipped);
        more.extend(extra.map(|feature| (name.as_str(), feature.as_str())));
    }
    let allowed: BTreeSet<(&str, &str)> =
        TESTED_ONLY.iter().map(|(name, feature, _)| (*name, *feature)).collect();
    assert_eq!(more, allowed, "features that are tested and do not ship");
}
