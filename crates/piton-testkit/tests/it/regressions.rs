//! `docs/internals/regressions.md` names tests that exist.

use std::collections::BTreeMap;

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
