//! The rules of the tree itself, as far as a machine can check them. Each check is a function from
//! text to findings; its test first shows that the check finds a planted offence, then that the
//! tree has none.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use piton_core::Code;
use piton_core::planted::Bug;
use piton_testkit::planted::{CaughtBy, caught_by};

/// Past this a file hides things; begin another one.
const LINES_MAX: usize = 800;

/// Endings of files that people write and read, as opposed to fixtures, snapshots and lock files.
const SOURCE: &[&str] = &["rs", "ts", "tsx", "js", "mjs", "css", "html", "sql", "sh", "py", "md"];

/// What piton-core may stand on. It does no I/O and no async, so neither does anything here; think
/// twice before adding a line.
const CORE_STANDS_ON: &[&str] = &[
    "aho-corasick", // finds all known secrets in one pass over a text, whatever their number
    "arrayvec",
    "blake3",
    "cfg-if",
    "constant_time_eq",
    "cpufeatures",
    "hex",
    "itoa",
    "jiff",
    "jiff-core",
    "libc", // under cpufeatures, on ARM only
    "memchr",
    "piton-core",
    "proc-macro2",
    "quote",
    "serde",
    "serde_core",
    "serde_derive",
    "serde_json",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
    "uuid",
    "zmij",
];

/// Which of our crates each may use: the direction of `docs/internals/architecture.md`. The testkit
/// may use all, and is used in tests only.
const DIRECTION: &[(&str, &[&str])] = &[
    ("piton-core", &[]),
    ("piton-api", &["piton-core"]),
    ("piton-store", &["piton-core"]),
    ("piton-agent", &["piton-core"]),
    ("piton-echo", &["piton-core"]),
    ("piton-workspace", &["piton-core"]),
    ("piton-exec", &["piton-core", "piton-workspace"]),
    ("piton-agentctl", &["piton-core", "piton-workspace", "piton-exec", "piton-agent"]),
    ("piton-graph", &["piton-core", "piton-store"]),
    (
        "piton-runtime",
        &[
            "piton-core",
            "piton-store",
            "piton-agent",
            "piton-workspace",
            "piton-exec",
            "piton-graph",
        ],
    ),
    (
        "piton-server",
        &[
            "piton-core",
            "piton-api",
            "piton-store",
            "piton-agent",
            "piton-workspace",
            "piton-exec",
            "piton-graph",
            "piton-runtime",
        ],
    ),
    (
        "piton-cli",
        &[
            "piton-core",
            "piton-api",
            "piton-store",
            "piton-agent",
            "piton-echo",
            "piton-workspace",
            "piton-exec",
            "piton-agentctl",
            "piton-graph",
            "piton-runtime",
            "piton-server",
        ],
    ),
];

const TESTKIT: &str = "piton-testkit";

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace's root exists")
}

fn stdout_of(mut command: Command) -> String {
    let output = command.current_dir(root()).output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{stderr}");
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}

fn cargo(arguments: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(arguments);
    stdout_of(command)
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files that are tracked, or would be with the next `git add`, with their text. Binary files
/// and lock files are left out.
pub(super) fn texts() -> Vec<(String, String)> {
    let mut git = Command::new("git");
    // A checkout that belongs to another user (as in some CI) is still ours to look at.
    git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]);
    git.arg("--exclude-standard");
    let listed = stdout_of(git);
    let paths: BTreeSet<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    assert!(paths.contains("Cargo.toml"), "git lists the files of this workspace");
    let is_lock = |path: &str| extension(path) == "lock" || path.ends_with("package-lock.json");
    let text = |path: &str| String::from_utf8(fs::read(root().join(path)).ok()?).ok();
    paths
        .into_iter()
        .filter(|path| !is_lock(path))
        .filter_map(|path| Some((path.to_owned(), text(path)?)))
        .filter(|(_, text)| !text.contains('\0'))
        .collect()
}

pub(super) fn extension(path: &str) -> &str {
    Path::new(path).extension().and_then(|ending| ending.to_str()).unwrap_or("")
}

/// Runs a check over every text and names the place of each finding.
pub(super) fn findings(
    texts: &[(String, String)],
    check: impl Fn(&str) -> Vec<String>,
) -> Vec<String> {
    let each = |(path, text): &(String, String)| {
        check(text).into_iter().map(|found| format!("{path}: {found}")).collect::<Vec<_>>()
    };
    texts.iter().flat_map(each).collect()
}

pub(super) fn assert_none(findings: &[String], rule: &str) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

/// What `make docs` writes, and the client's types, are looked up, not read in one go.
fn is_generated(text: &str) -> bool {
    text.starts_with("<!-- Generated by ")
        || text.starts_with("/**\n * This file was auto-generated by openapi-typescript.")
}

