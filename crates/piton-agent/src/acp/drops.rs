//! What was left out is said, but an agent that prints its progress to stdout must not fill the
//! spool with it: of each reason the first few are noted one by one, the rest as one sum.

use std::collections::BTreeMap;

use piton_core::spool::Fact;

#[derive(Debug)]
pub(super) struct Drops {
    each_max: u64,
    by_reason: BTreeMap<&'static str, Sum>,
}

#[derive(Debug, Default)]
struct Sum {
    noted: u64,
    /// Not noted yet.
    bytes: u64,
}

impl Drops {
    pub(super) fn new(each_max: u64) -> Self {
        Self { each_max, by_reason: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, why: &'static str, bytes: u64) -> Option<Fact> {
        let sum = self.by_reason.entry(why).or_default();
        if sum.noted < self.each_max {
            sum.noted += 1;
            return Some(Fact::Dropped { why: why.to_owned(), bytes });
        }
        sum.bytes += bytes;
        None
    }

    /// What was counted since.
    pub(super) fn take(&mut self) -> Vec<Fact> {
        let sums = self.by_reason.iter_mut().filter(|(_, sum)| sum.bytes > 0);
        sums.map(|(why, sum)| Fact::Dropped {
            why: (*why).to_owned(),
            bytes: std::mem::take(&mut sum.bytes),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_noted_and_the_rest_is_summed() {
        let mut drops = Drops::new(2);
        let dropped = |bytes| Fact::Dropped { why: "not_json".to_owned(), bytes };
        assert_eq!(drops.add("not_json", 1), Some(dropped(1)));
        assert_eq!(drops.add("not_json", 2), Some(dropped(2)));
        assert_eq!(drops.add("not_json", 3), None);
        assert_eq!(drops.add("not_json", 4), None);
        assert_eq!(drops.take(), [dropped(7)]);
        assert_eq!(drops.take(), []);
    }
}
