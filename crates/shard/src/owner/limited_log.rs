//! Rate-limited logging: a failure that repeats for every call of every shard is logged once, then rarely, with the
//! number of suppressed lines.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::shared::readiness::lock;

/// Minimum interval between two lines about the same kind of failure.
const EVERY: Duration = Duration::from_secs(30);

/// One kind of log line, shared by all shards of a process.
#[derive(Default)]
pub(crate) struct LimitedLog(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    last: Option<Instant>,
    left_out: u64,
}

impl LimitedLog {
    /// Counts a line. If a line is due, returns how many were suppressed since the last one.
    pub fn line(&self) -> Option<u64> {
        let mut lines = lock(&self.0);
        let now = Instant::now();
        if lines.last.is_some_and(|last| now.duration_since(last) < EVERY) {
            lines.left_out += 1;
            return None;
        }
        lines.last = Some(now);
        Some(std::mem::take(&mut lines.left_out))
    }
}

/// Log lines about the store that would otherwise be written once per call.
#[derive(Default)]
pub(crate) struct StoreLog {
    pub commits: LimitedLog,
    pub reads: LimitedLog,
    pub opens: LimitedLog,
    pub damage: LimitedLog,
    pub recoveries: LimitedLog,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_line_comes_at_once_and_the_next_one_counts_what_was_left_out() {
        let rarely = LimitedLog::default();
        assert_eq!(rarely.line(), Some(0));
        for _ in 0..7 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(rarely.line(), None);
        }
        tokio::time::advance(EVERY).await;
        assert_eq!(rarely.line(), Some(7));
        tokio::time::advance(EVERY).await;
        assert_eq!(rarely.line(), Some(0));
    }
}