fn too_long(text: &str) -> Vec<String> {
    let lines = text.lines().count();
    if lines > LINES_MAX && !is_generated(text) {
        vec![format!("{lines} lines")]
    } else {
        Vec::new()
    }
}

/// Wants to show: every source file is short enough to be read in one go.
#[test]
fn no_source_file_is_too_long() {
    assert_eq!(too_long(&"x\n".repeat(LINES_MAX)), Vec::<String>::new());
    assert_eq!(too_long(&"x\n".repeat(LINES_MAX + 1)), ["801 lines"]);

    let texts: Vec<_> =
        texts().into_iter().filter(|(path, _)| SOURCE.contains(&extension(path))).collect();
    assert!(texts.iter().any(|(path, _)| path.ends_with("tidy.rs")), "source files are looked at");
    assert_none(&findings(&texts, too_long), "Split files of more than 800 lines");
}

/// Paths that exist on one machine only: `/NAME/…` for the first, `/NAME/USER` for the second.
const PLACES: &[&str] = &["work", "farm", "root"];
const PLACES_OF_SOMEBODY: &[&str] = &["home", "Users", "tmp", "var/folders"];

fn machine_paths(text: &str) -> Vec<String> {
    let inside_a_word = |c: char| c.is_ascii_alphanumeric() || "_.~-".contains(c);
    let is_machine_path = |line: &str, slash: usize| {
        let rest = &line[slash + 1..];
        let after = |place: &&str| rest.strip_prefix(*place)?.strip_prefix('/');
        let named = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric());
        !line[..slash].ends_with(inside_a_word)
            && (PLACES.iter().any(|place| after(place).is_some())
                || PLACES_OF_SOMEBODY.iter().filter_map(after).any(named))
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| line.match_indices('/').any(|(at, _)| is_machine_path(line, at)))
        .map(|(i, line)| format!("line {}: {}", i + 1, line.trim()))
        .collect()
}

/// Wants to show: nothing in the tree depends on, or tells of, the machine it was written on.
#[test]
fn no_path_of_one_machine() {
    for (place, rest) in [("work", ""), ("root", ".x"), ("home", "ada"), ("tmp", "x1")] {
        let line = format!("see \"/{place}/{rest}");
        assert_eq!(machine_paths(&line).len(), 1, "{line}");
    }
    for fine in ["target/tmp/x", "a/work/b", "~/work/x", "/home/", "/tmp", "/dev/null", "/repo"] {
        assert_eq!(machine_paths(fine), Vec::<String>::new(), "{fine}");
    }

    assert_none(&findings(&texts(), machine_paths), "Name no path of one machine");
}

fn outside(tree: &str, allowed: &[&str]) -> Vec<String> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().filter(|name| !allowed.contains(name)).map(str::to_owned).collect()
}

/// Wants to show: the core stays pure; no runtime, no clock, no I/O comes in through a dependency.
#[test]
fn the_core_stands_on_little() {
    let planted = "piton-core v0.1.0 (.)\nserde v1.0.0\ntokio v1.54.0\nserde v1.0.0 (*)";
    assert_eq!(outside(planted, CORE_STANDS_ON), ["tokio"]);

    let tree = cargo(&[
        "tree",
        "--offline",
        "--locked",
        "--package",
        "piton-core",
        "--all-features",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    assert!(tree.contains("blake3 v"), "this is the core's tree:\n{tree}");
    assert_none(&outside(&tree, CORE_STANDS_ON), "Not on the core's list (CORE_STANDS_ON)");
}

/// Our crates with the crates of ours that each uses, except in tests.
fn wrong_ways(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, used) in uses.iter().filter(|(name, _)| *name != TESTKIT) {
        let Some((_, allowed)) = DIRECTION.iter().find(|(known, _)| known == name) else {
            found.push(format!("{name} has no place in DIRECTION"));
            continue;
        };
        let wrong = used.iter().filter(|used| !allowed.contains(&used.as_str()));
        found.extend(wrong.map(|used| format!("{name} uses {used}")));
    }
    found
}

fn uses(metadata: &str) -> BTreeMap<String, BTreeSet<String>> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("metadata lists packages");
    let name = |value: &serde_json::Value| value["name"].as_str().expect("a name").to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let uses_of = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let in_tests = |dependency: &&serde_json::Value| dependency["kind"] == "dev";
        let used = dependencies.iter().filter(|d| !in_tests(d)).map(name);
        used.filter(|used| ours.contains(used)).collect()
    };
    packages.iter().map(|package| (name(package), uses_of(package))).collect()
}

