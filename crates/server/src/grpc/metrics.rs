//! Counters under the names that URLFrontier's dashboard reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::metrics::text::Page;

/// Counters of the URLFrontier API.
#[derive(Debug, Default)]
pub struct GrpcMetrics {
    get_calls: AtomicU64,
    get_urls: AtomicU64,
    get_nanos: AtomicU64,
    put_calls: AtomicU64,
    put_discovered_calls: AtomicU64,
    put_urls: AtomicU64,
    put_discovered: AtomicU64,
    put_known: AtomicU64,
    put_ignored: AtomicU64,
    put_completed: AtomicU64,
}

/// What one poll of a put stream did, summed up before it touches the shared counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutTally {
    /// Items sent as discovered.
    pub discovered: u64,
    /// Items sent as known.
    pub known: u64,
    /// Discovered items that were known already.
    pub ignored: u64,
    /// Known items that are completed.
    pub completed: u64,
}

impl GrpcMetrics {
    /// A GetURLs call handed out `urls` URLs.
    pub fn on_get(&self, urls: usize, took: Duration) {
        self.get_calls.fetch_add(1, Relaxed);
        self.get_urls.fetch_add(urls as u64, Relaxed);
        self.get_nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// A PutURLs stream was opened.
    pub fn on_put_urls(&self) {
        self.put_calls.fetch_add(1, Relaxed);
    }

    /// A PutDiscovered stream was opened.
    pub fn on_put_discovered(&self) {
        self.put_discovered_calls.fetch_add(1, Relaxed);
    }

    /// A put stream received and settled items.
    pub fn on_items(&self, tally: PutTally) {
        let add = |counter: &AtomicU64, count: u64| {
            if count > 0 {
                counter.fetch_add(count, Relaxed);
            }
        };
        add(&self.put_urls, tally.discovered + tally.known);
        add(&self.put_discovered, tally.discovered);
        add(&self.put_known, tally.known);
        add(&self.put_ignored, tally.ignored);
        add(&self.put_completed, tally.completed);
    }

    /// Renders all counters in Prometheus text format.
    pub fn render(&self, out: &mut String) {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let mut page = Page::default();
        for (name, help, counter) in [
            ("frontier_getURLs_calls_total", "GetURLs calls answered", &self.get_calls),
            ("frontier_getURLs_total", "URLs handed out by GetURLs", &self.get_urls),
            ("frontier_putURLs_calls_total", "PutURLs streams opened", &self.put_calls),
            ("frontier_putDiscovered_calls_total", "PutDiscovered streams opened", &self.put_discovered_calls),
            ("frontier_putURLs_total", "URLs sent to the frontier", &self.put_urls),
            ("frontier_putURLs_ignored_total", "Discovered URLs that were known already", &self.put_ignored),
            ("frontier_putURLs_completed_total", "URLs completed", &self.put_completed),
        ] {
            page.counter(name, help, count(counter));
        }
        let sent = [("true", count(&self.put_discovered)), ("false", count(&self.put_known))];
        let help = "URLs sent to the frontier as discovered or as known";
        page.counters("frontier_putURLs_discovered_total", help, "discovered", &sent);
        let seconds = Duration::from_nanos(count(&self.get_nanos)).as_secs_f64();
        let help = "Time until a GetURLs call has its URLs";
        page.summary("frontier_getURLs_latency_seconds", help, count(&self.get_calls), seconds);
        page.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboards_names_are_there_with_their_values() {
        let metrics = GrpcMetrics::default();
        metrics.on_get(3, Duration::from_millis(1_500));
        metrics.on_put_urls();
        metrics.on_items(PutTally { discovered: 5, known: 2, ignored: 1, completed: 2 });
        let mut text = String::new();
        metrics.render(&mut text);
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "frontier_getURLs_calls_total 1",
                "frontier_getURLs_total 3",
                "frontier_putURLs_calls_total 1",
                "frontier_putDiscovered_calls_total 0",
                "frontier_putURLs_total 7",
                "frontier_putURLs_ignored_total 1",
                "frontier_putURLs_completed_total 2",
                "frontier_putURLs_discovered_total{discovered=\"true\"} 5",
                "frontier_putURLs_discovered_total{discovered=\"false\"} 2",
                "frontier_getURLs_latency_seconds_sum 1.5",
                "frontier_getURLs_latency_seconds_count 1",
            ]
        );
    }
}
