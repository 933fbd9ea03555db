//! How long do clients wait for answers? Response times by powers of two, counted by whoever serves sessions.
//!
//! A response time begins when the first byte of a burst is read from the socket and ends when the last byte of its answers is written; the log's flush
//! is within it. One burst, a whole pipeline perhaps, is one response.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Bucket `n` has what took less than 2^n microseconds and not less than half of that; the last one has the rest too.
pub const BUCKETS: usize = 28;
const SHARDS: usize = 8;

#[repr(align(128))]
#[derive(Default, Debug)]
struct Shard {
    counts: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// All response times since the database was opened.
#[derive(Default, Debug)]
pub struct Latency([Shard; SHARDS]);

/// What was counted until now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Responses {
    pub counts: [u64; BUCKETS],
    pub sum_us: u64,
}

impl Latency {
    #[inline]
    pub fn add(&self, took: Duration) {
        let us = took.as_micros() as u64;
        let shard = &self.0[shard_of_thread(SHARDS)];
        shard.counts[bucket(us)].fetch_add(1, Ordering::Relaxed);
        shard.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub fn responses(&self) -> Responses {
        let mut all = Responses::default();
        for shard in &self.0 {
            all.sum_us += shard.sum_us.load(Ordering::Relaxed);
            for (sum, count) in all.counts.iter_mut().zip(&shard.counts) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        all
    }
}

fn bucket(us: u64) -> usize {
    ((u64::BITS - us.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// Microseconds below which all of a bucket is; `None`: of the last one there is no end.
pub fn end_us(bucket: usize) -> Option<u64> {
    (bucket + 1 < BUCKETS).then(|| 1 << bucket)
}

/// A number below `shards` that is the thread's for good.
pub(crate) fn shard_of_thread(shards: usize) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own) % shards
}

impl Responses {
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What has come since.
    pub fn since(&self, before: &Responses) -> Responses {
        let counts = std::array::from_fn(|at| self.counts[at].saturating_sub(before.counts[at]));
        Responses { counts, sum_us: self.sum_us.saturating_sub(before.sum_us) }
    }

    /// The end of the bucket in which this share of the responses is reached; `None`: there are none, or it is the last bucket.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        at.and_then(end_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_their_buckets() {
        for (us, end) in
            [(0, Some(1)), (1, Some(2)), (2, Some(4)), (1023, Some(1024)), (1024, Some(2048)), (1 << 40, None)]
        {
            assert_eq!(end_us(bucket(us)), end, "{us}");
        }
        let latency = Latency::default();
        for us in [3, 3, 3, 100, 5000] {
            latency.add(Duration::from_micros(us));
        }
        let all = latency.responses();
        assert_eq!((all.count(), all.sum_us), (5, 5109));
        assert_eq!([0.5, 0.8, 0.99].map(|share| all.quantile_us(share)), [Some(4), Some(128), Some(8192)]);
        latency.add(Duration::from_micros(1));
        let since = latency.responses().since(&all);
        assert_eq!((since.count(), since.quantile_us(0.5)), (1, Some(2)));
        assert_eq!(Responses::default().quantile_us(0.5), None);
    }
}
