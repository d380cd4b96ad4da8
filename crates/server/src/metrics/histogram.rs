//! A latency histogram with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in seconds.
pub const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Durations in fixed buckets, with their count and sum.
#[derive(Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    /// Records one duration.
    pub fn observe(&self, took: Duration) {
        let secs = took.as_secs_f64();
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            if secs <= bound {
                bucket.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The number of durations at or below each bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut below = 0;
        self.buckets.iter().zip(BOUNDS).map(move |(bucket, bound)| {
            below += bucket.load(Ordering::Relaxed);
            (bound, below)
        })
    }

    /// The count.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The sum in seconds.
    pub fn sum_secs(&self) -> f64 {
        self.micros.load(Ordering::Relaxed) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_its_bucket_and_all_above() {
        let histogram = Histogram::default();
        for ms in [1, 3, 400, 60_000] {
            histogram.observe(Duration::from_millis(ms));
        }
        let below: Vec<u64> = histogram.cumulative().map(|(_, n)| n).collect();
        assert_eq!(below, [1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3]);
        assert_eq!((histogram.count(), histogram.sum_secs()), (4, 60.404));
    }
}
