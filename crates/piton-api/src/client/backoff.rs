//! How long to wait before the next attempt.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

const FIRST_DELAY: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(30);

/// Half a second, doubling up to half a minute, each with a random part, so that many clients do not
/// come back at the same moment.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    random: RandomState,
    attempts: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST_DELAY, random: RandomState::new(), attempts: 0 }
    }
}

impl Backoff {
    /// The next delay: between half and all of what is due.
    pub fn delay(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(DELAY_MAX);
        self.attempts += 1;
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.attempts);
        let share = u32::try_from(hasher.finish() % 1_000).unwrap_or(0);
        due / 2 + due / 2 * share / 1_000
    }

    /// It worked: the next delay is the first one again.
    pub fn reset(&mut self) {
        self.next = FIRST_DELAY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit_and_begin_again() {
        let mut backoff = Backoff::default();
        let mut due = FIRST_DELAY;
        for _ in 0..10 {
            let delay = backoff.delay();
            assert!(delay >= due / 2 && delay <= due, "{delay:?} of {due:?}");
            due = (due * 2).min(DELAY_MAX);
        }
        assert_eq!(due, DELAY_MAX);
        backoff.reset();
        assert!(backoff.delay() <= FIRST_DELAY);
    }
}
