//! Rate limits: a token bucket for each principal, and for callers without a valid access token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use piton_core::Code;

use crate::problem::{Problem, Result};

/// Principals that are remembered; beyond it those with full buckets are forgotten.
const PRINCIPALS_MAX: usize = 4_096;

/// The bucket of all who are too many to be remembered.
const SHARED_BUCKET: &str = "others";

/// The sustained requests per second of one caller, and the size of a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub burst: f64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { per_second: 2_000.0, burst: 4_000.0 }
    }
}

#[derive(Debug)]
pub(crate) struct Limits {
    rate: Rate,
    buckets: Mutex<HashMap<Arc<str>, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Limits {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, buckets: Mutex::default() }
    }

    /// Takes one request from a caller's bucket.
    pub(crate) fn take(&self, principal: &Arc<str>) -> Result<()> {
        self.take_at(principal, Instant::now())
    }

    fn take_at(&self, principal: &Arc<str>, now: Instant) -> Result<()> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Rate { per_second, burst } = self.rate;
        let refilled = |bucket: &Bucket| {
            let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + passed * per_second).min(burst)
        };
        if buckets.len() >= PRINCIPALS_MAX {
            buckets.retain(|_, bucket| refilled(bucket) < burst);
        }
        // More than can be remembered share one bucket: forgetting would give each a full one.
        let is_new = !buckets.contains_key(principal);
        let name = if is_new && buckets.len() >= PRINCIPALS_MAX {
            SHARED_BUCKET.into()
        } else {
            Arc::clone(principal)
        };
        let bucket = buckets.entry(name).or_insert(Bucket { left: burst, at: now });
        let left = refilled(bucket);
        if left < 1.0 {
            let mut problem = Problem::new(Code::RateLimited, "Too many requests");
            problem.retry_after_s = Some(1);
            return Err(problem);
        }
        *bucket = Bucket { left: left - 1.0, at: now };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_refills_and_is_its_owners_alone() {
        let limits = Limits::new(Rate { per_second: 2.0, burst: 3.0 });
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let begin = Instant::now();
        for _ in 0..3 {
            assert!(limits.take_at(&one, begin).is_ok());
        }
        let problem = limits.take_at(&one, begin).unwrap_err();
        assert_eq!(problem.code, Code::RateLimited);
        assert!(limits.take_at(&other, begin).is_ok());
        assert!(limits.take_at(&one, begin + Duration::from_millis(500)).is_ok());
        assert!(limits.take_at(&one, begin + Duration::from_millis(500)).is_err());
    }
}
