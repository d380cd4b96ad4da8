//! Latencies of a run: a bounded number of samples, and their percentiles.

use std::time::Duration;

/// The maximum number of samples; later ones are dropped.
const SAMPLES_MAX: usize = 500_000;

/// Samples in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Latency(Vec<u32>);

impl Latency {
    /// Adds a sample.
    pub fn add(&mut self, took: Duration) {
        if self.0.len() < SAMPLES_MAX {
            self.0.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        }
    }

    /// Merges samples.
    pub fn merge(&mut self, other: &Self) {
        let room = SAMPLES_MAX - self.0.len();
        self.0.extend(other.0.iter().take(room));
    }

    /// A percentile, in milliseconds.
    pub fn percentile_ms(&self, percent: usize) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(rank).map(|micros| f64::from(*micros) / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let mut latency = Latency::default();
        assert_eq!(latency.percentile_ms(50), None);
        for ms in (1..=100).rev() {
            latency.add(Duration::from_millis(ms));
        }
        assert_eq!(latency.percentile_ms(50), Some(50.0));
        assert_eq!(latency.percentile_ms(99), Some(99.0));
        assert_eq!(latency.percentile_ms(100), Some(100.0));
    }
}
