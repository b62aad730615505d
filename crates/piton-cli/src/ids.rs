//! Ids as people see and type them. An id begins with the time of its creation, so ids of one day
//! differ at their end: a table on a terminal shows the shortest end that is unique in it, and every
//! command takes a beginning or an end.

use crate::ui::Ui;

/// A shown end has at least this many characters: another id should not get the same end soon.
const SHOWN_CHARS_MIN: usize = 6;

/// Whether a text is the beginning or the end of an id.
pub(crate) fn is_part(part: &str, whole: &str) -> bool {
    whole.starts_with(part) || whole.ends_with(part)
}

/// The ids of one table, as they are shown.
#[derive(Debug)]
pub(crate) struct ShownIds {
    /// Reversed and sorted; empty if ids are shown whole.
    reversed: Vec<Vec<char>>,
}

impl ShownIds {
    /// Whole, unless a person reads them on a terminal.
    pub(crate) fn new<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        if Ui::shows_short_ids() { Self::short(ids) } else { Self { reversed: Vec::new() } }
    }

    pub(crate) fn short<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        let mut reversed: Vec<Vec<char>> =
            ids.into_iter().map(|id| id.chars().rev().collect()).collect();
        reversed.sort_unstable();
        reversed.dedup();
        Self { reversed }
    }

    pub(crate) fn shown(&self, id: &str) -> String {
        let whole: Vec<char> = id.chars().rev().collect();
        let Ok(at) = self.reversed.binary_search(&whole) else { return id.to_owned() };
        let before = at.checked_sub(1).and_then(|at| self.reversed.get(at));
        let shared = [before, self.reversed.get(at + 1)]
            .into_iter()
            .flatten()
            .map(|other| other.iter().zip(&whole).take_while(|(a, b)| a == b).count());
        let needed = shared.max().map_or(0, |shared| shared + 1).max(SHOWN_CHARS_MIN);
        let rest = whole.get(needed..).unwrap_or_default();
        // Not from a dash on: a shell's command would take it for an option.
        let dashes = whole.get(needed - 1).is_some_and(|first| !first.is_alphanumeric());
        let needed = needed + usize::from(dashes);
        if rest.len() <= usize::from(dashes) {
            return id.to_owned();
        }
        whole.into_iter().take(needed).rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_beginning_or_an_end() {
        for (part, is) in
            [("sess_0199", true), ("3f9a", true), ("sess_0199-3f9a", true), ("0199", false)]
        {
            assert_eq!(is_part(part, "sess_0199-3f9a"), is, "{part}");
        }
    }

    #[test]
    fn the_shortest_end_that_is_unique_is_shown() {
        let ids = ["sess_0199aa-11223344", "sess_0199aa-91223344", "sess_0199ab-ffffffff", "x_1"];
        let shown = ShownIds::short(ids);
        assert_eq!(shown.shown(ids[0]), "11223344");
        assert_eq!(shown.shown(ids[1]), "91223344");
        assert_eq!(shown.shown(ids[2]), "ffffff");
        assert_eq!(shown.shown(ids[3]), "x_1");
        assert_eq!(shown.shown("another"), "another");
        assert_eq!(ShownIds::short(["sess_1-abcde"]).shown("sess_1-abcde"), "1-abcde");
    }
}
