//! `docs/internals/regressions.md` names tests that exist.

use std::collections::{BTreeMap, BTreeSet};

use super::tidy::{assert_none, texts};

/// The tests that a page names as `PATH::NAME`, and that are not there.
fn missing(page: &str, sources: &BTreeMap<String, String>) -> (usize, Vec<String>) {
    let named = page.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::"));
    let mut count = 0;
    let mut missing = Vec::new();
    for (path, name) in named {
        count += 1;
        let path = format!("{path}.rs");
        let declared = [format!("fn {name}("), format!("fn {name}<")];
        let is_there = sources.get(&path).is_some_and(|text| {
            (text.contains("#[test]") || text.contains("#[tokio::test"))
                && declared.iter().any(|declared| text.contains(declared))
        });
        if !is_there {
            missing.push(format!("{path}::{name}"));
        }
    }
    (count, missing)
}

/// What the rows of a page were found as, by letter and number.
fn numbers(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(": "));
    let found = rows.flat_map(|(before, _)| before.split(", ").map(str::to_owned));
    let is_number = |word: &String| {
        let mut chars = word.chars();
        chars.next().is_some_and(|c| c.is_ascii_uppercase())
            && !chars.as_str().is_empty()
            && chars.all(|c| c.is_ascii_digit())
    };
    found.filter(is_number).collect()
}

/// Wants to show: each promise, each finding about agents and each about the terminal has its row.
#[test]
fn every_number_has_its_row() {
    let planted = numbers("| P1: a | `t` |\n| G2, U3: b: c | `t` |\n| no: d | `t` |\n| e | `t` |");
    assert_eq!(planted, ["P1", "G2", "U3"].map(str::to_owned).into());
    let sources: BTreeMap<_, _> = texts().into_iter().collect();
    let found = numbers(&sources["docs/internals/regressions.md"]);
    let promises = (1..=17).map(|number| format!("P{number}"));
    let agents = (1..=7).map(|number| format!("G{number}"));
    let terminal = [1, 2, 3, 11, 15, 16, 17, 19, 21].map(|number| format!("U{number}"));
    let wanted = promises.chain(agents).chain(terminal);
    let missing: Vec<_> = wanted.filter(|number| !found.contains(number)).collect();
    assert_none(&missing, "Numbers without a row");
}

/// Wants to show: no row names a test that was removed or renamed.
#[test]
fn every_named_test_exists() {
    let planted = BTreeMap::from([("a.rs".to_owned(), "#[test]\nfn one() {}".to_owned())]);
    let page = "| x | `a.rs::one` |\n| y | `a.rs::two` |\n| z | `b.rs::one` |";
    let found = (3, vec!["a.rs::two".to_owned(), "b.rs::one".to_owned()]);
    assert_eq!(missing(page, &planted), found);
    let sources: BTreeMap<_, _> = texts().into_iter().collect();
    let (count, missing) = missing(&sources["docs/internals/regressions.md"], &sources);
    assert!(count >= 100, "the rows are looked at: {count}");
    assert_none(&missing, "Tests that the table names and that do not exist");
}