/// Wants to show: dependencies between our crates go one way, and test code stays out of them.
#[test]
fn crates_depend_in_one_direction() {
    let planted = r#"{"packages":[
        {"name":"piton-core","dependencies":[
            {"name":"piton-store","kind":null},{"name":"serde","kind":null}]},
        {"name":"piton-store","dependencies":[
            {"name":"piton-core","kind":null},{"name":"piton-testkit","kind":"dev"}]},
        {"name":"piton-runtime","dependencies":[{"name":"piton-testkit","kind":"build"}]},
        {"name":"piton-new","dependencies":[]},
        {"name":"piton-testkit","dependencies":[{"name":"piton-runtime","kind":null}]}]}"#;
    assert_eq!(
        wrong_ways(&uses(planted)),
        [
            "piton-core uses piton-store",
            "piton-new has no place in DIRECTION",
            "piton-runtime uses piton-testkit",
        ]
    );

    let uses = uses(&cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]));
    assert!(uses["piton-store"].contains("piton-core"), "{uses:?}");
    assert_none(&wrong_ways(&uses), "Against the direction");
}

/// Test programs beside each crate's `it`, and why they are not part of it.
const PROGRAMS: &[(&str, &str)] = &[
    ("piton-agentctl/processes", "it plays agentctl: all that descends from it is the execution's"),
    ("piton-testkit/sim", "it takes all cores: nothing that waits for processes runs beside it"),
    ("piton-testkit/planted", "a build of its own, with the feature `planted`"),
];

fn programs_too_many(metadata: &str) -> Vec<String> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("metadata lists packages");
    let mut found = Vec::new();
    for package in packages {
        let targets = package["targets"].as_array().expect("targets");
        for target in targets.iter().filter(|target| target["kind"][0] == "test") {
            let crate_name = package["name"].as_str().expect("a name");
            let name = format!("{crate_name}/{}", target["name"].as_str().expect("a name"));
            if target["name"] != "it" && PROGRAMS.iter().all(|(known, _)| *known != name) {
                found.push(name);
            }
        }
    }
    found
}

/// Wants to show: a crate's integration tests are linked once.
#[test]
fn a_crate_has_one_program_of_integration_tests() {
    let planted = r#"{"packages":[{"name":"piton-store","targets":[
        {"name":"piton_store","kind":["lib"]},
        {"name":"it","kind":["test"]},
        {"name":"formats","kind":["test"]}]}]}"#;
    assert_eq!(programs_too_many(planted), ["piton-store/formats"]);

    let metadata = cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    assert_none(&programs_too_many(&metadata), "Add a module to tests/it/main.rs instead");
}

/// Wants to show: the documentation names what catches each planted bug, and this build has none.
#[test]
fn planted_bugs_are_listed_and_not_in_this_build() {
    let is_compiled = std::hint::black_box(piton_core::planted::IS_COMPILED);
    assert!(!is_compiled, "a build with planted bugs is not what ships");
    let page = read("docs/internals/simulator.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let missing = Bug::ALL.iter().filter(|bug| {
        let caught: Vec<String> = match caught_by(**bug) {
            CaughtBy::Simulator(properties) | CaughtBy::SimulatorOnFiles(properties) => {
                properties.iter().map(|property| format!("`{property:?}`")).collect()
            }
            CaughtBy::Test(test) => vec![format!("{}, `{}`", test.package, test.name)],
        };
        let row = rows.iter().find(|row| row.starts_with(&format!("| `{bug:?}` |")));
        !row.is_some_and(|row| caught.iter().all(|by| row.contains(by)))
    });
    let missing: Vec<String> = missing.map(|bug| format!("{bug:?}")).collect();
    assert_none(&missing, "Not in docs/internals/simulator.md as in piton_testkit::planted");
}

/// What is wrong with the pages, given as file name and text.
fn page_faults(pages: &BTreeMap<String, String>, codes: &[&str], index: &str) -> Vec<String> {
    let mut found = Vec::new();
    for code in codes {
        let Some(page) = pages.get(*code) else {
            found.push(format!("{code} has no page"));
            continue;
        };
        if !page.starts_with(&format!("# {code}: ")) {
            found.push(format!("the title of {code}.md does not begin with the code"));
        }
        for section in ["\n## Cause\n", "\n## What to do\n"] {
            if !page.contains(section) {
                found.push(format!("{code}.md has no section {:?}", section.trim()));
            }
        }
        if !index.contains(&format!("({code}.md)")) {
            found.push(format!("the index does not lead to {code}.md"));
        }
    }
    let left_over = pages.keys().filter(|page| !codes.contains(&page.as_str()));
    found.extend(left_over.map(|page| format!("{page}.md is about no code")));
    found
}

/// Wants to show: every error code has a page, and no page describes an error that no longer
/// exists.
#[test]
fn every_error_code_has_its_page() {
    let good = "# a: A\n\n## Cause\n\n## What to do\n".to_owned();
    let pages = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), good.clone())).collect();
    assert_eq!(page_faults(&pages(&["a"]), &["a"], "(a.md)"), Vec::<String>::new());
    assert_eq!(page_faults(&pages(&["a"]), &["a", "b"], "(a.md)"), ["b has no page"]);
    assert_eq!(page_faults(&pages(&["a", "b"]), &["a"], "(a.md)"), ["b.md is about no code"]);
    let wrong_title = ["the title of b.md does not begin with the code"];
    assert_eq!(page_faults(&pages(&["b"]), &["b"], "(b.md)"), wrong_title);
    assert_eq!(page_faults(&pages(&["a"]), &["a"], ""), ["the index does not lead to a.md"]);

    let pages = texts().into_iter().filter_map(|(path, text)| {
        let name = path.strip_prefix("docs/errors/")?.strip_suffix(".md")?.to_owned();
        (name != "README").then_some((name, text))
    });
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let index = read("docs/errors/README.md");
    assert_none(&page_faults(&pages.collect(), &codes, &index), "Pages of error codes");
}

/// The `make` commands of the first code block.
fn first_commands(readme: &str) -> Vec<&str> {
    let block = readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    let lines = block.unwrap_or("").lines();
    lines.filter_map(|line| line.strip_prefix("make ")?.split_whitespace().next()).collect()
}

fn has_target(makefile: &str, name: &str) -> bool {
    makefile.lines().any(|line| line.starts_with(&format!("{name}:")))
}

/// Wants to show: the first two commands of the README exist.
#[test]
fn the_two_commands_of_the_readme_exist() {
    let planted = "x\n```sh\nmake run   # a\nmake fly\n```\n```sh\nmake other\n```\n";
    assert_eq!(first_commands(planted), ["run", "fly"]);
    assert!(has_target("a:\nrun: setup ## x\n", "run"));
    assert!(!has_target("a:\nrun: setup ## x\n", "setup"));

    let (readme, makefile) = (read("README.md"), read("Makefile"));
    let commands = first_commands(&readme);
    assert_eq!(commands.len(), 2, "the first block of README.md shows two commands: {commands:?}");
    for command in commands {
        assert!(has_target(&makefile, command), "the Makefile has no target {command}");
    }
}

fn silent_exceptions(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        let allows =
            code.contains("[allow(") || code.contains("cfg_attr") && code.contains("allow(");
        if allows {
            found.push(format!("line {}: {}", i + 1, line.trim()));
        }
    }
    for (at, _) in text.match_indices("[expect(") {
        let attribute = text[at..].split(")]").next().unwrap_or("");
        if !attribute.contains("reason = ") {
            found.push(format!("line {}: expect without a reason", text[..at].lines().count()));
        }
    }
    found
}

/// Wants to show: an exception to a lint states its reason, and the compiler reports it when the
/// cause has gone.
#[test]
fn lints_are_expected_with_a_reason_and_never_allowed() {
    let planted = "#[allow(dead_code)]\n#![allow(x)]\n// #[allow(x)]\n#[expect(x)]\n\
                   #[expect(\n    x,\n    reason = \"y\"\n)]\n#[cfg_attr(a, allow(x))]\n";
    assert_eq!(
        silent_exceptions(planted),
        [
            "line 1: #[allow(dead_code)]",
            "line 2: #![allow(x)]",
            "line 9: #[cfg_attr(a, allow(x))]",
            "line 4: expect without a reason",
        ]
    );

    let in_src = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    let texts: Vec<_> =
        texts().into_iter().filter(|(path, _)| in_src(path) && extension(path) == "rs").collect();
    assert!(texts.len() > 10, "the crates' sources are looked at");
    assert_none(&findings(&texts, silent_exceptions), "Use #[expect(…, reason = …)]");
}

/// Targets of links within the tree, without their anchors.
fn relative_links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let targets = targets.map(|target| target.split('#').next().unwrap_or(""));
    targets.filter(|target| !target.is_empty() && !target.contains(':')).collect()
}

/// Wants to show: a reader who follows a link in the documents arrives.
#[test]
fn links_in_documents_lead_somewhere() {
    let planted = "[a](b.md#c) [d](https://example.org) [e](#f) [g](../h/)";
    assert_eq!(relative_links(planted), ["b.md", "../h/"]);

    let mut dead = Vec::new();
    for (path, text) in texts().iter().filter(|(path, _)| extension(path) == "md") {
        let folder = root().join(path);
        let folder = folder.parent().expect("a file lies in a folder");
        let missing = relative_links(text).into_iter().filter(|to| !folder.join(to).exists());
        dead.extend(missing.map(|to| format!("{path}: {to}")));
    }
    assert_none(&dead, "Links that lead nowhere");
}
